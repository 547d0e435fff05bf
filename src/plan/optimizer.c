/* SPDX-License-Identifier: Apache-2.0
 *
 * The flat buffers and what happens in them: gradients are added up in place over micro-batches, a
 * finished bucket is reduced at once, my shard is updated, parameters are gathered.
 *
 *   grads ─ all_reduce partial runs (tensor) ─ [to BF16] ─ reduce_scatter (data) → shard of grads
 *   master, m, v of my shard ─ adamw ─ [to BF16] ─ all_gather (data) → params
 *
 * With data = 1 my shard is everything; in F32 the master is the parameter itself.
 *
 * Encoded between hosts (compression), both are of F32 whatever the precision:
 *
 *   grads ─ … ─ reduce_scatter, encoded → shard of grads
 *   master ─ all_gather of what is new, encoded → seen [─ to BF16 → params]
 *
 * or, when the parameters are kept everywhere: every card has all of the optimizer's state.
 *
 *   grads ─ … ─ all_reduce, encoded, in place ─ adamw on all of it */
#include "plan/emit.h"

static int parts(const emitter *e)
{
    return e->m->forward_only ? 1 : e->plan->data;
}

/* Over how many cards the optimizer's state is cut. */
static int shards(const emitter *e)
{
    return emit_encodes(e, SN_ALL_REDUCE) ? 1 : parts(e);
}

static bool master_is_param(const emitter *e)
{
    return e->m->precision == SN_F32 && shards(e) == 1;
}

/* My part of bucket b: where it starts in the flat order and in the shard buffers. */
typedef struct share {
    int64_t at, count, shard_at;
} share;

static share cut(const emitter *e, const plan_bucket *b, int n)
{
    int64_t count = b->count / n, index = n > 1 ? e->d : 0;
    return (share){b->at + index * count, count, b->at / n};
}

static share share_of(const emitter *e, const plan_bucket *b)
{
    return cut(e, b, shards(e));
}

/* ---- slots that outlive a step */

static int flat(emitter *e, sn_slot_kind kind, const char *name, sn_dtype dtype, int64_t elements)
{
    return emit_slot(e, kind, name, dtype, SN_SHAPE(elements), -1);
}

static void views_of_params(emitter *e)
{
    const plan_model *m = e->m;
    for (int i = 0; i < e->layout->params; i++) {
        const plan_param *p = &e->layout->param[i];
        sn_shape shape = plan_local(m, p->value, m->form[PLAN_TENSOR][p->value], FORM_WHOLE);
        int slot = emit_view(e, e->params, m->name[p->value], p->at, shape);
        e->p->slot[slot].value = p->value;
        e->param_slot[p->value] = slot;
        if (!p->trained)
            continue;
        slot = emit_view(e, e->grads, m->name[p->value], p->at, shape);
        e->p->slot[slot].value = p->value;
        e->grad_slot[p->value] = slot;
    }
}

void emit_persistent(emitter *e)
{
    int64_t elements = e->layout->elements, mine = elements / shards(e);
    for (int v = 0; v < e->m->g->values; v++)
        e->param_slot[v] = e->grad_slot[v] = -1;
    for (int b = 0; b < e->layout->buckets; b++)
        e->missing[b] = e->layout->bucket[b].contributions * e->micros;
    e->params = e->grads = e->master = e->moment1 = e->moment2 = e->seen = -1;
    e->phase = SN_PHASE_FORWARD;
    e->p->scalars = flat(e, SN_SLOT_SCALARS, "scalars", SN_F32, 2);
    if (!e->m->forward_only)
        e->p->hyper = flat(e, SN_SLOT_HYPER, "hyper", SN_F32, 8);
    for (int v = 0; v < e->m->g->values; v++)
        if (e->m->g->value[v].kind == SN_VALUE_STATE && e->m->home[v] == e->s)
            e->param_slot[v] =
                emit_slot(e, SN_SLOT_STATE, e->m->name[v], SN_F32, e->m->g->value[v].shape, v);
    if (elements > 0) {
        e->params = flat(e, SN_SLOT_PARAM, "params", e->m->precision, elements);
        if (!e->m->forward_only) {
            e->grads = flat(e, SN_SLOT_GRAD, "grads", SN_F32, elements);
            e->moment1 = flat(e, SN_SLOT_MOMENT1, "m", SN_F32, mine);
            e->moment2 = flat(e, SN_SLOT_MOMENT2, "v", SN_F32, mine);
        }
        e->master = master_is_param(e) ? emit_view(e, e->params, "master", 0, SN_SHAPE(elements))
                                       : flat(e, SN_SLOT_MASTER, "master", SN_F32, mine);
        e->p->slot[e->master].kind = SN_SLOT_MASTER;
        if (emit_encodes(e, SN_ALL_GATHER))
            e->seen = e->m->precision == SN_F32 ? e->params
                                                : flat(e, SN_SLOT_SEEN, "seen", SN_F32, elements);
        views_of_params(e);
    }
    emit_kernel(e, SN_OP_FILL_ZERO, (sn_attr){0}, &e->p->scalars, 0, &e->p->scalars, 1, 0);
}

