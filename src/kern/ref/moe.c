/* SPDX-License-Identifier: Apache-2.0
 * Mixture of experts: route, dispatch, combine, and the load-balancing loss. */
#include "kern/ref/ref.h"

/* The most probable expert that no earlier choice of this token has. */
static int32_t next_best(const real *p, int64_t experts, const int32_t *chosen, int64_t before)
{
    int32_t best = -1;
    for (int32_t e = 0; e < experts; e++) {
        bool taken = false;
        for (int64_t j = 0; j < before; j++)
            taken |= chosen[j] == e;
        if (!taken && (best < 0 || p[e] > p[best]))
            best = e;
    }
    return best;
}

static void choose(const kern_dims *d, const real *x, bool normalised, real *weight,
                   int32_t *expert, real *p)
{
    double max = -INFINITY, sum = 0, of_chosen = 0;
    for (int64_t e = 0; e < d->g; e++)
        max = x[e] > max ? x[e] : max;
    for (int64_t e = 0; e < d->g; e++)
        sum += exp(x[e] - max);
    for (int64_t e = 0; e < d->g; e++)
        p[e] = (real) (exp(x[e] - max) / sum);
    for (int64_t j = 0; j < d->h; j++) {
        expert[j] = next_best(p, d->g, expert, j);
        of_chosen += p[expert[j]];
    }
    for (int64_t j = 0; j < d->h; j++)
        weight[j] = (real) (normalised ? p[expert[j]] / of_chosen : p[expert[j]]);
}

sn_status REF(experts)(sn_kernel *k)
{
    k->work_bytes = (size_t) (k->d.b * k->d.g) * sizeof(double);
    return SN_OK;
}

REF_RUN(moe_route)
{
    const kern_dims *d = &k->d;
    const real *x = in[0];
    real *weight = out[0], *p = out[3];
    int32_t *expert = out[1], *place = out[2];
    double *used = work; /* places given out, [B,X] */
    memset(used, 0, k->work_bytes);
    for (int64_t r = 0; r < d->t * d->b; r++)
        choose(d, x + r * d->g, k->spec.attr.i[2] != 0, weight + r * d->h, expert + r * d->h,
               p + r * d->g);
    for (int64_t j = 0; j < d->h; j++)
        for (int64_t r = 0; r < d->t * d->b; r++) {
            double *next = &used[r % d->b * d->g + expert[r * d->h + j]];
            place[r * d->h + j] = *next < (double) d->s ? (int32_t) *next : -1;
            *next += 1;
        }
    return SN_OK;
}

/* dp in full, then the softmax's own gradient. */
REF_RUN(moe_route_grad)
{
    const kern_dims *d = &k->d;
    const int32_t *expert = in[0];
    double *dp = work; /* of one token */
    for (int64_t r = 0; r < d->t * d->b; r++, expert += d->h) {
        const real *p = (const real *) in[1] + r * d->g;
        const real *dw = kern_given(k, 2) ? (const real *) in[2] + r * d->h : NULL;
        const real *dp_in = kern_given(k, 3) ? (const real *) in[3] + r * d->g : NULL;
        real *dx = (real *) out[0] + r * d->g;
        double sum = 0, dot = 0, of_all = 0;
        for (int64_t e = 0; e < d->g; e++)
            dp[e] = dp_in ? dp_in[e] : 0;
        for (int64_t j = 0; j < d->h && dw; j++) {
            sum += p[expert[j]];
            dot += (double) dw[j] * p[expert[j]];
        }
        for (int64_t j = 0; j < d->h && dw; j++)
            dp[expert[j]] += k->spec.attr.i[2] ? (dw[j] - dot / sum) / sum : dw[j];
        for (int64_t e = 0; e < d->g; e++)
            of_all += dp[e] * p[e];
        for (int64_t e = 0; e < d->g; e++)
            dx[e] = (real) (p[e] * (dp[e] - of_all));
    }
    return SN_OK;
}

/* Where choice i (of [T,B,k]) lies in the buffers [X,capacity,B,D]; −1: with another card, or
 * passed by. */
static int64_t buffer_at(const sn_kernel *k, const int32_t *expert, const int32_t *place, int64_t i)
{
    const kern_dims *d = &k->d;
    int64_t e = expert[i] - k->spec.attr.begin, b = i / d->h % d->b;
    if (e < 0 || e >= d->g || place[i] < 0 || place[i] >= d->s)
        return -1;
    return ((e * d->s + place[i]) * d->b + b) * d->cols;
}

