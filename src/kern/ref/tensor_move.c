/* SPDX-License-Identifier: Apache-2.0
 * Moving elements of any type: reshape, transpose, parts, joins, padding, copies. */
#include "kern/ref/tensor.h"

#define R SN_RANK_MAX

/* Dense steps of a shape, whatever its dims are. */
static void dense(sn_shape x, int64_t step[SN_RANK_MAX])
{
    int64_t stride = 1;
    for (int d = x.rank - 1; d >= 0; d--) {
        step[d] = stride;
        stride *= x.dim[d];
    }
}

/* Copy `size` elements from steps to steps. */
static void move_all(sn_dtype t, sn_shape size, char *out, const int64_t *out_step, const char *in,
                     const int64_t *in_step)
{
    int64_t step[2][SN_RANK_MAX];
    size_t bytes = tensor_bytes(t);
    tensor_walk w;
    memcpy(step[0], out_step, sizeof step[0]);
    memcpy(step[1], in_step, sizeof step[1]);
    REF(walk_begin)(&w, size, 2, step);
    int last = w.rank - 1;
    for (int64_t row = 0; row < w.rows; row++, REF(walk_next)(&w))
        REF(move)
        (bytes, out + w.at[0] * (int64_t) bytes, w.step[0][last], in + w.at[1] * (int64_t) bytes,
         w.step[1][last], w.inner);
}

REF_RUN(reshape)
{
    memcpy(out[0], in[0],
           (size_t) sn_shape_count(k->spec.out[0].shape) * tensor_bytes(k->spec.out[0].dtype));
    return SN_OK;
}

REF_RUN(transpose)
{
    sn_shape y = k->spec.out[0].shape;
    int64_t of_x[SN_RANK_MAX] = {0}, of_y[SN_RANK_MAX] = {0}, from[SN_RANK_MAX] = {0};
    dense(k->spec.in[0].shape, of_x);
    dense(y, of_y);
    for (int d = 0; d < y.rank; d++)
        from[d] = of_x[k->spec.attr.i[d]];
    move_all(k->spec.out[0].dtype, y, out[0], of_y, in[0], from);
    return SN_OK;
}

/* The steps of a part within `whole`, and the element where it begins. */
static int64_t part_steps(const sn_attr *attr, sn_shape whole, int64_t step[SN_RANK_MAX])
{
    int64_t first = 0;
    dense(whole, step);
    for (int d = 0; d < whole.rank; d++) {
        first += attr->i[d] * step[d];
        step[d] *= attr->i[R + d];
    }
    return first;
}

REF_RUN(strided)
{
    sn_shape y = k->spec.out[0].shape;
    int64_t from[SN_RANK_MAX] = {0}, to[SN_RANK_MAX] = {0};
    int64_t first = part_steps(&k->spec.attr, k->spec.in[0].shape, from);
    dense(y, to);
    if (sn_shape_count(y) > 0)
        move_all(k->spec.out[0].dtype, y, out[0], to,
                 (const char *) in[0] + first * (int64_t) tensor_bytes(k->spec.out[0].dtype), from);
    return SN_OK;
}

REF_RUN(strided_put)
{
    sn_shape x = k->spec.out[0].shape, y = k->spec.in[0].shape;
    size_t bytes = tensor_bytes(k->spec.out[0].dtype);
    int64_t to[SN_RANK_MAX] = {0}, from[SN_RANK_MAX] = {0};
    int64_t first = part_steps(&k->spec.attr, x, to);
    dense(y, from);
    memset(out[0], 0, (size_t) sn_shape_count(x) * bytes);
    if (sn_shape_count(y) > 0)
        move_all(k->spec.out[0].dtype, y, (char *) out[0] + first * (int64_t) bytes, to, in[0],
                 from);
    return SN_OK;
}

