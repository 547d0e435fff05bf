/* SPDX-License-Identifier: Apache-2.0
 * Every variant of fold's loops that this processor can run. */
#ifndef FOLD_VARIANTS_H
#define FOLD_VARIANTS_H

#include "fold/fold.h"

static inline int kernels(const sn_fold_table *ret[3])
{
    int n = 0;
    ret[n++] = &sn_fold_plain;
    if (sn_fold_kernels() != &sn_fold_plain)
        ret[n++] = sn_fold_kernels();
#if defined(__x86_64__)
    if (sn_fold_kernels() == &sn_fold_avx512) /* which has all that the other asks for */
        ret[n++] = &sn_fold_avx2;
#endif
    return n;
}

/* Element i of p. */
static inline void fold_put(sn_dtype dtype, void *p, int64_t i, float x)
{
    if (dtype == SN_F32)
        ((float *) p)[i] = x;
    else
        ((uint16_t *) p)[i] = dtype == SN_F16 ? sn_f32_to_f16(x) : sn_f32_to_bf16(x);
}

static inline float fold_get(sn_dtype dtype, const void *p, int64_t i)
{
    if (dtype == SN_F32)
        return ((const float *) p)[i];
    uint16_t h = ((const uint16_t *) p)[i];
    return dtype == SN_F16 ? sn_f16_to_f32(h) : sn_bf16_to_f32(h);
}

#endif
