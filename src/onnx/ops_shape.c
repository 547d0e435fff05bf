/* SPDX-License-Identifier: Apache-2.0
 * Rows that give elements another shape or order, or tell a shape. */
#include "onnx/private.h"

#include <string.h>

#define R SN_RANK_MAX

static void shape_row(importer *m, call *c)
{
    sn_shape x = c->in[0]->shape;
    int64_t from = attr_int(m, c, "start", 0), to = attr_int(m, c, "end", x.rank);
    from = SN_MAX(from < 0 ? from + x.rank : from, 0);
    to = SN_MIN(to < 0 ? to + x.rank : to, x.rank);
    from = SN_MIN(from, x.rank);
    c->out[0] = integers(m, x.dim + from, (int) SN_MAX(to - from, 0));
}

static void size_row(importer *m, call *c)
{
    c->out[0] = scalar(m, SN_I64, (double) sn_shape_count(c->in[0]->shape));
}

static void reshape_row(importer *m, call *c)
{
    item *x = c->in[0];
    int64_t dim[R], known = 1, whole = sn_shape_count(x->shape);
    bool zero = attr_int(m, c, "allowzero", 0);
    int n = c->opset < 5 ? attr_ints(m, c, "shape", dim, R)
                         : need_ints(m, c->in[1], "its shape", dim, R),
        open = -1;
    if (n < 0) {
        onnx_fail(m, SN_EINVAL, "it has no shape");
        return;
    }
    sn_shape s = {.rank = n};
    for (int d = 0; d < n; d++) {
        s.dim[d] = dim[d] == 0 && !zero && d < x->shape.rank ? x->shape.dim[d] : dim[d];
        if (s.dim[d] == -1) {
            open = d;
        } else if (s.dim[d] < 0 || __builtin_mul_overflow(known, s.dim[d], &known)) {
            onnx_fail(m, SN_EINVAL, "%lld is no dim", (long long) s.dim[d]);
            return;
        }
    }
    if (open >= 0)
        s.dim[open] = known ? whole / known : 0;
    c->out[0] = reshape(m, x, s);
}

static void flatten(importer *m, call *c)
{
    sn_shape x = c->in[0]->shape, s = SN_SHAPE(1, 1);
    int64_t axis = attr_int(m, c, "axis", 1);
    axis = axis < 0 ? axis + x.rank : axis;
    for (int d = 0; d < x.rank; d++)
        s.dim[d >= axis] *= x.dim[d];
    c->out[0] = reshape(m, c->in[0], s);
}

/* Axes are an attribute before opset 13, an operand since. */
static int axes(importer *m, call *c, int64_t *ret)
{
    if (c->opset < 13)
        return attr_ints(m, c, "axes", ret, R);
    return has(c, 1) ? need_ints(m, c->in[1], "its axes", ret, R) : -1;
}

static void squeeze(importer *m, call *c)
{
    item *x = c->in[0];
    int64_t a[R], mask = 0;
    int n = axes(m, c, a);
    for (int i = 0; i < n; i++) {
        int d = axis_of(m, a[i], x->shape.rank);
        if (ok(m) && x->shape.dim[d] != 1)
            onnx_fail(m, SN_EINVAL, "dim %d is not 1", d);
        mask |= (int64_t) 1 << d;
    }
    for (int d = 0; n < 0 && d < x->shape.rank; d++)
        if (x->shape.dim[d] == 1)
            mask |= (int64_t) 1 << d;
    c->out[0] = axes_mask_squeeze(m, x, mask);
}

