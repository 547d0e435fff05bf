/* SPDX-License-Identifier: Apache-2.0
 *
 * The keys of a job file: path, flag, argument, type, field of sn_job, least, most, choices, help.
 */
#ifndef SN_APP_JOB_KEYS_H
#define SN_APP_JOB_KEYS_H

/* clang-format off */
#define SN_JOB_KEYS(X) \
    X("parallelism.tensor", "tensor", "N|auto", KEY_AUTO, tensor, 1, 1e6, NULL, \
      "cards that split each matrix") \
    X("parallelism.pipeline", "pipeline", "N|auto", KEY_AUTO, pipeline, 1, 1e6, NULL, \
      "stages that split the layers") \
    X("parallelism.data", "data-parallel", "N|auto", KEY_AUTO, data_parallel, 1, 1e6, NULL, \
      "replicas that split the batch") \
    X("gradient_accumulation", "gradient-accumulation", "N", KEY_INT, accumulation, 1, 1e6, NULL, \
      "micro-batches a step") \
    X("model", "model", "NAME", KEY_MODEL, model, 0, 0, NULL, \
      "a preset: gpt-english, gpt-bench, gpt2, …") \
    X("model.layers", "layers", "N", KEY_INT, gpt.layers, 1, 4096, NULL, \
      "transformer blocks") \
    X("model.hidden", "hidden", "N", KEY_INT, gpt.hidden, 1, 1e6, NULL, \
      "width") \
    X("model.heads", "heads", "N", KEY_INT, gpt.heads, 1, 1e5, NULL, \
      "attention heads") \
    X("model.sequence", "sequence", "N", KEY_INT, gpt.sequence, 1, 1e8, NULL, \
      "context length in tokens") \
    X("model.vocab", "vocab", "N", KEY_INT, gpt.vocab, 2, 1e7, NULL, \
      "vocabulary; default the tokenizer's, 256 for bytes") \
    X("model.mlp", "mlp", "N", KEY_INT, gpt.mlp, 0, 1e7, NULL, \
      "inner width of the MLP; 0: 4 x hidden") \
    X("model.kv_heads", "kv-heads", "N", KEY_INT, gpt.kv_heads, 0, 1e5, NULL, \
      "heads of keys and values; 0: as many as heads") \
    X("model.rotary", "rotary", "yes|no", KEY_BOOL, gpt.rotary, 0, 0, NULL, \
      "rotary positions instead of learned ones") \
    X("model.rotary_base", "rotary-base", "X", KEY_FLOAT, gpt.rotary_base, 0, 1e9, NULL, \
      "0: 10000") \
    X("model.activation", "activation", "NAME", KEY_ACT, gpt.act, 0, 0, \
      "auto relu gelu gelu_tanh silu tanh sigmoid", \
      "of the MLP; auto: gelu, silu where it is gated") \
    X("model.gated", "gated", "yes|no", KEY_BOOL, gpt.gated, 0, 0, NULL, \
      "a gated MLP (SwiGLU with silu)") \
    X("model.rms", "rms", "yes|no", KEY_BOOL, gpt.rms, 0, 0, NULL, \
      "RMS norm instead of layer norm") \
    X("model.epsilon", "epsilon", "X", KEY_FLOAT, gpt.epsilon, 0, 1, NULL, \
      "of the norms; 0: 1e-5") \
    X("model.tied", "tied", "yes|no", KEY_BOOL, gpt.tied, 0, 0, NULL, \
      "the head is the embedding's table") \
    X("model.no_bias", "no-bias", "yes|no", KEY_BOOL, gpt.no_bias, 0, 0, NULL, \
      "no biases") \
    X("model.experts", "experts", "N", KEY_INT, gpt.experts, 0, 4096, NULL, \
      "experts of each MLP; 0: none") \
    X("model.experts_used", "experts-used", "N", KEY_INT, gpt.experts_used, 0, 4096, NULL, \
      "experts that a token goes to") \
    X("init", "init", "FOLDER", KEY_TEXT, init, 0, 0, NULL, \
      "begin with a Hugging Face GPT-2 folder: its sizes, weights and tokenizer") \
    X("data", "data", "FILE", KEY_TEXT, data, 0, 0, NULL, \
      "UTF-8 file, directory of *.txt, or one of bible-kjv, dict-gcide") \
    X("data_cache", "data-cache", "DIR", KEY_TEXT, data_cache, 0, 0, NULL, \
      "where the text's other forms (ids of a tokenizer) are kept; default: beside it") \
    X("tokenizer", "tokenizer", "FILE", KEY_TEXT, tokenizer, 0, 0, NULL, \
      "tokenizer.json of supernode tokenize or GPT-2's, or its folder; default: bytes") \
    X("prefetch", "prefetch", "N|auto", KEY_AUTO, prefetch, 1, 64, NULL, \
      "batches that a thread reads ahead; auto: 2 for a text beyond 64 MiB, else none") \
    X("batch_size", "batch-size", "N", KEY_INT, batch, 1, 1e9, NULL, \
      "samples a step, whole job") \
    X("steps", "steps", "N", KEY_INT, steps, 1, 1e12, NULL, \
      "optimizer steps") \
    X("optimizer.name", "optimizer", "NAME", KEY_TEXT, optimizer.name, 0, 0, "adamw", \
      "adamw") \
    X("optimizer.lr", "lr", "X", KEY_FLOAT, optimizer.lr, 0, 1e3, NULL, \
      "peak learning rate") \
    X("optimizer.lr_min", "lr-min", "X", KEY_FLOAT, optimizer.lr_min, 0, 1e3, NULL, \
      "learning rate at the last step") \
    X("optimizer.beta1", "beta1", "X", KEY_FLOAT, optimizer.beta1, 0, 0.99999, NULL, \
      "first moment's decay") \
    X("optimizer.beta2", "beta2", "X", KEY_FLOAT, optimizer.beta2, 0, 0.9999999, NULL, \
      "second moment's decay") \
    X("optimizer.eps", "eps", "X", KEY_FLOAT, optimizer.eps, 0, 1, NULL, \
      "added to the second moment's root") \
    X("optimizer.weight_decay", "weight-decay", "X", KEY_FLOAT, optimizer.weight_decay, \
      0, 10, NULL, \
      "of matrices, not of gains and biases") \
    X("optimizer.clip", "clip", "X", KEY_FLOAT, optimizer.clip, 0, 1e9, NULL, \
      "largest gradient norm; 0: no clipping") \
    X("optimizer.warmup", "warmup", "N", KEY_INT, optimizer.warmup, 0, 1e9, NULL, \
      "steps of linear warm-up") \
    X("precision", "precision", "TYPE", KEY_DTYPE, precision, 0, 0, "f32 bf16", \
      "f32, or bf16 storage and wire") \
    X("compression.codec", "compression", "CODEC", KEY_CODEC, compression.codec, 0, 0, NULL, \
      "of gradients between hosts: none, auto, ternary, int4, topk:0.01+int8, powersgd:4, …") \
    X("compression.parameters", "compression-parameters", "CODEC", KEY_CODEC, \
      compression.parameters, 0, 0, NULL, \
      "of the parameters' changes; auto: kept, each host updates them all, where that fits") \
    X("compression.warmup", "compression-warmup", "N", KEY_INT, compression.warmup, 0, 1e9, NULL, \
      "steps uncompressed before") \
    X("compression.momentum", "compression-momentum", "X", KEY_FLOAT, compression.momentum, \
      0, 0.9999, NULL, \
      "momentum correction of topk; 0: none") \
    X("compression.feedback", "compression-feedback", "WORD", KEY_TEXT, compression.feedback, \
      0, 0, "auto yes no", \
      "send later what a code left out; auto: yes, but for ternary") \
    X("checkpoint.every", "checkpoint-every", "N", KEY_INT, checkpoint.every, 0, 1e9, NULL, \
      "steps between checkpoints; 0: only at the end") \
    X("checkpoint.keep", "checkpoint-keep", "N", KEY_INT32, checkpoint.keep, 0, 1e6, NULL, \
      "newest ones kept; 0: all") \
    X("checkpoint.dir", "checkpoint-dir", "DIR", KEY_TEXT, checkpoint.dir, 0, 0, NULL, \
      "default: checkpoints in the run's directory") \
    X("hosts", "hosts", "N", KEY_HOSTS, hosts, 1, 1024, NULL, \
      "hosts, emulated on this machine") \
    X("cards_per_host", "cards-per-host", "N", KEY_INT32, cards_per_host, 1, 4096, NULL, \
      "cards (workers) on each host") \
    X("link", "link", "RATE", KEY_RATE, link_bits_per_s, 0, 0, NULL, \
      "what each emulated host may send, such as 1Gbit/s; 0: what the machine can") \
    X("card", "card", "KIND", KEY_TEXT, card_kind, 0, 0, "cpu ref", \
      "card kind: cpu, ref") \
    X("seed", "seed", "N", KEY_INT, seed, 0, 9e18, NULL, \
      "of weights, batches and samples") \
    X("held_out", "held-out", "X", KEY_FLOAT, held_out, 1e-6, 0.5, NULL, \
      "fraction at the end of the text kept for validation") \
    X("eval_every", "eval-every", "N", KEY_INT, eval_every, 0, 1e9, NULL, \
      "steps between validations; 0: only at the end") \
    X("eval_samples", "eval-samples", "N", KEY_INT, eval_samples, 1, 1e9, NULL, \
      "windows of each validation on the way") \
    X("memory", "memory", "BYTES", KEY_BYTES, memory_limit, 0, 0, NULL, \
      "limit a card, such as 2GiB; 0: what there is") \
    X("no_overlap", "no-overlap", "yes|no", KEY_BOOL, no_overlap, 0, 0, NULL, \
      "wait for each collective where it is posted, to see what overlap brings") \
    X("trace", "trace", "FILE", KEY_TEXT, trace, 0, 0, NULL, \
      "a trace of a few steps of every card, for ui.perfetto.dev") \
    X("trace_steps", "trace-steps", "N", KEY_INT, trace_steps, 1, 1000, NULL, \
      "steps in the trace, after the first; default 3") \
    X("deadline", "deadline", "SECONDS", KEY_FLOAT, deadline_s, 0.1, 1e6, NULL, \
      "of any wait for a peer") \
    X("detection", "detection", "SECONDS", KEY_FLOAT, detect_s, 0.02, 1e6, NULL, \
      "silence after which a peer counts as lost")
/* clang-format on */

#endif
