/* SPDX-License-Identifier: Apache-2.0
 * The rules of convolutions, pools and batch norm. */
#include "kern/check.h"

/* The window that leads from x[N,S…,C] to y[N,S'…,F]; sizes by spatial dim. */
static bool window(const sn_kernel_spec *s, sn_shape x, sn_shape y, const int64_t *size,
                   kern_window *w)
{
    int dims = x.rank - 2, skip = 3 - dims;
    if (dims < 1 || dims > 3 || y.rank != x.rank || x.dim[0] != y.dim[0])
        return false;
    *w = (kern_window){.n = x.dim[0], .c = kern_last(x), .f = kern_last(y), .groups = 1};
    w->in_count = w->out_count = w->size_count = 1;
    for (int k = 0; k < 15; k++)
        if (s->attr.i[k] < 0 || s->attr.i[k] > INT32_MAX)
            return false;
    for (int j = 0; j < 3; j++) {
        int d = j - skip;
        w->in[j] = d < 0 ? 1 : x.dim[1 + d];
        w->out[j] = d < 0 ? 1 : y.dim[1 + d];
        w->size[j] = d < 0 ? 1 : size[d];
        w->stride[j] = d < 0 ? 1 : sn_window_stride(&s->attr, d);
        w->dilation[j] = d < 0 ? 1 : sn_window_dilation(&s->attr, d);
        w->before[j] = d < 0 ? 0 : s->attr.i[9 + d];
        w->in_count *= w->in[j];
        w->out_count *= w->out[j];
        w->size_count *= w->size[j];
        if (d >= 0 && (size[d] < 1 || size[d] > INT32_MAX ||
                       sn_window_count(&s->attr, d, x.dim[1 + d], size[d]) != y.dim[1 + d]))
            return false;
    }
    return true;
}

static bool convolution(const sn_kernel_spec *s, sn_shape x, sn_shape w, sn_shape y, kern_dims *d)
{
    if (w.rank != x.rank || !window(s, x, y, w.dim + 1, &d->w) || kern_last(w) < 1 ||
        kern_last(x) % kern_last(w) || w.dim[0] != kern_last(y))
        return false;
    d->w.groups = kern_last(x) / kern_last(w);
    return d->w.groups > 0 && w.dim[0] % d->w.groups == 0;
}

static bool conv(const sn_kernel_spec *s, kern_dims *d)
{
    return convolution(s, IN(0), IN(1), OUT(0), d) &&
           (!kern_has(s, 2) || kern_is_vector(IN(2), d->w.f));
}

static bool conv_dx(const sn_kernel_spec *s, kern_dims *d)
{
    return convolution(s, OUT(0), IN(1), IN(0), d);
}

static bool conv_dw(const sn_kernel_spec *s, kern_dims *d)
{
    return convolution(s, IN(1), OUT(0), IN(0), d);
}

/* Padding is narrower than a window, so every window sees an element. */
static bool pools(const sn_kernel_spec *s, sn_shape x, sn_shape y, kern_dims *d)
{
    if (!window(s, x, y, s->attr.i, &d->w) || d->w.c != d->w.f)
        return false;
    for (int j = 0; j < x.rank - 2; j++) {
        int64_t reach = sn_window_dilation(&s->attr, j) * (s->attr.i[j] - 1);
        if (s->attr.i[9 + j] > reach || s->attr.i[12 + j] > reach)
            return false;
    }
    return true;
}

static bool pool(const sn_kernel_spec *s, kern_dims *d)
{
    return pools(s, IN(0), OUT(0), d);
}

static bool max_pool_grad(const sn_kernel_spec *s, kern_dims *d)
{
    return pools(s, IN(1), IN(0), d) && kern_same(IN(1), OUT(0));
}

static bool avg_pool_grad(const sn_kernel_spec *s, kern_dims *d)
{
    return pools(s, OUT(0), IN(0), d);
}

/* x[N,S…,C], y[N,C]: rows N, inner S, cols C. */
static bool means(sn_shape x, sn_shape y, kern_dims *d)
{
    if (x.rank < 3 || y.rank != 2 || y.dim[0] != x.dim[0] || y.dim[1] != kern_last(x))
        return false;
    d->rows = x.dim[0];
    d->inner = kern_product(x, 1, x.rank - 1);
    d->cols = kern_last(x);
    return true;
}

static bool mean_pool(const sn_kernel_spec *s, kern_dims *d)
{
    return means(IN(0), OUT(0), d);
}

static bool mean_pool_grad(const sn_kernel_spec *s, kern_dims *d)
{
    return means(OUT(0), IN(0), d);
}

