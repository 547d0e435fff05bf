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

#endif
