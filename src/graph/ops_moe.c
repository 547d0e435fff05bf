/* SPDX-License-Identifier: Apache-2.0
 * Mixture of experts with fixed capacity (Lepikhin et al., "GShard", 2020; Fedus et al., "Switch
 * transformers", 2021): route, dispatch into buffers, combine.
 *
 *   x[T,B,D] ── linear ── route ── weight, expert, place [T,B,k]
 *       └── dispatch ── [X,capacity,B,D] ── batch_linear … ── combine ── z[T,B,D]
 *
 * Places are given out within a sample, so a split batch routes as a whole one does. Splitting
 * the experts (label X) leaves dispatch's buffers split and combine's result a partial sum.
 * dispatch and combine are each other's adjoint. */
#include "graph/private.h"

enum { T = LABEL_LEAD, B, X = LABEL_LAST, WIDTH };

static sn_status route_shape(sn_graph *g, sn_node *n)
{
    sn_shape x = sn_shape_of(g, n->in[0]);
    int64_t k = n->attr.i[0];
    if (x.rank != 3 || k < 1 || k > x.dim[2] || n->attr.i[1] < 1)
        return sn_bad_node(g, n, "x must be [T,B,X], 1 ≤ k ≤ X and the capacity positive");
    for (int o = 0; o < 3; o++) {
        sn_set_out(g, n, o, SN_SHAPE(x.dim[0], x.dim[1], k));
        g->value[n->out[o]].dtype = o ? SN_I32 : SN_F32;
    }
    sn_set_out(g, n, 3, x);
    return SN_OK;
}

static sn_status like_probabilities(sn_graph *g, sn_node *n)
{
    sn_set_out(g, n, 0, sn_shape_of(g, n->in[n->op == SN_OP_MOE_ROUTE_GRAD ? 1 : 0]));
    return SN_OK;
}

/* Are expert and place (and the weight, if given) I32 [T,B,k] of these T and B? */
static bool choices_fit(const sn_graph *g, const sn_node *n, int at, int64_t t, int64_t b)
{
    sn_shape e = sn_shape_of(g, n->in[at]);
    for (int i = at; i < n->ins; i++)
        if (n->in[i] >= 0 && (!sn_shape_equal(sn_shape_of(g, n->in[i]), e) ||
                              g->value[n->in[i]].dtype != (i < at + 2 ? SN_I32 : SN_F32)))
            return false;
    return e.rank == 3 && (t < 0 || e.dim[0] == t) && e.dim[1] == b;
}

static sn_status dispatch_shape(sn_graph *g, sn_node *n)
{
    sn_shape x = sn_shape_of(g, n->in[0]);
    if (x.rank != 3 || !choices_fit(g, n, 1, x.dim[0], x.dim[1]) || n->attr.i[0] < 1 ||
        n->attr.i[1] < 1)
        return sn_bad_node(g, n, "x must be [T,B,D], expert, place and weight [T,B,k]");
    sn_set_out(g, n, 0, SN_SHAPE(n->attr.i[0], n->attr.i[1], x.dim[1], x.dim[2]));
    return SN_OK;
}

static sn_status combine_shape(sn_graph *g, sn_node *n)
{
    sn_shape y = sn_shape_of(g, n->in[0]);
    if (y.rank != 4 || !choices_fit(g, n, 1, -1, y.dim[2]))
        return sn_bad_node(g, n, "y must be [X,capacity,B,D], expert, place and weight [T,B,k]");
    sn_set_out(g, n, 0, SN_SHAPE(sn_shape_of(g, n->in[1]).dim[0], y.dim[2], y.dim[3]));
    return SN_OK;
}

static sn_status dot_shape(sn_graph *g, sn_node *n)
{
    sn_set_out(g, n, 0, sn_shape_of(g, n->in[2]));
    return SN_OK;
}

static sn_status balance_shape(sn_graph *g, sn_node *n)
{
    sn_shape p = sn_shape_of(g, n->in[0]), e = sn_shape_of(g, n->in[1]);
    if (p.rank != 3 || e.rank != 3 || g->value[n->in[1]].dtype != SN_I32 || p.dim[0] != e.dim[0] ||
        p.dim[1] != e.dim[1])
        return sn_bad_node(g, n, "p must be [T,B,X], expert [T,B,k] I32");
    sn_set_out(g, n, 0, (sn_shape){0});
    return SN_OK;
}

/* ---- labels: ids along the dims of tokens, choices, buffers and scores */

static const int of_tokens[] = {T, B, WIDTH}, of_choices[] = {T, B, -1},
                 of_buffers[] = {X, -1, B, WIDTH}, of_scores[] = {-1, B, -1};

/* sums: ids whose split leaves a result that lacks them a partial sum, as bits. */
static void put(const sn_graph *g, int v, const int *ids, uint64_t sums, int8_t *row,
                sn_shard_rule *r)
{
    sn_shape s = v < 0 ? (sn_shape){0} : sn_shape_of(g, v);
    for (int d = 0; d < s.rank; d++)
        if (ids[d] >= 0)
            row[d] = (int8_t) sn_label(r, ids[d], s.dim[d], true,
                                       sums >> ids[d] & 1 ? SN_COMBINE_SUM : SN_COMBINE_NONE);
}

static void route_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    for (int i = 0; i < n->ins; i++)
        put(g, n->in[i], of_scores, 0, r->in[i], r);
    for (int o = 0; o < n->outs; o++)
        put(g, n->out[o], of_scores, 0, r->out[o], r);
}

