/* SPDX-License-Identifier: Apache-2.0
 *
 * Parcels: UCX's active messages with a port for an address. They are sent eagerly, whole, and
 * taken inside UCX's progress.
 *
 *   port   31 … 12 generation   11 … 0 index
 *
 * A generation of its own for each opening: what was sent to a port that has been closed meanwhile
 * finds nobody, even when another was opened in its place. */
#include "net/wire.h"

#include <stdlib.h>
#include <string.h>

#define PARCEL_ID 0x53 /* among UCX's active messages */
#define PORT_BITS 12

typedef struct parcel_head {
    uint32_t port, from;
} parcel_head;

struct wire_parcel {
    net_wire *wire;
    wire_parcel *next; /* in the free list */
    parcel_head head;
    bool reply;
    char data[SN_PARCEL_BYTES] __attribute__((aligned(8)));
};

/* ---- taking ---- */

static wire_port *find_port(net_wire *wire, uint32_t port)
{
    uint32_t index = port & ((1U << PORT_BITS) - 1);
    if (index >= (uint32_t) wire->ports_n)
        return NULL;
    wire_port *p = &wire->ports[index];
    return p->fn && p->generation == port >> PORT_BITS ? p : NULL;
}

static ucs_status_t on_parcel(void *ctx, const void *header, size_t header_bytes, void *data,
                              size_t bytes, const ucp_am_recv_param_t *param)
{
    net_wire *wire = ctx;
    parcel_head head;
    if (header_bytes != sizeof head)
        return UCS_OK;
    memcpy(&head, header, sizeof head);
    wire_port *p = find_port(wire, head.port);
    if (p && head.from < (uint32_t) wire->net->world)
        p->fn(p->ctx, (int) head.from, data, bytes);
    return UCS_OK;
}

ucs_status_t wire_parcels_open(net_wire *wire)
{
    ucp_am_handler_param_t param = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                      UCP_AM_HANDLER_PARAM_FIELD_FLAGS | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = PARCEL_ID,
        .flags = UCP_AM_FLAG_WHOLE_MSG,
        .cb = on_parcel,
        .arg = wire};
    return wire->u.ucp_worker_set_am_recv_handler(wire->worker, &param);
}

void wire_parcels_close(net_wire *wire)
{
    free(wire->ports);
    free(wire->parcels);
}

/* ---- ports ---- */

static sn_status make_parcels(net_wire *wire)
{
    int n = SN_PARCELS + 16 + wire->net->world;
    wire->parcels = malloc((size_t) n * sizeof *wire->parcels);
    if (!wire->parcels)
        return sn_fail(SN_ENOMEM, "no memory for %d parcels", n);
    wire->parcels_n = n;
    for (int i = 0; i < n; i++) {
        wire->parcels[i].wire = wire;
        wire->parcels[i].next = wire->parcels_free;
        wire->parcels_free = &wire->parcels[i];
    }
    return SN_OK;
}

static sn_status more_ports(net_wire *wire)
{
    int n = wire->ports_n ? 2 * wire->ports_n : 16;
    if (n > 1 << PORT_BITS)
        return sn_fail(SN_ENOMEM, "%d ports are open, there cannot be more", wire->ports_n);
    wire_port *more = realloc(wire->ports, (size_t) n * sizeof *more);
    if (!more)
        return sn_fail(SN_ENOMEM, "no memory for %d ports", n);
    for (int i = wire->ports_n; i < n; i++)
        more[i] = (wire_port){.generation = 1}; /* so that no port is 0 */
    wire->ports = more;
    wire->ports_n = n;
    return SN_OK;
}

sn_status sn_net_port_open(sn_net *net, sn_net_port_fn fn, void *ctx, uint32_t *ret_port)
{
    net_wire *wire = net->wire;
    if (!wire)
        return sn_fail(SN_ENOTSUP, "a port in a job on one host: nobody could send to it");
    if (!wire->parcels)
        SN_TRY(make_parcels(wire));
    int i = 0;
    while (i < wire->ports_n && wire->ports[i].fn)
        i++;
    if (i == wire->ports_n)
        SN_TRY(more_ports(wire));
    wire->ports[i].fn = fn;
    wire->ports[i].ctx = ctx;
    *ret_port = wire->ports[i].generation << PORT_BITS | (uint32_t) i;
    return SN_OK;
}

void sn_net_port_close(sn_net *net, uint32_t port)
{
    wire_port *p = net->wire ? find_port(net->wire, port) : NULL;
    if (!p)
        return;
    p->fn = NULL;
    p->generation = p->generation % (UINT32_MAX >> PORT_BITS) + 1;
}

/* ---- sending ---- */

static void give_back(wire_parcel *p)
{
    net_wire *wire = p->wire;
    *(p->reply ? &wire->replies_out : &wire->parcels_out) -= 1;
    p->next = wire->parcels_free;
    wire->parcels_free = p;
}

static wire_parcel *parcel_of(void *data)
{
    return (wire_parcel *) (void *) ((char *) data - offsetof(wire_parcel, data));
}

static void on_parcel_sent(void *request, ucs_status_t code, void *ctx)
{
    wire_parcel *p = ctx;
    p->wire->u.ucp_request_free(request);
    give_back(p); /* a failure is the connection's: it is told of that too */
}

void *sn_net_parcel_take(sn_net *net, bool reply)
{
    net_wire *wire = net->wire;
    int *out = reply ? &wire->replies_out : &wire->parcels_out;
    wire_parcel *p = wire->parcels_free;
    if (!p || *out == (reply ? wire->parcels_n - SN_PARCELS : SN_PARCELS))
        return NULL;
    wire->parcels_free = p->next;
    p->reply = reply;
    ++*out;
    return p->data;
}

void sn_net_parcel_drop(sn_net *net, void *parcel)
{
    if (parcel)
        give_back(parcel_of(parcel));
}

sn_status sn_net_parcel_send(sn_net *net, int peer, uint32_t port, void *parcel, size_t bytes)
{
    net_wire *wire = net->wire;
    wire_parcel *p = parcel_of(parcel);
    sn_status status = wire_check_peer(net, peer);
    if (status < 0) {
        give_back(p);
        return status;
    }
    p->head = (parcel_head){port, (uint32_t) net->rank};
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                 UCP_OP_ATTR_FIELD_USER_DATA |
                                                 UCP_OP_ATTR_FIELD_FLAGS,
                                 .flags = UCP_AM_SEND_FLAG_EAGER,
                                 .cb.send = on_parcel_sent,
                                 .user_data = p};
    ucs_status_ptr_t sent = wire->u.ucp_am_send_nbx(wire->peers[peer].ep, PARCEL_ID, &p->head,
                                                    sizeof p->head, p->data, bytes, &param);
    if (UCS_PTR_IS_PTR(sent))
        return SN_OK;
    give_back(p);
    if (!UCS_PTR_IS_ERR(sent))
        return SN_OK;
    return sn_fail(SN_EPEER, "cannot send to rank %d (%s): %s", peer, sn_net_host_name(net, peer),
                   wire->u.ucs_status_string(UCS_PTR_STATUS(sent)));
}

void sn_net_expect(sn_net *net, int more)
{
    if (net->wire)
        net->wire->expected += more;
}
