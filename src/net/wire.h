/* SPDX-License-Identifier: Apache-2.0
 *
 * wire — the UCX side of a net: one worker, one endpoint for each rank on another host, a pool of
 * requests. wire.c owns connections and their failures, message.c the requests, parcel.c small
 * messages to functions, region.c one-sided access.
 *
 * Invariants
 *  1. UCX's callbacks only note what happened; net_wire_progress acts on it after UCX returned.
 *  2. A request leaves the pool only when neither the caller nor UCX holds it: one that the caller
 *     gave up while UCX still had it is `orphan` until UCX's callback. */
#ifndef SN_NET_WIRE_H
#define SN_NET_WIRE_H

#include "net/net_private.h"
#include "net/ucx.h"

#define WIRE_REQUESTS 1024 /* that callers may hold at once; control messages have their own */
#define WIRE_TAG_BITS 40

typedef enum wire_kind { WIRE_SEND, WIRE_RECV, WIRE_PUT, WIRE_GET, WIRE_FLUSH } wire_kind;

typedef struct wire_revoke { /* "I take back this message if you have not begun to take it" */
    uint64_t tag;            /* as UCX sees it */
    uint64_t bytes;
} wire_revoke;

struct sn_net_req {
    net_wire *wire;
    sn_net_req *next; /* in the free list, or among those that leave */
    void *ucx;        /* UCX's handle while it holds the request */
    int peer;
    wire_kind kind;
    bool used, control, done, orphan;
    bool leaves;       /* among those that wait for a flush */
    bool peer_gone;    /* completed by the peer's failure, not by UCX */
    ucs_status_t code; /* how UCX completed it */
    uint64_t tag;
    size_t bytes, got;
    wire_revoke revoke; /* what is sent when this one is */
};

typedef struct wire_peer {
    net_wire *wire;
    int rank;
    ucp_ep_h ep;       /* NULL for my host's ranks and after a failure */
    ucs_status_t code; /* why the connection broke */
    bool broken, bye;  /* noted by callbacks, acted on by settle() */
    void *bye_ucx;     /* the standing receive of the goodbye */
    int32_t culprit;   /* what the goodbye says */
    bool revoked;      /* noted by a callback */
    void *revoke_ucx;  /* the standing receive of what it takes back */
    wire_revoke revoke;
} wire_peer;

typedef struct wire_parcel wire_parcel;

typedef struct wire_port {
    sn_net_port_fn fn; /* NULL while closed */
    void *ctx;
    uint32_t generation; /* so that a parcel to a closed port does not reach the next one */
} wire_port;

struct net_wire {
    sn_net *net;
    ucx u;
    ucp_context_h context;
    ucp_worker_h worker;
    int efd;
    bool event;       /* some peer has news for settle() */
    int32_t bye;      /* what my goodbye says: kept while UCX sends it */
    int closing;      /* operations of wire.c that UCX still holds */
    int held;         /* requests that callers hold */
    wire_peer *peers; /* [world] */
    sn_net_req *pool;
    int pool_n;
    sn_net_req *free_list;
    sn_net_req *late, *leaving; /* messages that UCX took: before and under the flush */
    void *flush;                /* UCX's handle of it, NULL: none runs */
    bool flushed;               /* noted by its callback */
    ucs_status_t flush_code;

    wire_port *ports;
    int ports_n;
    wire_parcel *parcels, *parcels_free; /* made when the first port is opened */
    int parcels_out, replies_out, parcels_n;
    int expected; /* answers that callers wait for */
    char transport[80];
    bool tcp;    /* and nothing else */
    bool joined; /* every connection has carried a message each way */
    bool stuck;  /* UCX holds connections that it must not be asked to close */
};

uint64_t wire_tag(int source, bool control, uint64_t tag);
int wire_tag_source(uint64_t tag);

/* message.c: a request from the pool, NULL when they are out; then UCX's answer to its start. */
sn_net_req *wire_take(net_wire *wire, int peer, wire_kind kind, bool control, uint64_t tag,
                      size_t bytes);
void wire_leave(net_wire *wire); /* after UCX's progress */
void wire_note_started(sn_net_req *req, ucs_status_ptr_t started, size_t got);
void wire_on_sent(void *request, ucs_status_t code, void *ctx); /* its context: the request */
/* SN_OK when a message to this peer can be started. */
sn_status wire_check_peer(sn_net *net, int peer);

/* parcel.c */
ucs_status_t wire_parcels_open(net_wire *wire); /* the worker exists */
void wire_parcels_close(net_wire *wire);

/* revoke.c */
void wire_revoke_listen(net_wire *wire, wire_peer *p); /* standing receive; again after each */
void wire_revoke_heard(net_wire *wire, wire_peer *p);  /* outside of UCX's callbacks */
void wire_revoke_send(net_wire *wire, const sn_net_req *message);

/* message.c: complete what waits for this peer; with `unmatched_only` what has begun to arrive may
 * still finish. */
void wire_fail_requests(net_wire *wire, int rank, bool unmatched_only);

#endif
