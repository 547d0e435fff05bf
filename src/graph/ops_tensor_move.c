/* SPDX-License-Identifier: Apache-2.0
 * Ops that move elements without looking at them: another shape, another order, a part, copies. */
#include "graph/tensor_rule.h"

#define R SN_RANK_MAX

static sn_status reshape_shape(sn_graph *g, sn_node *n)
{
    sn_shape x = sn_shape_of(g, n->in[0]);
    SN_TRY(sn_tensor_out(g, n, 0, n->attr.shape, sn_dtype_of(g, n->in[0])));
    if (sn_shape_count(x) != sn_shape_count(n->attr.shape))
        return sn_bad_node(g, n, "the wanted shape has another number of elements");
    return SN_OK;
}

/* The shortest stretches of both shapes with equal products; a stretch of one dim on both sides is
 * one that keeps its place, and its number names the label, in whichever direction. */
static void reshape_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    sn_shape x = sn_shape_of(g, n->in[0]), y = sn_shape_of(g, n->out[0]);
    int i = 0, j = 0, stretch = 0;
    while (i < x.rank && j < y.rank) {
        int i0 = i, j0 = j;
        int64_t a = x.dim[i++], b = y.dim[j++];
        while (a != b) {
            if (a < b ? i >= x.rank : j >= y.rank)
                return;
            if (a < b)
                a *= x.dim[i++];
            else
                b *= y.dim[j++];
        }
        if (i == i0 + 1 && j == j0 + 1)
            r->in[0][i0] = r->out[0][j0] = sn_label_dim(r, stretch, a);
        stretch++;
    }
}

static sn_status reshape_backward(sn_graph *g, int node, const int *grad_out, sn_grads *into)
{
    const sn_node n = g->node[node];
    int grad;
    if (grad_out[0] < 0 || !sn_grads_wanted(into, n.in[0]))
        return SN_OK;
    sn_attr attr = {.shape = sn_shape_of(g, n.in[0])};
    SN_TRY(sn_backward_node(g, SN_OP_RESHAPE, node, &attr, grad_out, 1, &grad));
    return sn_grads_add(g, into, n.in[0], grad);
}

static sn_status transpose_shape(sn_graph *g, sn_node *n)
{
    sn_shape x = sn_shape_of(g, n->in[0]), y = x;
    int64_t seen = 0;
    for (int d = 0; d < x.rank; d++) {
        int64_t from = n->attr.i[d];
        if (from < 0 || from >= x.rank || seen >> from & 1)
            return sn_bad_node(g, n, "the order of dims is no permutation");
        seen |= (int64_t) 1 << from;
        y.dim[d] = x.dim[from];
    }
    return sn_tensor_out(g, n, 0, y, sn_dtype_of(g, n->in[0]));
}

static void transpose_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    sn_shape y = sn_shape_of(g, n->out[0]);
    for (int d = 0; d < y.rank; d++) {
        int from = (int) n->attr.i[d];
        int8_t l = sn_label_dim(r, n->attr.i[R] ? d : from, y.dim[d]);
        r->out[0][d] = r->in[0][from] = l;
    }
}

static sn_status transpose_backward(sn_graph *g, int node, const int *grad_out, sn_grads *into)
{
    const sn_node n = g->node[node];
    sn_attr attr = {.i[R] = !n.attr.i[R]};
    int grad;
    if (grad_out[0] < 0 || !sn_grads_wanted(into, n.in[0]))
        return SN_OK;
    for (int d = 0; d < sn_shape_of(g, n.in[0]).rank; d++)
        attr.i[n.attr.i[d]] = d;
    SN_TRY(sn_backward_node(g, SN_OP_TRANSPOSE, node, &attr, grad_out, 1, &grad));
    return sn_grads_add(g, into, n.in[0], grad);
}

/* Do the places start + j·step, j < count, lie within a dim of `size`? */
static bool within(int64_t start, int64_t step, int64_t count, int64_t size)
{
    int64_t last;
    if (count <= 0)
        return count == 0;
    if (__builtin_mul_overflow(step, count - 1, &last) ||
        __builtin_add_overflow(last, start, &last))
        return false;
    return start >= 0 && start < size && last >= 0 && last < size;
}

static sn_status strided_check(sn_graph *g, sn_node *n, sn_shape x, sn_shape y)
{
    if (x.rank != y.rank)
        return sn_bad_node(g, n, "a part has as many dims as the whole");
    for (int d = 0; d < x.rank; d++)
        if (!within(n->attr.i[d], n->attr.i[R + d], y.dim[d], x.dim[d]))
            return sn_bad_node(g, n, "the part does not lie within the whole");
    return SN_OK;
}

