/* SPDX-License-Identifier: Apache-2.0
 * Along dims: reductions, the place of the largest, running sums, the k best. */
#include "kern/ref/tensor.h"

#include <stdlib.h>

static double start_real(int64_t f)
{
    return f == SN_REDUCE_PROD  ? 1
           : f == SN_REDUCE_MAX ? -INFINITY
           : f == SN_REDUCE_MIN ? INFINITY
                                : 0;
}

static double join_real(int64_t f, double a, double x)
{
    switch ((sn_reduce) f) {
    case SN_REDUCE_PROD:
        return a * x;
    case SN_REDUCE_MAX:
        return isnan(a) || a > x ? a : x;
    case SN_REDUCE_MIN:
        return isnan(a) || a < x ? a : x;
    default:
        return a + x;
    }
}

static int64_t start_integer(int64_t f, bool u)
{
    return f == SN_REDUCE_PROD  ? 1
           : f == SN_REDUCE_MAX ? (u ? 0 : INT64_MIN)
           : f == SN_REDUCE_MIN ? (u ? -1 : INT64_MAX)
                                : 0;
}

static bool less(int64_t a, int64_t b, bool u)
{
    return u ? (uint64_t) a < (uint64_t) b : a < b;
}

static int64_t join_integer(int64_t f, bool u, int64_t a, int64_t x)
{
    switch ((sn_reduce) f) {
    case SN_REDUCE_PROD:
        return (int64_t) ((uint64_t) a * (uint64_t) x);
    case SN_REDUCE_MAX:
        return less(a, x, u) ? x : a;
    case SN_REDUCE_MIN:
        return less(x, a, u) ? x : a;
    default:
        return (int64_t) ((uint64_t) a + (uint64_t) x);
    }
}

/* The operand as 0, the result as 1: it stands still along what is reduced. */
static void begin_reduce(const sn_kernel *k, tensor_walk *w)
{
    int64_t step[2][SN_RANK_MAX];
    sn_shape full = k->spec.in[0].shape;
    REF(steps_of)(full, full, step[0]);
    REF(steps_of)(k->spec.out[0].shape, full, step[1]);
    REF(walk_begin)(w, full, 2, step);
}

static void reduce_real(const sn_kernel *k, const void *in, void *out, double *sum)
{
    tensor_walk w;
    begin_reduce(k, &w);
    int64_t f = k->spec.attr.i[0], last = w.rank - 1;
    int64_t m = sn_shape_count(k->spec.out[0].shape), n = sn_shape_count(k->spec.in[0].shape);
    for (int64_t i = 0; i < m; i++)
        sum[i] = start_real(f);
    for (int64_t row = 0; row < w.rows; row++, REF(walk_next)(&w))
        for (int64_t at = 0; at < w.inner; at += TENSOR_BLOCK) {
            int64_t count = SN_MIN(w.inner - at, (int64_t) TENSOR_BLOCK);
            double x[TENSOR_BLOCK];
            REF(read_f64)
            (k->spec.in[0].dtype, in, w.at[0] + at * w.step[0][last], w.step[0][last], count, x);
            double *y = sum + w.at[1] + at * w.step[1][last];
            for (int64_t i = 0; i < count; i++, y += w.step[1][last])
                *y = join_real(f, *y, x[i]);
        }
    for (int64_t i = 0; f == SN_REDUCE_MEAN && i < m; i++)
        sum[i] /= (double) n / (double) m;
    REF(write_f64)(k->spec.out[0].dtype, out, 0, m, sum);
}

static void reduce_integer(const sn_kernel *k, const void *in, void *out, int64_t *sum)
{
    tensor_walk w;
    begin_reduce(k, &w);
    bool u = k->spec.in[0].dtype == SN_U64;
    int64_t f = k->spec.attr.i[0], last = w.rank - 1;
    int64_t m = sn_shape_count(k->spec.out[0].shape), n = sn_shape_count(k->spec.in[0].shape);
    for (int64_t i = 0; i < m; i++)
        sum[i] = start_integer(f, u);
    for (int64_t row = 0; row < w.rows; row++, REF(walk_next)(&w))
        for (int64_t at = 0; at < w.inner; at += TENSOR_BLOCK) {
            int64_t count = SN_MIN(w.inner - at, (int64_t) TENSOR_BLOCK), x[TENSOR_BLOCK];
            REF(read_i64)
            (k->spec.in[0].dtype, in, w.at[0] + at * w.step[0][last], w.step[0][last], count, x);
            int64_t *y = sum + w.at[1] + at * w.step[1][last];
            for (int64_t i = 0; i < count; i++, y += w.step[1][last])
                *y = join_integer(f, u, *y, x[i]);
        }
    for (int64_t i = 0; f == SN_REDUCE_MEAN && i < m && n >= m; i++)
        sum[i] /= n / m;
    REF(write_i64)(k->spec.out[0].dtype, out, 0, m, sum);
}

REF_RUN(reduce)
{
    if (tensor_real(k->spec.in[0].dtype))
        reduce_real(k, in[0], out[0], work);
    else
        reduce_integer(k, in[0], out[0], work);
    return SN_OK;
}

/* An operand seen as [outer, n, inner] about a dim. */
typedef struct lines {
    int64_t outer, n, inner;
} lines;

static lines about(sn_shape x, int64_t dim)
{
    lines l = {1, x.dim[dim], 1};
    for (int d = 0; d < x.rank; d++) {
        if (d < dim)
            l.outer *= x.dim[d];
        if (d > dim)
            l.inner *= x.dim[d];
    }
    return l;
}

