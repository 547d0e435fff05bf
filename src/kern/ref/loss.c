/* SPDX-License-Identifier: Apache-2.0
 * Mean-squared error, one place of a sequence, constants. */
#include "kern/ref/ref.h"

REF_RUN(mse_loss)
{
    const real *x = in[0], *target = in[1];
    double sum = 0;
    for (int64_t i = 0; i < k->d.rows; i++)
        sum += ((double) x[i] - target[i]) * ((double) x[i] - target[i]);
    *(real *) out[0] = (real) (k->spec.attr.f[0] * sum);
    return SN_OK;
}

REF_RUN(mse_grad)
{
    const real *x = in[0], *target = in[1];
    real *dx = out[0];
    for (int64_t i = 0; i < k->d.rows; i++)
        dx[i] = (real) (2 * k->spec.attr.f[0] * ((double) x[i] - target[i]));
    return SN_OK;
}

REF_RUN(take)
{
    memcpy(out[0], (const real *) in[0] + k->spec.attr.i[0] * k->d.cols,
           (size_t) k->d.cols * sizeof(real));
    return SN_OK;
}

REF_RUN(take_grad)
{
    real *dx = out[0];
    memset(dx, 0, (size_t) (k->d.rows * k->d.cols) * sizeof *dx);
    memcpy(dx + k->spec.attr.i[0] * k->d.cols, in[0], (size_t) k->d.cols * sizeof *dx);
    return SN_OK;
}

REF_RUN(constant)
{
    real *y = out[0];
    for (int64_t i = 0; i < k->d.rows; i++)
        y[i] = (real) k->spec.attr.f[0];
    return SN_OK;
}
