/* SPDX-License-Identifier: Apache-2.0
 *
 * ring — every member passes to its neighbour, in segments; in host order, or around the hosts.
 *
 *   all_reduce, chunk t    t+1 ──▶ t+2 ──▶ … ──▶ t          each adds its own; t has the sum
 *                          t ──▶ t+1 ──▶ … ──▶ t-1          and the result goes once more around
 *
 * `ring` takes the members host by host, so that one neighbour on each host is on another. In
 * `ring_round_robin` every neighbour is on another host: it exists to be compared with, and is
 * taken only by name. The bytes between hosts are those of a ring of members, (p-1)/p of the vector
 * over each hop and direction: where hosts have several members hierarchical_ring.c needs fewer.
 *
 * Neighbours on one host are a run. A chunk goes from run to run; the last member of a run that it
 * passes carries it: it adds the inputs of all of the run by loads, and gets the result that the
 * others of the run copy from it.
 *
 *   positions    0 1 2 | 3 4 | 5 6 7      chunk 4, sums:     (5 6 7) ▶ (0 1 2) ▶ (3 4)
 *   runs           0      1      2                 results:  (4) ▶ (5 6 7) ▶ (0 1 2) ▶ (3)
 *
 * Every element's sum runs along one chain and is finished by one member. Sums of bf16 and f16 that
 * go on are in WIDE, f32 in OUT or (reduce_scatter) TMP.
 *
 * Source: Patarasuk & Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
 * JPDC 69(2), 2009. */
#include "algo/pipe.h"

/* The chunks that a member carries, by the index of its run on their way: those of index i are
 * chunk[first[i] … first[i + 1]). */
typedef struct cargo {
    int *first, *chunk;
} cargo;

typedef struct ring {
    algo_build b;
    int p, at;      /* members; my position */
    int *order;     /* [p] position → member */
    int *run;       /* [p] position → its run */
    int runs, *end; /* [runs] last position of each */
    int adding, passing;
    cargo sums, results;
    int segments, window;
    int64_t room;
    sn_place *source;
} ring;

/* ---- the ring ---- */

/* Members of hosts one after the other, or the first of each host, the second of each … */
static void put_in_order(ring *r, const algo_map *m, bool round_robin)
{
    int n = 0, rounds = 1;
    for (int h = 0; h < m->hosts && round_robin; h++)
        rounds = SN_MAX(rounds, m->size[h]);
    for (int l = 0; l < rounds; l++)
        for (int h = 0; h < m->hosts; h++)
            for (int k = l; k < (round_robin ? SN_MIN(l + 1, m->size[h]) : m->size[h]); k++)
                r->order[n++] = algo_map_member(m, h, k);
    SN_ASSERT(n == r->p);
}

/* Turns the ring so that a run starts at position 0, and finds the runs. */
static void find_runs(ring *r, const algo_map *m)
{
    int turn = 0, *order = SN_NEW_N(r->b.arena, int, r->p);
    while (turn < r->p && m->host[r->order[turn]] == m->host[r->order[(turn + r->p - 1) % r->p]])
        turn++;
    for (int i = 0; i < r->p; i++) {
        order[i] = r->order[(i + turn) % r->p];
        if (order[i] == r->b.me)
            r->at = i;
        if (i > 0 && m->host[order[i]] != m->host[order[i - 1]])
            r->runs++;
        r->run[i] = r->runs;
        r->end[r->runs] = i;
    }
    r->runs++;
    r->order = order;
}

static int start_of(const ring *r, int run)
{
    return run > 0 ? r->end[run - 1] + 1 : 0;
}

/* A chunk's way: hop i brings it to the run of index i; member `at` belongs to one of them. */
typedef struct way {
    int index;    /* of the run that I am in */
    int carrier;  /* of it, a position */
    int from, to; /* the positions that the run covers */
    int last;     /* index of the last run */
} way;

static int after(const ring *r, int run, int from)
{
    return (run - from + r->runs) % r->runs;
}

/* The way of chunk t's sum: the members after t in its run, the other runs, the rest up to t. */
static way sum_way(const ring *r, int t, int at)
{
    int own = r->run[t], run = r->run[at], rest = r->end[own] > t;
    if (r->runs == 1)
        return (way){.carrier = t, .to = r->p - 1};
    way w = {.carrier = r->end[run], .from = start_of(r, run), .to = r->end[run]};
    w.last = r->runs - 1 + rest;
    if (run != own) {
        w.index = after(r, run, own) - 1 + rest;
    } else if (at > t) {
        w.from = t + 1;
    } else {
        w.index = w.last;
        w.carrier = w.to = t;
    }
    return w;
}

