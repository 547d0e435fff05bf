/* SPDX-License-Identifier: Apache-2.0
 *
 * hf — Hugging Face folders of GPT-2: weights to begin with, and a trained model for others. */
#include <string.h>

#include "os/os.h"
#include "train/parts.h"

static bool has_shape(const sn_gpt *g)
{
    bool act = g->act == SN_ACT_NONE || g->act == SN_ACT_GELU || g->act == SN_ACT_GELU_TANH;
    return act && !g->rotary && !g->gated && !g->rms && !g->no_bias && !g->experts && !g->kv_heads;
}

static sn_status to_hf(const sn_gpt *g, sn_hf_gpt2 *ret)
{
    if (!has_shape(g))
        return sn_fail(SN_ENOTSUP, "GPT-2 has learned positions, layer norm, GELU, biases and as "
                                   "many key heads as heads; this model differs");
    *ret = (sn_hf_gpt2){.layers = g->layers,
                        .hidden = g->hidden,
                        .heads = g->heads,
                        .sequence = g->sequence,
                        .vocab = g->vocab,
                        .inner = g->mlp ? g->mlp : 4 * g->hidden,
                        .epsilon = g->epsilon > 0 ? g->epsilon : 1e-5,
                        .tied = g->tied,
                        .tanh_gelu = g->act == SN_ACT_GELU_TANH};
    return SN_OK;
}

sn_status sn_train_hf_model(const char *dir, sn_gpt *ret)
{
    sn_hf_gpt2 m;
    SN_TRY(sn_hf_gpt2_config(dir, &m));
    *ret = (sn_gpt){.layers = m.layers,
                    .hidden = m.hidden,
                    .heads = m.heads,
                    .sequence = m.sequence,
                    .vocab = m.vocab,
                    .mlp = m.inner,
                    .epsilon = m.epsilon,
                    .tied = m.tied,
                    .act = m.tanh_gelu ? SN_ACT_GELU_TANH : SN_ACT_NONE};
    return SN_OK;
}

/* ---- weights to begin with ---- */

sn_status train_state_from_hf(const sn_job *job, const sn_plan *plan, const sn_program *program,
                              sn_exec *exec)
{
    sn_hf_gpt2 m;
    SN_TRY(to_hf(&job->gpt, &m));
    sn_arena *arena = sn_arena_create();
    sn_piece *piece;
    int all = train_state_pieces(plan, program, exec, false, arena, &piece), n = 0;
    for (int i = 0; i < all; i++) {
        sn_slot_kind kind = program->state[i].kind;
        if (kind != SN_SLOT_MASTER && kind != SN_SLOT_SEEN)
            continue;
        piece[n] = piece[i];
        piece[n++].name = plan->graph->value[program->state[i].value].name;
    }
    sn_status status = sn_hf_gpt2_load(job->init, &m, piece, n);
    sn_arena_free(arena);
    return status < 0 ? sn_fail_in(status, "beginning with the weights") : SN_OK;
}

/* ---- for others ---- */

static sn_status write_as(const char *dir, const char *name, sn_str *text)
{
    sn_str path = {0};
    sn_str_printf(&path, "%s/%s", dir, name);
    sn_status status = sn_file_write(sn_str_get(&path), sn_str_get(text), text->len);
    sn_str_done(&path);
    sn_str_clear(text);
    return status;
}

static sn_status write_tokenizer(const char *path, const char *dir)
{
    sn_token *token = NULL;
    sn_str text = {0};
    if (path)
        SN_TRY(sn_tokenizer_open(path, &token));
    else
        token = sn_token_bytes();
    sn_token_write(token, &text);
    sn_status status = write_as(dir, "tokenizer.json", &text);
    sn_token_write_vocab(token, &text);
    if (status >= 0)
        status = write_as(dir, "vocab.json", &text);
    sn_token_write_merges(token, &text);
    if (status >= 0)
        status = write_as(dir, "merges.txt", &text);
    sn_str_done(&text);
    sn_token_free(token);
    return status;
}

sn_status sn_train_export(const sn_job *job, const char *ckpt_dir, const char *to)
{
    sn_hf_gpt2 m;
    sn_ckpt *c;
    train_meta meta;
    SN_TRY(to_hf(&job->gpt, &m));
    SN_TRY(sn_ckpt_find(ckpt_dir, NULL, &c));
    sn_status status = train_meta_read(sn_ckpt_meta(c), job, 0, &meta, NULL);
    if (status >= 0)
        status = sn_hf_gpt2_save(to, &m, c);
    sn_ckpt_close(c);
    if (status >= 0)
        status = write_tokenizer(job->tokenizer, to);
    return status < 0 ? sn_fail_in(status, "exporting %s", ckpt_dir) : SN_OK;
}
