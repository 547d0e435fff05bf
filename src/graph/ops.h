/* SPDX-License-Identifier: Apache-2.0
 *
 * ops — the list of operations: what each computes, its operands and attributes. This text is the
 * specification that shape rules, kernels and tests follow. One line here + one row in
 * graph/ops_*.c + one kernel per card kind = a new op. The list has three parts: what models are
 * made of (here), general tensor ops for importers (ops_tensor.h), and what only programs contain.
 *
 * Notation: T B D F V H E are dimensions; "…" any leading dimensions; operands in order; "?"
 * optional (value -1). Integers are I32, everything else F32 (or BF16 storage of it). attr.i,
 * attr.f, attr.shape and attr.begin as named. All sums are in f32.
 *
 * Images are channels-last: x[N,S…,C], S 1 to 3 spatial dims, dense as every tensor; so a bias, a
 * norm or a 1×1 convolution is along the last dim as everywhere else. Weights are w[F,K…,C/G].
 *
 * Windows (convolutions and pools), for the spatial dims j = 0 … 2 in order:
 *   attr.i[j] size (pools), [3 + j] stride, [6 + j] dilation (both: 0 means 1), [9 + j] padding
 *   before, [12 + j] after;   S' = (S + before + after − dilation·(size − 1) − 1) div stride + 1
 *
 * Attributes common to all: attr.begin — where this card's part starts within the split label, 0
 * when not split (only ops with integers or positions in that label care: embedding,
 * embedding_grad, xent_sums, xent_grad, rotary, attend, attend_grad, moe_dispatch, moe_combine,
 * moe_dot; their shard rule says which label it is).
 *
 * A card computes the same op on its local shapes; what a split does to the meaning is the shard
 * rule's business. Kernels take sizes from their operands (attr.shape, V of embedding_grad and X of
 * moe_dispatch hold the whole graph's sizes). The counts n of bn_* are the whole graph's, rightly:
 * their sums are whole by then. */
#ifndef SN_GRAPH_OPS_H
#define SN_GRAPH_OPS_H

#include "graph/ops_tensor.h"