/* Where the best element of a line that begins at `at` is. */
static int64_t best_of_line(const sn_kernel *k, const void *in, lines l, int64_t at)
{
    sn_dtype t = k->spec.in[0].dtype;
    bool floating = tensor_real(t), smallest = k->spec.attr.i[1], late = k->spec.attr.i[2];
    bool u = t == SN_U64;
    int64_t best = 0, whole_best = 0;
    double real_best = 0;
    for (int64_t from = 0; from < l.n; from += TENSOR_BLOCK) {
        int64_t n = SN_MIN(l.n - from, (int64_t) TENSOR_BLOCK), whole[TENSOR_BLOCK];
        double x[TENSOR_BLOCK];
        if (floating)
            REF(read_f64)(t, in, at + from * l.inner, l.inner, n, x);
        else
            REF(read_i64)(t, in, at + from * l.inner, l.inner, n, whole);
        for (int64_t i = 0; i < n; i++) {
            bool better, equal;
            if (floating) {
                better = smallest ? x[i] < real_best : x[i] > real_best;
                better |= isnan(x[i]) && !isnan(real_best);
                equal = x[i] == real_best;
            } else {
                better = smallest ? less(whole[i], whole_best, u) : less(whole_best, whole[i], u);
                equal = whole[i] == whole_best;
            }
            if (from + i > 0 && !better && !(equal && late))
                continue;
            best = from + i;
            if (floating)
                real_best = x[i];
            else
                whole_best = whole[i];
        }
    }
    return best;
}

REF_RUN(arg)
{
    lines l = about(k->spec.in[0].shape, k->spec.attr.i[0]);
    int64_t *y = out[0];
    for (int64_t o = 0; o < l.outer; o++)
        for (int64_t i = 0; i < l.inner; i++)
            *y++ = best_of_line(k, in[0], l, o * l.n * l.inner + i);
    return SN_OK;
}

REF_RUN(cumulate)
{
    lines l = about(k->spec.in[0].shape, k->spec.attr.i[0]);
    sn_dtype t = k->spec.in[0].dtype;
    bool exclusive = k->spec.attr.i[1], reverse = k->spec.attr.i[2];
    for (int64_t line = 0; line < l.outer * l.inner; line++) {
        int64_t first = line / l.inner * l.n * l.inner + line % l.inner, whole = 0, x;
        double sum = 0, v;
        for (int64_t j = 0; j < l.n; j++) {
            int64_t at = first + (reverse ? l.n - 1 - j : j) * l.inner;
            if (tensor_real(t)) {
                REF(read_f64)(t, in[0], at, 1, 1, &v);
                double next = sum + v;
                REF(write_f64)(t, out[0], at, 1, exclusive ? &sum : &next);
                sum = next;
            } else {
                REF(read_i64)(t, in[0], at, 1, 1, &x);
                int64_t next = (int64_t) ((uint64_t) whole + (uint64_t) x);
                REF(write_i64)(t, out[0], at, 1, exclusive ? &whole : &next);
                whole = next;
            }
        }
    }
    return SN_OK;
}

/* An element of a line with what it is ordered by: the number, or an integer in order. */
typedef struct entry {
    double number;
    int64_t whole, at;
} entry;

static int by_size(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    bool nx = isnan(x->number), ny = isnan(y->number);
    if (nx != ny)
        return nx ? 1 : -1;
    if (x->number != y->number && !nx)
        return x->number < y->number ? -1 : 1;
    if (x->whole != y->whole)
        return x->whole < y->whole ? -1 : 1;
    return 0;
}

static int smallest_first(const void *a, const void *b)
{
    int order = by_size(a, b);
    return order ? order : ((const entry *) a)->at < ((const entry *) b)->at ? -1 : 1;
}

static int largest_first(const void *a, const void *b)
{
    int order = by_size(b, a);
    return order ? order : ((const entry *) a)->at < ((const entry *) b)->at ? -1 : 1;
}

sn_status REF(line)(sn_kernel *k)
{
    k->work_bytes = (size_t) k->spec.in[0].shape.dim[k->spec.attr.i[0]] * sizeof(entry);
    return SN_OK;
}

REF_RUN(top)
{
    int64_t dim = k->spec.attr.i[0], take = k->spec.attr.i[1], *indices = out[1];
    lines l = about(k->spec.in[0].shape, dim);
    sn_dtype t = k->spec.in[0].dtype;
    size_t bytes = tensor_bytes(t);
    entry *e = work;
    for (int64_t line = 0; line < l.outer * l.inner; line++) {
        int64_t first = line / l.inner * l.n * l.inner + line % l.inner;
        int64_t to = line / l.inner * take * l.inner + line % l.inner;
        for (int64_t j = 0; j < l.n; j++) {
            e[j] = (entry){.at = j};
            if (tensor_real(t))
                REF(read_f64)(t, in[0], first + j * l.inner, 1, 1, &e[j].number);
            else
                REF(read_i64)(t, in[0], first + j * l.inner, 1, 1, &e[j].whole);
            if (t == SN_U64)
                e[j].whole = (int64_t) ((uint64_t) e[j].whole ^ (uint64_t) INT64_MIN);
        }
        qsort(e, (size_t) l.n, sizeof *e, k->spec.attr.i[2] ? largest_first : smallest_first);
        for (int64_t j = 0; j < take; j++) {
            indices[to + j * l.inner] = e[j].at;
            memcpy((char *) out[0] + (size_t) (to + j * l.inner) * bytes,
                   (const char *) in[0] + (size_t) (first + e[j].at * l.inner) * bytes, bytes);
        }
    }
    return SN_OK;
}
