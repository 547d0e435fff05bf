/* SPDX-License-Identifier: Apache-2.0
 * Rows that look through windows: convolutions and pools as unfold (or fold), a product or a
 * reduction, and a reshape, for 1 to 3 spatial dims. */
#include "onnx/private.h"

#include <math.h>
#include <string.h>

/* What the attributes say of the windows over x[N,C,S…], and the sizes that result. */
typedef struct view {
    int dims;
    window w;
    int64_t out[3], windows;
    bool ceil;
} view;

static bool sizes3(importer *m, call *c, const char *name, int dims, int64_t otherwise,
                   int64_t ret[3])
{
    int64_t v[3];
    int n = attr_ints(m, c, name, v, 3);
    if (n >= 0 && n != dims)
        return onnx_fail(m, SN_EINVAL, "%d %s for %d spatial dims", n, name, dims);
    for (int j = 0; j < dims; j++) {
        ret[j] = n < 0 ? otherwise : v[j];
        if (ret[j] < 1 || ret[j] > INT32_MAX)
            return onnx_fail(m, SN_EINVAL, "%s of %lld", name, (long long) ret[j]);
    }
    return ok(m);
}

/* Padding so that the windows number ⌈size / stride⌉, the odd one at the end or at the start. */
static void pad_same(view *v, const item *x, bool upper)
{
    for (int j = 0; j < v->dims; j++) {
        int64_t size = x->shape.dim[2 + j], stride = v->w.stride[j];
        int64_t span = (v->w.size[j] - 1) * v->w.dilation[j] + 1;
        int64_t all = SN_MAX(((size + stride - 1) / stride - 1) * stride + span - size, 0);
        v->w.before[j] = upper ? all / 2 : all - all / 2;
        v->w.after[j] = all - v->w.before[j];
    }
}

static bool padding(importer *m, call *c, view *v, const item *x)
{
    const char *mode = attr_str(m, c, "auto_pad", "NOTSET");
    int64_t p[6];
    int n = attr_ints(m, c, "pads", p, 6);
    if (!strcmp(mode, "SAME_UPPER") || !strcmp(mode, "SAME_LOWER")) {
        pad_same(v, x, mode[5] == 'U');
        return true;
    }
    if (strcmp(mode, "VALID") && n >= 0) {
        if (n != 2 * v->dims)
            return onnx_fail(m, SN_EINVAL, "%d numbers of padding for %d spatial dims", n, v->dims);
        for (int j = 0; j < v->dims; j++) {
            v->w.before[j] = p[j];
            v->w.after[j] = p[v->dims + j];
            if (p[j] < 0 || p[v->dims + j] < 0 || p[j] > INT32_MAX || p[v->dims + j] > INT32_MAX)
                return onnx_fail(m, SN_EINVAL, "padding below zero or too large");
        }
    }
    return true;
}

/* Windows that begin within the padded operand count, even if they end beyond it. */
static void count_windows(view *v, const item *x)
{
    v->windows = 1;
    for (int j = 0; j < v->dims; j++) {
        int64_t span = (v->w.size[j] - 1) * v->w.dilation[j] + 1, stride = v->w.stride[j];
        int64_t room = x->shape.dim[2 + j] + v->w.before[j] + v->w.after[j] - span;
        v->out[j] = room < 0 ? 0 : room / stride + 1;
        if (v->ceil && room >= 0 && room % stride &&
            v->out[j] * stride < x->shape.dim[2 + j] + v->w.before[j]) {
            v->w.after[j] += stride - room % stride;
            v->out[j]++;
        }
        v->windows *= v->out[j];
    }
}

