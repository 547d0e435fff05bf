/* SPDX-License-Identifier: Apache-2.0
 * The oracle's table: which loop computes which op. */
#include "kern/ref/ref.h"
#include "kern/ref/tensor_table.h"

const kern_impl *REF_IMPLS(void)
{
    static const kern_impl impls[SN_OP_COUNT] = {
        [SN_OP_EMBEDDING] = {.run = REF(embedding)},
        [SN_OP_EMBEDDING_GRAD] = {.run = REF(embedding_grad), .prepare = REF(outputs)},
        [SN_OP_ADD] = {.run = REF(add)},
        [SN_OP_SUM_TO] = {.run = REF(sum_to), .prepare = REF(outputs)},
        [SN_OP_RESIDUAL] = {.run = REF(residual)},
        [SN_OP_LAYER_NORM] = {.run = REF(layer_norm)},
        [SN_OP_LAYER_NORM_GRAD] = {.run = REF(layer_norm_grad), .prepare = REF(columns)},
        [SN_OP_RESIDUAL_LAYER_NORM] = {.run = REF(residual_layer_norm)},
        [SN_OP_LINEAR] = {.run = REF(linear)},
        [SN_OP_LINEAR_DX] = {.run = REF(linear_dx)},
        [SN_OP_LINEAR_DW] = {.run = REF(linear_dw)},
        [SN_OP_ATTENTION] = {.run = REF(attention), .prepare = REF(row)},
        [SN_OP_ATTENTION_GRAD] = {.run = REF(attention_grad), .prepare = REF(row_grad)},
        [SN_OP_BIAS_GELU] = {.run = REF(bias_gelu)},
        [SN_OP_BIAS_GELU_GRAD] = {.run = REF(bias_gelu_grad)},
        [SN_OP_ROW_MAX] = {.run = REF(row_max)},
        [SN_OP_XENT_SUMS] = {.run = REF(xent_sums)},
        [SN_OP_XENT_LOSS] = {.run = REF(xent_loss)},
        [SN_OP_XENT_GRAD] = {.run = REF(xent_grad)},
        REF_TENSOR_IMPLS,
        [SN_OP_FILL_ZERO] = {.run = REF(fill_zero), .any_type = true},
        [SN_OP_COPY] = {.run = REF(copy), .any_type = true},
        [SN_OP_SLICE] = {.run = REF(slice), .any_type = true},
        [SN_OP_UNPACK] = {.run = REF(unpack), .any_type = true},
        [SN_OP_PACK] = {.run = REF(pack), .any_type = true},
        [SN_OP_SUM_SQUARES] = {.run = REF(sum_squares)},
        [SN_OP_ADAMW] = {.run = REF(adamw), .bf16_out = 1u << 3},
    };
    return impls;
}
