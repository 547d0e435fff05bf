/* SPDX-License-Identifier: Apache-2.0
 * Products of stacks of matrices; a tensor seen through windows, and the adjoint, from which
 * convolutions and pools of any number of dims are made. */
#include "graph/tensor_rule.h"

static sn_status matmul_shape(sn_graph *g, sn_node *n)
{
    sn_shape x = sn_shape_of(g, n->in[0]), y = sn_shape_of(g, n->in[1]), z = x;
    int r = x.rank;
    bool fits = r >= 2 && y.rank == r && sn_dtype_of(g, n->in[0]) == sn_dtype_of(g, n->in[1]);
    for (int d = 0; fits && d < r - 2; d++)
        fits = x.dim[d] == y.dim[d];
    if (!fits)
        return sn_bad_node(g, n,
                           "stacks of matrices of one type and equal leading dims are needed");
    bool sx = n->attr.i[0], sy = n->attr.i[1];
    if (x.dim[sx ? r - 2 : r - 1] != y.dim[sy ? r - 1 : r - 2])
        return sn_bad_node(g, n, "the summed dims differ");
    z.dim[r - 2] = x.dim[sx ? r - 1 : r - 2];
    z.dim[r - 1] = y.dim[sy ? r - 2 : r - 1];
    return sn_tensor_out(g, n, 0, z, sn_dtype_of(g, n->in[0]));
}

static void matmul_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    /* the forward labels of (rows, columns, sum), by what the node computes */
    sn_shape x = sn_shape_of(g, n->in[0]), z = sn_shape_of(g, n->out[0]);
    int last = x.rank - 1, M = LABEL_LEAD + last - 1, N = LABEL_LAST, K = LABEL_INNER;
    const int role[4][3] = {{M, N, K}, {M, K, N}, {K, N, M}, {N, K, M}};
    const int *id = role[n->attr.i[2] & 3];
    bool sx = n->attr.i[0], sy = n->attr.i[1];
    for (int d = 0; d < last - 1; d++)
        r->in[0][d] = r->in[1][d] = r->out[0][d] = sn_label_dim(r, d, x.dim[d]);
    int8_t rows = (int8_t) sn_label(r, id[0], z.dim[last - 1], true, SN_COMBINE_NONE);
    int8_t cols = (int8_t) sn_label(r, id[1], z.dim[last], true, SN_COMBINE_NONE);
    int8_t sum = (int8_t) sn_label(r, id[2], x.dim[sx ? last - 1 : last], true, SN_COMBINE_SUM);
    r->out[0][last - 1] = r->in[0][sx ? last : last - 1] = rows;
    r->out[0][last] = r->in[1][sy ? last - 1 : last] = cols;
    r->in[0][sx ? last - 1 : last] = r->in[1][sy ? last : last - 1] = sum;
}

static sn_status product(sn_graph *g, int node, int x, int y, bool sx, bool sy, int role, int *ret)
{
    sn_attr attr = {.i = {sx, sy, role}};
    return sn_backward_node(g, SN_OP_MATMUL, node, &attr, (int[]){x, y}, 2, ret);
}

static sn_status matmul_backward(sn_graph *g, int node, const int *grad_out, sn_grads *into)
{
    const sn_node n = g->node[node];
    int x = n.in[0], y = n.in[1], dz = grad_out[0], grad;
    bool sy = n.attr.i[1];
    if (dz < 0)
        return SN_OK;
    if (n.attr.i[0])
        return sn_fail(SN_ENOTSUP, "matmul '%s': a swapped first operand has no gradient", n.name);
    if (sn_grads_wanted(into, x)) {
        SN_TRY(product(g, node, dz, y, false, !sy, 1, &grad));
        SN_TRY(sn_grads_add(g, into, x, grad));
    }
    if (sn_grads_wanted(into, y)) {
        SN_TRY(sy ? product(g, node, dz, x, true, false, 3, &grad)
                  : product(g, node, x, dz, true, false, 2, &grad));
        SN_TRY(sn_grads_add(g, into, y, grad));
    }
    return SN_OK;
}

