/* SPDX-License-Identifier: Apache-2.0
 * x86: width of the vector unit by cpuid. Two FMA units are assumed, as on every server core since
 * 2013; an FMA is two operations. */
#include "probe/parts.h"

#include <cpuid.h>

probe_simd probe_simd_here(void)
{
    unsigned a, b, c, d = 0;
    bool leaf = __get_cpuid_count(7, 0, &a, &b, &c, &d);
    bool amx_bf16 = leaf && (d >> 22 & 1);
    double f32 = __builtin_cpu_supports("avx512f") ? 2 * 2 * 16
                 : __builtin_cpu_supports("fma")   ? 2 * 2 * 8
                 : __builtin_cpu_supports("avx")   ? 2 * 8
                                                   : 2 * 4;
    /* A tile unit does 1024 multiply-adds a cycle. Without one, 16-bit products run at half the
     * rate of f32 (measured with vdpbf16ps): they save memory, not time. */
    return (probe_simd){f32, amx_bf16 ? 2 * 1024 : f32 / 2};
}
