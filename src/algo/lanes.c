/* SPDX-License-Identifier: Apache-2.0 */
#include "algo/lanes.h"

bool algo_lanes_fits(const algo_shape *s, const sn_algo_group *g, const sn_algo_call *c)
{
    return s->hosts > 1;
}

bool algo_lanes_small(const sn_algo_call *c)
{
    return c->op == SN_ALL_REDUCE && 2 * algo_bytes(c) <= SN_ALGO_NOTE_BYTES;
}

algo_lanes algo_lanes_begin(const sn_algo_group *g, const sn_algo_call *c, int me, sn_arena *arena)
{
    algo_lanes t = {.b = algo_build_begin(g, c, me, arena),
                    .m = algo_map_of(g, arena),
                    .shape = algo_shape_of(g),
                    .me = me};
    t.host = t.m.host[me];
    t.local = t.m.local[me];
    t.size = t.m.size[t.host];
    t.leader = algo_map_member(&t.m, t.host, 0);
    t.small = algo_lanes_small(c);
    t.wide = algo_wide(c);
    t.lanes = c->op == SN_ALL_REDUCE && !t.small ? t.shape.lanes : 1;
    t.first = t.local;
    if (c->op == SN_BROADCAST)
        t.first = me == algo_lanes_owner(&t, t.host, 0) ? 0 : 1;
    t.source = SN_NEW_N(arena, sn_place, 2 * g->members + 2);
    return t;
}

int algo_lanes_speaker(const algo_lanes *t, int h, int local)
{
    return algo_map_member(&t->m, h, local % t->m.size[h]);
}

int algo_lanes_owner(const algo_lanes *t, int h, int lane)
{
    const sn_algo_call *c = t->b.call;
    return algo_lanes_speaker(t, h, c->op == SN_BROADCAST ? t->m.local[c->root] : lane);
}

sn_place *algo_lanes_of_host(algo_lanes *t, sn_buf buf, int64_t at)
{
    sn_place *p = SN_NEW_N(t->b.arena, sn_place, t->size);
    for (int i = 0; i < t->size; i++)
        p[i] = algo_at(algo_map_member(&t->m, t->host, i), buf, at);
    return p;
}

/* ---- a part ---- */

static algo_part part_of(algo_lanes *t, int lane, int segment)
{
    algo_range slice = algo_slice(t->b.call->count, t->lanes, lane);
    algo_range r = algo_slice_of(slice, t->segments, segment);
    return (algo_part){.t = t, .lane = lane, .segment = segment, .at = r.at, .count = r.count};
}

int algo_part_peer(const algo_part *p, int host)
{
    return algo_lanes_owner(p->t, host, p->lane);
}

void algo_part_send(const algo_part *p, int host, sn_place src, int64_t count)
{
    algo_send(&p->t->b, algo_part_peer(p, host), src, count);
}

void algo_part_recv(const algo_part *p, int host, sn_place dst, int64_t count)
{
    algo_recv(&p->t->b, algo_part_peer(p, host), dst, count);
}

/* Which of its scratch places a part uses: those of a member's lanes one after the other. */
static int64_t slot(const algo_part *p)
{
    const algo_lanes *t = p->t;
    return (int64_t) (p->lane / t->size) * t->window + p->segment % t->window;
}

sn_place algo_part_result(const algo_part *p, int64_t off)
{
    const algo_lanes *t = p->t;
    if (t->small)
        return algo_at(t->me, SN_BUF_NOTE, t->b.call->count + off);
    return algo_at(t->me, SN_BUF_OUT, p->at + off);
}

sn_place algo_part_sum(const algo_part *p, int64_t off)
{
    const algo_lanes *t = p->t;
    return t->wide ? algo_at(t->me, SN_BUF_WIDE, slot(p) * t->room + off)
                   : algo_part_result(p, off);
}

