/* SPDX-License-Identifier: Apache-2.0
 *
 * op — a group's operation from post to completion.
 *
 *   QUEUED ──▶ VOTE ──▶ MAIN ──▶ CLOSING ──▶ done
 *                        ▲ │ a chunk at a time when staged
 *                        └─┘
 *
 * Buffers in the arena are used where they are. When any member has one outside and the call is
 * longer than a stage region, all members go through their regions chunk by chunk, so first they
 * ask each other (VOTE: an all_reduce of one number). Shorter calls are staged by whoever needs it,
 * without telling. The region belongs to the oldest operation of the group: all members agree on
 * which that is, so nobody waits in a circle. */
#include "coll/coll_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what a call means ---- */

static int blocks_in(const sn_coll_req *r)
{
    sn_coll_op op = r->call.op;
    if (op == SN_BROADCAST || op == SN_BARRIER)
        return 0;
    bool each = op == SN_REDUCE_SCATTER || op == SN_ALL_TO_ALL || op == SN_SCATTER;
    return each ? r->group->size : 1;
}

static int blocks_out(const sn_coll_req *r)
{
    sn_coll_op op = r->call.op;
    if (op == SN_BARRIER)
        return 0;
    return op == SN_ALL_GATHER || op == SN_ALL_TO_ALL || op == SN_GATHER ? r->group->size : 1;
}

static size_t element(const sn_coll_req *r)
{
    return sn_dtype_bytes(r->call.dtype);
}

static sn_algo_call algo_call(const sn_coll_req *r, int64_t count, bool in_place)
{
    return (sn_algo_call){.op = r->call.op,
                          .red = r->call.red,
                          .dtype = r->call.dtype,
                          .count = count,
                          .root = r->call.root,
                          .in_place = in_place};
}

const char *coll_req_text(const sn_coll_req *r, char out[200])
{
    if (r->kind == COLL_REQ_GROUP)
        snprintf(out, 200, "%s #%llu in group %s", sn_coll_op_name(r->call.op),
                 (unsigned long long) r->seq, r->group->name);
    else
        snprintf(out, 200, "%s %d, tag %u",
                 r->kind == COLL_REQ_SEND || r->kind == COLL_REQ_NET_SEND ? "send to rank"
                                                                          : "receive from rank",
                 r->peer, r->tag);
    return out;
}

/* ---- runs ---- */

static sn_status need_tmp(sn_coll_req *r, size_t bytes)
{
    sn_coll_group *g = r->group;
    size_t w = r->seq % COLL_WINDOW;
    if (bytes <= g->tmp_bytes[w])
        return SN_OK;
    size_t rounded = SN_ALIGN_UP(bytes, 4096);
    unsigned char *more = aligned_alloc(64, rounded);
    if (more == NULL)
        return sn_fail(SN_ENOMEM, "no memory for %zu bytes of scratch", rounded);
    free(g->tmp[w]);
    g->tmp[w] = more;
    g->tmp_bytes[w] = rounded;
    return SN_OK;
}

static sn_status run_begin(sn_coll_req *r, const sn_algo_call *call, int asked)
{
    coll_plan *plan;
    SN_TRY(coll_plan_get(r->group, call, asked, &plan));
    SN_TRY(need_tmp(r, (size_t) plan->sched.tmp_count * sn_dtype_bytes(call->dtype)));
    plan->used++;
    r->run.plan = plan;
    r->run.step = 0;
    r->run.moved = 0;
    return SN_OK;
}

static void run_end(sn_coll_req *r)
{
    r->run.base += r->run.plan->sched.rounds;
    r->run.plan->used--;
    r->run.plan = NULL;
}

/* ---- staging ---- */

static bool in_arena(const sn_coll_req *r)
{
    uint64_t at, in = (uint64_t) r->call.count * (uint64_t) blocks_in(r) * element(r);
    uint64_t out = (uint64_t) r->call.count * (uint64_t) blocks_out(r) * element(r);
    return (in == 0 || sn_gmem_find(r->coll->seg, r->call.in, in, &at)) &&
           (out == 0 || sn_gmem_find(r->coll->seg, r->call.out, out, &at));
}

/* Elements [at, at + n) of each block, between the caller's buffer and the packed region. */
static void pack(sn_coll_req *r, unsigned char *region, int blocks, int64_t n)
{
    size_t el = element(r), bytes = (size_t) n * el;
    for (int b = 0; b < blocks; b++)
        memcpy(region + (size_t) b * bytes,
               (const char *) r->call.in + (size_t) (r->call.count * b + r->at) * el, bytes);
}

