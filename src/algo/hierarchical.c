/* SPDX-License-Identifier: Apache-2.0
 *
 * hierarchical — inside a host by loads and stores, and straight between all hosts (lanes.h).
 *
 *   all_reduce   each lane cuts its slice into a piece a host: a piece goes to its owner, who
 *                reduces all of them in host order with one rounding, and comes back: two
 *                latencies, 2(h-1)/h of the slice on the wire. A small one goes whole, one latency
 *
 * Fits every group of several hosts, and every operation. A member sends to h-1 others at once,
 * which among many hosts is what it costs.
 *
 * Cost: rounds · signal + in-host bytes / memory + 1 or 2 · latency + messages + bytes / wire. */
#include "algo/lanes.h"

static bool fits(const sn_algo_group *g, const sn_algo_call *c)
{
    return !algo_one_host(g);
}

/* Where the other hosts' contributions come to: host h's at place h of my scratch, mine at `own`.
 */
static sn_place *of_hosts(algo_lanes *t, int64_t each, sn_place own)
{
    sn_place *p = SN_NEW_N(t->b.arena, sn_place, t->m.hosts);
    for (int h = 0; h < t->m.hosts; h++)
        p[h] = h == t->host ? own : algo_at(t->me, SN_BUF_TMP, each * h);
    return p;
}

/* Everybody's whole part to everybody, all reduce it. */
static void across_small(algo_lanes *t, sn_place part, int64_t count)
{
    for (int k = 1; k < t->m.hosts; k++) {
        int h = (t->host + k) % t->m.hosts, peer = algo_lanes_peer(t, h);
        algo_send(&t->b, peer, part, count);
        algo_recv(&t->b, peer, algo_at(t->me, SN_BUF_TMP, count * h), count);
    }
    algo_fence(&t->b);
    algo_reduce(&t->b, &part, 1, of_hosts(t, count, part), t->m.hosts, count, true);
}

/* A piece a host: to its owner, who reduces it, and back. */
static void across(algo_lanes *t, sn_place part, int64_t count)
{
    int hosts = t->m.hosts;
    algo_range mine = algo_slice(count, hosts, t->host);
    if (algo_lanes_small(t->b.call)) {
        across_small(t, part, count);
        return;
    }
    for (int k = 1; k < hosts; k++) {
        int h = (t->host + k) % hosts, peer = algo_lanes_peer(t, h);
        algo_range theirs = algo_slice(count, hosts, h);
        algo_send(&t->b, peer, algo_at(t->me, part.buf, part.at + theirs.at), theirs.count);
        algo_recv(&t->b, peer, algo_at(t->me, SN_BUF_TMP, mine.count * h), mine.count);
    }
    algo_fence(&t->b);
    sn_place own = algo_at(t->me, part.buf, part.at + mine.at);
    algo_reduce(&t->b, &own, 1, of_hosts(t, mine.count, own), hosts, mine.count, true);
    for (int k = 1; k < hosts; k++) {
        int h = (t->host + k) % hosts, peer = algo_lanes_peer(t, h);
        algo_range theirs = algo_slice(count, hosts, h);
        algo_send(&t->b, peer, own, mine.count);
        algo_recv(&t->b, peer, algo_at(t->me, part.buf, part.at + theirs.at), theirs.count);
    }
    algo_fence(&t->b);
}

static void all_reduce(algo_lanes *t)
{
    algo_lanes_all_reduce(t, across);
}

/* Block t of every member's IN is reduced on each host by one of its members, who sends the partial
 * sum to member t. */
static void reduce_scatter(algo_lanes *t)
{
    int64_t n = t->b.call->count, used = n * t->m.hosts;
    sn_place own = algo_at(t->me, SN_BUF_TMP, n * t->host), out = algo_at(t->me, SN_BUF_OUT, 0);
    algo_enter(&t->b);
    for (int k = 0; k < t->b.members; k++) {
        int block = (t->me + k) % t->b.members, h = t->m.host[block];
        if (h == t->host ? block != t->me
                         : algo_lanes_speaker(t, t->host, t->m.local[block]) != t->me)
            continue;
        sn_place part = block == t->me ? own : algo_at(t->me, SN_BUF_TMP, used);
        algo_reduce(&t->b, &part, 1, algo_lanes_of_host(t, SN_BUF_IN, n * block), t->size, n,
                    false);
        if (block == t->me)
            continue;
        algo_send(&t->b, block, part, n);
        used += n;
    }
    for (int k = 1; k < t->m.hosts; k++) {
        int h = (t->host + k) % t->m.hosts;
        algo_recv(&t->b, algo_lanes_speaker(t, h, t->local), algo_at(t->me, SN_BUF_TMP, n * h), n);
    }
    algo_fence(&t->b);
    algo_reduce(&t->b, &out, 1, of_hosts(t, n, own), t->m.hosts, n, true);
    algo_enter(&t->b);
}

