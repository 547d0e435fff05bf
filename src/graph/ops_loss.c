/* SPDX-License-Identifier: Apache-2.0
 * Mean-squared error, and what losses and heads are made with: one place of a sequence, constants.
 */
#include "graph/private.h"

static sn_status mse_shape(sn_graph *g, sn_node *n)
{
    sn_shape x = sn_shape_of(g, n->in[0]);
    if (!sn_shape_equal(x, sn_shape_of(g, n->in[1])))
        return sn_bad_node(g, n, "x and the target must have one shape");
    sn_set_out(g, n, 0, n->op == SN_OP_MSE_LOSS ? (sn_shape){0} : x);
    return SN_OK;
}

static void mse_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    sn_shape x = sn_shape_of(g, n->in[0]);
    for (int d = 0; d < x.rank; d++) {
        r->in[0][d] = r->in[1][d] =
            (int8_t) sn_label(r, LABEL_LEAD + d, x.dim[d], true, SN_COMBINE_SUM);
        if (n->op == SN_OP_MSE_GRAD)
            r->out[0][d] = r->in[0][d];
    }
}

static sn_status mse_backward(sn_graph *g, int node, const int *grad_out, sn_grads *into)
{
    const sn_node n = g->node[node];
    if (grad_out[0] != SN_GRAD_ONE)
        return sn_fail(SN_ENOTSUP,
                       "mse_loss '%s' must be the loss or a summand of it, scaled by "
                       "its own attribute",
                       n.name);
    for (int i = 0; i < 2; i++) {
        int dx, in[] = {n.in[i], n.in[!i]}; /* the loss is the same with the two exchanged */
        if (!sn_grads_wanted(into, n.in[i]))
            continue;
        SN_TRY(sn_backward_node(g, SN_OP_MSE_GRAD, node, &n.attr, in, 2, &dx));
        SN_TRY(sn_grads_add(g, into, n.in[i], dx));
    }
    return SN_OK;
}

static double mse_flops(const sn_graph *g, const sn_node *n)
{
    return 3.0 * (double) sn_shape_count(sn_shape_of(g, n->in[0]));
}

static sn_status take_shape(sn_graph *g, sn_node *n)
{
    sn_shape x = sn_shape_of(g, n->in[0]), y = {.rank = x.rank - 1};
    if (x.rank < 1 || n->attr.i[0] < 0 || n->attr.i[0] >= x.dim[0])
        return sn_bad_node(g, n, "the first dim has no such place");
    for (int d = 0; d < y.rank; d++)
        y.dim[d] = x.dim[d + 1];
    sn_set_out(g, n, 0, y);
    return SN_OK;
}

static sn_status wanted_shape(sn_graph *g, sn_node *n)
{
    sn_set_out(g, n, 0, n->attr.shape);
    return SN_OK;
}

static void take_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    bool grad = n->op == SN_OP_TAKE_GRAD;
    int8_t *of_x = grad ? r->out[0] : r->in[0], *of_y = grad ? r->in[0] : r->out[0];
    sn_shape x = sn_shape_of(g, grad ? n->out[0] : n->in[0]);
    for (int d = 1; d < x.rank; d++)
        of_x[d] = of_y[d - 1] =
            (int8_t) sn_label(r, LABEL_LEAD + d, x.dim[d], true, SN_COMBINE_NONE);
}

static sn_status take_backward(sn_graph *g, int node, const int *grad_out, sn_grads *into)
{
    const sn_node n = g->node[node];
    sn_attr attr = {.i = {n.attr.i[0]}, .shape = sn_shape_of(g, n.in[0])};
    int dx;
    SN_TRY(sn_backward_node(g, SN_OP_TAKE_GRAD, node, &attr, grad_out, 1, &dx));
    return sn_grads_add(g, into, n.in[0], dx);
}

static void constant_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    sn_shape y = sn_shape_of(g, n->out[0]);
    for (int d = 0; d < y.rank; d++)
        r->out[0][d] = (int8_t) sn_label(r, LABEL_LEAD + d, y.dim[d], true, SN_COMBINE_NONE);
}

const sn_op_row sn_rows_loss[] = {
    {SN_OP_MSE_LOSS, "mse_loss", 2, 2, 1, mse_shape, mse_backward, mse_flops, mse_shard, 1, true},
    {SN_OP_MSE_GRAD, "mse_grad", 2, 2, 1, mse_shape, NULL, mse_flops, mse_shard},
    {SN_OP_TAKE, "take", 1, 1, 1, take_shape, take_backward, NULL, take_shard},
    {SN_OP_TAKE_GRAD, "take_grad", 1, 1, 1, wanted_shape, NULL, NULL, take_shard},
    {SN_OP_CONSTANT, "constant", 0, 0, 1, wanted_shape, NULL, NULL, constant_shard},
};
const int sn_rows_loss_count = SN_COUNT(sn_rows_loss);
