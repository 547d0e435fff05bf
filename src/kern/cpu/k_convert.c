/* SPDX-License-Identifier: Apache-2.0
 * Between BF16 and F32, the adapter's accumulation, and the loop that measures the FMA peak. */

static void widen(const uint16_t *in, float *out, int64_t n)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        v_store(out + i, v_widen_n(in + i, LANES));
    if (i < n)
        v_store_n(out + i, v_widen_n(in + i, n - i), n - i);
}

static void narrow(const float *in, uint16_t *out, int64_t n)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        v_narrow_n(out + i, v_load(in + i), LANES);
    if (i < n)
        v_narrow_n(out + i, v_load_n(in + i, n - i), n - i);
}

static void accumulate(const float *in, float *out, int64_t n)
{
    add_to(in, out, n);
}

KERNEL(copy)
{
    sn_dtype from = k->spec.in[0].dtype, to = k->spec.out[0].dtype;
    if (from == SN_BF16 && (to == SN_F32))
        widen(in[0], out[0], k->d.rows);
    else if (from == SN_F32 && to == SN_BF16)
        narrow(in[0], out[0], k->d.rows);
    else
        memmove(out[0], in[0], (size_t) k->d.rows * sn_dtype_bytes(to));
    return SN_OK;
}

/* As many independent sums as a tile has, and nothing else: what a product can reach at most. */
static double fma_loop(int64_t rounds)
{
    vf acc[PANEL_ROWS * PANEL_VECS], x = v_set(0.5f), y = v_set(1.0f);
#pragma GCC unroll 28
    for (int i = 0; i < PANEL_ROWS * PANEL_VECS; i++)
        acc[i] = v_set((float) i);
    for (int64_t r = 0; r < rounds; r++) {
#pragma GCC unroll 28
        for (int i = 0; i < PANEL_ROWS * PANEL_VECS; i++)
            acc[i] = v_fma(acc[i], x, y);
    }
    vf sum = v_set(0);
#pragma GCC unroll 28
    for (int i = 0; i < PANEL_ROWS * PANEL_VECS; i++)
        sum += acc[i];
    /* The sums converge to 2 each; using them keeps the loop from being removed. */
    double flops = 2.0 * LANES * PANEL_ROWS * PANEL_VECS * (double) rounds;
    return v_sum(sum) > 0 ? flops : 0;
}
