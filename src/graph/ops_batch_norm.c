/* SPDX-License-Identifier: Apache-2.0
 * Batch norm in pieces that a split batch needs:
 *
 *   x ── bn_sums ══ s ══ bn_stats ── mean, rstd ── bn_norm ── y      ══ sums of parts combine here
 *   dy ─ bn_grad_sums ══ t ══ bn_dx ── dx
 *
 * Where the batch is split, s and t are partial sums that become whole before they are used: the
 * statistics are those of the whole micro-batch. The gradient of the three forward pieces is one
 * expression, so bn_norm contributes it and the other two nothing. */
#include "graph/private.h"

static bool is_channels(const sn_graph *g, int v, int64_t c)
{
    return v < 0 || sn_shape_equal(sn_shape_of(g, v), SN_SHAPE(c));
}

static int64_t last(sn_shape s)
{
    return s.dim[s.rank - 1];
}

static sn_status sums_shape(sn_graph *g, sn_node *n)
{
    sn_shape x = sn_shape_of(g, n->in[0]);
    if (x.rank < 2 || (n->ins > 1 && !is_channels(g, n->in[1], last(x))))
        return sn_bad_node(g, n, "x must be [N,…,C], the shift [C]");
    sn_set_out(g, n, 0, SN_SHAPE(2, last(x)));
    return SN_OK;
}

static sn_status stats_shape(sn_graph *g, sn_node *n)
{
    sn_shape s = sn_shape_of(g, n->in[0]);
    if (s.rank != 2 || s.dim[0] != 2 || n->attr.i[0] < 1 ||
        (n->ins > 1 && !is_channels(g, n->in[1], s.dim[1])))
        return sn_bad_node(g, n, "the sums must be [2,C] over n ≥ 1 rows, the shift [C]");
    sn_set_out(g, n, 0, SN_SHAPE(s.dim[1]));
    sn_set_out(g, n, 1, SN_SHAPE(s.dim[1]));
    return SN_OK;
}

/* All operands and results are [C]. */
static sn_status vectors_shape(sn_graph *g, sn_node *n)
{
    sn_shape c = sn_shape_of(g, n->in[0]);
    for (int i = 0; i < n->ins; i++)
        if (c.rank != 1 || !is_channels(g, n->in[i], c.dim[0]))
            return sn_bad_node(g, n, "all operands must be [C]");
    for (int o = 0; o < n->outs; o++)
        sn_set_out(g, n, o, c);
    return SN_OK;
}

static sn_status norm_shape(sn_graph *g, sn_node *n)
{
    sn_shape x = sn_shape_of(g, n->in[0]);
    bool fits = x.rank >= 2;
    for (int i = 1; i < 5 && fits; i++)
        fits = is_channels(g, n->in[i], last(x));
    if (fits && n->ins > 5 && n->in[5] >= 0)
        fits = sn_shape_equal(x, sn_shape_of(g, n->in[5]));
    if (!fits)
        return sn_bad_node(g, n, "x must be [N,…,C], what is added like x, the rest [C]");
    sn_set_out(g, n, 0, x);
    return SN_OK;
}

static sn_status grad_sums_shape(sn_graph *g, sn_node *n)
{
    int64_t c = last(sn_shape_of(g, n->in[0]));
    sn_set_out(g, n, 0, SN_SHAPE(c));
    sn_set_out(g, n, 1, SN_SHAPE(c));
    sn_set_out(g, n, 2, SN_SHAPE(2, c));
    return SN_OK;
}

static sn_status dx_shape(sn_graph *g, sn_node *n)
{
    sn_set_out(g, n, 0, sn_shape_of(g, n->in[0]));
    return SN_OK;
}

/* Which operands (bit i) and results (bit 8 + o) have x's shape; the others are [C] or [2,C]. */
static uint32_t like_x(sn_op op)
{
    switch (op) {
    case SN_OP_BN_SUMS:
        return 1;
    case SN_OP_BN_NORM:
        return 1 | 1u << 5 | 1u << 8;
    case SN_OP_BN_GRAD_SUMS:
        return 3 | 1u << 4;
    case SN_OP_BN_DX:
        return 3 | 1u << 6 | 1u << 8;
    default:
        return 0;
    }
}

static void label(const sn_graph *g, int v, bool rows, sn_combine lead, int8_t *row,
                  sn_shard_rule *r)
{
    sn_shape s = v < 0 ? (sn_shape){0} : sn_shape_of(g, v);
    if (rows)
        sn_label_rows(s, row, lead, true, r);
    else if (v >= 0)
        row[s.rank - 1] = (int8_t) sn_label(r, LABEL_LAST, last(s), true, SN_COMBINE_NONE);
}

