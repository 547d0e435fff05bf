/* SPDX-License-Identifier: Apache-2.0
 *
 * run — executes a schedule, one step after the other, as far as it goes without waiting.
 *
 * Long copies and reductions are done a piece at a time, so that a request of higher priority has
 * its turn. A step is begun again where it stopped: `moved` of the run. */
#include "coll/coll_private.h"

static size_t element(const coll_run *run)
{
    return sn_dtype_bytes(run->plan->call.dtype);
}

/* ---- places ---- */

uint64_t coll_place_of(const sn_coll *c, const void *p, uint64_t bytes)
{
    uint64_t at;
    if (sn_gmem_find(c->seg, p, bytes, &at))
        return at;
    for (int i = 0; i < c->uses; i++)
        if (sn_gmem_find(c->use[i].seg, p, bytes, &at))
            return (uint64_t) (i + 1) << 56 | at;
    return COLL_NOWHERE;
}

bool coll_place_known(const sn_coll *c, int local, uint64_t place)
{
    int i = (int) (place >> 56);
    return i == 0 || c->use[i - 1].base[local] != NULL;
}

unsigned char *coll_place_at(const sn_coll *c, int local, uint64_t place)
{
    int i = (int) (place >> 56);
    uint64_t at = place & (UINT64_MAX >> 8);
    if (i > c->uses)
        return NULL;
    unsigned char *base = i > 0 ? c->use[i - 1].base[local] : sn_gmem_base(c->seg, local);
    return base != NULL ? base + at : NULL;
}

static unsigned char *theirs(const sn_coll_req *r, const coll_run *run, int member, bool in)
{
    const coll_member *m = &r->group->member[member];
    const coll_sign *s = coll_sign_of(m->block, r->seq, run->lane);
    uint64_t place = in ? s->in_at : s->out_at;
    return place >> 56 == 0 ? m->base + place : coll_place_at(r->coll, m->local, place);
}

/* My element `at` of the chunk: in the image when a peer touches it, else the caller's own. */
static unsigned char *mine(const sn_coll_req *r, const coll_run *run, bool in, int64_t at)
{
    const coll_plan *p = run->plan;
    bool first = in || p->call.in_place;
    unsigned char *base = in ? run->in : run->out;
    if (!(in ? run->in_staged : run->out_staged) || r->many != NULL ||
        coll_stage_has(first ? p->stage_in : p->stage_out, first ? p->stage_ins : p->stage_outs,
                       at))
        return base + (size_t) at * element(run);
    const unsigned char *user = in ? r->call.in : r->call.out;
    int64_t block = at / run->n;
    return (unsigned char *) (uintptr_t) user +
           (size_t) (block * r->call.count + run->at + at % run->n) * element(run);
}

static void *address(const sn_coll_req *r, const coll_run *run, sn_place p, int64_t more)
{
    const sn_coll_group *g = r->group;
    size_t skip = (size_t) more * element(run), at = (size_t) p.at * element(run);
    switch (p.buf) {
    case SN_BUF_IN:
    case SN_BUF_OUT:
        if (p.member == g->me)
            return mine(r, run, p.buf == SN_BUF_IN, p.at) + skip;
        return theirs(r, run, p.member, p.buf == SN_BUF_IN) + at + skip;
    case SN_BUF_TMP:
        return run->tmp + at + skip;
    case SN_BUF_WIDE:
        return run->wide + (size_t) (p.at + more) * sizeof(float);
    case SN_BUF_NOTE:
        break;
    }
    coll_slot *s = coll_slot_of(g->member[p.member].block, r->seq);
    return (run->voting ? s->vote : s->note) + at + skip;
}

/* ---- signals ---- */

static void signal(sn_coll_req *r, coll_run *run, const sn_step *step)
{
    sn_coll_group *g = r->group;
    coll_sign *s = coll_sign_of(g->block, r->seq, run->lane);
    if (step->round == 1 && run->plan->sched.shared) {
        s->in_at = run->in != NULL ? coll_place_of(g->coll, run->in, 1) : COLL_NOWHERE;
        s->out_at = run->out != NULL ? coll_place_of(g->coll, run->out, 1) : COLL_NOWHERE;
    }
    if (run->lane == 0 && run->base == 0 && step->round == 1) {
        coll_slot *slot = coll_slot_of(g->block, r->seq);
        slot->print = r->print;
        slot->done = g->finished;
    }
    coll_store(&s->stamp, COLL_STAMP(r->seq, run->base + (uint32_t) step->round));
    if (r->brief && r->record == 0)
        coll_record_signalled(r);
    if (g->locals > 0)
        coll_ring_members(g);
}

static bool came(const sn_coll_req *r, const coll_run *run, int member, uint64_t stamp)
{
    return coll_load(&coll_sign_of(r->group->member[member].block, r->seq, run->lane)->stamp) >=
           stamp;
}

