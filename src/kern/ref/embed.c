/* SPDX-License-Identifier: Apache-2.0
 * Embedding and its gradient; rows outside [begin, begin + V) belong to another card. */
#include "kern/ref/ref.h"

sn_status REF(outputs)(sn_kernel *k)
{
    k->work_bytes = (size_t) sn_shape_count(k->spec.out[0].shape) * sizeof(double);
    return SN_OK;
}

REF_RUN(embedding)
{
    const real *table = in[0];
    const int32_t *ids = in[1];
    real *y = out[0];
    int64_t d = k->d.cols;
    for (int64_t r = 0; r < k->d.rows; r++) {
        int64_t v = ids[r] - k->spec.attr.begin;
        for (int64_t c = 0; c < d; c++)
            y[r * d + c] = v >= 0 && v < k->d.inner ? table[v * d + c] : 0;
    }
    return SN_OK;
}

REF_RUN(embedding_grad)
{
    const int32_t *ids = in[0];
    const real *dy = in[1];
    real *dtable = out[0];
    double *sum = work;
    int64_t d = k->d.cols;
    memset(sum, 0, k->work_bytes);
    for (int64_t r = 0; r < k->d.rows; r++) {
        int64_t v = ids[r] - k->spec.attr.begin;
        for (int64_t c = 0; c < d && v >= 0 && v < k->d.inner; c++)
            sum[v * d + c] += dy[r * d + c];
    }
    for (int64_t i = 0; i < k->d.inner * d; i++)
        dtable[i] = (real) sum[i];
    return SN_OK;
}
