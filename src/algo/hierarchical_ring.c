/* SPDX-License-Identifier: Apache-2.0
 *
 * hierarchical_ring — between hosts along a ring, each lane by itself; inside a host as in lanes.h.
 *
 *   stage k < h-1    host x sends chunk x-k on and adds its own inputs to chunk x-k-1, which comes
 *   then             the finished chunks go round once more
 *
 * 2(h-1)/h of the vector leaves a host whatever the number of its members; a ring of members
 * (ring.c) carries 2(p-1)/p of it over each hop between hosts. A member talks to two others only,
 * where `hierarchical` sends to h-1 at once.
 *
 * The inputs of a host are read when their chunk comes by: nothing is summed beforehand but what a
 * host sends first.
 *
 * Source: Patarasuk & Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
 * JPDC 69(2), 2009. */
#include "algo/lanes.h"

static int around(int i, int hosts)
{
    return ((i % hosts) + hosts) % hosts;
}

static algo_range chunk(const algo_part *p, int i)
{
    return algo_slice(p->count, p->t->m.hosts, around(i, p->t->m.hosts));
}

static int64_t came(const algo_lanes *t, int64_t count)
{
    return algo_slice(count, t->m.hosts, 0).count;
}

static void enter(const algo_part *p)
{
    algo_range r = chunk(p, p->t->host);
    algo_part_sum_inputs(p, r.at, r.count);
}

static void post(const algo_part *p, int stage)
{
    int hosts = p->t->m.hosts, me = p->t->host;
    bool adds = stage < hosts - 1;
    int k = adds ? stage : stage - hosts; /* the gather starts with chunk me + 1 */
    algo_range give = chunk(p, me - k), get = chunk(p, me - k - 1);
    algo_part_send(p, around(me + 1, hosts),
                   adds ? algo_part_sum(p, give.at) : algo_part_result(p, give.at), give.count);
    algo_part_recv(p, around(me - 1, hosts),
                   adds ? algo_part_came(p, 0) : algo_part_result(p, get.at), get.count);
}

static void work(const algo_part *p, int stage)
{
    int hosts = p->t->m.hosts, srcs;
    if (stage >= hosts - 1)
        return;
    algo_range r = chunk(p, p->t->host - stage - 1);
    algo_part_begin(p, &srcs);
    algo_part_add(p, &srcs, algo_part_came(p, 0));
    algo_part_add_inputs(p, &srcs, r.at);
    algo_part_end(p, srcs, r.at, r.count, stage == hosts - 2);
}

static algo_flow flow(const algo_shape *s, const sn_algo_group *g, const sn_algo_call *c)
{
    double h = s->hosts, wide = algo_lanes_widened(c);
    double sent = (h - 1) / h * (wide + 1) * (double) algo_bytes(c);
    algo_flow f = algo_lanes_flow(s, c);
    f.stages = 2 * (s->hosts - 1);
    f.adding = s->hosts - 1;
    f.works = true;
    f.posts = 2 * s->most_lanes;
    f.messages = f.stages * (s->most_lanes - 1);
    algo_lanes_sent(&f, s, c, sent, sent);
    algo_flow_both(&f, ALGO_REDUCE, (h - 1) / h * wide * algo_lanes_slice(s, c));
    return f;
}

static const algo_across across = {
    .flow = flow, .came = came, .enter = enter, .post = post, .work = work};

static sn_status schedule(const sn_algo_group *g, const sn_algo_call *c, int me, sn_arena *arena,
                          sn_sched *ret)
{
    return algo_lanes_schedule(g, c, me, arena, "hierarchical_ring", &across, ret);
}

static void count(const algo_shape *s, const sn_algo_group *g, const sn_algo_call *c,
                  const sn_algo_model *m, algo_counts *ret)
{
    algo_lanes_count(s, g, c, m, &across, ret);
}

const sn_algo_row algo_hierarchical_ring = {
    .name = "hierarchical_ring",
    .needs = "several hosts",
    .ops = 1u << SN_ALL_REDUCE,
    .notes = true,
    .fits = algo_lanes_fits,
    .schedule = schedule,
    .count = count,
};
