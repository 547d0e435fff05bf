/* SPDX-License-Identifier: Apache-2.0
 *
 * ops_tensor — the general tensor ops that importers build from: few ops with parameters instead of
 * one for each name that a file format knows. Included by ops.h, whose notation holds here.
 *
 * Any element type where nothing else is said. Operands of one op have one type unless its line
 * says otherwise; arithmetic is in f64 for floating-point types, in 64-bit integers that wrap for
 * the rest. Shapes are static. R = SN_RANK_MAX, so attr.i[R + d] follows attr.i[d].
 */
#ifndef SN_GRAPH_OPS_TENSOR_H
#define SN_GRAPH_OPS_TENSOR_H

/* clang-format off */
#define SN_OP_TENSOR_LIST(X)                                                                       \
    /* y = f(x); attr.i[0] = f (sn_unary), attr.f = its parameters a, b; attr.i[1] is added to the \
     * dims that label ids are made of (a gradient of fewer dims). in: x. is_nan, is_inf give      \
     * BOOL */                                                                                \
    X(SN_OP_UNARY, "unary")                                                                        \
    /* dx = dy · f'(x); attr as unary. in: dy, x */                                                \
    X(SN_OP_UNARY_GRAD, "unary_grad")                                                              \
    /* z = f(x, y), both broadcast as in NumPy; attr.i[0] = f (sn_binary). in: x, y; comparisons   \
     * give BOOL, pow and shifts x's type whatever y's is */                                       \
    X(SN_OP_BINARY, "binary")                                                                      \
    /* z = c ? x : y, all broadcast as in NumPy. in: c BOOL, x, y */                               \
    X(SN_OP_WHERE, "where")                                                                        \
    /* y = x as attr.i[0] = sn_dtype; fractions towards zero, integers wrap; attr.i[1] as unary.   \
     * in: x */                                                                                    \
    X(SN_OP_CAST, "cast")                                                                          \
    /* y = f over the dims d with bit d of attr.i[1] set, which become 1; attr.i[0] = f            \
     * (sn_reduce). in: x */                                                                       \
    X(SN_OP_REDUCE, "reduce")                                                                      \
    /* i I64 = where along dim attr.i[0] the largest (attr.i[1] = 0) or smallest (1) is, the first \
     * one (attr.i[2] = 0) or the last (1); that dim becomes 1. in: x */                           \
    X(SN_OP_ARG, "arg")                                                                            \
    /* y = x with shape attr.shape. in: x */                                                       \
    X(SN_OP_RESHAPE, "reshape")                                                                    \
    /* y's dim d is x's dim attr.i[d]; attr.i[R] = 1: labels follow y's dims (a gradient). in: x */\
    X(SN_OP_TRANSPOSE, "transpose")                                                                \
    /* y[…,j,…] = x[…, start + j·step, …]; attr.shape = y's, attr.i[d] = start, attr.i[R + d] =    \
     * step (may be negative). in: x */                                                            \
    X(SN_OP_STRIDED, "strided")                                                                    \
    /* the adjoint: x of attr.shape, zero but x[…, start + j·step, …] = y; attr.i as strided.      \
     * in: y */                                                                                    \
    X(SN_OP_STRIDED_PUT, "strided_put")                                                            \
    /* y = the operands one after the other along dim attr.i[0]. in: 1 to 8 */                     \
    X(SN_OP_CONCAT, "concat")                                                                      \
    /* y = x with attr.i[d] elements before and attr.i[R + d] after it along dim d, all of value   \
     * attr.f[0]. in: x */                                                                         \
    X(SN_OP_PAD, "pad")                                                                            \
    /* y[…,j,…] = x[…, j mod n, …]; attr.shape = y's, a multiple of x's in each dim. in: x */      \
    X(SN_OP_TILE, "tile")                                                                          \
    /* the adjoint: x[…,i,…] = Σ of y at j mod n = i; attr.shape = x's. in: y */                   \
    X(SN_OP_TILE_SUM, "tile_sum")                                                                  \
    /* y[A…,I…,B…] = x[A…, i, B…], A the dims before attr.i[0], B those after it; an index below 0 \
     * counts from the end, one outside gives 0. in: x, index[I…] I32 or I64 */                    \
    X(SN_OP_GATHER, "gather")                                                                      \
    /* the adjoint: x of attr.shape = Σ of dy at its indices. in: index, dy; attr.i as gather */   \
    X(SN_OP_GATHER_SUM, "gather_sum")                                                              \
    /* y[…,j,…] = x[…, index[…,j,…], …] along dim attr.i[0]; bounds as gather. in: x, index of y's \
     * shape */                                                                                    \
    X(SN_OP_ELEMENTS, "elements")                                                                  \
    /* the adjoint: x of attr.shape = Σ of dy at its indices. in: index, dy; attr.i as elements */ \
    X(SN_OP_ELEMENTS_SUM, "elements_sum")                                                          \
    /* y = x, then y[…, index[…,j,…], …] = f(that, u[…,j,…]) in order; attr.i[0] = dim, attr.i[1] =\
     * f (sn_scatter). Indices outside are left out. in: x, index, u of index's shape */           \
    X(SN_OP_SCATTER, "scatter")                                                                    \
    /* y[P…,J…,S…] = x[P…, index[P…,J…,:], S…]; attr.i[0] = dims of P. in: x, index[P…,J…,L] */    \
    X(SN_OP_GATHER_ND, "gather_nd")                                                                \
    /* y = x, then y[index[J…,:], S…] = f(that, u[J…,S…]); attr.i[1] = f (sn_scatter). in: x,      \
     * index[J…,L], u */                                                                           \
    X(SN_OP_SCATTER_ND, "scatter_nd")                                                              \
    /* y = running sum along dim attr.i[0]; attr.i[1] = 1 without the element itself, attr.i[2] = 1\
     * from the end. in: x */                                                                      \
    X(SN_OP_CUMULATE, "cumulate")                                                                  \
    /* the attr.i[1] largest (attr.i[2] = 0: smallest) along dim attr.i[0], best first, equal ones \
     * by index. in: x. out: values, indices I64 */                                                \
    X(SN_OP_TOP, "top")                                                                            \
    /* z[…,M,N] = Σ_K x[…,M,K]·y[…,K,N] with equal leading dims; attr.i[0], attr.i[1] = 1: x, y    \
     * are given with their last two dims swapped; attr.i[2] tells a gradient's labels: 0 forward  \
     * (which never swaps x), 1 of x, 2 of y, 3 of a swapped y. in: x, y */                        \
    X(SN_OP_MATMUL, "matmul")                                                                      \
    /* y[N,C,K,O] = x[N,C,…] seen through windows: K the places in a window, O the windows, both   \
     * row-major over 1 to 3 spatial dims; attr.i[j] = size, [3 + j] = stride, [6 + j] = dilation, \
     * [9 + j] = padding before, [12 + j] after, of value attr.f[0]. in: x */                      \
    X(SN_OP_UNFOLD, "unfold")                                                                      \
    /* the adjoint: x of attr.shape = Σ of y over the windows; attr.i as unfold. in: y */          \
    X(SN_OP_FOLD, "fold")
