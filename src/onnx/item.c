/* SPDX-License-Identifier: Apache-2.0
 * Items: what names stand for; constants made and read at import. */
#include "onnx/private.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void *onnx_keep(importer *m, sn_status status)
{
    if (ok(m))
        m->status = sn_fail_in(status, "%s", m->at);
    return NULL;
}

void *onnx_fail(importer *m, sn_status status, const char *format, ...)
{
    char text[400];
    va_list args;
    if (!ok(m))
        return NULL;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    m->status = sn_fail(status, "%s: %s", m->at, text);
    return NULL;
}

static int64_t limit(int64_t given, int64_t otherwise)
{
    return given > 0 ? given : otherwise;
}

item *item_new(importer *m, sn_dtype dtype, sn_shape shape)
{
    int64_t n = 1, most = limit(m->opts.tensor_bytes_max, INT64_C(4) << 30);
    if (!ok(m))
        return NULL;
    for (int d = 0; d < shape.rank; d++)
        if (shape.dim[d] < 0 || __builtin_mul_overflow(n, shape.dim[d], &n))
            n = INT64_MAX / 64;
    if (n > most / (int64_t) sn_dtype_bytes(dtype)) {
        char text[96];
        return onnx_fail(m, SN_EFIT, "a tensor of shape %s is larger than allowed",
                         sn_shape_text(text, shape));
    }
    item *x = SN_NEW(m->arena, item);
    *x = (item){.dtype = dtype, .shape = shape, .value = -1};
    return x;
}

item *constant(importer *m, sn_dtype dtype, sn_shape shape, void **ret_data)
{
    item *x = item_new(m, dtype, shape);
    if (!x)
        return NULL;
    int64_t bytes = sn_shape_count(shape) * (int64_t) sn_dtype_bytes(dtype);
    int64_t most = limit(m->opts.constants_bytes_max, INT64_C(1) << 30);
    if (bytes > most - m->constant_bytes)
        return onnx_fail(m, SN_EFIT, "the constants of the model need more than %lld bytes",
                         (long long) most);
    m->constant_bytes += bytes;
    *ret_data = sn_arena_alloc(m->arena, (size_t) bytes + 1);
    x->data = *ret_data;
    x->known = true;
    return x;
}

void number_put(sn_dtype t, void *data, int64_t i, double v)
{
    union {
        float f;
        uint32_t u;
    } bits = {.f = (float) v};
    int64_t whole = v >= -9e18 && v <= 9e18 ? (int64_t) v : 0;
    switch (t) {
    case SN_F32:
        ((float *) data)[i] = (float) v;
        break;
    case SN_F64:
        ((double *) data)[i] = v;
        break;
    case SN_BF16:
        ((uint16_t *) data)[i] = sn_f32_to_bf16((float) v);
        break;
    case SN_F16: { /* exact for the small numbers that are written here; else truncated */
        int exponent = (int) (bits.u >> 23 & 255) - 112;
        uint32_t h = bits.u >> 16 & 0x8000;
        if (isnan(v))
            h |= 0x7e00;
        else if (exponent >= 31)
            h |= 0x7c00;
        else if (exponent > 0)
            h |= (uint32_t) exponent << 10 | (bits.u >> 13 & 1023);
        else
            h |= (uint32_t) (fabs(v) * 16777216.0);
        ((uint16_t *) data)[i] = (uint16_t) h;
        break;
    }
    case SN_I32:
        ((int32_t *) data)[i] = (int32_t) whole;
        break;
    case SN_I64:
        ((int64_t *) data)[i] = (int64_t) whole;
        break;
    case SN_I16:
        ((int16_t *) data)[i] = (int16_t) whole;
        break;
    case SN_U16:
        ((uint16_t *) data)[i] = (uint16_t) whole;
        break;
    case SN_U32:
        ((uint32_t *) data)[i] = (uint32_t) whole;
        break;
    case SN_U64:
        ((uint64_t *) data)[i] = (uint64_t) whole;
        break;
    case SN_I8:
        ((int8_t *) data)[i] = (int8_t) whole;
        break;
    default:
        ((uint8_t *) data)[i] = (uint8_t) whole;
        break;
    }
}

