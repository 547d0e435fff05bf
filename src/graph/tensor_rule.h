/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor_rule — what the rows of ops_tensor.h share: outputs of any type, broadcasting, labels of
 * dims that keep their place. Private to graph. */
#ifndef SN_GRAPH_TENSOR_RULE_H
#define SN_GRAPH_TENSOR_RULE_H

#include "graph/private.h"

/* Set output o; SN_EINVAL when a dim is negative or the elements cannot be counted. */
sn_status sn_tensor_out(sn_graph *g, sn_node *n, int o, sn_shape shape, sn_dtype dtype);

static inline sn_dtype sn_dtype_of(const sn_graph *g, int v)
{
    return g->value[v].dtype;
}

static inline bool sn_dtype_real(sn_dtype t)
{
    return t == SN_F32 || t == SN_F64 || t == SN_F16 || t == SN_BF16;
}

/* The shape both broadcast to, as in NumPy. */
bool sn_broadcast(sn_shape a, sn_shape b, sn_shape *ret);

/* Label the dims of an operand, aligned at the end with `full`: those as large as full's get the
 * id of full's dim, splittable. */
void sn_label_aligned(sn_shard_rule *r, sn_shape full, sn_shape part, int8_t *row);

/* Label dim d as LABEL_LEAD + id_of, whole: may not be split. */
int8_t sn_label_dim(sn_shard_rule *r, int d, int64_t size);

#endif
