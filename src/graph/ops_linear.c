/* SPDX-License-Identifier: Apache-2.0
 * linear: y[lead, N] = Σ_K x[lead, K]·w[N, K] (+ b[N]), its two products backward. K and N may be
 * several dims. */
#include "graph/private.h"

/* How the dims of a linear's operands divide: lead, N (kept from w), K (summed). */
typedef struct dims {
    int lead, n, k;
    int64_t lead_size[SN_RANK_MAX], n_size[SN_RANK_MAX], k_size[SN_RANK_MAX];
} dims;

static int64_t product(const int64_t *size, int n)
{
    int64_t p = 1;
    for (int i = 0; i < n; i++)
        p *= size[i];
    return p;
}

/* dims of a tensor [lead, tail] and of w[N, K] */
static dims split(sn_shape lead_of, int tail, sn_shape w, int k)
{
    dims d = {.lead = lead_of.rank - tail, .n = w.rank - k, .k = k};
    for (int i = 0; i < d.lead; i++)
        d.lead_size[i] = lead_of.dim[i];
    for (int i = 0; i < d.n; i++)
        d.n_size[i] = w.dim[i];
    for (int i = 0; i < d.k; i++)
        d.k_size[i] = w.dim[d.n + i];
    return d;
}

static sn_status join(const int64_t *a, int na, const int64_t *b, int nb, sn_shape *ret)
{
    if (na + nb > SN_RANK_MAX)
        return SN_EINVAL;
    ret->rank = na + nb;
    for (int i = 0; i < na; i++)
        ret->dim[i] = a[i];
    for (int i = 0; i < nb; i++)
        ret->dim[na + i] = b[i];
    return SN_OK;
}

static sn_status linear_shape(sn_graph *g, sn_node *n)
{
    sn_shape x = sn_shape_of(g, n->in[0]), w = sn_shape_of(g, n->in[1]), y;
    int k = (int) n->attr.i[0];
    if (k < 1 || k > x.rank || k >= w.rank)
        return sn_bad_node(g, n, "the summed dims do not fit the operands");
    dims d = split(x, k, w, k);
    for (int i = 0; i < k; i++)
        if (x.dim[d.lead + i] != d.k_size[i])
            return sn_bad_node(g, n, "the summed dims of x and w differ");
    if (join(d.lead_size, d.lead, d.n_size, d.n, &y) < 0)
        return sn_bad_node(g, n, "the result has too many dims");
    if (n->ins > 2 && n->in[2] >= 0) {
        sn_shape b = sn_shape_of(g, n->in[2]), want;
        join(d.n_size, d.n, NULL, 0, &want);
        if (!sn_shape_equal(b, want))
            return sn_bad_node(g, n, "the bias does not have the shape of w's kept dims");
    }
    sn_set_out(g, n, 0, y);
    return SN_OK;
}

static sn_status dx_shape(sn_graph *g, sn_node *n)
{
    sn_shape dy = sn_shape_of(g, n->in[0]), w = sn_shape_of(g, n->in[1]), dx;
    dims d = split(dy, (int) n->attr.i[1], w, (int) n->attr.i[0]);
    if (join(d.lead_size, d.lead, d.k_size, d.k, &dx) < 0)
        return sn_bad_node(g, n, "the result has too many dims");
    sn_set_out(g, n, 0, dx);
    return SN_OK;
}

static sn_status dw_shape(sn_graph *g, sn_node *n)
{
    sn_shape dy = sn_shape_of(g, n->in[0]), x = sn_shape_of(g, n->in[1]), dw;
    int nk = (int) n->attr.i[0], nn = (int) n->attr.i[1];
    if (join(dy.dim + dy.rank - nn, nn, x.dim + x.rank - nk, nk, &dw) < 0)
        return sn_bad_node(g, n, "the result has too many dims");
    sn_set_out(g, n, 0, dw);
    return SN_OK;
}

static double linear_flops(const sn_graph *g, const sn_node *n)
{
    /* all three products do lead·N·K multiply–adds */
    sn_shape a = sn_shape_of(g, n->in[0]), b = sn_shape_of(g, n->in[1]);
    double work = 2.0 * (double) sn_shape_count(a) * (double) sn_shape_count(b);
    switch (n->op) {
    case SN_OP_LINEAR: /* x·w: K counted twice */
        return work / (double) product(a.dim + a.rank - n->attr.i[0], (int) n->attr.i[0]);
    case SN_OP_LINEAR_DX: /* dy·w: N counted twice */
        return work / (double) product(a.dim + a.rank - n->attr.i[1], (int) n->attr.i[1]);
    default: /* dy·x: lead counted twice */
        return work / (double) product(a.dim, a.rank - (int) n->attr.i[1]);
    }
}

/* Label the dims [from, from + count) of an operand row. */
static void put(sn_shard_rule *r, int8_t *row, int from, int id, const int64_t *size, int count,
                bool splittable, sn_combine combine)
{
    for (int i = 0; i < count; i++)
        row[from + i] = (int8_t) sn_label(r, id + i, size[i], splittable, combine);
}

