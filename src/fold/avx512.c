/* SPDX-License-Identifier: Apache-2.0
 *
 * The loops for 64-byte vectors; run only where the processor has AVX-512. */
#include <immintrin.h>

#define BYTES 64
#define STREAM(dst, v) _mm512_stream_ps((float *) (void *) (dst), (__m512) (v))
#define STREAM_HALF(dst, v) _mm256_stream_si256((__m256i *) (void *) (dst), (__m256i) (v))
#define STREAM_END() _mm_sfence()
#define WIDEN(h) (vu) _mm512_cvtepu16_epi32((__m256i) (h))
#define NARROW(u) (vh) _mm512_cvtepi32_epi16((__m512i) (u))
#define WIDEN_F16(h) (vf) _mm512_cvtph_ps((__m256i) (h))
#define NARROW_F16(v) (vh) _mm512_cvtps_ph((__m512) (v), _MM_FROUND_TO_NEAREST_INT)

#include "fold/loops.h"

const sn_fold_table sn_fold_avx512 = {.name = "avx512", .fold = fold, .copy = copy};
