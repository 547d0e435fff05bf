/* SPDX-License-Identifier: Apache-2.0
 * Broadcasting addition, its adjoint, residual and GELU. */
#include "kern/ref/ref.h"

/* Where the smaller operand is when the larger one is at `i`. */
static int64_t small_at(const kern_dims *d, int64_t i)
{
    int64_t at = 0;
    for (int w = d->walk - 1; w >= 0; w--) {
        at += i % d->size[w] * d->step[w];
        i /= d->size[w];
    }
    return at;
}

REF_RUN(add)
{
    const real *x = in[0], *y = in[1];
    real *z = out[0];
    int64_t n = sn_shape_count(k->spec.in[0].shape);
    for (int64_t i = 0; i < n; i++)
        z[i] = x[i] + y[small_at(&k->d, i)];
    return SN_OK;
}

REF_RUN(sum_to)
{
    const real *x = in[0];
    real *y = out[0];
    double *sum = work;
    memset(sum, 0, k->work_bytes);
    int64_t n = sn_shape_count(k->spec.in[0].shape);
    for (int64_t i = 0; i < n; i++)
        sum[small_at(&k->d, i)] += x[i];
    int64_t m = sn_shape_count(k->spec.out[0].shape);
    for (int64_t i = 0; i < m; i++)
        y[i] = (real) sum[i];
    return SN_OK;
}

REF_RUN(residual)
{
    const real *x = in[0], *r = in[1], *b = kern_given(k, 2) ? in[2] : NULL;
    real *s = out[0];
    for (int64_t i = 0; i < k->d.rows * k->d.cols; i++)
        s[i] = x[i] + r[i] + (b ? b[i % k->d.cols] : 0);
    return SN_OK;
}

/* Φ(z) exactly, or the tanh form of Hendrycks & Gimpel, "Gaussian error linear units", 2016. */
static double gate(double z, int64_t form)
{
    if (form == 0)
        return 0.5 * erfc(-z * M_SQRT1_2); /* 1 + erf would cancel in the left tail */
    return 1 / (1 + exp(-2 * sqrt(2 / M_PI) * (z + 0.044715 * z * z * z)));
}

static double gate_slope(double z, int64_t form)
{
    if (form == 0)
        return exp(-0.5 * z * z) / sqrt(2 * M_PI);
    double c = sqrt(2 / M_PI), t = tanh(c * (z + 0.044715 * z * z * z));
    return 0.5 * (1 - t * t) * c * (1 + 3 * 0.044715 * z * z);
}

REF_RUN(bias_gelu)
{
    const real *x = in[0], *b = in[1];
    real *y = out[0];
    for (int64_t i = 0; i < k->d.rows * k->d.cols; i++) {
        double z = x[i] + b[i % k->d.cols];
        y[i] = (real) (z * gate(z, k->spec.attr.i[0]));
    }
    return SN_OK;
}

REF_RUN(bias_gelu_grad)
{
    const real *dy = in[0], *x = in[1], *b = in[2];
    real *dx = out[0];
    int64_t form = k->spec.attr.i[0];
    for (int64_t i = 0; i < k->d.rows * k->d.cols; i++) {
        double z = x[i] + b[i % k->d.cols];
        dx[i] = (real) (dy[i] * (gate(z, form) + z * gate_slope(z, form)));
    }
    return SN_OK;
}
