/* SPDX-License-Identifier: Apache-2.0
 *
 * torus — rings along each dimension of a mesh of members, one dimension after the other.
 *
 *   all_reduce on a × b:   reduce-scatter in my row of b, then in my column of a the piece that I
 *                          own, then the gathers backwards: column, row
 *
 *      row     m0 ─▶ m1 ─▶ m2 ─▶        2(a-1) + 2(b-1) hops instead of a ring's 2(ab-1), and the
 *              m3 ─▶ m4 ─▶ m5 ─▶        same 2(p-1)/p of the vector; hops are to mesh neighbours
 *
 * The mesh is the group's `dim`, the last one running fastest. Where the group says none: hosts ×
 * members of a host when the group lists its hosts one after the other, all alike; else the
 * squarest a × b. all_gather goes from the last dimension to the first and reduce_scatter back, so
 * that what is passed on is always one piece.
 *
 * Neighbours on a host read each other's OUT, as in ring.c, whose rules hold here: bf16 sums are
 * refused, and reduce_scatter where two members share a host.
 *
 * Why nobody overwrites what a neighbour still reads: in a gather a member's chunk comes to it only
 * after its sum has gone round the ring through that neighbour. Inner dimensions work inside the
 * piece that the outer one left to me and touch no other. */
#include "algo/build.h"

#include <string.h>

#define DIMS_MAX 8

typedef struct mesh {
    int dims, dim[DIMS_MAX];
} mesh;

typedef struct torus {
    algo_build b;
    mesh m;
    int p, me, left, right; /* of the ring under way: its length, my place, two members */
    bool left_here, right_here;
} torus;

/* ---- the mesh ---- */

/* Are members host by host, as many on each? How many, or 0. */
static int per_host(const sn_algo_group *g)
{
    int l = algo_host_size_max(g);
    for (int i = 0; i < g->members; i++)
        if (g->host[i] != g->host[i - i % l])
            return 0;
    return g->members % l == 0 && algo_hosts(g) == g->members / l ? l : 0;
}

/* Hosts × members of a host, else the squarest. */
static void find_mesh(const sn_algo_group *g, mesh *ret)
{
    int inner = per_host(g);
    if (inner <= 1 || inner == g->members) {
        inner = 1;
        for (int k = 2; k * k <= g->members; k++)
            inner = g->members % k == 0 ? k : inner;
    }
    *ret = (mesh){.dims = 2, .dim = {g->members / inner, inner}};
}

/* False: the members are no mesh, or a mere ring. */
static bool mesh_of(const sn_algo_group *g, mesh *ret)
{
    int64_t product = 1;
    int longer = 0;
    if (g->dim == NULL) {
        find_mesh(g, ret);
    } else {
        if (g->dims < 1 || g->dims > DIMS_MAX)
            return false;
        ret->dims = g->dims;
        memcpy(ret->dim, g->dim, (size_t) g->dims * sizeof(int));
    }
    for (int d = 0; d < ret->dims; d++) {
        if (ret->dim[d] < 1 || ret->dim[d] > g->members)
            return false;
        product *= ret->dim[d];
        longer += ret->dim[d] > 1;
    }
    return product == g->members && longer >= 2;
}

/* Members between two neighbours along dimension d. */
static int stride(const mesh *m, int d)
{
    int n = 1;
    for (int k = d + 1; k < m->dims; k++)
        n *= m->dim[k];
    return n;
}

static int coordinate(const mesh *m, int member, int d)
{
    return member / stride(m, d) % m->dim[d];
}

static int neighbour(const mesh *m, int member, int d, int by)
{
    int step = stride(m, d), x = coordinate(m, member, d), n = m->dim[d];
    return member + ((x + by + n) % n - x) * step;
}

static bool fits(const sn_algo_group *g, const sn_algo_call *c)
{
    mesh m;
    if (!mesh_of(g, &m) || algo_rounds(c))
        return false;
    return c->op != SN_REDUCE_SCATTER || algo_one_member_hosts(g);
}

/* ---- one ring ---- */

static void turn(torus *t, int d)
{
    const int *host = t->b.group->host;
    t->p = t->m.dim[d];
    t->me = coordinate(&t->m, t->b.me, d);
    t->left = neighbour(&t->m, t->b.me, d, -1);
    t->right = neighbour(&t->m, t->b.me, d, 1);
    t->left_here = host[t->left] == host[t->b.me];
    t->right_here = host[t->right] == host[t->b.me];
}

static int around(const torus *t, int i)
{
    return ((i % t->p) + t->p) % t->p;
}

/* What the left neighbour gives while I give `mine` to the right one: read where it is (`theirs`,
 * complete when the left one is in my round) or received into `into`. */
