/* SPDX-License-Identifier: Apache-2.0
 *
 * codec — lossy compression of f32 vectors for the wire. Pure: encode and decode plain arrays.
 *
 *   text                      bytes for n elements                                   feedback
 *   none                      4 n
 *   bf16                      2 n
 *   fp8_e4m3, fp8_e5m2        n + 2 for each 256
 *   int8                      n + 2 for each 256
 *   int4                      n/2 + 2 for each 64                                    wanted
 *   onebit                    n/8 + 4 for each 512: the means of the negative and    wanted
 *                             of the other elements
 *   ternary                   3n/16 + 2 for each 4096; of a matrix, a byte for each  wanted
 *                             row and half a byte for each column
 *   topk:0.01                 k = n/100 places in about (log2(n/k) + 2) bits each    wanted
 *                             (Elias-Fano), and k values in bf16
 *   topk:0.01+int8, …+int4    the same, with the k values as int8 or int4            wanted
 *   powersgd:4                no code of a vector but an operation on matrices:      wanted
 *                             their factors of rank 4, by the pieces below
 *
 *   x ─▶(+)─▶ y ─▶ encode ─▶ code ─▶ decode ─▶ d        what the wire carries
 *        ▲                             │
 *        └──── residual = y − d ◀──────┘                error feedback: lost now, sent later
 *
 * Invariants
 *  1. Code and decoded numbers are the same bits on every little-endian machine, vector width and
 *     mode of the processor: what one member sends is what every member sees.
 *  2. With a residual r the encoder codes y = x + r (one rounding) and leaves r = y − decode(code)
 *     (exact; in onebit and ternary one rounding): nothing is lost, only late.
 *  3. The number of bytes depends on the codec (cols and phase too) and n alone (straight-line
 *     programs need that).
 *  4. NaN or infinity in y is seen, never hidden: bf16, none and top-k in bf16 carry it in its
 *     place, the others decode NaN for the whole block. The residual of whatever is not finite
 *     becomes 0. Below 2^-126 · (least code) a format may give 0; the residual keeps the rest.
 *  5. decode of hostile bytes never reads or writes outside its arrays (fuzzed).
 *  6. No allocation, no state, at most 64 KiB of stack. */
#ifndef SN_CODEC_CODEC_H
#define SN_CODEC_CODEC_H

#include "base/base.h"

typedef enum sn_codec_kind {
    SN_CODEC_NONE,
    SN_CODEC_BF16,
    SN_CODEC_FP8_E4M3,
    SN_CODEC_FP8_E5M2,
    SN_CODEC_INT8,
    SN_CODEC_INT4,
    SN_CODEC_ONEBIT,
    SN_CODEC_TERNARY,
    SN_CODEC_TOPK,
    SN_CODEC_POWERSGD,
    SN_CODEC_KINDS
} sn_codec_kind;

typedef struct sn_codec {      /* plain data; equal fields, same codec */
    sn_codec_kind kind, inner; /* inner: how top-k's values travel: BF16, INT8 or INT4 */
    double keep;               /* top-k: the fraction kept, 1e-6 … 1 */
    int rank;                  /* PowerSGD: 1 … SN_CODEC_RANK_MAX */
    int64_t cols, phase;       /* ternary: the length of a row where the vector is (a part of) a
                                * matrix, and where in a row it begins; cols 0: no matrix */
} sn_codec;

#define SN_CODEC_RANK_MAX 64

/* What an encoder works on. */
typedef struct sn_codec_in {
    const float *x;  /* [n] */
    float *residual; /* [n] in, out; NULL: none */
    float *momentum; /* [n] in, out; top-k with a residual only, NULL: none */
    double beta;     /* of the momentum */
    int64_t n;
} sn_codec_in;

/* One codec: a file, and a row of the table. */
typedef struct sn_codec_row {
    const char *name, *form, *help; /* "topk", "topk:0.01+int8", a sentence */
    sn_codec_kind kind;
    bool feedback;                                         /* wants a residual */
    sn_status (*parse)(const char *argument, sn_codec *c); /* what follows ':'; NULL: takes none */
    int64_t (*bytes)(const sn_codec *c, int64_t n);
    void (*encode)(const sn_codec *c, const sn_codec_in *in, void *code); /* NULL: no code */
    sn_status (*decode)(const sn_codec *c, const void *code, int64_t n, bool add, float *out);
} sn_codec_row;

int sn_codec_rows(const sn_codec_row *const **ret); /* in the order of the kinds; how many */

sn_status sn_codec_parse(const char *text, sn_codec *ret); /* SN_EINVAL lists what there is */
void sn_codec_text(const sn_codec *c, char out[32]);       /* parse reads it back the same */
bool sn_codec_feedback(const sn_codec *c);                 /* wants a residual */

/* Of n elements encoded. PowerSGD: of the factors of one square matrix of n elements. */
int64_t sn_codec_bytes(const sn_codec *c, int64_t n);

/* residual [n], NULL: none; see invariant 2. momentum [n], NULL: none: top-k's momentum correction
 * (Lin et al. 2018): u = beta u + x is what is added to the residual, and both are cleared where
 * sent; it needs a residual, and the other codecs leave it alone. code [sn_codec_bytes(c, n)].
 * Not for PowerSGD. */
void sn_codec_encode(const sn_codec *c, const float *x, float *residual, float *momentum,
                     double beta, int64_t n, void *code);

/* add: out += decoded, else out = decoded. SN_ECORRUPT, out untouched, when the bytes cannot be a
 * code of n elements. */
sn_status sn_codec_decode(const sn_codec *c, const void *code, int64_t bytes, int64_t n, bool add,
                          float *out);

/* PowerSGD's pieces (Vogels et al. 2019): m [rows·cols], q [cols·rank], p [rows·rank], row by
 * row. */
void sn_codec_lowrank_p(const float *m, int64_t rows, int64_t cols, int rank, const float *q,
                        float *p); /* p = m q */
void sn_codec_lowrank_q(const float *m, int64_t rows, int64_t cols, int rank, const float *p,
                        float *q); /* q = mᵀ p */
void sn_codec_lowrank_m(const float *p, const float *q, int64_t rows, int64_t cols, int rank,
                        float *m); /* m = p qᵀ */

/* Columns of length 1 at right angles (Gram-Schmidt twice). A column that depends on those before
 * it is replaced by one drawn from its place, so that no rank is lost for good; NaN spreads to its
 * column and those after. */
void sn_codec_orthonormal(float *p, int64_t rows, int rank);

/* Does it pay? Seconds that n elements take over a link, coding included; codec_bytes_per_s: of f32
 * encoded and decoded on this machine (of no concern to "none"). The decision of `compression:
 * auto`: the codec with the fewest seconds. */
double sn_codec_seconds(const sn_codec *c, int64_t n, double link_bytes_per_s,
                        double codec_bytes_per_s);

#endif
