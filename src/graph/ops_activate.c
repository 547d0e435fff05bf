/* SPDX-License-Identifier: Apache-2.0
 * Activations with an optional bias, gated ones, softmax. */
#include "graph/private.h"

static bool known(const sn_node *n)
{
    return n->attr.i[0] >= 0 && n->attr.i[0] < SN_ACT_COUNT;
}

static sn_status activate_shape(sn_graph *g, sn_node *n)
{
    int at = n->op == SN_OP_ACTIVATE ? 0 : 1, bias = n->ins > at + 1 ? n->in[at + 1] : -1;
    sn_shape x = sn_shape_of(g, n->in[at]);
    if (!known(n))
        return sn_bad_node(g, n, "there is no such function");
    if (bias >= 0 &&
        (x.rank < 1 || !sn_shape_equal(sn_shape_of(g, bias), SN_SHAPE(x.dim[x.rank - 1]))))
        return sn_bad_node(g, n, "the bias must have the size of the last dim");
    sn_set_out(g, n, 0, x);
    return SN_OK;
}

static void activate_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    int full = n->op == SN_OP_ACTIVATE ? 1 : 2; /* operands of x's shape; then the bias */
    sn_shape x = sn_shape_of(g, n->in[0]);
    for (int i = 0; i < full; i++)
        sn_label_rows(x, r->in[i], SN_COMBINE_NONE, true, r);
    sn_label_rows(x, r->out[0], SN_COMBINE_NONE, true, r);
    if (n->ins > full && n->in[full] >= 0)
        r->in[full][0] = r->in[0][x.rank - 1];
}

static sn_status activate_backward(sn_graph *g, int node, const int *grad_out, sn_grads *into)
{
    const sn_node n = g->node[node];
    int b = n.ins > 1 ? n.in[1] : -1, dx;
    bool relu = n.attr.i[0] == SN_ACT_RELU; /* positive where its result is: x need not be kept */
    int in[] = {grad_out[0], relu ? n.out[0] : n.in[0], b};
    SN_TRY(sn_backward_node(g, SN_OP_ACTIVATE_GRAD, node, &n.attr, in, b < 0 || relu ? 2 : 3, &dx));
    if (sn_grads_wanted(into, n.in[0]))
        SN_TRY(sn_grads_add(g, into, n.in[0], dx));
    return b >= 0 && sn_grads_wanted(into, b) ? sn_backward_sum_to(g, into, node, dx, b, 1) : SN_OK;
}

static sn_status glu_shape(sn_graph *g, sn_node *n)
{
    sn_shape x = sn_shape_of(g, n->in[n->op == SN_OP_GLU ? 0 : 1]);
    if (x.rank < 2 || x.dim[x.rank - 2] != 2 || !known(n))
        return sn_bad_node(g, n, "x must be […,2,F] and the function known");
    if (n->op == SN_OP_GLU) {
        x.dim[x.rank - 2] = x.dim[x.rank - 1];
        x.rank--;
    }
    sn_set_out(g, n, 0, x);
    return SN_OK;
}

/* Labels of [lead…,F] on it and on [lead…,2,F]. */
static void glu_rows(sn_shape y, int8_t *of_y, int8_t *of_x, sn_shard_rule *r)
{
    sn_label_rows(y, of_y, SN_COMBINE_NONE, true, r);
    for (int d = 0; d < y.rank; d++)
        of_x[d < y.rank - 1 ? d : d + 1] = of_y[d];
}

static void glu_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    if (n->op == SN_OP_GLU) {
        glu_rows(sn_shape_of(g, n->out[0]), r->out[0], r->in[0], r);
        return;
    }
    glu_rows(sn_shape_of(g, n->in[0]), r->in[0], r->in[1], r);
    glu_rows(sn_shape_of(g, n->in[0]), r->in[0], r->out[0], r);
}

static sn_status glu_backward(sn_graph *g, int node, const int *grad_out, sn_grads *into)
{
    const sn_node n = g->node[node];
    int dx;
    SN_TRY(
        sn_backward_node(g, SN_OP_GLU_GRAD, node, &n.attr, (int[]){grad_out[0], n.in[0]}, 2, &dx));
    return sn_grads_add(g, into, n.in[0], dx);
}

static sn_status softmax_shape(sn_graph *g, sn_node *n)
{
    sn_shape x = sn_shape_of(g, n->in[0]);
    if (x.rank < 1)
        return sn_bad_node(g, n, "a scalar has no last dim");
    sn_set_out(g, n, 0, x);
    return SN_OK;
}

static void softmax_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    sn_shape x = sn_shape_of(g, n->in[0]);
    for (int i = 0; i < n->ins; i++)
        sn_label_rows(x, r->in[i], SN_COMBINE_NONE, false, r);
    sn_label_rows(x, r->out[0], SN_COMBINE_NONE, false, r);
}

static sn_status softmax_backward(sn_graph *g, int node, const int *grad_out, sn_grads *into)
{
    const sn_node n = g->node[node];
    int dx;
    SN_TRY(sn_backward_node(g, SN_OP_SOFTMAX_GRAD, node, NULL, (int[]){grad_out[0], n.out[0]}, 2,
                            &dx));
    return sn_grads_add(g, into, n.in[0], dx);
}

/* A curved function costs about as much as ten additions. */
static double curve_flops(const sn_graph *g, const sn_node *n)
{
    bool relu = n->op != SN_OP_SOFTMAX && n->attr.i[0] <= SN_ACT_RELU;
    return (relu ? 2.0 : 20.0) * (double) sn_shape_count(sn_shape_of(g, n->out[0]));
}

static double four_flops(const sn_graph *g, const sn_node *n)
{
    return 4.0 * (double) sn_shape_count(sn_shape_of(g, n->out[0]));
}

const sn_op_row sn_rows_activate[] = {
    {SN_OP_ACTIVATE, "activate", 1, 2, 1, activate_shape, activate_backward, curve_flops,
     activate_shard},
    {SN_OP_ACTIVATE_GRAD, "activate_grad", 2, 3, 1, activate_shape, NULL, curve_flops,
     activate_shard},
    {SN_OP_GLU, "glu", 1, 1, 1, glu_shape, glu_backward, curve_flops, glu_shard},
    {SN_OP_GLU_GRAD, "glu_grad", 2, 2, 1, glu_shape, NULL, curve_flops, glu_shard},
    {SN_OP_SOFTMAX, "softmax", 1, 1, 1, softmax_shape, softmax_backward, curve_flops,
     softmax_shard},
    {SN_OP_SOFTMAX_GRAD, "softmax_grad", 2, 2, 1, softmax_shape, NULL, four_flops, softmax_shard},
};
const int sn_rows_activate_count = SN_COUNT(sn_rows_activate);
