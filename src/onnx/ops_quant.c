/* SPDX-License-Identifier: Apache-2.0
 * Rows of numbers kept as integers with a scale and a zero point. */
#include "onnx/private.h"

static double least(sn_dtype t)
{
    return t == SN_I8 ? -128 : t == SN_I16 ? -32768 : 0;
}

static double most(sn_dtype t)
{
    return t == SN_I8 ? 127 : t == SN_I16 ? 32767 : t == SN_U16 ? 65535 : 255;
}

/* A scale or zero point of a whole tensor, or of each index along `axis` of x. */
static item *along(importer *m, item *v, const item *x, int64_t axis)
{
    sn_shape s = {.rank = x->shape.rank};
    if (!v || !ok(m) || v->shape.rank == 0)
        return v;
    if (sn_shape_count(v->shape) == 1)
        return reshape(m, v, (sn_shape){0});
    int at = axis_of(m, axis, SN_MAX(x->shape.rank, 1));
    for (int d = 0; d < s.rank; d++)
        s.dim[d] = d == at ? v->shape.dim[0] : 1;
    return reshape(m, v, s);
}

static item *to_integers(importer *m, item *x, item *zero, sn_dtype t)
{
    x = unary(m, SN_UNARY_ROUND, x);
    if (zero)
        x = binary(m, SN_BINARY_ADD, x, cast(m, zero, SN_F32));
    x = binary(m, SN_BINARY_MAX, x, scalar(m, SN_F32, least(t)));
    return cast(m, binary(m, SN_BINARY_MIN, x, scalar(m, SN_F32, most(t))), t);
}

static void quantize(importer *m, call *c)
{
    item *x = c->in[0];
    int64_t axis = attr_int(m, c, "axis", 1);
    item *scale = along(m, c->in[1], x, axis);
    item *zero = has(c, 2) ? along(m, c->in[2], x, axis) : NULL;
    x = binary(m, SN_BINARY_DIV, cast(m, x, SN_F32), cast(m, scale, SN_F32));
    c->out[0] = to_integers(m, x, zero, zero ? zero->dtype : SN_U8);
}

static void dequantize(importer *m, call *c)
{
    item *x = c->in[0], *y = cast(m, x, SN_F32);
    int64_t axis = attr_int(m, c, "axis", 1);
    if (has(c, 2))
        y = binary(m, SN_BINARY_SUB, y, cast(m, along(m, c->in[2], x, axis), SN_F32));
    c->out[0] = binary(m, SN_BINARY_MUL, y, along(m, c->in[1], x, axis));
}

static void dynamic_quantize(importer *m, call *c)
{
    item *x = c->in[0], *zero = scalar(m, SN_F32, 0);
    int64_t all = ((int64_t) 1 << x->shape.rank) - 1;
    item *low = axes_mask_squeeze(m, reduce(m, SN_REDUCE_MIN, x, all), all);
    item *high = axes_mask_squeeze(m, reduce(m, SN_REDUCE_MAX, x, all), all);
    low = binary(m, SN_BINARY_MIN, low, zero);
    high = binary(m, SN_BINARY_MAX, high, zero);
    item *scale = scaled(m, binary(m, SN_BINARY_SUB, high, low), 1.0 / 255, 0);
    item *point = unary(m, SN_UNARY_NEG, binary(m, SN_BINARY_DIV, low, scale));
    point = to_integers(m, point, NULL, SN_U8);
    c->out[0] = to_integers(m, binary(m, SN_BINARY_DIV, x, scale), point, SN_U8);
    c->out[1] = scale;
    c->out[2] = point;
}

/* Zero points of rows of the first operand, of columns of the second. */
static item *centred(importer *m, item *x, item *zero, bool rows)
{
    if (!zero)
        return cast(m, x, SN_I32);
    if (zero->shape.rank == 1 && rows && sn_shape_count(zero->shape) > 1)
        zero = unsqueeze(m, zero, 1);
    if (zero && sn_shape_count(zero->shape) == 1)
        zero = reshape(m, zero, (sn_shape){0});
    return binary(m, SN_BINARY_SUB, cast(m, x, SN_I32), cast(m, zero, SN_I32));
}

static void matmul_integer(importer *m, call *c)
{
    item *x = centred(m, c->in[0], has(c, 2) ? c->in[2] : NULL, true);
    item *y = centred(m, c->in[1], has(c, 3) ? c->in[3] : NULL, false);
    c->out[0] = matmul(m, x, y);
}

static void qlinear_matmul(importer *m, call *c)
{
    item *x = centred(m, c->in[0], c->in[2], true), *y = centred(m, c->in[3], c->in[5], false);
    item *z = cast(m, matmul(m, x, y), SN_F32);
    item *scale = binary(m, SN_BINARY_DIV, binary(m, SN_BINARY_MUL, c->in[1], c->in[4]), c->in[6]);
    if (scale && sn_shape_count(scale->shape) == 1)
        scale = reshape(m, scale, (sn_shape){0});
    item *zero = c->in[7];
    if (sn_shape_count(zero->shape) == 1)
        zero = reshape(m, zero, (sn_shape){0});
    c->out[0] = to_integers(m, binary(m, SN_BINARY_MUL, z, scale), zero, c->in[7]->dtype);
}

const row onnx_rows_quant[] = {
    {"DequantizeLinear", 10, 2, dequantize},  {"DynamicQuantizeLinear", 11, 1, dynamic_quantize},
    {"MatMulInteger", 10, 2, matmul_integer}, {"QLinearMatMul", 10, 8, qlinear_matmul},
    {"QuantizeLinear", 10, 2, quantize},
};
const int onnx_rows_quant_count = SN_COUNT(onnx_rows_quant);
