/* SPDX-License-Identifier: Apache-2.0
 * Ops that work element by element with broadcasting, and reductions over dims. */
#include "graph/tensor_rule.h"

static sn_status unary_shape(sn_graph *g, sn_node *n)
{
    int64_t f = n->attr.i[0];
    if (f < 0 || f >= SN_UNARY_COUNT)
        return sn_bad_node(g, n, "no such function");
    sn_dtype t = sn_dtype_of(g, n->in[0]);
    bool asks = f == SN_UNARY_IS_NAN || f == SN_UNARY_IS_INF;
    return sn_tensor_out(g, n, 0, sn_shape_of(g, n->in[0]), asks ? SN_BOOL : t);
}

static sn_status unary_grad_shape(sn_graph *g, sn_node *n)
{
    sn_shape x = sn_shape_of(g, n->in[1]);
    if (!sn_shape_equal(x, sn_shape_of(g, n->in[0])) || n->attr.i[0] < 0 ||
        n->attr.i[0] >= SN_UNARY_COUNT)
        return sn_bad_node(g, n, "dy and x must have one shape");
    return sn_tensor_out(g, n, 0, x, sn_dtype_of(g, n->in[1]));
}

/* Every operand and the result have one shape; ids start at attr.i[1]. */
static void same_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    sn_shape y = sn_shape_of(g, n->out[0]);
    for (int d = 0; d < y.rank; d++) {
        int8_t l = sn_label_dim(r, d + (int) n->attr.i[1], y.dim[d]);
        r->out[0][d] = l;
        for (int i = 0; i < n->ins; i++)
            r->in[i][d] = l;
    }
}

static sn_status unary_backward(sn_graph *g, int node, const int *grad_out, sn_grads *into)
{
    const sn_node n = g->node[node];
    int dx;
    if (grad_out[0] < 0 || !sn_grads_wanted(into, n.in[0]))
        return SN_OK;
    SN_TRY(sn_backward_node(g, SN_OP_UNARY_GRAD, node, &n.attr, (int[]){grad_out[0], n.in[0]}, 2,
                            &dx));
    return sn_grads_add(g, into, n.in[0], dx);
}

static bool compares(int64_t f)
{
    return f >= SN_BINARY_EQ && f <= SN_BINARY_GE;
}

static sn_status binary_shape(sn_graph *g, sn_node *n)
{
    int64_t f = n->attr.i[0];
    sn_shape z;
    sn_dtype x = sn_dtype_of(g, n->in[0]), y = sn_dtype_of(g, n->in[1]);
    if (f < 0 || f >= SN_BINARY_COUNT)
        return sn_bad_node(g, n, "no such function");
    if (!sn_broadcast(sn_shape_of(g, n->in[0]), sn_shape_of(g, n->in[1]), &z))
        return sn_bad_node(g, n, "the operands do not broadcast");
    bool bits = f >= SN_BINARY_AND && f <= SN_BINARY_SHR;
    if (x != y && f != SN_BINARY_POW && f != SN_BINARY_SHL && f != SN_BINARY_SHR)
        return sn_bad_node(g, n, "the operands have different types");
    if (bits && (sn_dtype_real(x) || sn_dtype_real(y)))
        return sn_bad_node(g, n, "bits of floating-point numbers are not offered");
    return sn_tensor_out(g, n, 0, z, compares(f) ? SN_BOOL : x);
}

static void aligned_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    sn_shape z = sn_shape_of(g, n->out[0]);
    sn_label_aligned(r, z, z, r->out[0]);
    for (int i = 0; i < n->ins; i++)
        sn_label_aligned(r, z, sn_shape_of(g, n->in[i]), r->in[i]);
}

/* ---- gradients as nodes of the same kinds ---- */
static sn_status two(sn_graph *g, int node, sn_binary f, int x, int y, int *ret)
{
    return sn_backward_node(g, SN_OP_BINARY, node, &(sn_attr){.i = {f}}, (int[]){x, y}, 2, ret);
}

