/* SPDX-License-Identifier: Apache-2.0
 *
 * private — how a codec's file becomes a row of each vector width.
 *
 * Every codec is one file of plain C, compiled once a width (VARIANT is plain, avx2 or avx512). Its
 * loops have no order of arithmetic that a compiler may change: element by element, or sums in 16
 * lanes that the source spells out. So all widths give the same bits. */
#ifndef SN_CODEC_PRIVATE_H
#define SN_CODEC_PRIVATE_H

#include "codec/codec.h"

typedef struct codec_lowrank { /* as in codec.h */
    void (*p)(const float *m, int64_t rows, int64_t cols, int rank, const float *q, float *p);
    void (*q)(const float *m, int64_t rows, int64_t cols, int rank, const float *p, float *q);
    void (*m)(const float *p, const float *q, int64_t rows, int64_t cols, int rank, float *m);
    void (*orthonormal)(float *p, int64_t rows, int rank);
} codec_lowrank;

typedef struct codec_variant {
    const char *name;
    const sn_codec_row *row[SN_CODEC_KINDS];
    const codec_lowrank *lowrank;
} codec_variant;

const codec_variant *codec_variant_here(void); /* for the processor we are on */

extern const codec_variant codec_variant_plain;
extern const codec_variant codec_variant_avx2, codec_variant_avx512; /* x86-64 only */

#define CODEC_JOIN_(a, b) a##_##b
#define CODEC_JOIN(a, b) CODEC_JOIN_(a, b)
#define CODEC_HERE(name) CODEC_JOIN(name, VARIANT) /* codec_int8 → codec_int8_avx2 */

#endif