static void shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    bool sums = n->op == SN_OP_BN_SUMS || n->op == SN_OP_BN_GRAD_SUMS;
    sn_combine lead = sums ? SN_COMBINE_SUM : SN_COMBINE_NONE;
    for (int i = 0; i < n->ins; i++)
        label(g, n->in[i], like_x(n->op) >> i & 1, lead, r->in[i], r);
    for (int o = 0; o < n->outs; o++)
        label(g, n->out[o], like_x(n->op) >> (8 + o) & 1, lead, r->out[o], r);
}

static double eight_flops(const sn_graph *g, const sn_node *n)
{
    return 8.0 * (double) sn_shape_count(sn_shape_of(g, n->in[0]));
}

/* The bn_stats that made mean and rstd of x, −1 when they are constants. */
static sn_status stats_of(const sn_graph *g, const sn_node *n, int *ret)
{
    int p = g->value[n->in[1]].producer, sums;
    *ret = -1;
    if (p < 0 || g->node[p].op != SN_OP_BN_STATS)
        return SN_OK;
    sums = g->value[g->node[p].in[0]].producer;
    if (sums < 0 || g->node[sums].op != SN_OP_BN_SUMS || g->node[sums].in[0] != n->in[0] ||
        g->value[n->in[2]].producer != p)
        return sn_fail(SN_ENOTSUP,
                       "bn_norm '%s' has a gradient with its own operand's statistics, "
                       "or with constant ones",
                       n->name);
    *ret = p;
    return SN_OK;
}

static sn_status norm_backward(sn_graph *g, int node, const int *grad_out, sn_grads *into)
{
    const sn_node n = g->node[node];
    int r = n.ins > 5 ? n.in[5] : -1, y = n.attr.i[0] ? n.out[0] : -1, dy = grad_out[0], stats;
    int sums[3], dx;
    SN_TRY(stats_of(g, &n, &stats));
    if (r >= 0 && sn_grads_wanted(into, r)) { /* the masked gradient exists anyway */
        sn_attr relu = {.i = {SN_ACT_RELU}};
        if (y >= 0)
            SN_TRY(sn_backward_node(g, SN_OP_ACTIVATE_GRAD, node, &relu, (int[]){dy, y}, 2, &dy));
        SN_TRY(sn_grads_add(g, into, r, dy));
        y = -1;
    }
    int in[] = {dy, n.in[0], n.in[1], n.in[2], y};
    SN_TRY(sn_backward_node(g, SN_OP_BN_GRAD_SUMS, node, NULL, in, y < 0 ? 4 : 5, sums));
    for (int k = 0; k < 2; k++)
        if (sn_grads_wanted(into, n.in[3 + k]))
            SN_TRY(sn_grads_add(g, into, n.in[3 + k], sums[k]));
    if (!sn_grads_wanted(into, n.in[0]))
        return SN_OK;
    int64_t c = last(sn_shape_of(g, n.in[0]));
    sn_attr attr = {.i = {c ? sn_shape_count(sn_shape_of(g, n.in[0])) / c : 0}};
    int of_dx[] = {dy, n.in[0], n.in[1], n.in[2], n.in[3], stats < 0 ? -1 : sums[2], y};
    SN_TRY(sn_backward_node(g, SN_OP_BN_DX, node, &attr, of_dx, y < 0 ? 6 : 7, &dx));
    return sn_grads_add(g, into, n.in[0], dx);
}

const sn_op_row sn_rows_batch_norm[] = {
    {SN_OP_BN_SUMS, "bn_sums", 1, 2, 1, sums_shape, NULL, eight_flops, shard, 1},
    {SN_OP_BN_STATS, "bn_stats", 1, 2, 2, stats_shape, NULL, NULL, shard, 3},
    {SN_OP_BN_RSTD, "bn_rstd", 1, 1, 1, vectors_shape, NULL, NULL, shard, 1},
    {SN_OP_BN_TRACK, "bn_track", 4, 4, 2, vectors_shape, NULL, NULL, shard, 3},
    {SN_OP_BN_NORM, "bn_norm", 5, 6, 1, norm_shape, norm_backward, eight_flops, shard},
    {SN_OP_BN_GRAD_SUMS, "bn_grad_sums", 4, 5, 3, grad_sums_shape, NULL, eight_flops, shard, 7},
    {SN_OP_BN_DX, "bn_dx", 5, 7, 1, dx_shape, NULL, eight_flops, shard},
};
const int sn_rows_batch_norm_count = SN_COUNT(sn_rows_batch_norm);