static void unpack(sn_coll_req *r, const unsigned char *region, int blocks, int64_t n)
{
    size_t el = element(r), bytes = (size_t) n * el;
    for (int b = 0; b < blocks; b++)
        memcpy((char *) r->call.out + (size_t) (r->call.count * b + r->at) * el,
               region + (size_t) b * bytes, bytes);
}

static int64_t chunk_now(const sn_coll_req *r)
{
    return SN_MIN(r->chunk, r->call.count - r->at);
}

static sn_status need_region(sn_coll_req *r)
{
    sn_coll_group *g = r->group;
    if (g->finished != r->seq - 1)
        return SN_PENDING;
    if (g->stage == NULL)
        g->stage = coll_region_take(r->coll, false, &g->stage_index);
    if (g->stage == NULL)
        return sn_fail(SN_EFIT,
                       "the staging memory is used up by %d groups: give sn_coll_open more "
                       "stage_bytes, or take the buffers from sn_coll_alloc",
                       r->coll->regions - COLL_P2P_REGIONS);
    return SN_OK;
}

static sn_status chunk_begin(sn_coll_req *r)
{
    int64_t n = chunk_now(r);
    bool in_place = !r->staged && r->call.in == r->call.out;
    if (r->staged) {
        sn_status status = need_region(r);
        if (status != SN_OK)
            return status;
    }
    sn_algo_call call = algo_call(r, n, in_place);
    SN_TRY(run_begin(r, &call, r->staged ? r->print.algorithm : r->asked));
    if (!r->staged) {
        r->run.in = (unsigned char *) (uintptr_t) r->call.in;
        r->run.out = r->call.out;
        return SN_OK;
    }
    r->run.in = r->group->stage;
    r->run.out = r->group->stage + COLL_STAGE;
    pack(r, r->run.in, blocks_in(r), n);
    if (r->call.op == SN_BROADCAST && r->group->me == r->call.root)
        memcpy(r->run.out, (const char *) r->call.out + (size_t) r->at * element(r),
               (size_t) n * element(r));
    return SN_OK;
}

static void chunk_end(sn_coll_req *r)
{
    int64_t n = chunk_now(r);
    if (r->staged)
        unpack(r, r->run.out, blocks_out(r), n);
    run_end(r);
    r->at += n;
}

/* ---- the stages of an operation ---- */

/* Has everybody on my host finished with the slot that this operation will use? */
static bool slot_free(sn_coll_req *r)
{
    sn_coll_group *g = r->group;
    if (r->seq != g->started + 1 || r->seq > g->finished + COLL_WINDOW)
        return false;
    if (r->seq <= g->others_done + COLL_WINDOW)
        return true;
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < g->locals; i++)
        least = SN_MIN(least, coll_load(&g->member[g->local[i]].block->done_seq));
    g->others_done = least;
    return r->seq <= least || r->seq - least <= COLL_WINDOW;
}

static sn_status start(sn_coll_req *r)
{
    sn_coll_group *g = r->group;
    coll_window *w = coll_window_of(g, r->seq);
    int wide = SN_MAX(blocks_in(r), blocks_out(r));
    int64_t fits = (int64_t) (COLL_STAGE / element(r)) / SN_MAX(wide, 1);
    bool outside = r->shared && g->locals > 0 && !in_arena(r);
    g->started = r->seq;
    coll_record_start(r);
    w->prints_sent = w->prints_ok = g->lanes == 0;
    w->nets = 0;
    r->at = 0;
    r->chunk = r->call.count;
    if (!r->shared || r->call.count <= fits) {
        r->staged = outside;
        r->stage = COLL_MAIN;
        return SN_OK;
    }
    r->chunk = fits;
    r->vote_in = outside;
    r->stage = COLL_VOTE;
    sn_algo_call vote = {.op = SN_ALL_REDUCE, .red = SN_MAX, .dtype = SN_F32, .count = 1};
    SN_TRY(run_begin(r, &vote, -1));
    r->run.in = (unsigned char *) &r->vote_in;
    r->run.out = (unsigned char *) &r->vote_out;
    return SN_OK;
}

static sn_status queued(sn_coll_req *r, bool *moved)
{
    if (!slot_free(r))
        return SN_PENDING;
    *moved = true;
    return start(r);
}

static sn_status vote(sn_coll_req *r, bool *moved)
{
    sn_status status = coll_run_some(r, moved);
    if (status != SN_OK)
        return status;
    run_end(r);
    r->staged = r->vote_out > 0;
    if (!r->staged)
        r->chunk = r->call.count;
    r->stage = COLL_MAIN;
    *moved = true;
    return SN_OK;
}