static void move_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    bool dispatch = n->op == SN_OP_MOE_DISPATCH, dot = n->op == SN_OP_MOE_DOT;
    uint64_t sums = dispatch ? UINT64_C(1) << T : UINT64_C(1) << X;
    if (dot)
        sums |= UINT64_C(1) << WIDTH;
    for (int i = 0; i < n->ins; i++) {
        bool tokens = i == 0 && (dispatch || dot);
        const int *ids = i >= (dot ? 2 : 1) ? of_choices : tokens ? of_tokens : of_buffers;
        put(g, n->in[i], ids, sums, r->in[i], r);
    }
    put(g, n->out[0], dot ? of_choices : dispatch ? of_buffers : of_tokens, sums, r->out[0], r);
    r->begin_label = X;
}

static void balance_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    for (int i = 0; i < 2; i++)
        put(g, n->in[i], of_scores, UINT64_C(1) << B, r->in[i], r);
    if (n->op == SN_OP_MOE_BALANCE_GRAD)
        put(g, n->out[0], of_scores, UINT64_C(1) << B, r->out[0], r);
}

/* ---- gradients */

static sn_status route_backward(sn_graph *g, int node, const int *grad_out, sn_grads *into)
{
    const sn_node n = g->node[node];
    int in[] = {n.out[1], n.out[3], grad_out[0], grad_out[3]}, dx;
    SN_TRY(sn_backward_node(g, SN_OP_MOE_ROUTE_GRAD, node, &n.attr, in, 4, &dx));
    return sn_grads_add(g, into, n.in[0], dx);
}

/* dispatch and combine: the other op carries the gradient back, a dot gives that of the weight. */
static sn_status move_backward(sn_graph *g, int node, const int *grad_out, sn_grads *into)
{
    const sn_node n = g->node[node];
    bool dispatch = n.op == SN_OP_MOE_DISPATCH;
    int dy = grad_out[0], weight = n.ins > 3 ? n.in[3] : -1, back;
    sn_shape s = sn_shape_of(g, n.in[0]);
    sn_attr attr = {0};
    if (!dispatch) {
        attr.i[0] = s.dim[0];
        attr.i[1] = s.dim[1];
    }
    if (sn_grads_wanted(into, n.in[0])) {
        int in[] = {dy, n.in[1], n.in[2], weight};
        SN_TRY(sn_backward_node(g, dispatch ? SN_OP_MOE_COMBINE : SN_OP_MOE_DISPATCH, node, &attr,
                                in, weight < 0 ? 3 : 4, &back));
        SN_TRY(sn_grads_add(g, into, n.in[0], back));
    }
    if (weight < 0 || !sn_grads_wanted(into, weight))
        return SN_OK;
    int in[] = {dispatch ? n.in[0] : dy, dispatch ? dy : n.in[0], n.in[1], n.in[2]};
    SN_TRY(sn_backward_node(g, SN_OP_MOE_DOT, node, NULL, in, 4, &back));
    return sn_grads_add(g, into, weight, back);
}

static sn_status balance_backward(sn_graph *g, int node, const int *grad_out, sn_grads *into)
{
    const sn_node n = g->node[node];
    int dp;
    if (grad_out[0] != SN_GRAD_ONE)
        return sn_fail(SN_ENOTSUP,
                       "moe_balance '%s' must be the loss or a summand of it, scaled "
                       "by its own attribute",
                       n.name);
    SN_TRY(sn_backward_node(g, SN_OP_MOE_BALANCE_GRAD, node, &n.attr, n.in, 2, &dp));
    return sn_grads_add(g, into, n.in[0], dp);
}

static double scores_flops(const sn_graph *g, const sn_node *n)
{
    return 20.0 * (double) sn_shape_count(sn_shape_of(g, n->in[0]));
}

static double move_flops(const sn_graph *g, const sn_node *n)
{
    sn_shape choices = sn_shape_of(g, n->in[n->op == SN_OP_MOE_DOT ? 2 : 1]);
    sn_shape x = sn_shape_of(g, n->in[0]);
    return 2.0 * (double) sn_shape_count(choices) * (double) x.dim[x.rank - 1];
}

const sn_op_row sn_rows_moe[] = {
    {SN_OP_MOE_ROUTE, "moe_route", 1, 1, 4, route_shape, route_backward, scores_flops, route_shard,
     9},
    {SN_OP_MOE_ROUTE_GRAD, "moe_route_grad", 2, 4, 1, like_probabilities, NULL, scores_flops,
     route_shard},
    {SN_OP_MOE_DISPATCH, "moe_dispatch", 3, 4, 1, dispatch_shape, move_backward, move_flops,
     move_shard},
    {SN_OP_MOE_COMBINE, "moe_combine", 3, 4, 1, combine_shape, move_backward, move_flops,
     move_shard},
    {SN_OP_MOE_DOT, "moe_dot", 4, 4, 1, dot_shape, NULL, move_flops, move_shard},
    {SN_OP_MOE_BALANCE, "moe_balance", 2, 2, 1, balance_shape, balance_backward, scores_flops,
     balance_shard, 1, true},
    {SN_OP_MOE_BALANCE_GRAD, "moe_balance_grad", 2, 2, 1, like_probabilities, NULL, scores_flops,
     balance_shard},
};
const int sn_rows_moe_count = SN_COUNT(sn_rows_moe);