sn_place algo_part_came(const algo_part *p, int64_t off)
{
    const algo_lanes *t = p->t;
    int64_t sums = (int64_t) ((t->lanes + t->size - 1) / t->size) * t->window * t->room;
    return algo_at(t->me, t->wide ? SN_BUF_WIDE : SN_BUF_TMP,
                   (t->wide ? sums : 0) + slot(p) * t->came_room + off);
}

sn_place algo_part_came_as_is(const algo_part *p, int64_t off)
{
    return algo_at(p->t->me, SN_BUF_TMP, slot(p) * p->t->came_room + off);
}

static sn_place input(const algo_part *p, int member, int64_t off)
{
    return algo_at(member, p->t->small ? SN_BUF_NOTE : SN_BUF_IN, p->at + off);
}

sn_place algo_part_input(const algo_part *p, int64_t off)
{
    return input(p, p->t->me, off);
}

void algo_part_begin(const algo_part *p, int *srcs)
{
    *srcs = 0;
}

void algo_part_add(const algo_part *p, int *srcs, sn_place src)
{
    SN_ASSERT(*srcs < 2 * p->t->b.members + 2);
    p->t->source[(*srcs)++] = src;
}

void algo_part_add_inputs(const algo_part *p, int *srcs, int64_t off)
{
    const algo_lanes *t = p->t;
    for (int i = 0; i < t->size; i++)
        algo_part_add(p, srcs, input(p, algo_map_member(&t->m, t->host, i), off));
}

void algo_part_end(const algo_part *p, int srcs, int64_t off, int64_t count, bool last)
{
    sn_place dst = last ? algo_part_result(p, off) : algo_part_sum(p, off);
    algo_reduce(&p->t->b, &dst, 1, p->t->source, srcs, count, last);
}

void algo_part_sum_inputs(const algo_part *p, int64_t off, int64_t count)
{
    const algo_lanes *t = p->t;
    int srcs;
    if (t->size == 1 && t->b.call->in_place && !t->wide && !t->small)
        return; /* it is there */
    algo_part_begin(p, &srcs);
    algo_part_add_inputs(p, &srcs, off);
    algo_part_end(p, srcs, off, count, false);
}

void algo_part_sum_all(const algo_part *p)
{
    algo_part_sum_inputs(p, 0, p->count);
}

void algo_part_sum_came(const algo_part *p, int from, int64_t off, int64_t count, bool last)
{
    sn_place own = algo_part_sum(p, off), came = algo_part_came(p, 0);
    int srcs;
    algo_part_begin(p, &srcs);
    algo_part_add(p, &srcs, from < p->t->host ? came : own);
    algo_part_add(p, &srcs, from < p->t->host ? own : came);
    algo_part_end(p, srcs, off, count, last);
}

/* ---- the pipeline ---- */

static void enter(void *ctx, int segment)
{
    algo_lanes *t = ctx;
    if (t->across->enter == NULL)
        return;
    for (int lane = t->first; lane < t->lanes; lane += t->size) {
        algo_part p = part_of(t, lane, segment);
        t->across->enter(&p);
    }
}

static void post(void *ctx, int segment, int stage)
{
    algo_lanes *t = ctx;
    for (int lane = t->first; lane < t->lanes; lane += t->size) {
        algo_part p = part_of(t, lane, segment);
        t->across->post(&p, stage);
    }
}

static void work(void *ctx, int segment, int stage)
{
    algo_lanes *t = ctx;
    if (t->across->work == NULL)
        return;
    for (int lane = t->first; lane < t->lanes; lane += t->size) {
        algo_part p = part_of(t, lane, segment);
        t->across->work(&p, stage);
    }
}