static void unsqueeze_row(importer *m, call *c)
{
    item *x = c->in[0];
    int64_t a[R], mask = 0;
    int n = axes(m, c, a), rank = x->shape.rank + n, next = 0;
    if (n < 0 || rank > R) {
        onnx_fail(m, n < 0 ? SN_EINVAL : SN_ENOTSUP, "it has no axes, or more than %d dims", R);
        return;
    }
    sn_shape s = {.rank = rank};
    for (int i = 0; i < n; i++)
        mask |= (int64_t) 1 << axis_of(m, a[i], rank);
    for (int d = 0; d < rank; d++) {
        if (!(mask >> d & 1) && next >= x->shape.rank) {
            onnx_fail(m, SN_EINVAL, "an axis is given twice");
            return;
        }
        s.dim[d] = mask >> d & 1 ? 1 : x->shape.dim[next++];
    }
    c->out[0] = reshape(m, x, s);
}

static void transpose_row(importer *m, call *c)
{
    int64_t p[R];
    int perm[R], rank = c->in[0]->shape.rank, n = attr_ints(m, c, "perm", p, R);
    if (n >= 0 && n != rank) {
        onnx_fail(m, SN_EINVAL, "an order of %d dims for a tensor of %d", n, rank);
        return;
    }
    for (int d = 0; d < rank; d++)
        perm[d] = n < 0 ? rank - 1 - d : (int) SN_MIN(SN_MAX(p[d], -1), R);
    c->out[0] = transpose(m, c->in[0], perm);
}

static void concat_row(importer *m, call *c)
{
    int axis = axis_of(m, attr_int(m, c, "axis", 1), c->in[0]->shape.rank);
    c->out[0] = concat(m, c->in, c->ins, axis);
}

static void split(importer *m, call *c)
{
    item *x = c->in[0];
    int axis = axis_of(m, attr_int(m, c, "axis", 0), x->shape.rank), n;
    int64_t size[CALL_MAX], at = 0;
    if (!ok(m))
        return;
    int64_t whole = x->shape.dim[axis];
    n = c->opset < 13 ? attr_ints(m, c, "split", size, CALL_MAX)
        : has(c, 1)   ? need_ints(m, c->in[1], "its sizes", size, CALL_MAX)
                      : -1;
    int64_t each = (whole + c->outs - 1) / SN_MAX(c->outs, 1);
    for (int o = 0; o < c->outs && ok(m); o++) {
        int64_t count = n < 0 ? SN_MIN(each, whole - at) : o < n ? size[o] : -1;
        if (count < 0 || count > whole - at) {
            onnx_fail(m, SN_EINVAL, "the parts do not make up the whole");
            return;
        }
        c->out[o] = part(m, x, axis, at, count);
        at += count;
    }
}

static int64_t clamp(int64_t v, int64_t low, int64_t high)
{
    return v < low ? low : v > high ? high : v;
}

static void slice(importer *m, call *c)
{
    item *x = c->in[0];
    int64_t from[R], to[R], axes_of[R], by[R], start[R] = {0}, step[R];
    int n, e, a = -1, s = -1;
    if (c->opset < 10) {
        n = attr_ints(m, c, "starts", from, R);
        e = attr_ints(m, c, "ends", to, R);
        a = attr_ints(m, c, "axes", axes_of, R);
    } else {
        n = need_ints(m, c->in[1], "where it starts", from, R);
        e = need_ints(m, c->in[2], "where it ends", to, R);
        a = has(c, 3) ? need_ints(m, c->in[3], "its axes", axes_of, R) : -1;
        s = has(c, 4) ? need_ints(m, c->in[4], "its steps", by, R) : -1;
    }
    if (n < 0 || e != n || (a >= 0 && a != n) || (s >= 0 && s != n) || n > x->shape.rank) {
        onnx_fail(m, SN_EINVAL, "its starts, ends, axes and steps do not fit together");
        return;
    }
    sn_shape y = x->shape;
    for (int d = 0; d < R; d++)
        step[d] = 1;
    for (int i = 0; i < n && ok(m); i++) {
        int d = axis_of(m, a >= 0 ? axes_of[i] : i, x->shape.rank);
        int64_t size = x->shape.dim[d], k = s >= 0 ? by[i] : 1;
        k = clamp(k, -INT32_MAX, INT32_MAX);
        if (k == 0) {
            onnx_fail(m, SN_EINVAL, "a step of 0");
            return;
        }
        int64_t b = from[i] < 0 ? from[i] + size : from[i], f = to[i];
        f = f < 0 && f >= -size ? f + size : f < 0 ? -1 : f;
        b = clamp(b, 0, k > 0 ? size : size - 1);
        f = clamp(f, k > 0 ? 0 : -1, size);
        int64_t count = k > 0 ? (f - b + k - 1) / k : (b - f - k - 1) / -k;
        y.dim[d] = SN_MAX(count, 0);
        start[d] = b;
        step[d] = k;
    }
    c->out[0] = strided(m, x, start, step, y);
}

