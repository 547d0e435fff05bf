/* SPDX-License-Identifier: Apache-2.0
 * The words rows build with: each appends an op to the graph, or computes it when all is known. */
#include "onnx/private.h"

#include <string.h>

#define R SN_RANK_MAX

/* The result of an op on these operands, in a graph of its own: types and shapes for folding. */
static sn_status shapes(importer *m, sn_op op, const sn_attr *attr, item *const *in, int ins,
                        sn_tensor *out, int outs)
{
    sn_arena *arena = sn_arena_create();
    sn_graph *g = sn_graph_create(arena, "fold");
    int value[SN_OP_IN_MAX], result[SN_OP_OUT_MAX];
    for (int i = 0; i < ins; i++)
        value[i] = sn_graph_input(g, "operand", in[i]->dtype, in[i]->shape, -1);
    sn_status status = sn_graph_add(g, op, "folded", attr, value, ins, result);
    for (int o = 0; status >= 0 && o < outs; o++)
        out[o] = (sn_tensor){NULL, g->value[result[o]].dtype, g->value[result[o]].shape};
    sn_arena_free(arena);
    return status;
}

static bool fold_op(importer *m, sn_op op, const sn_attr *attr, item *const *in, int ins,
                    item **out, int outs)
{
    sn_tensor from[SN_OP_IN_MAX], to[SN_OP_OUT_MAX];
    sn_status status = shapes(m, op, attr, in, ins, to, outs);
    if (status < 0)
        return onnx_keep(m, status);
    if (!m->opts.run)
        return onnx_fail(m, SN_ENOTSUP, "constants cannot be computed here");
    for (int i = 0; i < ins; i++)
        from[i] = (sn_tensor){(void *) in[i]->data, in[i]->dtype, in[i]->shape};
    for (int o = 0; o < outs; o++) {
        out[o] = constant(m, to[o].dtype, to[o].shape, &to[o].data);
        if (!out[o])
            return false;
    }
    status = m->opts.run(m->opts.ctx, op, attr, from, ins, to, outs);
    if (status < 0)
        onnx_keep(m, status);
    return ok(m);
}

static void remember(importer *m, sn_onnx_value **list, int *count, size_t *cap, const item *x)
{
    *list =
        sn_arena_grow(m->arena, *list, (size_t) *count, (size_t) *count + 1, sizeof **list, cap);
    (*list)[(*count)++] =
        (sn_onnx_value){x->name, x->value, {(void *) x->data, x->dtype, x->shape}};
}

/* The value of the graph that stands for the item, made at its first use as an operand. */
static int value_of(importer *m, item *x)
{
    sn_onnx *r = m->result;
    if (x->value >= 0)
        return x->value;
    if (!x->name)
        x->name = sn_arena_printf(m->arena, "constant.%d", r->constants);
    if (x->trains) {
        x->value = sn_graph_param(m->graph, x->name, x->shape, SN_INIT_ZERO, 0, x->shape.rank > 1);
        remember(m, &r->param, &r->params, &m->param_cap, x);
    } else {
        x->value = sn_graph_input(m->graph, x->name, x->dtype, x->shape, -1);
        remember(m, &r->constant, &r->constants, &m->constant_cap, x);
    }
    return x->value;
}

bool emit(importer *m, sn_op op, const sn_attr *attr, item *const *in, int ins, item **out)
{
    int outs = sn_op_row_of(op)->outs, value[SN_OP_IN_MAX], result[SN_OP_OUT_MAX];
    bool all_known = true;
    for (int o = 0; o < outs; o++)
        out[o] = NULL;
    if (!ok(m))
        return false;
    for (int i = 0; i < ins; i++) {
        if (!in[i])
            return onnx_fail(m, SN_EINVAL, "an operand is missing");
        all_known &= in[i]->known;
    }
    if (all_known)
        return fold_op(m, op, attr, in, ins, out, outs);
    if (m->graph->nodes >= (m->opts.nodes_max > 0 ? m->opts.nodes_max : 200000))
        return onnx_fail(m, SN_EFIT, "the graph has more than %d nodes", m->graph->nodes);
    for (int i = 0; i < ins; i++)
        value[i] = value_of(m, in[i]);
    sn_status status = sn_graph_add(m->graph, op, m->at, attr, value, ins, result);
    if (status < 0)
        return onnx_keep(m, status);
    for (int o = 0; o < outs; o++) {
        const sn_value *v = &m->graph->value[result[o]];
        out[o] = item_new(m, v->dtype, v->shape);
        if (!out[o])
            return false;
        out[o]->value = result[o];
    }
    return true;
}

