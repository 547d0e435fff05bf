/* SPDX-License-Identifier: Apache-2.0
 *
 * train — runs programs: data, executor, loop, evaluation, generation, checkpoints of a training
 * job.
 *
 *   job ─ plan ─ program ─ executor(card, coll) ─ step, step, … ─ checkpoint every n ─ evaluation ─
 * done
 *
 * Invariants
 *  1. No allocation in the step loop (after the first step).
 *  2. The samples after n samples depend on (seed, n) only, not on the split; so losses agree for
 *     every split and a resumed run sees the samples it would have seen.
 *  3. A checkpoint holds everything that the next step depends on: masters, moments, step, seed,
 *     data fingerprint.
 *  4. Every failure leaves as a sentence that names step, rank, host and operation. */
#ifndef SN_TRAIN_TRAIN_H
#define SN_TRAIN_TRAIN_H

#include "base/base.h"
#include "coll/coll.h"
#include "graph/graph.h"
#include "kern/kern.h"
#include "mon/mon.h"
#include "plan/plan.h"
#include "token/token.h"

/* A training job as plain numbers: what the job file says once read and resolved. */
typedef struct sn_job {
    const char *model; /* preset name or "custom" */
    sn_gpt gpt;
    const char *init; /* a Hugging Face GPT-2 folder to begin with; NULL: weights are drawn */
    int tensor, pipeline, data_parallel; /* 0 auto */
    int64_t accumulation, batch, steps;
    const char *data;       /* file or directory */
    const char *tokenizer;  /* tokenizer.json, or a folder with its files; NULL: bytes */
    const char *data_cache; /* where the text's other forms are kept; NULL: beside it */
    int prefetch;    /* batches read ahead by a thread; 0: 2 where the text is mapped, else none */
    double held_out; /* fraction at the end kept for validation, 0.05 */
    struct {
        const char *name; /* "adamw" */
        double lr, lr_min, beta1, beta2, eps, weight_decay, clip;
        int64_t warmup; /* steps, linear from lr/warmup; then cosine to lr_min at `steps` */
    } optimizer;
    sn_dtype precision;
    struct {
        const char *codec; /* of gradients between hosts: "none", "auto", "onebit", …; NULL: none */
        const char *parameters; /* of the parameters' changes; NULL or "auto": what goes with it */
        int64_t warmup;         /* steps uncompressed before */
        double momentum;        /* top-k's momentum correction */
        const char *feedback;   /* "yes": what a code leaves out goes with the next; "no"; "auto" or
                                   NULL: yes but for ternary */
    } compression;
    struct {
        int64_t every; /* steps; 0: only at the end or on ^C */
        int keep;
        const char *dir; /* NULL: RUN/checkpoints */
    } checkpoint;
    int hosts, cards_per_host;
    double link_bits_per_s; /* what an emulated host may send to the others; 0: unshaped */
    const char *card_kind;  /* "cpu" or "ref" */
    uint64_t seed;
    int64_t eval_every;   /* steps; 0: only at the end */
    int64_t eval_samples; /* for the ones on the way; the last uses all held-out text */
    uint64_t memory_limit;
    bool no_overlap;     /* wait for each collective where it is posted */
    const char *trace;   /* file for a trace of a few steps; NULL: none */
    int64_t trace_steps; /* 0: 3 */
    double deadline_s;   /* of any wait, 0: 30 */
    double detect_s;     /* silence after which a peer counts as lost: for sn_net_opts, 0: 0.1 */
} sn_job;

/* of step 0, 1, …; step `steps`-1 gets lr_min (about) */
double sn_job_lr(const sn_job *job, int64_t step);

/* ---- text ---- */
typedef struct sn_text sn_text;
/* A file, or a directory whose regular *.txt files are taken in name order. Beyond 64 MiB it is
 * mapped, not read; a directory then has its files copied into one beside them, once. SN_EINVAL /
 * SN_ENOTFOUND / SN_EPERM with the absolute path: missing, empty, not readable, shorter than
 * `sequence` + 1 in either part. */
sn_status sn_text_open(const char *path, double held_out, int64_t sequence, sn_text **ret);
void sn_text_close(sn_text *t);
int64_t sn_text_train_bytes(const sn_text *t);
int64_t sn_text_held_bytes(const sn_text *t);
const uint8_t *sn_text_train(const sn_text *t);
const uint8_t *sn_text_held(const sn_text *t);
/* Of all bytes; of a mapped text: of its length and 1,024 blocks of it. */
uint64_t sn_text_fingerprint(const sn_text *t);
bool sn_text_mapped(const sn_text *t);

