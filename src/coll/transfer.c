/* SPDX-License-Identifier: Apache-2.0
 *
 * transfer — messages to and from members on other hosts.
 *
 * A SEND or RECV step goes in segments of COLL_SEGMENT, of which a few are under way: so whatever
 * is more urgent waits for those only, not for all that a long operation has to say. Both sides cut
 * alike. While something more urgent sends, others keep one segment under way: they slow down but
 * never stop, since what is urgent here may wait for a peer that first finishes the other.
 *
 * Between two members messages of a lane match in order; so a transfer begins when all before it
 * to the same member are handed over. */
#include "coll/coll_private.h"

#include <string.h>

sn_status coll_transfer_start(sn_coll_req *r, coll_run *run, const sn_step *step,
                              unsigned char *buf, size_t bytes)
{
    coll_transfer *t = &run->transfer[run->transfers++];
    *t = (coll_transfer){
        .member = step->member, .send = step->kind == SN_STEP_SEND, .buf = buf, .bytes = bytes};
    bool moved;
    sn_status status = coll_transfers_some(r, run, &moved);
    return status < 0 ? status : SN_OK;
}

/* ---- handing over ---- */

static bool blocked(const coll_run *run, int i)
{
    const coll_transfer *t = &run->transfer[i];
    for (int k = 0; k < i; k++) {
        const coll_transfer *before = &run->transfer[k];
        if (before->posted < before->bytes && before->member == t->member &&
            before->send == t->send)
            return true;
    }
    return false;
}

/* SN_AGAIN: the net takes no more now. */
static sn_status hand_over(sn_coll_req *r, const coll_run *run, coll_transfer *t)
{
    sn_coll *c = r->coll;
    bool patient = t->send && c->urgent > r->priority;
    int ahead = patient ? 1 : COLL_AHEAD;
    int rank = r->group->member[t->member].rank;
    uint64_t tag = coll_tag(r, t->send ? t->member : r->group->me, 2, run->lane);
    while (t->posted < t->bytes && t->flying < ahead) {
        size_t n = (size_t) SN_MIN(t->bytes - t->posted, (uint64_t) COLL_SEGMENT);
        unsigned char *at = t->buf + t->posted;
        sn_net_req **req = &t->req[t->flying];
        sn_status status = t->send ? sn_net_send(c->net, rank, tag, at, n, req)
                                   : sn_net_recv(c->net, rank, tag, at, n, req);
        if (status != SN_OK)
            return status;
        t->posted += n;
        t->flying++;
        c->nets++;
        if (!t->send)
            c->stats.bytes_net += n;
    }
    return SN_OK;
}

/* ---- completing ---- */

static sn_status collect(sn_coll *c, coll_transfer *t, bool *moved)
{
    for (int i = 0; i < t->flying;) {
        sn_status status = sn_net_test(c->net, t->req[i]);
        if (status == SN_PENDING) {
            i++;
            continue;
        }
        *moved = true;
        c->nets--;
        t->flying--;
        memmove(&t->req[i], &t->req[i + 1], (size_t) (t->flying - i) * sizeof(t->req[0]));
        if (status < 0)
            return status;
    }
    return SN_OK;
}

sn_status coll_transfers_some(sn_coll_req *r, coll_run *run, bool *moved)
{
    bool all = true;
    for (int i = 0; i < run->transfers; i++) {
        coll_transfer *t = &run->transfer[i];
        sn_status status = collect(r->coll, t, moved);
        if (status == SN_OK && t->posted < t->bytes && !blocked(run, i))
            status = hand_over(r, run, t);
        if (status < 0) { /* a wrong size says less than the print that came with it */
            sn_status print = status == SN_EMISMATCH ? coll_prints_done(r) : SN_OK;
            return print < 0 ? print : status;
        }
        all = all && t->flying == 0 && t->posted == t->bytes;
    }
    if (!all)
        return SN_PENDING;
    run->transfers = 0;
    return SN_OK;
}

bool coll_transfers_sending(const sn_coll_req *r)
{
    if (r->group == NULL || r->stage == COLL_QUEUED)
        return false;
    const coll_window *w = &r->group->window[r->seq % COLL_WINDOW];
    for (int lane = 0; lane < COLL_LANES; lane++)
        for (int i = 0; i < w->run[lane].transfers; i++)
            if (w->run[lane].transfer[i].send && w->run[lane].transfer[i].flying > 0)
                return true;
    return false;
}

/* ---- giving up ---- */

void coll_window_cancel(sn_coll_group *g, coll_window *w)
{
    sn_coll *c = g->coll;
    for (int lane = 0; lane < COLL_LANES; lane++) {
        coll_run *run = &w->run[lane];
        for (int i = 0; i < run->transfers; i++)
            for (int k = 0; k < run->transfer[i].flying; k++, c->nets--)
                sn_net_cancel(c->net, run->transfer[i].req[k]);
        run->transfers = 0;
    }
    for (int i = 0; i < g->partners; i++) {
        sn_net_req **end[2] = {&w->partner[i].recv, &w->partner[i].send};
        for (int k = 0; k < 2; k++) {
            if (*end[k] == NULL)
                continue;
            sn_net_cancel(c->net, *end[k]);
            *end[k] = NULL;
            c->nets--;
        }
    }
}

/* What has not come some time after the group ended will not: cancelling it is harmless then, for
 * nothing of it is under way. */
static void recall(sn_coll *c, coll_transfer *t)
{
    for (int k = 0; k < t->flying; k++, c->nets--)
        sn_net_cancel(c->net, t->req[k]);
    t->flying = 0;
}

static int drain_transfers(sn_coll *c, coll_run *run, bool late)
{
    int left = 0;
    bool moved;
    for (int i = 0; i < run->transfers; i++) {
        coll_transfer *t = &run->transfer[i];
        while (collect(c, t, &moved) < 0)
            continue;
        if (late && !t->send)
            recall(c, t);
        left += t->flying;
    }
    return left;
}

static int drain_partner(sn_coll *c, coll_partner *p, bool late)
{
    if (p->recv != NULL && sn_net_test(c->net, p->recv) != SN_PENDING) {
        p->recv = NULL;
        c->nets--;
    }
    if (p->send != NULL && sn_net_test(c->net, p->send) != SN_PENDING) {
        p->send = NULL;
        c->nets--;
    }
    if (late && p->recv != NULL) {
        sn_net_cancel(c->net, p->recv);
        p->recv = NULL;
        c->nets--;
    }
    return (p->recv != NULL) + (p->send != NULL);
}

bool coll_window_drain(sn_coll_group *g, coll_window *w, bool late)
{
    int left = 0;
    for (int lane = 0; lane < COLL_LANES; lane++)
        left += drain_transfers(g->coll, &w->run[lane], late);
    for (int i = 0; i < g->partners; i++)
        left += drain_partner(g->coll, &w->partner[i], late);
    return left == 0;
}