static item *one(importer *m, sn_op op, const sn_attr *attr, item *x)
{
    item *y;
    return emit(m, op, attr, &x, 1, &y) ? y : NULL;
}

item *unary2(importer *m, sn_unary f, double a, double b, item *x)
{
    return one(m, SN_OP_UNARY, &(sn_attr){.i = {f}, .f = {a, b}}, x);
}

item *unary(importer *m, sn_unary f, item *x)
{
    return unary2(m, f, 0, 0, x);
}

item *scaled(importer *m, item *x, double a, double b)
{
    return unary2(m, SN_UNARY_AFFINE, a, b, x);
}

item *binary(importer *m, sn_binary f, item *x, item *y)
{
    item *z;
    return emit(m, SN_OP_BINARY, &(sn_attr){.i = {f}}, (item *[]){x, y}, 2, &z) ? z : NULL;
}

item *where(importer *m, item *c, item *x, item *y)
{
    item *z;
    return emit(m, SN_OP_WHERE, NULL, (item *[]){c, x, y}, 3, &z) ? z : NULL;
}

item *cast(importer *m, item *x, sn_dtype t)
{
    if (x && x->dtype == t)
        return x;
    return one(m, SN_OP_CAST, &(sn_attr){.i = {t}}, x);
}

item *reduce(importer *m, sn_reduce f, item *x, int64_t mask)
{
    return one(m, SN_OP_REDUCE, &(sn_attr){.i = {f, mask}}, x);
}

item *arg(importer *m, item *x, int axis, bool smallest, bool last)
{
    return one(m, SN_OP_ARG, &(sn_attr){.i = {axis, smallest, last}}, x);
}

item *reshape(importer *m, item *x, sn_shape shape)
{
    if (x && sn_shape_equal(x->shape, shape))
        return x;
    return one(m, SN_OP_RESHAPE, &(sn_attr){.shape = shape}, x);
}

item *transpose(importer *m, item *x, const int *perm)
{
    sn_attr attr = {0};
    bool same = true;
    if (!x || !ok(m))
        return NULL;
    for (int d = 0; d < x->shape.rank; d++) {
        attr.i[d] = perm[d];
        same &= perm[d] == d;
    }
    return same ? x : one(m, SN_OP_TRANSPOSE, &attr, x);
}

item *strided(importer *m, item *x, const int64_t *start, const int64_t *step, sn_shape shape)
{
    sn_attr attr = {.shape = shape};
    bool same = x && sn_shape_equal(x->shape, shape);
    for (int d = 0; d < shape.rank; d++) {
        attr.i[d] = start[d];
        attr.i[R + d] = step ? step[d] : 1;
        same &= attr.i[R + d] == 1;
    }
    return same ? x : one(m, SN_OP_STRIDED, &attr, x);
}

item *part(importer *m, item *x, int axis, int64_t from, int64_t count)
{
    int64_t start[R] = {0};
    if (!x || !ok(m))
        return NULL;
    sn_shape shape = x->shape;
    start[axis] = from;
    shape.dim[axis] = count;
    return strided(m, x, start, NULL, shape);
}

item *concat(importer *m, item *const *x, int n, int axis)
{
    item *y = n > 0 ? x[0] : NULL;
    for (int i = 1; i < n && ok(m); i += SN_OP_IN_MAX - 1) {
        item *in[SN_OP_IN_MAX] = {y};
        int count = SN_MIN(n - i, SN_OP_IN_MAX - 1);
        memcpy(in + 1, x + i, (size_t) count * sizeof *in);
        if (!emit(m, SN_OP_CONCAT, &(sn_attr){.i = {axis}}, in, 1 + count, &y))
            return NULL;
    }
    return y;
}

