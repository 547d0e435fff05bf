/* SPDX-License-Identifier: Apache-2.0
 * Softmax cross-entropy over logits whose columns may be split: maximum, sums, loss, gradient. */
#include "kern/ref/ref.h"

REF_RUN(row_max)
{
    const real *x = in[0];
    real *m = out[0];
    int64_t n = k->d.cols;
    for (int64_t r = 0; r < k->d.rows; r++) {
        m[r] = -INFINITY;
        for (int64_t c = 0; c < n; c++)
            m[r] = x[r * n + c] > m[r] ? x[r * n + c] : m[r];
    }
    return SN_OK;
}

REF_RUN(xent_sums)
{
    const real *x = in[0], *m = in[2];
    const int32_t *target = in[1];
    real *s = out[0];
    int64_t n = k->d.cols;
    for (int64_t r = 0; r < k->d.rows; r++) {
        double sum = 0;
        for (int64_t c = 0; c < n; c++)
            sum += exp((double) x[r * n + c] - m[r]);
        int64_t v = target[r] - k->spec.attr.begin;
        s[2 * r] = (real) sum;
        s[2 * r + 1] = target[r] >= 0 && v >= 0 && v < n ? x[r * n + v] : 0;
    }
    return SN_OK;
}

REF_RUN(xent_loss)
{
    const real *m = in[0], *s = in[1];
    const int32_t *target = in[2];
    double sum = 0;
    for (int64_t r = 0; r < k->d.rows; r++)
        if (target[r] >= 0)
            sum += m[r] + log(s[2 * r]) - s[2 * r + 1];
    *(real *) out[0] = (real) (k->spec.attr.f[0] * sum);
    return SN_OK;
}

REF_RUN(xent_grad)
{
    const real *x = in[0], *m = in[2], *s = in[3];
    const int32_t *target = in[1];
    real *dx = out[0];
    int64_t n = k->d.cols;
    for (int64_t r = 0; r < k->d.rows; r++) {
        for (int64_t c = 0; c < n; c++) {
            double p = exp((double) x[r * n + c] - m[r]) / s[2 * r];
            p -= c + k->spec.attr.begin == target[r];
            dx[r * n + c] = target[r] >= 0 ? (real) (k->spec.attr.f[0] * p) : 0;
        }
    }
    return SN_OK;
}
