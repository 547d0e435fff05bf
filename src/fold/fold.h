/* SPDX-License-Identifier: Apache-2.0
 *
 * fold — the loops that touch data: sources → destinations, each read and written once.
 *
 * Elements are combined in f32 in the order of the sources, so the result depends on nothing but
 * the inputs: not on the vector width, alignment, position or the caller's mode of computing
 * (rounding, flush-to-zero), which is as it was afterwards. NaN in, NaN out, for max and min too;
 * +0 is greater than -0; subnormals stay. Pure: `stream` writes past the caches, for results larger
 * than them.
 *
 *   dtype    in memory     in between               on the way out
 *   F32      4 bytes       f32                      as it is
 *   BF16     2 bytes       widened to f32, exact    rounded once, to nearest even
 *   F16      2 bytes       widened to f32, exact    rounded once, to nearest even
 *
 * A wide operand holds F32 whatever dtype says: sums of bf16 and f16 that go on elsewhere stay
 * wide and are rounded where they end. Sums and averages of bf16 are computed at 2^-16 of their
 * size, and wide operands of them hold that: numbers near the largest bf16 may cancel on the way,
 * and the smallest stay exact. */
#ifndef SN_FOLD_FOLD_H
#define SN_FOLD_FOLD_H

#include "base/base.h"
#include "fold/number.h"

typedef enum sn_red { SN_SUM, SN_AVG, SN_MAX, SN_MIN, SN_REDS } sn_red;

const char *sn_red_name(sn_red red); /* "sum" */

typedef struct sn_fold {
    sn_red red;
    sn_dtype dtype; /* SN_F32, SN_BF16 or SN_F16 */
    void *const *dst;
    const void *const *src;
    int dsts, srcs;
    int64_t count;
    int divide; /* 0: none; in f32, before rounding */
    bool stream;
    bool backward; /* from the last element to the first: what was touched last is in the caches */
    const uint8_t *src_wide, *dst_wide; /* [srcs], [dsts]: 1 where it holds F32; NULL: nowhere */
} sn_fold;

typedef struct sn_fold_table {
    const char *name;
    void (*fold)(const sn_fold *f); /* a destination may be a source of the same element size */
    void (*copy)(void *dst, const void *src, size_t bytes, bool stream);
} sn_fold_table;

const sn_fold_table *sn_fold_kernels(void); /* for the processor we are on */

extern const sn_fold_table sn_fold_plain;
extern const sn_fold_table sn_fold_avx2, sn_fold_avx512; /* x86-64 only */

#endif
