/* SPDX-License-Identifier: Apache-2.0
 * Rows that reduce over dims, normalise by what they found, or multiply matrices. */
#include "onnx/private.h"

#include <string.h>

#define R SN_RANK_MAX

static int64_t all_dims(const item *x)
{
    return ((int64_t) 1 << x->shape.rank) - 1;
}

/* The dims to reduce, as bits; 0 with *ret_none: leave the operand alone. */
static int64_t reduced(importer *m, call *c, bool *ret_none)
{
    item *x = c->in[0];
    int64_t axis[R], mask = 0;
    bool operand = c->opset >= 18 || (c->opset >= 13 && !strcmp(c->node->op_type, "ReduceSum"));
    int n = !operand    ? attr_ints(m, c, "axes", axis, R)
            : has(c, 1) ? need_ints(m, c->in[1], "its axes", axis, R)
                        : -1;
    for (int i = 0; i < n; i++)
        mask |= (int64_t) 1 << axis_of(m, axis[i], x->shape.rank);
    *ret_none = n <= 0 && attr_int(m, c, "noop_with_empty_axes", 0);
    return n <= 0 ? all_dims(x) : mask;
}

static item *log_sum_exp(importer *m, item *x, int64_t mask)
{
    item *top = reduce(m, SN_REDUCE_MAX, x, mask);
    item *e = unary(m, SN_UNARY_EXP, binary(m, SN_BINARY_SUB, x, top));
    return binary(m, SN_BINARY_ADD, unary(m, SN_UNARY_LOG, reduce(m, SN_REDUCE_SUM, e, mask)), top);
}

static item *reduced_by(importer *m, const char *name, item *x, int64_t mask)
{
    static const struct {
        const char *name;
        sn_reduce f;
    } plain[] = {{"Max", SN_REDUCE_MAX},
                 {"Min", SN_REDUCE_MIN},
                 {"Mean", SN_REDUCE_MEAN},
                 {"Prod", SN_REDUCE_PROD},
                 {"Sum", SN_REDUCE_SUM}};
    for (size_t i = 0; i < SN_COUNT(plain); i++)
        if (!strcmp(plain[i].name, name))
            return reduce(m, plain[i].f, x, mask);
    if (!strcmp(name, "L1"))
        return reduce(m, SN_REDUCE_SUM, unary(m, SN_UNARY_ABS, x), mask);
    if (!strcmp(name, "LogSum"))
        return unary(m, SN_UNARY_LOG, reduce(m, SN_REDUCE_SUM, x, mask));
    if (!strcmp(name, "LogSumExp"))
        return log_sum_exp(m, x, mask);
    item *squares = reduce(m, SN_REDUCE_SUM, binary(m, SN_BINARY_MUL, x, x), mask);
    return strcmp(name, "L2") ? squares : unary(m, SN_UNARY_SQRT, squares);
}

static void reduce_row(importer *m, call *c)
{
    item *x = c->in[0];
    bool none;
    int64_t mask = reduced(m, c, &none);
    if (none) {
        c->out[0] = x;
        return;
    }
    item *y = reduced_by(m, c->node->op_type + strlen("Reduce"), x, mask);
    c->out[0] = attr_int(m, c, "keepdims", 1) ? y : axes_mask_squeeze(m, y, mask);
}

static void arg_row(importer *m, call *c)
{
    int axis = axis_of(m, attr_int(m, c, "axis", 0), c->in[0]->shape.rank);
    item *y = arg(m, c->in[0], axis, !strcmp(c->node->op_type, "ArgMin"),
                  attr_int(m, c, "select_last_index", 0));
    c->out[0] = attr_int(m, c, "keepdims", 1) ? y : axes_mask_squeeze(m, y, (int64_t) 1 << axis);
}