/* The first member that the WAIT step waits for, -1 none. */
static int missing(const sn_coll_req *r, const coll_run *run, const sn_step *step)
{
    const sn_coll_group *g = r->group;
    uint64_t stamp = COLL_STAMP(r->seq, run->base + (uint32_t) step->round);
    if (step->member != SN_ALL)
        return came(r, run, step->member, stamp) ? -1 : step->member;
    for (int i = 0; i < g->locals; i++)
        if (!came(r, run, g->local[i], stamp))
            return g->local[i];
    return -1;
}

/* Do I know the segments in which the others have their buffers? */
static sn_status check_places(const sn_coll_req *r, const coll_run *run)
{
    const sn_coll_group *g = r->group;
    for (int i = 0; i < g->locals; i++) {
        const coll_member *m = &g->member[g->local[i]];
        const coll_sign *s = coll_sign_of(m->block, r->seq, run->lane);
        uint64_t place[2] = {s->in_at, s->out_at};
        for (int k = 0; k < 2; k++)
            if (place[k] != COLL_NOWHERE && place[k] >> 56 != 0 &&
                coll_place_at(r->coll, m->local, place[k]) == NULL)
                return sn_fail(SN_EINVAL,
                               "the buffer of rank %d (%s) is in a segment that rank %d does not "
                               "know: all its ranks call sn_coll_use first",
                               m->rank, sn_net_host_name(r->coll->net, m->rank), r->coll->rank);
    }
    return SN_OK;
}

/* What the others had finished when they came: their old slots are free. */
static void note_done(sn_coll_group *g, uint64_t seq)
{
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < g->locals; i++) {
        uint64_t done = coll_load(&coll_slot_of(g->member[g->local[i]].block, seq)->done);
        least = SN_MIN(least, done);
    }
    g->others_done = SN_MAX(g->others_done, least);
}

static sn_status enter(sn_coll_req *r, const coll_run *run)
{
    coll_window *w = coll_window_of(r->group, r->seq);
    note_done(r->group, r->seq);
    SN_TRY(coll_prints_local(r));
    if (!w->prints_sent) {
        sn_status status = coll_prints_start(r);
        if (status != SN_OK)
            return status;
    }
    r->entered = true;
    return SN_OK;
}

static sn_status wait(sn_coll_req *r, coll_run *run, const sn_step *step)
{
    if (missing(r, run, step) >= 0)
        return SN_PENDING;
    if (step->member != SN_ALL)
        return SN_OK;
    if (!r->entered) {
        sn_status status = enter(r, run);
        if (status != SN_OK)
            return status;
    }
    bool shown = step->round == 1 && run->plan->sched.shared;
    return shown ? check_places(r, run) : SN_OK;
}

/* ---- data ---- */

static int64_t piece(const coll_run *run, const sn_step *step)
{
    int64_t left = step->count - run->moved;
    return SN_MIN(left, (int64_t) (COLL_PIECE / element(run)));
}

/* A chunk's OUT is small; it is the call whose result would only push others out of the caches. */
static bool stream(const sn_coll_req *r, const coll_run *run, const sn_step *step)
{
    if (r->chunked)
        return false;
    return (size_t) step->count * element(run) * (size_t) (step->srcs + step->dsts) >= COLL_STREAM;
}

/* Every other sum of a group goes from the end to the start: it begins with what the one before, or
 * who filled the buffers since, touched last and has in its caches. Not from a stage, which was
 * filled just now by a peer, from the start. */
static bool backward(const sn_coll_req *r, const coll_run *run)
{
    return r->seq % 2 == 0 && !run->in_staged && !run->out_staged;
}

static void count_host(sn_coll_req *r, const coll_run *run, const sn_step *step, int64_t n)
{
    const sn_sched *s = &run->plan->sched;
    for (int i = 0; i < step->srcs; i++)
        if (s->place[step->src + i].member != r->group->me)
            r->coll->stats.bytes_host += (uint64_t) n * element(run);
}

static sn_status copy(sn_coll_req *r, coll_run *run, const sn_step *step)
{
    const sn_sched *s = &run->plan->sched;
    int64_t n = piece(run, step);
    r->coll->kernels->copy(address(r, run, s->place[step->dst], run->moved),
                           address(r, run, s->place[step->src], run->moved),
                           (size_t) n * element(run), stream(r, run, step));
    count_host(r, run, step, n);
    run->moved += n;
    return run->moved == step->count ? SN_OK : SN_AGAIN;
}

