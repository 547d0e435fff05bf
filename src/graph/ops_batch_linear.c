/* SPDX-License-Identifier: Apache-2.0
 * batch_linear: y[X, lead, N] = Σ_K x[X, lead, K]·w[X, N, K], and its two products backward. Labels
 * as linear's; X, the first lead, runs along all three operands. */
#include "graph/private.h"

/* Dims of a tensor between its first and its last `tail`. */
static int lead_of(sn_shape s, int tail)
{
    return s.rank - 1 - tail;
}

/* [X, lead of a, `tail` dims of b from `from`] */
static sn_status join(sn_graph *g, const sn_node *n, sn_shape a, int lead, sn_shape b, int from,
                      int tail)
{
    sn_shape y = {.rank = 1 + lead + tail, .dim = {a.dim[0]}};
    if (y.rank > SN_RANK_MAX)
        return sn_bad_node(g, n, "the result has too many dims");
    for (int i = 0; i < lead; i++)
        y.dim[1 + i] = a.dim[1 + i];
    for (int i = 0; i < tail; i++)
        y.dim[1 + lead + i] = b.dim[from + i];
    sn_set_out(g, n, 0, y);
    return SN_OK;
}

static sn_status forward_shape(sn_graph *g, sn_node *n)
{
    sn_shape x = sn_shape_of(g, n->in[0]), w = sn_shape_of(g, n->in[1]);
    int k = (int) n->attr.i[0];
    if (k < 1 || x.rank < 1 + k || w.rank < 2 + k || x.dim[0] != w.dim[0])
        return sn_bad_node(g, n, "x must be [X,…,K…], w [X,N…,K…]");
    for (int i = 0; i < k; i++)
        if (x.dim[x.rank - k + i] != w.dim[w.rank - k + i])
            return sn_bad_node(g, n, "the summed dims of x and w differ");
    return join(g, n, x, lead_of(x, k), w, 1, w.rank - 1 - k);
}

static sn_status dx_shape(sn_graph *g, sn_node *n)
{
    sn_shape dy = sn_shape_of(g, n->in[0]), w = sn_shape_of(g, n->in[1]);
    int k = (int) n->attr.i[0], nn = (int) n->attr.i[1];
    return join(g, n, dy, lead_of(dy, nn), w, 1 + nn, k);
}

static sn_status dw_shape(sn_graph *g, sn_node *n)
{
    sn_shape dy = sn_shape_of(g, n->in[0]), x = sn_shape_of(g, n->in[1]), from = dy;
    int k = (int) n->attr.i[0], nn = (int) n->attr.i[1];
    for (int i = 0; i < nn; i++)
        from.dim[1 + i] = dy.dim[dy.rank - nn + i];
    return join(g, n, from, nn, x, x.rank - k, k);
}

/* x, w and y of a node of the family; how many dims N and K have. */
typedef struct parts {
    sn_shape x, w, y;
    int8_t *of_x, *of_w, *of_y;
    int n, k;
} parts;

static parts parts_of(const sn_graph *g, const sn_node *node, sn_shard_rule *r)
{
    sn_shape a = sn_shape_of(g, node->in[0]), b = sn_shape_of(g, node->in[1]);
    sn_shape o = sn_shape_of(g, node->out[0]);
    int k = (int) node->attr.i[0];
    if (node->op == SN_OP_BATCH_LINEAR)
        return (parts){a, b, o, r->in[0], r->in[1], r->out[0], b.rank - 1 - k, k};
    if (node->op == SN_OP_BATCH_LINEAR_DX)
        return (parts){o, b, a, r->out[0], r->in[1], r->in[0], (int) node->attr.i[1], k};
    return (parts){b, o, a, r->in[1], r->out[0], r->in[0], (int) node->attr.i[1], k};
}

static double flops(const sn_graph *g, const sn_node *node)
{
    sn_shard_rule unused;
    parts p = parts_of(g, node, &unused);
    double work = 2.0 * (double) sn_shape_count(p.y);
    for (int i = 0; i < p.k; i++)
        work *= (double) p.w.dim[p.w.rank - p.k + i];
    return work;
}

static void put(sn_shard_rule *r, int8_t *row, sn_shape s, int from, int id, int count,
                sn_combine combine)
{
    for (int i = 0; i < count; i++)
        row[from + i] = (int8_t) sn_label(r, id + i, s.dim[from + i], true, combine);
}

static void shard(const sn_graph *g, const sn_node *node, sn_shard_rule *r)
{
    parts p = parts_of(g, node, r);
    int lead = lead_of(p.x, p.k);
    bool forward = node->op == SN_OP_BATCH_LINEAR, dw = node->op == SN_OP_BATCH_LINEAR_DW;
    sn_combine of_lead = dw ? SN_COMBINE_SUM : SN_COMBINE_NONE;
    sn_combine of_n = forward || dw ? SN_COMBINE_NONE : SN_COMBINE_SUM;
    sn_combine of_k = forward ? SN_COMBINE_SUM : SN_COMBINE_NONE;
    put(r, p.of_x, p.x, 0, LABEL_LEAD, 1, SN_COMBINE_NONE);
    put(r, p.of_w, p.w, 0, LABEL_LEAD, 1, SN_COMBINE_NONE);
    put(r, p.of_y, p.y, 0, LABEL_LEAD, 1, SN_COMBINE_NONE);
    put(r, p.of_x, p.x, 1, LABEL_LEAD + 1, lead, of_lead);
    put(r, p.of_y, p.y, 1, LABEL_LEAD + 1, lead, of_lead);
    put(r, p.of_x, p.x, 1 + lead, LABEL_INNER, p.k, of_k);
    put(r, p.of_w, p.w, 1 + p.n, LABEL_INNER, p.k, of_k);
    put(r, p.of_y, p.y, 1 + lead, LABEL_LAST, p.n, of_n);
    put(r, p.of_w, p.w, 1, LABEL_LAST, p.n, of_n);
}

static sn_status backward(sn_graph *g, int node, const int *grad_out, sn_grads *into)
{
    const sn_node n = g->node[node];
    int dy = grad_out[0], x = n.in[0], w = n.in[1], grad;
    sn_attr attr = {.i = {n.attr.i[0], sn_shape_of(g, w).rank - 1 - n.attr.i[0]}};
    if (sn_grads_wanted(into, x)) {
        SN_TRY(sn_backward_node(g, SN_OP_BATCH_LINEAR_DX, node, &attr, (int[]){dy, w}, 2, &grad));
        SN_TRY(sn_grads_add(g, into, x, grad));
    }
    if (!sn_grads_wanted(into, w))
        return SN_OK;
    SN_TRY(sn_backward_node(g, SN_OP_BATCH_LINEAR_DW, node, &attr, (int[]){dy, x}, 2, &grad));
    return sn_grads_add(g, into, w, grad);
}

const sn_op_row sn_rows_batch_linear[] = {
    {SN_OP_BATCH_LINEAR, "batch_linear", 2, 2, 1, forward_shape, backward, flops, shard},
    {SN_OP_BATCH_LINEAR_DX, "batch_linear_dx", 2, 2, 1, dx_shape, NULL, flops, shard},
    {SN_OP_BATCH_LINEAR_DW, "batch_linear_dw", 2, 2, 1, dw_shape, NULL, flops, shard},
};
const int sn_rows_batch_linear_count = SN_COUNT(sn_rows_batch_linear);