static void linear_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    int k = (int) n->attr.i[0];
    bool bias = n->ins > 2 && n->in[2] >= 0; /* a bias added to partial sums would count twice */
    dims d = split(sn_shape_of(g, n->in[0]), k, sn_shape_of(g, n->in[1]), k);
    put(r, r->in[0], 0, LABEL_LEAD, d.lead_size, d.lead, true, SN_COMBINE_NONE);
    put(r, r->in[0], d.lead, LABEL_INNER, d.k_size, d.k, !bias, SN_COMBINE_SUM);
    put(r, r->in[1], 0, LABEL_LAST, d.n_size, d.n, true, SN_COMBINE_NONE);
    put(r, r->in[1], d.n, LABEL_INNER, d.k_size, d.k, !bias, SN_COMBINE_SUM);
    if (bias)
        put(r, r->in[2], 0, LABEL_LAST, d.n_size, d.n, true, SN_COMBINE_NONE);
    put(r, r->out[0], 0, LABEL_LEAD, d.lead_size, d.lead, true, SN_COMBINE_NONE);
    put(r, r->out[0], d.lead, LABEL_LAST, d.n_size, d.n, true, SN_COMBINE_NONE);
}

static void dx_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    dims d = split(sn_shape_of(g, n->in[0]), (int) n->attr.i[1], sn_shape_of(g, n->in[1]),
                   (int) n->attr.i[0]);
    put(r, r->in[0], 0, LABEL_LEAD, d.lead_size, d.lead, true, SN_COMBINE_NONE);
    put(r, r->in[0], d.lead, LABEL_LAST, d.n_size, d.n, true, SN_COMBINE_SUM);
    put(r, r->in[1], 0, LABEL_LAST, d.n_size, d.n, true, SN_COMBINE_SUM);
    put(r, r->in[1], d.n, LABEL_INNER, d.k_size, d.k, true, SN_COMBINE_NONE);
    put(r, r->out[0], 0, LABEL_LEAD, d.lead_size, d.lead, true, SN_COMBINE_NONE);
    put(r, r->out[0], d.lead, LABEL_INNER, d.k_size, d.k, true, SN_COMBINE_NONE);
}

static void dw_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    dims d = split(sn_shape_of(g, n->in[0]), (int) n->attr.i[1], sn_shape_of(g, n->out[0]),
                   (int) n->attr.i[0]);
    put(r, r->in[0], 0, LABEL_LEAD, d.lead_size, d.lead, true, SN_COMBINE_SUM);
    put(r, r->in[0], d.lead, LABEL_LAST, d.n_size, d.n, true, SN_COMBINE_NONE);
    put(r, r->in[1], 0, LABEL_LEAD, d.lead_size, d.lead, true, SN_COMBINE_SUM);
    put(r, r->in[1], d.lead, LABEL_INNER, d.k_size, d.k, true, SN_COMBINE_NONE);
    put(r, r->out[0], 0, LABEL_LAST, d.n_size, d.n, true, SN_COMBINE_NONE);
    put(r, r->out[0], d.n, LABEL_INNER, d.k_size, d.k, true, SN_COMBINE_NONE);
}

static sn_status linear_backward(sn_graph *g, int node, const int *grad_out, sn_grads *into)
{
    sn_node n = g->node[node];
    int x = n.in[0], w = n.in[1], b = n.ins > 2 ? n.in[2] : -1, grad;
    int nn = sn_shape_of(g, w).rank - (int) n.attr.i[0];
    sn_attr attr = {.i = {n.attr.i[0], nn}};
    if (grad_out[0] < 0)
        return SN_OK;
    if (sn_grads_wanted(into, x)) {
        SN_TRY(
            sn_backward_node(g, SN_OP_LINEAR_DX, node, &attr, (int[]){grad_out[0], w}, 2, &grad));
        SN_TRY(sn_grads_add(g, into, x, grad));
    }
    if (sn_grads_wanted(into, w)) {
        SN_TRY(
            sn_backward_node(g, SN_OP_LINEAR_DW, node, &attr, (int[]){grad_out[0], x}, 2, &grad));
        SN_TRY(sn_grads_add(g, into, w, grad));
    }
    if (b >= 0 && sn_grads_wanted(into, b))
        SN_TRY(sn_backward_sum_to(g, into, node, grad_out[0], b, nn));
    return SN_OK;
}

const sn_op_row sn_rows_linear[] = {
    {SN_OP_LINEAR, "linear", 2, 3, 1, linear_shape, linear_backward, linear_flops, linear_shard},
    {SN_OP_LINEAR_DX, "linear_dx", 2, 2, 1, dx_shape, NULL, linear_flops, dx_shard},
    {SN_OP_LINEAR_DW, "linear_dw", 2, 2, 1, dw_shape, NULL, linear_flops, dw_shard},
};
const int sn_rows_linear_count = SN_COUNT(sn_rows_linear);
