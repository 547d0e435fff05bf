/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor_table — the rows of ops_tensor.h for a card kind that runs them as the oracle does. They
 * read and write every type themselves. */
#ifndef SN_KERN_REF_TENSOR_TABLE_H
#define SN_KERN_REF_TENSOR_TABLE_H

#include "kern/ref/ref.h"

REF_RUN(unary);
REF_RUN(unary_grad);
REF_RUN(binary);
REF_RUN(where);
REF_RUN(cast);
REF_RUN(reduce);
REF_RUN(arg);
REF_RUN(cumulate);
REF_RUN(top);
REF_RUN(reshape);
REF_RUN(transpose);
REF_RUN(strided);
REF_RUN(strided_put);
REF_RUN(concat);
REF_RUN(pad);
REF_RUN(tile);
REF_RUN(tile_sum);
REF_RUN(gather);
REF_RUN(gather_sum);
REF_RUN(elements);
REF_RUN(elements_sum);
REF_RUN(scatter);
REF_RUN(gather_nd);
REF_RUN(scatter_nd);
REF_RUN(matmul);
REF_RUN(unfold);
REF_RUN(fold);

/* prepare: ask for work. */
sn_status REF(line)(sn_kernel *k);        /* an entry for each element of a line */
sn_status REF(matmul_work)(sn_kernel *k); /* the second matrix and a row of the others */
sn_status REF(image)(sn_kernel *k);       /* a double for each place of an image */

#define TENSOR_IMPL(name, ask)                                                                     \
    {                                                                                              \
        .run = REF(name), .prepare = ask, .any_type = true, .bf16_in = ~0u, .bf16_out = ~0u        \
    }

#define REF_TENSOR_IMPLS                                                                           \
    [SN_OP_UNARY] = TENSOR_IMPL(unary, NULL), [SN_OP_UNARY_GRAD] = TENSOR_IMPL(unary_grad, NULL),  \
    [SN_OP_BINARY] = TENSOR_IMPL(binary, NULL), [SN_OP_WHERE] = TENSOR_IMPL(where, NULL),          \
    [SN_OP_CAST] = TENSOR_IMPL(cast, NULL), [SN_OP_REDUCE] = TENSOR_IMPL(reduce, REF(outputs)),    \
    [SN_OP_ARG] = TENSOR_IMPL(arg, NULL), [SN_OP_CUMULATE] = TENSOR_IMPL(cumulate, NULL),          \
    [SN_OP_TOP] = TENSOR_IMPL(top, REF(line)), [SN_OP_RESHAPE] = TENSOR_IMPL(reshape, NULL),       \
    [SN_OP_TRANSPOSE] = TENSOR_IMPL(transpose, NULL),                                              \
    [SN_OP_STRIDED] = TENSOR_IMPL(strided, NULL),                                                  \
    [SN_OP_STRIDED_PUT] = TENSOR_IMPL(strided_put, NULL),                                          \
    [SN_OP_CONCAT] = TENSOR_IMPL(concat, NULL), [SN_OP_PAD] = TENSOR_IMPL(pad, NULL),              \
    [SN_OP_TILE] = TENSOR_IMPL(tile, NULL),                                                        \
    [SN_OP_TILE_SUM] = TENSOR_IMPL(tile_sum, REF(outputs)),                                        \
    [SN_OP_GATHER] = TENSOR_IMPL(gather, NULL),                                                    \
    [SN_OP_GATHER_SUM] = TENSOR_IMPL(gather_sum, REF(outputs)),                                    \
    [SN_OP_ELEMENTS] = TENSOR_IMPL(elements, NULL),                                                \
    [SN_OP_ELEMENTS_SUM] = TENSOR_IMPL(elements_sum, REF(outputs)),                                \
    [SN_OP_SCATTER] = TENSOR_IMPL(scatter, NULL),                                                  \
    [SN_OP_GATHER_ND] = TENSOR_IMPL(gather_nd, NULL),                                              \
    [SN_OP_SCATTER_ND] = TENSOR_IMPL(scatter_nd, NULL),                                            \
    [SN_OP_MATMUL] = TENSOR_IMPL(matmul, REF(matmul_work)),                                        \
    [SN_OP_UNFOLD] = TENSOR_IMPL(unfold, NULL), [SN_OP_FOLD] = TENSOR_IMPL(fold, REF(image))

#endif