/* The results of my host's other owners, starting after mine, so that all begin with another. */
static void leave(void *ctx, int segment)
{
    algo_lanes *t = ctx;
    int waited = t->me;
    for (int k = 0; k < t->lanes; k++) {
        int lane = (t->local + k) % t->lanes, owner = algo_lanes_owner(t, t->host, lane);
        algo_part p = part_of(t, lane, segment);
        if (owner == t->me || p.count == 0)
            continue;
        if (owner != waited)
            algo_wait(&t->b, owner, 2 + segment);
        waited = owner;
        algo_copy(&t->b, algo_at(t->me, SN_BUF_OUT, p.at), algo_at(owner, SN_BUF_OUT, p.at),
                  p.count);
    }
}

static void leave_small(void *ctx, int segment)
{
    algo_lanes *t = ctx;
    int64_t n = t->b.call->count;
    if (t->me != t->leader)
        algo_wait(&t->b, t->leader, 2);
    algo_copy(&t->b, algo_at(t->me, SN_BUF_OUT, 0), algo_at(t->leader, SN_BUF_NOTE, n), n);
}

/* How many segments, and what scratch they need. Returns whether stages add. */
static bool prepare(algo_lanes *t, const algo_across *across)
{
    const sn_algo_group *g = t->b.group;
    algo_flow f = across->flow(&t->shape, g, t->b.call);
    t->across = across;
    t->stages = f.stages;
    t->segments = t->small ? 1 : algo_flow_segments(&f, g);
    t->window = algo_pipe_window(t->segments, f.adding);
    t->room = part_of(t, 0, 0).count;
    t->plan = across->plan != NULL ? across->plan(t) : NULL;
    t->came_room = across->came != NULL ? across->came(t, t->room) : 0;
    return f.works;
}

static void run(algo_lanes *t, bool works)
{
    algo_pipe pipe = {.segments = t->segments,
                      .stages = t->stages,
                      .works = works,
                      .signals = t->size > 1 && (!t->small || t->me == t->leader),
                      .ctx = t,
                      .enter = enter,
                      .post = post,
                      .work = work,
                      .leave = t->small      ? leave_small
                               : t->size > 1 ? leave
                                             : NULL};
    algo_pipe_run(&t->b, &pipe);
}

void algo_lanes_all_reduce(algo_lanes *t, const algo_across *across)
{
    int64_t n = t->b.call->count;
    bool works = prepare(t, across);
    if (t->small)
        algo_copy(&t->b, algo_at(t->me, SN_BUF_NOTE, 0), algo_at(t->me, SN_BUF_IN, 0), n);
    algo_enter(&t->b);
    run(t, works);
    if (!t->small && t->size > 1)
        algo_enter(&t->b);
}

void algo_lanes_broadcast(algo_lanes *t, const algo_across *across)
{
    bool works = prepare(t, across);
    algo_enter(&t->b);
    run(t, works);
    if (t->size == 1)
        return;
    algo_signal(&t->b);
    if (t->me == algo_lanes_owner(t, t->host, 0))
        algo_wait(&t->b, SN_ALL, t->b.round);
}

sn_status algo_lanes_schedule(const sn_algo_group *g, const sn_algo_call *c, int me,
                              sn_arena *arena, const char *name, const algo_across *across,
                              sn_sched *ret)
{
    algo_lanes t = algo_lanes_begin(g, c, me, arena);
    bool alone = t.shape.size_max == 1;
    if (c->op == SN_BROADCAST)
        algo_lanes_broadcast(&t, across);
    else
        algo_lanes_all_reduce(&t, across);
    algo_build_end(&t.b, name, t.small ? 2 : alone ? 1 : t.segments + 2, !t.small && !alone, ret);
    return SN_OK;
}

/* ---- time ---- */

static bool whole(const sn_algo_call *c)
{
    return c->op != SN_ALL_REDUCE || algo_lanes_small(c);
}

/* The share of the vector that the busiest owner has. */
static double share(const algo_shape *s, const sn_algo_call *c)
{
    return whole(c) ? 1 : (double) s->most_lanes / s->lanes;
}

double algo_lanes_slice(const algo_shape *s, const sn_algo_call *c)
{
    return (double) algo_bytes(c) * share(s, c);
}

