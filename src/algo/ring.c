/* SPDX-License-Identifier: Apache-2.0
 *
 * ring — every member talks to its two neighbours only, in group order, on any hosts.
 *
 *   all_reduce, phase k of p-1:   left ──chunk me-k-1──▶ me ──chunk me-k──▶ right    (reduce)
 *   and again p-1 phases:         left ──chunk me-k────▶ me ──chunk me-k+1─▶ right   (gather)
 *
 * A neighbour on my host is read in place (its round says how far it is), another by SEND and RECV.
 * Every element's sum runs along one chain and is finished by one member. In bf16 each hop would
 * round, so bf16 sums are refused beyond two members; so is a reduce_scatter with neighbours on one
 * host, whose partial sums have no shared place to be.
 *
 * Cost: 2(p-1) · latency + 2(p-1)/p · bytes / bandwidth.
 * Source: Patarasuk & Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
 * JPDC 69(2), 2009. */
#include "algo/build.h"

typedef struct ring {
    algo_build b;
    int p, left, right;
    bool left_here, right_here; /* on my host */
} ring;

static bool fits(const sn_algo_group *g, const sn_algo_call *c)
{
    if (g->members < 2)
        return false;
    if (algo_reduces(c->op) && c->dtype == SN_BF16 && g->members > 2)
        return false;
    return c->op != SN_REDUCE_SCATTER || algo_one_member_hosts(g);
}

static int around(const ring *r, int i)
{
    return ((i % r->p) + r->p) % r->p;
}

/* Give `count` elements at `src` to the right neighbour, when it cannot read them itself. */
static void give(ring *r, sn_place src, int64_t count)
{
    if (!r->right_here)
        algo_send(&r->b, r->right, src, count);
}

/* Chunk `at` from the left: where it can be read once it has come, in the left's OUT (or IN) or in
 * my buffer `mine`. `round`: the left's, in which it is there. */
static sn_place take(ring *r, sn_place theirs, sn_place mine, int64_t count, int round)
{
    if (!r->left_here)
        algo_recv(&r->b, r->left, mine, count);
    if (!r->left_here || !r->right_here)
        algo_fence(&r->b);
    if (r->left_here)
        algo_wait(&r->b, r->left, round);
    return r->left_here ? theirs : mine;
}

static void all_reduce(ring *r)
{
    int64_t n = r->b.call->count;
    int me = r->b.me, p = r->p;
    algo_enter(&r->b);
    for (int k = 0; k < p - 1; k++) {
        sn_buf from = k > 0 ? SN_BUF_OUT : SN_BUF_IN;
        algo_range s = algo_slice(n, p, around(r, me - k));
        algo_range t = algo_slice(n, p, around(r, me - k - 1));
        give(r, algo_at(me, from, s.at), s.count);
        sn_place src[2] = {
            take(r, algo_at(r->left, from, t.at), algo_at(me, SN_BUF_TMP, 0), t.count, 1 + k),
            algo_at(me, SN_BUF_IN, t.at)};
        sn_place out = algo_at(me, SN_BUF_OUT, t.at);
        algo_reduce(&r->b, &out, 1, src, 2, t.count, k == p - 2);
        algo_signal(&r->b);
    }
    for (int k = 0; k < p - 1; k++) {
        algo_range s = algo_slice(n, p, around(r, me + 1 - k));
        algo_range t = algo_slice(n, p, around(r, me - k));
        sn_place out = algo_at(me, SN_BUF_OUT, t.at);
        give(r, algo_at(me, SN_BUF_OUT, s.at), s.count);
        algo_copy(&r->b, out, take(r, algo_at(r->left, SN_BUF_OUT, t.at), out, t.count, p + k),
                  t.count);
        algo_signal(&r->b);
    }
}

static void reduce_scatter(ring *r)
{
    int64_t n = r->b.call->count;
    int me = r->b.me, p = r->p;
    algo_enter(&r->b);
    for (int k = 0; k < p - 1; k++) {
        int s = around(r, me - 1 - k), t = around(r, me - 2 - k);
        give(r, k > 0 ? algo_at(me, SN_BUF_TMP, n) : algo_at(me, SN_BUF_IN, n * s), n);
        sn_place got = algo_at(me, SN_BUF_TMP, 0);
        sn_place src[2] = {take(r, got, got, n, 0), algo_at(me, SN_BUF_IN, n * t)};
        sn_place dst = k == p - 2 ? algo_at(me, SN_BUF_OUT, 0) : algo_at(me, SN_BUF_TMP, n);
        algo_reduce(&r->b, &dst, 1, src, 2, n, k == p - 2);
    }
}

