/* SPDX-License-Identifier: Apache-2.0
 * The table of one width. Ops that only move bytes are the oracle's; products are
 * oneDNN's, which chooses its own width. */
#include "kern/ref/tensor_table.h"

#define PRODUCT                                                                                    \
    {                                                                                              \
        .prepare = cpu_product_prepare, .run = cpu_product_run, .done = cpu_product_done,          \
        .accumulates = 1                                                                           \
    }

const cpu_isa *CPU(isa)(void)
{
    static const cpu_isa isa = {
        .name = ISA_NAME,
        .lanes = LANES,
        .impl =
            {
                [SN_OP_EMBEDDING] = {.run = embedding},
                [SN_OP_EMBEDDING_GRAD] = {.run = embedding_grad, .accumulates = 1},
                [SN_OP_ADD] = {.run = add},
                [SN_OP_SUM_TO] = {.run = sum_to, .accumulates = 1},
                [SN_OP_RESIDUAL] = {.run = residual},
                [SN_OP_LAYER_NORM] = {.run = layer_norm},
                [SN_OP_LAYER_NORM_GRAD] = {.run = layer_norm_grad, .accumulates = 6},
                [SN_OP_RESIDUAL_LAYER_NORM] = {.run = residual_layer_norm},
                [SN_OP_LINEAR] = PRODUCT,
                [SN_OP_LINEAR_DX] = PRODUCT,
                [SN_OP_LINEAR_DW] = PRODUCT,
                [SN_OP_ATTENTION] = {.run = attention, .prepare = attention_prepare},
                [SN_OP_ATTENTION_GRAD] = {.run = attention_grad, .prepare = attention_prepare},
                [SN_OP_BIAS_GELU] = {.run = bias_gelu},
                [SN_OP_BIAS_GELU_GRAD] = {.run = bias_gelu_grad},
                [SN_OP_ROW_MAX] = {.run = row_max},
                [SN_OP_XENT_SUMS] = {.run = xent_sums},
                [SN_OP_XENT_LOSS] = {.run = xent_loss},
                [SN_OP_XENT_GRAD] = {.run = xent_grad},
                REF_TENSOR_IMPLS,
                [SN_OP_FILL_ZERO] = {.run = ref_fill_zero, .any_type = true},
                [SN_OP_COPY] = {.run = copy, .any_type = true, .bf16_in = 1, .bf16_out = 1},
                [SN_OP_SLICE] = {.run = ref_slice, .any_type = true},
                [SN_OP_UNPACK] = {.run = ref_unpack, .any_type = true},
                [SN_OP_PACK] = {.run = ref_pack, .any_type = true},
                [SN_OP_SUM_SQUARES] = {.run = sum_squares, .accumulates = 1},
                [SN_OP_ADAMW] = {.run = adamw, .bf16_out = 1u << 3},
            },
        .widen = widen,
        .narrow = narrow,
        .accumulate = accumulate,
        .fma_loop = fma_loop,
    };
    return &isa;
}