/* ---- gradients */

/* May the producer of v write into the gradient itself? Then v is nobody else's, and lies as the
 * gradient does. */
int emit_gradient_slot(emitter *e, int v, uint32_t *ret_accumulate)
{
    const plan_model *m = e->m;
    int param = m->adds_to[v];
    int8_t form = m->form[PLAN_TENSOR][v], stored = m->form[PLAN_TENSOR][param];
    const plan_param *p = NULL;
    for (int i = 0; i < e->layout->params; i++)
        if (e->layout->param[i].value == param)
            p = &e->layout->param[i];
    bool waits = form == FORM_SUM && (p->partial || m->degree[PLAN_TENSOR] == 1);
    if (m->use_at[v + 1] > m->use_at[v] || !(waits || form == stored) || p->partial != waits)
        return -1;
    *ret_accumulate = e->started[param];
    e->started[param] = true;
    return e->grad_slot[param];
}

/* Reduce a bucket whose last contribution has been written. */
static void reduce_bucket(emitter *e, int index)
{
    const plan_bucket *b = &e->layout->bucket[index];
    share mine = share_of(e, b);
    sn_phase phase = e->phase;
    int micro = e->micro, node = e->node;
    e->phase = SN_PHASE_REDUCE;
    e->micro = e->node = -1;
    if (b->partial_count > 0) {
        int run =
            emit_view(e, e->grads, "grads.partial", b->partial_at, SN_SHAPE(b->partial_count));
        emit_coll(e, SN_AXIS_TENSOR, SN_ALL_REDUCE, SN_SUM, run, run, b->partial_count, 0);
    }
    int whole = emit_view(e, e->grads, "grads.bucket", b->at, SN_SHAPE(b->count));
    e->shard[index] = whole;
    e->summed[index] = -1;
    if (emit_encodes(e, SN_ALL_REDUCE)) {
        e->summed[index] = emit_wire(e, SN_ALL_REDUCE, index, whole, whole, b->count, 0);
    } else if (emit_encodes(e, SN_REDUCE_SCATTER)) {
        e->shard[index] = flat(e, SN_SLOT_ACTIVATION, "grads.shard", SN_F32, mine.count);
        emit_wire(e, SN_REDUCE_SCATTER, index, whole, e->shard[index], mine.count, 0);
    } else if (parts(e) > 1) {
        sn_dtype wire = e->m->precision;
        int from = whole;
        if (wire != SN_F32) {
            from = flat(e, SN_SLOT_ACTIVATION, "grads.wire", wire, b->count);
            emit_kernel(e, SN_OP_COPY, (sn_attr){0}, &whole, 1, &from, 1, 0);
        }
        e->shard[index] = flat(e, SN_SLOT_ACTIVATION, "grads.shard", wire, mine.count);
        emit_coll(e, SN_AXIS_DATA, SN_REDUCE_SCATTER, SN_SUM, from, e->shard[index], mine.count, 0);
    }
    e->phase = phase;
    e->micro = micro;
    e->node = node;
}

void emit_contribution(emitter *e, int v, int slot)
{
    const plan_model *m = e->m;
    int param = m->adds_to[v], bucket = -1;
    if (e->grad_slot[param] < 0)
        return;
    for (int i = 0; i < e->layout->params; i++)
        if (e->layout->param[i].value == param)
            bucket = e->layout->param[i].bucket;
    if (slot >= 0) {
        int from = emit_get(e, v, e->micro, m->form[PLAN_TENSOR][param], m->form[PLAN_DATA][v]);
        emit_kernel(e, SN_OP_COPY, (sn_attr){0}, &from, 1, &e->grad_slot[param], 1,
                    e->started[param]);
        e->started[param] = true;
    }
    if (--e->missing[bucket] == 0)
        reduce_bucket(e, bucket);
}

/* ---- update and gather */

