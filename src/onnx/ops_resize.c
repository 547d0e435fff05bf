/* SPDX-License-Identifier: Apache-2.0
 * Resizing, one axis after the other: nearest as a gather of known indices, linear and cubic as a
 * product with a matrix of known weights. So gradients come by themselves. */
#include "onnx/private.h"

#include <math.h>
#include <string.h>

#define R SN_RANK_MAX

typedef struct sampling {
    const char *place, *nearest, *mode;
    double cubic, outside;
    bool exclude, crop;
} sampling;

typedef struct axis {
    int64_t in, out;
    double scale, from, to; /* from, to: of tf_crop_and_resize, in units of the axis */
} axis;

/* Where output i lies among the inputs. */
static double place_of(const sampling *s, const axis *a, int64_t i)
{
    double in = (double) a->in, out = in * a->scale, at = (double) i;
    if (!strcmp(s->place, "asymmetric"))
        return at / a->scale;
    if (!strcmp(s->place, "align_corners"))
        return a->out == 1 || out == 1 ? 0 : at * (in - 1) / (out - 1);
    if (!strcmp(s->place, "tf_half_pixel_for_nn"))
        return (at + 0.5) / a->scale;
    if (s->crop)
        return a->out > 1
                   ? a->from * (in - 1) + at * (a->to - a->from) * (in - 1) / ((double) a->out - 1)
                   : 0.5 * (a->from + a->to) * (in - 1);
    if (!strcmp(s->place, "pytorch_half_pixel") && a->out == 1)
        return 0;
    return (at + 0.5) / a->scale - 0.5;
}

static int64_t clamped(double v, int64_t n)
{
    return v <= 0 ? 0 : v >= (double) (n - 1) ? n - 1 : (int64_t) v;
}

static item *by_nearest(importer *m, const sampling *s, const axis *a, item *x, int d)
{
    void *data;
    item *index = constant(m, SN_I64, SN_SHAPE(a->out), &data);
    for (int64_t i = 0; index && i < a->out; i++) {
        double at = place_of(s, a, i);
        at = !strcmp(s->nearest, "floor")               ? floor(at)
             : !strcmp(s->nearest, "ceil")              ? ceil(at)
             : !strcmp(s->nearest, "round_prefer_ceil") ? floor(at + 0.5)
                                                        : ceil(at - 0.5);
        ((int64_t *) data)[i] = clamped(at, a->in);
    }
    return gather(m, x, index, d);
}

/* Weights of the four inputs around t ∈ [0, 1) between the second and third (Keys 1981). */
static void cubic_weights(double a, double t, double w[4])
{
    for (int k = 0; k < 4; k++) {
        double d = fabs(t + 1 - k);
        w[k] = d <= 1  ? ((a + 2) * d - (a + 3)) * d * d + 1
               : d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
                       : 0;
    }
}

/* Add the weights of output i to its column of [in,out]. */
static void weigh(const sampling *s, const axis *a, int64_t i, float *matrix)
{
    double at = place_of(s, a, i), low = floor(at), t = at - low, w[4] = {0, 1 - t, t, 0}, sum = 0;
    if (!(fabs(at) < 1e15))
        return;
    if (*s->mode == 'c')
        cubic_weights(s->cubic, t, w);
    for (int k = 0; k < 4; k++) {
        double tap = low - 1 + k;
        if (s->exclude && (tap < 0 || tap > (double) (a->in - 1)))
            w[k] = 0;
        sum += w[k];
    }
    for (int k = 0; k < 4; k++)
        matrix[clamped(low - 1 + k, a->in) * a->out + i] +=
            (float) (s->exclude && sum != 0 ? w[k] / sum : w[k]);
}

static item *by_matrix(importer *m, const sampling *s, const axis *a, item *x, int d)
{
    void *data;
    int perm[R], last = x->shape.rank - 1;
    item *w = constant(m, SN_F32, SN_SHAPE(a->in, a->out), &data);
    for (int64_t i = 0; w && i < a->out; i++)
        weigh(s, a, i, data);
    for (int k = 0; k <= last; k++)
        perm[k] = k == d ? last : k == last ? d : k; /* its own inverse */
    x = matmul(m, transpose(m, x, perm), w ? cast(m, w, x->dtype) : NULL);
    return transpose(m, x, perm);
}

