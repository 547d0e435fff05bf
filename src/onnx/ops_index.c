/* SPDX-License-Identifier: Apache-2.0
 * Rows that take or put elements by index. */
#include "onnx/private.h"

#include <string.h>

static void gather_row(importer *m, call *c)
{
    int axis = axis_of(m, attr_int(m, c, "axis", 0), c->in[0]->shape.rank);
    c->out[0] = gather(m, c->in[0], c->in[1], axis);
}

static void gather_elements(importer *m, call *c)
{
    int axis = axis_of(m, attr_int(m, c, "axis", 0), c->in[0]->shape.rank);
    c->out[0] = elements(m, c->in[0], c->in[1], axis);
}

static sn_scatter reduction(importer *m, call *c)
{
    static const struct {
        const char *name;
        sn_scatter f;
    } table[] = {{"none", SN_SCATTER_PUT},
                 {"add", SN_SCATTER_ADD},
                 {"mul", SN_SCATTER_MUL},
                 {"max", SN_SCATTER_MAX},
                 {"min", SN_SCATTER_MIN}};
    const char *name = attr_str(m, c, "reduction", "none");
    for (size_t i = 0; i < SN_COUNT(table); i++)
        if (!strcmp(table[i].name, name))
            return table[i].f;
    onnx_fail(m, SN_ENOTSUP, "reduction '%.20s' is not offered", name);
    return SN_SCATTER_PUT;
}

static void scatter_elements(importer *m, call *c)
{
    int axis = axis_of(m, attr_int(m, c, "axis", 0), c->in[0]->shape.rank);
    c->out[0] = scatter(m, c->in[0], c->in[1], c->in[2], axis, reduction(m, c));
}

static void gather_nd(importer *m, call *c)
{
    item *in[] = {c->in[0], cast(m, c->in[1], SN_I64)};
    sn_attr attr = {.i = {attr_int(m, c, "batch_dims", 0)}};
    emit(m, SN_OP_GATHER_ND, &attr, in, 2, c->out);
}

static void scatter_nd(importer *m, call *c)
{
    item *in[] = {c->in[0], cast(m, c->in[1], SN_I64), c->in[2]};
    sn_attr attr = {.i = {0, reduction(m, c)}};
    emit(m, SN_OP_SCATTER_ND, &attr, in, 3, c->out);
}

static void one_hot_row(importer *m, call *c)
{
    item *index = cast(m, c->in[0], SN_I64), *values = c->in[2];
    int64_t depth;
    if (need_ints(m, c->in[1], "its depth", &depth, 1) != 1)
        return;
    int rank = c->in[0]->shape.rank;
    int axis = axis_of(m, attr_int(m, c, "axis", -1), rank + 1), perm[SN_RANK_MAX];
    if (!ok(m) || rank >= SN_RANK_MAX || depth < 0) {
        onnx_fail(m, SN_ENOTSUP, "too many dims, or a depth below 0");
        return;
    }
    item *n = scalar(m, SN_I64, (double) depth), *zero = scalar(m, SN_I64, 0);
    index =
        where(m, binary(m, SN_BINARY_LT, index, zero), binary(m, SN_BINARY_ADD, index, n), index);
    item *hot = one_hot(m, index, depth);
    for (int d = 0; d <= rank; d++)
        perm[d] = d < axis ? d : d == axis ? rank : d - 1;
    hot = transpose(m, hot, perm);
    item *off = part(m, values, 0, 0, 1), *on = part(m, values, 0, 1, 1);
    c->out[0] = where(m, hot, on, off);
}

static void cumsum(importer *m, call *c)
{
    int64_t axis;
    if (need_ints(m, c->in[1], "its axis", &axis, 1) != 1)
        return;
    int d = axis_of(m, axis, c->in[0]->shape.rank);
    c->out[0] =
        cumulate(m, c->in[0], d, attr_int(m, c, "exclusive", 0), attr_int(m, c, "reverse", 0));
}

static void top_k(importer *m, call *c)
{
    int64_t k = attr_int(m, c, "k", 0);
    int axis = axis_of(m, attr_int(m, c, "axis", -1), c->in[0]->shape.rank);
    if (c->opset >= 10 && need_ints(m, c->in[1], "k", &k, 1) != 1)
        return;
    sn_attr attr = {.i = {axis, k, attr_int(m, c, "largest", 1)}};
    emit(m, SN_OP_TOP, &attr, c->in, 1, c->out);
}

/* Each sequence of a batch backwards up to its length: a gather along time by known indices. */
static void reverse_sequence(importer *m, call *c)
{
    item *x = c->in[0];
    int time = (int) attr_int(m, c, "time_axis", 0), batch = (int) attr_int(m, c, "batch_axis", 1);
    void *data;
    if (x->shape.rank < 2 || time < 0 || time > 1 || batch != 1 - time) {
        onnx_fail(m, SN_EINVAL, "its axes must be 0 and 1");
        return;
    }
    if (!need(m, c->in[1], "the lengths") ||
        sn_shape_count(c->in[1]->shape) != x->shape.dim[batch]) {
        onnx_fail(m, SN_EINVAL, "a length is needed for each of the batch");
        return;
    }
    sn_shape s = x->shape;
    for (int d = 2; d < s.rank; d++)
        s.dim[d] = 1;
    item *index = constant(m, SN_I64, s, &data);
    for (int64_t i = 0; index && i < s.dim[0]; i++)
        for (int64_t j = 0; j < s.dim[1]; j++) {
            int64_t t = time == 0 ? i : j, length = integer_at(c->in[1], time == 0 ? j : i);
            ((int64_t *) data)[i * s.dim[1] + j] = t < length ? length - 1 - t : t;
        }
    c->out[0] = elements(m, x, index ? tile(m, index, x->shape) : NULL, time);
}

const row onnx_rows_index[] = {
    {"CumSum", 11, 2, cumsum},
    {"Gather", 1, 2, gather_row},
    {"GatherElements", 11, 2, gather_elements},
    {"GatherND", 11, 2, gather_nd},
    {"OneHot", 9, 3, one_hot_row},
    {"ReverseSequence", 10, 2, reverse_sequence},
    {"Scatter", 9, 3, scatter_elements},
    {"ScatterElements", 11, 3, scatter_elements},
    {"ScatterND", 11, 3, scatter_nd},
    {"TopK", 1, 1, top_k},
};
const int onnx_rows_index_count = SN_COUNT(onnx_rows_index);
