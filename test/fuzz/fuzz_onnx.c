/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as an ONNX model: refused with a sentence, or a graph that holds what graphs promise.
 * Nothing is computed while importing (no card), so what would be folded is refused. */
#include "onnx/onnx.h"

#include <stddef.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    sn_onnx_dim dim[] = {{"N", 2}, {"batch", 2}};
    sn_onnx_opts opts = {.dim = dim,
                         .dims = SN_COUNT(dim),
                         .tensor_bytes_max = 16 << 20,
                         .constants_bytes_max = 16 << 20,
                         .nodes_max = 2000};
    sn_arena *arena = sn_arena_create();
    sn_onnx_model *model;
    sn_onnx *o;
    sn_tensor t;
    if (sn_onnx_parse(data, bytes, "fuzzed", &model) < 0) {
        SN_ASSERT(*sn_errmsg());
    } else {
        sn_onnx_missing(model, NULL);
        if (sn_onnx_import(model, &opts, arena, &o) >= 0)
            sn_graph_check(o->graph);
        else
            SN_ASSERT(*sn_errmsg());
        sn_onnx_free(model);
    }
    if (sn_onnx_tensor(data, bytes, arena, &t) >= 0)
        SN_ASSERT(sn_shape_count(t.shape) * (int64_t) sn_dtype_bytes(t.dtype) <=
                  8 * (int64_t) bytes);
    sn_arena_free(arena);
    return 0;
}
