/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages across hosts: requests from a pool, tags that carry the sender's rank.
 *
 *   tag    63        62 … 40        39 … 0
 *          control   source rank    the caller's tag */
#include "net/wire.h"

#include "os/os.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CANCEL_NS (50 * SN_MS) /* for what is under way to end */
#define SPINS 8                /* idle looks before the first yield */
#define YIELDS 150             /* idle looks with a yield before the first sleep */

static void give_back(sn_net_req *req)
{
    net_wire *wire = req->wire;
    if (!req->control)
        wire->held--;
    req->used = false;
    req->next = wire->free_list;
    wire->free_list = req;
}

/* The caller is done with it; UCX may not be. */
static void let_go(sn_net_req *req)
{
    if (req->ucx || req->leaves)
        req->orphan = true;
    else
        give_back(req);
}

static void complete(sn_net_req *req, ucs_status_t code, size_t got)
{
    req->ucx = NULL;
    req->code = code;
    req->got = got;
    req->done = true;
    if (req->orphan)
        give_back(req);
}

/* ---- leaving ----
 *
 * When UCX is done with the caller's bytes they may, over tcp, still lie in a buffer of its own,
 * where the kernel had no room. Nobody may come back to move them: who has sent may go and compute.
 * So a message is sent when UCX's buffers are empty, which costs a look when they are. Else it
 * waits for a flush of the worker, one at a time (UCX 1.13 counts them in a byte):
 *
 *   UCX is done ─▶ late ── the next flush begins ─▶ leaving ── it ends ─▶ complete
 *
 * A device for RDMA moves what it has by itself. */

static void add_to(sn_net_req **list, sn_net_req *req)
{
    req->leaves = true;
    req->next = *list;
    *list = req;
}

static void all_sent(sn_net_req **list, ucs_status_t code)
{
    while (*list) {
        sn_net_req *req = *list;
        *list = req->next;
        req->leaves = false;
        complete(req, code, req->bytes);
    }
}

static void on_flushed(void *request, ucs_status_t code, void *ctx)
{
    net_wire *wire = ctx;
    wire->u.ucp_request_free(request);
    wire->flush = NULL;
    wire->flush_code = code;
    wire->flushed = true;
}

static void begin_flush(net_wire *wire)
{
    ucp_request_param_t param = {.op_attr_mask =
                                     UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                 .cb.send = on_flushed,
                                 .user_data = wire};
    wire->leaving = wire->late;
    wire->late = NULL;
    ucs_status_ptr_t flush = wire->u.ucp_worker_flush_nbx(wire->worker, &param);
    if (!UCS_PTR_IS_PTR(flush))
        all_sent(&wire->leaving, UCS_PTR_STATUS(flush));
    else if (!wire->flushed)
        wire->flush = flush;
}

void wire_leave(net_wire *wire)
{
    if (wire->flushed) {
        wire->flushed = false;
        all_sent(&wire->leaving, wire->flush_code);
    }
    if (wire->late && !wire->leaving)
        begin_flush(wire);
}

void wire_on_sent(void *request, ucs_status_t code, void *ctx)
{
    sn_net_req *req = ctx;
    net_wire *wire = req->wire;
    wire->u.ucp_request_free(request);
    if (code != UCS_OK || req->kind != WIRE_SEND || !wire->tcp) {
        complete(req, code, req->bytes);
        return;
    }
    req->ucx = NULL;
    add_to(&wire->late, req);
}

static void on_received(void *request, ucs_status_t code, const ucp_tag_recv_info_t *info,
                        void *ctx)
{
    sn_net_req *req = ctx;
    req->wire->u.ucp_request_free(request);
    complete(req, code, info ? info->length : 0);
}

/* ---- starting ---- */

static sn_status check_peer(sn_net *net, int peer, uint64_t tag)
{
    if (peer < 0 || peer >= net->world)
        return sn_fail(SN_EINVAL, "rank %d of a world of %d", peer, net->world);
    if (sn_net_same_host(net, peer))
        return sn_fail(SN_ENOTSUP, "rank %d is on my host (%s): reach it through memory", peer,
                       sn_net_host_name(net, peer));
    if (tag >> WIRE_TAG_BITS)
        return sn_fail(SN_EINVAL, "tag %#llx has more than %d bits", (unsigned long long) tag,
                       WIRE_TAG_BITS);
    return net_state(net, peer) == NET_DEAD ? net_peer_gone(net, peer) : SN_OK;
}

sn_status wire_check_peer(sn_net *net, int peer)
{
    SN_TRY(check_peer(net, peer, 0));
    if (net_state(net, peer) != NET_FINE || !net->wire->peers[peer].ep)
        return net_peer_gone(net, peer);
    return SN_OK;
}