static void expand_row(importer *m, call *c)
{
    sn_shape s = {0};
    s.rank = need_ints(m, c->in[1], "its shape", s.dim, R);
    if (s.rank >= 0)
        c->out[0] = expand(m, c->in[0], s);
}

static void tile_row(importer *m, call *c)
{
    item *x = c->in[0];
    int64_t times[R];
    sn_shape s = x->shape;
    if (c->opset < 6 && c->ins == 3) { /* tiles, axis */
        int64_t axis;
        if (need_ints(m, c->in[1], "its count", times, 1) != 1 ||
            need_ints(m, c->in[2], "its axis", &axis, 1) != 1)
            return;
        int d = axis_of(m, axis, s.rank);
        if (__builtin_mul_overflow(s.dim[d], times[0], &s.dim[d]))
            s.dim[d] = -1;
        c->out[0] = tile(m, x, s);
        return;
    }
    int n = need_ints(m, c->in[1], "its counts", times, R);
    if (n != s.rank) {
        onnx_fail(m, SN_EINVAL, "%d counts for %d dims", n, s.rank);
        return;
    }
    for (int d = 0; d < n; d++)
        if (__builtin_mul_overflow(s.dim[d], times[d], &s.dim[d]))
            s.dim[d] = -1;
    c->out[0] = tile(m, x, s);
}

/* Padding that repeats what is there: each padded dim is gathered by indices that reflect at, or
 * stop at, its ends. */
static item *pad_by_index(importer *m, item *x, const int64_t *pads, bool reflect)
{
    int rank = x->shape.rank;
    for (int d = 0; d < rank && ok(m) && x; d++) {
        int64_t n = x->shape.dim[d], before = pads[d], after = pads[rank + d];
        void *data;
        if (before == 0 && after == 0)
            continue;
        if (n < 1 || (reflect && n < 2 && (before > 0 || after > 0)) || before < -n || after < -n)
            return onnx_fail(m, SN_EINVAL, "dim %d is too small for its padding", d);
        item *index = constant(m, SN_I64, SN_SHAPE(before + n + after), &data);
        for (int64_t i = 0; index && i < before + n + after; i++) {
            int64_t at = i - before, period = 2 * (n - 1);
            if (reflect) {
                at = period ? ((at % period) + period) % period : 0;
                at = at >= n ? period - at : at;
            }
            ((int64_t *) data)[i] = clamp(at, 0, n - 1);
        }
        x = gather(m, x, index, d);
    }
    return x;
}

