/* SPDX-License-Identifier: Apache-2.0
 * AdamW: Loshchilov & Hutter, "Decoupled weight decay regularization", ICLR 2019. */
#include "kern/ref/ref.h"

REF_RUN(sum_squares)
{
    const real *x = in[0];
    double sum = 0;
    for (int64_t i = 0; i < k->d.rows; i++)
        sum += (double) x[i] * x[i];
    *(real *) out[0] = (real) (k->spec.attr.f[0] * sum);
    return SN_OK;
}

/* p is narrowed here and not by the adapter, because a skipped step must leave it as it is. */
static void store(const sn_kernel *k, void *p, int64_t i, real value)
{
    if (k->spec.out[3].dtype == SN_BF16)
        ((uint16_t *) p)[i] = sn_f32_to_bf16((float) value);
    else
        ((real *) p)[i] = value;
}

REF_RUN(adamw)
{
    const real *g = in[0], *hyper = in[1], *norm2 = in[2];
    real *master = out[0], *m = out[1], *v = out[2];
    double lr = hyper[0], beta1 = hyper[1], beta2 = hyper[2], epsilon = hyper[3];
    double decay = k->spec.attr.f[0] * hyper[4], max_norm = hyper[7], norm = sqrt(norm2[0]);
    double clip = max_norm > 0 && norm > max_norm ? max_norm / norm : 1;
    if (!isfinite(norm2[0]))
        return SN_OK;
    for (int64_t i = 0; i < k->d.rows; i++) {
        double grad = clip * g[i];
        m[i] = (real) (beta1 * m[i] + (1 - beta1) * grad);
        v[i] = (real) (beta2 * v[i] + (1 - beta2) * grad * grad);
        double step = m[i] * (double) hyper[5] / (sqrt(v[i] * (double) hyper[6]) + epsilon);
        master[i] = (real) (master[i] - lr * (step + decay * master[i]));
        store(k, out[3], i, master[i]);
    }
    return SN_OK;
}
