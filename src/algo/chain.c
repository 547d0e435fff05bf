/* SPDX-License-Identifier: Apache-2.0
 *
 * chain — from host to host in group order, and back; inside a host as in lanes.h.
 *
 *   all_reduce   h0 ──sum──▶ h1 ──sum──▶ h2 ──sum──▶ h3     each lane, in segments: the sums go one
 *                   ◀─result─   ◀─result─   ◀─result─       way while the results go the other
 *
 * A host adds its members' inputs to what comes, in their order, so where hosts follow each other
 * in the group the sum is that of members 0, 1, 2 …: this is the deterministic one for long vectors
 * between hosts (ordered.c is the one for short ones and any map). A vector of n bytes passes each
 * link once a way; an inner host sends 2n in all, where a ring sends 2(h-1)/h · n.
 *
 * Cost: (segments + 4(h-1)) · latency + bytes / wire.
 *
 * broadcast: from the root's host around to the last, in segments: n bytes through each host. */
#include "algo/lanes.h"

static int64_t came(const algo_lanes *t, int64_t count)
{
    return count;
}

static void enter(const algo_part *p)
{
    if (p->t->host == 0)
        algo_part_sum_inputs(p, 0, p->count);
}

/* Up: stage k goes from host k to k + 1; back: from hosts-1-k to hosts-2-k. */
static void post(const algo_part *p, int stage)
{
    int hosts = p->t->m.hosts, me = p->t->host;
    bool up = stage < hosts - 1;
    int from = up ? stage : 2 * (hosts - 1) - stage, to = up ? from + 1 : from - 1;
    if (me == from)
        algo_part_send(p, to, up ? algo_part_sum(p, 0) : algo_part_result(p, 0), p->count);
    if (me == to)
        algo_part_recv(p, from, up ? algo_part_came(p, 0) : algo_part_result(p, 0), p->count);
}

static void work(const algo_part *p, int stage)
{
    int hosts = p->t->m.hosts, srcs;
    if (stage >= hosts - 1 || p->t->host != stage + 1)
        return;
    algo_part_begin(p, &srcs);
    algo_part_add(p, &srcs, algo_part_came(p, 0));
    algo_part_add_inputs(p, &srcs, 0);
    algo_part_end(p, srcs, 0, p->count, p->t->host == hosts - 1);
}

static algo_flow flow(const algo_shape *s, const sn_algo_group *g, const sn_algo_call *c)
{
    double bytes = (double) algo_bytes(c), wide = algo_lanes_widened(c);
    double slice = algo_lanes_slice(s, c), hops = s->hosts - 1;
    algo_flow f = algo_lanes_flow(s, c);
    f.stages = 2 * (s->hosts - 1);
    f.adding = s->hosts - 1;
    f.works = true;
    f.posts = s->most_lanes;
    f.posts_all = 4 * s->most_lanes;
    f.messages = f.stages * (s->most_lanes - 1);
    algo_lanes_sent(&f, s, c, hops * (wide + 1) * bytes, (s->hosts > 2 ? wide + 1 : wide) * bytes);
    f.path.of[ALGO_REDUCE] += hops * (s->size_max + 2 * wide) * slice;
    f.steady.of[ALGO_REDUCE] += wide * slice;
    return f;
}

static const algo_across across = {
    .flow = flow, .came = came, .enter = enter, .post = post, .work = work};

/* ---- broadcast ---- */

static void post_on(const algo_part *p, int stage)
{
    const algo_lanes *t = p->t;
    int hosts = t->m.hosts, root = t->m.host[t->b.call->root];
    int at = (t->host - root + hosts) % hosts;
    if (at == stage)
        algo_part_send(p, (t->host + 1) % hosts, algo_part_result(p, 0), p->count);
    if (at == stage + 1)
        algo_part_recv(p, (t->host + hosts - 1) % hosts, algo_part_result(p, 0), p->count);
}

static algo_flow flow_on(const algo_shape *s, const sn_algo_group *g, const sn_algo_call *c)
{
    double bytes = (double) algo_bytes(c);
    algo_flow f = algo_lanes_flow(s, c);
    f.stages = s->hosts - 1;
    f.posts = 1;
    f.posts_all = 2;
    algo_lanes_sent(&f, s, c, f.stages * bytes, bytes);
    return f;
}

static const algo_across on = {.flow = flow_on, .post = post_on};

/* ---- the row ---- */

/* Sums in order need hosts in order; which other groups could do without. */
static bool fits(const algo_shape *s, const sn_algo_group *g, const sn_algo_call *c)
{
    return s->hosts > 1 && (s->contiguous || c->op == SN_BROADCAST);
}

static sn_status schedule(const sn_algo_group *g, const sn_algo_call *c, int me, sn_arena *arena,
                          sn_sched *ret)
{
    return algo_lanes_schedule(g, c, me, arena, "chain", c->op == SN_BROADCAST ? &on : &across,
                               ret);
}

static void count(const algo_shape *s, const sn_algo_group *g, const sn_algo_call *c,
                  const sn_algo_model *m, algo_counts *ret)
{
    algo_lanes_count(s, g, c, m, c->op == SN_BROADCAST ? &on : &across, ret);
}

const sn_algo_row algo_chain = {
    .name = "chain",
    .needs = "several hosts, their members one after the other in the group",
    .ops = 1u << SN_ALL_REDUCE | 1u << SN_BROADCAST,
    .ordered = 1u << SN_ALL_REDUCE,
    .notes = true,
    .fits = fits,
    .schedule = schedule,
    .count = count,
};
