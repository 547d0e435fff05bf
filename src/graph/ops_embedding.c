/* SPDX-License-Identifier: Apache-2.0
 * Rows of a table picked by integers, and the gradient of the table. */
#include "graph/private.h"

enum { VOCAB = LABEL_LAST, WIDTH = LABEL_LAST + 1 };

static sn_status forward_shape(sn_graph *g, sn_node *n)
{
    sn_shape table = sn_shape_of(g, n->in[0]), ids = sn_shape_of(g, n->in[1]);
    if (table.rank != 2 || g->value[n->in[1]].dtype != SN_I32 || ids.rank >= SN_RANK_MAX)
        return sn_bad_node(g, n, "the table must be [V,D] and the ids I32");
    ids.dim[ids.rank++] = table.dim[1];
    sn_set_out(g, n, 0, ids);
    return SN_OK;
}

static sn_status grad_shape(sn_graph *g, sn_node *n)
{
    sn_shape dy = sn_shape_of(g, n->in[1]);
    sn_set_out(g, n, 0, SN_SHAPE(n->attr.i[0], dy.dim[dy.rank - 1]));
    return SN_OK;
}

static void label(const sn_graph *g, int ids, int y, int table, int8_t *of_ids, int8_t *of_y,
                  int8_t *of_table, bool forward, sn_shard_rule *r)
{
    sn_shape at = sn_shape_of(g, ids), t = sn_shape_of(g, table);
    for (int d = 0; d < at.rank; d++)
        of_ids[d] = of_y[d] = (int8_t) sn_label(r, LABEL_LEAD + d, at.dim[d], true,
                                                forward ? SN_COMBINE_NONE : SN_COMBINE_SUM);
    of_table[0] =
        (int8_t) sn_label(r, VOCAB, t.dim[0], true, forward ? SN_COMBINE_SUM : SN_COMBINE_NONE);
    of_table[1] = of_y[at.rank] = (int8_t) sn_label(r, WIDTH, t.dim[1], true, SN_COMBINE_NONE);
    r->begin_label = VOCAB;
}

static void forward_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    label(g, n->in[1], n->out[0], n->in[0], r->in[1], r->out[0], r->in[0], true, r);
}

static void grad_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    label(g, n->in[0], n->in[1], n->out[0], r->in[0], r->in[1], r->out[0], false, r);
}

static sn_status backward(sn_graph *g, int node, const int *grad_out, sn_grads *into)
{
    const sn_node n = g->node[node];
    int grad;
    if (grad_out[0] < 0 || !sn_grads_wanted(into, n.in[0]))
        return SN_OK;
    sn_attr attr = {.i = {sn_shape_of(g, n.in[0]).dim[0]}};
    SN_TRY(sn_backward_node(g, SN_OP_EMBEDDING_GRAD, node, &attr, (int[]){n.in[1], grad_out[0]}, 2,
                            &grad));
    return sn_grads_add(g, into, n.in[0], grad);
}

static double grad_flops(const sn_graph *g, const sn_node *n)
{
    return (double) sn_shape_count(sn_shape_of(g, n->in[1]));
}

const sn_op_row sn_rows_embedding[] = {
    {SN_OP_EMBEDDING, "embedding", 2, 2, 1, forward_shape, backward, NULL, forward_shard},
    {SN_OP_EMBEDDING_GRAD, "embedding_grad", 2, 2, 1, grad_shape, NULL, grad_flops, grad_shard},
};
const int sn_rows_embedding_count = SN_COUNT(sn_rows_embedding);