static sn_status reduce(sn_coll_req *r, coll_run *run, const sn_step *step)
{
    sn_coll_group *g = r->group;
    const sn_sched *s = &run->plan->sched;
    int64_t n = piece(run, step);
    bool back = backward(r, run);
    int64_t at = back ? step->count - run->moved - n : run->moved;
    for (int i = 0; i < step->srcs; i++) {
        g->src_ptr[i] = address(r, run, s->place[step->src + i], at);
        g->src_wide[i] = s->place[step->src + i].buf == SN_BUF_WIDE;
    }
    for (int i = 0; i < step->dsts; i++) {
        g->dst_ptr[i] = address(r, run, s->place[step->dst + i], at);
        g->dst_wide[i] = s->place[step->dst + i].buf == SN_BUF_WIDE;
    }
    sn_fold f = {.red = run->plan->call.red,
                 .dtype = run->plan->call.dtype,
                 .dst = g->dst_ptr,
                 .src = g->src_ptr,
                 .dsts = step->dsts,
                 .srcs = step->srcs,
                 .count = n,
                 .divide = step->divide,
                 .src_wide = s->wide_count > 0 ? g->src_wide : NULL,
                 .dst_wide = s->wide_count > 0 ? g->dst_wide : NULL,
                 .stream = stream(r, run, step),
                 .backward = back};
    r->coll->kernels->fold(&f);
    count_host(r, run, step, n);
    run->moved += n;
    return run->moved == step->count ? SN_OK : SN_AGAIN;
}

/* ---- across hosts ---- */

static sn_status transfer(sn_coll_req *r, coll_run *run, const sn_step *step)
{
    const sn_sched *s = &run->plan->sched;
    bool send = step->kind == SN_STEP_SEND;
    sn_place place = s->place[send ? step->src : step->dst];
    size_t el = place.buf == SN_BUF_WIDE ? sizeof(float) : element(run);
    size_t bytes = (size_t) step->count * el;
    if (send && bytes > COLL_EAGER && !coll_window_of(r->group, r->seq)->prints_ok) {
        sn_status print = coll_prints_done(r);
        if (print != SN_OK)
            return print;
    }
    return coll_transfer_start(r, run, step, address(r, run, place, 0), bytes);
}

/* Until everything sent and received is; and nothing from another host is passed on before its
 * print was right. */
static sn_status fence(sn_coll_req *r, coll_run *run, bool *moved)
{
    if (run->transfers > 0) {
        sn_status status = coll_transfers_some(r, run, moved);
        if (status != SN_OK)
            return status;
    }
    return coll_window_of(r->group, r->seq)->prints_ok || !r->entered ? SN_OK : coll_prints_done(r);
}

/* ---- the steps ---- */

static sn_status one(sn_coll_req *r, coll_run *run, const sn_step *step, bool *moved)
{
    switch (step->kind) {
    case SN_STEP_SIGNAL:
        signal(r, run, step);
        return SN_OK;
    case SN_STEP_WAIT:
        return wait(r, run, step);
    case SN_STEP_COPY:
        return copy(r, run, step);
    case SN_STEP_REDUCE:
        return reduce(r, run, step);
    case SN_STEP_SEND:
    case SN_STEP_RECV:
        return transfer(r, run, step);
    case SN_STEP_FENCE:
        break;
    }
    return fence(r, run, moved);
}

sn_status coll_run_some(sn_coll_req *r, coll_run *run, bool *moved)
{
    const sn_sched *s = &run->plan->sched;
    if (run->transfers > 0) {
        sn_status status = coll_transfers_some(r, run, moved);
        if (status < 0)
            return status;
    }
    while (run->step < s->steps) {
        sn_status status = one(r, run, &s->step[run->step], moved);
        if (status == SN_AGAIN) {
            *moved = true;
            return SN_PENDING;
        }
        if (status != SN_OK)
            return status;
        *moved = true;
        run->step++;
        run->moved = 0;
    }
    return fence(r, run, moved);
}

/* Notes outlive a run: before the next one of this operation writes them all have read them. */
bool coll_run_closed(sn_coll_req *r, coll_run *run)
{
    const sn_coll_group *g = r->group;
    uint64_t stamp = COLL_STAMP(r->seq, run->base + (uint32_t) run->plan->sched.rounds + 1);
    if (!run->closing) {
        run->closing = true;
        coll_store(&coll_sign_of(g->block, r->seq, run->lane)->stamp, stamp);
        coll_ring_members(r->group);
    }
    for (int i = 0; i < g->locals; i++)
        if (!came(r, run, g->local[i], stamp))
            return false;
    return true;
}

int coll_run_waits_for(const sn_coll_req *r, const coll_run *run)
{
    const sn_coll_group *g = r->group;
    const sn_sched *s = &run->plan->sched;
    const sn_step *step = run->step < s->steps ? &s->step[run->step] : NULL;
    sn_step close = {.member = SN_ALL, .round = s->rounds + 1};
    int member = -1;
    if (step != NULL && step->kind == SN_STEP_WAIT)
        member = missing(r, run, step);
    else if (run->closing)
        member = missing(r, run, &close);
    for (int i = 0; i < run->transfers && member < 0; i++)
        if (run->transfer[i].flying > 0)
            member = run->transfer[i].member;
    return member < 0 ? -1 : g->member[member].rank;
}