/* How many dims fewer than the node's result `value` has. */
static int fewer(const sn_graph *g, int node, int value)
{
    return sn_shape_of(g, g->node[node].out[0]).rank - sn_shape_of(g, value).rank;
}

static sn_status one(sn_graph *g, int node, sn_unary f, double a, double b, int x, int *ret)
{
    sn_attr attr = {.i = {f, fewer(g, node, x)}, .f = {a, b}};
    return sn_backward_node(g, SN_OP_UNARY, node, &attr, &x, 1, ret);
}

static sn_status as_type(sn_graph *g, int node, sn_dtype type, int x, int *ret)
{
    sn_attr attr = {.i = {type, fewer(g, node, x)}};
    return sn_backward_node(g, SN_OP_CAST, node, &attr, &x, 1, ret);
}

/* dz · [x f y] */
static sn_status masked(sn_graph *g, int node, int dz, sn_binary f, int *ret)
{
    const int *in = g->node[node].in;
    int x = in[0], y = in[1], mask;
    SN_TRY(two(g, node, f, x, y, &mask));
    SN_TRY(as_type(g, node, sn_dtype_of(g, dz), mask, &mask));
    return two(g, node, SN_BINARY_MUL, dz, mask, ret);
}

static sn_status binary_dx(sn_graph *g, int node, int dz, int *ret)
{
    const sn_node n = g->node[node];
    int x = n.in[0], y = n.in[1], t;
    switch ((sn_binary) n.attr.i[0]) {
    case SN_BINARY_MUL:
        return two(g, node, SN_BINARY_MUL, dz, y, ret);
    case SN_BINARY_DIV:
        return two(g, node, SN_BINARY_DIV, dz, y, ret);
    case SN_BINARY_POW: /* dz·y·x^(y − 1) */
        SN_TRY(one(g, node, SN_UNARY_AFFINE, 1, -1, y, &t));
        SN_TRY(two(g, node, SN_BINARY_POW, x, t, &t));
        SN_TRY(two(g, node, SN_BINARY_MUL, t, y, &t));
        return two(g, node, SN_BINARY_MUL, dz, t, ret);
    case SN_BINARY_MAX:
        return masked(g, node, dz, SN_BINARY_GE, ret);
    case SN_BINARY_MIN:
        return masked(g, node, dz, SN_BINARY_LE, ret);
    default:
        *ret = dz;
        return SN_OK;
    }
}

static sn_status binary_dy(sn_graph *g, int node, int dz, int *ret)
{
    const sn_node n = g->node[node];
    int x = n.in[0], y = n.in[1], z = n.out[0], t;
    switch ((sn_binary) n.attr.i[0]) {
    case SN_BINARY_ADD:
        *ret = dz;
        return SN_OK;
    case SN_BINARY_SUB:
        return one(g, node, SN_UNARY_NEG, 0, 0, dz, ret);
    case SN_BINARY_MUL:
        return two(g, node, SN_BINARY_MUL, dz, x, ret);
    case SN_BINARY_DIV: /* −dz·z/y */
        SN_TRY(two(g, node, SN_BINARY_MUL, dz, z, &t));
        SN_TRY(two(g, node, SN_BINARY_DIV, t, y, &t));
        return one(g, node, SN_UNARY_NEG, 0, 0, t, ret);
    case SN_BINARY_POW: /* dz·z·log x */
        SN_TRY(one(g, node, SN_UNARY_LOG, 0, 0, x, &t));
        SN_TRY(two(g, node, SN_BINARY_MUL, t, z, &t));
        return two(g, node, SN_BINARY_MUL, dz, t, ret);
    case SN_BINARY_MAX:
        return masked(g, node, dz, SN_BINARY_LT, ret);
    case SN_BINARY_MIN:
        return masked(g, node, dz, SN_BINARY_GT, ret);
    default:
        return sn_fail(SN_ENOTSUP, "binary '%s': no gradient of its second operand", n.name);
    }
}