/* Before opset 13 these saw a matrix: all dims from the axis on are one. */
static int64_t softmax_dims(importer *m, call *c)
{
    item *x = c->in[0];
    int axis = axis_of(m, attr_int(m, c, "axis", c->opset < 13 ? 1 : -1), SN_MAX(x->shape.rank, 1));
    int64_t from = (int64_t) 1 << axis;
    return c->opset < 13 ? all_dims(x) & ~(from - 1) : from;
}

static void softmax_row(importer *m, call *c)
{
    c->out[0] = softmax_of(m, c->in[0], softmax_dims(m, c), *c->node->op_type == 'L');
}

static void hardmax(importer *m, call *c)
{
    item *x = c->in[0], *y = x;
    int axis = axis_of(m, attr_int(m, c, "axis", c->opset < 13 ? 1 : -1), x->shape.rank);
    sn_shape s = SN_SHAPE(1, 1);
    if (c->opset < 13) {
        for (int d = 0; d < x->shape.rank; d++)
            s.dim[d >= axis] *= x->shape.dim[d];
        y = reshape(m, x, s);
        axis = 1;
    }
    item *best = y ? arg(m, y, axis, false, false) : NULL;
    if (!best)
        return;
    s = (sn_shape){.rank = y->shape.rank};
    for (int d = 0; d < s.rank; d++)
        s.dim[d] = d == axis ? y->shape.dim[d] : 1;
    item *places = reshape(m, iota(m, y->shape.dim[axis]), s);
    y = cast(m, binary(m, SN_BINARY_EQ, best, places), x->dtype);
    c->out[0] = reshape(m, y, x->shape);
}

/* ---- normalising ---- */
/* A vector over channels, dim 1 of `x`. */
static item *channels(importer *m, item *v, const item *x)
{
    sn_shape s = {.rank = SN_MAX(x->shape.rank - 1, 1)};
    if (!v || !ok(m))
        return NULL;
    if (v->shape.rank != 1 || x->shape.rank < 2 || v->shape.dim[0] != x->shape.dim[1])
        return onnx_fail(m, SN_EINVAL, "a vector does not fit the channels");
    for (int d = 0; d < s.rank; d++)
        s.dim[d] = d ? 1 : v->shape.dim[0];
    return reshape(m, v, s);
}

static item *variance(importer *m, item *centred, int64_t mask)
{
    return reduce(m, SN_REDUCE_MEAN, binary(m, SN_BINARY_MUL, centred, centred), mask);
}

static item *rsqrt(importer *m, item *v, double epsilon)
{
    return unary(m, SN_UNARY_RECIPROCAL, unary(m, SN_UNARY_SQRT, scaled(m, v, 1, epsilon)));
}

static item *scale_shift(importer *m, item *x, item *by, item *to)
{
    return binary(m, SN_BINARY_ADD, binary(m, SN_BINARY_MUL, x, by), to);
}

static void batch_norm(importer *m, call *c)
{
    item *x = c->in[0], *mean = c->in[3], *var = c->in[4];
    double epsilon = attr_float(m, c, "epsilon", 1e-5),
           momentum = attr_float(m, c, "momentum", 0.9);
    bool training = c->opset >= 14 && attr_int(m, c, "training_mode", 0);
    if (c->opset < 9 && !attr_int(m, c, "spatial", 1)) {
        onnx_fail(m, SN_ENOTSUP, "statistics of each place are not offered");
        return;
    }
    if (x->shape.rank < 2) {
        onnx_fail(m, SN_EINVAL, "it has no channels");
        return;
    }
    if (training) {
        int64_t mask = all_dims(x) & ~(int64_t) 2;
        sn_shape vector = mean->shape;
        item *now = reduce(m, SN_REDUCE_MEAN, x, mask);
        item *spread = variance(m, binary(m, SN_BINARY_SUB, x, now), mask);
        now = reshape(m, now, vector);
        spread = reshape(m, spread, vector);
        if (c->outs > 1)
            c->out[1] = binary(m, SN_BINARY_ADD, scaled(m, mean, momentum, 0),
                               scaled(m, now, 1 - momentum, 0));
        if (c->outs > 2)
            c->out[2] = binary(m, SN_BINARY_ADD, scaled(m, var, momentum, 0),
                               scaled(m, spread, 1 - momentum, 0));
        mean = now;
        var = spread;
    }
    item *by = binary(m, SN_BINARY_MUL, cast(m, c->in[1], x->dtype),
                      cast(m, rsqrt(m, var, epsilon), x->dtype));
    item *centred = binary(m, SN_BINARY_SUB, x, channels(m, cast(m, mean, x->dtype), x));
    c->out[0] =
        scale_shift(m, centred, channels(m, by, x), channels(m, cast(m, c->in[2], x->dtype), x));
}

