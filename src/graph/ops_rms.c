/* SPDX-License-Identifier: Apache-2.0
 * rms_norm, residual and rms_norm in one, and the gradient. Labels as layer_norm's: the leading
 * dims and the last one, which stays whole. */
#include "graph/private.h"

static sn_shape lead_of(sn_shape x)
{
    x.rank--;
    return x;
}

static bool is_vector(const sn_graph *g, int v, sn_shape x)
{
    return v < 0 || sn_shape_equal(sn_shape_of(g, v), SN_SHAPE(x.dim[x.rank - 1]));
}

static sn_status norm_shape(sn_graph *g, sn_node *n)
{
    sn_shape x = sn_shape_of(g, n->in[0]);
    if (x.rank < 1 || !is_vector(g, n->in[1], x))
        return sn_bad_node(g, n, "the gain must have the size of the last dim");
    sn_set_out(g, n, 0, x);
    sn_set_out(g, n, 1, lead_of(x));
    return SN_OK;
}

static sn_status both_shape(sn_graph *g, sn_node *n)
{
    sn_shape x = sn_shape_of(g, n->in[0]);
    if (x.rank < 1 || !sn_shape_equal(x, sn_shape_of(g, n->in[1])) || !is_vector(g, n->in[2], x) ||
        !is_vector(g, n->in[3], x))
        return sn_bad_node(g, n, "x and r must have one shape, bias and gain that of the last dim");
    sn_set_out(g, n, 0, x);
    sn_set_out(g, n, 1, x);
    sn_set_out(g, n, 2, lead_of(x));
    return SN_OK;
}

static sn_status grad_shape(sn_graph *g, sn_node *n)
{
    sn_set_out(g, n, 0, sn_shape_of(g, n->in[1]));
    sn_set_out(g, n, 1, sn_shape_of(g, n->in[2]));
    return SN_OK;
}

static double norm_flops(const sn_graph *g, const sn_node *n)
{
    return 6.0 * (double) sn_shape_count(sn_shape_of(g, n->out[0]));
}

/* Operands that are [D] by bit (results from bit 8); the rest has the leading dims, x's or rstd's.
 */
static void label_all(const sn_graph *g, const sn_node *n, uint32_t vectors, sn_shard_rule *r)
{
    int8_t of_x[SN_RANK_MAX];
    sn_shape x = sn_shape_of(g, n->in[0]);
    sn_label_rows(x, of_x, SN_COMBINE_SUM, false, r);
    for (int k = 0; k < n->ins + n->outs; k++) {
        bool in = k < n->ins;
        int v = in ? n->in[k] : n->out[k - n->ins], bit = in ? k : 8 + k - n->ins;
        int8_t *row = in ? r->in[k] : r->out[k - n->ins];
        for (int d = 0; v >= 0 && d < sn_shape_of(g, v).rank; d++)
            row[d] = vectors >> bit & 1 ? of_x[x.rank - 1] : of_x[d];
    }
}

static void norm_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    label_all(g, n, 1u << 1, r);
}

static void both_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    label_all(g, n, 3u << 2, r);
}

static void grad_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    label_all(g, n, 1u << 2 | 1u << 9, r);
}

/* dx of a norm of `s`, with what has already been collected for s added in the same pass. */
static sn_status norm_grads(sn_graph *g, int node, int dy, int s, int ds, int gain, int rstd,
                            sn_grads *into, int *ret_dx)
{
    int out[2], in[] = {dy, s, gain, rstd, ds};
    SN_TRY(sn_backward_node(g, SN_OP_RMS_NORM_GRAD, node, NULL, in, ds < 0 ? 4 : 5, out));
    SN_TRY(sn_grads_add(g, into, gain, out[1]));
    *ret_dx = out[0];
    return SN_OK;
}

static sn_status norm_backward(sn_graph *g, int node, const int *grad_out, sn_grads *into)
{
    const sn_node n = g->node[node];
    int dx;
    if (grad_out[0] < 0)
        return SN_OK;
    SN_TRY(norm_grads(g, node, grad_out[0], n.in[0], sn_grads_get(into, n.in[0]), n.in[1], n.out[1],
                      into, &dx));
    if (sn_grads_wanted(into, n.in[0]))
        sn_grads_replace(into, n.in[0], dx);
    return SN_OK;
}

static sn_status both_backward(sn_graph *g, int node, const int *grad_out, sn_grads *into)
{
    const sn_node n = g->node[node];
    int ds = grad_out[0];
    if (grad_out[1] >= 0)
        SN_TRY(
            norm_grads(g, node, grad_out[1], n.out[0], grad_out[0], n.in[3], n.out[2], into, &ds));
    for (int i = 0; i < 2 && ds >= 0; i++)
        if (sn_grads_wanted(into, n.in[i]))
            SN_TRY(sn_grads_add(g, into, n.in[i], ds));
    return ds >= 0 && n.in[2] >= 0 && sn_grads_wanted(into, n.in[2])
               ? sn_backward_sum_to(g, into, node, ds, n.in[2], 1)
               : SN_OK;
}

const sn_op_row sn_rows_rms[] = {
    {SN_OP_RMS_NORM, "rms_norm", 2, 2, 2, norm_shape, norm_backward, norm_flops, norm_shard, 2},
    {SN_OP_RMS_NORM_GRAD, "rms_norm_grad", 4, 5, 2, grad_shape, NULL, norm_flops, grad_shard},
    {SN_OP_RESIDUAL_RMS_NORM, "residual_rms_norm", 4, 4, 3, both_shape, both_backward, norm_flops,
     both_shard, 4},
};
const int sn_rows_rms_count = SN_COUNT(sn_rows_rms);
