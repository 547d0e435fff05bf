/* SPDX-License-Identifier: Apache-2.0
 * Rows whose result has a shape that depends on values: computed here, when they are known. */
#include "onnx/private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void nonzero(importer *m, call *c)
{
    item *x = c->in[0];
    if (!need(m, x, "its operand"))
        return;
    int64_t n = sn_shape_count(x->shape), count = 0, rank = SN_MAX(x->shape.rank, 1);
    void *data;
    for (int64_t i = 0; i < n; i++)
        count += number_at(x, i) != 0;
    item *y = constant(m, SN_I64, SN_SHAPE(rank, count), &data);
    int64_t *out = data, at = 0;
    for (int64_t i = 0; y && i < n; i++) {
        int64_t rest = i;
        if (number_at(x, i) == 0)
            continue;
        for (int64_t d = rank - 1; d >= 0; d--) {
            int64_t size = x->shape.rank ? x->shape.dim[d] : 1;
            out[d * count + at] = rest % size;
            rest /= size;
        }
        at++;
    }
    c->out[0] = y;
}

static void compress(importer *m, call *c)
{
    item *x = c->in[0], *take = c->in[1];
    int axis = 0;
    void *data;
    if (!need(m, take, "which to take"))
        return;
    if (onnx_attr(c, m, "axis"))
        axis = axis_of(m, attr_int(m, c, "axis", 0), x->shape.rank);
    else
        x = reshape(m, x, SN_SHAPE(sn_shape_count(x->shape)));
    if (!x || !ok(m))
        return;
    int64_t n = SN_MIN(sn_shape_count(take->shape), x->shape.dim[axis]), count = 0;
    for (int64_t i = 0; i < n; i++)
        count += integer_at(take, i) != 0;
    item *index = constant(m, SN_I64, SN_SHAPE(count), &data);
    for (int64_t i = 0, at = 0; index && i < n; i++)
        if (integer_at(take, i))
            ((int64_t *) data)[at++] = i;
    c->out[0] = gather(m, x, index, axis);
}

/* ---- unique ---- */
/* Slice `i` of x about an axis, as [outer, n, inner]. */
typedef struct slices {
    const item *x;
    int64_t outer, n, inner;
} slices;

typedef struct slice {
    const slices *of;
    int64_t at;
} slice;

static int by_content(const void *a, const void *b)
{
    const slice *p = a, *q = b;
    const slices *s = p->of;
    for (int64_t o = 0; o < s->outer; o++)
        for (int64_t i = 0; i < s->inner; i++) {
            double u = number_at(s->x, (o * s->n + p->at) * s->inner + i);
            double v = number_at(s->x, (o * s->n + q->at) * s->inner + i);
            if (u != v)
                return u < v ? -1 : 1;
        }
    return 0;
}

static int by_content_and_place(const void *a, const void *b)
{
    int order = by_content(a, b);
    return order ? order : ((const slice *) a)->at < ((const slice *) b)->at ? -1 : 1;
}

static int by_place(const void *a, const void *b)
{
    int64_t u = ((const int64_t *) a)[0], v = ((const int64_t *) b)[0];
    return (u > v) - (u < v);
}

/* Groups of equal slices: ret_first[g] where each begins, ret_group[i] the group of slice i. */
static int64_t group(importer *m, const slices *s, bool sorted, int64_t *first, int64_t *group_of,
                     int64_t *count)
{
    slice *list = SN_NEW_N(m->arena, slice, s->n + 1);
    int64_t(*groups)[2] = sn_arena_alloc(m->arena, (size_t) (s->n + 1) * sizeof *groups), n = 0;
    for (int64_t i = 0; i < s->n; i++)
        list[i] = (slice){s, i};
    qsort(list, (size_t) s->n, sizeof *list, by_content_and_place);
    for (int64_t i = 0; i < s->n; i++) {
        if (i == 0 || by_content(&list[i - 1], &list[i])) {
            groups[n][0] = list[i].at;
            groups[n][1] = n;
            n++;
        }
        group_of[list[i].at] = n - 1;
    }
    if (!sorted)
        qsort(groups, (size_t) n, sizeof *groups, by_place);
    int64_t *now = SN_NEW_N(m->arena, int64_t, n + 1);
    for (int64_t g = 0; g < n; g++) {
        first[g] = groups[g][0];
        now[groups[g][1]] = g;
        count[g] = 0;
    }
    for (int64_t i = 0; i < s->n; i++) {
        group_of[i] = now[group_of[i]];
        count[group_of[i]]++;
    }
    return n;
}

static void unique(importer *m, call *c)
{
    item *x = c->in[0];
    int axis = 0;
    if (!need(m, x, "its operand"))
        return;
    if (onnx_attr(c, m, "axis"))
        axis = axis_of(m, attr_int(m, c, "axis", 0), x->shape.rank);
    else
        x = reshape(m, x, SN_SHAPE(sn_shape_count(x->shape)));
    if (!x || !ok(m) || sn_shape_count(x->shape) > 1 << 24) {
        onnx_fail(m, SN_EFIT, "its operand is too large");
        return;
    }
    slices s = {x, 1, x->shape.dim[axis], 1};
    for (int d = 0; d < x->shape.rank; d++) {
        s.outer *= d < axis ? x->shape.dim[d] : 1;
        s.inner *= d > axis ? x->shape.dim[d] : 1;
    }
    int64_t *first = SN_NEW_N(m->arena, int64_t, s.n + 1);
    int64_t *of = SN_NEW_N(m->arena, int64_t, s.n + 1);
    int64_t *count = SN_NEW_N(m->arena, int64_t, s.n + 1);
    int64_t n = group(m, &s, attr_int(m, c, "sorted", 1), first, of, count);
    c->out[1] = integers(m, first, (int) n);
    c->out[0] = gather(m, x, c->out[1], axis);
    c->out[2] = integers(m, of, (int) s.n);
    c->out[3] = integers(m, count, (int) n);
}

