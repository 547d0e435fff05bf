/* SPDX-License-Identifier: Apache-2.0
 *
 * rabenseifner — between hosts: reduce-scatter by halving, then all-gather by doubling.
 *
 *   host 0   [a b c d]  keep a b, give c d  ▶ [a b]  keep a, give b  ▶ [a] ▶ [a b] ▶ [a b c d]
 *   partner              host 2                       host 1               host 1    host 2
 *
 * The wire carries 2(h-1)/h of the part, as in a ring, in 2·log2 h steps. Hosts beyond a power of
 * two are folded in and out, which costs them twice the part. Inside a host as in lanes.h.
 *
 * Source: Rabenseifner, "Optimization of collective reduction operations", ICCS 2004. */
#include "algo/lanes.h"

static bool fits(const sn_algo_group *g, const sn_algo_call *c)
{
    return algo_lanes_fits(g, c);
}

/* Chunks [first, first + n) of the part cut into `power`. */
static algo_range chunks(int64_t count, int power, int first, int n)
{
    algo_range a = algo_slice(count, power, first), b = algo_slice(count, power, first + n - 1);
    return (algo_range){.at = a.at, .count = b.at + b.count - a.at};
}

static sn_place part_at(sn_place part, algo_range r)
{
    part.at += r.at;
    return part;
}

static void halve(algo_lanes *t, const algo_fold *f, sn_place part, int64_t count)
{
    for (int half = f->power / 2; half > 0; half /= 2) {
        int h = algo_fold_host(f, f->index ^ half), peer = algo_lanes_peer(t, h);
        algo_range keep = chunks(count, f->power, f->index & ~(half - 1), half);
        algo_range give = chunks(count, f->power, (f->index ^ half) & ~(half - 1), half);
        algo_send(&t->b, peer, part_at(part, give), give.count);
        algo_recv(&t->b, peer, algo_at(t->me, SN_BUF_TMP, 0), keep.count);
        algo_fence(&t->b);
        algo_lanes_add(t, h, part_at(part, keep), keep.count, half == 1);
    }
}

static void join(algo_lanes *t, const algo_fold *f, sn_place part, int64_t count)
{
    for (int have = 1; have < f->power; have *= 2) {
        int peer = algo_lanes_peer(t, algo_fold_host(f, f->index ^ have));
        algo_range mine = chunks(count, f->power, f->index & ~(have - 1), have);
        algo_range other = chunks(count, f->power, (f->index ^ have) & ~(have - 1), have);
        algo_send(&t->b, peer, part_at(part, mine), mine.count);
        algo_recv(&t->b, peer, part_at(part, other), other.count);
        algo_fence(&t->b);
    }
}

static void across(algo_lanes *t, sn_place part, int64_t count)
{
    algo_fold f = algo_fold_of(t->m.hosts, t->host);
    algo_fold_in(t, &f, part, count);
    if (f.index >= 0) {
        halve(t, &f, part, count);
        join(t, &f, part, count);
    }
    algo_fold_out(t, &f, part, count);
}

static sn_status schedule(const sn_algo_group *g, const sn_algo_call *c, int me, sn_arena *arena,
                          sn_sched *ret)
{
    algo_lanes t = algo_lanes_begin(g, c, me, arena);
    algo_lanes_all_reduce(&t, across);
    algo_lanes_end(&t, "rabenseifner", ret);
    return SN_OK;
}

static double cost_ns(const sn_algo_group *g, const sn_algo_call *c, const sn_algo_model *m)
{
    double bytes = (double) algo_bytes(c);
    algo_fold f = algo_fold_of(algo_hosts(g), 0);
    double cut = (f.power - 1) / (double) f.power, folds = f.extra > 0;
    int steps = 2 * algo_log2_up(f.power) + (f.extra > 0 ? 2 : 0);
    return algo_lanes_ns(g, c, m) + algo_reduce_ns(m, 3 * (cut + folds) * algo_lanes_part(g, c)) +
           algo_wire_ns(m, steps, 1, 2 * (cut + folds) * bytes);
}

const sn_algo_row algo_rabenseifner = {
    .name = "rabenseifner",
    .needs = "several hosts; sums in bf16: two hosts",
    .ops = 1u << SN_ALL_REDUCE,
    .notes = true,
    .fits = fits,
    .schedule = schedule,
    .cost_ns = cost_ns,
};
