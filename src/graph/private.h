/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of this layer share: helpers for rows and the backward pass. */
#ifndef SN_GRAPH_PRIVATE_H
#define SN_GRAPH_PRIVATE_H

#include "graph/graph.h"

/* The rows, one array a family. */
#define SN_ROWS(family)                                                                            \
    extern const sn_op_row sn_rows_##family[];                                                     \
    extern const int sn_rows_##family##_count
SN_ROWS(linear);
SN_ROWS(batch_linear);
SN_ROWS(norm);
SN_ROWS(rms);
SN_ROWS(pointwise);
SN_ROWS(activate);
SN_ROWS(attention);
SN_ROWS(attend);
SN_ROWS(xent);
SN_ROWS(loss);
SN_ROWS(embedding);
SN_ROWS(conv);
SN_ROWS(pool);
SN_ROWS(batch_norm);
SN_ROWS(moe);
SN_ROWS(program);
#undef SN_ROWS

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

/* x[N,S…,C] seen through windows of these sizes and the node's attr: ret is x with S' for
 * S. */
sn_status sn_window_shape(const sn_graph *g, const sn_node *n, sn_shape x, const int64_t *size,
                          sn_shape *ret);

/* Label the dims of an operand: those before the last LABEL_LEAD + d with `lead` as what outputs
 * without them become, the last one LABEL_LAST. */
void sn_label_rows(sn_shape x, int8_t *row, sn_combine lead, bool last_splits, sn_shard_rule *r);

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