sn_net_req *wire_take(net_wire *wire, int peer, wire_kind kind, bool control, uint64_t tag,
                      size_t bytes)
{
    sn_net_req *req = wire->free_list;
    if (!req || (!control && wire->held == WIRE_REQUESTS))
        return NULL;
    wire->free_list = req->next;
    wire->held += !control;
    *req = (sn_net_req){.wire = wire,
                        .peer = peer,
                        .used = true,
                        .kind = kind,
                        .control = control,
                        .tag = tag,
                        .bytes = bytes};
    return req;
}

void wire_note_started(sn_net_req *req, ucs_status_ptr_t started, size_t got)
{
    net_wire *wire = req->wire;
    if (UCS_PTR_IS_PTR(started)) {
        if (!req->done && !req->leaves)
            req->ucx = started;
    } else if (req->kind == WIRE_SEND && wire->tcp && !UCS_PTR_IS_ERR(started)) {
        add_to(&wire->late, req);
        wire_leave(wire);
    } else {
        complete(req, UCS_PTR_STATUS(started), got); /* NULL is UCS_OK */
    }
}

static sn_status start_send(sn_net *net, int peer, bool control, uint64_t tag, const void *buf,
                            size_t bytes, sn_net_req **ret)
{
    SN_TRY(check_peer(net, peer, tag));
    SN_TRY(wire_check_peer(net, peer));
    net_wire *wire = net->wire;
    sn_net_req *req = wire_take(wire, peer, WIRE_SEND, control, tag, bytes);
    if (!req)
        return SN_AGAIN;
    ucp_request_param_t param = {.op_attr_mask =
                                     UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                 .cb.send = wire_on_sent,
                                 .user_data = req};
    wire_note_started(req,
                      wire->u.ucp_tag_send_nbx(wire->peers[peer].ep, buf, bytes,
                                               wire_tag(net->rank, control, tag), &param),
                      bytes);
    *ret = req;
    return SN_OK;
}

static sn_status start_recv(sn_net *net, int peer, bool control, uint64_t tag, void *buf,
                            size_t bytes, sn_net_req **ret)
{
    SN_TRY(check_peer(net, peer, tag));
    net_wire *wire = net->wire;
    sn_net_req *req = wire_take(wire, peer, WIRE_RECV, control, tag, bytes);
    if (!req)
        return SN_AGAIN;
    /* Always through the callback: a receive that completes at once gets no length from UCX 1.13.
     */
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                 UCP_OP_ATTR_FIELD_USER_DATA |
                                                 UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
                                 .cb.recv = on_received,
                                 .user_data = req};
    wire_note_started(req,
                      wire->u.ucp_tag_recv_nbx(wire->worker, buf, bytes,
                                               wire_tag(peer, control, tag), UINT64_MAX, &param),
                      bytes);
    if (!req->done && net_state(net, peer) == NET_LEFT)
        wire_fail_requests(wire, peer, true); /* what it sent before leaving may still be taken */
    *ret = req;
    return SN_OK;
}

sn_status sn_net_send(sn_net *net, int peer, uint64_t tag, const void *buf, size_t bytes,
                      sn_net_req **ret)
{
    return start_send(net, peer, false, tag, buf, bytes, ret);
}

sn_status sn_net_recv(sn_net *net, int peer, uint64_t tag, void *buf, size_t bytes,
                      sn_net_req **ret)
{
    return start_recv(net, peer, false, tag, buf, bytes, ret);
}

sn_status net_control_send(sn_net *net, int peer, net_tag tag, const void *buf, size_t bytes,
                           sn_net_req **ret)
{
    return start_send(net, peer, true, tag, buf, bytes, ret);
}

sn_status net_control_recv(sn_net *net, int peer, net_tag tag, void *buf, size_t bytes,
                           sn_net_req **ret)
{
    return start_recv(net, peer, true, tag, buf, bytes, ret);
}

/* ---- failing ---- */

void wire_fail_requests(net_wire *wire, int rank, bool unmatched_only)
{
    for (int i = 0; i < wire->pool_n; i++) {
        sn_net_req *req = &wire->pool[i];
        if (!req->used || req->done || req->peer != rank ||
            (req->kind != WIRE_RECV && unmatched_only))
            continue;
        req->peer_gone = true;
        if (req->kind == WIRE_RECV)
            wire->u.ucp_request_cancel(wire->worker, req->ucx); /* calls back when unmatched */
        if (req->done)
            continue;
        if (unmatched_only)
            req->peer_gone = false;
        else
            req->done = true; /* UCX calls back once the connection is closed */
    }
}

/* ---- completing ---- */

