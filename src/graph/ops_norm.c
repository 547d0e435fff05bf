/* SPDX-License-Identifier: Apache-2.0
 * residual, layer_norm, both in one, and the gradient. Labels: the leading dims and the last one.
 */
#include "graph/private.h"

static sn_shape lead_of(sn_shape x)
{
    x.rank--;
    return x;
}

static bool is_vector(sn_shape s, int64_t size)
{
    return s.rank == 1 && s.dim[0] == size;
}

static sn_status check_gain(const sn_graph *g, const sn_node *n, int gain, int bias, sn_shape x)
{
    if (x.rank < 1 || !is_vector(sn_shape_of(g, gain), x.dim[x.rank - 1]) ||
        !is_vector(sn_shape_of(g, bias), x.dim[x.rank - 1]))
        return sn_bad_node(g, n, "gain and bias must have the size of the last dim");
    return SN_OK;
}

static sn_status residual_shape(sn_graph *g, sn_node *n)
{
    sn_shape x = sn_shape_of(g, n->in[0]);
    if (!sn_shape_equal(x, sn_shape_of(g, n->in[1])) || x.rank < 1)
        return sn_bad_node(g, n, "x and r must have one shape");
    if (n->ins > 2 && n->in[2] >= 0 && !is_vector(sn_shape_of(g, n->in[2]), x.dim[x.rank - 1]))
        return sn_bad_node(g, n, "the bias must have the size of the last dim");
    sn_set_out(g, n, 0, x);
    return SN_OK;
}

static sn_status norm_shape(sn_graph *g, sn_node *n)
{
    sn_shape x = sn_shape_of(g, n->in[0]);
    SN_TRY(check_gain(g, n, n->in[1], n->in[2], x));
    sn_set_out(g, n, 0, x);
    sn_set_out(g, n, 1, lead_of(x));
    sn_set_out(g, n, 2, lead_of(x));
    return SN_OK;
}

static sn_status both_shape(sn_graph *g, sn_node *n)
{
    sn_shape x = sn_shape_of(g, n->in[0]);
    SN_TRY(check_gain(g, n, n->in[3], n->in[4], x));
    if (!sn_shape_equal(x, sn_shape_of(g, n->in[1])))
        return sn_bad_node(g, n, "x and r must have one shape");
    sn_set_out(g, n, 0, x);
    sn_set_out(g, n, 1, x);
    sn_set_out(g, n, 2, lead_of(x));
    sn_set_out(g, n, 3, lead_of(x));
    return SN_OK;
}

static sn_status grad_shape(sn_graph *g, sn_node *n)
{
    sn_shape x = sn_shape_of(g, n->in[1]), d = sn_shape_of(g, n->in[2]);
    sn_set_out(g, n, 0, x);
    sn_set_out(g, n, 1, d);
    sn_set_out(g, n, 2, d);
    return SN_OK;
}

static double norm_flops(const sn_graph *g, const sn_node *n)
{
    return 8.0 * (double) sn_shape_count(sn_shape_of(g, n->out[0]));
}

/* Label every operand: the vectors (bits: ins, then outs) by the last dim, the others from the
 * front. */
static void label_all(const sn_graph *g, const sn_node *n, sn_shape x, uint32_t vectors,
                      bool last_splits, sn_shard_rule *r)
{
    int8_t index[SN_RANK_MAX];
    for (int d = 0; d < x.rank - 1; d++)
        index[d] = (int8_t) sn_label(r, LABEL_LEAD + d, x.dim[d], true, SN_COMBINE_SUM);
    int8_t last = (int8_t) sn_label(r, LABEL_LAST, x.dim[x.rank - 1], last_splits, SN_COMBINE_NONE);
    index[x.rank - 1] = last;
    for (int k = 0; k < n->ins + n->outs; k++) {
        int v = k < n->ins ? n->in[k] : n->out[k - n->ins];
        int8_t *row = k < n->ins ? r->in[k] : r->out[k - n->ins];
        if (v < 0)
            continue;
        if (vectors >> k & 1)
            row[0] = last;
        else
            for (int d = 0; d < sn_shape_of(g, v).rank; d++)
                row[d] = index[d];
    }
}

