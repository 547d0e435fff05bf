/* SPDX-License-Identifier: Apache-2.0
 *
 * ordered — sums across hosts in the order of the members, whatever hosts they are on: every input
 * travels to where it is added.
 *
 *   all_reduce       member i owns slice i: the members of other hosts send it theirs, it reads
 *                    its host's in place, adds members 0, 1, 2 … and rounds once; the result goes
 *                    to one member of every other host, from which the others there copy it
 *   reduce_scatter   the same with blocks, which stay where they are
 *
 * Inputs are sent as they are: no sum travels, bf16 stays bf16. The price is that each member's
 * input leaves its host on its own: l·(p-l)/p of the vector for l members, where others send
 * (h-1)/h of it once; and p-l messages each. chain.c does the same for long vectors where hosts
 * follow each other in the group. A short all_reduce goes through the notes: the first member of
 * each host sends all of its host's.
 *
 * Cost: 2 latencies · 2(p-l) messages + (l(p-l)/p + l(h-1)/p) · bytes / wire. */
#include "algo/lanes.h"

typedef struct slices {
    algo_lanes *t;
    int segments, window;
    int64_t room;
} slices;

/* Segment s of what member i owns, in IN. */
static algo_range owned(const slices *x, int i, int s)
{
    const sn_algo_call *c = x->t->b.call;
    algo_range whole = {.at = c->count * i, .count = c->count};
    if (c->op == SN_ALL_REDUCE)
        whole = algo_slice(c->count, x->t->b.members, i);
    return algo_slice_of(whole, x->segments, s);
}

static sn_place came(const slices *x, int from, int s)
{
    return algo_at(x->t->me, SN_BUF_TMP, x->room * ((int64_t) from * x->window + s % x->window));
}

static void post_inputs(const slices *x, int s)
{
    algo_lanes *t = x->t;
    int p = t->b.members;
    algo_range mine = owned(x, t->me, s);
    for (int k = 1; k < p; k++) {
        int to = (t->me + k) % p, from = (t->me + p - k) % p;
        algo_range theirs = owned(x, to, s);
        if (t->m.host[to] != t->host)
            algo_send(&t->b, to, algo_at(t->me, SN_BUF_IN, theirs.at), theirs.count);
        if (t->m.host[from] != t->host)
            algo_recv(&t->b, from, came(x, from, s), mine.count);
    }
}

/* Who on my host has member i's result. */
static int holder(const algo_lanes *t, int i)
{
    return t->m.host[i] == t->host ? i : algo_lanes_speaker(t, t->host, t->m.local[i]);
}

static void post_results(const slices *x, int s)
{
    algo_lanes *t = x->t;
    algo_range mine = owned(x, t->me, s);
    for (int k = 1; k < t->m.hosts; k++)
        algo_send(&t->b, algo_lanes_speaker(t, (t->host + k) % t->m.hosts, t->local),
                  algo_at(t->me, SN_BUF_OUT, mine.at), mine.count);
    for (int i = 0; i < t->b.members; i++) {
        algo_range r = owned(x, i, s);
        if (t->m.host[i] != t->host && holder(t, i) == t->me)
            algo_recv(&t->b, i, algo_at(t->me, SN_BUF_OUT, r.at), r.count);
    }
}

static void post(void *ctx, int s, int stage)
{
    (stage == 0 ? post_inputs : post_results)(ctx, s);
}

static void work(void *ctx, int s, int stage)
{
    const slices *x = ctx;
    algo_lanes *t = x->t;
    algo_range mine = owned(x, t->me, s);
    if (stage > 0)
        return;
    for (int i = 0; i < t->b.members; i++)
        t->source[i] = t->m.host[i] == t->host ? algo_at(i, SN_BUF_IN, mine.at) : came(x, i, s);
    sn_place out = algo_at(t->me, SN_BUF_OUT, mine.at);
    if (t->b.call->op == SN_REDUCE_SCATTER)
        out.at -= t->b.call->count * t->me;
    algo_reduce(&t->b, &out, 1, t->source, t->b.members, mine.count, true);
}

static void leave(void *ctx, int s)
{
    const slices *x = ctx;
    algo_lanes *t = x->t;
    algo_wait(&t->b, SN_ALL, 2 + s);
    for (int k = 0; k < t->b.members; k++) {
        int i = (t->me + k) % t->b.members, from = holder(t, i);
        algo_range r = owned(x, i, s);
        algo_copy(&t->b, algo_at(t->me, SN_BUF_OUT, r.at), algo_at(from, SN_BUF_OUT, r.at),
                  r.count);
    }
}

/* ---- through the notes ---- */

/* Where member i's input is in a leader's scratch: hosts one after the other. */
static sn_place noted(const algo_lanes *t, int i)
{
    const algo_map *m = &t->m;
    return algo_at(t->me, SN_BUF_TMP, t->b.call->count * (m->first[m->host[i]] + m->local[i]));
}

