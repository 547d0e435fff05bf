/* SPDX-License-Identifier: Apache-2.0
 * The norm of the gradient and AdamW, on flat ranges. */

#define SQUARES_BLOCK 4096 /* elements summed in f32 before the sum goes on in double */

KERNEL(sum_squares)
{
    const float *x = in[0];
    float *y = out[0];
    double total = 0;
    for (int64_t i = 0; i < k->d.rows; i += SQUARES_BLOCK) {
        int64_t n = SN_MIN(k->d.rows - i, SQUARES_BLOCK);
        vf sum[4] = {v_set(0), v_set(0), v_set(0), v_set(0)};
        for (int64_t c = 0, s = 0; c < n; c += LANES, s = (s + 1) & 3) {
            vf v = v_get(x + i + c, n - c);
            sum[s] = v_fma(v, v, sum[s]);
        }
        total += v_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
    }
    float result = (float) (k->spec.attr.f[0] * total);
    *y = kern_adds(k, 0) ? *y + result : result;
    return SN_OK;
}

typedef struct adam {
    vf beta1, beta2, rest1, rest2, epsilon, correct1, correct2, clip, lr, shrink;
} adam;

static adam adam_of(const sn_kernel *k, const float *hyper, float norm2)
{
    float norm = sqrtf(norm2), max_norm = hyper[7];
    float clip = max_norm > 0 && norm > max_norm ? max_norm / norm : 1;
    return (adam){.beta1 = v_set(hyper[1]),
                  .beta2 = v_set(hyper[2]),
                  .rest1 = v_set((1 - hyper[1]) * clip),
                  .rest2 = v_set((1 - hyper[2])),
                  .epsilon = v_set(hyper[3]),
                  .correct1 = v_set(hyper[5]),
                  .correct2 = v_set(hyper[6]),
                  .clip = v_set(clip),
                  .lr = v_set(hyper[0]),
                  .shrink = v_set(hyper[0] * (float) k->spec.attr.f[0] * hyper[4])};
}

static vf adam_step(const adam *a, vf g, float *m, float *v, float *master, int64_t left)
{
    vf clipped = g * a->clip;
    vf mean = v_fma(a->beta1, v_get(m, left), a->rest1 * g);
    vf square = v_fma(a->beta2, v_get(v, left), a->rest2 * clipped * clipped);
    vf p = v_get(master, left);
    vf by = mean * a->correct1 / (v_sqrt(square * a->correct2) + a->epsilon);
    p = p - (a->lr * by + a->shrink * p);
    v_put(m, mean, left);
    v_put(v, square, left);
    v_put(master, p, left);
    return p;
}

KERNEL(adamw)
{
    const float *g = in[0], *norm2 = in[2];
    float *master = out[0], *m = out[1], *v = out[2];
    bool half = k->spec.out[3].dtype == SN_BF16;
    int64_t n = k->d.rows;
    if (!isfinite(norm2[0]))
        return SN_OK;
    adam a = adam_of(k, in[1], norm2[0]);
    for (int64_t i = 0; i < n; i += LANES) {
        vf p = adam_step(&a, v_get(g + i, n - i), m + i, v + i, master + i, n - i);
        if (half)
            v_narrow_n((uint16_t *) out[3] + i, p, SN_MIN(n - i, LANES));
        else if (out[3] != out[0])
            v_put((float *) out[3] + i, p, n - i);
    }
    return SN_OK;
}
