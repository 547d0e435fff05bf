/* SPDX-License-Identifier: Apache-2.0
 *
 * Where parameters lie. Parameters, gradients, masters and moments of a stage share one order:
 *
 *   flat     | bucket 0                          | bucket 1                | …
 *            | split, decay · split · whole · partial · pad |
 *   shard d  of bucket b = its d-th of `data` equal parts
 *
 * Buckets are filled in the order in which backward finishes gradients; inside one, parameters that
 * are treated alike lie together, so that each treatment is one run. */
#include "plan/private.h"

#include <limits.h>
#include <stdlib.h>

static int summands(const plan_model *m, int v)
{
    return m->summand_at[v + 1] - m->summand_at[v];
}

static plan_param describe(const plan_model *m, int v)
{
    const sn_value *value = &m->g->value[v];
    bool split = m->form[PLAN_TENSOR][v] >= 0;
    plan_param p = {.value = v,
                    .count = sn_shape_count(plan_local(m, v, m->form[PLAN_TENSOR][v], FORM_WHOLE)),
                    .decay = value->decay,
                    .trained = value->grad >= 0 && !m->forward_only,
                    .replicated = !split && m->degree[PLAN_TENSOR] > 1,
                    .ready = -1};
    int partial = 0;
    for (int i = m->summand_at[v]; p.trained && i < m->summand_at[v + 1]; i++) {
        p.ready = SN_MAX(p.ready, m->g->value[m->summand[i]].producer);
        partial += m->form[PLAN_TENSOR][m->summand[i]] == FORM_SUM;
    }
    p.partial = p.replicated && partial > 0 && partial == summands(m, v);
    if (!p.trained)
        p.ready = INT_MAX;
    return p;
}

static int by_ready(const void *a, const void *b)
{
    const plan_param *x = a, *y = b;
    return x->ready != y->ready ? (x->ready < y->ready ? -1 : 1) : x->value - y->value;
}

static int by_treatment(const void *a, const void *b)
{
    const plan_param *x = a, *y = b;
    if (x->partial != y->partial)
        return x->partial - y->partial;
    if (x->replicated != y->replicated)
        return x->replicated - y->replicated;
    if (x->decay != y->decay)
        return y->decay - x->decay;
    return x->value - y->value;
}

static void extend_region(plan_bucket *b, const plan_param *p)
{
    plan_region *r = b->regions ? &b->region[b->regions - 1] : NULL;
    if (!r || r->decay != p->decay || r->replicated != p->replicated || r->partial != p->partial) {
        r = &b->region[b->regions++];
        *r = (plan_region){p->at, 0, p->decay, p->replicated, p->partial};
    }
    r->count = p->at + p->count - r->at;
    if (p->partial && !b->partial_count)
        b->partial_at = p->at;
    if (p->partial)
        b->partial_count = p->at + p->count - b->partial_at;
}

/* Lay parameters [from, to) as one bucket at the end of the layout. */
static void add_bucket(plan_model *m, plan_layout *l, int from, int to)
{
    plan_bucket *b = &l->bucket[l->buckets];
    *b = (plan_bucket){.at = l->elements, .trained = l->param[from].trained};
    qsort(l->param + from, (size_t) (to - from), sizeof *l->param, by_treatment);
    int64_t at = b->at;
    for (int i = from; i < to; i++) {
        plan_param *p = &l->param[i];
        p->at = at;
        p->bucket = l->buckets;
        b->contributions += p->trained ? summands(m, p->value) : 0;
        extend_region(b, p);
        at = SN_ALIGN_UP(at + p->count, PLAN_ALIGN);
    }
    b->count = SN_ALIGN_UP(at - b->at, (int64_t) m->degree[PLAN_DATA] * PLAN_ALIGN);
    l->elements = b->at + b->count;
    l->buckets++;
}

static void lay_out(plan_model *m, int stage, uint64_t bucket_bytes)
{
    plan_layout *l = &m->layout[stage];
    for (int v = 0; v < m->g->values; v++)
        l->params += m->g->value[v].kind == SN_VALUE_PARAM && m->home[v] == stage;
    l->param = SN_NEW_N(m->arena, plan_param, l->params + 1);
    l->bucket = SN_NEW_N(m->arena, plan_bucket, l->params + 1);
    for (int v = 0, i = 0; v < m->g->values; v++)
        if (m->g->value[v].kind == SN_VALUE_PARAM && m->home[v] == stage)
            l->param[i++] = describe(m, v);
    qsort(l->param, (size_t) l->params, sizeof *l->param, by_ready);
    for (int from = 0, to; from < l->params; from = to) {
        uint64_t bytes = 0;
        for (to = from; to < l->params && l->param[to].trained == l->param[from].trained &&
                        (bytes == 0 || bytes < bucket_bytes);
             to++)
            bytes += (uint64_t) l->param[to].count * sizeof(float);
        add_bucket(m, l, from, to);
    }
}

void plan_layout_make(plan_model *m, uint64_t bucket_bytes)
{
    for (int s = 0; s < m->stages; s++)
        lay_out(m, s, bucket_bytes ? bucket_bytes : UINT64_C(1) << 20);
}