static bool look(importer *m, call *c, const item *x, const sn_shape *kernel, view *ret)
{
    view v = {.dims = x->shape.rank - 2};
    if (v.dims < 1 || v.dims > 3)
        return onnx_fail(m, SN_ENOTSUP, "1 to 3 spatial dims are offered, not %d", v.dims);
    if (kernel) {
        if (kernel->rank != x->shape.rank)
            return onnx_fail(m, SN_EINVAL, "the weights do not fit the operand");
        for (int j = 0; j < v.dims; j++)
            v.w.size[j] = kernel->dim[2 + j];
    } else if (!sizes3(m, c, "kernel_shape", v.dims, 0, v.w.size)) {
        return false;
    }
    if (!sizes3(m, c, "strides", v.dims, 1, v.w.stride) ||
        !sizes3(m, c, "dilations", v.dims, 1, v.w.dilation) || !padding(m, c, &v, x))
        return false;
    for (int j = 0; j < 3; j++) /* sizes from here on are products of what is below 2^31 */
        if (v.w.size[j] > INT32_MAX / 2 || (j < v.dims && v.w.size[j] < 1))
            return onnx_fail(m, SN_EINVAL, "a window of size %lld", (long long) v.w.size[j]);
    v.ceil = !kernel && attr_int(m, c, "ceil_mode", 0);
    count_windows(&v, x);
    *ret = v;
    return true;
}

static sn_shape out_shape(const item *x, int64_t maps, const view *v)
{
    sn_shape s = {.rank = 2 + v->dims, .dim = {x->shape.dim[0], maps}};
    for (int j = 0; j < v->dims; j++)
        s.dim[2 + j] = v->out[j];
    return s;
}

static item *per_map(importer *m, item *b, int dims)
{
    sn_shape s = {.rank = 1 + dims, .dim = {b ? sn_shape_count(b->shape) : 0, 1, 1, 1}};
    return b ? reshape(m, b, s) : NULL;
}

/* x[N,C,S…], w[M,C/G,K…] of one type; the core of three rows. */
static item *convolve(importer *m, call *c, item *x, item *w)
{
    view v;
    if (!x || !w || !ok(m) || !look(m, c, x, &w->shape, &v))
        return NULL;
    int64_t g = attr_int(m, c, "group", 1), n = x->shape.dim[0], ch = x->shape.dim[1];
    int64_t maps = w->shape.dim[0], inner = w->shape.dim[1], places = 1;
    for (int j = 0; j < v.dims; j++)
        places *= w->shape.dim[2 + j];
    if (g < 1 || ch != inner * g || maps % g)
        return onnx_fail(m, SN_EINVAL, "%lld groups, %lld channels and the weights do not fit",
                         (long long) g, (long long) ch);
    item *cols = unfold(m, x, &v.w, 0);
    cols = reshape(m, cols, SN_SHAPE(n, g, inner * places, v.windows));
    item *rows = reshape(m, w, SN_SHAPE(1, g, maps / g, inner * places));
    return reshape(m, matmul(m, rows, cols), out_shape(x, maps, &v));
}

static void conv(importer *m, call *c)
{
    item *y = convolve(m, c, c->in[0], c->in[1]);
    if (y && has(c, 2))
        y = binary(m, SN_BINARY_ADD, y, per_map(m, c->in[2], c->in[0]->shape.rank - 2));
    c->out[0] = y;
}

/* Subtract a zero point, in I32. */
static item *centred(importer *m, item *x, item *zero, int dims)
{
    x = cast(m, x, SN_I32);
    if (!zero)
        return x;
    zero = cast(m, zero, SN_I32);
    if (zero && zero->shape.rank == 1 && dims > 0) {
        sn_shape s = {.rank = dims, .dim = {zero->shape.dim[0]}};
        for (int d = 1; d < dims; d++)
            s.dim[d] = 1;
        zero = reshape(m, zero, sn_shape_count(zero->shape) == 1 ? (sn_shape){0} : s);
    }
    return binary(m, SN_BINARY_SUB, x, zero);
}

