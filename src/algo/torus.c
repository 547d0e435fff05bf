/* SPDX-License-Identifier: Apache-2.0
 *
 * torus — rings along each dimension of a mesh.
 *
 *   all_reduce   between hosts, each lane by itself (lanes.h). The vector is cut into a part a
 *                dimension, and each starts with another one, so that the links of all dimensions
 *                are used at the same time:
 *
 *        part 0     along rows, then columns; results back along columns, then rows
 *        part 1     along columns, then rows; results back along rows, then columns
 *
 *                2 Σ(d-1) hops instead of a ring's 2(h-1), and the same 2(h-1)/h of the vector
 *
 *   all_gather, reduce_scatter   between members, one dimension after the other
 *
 * The mesh is the group's `dim`, the last one running fastest. Where the group says none: hosts ×
 * members of a host when the group lists its hosts one after the other, all alike; else the
 * squarest a × b. all_reduce needs a mesh of hosts: where each host is a block of the innermost
 * dimensions it is the outer ones, else the squarest a × b of hosts.
 *
 * all_gather goes from the last dimension to the first and reduce_scatter back, so that what is
 * passed on is always one piece. Neighbours on a host read each other's OUT in all_gather; partial
 * sums have no shared place, so reduce_scatter needs a host for each member. */
#include "algo/lanes.h"

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

static mesh squarest(int n)
{
    int inner = 1;
    for (int k = 2; k * k <= n; k++)
        inner = n % k == 0 ? k : inner;
    return (mesh){.dims = 2, .dim = {n / inner, inner}};
}

/* Are members host by host, as many on each? How many, or 0. */
static int per_host(const algo_shape *s)
{
    return s->contiguous && s->size_min == s->size_max ? s->size_min : 0;
}

/* Hosts × members of a host, else the squarest. */
static void find_mesh(const algo_shape *s, mesh *ret)
{
    int inner = per_host(s);
    if (inner <= 1 || inner == s->members)
        *ret = squarest(s->members);
    else
        *ret = (mesh){.dims = 2, .dim = {s->hosts, inner}};
}