static void exchange_notes(algo_lanes *t)
{
    int64_t n = t->b.call->count;
    const algo_map *m = &t->m;
    for (int l = 0; l < t->size; l++) {
        int i = algo_map_member(m, t->host, l);
        algo_copy(&t->b, noted(t, i), algo_at(i, SN_BUF_NOTE, 0), n);
    }
    for (int k = 1; k < m->hosts; k++) {
        int h = (t->host + k) % m->hosts, leader = algo_map_member(m, h, 0);
        algo_send(&t->b, leader, noted(t, t->leader), n * t->size);
        algo_recv(&t->b, leader, noted(t, leader), n * m->size[h]);
    }
    algo_fence(&t->b);
    for (int i = 0; i < t->b.members; i++)
        t->source[i] = noted(t, i);
    sn_place result = algo_at(t->me, SN_BUF_NOTE, n);
    algo_reduce(&t->b, &result, 1, t->source, t->b.members, n, true);
    algo_signal(&t->b);
}

static void all_reduce_small(algo_lanes *t)
{
    int64_t n = t->b.call->count;
    algo_copy(&t->b, algo_at(t->me, SN_BUF_NOTE, 0), algo_at(t->me, SN_BUF_IN, 0), n);
    algo_enter(&t->b);
    if (t->me == t->leader)
        exchange_notes(t);
    else
        algo_wait(&t->b, t->leader, 2);
    algo_copy(&t->b, algo_at(t->me, SN_BUF_OUT, 0), algo_at(t->leader, SN_BUF_NOTE, n), n);
}

/* ---- the row ---- */

static algo_flow flow(const algo_shape *s, const sn_algo_call *c)
{
    bool back = c->op == SN_ALL_REDUCE;
    double p = s->members, l = s->size_max, far = p - s->size_min, hosts = s->hosts;
    double bytes = (double) algo_bytes(c) * (back ? 1 : p), slice = bytes / p;
    double results = back ? hosts - 1 : 0, mine = back ? far / s->size_min : 0;
    algo_flow f = {.stages = back ? 2 : 1, .adding = 1, .works = true, .bytes = slice};
    f.signals = back && s->size_max > 1;
    f.posts = 2 * (int) far;
    f.messages = far - 1 + SN_MAX(results - 1, 0);
    f.once.of[ALGO_CALL] = 1;
    f.once.of[ALGO_SIGNAL] = s->size_max > 1 ? 2 : 0;
    f.path.of[ALGO_WIRE] = l * (far + results) * slice;
    f.path.of[ALGO_SOCKET] = (2 * far + results + mine) * slice;
    f.path.of[ALGO_REDUCE] = (p + 1) * slice;
    f.path.of[ALGO_COPY] = back && s->size_max > 1 ? bytes - slice : 0;
    f.steady = f.path;
    return f;
}

static sn_status schedule(const sn_algo_group *g, const sn_algo_call *c, int me, sn_arena *arena,
                          sn_sched *ret)
{
    algo_lanes t = algo_lanes_begin(g, c, me, arena);
    bool back = c->op == SN_ALL_REDUCE;
    if (t.small) {
        all_reduce_small(&t);
        algo_build_end(&t.b, "ordered", 2, false, ret);
        return SN_OK;
    }
    algo_flow f = flow(&t.shape, c);
    slices x = {.t = &t};
    x.segments = algo_flow_segments(&f, g);
    x.window = algo_pipe_window(x.segments, 1);
    x.room = owned(&x, 0, 0).count;
    algo_pipe pipe = {.segments = x.segments,
                      .stages = f.stages,
                      .works = true,
                      .signals = back && t.size > 1,
                      .ctx = &x,
                      .post = post,
                      .work = work,
                      .leave = back && t.size > 1 ? leave : NULL};
    algo_enter(&t.b);
    algo_pipe_run(&t.b, &pipe);
    if (t.size > 1)
        algo_enter(&t.b);
    algo_build_end(&t.b, "ordered", x.segments + 2, t.shape.size_max > 1, ret);
    return SN_OK;
}

static void count(const algo_shape *s, const sn_algo_group *g, const sn_algo_call *c,
                  const sn_algo_model *m, algo_counts *ret)
{
    double bytes = (double) algo_bytes(c), p = s->members;
    algo_flow f = flow(s, c);
    if (!algo_lanes_small(c)) {
        algo_flow_count(&f, g, m, ret);
        return;
    }
    *ret = (algo_counts){.of = {[ALGO_CALL] = 1,
                                [ALGO_SIGNAL] = 2,
                                [ALGO_COPY] = (2 + s->size_max) * bytes,
                                [ALGO_REDUCE] = (p + 1) * bytes,
                                [ALGO_LATENCY] = 1,
                                [ALGO_MESSAGE] = s->hosts - 2,
                                [ALGO_WIRE] = s->size_max * (s->hosts - 1.0) * bytes,
                                [ALGO_SOCKET] = 2 * p * bytes}};
}

const sn_algo_row algo_ordered = {
    .name = "ordered",
    .needs = "several hosts",
    .ops = 1u << SN_ALL_REDUCE | 1u << SN_REDUCE_SCATTER,
    .ordered = 1u << SN_ALL_REDUCE | 1u << SN_REDUCE_SCATTER,
    .notes = true,
    .fits = algo_lanes_fits,
    .schedule = schedule,
    .count = count,
};
