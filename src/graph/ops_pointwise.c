/* SPDX-License-Identifier: Apache-2.0
 * add with broadcasting, its adjoint sum_to, and bias + GELU. */
#include "graph/private.h"

/* y's dim that lines up with x's dim d, -1 when y has none there or it is 1 against a larger one.
 */
static int aligned(sn_shape x, sn_shape y, int d)
{
    int k = d - (x.rank - y.rank);
    return k < 0 || (y.dim[k] == 1 && x.dim[d] != 1) ? -1 : k;
}

static bool broadcasts(sn_shape x, sn_shape y)
{
    if (y.rank > x.rank)
        return false;
    for (int k = 0; k < y.rank; k++)
        if (y.dim[k] != 1 && y.dim[k] != x.dim[k + x.rank - y.rank])
            return false;
    return true;
}

static sn_status add_shape(sn_graph *g, sn_node *n)
{
    sn_shape x = sn_shape_of(g, n->in[0]), y = sn_shape_of(g, n->in[1]);
    if (!broadcasts(x, y))
        return sn_bad_node(g, n, "the second operand does not broadcast into the first");
    sn_set_out(g, n, 0, x);
    return SN_OK;
}

static sn_status sum_to_shape(sn_graph *g, sn_node *n)
{
    if (!broadcasts(sn_shape_of(g, n->in[0]), n->attr.shape))
        return sn_bad_node(g, n, "the wanted shape does not broadcast into the operand");
    sn_set_out(g, n, 0, n->attr.shape);
    return SN_OK;
}

static sn_status gelu_shape(sn_graph *g, sn_node *n)
{
    bool grad = n->op == SN_OP_BIAS_GELU_GRAD;
    sn_shape x = sn_shape_of(g, n->in[grad]), b = sn_shape_of(g, n->in[grad + 1]);
    if (x.rank < 1 || b.rank != 1 || b.dim[0] != x.dim[x.rank - 1])
        return sn_bad_node(g, n, "the bias must have the size of the last dim");
    if (grad && !sn_shape_equal(x, sn_shape_of(g, n->in[0])))
        return sn_bad_node(g, n, "dy and x must have one shape");
    sn_set_out(g, n, 0, x);
    return SN_OK;
}

static void add_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    sn_shape x = sn_shape_of(g, n->in[0]), y = sn_shape_of(g, n->in[1]);
    for (int d = 0; d < x.rank; d++) {
        int8_t l = (int8_t) sn_label(r, LABEL_LEAD + d, x.dim[d], true, SN_COMBINE_NONE);
        r->in[0][d] = r->out[0][d] = l;
        if (aligned(x, y, d) >= 0)
            r->in[1][aligned(x, y, d)] = l;
    }
}

static void sum_to_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    /* attr.i[0] trailing dims carry the labels that the origin gave them */
    sn_shape x = sn_shape_of(g, n->in[0]), y = n->attr.shape;
    int lead = x.rank - (int) n->attr.i[0];
    for (int d = 0; d < x.rank; d++) {
        int id = d < lead ? LABEL_LEAD + d : LABEL_LAST + d - lead, k = aligned(x, y, d);
        int8_t l =
            (int8_t) sn_label(r, id, x.dim[d], true, k < 0 ? SN_COMBINE_SUM : SN_COMBINE_NONE);
        r->in[0][d] = l;
        if (k >= 0)
            r->out[0][k] = l;
    }
}

static void gelu_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    int full = n->ins - 1; /* every operand but the last, the bias, has x's shape */
    sn_shape x = sn_shape_of(g, n->in[0]);
    for (int d = 0; d < x.rank; d++) {
        bool last = d == x.rank - 1;
        int8_t l = (int8_t) sn_label(r, last ? LABEL_LAST : LABEL_LEAD + d, x.dim[d], true,
                                     SN_COMBINE_NONE);
        for (int i = 0; i < full; i++)
            r->in[i][d] = l;
        r->out[0][d] = l;
        if (last)
            r->in[full][0] = l;
    }
}

static sn_status add_backward(sn_graph *g, int node, const int *grad_out, sn_grads *into)
{
    const sn_node n = g->node[node];
    if (sn_grads_wanted(into, n.in[0]))
        SN_TRY(sn_grads_add(g, into, n.in[0], grad_out[0]));
    if (grad_out[0] == SN_GRAD_ONE) /* y is as large as x, so one number too */
        return sn_grads_wanted(into, n.in[1]) ? sn_grads_add(g, into, n.in[1], grad_out[0]) : SN_OK;
    if (sn_grads_wanted(into, n.in[1]))
        SN_TRY(sn_backward_sum_to(g, into, node, grad_out[0], n.in[1], 0));
    return SN_OK;
}

static sn_status gelu_backward(sn_graph *g, int node, const int *grad_out, sn_grads *into)
{
    const sn_node n = g->node[node];
    int dx;
    if (grad_out[0] < 0)
        return SN_OK;
    SN_TRY(sn_backward_node(g, SN_OP_BIAS_GELU_GRAD, node, &n.attr,
                            (int[]){grad_out[0], n.in[0], n.in[1]}, 3, &dx));
    if (sn_grads_wanted(into, n.in[0]))
        SN_TRY(sn_grads_add(g, into, n.in[0], dx));
    if (sn_grads_wanted(into, n.in[1]))
        SN_TRY(sn_backward_sum_to(g, into, node, dx, n.in[1], 1));
    return SN_OK;
}

static double gelu_flops(const sn_graph *g, const sn_node *n)
{
    return 20.0 * (double) sn_shape_count(sn_shape_of(g, n->out[0]));
}

static double sum_flops(const sn_graph *g, const sn_node *n)
{
    return (double) sn_shape_count(sn_shape_of(g, n->in[0]));
}

const sn_op_row sn_rows_pointwise[] = {
    {SN_OP_ADD, "add", 2, 2, 1, add_shape, add_backward, NULL, add_shard, 0, true},
    {SN_OP_SUM_TO, "sum_to", 1, 1, 1, sum_to_shape, NULL, sum_flops, sum_to_shard},
    {SN_OP_BIAS_GELU, "bias_gelu", 2, 2, 1, gelu_shape, gelu_backward, gelu_flops, gelu_shard},
    {SN_OP_BIAS_GELU_GRAD, "bias_gelu_grad", 3, 3, 1, gelu_shape, NULL, gelu_flops, gelu_shard},
};
const int sn_rows_pointwise_count = SN_COUNT(sn_rows_pointwise);