static sn_status strided_shape(sn_graph *g, sn_node *n)
{
    SN_TRY(sn_tensor_out(g, n, 0, n->attr.shape, sn_dtype_of(g, n->in[0])));
    return strided_check(g, n, sn_shape_of(g, n->in[0]), n->attr.shape);
}

static sn_status put_shape(sn_graph *g, sn_node *n)
{
    SN_TRY(sn_tensor_out(g, n, 0, n->attr.shape, sn_dtype_of(g, n->in[0])));
    return strided_check(g, n, n->attr.shape, sn_shape_of(g, n->in[0]));
}

/* A dim that stays as it is may be split: equal sizes, and no mirror. */
static void kept_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    sn_shape x = sn_shape_of(g, n->in[0]), y = sn_shape_of(g, n->out[0]);
    bool steps = n->op == SN_OP_STRIDED || n->op == SN_OP_STRIDED_PUT;
    for (int d = 0; d < x.rank; d++)
        if (x.dim[d] == y.dim[d] && !(steps && n->attr.i[R + d] < 0))
            r->in[0][d] = r->out[0][d] = sn_label_dim(r, d, x.dim[d]);
}

/* The gradient of a part is put, of what was put it is the part: the same attributes, the other
 * op, the operand's shape. */
static sn_status adjoint_backward(sn_graph *g, int node, const int *grad_out, sn_grads *into)
{
    static const sn_op adjoint[SN_OP_COUNT] = {[SN_OP_STRIDED] = SN_OP_STRIDED_PUT,
                                               [SN_OP_STRIDED_PUT] = SN_OP_STRIDED,
                                               [SN_OP_TILE] = SN_OP_TILE_SUM,
                                               [SN_OP_TILE_SUM] = SN_OP_TILE};
    const sn_node n = g->node[node];
    sn_attr attr = n.attr;
    int grad;
    if (grad_out[0] < 0 || !sn_grads_wanted(into, n.in[0]))
        return SN_OK;
    attr.shape = sn_shape_of(g, n.in[0]);
    SN_TRY(sn_backward_node(g, adjoint[n.op], node, &attr, grad_out, 1, &grad));
    return sn_grads_add(g, into, n.in[0], grad);
}

/* The part of a gradient that begins at `start` and has `shape`. */
static sn_status part(sn_graph *g, int node, int grad, const int64_t *start, sn_shape shape,
                      int *ret)
{
    sn_attr attr = {.shape = shape};
    for (int d = 0; d < shape.rank; d++) {
        attr.i[d] = start[d];
        attr.i[R + d] = 1;
    }
    return sn_backward_node(g, SN_OP_STRIDED, node, &attr, &grad, 1, ret);
}

static sn_status concat_shape(sn_graph *g, sn_node *n)
{
    sn_shape y = sn_shape_of(g, n->in[0]);
    int64_t axis = n->attr.i[0];
    if (axis < 0 || axis >= y.rank)
        return sn_bad_node(g, n, "the dim to join is not there");
    for (int i = 1; i < n->ins; i++) {
        sn_shape x = sn_shape_of(g, n->in[i]);
        bool fits = x.rank == y.rank && sn_dtype_of(g, n->in[i]) == sn_dtype_of(g, n->in[0]);
        for (int d = 0; fits && d < y.rank; d++)
            fits = d == axis || x.dim[d] == y.dim[d];
        if (!fits || __builtin_add_overflow(y.dim[axis], x.dim[axis], &y.dim[axis]))
            return sn_bad_node(g, n, "the operands differ in more than the joined dim");
    }
    return sn_tensor_out(g, n, 0, y, sn_dtype_of(g, n->in[0]));
}

static void concat_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    sn_shape y = sn_shape_of(g, n->out[0]);
    for (int d = 0; d < y.rank; d++) {
        if (d == n->attr.i[0])
            continue;
        int8_t l = sn_label_dim(r, d, y.dim[d]);
        r->out[0][d] = l;
        for (int i = 0; i < n->ins; i++)
            r->in[i][d] = l;
    }
}

static sn_status concat_backward(sn_graph *g, int node, const int *grad_out, sn_grads *into)
{
    const sn_node n = g->node[node];
    int64_t start[SN_RANK_MAX] = {0};
    for (int i = 0; i < n.ins && grad_out[0] >= 0; i++) {
        sn_shape x = sn_shape_of(g, n.in[i]);
        int grad;
        if (sn_grads_wanted(into, n.in[i])) {
            SN_TRY(part(g, node, grad_out[0], start, x, &grad));
            SN_TRY(sn_grads_add(g, into, n.in[i], grad));
        }
        start[n.attr.i[0]] += x.dim[n.attr.i[0]];
    }
    return SN_OK;
}

