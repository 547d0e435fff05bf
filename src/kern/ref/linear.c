/* SPDX-License-Identifier: Apache-2.0
 * Products: y[M,N] = x[M,K]·w[N,K]ᵀ (+ b) and its two adjoints. */
#include "kern/ref/ref.h"

REF_RUN(linear)
{
    const real *x = in[0], *w = in[1], *b = kern_given(k, 2) ? in[2] : NULL;
    real *y = out[0];
    int64_t rows = k->d.rows, cols = k->d.cols, inner = k->d.inner;
    for (int64_t m = 0; m < rows; m++) {
        for (int64_t n = 0; n < cols; n++) {
            double sum = b ? b[n] : 0;
            for (int64_t i = 0; i < inner; i++)
                sum += (double) x[m * inner + i] * w[n * inner + i];
            y[m * cols + n] = (real) sum;
        }
    }
    return SN_OK;
}

REF_RUN(linear_dx)
{
    const real *dy = in[0], *w = in[1];
    real *dx = out[0];
    int64_t rows = k->d.rows, cols = k->d.cols, inner = k->d.inner;
    for (int64_t m = 0; m < rows; m++) {
        for (int64_t i = 0; i < inner; i++) {
            double sum = 0;
            for (int64_t n = 0; n < cols; n++)
                sum += (double) dy[m * cols + n] * w[n * inner + i];
            dx[m * inner + i] = (real) sum;
        }
    }
    return SN_OK;
}

REF_RUN(linear_dw)
{
    const real *dy = in[0], *x = in[1];
    real *dw = out[0];
    int64_t rows = k->d.rows, cols = k->d.cols, inner = k->d.inner;
    for (int64_t n = 0; n < cols; n++) {
        for (int64_t i = 0; i < inner; i++) {
            double sum = 0;
            for (int64_t m = 0; m < rows; m++)
                sum += (double) dy[m * cols + n] * x[m * inner + i];
            dw[n * inner + i] = (real) sum;
        }
    }
    return SN_OK;
}
