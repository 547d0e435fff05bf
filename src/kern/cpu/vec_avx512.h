/* SPDX-License-Identifier: Apache-2.0
 * Vectors of 16 floats in AVX-512 (F, BW, DQ, VL). What each function means: vec.h. */
#ifndef SN_KERN_VEC_ISA_H
#define SN_KERN_VEC_ISA_H

#include <immintrin.h>
#include <stdint.h>

#define LANES 16
#define PANEL_ROWS 14 /* 14 × 2 sums, 2 of B, 1 of A: 31 of 32 registers */
#define PANEL_MID 8
#define PANEL_LOW 4
#define CHUNK_FLOATS (INT64_C(1) << 17) /* of B: a quarter of a second-level cache */
#define CPU(name) avx512_##name

typedef __m512 vf;
typedef __mmask16 vm;

static inline vm v_mask(int64_t n)
{
    return (vm) ((1u << n) - 1);
}
static inline vf v_set(float x)
{
    return _mm512_set1_ps(x);
}
static inline vf v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
static inline vf v_load_n(const float *p, int64_t n)
{
    return _mm512_maskz_loadu_ps(v_mask(n), p);
}
static inline void v_store(float *p, vf x)
{
    _mm512_storeu_ps(p, x);
}
static inline void v_store_n(float *p, vf x, int64_t n)
{
    _mm512_mask_storeu_ps(p, v_mask(n), x);
}
static inline vf v_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
static inline vf v_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}
static inline vf v_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}
static inline vf v_select_lt(vf a, vf b, vf yes, vf no)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
}
static inline vf v_first(vf x, int64_t n, vf other)
{
    return _mm512_mask_blend_ps(v_mask(n), other, x);
}
static inline vf v_abs(vf x)
{
    return _mm512_abs_ps(x);
}
static inline vf v_sqrt(vf x)
{
    return _mm512_sqrt_ps(x);
}
static inline vf v_round(vf x)
{
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static inline vf v_scale(vf x, vf n)
{
    return _mm512_scalef_ps(x, n);
}
static inline float v_sum(vf x)
{
    return _mm512_reduce_add_ps(x);
}
static inline float v_top(vf x)
{
    return _mm512_reduce_max_ps(x);
}
/* Columns become rows: pairs, then fours, then 128-bit quarters change places. */
static inline void v_transpose(vf r[16])
{
    vf t[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i += 4)
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m512d a = _mm512_castps_pd(t[i + h]), b = _mm512_castps_pd(t[i + 2 + h]);
            r[i + 2 * h] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            r[i + 2 * h + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        r[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
    }
}
static inline vf v_widen_n(const uint16_t *p, int64_t n)
{
    __m512i w = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(v_mask(n), p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(w, 16));
}
static inline void v_narrow_n(uint16_t *p, vf x, int64_t n)
{
    __m512i u = _mm512_castps_si512(x), odd = _mm512_srli_epi32(u, 16);
    __m512i up = _mm512_add_epi32(_mm512_and_epi32(odd, _mm512_set1_epi32(1)),
                                  _mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)));
    up = _mm512_srli_epi32(up, 16);
    vm nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    up = _mm512_mask_or_epi32(up, nan, odd, _mm512_set1_epi32(0x40));
    _mm256_mask_storeu_epi16(p, v_mask(n), _mm512_cvtepi32_epi16(up));
}

#endif
