/* SPDX-License-Identifier: Apache-2.0
 * Ops that take or put elements where an operand of integers says. */
#include "graph/tensor_rule.h"

static bool is_index(const sn_graph *g, int v)
{
    return sn_dtype_of(g, v) == SN_I32 || sn_dtype_of(g, v) == SN_I64;
}

static sn_status bad_index(sn_graph *g, sn_node *n)
{
    return sn_bad_node(g, n, "indices must be I32 or I64 and fit the other operands");
}

/* x with dim `axis` replaced by the dims of `index` */
static bool gathered(sn_shape x, sn_shape index, int64_t axis, sn_shape *ret)
{
    sn_shape y = {.rank = x.rank - 1 + index.rank};
    if (axis < 0 || axis >= x.rank || y.rank > SN_RANK_MAX)
        return false;
    for (int d = 0; d < y.rank; d++) {
        if (d < axis)
            y.dim[d] = x.dim[d];
        else if (d < axis + index.rank)
            y.dim[d] = index.dim[d - axis];
        else
            y.dim[d] = x.dim[d - index.rank + 1];
    }
    *ret = y;
    return true;
}

static sn_status gather_shape(sn_graph *g, sn_node *n)
{
    sn_shape y;
    if (!is_index(g, n->in[1]) ||
        !gathered(sn_shape_of(g, n->in[0]), sn_shape_of(g, n->in[1]), n->attr.i[0], &y))
        return bad_index(g, n);
    return sn_tensor_out(g, n, 0, y, sn_dtype_of(g, n->in[0]));
}

static sn_status gather_sum_shape(sn_graph *g, sn_node *n)
{
    sn_shape y;
    if (!is_index(g, n->in[0]) ||
        !gathered(n->attr.shape, sn_shape_of(g, n->in[0]), n->attr.i[0], &y) ||
        !sn_shape_equal(y, sn_shape_of(g, n->in[1])))
        return bad_index(g, n);
    return sn_tensor_out(g, n, 0, n->attr.shape, sn_dtype_of(g, n->in[1]));
}

/* Labels of x, the indices and y of a gather along `axis`; x's dim `axis` stays whole. */
static void label_gather(sn_shape x, sn_shape index, int axis, sn_combine combine, int8_t *of_x,
                         int8_t *of_index, int8_t *of_y, sn_shard_rule *r)
{
    for (int d = 0; d < x.rank; d++) {
        if (d != axis)
            of_x[d] = of_y[d < axis ? d : d - 1 + index.rank] = sn_label_dim(r, d, x.dim[d]);
    }
    for (int d = 0; d < index.rank; d++)
        of_index[d] = of_y[axis + d] =
            (int8_t) sn_label(r, LABEL_INNER + d, index.dim[d], true, combine);
}

static void gather_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    label_gather(sn_shape_of(g, n->in[0]), sn_shape_of(g, n->in[1]), (int) n->attr.i[0],
                 SN_COMBINE_NONE, r->in[0], r->in[1], r->out[0], r);
}

static void gather_sum_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    label_gather(sn_shape_of(g, n->out[0]), sn_shape_of(g, n->in[0]), (int) n->attr.i[0],
                 SN_COMBINE_SUM, r->out[0], r->in[0], r->in[1], r);
}

/* gather and elements: the sum of dy at the same indices. */
static sn_status index_backward(sn_graph *g, int node, const int *grad_out, sn_grads *into)
{
    const sn_node n = g->node[node];
    sn_attr attr = n.attr;
    int grad;
    if (grad_out[0] < 0 || !sn_grads_wanted(into, n.in[0]))
        return SN_OK;
    attr.shape = sn_shape_of(g, n.in[0]);
    sn_op op = n.op == SN_OP_GATHER ? SN_OP_GATHER_SUM : SN_OP_ELEMENTS_SUM;
    SN_TRY(sn_backward_node(g, op, node, &attr, (int[]){n.in[1], grad_out[0]}, 2, &grad));
    return sn_grads_add(g, into, n.in[0], grad);
}

/* `part` has x's dims, none larger but along `axis`. */
static bool beside(sn_shape x, sn_shape part, int64_t axis)
{
    if (part.rank != x.rank || axis < 0 || axis >= x.rank)
        return false;
    for (int d = 0; d < x.rank; d++)
        if (d != axis && part.dim[d] > x.dim[d])
            return false;
    return true;
}

static sn_status elements_shape(sn_graph *g, sn_node *n)
{
    sn_shape index = sn_shape_of(g, n->in[1]);
    if (!is_index(g, n->in[1]) || !beside(sn_shape_of(g, n->in[0]), index, n->attr.i[0]))
        return bad_index(g, n);
    return sn_tensor_out(g, n, 0, index, sn_dtype_of(g, n->in[0]));
}