static void instance_norm(importer *m, call *c)
{
    item *x = c->in[0];
    int64_t mask = all_dims(x) & ~(int64_t) 3;
    item *centred = binary(m, SN_BINARY_SUB, x, reduce(m, SN_REDUCE_MEAN, x, mask));
    item *by = rsqrt(m, variance(m, centred, mask), attr_float(m, c, "epsilon", 1e-5));
    c->out[0] = scale_shift(m, binary(m, SN_BINARY_MUL, centred, by), channels(m, c->in[1], x),
                            channels(m, c->in[2], x));
}

static void layer_norm(importer *m, call *c)
{
    item *x = c->in[0];
    int axis = axis_of(m, attr_int(m, c, "axis", -1), x->shape.rank);
    int64_t mask = all_dims(x) & ~(((int64_t) 1 << axis) - 1);
    item *mean = reduce(m, SN_REDUCE_MEAN, x, mask), *centred = binary(m, SN_BINARY_SUB, x, mean);
    item *by = rsqrt(m, variance(m, centred, mask), attr_float(m, c, "epsilon", 1e-5));
    item *y = binary(m, SN_BINARY_MUL, binary(m, SN_BINARY_MUL, centred, by), c->in[1]);
    c->out[0] = has(c, 2) ? binary(m, SN_BINARY_ADD, y, c->in[2]) : y;
    c->out[1] = mean;
    c->out[2] = by;
}

static void lp_norm(importer *m, call *c)
{
    item *x = c->in[0];
    int axis = axis_of(m, attr_int(m, c, "axis", -1), x->shape.rank);
    item *norm = reduced_by(m, attr_int(m, c, "p", 2) == 1 ? "L1" : "L2", x, (int64_t) 1 << axis);
    c->out[0] = binary(m, SN_BINARY_DIV, x, norm);
}

static void mean_variance(importer *m, call *c)
{
    item *x = c->in[0];
    int64_t axis[R], mask = 0;
    int n = attr_ints(m, c, "axes", axis, R);
    if (n < 0) {
        const int64_t usual[] = {0, 2, 3};
        memcpy(axis, usual, sizeof usual);
        n = 3;
    }
    for (int i = 0; i < n; i++)
        mask |= (int64_t) 1 << axis_of(m, axis[i], x->shape.rank);
    item *centred = binary(m, SN_BINARY_SUB, x, reduce(m, SN_REDUCE_MEAN, x, mask));
    item *deviation = unary(m, SN_UNARY_SQRT, variance(m, centred, mask));
    c->out[0] = binary(m, SN_BINARY_DIV, centred, scaled(m, deviation, 1, 1e-9));
}

/* ---- products ---- */
static void matmul_row(importer *m, call *c)
{
    c->out[0] = matmul(m, c->in[0], c->in[1]);
}

