/* SPDX-License-Identifier: Apache-2.0
 *
 * The stage cut: the node order of any graph is cut into `stages` runs so that the slowest stage is
 * as fast as possible.
 *
 *   best[k][i] = the first i nodes in k stages: min over j of max(best[k − 1][j], stage(j, i))
 *
 * stage(j, i) is three times the forward work (backward costs twice as much) plus the transfers
 * over its two borders. A cut is not allowed between two uses of one parameter. */
#include "plan/private.h"

#include <math.h>

typedef struct cut {
    double worst, sum; /* of the stages so far; of the transfers so far: breaks ties */
    int from;
} cut;

typedef struct cutter {
    int nodes;
    double *work;   /* [nodes + 1] prefix sums, ns */
    double *border; /* [nodes + 1] transfers over the cut before node i, both directions, ns */
    bool *closed;   /* [nodes + 1] no cut here */
} cutter;

static void last_uses(const sn_graph *g, int *ret_first, int *ret_last)
{
    for (int v = 0; v < g->values; v++) {
        ret_first[v] = g->value[v].producer;
        ret_last[v] = -1;
    }
    for (int n = 0; n < g->nodes; n++)
        for (int i = 0; i < g->node[n].ins; i++) {
            int v = g->node[n].in[i];
            if (v < 0)
                continue;
            ret_last[v] = n;
            if (ret_first[v] < 0)
                ret_first[v] = n;
        }
    for (int v = 0; v < g->values; v++) /* a state is written where it is read */
        if (g->value[v].next >= 0) {
            int n = g->value[g->value[v].next].producer;
            ret_last[v] = SN_MAX(ret_last[v], n);
            ret_first[v] = ret_first[v] < 0 ? n : SN_MIN(ret_first[v], n);
        }
}

/* Returns a parameter that closes some cut, -1 when none does. */
static int prepare(cutter *c, const sn_graph *g, double split, const plan_price *price,
                   sn_arena *arena)
{
    int *first = SN_NEW_N(arena, int, g->values), *last = SN_NEW_N(arena, int, g->values);
    double *bytes = SN_NEW_N(arena, double, g->nodes + 1);
    int tied = -1;
    c->nodes = g->nodes;
    c->work = SN_NEW_N(arena, double, g->nodes + 1);
    c->border = SN_NEW_N(arena, double, g->nodes + 1);
    c->closed = SN_NEW_N(arena, bool, g->nodes + 1);
    for (int n = 0; n < g->nodes; n++)
        c->work[n + 1] =
            c->work[n] + 3 * plan_price_kernel(price, sn_node_flops(g, &g->node[n]) / split,
                                               sn_node_bytes(g, &g->node[n]) / split);
    last_uses(g, first, last);
    for (int v = 0; v < g->values; v++) {
        const sn_value *value = &g->value[v];
        double size = (double) sn_shape_count(value->shape) * (double) sn_dtype_bytes(value->dtype);
        for (int i = first[v] + 1; first[v] >= 0 && i <= last[v]; i++) {
            if (value->kind == SN_VALUE_PARAM || value->kind == SN_VALUE_STATE) {
                c->closed[i] = true;
                tied = v;
            } else if (value->kind == SN_VALUE_RESULT) {
                bytes[i] += size / split;
            }
        }
    }
    for (int i = 1; i < g->nodes; i++)
        c->border[i] = 2 * plan_price_send(price, bytes[i]);
    return tied;
}

/* The first i nodes in k stages. Stages only get slower as they get longer: the search from short
 * to long ends where the work alone is too much. Of equals the longest last stage is taken. */
static cut last_stage(const cutter *c, int k, int i, const cut *before)
{
    cut here = {INFINITY, INFINITY, -1};
    for (int j = i - 1; j >= k - 1; j--) {
        double work = c->work[i] - c->work[j];
        if (work > here.worst)
            break;
        double stage = work + c->border[j] + c->border[i];
        double worst = fmax(before[j].worst, stage), sum = before[j].sum + c->border[i];
        if (isfinite(worst) && (worst < here.worst || (worst == here.worst && sum <= here.sum)))
            here = (cut){worst, sum, j};
    }
    return here;
}

static void solve(const cutter *c, int stages, cut *best /* [stages + 1][nodes + 1] */)
{
    int width = c->nodes + 1;
    for (int i = 0; i < (stages + 1) * width; i++)
        best[i] = (cut){INFINITY, INFINITY, -1};
    best[0] = (cut){0, 0, -1};
    for (int k = 1; k <= stages; k++)
        for (int i = k; i <= c->nodes; i++) {
            if (i < c->nodes && c->closed[i])
                continue;
            best[k * width + i] = last_stage(c, k, i, &best[(k - 1) * width]);
        }
}

sn_status plan_stages_mark(sn_graph *g, int stages, double split, const plan_price *price,
                           sn_arena *arena)
{
    cutter c;
    int tied = prepare(&c, g, split, price, arena);
    if (stages > g->nodes)
        return sn_fail(SN_EFIT,
                       "a graph of %d operations cannot be cut into pipeline %d: pipeline may be 1 "
                       "to %d",
                       g->nodes, stages, g->nodes);
    cut *best = SN_NEW_N(arena, cut, (stages + 1) * (g->nodes + 1));
    solve(&c, stages, best);
    if (!isfinite(best[stages * (g->nodes + 1) + g->nodes].worst))
        return sn_fail(SN_EFIT,
                       "%s is used in more than one place and pipeline %d would put the "
                       "places in different stages: choose a smaller pipeline",
                       g->value[tied].name, stages);
    for (int k = stages, i = g->nodes; k > 0; k--) {
        int from = best[k * (g->nodes + 1) + i].from;
        for (int n = from; n < i; n++)
            g->node[n].stage = k - 1;
        i = from;
    }
    return SN_OK;
}