static sn_status binary_backward(sn_graph *g, int node, const int *grad_out, sn_grads *into)
{
    const sn_node n = g->node[node];
    int grad;
    if (grad_out[0] < 0 || n.attr.i[0] >= SN_BINARY_AND)
        return SN_OK; /* bits and comparisons have none */
    if (sn_grads_wanted(into, n.in[0])) {
        SN_TRY(binary_dx(g, node, grad_out[0], &grad));
        SN_TRY(sn_backward_sum_to(g, into, node, grad, n.in[0], 0));
    }
    if (sn_grads_wanted(into, n.in[1])) {
        SN_TRY(binary_dy(g, node, grad_out[0], &grad));
        SN_TRY(sn_backward_sum_to(g, into, node, grad, n.in[1], 0));
    }
    return SN_OK;
}

static sn_status where_shape(sn_graph *g, sn_node *n)
{
    sn_shape z;
    if (sn_dtype_of(g, n->in[0]) != SN_BOOL || sn_dtype_of(g, n->in[1]) != sn_dtype_of(g, n->in[2]))
        return sn_bad_node(g, n, "the condition must be BOOL, the other operands of one type");
    if (!sn_broadcast(sn_shape_of(g, n->in[0]), sn_shape_of(g, n->in[1]), &z) ||
        !sn_broadcast(z, sn_shape_of(g, n->in[2]), &z))
        return sn_bad_node(g, n, "the operands do not broadcast");
    return sn_tensor_out(g, n, 0, z, sn_dtype_of(g, n->in[1]));
}

static sn_status where_backward(sn_graph *g, int node, const int *grad_out, sn_grads *into)
{
    const sn_node n = g->node[node];
    for (int side = 0; side < 2 && grad_out[0] >= 0; side++) {
        int mask = n.in[0], grad;
        if (!sn_grads_wanted(into, n.in[1 + side]))
            continue;
        if (side)
            SN_TRY(one(g, node, SN_UNARY_NOT, 0, 0, mask, &mask));
        SN_TRY(as_type(g, node, sn_dtype_of(g, grad_out[0]), mask, &mask));
        SN_TRY(two(g, node, SN_BINARY_MUL, grad_out[0], mask, &grad));
        SN_TRY(sn_backward_sum_to(g, into, node, grad, n.in[1 + side], 0));
    }
    return SN_OK;
}

static sn_status cast_shape(sn_graph *g, sn_node *n)
{
    if (n->attr.i[0] < 0 || n->attr.i[0] >= SN_DTYPE_COUNT)
        return sn_bad_node(g, n, "no such type");
    return sn_tensor_out(g, n, 0, sn_shape_of(g, n->in[0]), (sn_dtype) n->attr.i[0]);
}

static sn_status cast_backward(sn_graph *g, int node, const int *grad_out, sn_grads *into)
{
    const sn_node n = g->node[node];
    sn_dtype from = sn_dtype_of(g, n.in[0]);
    int grad;
    if (grad_out[0] < 0 || !sn_grads_wanted(into, n.in[0]) || !sn_dtype_real(from) ||
        !sn_dtype_real((sn_dtype) n.attr.i[0]))
        return SN_OK;
    SN_TRY(as_type(g, node, from, grad_out[0], &grad));
    return sn_grads_add(g, into, n.in[0], grad);
}

/* ---- reductions: the dims stay, as 1 ---- */
static sn_status reduce_shape(sn_graph *g, sn_node *n)
{
    sn_shape y = sn_shape_of(g, n->in[0]);
    if (n->attr.i[0] < 0 || n->attr.i[0] >= SN_REDUCE_COUNT)
        return sn_bad_node(g, n, "no such function");
    bool empty = false;
    for (int d = 0; d < y.rank; d++)
        if (n->attr.i[1] >> d & 1) {
            empty |= y.dim[d] == 0;
            y.dim[d] = 1;
        }
    if (empty && n->attr.i[0] != SN_REDUCE_SUM && n->attr.i[0] != SN_REDUCE_PROD)
        return sn_bad_node(g, n, "there is no mean, largest or smallest of nothing");
    return sn_tensor_out(g, n, 0, y, sn_dtype_of(g, n->in[0]));
}

