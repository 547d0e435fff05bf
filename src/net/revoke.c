/* SPDX-License-Identifier: Apache-2.0
 *
 * Taking back a large message that nobody takes.
 *
 * UCX announces a large message and keeps it until its peer asks for the bytes; it cannot recall
 * that. So whoever cancels such a message asks its peer to take it and throw it away: a
 * receive with no room, which ends the sender's part without a byte moved. The request follows the
 * announcement on the same connection; when the message is not among those that wait, the peer is
 * taking it at this moment, and it ends by itself. */
#include "net/wire.h"

#include <string.h>

/* ---- the one who takes back ---- */

/* An older message that looks the same would be taken for it. */
static bool is_first(const net_wire *wire, const sn_net_req *message)
{
    for (int i = 0; i < wire->pool_n; i++) {
        const sn_net_req *r = &wire->pool[i];
        if (r != message && r->used && !r->done && r->kind == WIRE_SEND &&
            r->peer == message->peer && r->control == message->control && r->tag == message->tag)
            return false;
    }
    return true;
}

void wire_revoke_send(net_wire *wire, const sn_net_req *message)
{
    if (!wire->peers[message->peer].ep || !is_first(wire, message))
        return;
    sn_net_req *req =
        wire_take(wire, message->peer, WIRE_SEND, true, NET_TAG_REVOKE, sizeof req->revoke);
    if (!req)
        return;
    req->revoke.tag = wire_tag(wire->net->rank, message->control, message->tag);
    req->revoke.bytes = message->bytes;
    req->orphan = true; /* given back when UCX has sent it */
    ucp_request_param_t param = {.op_attr_mask =
                                     UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                 .cb.send = wire_on_sent,
                                 .user_data = req};
    wire_note_started(
        req,
        wire->u.ucp_tag_send_nbx(wire->peers[message->peer].ep, &req->revoke, sizeof req->revoke,
                                 wire_tag(wire->net->rank, true, NET_TAG_REVOKE), &param),
        sizeof req->revoke);
}

/* ---- the one who is asked ---- */

static void on_revoke(void *request, ucs_status_t code, const ucp_tag_recv_info_t *info, void *ctx)
{
    wire_peer *p = ctx;
    p->revoke_ucx = NULL;
    p->wire->u.ucp_request_free(request);
    if (code != UCS_OK || info->length != sizeof p->revoke)
        return;
    p->revoked = true;
    p->wire->event = true;
}

void wire_revoke_listen(net_wire *wire, wire_peer *p)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                 UCP_OP_ATTR_FIELD_USER_DATA |
                                                 UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
                                 .cb.recv = on_revoke,
                                 .user_data = p};
    ucs_status_ptr_t got =
        wire->u.ucp_tag_recv_nbx(wire->worker, &p->revoke, sizeof p->revoke,
                                 wire_tag(p->rank, true, NET_TAG_REVOKE), UINT64_MAX, &param);
    p->revoke_ucx = UCS_PTR_IS_PTR(got) && !p->revoked ? got : NULL;
}

static void on_thrown_away(void *request, ucs_status_t code, const ucp_tag_recv_info_t *info,
                           void *ctx)
{
    net_wire *wire = ctx;
    wire->closing--;
    wire->u.ucp_request_free(request);
}

void wire_revoke_heard(net_wire *wire, wire_peer *p)
{
    ucp_tag_recv_info_t info = {0};
    ucp_tag_message_h message =
        wire->u.ucp_tag_probe_nb(wire->worker, p->revoke.tag, UINT64_MAX, 0, &info);
    if (message && info.length == p->revoke.bytes && wire_tag_source(p->revoke.tag) == p->rank) {
        message = wire->u.ucp_tag_probe_nb(wire->worker, p->revoke.tag, UINT64_MAX, 1, &info);
        ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                     UCP_OP_ATTR_FIELD_USER_DATA |
                                                     UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
                                     .cb.recv = on_thrown_away,
                                     .user_data = wire};
        ucs_status_ptr_t got = wire->u.ucp_tag_msg_recv_nbx(wire->worker, NULL, 0, message, &param);
        wire->closing += UCS_PTR_IS_PTR(got);
    }
    p->revoked = false;
    wire_revoke_listen(wire, p);
}
