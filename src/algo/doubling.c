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

static bool fits(const sn_algo_group *g, const sn_algo_call *c)
{
    return algo_lanes_fits(g, c);
}

static void across(algo_lanes *t, sn_place part, int64_t count)
{
    algo_fold f = algo_fold_of(t->m.hosts, t->host);
    algo_fold_in(t, &f, part, count);
    for (int far = 1; far < f.power && f.index >= 0; far *= 2) {
        int h = algo_fold_host(&f, f.index ^ far), peer = algo_lanes_peer(t, h);
        algo_send(&t->b, peer, part, count);
        algo_recv(&t->b, peer, algo_at(t->me, SN_BUF_TMP, 0), count);
        algo_fence(&t->b);
        algo_lanes_add(t, h, part, count, far * 2 == f.power);
    }
    algo_fold_out(t, &f, part, count);
}

/* ---- all_gather ---- */

/* Is member i's block among those of my lane on the hosts first … first + hosts - 1, around? */
static bool carried(const algo_lanes *t, int i, int first, int hosts)
{
    int ahead = (t->m.host[i] - first + t->m.hosts) % t->m.hosts;
    return t->m.local[i] % t->m.lanes == t->local && ahead < hosts;
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
    for (int l = t->local; l < t->size; l += t->m.lanes) {
        int i = algo_map_member(&t->m, t->host, l);
        algo_copy(&t->b, algo_at(t->me, SN_BUF_OUT, n * i), algo_at(i, SN_BUF_IN, 0), n);
    }
}

static void all_gather(algo_lanes *t)
{
    int64_t n = t->b.call->count;
    int hosts = t->m.hosts, lanes = t->m.lanes;
    algo_enter(&t->b);
    if (t->local < lanes) {
        collect(t);
        for (int have = 1; have < hosts; have *= 2) {
            int more = SN_MIN(have, hosts - have), from = (t->host + have) % hosts;
            int to = (t->host - have + hosts) % hosts;
            blocks(t, algo_lanes_peer(t, to), t->host, more, true);
            blocks(t, algo_lanes_peer(t, from), from, more, false);
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
    algo_lanes t = algo_lanes_begin(g, c, me, arena);
    if (c->op == SN_ALL_GATHER)
        all_gather(&t);
    else
        algo_lanes_all_reduce(&t, across);
    algo_lanes_end(&t, "recursive_doubling", ret);
    return SN_OK;
}

static double cost_ns(const sn_algo_group *g, const sn_algo_call *c, const sn_algo_model *m)
{
    double bytes = (double) algo_bytes(c), p = g->members, l = algo_host_size_max(g);
    int hosts = algo_hosts(g);
    if (c->op == SN_ALL_GATHER)
        return algo_signal_ns(m, 3) + algo_copy_ns(m, (p - (p - l) / l) * bytes) +
               algo_wire_ns(m, algo_log2_up(hosts), 1, (p - l) * bytes);
    algo_fold f = algo_fold_of(hosts, 0);
    int steps = algo_log2_up(f.power), folds = f.extra > 0;
    return algo_lanes_ns(g, c, m) + algo_reduce_ns(m, 3 * (steps + folds) * algo_lanes_part(g, c)) +
           algo_wire_ns(m, steps + 2 * folds, 1, (steps + 2 * folds) * bytes);
}

const sn_algo_row algo_doubling = {
    .name = "recursive_doubling",
    .needs = "several hosts; sums in bf16: two hosts",
    .ops = 1u << SN_ALL_REDUCE | 1u << SN_ALL_GATHER,
    .notes = true,
    .fits = fits,
    .schedule = schedule,
    .cost_ns = cost_ns,
};
