/* SPDX-License-Identifier: Apache-2.0
 * Convolutions over up to three spatial dims, channels last, and their adjoints. */
#include "kern/ref/ref.h"

/* Which of x's places window `o` sees at its own place `k`; −1: padding. */
static int64_t seen(const kern_window *w, int64_t o, int64_t k)
{
    int64_t at = 0, stride = 1;
    for (int j = 2; j >= 0; j--) {
        int64_t p = o % w->out[j] * w->stride[j] + k % w->size[j] * w->dilation[j] - w->before[j];
        if (p < 0 || p >= w->in[j])
            return -1;
        at += p * stride;
        stride *= w->in[j];
        o /= w->out[j];
        k /= w->size[j];
    }
    return at;
}

/* One pairing of an element of y with one vector of x and of w, Cg channels long. */
typedef struct pairing {
    int64_t y, x, w;
} pairing;

/* The pairings of window `o` and its place `k` for feature f of sample n; false: padding. */
static bool pair(const kern_window *w, int64_t n, int64_t o, int64_t f, int64_t k, pairing *ret)
{
    int64_t p = seen(w, o, k), each = w->c / w->groups, group = f / (w->f / w->groups);
    *ret = (pairing){.y = (n * w->out_count + o) * w->f + f,
                     .x = (n * w->in_count + p) * w->c + group * each,
                     .w = (f * w->size_count + k) * each};
    return p >= 0;
}

#define EACH_PAIR(w, n, o, f, k)                                                                   \
    for (int64_t n = 0; n < (w)->n; n++)                                                           \
        for (int64_t o = 0; o < (w)->out_count; o++)                                               \
            for (int64_t f = 0; f < (w)->f; f++)                                                   \
                for (int64_t k = 0; k < (w)->size_count; k++)

REF_RUN(conv)
{
    const kern_window *d = &k->d.w;
    const real *x = in[0], *w = in[1], *b = kern_given(k, 2) ? in[2] : NULL;
    real *y = out[0];
    double sum = 0;
    pairing p;
    EACH_PAIR(d, n, o, f, place)
    {
        if (place == 0)
            sum = b ? b[f] : 0;
        if (pair(d, n, o, f, place, &p))
            for (int64_t c = 0; c < d->c / d->groups; c++)
                sum += (double) x[p.x + c] * w[p.w + c];
        y[p.y] = (real) sum;
    }
    return SN_OK;
}

REF_RUN(conv_dx)
{
    const kern_window *d = &k->d.w;
    const real *dy = in[0], *w = in[1];
    real *dx = out[0];
    double *sum = work;
    pairing p;
    memset(sum, 0, k->work_bytes);
    EACH_PAIR(d, n, o, f, place)
    {
        if (pair(d, n, o, f, place, &p))
            for (int64_t c = 0; c < d->c / d->groups; c++)
                sum[p.x + c] += (double) dy[p.y] * w[p.w + c];
    }
    for (int64_t i = 0; i < sn_shape_count(k->spec.out[0].shape); i++)
        dx[i] = (real) sum[i];
    return SN_OK;
}

REF_RUN(conv_dw)
{
    const kern_window *d = &k->d.w;
    const real *dy = in[0], *x = in[1];
    real *dw = out[0];
    double *sum = work;
    pairing p;
    memset(sum, 0, k->work_bytes);
    EACH_PAIR(d, n, o, f, place)
    {
        if (pair(d, n, o, f, place, &p))
            for (int64_t c = 0; c < d->c / d->groups; c++)
                sum[p.w + c] += (double) dy[p.y] * x[p.x + c];
    }
    for (int64_t i = 0; i < sn_shape_count(k->spec.out[0].shape); i++)
        dw[i] = (real) sum[i];
    return SN_OK;
}

/* ---- pools: windows of one channel each */

/* Where the maximum of window `o` of channel c is in sample x: the first of equal ones, a NaN
 * before all others. */
static int64_t largest(const kern_window *w, const real *x, int64_t o, int64_t c)
{
    int64_t best = -1;
    for (int64_t k = 0; k < w->size_count; k++) {
        int64_t p = seen(w, o, k);
        if (p < 0)
            continue;
        real v = x[p * w->c + c];
        if (best < 0 || v > x[best * w->c + c] || (isnan(v) && !isnan(x[best * w->c + c])))
            best = p;
    }
    return best;
}

