/* SPDX-License-Identifier: Apache-2.0
 *
 * hierarchical — inside a host by loads and stores, across hosts in parallel lanes.
 *
 *            host 0            host 1
 *   lane 0   m0  ◀───slice 0───▶  m4        1. reduce slice k of all members of my host (lane k)
 *   lane 1   m1  ◀───slice 1───▶  m5        2. exchange it with lane k of the other hosts
 *   lane 2   m2  ◀───slice 2───▶  m6        3. gather the slices from the other lanes of my host
 *                                 m7        (in no lane: takes part in 3 only)
 *
 * Any map of members to hosts works; there are as many lanes as the smallest host has members. The
 * exchange of a lane is direct: each host's piece goes to its owner, which reduces all of them in
 * host order with one rounding, and comes back: two latencies, 2(h-1)/h of the slice on the wire.
 * A small all_reduce goes whole between the first members, one latency.
 *
 * Cost: rounds · signal + in-host bytes / memory + 1 or 2 · latency + inter-host bytes / wire. */
#include "algo/build.h"

typedef struct tree {
    algo_build b;
    algo_map m;
    int me, host, local, size; /* my host, my place in it, its members */
    int leader;                /* first member of my host */
} tree;

static bool fits(const sn_algo_group *g, const sn_algo_call *c)
{
    return !algo_one_host(g);
}

/* An all_reduce whose input and result both fit the note. */
static bool small(const sn_algo_call *c)
{
    return 2 * algo_bytes(c) <= SN_ALGO_NOTE_BYTES;
}

/* Who on host h speaks for local index `local` of another host. */
static int speaker(const tree *t, int h, int local)
{
    return algo_map_member(&t->m, h, local % t->m.size[h]);
}

/* `buf` at `at` of every member of my host. */
static sn_place *of_host(tree *t, sn_buf buf, int64_t at)
{
    sn_place *p = SN_NEW_N(t->b.arena, sn_place, t->size);
    for (int i = 0; i < t->size; i++)
        p[i] = algo_at(algo_map_member(&t->m, t->host, i), buf, at);
    return p;
}

/* Where the other hosts' contributions come to: host h's at place h of my scratch, mine at `own`.
 */
static sn_place *of_hosts(tree *t, int64_t each, sn_place own)
{
    sn_place *p = SN_NEW_N(t->b.arena, sn_place, t->m.hosts);
    for (int h = 0; h < t->m.hosts; h++)
        p[h] = h == t->host ? own : algo_at(t->me, SN_BUF_TMP, each * h);
    return p;
}

static void all_reduce_small(tree *t)
{
    int64_t n = t->b.call->count;
    sn_place result = algo_at(t->leader, SN_BUF_NOTE, n), out = algo_at(t->me, SN_BUF_OUT, 0);
    algo_copy(&t->b, algo_at(t->me, SN_BUF_NOTE, 0), algo_at(t->me, SN_BUF_IN, 0), n);
    algo_enter(&t->b);
    if (t->local == 0) {
        sn_place own = algo_at(t->me, SN_BUF_TMP, n * t->host);
        algo_reduce(&t->b, &own, 1, of_host(t, SN_BUF_NOTE, 0), t->size, n, false);
        for (int k = 1; k < t->m.hosts; k++) {
            int h = (t->host + k) % t->m.hosts, peer = algo_map_member(&t->m, h, 0);
            algo_send(&t->b, peer, own, n);
            algo_recv(&t->b, peer, algo_at(t->me, SN_BUF_TMP, n * h), n);
        }
        algo_fence(&t->b);
        algo_reduce(&t->b, &result, 1, of_hosts(t, n, own), t->m.hosts, n, true);
        algo_signal(&t->b);
    }
    algo_wait(&t->b, t->leader, 2);
    algo_copy(&t->b, out, result, n);
}

/* Lane `t->local`: my slice, partial in my OUT, becomes the sum over all hosts there. */
static void exchange(tree *t, algo_range slice)
{
    int hosts = t->m.hosts;
    algo_range mine = algo_slice(slice.count, hosts, t->host);
    for (int k = 1; k < hosts; k++) {
        int h = (t->host + k) % hosts, peer = algo_map_member(&t->m, h, t->local);
        algo_range theirs = algo_slice(slice.count, hosts, h);
        algo_send(&t->b, peer, algo_at(t->me, SN_BUF_OUT, slice.at + theirs.at), theirs.count);
        algo_recv(&t->b, peer, algo_at(t->me, SN_BUF_TMP, mine.count * h), mine.count);
    }
    algo_fence(&t->b);
    sn_place own = algo_at(t->me, SN_BUF_OUT, slice.at + mine.at);
    algo_reduce(&t->b, &own, 1, of_hosts(t, mine.count, own), hosts, mine.count, true);
    for (int k = 1; k < hosts; k++) {
        int h = (t->host + k) % hosts, peer = algo_map_member(&t->m, h, t->local);
        algo_range theirs = algo_slice(slice.count, hosts, h);
        algo_send(&t->b, peer, own, mine.count);
        algo_recv(&t->b, peer, algo_at(t->me, SN_BUF_OUT, slice.at + theirs.at), theirs.count);
    }
    algo_fence(&t->b);
}

