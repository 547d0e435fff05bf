/* SPDX-License-Identifier: Apache-2.0
 * Softmax cross-entropy in the parts that a split vocabulary needs. */

KERNEL(row_max)
{
    const float *x = in[0];
    float *m = out[0];
    int64_t n = k->d.cols;
    for (int64_t r = 0; r < k->d.rows; r++) {
        vf top = v_set(-INFINITY);
        for (int64_t c = 0; c < n; c += LANES)
            top = v_max(v_keep(v_get(x + r * n + c, n - c), n - c, v_set(-INFINITY)), top);
        m[r] = v_top(top);
    }
    return SN_OK;
}

KERNEL(xent_sums)
{
    const float *x = in[0], *m = in[2];
    const int32_t *target = in[1];
    float *s = out[0];
    int64_t n = k->d.cols;
    for (int64_t r = 0; r < k->d.rows; r++) {
        vf sum = v_set(0);
        for (int64_t c = 0; c < n; c += LANES)
            sum += v_keep(v_exp(v_get(x + r * n + c, n - c) - v_set(m[r])), n - c, v_set(0));
        int64_t v = target[r] - k->spec.attr.begin;
        s[2 * r] = v_sum(sum);
        s[2 * r + 1] = target[r] >= 0 && v >= 0 && v < n ? x[r * n + v] : 0;
    }
    return SN_OK;
}

KERNEL(xent_loss)
{
    const float *m = in[0], *s = in[1];
    const int32_t *target = in[2];
    double sum = 0;
    for (int64_t r = 0; r < k->d.rows; r++)
        if (target[r] >= 0)
            sum += m[r] + logf(s[2 * r]) - s[2 * r + 1];
    *(float *) out[0] = (float) (k->spec.attr.f[0] * sum);
    return SN_OK;
}

KERNEL(xent_grad)
{
    const float *m = in[2], *s = in[3];
    const int32_t *target = in[1];
    float scale = (float) k->spec.attr.f[0];
    int64_t n = k->d.cols;
    for (int64_t r = 0; r < k->d.rows; r++) {
        const float *x = (const float *) in[0] + r * n;
        float *dx = (float *) out[0] + r * n;
        if (target[r] < 0) {
            memset(dx, 0, (size_t) n * sizeof(float));
            continue;
        }
        vf over = v_set(scale / s[2 * r]);
        for (int64_t c = 0; c < n; c += LANES)
            v_put(dx + c, v_exp(v_get(x + c, n - c) - v_set(m[r])) * over, n - c);
        int64_t v = target[r] - k->spec.attr.begin;
        if (v >= 0 && v < n)
            dx[v] -= scale;
    }
    return SN_OK;
}