static void conv_integer(importer *m, call *c)
{
    item *x = centred(m, c->in[0], has(c, 2) ? c->in[2] : NULL, 0);
    item *w = centred(m, c->in[1], has(c, 3) ? c->in[3] : NULL, c->in[1]->shape.rank);
    c->out[0] = convolve(m, c, x, w);
}

/* x and w are centred, multiplied as integers, scaled, and rounded to y's type. */
static void qlinear_conv(importer *m, call *c)
{
    item *x = centred(m, c->in[0], c->in[2], 0);
    item *w = centred(m, c->in[3], c->in[5], c->in[3]->shape.rank);
    int dims = c->in[0]->shape.rank - 2;
    item *y = convolve(m, c, x, w), *zero = c->in[7];
    if (y && has(c, 8))
        y = binary(m, SN_BINARY_ADD, y, per_map(m, c->in[8], dims));
    item *scale = binary(m, SN_BINARY_DIV, binary(m, SN_BINARY_MUL, c->in[1], c->in[4]), c->in[6]);
    if (scale && scale->shape.rank == 1)
        scale = per_map(m, scale, sn_shape_count(scale->shape) == 1 ? 0 : dims);
    y = unary(m, SN_UNARY_ROUND, binary(m, SN_BINARY_MUL, cast(m, y, SN_F32), scale));
    y = binary(m, SN_BINARY_ADD, y, cast(m, zero, SN_F32));
    bool s = zero->dtype == SN_I8;
    y = binary(m, SN_BINARY_MAX, y, scalar(m, SN_F32, s ? -128 : 0));
    y = binary(m, SN_BINARY_MIN, y, scalar(m, SN_F32, s ? 127 : 255));
    c->out[0] = cast(m, y, zero->dtype);
}

/* Sizes of what a transposed convolution gives, and padding that makes its windows give x. */
static bool transposed_size(importer *m, call *c, const item *x, view *v, sn_shape *ret)
{
    int64_t extra[3] = {0}, wanted[3];
    int e = attr_ints(m, c, "output_padding", extra, 3);
    int o = attr_ints(m, c, "output_shape", wanted, 3);
    const char *mode = attr_str(m, c, "auto_pad", "NOTSET");
    bool same = !strncmp(mode, "SAME", 4);
    if ((e >= 0 && e != v->dims) || (o >= 0 && o != v->dims))
        return onnx_fail(m, SN_EINVAL, "output_shape or output_padding has other dims");
    for (int j = 0; j < v->dims; j++) {
        int64_t span = (v->w.size[j] - 1) * v->w.dilation[j] + 1;
        int64_t full = v->w.stride[j] * (x->shape.dim[2 + j] - 1) + extra[j] + span, all;
        if (o >= 0 || same) {
            int64_t size = o >= 0 ? wanted[j] : x->shape.dim[2 + j] * v->w.stride[j];
            all = full - size; /* below 0: the end gets more than the windows reach */
            bool upper = !strcmp(mode, "SAME_UPPER");
            v->w.before[j] = all < 0 ? 0 : upper ? all / 2 : all - all / 2;
            v->w.after[j] = all - v->w.before[j];
        }
        ret->dim[2 + j] = full - v->w.before[j] - v->w.after[j];
    }
    return true;
}