/* BOOL: outputs along d that lie outside the inputs, broadcast over the other dims. */
static item *outside_of(importer *m, const sampling *s, const axis *a, int rank, int d)
{
    sn_shape shape = {.rank = rank};
    void *data;
    for (int k = 0; k < rank; k++)
        shape.dim[k] = k == d ? a->out : 1;
    item *y = constant(m, SN_BOOL, shape, &data);
    for (int64_t i = 0; y && i < a->out; i++) {
        double at = place_of(s, a, i);
        ((uint8_t *) data)[i] = !(at >= 0 && at <= (double) (a->in - 1));
    }
    return y;
}

static item *resized(importer *m, const sampling *s, const axis *a, item *x)
{
    item *out = NULL;
    int rank = x->shape.rank;
    for (int d = 0; d < rank && x && ok(m); d++) {
        if (s->crop && (a[d].in != a[d].out || a[d].from != 0 || a[d].to != 1)) {
            item *mask = outside_of(m, s, &a[d], rank, d);
            out = out ? binary(m, SN_BINARY_OR, out, mask) : mask;
        } else if (a[d].in == a[d].out && a[d].scale == 1) {
            continue;
        }
        if (a[d].in < 1 || a[d].out < 0 || a[d].out > INT32_MAX)
            return onnx_fail(m, SN_EINVAL, "dim %d cannot be resized from %lld to %lld", d,
                             (long long) a[d].in, (long long) a[d].out);
        x = *s->mode == 'n' ? by_nearest(m, s, &a[d], x, d) : by_matrix(m, s, &a[d], x, d);
    }
    return out && x ? where(m, out, scalar(m, x->dtype, s->outside), x) : x;
}

/* Operands are (x, scales) before opset 11, (x, region?, scales?, sizes?) since. */
static bool factors(importer *m, call *c, axis *a)
{
    item *x = c->in[0], *scales = c->opset < 11 ? c->in[1] : has(c, 2) ? c->in[2] : NULL;
    item *sizes = c->opset >= 11 && has(c, 3) ? c->in[3] : NULL;
    int rank = x->shape.rank;
    double attr[R];
    int n = c->opset < 9 ? attr_floats(m, c, "scales", attr, R) : -1;
    for (int d = 0; d < rank; d++)
        a[d] = (axis){x->shape.dim[d], x->shape.dim[d], 1, 0, 1};
    if (sizes && sn_shape_count(sizes->shape) > 0) {
        int64_t v[R];
        if (need_ints(m, sizes, "its sizes", v, R) != rank)
            return onnx_fail(m, SN_EINVAL, "a size is needed for each dim");
        for (int d = 0; d < rank; d++) {
            a[d].out = v[d];
            a[d].scale = (double) v[d] / (double) a[d].in;
        }
        return true;
    }
    if (n < 0 && (!scales || !need(m, scales, "its scales")))
        return onnx_fail(m, SN_EINVAL, "it has neither scales nor sizes");
    if ((n >= 0 ? n : sn_shape_count(scales->shape)) != rank)
        return onnx_fail(m, SN_EINVAL, "a scale is needed for each dim");
    for (int d = 0; d < rank; d++) {
        a[d].scale = n >= 0 ? attr[d] : number_at(scales, d);
        double out = floor((double) a[d].in * a[d].scale);
        a[d].out = out >= 0 && out < 1e15 ? (int64_t) out : -1;
    }
    return true;
}

static bool region(importer *m, call *c, int rank, axis *a)
{
    item *roi = c->in[1];
    if (!roi || !need(m, roi, "the region") || sn_shape_count(roi->shape) != 2 * rank)
        return onnx_fail(m, SN_EINVAL, "a region needs two numbers for each dim");
    for (int d = 0; d < rank; d++) {
        a[d].from = number_at(roi, d);
        a[d].to = number_at(roi, rank + d);
    }
    return true;
}

