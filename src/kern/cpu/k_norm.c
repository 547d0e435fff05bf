/* SPDX-License-Identifier: Apache-2.0
 * Layer normalisation with and without the residual before it: one visit to memory, the row stays
 * in the first-level cache between its passes. */

static void norm_row(const float *x, const float *g, const float *b, int64_t n, float epsilon,
                     float *y, float *ret_mean, float *ret_rstd)
{
    vf sum = v_set(0), square = v_set(0);
    for (int64_t c = 0; c < n; c += LANES)
        sum += v_get(x + c, n - c);
    float mean = v_sum(sum) / (float) n;
    for (int64_t c = 0; c < n; c += LANES) {
        vf d = v_keep(v_get(x + c, n - c) - v_set(mean), n - c, v_set(0));
        square = v_fma(d, d, square);
    }
    float rstd = 1 / sqrtf(v_sum(square) / (float) n + epsilon);
    for (int64_t c = 0; c < n; c += LANES) {
        vf hat = (v_get(x + c, n - c) - v_set(mean)) * v_set(rstd);
        v_put(y + c, v_fma(hat, v_get(g + c, n - c), v_get(b + c, n - c)), n - c);
    }
    *ret_mean = mean;
    *ret_rstd = rstd;
}

static void residual_row(const float *x, const float *r, const float *b, int64_t n, float *s)
{
    for (int64_t c = 0; c < n; c += LANES) {
        vf sum = v_get(x + c, n - c) + v_get(r + c, n - c);
        if (b)
            sum += v_get(b + c, n - c);
        v_put(s + c, sum, n - c);
    }
}

KERNEL(layer_norm)
{
    const float *x = in[0];
    float *y = out[0], *mean = out[1], *rstd = out[2];
    int64_t n = k->d.cols;
    for (int64_t r = 0; r < k->d.rows; r++)
        norm_row(x + r * n, in[1], in[2], n, (float) k->spec.attr.f[0], y + r * n, &mean[r],
                 &rstd[r]);
    return SN_OK;
}

KERNEL(residual)
{
    const float *x = in[0], *res = in[1], *b = kern_given(k, 2) ? in[2] : NULL;
    float *s = out[0];
    int64_t n = k->d.cols;
    for (int64_t r = 0; r < k->d.rows; r++)
        residual_row(x + r * n, res + r * n, b, n, s + r * n);
    return SN_OK;
}

KERNEL(residual_layer_norm)
{
    const float *x = in[0], *res = in[1], *rb = kern_given(k, 2) ? in[2] : NULL;
    float *s = out[0], *y = out[1], *mean = out[2], *rstd = out[3];
    int64_t n = k->d.cols;
    for (int64_t r = 0; r < k->d.rows; r++) {
        residual_row(x + r * n, res + r * n, rb, n, s + r * n);
        norm_row(s + r * n, in[3], in[4], n, (float) k->spec.attr.f[0], y + r * n, &mean[r],
                 &rstd[r]);
    }
    return SN_OK;
}

typedef struct norm_grad {
    const float *g;
    float *dg, *db;
    int64_t n;
} norm_grad;

static void norm_grad_row(const norm_grad *p, const float *dy, const float *x, float mean,
                          float rstd, const float *ds, float *dx)
{
    int64_t n = p->n;
    vf sum = v_set(0), sum_hat = v_set(0), mu = v_set(mean), rs = v_set(rstd);
    for (int64_t c = 0; c < n; c += LANES) {
        int64_t left = n - c;
        vf d = v_get(dy + c, left), hat = (v_get(x + c, left) - mu) * rs;
        vf dg = d * v_get(p->g + c, left);
        sum += dg;
        sum_hat = v_fma(dg, hat, sum_hat);
        v_put(p->dg + c, v_fma(d, hat, v_get(p->dg + c, left)), left);
        v_put(p->db + c, d + v_get(p->db + c, left), left);
    }
    vf a = v_set(v_sum(sum) / (float) n), b = v_set(v_sum(sum_hat) / (float) n);
    for (int64_t c = 0; c < n; c += LANES) {
        int64_t left = n - c;
        vf hat = (v_get(x + c, left) - mu) * rs;
        vf v = (v_get(dy + c, left) * v_get(p->g + c, left) - a - hat * b) * rs;
        if (ds)
            v += v_get(ds + c, left);
        v_put(dx + c, v, left);
    }
}

KERNEL(layer_norm_grad)
{
    const float *dy = in[0], *x = in[1], *mean = in[3], *rstd = in[4];
    const float *ds = kern_given(k, 5) ? in[5] : NULL;
    float *dx = out[0];
    int64_t n = k->d.cols;
    norm_grad p = {.g = in[2], .dg = out[1], .db = out[2], .n = n};
    if (!kern_adds(k, 1))
        memset(p.dg, 0, (size_t) n * sizeof(float));
    if (!kern_adds(k, 2))
        memset(p.db, 0, (size_t) n * sizeof(float));
    for (int64_t r = 0; r < k->d.rows; r++)
        norm_grad_row(&p, dy + r * n, x + r * n, mean[r], rstd[r], ds ? ds + r * n : NULL,
                      dx + r * n);
    return SN_OK;
}
