/* SPDX-License-Identifier: Apache-2.0
 * A training job without planner, programs or collectives: one card walks the graph node by node,
 * every value in its own memory, AdamW in double by its formula. What the engine's losses are
 * compared with. */
#ifndef TRAIN_NAIVE_H
#define TRAIN_NAIVE_H

#include <math.h>

#include "train/parts.h"
#include "unit/sn_test.h"

typedef struct naive {
    const sn_job *job;
    const sn_tokens *tokens;
    sn_arena *arena;
    sn_graph *g;
    sn_card *card;
    sn_kernel **kernel;
    void **at;       /* [values] */
    double **m, **v; /* [values], of parameters */
    double **master;
} naive;

static naive naive_open(const sn_job *job, const sn_tokens *tokens, const char *kind)
{
    naive n = {.job = job, .tokens = tokens, .arena = sn_arena_create()};
    assert_ok(sn_graph_gpt(n.arena, &job->gpt, job->batch,
                           (double) (job->batch * job->gpt.sequence), &n.g));
    assert_ok(sn_graph_backward(n.g));
    assert_ok(sn_card_open(kind, &(sn_card_opts){.threads = 1}, &n.card));
    sn_graph *g = n.g;
    n.at = SN_NEW_N(n.arena, void *, g->values);
    n.m = SN_NEW_N(n.arena, double *, g->values);
    n.v = SN_NEW_N(n.arena, double *, g->values);
    n.master = SN_NEW_N(n.arena, double *, g->values);
    for (int i = 0; i < g->values; i++) {
        const sn_value *v = &g->value[i];
        int64_t count = sn_shape_count(v->shape);
        n.at[i] = aligned_alloc(64, (size_t) SN_ALIGN_UP(count * 4 + 64, 64));
        if (v->kind != SN_VALUE_PARAM)
            continue;
        n.m[i] = calloc((size_t) count, sizeof(double));
        n.v[i] = calloc((size_t) count, sizeof(double));
        n.master[i] = calloc((size_t) count, sizeof(double));
        for (int64_t k = 0; k < count; k++) {
            float w = v->init == SN_INIT_ONE ? 1 : 0;
            if (v->init == SN_INIT_NORMAL)
                w = (float) (sn_hash_normal(job->seed, sn_hash_bytes(v->name, strlen(v->name)),
                                            (uint64_t) k) *
                             v->init_std);
            n.master[i][k] = (double) w;
            ((float *) n.at[i])[k] = w;
        }
    }
    n.kernel = SN_NEW_N(n.arena, sn_kernel *, g->nodes);
    for (int i = 0; i < g->nodes; i++) {
        const sn_node *node = &g->node[i];
        sn_kernel_spec s = {
            .op = node->op, .attr = node->attr, .ins = node->ins, .outs = node->outs};
        for (int k = 0; k < node->ins; k++) {
            s.in[k].absent = node->in[k] < 0;
            if (node->in[k] >= 0) {
                s.in[k].dtype = g->value[node->in[k]].dtype;
                s.in[k].shape = g->value[node->in[k]].shape;
            }
        }
        for (int k = 0; k < node->outs; k++) {
            s.out[k].absent = node->out[k] < 0;
            if (node->out[k] >= 0) {
                s.out[k].dtype = g->value[node->out[k]].dtype;
                s.out[k].shape = g->value[node->out[k]].shape;
            }
        }
        assert_ok(sn_card_prepare(n.card, &s, &n.kernel[i]));
    }
    return n;
}

static void naive_run(naive *n, bool backward)
{
    for (int i = 0; i < n->g->nodes; i++) {
        const sn_node *node = &n->g->node[i];
        const void *in[SN_OP_IN_MAX] = {0};
        void *out[SN_OP_OUT_MAX] = {0};
        if (node->backward && !backward)
            continue;
        for (int k = 0; k < node->ins; k++)
            in[k] = node->in[k] >= 0 ? n->at[node->in[k]] : NULL;
        for (int k = 0; k < node->outs; k++)
            out[k] = node->out[k] >= 0 ? n->at[node->out[k]] : NULL;
        assert_ok(sn_kernel_run(n->kernel[i], in, out));
    }
}