static void all_reduce(tree *t)
{
    if (small(t->b.call)) {
        all_reduce_small(t);
        return;
    }
    int64_t n = t->b.call->count;
    int lanes = t->m.lanes;
    algo_enter(&t->b);
    if (t->local < lanes) {
        algo_range slice = algo_slice(n, lanes, t->local);
        sn_place part = algo_at(t->me, SN_BUF_OUT, slice.at);
        algo_reduce(&t->b, &part, 1, of_host(t, SN_BUF_IN, slice.at), t->size, slice.count, false);
        exchange(t, slice);
    }
    algo_enter(&t->b);
    for (int k = 0; k < lanes; k++) {
        int lane = (t->local + k) % lanes, from = algo_map_member(&t->m, t->host, lane);
        algo_range slice = algo_slice(n, lanes, lane);
        algo_copy(&t->b, algo_at(t->me, SN_BUF_OUT, slice.at), algo_at(from, SN_BUF_OUT, slice.at),
                  slice.count);
    }
    algo_enter(&t->b);
}

/* Block t of every member's IN is reduced on each host by one of its members, who sends the partial
 * sum to member t. */
static void reduce_scatter(tree *t)
{
    int64_t n = t->b.call->count, used = n * t->m.hosts;
    sn_place own = algo_at(t->me, SN_BUF_TMP, n * t->host), out = algo_at(t->me, SN_BUF_OUT, 0);
    algo_enter(&t->b);
    for (int k = 0; k < t->b.members; k++) {
        int block = (t->me + k) % t->b.members, h = t->m.host[block];
        if (h == t->host ? block != t->me : speaker(t, t->host, t->m.local[block]) != t->me)
            continue;
        sn_place part = block == t->me ? own : algo_at(t->me, SN_BUF_TMP, used);
        algo_reduce(&t->b, &part, 1, of_host(t, SN_BUF_IN, n * block), t->size, n, false);
        if (block == t->me)
            continue;
        algo_send(&t->b, block, part, n);
        used += n;
    }
    for (int k = 1; k < t->m.hosts; k++) {
        int h = (t->host + k) % t->m.hosts;
        algo_recv(&t->b, speaker(t, h, t->local), algo_at(t->me, SN_BUF_TMP, n * h), n);
    }
    algo_fence(&t->b);
    algo_reduce(&t->b, &out, 1, of_hosts(t, n, own), t->m.hosts, n, true);
    algo_enter(&t->b);
}

/* A member's block goes to one member of every other host, the others there copy it from that. */
static void all_gather(tree *t)
{
    int64_t n = t->b.call->count;
    int p = t->b.members;
    algo_enter(&t->b);
    for (int h = 0; h < t->m.hosts; h++)
        if (h != t->host)
            algo_send(&t->b, speaker(t, h, t->local), algo_at(t->me, SN_BUF_IN, 0), n);
    for (int i = 0; i < p; i++)
        if (t->m.host[i] != t->host && speaker(t, t->host, t->m.local[i]) == t->me)
            algo_recv(&t->b, i, algo_at(t->me, SN_BUF_OUT, n * i), n);
    algo_fence(&t->b);
    algo_enter(&t->b);
    for (int k = 0; k < p; k++) {
        int i = (t->me + k) % p;
        bool here = t->m.host[i] == t->host;
        int from = here ? i : speaker(t, t->host, t->m.local[i]);
        sn_place out = algo_at(t->me, SN_BUF_OUT, n * i);
        algo_copy(&t->b, out, here ? algo_at(i, SN_BUF_IN, 0) : algo_at(from, SN_BUF_OUT, n * i),
                  n);
    }
    algo_enter(&t->b);
}

