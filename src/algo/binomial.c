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

/* Stage k: who is a multiple of 2^(K-k) from the root's host has it, and sends to the one half as
 * far. */
static void post(const algo_part *p, int stage)
{
    const algo_lanes *t = p->t;
    int hosts = t->m.hosts, root = t->m.host[t->b.call->root];
    int at = (t->host - root + hosts) % hosts, far = 1 << (algo_log2_up(hosts) - 1 - stage);
    if (at % (2 * far) == 0 && at + far < hosts)
        algo_part_send(p, (t->host + far) % hosts, algo_part_result(p, 0), p->count);
    if (at % (2 * far) == far)
        algo_part_recv(p, (t->host + hosts - far) % hosts, algo_part_result(p, 0), p->count);
}

static algo_flow flow(const algo_shape *s, const sn_algo_group *g, const sn_algo_call *c)
{
    double bytes = (double) algo_bytes(c);
    algo_flow f = algo_lanes_flow(s, c);
    f.stages = algo_log2_up(s->hosts);
    f.posts = 1;
    f.posts_all = f.stages + 1;
    algo_lanes_sent(&f, s, c, f.stages * bytes, f.stages * bytes);
    return f;
}

static const algo_across across = {.flow = flow, .post = post};

static sn_status schedule(const sn_algo_group *g, const sn_algo_call *c, int me, sn_arena *arena,
                          sn_sched *ret)
{
    if (c->op == SN_BROADCAST)
        return algo_lanes_schedule(g, c, me, arena, "binomial", &across, ret);
    algo_lanes t = algo_lanes_begin(g, c, me, arena);
    algo_rooted_tree(&t);
    algo_build_end(&t.b, "binomial", 2, t.shape.size_max > 1, ret);
    return SN_OK;
}

/* gather and scatter: the blocks of other hosts are copied at both ends. */
static void count(const algo_shape *s, const sn_algo_group *g, const sn_algo_call *c,
                  const sn_algo_model *m, algo_counts *ret)
{
    double bytes = (double) algo_bytes(c), far = (s->members - s->size_min) * bytes;
    if (c->op == SN_BROADCAST) {
        algo_lanes_count(s, g, c, m, &across, ret);
        return;
    }
    *ret = (algo_counts){.of = {[ALGO_CALL] = 1,
                                [ALGO_SIGNAL] = s->size_max > 1 ? 2 : 0,
                                [ALGO_COPY] = 2 * far,
                                [ALGO_LATENCY] = algo_log2_up(s->hosts),
                                [ALGO_WIRE] = far,
                                [ALGO_SOCKET] = far}};
}

const sn_algo_row algo_binomial = {
    .name = "binomial",
    .needs = "several hosts",
    .ops = 1u << SN_BROADCAST | 1u << SN_GATHER | 1u << SN_SCATTER,
    .fits = algo_lanes_fits,
    .schedule = schedule,
    .count = count,
};