static void resize(importer *m, call *c)
{
    bool old = c->opset < 11;
    sampling s = {.mode = attr_str(m, c, "mode", "nearest")};
    axis a[R];
    s.place = old ? "asymmetric" : attr_str(m, c, "coordinate_transformation_mode", "half_pixel");
    s.nearest = old ? "floor" : attr_str(m, c, "nearest_mode", "round_prefer_floor");
    s.cubic = attr_float(m, c, "cubic_coeff_a", -0.75);
    s.outside = attr_float(m, c, "extrapolation_value", 0);
    s.exclude = attr_int(m, c, "exclude_outside", 0);
    s.crop = !strcmp(s.place, "tf_crop_and_resize");
    if (onnx_attr(c, m, "antialias") && attr_int(m, c, "antialias", 0)) {
        onnx_fail(m, SN_ENOTSUP, "antialias is not offered");
        return;
    }
    if (!factors(m, c, a) || (s.crop && !region(m, c, c->in[0]->shape.rank, a)))
        return;
    c->out[0] = resized(m, &s, a, c->in[0]);
}

/* ---- sampling at places that are operands ---- */
typedef struct grid {
    item *x;             /* [N,C,H·W] */
    int64_t n, ch, h, w; /* of the input */
    int64_t places;
    bool corners;
    const char *outside;
} grid;

/* −1 … 1 to 0 … size − 1 (corners), or −1/2 … size − 1/2 */
static item *pixels(importer *m, item *v, int64_t size, bool corners)
{
    double n = (double) size;
    return corners ? scaled(m, v, (n - 1) / 2, (n - 1) / 2) : scaled(m, v, n / 2, (n - 1) / 2);
}

static item *reflected(importer *m, item *v, int64_t size, bool corners)
{
    double low = corners ? 0 : -0.5, span = corners ? (double) size - 1 : (double) size;
    if (span <= 0)
        return scaled(m, v, 0, 0);
    item *t = unary(m, SN_UNARY_ABS, scaled(m, v, 1, -low));
    t = binary(m, SN_BINARY_FMOD, t, v ? scalar(m, v->dtype, 2 * span) : NULL);
    item *back = scaled(m, t, -1, 2 * span); /* the smaller of both is the way to the near end */
    return scaled(m, binary(m, SN_BINARY_MIN, t, back), 1, low);
}

static item *bounded(importer *m, item *v, int64_t size)
{
    v = binary(m, SN_BINARY_MAX, v, v ? scalar(m, v->dtype, 0) : NULL);
    return binary(m, SN_BINARY_MIN, v, v ? scalar(m, v->dtype, (double) (size - 1)) : NULL);
}

static item *moved(importer *m, const grid *g, item *v, int64_t size)
{
    if (!strcmp(g->outside, "reflection"))
        v = reflected(m, v, size, g->corners);
    return strcmp(g->outside, "zeros") ? bounded(m, v, size) : v;
}

/* x at whole places (i, j), [N,places]; 0 outside. */
static item *pick(importer *m, const grid *g, item *i, item *j)
{
    item *y = moved(m, g, i, g->h), *x = moved(m, g, j, g->w), *inside = NULL;
    item *by = bounded(m, y, g->h), *bx = bounded(m, x, g->w);
    if (!strcmp(g->outside, "zeros"))
        inside = binary(m, SN_BINARY_AND, binary(m, SN_BINARY_EQ, y, by),
                        binary(m, SN_BINARY_EQ, x, bx));
    item *at = binary(m, SN_BINARY_ADD, scaled(m, by, (double) g->w, 0), bx);
    at = cast(m, unsqueeze(m, at, 1), SN_I64);
    if (!at)
        return NULL;
    item *v = elements(m, g->x, tile(m, at, SN_SHAPE(g->n, g->ch, g->places)), 2);
    return inside ? where(m, unsqueeze(m, inside, 1), v, scalar(m, g->x->dtype, 0)) : v;
}

