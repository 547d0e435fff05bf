/* SPDX-License-Identifier: Apache-2.0
 * Blocks of elements of any type as f64 or as 64-bit integers; walks over several operands. */
#include "kern/ref/tensor.h"

static double half_to_f64(uint16_t h)
{
    int exponent = h >> 10 & 31, mantissa = h & 1023;
    double v = exponent == 0    ? ldexp(mantissa, -24)
               : exponent == 31 ? (mantissa ? NAN : INFINITY)
                                : ldexp(1024 + mantissa, exponent - 25);
    return h >> 15 ? -v : v;
}

/* Rounded to nearest even, once, from f64. */
static uint16_t f64_to_half(double v)
{
    uint16_t sign = signbit(v) ? 0x8000 : 0;
    double a = fabs(v);
    if (isnan(v))
        return sign | 0x7e00;
    if (a >= 65520)
        return sign | 0x7c00;
    int exponent;
    frexp(a, &exponent); /* a = m·2^exponent, 1/2 ≤ m < 1 */
    if (a == 0 || exponent < -13)
        return sign | (uint16_t) nearbyint(ldexp(a, 24));
    int64_t m = (int64_t) nearbyint(ldexp(a, 11 - exponent)); /* 1024 … 2048, the last carries */
    return sign | (uint16_t) (((exponent + 14) << 10) + (int) (m - 1024));
}

/* Rounded to odd on the way to f32, so that the second rounding is the only one that shows. */
static uint16_t f64_to_bf16(double v)
{
    float f = (float) v;
    if (f != v && isfinite(f)) {
        union {
            float f;
            uint32_t u;
        } bits = {.f = f};
        if (fabs((double) f) > fabs(v))
            bits.u--;
        bits.u |= 1;
        f = bits.f;
    }
    return sn_f32_to_bf16(f);
}

/* Towards zero, then the low 64 bits; what is beyond them goes to the end of the range. */
static int64_t f64_to_i64(double v)
{
    if (isnan(v))
        return 0;
    if (v >= 9223372036854775808.0)
        return v < 18446744073709551616.0 ? (int64_t) (uint64_t) v : INT64_MAX;
    return v <= -9223372036854775808.0 ? INT64_MIN : (int64_t) v;
}

#define READ(type, expression)                                                                     \
    do {                                                                                           \
        const type *x = (const type *) p + at;                                                     \
        for (int64_t i = 0; i < n; i++, x += step)                                                 \
            out[i] = (expression);                                                                 \
    } while (0)

/* Cases of the integer types, for reading as `as`. */
#define READ_INTEGERS(as)                                                                          \
    case SN_I32:                                                                                   \
        READ(int32_t, (as) *x);                                                                    \
        break;                                                                                     \
    case SN_I64:                                                                                   \
        READ(int64_t, (as) *x);                                                                    \
        break;                                                                                     \
    case SN_I8:                                                                                    \
        READ(int8_t, (as) *x);                                                                     \
        break;                                                                                     \
    case SN_I16:                                                                                   \
        READ(int16_t, (as) *x);                                                                    \
        break;                                                                                     \
    case SN_U16:                                                                                   \
        READ(uint16_t, (as) *x);                                                                   \
        break;                                                                                     \
    case SN_U32:                                                                                   \
        READ(uint32_t, (as) *x);                                                                   \
        break;                                                                                     \
    case SN_U64:                                                                                   \
        READ(uint64_t, (as) *x);                                                                   \
        break;                                                                                     \
    case SN_BOOL:                                                                                  \
        READ(uint8_t, (as) (*x != 0));                                                             \
        break;                                                                                     \
    default:                                                                                       \
        READ(uint8_t, (as) *x);                                                                    \
        break;

void REF(read_f64)(sn_dtype t, const void *p, int64_t at, int64_t step, int64_t n, double *out)
{
    switch (t) {
    case SN_F32:
        READ(real, (double) *x);
        break;
    case SN_F64:
        READ(double, *x);
        break;
    case SN_F16:
        READ(uint16_t, half_to_f64(*x));
        break;
    case SN_BF16:
        READ(uint16_t, (double) sn_bf16_to_f32(*x));
        break;
        READ_INTEGERS(double)
    }
}

void REF(read_i64)(sn_dtype t, const void *p, int64_t at, int64_t step, int64_t n, int64_t *out)
{
    switch (t) {
    case SN_F32:
        READ(real, f64_to_i64((double) *x));
        break;
    case SN_F64:
        READ(double, f64_to_i64(*x));
        break;
    case SN_F16:
        READ(uint16_t, f64_to_i64(half_to_f64(*x)));
        break;
    case SN_BF16:
        READ(uint16_t, f64_to_i64((double) sn_bf16_to_f32(*x)));
        break;
        READ_INTEGERS(int64_t)
    }
}