item *pad(importer *m, item *x, const int64_t *before, const int64_t *after, double v)
{
    sn_attr attr = {.f = {v}};
    bool none = true;
    if (!x || !ok(m))
        return NULL;
    for (int d = 0; d < x->shape.rank; d++) {
        attr.i[d] = before[d];
        attr.i[R + d] = after[d];
        none &= !before[d] && !after[d];
    }
    return none ? x : one(m, SN_OP_PAD, &attr, x);
}

item *tile(importer *m, item *x, sn_shape shape)
{
    if (x && sn_shape_equal(x->shape, shape))
        return x;
    return one(m, SN_OP_TILE, &(sn_attr){.shape = shape}, x);
}

/* x with dims of 1 before its own until it has `rank`. */
static item *lifted(importer *m, item *x, int rank)
{
    if (!x || !ok(m) || x->shape.rank >= rank)
        return x;
    sn_shape s = {.rank = rank};
    int more = rank - x->shape.rank;
    for (int d = 0; d < rank; d++)
        s.dim[d] = d < more ? 1 : x->shape.dim[d - more];
    return reshape(m, x, s);
}

item *expand(importer *m, item *x, sn_shape shape)
{
    x = lifted(m, x, shape.rank);
    if (!x)
        return NULL;
    sn_shape full = x->shape; /* a dim of 1 in the wanted shape keeps x's */
    for (int d = 0; d < shape.rank; d++) {
        int at = d + full.rank - shape.rank;
        if (shape.dim[d] != 1)
            full.dim[at] = shape.dim[d];
    }
    return tile(m, x, full);
}

item *gather(importer *m, item *x, item *index, int axis)
{
    item *y;
    if (index && index->dtype != SN_I32)
        index = cast(m, index, SN_I64);
    return emit(m, SN_OP_GATHER, &(sn_attr){.i = {axis}}, (item *[]){x, index}, 2, &y) ? y : NULL;
}

item *elements(importer *m, item *x, item *index, int axis)
{
    item *y;
    if (index && index->dtype != SN_I32)
        index = cast(m, index, SN_I64);
    return emit(m, SN_OP_ELEMENTS, &(sn_attr){.i = {axis}}, (item *[]){x, index}, 2, &y) ? y : NULL;
}

item *scatter(importer *m, item *x, item *index, item *u, int axis, sn_scatter f)
{
    item *y;
    if (index && index->dtype != SN_I32)
        index = cast(m, index, SN_I64);
    return emit(m, SN_OP_SCATTER, &(sn_attr){.i = {axis, f}}, (item *[]){x, index, u}, 3, &y)
               ? y
               : NULL;
}

item *cumulate(importer *m, item *x, int axis, bool exclusive, bool reverse)
{
    return one(m, SN_OP_CUMULATE, &(sn_attr){.i = {axis, exclusive, reverse}}, x);
}

item *linear(importer *m, item *x, item *w, item *b)
{
    item *y;
    return emit(m, SN_OP_LINEAR, &(sn_attr){.i = {1}}, (item *[]){x, w, b}, b ? 3 : 2, &y) ? y
                                                                                           : NULL;
}

/* x[…,K]·y[K,N] with one matrix on the right, as parameters are: a linear, whose gradient sums over
 * all leading dims at once. */
static bool is_linear(const item *x, const item *y)
{
    return x->dtype == SN_F32 && y->dtype == SN_F32 && y->shape.rank == 2 && x->shape.rank >= 2 &&
           !(x->known && y->known) && x->shape.dim[x->shape.rank - 1] == y->shape.dim[0];
}

