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

/* Chunks [first, first + n) of the part cut into `power`. */
static algo_range chunks(int64_t count, int power, int first, int n)
{
    algo_range a = algo_slice(count, power, first), b = algo_slice(count, power, first + n - 1);
    return (algo_range){.at = a.at, .count = b.at + b.count - a.at};
}

/* Stages: in, halvings, joins, out; in and out only where hosts are folded. */
typedef struct place {
    algo_fold f;
    int half; /* of a halving: how many chunks are kept, 0: none */
    int have; /* of a join: how many chunks each has, 0: none */
    bool in, out;
} place;

static place find(const algo_part *p, int stage)
{
    place at = {.f = algo_fold_of(p->t->m.hosts, p->t->host)};
    int steps = algo_log2_up(at.f.power), step = stage - (at.f.extra > 0);
    at.in = step < 0;
    at.out = step == 2 * steps;
    if (!at.in && step < steps)
        at.half = at.f.power >> (step + 1);
    else if (!at.in && !at.out)
        at.have = 1 << (step - steps);
    return at;
}

static int64_t came(const algo_lanes *t, int64_t count)
{
    return count; /* folded in, whole; halves else */
}

static void halve(const algo_part *p, const place *at)
{
    const algo_fold *f = &at->f;
    int half = at->half, h = algo_fold_host(f, f->index ^ half);
    algo_range keep = chunks(p->count, f->power, f->index & ~(half - 1), half);
    algo_range give = chunks(p->count, f->power, (f->index ^ half) & ~(half - 1), half);
    algo_part_send(p, h, algo_part_sum(p, give.at), give.count);
    algo_part_recv(p, h, algo_part_came(p, 0), keep.count);
}

static void join(const algo_part *p, const place *at)
{
    const algo_fold *f = &at->f;
    int have = at->have, h = algo_fold_host(f, f->index ^ have);
    algo_range mine = chunks(p->count, f->power, f->index & ~(have - 1), have);
    algo_range other = chunks(p->count, f->power, (f->index ^ have) & ~(have - 1), have);
    algo_part_send(p, h, algo_part_result(p, mine.at), mine.count);
    algo_part_recv(p, h, algo_part_result(p, other.at), other.count);
}

static void post(const algo_part *p, int stage)
{
    place at = find(p, stage);
    if (at.in)
        algo_fold_in_post(p, &at.f);
    else if (at.out)
        algo_fold_out_post(p, &at.f);
    else if (at.f.index >= 0 && at.half > 0)
        halve(p, &at);
    else if (at.f.index >= 0)
        join(p, &at);
}

static void work(const algo_part *p, int stage)
{
    place at = find(p, stage);
    const algo_fold *f = &at.f;
    if (at.in)
        algo_fold_in_work(p, f);
    if (f->index < 0 || at.half == 0)
        return;
    algo_range keep = chunks(p->count, f->power, f->index & ~(at.half - 1), at.half);
    algo_part_sum_came(p, algo_fold_host(f, f->index ^ at.half), keep.at, keep.count, at.half == 1);
}

static algo_flow flow(const algo_shape *s, const sn_algo_group *g, const sn_algo_call *c)
{
    algo_fold fold = algo_fold_of(s->hosts, 0);
    int steps = algo_log2_up(fold.power), folds = fold.extra > 0;
    double cut = (fold.power - 1) / (double) fold.power, wide = algo_lanes_widened(c);
    double sent = (cut + folds) * (wide + 1) * (double) algo_bytes(c);
    algo_flow f = algo_lanes_flow(s, c);
    f.stages = 2 * steps + 2 * folds;
    f.adding = steps + folds;
    f.works = true;
    f.posts = 2 * s->most_lanes;
    f.messages = f.stages * (s->most_lanes - 1);
    algo_lanes_sent(&f, s, c, sent, sent);
    algo_flow_both(&f, ALGO_REDUCE, 3 * wide * (cut + folds) * algo_lanes_slice(s, c));
    return f;
}

static const algo_across across = {
    .flow = flow, .came = came, .enter = algo_part_sum_all, .post = post, .work = work};

static sn_status schedule(const sn_algo_group *g, const sn_algo_call *c, int me, sn_arena *arena,
                          sn_sched *ret)
{
    return algo_lanes_schedule(g, c, me, arena, "rabenseifner", &across, ret);
}

static void count(const algo_shape *s, const sn_algo_group *g, const sn_algo_call *c,
                  const sn_algo_model *m, algo_counts *ret)
{
    algo_lanes_count(s, g, c, m, &across, ret);
}

const sn_algo_row algo_rabenseifner = {
    .name = "rabenseifner",
    .needs = "several hosts",
    .ops = 1u << SN_ALL_REDUCE,
    .notes = true,
    .fits = algo_lanes_fits,
    .schedule = schedule,
    .count = count,
};
