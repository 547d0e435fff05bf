/* SPDX-License-Identifier: Apache-2.0
 * Rows that work element by element. */
#include "onnx/private.h"

#include <math.h>
#include <string.h>

/* ---- one operand, no parameters ---- */
static void by_name(importer *m, call *c)
{
    static const struct {
        const char *name;
        sn_unary f;
    } table[] = {
        {"Abs", SN_UNARY_ABS},           {"Acos", SN_UNARY_ACOS},
        {"Acosh", SN_UNARY_ACOSH},       {"Asin", SN_UNARY_ASIN},
        {"Asinh", SN_UNARY_ASINH},       {"Atan", SN_UNARY_ATAN},
        {"Atanh", SN_UNARY_ATANH},       {"Ceil", SN_UNARY_CEIL},
        {"Cos", SN_UNARY_COS},           {"Cosh", SN_UNARY_COSH},
        {"Erf", SN_UNARY_ERF},           {"Exp", SN_UNARY_EXP},
        {"Floor", SN_UNARY_FLOOR},       {"HardSwish", SN_UNARY_HARD_SWISH},
        {"IsNaN", SN_UNARY_IS_NAN},      {"Log", SN_UNARY_LOG},
        {"Neg", SN_UNARY_NEG},           {"Not", SN_UNARY_NOT},
        {"BitwiseNot", SN_UNARY_NOT},    {"Reciprocal", SN_UNARY_RECIPROCAL},
        {"Relu", SN_UNARY_RELU},         {"Round", SN_UNARY_ROUND},
        {"Sigmoid", SN_UNARY_SIGMOID},   {"Sign", SN_UNARY_SIGN},
        {"Sin", SN_UNARY_SIN},           {"Sinh", SN_UNARY_SINH},
        {"Softplus", SN_UNARY_SOFTPLUS}, {"Softsign", SN_UNARY_SOFTSIGN},
        {"Sqrt", SN_UNARY_SQRT},         {"Tan", SN_UNARY_TAN},
        {"Tanh", SN_UNARY_TANH},
    };
    for (size_t i = 0; i < SN_COUNT(table); i++)
        if (!strcmp(table[i].name, c->node->op_type))
            c->out[0] = unary(m, table[i].f, c->in[0]);
}

static void leaky_relu(importer *m, call *c)
{
    c->out[0] = unary2(m, SN_UNARY_LEAKY_RELU, attr_float(m, c, "alpha", 0.01), 0, c->in[0]);
}

static void elu(importer *m, call *c)
{
    c->out[0] = unary2(m, SN_UNARY_ELU, attr_float(m, c, "alpha", 1), 0, c->in[0]);
}

static void selu(importer *m, call *c)
{
    double a = attr_float(m, c, "alpha", 1.67326319217681884765625);
    double b = attr_float(m, c, "gamma", 1.05070102214813232421875);
    c->out[0] = unary2(m, SN_UNARY_SELU, a, b, c->in[0]);
}

static void celu(importer *m, call *c)
{
    c->out[0] = unary2(m, SN_UNARY_CELU, attr_float(m, c, "alpha", 1), 0, c->in[0]);
}

static void hard_sigmoid(importer *m, call *c)
{
    c->out[0] = unary2(m, SN_UNARY_HARD_SIGMOID, attr_float(m, c, "alpha", 0.2),
                       attr_float(m, c, "beta", 0.5), c->in[0]);
}

static void thresholded_relu(importer *m, call *c)
{
    c->out[0] = unary2(m, SN_UNARY_THRESHOLD, attr_float(m, c, "alpha", 1), 0, c->in[0]);
}

static void shrink(importer *m, call *c)
{
    c->out[0] = unary2(m, SN_UNARY_SHRINK, attr_float(m, c, "lambd", 0.5),
                       attr_float(m, c, "bias", 0), c->in[0]);
}

static void is_inf(importer *m, call *c)
{
    c->out[0] = unary2(m, SN_UNARY_IS_INF, (double) attr_int(m, c, "detect_negative", 1),
                       (double) attr_int(m, c, "detect_positive", 1), c->in[0]);
}