/* The root sends to one member of every other host; inside a host the others copy from it. */
static void broadcast(tree *t)
{
    int64_t n = t->b.call->count;
    int root = t->b.call->root, root_host = t->m.host[root], root_local = t->m.local[root];
    int source = t->host == root_host ? root : speaker(t, t->host, root_local);
    sn_place out = algo_at(t->me, SN_BUF_OUT, 0);
    algo_enter(&t->b);
    for (int k = 1; k < t->m.hosts && t->me == root; k++)
        algo_send(&t->b, speaker(t, (t->host + k) % t->m.hosts, root_local), out, n);
    if (t->me == source && t->me != root) {
        algo_recv(&t->b, root, out, n);
        algo_fence(&t->b);
    }
    algo_signal(&t->b);
    if (t->me != source) {
        algo_wait(&t->b, source, 2);
        algo_copy(&t->b, out, algo_at(source, SN_BUF_OUT, 0), n);
    }
    algo_signal(&t->b);
    if (t->me == source)
        algo_wait(&t->b, SN_ALL, 3);
}

/* Half of a pair's exchange inside a host, as in flat: the lower member moves the first half. */
static void swap(tree *t, int peer)
{
    int64_t n = t->b.call->count;
    algo_range r = algo_slice(n, 2, t->me > peer);
    sn_place tmp = algo_at(t->me, SN_BUF_TMP, 0);
    int64_t x = n * peer + r.at, y = n * t->me + r.at;
    algo_copy(&t->b, tmp, algo_at(t->me, SN_BUF_IN, x), r.count);
    algo_copy(&t->b, algo_at(t->me, SN_BUF_OUT, x), algo_at(peer, SN_BUF_IN, y), r.count);
    algo_copy(&t->b, algo_at(peer, SN_BUF_OUT, y), tmp, r.count);
}

static void all_to_all(tree *t)
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
static void barrier(tree *t)
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
    static void (*const build[SN_COLL_OPS])(tree *) = {
        [SN_ALL_REDUCE] = all_reduce, [SN_REDUCE_SCATTER] = reduce_scatter,
        [SN_ALL_GATHER] = all_gather, [SN_BROADCAST] = broadcast,
        [SN_ALL_TO_ALL] = all_to_all, [SN_BARRIER] = barrier,
    };
    static const int rounds[SN_COLL_OPS] = {3, 2, 3, 3, 2, 2};
    tree t = {.b = algo_build_begin(g, c, me, arena), .m = algo_map_of(g, arena), .me = me};
    t.host = t.m.host[me];
    t.local = t.m.local[me];
    t.size = t.m.size[t.host];
    t.leader = algo_map_member(&t.m, t.host, 0);
    build[c->op](&t);
    bool notes = c->op == SN_BARRIER || (c->op == SN_ALL_REDUCE && small(c));
    algo_build_end(&t.b, "hierarchical", rounds[c->op], !notes && !algo_one_member_hosts(g), ret);
    return SN_OK;
}

/* Time on the wire for `bytes` into one host, `latencies` one after the other. */
static double wire_ns(const sn_algo_model *m, int latencies, double bytes)
{
    return latencies * m->net_latency_ns + bytes / m->net_bytes_per_s * 1e9;
}

static double cost_ns(const sn_algo_group *g, const sn_algo_call *c, const sn_algo_model *m)
{
    double bytes = (double) algo_bytes(c), h = algo_hosts(g), l = algo_host_size_max(g);
    double p = g->members;
    switch (c->op) {
    case SN_ALL_REDUCE:
        if (small(c))
            return algo_signal_ns(m, 2) + algo_reduce_ns(m, (l + h) * bytes) +
                   wire_ns(m, 1, (h - 1) * bytes);
        return algo_signal_ns(m, l > 1 ? 3 : 0) + algo_reduce_ns(m, 2 * bytes) +
               algo_copy_ns(m, l > 1 ? bytes : 0) + wire_ns(m, 2, 2 * (h - 1) / h * bytes);
    case SN_REDUCE_SCATTER:
        return algo_signal_ns(m, 2) + algo_reduce_ns(m, (p + h) * bytes) +
               wire_ns(m, 1, (h - 1) * l * bytes);
    case SN_ALL_GATHER:
        return algo_signal_ns(m, 3) + algo_copy_ns(m, p * bytes) + wire_ns(m, 1, (p - l) * bytes);
    case SN_BROADCAST:
        return algo_signal_ns(m, 3) + algo_copy_ns(m, bytes) + wire_ns(m, 1, (h - 1) * bytes);
    case SN_ALL_TO_ALL:
        return algo_signal_ns(m, 2) + algo_copy_ns(m, 2 * p * bytes) +
               wire_ns(m, 1, (p - l) * l * bytes);
    case SN_BARRIER:
    case SN_COLL_OPS:
        break;
    }
    return algo_signal_ns(m, 2) + wire_ns(m, 1, 1);
}

const sn_algo_row algo_hierarchical = {
    .name = "hierarchical",
    .ops = (1u << SN_COLL_OPS) - 1,
    .fits = fits,
    .schedule = schedule,
    .cost_ns = cost_ns,
};