static sn_status sizes_differ(const sn_net *net, const sn_net_req *req)
{
    return sn_fail(SN_EMISMATCH,
                   "rank %d (%s) sent %zu bytes where rank %d (%s) expected %zu (tag %llu)",
                   req->peer, sn_net_host_name(net, req->peer), req->got, net->rank,
                   sn_net_host_name(net, net->rank), req->bytes, (unsigned long long) req->tag);
}

/* The sentence of a request that is done; gives it back. */
static sn_status finish(sn_net *net, sn_net_req *req)
{
    sn_net_req r = *req;
    let_go(req);
    if (r.peer_gone)
        return net_peer_gone(net, r.peer);
    if (r.code == UCS_ERR_MESSAGE_TRUNCATED || (r.code == UCS_OK && r.got != r.bytes))
        return sizes_differ(net, &r);
    if (r.code == UCS_OK)
        return SN_OK;
    sn_net_peer_failed(net, r.peer, net->wire->u.ucs_status_string(r.code));
    return net_peer_gone(net, r.peer);
}

sn_status sn_net_test(sn_net *net, sn_net_req *req)
{
    if (!req->done)
        net_wire_progress(net->wire);
    return req->done ? finish(net, req) : SN_PENDING;
}

int net_wire_pending(const net_wire *wire)
{
    return wire->held + wire->expected;
}

void sn_net_cancel(sn_net *net, sn_net_req *req)
{
    if (!req)
        return;
    net_wire *wire = net->wire;
    if (!req->done && req->kind == WIRE_RECV)
        wire->u.ucp_request_cancel(wire->worker, req->ucx);
    if (!req->done && req->kind == WIRE_FLUSH) { /* has no buffer */
        let_go(req);
        return;
    }
    if (!req->done && req->kind == WIRE_SEND)
        wire_revoke_send(wire, req);
    /* What is on its way cannot be recalled, and the buffer is the caller's again when this
     * returns: give it a moment to end, else give up the connection. */
    for (sn_time limit = sn_now() + CANCEL_NS; !req->done && sn_now() < limit; sched_yield())
        net_wire_progress(wire);
    if (!req->done)
        sn_net_peer_failed(net, req->peer, "a message could not be cancelled");
    let_go(req);
}

static sn_status too_late(const sn_net *net, const sn_net_req *req, sn_time began)
{
    static const char *const what[] = {[WIRE_SEND] = "nothing taken by",
                                       [WIRE_RECV] = "nothing from",
                                       [WIRE_PUT] = "nothing taken by",
                                       [WIRE_GET] = "nothing from",
                                       [WIRE_FLUSH] = "no confirmation from"};
    char tag[32] = "";
    if (req->kind == WIRE_SEND || req->kind == WIRE_RECV)
        snprintf(tag, sizeof tag, "tag %llu, ", (unsigned long long) req->tag);
    return sn_fail(SN_ETIME, "%s rank %d (%s) for %.1f s (%s%zu bytes)", what[req->kind], req->peer,
                   sn_net_host_name(net, req->peer), (double) (sn_now() - began) / SN_SEC, tag,
                   req->bytes);
}

/* One idle turn: SN_OK to look again, else why to stop. */
static sn_status idle(sn_net *net, const sn_net_req *req, int turn, sn_time began, sn_time deadline)
{
    if (turn < SPINS) {
        SN_PAUSE();
        return sn_net_alive(net);
    }
    sn_time now = sn_now();
    if (now >= deadline)
        return too_late(net, req, began);
    if (turn < SPINS + YIELDS) {
        sched_yield();
        return sn_net_alive(net);
    }
    net_wire_sleep(net->wire, SN_MIN(deadline, now + SN_MS));
    return sn_net_look(net);
}

sn_status net_control_wait(sn_net *net, sn_net_req *req, sn_time deadline)
{
    sn_status status = SN_OK;
    sn_time began = 0;
    for (int turn = 0; !req->done && status >= 0; turn += turn < SPINS + YIELDS) {
        net_wire_progress(net->wire);
        if (req->done)
            break;
        if (turn == SPINS - 1 && !began)
            began = sn_now();
        status = idle(net, req, turn, began, deadline);
    }
    if (req->done)
        return finish(net, req);
    char text[512]; /* cancelling may write another sentence */
    snprintf(text, sizeof text, "%s", sn_errmsg());
    sn_net_cancel(net, req);
    return sn_fail(status, "%s", text);
}

sn_status sn_net_wait(sn_net *net, sn_net_req *req, sn_time deadline, const char *what)
{
    sn_status status = net_control_wait(net, req, deadline);
    if (status < 0 && what)
        sn_fail_in(status, "rank %d (%s): %s", net->rank, sn_net_host_name(net, net->rank), what);
    return status;
}
