/* SPDX-License-Identifier: Apache-2.0
 * Batch norm in pieces: Ioffe & Szegedy, "Batch normalization", 2015. */
#include "kern/ref/ref.h"

REF_RUN(bn_sums)
{
    const real *x = in[0], *shift = kern_given(k, 1) ? in[1] : NULL;
    real *s = out[0];
    int64_t c = k->d.cols;
    for (int64_t j = 0; j < c; j++) {
        double sum = 0, square = 0;
        for (int64_t r = 0; r < k->d.rows; r++) {
            double v = (double) x[r * c + j] - (shift ? shift[j] : 0);
            sum += v;
            square += v * v;
        }
        s[j] = (real) sum;
        s[c + j] = (real) square;
    }
    return SN_OK;
}

REF_RUN(bn_stats)
{
    const real *s = in[0], *shift = kern_given(k, 1) ? in[1] : NULL;
    real *mean = out[0], *rstd = out[1];
    int64_t c = k->d.cols;
    double n = (double) k->spec.attr.i[0];
    for (int64_t j = 0; j < c; j++) {
        double m = s[j] / n, var = s[c + j] / n - m * m;
        mean[j] = (real) (m + (shift ? shift[j] : 0));
        /* rounding may leave a little less than nothing; a NaN stays one */
        rstd[j] = (real) (1 / sqrt((var < 0 ? 0 : var) + k->spec.attr.f[0]));
    }
    return SN_OK;
}

REF_RUN(bn_rstd)
{
    const real *var = in[0];
    real *rstd = out[0];
    for (int64_t j = 0; j < k->d.cols; j++)
        rstd[j] = (real) (1 / sqrt(var[j] + k->spec.attr.f[0]));
    return SN_OK;
}

REF_RUN(bn_track)
{
    const real *mean = in[0], *var = in[1], *batch_mean = in[2], *rstd = in[3];
    real *next_mean = out[0], *next_var = out[1];
    double n = (double) k->spec.attr.i[0], momentum = k->spec.attr.f[0];
    for (int64_t j = 0; j < k->d.cols; j++) {
        double v = 1 / ((double) rstd[j] * rstd[j]) - k->spec.attr.f[1];
        v *= n > 1 ? n / (n - 1) : 1;
        next_mean[j] = (real) (mean[j] + momentum * ((double) batch_mean[j] - mean[j]));
        next_var[j] = (real) (var[j] + momentum * (v - var[j]));
    }
    return SN_OK;
}

REF_RUN(bn_norm)
{
    const real *x = in[0], *mean = in[1], *rstd = in[2], *g = in[3], *b = in[4];
    const real *r = kern_given(k, 5) ? in[5] : NULL;
    real *y = out[0];
    int64_t c = k->d.cols;
    for (int64_t i = 0; i < k->d.rows * c; i++) {
        int64_t j = i % c;
        double v = ((double) x[i] - mean[j]) * rstd[j] * g[j] + b[j] + (r ? r[i] : 0);
        y[i] = (real) (k->spec.attr.i[0] && v < 0 ? 0 : v);
    }
    return SN_OK;
}

REF_RUN(bn_grad_sums)
{
    const real *dy = in[0], *x = in[1], *mean = in[2], *rstd = in[3];
    const real *y = kern_given(k, 4) ? in[4] : NULL;
    real *dg = out[0], *db = out[1], *t = out[2];
    int64_t c = k->d.cols;
    for (int64_t j = 0; j < c; j++) {
        double sum = 0, dot = 0;
        for (int64_t i = j; i < k->d.rows * c; i += c) {
            double d = y && !(y[i] > 0) ? 0 : dy[i];
            sum += d;
            dot += d * ((double) x[i] - mean[j]) * rstd[j];
        }
        db[j] = t[j] = (real) sum;
        dg[j] = t[c + j] = (real) dot;
    }
    return SN_OK;
}

REF_RUN(bn_dx)
{
    const real *dy = in[0], *x = in[1], *mean = in[2], *rstd = in[3], *g = in[4];
    const real *t = kern_given(k, 5) ? in[5] : NULL, *y = kern_given(k, 6) ? in[6] : NULL;
    real *dx = out[0];
    int64_t c = k->d.cols;
    double n = (double) k->spec.attr.i[0];
    for (int64_t i = 0; i < k->d.rows * c; i++) {
        int64_t j = i % c;
        double d = y && !(y[i] > 0) ? 0 : dy[i], h = ((double) x[i] - mean[j]) * rstd[j];
        if (t)
            d -= t[j] / n + h * t[c + j] / n;
        dx[i] = (real) ((double) g[j] * rstd[j] * d);
    }
    return SN_OK;
}
