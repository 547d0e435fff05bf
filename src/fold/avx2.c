/* SPDX-License-Identifier: Apache-2.0
 *
 * The loops for 32-byte vectors; run only where the processor has AVX2 and F16C. */
#include <immintrin.h>

static inline __attribute__((always_inline)) __m128i pack(__m256i u)
{
    return _mm_packus_epi32(_mm256_castsi256_si128(u), _mm256_extracti128_si256(u, 1));
}

#define BYTES 32
#define STREAM(dst, v) _mm256_stream_ps((float *) (void *) (dst), (__m256) (v))
#define STREAM_HALF(dst, v) _mm_stream_si128((__m128i *) (void *) (dst), (__m128i) (v))
#define STREAM_END() _mm_sfence()
#define WIDEN(h) (vu) _mm256_cvtepu16_epi32((__m128i) (h))
#define NARROW(u) (vh) pack((__m256i) (u))
#define WIDEN_F16(h) (vf) _mm256_cvtph_ps((__m128i) (h))
#define NARROW_F16(v) (vh) _mm256_cvtps_ph((__m256) (v), _MM_FROUND_TO_NEAREST_INT)

#include "fold/loops.h"

const sn_fold_table sn_fold_avx2 = {.name = "avx2", .fold = fold, .copy = copy};
