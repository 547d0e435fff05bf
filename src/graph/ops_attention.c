/* SPDX-License-Identifier: Apache-2.0
 * Softmax attention over qkv[T,B,H,3,E]. Batch and heads split; sequence and head size do not. */
#include "graph/private.h"

enum { T, B, H, THREE, E }; /* dims of qkv */

static sn_status forward_shape(sn_graph *g, sn_node *n)
{
    sn_shape x = sn_shape_of(g, n->in[0]);
    if (x.rank != 5 || x.dim[THREE] != 3)
        return sn_bad_node(g, n, "qkv must be [T,B,H,3,E]");
    sn_set_out(g, n, 0, SN_SHAPE(x.dim[T], x.dim[B], x.dim[H], x.dim[E]));
    sn_set_out(g, n, 1, SN_SHAPE(x.dim[B], x.dim[H], x.dim[T]));
    return SN_OK;
}

static sn_status grad_shape(sn_graph *g, sn_node *n)
{
    sn_set_out(g, n, 0, sn_shape_of(g, n->in[1]));
    return SN_OK;
}

/* Two products of T·T·E multiply–adds a head; a causal mask leaves the lower half with its
 * diagonal. */
static double pair_flops(const sn_graph *g, const sn_node *n, int qkv)
{
    sn_shape x = sn_shape_of(g, qkv);
    double t = (double) x.dim[T];
    double cells = n->attr.i[0] ? t * (t + 1) / 2 : t * t;
    return 4 * cells * (double) (x.dim[B] * x.dim[H] * x.dim[E]);
}

static double forward_flops(const sn_graph *g, const sn_node *n)
{
    return pair_flops(g, n, n->in[0]);
}

static double grad_flops(const sn_graph *g, const sn_node *n)
{
    return 2.5 * pair_flops(g, n, n->in[1]); /* five products, scores computed again */
}

static void label(const sn_graph *g, int qkv, int8_t *in, int8_t *o, int8_t *lse, sn_shard_rule *r)
{
    sn_shape x = sn_shape_of(g, qkv);
    int8_t t = (int8_t) sn_label(r, LABEL_LEAD, x.dim[T], false, SN_COMBINE_NONE);
    int8_t b = (int8_t) sn_label(r, LABEL_LEAD + 1, x.dim[B], true, SN_COMBINE_NONE);
    int8_t h = (int8_t) sn_label(r, LABEL_LAST, x.dim[H], true, SN_COMBINE_NONE);
    int8_t e = (int8_t) sn_label(r, LABEL_LAST + 1, x.dim[E], false, SN_COMBINE_NONE);
    r->label[h].must = "heads"; /* the only way to share the work of the products */
    const int8_t of_qkv[] = {t, b, h, -1, e}, of_o[] = {t, b, h, e}, of_lse[] = {b, h, t};
    for (int d = 0; d < 5; d++)
        in[d] = of_qkv[d];
    for (int d = 0; d < 4; d++)
        o[d] = of_o[d];
    for (int d = 0; d < 3; d++)
        lse[d] = of_lse[d];
}

static void forward_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    label(g, n->in[0], r->in[0], r->out[0], r->out[1], r);
}

static void grad_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    label(g, n->in[1], r->in[1], r->in[2], r->in[3], r);
    for (int d = 0; d < 5; d++) {
        r->out[0][d] = r->in[1][d];
        r->in[0][d] = r->in[2][d];
    }
}

static sn_status backward(sn_graph *g, int node, const int *grad_out, sn_grads *into)
{
    const sn_node n = g->node[node];
    int dqkv;
    if (grad_out[0] < 0 || !sn_grads_wanted(into, n.in[0]))
        return SN_OK;
    int in[] = {grad_out[0], n.in[0], n.out[0], n.out[1]};
    SN_TRY(sn_backward_node(g, SN_OP_ATTENTION_GRAD, node, &n.attr, in, 4, &dqkv));
    return sn_grads_add(g, into, n.in[0], dqkv);
}

const sn_op_row sn_rows_attention[] = {
    {SN_OP_ATTENTION, "attention", 1, 1, 2, forward_shape, backward, forward_flops, forward_shard,
     2},
    {SN_OP_ATTENTION_GRAD, "attention_grad", 4, 4, 1, grad_shape, NULL, grad_flops, grad_shard},
};
const int sn_rows_attention_count = SN_COUNT(sn_rows_attention);
