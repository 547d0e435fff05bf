/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor — what the kernels of ops_tensor.h share: elements of any type read and written in blocks
 * as f64 or as 64-bit integers, and walks over several operands at once.
 *
 *   operand ─read─▶ double[BLOCK] or int64_t[BLOCK] ─ one plain loop ─▶ same ─write─▶ result
 *
 * So an op is written twice (numbers, integers), not once for each of thirteen types. */
#ifndef SN_KERN_REF_TENSOR_H
#define SN_KERN_REF_TENSOR_H

#include "kern/ref/tensor_table.h"

enum { TENSOR_BLOCK = 256 };

static inline bool tensor_real(sn_dtype t)
{
    return t == SN_F32 || t == SN_F64 || t == SN_F16 || t == SN_BF16;
}

/* Bytes of an element here, where F32 may be memory of doubles. */
static inline size_t tensor_bytes(sn_dtype t)
{
    return t == SN_F32 ? sizeof(real) : sn_dtype_bytes(t);
}

/* Elements at, at + step, … of `p`, n of them. Integers become f64, and the other way round. */
void REF(read_f64)(sn_dtype t, const void *p, int64_t at, int64_t step, int64_t n, double *out);
void REF(read_i64)(sn_dtype t, const void *p, int64_t at, int64_t step, int64_t n, int64_t *out);
/* Dense. To integers: fractions go, what does not fit wraps; NaN is 0. */
void REF(write_f64)(sn_dtype t, void *p, int64_t at, int64_t n, const double *in);
void REF(write_i64)(sn_dtype t, void *p, int64_t at, int64_t n, const int64_t *in);

/* A walk in row-major order over `size`, with up to four operands that move by their own steps.
 * Neighbouring dims that all operands walk alike are one. */
enum { WALK_MAX = 4 };
typedef struct tensor_walk {
    int rank, operands;
    int64_t size[SN_RANK_MAX], index[SN_RANK_MAX], step[WALK_MAX][SN_RANK_MAX], at[WALK_MAX];
    int64_t rows, inner; /* inner: size of the last dim */
} tensor_walk;

void REF(walk_begin)(tensor_walk *w, sn_shape size, int operands,
                     const int64_t step[][SN_RANK_MAX]);
/* To the next run along the last dim. */
void REF(walk_next)(tensor_walk *w);

/* The steps of an operand broadcast into `full`, dims aligned at the end. */
void REF(steps_of)(sn_shape part, sn_shape full, int64_t step[SN_RANK_MAX]);

/* Copy elements of `bytes` each. */
void REF(move)(size_t bytes, char *out, int64_t out_step, const char *in, int64_t in_step,
               int64_t n);

#endif