/* The way of chunk t's result: t and those after it in its run, the other runs, those before t. */
static way result_way(const ring *r, int t, int at)
{
    int own = r->run[t], run = r->run[at], first = start_of(r, own) == t;
    way w = {.carrier = r->end[run], .from = start_of(r, run), .to = r->end[run]};
    if (r->runs == 1)
        return (way){.carrier = t, .to = r->p - 1};
    w.last = r->runs - first;
    if (run != own) {
        w.index = after(r, run, own);
    } else if (at >= t) {
        w.carrier = t;
        w.from = t;
    } else {
        w.index = r->runs;
        w.carrier = w.to = t - 1;
    }
    return w;
}

/* Who carries chunk t in the run before or after that of index i. */
static int sum_carrier(const ring *r, int t, int i)
{
    int own = r->run[t], rest = r->end[own] > t;
    if (i == r->runs - 1 + rest)
        return t;
    return r->end[(own + i + (rest ? 0 : 1)) % r->runs];
}

static int result_carrier(const ring *r, int t, int i)
{
    if (i == 0)
        return t;
    return i == r->runs ? t - 1 : r->end[(r->run[t] + i) % r->runs];
}

typedef way (*way_of)(const ring *r, int t, int at);

static cargo carried(const ring *r, way_of find)
{
    int p = r->p, *next = SN_NEW_N(r->b.arena, int, p + 2);
    cargo h = {.first = SN_NEW_N(r->b.arena, int, p + 3), .chunk = SN_NEW_N(r->b.arena, int, p)};
    for (int t = 0; t < p; t++) {
        way w = find(r, t, r->at);
        h.first[w.index + 1] += w.carrier == r->at;
    }
    for (int i = 0; i <= p + 1; i++)
        h.first[i + 1] += h.first[i];
    for (int t = 0; t < p; t++) {
        way w = find(r, t, r->at);
        if (w.carrier == r->at)
            h.chunk[h.first[w.index] + next[w.index]++] = t;
    }
    return h;
}

/* ---- places ---- */

static sn_coll_op op(const ring *r)
{
    return r->b.call->op;
}

/* Segment s of chunk t in the vector: a slice of it, or a member's block. */
static algo_range chunk(const ring *r, int t, int s)
{
    int64_t n = r->b.call->count;
    algo_range whole = {.at = n * r->order[t], .count = n};
    if (op(r) == SN_ALL_REDUCE)
        whole = algo_slice(n, r->p, t);
    return algo_slice_of(whole, r->segments, s);
}

static sn_place scratch(const ring *r, sn_buf buf, int index, int s)
{
    return algo_at(r->b.me, buf, r->room * ((int64_t) index * r->window + s % r->window));
}

static sn_place sum_of(const ring *r, int t, int s)
{
    if (algo_wide(r->b.call))
        return scratch(r, SN_BUF_WIDE, t, s);
    if (op(r) == SN_ALL_REDUCE)
        return algo_at(r->b.me, SN_BUF_OUT, chunk(r, t, s).at);
    return scratch(r, SN_BUF_TMP, t, s);
}

static sn_place came_of(const ring *r, int t, int s)
{
    return scratch(r, algo_wide(r->b.call) ? SN_BUF_WIDE : SN_BUF_TMP, r->p + t, s);
}

static sn_place result_at(const ring *r, int member, int t, int s)
{
    int64_t at = chunk(r, t, s).at;
    if (op(r) == SN_REDUCE_SCATTER)
        at -= r->b.call->count * r->order[t];
    return algo_at(member, SN_BUF_OUT, at);
}

/* ---- the pipeline ---- */

/* Adds my run's inputs to what came, or to nothing. */
static void add(ring *r, int t, int s, bool came)
{
    way w = sum_way(r, t, r->at);
    algo_range c = chunk(r, t, s);
    bool last = w.index == w.last;
    int srcs = 0;
    if (came)
        r->source[srcs++] = came_of(r, t, s);
    for (int i = w.from; i <= w.to; i++)
        r->source[srcs++] = algo_at(r->order[i], SN_BUF_IN, c.at);
    sn_place dst = last ? result_at(r, r->b.me, t, s) : sum_of(r, t, s);
    algo_reduce(&r->b, &dst, 1, r->source, srcs, c.count, last);
}

