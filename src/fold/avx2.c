/* SPDX-License-Identifier: Apache-2.0
 *
 * The loops for 32-byte vectors; run only where the processor has AVX2. */
#include <immintrin.h>

#define BYTES 32
#define STREAM(dst, v) _mm256_stream_ps((float *) (void *) (dst), (__m256) (v))
#define STREAM_HALF(dst, v) _mm_stream_si128((__m128i *) (void *) (dst), (__m128i) (v))
#define STREAM_END() _mm_sfence()

#include "fold/loops.h"

const sn_fold_table sn_fold_avx2 = {.name = "avx2", .fold = fold, .copy = copy};
