/* SPDX-License-Identifier: Apache-2.0
 * Rows that make tensors: constants, ranges, triangles, windows of signals. */
#include "onnx/private.h"

#include <math.h>
#include <string.h>

#define R SN_RANK_MAX

static void constant_row(importer *m, call *c)
{
    const Onnx__AttributeProto *a;
    void *data;
    if ((c->out[0] = attr_tensor(m, c, "value")))
        return;
    if ((a = onnx_attr(c, m, "value_float")) && a->has_f) {
        c->out[0] = scalar(m, SN_F32, (double) a->f);
    } else if ((a = onnx_attr(c, m, "value_int")) && a->has_i) {
        c->out[0] = constant(m, SN_I64, (sn_shape){0}, &data);
        if (c->out[0])
            *(int64_t *) data = a->i;
    } else if ((a = onnx_attr(c, m, "value_floats"))) {
        c->out[0] = constant(m, SN_F32, SN_SHAPE((int64_t) a->n_floats), &data);
        if (c->out[0] && a->n_floats)
            memcpy(data, a->floats, a->n_floats * sizeof(float));
    } else if ((a = onnx_attr(c, m, "value_ints"))) {
        c->out[0] = constant(m, SN_I64, SN_SHAPE((int64_t) a->n_ints), &data);
        if (c->out[0] && a->n_ints)
            memcpy(data, a->ints, a->n_ints * sizeof(int64_t));
    } else {
        onnx_fail(m, SN_ENOTSUP, "its value is no tensor, number or list of numbers");
    }
}

static void constant_of_shape(importer *m, call *c)
{
    sn_shape s = {0};
    item *v = attr_tensor(m, c, "value");
    s.rank = need_ints(m, c->in[0], "its shape", s.dim, R);
    if (s.rank < 0)
        return;
    v = v ? v : scalar(m, SN_F32, 0);
    if (v && sn_shape_count(v->shape) != 1) {
        onnx_fail(m, SN_EINVAL, "its value must be one number");
        return;
    }
    c->out[0] = expand(m, reshape(m, v, (sn_shape){0}), s);
}

static void range(importer *m, call *c)
{
    item *from = c->in[0], *to = c->in[1], *by = c->in[2];
    if (!need(m, from, "its start") || !need(m, to, "its end") || !need(m, by, "its step"))
        return;
    double step = number_at(by, 0), n = ceil((number_at(to, 0) - number_at(from, 0)) / step);
    if (!(step != 0) || !(n < 1e12)) {
        onnx_fail(m, SN_EINVAL, "a range without end");
        return;
    }
    item *i = cast(m, iota(m, n > 0 ? (int64_t) n : 0), from->dtype);
    c->out[0] = binary(m, SN_BINARY_ADD, binary(m, SN_BINARY_MUL, i, reshape(m, by, (sn_shape){0})),
                       reshape(m, from, (sn_shape){0}));
}

/* BOOL[rows,cols]: column − row compared with k */
static item *diagonal(importer *m, int64_t rows, int64_t cols, int64_t k, sn_binary f)
{
    item *down = reshape(m, iota(m, rows), SN_SHAPE(rows, 1));
    return binary(m, f, binary(m, SN_BINARY_SUB, iota(m, cols), down),
                  scalar(m, SN_I64, (double) k));
}

static void eye_like(importer *m, call *c)
{
    sn_shape x = c->in[0]->shape;
    sn_dtype t = c->in[0]->dtype;
    int64_t type = attr_int(m, c, "dtype", -1);
    if (x.rank != 2 || (type >= 0 && !onnx_dtype((int32_t) type, &t))) {
        onnx_fail(m, SN_EINVAL, "it needs a matrix, and a type that is offered");
        return;
    }
    c->out[0] = cast(m, diagonal(m, x.dim[0], x.dim[1], attr_int(m, c, "k", 0), SN_BINARY_EQ), t);
}

static void trilu(importer *m, call *c)
{
    item *x = c->in[0];
    int64_t k = 0;
    if (has(c, 1) && need_ints(m, c->in[1], "k", &k, 1) != 1)
        return;
    if (x->shape.rank < 2) {
        onnx_fail(m, SN_EINVAL, "it needs matrices");
        return;
    }
    bool upper = attr_int(m, c, "upper", 1);
    item *keep = diagonal(m, x->shape.dim[x->shape.rank - 2], x->shape.dim[x->shape.rank - 1], k,
                          upper ? SN_BINARY_GE : SN_BINARY_LE);
    c->out[0] = where(m, keep, x, scalar(m, x->dtype, 0));
}