static sn_status run_main(sn_coll_req *r, bool *moved)
{
    do {
        if (r->run.plan == NULL) {
            sn_status status = chunk_begin(r);
            if (status != SN_OK)
                return status;
        }
        sn_status status = coll_run_some(r, moved);
        if (status != SN_OK)
            return status;
        chunk_end(r);
        *moved = true;
    } while (r->at < r->call.count);
    r->stage = COLL_CLOSING;
    return SN_OK;
}

static void finish(sn_coll_req *r)
{
    sn_coll_group *g = r->group;
    g->finished_mask |= 1u << (r->seq - g->finished - 1);
    while (g->finished_mask & 1) {
        g->finished++;
        g->finished_mask >>= 1;
    }
    coll_store(&g->block->done_seq, g->finished);
    for (int i = 0; i < g->locals; i++)
        coll_ring_bell(g->member[g->local[i]].bell);
    r->coll->stats.calls++;
}

sn_status coll_op_advance(sn_coll_req *r, bool *moved)
{
    sn_status status = SN_OK;
    if (r->stage == COLL_QUEUED)
        status = queued(r, moved);
    if (status == SN_OK && r->stage == COLL_VOTE)
        status = vote(r, moved);
    if (status == SN_OK && r->stage == COLL_MAIN)
        status = run_main(r, moved);
    if (status == SN_OK && r->stage == COLL_CLOSING)
        status = coll_prints_done(r);
    else if (status == SN_PENDING && r->stage != COLL_QUEUED) {
        sn_status print = coll_window_of(r->group, r->seq)->prints_ok ? SN_OK : coll_prints_done(r);
        if (print < 0)
            return print;
    }
    if (status == SN_OK)
        finish(r);
    return status;
}

int coll_op_waits_for(const sn_coll_req *r)
{
    const sn_coll_group *g = r->group;
    int rank = -1;
    if (r->stage == COLL_QUEUED) { /* for the one that is furthest behind */
        uint64_t least = UINT64_MAX;
        for (int i = 0; i < g->locals; i++) {
            const coll_member *m = &g->member[g->local[i]];
            uint64_t done = coll_load(&m->block->done_seq);
            if (done < least)
                rank = m->rank;
            least = SN_MIN(least, done);
        }
        return rank;
    }
    if (r->run.plan != NULL)
        rank = coll_run_waits_for(r);
    return rank >= 0 ? rank : coll_prints_wait_for(r);
}

/* ---- failure ---- */

/* Nothing of the group goes on: its members could no longer agree on what comes next. */
sn_status coll_op_fail(sn_coll_req *r, sn_status status)
{
    sn_coll_group *g = r->group;
    if (g->broken < 0) {
        coll_end(r, g->broken, g->text);
        return g->broken;
    }
    uint64_t first = r->seq;
    g->broken = status;
    snprintf(g->text, sizeof(g->text), "%s", sn_errmsg());
    for (sn_coll_req *q = g->coll->active; q != NULL; q = q->next) {
        if (q->group != g || q->status != SN_PENDING)
            continue;
        first = SN_MIN(first, q->seq);
        coll_end(q, status, g->text);
    }
    coll_end(r, status, g->text);
    for (int i = 0; i < COLL_WINDOW && !coll_job_over(status); i++)
        coll_window_cancel(g, &g->window[i]);
    g->block->status = status;
    snprintf(g->block->text, sizeof(g->block->text), "%.239s", g->text);
    coll_store(&g->block->failed_seq, first);
    coll_ring_members(g);
    return sn_fail(status, "%s", g->text);
}

/* ---- posting ---- */

static bool overlaps(const void *a, uint64_t a_bytes, const void *b, uint64_t b_bytes)
{
    uintptr_t x = (uintptr_t) a, y = (uintptr_t) b;
    return a_bytes > 0 && b_bytes > 0 && x < y + b_bytes && y < x + a_bytes;
}

/* Whole in place where the sizes agree; the own block of the longer buffer otherwise. */
static bool buffers_ok(const sn_coll_req *r)
{
    uint64_t n = (uint64_t) r->call.count * element(r);
    uint64_t in = n * (uint64_t) blocks_in(r), out = n * (uint64_t) blocks_out(r);
    if (in == 0 || !overlaps(r->call.in, in, r->call.out, out))
        return true;
    uintptr_t a = (uintptr_t) r->call.in, b = (uintptr_t) r->call.out;
    uint64_t mine = n * (uint64_t) r->group->me;
    if (in == out)
        return a == b;
    return in < out ? a == b + mine : b == a + mine;
}