static void enter(void *ctx, int s)
{
    ring *r = ctx;
    if (op(r) == SN_ALL_GATHER) {
        algo_range c = chunk(r, r->at, s);
        algo_copy(&r->b, algo_at(r->b.me, SN_BUF_OUT, c.at),
                  algo_at(r->b.me, SN_BUF_IN, c.at - r->b.call->count * r->b.me), c.count);
        return;
    }
    const cargo *h = &r->sums;
    for (int i = h->first[0]; i < h->first[1]; i++)
        add(r, h->chunk[i], s, false);
}

static void post_sum(ring *r, int s, int hop)
{
    const cargo *h = &r->sums;
    for (int i = h->first[hop]; i < h->first[hop + 1]; i++) {
        int t = h->chunk[i];
        if (hop < sum_way(r, t, r->at).last)
            algo_send(&r->b, r->order[sum_carrier(r, t, hop + 1)], sum_of(r, t, s),
                      chunk(r, t, s).count);
    }
    for (int i = h->first[hop + 1]; i < h->first[hop + 2]; i++) {
        int t = h->chunk[i];
        algo_recv(&r->b, r->order[sum_carrier(r, t, hop)], came_of(r, t, s), chunk(r, t, s).count);
    }
}

static void post_result(ring *r, int s, int hop)
{
    const cargo *h = &r->results;
    for (int i = h->first[hop]; i < h->first[hop + 1]; i++) {
        int t = h->chunk[i];
        if (hop < result_way(r, t, r->at).last)
            algo_send(&r->b, r->order[result_carrier(r, t, hop + 1)], result_at(r, r->b.me, t, s),
                      chunk(r, t, s).count);
    }
    for (int i = h->first[hop + 1]; i < h->first[hop + 2]; i++) {
        int t = h->chunk[i];
        algo_recv(&r->b, r->order[result_carrier(r, t, hop)], result_at(r, r->b.me, t, s),
                  chunk(r, t, s).count);
    }
}

static void post(void *ctx, int s, int stage)
{
    ring *r = ctx;
    if (stage < r->adding)
        post_sum(r, s, stage);
    else
        post_result(r, s, stage - r->adding);
}

static void work(void *ctx, int s, int stage)
{
    ring *r = ctx;
    const cargo *h = &r->sums;
    if (stage >= r->adding)
        return;
    for (int i = h->first[stage + 1]; i < h->first[stage + 2]; i++)
        add(r, h->chunk[i], s, true);
}

static void leave(void *ctx, int s)
{
    ring *r = ctx;
    for (int k = 0; k < r->p; k++) {
        int t = (r->at + k) % r->p, carrier = r->order[result_way(r, t, r->at).carrier];
        algo_range c = chunk(r, t, s);
        if (carrier == r->b.me || c.count == 0)
            continue;
        algo_wait(&r->b, carrier, 2 + s);
        algo_copy(&r->b, result_at(r, r->b.me, t, s), result_at(r, carrier, t, s), c.count);
    }
}

/* ---- the rows ---- */

static bool fits(const algo_shape *s, const sn_algo_group *g, const sn_algo_call *c)
{
    return s->members > 1;
}

static bool fits_hosts(const algo_shape *s, const sn_algo_group *g, const sn_algo_call *c)
{
    return s->hosts > 1;
}

/* `crossings`: neighbours that are on another host than a member of one host. */
static algo_flow flow(const algo_shape *s, const sn_algo_call *c, int crossings)
{
    bool adds = algo_reduces(c->op), passes = c->op != SN_REDUCE_SCATTER;
    double p = s->members, bytes = (double) algo_bytes(c) * (c->op == SN_ALL_REDUCE ? 1 : p);
    double wide = algo_wide(c) ? 4.0 / (double) sn_dtype_bytes(c->dtype) : 1;
    double sent = s->hosts > 1 ? (p - 1) / p * (wide * adds + passes) * bytes : 0;
    double run = (double) s->size_max / crossings, here = run > 1 ? 1 : 0;
    int hops = s->hosts > 1 ? s->hosts * crossings - 1 + (int) here : 0;
    algo_flow f = {.stages = hops * (adds + passes), .adding = adds ? hops : 0, .works = adds};
    f.signals = passes && s->size_max > 1;
    f.bytes = bytes / p;
    f.posts = 2 * (int) run;
    f.posts_all = 4 * s->members;
    f.messages = f.stages * (run - 1);
    f.once.of[ALGO_CALL] = 1;
    f.once.of[ALGO_SIGNAL] = s->size_max > 1 ? 2 : 0;
    f.path.of[ALGO_WIRE] = crossings * sent;
    f.path.of[ALGO_SOCKET] = 2 * sent;
    if (adds)
        f.path.of[ALGO_REDUCE] = (run + 2 * wide) * bytes;
    if (passes)
        f.path.of[ALGO_COPY] = here * bytes + (c->op == SN_ALL_GATHER ? bytes / p : 0);
    f.steady = f.path;
    return f;
}