/* a0 − a1·cos(2πi/n) + a2·cos(4πi/n) */
static void signal_window(importer *m, call *c)
{
    static const struct {
        const char *name;
        double a[3];
    } table[] = {{"HannWindow", {0.5, 0.5, 0}},
                 {"HammingWindow", {25.0 / 46, 21.0 / 46, 0}},
                 {"BlackmanWindow", {0.42, 0.5, 0.08}}};
    int64_t size;
    sn_dtype t;
    void *data;
    if (need_ints(m, c->in[0], "its size", &size, 1) != 1)
        return;
    if (!onnx_dtype((int32_t) attr_int(m, c, "output_datatype", 1), &t) || size < 0) {
        onnx_fail(m, SN_EINVAL, "its size or type cannot be");
        return;
    }
    double n = (double) (attr_int(m, c, "periodic", 1) ? size : size - 1);
    item *y = constant(m, t, SN_SHAPE(size), &data);
    for (size_t k = 0; k < SN_COUNT(table); k++)
        for (int64_t i = 0; y && i < size && !strcmp(table[k].name, c->node->op_type); i++) {
            const double *a = table[k].a, at = 2 * M_PI * (double) i / n;
            number_put(t, data, i, a[0] - a[1] * cos(at) + a[2] * cos(2 * at));
        }
    c->out[0] = y;
}

/* Triangles over the bins of a spectrum, evenly spaced on the scale of pitch. */
static void mel_weights(importer *m, call *c)
{
    int64_t bands, length, rate;
    void *data;
    if (need_ints(m, c->in[0], "bands", &bands, 1) != 1 ||
        need_ints(m, c->in[1], "length", &length, 1) != 1 ||
        need_ints(m, c->in[2], "rate", &rate, 1) != 1 || !need(m, c->in[3], "lower edge") ||
        !need(m, c->in[4], "upper edge"))
        return;
    if (bands < 1 || bands > 1 << 20 || length < 1 || length > 1 << 30 || rate < 1) {
        onnx_fail(m, SN_EINVAL, "its sizes cannot be");
        return;
    }
    sn_dtype t;
    if (!onnx_dtype((int32_t) attr_int(m, c, "output_datatype", 1), &t))
        t = SN_F32;
    double low = 2595 * log10(1 + number_at(c->in[3], 0) / 700);
    double high = 2595 * log10(1 + number_at(c->in[4], 0) / 700);
    int64_t bins = length / 2 + 1;
    item *y = constant(m, t, SN_SHAPE(bins, bands), &data);
    double step = (high - low) / (double) (bands + 2);
    for (int64_t j = 0; y && j < bands; j++) {
        int64_t edge[3];
        for (int e = 0; e < 3; e++) {
            double hz = 700 * (pow(10, ((double) (j + e) * step + low) / 2595) - 1);
            double bin = floor((double) (length + 1) * hz / (double) rate);
            edge[e] = bin > 0 && bin < 1e15 ? (int64_t) bin : 0;
        }
        if (edge[1] == edge[0] && edge[1] < bins)
            number_put(t, data, edge[1] * bands + j, 1);
        for (int64_t i = edge[0]; edge[1] > edge[0] && i <= edge[1] && i < bins; i++)
            number_put(t, data, i * bands + j,
                       (double) (i - edge[0]) / (double) (edge[1] - edge[0]));
        for (int64_t i = edge[1]; edge[2] > edge[1] && i < edge[2] && i < bins; i++)
            number_put(t, data, i * bands + j,
                       (double) (edge[2] - i) / (double) (edge[2] - edge[1]));
    }
    c->out[0] = y;
}

const row onnx_rows_make[] = {
    {"BlackmanWindow", 17, 1, signal_window},
    {"Constant", 1, 0, constant_row},
    {"ConstantOfShape", 9, 1, constant_of_shape},
    {"EyeLike", 9, 1, eye_like},
    {"HammingWindow", 17, 1, signal_window},
    {"HannWindow", 17, 1, signal_window},
    {"MelWeightMatrix", 17, 5, mel_weights},
    {"Range", 11, 3, range},
    {"Trilu", 14, 1, trilu},
};
const int onnx_rows_make_count = SN_COUNT(onnx_rows_make);
