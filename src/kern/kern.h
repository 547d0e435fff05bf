/* SPDX-License-Identifier: Apache-2.0
 *
 * kern — cards that compute: a card kind is a table of functions, a kernel is an op prepared once
 * for fixed shapes.
 *
 *   sn_card_open("cpu") → sn_card_prepare(op, attr, operand types and shapes) →
 * sn_kernel_run(pointers) … many times
 *
 * Kinds: "ref" (plain loops over f32, the oracle, every op), "cpu" (oneDNN for products; own fused
 * attention, norms, GELU, cross-entropy, AdamW; vector width chosen at run time by CPUID).
 *
 * Invariants
 *  1. run allocates nothing, creates no primitive, starts no thread beyond those the card was
 *     opened with.
 *  2. Kernels read and write BF16 or F32 operands (any mix that plan emits); arithmetic and sums
 *     are f32.
 *  3. Bit `o` of `accumulate`: out[o] += result instead of out[o] = result (F32 outputs only).
 *  4. An output may be the same memory as an input only where the op's line says so (adamw) or for
 *     elementwise ops with equal types and shapes.
 *  5. The same inputs give the same bits each time, whatever the number of cards.
 *  6. The caller's floating-point environment (MXCSR) is left as it was. Threads: one card belongs
 *     to one thread. */
#ifndef SN_KERN_KERN_H
#define SN_KERN_KERN_H

#include "base/base.h"
#include "graph/graph.h"

typedef struct sn_card sn_card;
typedef struct sn_kernel sn_kernel;

typedef struct sn_kernel_spec {
    sn_op op;
    sn_attr attr;
    int ins, outs;
    struct {
        sn_dtype dtype;
        sn_shape shape;
        bool absent; /* an optional operand that is not given */
    } in[SN_OP_IN_MAX], out[SN_OP_OUT_MAX];
    uint32_t accumulate;
} sn_kernel_spec;

typedef struct sn_card_opts {
    int threads; /* 0: 1 */
} sn_card_opts;

typedef struct sn_card_kind {
    const char *name, *what;
    bool (*available)(sn_str *ret_why_not);
    sn_status (*open)(const sn_card_opts *opts, sn_card **ret);
} sn_card_kind;
int sn_card_kinds(const sn_card_kind **ret);

/* SN_ENOTFOUND: no such kind (lists them); SN_ENOTSUP: not on this machine (says why). */
sn_status sn_card_open(const char *kind, const sn_card_opts *opts, sn_card **ret);
void sn_card_close(sn_card *card);
const char *sn_card_kind_name(const sn_card *card);

/* Make or find (equal specs share one) the kernel. Owned by the card. Allocates: setup only.
 * SN_ENOTSUP names op, types, shapes. */
sn_status sn_card_prepare(sn_card *card, const sn_kernel_spec *spec, sn_kernel **ret);
sn_status sn_kernel_run(sn_kernel *k, const void *const *in, void *const *out);
uint64_t sn_card_scratch_bytes(const sn_card *card); /* private memory prepared so far */

/* Peak of a register-blocked FMA loop on this core, flops per second, measured for about `budget`
 * ns. */
double sn_kern_fma_peak(sn_time budget);

#endif
