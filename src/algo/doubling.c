/* SPDX-License-Identifier: Apache-2.0
 *
 * recursive_doubling — between hosts in ⌈log2 h⌉ exchanges, each with a host twice as far away.
 *
 *   all_reduce   0 ◀▶ 1   2 ◀▶ 3        the whole part each time; both sides add in the same order.
 *                0 ◀────▶ 2             Hosts beyond a power of two are folded in and out
 *                    1 ◀────▶ 3
 *
 *   all_gather   step k: host x sends all it has to x - 2^k and is sent by x + 2^k what that has:
 *                1, 2, 4 … hosts' blocks, so any number of hosts needs no fold. A lane carries the
 *                blocks of its members; blocks that lie side by side are one message
 *
 * Inside a host as in lanes.h. Few and short messages: wins for small operations among many hosts,
 * where `hierarchical` would send to each of them.
 *
 * Source: Thakur, Rabenseifner & Gropp, "Optimization of collective communication operations in
 * MPICH", IJHPCA 19(1), 2005; Bruck et al., "Efficient algorithms for all-to-all communications in
 * multiport message-passing systems", IEEE TPDS 8(11), 1997. */
#include "algo/lanes.h"

/* Stages: in, doublings, out; in and out only where hosts are folded. */
static int64_t came(const algo_lanes *t, int64_t count)
{
    return count;
}

static void post(const algo_part *p, int stage)
{
    algo_fold f = algo_fold_of(p->t->m.hosts, p->t->host);
    int step = stage - (f.extra > 0);
    if (step < 0) {
        algo_fold_in_post(p, &f);
    } else if (1 << step == f.power) {
        algo_fold_out_post(p, &f);
    } else if (f.index >= 0) {
        int h = algo_fold_host(&f, f.index ^ 1 << step);
        algo_part_send(p, h, algo_part_sum(p, 0), p->count);
        algo_part_recv(p, h, algo_part_came(p, 0), p->count);
    }
}

static void work(const algo_part *p, int stage)
{
    algo_fold f = algo_fold_of(p->t->m.hosts, p->t->host);
    int step = stage - (f.extra > 0);
    if (step < 0)
        algo_fold_in_work(p, &f);
    else if (1 << step < f.power && f.index >= 0)
        algo_part_sum_came(p, algo_fold_host(&f, f.index ^ 1 << step), 0, p->count,
                           2 << step == f.power);
}

static algo_flow flow(const algo_shape *s, const sn_algo_group *g, const sn_algo_call *c)
{
    algo_fold fold = algo_fold_of(s->hosts, 0);
    int steps = algo_log2_up(fold.power), folds = fold.extra > 0;
    double bytes = (double) algo_bytes(c), wide = algo_lanes_widened(c);
    double sent = (steps + folds) * wide * bytes + folds * bytes;
    algo_flow f = algo_lanes_flow(s, c);
    f.stages = steps + 2 * folds;
    f.adding = steps + folds;
    f.works = true;
    f.posts = 2 * s->most_lanes;
    f.messages = f.stages * (s->most_lanes - 1);
    algo_lanes_sent(&f, s, c, sent, sent);
    algo_flow_both(&f, ALGO_REDUCE, 3 * wide * (steps + folds) * algo_lanes_slice(s, c));
    return f;
}

static const algo_across across = {
    .flow = flow, .came = came, .enter = algo_part_sum_all, .post = post, .work = work};

/* ---- all_gather ---- */

/* Is member i's block among those of my lane on the hosts first … first + hosts - 1, around? */
static bool carried(const algo_lanes *t, int i, int first, int hosts)
{
    int ahead = (t->m.host[i] - first + t->m.hosts) % t->m.hosts;
    return t->m.local[i] % t->shape.size_min == t->local && ahead < hosts;
}

/* Those blocks, to or from `peer`, a message for each run of neighbours. */
static void blocks(algo_lanes *t, int peer, int first, int hosts, bool send)
{
    int64_t n = t->b.call->count;
    for (int i = 0; i < t->b.members; i++) {
        int from = i;
        while (i < t->b.members && carried(t, i, first, hosts))
            i++;
        sn_place at = algo_at(t->me, SN_BUF_OUT, n * from);
        if (i > from && send)
            algo_send(&t->b, peer, at, n * (i - from));
        else if (i > from)
            algo_recv(&t->b, peer, at, n * (i - from));
    }
}

/* The blocks of my lane on my host, which nobody else sends. */
static void collect(algo_lanes *t)
{
    int64_t n = t->b.call->count;
    for (int l = t->local; l < t->size; l += t->shape.size_min) {
        int i = algo_map_member(&t->m, t->host, l);
        algo_copy(&t->b, algo_at(t->me, SN_BUF_OUT, n * i), algo_at(i, SN_BUF_IN, 0), n);
    }
}

static void all_gather(algo_lanes *t)
{
    int64_t n = t->b.call->count;
    int hosts = t->m.hosts, lanes = t->shape.size_min;
    algo_enter(&t->b);
    if (t->local < lanes) {
        collect(t);
        for (int have = 1; have < hosts; have *= 2) {
            int more = SN_MIN(have, hosts - have), from = (t->host + have) % hosts;
            int to = (t->host - have + hosts) % hosts;
            blocks(t, algo_map_member(&t->m, to, t->local), t->host, more, true);
            blocks(t, algo_map_member(&t->m, from, t->local), from, more, false);
            algo_fence(&t->b);
        }
    }
    algo_enter(&t->b);
    for (int k = 0; k < t->b.members; k++) {
        int i = (t->me + k) % t->b.members, lane = t->m.local[i] % lanes;
        if (lane == t->local)
            continue;
        int from = algo_map_member(&t->m, t->host, lane);
        algo_copy(&t->b, algo_at(t->me, SN_BUF_OUT, n * i), algo_at(from, SN_BUF_OUT, n * i), n);
    }
    algo_enter(&t->b);
}

static sn_status schedule(const sn_algo_group *g, const sn_algo_call *c, int me, sn_arena *arena,
                          sn_sched *ret)
{
    if (c->op == SN_ALL_REDUCE)
        return algo_lanes_schedule(g, c, me, arena, "recursive_doubling", &across, ret);
    algo_lanes t = algo_lanes_begin(g, c, me, arena);
    all_gather(&t);
    algo_build_end(&t.b, "recursive_doubling", 3, t.shape.size_max > 1, ret);
    return SN_OK;
}

static void count(const algo_shape *s, const sn_algo_group *g, const sn_algo_call *c,
                  const sn_algo_model *m, algo_counts *ret)
{
    double bytes = (double) algo_bytes(c), p = s->members, l = s->size_max;
    if (c->op == SN_ALL_REDUCE) {
        algo_lanes_count(s, g, c, m, &across, ret);
        return;
    }
    double far = (p - s->size_min) * bytes, mine = far / s->size_min;
    *ret = (algo_counts){.of = {[ALGO_CALL] = 1,
                                [ALGO_SIGNAL] = l > 1 ? 3 : 0,
                                [ALGO_COPY] = p * bytes - mine,
                                [ALGO_LATENCY] = algo_log2_up(s->hosts),
                                [ALGO_WIRE] = far,
                                [ALGO_SOCKET] = 2 * mine}};
}

const sn_algo_row algo_doubling = {
    .name = "recursive_doubling",
    .needs = "several hosts",
    .ops = 1u << SN_ALL_REDUCE | 1u << SN_ALL_GATHER,
    .notes = true,
    .fits = algo_lanes_fits,
    .schedule = schedule,
    .count = count,
};
