/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/reduce.h"

const coll_kernels *coll_kernels_best(void)
{
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        return &coll_kernels_avx512;
    if (__builtin_cpu_supports("avx2"))
        return &coll_kernels_avx2;
    return &coll_kernels_plain;
}
