/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers about numbers: quantiles of what a run saw, and what we call stable. */
#include "private.h"

#include <math.h>
#include <stdlib.h>

sn_status roce_numbers_add(roce_numbers *s, double v)
{
    if (s->n == s->cap) {
        int64_t cap = s->cap ? 2 * s->cap : 256;
        double *more = realloc(s->v, (size_t) cap * sizeof(*more));
        if (!more)
            return sn_fail(SN_ENOMEM, "no memory for %lld results of flows", (long long) cap);
        s->v = more, s->cap = cap;
    }
    s->v[s->n++] = v;
    return SN_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

double roce_numbers_quantile(roce_numbers *s, double q)
{
    if (s->n == 0)
        return 0;
    qsort(s->v, (size_t) s->n, sizeof(*s->v), by_value);
    return s->v[SN_MIN((int64_t) ceil(q * (double) s->n), s->n) - (q > 0)];
}

double roce_numbers_mean(const roce_numbers *s)
{
    double sum = 0;
    for (int64_t i = 0; i < s->n; i++)
        sum += s->v[i];
    return s->n ? sum / (double) s->n : 0;
}

void roce_histogram_add(roce_histogram *h, double v)
{
    int i = v < 1 ? 0 : (int) (8 * log2(v)) + 1;
    h->count[SN_MIN(i, (int) SN_COUNT(h->count) - 1)]++;
    h->n++;
    h->sum += v;
}

double roce_histogram_quantile(const roce_histogram *h, double q)
{
    int64_t below = 0;
    for (int i = 0; i < (int) SN_COUNT(h->count); i++)
        if ((double) (below += h->count[i]) >= q * (double) h->n && h->n)
            return i ? exp2(i / 8.0) : 0;
    return 0;
}

/* What an operator would call trouble, worst first. At 90 % load the ideal of fluid.c itself serves
 * 93 % within the measured time (what ECMP collides on waits), at a p99 slowdown of 26. */
const char *sn_roce_unstable(const sn_roce_result *r)
{
    if (r->drops > 0)
        return "drops";
    if (r->pause_share > 0.01)
        return "pause storms";
    if (r->served < 0.85)
        return "backlog grows";
    if (r->goodput_cov > 0.15)
        return "goodput swings";
    if (r->slowdown_p99 > 40)
        return "slow tail";
    return NULL;
}