static void reduce_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    static const sn_combine combine[SN_REDUCE_COUNT] = {
        [SN_REDUCE_SUM] = SN_COMBINE_SUM, [SN_REDUCE_MAX] = SN_COMBINE_MAX};
    sn_shape x = sn_shape_of(g, n->in[0]);
    sn_combine how = combine[n->attr.i[0]];
    for (int d = 0; d < x.rank; d++) {
        bool gone = n->attr.i[1] >> d & 1;
        int8_t l = (int8_t) sn_label(r, LABEL_LEAD + d, x.dim[d], !gone || how != SN_COMBINE_NONE,
                                     gone ? how : SN_COMBINE_NONE);
        r->in[0][d] = l;
        if (!gone)
            r->out[0][d] = l;
    }
}

static int only_dim(int64_t mask, int rank)
{
    mask &= ((int64_t) 1 << rank) - 1;
    return mask && !(mask & (mask - 1)) ? __builtin_ctzll((unsigned long long) mask) : -1;
}

/* The gradient of the largest (smallest) element goes to one place along a single dim, as others
 * have it; over several dims to every equal element. */
static sn_status extreme_backward(sn_graph *g, int node, int dy, int *ret)
{
    const sn_node n = g->node[node];
    sn_shape x = sn_shape_of(g, n.in[0]);
    int dim = only_dim(n.attr.i[1], x.rank), t;
    if (dim >= 0) {
        sn_attr arg = {.i = {dim, n.attr.i[0] == SN_REDUCE_MIN}};
        SN_TRY(sn_backward_node(g, SN_OP_ARG, node, &arg, n.in, 1, &t));
        sn_attr put = {.i = {dim}, .shape = x};
        return sn_backward_node(g, SN_OP_ELEMENTS_SUM, node, &put, (int[]){t, dy}, 2, ret);
    }
    SN_TRY(two(g, node, SN_BINARY_EQ, n.in[0], n.out[0], &t));
    SN_TRY(as_type(g, node, sn_dtype_of(g, dy), t, &t));
    return two(g, node, SN_BINARY_MUL, t, dy, ret);
}

static sn_status reduce_backward(sn_graph *g, int node, const int *grad_out, sn_grads *into)
{
    const sn_node n = g->node[node];
    int x = n.in[0], grad = grad_out[0];
    if (grad < 0 || !sn_grads_wanted(into, x))
        return SN_OK;
    sn_shape from = sn_shape_of(g, x), to = sn_shape_of(g, n.out[0]);
    sn_reduce f = (sn_reduce) n.attr.i[0];
    if (f == SN_REDUCE_MAX || f == SN_REDUCE_MIN) {
        SN_TRY(extreme_backward(g, node, grad, &grad));
        return sn_grads_add(g, into, x, grad);
    }
    if (f == SN_REDUCE_MEAN) {
        double share = (double) sn_shape_count(to) / (double) sn_shape_count(from);
        SN_TRY(one(g, node, SN_UNARY_AFFINE, share, 0, grad, &grad));
    }
    if (f == SN_REDUCE_PROD)
        SN_TRY(two(g, node, SN_BINARY_MUL, grad, n.out[0], &grad));
    SN_TRY(sn_backward_node(g, SN_OP_TILE, node, &(sn_attr){.shape = from}, &grad, 1, &grad));
    if (f == SN_REDUCE_PROD)
        SN_TRY(two(g, node, SN_BINARY_DIV, grad, x, &grad));
    return sn_grads_add(g, into, x, grad);
}

static sn_status arg_shape(sn_graph *g, sn_node *n)
{
    sn_shape y = sn_shape_of(g, n->in[0]);
    if (n->attr.i[0] < 0 || n->attr.i[0] >= y.rank || y.dim[n->attr.i[0]] < 1)
        return sn_bad_node(g, n, "the dim to search is not there or is empty");
    y.dim[n->attr.i[0]] = 1;
    return sn_tensor_out(g, n, 0, y, SN_I64);
}

