/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of this layer share: helpers for rows and the backward pass. */
#ifndef SN_GRAPH_PRIVATE_H
#define SN_GRAPH_PRIVATE_H

#include "graph/graph.h"

/* The rows, one array a family. */
extern const sn_op_row sn_rows_linear[], sn_rows_norm[], sn_rows_pointwise[], sn_rows_attention[],
    sn_rows_xent[], sn_rows_embedding[], sn_rows_program[];
extern const int sn_rows_linear_count, sn_rows_norm_count, sn_rows_pointwise_count,
    sn_rows_attention_count, sn_rows_xent_count, sn_rows_embedding_count, sn_rows_program_count;

/* Rows of ops_tensor.h. */
extern const sn_op_row sn_rows_elementwise[], sn_rows_move[], sn_rows_index[], sn_rows_window[];
extern const int sn_rows_elementwise_count, sn_rows_move_count, sn_rows_index_count,
    sn_rows_window_count;

/* Label ids, by where a dimension comes from; forward and backward rows of a family agree on them.
 */
enum { LABEL_LEAD = 0, LABEL_LAST = 16, LABEL_INNER = 32 };

/* Index of the label with this id in the rule, added when new. */
int sn_label(sn_shard_rule *rule, int id, int64_t size, bool splittable, sn_combine combine);

/* The shape of value v. */
static inline sn_shape sn_shape_of(const sn_graph *g, int v)
{
    return g->value[v].shape;
}

/* Set output o of the node. */
void sn_set_out(sn_graph *g, const sn_node *n, int o, sn_shape shape);

/* "op 'name': " + text with the operands' shapes; returns SN_EINVAL. */
sn_status sn_bad_node(const sn_graph *g, const sn_node *n, const char *what);

/* ---- for the builders of gradients ---- */
bool sn_grads_wanted(const sn_grads *grads, int value); /* does a parameter depend on it? */
int sn_grads_get(const sn_grads *grads, int value);     /* so far, -1 none */
sn_status sn_grads_add(sn_graph *g, sn_grads *grads, int value, int grad);
void sn_grads_replace(sn_grads *grads, int value, int grad); /* grad contains what was there */

/* Append a backward node with this origin; ret_out as in sn_graph_add. */
sn_status sn_backward_node(sn_graph *g, sn_op op, int origin, const sn_attr *attr, const int *in,
                           int ins, int *ret_out);
/* Sum `grad` down to the shape of `like` and add it as the gradient of `like`; `trailing`: how many
 * of grad's last dims are labelled LABEL_LAST + j in the origin's family. */
sn_status sn_backward_sum_to(sn_graph *g, sn_grads *grads, int origin, int grad, int like,
                             int trailing);

#endif
