/* SPDX-License-Identifier: Apache-2.0
 *
 * op — a group's operation from post to completion.
 *
 *   QUEUED ──▶ VOTE ──▶ MAIN ──▶ CLOSING ──▶ done
 *                        ▲ │ chunks, two at a time
 *                        └─┘
 *
 * Buffers in the arena are used where they are. When any member has one outside and the call is
 * longer than the group's stage, all members go chunk by chunk, so first they ask each other (VOTE:
 * an all_reduce of one number). Shorter calls are staged by whoever needs it, without telling. The
 * stage belongs to the oldest operation of the group: all members agree on which that is, so nobody
 * waits in a circle. Where hosts are spanned, long calls go in chunks anyway: one is on the wire
 * while the next is reduced. */
#include "coll/coll_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEP_BYTES (4 << 20) /* of a chunk that nobody stages */

static size_t element(const sn_coll_req *r)
{
    return sn_dtype_bytes(r->call.dtype);
}

const char *coll_req_text(const sn_coll_req *r, char out[200])
{
    bool sends = r->kind == COLL_REQ_SEND || r->kind == COLL_REQ_NET_SEND;
    if (r->kind == COLL_REQ_GROUP)
        snprintf(out, 200, "%s #%llu in group %s", sn_coll_op_name(r->call.op),
                 (unsigned long long) r->seq, r->group->name);
    else if (r->making != NULL)
        snprintf(out, 200, "making group %.150s", r->making);
    else
        snprintf(out, 200, "%s %d, tag %u", sends ? "send to rank" : "receive from rank", r->peer,
                 r->tag);
    return out;
}

/* ---- runs ---- */

static sn_status need(unsigned char **p, size_t *have, size_t bytes)
{
    if (bytes <= *have)
        return SN_OK;
    size_t rounded = SN_ALIGN_UP(bytes, 4096);
    unsigned char *more = aligned_alloc(64, rounded);
    if (more == NULL)
        return sn_fail(SN_ENOMEM, "no memory for %zu bytes of scratch", rounded);
    free(*p);
    *p = more;
    *have = rounded;
    return SN_OK;
}

static sn_status run_begin(coll_run *run, coll_plan *plan)
{
    const sn_sched *s = &plan->sched;
    size_t el = sn_dtype_bytes(plan->call.dtype);
    if (s->tmp_count > 0)
        SN_TRY(need(&run->tmp, &run->tmp_bytes, (size_t) s->tmp_count * el));
    if (s->wide_count > 0)
        SN_TRY(need(&run->wide, &run->wide_bytes, (size_t) s->wide_count * sizeof(float)));
    plan->used++;
    run->plan = plan;
    run->step = 0;
    run->moved = 0;
    run->transfers = 0;
    return SN_OK;
}

static void run_end(coll_run *run)
{
    run->base += (uint32_t) run->plan->sched.rounds + run->closing;
    run->closing = false;
    run->plan->used--;
    run->plan = NULL;
}

/* ---- chunks ---- */

/* Can all members of my host reach it where it is? */
static bool reachable(const sn_coll_group *g, const void *buf, uint64_t bytes)
{
    uint64_t place = coll_place_of(g->coll, buf, bytes);
    if (place == COLL_NOWHERE)
        return false;
    for (int i = 0; i < g->locals && place >> 56 != 0; i++)
        if (!coll_place_known(g->coll, g->member[g->local[i]].local, place))
            return false;
    return true;
}

/* Does this buffer go through the stage? */
static bool needs_stage(const sn_coll_req *r, const void *buf, int blocks)
{
    uint64_t bytes = (uint64_t) r->call.count * (uint64_t) blocks * element(r);
    if (bytes == 0)
        return false;
    if (r->many != NULL || (r->chunked && blocks > 1))
        return true;
    return r->shared && r->group->locals > 0 && !reachable(r->group, buf, bytes);
}

static sn_status stage_begin(sn_coll_req *r, coll_run *run, coll_plan *plan)
{
    sn_coll_group *g = r->group;
    unsigned char *image = g->stage + (size_t) (2 * run->lane) * g->image;
    if (g->finished != r->seq - 1)
        return SN_PENDING;
    SN_TRY(coll_stage_map(g, plan));
    if (run->in_staged)
        run->in = image;
    if (run->out_staged)
        run->out = plan->call.in_place ? image : image + g->image;
    return SN_OK;
}

