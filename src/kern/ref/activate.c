/* SPDX-License-Identifier: Apache-2.0
 * Activations, gated ones and softmax. */
#include "kern/ref/ref.h"

static double sigmoid(double z)
{
    return 1 / (1 + exp(-z));
}

/* x·Φ(x) = x·erfc(−x/√2)/2 */
static double normal_below(double z)
{
    return 0.5 * erfc(-z * M_SQRT1_2);
}

/* The tanh form's approximation of Φ, and its slope. */
static double tanh_below(double z)
{
    return sigmoid(2 * sqrt(2 / M_PI) * (z + 0.044715 * z * z * z));
}

static double tanh_density(double z)
{
    double p = tanh_below(z);
    return 2 * p * (1 - p) * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * z * z);
}

static double apply(int64_t f, double z)
{
    switch (f) {
    case SN_ACT_RELU:
        return z < 0 ? 0 : z;
    case SN_ACT_GELU:
        return z * normal_below(z);
    case SN_ACT_GELU_TANH:
        return z * tanh_below(z);
    case SN_ACT_SILU:
        return z * sigmoid(z);
    case SN_ACT_TANH:
        return tanh(z);
    case SN_ACT_SIGMOID:
        return sigmoid(z);
    default:
        return z;
    }
}

static double slope(int64_t f, double z)
{
    double s = sigmoid(z);
    switch (f) {
    case SN_ACT_RELU:
        return isnan(z) ? z : z > 0;
    case SN_ACT_GELU:
        return normal_below(z) + z * exp(-0.5 * z * z) / sqrt(2 * M_PI);
    case SN_ACT_GELU_TANH:
        return tanh_below(z) + z * tanh_density(z);
    case SN_ACT_SILU:
        return s * (1 + z * (1 - s));
    case SN_ACT_TANH:
        return 1 - tanh(z) * tanh(z);
    case SN_ACT_SIGMOID:
        return s * (1 - s);
    default:
        return 1;
    }
}

REF_RUN(activate)
{
    const real *x = in[0], *b = kern_given(k, 1) ? in[1] : NULL;
    real *y = out[0];
    for (int64_t i = 0; i < k->d.rows * k->d.cols; i++)
        y[i] = (real) apply(k->spec.attr.i[0], x[i] + (b ? (double) b[i % k->d.cols] : 0));
    return SN_OK;
}

REF_RUN(activate_grad)
{
    const real *dy = in[0], *x = in[1], *b = kern_given(k, 2) ? in[2] : NULL;
    real *dx = out[0];
    for (int64_t i = 0; i < k->d.rows * k->d.cols; i++)
        dx[i] =
            (real) (dy[i] * slope(k->spec.attr.i[0], x[i] + (b ? (double) b[i % k->d.cols] : 0)));
    return SN_OK;
}

REF_RUN(glu)
{
    real *y = out[0];
    for (int64_t r = 0; r < k->d.rows; r++) {
        const real *gate = (const real *) in[0] + 2 * r * k->d.cols, *up = gate + k->d.cols;
        for (int64_t c = 0; c < k->d.cols; c++)
            *y++ = (real) (apply(k->spec.attr.i[0], gate[c]) * up[c]);
    }
    return SN_OK;
}

REF_RUN(glu_grad)
{
    const real *dy = in[0];
    for (int64_t r = 0; r < k->d.rows; r++) {
        const real *gate = (const real *) in[1] + 2 * r * k->d.cols, *up = gate + k->d.cols;
        real *dgate = (real *) out[0] + 2 * r * k->d.cols, *dup = dgate + k->d.cols;
        for (int64_t c = 0; c < k->d.cols; c++, dy++) {
            dgate[c] = (real) (*dy * slope(k->spec.attr.i[0], gate[c]) * up[c]);
            dup[c] = (real) (*dy * apply(k->spec.attr.i[0], gate[c]));
        }
    }
    return SN_OK;
}

REF_RUN(softmax)
{
    int64_t n = k->d.cols;
    for (int64_t r = 0; r < k->d.rows; r++) {
        const real *x = (const real *) in[0] + r * n;
        real *y = (real *) out[0] + r * n;
        double max = -INFINITY, sum = 0;
        for (int64_t c = 0; c < n; c++)
            max = x[c] > max ? x[c] : max;
        for (int64_t c = 0; c < n; c++)
            sum += exp(x[c] - max);
        for (int64_t c = 0; c < n; c++)
            y[c] = (real) (exp(x[c] - max) / sum);
    }
    return SN_OK;
}

REF_RUN(softmax_grad)
{
    int64_t n = k->d.cols;
    for (int64_t r = 0; r < k->d.rows; r++) {
        const real *dy = (const real *) in[0] + r * n, *y = (const real *) in[1] + r * n;
        real *dx = (real *) out[0] + r * n;
        double dot = 0;
        for (int64_t c = 0; c < n; c++)
            dot += (double) dy[c] * y[c];
        for (int64_t c = 0; c < n; c++)
            dx[c] = (real) (y[c] * (dy[c] - dot));
    }
    return SN_OK;
}