static int crossings(const algo_shape *s, bool round_robin)
{
    return round_robin ? s->size_max : 1;
}

static sn_status make(const sn_algo_group *g, const sn_algo_call *c, int me, sn_arena *arena,
                      bool round_robin, sn_sched *ret)
{
    int p = g->members;
    ring r = {.b = algo_build_begin(g, c, me, arena),
              .p = p,
              .order = SN_NEW_N(arena, int, p),
              .run = SN_NEW_N(arena, int, p),
              .end = SN_NEW_N(arena, int, p),
              .source = SN_NEW_N(arena, sn_place, p + 1)};
    algo_map m = algo_map_of(g, arena);
    algo_shape shape = algo_shape_of(g);
    algo_flow f = flow(&shape, c, crossings(&shape, round_robin));
    put_in_order(&r, &m, round_robin);
    find_runs(&r, &m);
    int hops = r.runs - 1 + (r.runs > 1 && r.runs < p); /* runs of several are met twice */
    r.adding = algo_reduces(c->op) ? hops : 0;
    r.passing = c->op == SN_REDUCE_SCATTER ? 0 : hops;
    r.segments = algo_flow_segments(&f, g);
    r.window = algo_pipe_window(r.segments, r.adding);
    r.room = chunk(&r, 0, 0).count;
    r.sums = carried(&r, sum_way);
    r.results = carried(&r, result_way);
    bool here = m.size[m.host[me]] > 1, passes = c->op != SN_REDUCE_SCATTER;
    algo_pipe pipe = {.segments = r.segments,
                      .stages = r.adding + r.passing,
                      .works = f.works,
                      .signals = here && passes,
                      .ctx = &r,
                      .enter = enter,
                      .post = post,
                      .work = work,
                      .leave = passes ? leave : NULL};
    algo_enter(&r.b);
    algo_pipe_run(&r.b, &pipe);
    if (here)
        algo_enter(&r.b);
    algo_build_end(&r.b, round_robin ? "ring_round_robin" : "ring", r.segments + 2,
                   shape.size_max > 1, ret);
    return SN_OK;
}

static sn_status schedule(const sn_algo_group *g, const sn_algo_call *c, int me, sn_arena *arena,
                          sn_sched *ret)
{
    return make(g, c, me, arena, false, ret);
}

static sn_status schedule_round_robin(const sn_algo_group *g, const sn_algo_call *c, int me,
                                      sn_arena *arena, sn_sched *ret)
{
    return make(g, c, me, arena, true, ret);
}

static void count(const algo_shape *s, const sn_algo_group *g, const sn_algo_call *c,
                  const sn_algo_model *m, algo_counts *ret)
{
    algo_flow f = flow(s, c, crossings(s, false));
    algo_flow_count(&f, g, m, ret);
}

static void count_round_robin(const algo_shape *s, const sn_algo_group *g, const sn_algo_call *c,
                              const sn_algo_model *m, algo_counts *ret)
{
    algo_flow f = flow(s, c, crossings(s, true));
    algo_flow_count(&f, g, m, ret);
}

const sn_algo_row algo_ring = {
    .name = "ring",
    .needs = "two members or more",
    .ops = 1u << SN_ALL_REDUCE | 1u << SN_REDUCE_SCATTER | 1u << SN_ALL_GATHER,
    .fits = fits,
    .schedule = schedule,
    .count = count,
};

const sn_algo_row algo_ring_round_robin = {
    .name = "ring_round_robin",
    .needs = "several hosts",
    .ops = 1u << SN_ALL_REDUCE,
    .by_name = true,
    .fits = fits_hosts,
    .schedule = schedule_round_robin,
    .count = count_round_robin,
};