#define WRITE(type, expression)                                                                    \
    do {                                                                                           \
        type *y = (type *) p + at;                                                                 \
        for (int64_t i = 0; i < n; i++)                                                            \
            y[i] = (type) (expression);                                                            \
    } while (0)

void REF(write_i64)(sn_dtype t, void *p, int64_t at, int64_t n, const int64_t *in)
{
    switch (t) {
    case SN_F32:
        WRITE(real, in[i]);
        break;
    case SN_F64:
        WRITE(double, in[i]);
        break;
    case SN_F16:
        WRITE(uint16_t, f64_to_half((double) in[i]));
        break;
    case SN_BF16:
        WRITE(uint16_t, f64_to_bf16((double) in[i]));
        break;
    case SN_I32:
    case SN_U32:
        WRITE(uint32_t, in[i]);
        break;
    case SN_I64:
    case SN_U64:
        WRITE(int64_t, in[i]);
        break;
    case SN_I16:
    case SN_U16:
        WRITE(uint16_t, in[i]);
        break;
    case SN_BOOL:
        WRITE(uint8_t, in[i] != 0);
        break;
    default:
        WRITE(uint8_t, in[i]);
        break;
    }
}

void REF(write_f64)(sn_dtype t, void *p, int64_t at, int64_t n, const double *in)
{
    switch (t) {
    case SN_F32:
        WRITE(real, in[i]);
        return;
    case SN_F64:
        WRITE(double, in[i]);
        return;
    case SN_F16:
        WRITE(uint16_t, f64_to_half(in[i]));
        return;
    case SN_BF16:
        WRITE(uint16_t, f64_to_bf16(in[i]));
        return;
    case SN_BOOL:
        WRITE(uint8_t, in[i] != 0);
        return;
    default:
        break;
    }
    int64_t whole[TENSOR_BLOCK];
    for (int64_t done = 0; done < n; done += TENSOR_BLOCK) {
        int64_t m = SN_MIN(n - done, (int64_t) TENSOR_BLOCK);
        for (int64_t i = 0; i < m; i++)
            whole[i] = f64_to_i64(in[done + i]);
        REF(write_i64)(t, p, at + done, m, whole);
    }
}

/* ---- walks ---- */

/* Can dim `d` be walked as the inner part of the last dim of w? */
static bool walk_merges(const tensor_walk *w, int64_t size, const int64_t step[][SN_RANK_MAX],
                        int d)
{
    if (w->rank == 0)
        return false;
    for (int k = 0; k < w->operands; k++)
        if (w->step[k][w->rank - 1] != step[k][d] * size)
            return false;
    return true;
}

void REF(walk_begin)(tensor_walk *w, sn_shape size, int operands, const int64_t step[][SN_RANK_MAX])
{
    *w = (tensor_walk){.operands = operands, .rows = 1};
    for (int d = 0; d < size.rank; d++) {
        if (size.dim[d] == 1)
            continue;
        if (!walk_merges(w, size.dim[d], step, d))
            w->size[w->rank++] = 1;
        w->size[w->rank - 1] *= size.dim[d];
        for (int k = 0; k < operands; k++)
            w->step[k][w->rank - 1] = step[k][d];
    }
    if (w->rank == 0)
        w->size[w->rank++] = 1;
    w->inner = w->size[w->rank - 1];
    for (int d = 0; d < w->rank - 1; d++)
        w->rows *= w->size[d];
    if (sn_shape_count(size) == 0)
        w->rows = 0;
}

void REF(walk_next)(tensor_walk *w)
{
    for (int d = w->rank - 2; d >= 0; d--) {
        for (int k = 0; k < w->operands; k++)
            w->at[k] += w->step[k][d];
        if (++w->index[d] < w->size[d])
            return;
        w->index[d] = 0;
        for (int k = 0; k < w->operands; k++)
            w->at[k] -= w->step[k][d] * w->size[d];
    }
}

void REF(steps_of)(sn_shape part, sn_shape full, int64_t step[SN_RANK_MAX])
{
    int64_t stride = 1;
    for (int d = full.rank - 1; d >= 0; d--) {
        int at = d - (full.rank - part.rank);
        int64_t n = at >= 0 ? part.dim[at] : 1;
        step[d] = n == 1 ? 0 : stride;
        stride *= n;
    }
}

#define MOVE(width)                                                                                \
    for (int64_t i = 0; i < n; i++)                                                                \
    memcpy(out + i * out_step * (width), in + i * in_step * (width), (width))

void REF(move)(size_t bytes, char *out, int64_t out_step, const char *in, int64_t in_step,
               int64_t n)
{
    if (out_step == 1 && in_step == 1) {
        memcpy(out, in, (size_t) n * bytes);
        return;
    }
    switch (bytes) {
    case 1:
        MOVE(1);
        break;
    case 2:
        MOVE(2);
        break;
    case 4:
        MOVE(4);
        break;
    default:
        MOVE(8);
        break;
    }
}