/* ---- boxes ---- */
typedef struct box {
    double y0, x0, y1, x1;
} box;

static box box_at(const item *boxes, int64_t at, bool centre)
{
    double v[4];
    for (int i = 0; i < 4; i++)
        v[i] = number_at(boxes, at * 4 + i);
    if (centre)
        return (box){v[1] - v[3] / 2, v[0] - v[2] / 2, v[1] + v[3] / 2, v[0] + v[2] / 2};
    return (box){fmin(v[0], v[2]), fmin(v[1], v[3]), fmax(v[0], v[2]), fmax(v[1], v[3])};
}

static double overlap(box a, box b)
{
    double h = fmin(a.y1, b.y1) - fmax(a.y0, b.y0), w = fmin(a.x1, b.x1) - fmax(a.x0, b.x0);
    double both = h > 0 && w > 0 ? h * w : 0;
    double all = (a.y1 - a.y0) * (a.x1 - a.x0) + (b.y1 - b.y0) * (b.x1 - b.x0) - both;
    return all > 0 ? both / all : 0;
}

typedef struct suppression {
    const item *boxes, *scores;
    int64_t most, n;
    double iou, score;
    bool centre, scored;
} suppression;

/* The boxes of one class kept, best first; how many. */
static int64_t keep(const suppression *s, int64_t boxes_at, int64_t scores_at, int64_t *kept,
                    bool *gone)
{
    int64_t count = 0;
    memset(gone, 0, (size_t) s->n);
    while (count < s->most) {
        int64_t best = -1;
        double top = 0;
        for (int64_t i = 0; i < s->n; i++) {
            double v = number_at(s->scores, scores_at + i);
            if (!gone[i] && (!s->scored || v > s->score) && (best < 0 || v > top)) {
                best = i;
                top = v;
            }
        }
        if (best < 0)
            break;
        kept[count++] = best;
        box b = box_at(s->boxes, boxes_at + best, s->centre);
        for (int64_t i = 0; i < s->n; i++)
            gone[i] |= i == best || overlap(b, box_at(s->boxes, boxes_at + i, s->centre)) > s->iou;
    }
    return count;
}

static void non_max_suppression(importer *m, call *c)
{
    suppression s = {c->in[0], c->in[1]};
    if (!need(m, c->in[0], "the boxes") || !need(m, c->in[1], "the scores"))
        return;
    sn_shape b = s.boxes->shape, v = s.scores->shape;
    if (has(c, 2) && need_ints(m, c->in[2], "the most boxes", &s.most, 1) != 1)
        return;
    if (has(c, 3) && need(m, c->in[3], "the overlap"))
        s.iou = number_at(c->in[3], 0);
    s.scored = has(c, 4) && need(m, c->in[4], "the least score");
    s.score = s.scored ? number_at(c->in[4], 0) : 0;
    s.centre = attr_int(m, c, "center_point_box", 0);
    if (!ok(m) || b.rank != 3 || v.rank != 3 || b.dim[0] != v.dim[0] || b.dim[1] != v.dim[2] ||
        b.dim[2] != 4 || b.dim[1] > 1 << 20) {
        onnx_fail(m, SN_EINVAL, "boxes and scores do not fit together");
        return;
    }
    s.n = b.dim[1];
    s.most = SN_MIN(SN_MAX(s.most, 0), s.n);
    int64_t *out = NULL, count = 0, *kept = SN_NEW_N(m->arena, int64_t, s.n + 1);
    bool *gone = SN_NEW_N(m->arena, bool, s.n + 1);
    size_t cap = 0;
    for (int64_t i = 0; i < v.dim[0]; i++)
        for (int64_t k = 0; k < v.dim[1]; k++) {
            int64_t n = keep(&s, i * s.n, (i * v.dim[1] + k) * s.n, kept, gone);
            out = sn_arena_grow(m->arena, out, (size_t) count * 3, (size_t) (count + n) * 3 + 1,
                                sizeof *out, &cap);
            for (int64_t j = 0; j < n; j++, count++) {
                out[count * 3] = i;
                out[count * 3 + 1] = k;
                out[count * 3 + 2] = kept[j];
            }
        }
    c->out[0] = reshape(m, integers(m, out, (int) count * 3), SN_SHAPE(count, 3));
}

const row onnx_rows_static[] = {
    {"Compress", 9, 2, compress},
    {"NonMaxSuppression", 10, 2, non_max_suppression},
    {"NonZero", 9, 1, nonzero},
    {"Unique", 11, 1, unique},
};
const int onnx_rows_static_count = SN_COUNT(onnx_rows_static);