item *matmul(importer *m, item *x, item *y)
{
    if (!x || !y || !ok(m))
        return NULL;
    bool vector = x->shape.rank == 1, column = y->shape.rank == 1;
    if (!x->shape.rank || !y->shape.rank)
        return onnx_fail(m, SN_EINVAL, "a product of matrices has no scalar operands");
    if (vector)
        x = reshape(m, x, SN_SHAPE(1, x->shape.dim[0]));
    if (column)
        y = reshape(m, y, SN_SHAPE(y->shape.dim[0], 1));
    item *z = NULL;
    if (x && y && is_linear(x, y)) {
        z = linear(m, x, transpose(m, y, (int[]){1, 0}), NULL);
    } else if (x && y) {
        int rank = SN_MAX(x->shape.rank, y->shape.rank);
        x = lifted(m, x, rank);
        y = lifted(m, y, rank);
        if (!x || !y)
            return NULL;
        sn_shape sx = x->shape, sy = y->shape;
        for (int d = 0; d < rank - 2; d++) {
            sx.dim[d] = sx.dim[d] == 1 ? sy.dim[d] : sx.dim[d];
            sy.dim[d] = sy.dim[d] == 1 ? sx.dim[d] : sy.dim[d];
        }
        emit(m, SN_OP_MATMUL, NULL, (item *[]){tile(m, x, sx), tile(m, y, sy)}, 2, &z);
    }
    int64_t gone = 0;
    if (z && vector)
        gone |= (int64_t) 1 << (z->shape.rank - 2);
    if (z && column)
        gone |= (int64_t) 1 << (z->shape.rank - 1);
    return axes_mask_squeeze(m, z, gone);
}

static void window_attr(const window *w, sn_attr *attr)
{
    for (int j = 0; j < 3; j++) {
        attr->i[j] = w->size[j];
        attr->i[3 + j] = w->stride[j];
        attr->i[6 + j] = w->dilation[j];
        attr->i[9 + j] = w->before[j];
        attr->i[12 + j] = w->after[j];
    }
}

item *unfold(importer *m, item *x, const window *w, double v)
{
    sn_attr attr = {.f = {v}};
    window_attr(w, &attr);
    return one(m, SN_OP_UNFOLD, &attr, x);
}

item *fold(importer *m, item *y, const window *w, sn_shape shape)
{
    sn_attr attr = {.shape = shape};
    window_attr(w, &attr);
    return one(m, SN_OP_FOLD, &attr, y);
}

/* ---- longer words ---- */
item *axes_mask_squeeze(importer *m, item *x, int64_t mask)
{
    sn_shape s = {0};
    if (!x || !ok(m))
        return NULL;
    for (int d = 0; d < x->shape.rank; d++)
        if (!(mask >> d & 1))
            s.dim[s.rank++] = x->shape.dim[d];
    return reshape(m, x, s);
}

item *unsqueeze(importer *m, item *x, int axis)
{
    sn_shape s = {0};
    if (!x || !ok(m))
        return NULL;
    if (x->shape.rank >= R)
        return onnx_fail(m, SN_ENOTSUP, "more than %d dims are not offered", R);
    for (int d = 0; d <= x->shape.rank; d++)
        s.dim[s.rank++] = d == axis ? 1 : x->shape.dim[d < axis ? d : d - 1];
    return reshape(m, x, s);
}

item *softmax_of(importer *m, item *x, int64_t mask, bool log)
{
    item *z = binary(m, SN_BINARY_SUB, x, reduce(m, SN_REDUCE_MAX, x, mask));
    item *e = unary(m, SN_UNARY_EXP, z), *sum = reduce(m, SN_REDUCE_SUM, e, mask);
    if (log)
        return binary(m, SN_BINARY_SUB, z, unary(m, SN_UNARY_LOG, sum));
    return binary(m, SN_BINARY_DIV, e, sum);
}

item *one_hot(importer *m, item *index, int64_t n)
{
    if (!index || !ok(m))
        return NULL;
    index = unsqueeze(m, cast(m, index, SN_I64), index->shape.rank);
    return binary(m, SN_BINARY_EQ, index, iota(m, n));
}
