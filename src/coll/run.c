/* SPDX-License-Identifier: Apache-2.0
 *
 * run — executes a schedule, one step after the other, as far as it goes without waiting.
 *
 * Long copies and reductions are done a piece at a time, so that a request of higher priority has
 * its turn. A step is begun again where it stopped: `moved` of the run. */
#include "coll/coll_private.h"

#include <stdlib.h>

static size_t element(const sn_coll_req *r)
{
    return sn_dtype_bytes(r->run.plan->call.dtype);
}

static void *address(const sn_coll_req *r, sn_place p, int64_t more)
{
    const sn_coll_group *g = r->group;
    const coll_member *m = &g->member[p.member];
    size_t at = (size_t) (p.at + more) * element(r);
    coll_slot *s = coll_slot_of(m->block, r->seq);
    switch (p.buf) {
    case SN_BUF_IN:
        return p.member == g->me ? r->run.in + at : m->base + s->in_at + at;
    case SN_BUF_OUT:
        return p.member == g->me ? r->run.out + at : m->base + s->out_at + at;
    case SN_BUF_TMP:
        return g->tmp[r->seq % COLL_WINDOW] + at;
    case SN_BUF_WIDE: /* no schedule has it yet */
    case SN_BUF_NOTE:
        break;
    }
    return s->note + at;
}

/* ---- signals ---- */

static uint64_t offset(const sn_coll *c, const unsigned char *p)
{
    uint64_t at;
    return p != NULL && sn_gmem_find(c->seg, p, 1, &at) ? at : COLL_NOWHERE;
}

static void signal(sn_coll_req *r, const sn_step *step)
{
    sn_coll_group *g = r->group;
    coll_slot *s = coll_slot_of(g->block, r->seq);
    if (step->round == 1 && r->run.plan->sched.shared) {
        s->in_at = offset(g->coll, r->run.in);
        s->out_at = offset(g->coll, r->run.out);
    }
    if (r->run.base == 0 && step->round == 1)
        s->print = r->print;
    coll_store(&s->stamp, COLL_STAMP(r->seq, r->run.base + step->round));
    if (g->locals > 0)
        coll_ring_members(g);
}

static bool came(const sn_coll_req *r, int member, uint64_t stamp)
{
    return coll_load(&coll_slot_of(r->group->member[member].block, r->seq)->stamp) >= stamp;
}

/* The first member that the WAIT step waits for, -1 none. */
static int missing(const sn_coll_req *r, const sn_step *step)
{
    const sn_coll_group *g = r->group;
    uint64_t stamp = COLL_STAMP(r->seq, r->run.base + step->round);
    if (step->member != SN_ALL)
        return came(r, step->member, stamp) ? -1 : step->member;
    for (int i = 0; i < g->locals; i++)
        if (!came(r, g->local[i], stamp))
            return g->local[i];
    return -1;
}

static sn_status wait(sn_coll_req *r, const sn_step *step)
{
    if (missing(r, step) >= 0)
        return SN_PENDING;
    if (r->entered || step->member != SN_ALL)
        return SN_OK;
    coll_window *w = coll_window_of(r->group, r->seq);
    SN_TRY(coll_prints_local(r));
    if (!w->prints_sent) {
        sn_status status = coll_prints_start(r);
        if (status != SN_OK)
            return status;
    }
    r->entered = true;
    return SN_OK;
}

/* ---- data ---- */

static int64_t piece(const sn_coll_req *r, const sn_step *step)
{
    int64_t left = step->count - r->run.moved;
    return SN_MIN(left, (int64_t) (COLL_PIECE / element(r)));
}

static bool stream(const sn_coll_req *r, const sn_step *step)
{
    return (size_t) step->count * element(r) * (size_t) (step->srcs + step->dsts) >= COLL_STREAM;
}

static void count_host(sn_coll_req *r, const sn_step *step, int64_t n)
{
    const sn_sched *s = &r->run.plan->sched;
    for (int i = 0; i < step->srcs; i++)
        if (s->place[step->src + i].member != r->group->me)
            r->coll->stats.bytes_host += (uint64_t) n * element(r);
}

static sn_status copy(sn_coll_req *r, const sn_step *step)
{
    const sn_sched *s = &r->run.plan->sched;
    int64_t n = piece(r, step);
    r->coll->kernels->copy(address(r, s->place[step->dst], r->run.moved),
                           address(r, s->place[step->src], r->run.moved), (size_t) n * element(r),
                           stream(r, step));
    count_host(r, step, n);
    r->run.moved += n;
    return r->run.moved == step->count ? SN_OK : SN_AGAIN;
}

