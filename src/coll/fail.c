/* SPDX-License-Identifier: Apache-2.0
 *
 * fail — how a failure becomes everybody's. Whoever fails writes why into its block of the group;
 * members of its host that wait for it find that and fail with the same sentence. Members on other
 * hosts are told by messages (news.c).
 *
 * An abort is the same from another thread: it writes into the block, which is shared memory, and
 * rings; the threads of this rank find it at their next look. */
#include "coll/coll_private.h"

#include <stdio.h>

/* ---- my group ---- */

/* The first to come writes; what is there then stays. */
bool coll_publish(sn_coll_group *g, sn_status status, uint64_t seq, const char *text)
{
    coll_block *b = g->block;
    if (__atomic_exchange_n(&b->failing, 1, __ATOMIC_ACQ_REL) != 0)
        return false;
    b->status = status;
    snprintf(b->text, sizeof(b->text), "%.239s", text);
    coll_store(&b->failed_seq, seq);
    coll_ring_members(g);
    return true;
}

/* Nothing of the group goes on: its members could no longer agree on what comes next. */
static void break_group(sn_coll_group *g, sn_status status, const char *text)
{
    sn_coll *c = g->coll;
    uint64_t first = g->posted + 1;
    g->broken = status;
    snprintf(g->text, sizeof(g->text), "%s", text);
    for (sn_coll_req *q = c->active; q != NULL; q = q->next) {
        if (q->group != g || q->status != SN_PENDING)
            continue;
        first = SN_MIN(first, q->seq);
        coll_end(q, status, g->text);
    }
    for (int i = 0; i < COLL_WINDOW && !coll_job_over(status); i++)
        coll_window_cancel(g, &g->window[i]);
    coll_publish(g, status, first, g->text);
    coll_news_tell(g, coll_load(&g->block->failed_seq));
}

/* A member that gave up this operation or one before it: why, NULL none did. */
static const char *given_up(const sn_coll_req *r, sn_status *ret_status)
{
    const sn_coll_group *g = r->group;
    if (g->news.status < 0 && g->news.seq <= r->seq) {
        *ret_status = (sn_status) g->news.status;
        return g->news.text;
    }
    for (int i = 0; i < g->locals; i++) {
        const coll_member *m = &g->member[g->local[i]];
        uint64_t seq = coll_load(&m->block->failed_seq);
        if (seq == 0 || seq > r->seq ||
            __atomic_load_n(&m->block->port, __ATOMIC_ACQUIRE) != m->port)
            continue;
        *ret_status = (sn_status) m->block->status;
        return m->block->text;
    }
    return NULL;
}

/* That a peer has left says less than why: what it told before comes first. */
sn_status coll_op_fail(sn_coll_req *r, sn_status status)
{
    sn_coll_group *g = r->group;
    char text[COLL_TEXT];
    snprintf(text, sizeof(text), "%s", sn_errmsg());
    coll_aborts(r->coll);
    const char *cause = status == SN_EPEER ? given_up(r, &status) : NULL;
    if (g->broken == SN_OK)
        break_group(g, status, cause != NULL ? cause : text);
    if (r->status == SN_PENDING)
        coll_end(r, g->broken, g->text);
    return sn_fail(g->broken, "%s", g->text);
}

/* ---- abort ---- */

void sn_coll_group_abort(sn_coll_group *g, const char *why)
{
    sn_coll *c = g->coll;
    char text[240];
    snprintf(text, sizeof(text), "rank %d (%s) aborted group %s: %s", c->rank,
             sn_net_host_name(c->net, c->rank), g->name, why != NULL ? why : "no reason given");
    if (!coll_publish(g, SN_ECANCEL, 1, text))
        return;
    __atomic_store_n(&g->aborted, 1, __ATOMIC_RELEASE);
    __atomic_fetch_add(&c->aborts, 1, __ATOMIC_SEQ_CST);
    coll_ring_bell(c->bell);
    if (c->threads) {
        coll_lock(c);
        coll_aborts(c);
        coll_unlock(c);
    }
}

void coll_aborts(sn_coll *c)
{
    uint32_t n = __atomic_load_n(&c->aborts, __ATOMIC_RELAXED);
    if (n == c->aborts_seen)
        return;
    c->aborts_seen = n;
    for (sn_coll_group *g = c->groups; g != NULL; g = g->next)
        if (g->broken == SN_OK && __atomic_load_n(&g->aborted, __ATOMIC_ACQUIRE) != 0)
            break_group(g, (sn_status) g->block->status, g->block->text);
}

/* ---- others ---- */

/* It has freed its side of the group, or closed its coll: what it has not finished it never will.
 * Ports only grow, so a block with a larger one was this group's before. */
static bool has_left(const coll_member *m, uint64_t seq)
{
    uint32_t port = __atomic_load_n(&m->block->port, __ATOMIC_ACQUIRE);
    if (port > m->port || __atomic_load_n(&m->block->before, __ATOMIC_ACQUIRE) >= m->port)
        return true;
    bool left = __atomic_load_n(&m->block->left, __ATOMIC_ACQUIRE) != 0 ||
                __atomic_load_n(&m->bell->closed, __ATOMIC_ACQUIRE) != 0;
    return left && coll_load(&m->block->done_seq) < seq;
}

bool coll_peer_gave_up(sn_coll_req *r)
{
    sn_coll_group *g = r->group;
    sn_coll *c = r->coll;
    char what[200];
    sn_status status;
    const char *cause = given_up(r, &status);
    if (cause != NULL) {
        coll_op_fail(r, sn_fail(status, "%.239s", cause));
        return true;
    }
    for (int i = 0; i < g->locals; i++) {
        const coll_member *m = &g->member[g->local[i]];
        if (!has_left(m, r->seq))
            continue;
        sn_fail(SN_EPEER, "rank %d (%s): %s: rank %d (%s) has left the group", c->rank,
                sn_net_host_name(c->net, c->rank), coll_req_text(r, what), m->rank,
                sn_net_host_name(c->net, m->rank));
        coll_op_fail(r, SN_EPEER);
        return true;
    }
    return false;
}
