/* SPDX-License-Identifier: Apache-2.0
 *
 * fold — the loops that touch data: sources → destinations, each read and written once.
 *
 * Elements are combined in f32 in the order of the sources, so the result depends on nothing but
 * the inputs: not on the vector width, alignment or position. NaN in, NaN out, for max and min too;
 * subnormals stay. Pure: `stream` writes past the caches, for results larger than them. */
#ifndef SN_FOLD_FOLD_H
#define SN_FOLD_FOLD_H

#include "base/base.h"

typedef enum sn_red { SN_SUM, SN_AVG, SN_MAX, SN_MIN, SN_REDS } sn_red;

const char *sn_red_name(sn_red red); /* "sum" */

typedef struct sn_fold {
    sn_red red;
    sn_dtype dtype; /* SN_F32 or SN_BF16 */
    void *const *dst;
    const void *const *src;
    int dsts, srcs;
    int64_t count;
    int divide; /* 0: none */
    bool stream;
} sn_fold;

typedef struct sn_fold_table {
    const char *name;
    void (*fold)(const sn_fold *f);
    void (*copy)(void *dst, const void *src, size_t bytes, bool stream);
} sn_fold_table;

const sn_fold_table *sn_fold_kernels(void); /* for the processor we are on */

extern const sn_fold_table sn_fold_plain;
extern const sn_fold_table sn_fold_avx2, sn_fold_avx512; /* x86-64 only */

#endif
