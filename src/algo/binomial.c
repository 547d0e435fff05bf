/* SPDX-License-Identifier: Apache-2.0
 *
 * binomial — broadcast, gather and scatter between hosts along a binomial tree; inside a host as in
 * lanes.h and rooted.c.
 *
 *   0 ──▶ 4 ──▶ 6 ──▶ 7      hosts as seen from the root's; who has the data at x sends it to
 *   │     └───▶ 5            x + 2^k, the farthest first, for all 2^k below x's lowest bit.
 *   ├───▶ 2 ──▶ 3
 *   └───▶ 1
 *
 * ⌈log2 h⌉ hops of the whole: wins among many hosts while latency counts more than bytes. */
#include "algo/lanes.h"

static bool fits(const sn_algo_group *g, const sn_algo_call *c)
{
    return !algo_one_host(g);
}

/* Who speaks on the host `at` places after the root's. */
static int speaker(const algo_lanes *t, int at)
{
    int root = t->b.call->root, h = (t->m.host[root] + at) % t->m.hosts;
    return algo_lanes_speaker(t, h, t->m.local[root]);
}

static void across(algo_lanes *t, sn_place part, int64_t count)
{
    int hosts = t->m.hosts, at = (t->host - t->m.host[t->b.call->root] + hosts) % hosts;
    int below = at > 0 ? at & -at : 1 << algo_log2_up(hosts);
    if (at > 0) {
        algo_recv(&t->b, speaker(t, at & (at - 1)), part, count);
        algo_fence(&t->b);
    }
    for (int far = below / 2; far > 0; far /= 2)
        if (at + far < hosts)
            algo_send(&t->b, speaker(t, at + far), part, count);
}

static sn_status schedule(const sn_algo_group *g, const sn_algo_call *c, int me, sn_arena *arena,
                          sn_sched *ret)
{
    algo_lanes t = algo_lanes_begin(g, c, me, arena);
    if (c->op == SN_BROADCAST)
        algo_lanes_broadcast(&t, across);
    else
        algo_rooted_tree(&t);
    algo_lanes_end(&t, "binomial", ret);
    return SN_OK;
}

static double cost_ns(const sn_algo_group *g, const sn_algo_call *c, const sn_algo_model *m)
{
    int steps = algo_log2_up(algo_hosts(g));
    double l = algo_host_size_min(g), far = (g->members - l) * (double) algo_bytes(c);
    if (c->op != SN_BROADCAST) /* the blocks of other hosts are copied on both ends */
        return algo_signal_ns(m, 2) + algo_copy_ns(m, 2 * far) + algo_wire_ns(m, steps, 1, far);
    return algo_lanes_ns(g, c, m) + algo_wire_ns(m, steps, 1, steps * (double) algo_bytes(c));
}

const sn_algo_row algo_binomial = {
    .name = "binomial",
    .needs = "several hosts",
    .ops = 1u << SN_BROADCAST | 1u << SN_GATHER | 1u << SN_SCATTER,
    .fits = fits,
    .schedule = schedule,
    .cost_ns = cost_ns,
};