static sn_place pass(torus *t, sn_place mine, int64_t gives, sn_place theirs, sn_place into,
                     int64_t takes)
{
    if (!t->right_here)
        algo_send(&t->b, t->right, mine, gives);
    if (!t->left_here)
        algo_recv(&t->b, t->left, into, takes);
    if (!t->left_here || !t->right_here)
        algo_fence(&t->b);
    if (t->left_here)
        algo_wait(&t->b, t->left, t->b.round);
    return t->left_here ? theirs : into;
}

static algo_range chunk(const torus *t, algo_range whole, int i)
{
    algo_range r = algo_slice(whole.count, t->p, around(t, i));
    r.at += whole.at;
    return r;
}

/* Sums over the ring's members, chunk me+1 complete at me. First of all rings: from IN. */
static void scatter_ring(torus *t, algo_range whole, bool first, bool last)
{
    int me = t->b.me;
    for (int k = 0; k < t->p - 1; k++) {
        sn_buf from = first && k == 0 ? SN_BUF_IN : SN_BUF_OUT;
        algo_range s = chunk(t, whole, t->me - k), r = chunk(t, whole, t->me - k - 1);
        sn_place got = pass(t, algo_at(me, from, s.at), s.count, algo_at(t->left, from, r.at),
                            algo_at(me, SN_BUF_TMP, 0), r.count);
        sn_place src[2] = {got, algo_at(me, first ? SN_BUF_IN : SN_BUF_OUT, r.at)};
        sn_place out = algo_at(me, SN_BUF_OUT, r.at);
        algo_reduce(&t->b, &out, 1, src, 2, r.count, last && k == t->p - 2);
        algo_signal(&t->b);
    }
}

static void gather_ring(torus *t, algo_range whole)
{
    int me = t->b.me;
    for (int k = 0; k < t->p - 1; k++) {
        algo_range s = chunk(t, whole, t->me + 1 - k), r = chunk(t, whole, t->me - k);
        sn_place out = algo_at(me, SN_BUF_OUT, r.at);
        sn_place got = pass(t, algo_at(me, SN_BUF_OUT, s.at), s.count,
                            algo_at(t->left, SN_BUF_OUT, r.at), out, r.count);
        algo_copy(&t->b, out, got, r.count);
        algo_signal(&t->b);
    }
}

/* ---- the operations ---- */

/* all_reduce starts with the last dimension, the nearest; where the sums are complete. */
static int completing(const torus *t)
{
    int d = 0;
    while (t->m.dim[d] == 1)
        d++;
    return d;
}

static void all_reduce(torus *t)
{
    algo_range whole[DIMS_MAX + 1];
    bool first = true;
    whole[t->m.dims] = (algo_range){.count = t->b.call->count};
    algo_enter(&t->b);
    for (int d = t->m.dims - 1; d >= 0; d--) {
        turn(t, d);
        whole[d] = whole[d + 1];
        if (t->p == 1)
            continue;
        scatter_ring(t, whole[d + 1], first, d == completing(t));
        whole[d] = chunk(t, whole[d + 1], t->me + 1);
        first = false;
    }
    for (int d = 0; d < t->m.dims; d++) {
        turn(t, d);
        gather_ring(t, whole[d + 1]);
    }
}

static void all_gather(torus *t)
{
    int64_t n = t->b.call->count;
    int me = t->b.me;
    algo_copy(&t->b, algo_at(me, SN_BUF_OUT, n * me), algo_at(me, SN_BUF_IN, 0), n);
    algo_enter(&t->b);
    for (int d = t->m.dims - 1; d >= 0; d--) {
        int run = stride(&t->m, d); /* blocks that I have by now, side by side */
        turn(t, d);
        int64_t base = n * (me / run - t->me) * run, each = n * run;
        for (int k = 0; k < t->p - 1; k++) {
            int64_t s = base + each * around(t, t->me - k);
            int64_t r = base + each * around(t, t->me - k - 1);
            sn_place out = algo_at(me, SN_BUF_OUT, r);
            sn_place got = pass(t, algo_at(me, SN_BUF_OUT, s), each,
                                algo_at(t->left, SN_BUF_OUT, r), out, each);
            algo_copy(&t->b, out, got, each);
            algo_signal(&t->b);
        }
    }
}

/* My row's sum of what is at `own`, cut into chunks of `each`: chunk me, to `dst`. Sums under way
 * are at `sum`, what comes in at the start of my scratch. */