/* Region ∩ share, from the start of what is mine of the bucket; false when nothing is left. */
static bool run_in(const emitter *e, const plan_bucket *b, share of, const plan_region *r,
                   int64_t *ret_at, int64_t *ret_count)
{
    int64_t from = SN_MAX(r->at, of.at);
    int64_t to = SN_MIN(r->at + r->count, of.at + of.count);
    *ret_at = from - share_of(e, b).at;
    *ret_count = to - from;
    return to > from;
}

/* Each card adds the squares of its data-th part, whether it has more of the sums or not. */
static void sum_squares(emitter *e)
{
    int norm2 = emit_view(e, e->p->scalars, "norm2", 1, SN_SHAPE(1));
    for (int i = 0; i < e->layout->buckets; i++) {
        const plan_bucket *b = &e->layout->bucket[i];
        if (b->trained && e->summed[i] >= 0)
            emit_wait(e, e->summed[i]);
        for (int k = 0; b->trained && k < b->regions; k++) {
            int64_t at, count;
            if ((b->region[k].replicated && e->t) ||
                !run_in(e, b, cut(e, b, parts(e)), &b->region[k], &at, &count))
                continue; /* what all tensor ranks hold counts once */
            int g = emit_view(e, e->shard[i], "grads.run", at, SN_SHAPE(count));
            emit_kernel(e, SN_OP_SUM_SQUARES, (sn_attr){.f = {1}}, &g, 1, &norm2, 1, 1);
        }
    }
}

static void adamw(emitter *e)
{
    int norm2 = emit_view(e, e->p->scalars, "norm2", 1, SN_SHAPE(1));
    for (int i = 0; i < e->layout->buckets; i++) {
        const plan_bucket *b = &e->layout->bucket[i];
        for (int k = 0; b->trained && k < b->regions; k++) {
            int64_t at, count;
            if (!run_in(e, b, share_of(e, b), &b->region[k], &at, &count))
                continue;
            int64_t in_shard = share_of(e, b).shard_at + at;
            sn_shape run = SN_SHAPE(count);
            int in[] = {emit_view(e, e->shard[i], "grads.run", at, run), e->p->hyper, norm2};
            int master = emit_view(e, e->master, "master.run", in_shard, run);
            int out[] = {master, emit_view(e, e->moment1, "m.run", in_shard, run),
                         emit_view(e, e->moment2, "v.run", in_shard, run), master};
            emit_kernel(e, SN_OP_ADAMW, (sn_attr){.f = {b->region[k].decay}}, in, 3, out, 4, 0);
        }
    }
}

/* What reads a parameter of a bucket waits for its gathering. */
static void readers_wait(emitter *e, int bucket, int gathered)
{
    for (int i = 0; i < e->layout->params; i++) {
        const plan_param *p = &e->layout->param[i];
        if (p->bucket == bucket)
            e->pending[e->param_slot[p->value]] = e->pending[gathered];
    }
}

/* The same when the cards bring each other's seen parameters up to date. */
static void gather_encoded(emitter *e)
{
    int *seen = SN_NEW_N(e->arena, int, e->layout->buckets + 1);
    for (int i = e->layout->buckets - 1; i >= 0; i--) {
        const plan_bucket *b = &e->layout->bucket[i];
        share mine = share_of(e, b);
        seen[i] = emit_view(e, e->seen, "seen.bucket", b->at, SN_SHAPE(b->count));
        int from = emit_view(e, e->master, "master.bucket", mine.shard_at, SN_SHAPE(mine.count));
        emit_wire(e, SN_ALL_GATHER, i, from, seen[i], mine.count, 1);
        if (e->seen == e->params)
            readers_wait(e, i, seen[i]);
    }
    for (int i = e->layout->buckets - 1; i >= 0 && e->seen != e->params; i--) {
        const plan_bucket *b = &e->layout->bucket[i];
        int all = emit_view(e, e->params, "params.bucket", b->at, SN_SHAPE(b->count));
        emit_kernel(e, SN_OP_COPY, (sn_attr){0}, &seen[i], 1, &all, 1, 0);
    }
}