static void pad_row(importer *m, call *c)
{
    item *x = c->in[0];
    int64_t pads[2 * R], start[R] = {0}, before[R], after[R];
    double v = attr_float(m, c, "value", 0);
    const char *mode = attr_str(m, c, "mode", "constant");
    int n, rank = x->shape.rank;
    if (c->opset < 11) {
        n = attr_ints(m, c, c->opset < 2 ? "paddings" : "pads", pads, 2 * R);
    } else {
        n = need_ints(m, c->in[1], "its padding", pads, 2 * R);
        if (has(c, 2) && need(m, c->in[2], "its value"))
            v = sn_shape_count(c->in[2]->shape) ? number_at(c->in[2], 0) : 0;
    }
    if (n != 2 * rank || has(c, 3)) {
        onnx_fail(m, has(c, 3) ? SN_ENOTSUP : SN_EINVAL, "%d numbers of padding for %d dims", n,
                  rank);
        return;
    }
    if (strcmp(mode, "constant")) {
        if (strcmp(mode, "reflect") && strcmp(mode, "edge"))
            onnx_fail(m, SN_ENOTSUP, "mode '%.20s' is not offered", mode);
        else
            c->out[0] = pad_by_index(m, x, pads, *mode == 'r');
        return;
    }
    sn_shape kept = x->shape; /* padding below zero cuts */
    for (int d = 0; d < rank; d++) {
        before[d] = SN_MAX(pads[d], 0);
        after[d] = SN_MAX(pads[rank + d], 0);
        start[d] = SN_MAX(-pads[d], 0);
        kept.dim[d] = x->shape.dim[d] - start[d] - SN_MAX(-pads[rank + d], 0);
    }
    c->out[0] = pad(m, strided(m, x, start, NULL, kept), before, after, v);
}

static void depth_to_space(importer *m, call *c)
{
    item *x = c->in[0];
    int64_t b = attr_int(m, c, "blocksize", 0), *d = x->shape.dim;
    bool crd = !strcmp(attr_str(m, c, "mode", "DCR"), "CRD");
    if (x->shape.rank != 4 || b < 1 || b > 4096 || d[1] % (b * b)) {
        onnx_fail(m, SN_EINVAL, "blocks of %lld do not fit", (long long) b);
        return;
    }
    int64_t depth = d[1] / (b * b), n = d[0], h = d[2], w = d[3];
    sn_shape s = crd ? SN_SHAPE(n, depth, b, b, h, w) : SN_SHAPE(n, b, b, depth, h, w);
    const int dcr_perm[] = {0, 3, 4, 1, 5, 2}, crd_perm[] = {0, 1, 4, 2, 5, 3};
    item *y = transpose(m, reshape(m, x, s), crd ? crd_perm : dcr_perm);
    c->out[0] = reshape(m, y, SN_SHAPE(n, depth, h * b, w * b));
}

static void space_to_depth(importer *m, call *c)
{
    item *x = c->in[0];
    int64_t b = attr_int(m, c, "blocksize", 0), *d = x->shape.dim;
    if (x->shape.rank != 4 || b < 1 || b > 4096 || d[2] % b || d[3] % b) {
        onnx_fail(m, SN_EINVAL, "blocks of %lld do not fit", (long long) b);
        return;
    }
    item *y = reshape(m, x, SN_SHAPE(d[0], d[1], d[2] / b, b, d[3] / b, b));
    y = transpose(m, y, (int[]){0, 3, 5, 1, 2, 4});
    c->out[0] = reshape(m, y, SN_SHAPE(d[0], d[1] * b * b, d[2] / b, d[3] / b));
}

const row onnx_rows_shape[] = {
    {"Concat", 1, 1, concat_row},
    {"DepthToSpace", 1, 1, depth_to_space},
    {"Expand", 8, 2, expand_row},
    {"Flatten", 1, 1, flatten},
    {"Pad", 1, 1, pad_row},
    {"Reshape", 1, 1, reshape_row},
    {"Shape", 1, 1, shape_row},
    {"Size", 1, 1, size_row},
    {"Slice", 1, 1, slice},
    {"SpaceToDepth", 1, 1, space_to_depth},
    {"Split", 2, 1, split},
    {"Squeeze", 1, 1, squeeze},
    {"Tile", 1, 2, tile_row},
    {"Transpose", 1, 1, transpose_row},
    {"Unsqueeze", 1, 1, unsqueeze_row},
};
const int onnx_rows_shape_count = SN_COUNT(onnx_rows_shape);
