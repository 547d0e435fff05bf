/* SPDX-License-Identifier: Apache-2.0
 *
 * Learning in the simulator. The policy: an evolution strategy (antithetic Gaussian samples, ranks
 * instead of costs, Adam), because a cost that is a quantile of a packet simulation has no
 * gradient. Its opponent: DCQCN with parameters from a random search on the same traffic.
 * Source: Salimans et al., "Evolution strategies as a scalable alternative to reinforcement
 * learning", arXiv:1703.03864. */
#include "private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEEDS_FROM = 1000000, PAIRS_MAX = 256 };

double sn_roce_cost(const sn_roce_result *r)
{
    double missed = fmax(1 - r->served, 0);
    return log(fmax(r->slowdown_mean, 1)) + 0.5 * log(fmax(r->slowdown_p99, 1)) + 5 * missed +
           10 * r->pause_share;
}

/* One generation's traffic: the same for all of its samples. Bursts alone are the third, since in
 * the mixture they are too few to be learned from. */
static sn_status cost_of(const sn_roce_opts *base, uint64_t generation, double *ret)
{
    static const struct {
        sn_roce_traffic traffic;
        double load;
    } row[] = {{SN_ROCE_MIXED, 0.7}, {SN_ROCE_MIXED, 0.95}, {SN_ROCE_INCAST, 0.7}};
    sn_roce_opts o = *base;
    double sum = 0;
    for (size_t i = 0; i < SN_COUNT(row); i++) {
        sn_roce_result r;
        o.traffic = row[i].traffic;
        o.load = row[i].load;
        o.seed = SEEDS_FROM + generation * SN_COUNT(row) + i;
        SN_TRY(sn_roce_run(&o, &r, NULL));
        sum += sn_roce_cost(&r) / SN_COUNT(row);
    }
    *ret = sum;
    return SN_OK;
}

static sn_roce_opts short_runs(const sn_roce_opts *base)
{
    sn_roce_opts o = *base;
    o.duration_ms = 4;
    o.warmup_ms = 0.5;
    return o;
}

typedef struct sample {
    double cost;
    int pair;
    double sign;
} sample;

static int by_cost(const void *a, const void *b)
{
    const sample *x = a, *y = b;
    if (x->cost != y->cost)
        return x->cost < y->cost ? -1 : 1;
    return x->pair != y->pair ? x->pair - y->pair : (x->sign > y->sign) - (x->sign < y->sign);
}

static double noise(const sn_roce_train_opts *t, int generation, int pair, int i)
{
    uint64_t stream = (uint64_t) generation * PAIRS_MAX + (uint64_t) pair + 1;
    return sn_hash_normal(t->seed, stream, (uint64_t) i);
}

static sn_status sample_costs(const sn_roce_opts *runs, const sn_roce_train_opts *t, int generation,
                              const sn_roce_policy *mean, sample *s)
{
    for (int i = 0; i < 2 * t->pairs; i++) {
        sn_roce_policy tried;
        sn_roce_opts o = *runs;
        o.policy = &tried;
        s[i] = (sample){.pair = i / 2, .sign = i % 2 ? -1 : 1};
        for (int j = 0; j < SN_ROCE_WEIGHTS; j++)
            tried.w[j] = (float) ((double) mean->w[j] +
                                  s[i].sign * t->sigma * noise(t, generation, s[i].pair, j));
        SN_TRY(cost_of(&o, (uint64_t) generation, &s[i].cost));
    }
    return SN_OK;
}

/* Adam along the samples' direction, each weighted by its rank from 1/2 (best) to -1/2; the last
 * steps are a fifth of the first. */
