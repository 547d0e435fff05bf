/* SPDX-License-Identifier: Apache-2.0
 * The loops as the compiler makes them; without stores past the caches. */
#include "bench_loops.h"

#include <string.h>

void bench_loop_sum(float *const *buf, int n, int64_t from, int64_t to, bool stream)
{
    for (int64_t i = from; i < to; i += 16) {
        float sum[16];
        memcpy(sum, buf[0] + i, sizeof sum);
        for (int q = 1; q < n; q++)
            for (int k = 0; k < 16; k++)
                sum[k] += buf[q][i + k];
        for (int q = 0; q < n; q++)
            memcpy(buf[q] + i, sum, sizeof sum);
    }
}

void bench_loop_copy(float *to, const float *from, int64_t n, bool stream)
{
    memcpy(to, from, (size_t) n * sizeof *to);
}

float bench_loop_read(const float *from, int64_t n)
{
    float sum[16] = {0};
    for (int64_t i = 0; i < n; i += 16)
        for (int k = 0; k < 16; k++)
            sum[k] += from[i + k];
    for (int k = 1; k < 16; k++)
        sum[0] += sum[k];
    return sum[0];
}
