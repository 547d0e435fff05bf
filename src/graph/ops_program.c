/* SPDX-License-Identifier: Apache-2.0
 * Ops that only programs contain: named here so that a program can be printed; graphs refuse them.
 */
#include "graph/private.h"

const sn_op_row sn_rows_program[] = {
    {.op = SN_OP_FILL_ZERO, .name = "fill_zero", .outs = 1},
    {.op = SN_OP_COPY, .name = "copy", .ins_min = 1, .ins_max = 1, .outs = 1},
    {.op = SN_OP_SLICE, .name = "slice", .ins_min = 1, .ins_max = 1, .outs = 1},
    {.op = SN_OP_UNPACK, .name = "unpack", .ins_min = 1, .ins_max = 1, .outs = 1},
    {.op = SN_OP_PACK, .name = "pack", .ins_min = 1, .ins_max = 1, .outs = 1},
    {.op = SN_OP_SUM_SQUARES, .name = "sum_squares", .ins_min = 1, .ins_max = 1, .outs = 1},
    {.op = SN_OP_ADAMW, .name = "adamw", .ins_min = 3, .ins_max = 3, .outs = 4},
};
const int sn_rows_program_count = SN_COUNT(sn_rows_program);