static sn_status chunk_begin(sn_coll_req *r, coll_run *run)
{
    coll_plan *plan;
    int64_t at = r->begun * r->chunk, n = SN_MIN(r->chunk, r->call.count - at);
    size_t skip = (size_t) at * element(r);
    sn_algo_call call = coll_call_algo(r, n);
    SN_TRY(coll_plan_get(r->group, &call, r->chunked ? r->print.algorithm : r->asked, &plan));
    run->at = at;
    run->n = n;
    run->in = (unsigned char *) (uintptr_t) r->call.in;
    run->out = r->call.out;
    run->in_staged = needs_stage(r, r->call.in, coll_blocks_in(r));
    run->out_staged = needs_stage(r, r->call.out, coll_blocks_out(r));
    if (skip > 0 && run->in != NULL)
        run->in += skip;
    if (skip > 0 && run->out != NULL)
        run->out += skip;
    if (run->in_staged || run->out_staged) {
        sn_status status = stage_begin(r, run, plan);
        if (status != SN_OK)
            return status;
    }
    SN_TRY(run_begin(run, plan));
    if (run->in_staged || run->out_staged)
        coll_stage_fill(r, run);
    r->begun++;
    return SN_OK;
}

static void chunk_end(sn_coll_req *r, coll_run *run)
{
    if (run->out_staged)
        coll_stage_empty(r, run);
    run_end(run);
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
    for (int i = 0; i < g->locals; i++) {
        uint64_t done = coll_load(&g->member[g->local[i]].block->done_seq);
        least = SN_MIN(least, done); /* read once: it may grow meanwhile */
    }
    g->others_done = SN_MAX(g->others_done, least);
    return r->seq <= least || r->seq - least <= COLL_WINDOW;
}

/* Elements of a chunk when somebody stages; the same on all members. */
static int64_t staged_chunk(const sn_coll_req *r)
{
    int64_t fits = (int64_t) (r->group->image / element(r)) / coll_blocks_most(r);
    return SN_MAX(fits, 1);
}

/* And when nobody does: the whole, but for long calls across hosts. */
static int64_t plain_chunk(const sn_coll_req *r)
{
    int64_t step = (int64_t) (STEP_BYTES / element(r));
    bool one_host = r->group->locals == r->group->size - 1;
    return one_host || coll_blocks_most(r) > 1 || r->call.count < 2 * step ? r->call.count : step;
}

static sn_status set_chunk(sn_coll_req *r, int64_t chunk)
{
    r->chunk = SN_MAX(chunk, 1);
    r->chunks = r->call.count > 0 ? (r->call.count + r->chunk - 1) / r->chunk : 1;
    r->chunked = r->chunks > 1;
    r->notes = r->chunked && r->chunk * (int64_t) element(r) <= SN_ALGO_NOTE_BYTES;
    r->lanes = r->notes ? 1 : COLL_LANES;
    if ((r->chunks / r->lanes + 2) * (int64_t) (r->plan_rounds + 1) > COLL_ROUNDS)
        return sn_fail(SN_EINVAL,
                       "%lld elements are too many to be staged %lld at a time: take the buffers "
                       "from sn_coll_alloc",
                       (long long) r->call.count, (long long) r->chunk);
    return SN_OK;
}

static sn_status start_vote(sn_coll_req *r, coll_run *run)
{
    coll_plan *plan;
    sn_algo_call vote = {.op = SN_ALL_REDUCE, .red = SN_MAX, .dtype = SN_F32, .count = 1};
    bool in = needs_stage(r, r->call.in, coll_blocks_in(r));
    r->vote_in = in || needs_stage(r, r->call.out, coll_blocks_out(r));
    r->stage = COLL_VOTE;
    SN_TRY(coll_plan_get(r->group, &vote, -1, &plan));
    SN_TRY(run_begin(run, plan));
    run->in = (unsigned char *) &r->vote_in;
    run->out = (unsigned char *) &r->vote_out;
    run->in_staged = run->out_staged = false;
    run->voting = true;
    return SN_OK;
}

static sn_status start(sn_coll_req *r)
{
    sn_coll_group *g = r->group;
    coll_window *w = coll_window_of(g, r->seq);
    g->started = r->seq;
    coll_record_start(r);
    w->prints_sent = w->prints_ok = g->partners == 0;
    for (int i = 0; i < COLL_LANES; i++) {
        w->run[i].base = 0;
        w->run[i].voting = w->run[i].closing = false;
    }
    if (r->many != NULL || (r->shared && r->call.count > staged_chunk(r))) {
        if (r->many == NULL)
            return start_vote(r, &w->run[0]);
        r->stage = COLL_MAIN;
        return set_chunk(r, staged_chunk(r));
    }
    r->stage = COLL_MAIN;
    return set_chunk(r, r->shared ? r->call.count : plain_chunk(r));
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
    coll_run *run = &coll_window_of(r->group, r->seq)->run[0];
    sn_status status = coll_run_some(r, run, moved);
    if (status != SN_OK)
        return status;
    run_end(run);
    run->voting = false;
    r->stage = COLL_MAIN;
    *moved = true;
    return set_chunk(r, r->vote_out > 0 ? staged_chunk(r) : plain_chunk(r));
}

