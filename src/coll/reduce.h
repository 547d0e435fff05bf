/* SPDX-License-Identifier: Apache-2.0
 *
 * reduce — the loops that touch the data: sources → destinations, each read and written once.
 * Private to coll.
 *
 * Elements are combined in f32 in the order of the sources, so the result depends on nothing but
 * the inputs: not on the vector width, alignment or position. NaN in, NaN out, for max and min too;
 * subnormals stay. `stream` writes past the caches, for results larger than them. */
#ifndef SN_COLL_REDUCE_H
#define SN_COLL_REDUCE_H

#include "algo/algo.h"

typedef struct coll_fold {
    sn_red red;
    sn_dtype dtype; /* SN_F32 or SN_BF16 */
    void *const *dst;
    const void *const *src;
    int dsts, srcs;
    int64_t count;
    int divide; /* 0: none */
    bool stream;
} coll_fold;

typedef struct coll_kernels {
    const char *name;
    void (*fold)(const coll_fold *f);
    void (*copy)(void *dst, const void *src, size_t bytes, bool stream);
} coll_kernels;

const coll_kernels *coll_kernels_best(void); /* for the processor we are on */

extern const coll_kernels coll_kernels_plain;
extern const coll_kernels coll_kernels_avx2, coll_kernels_avx512; /* x86-64 only */

#endif
