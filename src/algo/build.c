/* SPDX-License-Identifier: Apache-2.0 */
#include "algo/build.h"

#include <string.h>

algo_build algo_build_begin(const sn_algo_group *g, const sn_algo_call *c, int me, sn_arena *arena)
{
    SN_ASSERT(me >= 0 && me < g->members && c->count >= 0);
    return (algo_build){.arena = arena, .group = g, .call = c, .me = me, .members = g->members};
}

void algo_build_end(algo_build *b, const char *name, int rounds, bool shared, sn_sched *ret)
{
    SN_ASSERT(b->round <= rounds);
    b->sched.algorithm = name;
    b->sched.rounds = rounds;
    b->sched.shared = shared;
    *ret = b->sched;
}

static sn_step *step(algo_build *b, sn_step_kind kind)
{
    size_t count = (size_t) b->sched.steps;
    b->sched.step =
        sn_arena_grow(b->arena, b->sched.step, count, count + 1, sizeof(sn_step), &b->step_cap);
    sn_step *s = &b->sched.step[b->sched.steps++];
    *s = (sn_step){.kind = kind, .member = b->me};
    return s;
}

static int places(algo_build *b, const sn_place *place, int n)
{
    size_t count = (size_t) b->sched.places;
    b->sched.place = sn_arena_grow(b->arena, b->sched.place, count, count + (size_t) n,
                                   sizeof(sn_place), &b->place_cap);
    memcpy(b->sched.place + count, place, (size_t) n * sizeof(sn_place));
    b->sched.places += n;
    return (int) count;
}

void algo_signal(algo_build *b)
{
    step(b, SN_STEP_SIGNAL)->round = ++b->round;
}

void algo_wait(algo_build *b, int member, int round)
{
    sn_step *s = step(b, SN_STEP_WAIT);
    s->member = member;
    s->round = round;
}

void algo_enter(algo_build *b)
{
    algo_signal(b);
    algo_wait(b, SN_ALL, b->round);
}

static void need_tmp(algo_build *b, sn_place p, int64_t count)
{
    if (p.buf == SN_BUF_TMP)
        b->sched.tmp_count = SN_MAX(b->sched.tmp_count, p.at + count);
    if (p.buf == SN_BUF_WIDE)
        b->sched.wide_count = SN_MAX(b->sched.wide_count, p.at + count);
}

static bool same_place(sn_place a, sn_place b)
{
    return a.member == b.member && a.buf == b.buf && a.at == b.at;
}

static void move(algo_build *b, sn_step_kind kind, int member, const sn_place *dst,
                 const sn_place *src, int64_t count)
{
    if (count == 0)
        return;
    int dst_at = dst != NULL ? places(b, dst, 1) : 0, src_at = src != NULL ? places(b, src, 1) : 0;
    sn_step *s = step(b, kind);
    s->member = member;
    s->count = count;
    if (dst != NULL) {
        need_tmp(b, *dst, count);
        s->dst = dst_at;
        s->dsts = 1;
    }
    if (src != NULL) {
        need_tmp(b, *src, count);
        s->src = src_at;
        s->srcs = 1;
    }
}

void algo_copy(algo_build *b, sn_place dst, sn_place src, int64_t count)
{
    SN_ASSERT(dst.buf != SN_BUF_WIDE && src.buf != SN_BUF_WIDE);
    if (!same_place(dst, src))
        move(b, SN_STEP_COPY, b->me, &dst, &src, count);
}

void algo_send(algo_build *b, int to, sn_place src, int64_t count)
{
    move(b, SN_STEP_SEND, to, NULL, &src, count);
    b->pending += count > 0;
}

void algo_recv(algo_build *b, int from, sn_place dst, int64_t count)
{
    move(b, SN_STEP_RECV, from, &dst, NULL, count);
    b->pending += count > 0;
}

void algo_fence(algo_build *b)
{
    if (b->pending > 0)
        step(b, SN_STEP_FENCE);
    b->pending = 0;
}

void algo_reduce(algo_build *b, const sn_place *dst, int dsts, const sn_place *src, int srcs,
                 int64_t count, bool last)
{
    if (count == 0)
        return;
    int dst_at = places(b, dst, dsts), src_at = places(b, src, srcs);
    for (int i = 0; i < dsts; i++)
        need_tmp(b, dst[i], count);
    for (int i = 0; i < srcs; i++)
        need_tmp(b, src[i], count);
    sn_step *s = step(b, SN_STEP_REDUCE);
    s->dst = dst_at;
    s->dsts = dsts;
    s->src = src_at;
    s->srcs = srcs;
    s->count = count;
    s->divide = last && b->call->red == SN_AVG ? b->members : 0;
}

/* ---- the group ---- */

algo_map algo_map_of(const sn_algo_group *g, sn_arena *arena)
{
    int n = g->members;
    algo_map m = {.host = SN_NEW_N(arena, int, n),
                  .local = SN_NEW_N(arena, int, n),
                  .size = SN_NEW_N(arena, int, n),
                  .first = SN_NEW_N(arena, int, n),
                  .member_of = SN_NEW_N(arena, int, n)};
    m.hosts = algo_hosts_number(g, m.host);
    for (int i = 0; i < n; i++)
        m.local[i] = m.size[m.host[i]]++;
    for (int h = 1; h < m.hosts; h++)
        m.first[h] = m.first[h - 1] + m.size[h - 1];
    for (int i = 0; i < n; i++)
        m.member_of[m.first[m.host[i]] + m.local[i]] = i;
    return m;
}

int algo_map_member(const algo_map *m, int host, int local)
{
    return m->member_of[m->first[host] + local];
}

algo_range algo_slice(int64_t n, int parts, int i)
{
    int64_t each = SN_ALIGN_UP((n + parts - 1) / parts, 64);
    int64_t from = SN_MIN(n, each * i), to = SN_MIN(n, each * (i + 1));
    return (algo_range){.at = from, .count = to - from};
}

int64_t algo_bytes(const sn_algo_call *c)
{
    return c->count * (int64_t) sn_dtype_bytes(c->dtype);
}

algo_range algo_slice_of(algo_range whole, int parts, int i)
{
    algo_range r = algo_slice(whole.count, parts, i);
    r.at += whole.at;
    return r;
}

bool algo_reduces(sn_coll_op op)
{
    return op == SN_ALL_REDUCE || op == SN_REDUCE_SCATTER;
}

bool algo_wide(const sn_algo_call *c)
{
    return algo_reduces(c->op) && (c->dtype == SN_BF16 || c->dtype == SN_F16) &&
           (c->red == SN_SUM || c->red == SN_AVG);
}

int algo_log2_up(int n)
{
    int log = 0;
    while (1 << log < n)
        log++;
    return log;
}