/* ---- the text as what a model sees: ids ---- */
/* A tokenizer.json, or a folder with that or with vocab.json and merges.txt. */
sn_status sn_tokenizer_open(const char *path, sn_token **ret);

typedef struct sn_tokens sn_tokens;
/* Of the job's data, tokenizer, held_out and sequence. Without a tokenizer a byte is a token. With
 * one the ids are kept in a file (beside the text, or in data_cache), written once and then mapped.
 * SN_EINVAL: shorter than a sequence + 1 in either part; SN_EFIT: the model's vocab is smaller. */
sn_status sn_tokens_open(const sn_job *job, sn_tokens **ret);
void sn_tokens_close(sn_tokens *t);
const sn_text *sn_tokens_text(const sn_tokens *t);
sn_token *sn_tokens_tokenizer(const sn_tokens *t); /* NULL: bytes */
int64_t sn_tokens_train(const sn_tokens *t);       /* how many */
int64_t sn_tokens_held(const sn_tokens *t);
bool sn_tokens_mapped(const sn_tokens *t);
/* Ids [from, from + count) of one part, to every stride-th place. */
void sn_tokens_read(const sn_tokens *t, bool held, int64_t from, int64_t count, int32_t *to,
                    int64_t stride);
int64_t sn_tokens_bytes(const sn_tokens *t, bool held, int64_t from, int64_t count);
double sn_tokens_mean_bytes(const sn_tokens *t); /* of the training part, a token */
uint64_t sn_tokens_fingerprint(const sn_tokens *t);

/* The interpolated (Witten–Bell) n-gram model: trained on the training part, nats per byte on the
 * held-out part. Source: Witten & Bell, "The zero-frequency problem", IEEE Trans. Inf. Theory
 * 37(4), 1991. ~1–2 s for 4 MB, order 4. */
sn_status sn_ngram_loss(const uint8_t *train, int64_t train_bytes, const uint8_t *held,
                        int64_t held_bytes, int order, double *ret_nats_per_byte);

/* ---- pictures with labels ---- */
typedef struct sn_images sn_images;
/* The idx files PREFIX-images-idx3-ubyte and PREFIX-labels-idx1-ubyte of a folder, plain or with
 * .gz; PREFIX "train" and "t10k" in MNIST and its likes. SN_ECORRUPT says which and why. */
sn_status sn_images_open(const char *folder, const char *prefix, sn_images **ret);
void sn_images_close(sn_images *m); /* NULL is fine */
int64_t sn_images_count(const sn_images *m, int64_t *ret_height, int64_t *ret_width);
/* Pictures first … as [count, height, width] from 0 to 1; after the last comes the first. */
void sn_images_get(const sn_images *m, int64_t first, int64_t count, float *pixels,
                   int32_t *labels);
/* Samples first … of shuffled epochs: each takes every picture once, in an order of its own. */
void sn_images_draw(const sn_images *m, uint64_t seed, int64_t first, int64_t count, float *pixels,
                    int32_t *labels);

/* ---- plan of a job ---- */
/* The job's compression as codecs. `auto` weighs a link of that many bytes a second (0: the
 * topology's slowest between the hosts used) against coding at codec_bytes_per_s (0: 1 GB/s) and
 * says its choice and why in *ret_why (may be NULL). SN_EINVAL: the sentence lists the codecs. */
sn_status sn_job_compression(const sn_job *job, const sn_topo *topo, double link_bytes_per_s,
                             double codec_bytes_per_s, sn_plan_compression *ret, sn_str *ret_why);
sn_status sn_job_plan(const sn_job *job, const sn_topo *topo, int cards, sn_plan **ret);

/* ---- executor ---- */
typedef struct sn_exec sn_exec;
/* Prepares kernels, groups and memory for a program. Borrows plan and program. c may be NULL for a
 * world of one. */
sn_status sn_exec_create(const sn_plan *plan, const sn_program *program, sn_card *card, sn_coll *c,
                         sn_time deadline, sn_exec **ret);
void sn_exec_free(sn_exec *e);
/* Say in this control page (borrowed; NULL: in none) which phase and micro-batch is being computed.
 */
