/* SPDX-License-Identifier: Apache-2.0
 *
 * generate — goes on with a prompt on one card, a token at a time.
 *
 *   [ … the last `sequence` tokens … ] → forward → logits at the last one → softmax(/temperature)
 *   → draw → append
 *
 * While the text is shorter than a sequence it stands at the front, followed by tokens that causal
 * attention never lets it see. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "os/os.h"
#include "train/parts.h"

typedef struct writer {
    const sn_job *job;
    sn_topo *topo;
    sn_plan *plan;
    sn_program *program;
    sn_card *card;
    sn_exec *exec;
    int32_t *ids;       /* [sequence][1] */
    const void *logits; /* [sequence][1][vocab] */
    sn_dtype dtype;
    sn_token *token; /* NULL: bytes */
    int64_t vocab;   /* of the tokenizer: the model's may be larger */
    double *weight;  /* [vocab] */
    int32_t *text;   /* ids so far */
    int64_t texts, cap;
} writer;

static sn_status find_ends(writer *g)
{
    train_feed feed;
    sn_arena *arena = sn_arena_create();
    sn_status status = train_feed_init(g->plan, g->program, g->exec, arena, &feed);
    for (int i = 0; status >= 0 && i < feed.inputs; i++) {
        train_input *in = &feed.input[i];
        if (in->targets)
            for (int64_t t = 0; t < feed.sequence; t++)
                in->at[t] = -1; /* nothing to be scored */
        else
            g->ids = in->at;
    }
    sn_arena_free(arena);
    SN_TRY(status);
    int result = g->program->result;
    if (!g->ids || result < 0)
        return sn_fail(SN_ENOTSUP, "the program of this model has no text input or no logits");
    g->logits = sn_exec_slot(g->exec, result);
    g->dtype = g->program->slot[result].dtype;
    return SN_OK;
}

static sn_status open_writer(writer *g, const sn_job *job)
{
    g->job = job;
    g->topo = train_one_card(job->card_kind);
    SN_TRY(train_plan_one_card(job, g->topo, &g->plan));
    SN_TRY(sn_plan_program(g->plan, 0, &g->program));
    SN_TRY(sn_card_open(job->card_kind, &(sn_card_opts){.threads = 1}, &g->card));
    SN_TRY(sn_exec_create(g->plan, g->program, g->card, NULL, 0, &g->exec));
    if (job->tokenizer)
        SN_TRY(sn_tokenizer_open(job->tokenizer, &g->token));
    g->vocab = SN_MIN(job->gpt.vocab, g->token ? sn_token_vocab(g->token) : 256);
    g->weight = sn_alloc((size_t) g->vocab * sizeof *g->weight);
    return find_ends(g);
}

static void close_writer(writer *g)
{
    sn_exec_free(g->exec);
    sn_card_close(g->card);
    sn_program_free(g->program);
    sn_plan_free(g->plan);
    sn_topo_free(g->topo);
    sn_token_free(g->token);
    free(g->weight);
    free(g->text);
}

/* ---- parameters: masters from the file, working parameters from the masters ---- */

static sn_status load_masters(const writer *g, const sn_ckpt *c)
{
    train_meta meta;
    SN_TRY(train_meta_read(sn_ckpt_meta(c), g->job, 0, &meta, NULL));
    sn_arena *arena = sn_arena_create();
    sn_piece *piece;
    int n = train_state_pieces(g->plan, g->program, g->exec, false, arena, &piece);
    sn_status status = sn_ckpt_load(c, piece, n);
    sn_arena_free(arena);
    return status;
}

static sn_status load_params(const writer *g, const char *dir)
{
    sn_ckpt *c;
    SN_TRY(sn_ckpt_find(dir, NULL, &c));
    sn_status status = load_masters(g, c);
    sn_ckpt_close(c);
    SN_TRY(status);
    int64_t time_ns[SN_TIME_KINDS] = {0};
    return sn_exec_gather(g->exec, sn_now() + 30 * SN_SEC, time_ns);
}

/* ---- drawing ---- */