static void sum_along(torus *t, sn_place own, sn_place sum, sn_place dst, int64_t each, bool last)
{
    for (int k = 0; k < t->p - 1; k++) {
        sn_place mine = own, theirs = own, in = algo_at(t->b.me, SN_BUF_TMP, 0);
        mine.at += each * around(t, t->me - 1);
        theirs.at += each * around(t, t->me - 2 - k);
        pass(t, k > 0 ? sum : mine, each, in, in, each);
        sn_place src[2] = {in, theirs};
        algo_reduce(&t->b, k == t->p - 2 ? &dst : &sum, 1, src, 2, each, last && k == t->p - 2);
    }
}

static void reduce_scatter(torus *t)
{
    int64_t n = t->b.call->count, room = 0;
    int me = t->b.me, last = t->m.dims - 1;
    while (t->m.dim[last] == 1)
        last--;
    for (int d = 0; d < t->m.dims; d++)
        if (t->m.dim[d] > 1)
            room = SN_MAX(room, n * stride(&t->m, d));
    sn_place own = algo_at(me, SN_BUF_IN, 0);
    algo_enter(&t->b);
    for (int d = 0, odd = 0; d <= last; d++) { /* results go to two places in turn */
        turn(t, d);
        if (t->p == 1)
            continue;
        sn_place dst =
            d == last ? algo_at(me, SN_BUF_OUT, 0) : algo_at(me, SN_BUF_TMP, room * (2 + odd));
        sum_along(t, own, algo_at(me, SN_BUF_TMP, room), dst, n * stride(&t->m, d), d == last);
        own = dst;
        odd = !odd;
    }
}

/* Nobody leaves while a neighbour to the right may still read its buffers. */
static void leave(torus *t)
{
    for (int d = 0; d < t->m.dims; d++) {
        turn(t, d);
        if (t->p > 1 && t->right_here)
            algo_wait(&t->b, t->right, t->b.round);
    }
}

static sn_status schedule(const sn_algo_group *g, const sn_algo_call *c, int me, sn_arena *arena,
                          sn_sched *ret)
{
    torus t = {.b = algo_build_begin(g, c, me, arena)};
    if (!mesh_of(g, &t.m))
        return sn_fail(SN_ENOTSUP, "%d members are no mesh of two dimensions or more", g->members);
    if (c->op == SN_ALL_REDUCE)
        all_reduce(&t);
    else if (c->op == SN_ALL_GATHER)
        all_gather(&t);
    else
        reduce_scatter(&t);
    leave(&t);
    algo_build_end(&t.b, "torus", t.b.round, !algo_one_member_hosts(g), ret);
    return SN_OK;
}

/* ---- time ---- */

/* The hops along dimension d: which leave the host, and how many of one host do at once. */
static algo_hop hop_along(const sn_algo_group *g, const mesh *m, int d)
{
    algo_hop hop = {0};
    for (int i = 0; i < g->members; i++) {
        int n = 0;
        for (int k = 0; k < g->members; k++)
            n += g->host[k] == g->host[i] && g->host[neighbour(m, k, d, 1)] != g->host[k];
        hop.out = SN_MAX(hop.out, n);
        hop.here = hop.here || g->host[neighbour(m, i, d, 1)] == g->host[i];
    }
    return hop;
}

static double cost_ns(const sn_algo_group *g, const sn_algo_call *c, const sn_algo_model *m)
{
    mesh shape = {0};
    double bytes = (double) algo_bytes(c), ns = algo_signal_ns(m, 1);
    SN_ASSERT(mesh_of(g, &shape)); /* it fits */
    if (c->op == SN_ALL_GATHER)
        ns += algo_copy_ns(m, bytes);
    for (int d = shape.dims - 1; d >= 0; d--) {
        double n = shape.dim[d], hops = n - 1;
        algo_hop hop = hop_along(g, &shape, d);
        if (c->op != SN_ALL_REDUCE) {
            double moved = hops * bytes * stride(&shape, d);
            ns += algo_hops_ns(m, hop, (int) hops, moved, c->op == SN_REDUCE_SCATTER);
            continue;
        }
        double moved = hops / n * bytes;
        ns += algo_hops_ns(m, hop, (int) hops, moved, true);
        ns += algo_hops_ns(m, hop, (int) hops, moved, false);
        bytes /= n; /* what this dimension leaves to the next */
    }
    return ns;
}

const sn_algo_row algo_torus = {
    .name = "torus",
    .needs = "members that factor; no sums in bf16; reduce_scatter: a host each",
    .ops = 1u << SN_ALL_REDUCE | 1u << SN_REDUCE_SCATTER | 1u << SN_ALL_GATHER,
    .fits = fits,
    .schedule = schedule,
    .cost_ns = cost_ns,
};
