/* SPDX-License-Identifier: Apache-2.0
 *
 * p2p — send and receive between two ranks.
 *
 * Inside a host the sender puts a mail into its ring for the receiver: tag, size, where the bytes
 * are. The receiver takes the oldest mail with the right tag and copies straight from the sender's
 * part; then the send is complete. Bytes outside the arena go through a stage region, which is a
 * ring of its own: the sender raises `avail`, the receiver `taken`. Across hosts it is net's. */
#include "coll/coll_private.h"

#include <stdlib.h>
#include <string.h>

#define HALF (COLL_REGION / 2) /* written while the other half is read */

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
    return sn_fail(SN_EMISMATCH, "this side has %llu bytes, the other %llu",
                   (unsigned long long) r->bytes, (unsigned long long) theirs);
}

/* ---- sending ---- */

/* Put the mail into the ring; PENDING while the ring or the stage is full. */
static sn_status send_post(sn_coll_req *r, bool *moved)
{
    coll_ring *ring = my_ring(r);
    coll_mail *m = NULL;
    uint64_t at = 0;
    for (int i = 0; i < COLL_MAILS && m == NULL; i++)
        if (state_of(&ring->mail[i]) == COLL_MAIL_FREE)
            m = &ring->mail[i];
    if (m == NULL)
        return SN_PENDING;
    bool direct = r->bytes == 0 || sn_gmem_find(r->coll->seg, r->buf, r->bytes, &at);
    if (!direct) {
        unsigned char *region = coll_region_take(r->coll, true, &r->region);
        if (region == NULL)
            return SN_PENDING;
        at = (uint64_t) (region - r->coll->base);
    }
    m->tag = r->tag;
    m->bytes = r->bytes;
    m->at = at;
    m->staged = !direct;
    m->avail = direct ? r->bytes : 0;
    m->taken = 0;
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
    if (r->region >= 0)
        coll_region_give(r->coll, r->region);
    r->region = -1;
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
            (best == NULL || m->order < best->order))
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

static sn_status recv_advance(sn_coll_req *r, bool *moved)
{
    if (r->mail == NULL) {
        sn_status status = recv_match(r, moved);
        if (status != SN_OK)
            return status;
    }
    coll_mail *m = r->mail;
    sn_coll *c = r->coll;
    uint64_t have = SN_MIN(coll_load(&m->avail), r->bytes) - m->taken;
    uint64_t some = SN_MIN(have, (uint64_t) COLL_PIECE), at = m->at + m->taken;
    if (m->staged) {
        some = SN_MIN(some, COLL_REGION - m->taken % COLL_REGION);
        at = m->at + m->taken % COLL_REGION;
    }
    if (some > 0) {
        unsigned char *base = sn_gmem_base(c->seg, c->local_of[r->peer]);
        c->kernels->copy(r->buf + m->taken, base + at, some, r->bytes >= COLL_STREAM);
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

/* ---- across hosts ---- */

static sn_status net_advance(sn_coll_req *r, bool *moved)
{
    sn_coll *c = r->coll;
    sn_status status;
    if (r->net == NULL) {
        status = r->kind == COLL_REQ_NET_SEND
                     ? sn_net_send(c->net, r->peer, r->tag, r->buf, r->bytes, &r->net)
                     : sn_net_recv(c->net, r->peer, r->tag, r->buf, r->bytes, &r->net);
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
        if (r->region >= 0)
            coll_region_give(r->coll, r->region);
    } /* else it is being read: the mail and its region stay out of use */
    r->mail = NULL;
}

/* ---- the calls ---- */

static sn_status post(sn_coll *c, bool send, int peer, uint32_t tag, void *buf, uint64_t bytes,
                      sn_time deadline, sn_coll_req **ret)
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
    return post(c, true, peer, tag, (void *) (uintptr_t) buf, bytes, deadline, ret);
}

sn_status sn_coll_recv(sn_coll *c, int peer, uint32_t tag, void *buf, uint64_t bytes,
                       sn_time deadline, sn_coll_req **ret)
{
    return post(c, false, peer, tag, buf, bytes, deadline, ret);
}