static double naive_norm2(const naive *n)
{
    double sum = 0;
    for (int i = 0; i < n->g->values; i++) {
        const sn_value *v = &n->g->value[i];
        if (v->kind == SN_VALUE_PARAM && v->grad >= 0)
            for (int64_t k = 0; k < sn_shape_count(v->shape); k++)
                sum += pow((double) ((float *) n->at[v->grad])[k], 2);
    }
    return sum;
}

static void naive_adamw(naive *n, int64_t step)
{
    const sn_job *j = n->job;
    double norm = sqrt(naive_norm2(n)), lr = sn_job_lr(j, step), t = (double) step + 1;
    double clip = j->optimizer.clip > 0 && norm > j->optimizer.clip ? j->optimizer.clip / norm : 1;
    for (int i = 0; i < n->g->values; i++) {
        const sn_value *v = &n->g->value[i];
        if (v->kind != SN_VALUE_PARAM || v->grad < 0)
            continue;
        double b1 = j->optimizer.beta1, b2 = j->optimizer.beta2;
        for (int64_t k = 0; k < sn_shape_count(v->shape); k++) {
            double g = clip * (double) ((float *) n->at[v->grad])[k];
            n->m[i][k] = b1 * n->m[i][k] + (1 - b1) * g;
            n->v[i][k] = b2 * n->v[i][k] + (1 - b2) * g * g;
            double mh = n->m[i][k] / (1 - pow(b1, t)), vh = n->v[i][k] / (1 - pow(b2, t));
            n->master[i][k] -= lr * (mh / (sqrt(vh) + j->optimizer.eps) +
                                     (v->decay ? j->optimizer.weight_decay : 0) * n->master[i][k]);
            ((float *) n->at[i])[k] = (float) n->master[i][k];
        }
    }
}

static train_feed naive_feed(naive *n, train_input input[2])
{
    input[0] = (train_input){.at = n->at[sn_graph_find(n->g, "ids")], .samples = n->job->batch};
    input[1] = (train_input){
        .at = n->at[sn_graph_find(n->g, "targets")], .samples = n->job->batch, .targets = true};
    return (train_feed){.inputs = 2,
                        .input = input,
                        .sequence = n->job->gpt.sequence,
                        .micro_batch = n->job->batch};
}

static double naive_step(naive *n, int64_t step)
{
    train_input input[2];
    train_feed f = naive_feed(n, input);
    train_feed_step(&f, n->tokens, n->job->seed, step * n->job->batch);
    naive_run(n, true);
    naive_adamw(n, step);
    return (double) *(float *) n->at[n->g->loss];
}

/* The mean over every held-out byte but the first. */
static double naive_evaluate(naive *n)
{
    train_input input[2];
    train_feed f = naive_feed(n, input);
    int64_t all = train_held_windows(n->tokens, f.sequence), window[256];
    double sum = 0;
    for (int64_t at = 0; at < all; at += n->job->batch) {
        int64_t k = SN_MIN(n->job->batch, all - at);
        for (int64_t i = 0; i < k; i++)
            window[i] = at + i;
        train_feed_held(&f, n->tokens, window, k);
        naive_run(n, false);
        sum += (double) *(float *) n->at[n->g->loss] * (double) (f.sequence * n->job->batch);
    }
    return sum / (double) sn_tokens_bytes(n->tokens, true, 1, sn_tokens_held(n->tokens) - 1);
}

static void naive_close(naive *n)
{
    for (int i = 0; i < n->g->values; i++) {
        free(n->at[i]);
        free(n->m[i]);
        free(n->v[i]);
        free(n->master[i]);
    }
    sn_card_close(n->card);
    sn_arena_free(n->arena);
}

#endif