/* A member's block goes to one member of every other host, the others there copy it from that. */
static void all_gather(algo_lanes *t)
{
    int64_t n = t->b.call->count;
    int p = t->b.members;
    algo_enter(&t->b);
    for (int h = 0; h < t->m.hosts; h++)
        if (h != t->host)
            algo_send(&t->b, algo_lanes_speaker(t, h, t->local), algo_at(t->me, SN_BUF_IN, 0), n);
    for (int i = 0; i < p; i++)
        if (t->m.host[i] != t->host && algo_lanes_speaker(t, t->host, t->m.local[i]) == t->me)
            algo_recv(&t->b, i, algo_at(t->me, SN_BUF_OUT, n * i), n);
    algo_fence(&t->b);
    algo_enter(&t->b);
    for (int k = 0; k < p; k++) {
        int i = (t->me + k) % p;
        bool here = t->m.host[i] == t->host;
        int from = here ? i : algo_lanes_speaker(t, t->host, t->m.local[i]);
        sn_place out = algo_at(t->me, SN_BUF_OUT, n * i);
        algo_copy(&t->b, out, here ? algo_at(i, SN_BUF_IN, 0) : algo_at(from, SN_BUF_OUT, n * i),
                  n);
    }
    algo_enter(&t->b);
}

/* The root sends to one member of every other host; inside a host the others copy from it. */
static void from_root(algo_lanes *t, sn_place part, int64_t count)
{
    int root = t->b.call->root, local = t->m.local[root];
    for (int k = 1; k < t->m.hosts && t->me == root; k++)
        algo_send(&t->b, algo_lanes_speaker(t, (t->host + k) % t->m.hosts, local), part, count);
    if (t->me != root) {
        algo_recv(&t->b, root, part, count);
        algo_fence(&t->b);
    }
}

static void broadcast(algo_lanes *t)
{
    algo_lanes_broadcast(t, from_root);
}

/* Half of a pair's exchange inside a host, as in flat: the lower member moves the first half. */
static void swap(algo_lanes *t, int peer)
{
    int64_t n = t->b.call->count;
    algo_range r = algo_slice(n, 2, t->me > peer);
    sn_place tmp = algo_at(t->me, SN_BUF_TMP, 0);
    int64_t x = n * peer + r.at, y = n * t->me + r.at;
    algo_copy(&t->b, tmp, algo_at(t->me, SN_BUF_IN, x), r.count);
    algo_copy(&t->b, algo_at(t->me, SN_BUF_OUT, x), algo_at(peer, SN_BUF_IN, y), r.count);
    algo_copy(&t->b, algo_at(peer, SN_BUF_OUT, y), tmp, r.count);
}

static void all_to_all(algo_lanes *t)
{
    int64_t n = t->b.call->count;
    int p = t->b.members;
    sn_buf into = t->b.call->in_place ? SN_BUF_TMP : SN_BUF_OUT;
    algo_enter(&t->b);
    for (int k = 1; k < p; k++) {
        int to = (t->me + k) % p, from = (t->me + p - k) % p;
        if (t->m.host[to] != t->host)
            algo_send(&t->b, to, algo_at(t->me, SN_BUF_IN, n * to), n);
        if (t->m.host[from] != t->host)
            algo_recv(&t->b, from,
                      algo_at(t->me, into, into == SN_BUF_TMP ? n * (1 + from) : n * from), n);
    }
    algo_copy(&t->b, algo_at(t->me, SN_BUF_OUT, n * t->me), algo_at(t->me, SN_BUF_IN, n * t->me),
              n);
    for (int i = 0; i < t->size; i++) {
        int peer = algo_map_member(&t->m, t->host, (t->local + i) % t->size);
        if (peer != t->me)
            swap(t, peer);
    }
    algo_fence(&t->b);
    for (int i = 0; i < p && into == SN_BUF_TMP; i++)
        if (t->m.host[i] != t->host)
            algo_copy(&t->b, algo_at(t->me, SN_BUF_OUT, n * i),
                      algo_at(t->me, SN_BUF_TMP, n * (1 + i)), n);
    algo_enter(&t->b);
}