/* Each chunk under way as far as it goes; PENDING after one is done too, so that what is more
 * urgent has its turn. */
static sn_status run_main(sn_coll_req *r, bool *moved)
{
    coll_window *w = coll_window_of(r->group, r->seq);
    while (r->begun < r->chunks && r->begun < r->done + r->lanes) {
        sn_status status = chunk_begin(r, &w->run[r->begun % r->lanes]);
        if (status == SN_PENDING)
            break;
        if (status != SN_OK)
            return status;
        *moved = true;
    }
    for (int64_t k = r->done; k < r->begun; k++) {
        coll_run *run = &w->run[k % r->lanes];
        if (run->plan == NULL)
            continue;
        sn_status status = coll_run_some(r, run, moved);
        if (status < 0)
            return status;
        if (status == SN_OK && (!r->notes || coll_run_closed(r, run)))
            chunk_end(r, run);
    }
    while (r->done < r->begun && w->run[r->done % r->lanes].plan == NULL) {
        r->done++;
        *moved = true;
    }
    if (r->done < r->chunks)
        return SN_PENDING;
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
    const coll_window *w = &g->window[r->seq % COLL_WINDOW];
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
    for (int i = 0; i < COLL_LANES && rank < 0; i++)
        if (w->run[i].plan != NULL)
            rank = coll_run_waits_for(r, &w->run[i]);
    return rank >= 0 ? rank : coll_prints_wait_for(r);
}

/* ---- posting ---- */

static sn_status prepare(sn_coll_req *r, const sn_coll_call *call)
{
    coll_plan *plan;
    r->call = coll_call_normal(call);
    SN_TRY(coll_call_check(r));
    SN_TRY(coll_algorithm_index(call->algorithm, &r->asked));
    sn_algo_call a = coll_call_algo(r, r->call.count);
    SN_TRY(coll_plan_get(r->group, &a, r->asked, &plan));
    r->shared = plan->sched.shared;
    r->plan_rounds = plan->sched.rounds;
    r->print =
        (coll_print){.count = (uint64_t) r->call.count,
                     .op = (uint8_t) r->call.op,
                     .red = (uint8_t) (r->call.red | (r->call.deterministic ? COLL_ORDERED : 0)),
                     .dtype = (uint8_t) r->call.dtype,
                     .algorithm = (uint8_t) plan->algorithm,
                     .root = (uint32_t) r->call.root};
    return SN_OK;
}

static sn_status post(sn_coll_group *g, const sn_coll_call *call, const sn_coll_call *many, int n,
                      sn_time deadline, sn_coll_req **ret)
{
    coll_aborts(g->coll);
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
                       .priority = call->priority,
                       .many = many,
                       .manys = n};
    SN_TRY(prepare(r, call));
    if (many != NULL)
        r->print.root = coll_many_hash(many, n);
    g->free = rest;
    r->seq = ++g->posted;
    coll_activate(g->coll, r);
    coll_launch(r);
    *ret = r;
    return SN_OK;
}

sn_status sn_coll_post(sn_coll_group *g, const sn_coll_call *call, sn_time deadline,
                       sn_coll_req **ret)
{
    coll_lock(g->coll);
    sn_status status = post(g, call, NULL, 0, deadline, ret);
    coll_unlock(g->coll);
    return status;
}

sn_status sn_coll_post_many(sn_coll_group *g, const sn_coll_call *calls, int n, sn_time deadline,
                            sn_coll_req **ret)
{
    sn_coll_call sum;
    SN_TRY(coll_many_sum(g, calls, n, &sum));
    coll_lock(g->coll);
    sn_status status = post(g, &sum, calls, n, deadline, ret);
    coll_unlock(g->coll);
    return status;
}

sn_status sn_coll_run(sn_coll_group *g, const sn_coll_call *call, sn_time deadline)
{
    sn_coll_req *r;
    coll_lock(g->coll);
    sn_status status = post(g, call, NULL, 0, deadline, &r);
    if (status == SN_OK)
        status = coll_wait(r);
    coll_unlock(g->coll);
    return status;
}