static void conv_transpose(importer *m, call *c)
{
    item *x = c->in[0], *w = c->in[1];
    view v;
    if (!look(m, c, x, &w->shape, &v))
        return;
    int64_t g = attr_int(m, c, "group", 1), n = x->shape.dim[0], ch = x->shape.dim[1], places = 1;
    int64_t maps = w->shape.dim[1], count = 1;
    sn_shape y = {.rank = x->shape.rank, .dim = {n, maps * SN_MAX(g, 1)}}, full;
    if (g < 1 || ch % g || w->shape.dim[0] != ch || !transposed_size(m, c, x, &v, &y)) {
        onnx_fail(m, SN_EINVAL, "groups, channels and weights do not fit");
        return;
    }
    for (int j = 0; j < v.dims; j++) {
        places *= w->shape.dim[2 + j];
        count *= x->shape.dim[2 + j];
    }
    /* all that the windows reach, from which the wanted part is taken */
    full = y;
    int64_t start[SN_RANK_MAX] = {0}, before[SN_RANK_MAX] = {0}, after[SN_RANK_MAX] = {0};
    window reach = v.w;
    sn_shape cut = y;
    for (int j = 0; j < v.dims; j++) {
        int64_t span = (v.w.size[j] - 1) * v.w.dilation[j] + 1;
        full.dim[2 + j] = v.w.stride[j] * (x->shape.dim[2 + j] - 1) + span;
        start[2 + j] = SN_MAX(v.w.before[j], 0);
        before[2 + j] = SN_MAX(-v.w.before[j], 0);
        int64_t there = SN_MIN(full.dim[2 + j] - start[2 + j], y.dim[2 + j] - before[2 + j]);
        cut.dim[2 + j] = there;
        after[2 + j] = y.dim[2 + j] - before[2 + j] - there;
        reach.before[j] = reach.after[j] = 0;
        if (there < 0 || y.dim[2 + j] < 0) {
            onnx_fail(m, SN_EINVAL, "its padding leaves nothing");
            return;
        }
    }
    item *cols = reshape(m, x, SN_SHAPE(n, g, ch / g, count));
    item *rows = reshape(m, w, SN_SHAPE(1, g, ch / g, maps * places));
    rows = transpose(m, rows, (int[]){0, 1, 3, 2});
    cols = reshape(m, matmul(m, rows, cols), SN_SHAPE(n, g * maps, places, count));
    item *out = strided(m, fold(m, cols, &reach, full), start, NULL, cut);
    out = pad(m, out, before, after, 0);
    if (out && has(c, 2))
        out = binary(m, SN_BINARY_ADD, out, per_map(m, c->in[2], v.dims));
    c->out[0] = out;
}

/* ---- pools ---- */
static double lowest(sn_dtype t)
{
    return t == SN_I8 ? -128 : t == SN_U8 ? 0 : t == SN_I16 ? -32768 : -INFINITY;
}

/* Where in x each maximum is: the places a window holds, numbered as x's elements, picked by the
 * place of the maximum in its window. */
static item *max_places(importer *m, call *c, item *x, item *cols, const view *v)
{
    void *data;
    int64_t n = x->shape.dim[0], ch = x->shape.dim[1], image = 1;
    sn_shape s = {.rank = x->shape.rank, .dim = {1, 1}};
    for (int j = 0; j < v->dims; j++)
        image *= s.dim[2 + j] = x->shape.dim[2 + j];
    item *number = constant(m, SN_I64, s, &data),
         *base = constant(m, SN_I64, SN_SHAPE(n, ch, 1, 1), &data);
    if (!number || !base)
        return NULL;
    for (int64_t i = 0; i < n * ch; i++)
        ((int64_t *) data)[i] = i * image;
    bool columns = attr_int(m, c, "storage_order", 0);
    for (int64_t i = 0; i < image; i++) {
        int64_t at = i, place = 0, stride = 1;
        if (columns) { /* the first spatial dim is the fastest */
            int64_t index[3] = {0};
            for (int j = v->dims - 1; j >= 0; j--) {
                index[j] = at % s.dim[2 + j];
                at /= s.dim[2 + j];
            }
            for (int j = 0; j < v->dims; j++) {
                place += index[j] * stride;
                stride *= s.dim[2 + j];
            }
        }
        ((int64_t *) number->data)[i] = columns ? place : i;
    }
    item *places = unfold(m, number, &v->w, 0), *best = arg(m, cols, 2, false, false);
    if (!places || !best)
        return NULL;
    sn_shape wide = SN_SHAPE(n, ch, places->shape.dim[2], places->shape.dim[3]);
    item *at = elements(m, tile(m, places, wide), best, 2);
    return reshape(m, binary(m, SN_BINARY_ADD, at, base), out_shape(x, ch, v));
}

