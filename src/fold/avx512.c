/* SPDX-License-Identifier: Apache-2.0
 *
 * The loops for 64-byte vectors; run only where the processor has AVX-512. */
#include <immintrin.h>

#define BYTES 64
#define STREAM(dst, v) _mm512_stream_ps((float *) (void *) (dst), (__m512) (v))
#define STREAM_HALF(dst, v) _mm256_stream_si256((__m256i *) (void *) (dst), (__m256i) (v))
#define STREAM_END() _mm_sfence()

#include "fold/loops.h"

const sn_fold_table sn_fold_avx512 = {.name = "avx512", .fold = fold, .copy = copy};