static void gemm(importer *m, call *c)
{
    item *a = c->in[0], *b = c->in[1], *bias = has(c, 2) ? c->in[2] : NULL, *y;
    double alpha = attr_float(m, c, "alpha", 1), beta = attr_float(m, c, "beta", 1);
    const int swap[] = {1, 0};
    if (a->shape.rank != 2 || b->shape.rank != 2) {
        onnx_fail(m, SN_EINVAL, "its operands must be matrices");
        return;
    }
    if (attr_int(m, c, "transA", 0))
        a = transpose(m, a, swap);
    bool direct = attr_int(m, c, "transB", 0);
    if (direct && a && a->dtype == SN_F32 && b->dtype == SN_F32 && !(a->known && b->known)) {
        bool vector = bias && alpha == 1 && beta == 1 && bias->shape.rank == 1 &&
                      bias->shape.dim[0] == b->shape.dim[0] && bias->dtype == SN_F32;
        y = linear(m, a, b, vector ? bias : NULL);
        bias = vector ? NULL : bias;
    } else {
        y = matmul(m, a, direct ? transpose(m, b, swap) : b);
    }
    if (alpha != 1)
        y = scaled(m, y, alpha, 0);
    if (bias && beta != 0)
        y = binary(m, SN_BINARY_ADD, y, beta == 1 ? bias : scaled(m, bias, beta, 0));
    c->out[0] = y;
}

/* The determinant of each matrix, along the first row, for the small ones that models contain. */
static item *determinant(importer *m, item *x, int n)
{
    int rank = x ? x->shape.rank : 0;
    if (!x || n == 1)
        return x ? axes_mask_squeeze(m, x, (int64_t) 3 << (rank - 2)) : NULL;
    item *rest = part(m, x, rank - 2, 1, n - 1), *sum = NULL;
    for (int j = 0; j < n && ok(m); j++) {
        item *sides[2];
        int count = 0;
        if (j > 0)
            sides[count++] = part(m, rest, rank - 1, 0, j);
        if (j < n - 1)
            sides[count++] = part(m, rest, rank - 1, j + 1, n - 1 - j);
        item *head = part(m, part(m, x, rank - 2, 0, 1), rank - 1, j, 1);
        head = axes_mask_squeeze(m, head, (int64_t) 3 << (rank - 2));
        item *term = binary(m, SN_BINARY_MUL, head,
                            determinant(m, concat(m, sides, count, rank - 1), n - 1));
        sum = !sum ? term : binary(m, j & 1 ? SN_BINARY_SUB : SN_BINARY_ADD, sum, term);
    }
    return sum;
}

static void det(importer *m, call *c)
{
    sn_shape x = c->in[0]->shape;
    if (x.rank < 2 || x.dim[x.rank - 1] != x.dim[x.rank - 2] || x.dim[x.rank - 1] < 1 ||
        x.dim[x.rank - 1] > 5)
        onnx_fail(m, SN_ENOTSUP, "determinants of matrices of 1 to 5 rows are offered");
    else
        c->out[0] = determinant(m, c->in[0], (int) x.dim[x.rank - 1]);
}

const row onnx_rows_reduce[] = {
    {"ArgMax", 1, 1, arg_row},
    {"ArgMin", 1, 1, arg_row},
    {"BatchNormalization", 6, 5, batch_norm},
    {"Det", 11, 1, det},
    {"Gemm", 6, 2, gemm},
    {"Hardmax", 1, 1, hardmax},
    {"InstanceNormalization", 6, 3, instance_norm},
    {"LayerNormalization", 17, 2, layer_norm},
    {"LogSoftmax", 1, 1, softmax_row},
    {"LpNormalization", 1, 1, lp_norm},
    {"MatMul", 1, 2, matmul_row},
    {"MeanVarianceNormalization", 9, 1, mean_variance},
    {"ReduceL1", 1, 1, reduce_row},
    {"ReduceL2", 1, 1, reduce_row},
    {"ReduceLogSum", 1, 1, reduce_row},
    {"ReduceLogSumExp", 1, 1, reduce_row},
    {"ReduceMax", 1, 1, reduce_row},
    {"ReduceMean", 1, 1, reduce_row},
    {"ReduceMin", 1, 1, reduce_row},
    {"ReduceProd", 1, 1, reduce_row},
    {"ReduceSum", 1, 1, reduce_row},
    {"ReduceSumSquare", 1, 1, reduce_row},
    {"Softmax", 1, 1, softmax_row},
};
const int onnx_rows_reduce_count = SN_COUNT(onnx_rows_reduce);