static sn_status pad_shape(sn_graph *g, sn_node *n)
{
    sn_shape y = sn_shape_of(g, n->in[0]);
    for (int d = 0; d < y.rank; d++) {
        int64_t before = n->attr.i[d], after = n->attr.i[R + d];
        if (before < 0 || after < 0 || __builtin_add_overflow(y.dim[d], before, &y.dim[d]) ||
            __builtin_add_overflow(y.dim[d], after, &y.dim[d]))
            return sn_bad_node(g, n, "the padding is below zero or too large");
    }
    return sn_tensor_out(g, n, 0, y, sn_dtype_of(g, n->in[0]));
}

static sn_status pad_backward(sn_graph *g, int node, const int *grad_out, sn_grads *into)
{
    const sn_node n = g->node[node];
    int grad;
    if (grad_out[0] < 0 || !sn_grads_wanted(into, n.in[0]))
        return SN_OK;
    SN_TRY(part(g, node, grad_out[0], n.attr.i, sn_shape_of(g, n.in[0]), &grad));
    return sn_grads_add(g, into, n.in[0], grad);
}

static sn_status tile_check(sn_graph *g, sn_node *n, sn_shape x, sn_shape y)
{
    if (x.rank != y.rank)
        return sn_bad_node(g, n, "copies have as many dims as the original");
    for (int d = 0; d < x.rank; d++)
        if (x.dim[d] == 0 ? y.dim[d] != 0 : y.dim[d] % x.dim[d] != 0)
            return sn_bad_node(g, n, "a dim of the copies is no multiple of the original's");
    return SN_OK;
}

static sn_status tile_shape(sn_graph *g, sn_node *n)
{
    SN_TRY(sn_tensor_out(g, n, 0, n->attr.shape, sn_dtype_of(g, n->in[0])));
    return tile_check(g, n, sn_shape_of(g, n->in[0]), n->attr.shape);
}

static sn_status tile_sum_shape(sn_graph *g, sn_node *n)
{
    SN_TRY(sn_tensor_out(g, n, 0, n->attr.shape, sn_dtype_of(g, n->in[0])));
    return tile_check(g, n, n->attr.shape, sn_shape_of(g, n->in[0]));
}

/* What was 1 may be split among the copies: the sum of a part is then a part of the sum. */
static void tile_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    bool sum = n->op == SN_OP_TILE_SUM;
    sn_shape x = sn_shape_of(g, sum ? n->out[0] : n->in[0]);
    sn_shape y = sn_shape_of(g, sum ? n->in[0] : n->out[0]);
    for (int d = 0; d < x.rank; d++) {
        bool same = x.dim[d] == y.dim[d];
        if (!same && x.dim[d] != 1)
            continue;
        int8_t l = (int8_t) sn_label(r, LABEL_LEAD + d, y.dim[d], true,
                                     same || !sum ? SN_COMBINE_NONE : SN_COMBINE_SUM);
        (sum ? r->in : r->out)[0][d] = l;
        if (same)
            (sum ? r->out : r->in)[0][d] = l;
    }
}

static double in_flops(const sn_graph *g, const sn_node *n)
{
    return (double) sn_shape_count(sn_shape_of(g, n->in[0]));
}

const sn_op_row sn_rows_move[] = {
    {SN_OP_RESHAPE, "reshape", 1, 1, 1, reshape_shape, reshape_backward, NULL, reshape_shard},
    {SN_OP_TRANSPOSE, "transpose", 1, 1, 1, transpose_shape, transpose_backward, NULL,
     transpose_shard},
    {SN_OP_STRIDED, "strided", 1, 1, 1, strided_shape, adjoint_backward, NULL, kept_shard},
    {SN_OP_STRIDED_PUT, "strided_put", 1, 1, 1, put_shape, adjoint_backward, NULL, kept_shard},
    {SN_OP_CONCAT, "concat", 1, SN_OP_IN_MAX, 1, concat_shape, concat_backward, NULL, concat_shard},
    {SN_OP_PAD, "pad", 1, 1, 1, pad_shape, pad_backward, NULL, kept_shard},
    {SN_OP_TILE, "tile", 1, 1, 1, tile_shape, adjoint_backward, NULL, tile_shard},
    {SN_OP_TILE_SUM, "tile_sum", 1, 1, 1, tile_sum_shape, adjoint_backward, in_flops, tile_shard},
};
const int sn_rows_move_count = SN_COUNT(sn_rows_move);