static void residual_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    label_all(g, n, sn_shape_of(g, n->in[0]), n->ins > 2 ? 1u << 2 : 0, true, r);
}

static void norm_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    label_all(g, n, sn_shape_of(g, n->in[0]), 1u << 1 | 1u << 2, false, r);
}

static void both_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    label_all(g, n, sn_shape_of(g, n->in[0]), 1u << 2 | 1u << 3 | 1u << 4, false, r);
}

static void grad_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    uint32_t gain_and_bias = 3u << (n->ins + 1);
    label_all(g, n, sn_shape_of(g, n->in[1]), 1u << 2 | gain_and_bias, false, r);
}

/* The gradient ds of s = x + r + b reaches all three. */
static sn_status spread(sn_graph *g, sn_grads *into, int node, int ds, int x, int r, int b)
{
    if (sn_grads_wanted(into, x))
        SN_TRY(sn_grads_add(g, into, x, ds));
    if (sn_grads_wanted(into, r))
        SN_TRY(sn_grads_add(g, into, r, ds));
    if (b >= 0 && sn_grads_wanted(into, b))
        SN_TRY(sn_backward_sum_to(g, into, node, ds, b, 1));
    return SN_OK;
}

static sn_status residual_backward(sn_graph *g, int node, const int *grad_out, sn_grads *into)
{
    const sn_node n = g->node[node];
    if (grad_out[0] < 0)
        return SN_OK;
    return spread(g, into, node, grad_out[0], n.in[0], n.in[1], n.ins > 2 ? n.in[2] : -1);
}

/* dx of a norm of `s`, with what has already been collected for s added in the same pass. */
static sn_status norm_grads(sn_graph *g, int node, int dy, int s, int ds, int gain, int bias,
                            int mean, int rstd, sn_grads *into, int *ret_dx)
{
    int out[3], in[] = {dy, s, gain, mean, rstd, ds};
    SN_TRY(sn_backward_node(g, SN_OP_LAYER_NORM_GRAD, node, NULL, in, ds < 0 ? 5 : 6, out));
    SN_TRY(sn_grads_add(g, into, gain, out[1]));
    SN_TRY(sn_grads_add(g, into, bias, out[2]));
    *ret_dx = out[0];
    return SN_OK;
}

static sn_status norm_backward(sn_graph *g, int node, const int *grad_out, sn_grads *into)
{
    const sn_node n = g->node[node];
    int dx;
    if (grad_out[0] < 0)
        return SN_OK;
    SN_TRY(norm_grads(g, node, grad_out[0], n.in[0], sn_grads_get(into, n.in[0]), n.in[1], n.in[2],
                      n.out[1], n.out[2], into, &dx));
    if (sn_grads_wanted(into, n.in[0]))
        sn_grads_replace(into, n.in[0], dx);
    return SN_OK;
}

static sn_status both_backward(sn_graph *g, int node, const int *grad_out, sn_grads *into)
{
    const sn_node n = g->node[node];
    int ds = grad_out[0];
    if (grad_out[1] >= 0)
        SN_TRY(norm_grads(g, node, grad_out[1], n.out[0], grad_out[0], n.in[3], n.in[4], n.out[2],
                          n.out[3], into, &ds));
    return ds < 0 ? SN_OK : spread(g, into, node, ds, n.in[0], n.in[1], n.in[2]);
}

const sn_op_row sn_rows_norm[] = {
    {SN_OP_RESIDUAL, "residual", 2, 3, 1, residual_shape, residual_backward, NULL, residual_shard},
    {SN_OP_LAYER_NORM, "layer_norm", 3, 3, 3, norm_shape, norm_backward, norm_flops, norm_shard, 6},
    {SN_OP_LAYER_NORM_GRAD, "layer_norm_grad", 5, 6, 3, grad_shape, NULL, norm_flops, grad_shard},
    {SN_OP_RESIDUAL_LAYER_NORM, "residual_layer_norm", 5, 5, 4, both_shape, both_backward,
     norm_flops, both_shard, 12},
};
const int sn_rows_norm_count = SN_COUNT(sn_rows_norm);
