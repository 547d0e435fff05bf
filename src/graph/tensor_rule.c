/* SPDX-License-Identifier: Apache-2.0
 * Shapes, types and labels that the rows of general tensor ops have in common. */
#include "graph/tensor_rule.h"

sn_status sn_tensor_out(sn_graph *g, sn_node *n, int o, sn_shape shape, sn_dtype dtype)
{
    int64_t count = 1;
    bool sane = shape.rank >= 0 && shape.rank <= SN_RANK_MAX;
    for (int d = 0; sane && d < shape.rank; d++)
        sane = shape.dim[d] >= 0 && !__builtin_mul_overflow(count, shape.dim[d], &count);
    if (!sane || count > INT64_MAX / 64)
        return sn_bad_node(g, n, "the result is too large to count, or has too many dims");
    sn_set_out(g, n, o, shape);
    g->value[n->out[o]].dtype = dtype;
    return SN_OK;
}

bool sn_broadcast(sn_shape a, sn_shape b, sn_shape *ret)
{
    sn_shape z = {.rank = a.rank > b.rank ? a.rank : b.rank};
    for (int d = 0; d < z.rank; d++) {
        int i = d - (z.rank - a.rank), j = d - (z.rank - b.rank);
        int64_t x = i < 0 ? 1 : a.dim[i], y = j < 0 ? 1 : b.dim[j];
        if (x != y && x != 1 && y != 1)
            return false;
        z.dim[d] = x == 1 ? y : x;
    }
    *ret = z;
    return true;
}

int8_t sn_label_dim(sn_shard_rule *r, int d, int64_t size)
{
    return (int8_t) sn_label(r, LABEL_LEAD + d, size, true, SN_COMBINE_NONE);
}

void sn_label_aligned(sn_shard_rule *r, sn_shape full, sn_shape part, int8_t *row)
{
    for (int d = 0; d < part.rank; d++) {
        int at = d + full.rank - part.rank;
        if (part.dim[d] == full.dim[at])
            row[d] = sn_label_dim(r, at, full.dim[at]);
    }
}