/* clang-format on */

/* Functions of one element. a, b: attr.f[0], attr.f[1]. */
#define SN_UNARY_LIST(X)                                                                           \
    X(ABS, "abs")                                                                                  \
    X(AFFINE, "affine") /* a·x + b */                                                              \
    X(NEG, "neg")                                                                                  \
    X(SIGN, "sign")                                                                                \
    X(CEIL, "ceil")                                                                                \
    X(FLOOR, "floor")                                                                              \
    X(ROUND, "round") /* halves to even */                                                         \
    X(SQRT, "sqrt")                                                                                \
    X(RECIPROCAL, "reciprocal")                                                                    \
    X(EXP, "exp")                                                                                  \
    X(LOG, "log")                                                                                  \
    X(SIN, "sin")                                                                                  \
    X(COS, "cos")                                                                                  \
    X(TAN, "tan")                                                                                  \
    X(ASIN, "asin")                                                                                \
    X(ACOS, "acos")                                                                                \
    X(ATAN, "atan")                                                                                \
    X(SINH, "sinh")                                                                                \
    X(COSH, "cosh")                                                                                \
    X(TANH, "tanh")                                                                                \
    X(ASINH, "asinh")                                                                              \
    X(ACOSH, "acosh")                                                                              \
    X(ATANH, "atanh")                                                                              \
    X(ERF, "erf")                                                                                  \
    X(RELU, "relu")                                                                                \
    X(SIGMOID, "sigmoid")                                                                          \
    X(SOFTPLUS, "softplus")                                                                        \
    X(SOFTSIGN, "softsign")                                                                        \
    X(LEAKY_RELU, "leaky_relu")     /* x < 0 ? a·x : x */                                          \
    X(ELU, "elu")                   /* x < 0 ? a·(eˣ − 1) : x */                                   \
    X(SELU, "selu")                 /* b·(x ≤ 0 ? a·(eˣ − 1) : x) */                               \
    X(CELU, "celu")                 /* x < 0 ? a·(e^(x/a) − 1) : x */                              \
    X(HARD_SIGMOID, "hard_sigmoid") /* a·x + b, within 0 and 1 */                                  \
    X(HARD_SWISH, "hard_swish")     /* x·hard_sigmoid(x) with a = 1/6, b = 1/2 */                  \
    X(THRESHOLD, "threshold")       /* x > a ? x : 0 */                                            \
    X(SHRINK, "shrink")             /* x < −a ? x + b : x > a ? x − b : 0 */                       \
    X(NOT, "not")                   /* of BOOL; of integers every bit */                           \
    X(IS_NAN, "is_nan")                                                                            \
    X(IS_INF, "is_inf") /* a ≠ 0: −∞ counts, b ≠ 0: +∞ counts */

