/* SPDX-License-Identifier: Apache-2.0
 *
 * Connections across hosts. They are made at once, when the net is opened, and a first message goes
 * each way: only an established connection reports the death of its peer, also to a rank that only
 * ever receives. */
#include "net/wire.h"

#include "os/os.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GOODBYE_NS (200 * SN_MS) /* how long a closing rank waits for the others to close too */
#define FLUSH_NS (50 * SN_MS)    /* how long it tries to bring a failure's goodbye out */
#define CLOSE_NS (200 * SN_MS)

uint64_t wire_tag(int source, bool control, uint64_t tag)
{
    return (uint64_t) control << 63 | (uint64_t) source << WIRE_TAG_BITS | tag;
}

int wire_tag_source(uint64_t tag)
{
    return (int) (tag >> WIRE_TAG_BITS & 0x7fffff);
}

/* ---- news from UCX, and acting on it ---- */

static void on_error(void *ctx, ucp_ep_h ep, ucs_status_t code)
{
    wire_peer *p = ctx;
    p->code = code;
    p->broken = true;
    p->wire->event = true;
}

static void on_bye(void *request, ucs_status_t code, const ucp_tag_recv_info_t *info, void *ctx)
{
    wire_peer *p = ctx;
    p->bye_ucx = NULL;
    p->wire->u.ucp_request_free(request);
    if (code != UCS_OK || info->length != sizeof p->culprit)
        return;
    p->bye = true;
    p->wire->event = true;
}

static void on_closed(void *request, ucs_status_t code, void *ctx)
{
    net_wire *wire = ctx;
    wire->closing--;
    wire->u.ucp_request_free(request);
}

static void count(net_wire *wire, ucs_status_ptr_t started)
{
    if (UCS_PTR_IS_PTR(started))
        wire->closing++;
}

/* UCX 1.13 aborts the process when a verbs connection is closed whose handshake still waits to be
 * sent (ucp_request.c, "got REQ message"): one that never came about stays to the process's end. */
static bool must_stay(const net_wire *wire)
{
    return !wire->joined && !wire->tcp;
}

static void close_ep(net_wire *wire, wire_peer *p)
{
    if (!p->ep)
        return;
    if (must_stay(wire)) {
        p->ep = NULL;
        wire->stuck = true;
        return;
    }
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS |
                                                 UCP_OP_ATTR_FIELD_CALLBACK |
                                                 UCP_OP_ATTR_FIELD_USER_DATA,
                                 .flags = UCP_EP_CLOSE_FLAG_FORCE,
                                 .cb.send = on_closed,
                                 .user_data = wire};
    ucp_ep_h ep = p->ep;
    p->ep = NULL;
    count(wire, wire->u.ucp_ep_close_nbx(ep, &param));
}

void net_wire_drop(net_wire *wire, int rank)
{
    wire_fail_requests(wire, rank, false);
    close_ep(wire, &wire->peers[rank]);
}

/* A goodbye may have told of deaths of others. */
static void drop_dead(net_wire *wire)
{
    for (int r = 0; r < wire->net->world; r++)
        if (wire->peers[r].ep && net_state(wire->net, r) == NET_DEAD)
            net_wire_drop(wire, r);
}

static void settle(net_wire *wire)
{
    wire->event = false;
    if (__atomic_exchange_n(&wire->net->news, false, __ATOMIC_ACQ_REL))
        drop_dead(wire);
    for (int r = 0; r < wire->net->world; r++) {
        wire_peer *p = &wire->peers[r];
        if (p->revoked)
            wire_revoke_heard(wire, p);
        if (p->bye) {
            p->bye = false;
            net_said_goodbye(wire->net, r, p->culprit);
            wire_fail_requests(wire, r, true);
        }
        if (!p->broken)
            continue;
        p->broken = false;
        net_dead(wire->net, r, "died: its connection broke (%s)",
                 wire->u.ucs_status_string(p->code));
        net_wire_drop(wire, r);
    }
}

bool net_wire_progress(net_wire *wire)
{
    bool moved = wire->u.ucp_worker_progress(wire->worker) != 0;
    if (wire->flushed || wire->late)
        wire_leave(wire);
    if (wire->event || __atomic_load_n(&wire->net->news, __ATOMIC_RELAXED))
        settle(wire);
    return moved;
}

void net_wire_sleep(net_wire *wire, sn_time until)
{
    sn_time left = until - sn_now();
    if (left <= 0 || wire->u.ucp_worker_arm(wire->worker) != UCS_OK)
        return; /* something has arrived meanwhile */
    struct pollfd p = {.fd = wire->efd, .events = POLLIN};
    struct timespec t = {.tv_sec = left / SN_SEC, .tv_nsec = left % SN_SEC};
    ppoll(&p, 1, &t, NULL);
}

const char *sn_net_transport(const sn_net *net)
{
    return net->wire ? net->wire->transport : "memory";
}

/* ---- opening ---- */

typedef struct wire_card { /* followed by the address */
    int32_t status;
    uint32_t bytes;
    char text[240];
    net_pulse_card pulse;
} wire_card;