/* Dims but attr.i[0] may be split. */
static void but_axis_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    sn_shape x = sn_shape_of(g, n->in[0]);
    for (int d = 0; d < x.rank; d++) {
        if (d == n->attr.i[0])
            continue;
        int8_t l = sn_label_dim(r, d, x.dim[d]);
        r->in[0][d] = l;
        for (int o = 0; o < n->outs; o++)
            r->out[o][d] = l;
    }
}

static sn_status cumulate_shape(sn_graph *g, sn_node *n)
{
    sn_shape x = sn_shape_of(g, n->in[0]);
    if (n->attr.i[0] < 0 || n->attr.i[0] >= x.rank)
        return sn_bad_node(g, n, "the dim to sum along is not there");
    return sn_tensor_out(g, n, 0, x, sn_dtype_of(g, n->in[0]));
}

static sn_status cumulate_backward(sn_graph *g, int node, const int *grad_out, sn_grads *into)
{
    const sn_node n = g->node[node];
    sn_attr attr = n.attr;
    int grad;
    if (grad_out[0] < 0 || !sn_grads_wanted(into, n.in[0]))
        return SN_OK;
    attr.i[2] = !attr.i[2];
    SN_TRY(sn_backward_node(g, SN_OP_CUMULATE, node, &attr, grad_out, 1, &grad));
    return sn_grads_add(g, into, n.in[0], grad);
}

static sn_status top_shape(sn_graph *g, sn_node *n)
{
    sn_shape y = sn_shape_of(g, n->in[0]);
    int64_t d = n->attr.i[0], k = n->attr.i[1];
    if (d < 0 || d >= y.rank || k < 0 || k > y.dim[d])
        return sn_bad_node(g, n, "more elements are wanted than the dim has");
    y.dim[d] = k;
    SN_TRY(sn_tensor_out(g, n, 1, y, SN_I64));
    return sn_tensor_out(g, n, 0, y, sn_dtype_of(g, n->in[0]));
}

static sn_status top_backward(sn_graph *g, int node, const int *grad_out, sn_grads *into)
{
    const sn_node n = g->node[node];
    sn_attr attr = {.i = {n.attr.i[0]}, .shape = sn_shape_of(g, n.in[0])};
    int grad;
    if (grad_out[0] < 0 || !sn_grads_wanted(into, n.in[0]))
        return SN_OK;
    SN_TRY(sn_backward_node(g, SN_OP_ELEMENTS_SUM, node, &attr, (int[]){n.out[1], grad_out[0]}, 2,
                            &grad));
    return sn_grads_add(g, into, n.in[0], grad);
}

static double in_flops(const sn_graph *g, const sn_node *n)
{
    return (double) sn_shape_count(sn_shape_of(g, n->in[0]));
}

const sn_op_row sn_rows_elementwise[] = {
    {SN_OP_UNARY, "unary", 1, 1, 1, unary_shape, unary_backward, NULL, same_shard},
    {SN_OP_UNARY_GRAD, "unary_grad", 2, 2, 1, unary_grad_shape, NULL, NULL, same_shard},
    {SN_OP_BINARY, "binary", 2, 2, 1, binary_shape, binary_backward, NULL, aligned_shard},
    {SN_OP_WHERE, "where", 3, 3, 1, where_shape, where_backward, NULL, aligned_shard},
    {SN_OP_CAST, "cast", 1, 1, 1, cast_shape, cast_backward, NULL, same_shard},
    {SN_OP_REDUCE, "reduce", 1, 1, 1, reduce_shape, reduce_backward, in_flops, reduce_shard},
    {SN_OP_ARG, "arg", 1, 1, 1, arg_shape, NULL, in_flops, but_axis_shard},
    {SN_OP_CUMULATE, "cumulate", 1, 1, 1, cumulate_shape, cumulate_backward, NULL, but_axis_shard},
    {SN_OP_TOP, "top", 1, 1, 2, top_shape, top_backward, in_flops, but_axis_shard},
};
const int sn_rows_elementwise_count = SN_COUNT(sn_rows_elementwise);