/* x · sigmoid and friends that newer opsets name */
static void gelu(importer *m, call *c)
{
    item *x = c->in[0], *g;
    if (!strcmp(attr_str(m, c, "approximate", "none"), "tanh")) {
        item *cube = binary(m, SN_BINARY_MUL, x, binary(m, SN_BINARY_MUL, x, x));
        g = binary(m, SN_BINARY_ADD, x, scaled(m, cube, 0.044715, 0));
        g = unary(m, SN_UNARY_TANH, scaled(m, g, sqrt(2 / M_PI), 0));
    } else {
        g = unary(m, SN_UNARY_ERF, scaled(m, x, M_SQRT1_2, 0));
    }
    c->out[0] = binary(m, SN_BINARY_MUL, x, scaled(m, g, 0.5, 0.5));
}

static void mish(importer *m, call *c)
{
    item *t = unary(m, SN_UNARY_TANH, unary(m, SN_UNARY_SOFTPLUS, c->in[0]));
    c->out[0] = binary(m, SN_BINARY_MUL, c->in[0], t);
}

/* ---- two operands ---- */
/* Before opset 7 the second operand lined up with the first from a given axis on. */
static item *old_broadcast(importer *m, call *c, item *x, item *y)
{
    sn_shape s = {0};
    if (c->opset >= 7 || !x || !y || y->shape.rank == 0 || !attr_int(m, c, "broadcast", 0) ||
        !ok(m))
        return y;
    int axis =
        axis_of(m, attr_int(m, c, "axis", x->shape.rank - y->shape.rank), SN_MAX(x->shape.rank, 1));
    if (axis + y->shape.rank > x->shape.rank)
        return onnx_fail(m, SN_EINVAL, "the second operand does not fit the first at axis %d",
                         axis);
    s.rank = x->shape.rank - axis;
    for (int d = 0; d < s.rank; d++)
        s.dim[d] = d < y->shape.rank ? y->shape.dim[d] : 1;
    return reshape(m, y, s);
}

static void two_by_name(importer *m, call *c)
{
    static const struct {
        const char *name;
        sn_binary f;
    } table[] = {
        {"Add", SN_BINARY_ADD},           {"Sub", SN_BINARY_SUB},
        {"Mul", SN_BINARY_MUL},           {"Div", SN_BINARY_DIV},
        {"And", SN_BINARY_AND},           {"Or", SN_BINARY_OR},
        {"Xor", SN_BINARY_XOR},           {"BitwiseAnd", SN_BINARY_AND},
        {"BitwiseOr", SN_BINARY_OR},      {"BitwiseXor", SN_BINARY_XOR},
        {"Equal", SN_BINARY_EQ},          {"Less", SN_BINARY_LT},
        {"LessOrEqual", SN_BINARY_LE},    {"Greater", SN_BINARY_GT},
        {"GreaterOrEqual", SN_BINARY_GE},
    };
    for (size_t i = 0; i < SN_COUNT(table) && c->ins == 2; i++)
        if (!strcmp(table[i].name, c->node->op_type)) {
            item *y = old_broadcast(m, c, c->in[0], c->in[1]);
            c->out[0] = binary(m, table[i].f, c->in[0], y);
            return;
        }
    onnx_fail(m, SN_EINVAL, "it needs two operands");
}

static bool is_constant(const item *x, double v)
{
    return x->known && sn_shape_count(x->shape) == 1 && number_at(x, 0) == v;
}

/* Powers that training meets: x² and √x have gradients without logarithms. */
static void power(importer *m, call *c)
{
    item *x = c->in[0], *y = c->ins > 1 ? c->in[1] : NULL;
    if (!x || !y) {
        onnx_fail(m, SN_EINVAL, "it needs two operands");
        return;
    }
    y = old_broadcast(m, c, x, y);
    bool wide = y && y->shape.rank > x->shape.rank;
    if (y && !wide && is_constant(y, 2))
        c->out[0] = binary(m, SN_BINARY_MUL, x, x);
    else if (y && !wide && is_real(x->dtype) && is_constant(y, 0.5))
        c->out[0] = unary(m, SN_UNARY_SQRT, x);
    else
        c->out[0] = binary(m, SN_BINARY_POW, x, y);
}