/* One byte between the first members tells each host that the others have all come. */
static void barrier(algo_lanes *t)
{
    algo_enter(&t->b);
    if (t->local == 0) {
        for (int k = 1; k < t->m.hosts; k++) {
            int h = (t->host + k) % t->m.hosts, peer = algo_map_member(&t->m, h, 0);
            algo_send(&t->b, peer, algo_at(t->me, SN_BUF_NOTE, 0), 1);
            algo_recv(&t->b, peer, algo_at(t->me, SN_BUF_TMP, h), 1);
        }
        algo_fence(&t->b);
        algo_signal(&t->b);
    }
    algo_wait(&t->b, t->leader, 2);
}

static sn_status schedule(const sn_algo_group *g, const sn_algo_call *c, int me, sn_arena *arena,
                          sn_sched *ret)
{
    static void (*const build[SN_COLL_OPS])(algo_lanes *) = {
        [SN_ALL_REDUCE] = all_reduce,        [SN_REDUCE_SCATTER] = reduce_scatter,
        [SN_ALL_GATHER] = all_gather,        [SN_BROADCAST] = broadcast,
        [SN_ALL_TO_ALL] = all_to_all,        [SN_GATHER] = algo_rooted_straight,
        [SN_SCATTER] = algo_rooted_straight, [SN_BARRIER] = barrier,
    };
    static const int rounds[SN_COLL_OPS] = {3, 2, 3, 3, 2, 2, 2, 2};
    algo_lanes t = algo_lanes_begin(g, c, me, arena);
    build[c->op](&t);
    bool notes = c->op == SN_BARRIER || (c->op == SN_ALL_REDUCE && algo_lanes_small(c));
    algo_build_end(&t.b, "hierarchical", rounds[c->op], !notes && !algo_one_member_hosts(g), ret);
    return SN_OK;
}

static double cost_ns(const sn_algo_group *g, const sn_algo_call *c, const sn_algo_model *m)
{
    double bytes = (double) algo_bytes(c), h = algo_hosts(g), l = algo_host_size_max(g);
    double p = g->members, part = algo_lanes_part(g, c);
    int others = algo_hosts(g) - 1;
    switch (c->op) {
    case SN_ALL_REDUCE:
        if (algo_lanes_small(c))
            return algo_lanes_ns(g, c, m) + algo_reduce_ns(m, (h + 1) * part) +
                   algo_wire_ns(m, 1, others, others * bytes);
        return algo_lanes_ns(g, c, m) + algo_reduce_ns(m, (1 + 1 / h) * part) +
               algo_wire_ns(m, 2, others, 2 * others / h * bytes);
    case SN_REDUCE_SCATTER:
        return algo_signal_ns(m, 2) + algo_reduce_ns(m, (p + h) * bytes) +
               algo_wire_ns(m, 1, others, others * l * bytes);
    case SN_ALL_GATHER: /* of the other hosts' blocks, a member's part comes straight to it */
        return algo_signal_ns(m, 3) + algo_copy_ns(m, (p - (p - l) / l) * bytes) +
               algo_wire_ns(m, 1, others, (p - l) * bytes);
    case SN_BROADCAST:
        return algo_lanes_ns(g, c, m) + algo_wire_ns(m, 1, others, others * bytes);
    case SN_ALL_TO_ALL:
        return algo_signal_ns(m, 2) + algo_copy_ns(m, 2 * p * bytes) +
               algo_wire_ns(m, 1, others * (int) l, (p - l) * l * bytes);
    case SN_GATHER:
    case SN_SCATTER:
        return algo_signal_ns(m, 2) + algo_copy_ns(m, bytes) +
               algo_wire_ns(m, 1, (int) (p - l), (p - l) * bytes);
    case SN_BARRIER:
    case SN_COLL_OPS:
        break;
    }
    return algo_signal_ns(m, 2) + algo_wire_ns(m, 1, others, 1);
}

const sn_algo_row algo_hierarchical = {
    .name = "hierarchical",
    .needs = "several hosts",
    .ops = (1u << SN_COLL_OPS) - 1,
    .notes = true,
    .fits = fits,
    .schedule = schedule,
    .cost_ns = cost_ns,
};
