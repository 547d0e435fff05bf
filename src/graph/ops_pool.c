/* SPDX-License-Identifier: Apache-2.0
 * Maxima and means over windows, and the mean over all of an image. Samples and channels split. */
#include "graph/private.h"

static sn_status pool_shape(sn_graph *g, sn_node *n)
{
    sn_shape y;
    SN_TRY(sn_window_shape(g, n, sn_shape_of(g, n->in[0]), n->attr.i, &y));
    for (int j = 0; j < y.rank - 2; j++) /* a window of padding alone has no maximum and no mean */
        if (n->attr.i[9 + j] > sn_window_dilation(&n->attr, j) * (n->attr.i[j] - 1) ||
            n->attr.i[12 + j] > sn_window_dilation(&n->attr, j) * (n->attr.i[j] - 1))
            return sn_bad_node(g, n, "the padding is as wide as a window");
    sn_set_out(g, n, 0, y);
    return SN_OK;
}

static sn_status mean_shape(sn_graph *g, sn_node *n)
{
    sn_shape x = sn_shape_of(g, n->in[0]);
    if (x.rank < 3)
        return sn_bad_node(g, n, "the operand must be [N,S…,C]");
    sn_set_out(g, n, 0, SN_SHAPE(x.dim[0], x.dim[x.rank - 1]));
    return SN_OK;
}

static sn_status like_second(sn_graph *g, sn_node *n)
{
    sn_set_out(g, n, 0, sn_shape_of(g, n->in[1]));
    return SN_OK;
}

static sn_status wanted_shape(sn_graph *g, sn_node *n)
{
    sn_set_out(g, n, 0, n->attr.shape);
    return SN_OK;
}

static void pool_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    for (int k = 0; k <= n->ins; k++) { /* the operands, then the result */
        sn_shape s = sn_shape_of(g, k < n->ins ? n->in[k] : n->out[0]);
        int8_t *row = k < n->ins ? r->in[k] : r->out[0];
        row[0] = (int8_t) sn_label(r, LABEL_LEAD, s.dim[0], true, SN_COMBINE_NONE);
        row[s.rank - 1] =
            (int8_t) sn_label(r, LABEL_LAST, s.dim[s.rank - 1], true, SN_COMBINE_NONE);
    }
}

static double window_flops(const sn_graph *g, const sn_node *n)
{
    double per = 1; /* in both directions an element of the smaller side looks at a window */
    for (int j = 0; j < 3; j++)
        per *= (double) SN_MAX(1, n->attr.i[j]);
    return per * (double) SN_MIN(sn_shape_count(sn_shape_of(g, n->in[0])),
                                 sn_shape_count(sn_shape_of(g, n->out[0])));
}

static double larger_flops(const sn_graph *g, const sn_node *n)
{
    return (double) SN_MAX(sn_shape_count(sn_shape_of(g, n->in[0])),
                           sn_shape_count(sn_shape_of(g, n->out[0])));
}

static sn_status max_backward(sn_graph *g, int node, const int *grad_out, sn_grads *into)
{
    const sn_node n = g->node[node];
    int dx;
    SN_TRY(sn_backward_node(g, SN_OP_MAX_POOL_GRAD, node, &n.attr, (int[]){grad_out[0], n.in[0]}, 2,
                            &dx));
    return sn_grads_add(g, into, n.in[0], dx);
}

static sn_status mean_backward(sn_graph *g, int node, const int *grad_out, sn_grads *into)
{
    const sn_node n = g->node[node];
    sn_op op = n.op == SN_OP_AVG_POOL ? SN_OP_AVG_POOL_GRAD : SN_OP_MEAN_POOL_GRAD;
    sn_attr attr = n.attr;
    int dx;
    attr.shape = sn_shape_of(g, n.in[0]);
    SN_TRY(sn_backward_node(g, op, node, &attr, grad_out, 1, &dx));
    return sn_grads_add(g, into, n.in[0], dx);
}

const sn_op_row sn_rows_pool[] = {
    {SN_OP_MAX_POOL, "max_pool", 1, 1, 1, pool_shape, max_backward, window_flops, pool_shard},
    {SN_OP_MAX_POOL_GRAD, "max_pool_grad", 2, 2, 1, like_second, NULL, window_flops, pool_shard},
    {SN_OP_AVG_POOL, "avg_pool", 1, 1, 1, pool_shape, mean_backward, window_flops, pool_shard},
    {SN_OP_AVG_POOL_GRAD, "avg_pool_grad", 1, 1, 1, wanted_shape, NULL, window_flops, pool_shard},
    {SN_OP_MEAN_POOL, "mean_pool", 1, 1, 1, mean_shape, mean_backward, larger_flops, pool_shard},
    {SN_OP_MEAN_POOL_GRAD, "mean_pool_grad", 1, 1, 1, wanted_shape, NULL, larger_flops, pool_shard},
};
const int sn_rows_pool_count = SN_COUNT(sn_rows_pool);