REF_RUN(concat)
{
    sn_shape y = k->spec.out[0].shape;
    int64_t axis = k->spec.attr.i[0], to[SN_RANK_MAX] = {0}, from[SN_RANK_MAX] = {0};
    char *at = out[0];
    dense(y, to);
    for (int i = 0; i < k->spec.ins; i++) {
        sn_shape x = k->spec.in[i].shape;
        dense(x, from);
        move_all(k->spec.out[0].dtype, x, at, to, in[i], from);
        at += x.dim[axis] * to[axis] * (int64_t) tensor_bytes(k->spec.out[0].dtype);
    }
    return SN_OK;
}

REF_RUN(pad)
{
    sn_shape x = k->spec.in[0].shape, y = k->spec.out[0].shape;
    sn_dtype t = k->spec.out[0].dtype;
    int64_t n = sn_shape_count(y), first = 0;
    int64_t to[SN_RANK_MAX] = {0}, from[SN_RANK_MAX] = {0};
    double value[TENSOR_BLOCK];
    for (int i = 0; i < TENSOR_BLOCK; i++)
        value[i] = k->spec.attr.f[0];
    for (int64_t at = 0; at < n; at += TENSOR_BLOCK)
        REF(write_f64)(t, out[0], at, SN_MIN(n - at, (int64_t) TENSOR_BLOCK), value);
    dense(x, from);
    dense(y, to);
    for (int d = 0; d < y.rank; d++)
        first += k->spec.attr.i[d] * to[d];
    move_all(t, x, (char *) out[0] + first * (int64_t) tensor_bytes(t), to, in[0], from);
    return SN_OK;
}

/* Every copy is one move of the original. */
REF_RUN(tile)
{
    sn_shape x = k->spec.in[0].shape, y = k->spec.out[0].shape, copies = y;
    sn_dtype t = k->spec.out[0].dtype;
    int64_t to[SN_RANK_MAX] = {0}, from[SN_RANK_MAX] = {0}, whole[SN_RANK_MAX] = {0};
    tensor_walk w;
    if (sn_shape_count(y) == 0)
        return SN_OK;
    dense(y, to);
    dense(x, from);
    /* a dim of 1 is copied inside the move, where it is cheap; the others by a walk over copies */
    for (int d = 0; d < y.rank; d++) {
        copies.dim[d] = x.dim[d] == 1 ? 1 : y.dim[d] / x.dim[d];
        whole[d] = x.dim[d] * to[d];
        if (x.dim[d] == 1) {
            from[d] = 0;
            x.dim[d] = y.dim[d];
        }
    }
    int64_t step[1][SN_RANK_MAX];
    memcpy(step[0], whole, sizeof step[0]);
    REF(walk_begin)(&w, copies, 1, step);
    for (int64_t row = 0; row < w.rows; row++, REF(walk_next)(&w))
        for (int64_t i = 0; i < w.inner; i++)
            move_all(t, x,
                     (char *) out[0] +
                         (w.at[0] + i * w.step[0][w.rank - 1]) * (int64_t) tensor_bytes(t),
                     to, in[0], from);
    return SN_OK;
}

/* The place in x, of dims `x`, that element `at` of y is a copy of. */
static int64_t original(sn_shape x, sn_shape y, int64_t at)
{
    int64_t place = 0, stride = 1;
    for (int d = y.rank - 1; d >= 0; d--) {
        place += at % y.dim[d] % x.dim[d] * stride;
        at /= y.dim[d];
        stride *= x.dim[d];
    }
    return place;
}

REF_RUN(tile_sum)
{
    sn_shape y = k->spec.in[0].shape, x = k->spec.out[0].shape;
    int64_t n = sn_shape_count(y), m = sn_shape_count(x);
    double *sum = work;
    for (int64_t i = 0; i < m; i++)
        sum[i] = 0;
    for (int64_t at = 0; at < n; at += TENSOR_BLOCK) {
        double block[TENSOR_BLOCK];
        int64_t count = SN_MIN(n - at, (int64_t) TENSOR_BLOCK);
        REF(read_f64)(k->spec.in[0].dtype, in[0], at, 1, count, block);
        for (int64_t i = 0; i < count; i++)
            sum[original(x, y, at + i)] += block[i];
    }
    REF(write_f64)(k->spec.out[0].dtype, out[0], 0, m, sum);
    return SN_OK;
}

#undef R
