/* SPDX-License-Identifier: Apache-2.0
 * RMS norm: Zhang & Sennrich, "Root mean square layer normalization", 2019. */
#include "kern/ref/ref.h"

static void rms_row(const real *x, const real *g, int64_t n, double epsilon, real *y,
                    real *ret_rstd)
{
    double square = 0;
    for (int64_t c = 0; c < n; c++)
        square += (double) x[c] * x[c];
    double rstd = 1 / sqrt(square / (double) n + epsilon);
    for (int64_t c = 0; c < n; c++)
        y[c] = (real) (x[c] * rstd * g[c]);
    *ret_rstd = (real) rstd;
}

REF_RUN(rms_norm)
{
    const real *x = in[0], *g = in[1];
    real *y = out[0], *rstd = out[1];
    int64_t n = k->d.cols;
    for (int64_t r = 0; r < k->d.rows; r++)
        rms_row(x + r * n, g, n, k->spec.attr.f[0], y + r * n, &rstd[r]);
    return SN_OK;
}

REF_RUN(residual_rms_norm)
{
    const real *x = in[0], *res = in[1], *rb = kern_given(k, 2) ? in[2] : NULL, *g = in[3];
    real *s = out[0], *y = out[1], *rstd = out[2];
    int64_t n = k->d.cols;
    for (int64_t r = 0; r < k->d.rows; r++) {
        for (int64_t c = 0; c < n; c++)
            s[r * n + c] = x[r * n + c] + res[r * n + c] + (rb ? rb[c] : 0);
        rms_row(s + r * n, g, n, k->spec.attr.f[0], y + r * n, &rstd[r]);
    }
    return SN_OK;
}

/* With h = x·rstd: dx = rstd·(dy·g − h·mean(dy·g·h)), dg = Σ dy·h. */
REF_RUN(rms_norm_grad)
{
    const real *dy = in[0], *x = in[1], *g = in[2], *rstd = in[3];
    const real *ds = kern_given(k, 4) ? in[4] : NULL;
    real *dx = out[0], *dg = out[1];
    int64_t n = k->d.cols;
    double *sum = work;
    memset(work, 0, k->work_bytes);
    for (int64_t r = 0; r < k->d.rows; r++) {
        double dot = 0;
        for (int64_t c = 0; c < n; c++) {
            double h = (double) x[r * n + c] * rstd[r];
            dot += dy[r * n + c] * g[c] * h;
            sum[c] += dy[r * n + c] * h;
        }
        for (int64_t c = 0; c < n; c++) {
            double h = (double) x[r * n + c] * rstd[r];
            double v = rstd[r] * (dy[r * n + c] * g[c] - h * dot / (double) n);
            dx[r * n + c] = (real) (v + (ds ? ds[r * n + c] : 0));
        }
    }
    for (int64_t c = 0; c < n; c++)
        dg[c] = (real) sum[c];
    return SN_OK;
}
