/* SPDX-License-Identifier: Apache-2.0
 * The loops for x86: a cache line at a time where the processor can, else four floats. */
#include "bench_loops.h"

#include <immintrin.h>
#include <string.h>

__attribute__((target("avx512f"))) static void sum_wide(float *const *buf, int n, int64_t from,
                                                        int64_t to, bool stream)
{
    for (int64_t i = from; i < to; i += 16) {
        __m512 sum = _mm512_load_ps(buf[0] + i);
        for (int q = 1; q < n; q++)
            sum = _mm512_add_ps(sum, _mm512_load_ps(buf[q] + i));
        for (int q = 0; q < n; q++) {
            if (stream)
                _mm512_stream_ps(buf[q] + i, sum);
            else
                _mm512_store_ps(buf[q] + i, sum);
        }
    }
}

static void sum_narrow(float *const *buf, int n, int64_t from, int64_t to, bool stream)
{
    for (int64_t i = from; i < to; i += 4) {
        __m128 sum = _mm_load_ps(buf[0] + i);
        for (int q = 1; q < n; q++)
            sum = _mm_add_ps(sum, _mm_load_ps(buf[q] + i));
        for (int q = 0; q < n; q++) {
            if (stream)
                _mm_stream_ps(buf[q] + i, sum);
            else
                _mm_store_ps(buf[q] + i, sum);
        }
    }
}

void bench_loop_sum(float *const *buf, int n, int64_t from, int64_t to, bool stream)
{
    if (__builtin_cpu_supports("avx512f"))
        sum_wide(buf, n, from, to, stream);
    else
        sum_narrow(buf, n, from, to, stream);
    _mm_sfence();
}

void bench_loop_copy(float *to, const float *from, int64_t n, bool stream)
{
    if (!stream) {
        memcpy(to, from, (size_t) n * sizeof *to);
        return;
    }
    for (int64_t i = 0; i < n; i += 4)
        _mm_stream_ps(to + i, _mm_load_ps(from + i));
    _mm_sfence();
}

__attribute__((target("avx512f"))) static float read_wide(const float *from, int64_t n)
{
    __m512 a = _mm512_setzero_ps(), b = a, c = a, d = a;
    for (int64_t i = 0; i < n; i += 64) {
        a = _mm512_add_ps(a, _mm512_load_ps(from + i));
        b = _mm512_add_ps(b, _mm512_load_ps(from + i + 16));
        c = _mm512_add_ps(c, _mm512_load_ps(from + i + 32));
        d = _mm512_add_ps(d, _mm512_load_ps(from + i + 48));
    }
    return _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(a, b), _mm512_add_ps(c, d)));
}

static float read_narrow(const float *from, int64_t n)
{
    __m128 a = _mm_setzero_ps(), b = a, c = a, d = a;
    for (int64_t i = 0; i < n; i += 16) {
        a = _mm_add_ps(a, _mm_load_ps(from + i));
        b = _mm_add_ps(b, _mm_load_ps(from + i + 4));
        c = _mm_add_ps(c, _mm_load_ps(from + i + 8));
        d = _mm_add_ps(d, _mm_load_ps(from + i + 12));
    }
    return _mm_cvtss_f32(_mm_add_ps(_mm_add_ps(a, b), _mm_add_ps(c, d)));
}

float bench_loop_read(const float *from, int64_t n)
{
    return __builtin_cpu_supports("avx512f") ? read_wide(from, n) : read_narrow(from, n);
}