static sn_status reduce(sn_coll_req *r, const sn_step *step)
{
    sn_coll_group *g = r->group;
    const sn_sched *s = &r->run.plan->sched;
    int64_t n = piece(r, step);
    for (int i = 0; i < step->srcs; i++)
        g->src_ptr[i] = address(r, s->place[step->src + i], r->run.moved);
    for (int i = 0; i < step->dsts; i++)
        g->dst_ptr[i] = address(r, s->place[step->dst + i], r->run.moved);
    sn_fold f = {.red = r->run.plan->call.red,
                 .dtype = r->run.plan->call.dtype,
                 .dst = g->dst_ptr,
                 .src = g->src_ptr,
                 .dsts = step->dsts,
                 .srcs = step->srcs,
                 .count = n,
                 .divide = step->divide,
                 .stream = stream(r, step)};
    r->coll->kernels->fold(&f);
    count_host(r, step, n);
    r->run.moved += n;
    return r->run.moved == step->count ? SN_OK : SN_AGAIN;
}

/* ---- across hosts ---- */

static sn_status net(sn_coll_req *r, const sn_step *step)
{
    sn_coll *c = r->coll;
    coll_window *w = coll_window_of(r->group, r->seq);
    const sn_sched *s = &r->run.plan->sched;
    bool send = step->kind == SN_STEP_SEND;
    if (send && (size_t) step->count * element(r) > COLL_EAGER && !w->prints_ok) {
        sn_status print = coll_prints_done(r);
        if (print != SN_OK)
            return print;
    }
    void *buf = address(r, s->place[send ? step->src : step->dst], 0);
    size_t bytes = (size_t) step->count * element(r);
    int rank = r->group->member[step->member].rank;
    sn_net_req **req = &w->net[w->nets];
    sn_status status = send ? sn_net_send(c->net, rank, coll_tag(r, 2), buf, bytes, req)
                            : sn_net_recv(c->net, rank, coll_tag(r, 2), buf, bytes, req);
    if (status != SN_OK)
        return status == SN_AGAIN ? SN_PENDING : status;
    w->net_member[w->nets++] = step->member;
    c->nets++;
    if (!send)
        c->stats.bytes_net += bytes;
    return SN_OK;
}

/* Until everything sent and received is. A wrong size says less than the print that came with it,
 * and nothing from another host is passed on before its print was right. */
static sn_status fence(sn_coll_req *r)
{
    sn_coll *c = r->coll;
    coll_window *w = coll_window_of(r->group, r->seq);
    for (int i = 0; i < w->nets;) {
        sn_status status = sn_net_test(c->net, w->net[i]);
        if (status == SN_PENDING) {
            i++;
            continue;
        }
        w->nets--;
        c->nets--;
        w->net[i] = w->net[w->nets];
        w->net_member[i] = w->net_member[w->nets];
        if (status < 0) {
            sn_status print = status == SN_EMISMATCH ? coll_prints_done(r) : SN_OK;
            return print < 0 ? print : status;
        }
    }
    if (w->nets > 0)
        return SN_PENDING;
    return w->prints_ok || !r->entered ? SN_OK : coll_prints_done(r);
}

void coll_window_cancel(sn_coll_group *g, coll_window *w)
{
    sn_coll *c = g->coll;
    for (int i = 0; i < w->nets; i++)
        sn_net_cancel(c->net, w->net[i]);
    c->nets -= w->nets;
    w->nets = 0;
    for (int i = 0; i < g->lanes; i++) {
        sn_net_req **end[2] = {&w->lane[i].recv, &w->lane[i].send};
        for (int k = 0; k < 2; k++) {
            if (*end[k] == NULL)
                continue;
            sn_net_cancel(c->net, *end[k]);
            *end[k] = NULL;
            c->nets--;
        }
    }
}

/* ---- the steps ---- */

static sn_status one(sn_coll_req *r, const sn_step *step)
{
    switch (step->kind) {
    case SN_STEP_SIGNAL:
        signal(r, step);
        return SN_OK;
    case SN_STEP_WAIT:
        return wait(r, step);
    case SN_STEP_COPY:
        return copy(r, step);
    case SN_STEP_REDUCE:
        return reduce(r, step);
    case SN_STEP_SEND:
    case SN_STEP_RECV:
        return net(r, step);
    case SN_STEP_FENCE:
        break;
    }
    return fence(r);
}

sn_status coll_run_some(sn_coll_req *r, bool *moved)
{
    const sn_sched *s = &r->run.plan->sched;
    while (r->run.step < s->steps) {
        sn_status status = one(r, &s->step[r->run.step]);
        if (status == SN_AGAIN) {
            *moved = true;
            return SN_PENDING;
        }
        if (status != SN_OK)
            return status;
        *moved = true;
        r->run.step++;
        r->run.moved = 0;
    }
    return fence(r);
}

int coll_run_waits_for(const sn_coll_req *r)
{
    const sn_coll_group *g = r->group;
    const coll_window *w = &g->window[r->seq % COLL_WINDOW];
    const sn_sched *s = &r->run.plan->sched;
    const sn_step *step = r->run.step < s->steps ? &s->step[r->run.step] : NULL;
    int member = -1;
    if (step != NULL && step->kind == SN_STEP_WAIT)
        member = missing(r, step);
    else if (w->nets > 0)
        member = w->net_member[0];
    return member < 0 ? -1 : g->member[member].rank;
}
