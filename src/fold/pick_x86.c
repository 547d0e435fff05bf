/* SPDX-License-Identifier: Apache-2.0 */
#include "fold/fold.h"

#if defined(__clang__) /* its list of features lacks this one: bit 29 of CPUID's leaf 1 */
static bool f16c(void)
{
    uint32_t a = 1, b, c = 0, d;
    __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    return c >> 29 & 1;
}
#else
static bool f16c(void)
{
    return __builtin_cpu_supports("f16c");
}
#endif

const sn_fold_table *sn_fold_kernels(void)
{
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        return &sn_fold_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && f16c())
        return &sn_fold_avx2;
    return &sn_fold_plain;
}