double algo_lanes_widened(const sn_algo_call *c)
{
    return algo_wide(c) ? 4.0 / (double) sn_dtype_bytes(c->dtype) : 1;
}

void algo_flow_both(algo_flow *f, algo_term term, double count)
{
    f->path.of[term] += count;
    f->steady.of[term] += count;
}

void algo_lanes_sent(algo_flow *f, const algo_shape *s, const sn_algo_call *c, double path,
                     double steady)
{
    f->path.of[ALGO_WIRE] += path;
    f->steady.of[ALGO_WIRE] += steady;
    f->path.of[ALGO_SOCKET] += 2 * share(s, c) * path;
    f->steady.of[ALGO_SOCKET] += 2 * share(s, c) * steady;
}

algo_flow algo_lanes_flow(const algo_shape *s, const sn_algo_call *c)
{
    double bytes = (double) algo_bytes(c), slice = algo_lanes_slice(s, c);
    algo_flow f = {.bytes = bytes / (whole(c) ? 1 : s->lanes), .signals = s->size_max > 1};
    f.once.of[ALGO_CALL] = 1;
    if (algo_lanes_small(c)) {
        f.signals = false;
        f.bytes = 0;
        f.once.of[ALGO_SIGNAL] = 2;
        f.once.of[ALGO_COPY] = 2 * bytes;
        f.once.of[ALGO_REDUCE] = (s->size_max + 1) * bytes;
        return f;
    }
    f.once.of[ALGO_SIGNAL] = s->size_max > 1 ? 2 : 0;
    if (s->size_max > 1)
        algo_flow_both(&f, ALGO_COPY, bytes - (c->op == SN_ALL_REDUCE ? slice : 0));
    if (c->op == SN_ALL_REDUCE)
        algo_flow_both(&f, ALGO_REDUCE, (s->size_max + algo_lanes_widened(c)) * slice);
    return f;
}

void algo_lanes_count(const algo_shape *s, const sn_algo_group *g, const sn_algo_call *c,
                      const sn_algo_model *m, const algo_across *across, algo_counts *ret)
{
    algo_flow f = across->flow(s, g, c);
    algo_flow_count(&f, g, m, ret);
}

/* ---- a power of two ---- */

algo_fold algo_fold_of(int hosts, int host)
{
    algo_fold f = {.power = 1};
    while (f.power * 2 <= hosts)
        f.power *= 2;
    f.extra = hosts - f.power;
    if (host >= 2 * f.extra)
        f.index = host - f.extra;
    else
        f.index = host % 2 == 1 ? host / 2 : -1;
    return f;
}

int algo_fold_host(const algo_fold *f, int index)
{
    return index < f->extra ? 2 * index + 1 : index + f->extra;
}

/* Hosts 2i and 2i + 1 of the first `extra` pairs. */
static bool paired(const algo_part *p, const algo_fold *f)
{
    return p->t->host < 2 * f->extra;
}

void algo_fold_in_post(const algo_part *p, const algo_fold *f)
{
    if (!paired(p, f))
        return;
    if (f->index < 0)
        algo_part_send(p, p->t->host + 1, algo_part_sum(p, 0), p->count);
    else
        algo_part_recv(p, p->t->host - 1, algo_part_came(p, 0), p->count);
}

void algo_fold_in_work(const algo_part *p, const algo_fold *f)
{
    if (paired(p, f) && f->index >= 0)
        algo_part_sum_came(p, p->t->host - 1, 0, p->count, false);
}

void algo_fold_out_post(const algo_part *p, const algo_fold *f)
{
    if (!paired(p, f))
        return;
    if (f->index < 0)
        algo_part_recv(p, p->t->host + 1, algo_part_result(p, 0), p->count);
    else
        algo_part_send(p, p->t->host - 1, algo_part_result(p, 0), p->count);
}
