/* SPDX-License-Identifier: Apache-2.0
 *
 * print — the fingerprint of a call, compared with every member of my host when it enters and with
 * one member of every other host (a partner) by a small message.
 *
 * Who finds a difference tells the other hosts in the same message, so that members which agree
 * with all whom they talk to learn of it too. */
#include "coll/coll_private.h"

#include <stdio.h>
#include <string.h>

#define PRINT_TESTS 1000 /* chances for the last words to leave before they are dropped */

static bool equal(coll_print a, coll_print b)
{
    return a.count == b.count && a.op == b.op && a.red == b.red && a.dtype == b.dtype &&
           a.algorithm == b.algorithm && a.root == b.root;
}

/* "all_reduce sum of 100 F32 by flat" */
static const char *text(char out[120], coll_print p)
{
    const sn_algo_row *const *rows;
    int n = sn_algo_rows(&rows), used = 0;
    bool reduces = p.op == SN_ALL_REDUCE || p.op == SN_REDUCE_SCATTER;
    bool rooted = p.op == SN_BROADCAST || p.op == SN_GATHER || p.op == SN_SCATTER;
    sn_red red = (sn_red) (p.red & ~COLL_ORDERED);
    const char *dtype = p.dtype < SN_DTYPE_COUNT ? sn_dtype_name((sn_dtype) p.dtype) : "?";
    used = snprintf(out, 120, "%s%s%s%s of %llu %s by %s", sn_coll_op_name((sn_coll_op) p.op),
                    reduces ? " " : "", reduces ? sn_red_name(red) : "",
                    p.red & COLL_ORDERED ? " in order" : "", (unsigned long long) p.count, dtype,
                    p.algorithm < n ? rows[p.algorithm]->name : "?");
    if (rooted && used < 100)
        snprintf(out + used, (size_t) (120 - used), " with root %u", p.root);
    else if (p.root != 0 && used < 100)
        snprintf(out + used, (size_t) (120 - used), " in parts %08x", p.root);
    return out;
}

static sn_status differ(const sn_coll_req *r, int a, coll_print pa, int b, coll_print pb)
{
    char ta[120], tb[120];
    const sn_coll_group *g = r->group;
    return sn_fail(SN_EMISMATCH,
                   "call #%llu in group %s: rank %d (%s) calls %s, but rank %d (%s) calls %s",
                   (unsigned long long) r->seq, g->name, a, sn_net_host_name(g->coll->net, a),
                   text(ta, pa), b, sn_net_host_name(g->coll->net, b), text(tb, pb));
}

/* Tell the partners on the other hosts that `rank` calls something else. */
static void poison(sn_coll_req *r, int rank, coll_print theirs)
{
    sn_coll_group *g = r->group;
    coll_window *w = coll_window_of(g, r->seq);
    for (int i = 0; i < g->partners && !w->prints_sent; i++) {
        coll_header bad = {.seq = r->seq,
                           .print = r->print,
                           .other = theirs,
                           .rank = g->coll->rank,
                           .bad_rank = rank};
        sn_net_req *send;
        int to = g->partner_member[i];
        if (sn_net_send(g->coll->net, g->member[to].rank, coll_tag(r, to, 3, 0), &bad, sizeof(bad),
                        &send) != SN_OK)
            continue;
        sn_status status = SN_PENDING;
        for (int n = 0; status == SN_PENDING && n < PRINT_TESTS; n++)
            status = sn_net_test(g->coll->net, send);
        if (status == SN_PENDING)
            sn_net_cancel(g->coll->net, send);
    }
}

sn_status coll_prints_local(sn_coll_req *r)
{
    sn_coll_group *g = r->group;
    for (int i = 0; i < g->locals; i++) {
        const coll_member *m = &g->member[g->local[i]];
        const coll_slot *s = coll_slot_of(m->block, r->seq);
        if (equal(s->print, r->print))
            continue;
        coll_print theirs = s->print;
        poison(r, m->rank, theirs);
        return differ(r, g->coll->rank, r->print, m->rank, theirs);
    }
    return SN_OK;
}

sn_status coll_prints_start(sn_coll_req *r)
{
    sn_coll_group *g = r->group;
    sn_coll *c = g->coll;
    coll_window *w = coll_window_of(g, r->seq);
    for (int i = 0; i < g->partners; i++) {
        coll_partner *l = &w->partner[i];
        int to = g->partner_member[i], rank = g->member[to].rank;
        if (l->recv == NULL) {
            sn_status status = sn_net_recv(c->net, rank, coll_tag(r, g->me, 3, 0), &l->in,
                                           sizeof(l->in), &l->recv);
            if (status != SN_OK)
                return status == SN_AGAIN ? SN_PENDING : status;
            c->nets++;
        }
        if (l->send == NULL) {
            l->out =
                (coll_header){.seq = r->seq, .print = r->print, .rank = c->rank, .bad_rank = -1};
            sn_status status =
                sn_net_send(c->net, rank, coll_tag(r, to, 3, 0), &l->out, sizeof(l->out), &l->send);
            if (status != SN_OK)
                return status == SN_AGAIN ? SN_PENDING : status;
            c->nets++;
        }
    }
    w->prints_sent = true;
    return SN_OK;
}

static sn_status compare(sn_coll_req *r, const coll_partner *l)
{
    sn_coll_group *g = r->group;
    const coll_header *h = &l->in;
    if (h->bad_rank >= 0 && h->bad_rank < g->coll->world && h->rank >= 0 &&
        h->rank < g->coll->world)
        return differ(r, h->rank, h->print, h->bad_rank, h->other);
    if (!equal(h->print, r->print))
        return differ(r, g->coll->rank, r->print, g->member[l->member].rank, h->print);
    return SN_OK;
}

/* One end of a partner's exchange: done when its request is gone. */
static sn_status finish(sn_coll *c, sn_net_req **req)
{
    if (*req == NULL)
        return SN_OK;
    sn_status status = sn_net_test(c->net, *req);
    if (status == SN_PENDING)
        return SN_PENDING;
    *req = NULL;
    c->nets--;
    return status;
}

sn_status coll_prints_done(sn_coll_req *r)
{
    sn_coll_group *g = r->group;
    coll_window *w = coll_window_of(g, r->seq);
    bool all = w->prints_sent;
    for (int i = 0; i < g->partners && w->prints_sent && !w->prints_ok; i++) {
        coll_partner *l = &w->partner[i];
        bool had = l->recv != NULL;
        sn_status got = finish(g->coll, &l->recv);
        if (got < 0)
            return got;
        if (had && got == SN_OK)
            SN_TRY(compare(r, l));
        sn_status sent = finish(g->coll, &l->send);
        if (sent < 0)
            return sent;
        all = all && got == SN_OK && sent == SN_OK;
    }
    w->prints_ok = all;
    return all ? SN_OK : SN_PENDING;
}

int coll_prints_wait_for(const sn_coll_req *r)
{
    const sn_coll_group *g = r->group;
    const coll_window *w = &g->window[r->seq % COLL_WINDOW];
    for (int i = 0; i < g->partners; i++)
        if (w->partner[i].recv != NULL || w->partner[i].send != NULL)
            return g->member[w->partner[i].member].rank;
    return -1;
}