/* X(ENUM, "name") */
/* clang-format off */
#define SN_OP_NN_LIST(X)                                                                           \
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
    /* windows are described below the list. y[N,S'…,F] = Σ_{K…,C/G} x[N,S…,C]·w[F,K…,C/G] (+      \
     * b[F]) over windows of 1 to 3 spatial dims; G groups follow from the shapes (C of x over     \
     * that of w): group j takes the j-th part of C and F. Padding is 0. in: x[N,S…,C],            \
     * w[F,K…,C/G], b[F]?; attr.i windows, sizes unused (they are w's) */                          \
    X(SN_OP_CONV, "conv")                                                                          \
    /* dx[N,S…,C] of attr.shape. in: dy[N,S'…,F], w; attr.i as conv */                             \
    X(SN_OP_CONV_DX, "conv_dx")                                                                    \
    /* dw[F,K…,C/G] of attr.shape. in: dy, x; attr.i as conv (db = sum_to(dy)) */                  \
    X(SN_OP_CONV_DW, "conv_dw")                                                                    \
    /* y = max over windows; padding never wins. in: x[N,S…,C]; attr.i windows */                  \
    X(SN_OP_MAX_POOL, "max_pool")                                                                  \
    /* dx: each dy goes to the first place of its window that holds the maximum, in row-major      \
     * order. in: dy, x; attr as max_pool */                                                       \
    X(SN_OP_MAX_POOL_GRAD, "max_pool_grad")                                                        \
    /* y = mean over windows; attr.i[15] = 1: padding counts as zeros, 0: only elements of x       \
     * count. in: x[N,S…,C]; attr.i windows */                                                     \
    X(SN_OP_AVG_POOL, "avg_pool")                                                                  \
    /* dx of attr.shape. in: dy; attr.i as avg_pool */                                             \
    X(SN_OP_AVG_POOL_GRAD, "avg_pool_grad")                                                        \
    /* y[N,C] = mean over all of S. in: x[N,S…,C] */                                               \
    X(SN_OP_MEAN_POOL, "mean_pool")                                                                \
    /* dx of attr.shape = dy[N,C] over the count of S. in: dy */                                   \
    X(SN_OP_MEAN_POOL_GRAD, "mean_pool_grad")                                                      \
    /* s[2,C] = Σ(x − shift), Σ(x − shift)² over all dims but the last; shift (0 when absent)      \
     * keeps the second from cancelling. in: x[…,C], shift[C]? */                                  \
    X(SN_OP_BN_SUMS, "bn_sums")                                                                    \
    /* mean = shift + s0/n, rstd = 1/sqrt(s1/n − (s0/n)² + epsilon). in: s[2,C], shift[C]?;        \
     * attr.i[0] = n, rows of x in the whole graph; attr.f[0] = epsilon. out: mean[C], rstd[C] */  \
    X(SN_OP_BN_STATS, "bn_stats")                                                                  \
    /* rstd = 1/sqrt(var + epsilon). in: var[C]; attr.f[0] = epsilon */                            \
    X(SN_OP_BN_RSTD, "bn_rstd")                                                                    \
    /* running statistics: mean' = mean + momentum·(batch mean − mean), var' likewise towards      \
     * n/(n−1)·(1/rstd² − epsilon). in: mean[C], var[C], batch mean[C], rstd[C]; attr.i[0] = n,    \
     * attr.f = momentum, epsilon. out: mean'[C], var'[C] (each may be the memory of its input) */ \
    X(SN_OP_BN_TRACK, "bn_track")                                                                  \
    /* y = act((x − mean)·rstd·g + b + r). in: x[…,C], mean[C], rstd[C], g[C], b[C], r[…,C]?;      \
     * attr.i[0] = 0: act is the identity, 1: relu */                                              \
    X(SN_OP_BN_NORM, "bn_norm")                                                                    \
    /* with d = dy, or dy·[y > 0] when y is given, and h = (x − mean)·rstd: db = Σd, dg = Σd·h,    \
     * t = both (t0 = db, t1 = dg), over all dims but the last. in: dy[…,C], x, mean, rstd, y?     \
     * out: dg[C], db[C], t[2,C] */                                                                \
    X(SN_OP_BN_GRAD_SUMS, "bn_grad_sums")                                                          \
    /* dx = g·rstd·(d − t0/n − h·t1/n); without t (mean and rstd are constants) g·rstd·d. in:      \
     * dy, x, mean, rstd, g, t[2,C]?, y?; attr.i[0] = n */                                         \
    X(SN_OP_BN_DX, "bn_dx")                                                                        \
    /* y = f(x + b), b broadcast over the leading dims; attr.i[0] = f (sn_act). in: x[…,F],        \
     * b[F]? */                                                                                    \
    X(SN_OP_ACTIVATE, "activate")                                                                  \
    /* dx = dy·f'(x + b); attr as activate. in: dy, x, b? (relu: y does for x + b). (db =          \
     * sum_to(dx)) */                                                                              \
    X(SN_OP_ACTIVATE_GRAD, "activate_grad")                                                        \
    /* y[…,F] = f(x[…,0,F])·x[…,1,F]; attr.i[0] = f (sn_act; silu: SwiGLU). in: x[…,2,F] */        \
    X(SN_OP_GLU, "glu")                                                                            \
    /* dx[…,2,F]. in: dy[…,F], x[…,2,F]; attr as glu */                                            \
    X(SN_OP_GLU_GRAD, "glu_grad")                                                                  \
    /* y = exp(x − max) / Σ exp(x − max) over the last dim. in: x[…,D] */                          \
    X(SN_OP_SOFTMAX, "softmax")                                                                    \
    /* dx = y·(dy − Σ dy·y). in: dy[…,D], y[…,D] */                                                \
    X(SN_OP_SOFTMAX_GRAD, "softmax_grad")                                                          \
    /* y = x·rstd·g, rstd = 1/sqrt(mean x² + epsilon) over the last dim; attr.f[0] = epsilon.      \
     * in: x[…,D], g[D]. out: y[…,D], rstd[…] */                                                   \
    X(SN_OP_RMS_NORM, "rms_norm")                                                                  \
    /* in: dy[…,D], x[…,D], g[D], rstd[…], ds[…,D]? out: dx[…,D] (+ ds when given), dg[D] */       \
    X(SN_OP_RMS_NORM_GRAD, "rms_norm_grad")                                                        \
    /* residual then rms_norm in one pass. in: x[…,D], r[…,D], rb[D]?, g[D]; attr.f[0] =           \
     * epsilon. out: s[…,D], y[…,D], rstd[…] */                                                    \
    X(SN_OP_RESIDUAL_RMS_NORM, "residual_rms_norm")                                                \
    /* pairs (a, c) of the first P elements of the last dim turn by the angle t·base^(−2j/P), t    \
     * = begin + index of the first dim: (a·cos − c·sin, a·sin + c·cos). attr.i[0] = 0: pair j     \
     * is (j, j + P/2), 1: (2j, 2j + 1); attr.i[1] = P (0: all of E); attr.i[2] = 1: the other     \
     * way round (the gradient); attr.f[0] = base; attr.begin. in: x[T,…,E] */                     \
    X(SN_OP_ROTARY, "rotary")                                                                      \
    /* softmax attention with G key and value heads, each for R query heads. Query t sees key j    \
     * when (not causal or j ≤ begin + t) and (no mask or mask[j,b] ≠ 0); one that sees none       \
     * gives 0 and lse −∞. in: q[T,B,G,R,E], k[S,B,G,E], v[S,B,G,E], mask[S,B]? I32; attr.f[0]     \
     * = scale, attr.i[0] = 1 causal, 0 full; attr.begin. out: o[T,B,G,R,E], lse[B,G,R,T] */       \
    X(SN_OP_ATTEND, "attend")                                                                      \
    /* in: do, q, k, v, o, lse, mask?; attr as attend. out: dq, dk, dv */                          \
    X(SN_OP_ATTEND_GRAD, "attend_grad")                                                            \
    /* y = x[attr.i[0], …]. in: x[T,…] */                                                          \
    X(SN_OP_TAKE, "take")                                                                          \
    /* dx of attr.shape: dy at attr.i[0] of the first dim, 0 elsewhere. in: dy */                  \
    X(SN_OP_TAKE_GRAD, "take_grad")                                                                \
    /* y[X,…,N…] = Σ_K x[X,…,K…]·w[X,N…,K…]: a linear for each X. in: x, w; attr.i[0] = dims of    \
     * K */                                                                                        \
    X(SN_OP_BATCH_LINEAR, "batch_linear")                                                          \
    /* dx[X,…,K…]. in: dy, w; attr.i[0] = dims of K, attr.i[1] = dims of N */                      \
    X(SN_OP_BATCH_LINEAR_DX, "batch_linear_dx")                                                    \
    /* dw[X,N…,K…]. in: dy, x; attr as batch_linear_dx */                                          \
    X(SN_OP_BATCH_LINEAR_DW, "batch_linear_dw")                                                    \
    /* p = softmax(x); the k most probable experts of each token, best first, equal ones by        \
     * number; weight = their p, divided by the sum of the k when attr.i[2] = 1. Tokens of one     \
     * sample b take the places 0 … capacity − 1 of an expert in the order of (choice, t);         \
     * place −1: the expert is full, the token passes it by. in: x[T,B,X]; attr.i[0] = k,          \
     * attr.i[1] = capacity. out: weight[T,B,k], expert[T,B,k] I32, place[T,B,k] I32, p[T,B,X] */  \
    X(SN_OP_MOE_ROUTE, "moe_route")                                                                \
    /* dx through weight and p. in: expert, p, dweight[T,B,k]?, dp[T,B,X]?; attr as moe_route */   \
    X(SN_OP_MOE_ROUTE_GRAD, "moe_route_grad")                                                      \
    /* y[e − begin, place, b] = x[t,b] (· weight[t,b,j]) for each (t,b,j) with expert e here       \
     * and place ≥ 0; 0 where nobody is. in: x[T,B,D], expert[T,B,k], place[T,B,k], weight?;       \
     * attr.i[0] = X, attr.i[1] = capacity; attr.begin. out: y[X,capacity,B,D] */                  \
    X(SN_OP_MOE_DISPATCH, "moe_dispatch")                                                          \
    /* the adjoint: z[t,b] = Σ_j (weight[t,b,j] ·) y[e_j − begin, place_j, b], 0 for those         \
     * passed by. in: y[X,capacity,B,D], expert, place, weight?; attr.begin */                     \
    X(SN_OP_MOE_COMBINE, "moe_combine")                                                            \
    /* dw[t,b,j] = Σ_D x[t,b]·y[e_j − begin, place_j, b]: the gradient of both by weight. in:      \
     * x[T,B,D], y[X,capacity,B,D], expert, place; attr.begin. out: dw[T,B,k] */                   \
    X(SN_OP_MOE_DOT, "moe_dot")                                                                    \
    /* loss[] = scale·Σ_b X·Σ_e f·P: f the share of the (t, j) of sample b that chose e, P the     \
     * mean of p over t (Fedus et al. 2021). in: p[T,B,X], expert[T,B,k]; attr.f[0] = scale */     \
    X(SN_OP_MOE_BALANCE, "moe_balance")                                                            \
    /* dp, f a constant. in: p, expert; attr as moe_balance */                                     \
    X(SN_OP_MOE_BALANCE_GRAD, "moe_balance_grad")                                                  \
    /* loss[] = scale·Σ (x − target)²; attr.f[0] = scale. in: x, target of one shape */            \
    X(SN_OP_MSE_LOSS, "mse_loss")                                                                  \
    /* dx = 2·scale·(x − target). in: x, target; attr.f[0] = scale */                              \
    X(SN_OP_MSE_GRAD, "mse_grad")                                                                  \
    /* y = attr.f[0] everywhere, of attr.shape */                                                  \
    X(SN_OP_CONSTANT, "constant")

/* Ops that only programs contain: plan emits them; no shape rule for users, no backward. */
#define SN_OP_PROGRAM_LIST(X)                                                                      \
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

#define SN_OP_LIST(X) SN_OP_NN_LIST(X) SN_OP_TENSOR_LIST(X) SN_OP_PROGRAM_LIST(X)

typedef enum sn_op {
#define SN_OP_ENUM(id, name) id,
    SN_OP_LIST(SN_OP_ENUM)
#undef SN_OP_ENUM
        SN_OP_COUNT
} sn_op;

/* Functions of activate and glu. */
typedef enum sn_act {
    SN_ACT_NONE,
    SN_ACT_RELU,
    SN_ACT_GELU,      /* exact: x·Φ(x) */
    SN_ACT_GELU_TANH, /* its tanh form */
    SN_ACT_SILU,      /* x·σ(x) */
    SN_ACT_TANH,
    SN_ACT_SIGMOID,
    SN_ACT_COUNT
} sn_act;

#define SN_OP_IN_MAX 8
#define SN_OP_OUT_MAX 6

#endif