void sn_exec_tell(sn_exec *e, sn_page *page);
/* The same into the flight recorder (borrowed; NULL: none). */
void sn_exec_record(sn_exec *e, sn_recorder *recorder);
void *sn_exec_slot(sn_exec *e, int slot);
/* false: each collective is waited for where it is posted, so nothing is computed beside it. What
 * overlap brings can then be measured. */
void sn_exec_overlap(sn_exec *e, bool overlap);
/* How long in all some collective or transfer of this card was under way, computing beside it or
 * not; as of the end of the kernel during which it ended. */
int64_t sn_exec_flying_ns(const sn_exec *e);

/* How what the plan encodes between hosts travels from now on, on all ranks alike. */
typedef enum sn_exec_wire {
    SN_WIRE_PLAIN, /* as it is: what was seen of the masters becomes the masters */
    SN_WIRE_CODED,
    SN_WIRE_SEEN /* gathering: each its own part of what was seen, after a load */
} sn_exec_wire;
void sn_exec_set_wire(sn_exec *e, sn_exec_wire wire);
/* Run the program once: a step. What gathers the working parameters is left out where nothing has
 * changed the masters since they were gathered. Adds to time_ns (by kind). No single operation may
 * take longer than from now to `deadline`, counted from its own start (so long computations in
 * between do not use it up). Failure: sentence with node or operation. Allocates nothing. */
sn_status sn_exec_run(sn_exec *e, sn_time deadline, int64_t time_ns[SN_TIME_KINDS]);
/* Gather the working parameters now: after the masters were filled from outside, or changed how
 * they travel. */
sn_status sn_exec_gather(sn_exec *e, sn_time deadline, int64_t time_ns[SN_TIME_KINDS]);
bool sn_exec_fresh(const sn_exec *e); /* has nothing changed the masters since? */
/* The forward part of a training program alone, all micro-batches: its scalars then hold the loss
 * of what the inputs hold, on every rank; parameters and state stay as they are. Forward values
 * depend on forward values only and keep their order, so their places are as safe as in the whole
 * program.
 */
sn_status sn_exec_run_forward(sn_exec *e, sn_time deadline, int64_t time_ns[SN_TIME_KINDS]);

/* ---- a worker's whole life ---- */
typedef struct sn_train_opts {
    const sn_job *job;
    const sn_topo *topo;
    const char *run_dir;        /* runs/ID */
    const sn_algo_model *model; /* of collectives, calibrated; NULL: from topo */
    int core;                   /* bind to; -1 no */
    bool resume;        /* from the newest whole checkpoint in the checkpoint directory, if any */
    bool rank0_metrics; /* no launcher (mpirun): rank 0 writes metrics and calls on_step */
    void (*on_step)(void *ctx, const sn_step_metrics *row); /* rank 0 only; may be NULL */
    void *ctx;
} sn_train_opts;

typedef struct sn_train_result {
    int64_t steps, first_step;
    double final_loss; /* on all held-out text, nats per byte; NaN when stopped early */
    double train_loss; /* of the last step, nats per byte */
    bool stopped;      /* page->stop asked for it; a checkpoint was written */
    double plain_bytes,
        coded_bytes; /* of all ranks: what data groups received from other hosts, had it been plain,
                        and as it was; 0: nothing was to be encoded */
    double link_latency_ns, link_bytes_per_s; /* measured between hosts at start, 0: one host */
    int64_t wall_ns;
} sn_train_result;

/* Collective over boot's world. Opens net, coll, card; plans; trains; saves; says all in the
 * control page. */
sn_status sn_train_worker(sn_boot *boot, const sn_net_opts *net, const sn_train_opts *opts,
                          sn_train_result *ret);

/* ---- folders that others read ---- */
/* The numbers of a GPT-2 folder as a model of ours. */
sn_status sn_train_hf_model(const char *dir, sn_gpt *ret);
/* The newest checkpoint of ckpt_dir as such a folder: config.json, model.safetensors and the
 * tokenizer's files. SN_ENOTSUP: the model is not GPT-2's shape; the sentence says where. */
sn_status sn_train_export(const sn_job *job, const char *ckpt_dir, const char *to);

/* ---- after training: one card, any checkpoint ---- */
/* Continue `prompt` by about `bytes` bytes, whole tokens (temperature 0: always the likeliest one),
 * or until the model ends the text; loads the newest checkpoint of dir onto one card. */
sn_status sn_train_generate(const sn_job *job, const char *ckpt_dir, const char *prompt,
                            int64_t bytes, double temperature, uint64_t seed, sn_str *out);

#include "train/trainer.h"

#endif