REF_RUN(moe_dispatch)
{
    const kern_dims *d = &k->d;
    const real *x = in[0], *weight = kern_given(k, 3) ? in[3] : NULL;
    real *y = out[0];
    memset(y, 0, (size_t) (d->g * d->s * d->b * d->cols) * sizeof *y);
    for (int64_t i = 0; i < d->t * d->b * d->h; i++) {
        int64_t at = buffer_at(k, in[1], in[2], i);
        for (int64_t c = 0; at >= 0 && c < d->cols; c++)
            y[at + c] = (weight ? weight[i] : 1) * x[i / d->h * d->cols + c];
    }
    return SN_OK;
}

REF_RUN(moe_combine)
{
    const kern_dims *d = &k->d;
    const real *y = in[0], *weight = kern_given(k, 3) ? in[3] : NULL;
    real *z = out[0];
    for (int64_t r = 0; r < d->t * d->b; r++)
        for (int64_t c = 0; c < d->cols; c++) {
            double sum = 0;
            for (int64_t i = r * d->h; i < (r + 1) * d->h; i++) {
                int64_t at = buffer_at(k, in[1], in[2], i);
                if (at >= 0)
                    sum += (weight ? (double) weight[i] : 1) * y[at + c];
            }
            z[r * d->cols + c] = (real) sum;
        }
    return SN_OK;
}

REF_RUN(moe_dot)
{
    const kern_dims *d = &k->d;
    const real *x = in[0], *y = in[1];
    real *dw = out[0];
    for (int64_t i = 0; i < d->t * d->b * d->h; i++) {
        int64_t at = buffer_at(k, in[2], in[3], i);
        double sum = 0;
        for (int64_t c = 0; at >= 0 && c < d->cols; c++)
            sum += (double) x[i / d->h * d->cols + c] * y[at + c];
        dw[i] = (real) sum;
    }
    return SN_OK;
}

/* Share of the choices of each sample that fall on each expert, [B,X]. */
static void shares(const kern_dims *d, const int32_t *expert, double *ret)
{
    memset(ret, 0, (size_t) (d->b * d->g) * sizeof *ret);
    for (int64_t i = 0; i < d->t * d->b * d->h; i++)
        if (expert[i] >= 0 && expert[i] < d->g)
            ret[i / d->h % d->b * d->g + expert[i]] += 1 / (double) (d->t * d->h);
}

REF_RUN(moe_balance)
{
    const kern_dims *d = &k->d;
    const real *p = in[0];
    double sum = 0, *share = work;
    shares(d, in[1], share);
    for (int64_t i = 0; i < d->t * d->b * d->g; i++)
        sum += share[i % (d->b * d->g)] * p[i];
    *(real *) out[0] = (real) (k->spec.attr.f[0] * (double) d->g / (double) d->t * sum);
    return SN_OK;
}

REF_RUN(moe_balance_grad)
{
    const kern_dims *d = &k->d;
    real *dp = out[0];
    double *share = work, factor = k->spec.attr.f[0] * (double) d->g / (double) d->t;
    shares(d, in[1], share);
    for (int64_t i = 0; i < d->t * d->b * d->g; i++)
        dp[i] = (real) (factor * share[i % (d->b * d->g)]);
    return SN_OK;
}

/* ---- a product for each expert */

REF_RUN(batch_linear)
{
    const kern_dims *d = &k->d;
    sn_kernel one = *k;
    one.spec.ins = 2;
    for (int64_t e = 0; e < d->b; e++) {
        const void *operands[] = {(const real *) in[0] + e * d->rows * d->inner,
                                  (const real *) in[1] + e * d->cols * d->inner};
        void *result = (real *) out[0] + e * d->rows * d->cols;
        REF(linear)(&one, operands, &result, work);
    }
    return SN_OK;
}

REF_RUN(batch_linear_dx)
{
    const kern_dims *d = &k->d;
    for (int64_t e = 0; e < d->b; e++) {
        const void *operands[] = {(const real *) in[0] + e * d->rows * d->cols,
                                  (const real *) in[1] + e * d->cols * d->inner};
        void *result = (real *) out[0] + e * d->rows * d->inner;
        REF(linear_dx)(k, operands, &result, work);
    }
    return SN_OK;
}

REF_RUN(batch_linear_dw)
{
    const kern_dims *d = &k->d;
    for (int64_t e = 0; e < d->b; e++) {
        const void *operands[] = {(const real *) in[0] + e * d->rows * d->cols,
                                  (const real *) in[1] + e * d->rows * d->inner};
        void *result = (real *) out[0] + e * d->cols * d->inner;
        REF(linear_dw)(k, operands, &result, work);
    }
    return SN_OK;
}
