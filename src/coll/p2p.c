/* SPDX-License-Identifier: Apache-2.0
 *
 * p2p — send and receive between two ranks.
 *
 * Inside a host the sender puts a mail into its ring for the receiver: tag, size, where the bytes
 * are. The receiver takes the oldest mail with the right tag and copies straight from the sender's
 * part; then the send is complete. Across hosts it is net's.
 *
 * Bytes outside the arena go in the mail itself when they are few. Others go through a region,
 * which is a ring of its own: the sender raises `avail`, the receiver `taken`. A send may hold one
 * before it is taken, but some regions are kept for those that are: so a receiver that takes them
 * in another order than they came in always gets on. */
#include "coll/coll_private.h"

#include <stdlib.h>
#include <string.h>

#define HALF (COLL_REGION / 2) /* written while the other half is read */

/* ---- regions ---- */

/* NULL: none left. */
static unsigned char *region_take(sn_coll *c, bool taken, int *ret_index)
{
    int to = taken ? COLL_REGIONS : COLL_REGIONS - COLL_REGIONS_KEPT;
    for (int i = 0; i < to; i++) {
        if (!c->region_used[i]) {
            c->region_used[i] = true;
            *ret_index = i;
            return c->mail_regions + (size_t) i * COLL_REGION;
        }
    }
    return NULL;
}

static void region_give(sn_coll_req *r)
{
    if (r->region >= 0)
        r->coll->region_used[r->region] = false;
    r->region = -1;
}

/* ---- mails ---- */

static coll_ring *my_ring(const sn_coll_req *r)
{
    return &r->coll->ring[r->coll->local_of[r->peer]];
}

/* The peer's ring of sends to me: its reserve is laid out like mine. */
static coll_ring *peer_ring(const sn_coll_req *r)
{
    const sn_coll *c = r->coll;
    unsigned char *base = sn_gmem_base(c->seg, c->local_of[r->peer]);
    return (coll_ring *) (base + ((unsigned char *) c->ring - c->base)) + c->me_local;
}

static void ring_peer(const sn_coll_req *r)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    coll_ring_bell(sn_gmem_head(r->coll->seg, r->coll->local_of[r->peer]));
}

static uint32_t state_of(const coll_mail *m)
{
    return __atomic_load_n(&m->state, __ATOMIC_ACQUIRE);
}

static void set_state(coll_mail *m, coll_mail_state s)
{
    __atomic_store_n(&m->state, s, __ATOMIC_RELEASE);
}

static sn_status sizes_differ(const sn_coll_req *r, uint64_t theirs)
{
    const sn_net *net = r->coll->net;
    bool sends = r->kind == COLL_REQ_SEND;
    int from = sends ? r->coll->rank : r->peer, to = sends ? r->peer : r->coll->rank;
    return sn_fail(SN_EMISMATCH,
                   "message with tag %u: rank %d (%s) sends %llu bytes, but rank %d (%s) receives "
                   "%llu",
                   r->tag, from, sn_net_host_name(net, from),
                   (unsigned long long) (sends ? r->bytes : theirs), to, sn_net_host_name(net, to),
                   (unsigned long long) (sends ? theirs : r->bytes));
}

/* An older one of the same kind, peer and tag that has not begun: it comes first. */
static bool older_waits(const sn_coll_req *r)
{
    for (const sn_coll_req *q = r->coll->active; q != NULL && q != r; q = q->next)
        if (q->kind == r->kind && q->peer == r->peer && q->tag == r->tag &&
            (q->making != NULL) == (r->making != NULL) && q->status == SN_PENDING &&
            q->mail == NULL && q->net == NULL)
            return true;
    return false;
}

/* ---- sending ---- */

