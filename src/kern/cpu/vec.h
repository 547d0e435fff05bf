/* SPDX-License-Identifier: Apache-2.0
 *
 * vec — one vector type, three widths. The kernels in k_*.c are written once over `vf` and compiled
 * once a width: avx512.c, avx2.c and plain.c include a vec_*.h and then the kernels.
 *
 *   LANES            floats in a vf                    + − · /     as for floats
 *   v_set(x)         x in every lane                   v_load, v_store   unaligned
 *   v_load_n(p, n)   n < LANES floats, 0 in the rest   v_store_n   n < LANES floats
 *   v_max, v_min     of a and b; when either is NaN, b     v_select_lt   a < b ? yes : no
 *   v_first(x, n, other)   the first n ≤ LANES lanes of x, then other's
 *   v_round          to the nearest whole number       v_scale(x, n)   x·2^n for whole n in ±250
 *   v_sum, v_top     of the lanes, always in the same order
 *   v_transpose(r)   LANES vectors as a square, turned over its diagonal
 *   v_widen_n, v_narrow_n   n ≤ LANES BF16 values, as sn_bf16_to_f32 and sn_f32_to_bf16
 *
 * NaN passes through every function here, exp and the GELU gates included: a NaN activation must
 * become a NaN loss, never a number. */
#ifndef SN_KERN_VEC_H
#define SN_KERN_VEC_H

/* The loop of elementwise kernels reads and writes whole vectors and then one partial vector. */
static inline vf v_get(const float *p, int64_t left)
{
    return left >= LANES ? v_load(p) : v_load_n(p, left);
}

static inline void v_put(float *p, vf x, int64_t left)
{
    if (left >= LANES)
        v_store(p, x);
    else
        v_store_n(p, x, left);
}

/* The lanes of x below n, any n > 0; `other` above. */
static inline vf v_keep(vf x, int64_t n, vf other)
{
    return n >= LANES ? x : v_first(x, n, other);
}

/* e^x to 1 ulp or so; infinity above 88.73, and 0 below −87.33, where numbers cease to be normal: a
 * denormal result would cost a hundred cycles. Cody–Waite reduction to |r| ≤ ln 2 / 2 and the
 * polynomial of Moshier's Cephes expf. */
static inline vf v_exp(vf x)
{
    vf z = v_min(v_set(89.0f), v_max(v_set(-87.33f), x));
    vf n = v_round(z * v_set(1.44269504f));
    vf r = v_fma(n, v_set(-0.693359375f), z);
    r = v_fma(n, v_set(2.12194440e-4f), r);
    vf p = v_fma(r, v_set(1.9875691500e-4f), v_set(1.3981999507e-3f));
    p = v_fma(p, r, v_set(8.3334519073e-3f));
    p = v_fma(p, r, v_set(4.1665795894e-2f));
    p = v_fma(p, r, v_set(1.6666665459e-1f));
    p = v_fma(p, r, v_set(5.0000001201e-1f));
    p = v_fma(p * r, r, r) + v_set(1.0f);
    return v_select_lt(x, v_set(-87.33f), v_set(0), v_scale(p, n));
}

/* Which part of z passes GELU, Φ(z), and its slope. `form` 0: exact. With t = |z| and u =
 * 1/(1+0.35t), 1 − Φ(t) = e^(−t²/2)·u·P(u); P is a minimax fit of degree 8, relative error 1.7e-7
 * in f32 for t ≤ 14.5, where the value leaves the range of f32. `form` 1: the tanh form, Φ =
 * 1/(1+e^(−2y)). */
typedef struct gate {
    vf value, slope;
} gate;

static inline gate v_gate_exact(vf z)
{
    vf t = v_min(v_set(14.5f), v_abs(z));
    vf bell = v_exp(t * t * v_set(-0.5f));
    vf u = v_set(1.0f) / v_fma(t, v_set(0.35f), v_set(1.0f));
    vf p = v_fma(u, v_set(-0.029157953f), v_set(0.14403124f));
    p = v_fma(p, u, v_set(-0.25583965f));
    p = v_fma(p, u, v_set(0.15932040f));
    p = v_fma(p, u, v_set(-0.023212813f));
    p = v_fma(p, u, v_set(0.10555269f));
    p = v_fma(p, u, v_set(0.11982124f));
    p = v_fma(p, u, v_set(0.13986352f));
    p = v_fma(p, u, v_set(0.13962131f));
    vf tail = bell * u * p;
    return (gate){v_select_lt(z, v_set(0), tail, v_set(1.0f) - tail), bell * v_set(0.39894228f)};
}

static inline gate v_gate_tanh(vf z)
{
    vf zz = z * z, c = v_set(0.79788456f);
    vf y = z * c * v_fma(zz, v_set(0.044715f), v_set(1.0f));
    vf e = v_exp(v_set(-2.0f) * y);
    vf g = v_set(1.0f) / (v_set(1.0f) + e);
    vf dy = c * v_fma(zz, v_set(3 * 0.044715f), v_set(1.0f));
    return (gate){g, v_set(2.0f) * g * (v_set(1.0f) - g) * dy};
}

#endif