REF_RUN(max_pool)
{
    const kern_window *w = &k->d.w;
    const real *x = in[0];
    real *y = out[0];
    for (int64_t n = 0; n < w->n; n++, x += w->in_count * w->c)
        for (int64_t o = 0; o < w->out_count; o++)
            for (int64_t c = 0; c < w->c; c++)
                *y++ = x[largest(w, x, o, c) * w->c + c];
    return SN_OK;
}

REF_RUN(max_pool_grad)
{
    const kern_window *w = &k->d.w;
    const real *dy = in[0], *x = in[1];
    real *dx = out[0];
    double *sum = work;
    memset(sum, 0, k->work_bytes);
    for (int64_t n = 0; n < w->n; n++, x += w->in_count * w->c, sum += w->in_count * w->c)
        for (int64_t o = 0; o < w->out_count; o++)
            for (int64_t c = 0; c < w->c; c++)
                sum[largest(w, x, o, c) * w->c + c] += *dy++;
    sum = work;
    for (int64_t i = 0; i < sn_shape_count(k->spec.out[0].shape); i++)
        dx[i] = (real) sum[i];
    return SN_OK;
}

/* By how many a window's sum is divided. */
static double divisor(const kern_window *w, int64_t o, bool counts_padding)
{
    int64_t count = 0;
    for (int64_t k = 0; k < w->size_count; k++)
        count += counts_padding || seen(w, o, k) >= 0;
    return (double) count;
}

REF_RUN(avg_pool)
{
    const kern_window *w = &k->d.w;
    const real *x = in[0];
    real *y = out[0];
    for (int64_t n = 0; n < w->n; n++, x += w->in_count * w->c)
        for (int64_t o = 0; o < w->out_count; o++)
            for (int64_t c = 0; c < w->c; c++) {
                double sum = 0;
                for (int64_t j = 0; j < w->size_count; j++)
                    if (seen(w, o, j) >= 0)
                        sum += x[seen(w, o, j) * w->c + c];
                *y++ = (real) (sum / divisor(w, o, k->spec.attr.i[15] != 0));
            }
    return SN_OK;
}

REF_RUN(avg_pool_grad)
{
    const kern_window *w = &k->d.w;
    const real *dy = in[0];
    real *dx = out[0];
    double *sum = work;
    memset(sum, 0, k->work_bytes);
    for (int64_t n = 0; n < w->n; n++, sum += w->in_count * w->c)
        for (int64_t o = 0; o < w->out_count; o++)
            for (int64_t c = 0; c < w->c; c++, dy++)
                for (int64_t j = 0; j < w->size_count; j++)
                    if (seen(w, o, j) >= 0)
                        sum[seen(w, o, j) * w->c + c] +=
                            *dy / divisor(w, o, k->spec.attr.i[15] != 0);
    sum = work;
    for (int64_t i = 0; i < sn_shape_count(k->spec.out[0].shape); i++)
        dx[i] = (real) sum[i];
    return SN_OK;
}

REF_RUN(mean_pool)
{
    const kern_dims *d = &k->d;
    const real *x = in[0];
    real *y = out[0];
    for (int64_t n = 0; n < d->rows; n++)
        for (int64_t c = 0; c < d->cols; c++) {
            double sum = 0;
            for (int64_t s = 0; s < d->inner; s++)
                sum += x[(n * d->inner + s) * d->cols + c];
            y[n * d->cols + c] = (real) (sum / (double) d->inner);
        }
    return SN_OK;
}

REF_RUN(mean_pool_grad)
{
    const kern_dims *d = &k->d;
    const real *dy = in[0];
    real *dx = out[0];
    for (int64_t n = 0; n < d->rows; n++)
        for (int64_t s = 0; s < d->inner; s++)
            for (int64_t c = 0; c < d->cols; c++)
                *dx++ = (real) (dy[n * d->cols + c] / (double) d->inner);
    return SN_OK;
}
