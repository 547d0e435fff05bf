/* SPDX-License-Identifier: Apache-2.0
 *
 * A run of days: steps, failures, checkpoints, and what it costs. Failures come one after the other
 * at random (exponential), each on some node; what was computed since the last state that survived
 * is computed again.
 *
 *   useful = 1 / (1 + rate · (detect + restart + lost)) / (1 + stall / interval)
 *
 * is the closed form, failures counted while the job computes; its first order is that of Meta,
 * arXiv:2410.21680. The interval that makes it largest is
 * about √(2 · stall / rate) (Young, 1974; Daly, 2006). */
#include "sim/sim.h"

#include <math.h>

#define DAY 86400.0

static const sn_sim_recovery recoveries[] = {
    {"supernode", 0.1, 1, 600, 0.3, true,
     "this project's bars: noticed in 100 ms, computing again in 1 s from a peer's memory"},
    {"restart from disk, by hand", 600, 1200, 0, 30, false,
     "10 minutes until a collective times out, 20 to find the node and start again"},
    {"restart from disk, automatic", 60, 300, 0, 15, false,
     "MegaScale-like: heartbeats, diagnosis, restart in minutes (arXiv:2402.15627)"},
    {"asynchronous checkpoints", 60, 300, 0, 2, false,
     "the same with saves that stall for seconds"},
};

int sn_sim_recoveries(const sn_sim_recovery **ret)
{
    *ret = recoveries;
    return (int) SN_COUNT(recoveries);
}

/* ---- the closed form */

static double rate_of(const sn_sim_plan_of_run *p)
{
    double nodes = ceil((double) p->cards / p->per_host);
    return nodes * p->failures_per_1000_node_days / 1000 / DAY;
}

static double lost_of(const sn_sim_plan_of_run *p, double interval)
{
    return p->recovery.from_peers ? p->step_seconds / 2 : interval / 2;
}

static double useful_of(const sn_sim_plan_of_run *p, double interval)
{
    const sn_sim_recovery *r = &p->recovery;
    double away = rate_of(p) * (r->detect + r->restart + lost_of(p, interval));
    return 1 / (1 + away) / (1 + r->save_stalls / interval);
}

static double best_interval(const sn_sim_plan_of_run *p)
{
    double best = sqrt(2 * p->recovery.save_stalls / fmax(rate_of(p), 1e-12));
    for (double at = best / 4, end = best * 4; at < end; at *= 1.02)
        if (useful_of(p, at) > useful_of(p, best))
            best = at;
    return fmin(fmax(best, p->step_seconds), DAY);
}

/* Nodes in repair at once: Poisson; so many that they suffice 99.9 % of the time. */
static int64_t spares_of(const sn_sim_plan_of_run *p)
{
    double mean = rate_of(p) * p->repair_hours * 3600, term = exp(-mean), sum = term;
    int64_t k = 0;
    if (mean > 500) /* normal enough */
        return (int64_t) ceil(mean + 3.1 * sqrt(mean));
    while (sum < 0.999 && k < 10000)
        sum += term *= mean / (double) ++k;
    return k;
}

/* ---- the run */

typedef struct clock {
    double now, useful, lost, stalled, away, since; /* since: useful time since the last state */
} clock;

/* Compute until `until`, saving on the way; what a failure would cost stays in `since`. */
static void compute(const sn_sim_plan_of_run *p, double interval, double until, double want,
                    clock *t)
{
    double stall = p->recovery.save_stalls;
    while (t->now < until && t->useful < want) {
        double left = fmin(interval - t->since, want - t->useful);
        if (t->now + left > until) {
            t->useful += until - t->now;
            t->since += until - t->now;
            t->now = until;
            return;
        }
        t->now += left;
        t->useful += left;
        t->since = 0;
        if (t->useful < want) {
            t->now += stall;
            t->stalled += stall;
        }
    }
}

static void fail(const sn_sim_plan_of_run *p, clock *t, sn_prng *rng)
{
    double lost = p->recovery.from_peers ? p->step_seconds * sn_prng_uniform(rng) : t->since;
    lost = fmin(lost, t->useful);
    t->useful -= lost;
    t->lost += lost;
    t->since = fmax(0, t->since - lost);
    t->now += p->recovery.detect + p->recovery.restart;
    t->away += p->recovery.detect + p->recovery.restart;
}

static void cost(const sn_sim_plan_of_run *p, sn_sim_ran *ret)
{
    double nodes = ceil((double) p->cards / p->per_host), hours = ret->days * 24;
    double watts = p->cards * p->card_watts + nodes * p->host_watts;
    ret->kwh = watts * p->pue / 1000 * hours;
    ret->dollars_of_power = ret->kwh * p->dollars_per_kwh;
    ret->dollars = p->cards * hours * p->dollars_per_card_hour;
    ret->co2_kg = ret->kwh * p->co2_kg_per_kwh;
}

static sn_status check(const sn_sim_plan_of_run *p)
{
    if (p->step_seconds <= 0 || p->cards < 1 || p->per_host < 1 ||
        p->failures_per_1000_node_days < 0)
        return sn_fail(SN_EINVAL, "a run needs a step that takes time, cards, and a rate of "
                                  "failures that is not negative");
    if (p->tokens <= 0 && p->days <= 0)
        return sn_fail(SN_EINVAL, "a run needs an end: tokens or days");
    if (rate_of(p) * (p->recovery.detect + p->recovery.restart) >= 1)
        return sn_fail(SN_EFIT,
                       "%d cards fail every %.0f s on average and are away for %.0f s each "
                       "time: such a run never ends",
                       p->cards, 1 / rate_of(p), p->recovery.detect + p->recovery.restart);
    return SN_OK;
}

sn_status sn_sim_run(const sn_sim_plan_of_run *p, sn_sim_ran *ret)
{
    sn_prng rng = {.seed = p->seed};
    clock t = {0};
    SN_TRY(check(p));
    double rate = rate_of(p);
    double interval = p->recovery.saves_every > 0 ? p->recovery.saves_every : best_interval(p);
    double want = p->tokens > 0 ? p->tokens / p->tokens_per_step * p->step_seconds : HUGE_VAL;
    double end = p->tokens > 0 ? HUGE_VAL : p->days * DAY;
    *ret = (sn_sim_ran){.interval = interval, .expected = useful_of(p, interval)};
    if (p->tokens > 0 && ret->expected <= 0)
        return sn_fail(SN_EFIT, "nothing is left between failures %.0f s apart", 1 / rate);
    while (t.now < end && t.useful < want) {
        double next = rate > 0 ? t.now - log(1 - sn_prng_uniform(&rng)) / rate : HUGE_VAL;
        compute(p, interval, fmin(next, end), want, &t);
        if (t.now >= end || t.useful >= want || rate <= 0)
            break;
        ret->failures++;
        fail(p, &t, &rng);
    }
    ret->days = t.now / DAY;
    ret->useful = t.useful / t.now;
    ret->lost = t.lost / t.now;
    ret->stalled = t.stalled / t.now;
    ret->restarting = t.away / t.now;
    ret->availability = 1 - ret->restarting;
    ret->spares = spares_of(p);
    cost(p, ret);
    return SN_OK;
}
