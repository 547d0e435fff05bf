/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of cases: one line a case, every op at least once, odd sizes included.
 *
 * Operands are words: a letter for what they hold, then the dimensions.
 *   f normal numbers   p positive ones   i indices −1 … 9   h AdamW's hyper   - absent
 * `adds` are accumulate bits. F32 throughout; the tests derive the BF16 forms. */
#ifndef SN_TEST_KERN_CASES_H
#define SN_TEST_KERN_CASES_H

#include "kern/kern.h"

typedef struct kern_case {
    sn_op op;
    const char *ins, *outs;
    sn_attr attr;
    uint32_t adds;
} kern_case;

#define INTS(...)                                                                                  \
    {                                                                                              \
        .i = { __VA_ARGS__ }                                                                       \
    }
#define REALS(...)                                                                                 \
    {                                                                                              \
        .f = { __VA_ARGS__ }                                                                       \
    }

#define NONE                                                                                       \
    {                                                                                              \
        .begin = 0                                                                                 \
    }

static const kern_case kern_cases[] = {
    {SN_OP_EMBEDDING, "f10,16 i6", "f6,16", NONE, 0},
    {SN_OP_EMBEDDING, "f5,7 i3,4", "f3,4,7", {.begin = 2}, 0},
    {SN_OP_EMBEDDING, "f5,7 i3,4", "f3,4,7", {.begin = 2}, 1},
    {SN_OP_EMBEDDING_GRAD, "i6 f6,16", "f10,16", INTS(10), 0},
    {SN_OP_EMBEDDING_GRAD, "i3,4 f3,4,7", "f5,7", {.i = {5}, .begin = 2}, 0},
    {SN_OP_EMBEDDING_GRAD, "i3,4 f3,4,7", "f5,7", {.i = {5}, .begin = 2}, 1},
    {SN_OP_ADD, "f4,5,33 f4,5,33", "f4,5,33", NONE, 0},
    {SN_OP_ADD, "f4,5,33 f4,1,33", "f4,5,33", NONE, 0},
    {SN_OP_ADD, "f4,5,33 f33", "f4,5,33", NONE, 0},
    {SN_OP_ADD, "f4,5,33 f5,1", "f4,5,33", NONE, 0},
    {SN_OP_ADD, "f4,5,33 f", "f4,5,33", NONE, 0},
    {SN_OP_ADD, "f2,3,1,5,1,7 f3,1,1,1,7", "f2,3,1,5,1,7", NONE, 0},
    {SN_OP_ADD, "f f", "f", NONE, 0},
    {SN_OP_SUM_TO, "f4,5,33", "f4,1,33", {.shape = {3, {4, 1, 33}}}, 0},
    {SN_OP_SUM_TO, "f40,5,64", "f64", {.shape = {1, {64}}}, 1},
    {SN_OP_SUM_TO, "f4,5,33", "f5,1", {.shape = {2, {5, 1}}}, 0},
    {SN_OP_SUM_TO, "f4,5,33", "f", {.shape = {0}}, 1},
    {SN_OP_SUM_TO, "f4,5,33", "f4,5,33", {.shape = {3, {4, 5, 33}}}, 0},
    {SN_OP_RESIDUAL, "f3,5,48 f3,5,48 f48", "f3,5,48", NONE, 0},
    {SN_OP_RESIDUAL, "f3,5,37 f3,5,37 -", "f3,5,37", NONE, 0},
    {SN_OP_RESIDUAL, "f3,5,37 f3,5,37", "f3,5,37", NONE, 1},
    {SN_OP_LAYER_NORM, "f7,64 f64 f64", "f7,64 f7 f7", REALS(1e-5), 0},
    {SN_OP_LAYER_NORM, "f3,5,37 f37 f37", "f3,5,37 f3,5 f3,5", REALS(1e-5), 0},
    {SN_OP_LAYER_NORM, "f9,1 f1 f1", "f9,1 f9 f9", REALS(1e-2), 0},
    {SN_OP_LAYER_NORM_GRAD, "f7,64 f7,64 f64 f7 p7 -", "f7,64 f64 f64", NONE, 0},
    {SN_OP_LAYER_NORM_GRAD, "f7,64 f7,64 f64 f7 p7", "f7,64 f64 f64", NONE, 6},
    {SN_OP_LAYER_NORM_GRAD, "f3,5,37 f3,5,37 f37 f3,5 p3,5 f3,5,37", "f3,5,37 f37 f37", NONE, 7},
    {SN_OP_RESIDUAL_LAYER_NORM, "f7,64 f7,64 f64 f64 f64", "f7,64 f7,64 f7 f7", REALS(1e-5), 0},
    {SN_OP_RESIDUAL_LAYER_NORM, "f3,5,37 f3,5,37 - f37 f37", "f3,5,37 f3,5,37 f3,5 f3,5",
     REALS(1e-5), 0},
    {SN_OP_LINEAR, "f8,16 f4,16 f4", "f8,4", INTS(1), 0},
    {SN_OP_LINEAR, "f1,1 f1,1", "f1,1", INTS(1), 0},
    {SN_OP_LINEAR, "f200,131 f67,131 f67", "f200,67", INTS(1), 0},
    {SN_OP_LINEAR, "f13,257 f129,257 -", "f13,129", INTS(1), 0},
    {SN_OP_LINEAR, "f3,5,2,9 f3,7,2,9 f3,7", "f3,5,3,7", INTS(2), 1},
    {SN_OP_LINEAR, "f197,64 f192,64 f192", "f197,192", INTS(1), 0},
    {SN_OP_LINEAR, "f5,0 f6,0 f6", "f5,6", INTS(1), 0},
    {SN_OP_LINEAR, "f5,0 f6,0 f6", "f5,6", INTS(1), 1},
    {SN_OP_LINEAR_DW, "f0,5 f0,6", "f5,6", INTS(1, 1), 0},
    {SN_OP_LINEAR_DW, "f0,5 f0,6", "f5,6", INTS(1, 1), 1},
    {SN_OP_LINEAR_DX, "f5,0 f0,6", "f5,6", INTS(1, 1), 0},
    {SN_OP_LINEAR, "f0,5 f6,5", "f0,6", INTS(1), 0},
    {SN_OP_LINEAR_DX, "f8,4 f4,16", "f8,16", INTS(1, 1), 0},
    {SN_OP_LINEAR_DX, "f200,131 f131,67", "f200,67", INTS(1, 1), 0},
    {SN_OP_LINEAR_DX, "f3,5,3,7 f3,7,2,9", "f3,5,2,9", INTS(2, 2), 1},
    {SN_OP_LINEAR_DX, "f13,300 f300,33", "f13,33", INTS(1, 1), 0},
    {SN_OP_LINEAR_DW, "f8,4 f8,16", "f4,16", INTS(1, 1), 0},
    {SN_OP_LINEAR_DW, "f131,200 f131,67", "f200,67", INTS(1, 1), 0},
    {SN_OP_LINEAR_DW, "f131,200 f131,67", "f200,67", INTS(1, 1), 1},
    {SN_OP_LINEAR_DW, "f3,5,3,7 f3,5,2,9", "f3,7,2,9", INTS(2, 2), 1},
    {SN_OP_LINEAR_DW, "f300,5 f300,130", "f5,130", INTS(1, 1), 0},
    {SN_OP_ATTENTION, "f9,2,3,3,8", "f9,2,3,8 f2,3,9", {.i = {1}, .f = {0.35}}, 0},
    {SN_OP_ATTENTION, "f9,2,3,3,8", "f9,2,3,8 f2,3,9", {.i = {0}, .f = {0.35}}, 0},
    {SN_OP_ATTENTION, "f131,1,2,3,17", "f131,1,2,17 f1,2,131", {.i = {1}, .f = {0.25}}, 0},
    {SN_OP_ATTENTION, "f131,1,1,3,129", "f131,1,1,129 f1,1,131", {.i = {1}, .f = {0.09}}, 0},
    {SN_OP_ATTENTION, "f65,2,1,3,64", "f65,2,1,64 f2,1,65", {.i = {0}, .f = {0.125}}, 0},
    {SN_OP_ATTENTION, "f1,2,1,3,1", "f1,2,1,1 f2,1,1", {.i = {1}, .f = {1}}, 0},
    {SN_OP_ATTENTION_GRAD,
     "f9,2,3,8 f9,2,3,3,8 f9,2,3,8 f2,3,9",
     "f9,2,3,3,8",
     {.i = {1}, .f = {0.35}},
     0},
    {SN_OP_ATTENTION_GRAD,
     "f9,2,3,8 f9,2,3,3,8 f9,2,3,8 f2,3,9",
     "f9,2,3,3,8",
     {.i = {0}, .f = {0.35}},
     1},
    {SN_OP_ATTENTION_GRAD,
     "f131,1,2,17 f131,1,2,3,17 f131,1,2,17 f1,2,131",
     "f131,1,2,3,17",
     {.i = {1}, .f = {0.25}},
     0},
    {SN_OP_ATTENTION_GRAD,
     "f65,2,1,64 f65,2,1,3,64 f65,2,1,64 f2,1,65",
     "f65,2,1,3,64",
     {.i = {0}, .f = {0.125}},
     0},
    {SN_OP_ATTENTION_GRAD,
     "f67,1,1,129 f67,1,1,3,129 f67,1,1,129 f1,1,67",
     "f67,1,1,3,129",
     {.i = {1}, .f = {0.09}},
     0},
    {SN_OP_BIAS_GELU, "f3,5,64 f64", "f3,5,64", INTS(0), 0},
    {SN_OP_BIAS_GELU, "f15,37 f37", "f15,37", INTS(0), 0},
    {SN_OP_BIAS_GELU, "f15,37 f37", "f15,37", INTS(1), 0},
    {SN_OP_BIAS_GELU_GRAD, "f15,37 f15,37 f37", "f15,37", INTS(0), 0},
    {SN_OP_BIAS_GELU_GRAD, "f15,37 f15,37 f37", "f15,37", INTS(1), 1},
    {SN_OP_ROW_MAX, "f5,3,50", "f5,3", NONE, 0},
    {SN_OP_ROW_MAX, "f5,3,1", "f5,3", NONE, 0},
    {SN_OP_XENT_SUMS, "f5,3,10 i5,3 f5,3", "f5,3,2", NONE, 0},
    {SN_OP_XENT_SUMS, "f5,3,37 i5,3 f5,3", "f5,3,2", {.begin = 4}, 0},
    {SN_OP_XENT_LOSS, "f5,3 p5,3,2 i5,3", "f", REALS(0.125), 0},
    {SN_OP_XENT_LOSS, "f5,3 p5,3,2 i5,3", "f", REALS(0.125), 1},
    {SN_OP_XENT_GRAD, "f5,3,10 i5,3 f5,3 p5,3,2", "f5,3,10", REALS(0.125), 0},
    {SN_OP_XENT_GRAD, "f5,3,37 i5,3 f5,3 p5,3,2", "f5,3,37", {.f = {2}, .begin = 4}, 0},
    {SN_OP_FILL_ZERO, "", "f5,3", NONE, 0},
    {SN_OP_COPY, "f5,37", "f5,37", NONE, 0},
    {SN_OP_COPY, "f5,37", "f185", NONE, 1},
    {SN_OP_SLICE, "f3,7,5", "f3,2,5", INTS(3, 7, 5, 4, 2), 0},
    {SN_OP_SLICE, "f3,7,5", "f3,2,5", INTS(3, 7, 5, 5, 2), 1},
    {SN_OP_UNPACK, "f2,3,4,5", "f3,2,4,5", INTS(3, 2, 4, 5), 0},
    {SN_OP_PACK, "f3,2,4,5", "f2,3,4,5", INTS(3, 2, 4, 5), 0},
    {SN_OP_SUM_SQUARES, "f10001", "f1", REALS(0.5), 0},
    {SN_OP_SUM_SQUARES, "f37", "f1", REALS(0.5), 1},
    {SN_OP_ADAMW, "f1037 h8 p1", "f1037 f1037 p1037 f1037", REALS(1), 0},
    {SN_OP_ADAMW, "f37 h8 p1", "f37 f37 p37 f37", REALS(0), 0},
};

#endif