static sn_status check(const sn_coll_req *r)
{
    const sn_coll_call *c = &r->call;
    const sn_coll_group *g = r->group;
    const char *name = sn_coll_op_name(c->op);
    bool reduces = c->op == SN_ALL_REDUCE || c->op == SN_REDUCE_SCATTER;
    if ((unsigned) c->op >= SN_COLL_OPS || (unsigned) c->red >= SN_REDS ||
        (unsigned) c->dtype >= SN_DTYPE_COUNT)
        return sn_fail(SN_EINVAL, "no such operation, reduction or type: %d, %d, %d", c->op, c->red,
                       c->dtype);
    if (reduces && c->dtype != SN_F32 && c->dtype != SN_BF16)
        return sn_fail(SN_ENOTSUP, "%s in group %s: %s cannot be reduced; F32 and BF16 can", name,
                       g->name, sn_dtype_name(c->dtype));
    if (c->count < 0 || c->count > (INT64_MAX >> 12) / g->size)
        return sn_fail(SN_EINVAL, "%s in group %s: %lld elements", name, g->name,
                       (long long) c->count);
    if (c->op == SN_BROADCAST && (c->root < 0 || c->root >= g->size))
        return sn_fail(SN_EINVAL, "broadcast in group %s: root %d of %d members", g->name, c->root,
                       g->size);
    if (c->count > 0 && ((blocks_in(r) > 0 && c->in == NULL) || (blocks_out(r) > 0 && !c->out)))
        return sn_fail(SN_EINVAL, "%s in group %s: no buffer", name, g->name);
    if (!buffers_ok(r))
        return sn_fail(SN_EINVAL, "%s in group %s: in and out overlap in part", name, g->name);
    return SN_OK;
}

/* What has no meaning for the operation is the same for all. */
static sn_coll_call normal(const sn_coll_call *call)
{
    sn_coll_call c = *call;
    if (c.op != SN_ALL_REDUCE && c.op != SN_REDUCE_SCATTER && (unsigned) c.red < SN_REDS)
        c.red = SN_SUM;
    if (c.op != SN_BROADCAST && c.op != SN_GATHER && c.op != SN_SCATTER)
        c.root = 0;
    if (c.op == SN_BROADCAST || c.op == SN_BARRIER)
        c.in = NULL;
    if (c.op == SN_BARRIER) {
        c.count = 0;
        c.dtype = SN_U8;
        c.out = NULL;
    }
    return c;
}

static sn_status prepare(sn_coll_req *r, const sn_coll_call *call)
{
    sn_coll_group *g = r->group;
    coll_plan *plan;
    r->call = normal(call);
    SN_TRY(check(r));
    SN_TRY(coll_algorithm_index(call->algorithm, &r->asked));
    sn_algo_call a = algo_call(r, r->call.count, r->call.in == r->call.out);
    SN_TRY(coll_plan_get(g, &a, r->asked, &plan));
    r->shared = plan->sched.shared;
    r->print = (coll_print){.count = (uint64_t) r->call.count,
                            .op = (uint8_t) r->call.op,
                            .red = (uint8_t) r->call.red,
                            .dtype = (uint8_t) r->call.dtype,
                            .algorithm = (uint8_t) plan->algorithm,
                            .root = (uint32_t) r->call.root};
    return SN_OK;
}

sn_status sn_coll_post(sn_coll_group *g, const sn_coll_call *call, sn_time deadline,
                       sn_coll_req **ret)
{
    if (g->broken < 0)
        return sn_fail(g->broken, "%s", g->text);
    sn_coll_req *r = g->free;
    if (r == NULL)
        return SN_AGAIN;
    sn_coll_req *rest = r->next;
    *r = (sn_coll_req){.kind = COLL_REQ_GROUP,
                       .coll = g->coll,
                       .group = g,
                       .next = rest,
                       .status = SN_PENDING,
                       .deadline = deadline,
                       .priority = call->priority};
    SN_TRY(prepare(r, call));
    g->free = rest;
    r->seq = ++g->posted;
    coll_activate(g->coll, r);
    coll_launch(r);
    *ret = r;
    return SN_OK;
}

sn_status sn_coll_run(sn_coll_group *g, const sn_coll_call *call, sn_time deadline)
{
    sn_coll_req *r;
    sn_status status = sn_coll_post(g, call, deadline, &r);
    return status == SN_OK ? sn_coll_wait(r) : status;
}