static void mod(importer *m, call *c)
{
    bool f = attr_int(m, c, "fmod", 0);
    c->out[0] = binary(m, f ? SN_BINARY_FMOD : SN_BINARY_MOD, c->in[0], c->in[1]);
}

static void bit_shift(importer *m, call *c)
{
    bool left = !strcmp(attr_str(m, c, "direction", ""), "LEFT");
    c->out[0] = binary(m, left ? SN_BINARY_SHL : SN_BINARY_SHR, c->in[0], c->in[1]);
}

static void prelu(importer *m, call *c)
{
    item *x = c->in[0], *slope = c->in[1];
    if (c->opset < 7 && slope && slope->shape.rank == 1 && x->shape.rank > 2) {
        sn_shape s = {.rank = x->shape.rank - 1, .dim = {slope->shape.dim[0]}};
        for (int d = 1; d < s.rank; d++)
            s.dim[d] = 1;
        slope = reshape(m, slope, s);
    }
    item *zero = x ? scalar(m, x->dtype, 0) : NULL;
    c->out[0] = where(m, binary(m, SN_BINARY_LT, x, zero), binary(m, SN_BINARY_MUL, x, slope), x);
}

/* ---- many operands ---- */
static item *folded(importer *m, call *c, sn_binary f)
{
    item *y = c->in[0];
    for (int i = 1; i < c->ins; i++)
        y = binary(m, f, y, c->in[i]);
    return y;
}

static void max_of(importer *m, call *c)
{
    c->out[0] = folded(m, c, SN_BINARY_MAX);
}

static void min_of(importer *m, call *c)
{
    c->out[0] = folded(m, c, SN_BINARY_MIN);
}

static void sum_of(importer *m, call *c)
{
    c->out[0] = folded(m, c, SN_BINARY_ADD);
}

static void mean_of(importer *m, call *c)
{
    c->out[0] = scaled(m, folded(m, c, SN_BINARY_ADD), 1.0 / SN_MAX(c->ins, 1), 0);
}

static void clip(importer *m, call *c)
{
    item *x = c->in[0], *low = has(c, 1) ? c->in[1] : NULL, *high = has(c, 2) ? c->in[2] : NULL;
    if (c->opset < 11 && x) {
        low = onnx_attr(c, m, "min") ? scalar(m, x->dtype, attr_float(m, c, "min", 0)) : NULL;
        high = onnx_attr(c, m, "max") ? scalar(m, x->dtype, attr_float(m, c, "max", 0)) : NULL;
    }
    if (low)
        x = binary(m, SN_BINARY_MAX, x, low);
    if (high)
        x = binary(m, SN_BINARY_MIN, x, high);
    c->out[0] = x;
}

static void where_row(importer *m, call *c)
{
    if (c->ins != 3)
        onnx_fail(m, SN_EINVAL, "it needs three operands");
    else
        c->out[0] = where(m, c->in[0], c->in[1], c->in[2]);
}

/* ---- types ---- */
static void cast_row(importer *m, call *c)
{
    sn_dtype t;
    int64_t to = attr_int(m, c, "to", 0);
    if (!onnx_dtype((int32_t) to, &t))
        onnx_fail(m, SN_ENOTSUP, "type %lld is not offered", (long long) to);
    else
        c->out[0] = cast(m, c->in[0], t);
}

static void cast_like(importer *m, call *c)
{
    if (has(c, 1))
        c->out[0] = cast(m, c->in[0], c->in[1]->dtype);
}

static void identity(importer *m, call *c)
{
    c->out[0] = c->in[0];
}

