/* SPDX-License-Identifier: Apache-2.0
 * Bias and GELU in one pass, and the adjoint. */

KERNEL(bias_gelu)
{
    const float *b = in[1];
    int64_t n = k->d.cols;
    bool exact = k->spec.attr.i[0] == 0;
    for (int64_t r = 0; r < k->d.rows; r++) {
        const float *x = (const float *) in[0] + r * n;
        float *y = (float *) out[0] + r * n;
        for (int64_t c = 0; c < n; c += LANES) {
            vf z = v_get(x + c, n - c) + v_get(b + c, n - c);
            gate g = exact ? v_gate_exact(z) : v_gate_tanh(z);
            v_put(y + c, z * g.value, n - c);
        }
    }
    return SN_OK;
}

KERNEL(bias_gelu_grad)
{
    const float *b = in[2];
    int64_t n = k->d.cols;
    bool exact = k->spec.attr.i[0] == 0;
    for (int64_t r = 0; r < k->d.rows; r++) {
        const float *dy = (const float *) in[0] + r * n, *x = (const float *) in[1] + r * n;
        float *dx = (float *) out[0] + r * n;
        for (int64_t c = 0; c < n; c += LANES) {
            vf z = v_get(x + c, n - c) + v_get(b + c, n - c);
            gate g = exact ? v_gate_exact(z) : v_gate_tanh(z);
            v_put(dx + c, v_get(dy + c, n - c) * v_fma(z, g.slope, g.value), n - c);
        }
    }
    return SN_OK;
}