static double logit(const writer *g, int64_t position, int64_t v)
{
    int64_t at = position * g->job->gpt.vocab + v;
    return g->dtype == SN_F32 ? (double) ((const float *) g->logits)[at]
                              : (double) sn_bf16_to_f32(((const uint16_t *) g->logits)[at]);
}

static int32_t draw(writer *g, int64_t position, double temperature, double uniform)
{
    double *weight = g->weight, sum = 0, top = -INFINITY;
    int64_t n = g->vocab, likeliest = 0;
    for (int64_t v = 0; v < n; v++)
        if (logit(g, position, v) > top) {
            top = logit(g, position, v);
            likeliest = v;
        }
    if (temperature <= 0)
        return (int32_t) likeliest;
    for (int64_t v = 0; v < n; v++)
        sum += weight[v] = exp((logit(g, position, v) - top) / temperature);
    double left = uniform * sum;
    for (int64_t v = 0; v < n; v++)
        if ((left -= weight[v]) < 0)
            return (int32_t) v;
    return (int32_t) (n - 1);
}

static sn_status next(writer *g, double temperature, double uniform, int32_t *ret)
{
    int64_t sequence = g->job->gpt.sequence, seen = SN_MIN(sequence, g->texts);
    const int32_t *tail = g->text + g->texts - seen;
    for (int64_t t = 0; t < sequence; t++)
        g->ids[t] = t < seen ? tail[t] : 0;
    int64_t time_ns[SN_TIME_KINDS] = {0};
    SN_TRY(sn_exec_run(g->exec, sn_now() + 30 * SN_SEC, time_ns));
    *ret = draw(g, seen - 1, temperature, uniform);
    return SN_OK;
}

/* ---- the text ---- */

static void append(void *ctx, const int32_t *id, int64_t count)
{
    writer *g = ctx;
    if (g->texts + count > g->cap) {
        g->cap = 2 * (g->texts + count);
        g->text = sn_realloc(g->text, (size_t) g->cap * sizeof *g->text);
    }
    memcpy(g->text + g->texts, id, (size_t) count * sizeof *id);
    g->texts += count;
}

static void start(writer *g, const char *prompt)
{
    const uint8_t *p = (const uint8_t *) prompt;
    int64_t n = (int64_t) strlen(prompt);
    if (g->token) {
        sn_token_encode(g->token, p, n, append, g);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        append(g, &(int32_t){p[i]}, 1);
}

static sn_status go_on(writer *g, int64_t bytes, double temperature, uint64_t seed, sn_str *out)
{
    for (int64_t i = 0, written = 0; written < bytes && i < bytes; i++) {
        int32_t id;
        SN_TRY(next(g, temperature, sn_hash_uniform(seed, 0, (uint64_t) i), &id));
        if (g->token && sn_token_special(g->token, id))
            break; /* the end of the text */
        append(g, &id, 1);
        uint8_t byte = (uint8_t) id;
        const uint8_t *text = &byte;
        int64_t n = 1;
        if (g->token)
            text = sn_token_text(g->token, id, &n);
        sn_str_add_n(out, (const char *) text, (size_t) n);
        written += n;
    }
    return SN_OK;
}

sn_status sn_train_generate(const sn_job *job, const char *ckpt_dir, const char *prompt,
                            int64_t bytes, double temperature, uint64_t seed, sn_str *out)
{
    if (!(temperature >= 0))
        return sn_fail(SN_EINVAL, "temperature %g is below 0", temperature);
    writer g = {0};
    sn_str text = {0};
    sn_str_add(&text, prompt && prompt[0] ? prompt : "\n"); /* a text has to start with something */
    sn_status status = open_writer(&g, job);
    if (status >= 0)
        status = load_params(&g, ckpt_dir);
    if (status >= 0) {
        start(&g, sn_str_get(&text));
        status = go_on(&g, bytes, temperature, seed, &text);
    }
    if (status >= 0)
        sn_str_add_n(out, sn_str_get(&text), text.len);
    sn_str_done(&text);
    close_writer(&g);
    return status < 0 ? sn_fail_in(status, "generating from %s", ckpt_dir) : SN_OK;
}