/* Where the receiver finds the bytes: the buffer, the mail, or later a region. */
static void place(sn_coll_req *r, coll_mail *m)
{
    m->at = r->bytes > 0 ? coll_place_of(r->coll, r->buf, r->bytes) : 0;
    if (m->at != COLL_NOWHERE && !coll_place_known(r->coll, r->coll->local_of[r->peer], m->at))
        m->at = COLL_NOWHERE;
    m->staged = m->at == COLL_NOWHERE;
    m->avail = m->staged ? 0 : r->bytes;
    m->taken = 0;
    if (m->staged && r->bytes <= COLL_INLINE) {
        memcpy(m->text, r->buf, r->bytes);
        m->at = (uint64_t) (m->text - r->coll->base);
        m->avail = r->bytes;
        m->staged = false;
    }
}

/* Put the mail into the ring; PENDING while the ring is full. */
static sn_status send_post(sn_coll_req *r, bool *moved)
{
    coll_ring *ring = my_ring(r);
    coll_mail *m = NULL;
    for (int i = 0; i < COLL_MAILS && m == NULL; i++)
        if (state_of(&ring->mail[i]) == COLL_MAIL_FREE)
            m = &ring->mail[i];
    if (m == NULL)
        return SN_PENDING;
    place(r, m);
    m->tag = r->tag;
    m->making = r->making != NULL;
    m->bytes = r->bytes;
    m->order = ring->posted + 1;
    set_state(m, COLL_MAIL_POSTED);
    coll_store(&ring->posted, m->order);
    r->mail = m;
    *moved = true;
    coll_record_start(r);
    ring_peer(r);
    return SN_OK;
}

/* Fill what is free of the region, at most half of it at a time. */
static void send_stage(sn_coll_req *r, bool *moved)
{
    coll_mail *m = r->mail;
    if (!m->staged || m->avail == r->bytes)
        return;
    if (r->region < 0) {
        unsigned char *region = region_take(r->coll, state_of(m) == COLL_MAIL_TAKEN, &r->region);
        if (region == NULL)
            return;
        m->at = (uint64_t) (region - r->coll->base);
    }
    uint64_t room = COLL_REGION - (m->avail - coll_load(&m->taken));
    uint64_t some = SN_MIN(SN_MIN(room, HALF - m->avail % HALF), r->bytes - m->avail);
    if (some == 0)
        return;
    memcpy(r->coll->base + m->at + m->avail % COLL_REGION, r->buf + m->avail, some);
    coll_store(&m->avail, m->avail + some);
    *moved = true;
    ring_peer(r);
}

static void send_close(sn_coll_req *r)
{
    region_give(r);
    set_state(r->mail, COLL_MAIL_FREE);
    r->mail = NULL;
}

static sn_status send_advance(sn_coll_req *r, bool *moved)
{
    if (r->mail == NULL) {
        sn_status status = send_post(r, moved);
        if (status != SN_OK)
            return status;
    }
    send_stage(r, moved);
    uint32_t state = state_of(r->mail);
    if (state != COLL_MAIL_DONE && state != COLL_MAIL_REFUSED)
        return SN_PENDING;
    uint64_t wanted = r->mail->wanted;
    send_close(r);
    return state == COLL_MAIL_REFUSED ? sizes_differ(r, wanted) : SN_OK;
}

/* ---- receiving ---- */

static coll_mail *find(const sn_coll_req *r, coll_ring *ring)
{
    coll_mail *best = NULL;
    for (int i = 0; i < COLL_MAILS; i++) {
        coll_mail *m = &ring->mail[i];
        if (state_of(m) == COLL_MAIL_POSTED && m->tag == r->tag &&
            m->making == (r->making != NULL) && (best == NULL || m->order < best->order))
            best = m;
    }
    return best;
}