static void max_pool(importer *m, call *c)
{
    item *x = c->in[0];
    view v;
    if (!look(m, c, x, NULL, &v))
        return;
    item *cols = unfold(m, x, &v.w, lowest(x->dtype));
    item *y = reduce(m, SN_REDUCE_MAX, cols, 4);
    c->out[0] = reshape(m, y, out_shape(x, x->shape.dim[1], &v));
    if (c->outs > 1)
        c->out[1] = max_places(m, c, x, cols, &v);
}

/* How many elements of x each window holds; with padding as given counted when `all`. */
static item *counts(importer *m, const item *x, const view *v, bool all, const window *given)
{
    sn_shape s = {.rank = x->shape.rank, .dim = {1, 1}};
    int64_t before[SN_RANK_MAX] = {0}, after[SN_RANK_MAX] = {0};
    window w = v->w;
    for (int j = 0; j < v->dims; j++)
        s.dim[2 + j] = x->shape.dim[2 + j];
    item *ones = expand(m, scalar(m, x->dtype, 1), s);
    if (all) {
        for (int j = 0; j < v->dims; j++) {
            before[2 + j] = given->before[j];
            after[2 + j] = given->after[j];
            w.before[j] = 0;
            w.after[j] -= given->after[j];
        }
        ones = pad(m, ones, before, after, 1);
    }
    return reduce(m, SN_REDUCE_SUM, unfold(m, ones, &w, 0), 4);
}

static void average_pool(importer *m, call *c)
{
    item *x = c->in[0];
    view v, given;
    if (!look(m, c, x, NULL, &v))
        return;
    given = v;
    given.ceil = false;
    for (int j = 0; j < v.dims; j++) /* what rounding up added is no padding */
        given.w.after[j] = v.w.after[j];
    if (v.ceil) {
        view plain = v;
        memset(plain.w.after, 0, sizeof plain.w.after);
        memset(plain.w.before, 0, sizeof plain.w.before);
        padding(m, c, &plain, x);
        given.w = plain.w;
    }
    bool all = attr_int(m, c, "count_include_pad", 0);
    item *sum = reduce(m, SN_REDUCE_SUM, unfold(m, x, &v.w, 0), 4);
    item *y = binary(m, SN_BINARY_DIV, sum, counts(m, x, &v, all, &given.w));
    c->out[0] = reshape(m, y, out_shape(x, x->shape.dim[1], &v));
}

static void lp_pool(importer *m, call *c)
{
    item *x = c->in[0];
    view v;
    double p = (double) attr_int(m, c, "p", 2);
    if (!look(m, c, x, NULL, &v))
        return;
    item *power = binary(m, SN_BINARY_POW, unary(m, SN_UNARY_ABS, x), scalar(m, x->dtype, p));
    item *sum = reduce(m, SN_REDUCE_SUM, unfold(m, power, &v.w, 0), 4);
    item *y = binary(m, SN_BINARY_POW, sum, scalar(m, x->dtype, 1 / p));
    c->out[0] = reshape(m, y, out_shape(x, x->shape.dim[1], &v));
}

static void global_pool(importer *m, call *c)
{
    item *x = c->in[0];
    int64_t mask = (((int64_t) 1 << x->shape.rank) - 1) & ~(int64_t) 3;
    if (!strcmp(c->node->op_type, "GlobalLpPool")) {
        double p = (double) attr_int(m, c, "p", 2);
        item *power = binary(m, SN_BINARY_POW, unary(m, SN_UNARY_ABS, x), scalar(m, x->dtype, p));
        c->out[0] = binary(m, SN_BINARY_POW, reduce(m, SN_REDUCE_SUM, power, mask),
                           scalar(m, x->dtype, 1 / p));
        return;
    }
    bool max = !strcmp(c->node->op_type, "GlobalMaxPool");
    c->out[0] = reduce(m, max ? SN_REDUCE_MAX : SN_REDUCE_MEAN, x, mask);
}

