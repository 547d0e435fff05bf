/* SPDX-License-Identifier: Apache-2.0
 * Softmax attention over [T,B,H,3,E], forward and backward, one query row at a time. */
#include "kern/ref/ref.h"

/* One (batch, head): where its rows start and how far apart they are. */
typedef struct head {
    int64_t at, step;     /* in qkv, and in dqkv: q at +0, k at +e, v at +2e */
    int64_t o_at, o_step; /* in o and do */
    int64_t lse_at;
} head;

static head head_of(const kern_dims *d, int64_t b, int64_t h)
{
    return (head){.at = (b * d->h + h) * 3 * d->e,
                  .step = d->b * d->h * 3 * d->e,
                  .o_at = (b * d->h + h) * d->e,
                  .o_step = d->b * d->h * d->e,
                  .lse_at = (b * d->h + h) * d->t};
}

static double dot(const real *a, const real *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double) a[i] * b[i];
    return sum;
}

sn_status REF(row)(sn_kernel *k)
{
    k->work_bytes = (size_t) k->d.t * sizeof(double);
    return SN_OK;
}

static void attend_row(const kern_dims *d, head hd, const real *qkv, double scale, int64_t t,
                       int64_t keys, real *o, real *lse, double *p)
{
    const real *q = qkv + hd.at + t * hd.step, *key = qkv + hd.at + d->e;
    double max = -INFINITY, sum = 0;
    for (int64_t j = 0; j < keys; j++) {
        p[j] = scale * dot(q, key + j * hd.step, d->e);
        max = p[j] > max ? p[j] : max;
    }
    for (int64_t j = 0; j < keys; j++) {
        p[j] = exp(p[j] - max);
        sum += p[j];
    }
    lse[hd.lse_at + t] = (real) (max + log(sum));
    for (int64_t c = 0; c < d->e; c++) {
        double acc = 0;
        for (int64_t j = 0; j < keys; j++)
            acc += p[j] * key[j * hd.step + d->e + c];
        o[hd.o_at + t * hd.o_step + c] = (real) (acc / sum);
    }
}

REF_RUN(attention)
{
    const kern_dims *d = &k->d;
    for (int64_t b = 0; b < d->b; b++)
        for (int64_t h = 0; h < d->h; h++)
            for (int64_t t = 0; t < d->t; t++)
                attend_row(d, head_of(d, b, h), in[0], k->spec.attr.f[0], t,
                           k->spec.attr.i[0] ? t + 1 : d->t, out[0], out[1], work);
    return SN_OK;
}

sn_status REF(row_grad)(sn_kernel *k)
{
    k->work_bytes = 3 * (size_t) (k->d.t * k->d.e) * sizeof(double);
    return SN_OK;
}

/* p_tj = exp(scale·q·k − lse); ds = p·(do·v − do·o); dq += scale·ds·k, dk += scale·ds·q,
 * dv += p·do. `sum` is [T,3,E] of this head. */
static void attend_row_grad(const kern_dims *d, head hd, const void *const *in, double scale,
                            int64_t t, int64_t keys, double *sum)
{
    const real *qkv = in[1], *lse = in[3];
    const real *grad = (const real *) in[0] + hd.o_at + t * hd.o_step;
    const real *o = (const real *) in[2] + hd.o_at + t * hd.o_step;
    const real *q = qkv + hd.at + t * hd.step;
    double delta = dot(grad, o, d->e), *dq = sum + t * 3 * d->e;
    for (int64_t j = 0; j < keys; j++) {
        const real *key = qkv + hd.at + j * hd.step + d->e;
        double *dk = sum + (j * 3 + 1) * d->e, *dv = dk + d->e;
        double p = exp(scale * dot(q, key, d->e) - lse[hd.lse_at + t]);
        double ds = scale * p * (dot(grad, key + d->e, d->e) - delta);
        for (int64_t c = 0; c < d->e; c++) {
            dq[c] += ds * key[c];
            dk[c] += ds * q[c];
            dv[c] += p * grad[c];
        }
    }
}

REF_RUN(attention_grad)
{
    const kern_dims *d = &k->d;
    real *dqkv = out[0];
    double *sum = work;
    for (int64_t bh = 0; bh < d->b * d->h; bh++) {
        head hd = head_of(d, bh / d->h, bh % d->h);
        memset(sum, 0, k->work_bytes);
        for (int64_t t = 0; t < d->t; t++)
            attend_row_grad(d, hd, in, k->spec.attr.f[0], t, k->spec.attr.i[0] ? t + 1 : d->t, sum);
        for (int64_t t = 0; t < d->t; t++)
            for (int64_t c = 0; c < 3 * d->e; c++)
                dqkv[hd.at + t * hd.step + c] = (real) sum[t * 3 * d->e + c];
    }
    return SN_OK;
}
