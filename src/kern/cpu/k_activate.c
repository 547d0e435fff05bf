/* SPDX-License-Identifier: Apache-2.0
 * Activations with their bias, and softmax. tanh is the oracle's: no model here is made of it. */

static inline gate v_gate_silu(vf z)
{
    vf s = v_set(1.0f) / (v_set(1.0f) + v_exp(v_set(0) - z));
    return (gate){s, s * (v_set(1.0f) - s)};
}

/* f(z), and f'(z) in `ret_slope`. */
static inline vf v_activate(int64_t f, vf z, vf *ret_slope)
{
    vf one = v_set(1.0f), zero = v_set(0);
    gate g;
    switch (f) {
    case SN_ACT_RELU: /* a NaN is neither below nor above */
        *ret_slope = v_select_lt(z, zero, zero, v_select_lt(zero, z, one, z));
        return v_select_lt(z, zero, zero, z);
    case SN_ACT_GELU:
        g = v_gate_exact(z);
        break;
    case SN_ACT_GELU_TANH:
        g = v_gate_tanh(z);
        break;
    case SN_ACT_SILU:
        g = v_gate_silu(z);
        break;
    case SN_ACT_SIGMOID:
        g = v_gate_silu(z);
        *ret_slope = g.slope;
        return g.value;
    default:
        *ret_slope = one;
        return z;
    }
    *ret_slope = v_fma(z, g.slope, g.value);
    return z * g.value;
}

KERNEL(activate)
{
    const float *b = kern_given(k, 1) ? in[1] : NULL;
    int64_t n = k->d.cols, f = k->spec.attr.i[0];
    if (f == SN_ACT_TANH)
        return ref_activate(k, in, out, work);
    for (int64_t r = 0; r < k->d.rows; r++) {
        const float *x = (const float *) in[0] + r * n;
        float *y = (float *) out[0] + r * n;
        for (int64_t c = 0; c < n; c += LANES) {
            vf z = v_get(x + c, n - c), slope;
            if (b)
                z += v_get(b + c, n - c);
            v_put(y + c, v_activate(f, z, &slope), n - c);
        }
    }
    return SN_OK;
}

KERNEL(activate_grad)
{
    const float *b = kern_given(k, 2) ? in[2] : NULL;
    int64_t n = k->d.cols, f = k->spec.attr.i[0];
    if (f == SN_ACT_TANH)
        return ref_activate_grad(k, in, out, work);
    for (int64_t r = 0; r < k->d.rows; r++) {
        const float *dy = (const float *) in[0] + r * n, *x = (const float *) in[1] + r * n;
        float *dx = (float *) out[0] + r * n;
        for (int64_t c = 0; c < n; c += LANES) {
            vf z = v_get(x + c, n - c), slope;
            if (b)
                z += v_get(b + c, n - c);
            v_activate(f, z, &slope);
            v_put(dx + c, v_get(dy + c, n - c) * slope, n - c);
        }
    }
    return SN_OK;
}

KERNEL(softmax)
{
    int64_t n = k->d.cols;
    for (int64_t r = 0; r < k->d.rows; r++) {
        const float *x = (const float *) in[0] + r * n;
        float *y = (float *) out[0] + r * n;
        vf top = v_set(-INFINITY), sum = v_set(0);
        for (int64_t c = 0; c < n; c += LANES)
            top = v_max(v_keep(v_get(x + c, n - c), n - c, v_set(-INFINITY)), top);
        vf max = v_set(v_top(top));
        for (int64_t c = 0; c < n; c += LANES) {
            vf e = v_keep(v_exp(v_get(x + c, n - c) - max), n - c, v_set(0));
            v_put(y + c, e, n - c);
            sum += e;
        }
        vf over = v_set(1 / v_sum(sum));
        for (int64_t c = 0; c < n; c += LANES)
            v_put(y + c, v_get(y + c, n - c) * over, n - c);
    }
    return SN_OK;
}

KERNEL(softmax_grad)
{
    int64_t n = k->d.cols;
    for (int64_t r = 0; r < k->d.rows; r++) {
        const float *dy = (const float *) in[0] + r * n, *y = (const float *) in[1] + r * n;
        float *dx = (float *) out[0] + r * n;
        vf dot = v_set(0);
        for (int64_t c = 0; c < n; c += LANES)
            dot = v_fma(v_get(dy + c, n - c), v_get(y + c, n - c), dot);
        vf sum = v_set(v_sum(dot));
        for (int64_t c = 0; c < n; c += LANES)
            v_put(dx + c, v_get(y + c, n - c) * (v_get(dy + c, n - c) - sum), n - c);
    }
    return SN_OK;
}
