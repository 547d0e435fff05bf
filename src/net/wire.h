/* SPDX-License-Identifier: Apache-2.0
 *
 * wire — the UCX side of a net: one worker, one endpoint for each rank on another host, a pool of
 * requests. wire.c owns connections and their failures, message.c the requests.
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

struct sn_net_req {
    net_wire *wire;
    sn_net_req *next; /* in the free list */
    void *ucx;        /* UCX's handle while it holds the request */
    int peer;
    bool used, send, control, done, orphan;
    bool peer_gone;    /* completed by the peer's failure, not by UCX */
    ucs_status_t code; /* how UCX completed it */
    uint64_t tag;
    size_t bytes, got;
};

typedef struct wire_peer {
    net_wire *wire;
    int rank;
    ucp_ep_h ep;       /* NULL for my host's ranks and after a failure */
    ucs_status_t code; /* why the connection broke */
    bool broken, bye;  /* noted by callbacks, acted on by settle() */
    void *bye_ucx;     /* the standing receive of the goodbye */
    int32_t culprit;   /* what the goodbye says */
} wire_peer;

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
};

uint64_t wire_tag(int source, bool control, uint64_t tag);

/* message.c: complete what waits for this peer; with `unmatched_only` what has begun to arrive may
 * still finish. */
void wire_fail_requests(net_wire *wire, int rank, bool unmatched_only);

#endif
