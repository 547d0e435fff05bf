/* SPDX-License-Identifier: Apache-2.0
 *
 * card — what a card kind implements and what surrounds it. Private to kern.
 *
 *   spec ──check──▶ dims ──adapter──▶ kernel:  in (BF16) ─▶ scratch F32 ─▶ impl.run ─▶ scratch ─▶
 * out
 *
 * A kind is a table of kern_impl, one row an op. The adapter in card.c widens BF16 inputs, narrows
 * BF16 outputs and adds accumulated ones wherever a row does not say that it does so itself; so an
 * implementation sees F32 memory only, unless it asked for more.
 *
 * The scratch of a card is one block, as large as its hungriest kernel needs: kernels of a card
 * run one after the other and leave nothing in it. */
#ifndef SN_KERN_CARD_H
#define SN_KERN_CARD_H

#include "kern/kern.h"

/* The sizes an op works on, found by kern_check. Which op uses which:
 *   embedding*      rows positions, cols D, inner V        linear*   rows M, cols N, inner K
 *   *layer_norm*, bias_gelu*, residual                     rows, cols (the last dimension)
 *   row_max, xent_* rows positions, cols V                 attention t b h e
 *   slice           O N I at L in n[0…4]                   pack, unpack  O P L I in n[0…3]
 *   add, sum_to     the walk                               the rest  rows elements
 *   conv*, *pool*   the window                             batch_linear*  b X, then as linear
 *   bn_*, glu*, softmax*, *rms_norm*, activate*  rows, cols (the last dimension)
 *   attend*         t b g h e, s keys (h: query heads of one key head)     rotary  t, rows, cols
 *   moe_*           t tokens, b, h choices a token, g experts, s capacity, cols D */
typedef struct kern_window { /* 1 or 2 spatial dims: the first ones are 1 long */
    int64_t n, c, f, groups;
    int64_t in[3], out[3], size[3], stride[3], dilation[3], before[3];
    int64_t in_count, out_count, size_count; /* their products */
} kern_window;

typedef struct kern_dims {
    int64_t rows, cols, inner;
    int64_t t, b, g, h, e, s;
    int64_t n[5];
    kern_window w;
    /* The larger operand's dimensions, neighbours that walk alike merged, and how far the smaller
     * operand moves along each (0 where it is broadcast). walk ≥ 1; the last is the innermost. */
    int walk;
    int64_t size[SN_RANK_MAX], step[SN_RANK_MAX];
} kern_dims;

struct sn_kernel;

typedef struct kern_impl {
    /* Optional: make state, ask for work_bytes, refuse. */
    sn_status (*prepare)(sn_kernel *k);
    sn_status (*run)(const sn_kernel *k, const void *const *in, void *const *out, void *work);
    void (*done)(sn_kernel *k);
    uint32_t bf16_in, bf16_out; /* operands that run takes as BF16 itself */
    uint32_t accumulates;       /* outputs that run adds to itself */
    bool any_type;              /* moves bytes: takes any type when all operands have the same */
} kern_impl;

typedef struct kern_adapt {
    size_t offset; /* where in the scratch the F32 form lies */
    int64_t count;
    bool used;
} kern_adapt;

struct sn_kernel {
    sn_card *card;
    const kern_impl *impl;
    sn_kernel_spec spec; /* normalised: equal specs are equal bytes */
    kern_dims d;
    kern_adapt in[SN_OP_IN_MAX], out[SN_OP_OUT_MAX];
    bool adapts;
    size_t work_bytes, work_offset;
    void *state; /* the implementation's */
    sn_kernel *next;
};

struct sn_card {
    const char *kind;
    const kern_impl *impl; /* [SN_OP_COUNT] */
    int threads;
    char *scratch;
    size_t scratch_bytes;
    sn_kernel *first;
    void *state; /* the kind's */
    void (*close)(sn_card *card);
    void (*widen)(const uint16_t *in, float *out, int64_t n);
    void (*narrow)(const float *in, uint16_t *out, int64_t n);
    void (*accumulate)(const float *in, float *out, int64_t n);
};

/* Do operands, types and shapes fit the op? Fills the dims. SN_ENOTSUP says what does not. */
sn_status kern_check(const sn_kernel_spec *spec, kern_dims *ret);
/* The same for the ops of ops_tensor.h, by graph's own shape rules. */
bool kern_is_tensor(sn_op op);
sn_status kern_check_tensor(const sn_kernel_spec *spec, kern_dims *ret);
const char *kern_op_name(sn_op op);
/* "linear in F32[2,3] F32[4,3] out F32[2,4]" */
void kern_spec_text(const sn_kernel_spec *spec, sn_str *out);

static inline bool kern_given(const sn_kernel *k, int in)
{
    return in < k->spec.ins && !k->spec.in[in].absent;
}

static inline bool kern_adds(const sn_kernel *k, int out)
{
    return k->spec.accumulate >> out & 1;
}

sn_card *kern_card_create(const char *kind, const kern_impl *impl, const sn_card_opts *opts);

/* The kinds. */
const kern_impl *kern_ref_impls(void);
sn_status kern_ref_open(const sn_card_opts *opts, sn_card **ret);
sn_status kern_cpu_open(const sn_card_opts *opts, sn_card **ret);

#endif
