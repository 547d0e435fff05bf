/* SPDX-License-Identifier: Apache-2.0
 * Attention with separate queries, keys and values, one query row at a time; rotary positions (Su
 * et al., "RoFormer", 2021). */
#include "kern/ref/ref.h"

/* One query head of one sample. */
typedef struct query_head {
    const kern_dims *d;
    const sn_attr *attr;
    const int32_t *mask; /* [S,B] or NULL */
    int64_t b, g, r;
} query_head;

static int64_t q_at(const query_head *h, int64_t t)
{
    const kern_dims *d = h->d;
    return (((t * d->b + h->b) * d->g + h->g) * d->h + h->r) * d->e;
}

static int64_t k_at(const query_head *h, int64_t j)
{
    return ((j * h->d->b + h->b) * h->d->g + h->g) * h->d->e;
}

static int64_t lse_at(const query_head *h, int64_t t)
{
    const kern_dims *d = h->d;
    return ((h->b * d->g + h->g) * d->h + h->r) * d->t + t;
}

static bool sees(const query_head *h, int64_t t, int64_t j)
{
    if (h->attr->i[0] && j > h->attr->begin + t)
        return false;
    return !h->mask || h->mask[j * h->d->b + h->b];
}

static double scalar_product(const real *a, const real *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double) a[i] * b[i];
    return sum;
}

static void query_row(const query_head *h, const real *q, const real *key, const real *value,
                      int64_t t, real *o, real *lse, double *p)
{
    const kern_dims *d = h->d;
    double max = -INFINITY, sum = 0;
    for (int64_t j = 0; j < d->s; j++) {
        p[j] = sees(h, t, j)
                   ? h->attr->f[0] * scalar_product(q + q_at(h, t), key + k_at(h, j), d->e)
                   : -INFINITY;
        max = p[j] > max ? p[j] : max;
    }
    for (int64_t j = 0; j < d->s; j++) {
        p[j] = sees(h, t, j) ? exp(p[j] - max) : 0;
        sum += p[j];
    }
    lse[lse_at(h, t)] = (real) (max + log(sum));
    for (int64_t c = 0; c < d->e; c++) {
        double acc = 0;
        for (int64_t j = 0; j < d->s; j++)
            if (sees(h, t, j))
                acc += p[j] * value[k_at(h, j) + c];
        o[q_at(h, t) + c] = (real) (sum == 0 ? 0 : acc / sum);
    }
}

sn_status REF(keys)(sn_kernel *k)
{
    k->work_bytes = (size_t) k->d.s * sizeof(double);
    return SN_OK;
}

REF_RUN(attend)
{
    const kern_dims *d = &k->d;
    for (int64_t i = 0; i < d->b * d->g * d->h; i++) {
        query_head h = {.d = d,
                        .attr = &k->spec.attr,
                        .mask = kern_given(k, 3) ? in[3] : NULL,
                        .b = i / (d->g * d->h),
                        .g = i / d->h % d->g,
                        .r = i % d->h};
        for (int64_t t = 0; t < d->t; t++)
            query_row(&h, in[0], in[1], in[2], t, out[0], out[1], work);
    }
    return SN_OK;
}

sn_status REF(keys_grad)(sn_kernel *k)
{
    k->work_bytes = (size_t) (2 * k->d.s * k->d.e + k->d.e) * sizeof(double);
    return SN_OK;
}

/* dq of one row; adds to dk and dv [S,E] of its key head. */
static void query_row_grad(const query_head *h, const void *const *in, int64_t t, real *dq,
                           double *dk, double *dv, double *sum)
{
    const real *key = in[2], *value = in[3], *lse = in[5];
    const real *grad = (const real *) in[0] + q_at(h, t), *q = (const real *) in[1] + q_at(h, t);
    const real *o = (const real *) in[4] + q_at(h, t);
    int64_t e = h->d->e;
    double delta = scalar_product(grad, o, e);
    memset(sum, 0, (size_t) e * sizeof *sum);
    for (int64_t j = 0; j < h->d->s; j++) {
        if (!sees(h, t, j))
            continue;
        const real *kj = key + k_at(h, j);
        double p = exp(h->attr->f[0] * scalar_product(q, kj, e) - lse[lse_at(h, t)]);
        double ds = h->attr->f[0] * p * (scalar_product(grad, value + k_at(h, j), e) - delta);
        for (int64_t c = 0; c < e; c++) {
            sum[c] += ds * kj[c];
            dk[j * e + c] += ds * q[c];
            dv[j * e + c] += p * grad[c];
        }
    }
    for (int64_t c = 0; c < e; c++)
        dq[q_at(h, t) + c] = (real) sum[c];
}

REF_RUN(attend_grad)
{
    const kern_dims *d = &k->d;
    double *dk = work, *dv = dk + d->s * d->e, *sum = dv + d->s * d->e;
    real *to_k = out[1], *to_v = out[2];
    for (int64_t i = 0; i < d->b * d->g; i++) {
        query_head h = {.d = d,
                        .attr = &k->spec.attr,
                        .mask = kern_given(k, 6) ? in[6] : NULL,
                        .b = i / d->g,
                        .g = i % d->g};
        memset(work, 0, k->work_bytes);
        for (h.r = 0; h.r < d->h; h.r++)
            for (int64_t t = 0; t < d->t; t++)
                query_row_grad(&h, in, t, out[0], dk, dv, sum);
        for (int64_t j = 0; j < d->s; j++)
            for (int64_t c = 0; c < d->e; c++) {
                to_k[k_at(&h, j) + c] = (real) dk[j * d->e + c];
                to_v[k_at(&h, j) + c] = (real) dv[j * d->e + c];
            }
    }
    return SN_OK;
}

REF_RUN(rotary)
{
    const kern_dims *d = &k->d;
    const sn_attr *a = &k->spec.attr;
    int64_t half = d->inner / 2, step = a->i[0] ? 2 : 1, apart = a->i[0] ? 1 : half;
    memmove(out[0], in[0], (size_t) (d->t * d->rows * d->cols) * sizeof(real));
    for (int64_t row = 0; row < d->t * d->rows; row++) {
        const real *x = (const real *) in[0] + row * d->cols;
        real *y = (real *) out[0] + row * d->cols;
        for (int64_t j = 0; j < half; j++) {
            double angle = (double) (a->begin + row / d->rows) *
                           pow(a->f[0], -2.0 * (double) j / (double) d->inner);
            double c = cos(angle), s = a->i[2] ? -sin(angle) : sin(angle);
            double p = x[j * step], q = x[j * step + apart];
            y[j * step] = (real) (p * c - q * s);
            y[j * step + apart] = (real) (p * s + q * c);
        }
    }
    return SN_OK;
}
