/* SPDX-License-Identifier: Apache-2.0
 * Attention with separate queries, keys and values, and rotary positions.
 *
 *   attend  q[T,B,G,R | E]  k,v[S,B,G | E]  →  o[T,B,G,R,E]
 *
 * B and G split everything. R (query heads of one key head) and T (queries) split q and o while
 * keys and values stay whole, so that dk and dv become partial sums: T is what a long context is
 * split along. S does not split: each query needs all its scores. */
#include "graph/private.h"

enum { T = LABEL_LEAD, B, GROUP = LABEL_LAST, QUERY, SIZE };

static sn_status attend_shape(sn_graph *g, sn_node *n)
{
    sn_shape q = sn_shape_of(g, n->in[0]), k = sn_shape_of(g, n->in[1]);
    int mask = n->ins > 3 ? n->in[3] : -1;
    if (q.rank != 5 || k.rank != 4 || !sn_shape_equal(k, sn_shape_of(g, n->in[2])) ||
        k.dim[1] != q.dim[1] || k.dim[2] != q.dim[2] || k.dim[3] != q.dim[4])
        return sn_bad_node(g, n, "q must be [T,B,G,R,E], k and v [S,B,G,E]");
    if (mask >= 0 && (g->value[mask].dtype != SN_I32 ||
                      !sn_shape_equal(sn_shape_of(g, mask), SN_SHAPE(k.dim[0], k.dim[1]))))
        return sn_bad_node(g, n, "the mask must be [S,B] I32");
    if (n->attr.i[0] && q.dim[0] != k.dim[0])
        return sn_bad_node(g, n, "causal attention needs as many keys as queries");
    sn_set_out(g, n, 0, q);
    sn_set_out(g, n, 1, SN_SHAPE(q.dim[1], q.dim[2], q.dim[3], q.dim[0]));
    return SN_OK;
}

static sn_status grad_shape(sn_graph *g, sn_node *n)
{
    for (int o = 0; o < 3; o++)
        sn_set_out(g, n, o, sn_shape_of(g, n->in[1 + o]));
    return SN_OK;
}

/* Two products over the cells that are seen. */
static double cells_flops(const sn_graph *g, const sn_node *n, int at)
{
    sn_shape q = sn_shape_of(g, n->in[at]), k = sn_shape_of(g, n->in[at + 1]);
    double t = (double) q.dim[0], s = (double) k.dim[0];
    double cells = n->attr.i[0] ? t * (t + 1) / 2 : t * s;
    return 4 * cells * (double) (q.dim[1] * q.dim[2] * q.dim[3] * q.dim[4]);
}

static double attend_flops(const sn_graph *g, const sn_node *n)
{
    return cells_flops(g, n, 0);
}

static double grad_flops(const sn_graph *g, const sn_node *n)
{
    return 2.5 * cells_flops(g, n, 1); /* five products, scores computed again */
}

/* Label ids along the dims of each kind of operand, −1 none. */
static const int of_q[] = {T, B, GROUP, QUERY, SIZE}, of_k[] = {-1, B, GROUP, SIZE},
                 of_lse[] = {B, GROUP, QUERY, T}, of_mask[] = {-1, B};

static void put(const sn_graph *g, int v, const int *ids, sn_combine combine, int8_t *row,
                sn_shard_rule *r)
{
    sn_shape s = v < 0 ? (sn_shape){0} : sn_shape_of(g, v);
    for (int d = 0; d < s.rank; d++) {
        bool query = ids[d] == T || ids[d] == QUERY;
        if (ids[d] >= 0)
            row[d] = (int8_t) sn_label(r, ids[d], s.dim[d], ids[d] != SIZE,
                                       query ? combine : SN_COMBINE_NONE);
    }
}

/* Heads are the only way to share the work without sending keys. */
static void name_heads(sn_shard_rule *r)
{
    int heads = sn_label(r, GROUP, 0, true, SN_COMBINE_NONE);
    bool one = r->label[heads].size == 1;
    if (one)
        heads = sn_label(r, QUERY, 0, true, SN_COMBINE_NONE);
    r->label[heads].must = one ? "heads" : "kv_heads";
    r->begin_label = T;
}