static void max_unpool(importer *m, call *c)
{
    item *x = c->in[0];
    view v;
    sn_shape y = x->shape;
    if (!look(m, c, x, NULL, &v))
        return;
    for (int j = 0; j < v.dims; j++)
        y.dim[2 + j] =
            (x->shape.dim[2 + j] - 1) * v.w.stride[j] + v.w.size[j] - v.w.before[j] - v.w.after[j];
    sn_shape inner = y;
    if (has(c, 2)) {
        y.rank = need_ints(m, c->in[2], "its output shape", y.dim, SN_RANK_MAX);
        if (y.rank != inner.rank) {
            onnx_fail(m, SN_EINVAL, "its output shape has other dims");
            return;
        }
    }
    int64_t n = sn_shape_count(x->shape);
    int64_t none[SN_RANK_MAX] = {0}, more[SN_RANK_MAX] = {0};
    for (int d = 0; d < y.rank; d++)
        more[d] = y.dim[d] - inner.dim[d];
    item *zero = expand(m, scalar(m, x->dtype, 0), SN_SHAPE(sn_shape_count(inner)));
    item *index = reshape(m, c->in[1], SN_SHAPE(n));
    item *flat = scatter(m, zero, index, reshape(m, x, SN_SHAPE(n)), 0, SN_SCATTER_PUT);
    c->out[0] = pad(m, reshape(m, flat, inner), none, more, 0);
}

/* Each element over a power of the sum of squares of its neighbours among the channels. */
static void lrn(importer *m, call *c)
{
    item *x = c->in[0];
    int64_t size = attr_int(m, c, "size", 1), n = x->shape.dim[0];
    double alpha = attr_float(m, c, "alpha", 1e-4), beta = attr_float(m, c, "beta", 0.75);
    double bias = attr_float(m, c, "bias", 1);
    if (x->shape.rank < 2 || size < 1 || size > 65536) {
        onnx_fail(m, SN_EINVAL, "%lld neighbours cannot be", (long long) size);
        return;
    }
    int64_t ch = x->shape.dim[1], rest = n * ch > 0 ? sn_shape_count(x->shape) / (n * ch) : 0;
    window w = {.size = {size, 1},
                .stride = {1, 1},
                .dilation = {1, 1},
                .before = {(size - 1) / 2},
                .after = {size - 1 - (size - 1) / 2}};
    item *squares = reshape(m, binary(m, SN_BINARY_MUL, x, x), SN_SHAPE(n, 1, ch, rest));
    item *sum = reshape(m, reduce(m, SN_REDUCE_SUM, unfold(m, squares, &w, 0), 4), x->shape);
    item *base = scaled(m, sum, alpha / (double) size, bias);
    item *by = binary(m, SN_BINARY_POW, base, scalar(m, x->dtype, beta));
    c->out[0] = binary(m, SN_BINARY_DIV, x, by);
}

const row onnx_rows_window[] = {
    {"AveragePool", 1, 1, average_pool},
    {"Conv", 1, 2, conv},
    {"ConvInteger", 10, 2, conv_integer},
    {"ConvTranspose", 1, 2, conv_transpose},
    {"GlobalAveragePool", 1, 1, global_pool},
    {"GlobalLpPool", 1, 1, global_pool},
    {"GlobalMaxPool", 1, 1, global_pool},
    {"LRN", 1, 1, lrn},
    {"LpPool", 2, 1, lp_pool},
    {"MaxPool", 1, 1, max_pool},
    {"MaxUnpool", 9, 2, max_unpool},
    {"QLinearConv", 10, 8, qlinear_conv},
};
const int onnx_rows_window_count = SN_COUNT(onnx_rows_window);
