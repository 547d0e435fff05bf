/* SPDX-License-Identifier: Apache-2.0
 * Vectors of 8 floats in AVX2 with FMA. What each function means: vec.h. */
#ifndef SN_KERN_VEC_ISA_H
#define SN_KERN_VEC_ISA_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define LANES 8
#define PANEL_ROWS 6 /* 6 × 2 sums, 2 of B, 1 of A: 15 of 16 registers */
#define PANEL_MID 4
#define PANEL_LOW 2
#define CHUNK_FLOATS (INT64_C(1) << 16) /* of B: half a second-level cache */
#define CPU(name) avx2_##name

typedef __m256 vf;

static inline __m256i v_mask(int64_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int) n),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline vf v_set(float x)
{
    return _mm256_set1_ps(x);
}
static inline vf v_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
static inline vf v_load_n(const float *p, int64_t n)
{
    return _mm256_maskload_ps(p, v_mask(n));
}
static inline void v_store(float *p, vf x)
{
    _mm256_storeu_ps(p, x);
}
static inline void v_store_n(float *p, vf x, int64_t n)
{
    _mm256_maskstore_ps(p, v_mask(n), x);
}
static inline vf v_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
static inline vf v_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}
static inline vf v_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}
static inline vf v_select_lt(vf a, vf b, vf yes, vf no)
{
    return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
static inline vf v_first(vf x, int64_t n, vf other)
{
    return _mm256_blendv_ps(other, x, _mm256_castsi256_ps(v_mask(n)));
}
static inline vf v_abs(vf x)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
}
static inline vf v_sqrt(vf x)
{
    return _mm256_sqrt_ps(x);
}
static inline vf v_round(vf x)
{
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* Two factors, so that the exponent of neither leaves the normal range. */
static inline vf v_scale(vf x, vf n)
{
    __m256i i = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(i, 1);
    __m256i rest = _mm256_sub_epi32(i, half), one = _mm256_set1_epi32(127);
    vf a = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, one), 23));
    vf b = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, one), 23));
    return x * a * b;
}
static inline float v_sum(vf x)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
static inline float v_top(vf x)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}
/* Columns become rows: pairs, then fours, then halves change places. */
static inline void v_transpose(vf r[8])
{
    vf t[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i += 4)
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m256d a = _mm256_castps_pd(t[i + h]), b = _mm256_castps_pd(t[i + 2 + h]);
            r[i + 2 * h] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, b));
            r[i + 2 * h + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, b));
        }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
        t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
    memcpy(r, t, sizeof t);
}
static inline vf v_widen_n(const uint16_t *p, int64_t n)
{
    uint16_t part[8] = {0};
    memcpy(part, p, (size_t) n * 2);
    __m256i w = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *) (const void *) part));
    return _mm256_castsi256_ps(_mm256_slli_epi32(w, 16));
}
static inline void v_narrow_n(uint16_t *p, vf x, int64_t n)
{
    __m256i u = _mm256_castps_si256(x), odd = _mm256_srli_epi32(u, 16);
    __m256i up = _mm256_add_epi32(_mm256_and_si256(odd, _mm256_set1_epi32(1)),
                                  _mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    up = _mm256_blendv_epi8(_mm256_srli_epi32(up, 16),
                            _mm256_or_si256(odd, _mm256_set1_epi32(0x40)), nan);
    __m128i h = _mm_packus_epi32(_mm256_castsi256_si128(up), _mm256_extracti128_si256(up, 1));
    uint16_t part[8];
    _mm_storeu_si128((__m128i *) (void *) part, h);
    memcpy(p, part, (size_t) n * 2);
}

#endif