static void step(const sn_roce_train_opts *t, int generation, const sample *s, double *m, double *v,
                 sn_roce_policy *mean)
{
    int n = 2 * t->pairs;
    for (int j = 0; j < SN_ROCE_WEIGHTS; j++) {
        double g = 0;
        for (int i = 0; i < n; i++)
            g += (0.5 - i / (n - 1.0)) * s[i].sign * noise(t, generation, s[i].pair, j);
        g /= n * t->sigma;
        m[j] = 0.9 * m[j] + 0.1 * g;
        v[j] = 0.99 * v[j] + 0.01 * g * g;
        double rate =
            t->step * (1 - 0.8 * generation / t->generations) / (1 - pow(0.9, generation + 1));
        double scale = sqrt(v[j] / (1 - pow(0.99, generation + 1))) + 1e-8;
        mean->w[j] += (float) (rate * m[j] / scale);
    }
}

sn_status sn_roce_train(const sn_roce_opts *base, const sn_roce_train_opts *t, sn_roce_policy *ret)
{
    double m[SN_ROCE_WEIGHTS] = {0}, v[SN_ROCE_WEIGHTS] = {0};
    sample s[2 * PAIRS_MAX];
    sn_roce_policy mean;
    sn_roce_opts runs = short_runs(base);
    if (t->pairs < 1 || t->pairs > PAIRS_MAX || t->generations < 1)
        return sn_fail(SN_EINVAL, "training wants generations, of 1 … %d pairs", PAIRS_MAX);
    runs.control = SN_ROCE_LEARNED;
    for (int j = 0; j < SN_ROCE_WEIGHTS; j++)
        mean.w[j] = (float) (0.1 * sn_hash_normal(t->seed, 0, (uint64_t) j));
    for (int g = 0; g < t->generations; g++) {
        SN_TRY(sample_costs(&runs, t, g, &mean, s));
        qsort(s, (size_t) (2 * t->pairs), sizeof(*s), by_cost);
        step(t, g, s, m, v, &mean);
        double sum = 0;
        for (int i = 0; i < 2 * t->pairs; i++)
            sum += s[i].cost / (2 * t->pairs);
        if (t->progress)
            t->progress(t->ctx, g, sum);
    }
    *ret = mean;
    return SN_OK;
}

/* ---- the fair opponent ---- */

static double log_between(sn_prng *p, double least, double most)
{
    return least * pow(most / least, sn_prng_uniform(p));
}

static void draw(sn_prng *p, const sn_roce_opts *base, sn_roce_opts *o)
{
    *o = *base;
    o->control = SN_ROCE_DCQCN;
    o->red.kmin_bytes = log_between(p, 5e3, 200e3);
    o->red.kmax_bytes = o->red.kmin_bytes * log_between(p, 1.2, 10);
    o->red.pmax = log_between(p, 0.01, 1);
    o->dcqcn.g = log_between(p, 1.0 / 1024, 1.0 / 16);
    o->dcqcn.alpha_us = log_between(p, 5, 100);
    o->dcqcn.cnp_us = log_between(p, 4, 60);
    o->dcqcn.timer_us = log_between(p, 5, 300);
    o->dcqcn.byte_counter = log_between(p, 32e3, 10e6);
    o->dcqcn.rai_bps = log_between(p, 10e6, 2e9);
    o->dcqcn.rhai_bps = o->dcqcn.rai_bps * log_between(p, 1, 20);
}

sn_status sn_roce_tune(const sn_roce_opts *base, int trials, uint64_t seed,
                       void (*progress)(void *ctx, int trial, double cost), void *ctx,
                       sn_roce_opts *ret)
{
    sn_prng random = {.seed = seed};
    sn_roce_opts runs = short_runs(base), best = runs, tried = runs;
    double least = INFINITY;
    best.control = tried.control = SN_ROCE_DCQCN;
    for (int i = 0; i < trials; i++) {
        double sum = 0;
        for (uint64_t g = 0; g < 2; g++) { /* all trials meet the same traffic */
            double cost;
            SN_TRY(cost_of(&tried, g, &cost));
            sum += cost / 2;
        }
        if (sum < least) {
            least = sum;
            best = tried;
        }
        if (progress)
            progress(ctx, i, least);
        draw(&random, &runs, &tried);
    }
    ret->red = best.red;
    ret->dcqcn = best.dcqcn;
    return SN_OK;
}
