/* SPDX-License-Identifier: Apache-2.0
 *
 * ops — the list of operations: what each computes, its operands and attributes. This text is the
 * specification that shape rules, kernels and tests follow. One line here + one row in
 * graph/ops_*.c + one kernel per card kind = a new op.
 *
 * Notation: T B D F V H E are dimensions; "…" any leading dimensions; operands in order; "?"
 * optional (value -1). Integers are I32, everything else F32 (or BF16 storage of it). attr.i,
 * attr.f, attr.shape and attr.begin as named. All sums are in f32.
 *
 * Attributes common to all: attr.begin — where this card's part starts within the split label, 0
 * when not split (only ops whose integers are positions in that label care: embedding,
 * embedding_grad, xent_sums, xent_grad; their shard rule says which label it is).
 *
 * A card computes the same op on its local shapes; what a split does to the meaning is the shard
 * rule's business. Kernels take sizes from their operands (attr.shape and attr.i[0] = V of
 * embedding_grad hold the whole graph's sizes). */
#ifndef SN_GRAPH_OPS_H
#define SN_GRAPH_OPS_H

#include "graph/ops_tensor.h"

/* X(ENUM, "name") */
/* clang-format off */
#define SN_OP_LIST(X)                                                                              \
    /* y[…,D] = table[id − begin] for begin ≤ id < begin + V, else 0. in: table[V,D],              \
     * ids[…] I32. attr.begin */                                                                   \
    X(SN_OP_EMBEDDING, "embedding")                                                                \
    /* dtable[V,D] = Σ over positions with id − begin = v of dy. in: ids[…], dy[…,D].              \
     * attr.i[0] = V; attr.begin */                                                                \
    X(SN_OP_EMBEDDING_GRAD, "embedding_grad")                                                      \
    /* z = x + y; y broadcasts into x: y's dims, aligned at the end, each equal x's or are         \
     * 1. in: x, y */                                                                              \
    X(SN_OP_ADD, "add")                                                                            \
    /* y = x summed down to attr.shape (the adjoint of broadcasting). in: x;               \
     * attr.i[0]: how many last dims its labels count from the end (shard rule only) */           \
    X(SN_OP_SUM_TO, "sum_to")                                                                      \
    /* s = x + r + b, b broadcast over the leading dims. in: x[…,D], r[…,D], b[D]? */              \
    X(SN_OP_RESIDUAL, "residual")                                                                  \
    /* y = (x − mean)·rstd·g + b over the last dim; attr.f[0] = epsilon. in: x[…,D], g[D],         \
     * b[D] out: y[…,D], mean[…], rstd[…] */                                                       \
    X(SN_OP_LAYER_NORM, "layer_norm")                                                              \
    /* in: dy[…,D], x[…,D], g[D], mean[…], rstd[…]; ds[…,D]? out: dx[…,D] (+ ds when               \
     * given), dg[D], db[D] */                                                                     \
    X(SN_OP_LAYER_NORM_GRAD, "layer_norm_grad")                                                    \
    /* residual then layer_norm in one pass. in: x[…,D], r[…,D], rb[D]?, g[D], b[D];               \
     * attr.f[0] = epsilon out: s[…,D], y[…,D], mean[…], rstd[…] */                                \
    X(SN_OP_RESIDUAL_LAYER_NORM, "residual_layer_norm")                                            \
    /* y[…,N…] = Σ_K x[…,K…]·w[N…,K…] (+ b[N…]). in: x, w, b?; attr.i[0] = how many dims K         \
     * has */                                                                                      \
    X(SN_OP_LINEAR, "linear")                                                                      \
    /* dx[…,K…] = Σ_N dy[…,N…]·w[N…,K…]. in: dy, w; attr.i[0] = dims of K, attr.i[1] = dims        \
     * of N */                                                                                     \
    X(SN_OP_LINEAR_DX, "linear_dx")                                                                \
    /* dw[N…,K…] = Σ_… dy[…,N…]·x[…,K…]. in: dy, x; attr as linear_dx */                           \
    X(SN_OP_LINEAR_DW, "linear_dw")                                                                \
    /* causal softmax attention. in: qkv[T,B,H,3,E] (q, k, v along the 3); attr.f[0] =             \
     * scale, attr.i[0] = 1 causal, 0 full out: o[T,B,H,E], lse[B,H,T] = log Σ                     \
     * exp(scale·q·k) of each row, for backward */                                                 \
    X(SN_OP_ATTENTION, "attention")                                                                \
    /* in: do[T,B,H,E], qkv, o, lse; attr as attention. out: dqkv[T,B,H,3,E] */                    \
    X(SN_OP_ATTENTION_GRAD, "attention_grad")                                                      \
    /* y = gelu(x + b); attr.i[0] = 0 exact (erf), 1 tanh form. in: x[…,F], b[F] */                \
    X(SN_OP_BIAS_GELU, "bias_gelu")                                                                \
    /* dx = dy · gelu'(x + b). in: dy[…,F], x[…,F], b[F]; attr as bias_gelu. (db =                 \
     * sum_to(dx)) */                                                                              \
    X(SN_OP_BIAS_GELU_GRAD, "bias_gelu_grad")                                                      \
    /* m[…] = max over the last dim. in: x[…,V] */                                                 \
    X(SN_OP_ROW_MAX, "row_max")                                                                    \
    /* s[…,2]: s0 = Σ_v exp(x − m), s1 = x[target − begin] when begin ≤ target < begin + V,        \
     * else 0. in: x[…,V], target[…] I32 (negative: ignored position), m[…]; attr.begin */         \
    X(SN_OP_XENT_SUMS, "xent_sums")                                                                \
    /* loss[] = scale · Σ over positions with target ≥ 0 of (m + log s0 − s1); attr.f[0] =         \
     * scale in: m[…], s[…,2], target[…] */                                                        \
    X(SN_OP_XENT_LOSS, "xent_loss")                                                                \
    /* dx[…,V] = scale · (exp(x − m)/s0 − [v + begin = target]), 0 at ignored positions in:        \
     * x[…,V], target[…], m[…], s[…,2]; attr.f[0] = scale; attr.begin */                           \
    X(SN_OP_XENT_GRAD, "xent_grad")                                                                \
    SN_OP_TENSOR_LIST(X)                                                                           \
    /* ---- ops that only programs contain (plan emits them; no shape rule for users, no           \
     * backward) ---- */                                                                           \
    /* out = 0 */                                                                                  \
    X(SN_OP_FILL_ZERO, "fill_zero")                                                                \
    /* out = in, converting the type if they differ. in: x */                                      \
    X(SN_OP_COPY, "copy")                                                                          \
    /* out[O,L,I] = in[O, at … at+L, I]: a slice. in: x[O,N,I] (any shape seen as three            \
     * dims); attr.i[0] = O, [1] = N, [2] = I, [3] = at, [4] = L */                                \
    X(SN_OP_SLICE, "slice")                                                                        \
    /* out[O,P,L,I] = in[P,O,L,I]: what an all-gather along an inner dim needs after it.           \
     * attr.i = O, P, L, I */                                                                      \
    X(SN_OP_UNPACK, "unpack")                                                                      \
    /* out[P,O,L,I] = in[O,P,L,I]: what a reduce-scatter along an inner dim needs before           \
     * it. attr.i = O, P, L, I */                                                                  \
    X(SN_OP_PACK, "pack")                                                                          \
    /* out[1] = attr.f[0] · Σ x² (accumulates into out when the accumulate bit is set). in:        \
     * x[n] F32 */                                                                                 \
    X(SN_OP_SUM_SQUARES, "sum_squares")                                                            \
    /* AdamW on a flat range. in: g[n] (F32 or BF16), hyper[8] F32 = {lr, beta1, beta2,            \
     * eps, weight_decay, 1/(1−beta1^t), 1/(1−beta2^t), max_norm (0: no clipping)},                \
     * norm2[1] (Σ g² of the whole model) in and out: master[n] F32, m[n] F32, v[n] F32.           \
     * out: p[n] F32 or BF16 (may be master itself) attr.f[0] = 1 when weight decay                \
     * applies, else 0. clip = max_norm > 0 and sqrt(norm2) > max_norm ? max_norm /                \
     * sqrt(norm2) : 1; a norm2 that is not finite leaves everything untouched (the step is        \
     * skipped). master −= lr·(m̂/(sqrt(v̂)+eps) + decay·weight_decay·master) operands: in         \
     * = g, hyper, norm2; out = master, m, v, p */                                                 \
    X(SN_OP_ADAMW, "adamw")
/* clang-format on */

typedef enum sn_op {
#define SN_OP_ENUM(id, name) id,
    SN_OP_LIST(SN_OP_ENUM)
#undef SN_OP_ENUM
        SN_OP_COUNT
} sn_op;

#define SN_OP_IN_MAX 8
#define SN_OP_OUT_MAX 6

#endif
