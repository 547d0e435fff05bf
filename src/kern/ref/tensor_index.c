/* SPDX-License-Identifier: Apache-2.0
 * Elements taken from, or put to, the places that integers name. A place that is not there gives
 * 0 and takes nothing. */
#include "kern/ref/tensor.h"

/* Index i of n places: from the end when below 0; −1 when there is no such place. */
static int64_t place_of(sn_dtype t, const void *p, int64_t i, int64_t n)
{
    int64_t at = t == SN_I64 ? ((const int64_t *) p)[i] : ((const int32_t *) p)[i];
    if (at < 0)
        at += n;
    return at < 0 || at >= n ? -1 : at;
}

/* x seen as [outer, n, inner] about a dim. */
static void sides(sn_shape x, int64_t dim, int64_t *outer, int64_t *inner)
{
    *outer = *inner = 1;
    for (int d = 0; d < x.rank; d++) {
        if (d < dim)
            *outer *= x.dim[d];
        if (d > dim)
            *inner *= x.dim[d];
    }
}

REF_RUN(gather)
{
    sn_shape x = k->spec.in[0].shape;
    int64_t axis = k->spec.attr.i[0], n = x.dim[axis], outer, inner;
    int64_t m = sn_shape_count(k->spec.in[1].shape);
    sides(x, axis, &outer, &inner);
    size_t bytes = (size_t) inner * tensor_bytes(k->spec.out[0].dtype);
    char *y = out[0];
    for (int64_t o = 0; o < outer; o++)
        for (int64_t j = 0; j < m; j++, y += bytes) {
            int64_t at = place_of(k->spec.in[1].dtype, in[1], j, n);
            if (at < 0)
                memset(y, 0, bytes);
            else
                memcpy(y, (const char *) in[0] + (size_t) (o * n + at) * bytes, bytes);
        }
    return SN_OK;
}

REF_RUN(gather_sum)
{
    sn_shape x = k->spec.out[0].shape;
    sn_dtype t = k->spec.in[1].dtype;
    int64_t axis = k->spec.attr.i[0], n = x.dim[axis], outer, inner, from = 0;
    int64_t m = sn_shape_count(k->spec.in[0].shape), count = sn_shape_count(x);
    double *sum = work, block[TENSOR_BLOCK];
    sides(x, axis, &outer, &inner);
    for (int64_t i = 0; i < count; i++)
        sum[i] = 0;
    for (int64_t o = 0; o < outer; o++)
        for (int64_t j = 0; j < m; j++, from += inner) {
            int64_t at = place_of(k->spec.in[0].dtype, in[0], j, n);
            for (int64_t i = 0; at >= 0 && i < inner; i += TENSOR_BLOCK) {
                int64_t part = SN_MIN(inner - i, (int64_t) TENSOR_BLOCK);
                REF(read_f64)(t, in[1], from + i, 1, part, block);
                for (int64_t b = 0; b < part; b++)
                    sum[(o * n + at) * inner + i + b] += block[b];
            }
        }
    REF(write_f64)(k->spec.out[0].dtype, out[0], 0, count, sum);
    return SN_OK;
}

/* A walk over the indices: operand 0 stands in them, operand 1 in x, at the start of the line along
 * `axis`; ret_step is that line's step. */
static void begin_lines(tensor_walk *w, sn_shape index, sn_shape x, int64_t axis, int64_t *ret_step)
{
    int64_t step[2][SN_RANK_MAX] = {{0}}, of_index = 1, of_x = 1;
    for (int d = x.rank - 1; d >= 0; d--) {
        step[0][d] = of_index;
        step[1][d] = d == axis ? 0 : of_x;
        if (d == axis)
            *ret_step = of_x;
        of_index *= index.dim[d];
        of_x *= x.dim[d];
    }
    REF(walk_begin)(w, index, 2, step);
}

REF_RUN(elements)
{
    sn_shape x = k->spec.in[0].shape;
    int64_t axis = k->spec.attr.i[0], line;
    size_t bytes = tensor_bytes(k->spec.out[0].dtype);
    tensor_walk w;
    begin_lines(&w, k->spec.in[1].shape, x, axis, &line);
    for (int64_t row = 0; row < w.rows; row++, REF(walk_next)(&w))
        for (int64_t i = 0; i < w.inner; i++) {
            int64_t j = w.at[0] + i * w.step[0][w.rank - 1];
            int64_t at = place_of(k->spec.in[1].dtype, in[1], j, x.dim[axis]);
            int64_t from = w.at[1] + i * w.step[1][w.rank - 1] + at * line;
            char *y = (char *) out[0] + (size_t) j * bytes;
            if (at < 0)
                memset(y, 0, bytes);
            else
                memcpy(y, (const char *) in[0] + (size_t) from * bytes, bytes);
        }
    return SN_OK;
}

REF_RUN(elements_sum)
{
    sn_shape x = k->spec.out[0].shape;
    int64_t axis = k->spec.attr.i[0], line, count = sn_shape_count(x);
    double *sum = work, dy;
    tensor_walk w;
    for (int64_t i = 0; i < count; i++)
        sum[i] = 0;
    begin_lines(&w, k->spec.in[0].shape, x, axis, &line);
    for (int64_t row = 0; row < w.rows; row++, REF(walk_next)(&w))
        for (int64_t i = 0; i < w.inner; i++) {
            int64_t j = w.at[0] + i * w.step[0][w.rank - 1];
            int64_t at = place_of(k->spec.in[0].dtype, in[0], j, x.dim[axis]);
            REF(read_f64)(k->spec.in[1].dtype, in[1], j, 1, 1, &dy);
            if (at >= 0)
                sum[w.at[1] + i * w.step[1][w.rank - 1] + at * line] += dy;
        }
    REF(write_f64)(k->spec.out[0].dtype, out[0], 0, count, sum);
    return SN_OK;
}