/* Weight of the tap `k` places from ⌊v⌋, t = v − ⌊v⌋: linear for k = 0, 1; cubic for −1 … 2. */
static item *tap_weight(importer *m, item *t, int k, bool cubic)
{
    if (!cubic)
        return k ? t : scaled(m, t, -1, 1);
    const double a = -0.75;
    item *d = unary(m, SN_UNARY_ABS, scaled(m, t, 1, -k));
    bool near = k == 0 || k == 1;
    item *p = near ? scaled(m, d, a + 2, -(a + 3)) : scaled(m, d, a, -5 * a);
    p = binary(m, SN_BINARY_MUL, p, d);
    p = near ? binary(m, SN_BINARY_MUL, p, d) : binary(m, SN_BINARY_MUL, scaled(m, p, 1, 8 * a), d);
    return scaled(m, p, 1, near ? 1 : -4 * a);
}

static void grid_sample(importer *m, call *c)
{
    item *x = c->in[0], *at = c->in[1], *sum = NULL;
    const char *mode = attr_str(m, c, "mode", "bilinear");
    if (x->shape.rank != 4 || at->shape.rank != 4 || at->shape.dim[3] != 2 ||
        at->shape.dim[0] != x->shape.dim[0]) {
        onnx_fail(m, SN_ENOTSUP, "images [N,C,H,W] and a grid [N,h,w,2] are offered");
        return;
    }
    grid g = {NULL, x->shape.dim[0], x->shape.dim[1], x->shape.dim[2], x->shape.dim[3]};
    int64_t h = at->shape.dim[1], w = at->shape.dim[2];
    g.places = h * w;
    g.corners = attr_int(m, c, "align_corners", 0);
    g.outside = attr_str(m, c, "padding_mode", "zeros");
    g.x = reshape(m, x, SN_SHAPE(g.n, g.ch, g.h * g.w));
    item *flat = cast(m, reshape(m, at, SN_SHAPE(g.n, g.places, 2)), x->dtype);
    item *j = axes_mask_squeeze(m, part(m, flat, 2, 0, 1), 4);
    item *i = axes_mask_squeeze(m, part(m, flat, 2, 1, 1), 4);
    i = pixels(m, i, g.h, g.corners);
    j = pixels(m, j, g.w, g.corners);
    if (!strcmp(mode, "nearest")) {
        sum = pick(m, &g, unary(m, SN_UNARY_ROUND, i), unary(m, SN_UNARY_ROUND, j));
    } else {
        bool cubic = !strcmp(mode, "bicubic");
        if (!cubic) {
            i = moved(m, &g, i, g.h);
            j = moved(m, &g, j, g.w);
        }
        item *i0 = unary(m, SN_UNARY_FLOOR, i), *j0 = unary(m, SN_UNARY_FLOOR, j);
        item *ti = binary(m, SN_BINARY_SUB, i, i0), *tj = binary(m, SN_BINARY_SUB, j, j0);
        for (int p = cubic ? -1 : 0; p <= (cubic ? 2 : 1); p++)
            for (int q = cubic ? -1 : 0; q <= (cubic ? 2 : 1); q++) {
                item *v = pick(m, &g, scaled(m, i0, 1, p), scaled(m, j0, 1, q));
                item *by = binary(m, SN_BINARY_MUL, tap_weight(m, ti, p, cubic),
                                  tap_weight(m, tj, q, cubic));
                v = binary(m, SN_BINARY_MUL, v, unsqueeze(m, by, 1));
                sum = sum ? binary(m, SN_BINARY_ADD, sum, v) : v;
            }
    }
    c->out[0] = reshape(m, sum, SN_SHAPE(g.n, g.ch, h, w));
}

const row onnx_rows_resize[] = {
    {"GridSample", 16, 2, grid_sample},
    {"Resize", 10, 1, resize},
    {"Upsample", 7, 1, resize},
};
const int onnx_rows_resize_count = SN_COUNT(onnx_rows_resize);
