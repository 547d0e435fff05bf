/* SPDX-License-Identifier: Apache-2.0
 * Vectors of 4 floats for any processor, in the compiler's own vector type. Meaning: vec.h. */
#ifndef SN_KERN_VEC_ISA_H
#define SN_KERN_VEC_ISA_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/base.h"

#define LANES 4
#define PANEL_ROWS 6
#define PANEL_MID 4
#define PANEL_LOW 2
#define CHUNK_FLOATS (INT64_C(1) << 15) /* of B: half a second-level cache */
#define CPU(name) plain_##name

typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));

static inline vf v_set(float x)
{
    return (vf){x, x, x, x};
}
static inline vf v_load_n(const float *p, int64_t n)
{
    vf x = {0};
    memcpy(&x, p, (size_t) n * sizeof(float));
    return x;
}
static inline vf v_load(const float *p)
{
    vf x;
    memcpy(&x, p, sizeof x);
    return x;
}
static inline void v_store_n(float *p, vf x, int64_t n)
{
    memcpy(p, &x, (size_t) n * sizeof(float));
}
static inline void v_store(float *p, vf x)
{
    memcpy(p, &x, sizeof x);
}
static inline vf v_fma(vf a, vf b, vf c)
{
    return a * b + c;
}
static inline vf v_select_lt(vf a, vf b, vf yes, vf no)
{
    vi m = a < b;
    return (vf) ((m & (vi) yes) | (~m & (vi) no));
}
static inline vf v_max(vf a, vf b)
{
    return v_select_lt(b, a, a, b);
}
static inline vf v_min(vf a, vf b)
{
    return v_select_lt(a, b, a, b);
}
static inline vf v_first(vf x, int64_t n, vf other)
{
    memcpy(&other, &x, (size_t) n * sizeof(float));
    return other;
}
static inline vf v_abs(vf x)
{
    return (vf) ((vi) x & 0x7fffffff);
}
static inline vf v_sqrt(vf x)
{
    return (vf){sqrtf(x[0]), sqrtf(x[1]), sqrtf(x[2]), sqrtf(x[3])};
}
/* Adding 1.5·2^23 leaves no bits for a fraction; right for |x| < 2^22. */
static inline vf v_round(vf x)
{
    return (x + 12582912.0f) - 12582912.0f;
}
/* Two factors, so that the exponent of neither leaves the normal range. */
static inline vf v_scale(vf x, vf n)
{
    vi i = (vi) (n + 12582912.0f) - (vi) v_set(12582912.0f), half = i >> 1;
    return x * (vf) ((half + 127) << 23) * (vf) ((i - half + 127) << 23);
}
static inline float v_sum(vf x)
{
    return (x[0] + x[2]) + (x[1] + x[3]);
}
static inline float v_top(vf x)
{
    float a = x[0] > x[2] ? x[0] : x[2], b = x[1] > x[3] ? x[1] : x[3];
    return a > b ? a : b;
}
/* Columns become rows. */
static inline void v_transpose(vf r[4])
{
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < i; j++) {
            float x = r[i][j];
            r[i][j] = r[j][i];
            r[j][i] = x;
        }
}
static inline vf v_widen_n(const uint16_t *p, int64_t n)
{
    vf x = {0};
    for (int64_t i = 0; i < n; i++)
        x[i] = sn_bf16_to_f32(p[i]);
    return x;
}
static inline void v_narrow_n(uint16_t *p, vf x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        p[i] = sn_f32_to_bf16(x[i]);
}

#endif