static void all_gather(ring *r)
{
    int64_t n = r->b.call->count;
    int me = r->b.me;
    algo_copy(&r->b, algo_at(me, SN_BUF_OUT, n * me), algo_at(me, SN_BUF_IN, 0), n);
    algo_enter(&r->b);
    for (int k = 0; k < r->p - 1; k++) {
        int s = around(r, me - k), t = around(r, me - k - 1);
        sn_place out = algo_at(me, SN_BUF_OUT, n * t);
        give(r, algo_at(me, SN_BUF_OUT, n * s), n);
        algo_copy(&r->b, out, take(r, algo_at(r->left, SN_BUF_OUT, n * t), out, n, 1 + k), n);
        algo_signal(&r->b);
    }
}

/* A chain from the root to its left neighbour. */
static void broadcast(ring *r)
{
    int64_t n = r->b.call->count;
    int me = r->b.me, far = around(r, me - r->b.call->root);
    sn_place out = algo_at(me, SN_BUF_OUT, 0);
    algo_enter(&r->b);
    if (far > 0) {
        if (!r->left_here) {
            algo_recv(&r->b, r->left, out, n);
            algo_fence(&r->b);
        } else {
            algo_wait(&r->b, r->left, 2);
            algo_copy(&r->b, out, algo_at(r->left, SN_BUF_OUT, 0), n);
        }
    }
    algo_signal(&r->b);
    if (far < r->p - 1)
        give(r, out, n);
    algo_signal(&r->b);
}

/* Nobody leaves while its right neighbour may still read its buffers. */
static void leave(ring *r)
{
    if (r->right_here)
        algo_wait(&r->b, r->right, r->b.round);
}

static sn_status schedule(const sn_algo_group *g, const sn_algo_call *c, int me, sn_arena *arena,
                          sn_sched *ret)
{
    static void (*const build[SN_COLL_OPS])(ring *) = {
        [SN_ALL_REDUCE] = all_reduce,
        [SN_REDUCE_SCATTER] = reduce_scatter,
        [SN_ALL_GATHER] = all_gather,
        [SN_BROADCAST] = broadcast,
    };
    int p = g->members;
    ring r = {.b = algo_build_begin(g, c, me, arena),
              .p = p,
              .left = (me + p - 1) % p,
              .right = (me + 1) % p};
    r.left_here = g->host[r.left] == g->host[me];
    r.right_here = g->host[r.right] == g->host[me];
    build[c->op](&r);
    leave(&r);
    algo_build_end(&r.b, "ring", r.b.round, !algo_one_member_hosts(g), ret);
    return SN_OK;
}

/* How many members of one host send to another one, at most: they share its wire. *ret_here: some
 * member's neighbour is on its own host. */
static int crossing(const sn_algo_group *g, bool *ret_here)
{
    int most = 0;
    *ret_here = false;
    for (int i = 0; i < g->members; i++) {
        int n = 0;
        for (int k = 0; k < g->members; k++)
            n += g->host[k] == g->host[i] && g->host[(k + 1) % g->members] != g->host[k];
        most = SN_MAX(most, n);
        *ret_here = *ret_here || g->host[(i + 1) % g->members] == g->host[i];
    }
    return most;
}

static double cost_ns(const sn_algo_group *g, const sn_algo_call *c, const sn_algo_model *m)
{
    double n = (double) algo_bytes(c), p = g->members, ns = algo_signal_ns(m, 1);
    bool here;
    int out = crossing(g, &here), hops = g->members - 1;
    algo_hop hop = {.out = out, .here = here};
    if (c->op == SN_ALL_REDUCE)
        return ns + algo_hops_ns(m, hop, hops, hops / p * n, true) +
               algo_hops_ns(m, hop, hops, hops / p * n, false);
    if (c->op == SN_ALL_GATHER)
        ns += algo_copy_ns(m, n);
    return ns + algo_hops_ns(m, hop, hops, hops * n, c->op == SN_REDUCE_SCATTER);
}

const sn_algo_row algo_ring = {
    .name = "ring",
    .needs = "two members or more; sums in bf16: two members; reduce_scatter: a host each",
    .ops = 1u << SN_ALL_REDUCE | 1u << SN_REDUCE_SCATTER | 1u << SN_ALL_GATHER | 1u << SN_BROADCAST,
    .fits = fits,
    .schedule = schedule,
    .cost_ns = cost_ns,
};