static double half(uint16_t h)
{
    int exponent = h >> 10 & 31, mantissa = h & 1023;
    double v = exponent == 0    ? ldexp(mantissa, -24)
               : exponent == 31 ? (mantissa ? NAN : INFINITY)
                                : ldexp(1024 + mantissa, exponent - 25);
    return h >> 15 ? -v : v;
}

double number_at(const item *x, int64_t i)
{
    switch (x->dtype) {
    case SN_F32:
        return (double) ((const float *) x->data)[i];
    case SN_F64:
        return ((const double *) x->data)[i];
    case SN_BF16:
        return (double) sn_bf16_to_f32(((const uint16_t *) x->data)[i]);
    case SN_F16:
        return half(((const uint16_t *) x->data)[i]);
    case SN_U64:
        return (double) ((const uint64_t *) x->data)[i];
    default:
        return (double) integer_at(x, i);
    }
}

int64_t integer_at(const item *x, int64_t i)
{
    switch (x->dtype) {
    case SN_I32:
        return ((const int32_t *) x->data)[i];
    case SN_I64:
    case SN_U64:
        return ((const int64_t *) x->data)[i];
    case SN_I16:
        return ((const int16_t *) x->data)[i];
    case SN_U16:
        return ((const uint16_t *) x->data)[i];
    case SN_U32:
        return ((const uint32_t *) x->data)[i];
    case SN_I8:
        return ((const int8_t *) x->data)[i];
    case SN_U8:
        return ((const uint8_t *) x->data)[i];
    case SN_BOOL:
        return ((const uint8_t *) x->data)[i] != 0;
    default: {
        double v = number_at(x, i);
        return v >= -9e18 && v <= 9e18 ? (int64_t) v : 0;
    }
    }
}

item *scalar(importer *m, sn_dtype dtype, double v)
{
    void *data;
    item *x = constant(m, dtype, (sn_shape){0}, &data);
    if (x)
        number_put(dtype, data, 0, v);
    return x;
}

item *integers(importer *m, const int64_t *v, int n)
{
    void *data;
    item *x = constant(m, SN_I64, SN_SHAPE(n), &data);
    if (x && n)
        memcpy(data, v, (size_t) n * sizeof *v);
    return x;
}

item *iota(importer *m, int64_t n)
{
    void *data;
    item *x = constant(m, SN_I64, SN_SHAPE(n), &data);
    for (int64_t i = 0; x && i < n; i++)
        ((int64_t *) data)[i] = i;
    return x;
}

bool need(importer *m, item *x, const char *what)
{
    if (!ok(m) || !x)
        return false;
    if (!x->data)
        onnx_fail(m, SN_EFIT,
                  "%s%s%s%s must be known when the model is imported: give the inputs "
                  "it comes from a value",
                  what, x->name ? " '" : "", x->name ? x->name : "", x->name ? "'" : "");
    return x->data;
}

int need_ints(importer *m, item *x, const char *what, int64_t *ret, int max)
{
    if (!x || !need(m, x, what))
        return -1;
    int64_t n = sn_shape_count(x->shape);
    if (n > max) {
        onnx_fail(m, SN_ENOTSUP, "%lld numbers in %s, at most %d are offered", (long long) n, what,
                  max);
        return -1;
    }
    for (int64_t i = 0; i < n; i++)
        ret[i] = integer_at(x, i);
    return (int) n;
}

int axis_of(importer *m, int64_t axis, int rank)
{
    if (axis < -rank || axis >= rank) {
        onnx_fail(m, SN_EINVAL, "axis %lld is none of a tensor of %d dims", (long long) axis, rank);
        return 0;
    }
    return (int) (axis < 0 ? axis + rank : axis);
}