static void attend_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    put(g, n->in[0], of_q, SN_COMBINE_NONE, r->in[0], r);
    put(g, n->in[1], of_k, SN_COMBINE_NONE, r->in[1], r);
    put(g, n->in[2], of_k, SN_COMBINE_NONE, r->in[2], r);
    put(g, n->ins > 3 ? n->in[3] : -1, of_mask, SN_COMBINE_NONE, r->in[3], r);
    put(g, n->out[0], of_q, SN_COMBINE_NONE, r->out[0], r);
    put(g, n->out[1], of_lse, SN_COMBINE_NONE, r->out[1], r);
    name_heads(r);
}

static void grad_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    const int *const of_in[] = {of_q, of_q, of_k, of_k, of_q, of_lse, of_mask};
    for (int i = 0; i < n->ins; i++)
        put(g, n->in[i], of_in[i], SN_COMBINE_SUM, r->in[i], r);
    for (int o = 0; o < 3; o++)
        put(g, n->out[o], of_in[1 + o], SN_COMBINE_SUM, r->out[o], r);
    name_heads(r);
}

static sn_status attend_backward(sn_graph *g, int node, const int *grad_out, sn_grads *into)
{
    const sn_node n = g->node[node];
    int mask = n.ins > 3 ? n.in[3] : -1, out[3];
    int in[] = {grad_out[0], n.in[0], n.in[1], n.in[2], n.out[0], n.out[1], mask};
    if (grad_out[0] < 0)
        return SN_OK;
    SN_TRY(sn_backward_node(g, SN_OP_ATTEND_GRAD, node, &n.attr, in, mask < 0 ? 6 : 7, out));
    for (int i = 0; i < 3; i++)
        if (sn_grads_wanted(into, n.in[i]))
            SN_TRY(sn_grads_add(g, into, n.in[i], out[i]));
    return SN_OK;
}

static sn_status rotary_shape(sn_graph *g, sn_node *n)
{
    sn_shape x = sn_shape_of(g, n->in[0]);
    int64_t e = x.rank ? x.dim[x.rank - 1] : 0, p = n->attr.i[1] ? n->attr.i[1] : e;
    if (x.rank < 2 || p < 0 || p > e || p % 2 || !(n->attr.f[0] > 0))
        return sn_bad_node(g, n, "x must be [T,…,E], an even number of E turns, the base positive");
    sn_set_out(g, n, 0, x);
    return SN_OK;
}

static void rotary_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    sn_shape x = sn_shape_of(g, n->in[0]);
    sn_label_rows(x, r->in[0], SN_COMBINE_NONE, false, r);
    sn_label_rows(x, r->out[0], SN_COMBINE_NONE, false, r);
    r->begin_label = LABEL_LEAD;
}

static sn_status rotary_backward(sn_graph *g, int node, const int *grad_out, sn_grads *into)
{
    const sn_node n = g->node[node];
    sn_attr back = n.attr;
    int dx;
    back.i[2] = !back.i[2];
    SN_TRY(sn_backward_node(g, SN_OP_ROTARY, node, &back, grad_out, 1, &dx));
    return sn_grads_add(g, into, n.in[0], dx);
}

static double rotary_flops(const sn_graph *g, const sn_node *n)
{
    return 4.0 * (double) sn_shape_count(sn_shape_of(g, n->in[0]));
}

const sn_op_row sn_rows_attend[] = {
    {SN_OP_ROTARY, "rotary", 1, 1, 1, rotary_shape, rotary_backward, rotary_flops, rotary_shard},
    {SN_OP_ATTEND, "attend", 3, 4, 2, attend_shape, attend_backward, attend_flops, attend_shard, 2},
    {SN_OP_ATTEND_GRAD, "attend_grad", 6, 7, 3, grad_shape, NULL, grad_flops, grad_shard},
};
const int sn_rows_attend_count = SN_COUNT(sn_rows_attend);
