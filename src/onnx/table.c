/* SPDX-License-Identifier: Apache-2.0
 * The table of ops, put together from its families. */
#include "onnx/private.h"

#include <string.h>

typedef struct family {
    const row *rows;
    int count;
} family;

static int families(family *ret)
{
    const family all[] = {
        {onnx_rows_math, onnx_rows_math_count},     {onnx_rows_shape, onnx_rows_shape_count},
        {onnx_rows_index, onnx_rows_index_count},   {onnx_rows_reduce, onnx_rows_reduce_count},
        {onnx_rows_window, onnx_rows_window_count}, {onnx_rows_make, onnx_rows_make_count},
        {onnx_rows_quant, onnx_rows_quant_count},   {onnx_rows_rnn, onnx_rows_rnn_count},
        {onnx_rows_static, onnx_rows_static_count}, {onnx_rows_control, onnx_rows_control_count},
        {onnx_rows_loss, onnx_rows_loss_count},     {onnx_rows_resize, onnx_rows_resize_count},
        {onnx_rows_einsum, onnx_rows_einsum_count},
    };
    memcpy(ret, all, sizeof all);
    return SN_COUNT(all);
}

const row *onnx_row_of(const char *op)
{
    family f[16];
    int n = families(f);
    for (int i = 0; i < n; i++)
        for (int r = 0; r < f[i].count; r++)
            if (!strcmp(f[i].rows[r].name, op))
                return &f[i].rows[r];
    return NULL;
}

int sn_onnx_ops_known(void)
{
    family f[16];
    int n = families(f), count = 0;
    for (int i = 0; i < n; i++)
        count += f[i].count;
    return count;
}