/* Working parameters from the masters, the bucket that forward needs first first. */
static void gather(emitter *e)
{
    if (e->seen >= 0) {
        gather_encoded(e);
        return;
    }
    for (int i = e->layout->buckets - 1; i >= 0 && !master_is_param(e); i--) {
        const plan_bucket *b = &e->layout->bucket[i];
        share mine = share_of(e, b);
        int all = emit_view(e, e->params, "params.bucket", b->at, SN_SHAPE(b->count));
        int from = emit_view(e, e->master, "master.bucket", mine.shard_at, SN_SHAPE(mine.count));
        if (e->m->precision != SN_F32) {
            int to = shards(e) == 1
                         ? all
                         : flat(e, SN_SLOT_ACTIVATION, "params.wire", e->m->precision, mine.count);
            emit_kernel(e, SN_OP_COPY, (sn_attr){0}, &from, 1, &to, 1, 0);
            from = to;
        }
        if (shards(e) == 1)
            continue;
        emit_coll(e, SN_AXIS_DATA, SN_ALL_GATHER, SN_SUM, from, all, mine.count, 1);
        readers_wait(e, i, all);
    }
}

void emit_gather(emitter *e)
{
    e->phase = SN_PHASE_GATHER;
    e->p->gather_first = e->p->instrs;
    gather(e);
    e->p->gather_last = e->p->instrs;
    e->gathers = e->p->tickets;
}

void emit_optimizer(emitter *e)
{
    e->micro = e->node = -1;
    e->phase = SN_PHASE_REDUCE;
    sum_squares(e);
    if (e->plan->world > 1)
        emit_coll(e, SN_AXIS_WORLD, SN_ALL_REDUCE, SN_SUM, e->p->scalars, e->p->scalars, 2, 2);
    e->phase = SN_PHASE_OPTIMIZER;
    for (int t = 0; t < e->gathers; t++) /* of parameters that nothing has read */
        emit_wait(e, t);
    adamw(e);
    emit_wait_all(e);
}

/* ---- what checkpoints carry */

/* The block of a parameter that this card's tensor index holds. */
void emit_block(const emitter *e, int v, int64_t begin[SN_RANK_MAX], int64_t extent[SN_RANK_MAX])
{
    const plan_model *m = e->m;
    int8_t form = m->form[PLAN_TENSOR][v];
    sn_shape local = plan_local(m, v, form, FORM_WHOLE);
    for (int d = 0; d < local.rank; d++) {
        extent[d] = local.dim[d];
        begin[d] = d == form ? e->t * local.dim[d] : 0;
    }
}

/* The graph's own states: the same on all cards of the stage. */
static void graph_states(emitter *e)
{
    const sn_graph *g = e->m->g;
    for (int v = 0; v < g->values; v++) {
        if (g->value[v].kind != SN_VALUE_STATE || e->param_slot[v] < 0)
            continue;
        sn_state *st = &e->p->state[e->p->states++];
        *st = (sn_state){.value = v,
                         .kind = SN_SLOT_STATE,
                         .slot = e->param_slot[v],
                         .flat_count = sn_shape_count(g->value[v].shape),
                         .owner = !e->t && !e->d};
        for (int d = 0; d < g->value[v].shape.rank; d++)
            st->extent[d] = g->value[v].shape.dim[d];
    }
}

void emit_states(emitter *e)
{
    const int slot[] = {e->master, e->moment1, e->moment2, e->seen};
    const sn_slot_kind kind[] = {SN_SLOT_MASTER, SN_SLOT_MOMENT1, SN_SLOT_MOMENT2, SN_SLOT_SEEN};
    sn_program *p = e->p;
    bool whole = e->m->forward_only || shards(e) < parts(e);
    p->state = SN_NEW_N(e->arena, sn_state,
                        (int) SN_COUNT(slot) * e->layout->params + e->m->g->values + 1);
    for (int i = 0; i < e->layout->params; i++) {
        const plan_param *param = &e->layout->param[i];
        const plan_bucket *b = &e->layout->bucket[param->bucket];
        share mine = share_of(e, b);
        int64_t from = SN_MAX(param->at, mine.at);
        int64_t to = SN_MIN(param->at + param->count, mine.at + mine.count);
        for (int k = 0; to > from && k < (int) SN_COUNT(slot); k++) {
            if (slot[k] < 0)
                continue;
            sn_state *st = &p->state[p->states++];
            *st = (sn_state){.value = param->value,
                             .kind = kind[k],
                             .slot = slot[k],
                             .slot_at =
                                 kind[k] == SN_SLOT_SEEN ? from : mine.shard_at + from - mine.at,
                             .flat_begin = from - param->at,
                             .flat_count = to - from,
                             .owner = !(param->replicated && e->t) && !(whole && e->d)};
            emit_block(e, param->value, st->begin, st->extent);
        }
    }
    graph_states(e);
}