static double matmul_flops(const sn_graph *g, const sn_node *n)
{
    sn_shape x = sn_shape_of(g, n->in[0]);
    double sum = (double) x.dim[n->attr.i[0] ? x.rank - 2 : x.rank - 1];
    return 2 * sum * (double) sn_shape_count(sn_shape_of(g, n->out[0]));
}

/* [N,C,places in a window,windows] of x[N,C,…]. */
static bool unfolded(sn_shape x, const int64_t *a, sn_shape *ret)
{
    int spatial = x.rank - 2;
    int64_t places = 1, windows = 1;
    if (spatial < 1 || spatial > 3)
        return false;
    for (int j = 0; j < spatial; j++) {
        int64_t size = a[j], stride = a[3 + j], dilation = a[6 + j], span, room;
        if (size < 1 || stride < 1 || dilation < 1 || a[9 + j] < 0 || a[12 + j] < 0 ||
            __builtin_mul_overflow(size - 1, dilation, &span) ||
            __builtin_add_overflow(x.dim[2 + j], a[9 + j], &room) ||
            __builtin_add_overflow(room, a[12 + j], &room) || span >= room ||
            __builtin_mul_overflow(places, size, &places) ||
            __builtin_mul_overflow(windows, (room - span - 1) / stride + 1, &windows))
            return false;
    }
    *ret = SN_SHAPE(x.dim[0], x.dim[1], places, windows);
    return true;
}

static sn_status unfold_shape(sn_graph *g, sn_node *n)
{
    sn_shape y;
    if (!unfolded(sn_shape_of(g, n->in[0]), n->attr.i, &y))
        return sn_bad_node(g, n, "the windows do not fit a tensor of 1 to 3 spatial dims");
    return sn_tensor_out(g, n, 0, y, sn_dtype_of(g, n->in[0]));
}

static sn_status fold_shape(sn_graph *g, sn_node *n)
{
    sn_shape y;
    SN_TRY(sn_tensor_out(g, n, 0, n->attr.shape, sn_dtype_of(g, n->in[0])));
    if (!unfolded(n->attr.shape, n->attr.i, &y) || !sn_shape_equal(y, sn_shape_of(g, n->in[0])))
        return sn_bad_node(g, n, "the operand is not what windows of the wanted shape give");
    return SN_OK;
}

static void window_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    sn_shape x = sn_shape_of(g, n->in[0]);
    for (int d = 0; d < 2; d++)
        r->in[0][d] = r->out[0][d] = sn_label_dim(r, d, x.dim[d]);
}

static sn_status window_backward(sn_graph *g, int node, const int *grad_out, sn_grads *into)
{
    const sn_node n = g->node[node];
    sn_attr attr = n.attr;
    int grad;
    if (grad_out[0] < 0 || !sn_grads_wanted(into, n.in[0]))
        return SN_OK;
    attr.f[0] = 0;
    attr.shape = sn_shape_of(g, n.in[0]);
    sn_op op = n.op == SN_OP_FOLD ? SN_OP_UNFOLD : SN_OP_FOLD;
    SN_TRY(sn_backward_node(g, op, node, &attr, grad_out, 1, &grad));
    return sn_grads_add(g, into, n.in[0], grad);
}

static double fold_flops(const sn_graph *g, const sn_node *n)
{
    return (double) sn_shape_count(sn_shape_of(g, n->in[0]));
}

const sn_op_row sn_rows_window[] = {
    {SN_OP_MATMUL, "matmul", 2, 2, 1, matmul_shape, matmul_backward, matmul_flops, matmul_shard},
    {SN_OP_UNFOLD, "unfold", 1, 1, 1, unfold_shape, window_backward, NULL, window_shard},
    {SN_OP_FOLD, "fold", 1, 1, 1, fold_shape, window_backward, fold_flops, window_shard},
};
const int sn_rows_window_count = SN_COUNT(sn_rows_window);