/* Functions of two elements. */
#define SN_BINARY_LIST(X)                                                                          \
    X(ADD, "add")                                                                                  \
    X(SUB, "sub")                                                                                  \
    X(MUL, "mul")                                                                                  \
    X(DIV, "div") /* integers: towards zero; by zero 0 */                                          \
    X(POW, "pow")                                                                                  \
    X(MOD, "mod")   /* the sign of y; by integer zero 0 */                                         \
    X(FMOD, "fmod") /* the sign of x */                                                            \
    X(MAX, "max")                                                                                  \
    X(MIN, "min")                                                                                  \
    X(AND, "and") /* bit by bit, like or and xor */                                                \
    X(OR, "or")                                                                                    \
    X(XOR, "xor")                                                                                  \
    X(SHL, "shl")                                                                                  \
    X(SHR, "shr")                                                                                  \
    X(EQ, "eq")                                                                                    \
    X(NE, "ne")                                                                                    \
    X(LT, "lt")                                                                                    \
    X(LE, "le")                                                                                    \
    X(GT, "gt")                                                                                    \
    X(GE, "ge")

#define SN_REDUCE_LIST(X)                                                                          \
    X(SUM, "sum")                                                                                  \
    X(MEAN, "mean")                                                                                \
    X(MAX, "max")                                                                                  \
    X(MIN, "min")                                                                                  \
    X(PROD, "prod")

#define SN_SCATTER_LIST(X)                                                                         \
    X(PUT, "put")                                                                                  \
    X(ADD, "add")                                                                                  \
    X(MUL, "mul")                                                                                  \
    X(MAX, "max")                                                                                  \
    X(MIN, "min")

#define SN_UNARY_ENUM(id, name) SN_UNARY_##id,
#define SN_BINARY_ENUM(id, name) SN_BINARY_##id,
#define SN_REDUCE_ENUM(id, name) SN_REDUCE_##id,
#define SN_SCATTER_ENUM(id, name) SN_SCATTER_##id,
typedef enum sn_unary { SN_UNARY_LIST(SN_UNARY_ENUM) SN_UNARY_COUNT } sn_unary;
typedef enum sn_binary { SN_BINARY_LIST(SN_BINARY_ENUM) SN_BINARY_COUNT } sn_binary;
typedef enum sn_reduce { SN_REDUCE_LIST(SN_REDUCE_ENUM) SN_REDUCE_COUNT } sn_reduce;
typedef enum sn_scatter { SN_SCATTER_LIST(SN_SCATTER_ENUM) SN_SCATTER_COUNT } sn_scatter;
#undef SN_UNARY_ENUM
#undef SN_BINARY_ENUM
#undef SN_REDUCE_ENUM
#undef SN_SCATTER_ENUM

#endif