/* Without a seed that others would agree on, only what does not depend on chance. */
static void dropout(importer *m, call *c)
{
    bool training = c->opset < 7 && !attr_int(m, c, "is_test", 0) && c->opset < 7;
    double ratio = attr_float(m, c, "ratio", 0.5);
    if (c->opset >= 12) {
        training = has(c, 2) && need(m, c->in[2], "whether it trains") && integer_at(c->in[2], 0);
        if (has(c, 1) && training && need(m, c->in[1], "its ratio"))
            ratio = number_at(c->in[1], 0);
    }
    if (c->opset < 7)
        training = false; /* models are imported to be evaluated, or trained without chance */
    if (training && ratio != 0) {
        onnx_fail(m, SN_ENOTSUP, "dropping out while training is not offered");
        return;
    }
    c->out[0] = c->in[0];
    if (c->outs > 1 && c->in[0]) {
        item *one = scalar(m, SN_BOOL, 1);
        c->out[1] = expand(m, one, c->in[0]->shape);
        if (c->opset < 12 && c->in[0])
            c->out[1] = c->opset < 10 ? cast(m, c->out[1], c->in[0]->dtype) : c->out[1];
    }
}

const row onnx_rows_math[] = {
    {"Abs", 1, 1, by_name},
    {"Acos", 7, 1, by_name},
    {"Acosh", 9, 1, by_name},
    {"Add", 1, 2, two_by_name},
    {"And", 1, 2, two_by_name},
    {"Asin", 7, 1, by_name},
    {"Asinh", 9, 1, by_name},
    {"Atan", 7, 1, by_name},
    {"Atanh", 9, 1, by_name},
    {"BitShift", 11, 2, bit_shift},
    {"BitwiseAnd", 18, 2, two_by_name},
    {"BitwiseNot", 18, 1, by_name},
    {"BitwiseOr", 18, 2, two_by_name},
    {"BitwiseXor", 18, 2, two_by_name},
    {"Cast", 6, 1, cast_row},
    {"CastLike", 15, 2, cast_like},
    {"Ceil", 1, 1, by_name},
    {"Celu", 12, 1, celu},
    {"Clip", 1, 1, clip},
    {"Cos", 7, 1, by_name},
    {"Cosh", 9, 1, by_name},
    {"Div", 1, 2, two_by_name},
    {"Dropout", 1, 1, dropout},
    {"Elu", 1, 1, elu},
    {"Equal", 1, 2, two_by_name},
    {"Erf", 9, 1, by_name},
    {"Exp", 1, 1, by_name},
    {"Floor", 1, 1, by_name},
    {"Gelu", 20, 1, gelu},
    {"Greater", 1, 2, two_by_name},
    {"GreaterOrEqual", 12, 2, two_by_name},
    {"HardSigmoid", 1, 1, hard_sigmoid},
    {"HardSwish", 14, 1, by_name},
    {"Identity", 1, 1, identity},
    {"IsInf", 10, 1, is_inf},
    {"IsNaN", 9, 1, by_name},
    {"LeakyRelu", 1, 1, leaky_relu},
    {"Less", 1, 2, two_by_name},
    {"LessOrEqual", 12, 2, two_by_name},
    {"Log", 1, 1, by_name},
    {"Max", 1, 1, max_of},
    {"Mean", 1, 1, mean_of},
    {"Min", 1, 1, min_of},
    {"Mish", 18, 1, mish},
    {"Mod", 10, 2, mod},
    {"Mul", 1, 2, two_by_name},
    {"Neg", 1, 1, by_name},
    {"Not", 1, 1, by_name},
    {"Or", 1, 2, two_by_name},
    {"PRelu", 1, 2, prelu},
    {"Pow", 1, 2, power},
    {"Reciprocal", 1, 1, by_name},
    {"Relu", 1, 1, by_name},
    {"Round", 11, 1, by_name},
    {"Selu", 1, 1, selu},
    {"Shrink", 9, 1, shrink},
    {"Sigmoid", 1, 1, by_name},
    {"Sign", 9, 1, by_name},
    {"Sin", 7, 1, by_name},
    {"Sinh", 9, 1, by_name},
    {"Softplus", 1, 1, by_name},
    {"Softsign", 1, 1, by_name},
    {"Sqrt", 1, 1, by_name},
    {"Sub", 1, 2, two_by_name},
    {"Sum", 1, 1, sum_of},
    {"Tan", 7, 1, by_name},
    {"Tanh", 1, 1, by_name},
    {"ThresholdedRelu", 10, 1, thresholded_relu},
    {"Where", 9, 3, where_row},
    {"Xor", 1, 2, two_by_name},
};
const int onnx_rows_math_count = SN_COUNT(onnx_rows_math);