static sn_status start_worker(net_wire *wire, const net_address *address, const sn_net_opts *opts)
{
    SN_TRY(net_iface_wait(address, sn_now() + (opts->deadline - sn_now()) / 2));
    SN_TRY(ucx_load(&wire->u));
    SN_TRY(ucx_context(&wire->u, address, opts->transports, &wire->context, wire->transport));
    wire->tcp = strncmp(wire->transport, "tcp", 3) == 0;
    ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SINGLE};
    ucs_status_t code = wire->u.ucp_worker_create(wire->context, &params, &wire->worker);
    if (code == UCS_OK)
        code = wire->u.ucp_worker_get_efd(wire->worker, &wire->efd);
    if (code == UCS_OK)
        code = wire_parcels_open(wire);
    if (code != UCS_OK)
        return sn_fail(SN_EIO, "UCX cannot start %s: %s", wire->transport,
                       wire->u.ucs_status_string(code));
    return SN_OK;
}

/* Everybody tells how its start went, so that all fail alike and at once when one does. */
static sn_status publish(net_wire *wire, sn_status status, const net_pulse_card *pulse,
                         sn_time deadline, const void *const **ret_blobs, const size_t **ret_bytes)
{
    wire_card card = {.status = status, .pulse = *pulse};
    ucp_address_t *address = NULL;
    size_t bytes = 0;
    if (status < 0) {
        snprintf(card.text, sizeof card.text, "%s", sn_errmsg());
    } else if (wire->u.ucp_worker_get_address(wire->worker, &address, &bytes) != UCS_OK) {
        card.status = SN_EIO;
        snprintf(card.text, sizeof card.text, "UCX gives no address");
    }
    card.bytes = (uint32_t) bytes;
    char *blob = sn_alloc(sizeof card + bytes);
    memcpy(blob, &card, sizeof card);
    if (bytes)
        memcpy(blob + sizeof card, address, bytes);
    status = net_boot_gather(wire->net, blob, sizeof card + bytes, deadline, ret_blobs, ret_bytes);
    free(blob);
    if (address)
        wire->u.ucp_worker_release_address(wire->worker, address);
    return status;
}

static sn_status check_cards(const sn_net *net, const void *const *blobs, const size_t *bytes)
{
    for (int r = 0; r < net->world; r++) {
        wire_card card;
        if (bytes[r] < sizeof card)
            return sn_fail(SN_ECORRUPT, "rank %d sent a malformed address", r);
        memcpy(&card, blobs[r], sizeof card);
        if (card.status < 0)
            return sn_fail((sn_status) card.status, "rank %d (%s): %.*s", r,
                           sn_net_host_name(net, r), (int) sizeof card.text, card.text);
        if (card.bytes == 0 || bytes[r] != sizeof card + card.bytes)
            return sn_fail(SN_ECORRUPT, "rank %d sent a malformed address", r);
    }
    return SN_OK;
}

static sn_status connect_to(net_wire *wire, int rank, const void *address)
{
    wire_peer *p = &wire->peers[rank];
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = address,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_error, .arg = p},
    };
    ucs_status_t code = wire->u.ucp_ep_create(wire->worker, &params, &p->ep);
    if (code != UCS_OK) {
        p->ep = NULL;
        return sn_fail(SN_EPEER, "cannot connect to rank %d (%s): %s", rank,
                       sn_net_host_name(wire->net, rank), wire->u.ucs_status_string(code));
    }
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                 UCP_OP_ATTR_FIELD_USER_DATA |
                                                 UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
                                 .cb.recv = on_bye,
                                 .user_data = p};
    ucs_status_ptr_t got =
        wire->u.ucp_tag_recv_nbx(wire->worker, &p->culprit, sizeof p->culprit,
                                 wire_tag(rank, true, NET_TAG_BYE), UINT64_MAX, &param);
    if (UCS_PTR_IS_ERR(got))
        return sn_fail(SN_EIO, "UCX refused a receive: %s",
                       wire->u.ucs_status_string(UCS_PTR_STATUS(got)));
    p->bye_ucx = p->bye ? NULL : got;
    wire_revoke_listen(wire, p);
    return SN_OK;
}

static sn_status say_hello(net_wire *wire, sn_time deadline)
{
    sn_net *net = wire->net;
    uint64_t hello = (uint64_t) net->rank, *heard = sn_alloc((size_t) net->world * sizeof *heard);
    sn_net_req **reqs = sn_alloc(2 * (size_t) net->world * sizeof *reqs);
    int n = 0;
    sn_status status = SN_OK;
    for (int r = 0; r < net->world && status >= 0; r++) {
        if (sn_net_same_host(net, r))
            continue;
        status = net_control_recv(net, r, NET_TAG_HELLO, &heard[r], sizeof *heard, &reqs[n]);
        n += status >= 0;
        if (status >= 0)
            status = net_control_send(net, r, NET_TAG_HELLO, &hello, sizeof hello, &reqs[n++]);
        n -= status < 0;
    }
    for (int i = 0; i < n; i++) {
        if (status < 0)
            sn_net_cancel(net, reqs[i]);
        else
            status = net_control_wait(net, reqs[i], deadline);
    }
    free(heard);
    free(reqs);
    return status;
}

