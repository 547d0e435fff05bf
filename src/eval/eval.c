/* SPDX-License-Identifier: Apache-2.0
 * A graph as prepared kernels and buffers that are reused once their last reader has run. */
#include "eval/eval.h"

#include "os/os.h"

#include <stdlib.h>
#include <string.h>

typedef struct step {
    sn_kernel *kernel;
    const void *in[SN_OP_IN_MAX];
    void *out[SN_OP_OUT_MAX];
} step;

/* A block of memory; free between a value's last reader and the next that it fits. */
typedef struct block {
    void *data;
    size_t bytes;
    bool free;
} block;

struct sn_eval {
    const sn_graph *graph;
    sn_arena *arena;
    step *step;
    void **data;  /* [values] */
    int *last;    /* [values] the node that reads it last, −1 none */
    bool *kept;   /* [values] */
    int *held_by; /* [values] its block */
    block *blocks;
    int count;
    size_t cap, total;
};

static void spec_operand(sn_dtype *dtype, sn_shape *shape, const sn_value *v)
{
    *dtype = v->dtype;
    *shape = v->shape;
}

static sn_kernel_spec spec_of(const sn_graph *g, const sn_node *n)
{
    sn_kernel_spec s = {.op = n->op, .attr = n->attr, .ins = n->ins, .outs = n->outs};
    for (int i = 0; i < n->ins; i++) {
        s.in[i].absent = n->in[i] < 0;
        if (n->in[i] >= 0)
            spec_operand(&s.in[i].dtype, &s.in[i].shape, &g->value[n->in[i]]);
    }
    for (int o = 0; o < n->outs; o++)
        spec_operand(&s.out[o].dtype, &s.out[o].shape, &g->value[n->out[o]]);
    return s;
}

sn_status sn_eval_op(void *card, sn_op op, const sn_attr *attr, const sn_tensor *in, int ins,
                     sn_tensor *out, int outs)
{
    sn_kernel_spec s = {.op = op, .ins = ins, .outs = outs};
    const void *from[SN_OP_IN_MAX] = {0};
    void *to[SN_OP_OUT_MAX] = {0};
    sn_kernel *k;
    if (attr)
        s.attr = *attr;
    for (int i = 0; i < ins; i++) {
        s.in[i].dtype = in[i].dtype;
        s.in[i].shape = in[i].shape;
        from[i] = in[i].data;
    }
    for (int o = 0; o < outs; o++) {
        s.out[o].dtype = out[o].dtype;
        s.out[o].shape = out[o].shape;
        to[o] = out[o].data;
    }
    SN_TRY(sn_card_prepare(card, &s, &k));
    return sn_kernel_run(k, from, to);
}

static sn_status block_for(sn_eval *e, int v)
{
    const sn_value *value = &e->graph->value[v];
    size_t bytes = (size_t) sn_shape_count(value->shape) * sn_dtype_bytes(value->dtype);
    int best = -1;
    bytes = SN_ALIGN_UP(SN_MAX(bytes, (size_t) 1), (size_t) 64);
    for (int b = 0; b < e->count && value->producer >= 0; b++)
        if (e->blocks[b].free && e->blocks[b].bytes >= bytes &&
            (best < 0 || e->blocks[b].bytes < e->blocks[best].bytes))
            best = b;
    if (best < 0 || e->blocks[best].bytes > 4 * bytes) {
        uint64_t available = sn_memory_available();
        void *data = available && bytes > available ? NULL : aligned_alloc(64, bytes);
        char need[32], have[32];
        if (!data)
            return sn_fail(SN_EFIT, "the graph needs %s for one value beyond %s, %s are available",
                           sn_fmt_bytes(need, (double) bytes),
                           sn_fmt_bytes((char[32]){0}, (double) e->total),
                           sn_fmt_bytes(have, (double) available));
        e->blocks = sn_arena_grow(e->arena, e->blocks, (size_t) e->count, (size_t) e->count + 1,
                                  sizeof *e->blocks, &e->cap);
        best = e->count++;
        e->blocks[best] = (block){data, bytes, false};
        e->total += bytes;
    }
    e->blocks[best].free = false;
    e->held_by[v] = best;
    e->data[v] = e->blocks[best].data;
    return SN_OK;
}