/* Take the oldest mail with my tag. A sender that gives up takes it back the same way. */
static sn_status recv_match(sn_coll_req *r, bool *moved)
{
    coll_ring *ring = peer_ring(r);
    uint64_t posted = coll_load(&ring->posted);
    if (posted == r->seen)
        return SN_PENDING;
    coll_mail *m = find(r, ring);
    uint32_t state = COLL_MAIL_POSTED;
    r->seen = posted;
    if (m == NULL || !__atomic_compare_exchange_n(&m->state, &state, COLL_MAIL_TAKEN, false,
                                                  __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return SN_PENDING;
    *moved = true;
    if (m->bytes != r->bytes) {
        uint64_t theirs = m->bytes;
        m->wanted = r->bytes;
        set_state(m, COLL_MAIL_REFUSED);
        ring_peer(r);
        return sizes_differ(r, theirs);
    }
    r->mail = m;
    coll_record_start(r);
    return SN_OK;
}

/* What can be read now of what came, and where; 0: nothing yet. */
static uint64_t readable(const sn_coll_req *r, uint64_t *ret_at)
{
    const coll_mail *m = r->mail;
    uint64_t some = coll_load(&m->avail) - m->taken;
    some = SN_MIN(some, SN_MIN(r->bytes - m->taken, (uint64_t) COLL_PIECE));
    *ret_at = m->at + m->taken;
    if (m->staged) {
        some = SN_MIN(some, COLL_REGION - m->taken % COLL_REGION);
        *ret_at = m->at + m->taken % COLL_REGION;
    }
    return some;
}

static sn_status unknown_place(const sn_coll_req *r)
{
    return sn_fail(SN_EINVAL,
                   "what rank %d (%s) sends is in a segment that rank %d does not know: all its "
                   "ranks call sn_coll_use first",
                   r->peer, sn_net_host_name(r->coll->net, r->peer), r->coll->rank);
}

static sn_status recv_advance(sn_coll_req *r, bool *moved)
{
    if (r->mail == NULL) {
        sn_status status = recv_match(r, moved);
        if (status != SN_OK)
            return status;
    }
    coll_mail *m = r->mail;
    sn_coll *c = r->coll;
    uint64_t at, some = readable(r, &at);
    if (some > 0) {
        const unsigned char *from = coll_place_at(c, c->local_of[r->peer], at);
        if (from == NULL)
            return unknown_place(r);
        c->kernels->copy(r->buf + m->taken, from, some, r->bytes >= COLL_STREAM);
        c->stats.bytes_host += some;
        coll_store(&m->taken, m->taken + some);
        *moved = true;
    }
    if (m->taken < r->bytes) {
        if (some > 0 && m->staged)
            ring_peer(r);
        return SN_PENDING;
    }
    r->mail = NULL;
    set_state(m, COLL_MAIL_DONE);
    ring_peer(r);
    return SN_OK;
}

bool coll_p2p_peer_left(sn_coll_req *r)
{
    sn_coll *c = r->coll;
    int local = c->local_of[r->peer];
    bool receiving = r->kind == COLL_REQ_RECV && r->mail != NULL;
    if (local < 0 || receiving)
        return false;
    coll_bell *bell = sn_gmem_head(c->seg, local);
    if (__atomic_load_n(&bell->closed, __ATOMIC_ACQUIRE) == 0)
        return false;
    coll_advance(r); /* what it sent before is there by now */
    if (r->status != SN_PENDING || (r->kind == COLL_REQ_RECV && r->mail != NULL))
        return false;
    return true;
}

/* ---- across hosts ---- */

static sn_status net_advance(sn_coll_req *r, bool *moved)
{
    sn_coll *c = r->coll;
    uint64_t tag = (uint64_t) (r->making != NULL) << 38 | r->tag;
    sn_status status;
    if (r->net == NULL) {
        status = r->kind == COLL_REQ_NET_SEND
                     ? sn_net_send(c->net, r->peer, tag, r->buf, r->bytes, &r->net)
                     : sn_net_recv(c->net, r->peer, tag, r->buf, r->bytes, &r->net);
        if (status != SN_OK)
            return status == SN_AGAIN ? SN_PENDING : status;
        c->nets++;
        *moved = true;
        coll_record_start(r);
    }
    status = sn_net_test(c->net, r->net);
    if (status == SN_PENDING)
        return status;
    r->net = NULL;
    c->nets--;
    if (status == SN_OK && r->kind == COLL_REQ_NET_RECV)
        c->stats.bytes_net += r->bytes;
    return status;
}

sn_status coll_p2p_advance(sn_coll_req *r, bool *moved)
{
    if (r->mail == NULL && r->net == NULL && older_waits(r))
        return SN_PENDING;
    switch (r->kind) {
    case COLL_REQ_SEND:
        return send_advance(r, moved);
    case COLL_REQ_RECV:
        return recv_advance(r, moved);
    default:
        return net_advance(r, moved);
    }
}

void coll_p2p_withdraw(sn_coll_req *r, sn_status why)
{
    sn_coll *c = r->coll;
    uint32_t posted = COLL_MAIL_POSTED;
    if (r->net != NULL) {
        if (coll_job_over(why) && c->orphans < COLL_P2P_REQS)
            c->orphan[c->orphans++] = r->net;
        else
            sn_net_cancel(c->net, r->net);
        r->net = NULL;
        r->coll->nets--;
    }
    if (r->mail == NULL)
        return;
    if (r->kind == COLL_REQ_RECV) { /* the sender learns that nothing will come of it */
        r->mail->wanted = 0;
        set_state(r->mail, COLL_MAIL_REFUSED);
        ring_peer(r);
    } else if (__atomic_compare_exchange_n(&r->mail->state, &posted, COLL_MAIL_FREE, false,
                                           __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        region_give(r);
    } /* else it is being read: the mail and its region stay out of use */
    r->mail = NULL;
}

/* ---- the calls ---- */

sn_status coll_p2p_post(sn_coll *c, bool send, int peer, uint32_t tag, const char *making,
                        void *buf, uint64_t bytes, sn_time deadline, sn_coll_req **ret)
{
    if (peer < 0 || peer >= c->world || peer == c->rank)
        return sn_fail(SN_EINVAL, "rank %d has no peer %d in a job of %d", c->rank, peer, c->world);
    if (buf == NULL && bytes > 0)
        return sn_fail(SN_EINVAL, "%s rank %d, tag %u: no buffer",
                       send ? "send to" : "receive from", peer, tag);
    sn_coll_req *r = c->free;
    if (r == NULL)
        return SN_AGAIN;
    c->free = r->next;
    bool here = c->local_of[peer] >= 0;
    *r = (sn_coll_req){.kind = here ? (send ? COLL_REQ_SEND : COLL_REQ_RECV)
                                    : (send ? COLL_REQ_NET_SEND : COLL_REQ_NET_RECV),
                       .coll = c,
                       .status = SN_PENDING,
                       .deadline = deadline,
                       .priority = 1 << 30, /* small and on somebody's critical path */
                       .peer = peer,
                       .tag = tag,
                       .making = making,
                       .buf = buf,
                       .bytes = bytes,
                       .region = -1};
    coll_activate(c, r);
    coll_launch(r);
    *ret = r;
    return SN_OK;
}

sn_status sn_coll_send(sn_coll *c, int peer, uint32_t tag, const void *buf, uint64_t bytes,
                       sn_time deadline, sn_coll_req **ret)
{
    coll_lock(c);
    sn_status status =
        coll_p2p_post(c, true, peer, tag, NULL, (void *) (uintptr_t) buf, bytes, deadline, ret);
    coll_unlock(c);
    return status;
}

sn_status sn_coll_recv(sn_coll *c, int peer, uint32_t tag, void *buf, uint64_t bytes,
                       sn_time deadline, sn_coll_req **ret)
{
    coll_lock(c);
    sn_status status = coll_p2p_post(c, false, peer, tag, NULL, buf, bytes, deadline, ret);
    coll_unlock(c);
    return status;
}
