/* SPDX-License-Identifier: Apache-2.0
 * The table of one width. Ops that only move bytes are the oracle's. */
#include "kern/ref/tensor_table.h"

#define PRODUCT                                                                                    \
    {                                                                                              \
        .prepare = product_prepare, .run = product, .done = cpu_product_done, .accumulates = 1     \
    }

#define CONV                                                                                       \
    {                                                                                              \
        .prepare = conv_prepare, .run = conv, .done = cpu_conv_done                                \
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
                [SN_OP_CONV] = CONV,
                [SN_OP_CONV_DX] = CONV,
                [SN_OP_CONV_DW] = CONV,
                [SN_OP_MAX_POOL] = {.run = max_pool},
                [SN_OP_MAX_POOL_GRAD] = {.run = max_pool_grad, .prepare = max_pool_grad_prepare},
                [SN_OP_AVG_POOL] = {.run = ref_avg_pool},
                [SN_OP_AVG_POOL_GRAD] = {.run = ref_avg_pool_grad, .prepare = ref_outputs},
                [SN_OP_MEAN_POOL] = {.run = mean_pool},
                [SN_OP_MEAN_POOL_GRAD] = {.run = mean_pool_grad},
                [SN_OP_BN_SUMS] = {.run = bn_sums, .accumulates = 1},
                [SN_OP_BN_STATS] = {.run = ref_bn_stats},
                [SN_OP_BN_RSTD] = {.run = ref_bn_rstd},
                [SN_OP_BN_TRACK] = {.run = ref_bn_track},
                [SN_OP_BN_NORM] = {.run = bn_norm},
                [SN_OP_BN_GRAD_SUMS] = {.run = bn_grad_sums, .accumulates = 7},
                [SN_OP_BN_DX] = {.run = bn_dx},
                [SN_OP_ACTIVATE] = {.run = activate},
                [SN_OP_ACTIVATE_GRAD] = {.run = activate_grad},
                [SN_OP_GLU] = {.run = ref_glu},
                [SN_OP_GLU_GRAD] = {.run = ref_glu_grad},
                [SN_OP_SOFTMAX] = {.run = softmax},
                [SN_OP_SOFTMAX_GRAD] = {.run = softmax_grad},
                [SN_OP_RMS_NORM] = {.run = ref_rms_norm},
                [SN_OP_RMS_NORM_GRAD] = {.run = ref_rms_norm_grad, .prepare = ref_columns},
                [SN_OP_RESIDUAL_RMS_NORM] = {.run = ref_residual_rms_norm},
                [SN_OP_ROTARY] = {.run = ref_rotary},
                [SN_OP_ATTEND] = {.run = attend, .prepare = attend_prepare},
                [SN_OP_ATTEND_GRAD] = {.run = attend_grad, .prepare = attend_prepare},
                [SN_OP_TAKE] = {.run = ref_take},
                [SN_OP_TAKE_GRAD] = {.run = ref_take_grad},
                [SN_OP_BATCH_LINEAR] = {.run = ref_batch_linear},
                [SN_OP_BATCH_LINEAR_DX] = {.run = ref_batch_linear_dx},
                [SN_OP_BATCH_LINEAR_DW] = {.run = ref_batch_linear_dw},
                [SN_OP_MOE_ROUTE] = {.run = ref_moe_route, .prepare = ref_experts},
                [SN_OP_MOE_ROUTE_GRAD] = {.run = ref_moe_route_grad, .prepare = ref_experts},
                [SN_OP_MOE_DISPATCH] = {.run = ref_moe_dispatch},
                [SN_OP_MOE_COMBINE] = {.run = ref_moe_combine},
                [SN_OP_MOE_DOT] = {.run = ref_moe_dot},
                [SN_OP_MOE_BALANCE] = {.run = ref_moe_balance, .prepare = ref_experts},
                [SN_OP_MOE_BALANCE_GRAD] = {.run = ref_moe_balance_grad, .prepare = ref_experts},
                [SN_OP_MSE_LOSS] = {.run = ref_mse_loss},
                [SN_OP_MSE_GRAD] = {.run = ref_mse_grad},
                [SN_OP_CONSTANT] = {.run = ref_constant},
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
