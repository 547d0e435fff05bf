/* SPDX-License-Identifier: Apache-2.0
 * Softmax cross-entropy in pieces that a split vocabulary needs: row_max, xent_sums, xent_loss; one
 * gradient.
 *
 * The loss is log Σ exp(x − m) + m − x[target]: it does not depend on m, and the gradient of the
 * whole with respect to the logits is one expression. So xent_loss contributes nothing to m and s;
 * xent_sums emits the gradient of the logits. */
#include "graph/private.h"

static sn_shape lead_of(sn_shape x)
{
    x.rank--;
    return x;
}

static sn_status row_max_shape(sn_graph *g, sn_node *n)
{
    sn_shape x = sn_shape_of(g, n->in[0]);
    if (x.rank < 1)
        return sn_bad_node(g, n, "a scalar has no rows");
    sn_set_out(g, n, 0, lead_of(x));
    return SN_OK;
}

static sn_status check_rows(const sn_graph *g, const sn_node *n, int target, int m, sn_shape lead)
{
    if (g->value[target].dtype != SN_I32 || !sn_shape_equal(sn_shape_of(g, target), lead))
        return sn_bad_node(g, n, "targets must be I32, one a row");
    if (!sn_shape_equal(sn_shape_of(g, m), lead))
        return sn_bad_node(g, n, "the maxima must be one a row");
    return SN_OK;
}

static sn_status sums_shape(sn_graph *g, sn_node *n)
{
    sn_shape x = sn_shape_of(g, n->in[0]);
    if (x.rank < 1)
        return sn_bad_node(g, n, "a scalar has no rows");
    SN_TRY(check_rows(g, n, n->in[1], n->in[2], lead_of(x)));
    x.dim[x.rank - 1] = 2;
    sn_set_out(g, n, 0, x);
    return SN_OK;
}

static sn_status loss_shape(sn_graph *g, sn_node *n)
{
    SN_TRY(check_rows(g, n, n->in[2], n->in[0], sn_shape_of(g, n->in[0])));
    sn_set_out(g, n, 0, (sn_shape){0});
    return SN_OK;
}

static sn_status grad_shape(sn_graph *g, sn_node *n)
{
    sn_set_out(g, n, 0, sn_shape_of(g, n->in[0]));
    return SN_OK;
}

/* Label operands that have the leading dims of `x`; an operand of x's own shape also has the
 * vocabulary. */
static void label_lead(sn_shape x, int8_t *row, sn_combine combine, sn_shard_rule *r)
{
    for (int d = 0; d < x.rank - 1; d++)
        row[d] = (int8_t) sn_label(r, LABEL_LEAD + d, x.dim[d], true, combine);
}

static void label_whole(sn_shape x, int8_t *row, sn_combine combine, sn_shard_rule *r)
{
    label_lead(x, row, SN_COMBINE_NONE, r);
    row[x.rank - 1] = (int8_t) sn_label(r, LABEL_LAST, x.dim[x.rank - 1], true, combine);
}

static void row_max_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    sn_shape x = sn_shape_of(g, n->in[0]);
    label_whole(x, r->in[0], SN_COMBINE_MAX, r);
    label_lead(x, r->out[0], SN_COMBINE_NONE, r);
}

static void sums_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    sn_shape x = sn_shape_of(g, n->in[0]);
    label_whole(x, r->in[0], SN_COMBINE_SUM, r);
    label_lead(x, r->in[1], SN_COMBINE_NONE, r);
    label_lead(x, r->in[2], SN_COMBINE_NONE, r);
    label_lead(x, r->out[0], SN_COMBINE_NONE, r);
    r->begin_label = LABEL_LAST;
}

static void loss_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    sn_shape s = sn_shape_of(g, n->in[1]);
    for (int i = 0; i < 3; i++)
        label_lead(s, r->in[i], SN_COMBINE_SUM, r);
}

static void grad_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    sn_shape x = sn_shape_of(g, n->in[0]);
    label_whole(x, r->in[0], SN_COMBINE_NONE, r);
    for (int i = 1; i < 4; i++)
        label_lead(x, r->in[i], SN_COMBINE_NONE, r);
    label_whole(x, r->out[0], SN_COMBINE_NONE, r);
    r->begin_label = LABEL_LAST;
}

/* Their gradient is part of the loss's. */
static sn_status no_backward(sn_graph *g, int node, const int *grad_out, sn_grads *into)
{
    return SN_OK;
}

static sn_status loss_backward(sn_graph *g, int node, const int *grad_out, sn_grads *into)
{
    const sn_node loss = g->node[node];
    int sums = g->value[loss.in[1]].producer, dx;
    if (grad_out[0] != SN_GRAD_ONE || sums < 0 || g->node[sums].op != SN_OP_XENT_SUMS)
        return sn_fail(SN_ENOTSUP,
                       "xent_loss '%s' must be the loss or a summand of it, scaled by "
                       "its own attribute, and follow xent_sums",
                       loss.name);
    const sn_node n = g->node[sums];
    if (!sn_grads_wanted(into, n.in[0]))
        return SN_OK;
    int in[] = {n.in[0], n.in[1], n.in[2], n.out[0]};
    SN_TRY(sn_backward_node(g, SN_OP_XENT_GRAD, sums, &loss.attr, in, 4, &dx));
    return sn_grads_add(g, into, n.in[0], dx);
}

static double four_flops(const sn_graph *g, const sn_node *n)
{
    return 4.0 * (double) sn_shape_count(sn_shape_of(g, n->in[0]));
}

const sn_op_row sn_rows_xent[] = {
    {SN_OP_ROW_MAX, "row_max", 1, 1, 1, row_max_shape, no_backward, four_flops, row_max_shard, 1},
    {SN_OP_XENT_SUMS, "xent_sums", 3, 3, 1, sums_shape, no_backward, four_flops, sums_shard, 1},
    {SN_OP_XENT_LOSS, "xent_loss", 3, 3, 1, loss_shape, loss_backward, four_flops, loss_shard, 1,
     true},
    {SN_OP_XENT_GRAD, "xent_grad", 4, 4, 1, grad_shape, NULL, four_flops, grad_shard},
};
const int sn_rows_xent_count = SN_COUNT(sn_rows_xent);
