/* SPDX-License-Identifier: Apache-2.0
 * Embedding rows and the adjoint; rows of other cards are zeros, and get nothing. */

KERNEL(embedding)
{
    const float *table = in[0];
    const int32_t *ids = in[1];
    float *y = out[0];
    size_t d = (size_t) k->d.cols;
    for (int64_t r = 0; r < k->d.rows; r++) {
        int64_t v = ids[r] - k->spec.attr.begin;
        if (v >= 0 && v < k->d.inner)
            memcpy(y + (size_t) r * d, table + (size_t) v * d, d * sizeof(float));
        else
            memset(y + (size_t) r * d, 0, d * sizeof(float));
    }
    return SN_OK;
}

static void add_to(const float *x, float *y, int64_t n)
{
    for (int64_t c = 0; c < n; c += LANES)
        v_put(y + c, v_get(y + c, n - c) + v_get(x + c, n - c), n - c);
}

KERNEL(embedding_grad)
{
    const int32_t *ids = in[0];
    const float *dy = in[1];
    float *dtable = out[0];
    int64_t d = k->d.cols;
    if (!kern_adds(k, 0))
        memset(dtable, 0, (size_t) (k->d.inner * d) * sizeof(float));
    for (int64_t r = 0; r < k->d.rows; r++) {
        int64_t v = ids[r] - k->spec.attr.begin;
        if (v >= 0 && v < k->d.inner)
            add_to(dy + r * d, dtable + v * d, d);
    }
    return SN_OK;
}