/* False: the members are no mesh, or a mere ring. */
static bool mesh_of(const algo_shape *s, const sn_algo_group *g, mesh *ret)
{
    int64_t product = 1;
    int longer = 0;
    if (g->dim == NULL) {
        find_mesh(s, ret);
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

/* Of the hosts: the outer dimensions when the inner ones are inside hosts. */
static mesh mesh_of_hosts(const algo_shape *s, const sn_algo_group *g)
{
    mesh m;
    if (!mesh_of(s, g, &m) || per_host(s) == 0)
        return squarest(s->hosts);
    int inner = 1;
    while (m.dims > 0 && inner < s->size_min)
        inner *= m.dim[--m.dims];
    return inner == s->size_min ? m : squarest(s->hosts);
}

static bool fits(const algo_shape *s, const sn_algo_group *g, const sn_algo_call *c)
{
    mesh m;
    return mesh_of(s, g, &m) && (c->op != SN_REDUCE_SCATTER || s->size_max == 1);
}

/* ---- all_reduce ---- */

typedef struct plan {
    mesh m;                    /* of hosts */
    int turns, turn[DIMS_MAX]; /* the dimensions longer than 1 */
} plan;

/* A ring under way: in the turn `i` of a part, its hop k; what it is about; when it ends. */
typedef struct lap {
    int dim, length, at; /* my place in it */
    int hop;
    algo_range whole;
    bool first, last; /* of the part's sums */
} lap;

static plan plan_of(const algo_shape *s, const sn_algo_group *g)
{
    plan x = {.m = mesh_of_hosts(s, g)};
    for (int d = 0; d < x.m.dims; d++)
        if (x.m.dim[d] > 1)
            x.turn[x.turns++] = d;
    return x;
}

static const void *make_plan(algo_lanes *t)
{
    plan *x = SN_NEW(t->b.arena, plan);
    *x = plan_of(&t->shape, t->b.group);
    return x;
}

static int hops_of(const plan *x)
{
    int hops = 0;
    for (int i = 0; i < x->turns; i++)
        hops += x->m.dim[x->turn[i]] - 1;
    return hops;
}

static algo_range ring_chunk(const lap *l, int i)
{
    return algo_slice_of(l->whole, l->length, ((i % l->length) + l->length) % l->length);
}

/* The k-th hop of part j's sums. The results go the same way back: `back` counts from the end. */
static lap find_lap(const algo_part *p, int j, int k)
{
    const plan *x = p->t->plan;
    lap l = {.whole = algo_slice(p->count, x->turns, j), .hop = k};
    for (int i = 0;; i++) {
        l.dim = x->turn[(j + i) % x->turns];
        l.length = x->m.dim[l.dim];
        l.at = coordinate(&x->m, p->t->host, l.dim);
        l.first = i == 0;
        l.last = i == x->turns - 1;
        if (l.hop < l.length - 1)
            return l;
        l.hop -= l.length - 1;
        l.whole = ring_chunk(&l, l.at + 1);
    }
}

static int64_t came(const algo_lanes *t, int64_t count)
{
    const plan *x = t->plan;
    return x->turns > 0 ? x->turns * algo_slice(count, x->turns, 0).count : 0;
}

/* Every part's first chunk; all where nothing is to be passed on. */
static void enter(const algo_part *p)
{
    const plan *x = p->t->plan;
    int srcs;
    for (int j = 0; j < x->turns; j++) {
        lap l = find_lap(p, j, 0);
        algo_range r = ring_chunk(&l, l.at);
        algo_part_sum_inputs(p, r.at, r.count);
    }
    if (x->turns > 0)
        return;
    algo_part_begin(p, &srcs);
    algo_part_add_inputs(p, &srcs, 0);
    algo_part_end(p, srcs, 0, p->count, true);
}

static sn_place came_to(const algo_part *p, int j)
{
    const plan *x = p->t->plan;
    return algo_part_came(p, j * algo_slice(p->count, x->turns, 0).count);
}

static void post(const algo_part *p, int stage)
{
    const plan *x = p->t->plan;
    int hops = hops_of(x);
    for (int j = 0; j < x->turns; j++) {
        bool adds = stage < hops;
        lap l = find_lap(p, j, adds ? stage : 2 * hops - 1 - stage);
        int k = adds ? l.hop : l.length - 3 - l.hop; /* results: chunk at + 1 first, k from -1 */
        algo_range give = ring_chunk(&l, l.at - k), get = ring_chunk(&l, l.at - k - 1);
        algo_part_send(p, neighbour(&x->m, p->t->host, l.dim, 1),
                       adds ? algo_part_sum(p, give.at) : algo_part_result(p, give.at), give.count);
        algo_part_recv(p, neighbour(&x->m, p->t->host, l.dim, -1),
                       adds ? came_to(p, j) : algo_part_result(p, get.at), get.count);
    }
}

static void work(const algo_part *p, int stage)
{
    const plan *x = p->t->plan;
    int srcs;
    for (int j = 0; j < x->turns && stage < hops_of(x); j++) {
        lap l = find_lap(p, j, stage);
        algo_range r = ring_chunk(&l, l.at - l.hop - 1);
        algo_part_begin(p, &srcs);
        algo_part_add(p, &srcs, came_to(p, j));
        if (l.first)
            algo_part_add_inputs(p, &srcs, r.at);
        else
            algo_part_add(p, &srcs, algo_part_sum(p, r.at));
        algo_part_end(p, srcs, r.at, r.count, l.last && l.hop == l.length - 2);
    }
}

/* Where the group says what it is wired like, each dimension has its own links. */
static algo_flow flow(const algo_shape *s, const sn_algo_group *g, const sn_algo_call *c)
{
    plan x = plan_of(s, g);
    double h = s->hosts, wide = algo_lanes_widened(c);
    double sent = (h - 1) / h * (wide + 1) * (double) algo_bytes(c);
    double links = g->dim != NULL && x.turns > 0 ? x.turns : 1;
    algo_flow f = algo_lanes_flow(s, c);
    f.stages = 2 * hops_of(&x);
    f.adding = hops_of(&x);
    f.works = true;
    f.posts = 2 * x.turns * s->most_lanes;
    f.messages = f.stages * (x.turns * s->most_lanes - 1.0);
    algo_lanes_sent(&f, s, c, sent, sent);
    f.path.of[ALGO_WIRE] /= links;
    f.steady.of[ALGO_WIRE] /= links;
    algo_flow_both(&f, ALGO_REDUCE, (h - 1) / h * 2 * wide * algo_lanes_slice(s, c));
    return f;
}

static const algo_across across = {
    .flow = flow, .plan = make_plan, .came = came, .enter = enter, .post = post, .work = work};

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

/* ---- the operations ---- */

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
 * are at `sum`, what comes in at the start of my scratch. Where `own` is the input it is sent as it
 * is. */
static void sum_along(torus *t, sn_place own, sn_place sum, sn_place dst, int64_t each, bool last)
{
    for (int k = 0; k < t->p - 1; k++) {
        sn_buf came = k > 0 || own.buf == SN_BUF_WIDE ? sum.buf : SN_BUF_TMP;
        sn_place mine = own, theirs = own, in = algo_at(t->b.me, came, 0);
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
    sn_buf sums = algo_wide(t->b.call) ? SN_BUF_WIDE : SN_BUF_TMP;
    sn_place own = algo_at(me, SN_BUF_IN, 0);
    algo_enter(&t->b);
    for (int d = 0, odd = 0; d <= last; d++) { /* results go to two places in turn */
        turn(t, d);
        if (t->p == 1)
            continue;
        sn_place dst = d == last ? algo_at(me, SN_BUF_OUT, 0) : algo_at(me, sums, room * (2 + odd));
        sum_along(t, own, algo_at(me, sums, room), dst, n * stride(&t->m, d), d == last);
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
    algo_shape shape = algo_shape_of(g);
    if (!mesh_of(&shape, g, &t.m))
        return sn_fail(SN_ENOTSUP, "%d members are no mesh of two dimensions or more", g->members);
    if (c->op == SN_ALL_REDUCE)
        return algo_lanes_schedule(g, c, me, arena, "torus", &across, ret);
    if (c->op == SN_ALL_GATHER)
        all_gather(&t);
    else
        reduce_scatter(&t);
    leave(&t);
    algo_build_end(&t.b, "torus", t.b.round, shape.size_max > 1, ret);
    return SN_OK;
}

/* ---- time ---- */

/* The hops along dimension d: how many members of one host leave it at once. */
static int leaving(const algo_shape *s, const mesh *m, int d, bool *ret_here)
{
    int inner = stride(m, d), l = s->size_max;
    *ret_here = s->size_max > 1;
    if (s->size_max == 1 || per_host(s) == 0)
        return l;
    if (inner * m->dim[d] <= l)
        return 0; /* the whole ring is inside a host */
    *ret_here = inner < l;
    return SN_MIN(inner, l);
}

static void count(const algo_shape *s, const sn_algo_group *g, const sn_algo_call *c,
                  const sn_algo_model *m, algo_counts *ret)
{
    mesh shape = {0};
    double bytes = (double) algo_bytes(c);
    bool sums = c->op == SN_REDUCE_SCATTER;
    double wide = algo_wide(c) ? 4.0 / (double) sn_dtype_bytes(c->dtype) : 1;
    if (c->op == SN_ALL_REDUCE) {
        algo_lanes_count(s, g, c, m, &across, ret);
        return;
    }
    SN_ASSERT(mesh_of(s, g, &shape)); /* it fits */
    *ret = (algo_counts){.of = {[ALGO_CALL] = 1, [ALGO_SIGNAL] = 1}};
    if (!sums)
        ret->of[ALGO_COPY] += bytes;
    for (int d = shape.dims - 1; d >= 0; d--) {
        double hops = shape.dim[d] - 1, moved = hops * bytes * stride(&shape, d);
        bool here;
        int out = leaving(s, &shape, d, &here);
        ret->of[ALGO_LATENCY] += out > 0 ? hops : 0;
        ret->of[ALGO_WIRE] += out * wide * moved;
        ret->of[ALGO_SOCKET] += out > 0 ? 2 * wide * moved : 0;
        ret->of[ALGO_SIGNAL] += here ? hops : 0;
        ret->of[ALGO_COPY] += here && !sums ? moved : 0;
        ret->of[ALGO_REDUCE] += sums ? 3 * wide * moved : 0;
    }
}

const sn_algo_row algo_torus = {
    .name = "torus",
    .needs = "members that factor; reduce_scatter: a host each",
    .ops = 1u << SN_ALL_REDUCE | 1u << SN_REDUCE_SCATTER | 1u << SN_ALL_GATHER,
    .fits = fits,
    .schedule = schedule,
    .count = count,
};
