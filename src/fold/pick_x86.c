/* SPDX-License-Identifier: Apache-2.0 */
#include "fold/fold.h"

const sn_fold_table *sn_fold_kernels(void)
{
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        return &sn_fold_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c"))
        return &sn_fold_avx2;
    return &sn_fold_plain;
}