static net_wire *create(sn_net *net)
{
    net_wire *wire = sn_alloc(sizeof *wire);
    wire->net = net;
    wire->peers = sn_alloc((size_t) net->world * sizeof *wire->peers);
    for (int r = 0; r < net->world; r++) {
        wire->peers[r].wire = wire;
        wire->peers[r].rank = r;
    }
    wire->pool_n = WIRE_REQUESTS + 2 * net->world;
    wire->pool = sn_alloc((size_t) wire->pool_n * sizeof *wire->pool);
    for (int i = 0; i < wire->pool_n; i++) {
        wire->pool[i].wire = wire;
        wire->pool[i].next = wire->free_list;
        wire->free_list = &wire->pool[i];
    }
    return wire;
}

static void start_pulse(net_wire *wire, net_pulse *pulse, const void *const *blobs)
{
    sn_net *net = wire->net;
    net_pulse_card *cards = sn_alloc((size_t) net->world * sizeof *cards);
    for (int r = 0; r < net->world; r++)
        memcpy(&cards[r], (const char *) blobs[r] + offsetof(wire_card, pulse), sizeof cards[r]);
    net_pulse_start(net, pulse, cards);
    free(cards);
}

sn_status net_wire_open(sn_net *net, const net_address *address, const sn_net_opts *opts)
{
    net_wire *wire = net->wire = create(net); /* closed with the net, however far it comes */
    net_pulse *pulse = NULL;
    net_pulse_card card = {0};
    sn_status started = start_worker(wire, address, opts);
    if (started >= 0 && net->detect)
        started = net_pulse_open(net, address, &pulse, &card);
    const void *const *blobs;
    const size_t *bytes;
    sn_status status = publish(wire, started, &card, opts->deadline, &blobs, &bytes);
    if (status >= 0)
        status = check_cards(net, blobs, bytes);
    if (status < 0 || !pulse)
        net_pulse_close(pulse);
    else
        start_pulse(wire, pulse, blobs);
    SN_TRY(status);
    for (int r = 0; r < net->world; r++)
        if (!sn_net_same_host(net, r))
            SN_TRY(connect_to(wire, r, (const char *) blobs[r] + sizeof(wire_card)));
    SN_TRY(say_hello(wire, opts->deadline));
    wire->joined = true;
    net_pulse_arm(net);
    return SN_OK;
}

/* ---- closing ---- */

static void send_bye(net_wire *wire, wire_peer *p)
{
    ucp_request_param_t param = {.op_attr_mask =
                                     UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                 .cb.send = on_closed,
                                 .user_data = wire};
    count(wire, wire->u.ucp_tag_send_nbx(p->ep, &wire->bye, sizeof wire->bye,
                                         wire_tag(wire->net->rank, true, NET_TAG_BYE), &param));
    count(wire, wire->u.ucp_ep_flush_nbx(p->ep, &param));
}

static bool anybody_there(const net_wire *wire)
{
    for (int r = 0; r < wire->net->world; r++)
        if (wire->peers[r].ep && net_state(wire->net, r) == NET_FINE)
            return true;
    return false;
}

/* Say goodbye to each, then wait a moment for theirs, unless it is a failure that ends it all. When
 * both ends have said it, no bytes are under way, and closing cannot reset a connection that the
 * other still reads. */
static void part(net_wire *wire)
{
    bool orderly = sn_net_alive(wire->net) >= 0;
    wire->bye = net_culprit(wire->net);
    for (int r = 0; r < wire->net->world; r++)
        if (wire->peers[r].ep && net_state(wire->net, r) == NET_FINE)
            send_bye(wire, &wire->peers[r]);
    sn_time limit = sn_now() + (orderly ? GOODBYE_NS : FLUSH_NS);
    while ((wire->closing || (orderly && anybody_there(wire))) && sn_now() < limit) {
        net_wire_progress(wire);
        net_wire_sleep(wire, sn_now() + SN_MS);
    }
}

void net_wire_close(net_wire *wire)
{
    if (!wire)
        return;
    if (wire->worker)
        part(wire);
    for (int r = 0; r < wire->net->world; r++) {
        wire_peer *p = &wire->peers[r];
        wire_fail_requests(wire, r, false);
        close_ep(wire, p);
        if (p->bye_ucx)
            wire->u.ucp_request_cancel(wire->worker, p->bye_ucx);
        if (p->revoke_ucx)
            wire->u.ucp_request_cancel(wire->worker, p->revoke_ucx);
    }
    for (sn_time limit = sn_now() + CLOSE_NS; (wire->closing || wire->flush) && sn_now() < limit;
         sched_yield())
        wire->u.ucp_worker_progress(wire->worker);
    wire->net->wire = NULL;
    if (wire->closing || wire->flush || wire->stuck)
        return; /* UCX still holds callbacks into the wire: leave it to the process's end */
    if (wire->worker)
        wire->u.ucp_worker_destroy(wire->worker);
    if (wire->context)
        wire->u.ucp_cleanup(wire->context);
    wire_parcels_close(wire);
    free(wire->peers);
    free(wire->pool);
    free(wire);
}
