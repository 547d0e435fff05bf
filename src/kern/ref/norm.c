/* SPDX-License-Identifier: Apache-2.0
 * Layer normalisation: Ba, Kiros & Hinton, "Layer normalization", 2016. */
#include "kern/ref/ref.h"

sn_status REF(columns)(sn_kernel *k)
{
    k->work_bytes = 2 * (size_t) k->d.cols * sizeof(double);
    return SN_OK;
}

static void norm_row(const real *x, const real *g, const real *b, int64_t n, double epsilon,
                     real *y, real *ret_mean, real *ret_rstd)
{
    double mean = 0, var = 0;
    for (int64_t c = 0; c < n; c++)
        mean += x[c];
    mean /= (double) n;
    for (int64_t c = 0; c < n; c++)
        var += (x[c] - mean) * (x[c] - mean);
    double rstd = 1 / sqrt(var / (double) n + epsilon);
    for (int64_t c = 0; c < n; c++)
        y[c] = (real) ((x[c] - mean) * rstd * g[c] + b[c]);
    *ret_mean = (real) mean;
    *ret_rstd = (real) rstd;
}

REF_RUN(layer_norm)
{
    const real *x = in[0], *g = in[1], *b = in[2];
    real *y = out[0], *mean = out[1], *rstd = out[2];
    int64_t n = k->d.cols;
    for (int64_t r = 0; r < k->d.rows; r++)
        norm_row(x + r * n, g, b, n, k->spec.attr.f[0], y + r * n, &mean[r], &rstd[r]);
    return SN_OK;
}

REF_RUN(residual_layer_norm)
{
    const real *x = in[0], *res = in[1], *rb = kern_given(k, 2) ? in[2] : NULL;
    const real *g = in[3], *b = in[4];
    real *s = out[0], *y = out[1], *mean = out[2], *rstd = out[3];
    int64_t n = k->d.cols;
    for (int64_t r = 0; r < k->d.rows; r++) {
        for (int64_t c = 0; c < n; c++)
            s[r * n + c] = x[r * n + c] + res[r * n + c] + (rb ? rb[c] : 0);
        norm_row(s + r * n, g, b, n, k->spec.attr.f[0], y + r * n, &mean[r], &rstd[r]);
    }
    return SN_OK;
}

REF_RUN(layer_norm_grad)
{
    const real *dy = in[0], *x = in[1], *g = in[2], *mean = in[3], *rstd = in[4];
    const real *ds = kern_given(k, 5) ? in[5] : NULL;
    real *dx = out[0], *dg = out[1], *db = out[2];
    int64_t n = k->d.cols;
    double *sum_g = work, *sum_b = sum_g + n;
    memset(work, 0, k->work_bytes);
    for (int64_t r = 0; r < k->d.rows; r++) {
        double a = 0, c1 = 0;
        for (int64_t c = 0; c < n; c++) {
            double hat = ((double) x[r * n + c] - mean[r]) * rstd[r], d = dy[r * n + c];
            a += d * g[c];
            c1 += d * g[c] * hat;
            sum_g[c] += d * hat;
            sum_b[c] += d;
        }
        a /= (double) n;
        c1 /= (double) n;
        for (int64_t c = 0; c < n; c++) {
            double hat = ((double) x[r * n + c] - mean[r]) * rstd[r];
            double v = (dy[r * n + c] * g[c] - a - hat * c1) * rstd[r];
            dx[r * n + c] = (real) (v + (ds ? ds[r * n + c] : 0));
        }
    }
    for (int64_t c = 0; c < n; c++) {
        dg[c] = (real) sum_g[c];
        db[c] = (real) sum_b[c];
    }
    return SN_OK;
}
