/* SPDX-License-Identifier: Apache-2.0
 * Convolutions over 1 to 3 spatial dims, channels last, and their two adjoints.
 *
 *   conv  x[N,S… | C]  w[F,K… | C]  →  y[N,S'…,F]     N, F: splitting them splits the result
 *                                                     C: splitting it leaves y a partial sum
 *
 * A depthwise one (a group a channel) has a channel label along x, w and y. Other grouped ones
 * split N alone; spatial dims stay whole, for windows reach across any cut. */
#include "graph/private.h"

sn_status sn_window_shape(const sn_graph *g, const sn_node *n, sn_shape x, const int64_t *size,
                          sn_shape *ret)
{
    if (x.rank < 3 || x.rank > 5)
        return sn_bad_node(g, n, "the operand must be [N,S…,C] with 1 to 3 spatial dims");
    for (int k = 0; k < 15; k++)
        if (n->attr.i[k] < 0 || n->attr.i[k] > INT32_MAX)
            return sn_bad_node(g, n, "a size, stride, dilation or padding is out of range");
    *ret = x;
    for (int j = 0; j < x.rank - 2; j++) {
        if (size[j] < 1 || size[j] > INT32_MAX || x.dim[1 + j] > INT64_MAX / 4)
            return sn_bad_node(g, n, "a window has no size");
        ret->dim[1 + j] = sn_window_count(&n->attr, j, x.dim[1 + j], size[j]);
        if (ret->dim[1 + j] < 1)
            return sn_bad_node(g, n, "the windows do not fit into the operand");
    }
    return SN_OK;
}

static int64_t last(sn_shape s)
{
    return s.dim[s.rank - 1];
}

static sn_status conv_shape(sn_graph *g, sn_node *n)
{
    sn_shape x = sn_shape_of(g, n->in[0]), w = sn_shape_of(g, n->in[1]), y;
    if (w.rank != x.rank)
        return sn_bad_node(g, n, "x and w must have as many dims");
    SN_TRY(sn_window_shape(g, n, x, w.dim + 1, &y));
    if (last(w) < 1 || last(x) % last(w) || last(x) < 1 || w.dim[0] % (last(x) / last(w)))
        return sn_bad_node(g, n, "the channels of x and w do not make groups");
    y.dim[y.rank - 1] = w.dim[0];
    if (n->ins > 2 && n->in[2] >= 0 &&
        !sn_shape_equal(sn_shape_of(g, n->in[2]), SN_SHAPE(w.dim[0])))
        return sn_bad_node(g, n, "the bias must have the size of w's first dim");
    sn_set_out(g, n, 0, y);
    return SN_OK;
}

static sn_status wanted_shape(sn_graph *g, sn_node *n)
{
    sn_set_out(g, n, 0, n->attr.shape);
    return SN_OK;
}

/* x, w and y of a node of the family. */
typedef struct parts {
    sn_shape x, w, y;
    int8_t *of_x, *of_w, *of_y;
} parts;

static parts parts_of(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    int8_t *a = r->in[0], *b = r->in[1], *o = r->out[0];
    sn_shape in0 = sn_shape_of(g, n->in[0]), in1 = sn_shape_of(g, n->in[1]);
    sn_shape out = sn_shape_of(g, n->out[0]);
    if (n->op == SN_OP_CONV)
        return (parts){in0, in1, out, a, b, o};
    if (n->op == SN_OP_CONV_DX)
        return (parts){out, in1, in0, o, b, a};
    return (parts){in1, out, in0, b, o, a};
}

static double conv_flops(const sn_graph *g, const sn_node *n)
{
    sn_shard_rule unused;
    parts p = parts_of(g, n, &unused);
    return 2.0 * (double) sn_shape_count(p.y) * (double) sn_shape_count(p.w) / (double) p.w.dim[0];
}

static void conv_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    parts p = parts_of(g, n, r);
    int c = p.x.rank - 1;
    bool bias = n->op == SN_OP_CONV && n->ins > 2 && n->in[2] >= 0;
    bool whole = last(p.w) == last(p.x), depthwise = last(p.w) == 1 && p.w.dim[0] == last(p.x);
    sn_combine of_n = n->op == SN_OP_CONV_DW ? SN_COMBINE_SUM : SN_COMBINE_NONE;
    sn_combine of_f = n->op == SN_OP_CONV_DX && whole ? SN_COMBINE_SUM : SN_COMBINE_NONE;
    sn_combine of_c = n->op == SN_OP_CONV ? SN_COMBINE_SUM : SN_COMBINE_NONE;
    p.of_x[0] = p.of_y[0] = (int8_t) sn_label(r, LABEL_LEAD, p.x.dim[0], true, of_n);
    p.of_w[0] = p.of_y[c] = (int8_t) sn_label(r, LABEL_LAST, p.w.dim[0], whole || depthwise, of_f);
    if (whole) /* a bias added to partial sums would count twice */
        p.of_x[c] = p.of_w[c] = (int8_t) sn_label(r, LABEL_INNER, last(p.x), !bias, of_c);
    else if (depthwise)
        p.of_x[c] = p.of_w[0];
    if (bias)
        r->in[2][0] = p.of_w[0];
}

static sn_status conv_backward(sn_graph *g, int node, const int *grad_out, sn_grads *into)
{
    const sn_node n = g->node[node];
    int x = n.in[0], w = n.in[1], b = n.ins > 2 ? n.in[2] : -1, grad;
    sn_attr attr = n.attr;
    if (sn_grads_wanted(into, x)) {
        attr.shape = sn_shape_of(g, x);
        SN_TRY(sn_backward_node(g, SN_OP_CONV_DX, node, &attr, (int[]){grad_out[0], w}, 2, &grad));
        SN_TRY(sn_grads_add(g, into, x, grad));
    }
    if (sn_grads_wanted(into, w)) {
        attr.shape = sn_shape_of(g, w);
        SN_TRY(sn_backward_node(g, SN_OP_CONV_DW, node, &attr, (int[]){grad_out[0], x}, 2, &grad));
        SN_TRY(sn_grads_add(g, into, w, grad));
    }
    return b >= 0 && sn_grads_wanted(into, b) ? sn_backward_sum_to(g, into, node, grad_out[0], b, 1)
                                              : SN_OK;
}

const sn_op_row sn_rows_conv[] = {
    {SN_OP_CONV, "conv", 2, 3, 1, conv_shape, conv_backward, conv_flops, conv_shard},
    {SN_OP_CONV_DX, "conv_dx", 2, 2, 1, wanted_shape, NULL, conv_flops, conv_shard},
    {SN_OP_CONV_DW, "conv_dw", 2, 2, 1, wanted_shape, NULL, conv_flops, conv_shard},
};
const int sn_rows_conv_count = SN_COUNT(sn_rows_conv);