static sn_status elements_sum_shape(sn_graph *g, sn_node *n)
{
    sn_shape index = sn_shape_of(g, n->in[0]);
    if (!is_index(g, n->in[0]) || !beside(n->attr.shape, index, n->attr.i[0]) ||
        !sn_shape_equal(index, sn_shape_of(g, n->in[1])))
        return bad_index(g, n);
    return sn_tensor_out(g, n, 0, n->attr.shape, sn_dtype_of(g, n->in[1]));
}

/* Dims but the indexed one that all operands have in full. */
static void elements_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
    sn_shape y = sn_shape_of(g, n->out[0]);
    for (int d = 0; d < y.rank; d++) {
        bool full = d != n->attr.i[0];
        for (int i = 0; i < n->ins; i++)
            full &= sn_shape_of(g, n->in[i]).dim[d] == y.dim[d];
        if (!full)
            continue;
        int8_t l = sn_label_dim(r, d, y.dim[d]);
        r->out[0][d] = l;
        for (int i = 0; i < n->ins; i++)
            r->in[i][d] = l;
    }
}

static sn_status scatter_shape(sn_graph *g, sn_node *n)
{
    sn_shape x = sn_shape_of(g, n->in[0]), index = sn_shape_of(g, n->in[1]);
    if (!is_index(g, n->in[1]) || !beside(x, index, n->attr.i[0]) || n->attr.i[1] < 0 ||
        n->attr.i[1] >= SN_SCATTER_COUNT || !sn_shape_equal(index, sn_shape_of(g, n->in[2])) ||
        sn_dtype_of(g, n->in[0]) != sn_dtype_of(g, n->in[2]))
        return bad_index(g, n);
    return sn_tensor_out(g, n, 0, x, sn_dtype_of(g, n->in[0]));
}

static sn_status gather_nd_shape(sn_graph *g, sn_node *n)
{
    sn_shape x = sn_shape_of(g, n->in[0]), index = sn_shape_of(g, n->in[1]), y = {0};
    int64_t same = n->attr.i[0];
    if (!is_index(g, n->in[1]) || index.rank < 1 || same < 0 || same >= index.rank)
        return bad_index(g, n);
    int64_t length = index.dim[index.rank - 1];
    if (length < 1 || length > x.rank - same ||
        index.rank - 1 + x.rank - same - length > SN_RANK_MAX)
        return bad_index(g, n);
    for (int d = 0; d < same; d++)
        if (x.dim[d] != index.dim[d])
            return bad_index(g, n);
    for (int d = 0; d < index.rank - 1; d++)
        y.dim[y.rank++] = index.dim[d];
    for (int64_t d = same + length; d < x.rank; d++)
        y.dim[y.rank++] = x.dim[d];
    return sn_tensor_out(g, n, 0, y, sn_dtype_of(g, n->in[0]));
}

static sn_status scatter_nd_shape(sn_graph *g, sn_node *n)
{
    sn_shape x = sn_shape_of(g, n->in[0]), index = sn_shape_of(g, n->in[1]), u = {0};
    int64_t length = index.rank ? index.dim[index.rank - 1] : 0;
    if (!is_index(g, n->in[1]) || length < 1 || length > x.rank || n->attr.i[1] < 0 ||
        n->attr.i[1] >= SN_SCATTER_COUNT || index.rank - 1 + x.rank - length > SN_RANK_MAX ||
        sn_dtype_of(g, n->in[0]) != sn_dtype_of(g, n->in[2]))
        return bad_index(g, n);
    for (int d = 0; d < index.rank - 1; d++)
        u.dim[u.rank++] = index.dim[d];
    for (int64_t d = length; d < x.rank; d++)
        u.dim[u.rank++] = x.dim[d];
    if (!sn_shape_equal(u, sn_shape_of(g, n->in[2])))
        return bad_index(g, n);
    return sn_tensor_out(g, n, 0, x, sn_dtype_of(g, n->in[0]));
}

static void whole_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *r)
{
}

const sn_op_row sn_rows_index[] = {
    {SN_OP_GATHER, "gather", 2, 2, 1, gather_shape, index_backward, NULL, gather_shard},
    {SN_OP_GATHER_SUM, "gather_sum", 2, 2, 1, gather_sum_shape, NULL, NULL, gather_sum_shard},
    {SN_OP_ELEMENTS, "elements", 2, 2, 1, elements_shape, index_backward, NULL, elements_shard},
    {SN_OP_ELEMENTS_SUM, "elements_sum", 2, 2, 1, elements_sum_shape, NULL, NULL, elements_shard},
    {SN_OP_SCATTER, "scatter", 3, 3, 1, scatter_shape, NULL, NULL, elements_shard},
    {SN_OP_GATHER_ND, "gather_nd", 2, 2, 1, gather_nd_shape, NULL, NULL, whole_shard},
    {SN_OP_SCATTER_ND, "scatter_nd", 3, 3, 1, scatter_nd_shape, NULL, NULL, whole_shard},
};
const int sn_rows_index_count = SN_COUNT(sn_rows_index);