/* [2,C] */
static bool pair(sn_shape a, int64_t c)
{
    return a.rank == 2 && a.dim[0] == 2 && a.dim[1] == c;
}

static bool bn_sums(const sn_kernel_spec *s, kern_dims *d)
{
    kern_rows_cols(IN(0), d);
    return IN(0).rank >= 1 && pair(OUT(0), d->cols) &&
           (!kern_has(s, 1) || kern_is_vector(IN(1), d->cols));
}

static bool bn_stats(const sn_kernel_spec *s, kern_dims *d)
{
    d->cols = kern_last(IN(0));
    return pair(IN(0), d->cols) && (!kern_has(s, 1) || kern_is_vector(IN(1), d->cols)) &&
           kern_is_vector(OUT(0), d->cols) && kern_is_vector(OUT(1), d->cols) && s->attr.i[0] > 0;
}

/* All operands have as many elements. */
static bool vectors(const sn_kernel_spec *s, kern_dims *d)
{
    d->cols = sn_shape_count(IN(0));
    for (int i = 0; i < s->ins; i++)
        if (!kern_is_vector(IN(i), d->cols))
            return false;
    for (int o = 0; o < s->outs; o++)
        if (!kern_is_vector(OUT(o), d->cols))
            return false;
    return true;
}

static bool bn_norm(const sn_kernel_spec *s, kern_dims *d)
{
    kern_rows_cols(IN(0), d);
    for (int i = 1; i < 5; i++)
        if (!kern_is_vector(IN(i), d->cols))
            return false;
    return (!kern_has(s, 5) || kern_same(IN(5), IN(0))) && kern_same(IN(0), OUT(0));
}

static bool bn_grad_sums(const sn_kernel_spec *s, kern_dims *d)
{
    kern_rows_cols(IN(0), d);
    return kern_same(IN(0), IN(1)) && kern_is_vector(IN(2), d->cols) &&
           kern_is_vector(IN(3), d->cols) && (!kern_has(s, 4) || kern_same(IN(4), IN(0))) &&
           kern_is_vector(OUT(0), d->cols) && kern_is_vector(OUT(1), d->cols) &&
           pair(OUT(2), d->cols);
}

static bool bn_dx(const sn_kernel_spec *s, kern_dims *d)
{
    kern_rows_cols(IN(0), d);
    return kern_same(IN(0), IN(1)) && kern_is_vector(IN(2), d->cols) &&
           kern_is_vector(IN(3), d->cols) && kern_is_vector(IN(4), d->cols) &&
           (!kern_has(s, 5) || (pair(IN(5), d->cols) && s->attr.i[0] > 0)) &&
           (!kern_has(s, 6) || kern_same(IN(6), IN(0))) && kern_same(IN(0), OUT(0));
}

const kern_rule kern_rules_vision[SN_OP_COUNT] = {
    [SN_OP_CONV] = {2, 3, 1, 0, 0, BIT(2), conv},
    [SN_OP_CONV_DX] = {2, 2, 1, 0, 0, 0, conv_dx},
    [SN_OP_CONV_DW] = {2, 2, 1, 0, 0, 0, conv_dw},
    [SN_OP_MAX_POOL] = {1, 1, 1, 0, 0, 0, pool},
    [SN_OP_MAX_POOL_GRAD] = {2, 2, 1, 0, 0, 0, max_pool_grad},
    [SN_OP_AVG_POOL] = {1, 1, 1, 0, 0, 0, pool},
    [SN_OP_AVG_POOL_GRAD] = {1, 1, 1, 0, 0, 0, avg_pool_grad},
    [SN_OP_MEAN_POOL] = {1, 1, 1, 0, 0, 0, mean_pool},
    [SN_OP_MEAN_POOL_GRAD] = {1, 1, 1, 0, 0, 0, mean_pool_grad},
    [SN_OP_BN_SUMS] = {1, 2, 1, 0, 0, BIT(1), bn_sums},
    [SN_OP_BN_STATS] = {1, 2, 2, 0, 0, BIT(1), bn_stats},
    [SN_OP_BN_RSTD] = {1, 1, 1, 0, 0, 0, vectors},
    [SN_OP_BN_TRACK] = {4, 4, 2, 0, 0, 0, vectors},
    [SN_OP_BN_NORM] = {5, 6, 1, 0, 0, BIT(5), bn_norm},
    [SN_OP_BN_GRAD_SUMS] = {4, 5, 3, 0, 0, BIT(4), bn_grad_sums},
    [SN_OP_BN_DX] = {5, 7, 1, 0, 0, BIT(5) | BIT(6), bn_dx},
};