static void release(sn_eval *e, int v)
{
    if (!e->kept[v] && e->held_by[v] >= 0)
        e->blocks[e->held_by[v]].free = true;
}

static sn_status prepare_node(sn_eval *e, sn_card *card, int i)
{
    const sn_graph *g = e->graph;
    const sn_node *n = &g->node[i];
    sn_kernel_spec s = spec_of(g, n);
    SN_TRY(sn_card_prepare(card, &s, &e->step[i].kernel));
    for (int o = 0; o < n->outs; o++) {
        SN_TRY(block_for(e, n->out[o]));
        e->step[i].out[o] = e->data[n->out[o]];
    }
    for (int k = 0; k < n->ins; k++)
        e->step[i].in[k] = n->in[k] >= 0 ? e->data[n->in[k]] : NULL;
    for (int o = 0; o < n->outs; o++)
        if (e->last[n->out[o]] < 0)
            release(e, n->out[o]);
    for (int k = 0; k < n->ins; k++)
        if (n->in[k] >= 0 && e->last[n->in[k]] == i)
            release(e, n->in[k]);
    return SN_OK;
}

static sn_status prepare(sn_eval *e, sn_card *card, const int *keep, int keeps)
{
    const sn_graph *g = e->graph;
    for (int v = 0; v < g->values; v++) {
        e->last[v] = e->held_by[v] = -1;
        e->kept[v] = g->value[v].producer < 0;
    }
    for (int k = 0; k < keeps; k++)
        if (keep[k] >= 0)
            e->kept[keep[k]] = true;
    for (int i = 0; i < g->nodes; i++)
        for (int k = 0; k < g->node[i].ins; k++)
            if (g->node[i].in[k] >= 0)
                e->last[g->node[i].in[k]] = i;
    for (int v = 0; v < g->values; v++)
        if (g->value[v].producer < 0)
            SN_TRY(block_for(e, v));
    for (int i = 0; i < g->nodes; i++)
        SN_TRY(prepare_node(e, card, i));
    return SN_OK;
}

sn_status sn_eval_create(sn_card *card, const sn_graph *g, const int *keep, int keeps,
                         sn_eval **ret)
{
    sn_arena *arena = sn_arena_create();
    sn_eval *e = SN_NEW(arena, sn_eval);
    e->arena = arena;
    e->graph = g;
    e->step = SN_NEW_N(arena, step, g->nodes + 1);
    e->data = SN_NEW_N(arena, void *, g->values + 1);
    e->last = SN_NEW_N(arena, int, g->values + 1);
    e->kept = SN_NEW_N(arena, bool, g->values + 1);
    e->held_by = SN_NEW_N(arena, int, g->values + 1);
    sn_status status = prepare(e, card, keep, keeps);
    if (status < 0) {
        sn_eval_free(e);
        return status;
    }
    *ret = e;
    return SN_OK;
}

void sn_eval_free(sn_eval *e)
{
    if (!e)
        return;
    for (int b = 0; b < e->count; b++)
        free(e->blocks[b].data);
    sn_arena_free(e->arena);
}

void *sn_eval_data(sn_eval *e, int value)
{
    return e->data[value];
}

sn_status sn_eval_run(sn_eval *e)
{
    for (int i = 0; i < e->graph->nodes; i++) {
        sn_status status = sn_kernel_run(e->step[i].kernel, e->step[i].in, e->step[i].out);
        if (status < 0)
            return sn_fail_in(status, "%s", e->graph->node[i].name);
    }
    return SN_OK;
}

void sn_eval_descend(sn_eval *e, double lr)
{
    for (int v = 0; v < e->graph->values; v++) {
        const sn_value *value = &e->graph->value[v];
        if (value->kind != SN_VALUE_PARAM || value->grad < 0)
            continue;
        float *p = e->data[v];
        const float *d = e->data[value->grad];
        int64_t n = sn_shape_count(value->shape);
        for (int64_t i = 0; i < n; i++)
            p[i] -= (float) (lr * (double) d[i]);
    }
}