/* y[at] = f(y[at], u[from]) */
static void put(sn_dtype t, int64_t f, void *y, int64_t at, const void *u, int64_t from)
{
    size_t bytes = tensor_bytes(t);
    if (f == SN_SCATTER_PUT) {
        memcpy((char *) y + (size_t) at * bytes, (const char *) u + (size_t) from * bytes, bytes);
    } else if (tensor_real(t)) {
        double a, b;
        REF(read_f64)(t, y, at, 1, 1, &a);
        REF(read_f64)(t, u, from, 1, 1, &b);
        a = f == SN_SCATTER_ADD   ? a + b
            : f == SN_SCATTER_MUL ? a * b
            : f == SN_SCATTER_MAX ? (isnan(a) || a > b ? a : b)
                                  : (isnan(a) || a < b ? a : b);
        REF(write_f64)(t, y, at, 1, &a);
    } else {
        int64_t a, b;
        REF(read_i64)(t, y, at, 1, 1, &a);
        REF(read_i64)(t, u, from, 1, 1, &b);
        bool more = t == SN_U64 ? (uint64_t) a > (uint64_t) b : a > b;
        a = f == SN_SCATTER_ADD   ? (int64_t) ((uint64_t) a + (uint64_t) b)
            : f == SN_SCATTER_MUL ? (int64_t) ((uint64_t) a * (uint64_t) b)
            : f == SN_SCATTER_MAX ? (more ? a : b)
                                  : (more ? b : a);
        REF(write_i64)(t, y, at, 1, &a);
    }
}

REF_RUN(scatter)
{
    sn_shape x = k->spec.in[0].shape;
    sn_dtype t = k->spec.out[0].dtype;
    int64_t axis = k->spec.attr.i[0], line;
    tensor_walk w;
    memcpy(out[0], in[0], (size_t) sn_shape_count(x) * tensor_bytes(t));
    begin_lines(&w, k->spec.in[1].shape, x, axis, &line);
    for (int64_t row = 0; row < w.rows; row++, REF(walk_next)(&w))
        for (int64_t i = 0; i < w.inner; i++) {
            int64_t j = w.at[0] + i * w.step[0][w.rank - 1];
            int64_t at = place_of(k->spec.in[1].dtype, in[1], j, x.dim[axis]);
            if (at >= 0)
                put(t, k->spec.attr.i[1], out[0], w.at[1] + i * w.step[1][w.rank - 1] + at * line,
                    in[2], j);
        }
    return SN_OK;
}

/* The element of x (dims from `dim` on) that an index of `length` integers at `i` names. */
static int64_t tuple_at(sn_dtype t, const void *index, int64_t i, sn_shape x, int64_t dim,
                        int64_t length)
{
    int64_t place = 0;
    for (int64_t l = 0; l < length; l++) {
        int64_t at = place_of(t, index, i + l, x.dim[dim + l]);
        if (at < 0)
            return -1;
        place = place * x.dim[dim + l] + at;
    }
    return place;
}

static int64_t count_from(sn_shape x, int64_t from, int64_t to)
{
    int64_t n = 1;
    for (int64_t d = from; d < to; d++)
        n *= x.dim[d];
    return n;
}

REF_RUN(gather_nd)
{
    sn_shape x = k->spec.in[0].shape, index = k->spec.in[1].shape;
    int64_t same = k->spec.attr.i[0], length = index.dim[index.rank - 1];
    int64_t outer = count_from(index, 0, same), each = count_from(index, same, index.rank - 1);
    int64_t inner = count_from(x, same + length, x.rank), whole = count_from(x, same, x.rank);
    size_t one = tensor_bytes(k->spec.out[0].dtype), bytes = (size_t) inner * one;
    char *y = out[0];
    for (int64_t j = 0; j < outer * each; j++, y += bytes) {
        int64_t at = tuple_at(k->spec.in[1].dtype, in[1], j * length, x, same, length);
        if (at < 0)
            memset(y, 0, bytes);
        else
            memcpy(y, (const char *) in[0] + (size_t) (j / each * whole + at * inner) * one, bytes);
    }
    return SN_OK;
}

REF_RUN(scatter_nd)
{
    sn_shape x = k->spec.in[0].shape, index = k->spec.in[1].shape;
    sn_dtype t = k->spec.out[0].dtype;
    int64_t length = index.dim[index.rank - 1], tuples = count_from(index, 0, index.rank - 1);
    int64_t inner = count_from(x, length, x.rank);
    memcpy(out[0], in[0], (size_t) sn_shape_count(x) * tensor_bytes(t));
    for (int64_t j = 0; j < tuples; j++) {
        int64_t at = tuple_at(k->spec.in[1].dtype, in[1], j * length, x, 0, length);
        for (int64_t i = 0; at >= 0 && i < inner; i++)
            put(t, k->spec.attr.i[1], out[0], at * inner + i, in[2], j * inner + i);
    }
    return SN_OK;
}
