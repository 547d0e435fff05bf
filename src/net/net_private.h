/* SPDX-License-Identifier: Apache-2.0
 *
 * net_private — what the files of net share.
 *
 *   net.c    opening: who is where; verdicts about peers; closing
 *   life.c   in-host death notice through a robust mutex in shared memory; the heartbeat thread
 *   local.c  sockets between the ranks of a host: descriptors and small blobs
 *   wire.c   messages across hosts; ucx.c loads UCX and holds its table of functions
 *   iface.c  which network interface UCX should use
 *
 * Threads: the heartbeat thread only writes the page's beat and, with a compare-and-swap, a peer's
 * `state` and the net's `dead`; everything else belongs to the worker's thread. */
#ifndef SN_NET_PRIVATE_H
#define SN_NET_PRIVATE_H

#include "net/net.h"

#include <pthread.h>
#include <semaphore.h>

#define NET_NAME_MAX 32

typedef enum net_peer_state {
    NET_FINE,
    NET_LEFT, /* said goodbye */
    NET_DEAD,
} net_peer_state;

typedef struct net_life net_life; /* shared with the other ranks of the host */
typedef struct net_wire net_wire;

typedef struct net_peer {
    int host; /* index */
    char host_name[NET_NAME_MAX];
    int sock;       /* to a rank on my host; -1 for me and for other hosts */
    net_life *life; /* its life, mapped; NULL on other hosts */
    uint32_t state; /* net_peer_state, atomic */
    char how[96];   /* why it is called dead; written by the worker's thread only */
    int told_by;    /* who left because of this one's death, -1 nobody; atomic */
} net_peer;

struct sn_net {
    int rank, world, hosts;
    net_peer *peers; /* [world] */
    sn_page *page;
    uint32_t epoch; /* of the page when the net was opened */
    int dead;       /* first rank known dead, -1 none; atomic */
    net_life *life; /* mine, held by the thread that opened the net */
    net_wire *wire; /* NULL when everybody is on my host */
    uint32_t idle;  /* calls of sn_net_progress with nothing pending */

    pthread_t beat;
    bool beating;
    bool watching; /* peers[].life may be looked at; atomic */
    sem_t quit;
};

/* ---- verdicts (net.c) ---- */
/* Any thread. The first verdict stays. */
void net_set_state(sn_net *net, int rank, net_peer_state state);
net_peer_state net_state(const sn_net *net, int rank);
/* SN_EPEER with rank, host and reason. For one that only left, the reason why it did comes first:
 * a moved epoch, or somebody's death. */
sn_status net_peer_gone(sn_net *net, int rank);
/* Whose failure makes me leave, -1 nobody's: what my goodbye says. */
int net_culprit(const sn_net *net);
/* `rank` said goodbye because of `culprit` (-1 nobody). The worker's or the heartbeat thread. */
void net_said_goodbye(sn_net *net, int rank, int culprit);

/* A list of ranks that names me, sorted, without doubles; SN_EINVAL says what is wrong with it. */
sn_status net_check_members(const sn_net *net, const int *members, int n);
uint64_t net_hash_members(const int *members, int n, uint64_t kind);

/* ---- life.c ---- */
sn_status net_life_create(int *ret_fd, net_life **ret); /* held by this thread from here on */
sn_status net_life_map(int fd, net_life **ret);
void net_life_leave(net_life *life, int culprit); /* says goodbye, lets go, unmaps */
void net_life_unmap(net_life *life);
/* The state of its holder; when it left, because of whom. */
net_peer_state net_life_look(net_life *life, int *ret_culprit);
void net_look_around(sn_net *net); /* note news of all ranks on my host */
sn_status net_beat_start(sn_net *net);
void net_beat_stop(sn_net *net);

/* ---- local.c ---- */
typedef struct net_door { /* where a rank's host mates knock */
    char name[40];        /* abstract socket name */
    uint8_t token[16];    /* what they must show */
} net_door;
sn_status net_door_open(int *ret_fd, net_door *ret);
/* Connect to all lower ranks of my host, be connected to by the higher ones. */
sn_status net_local_connect(sn_net *net, int door_fd, const net_door *doors, sn_time deadline);
/* One message (bytes ≤ 1 KiB, with a descriptor unless -1) to or from a rank of my host. The
 * `what` of both ends must be equal. */
sn_status net_local_send(sn_net *net, int rank, uint64_t what, const void *data, size_t bytes,
                         int fd, sn_time deadline);
sn_status net_local_recv(sn_net *net, int rank, uint64_t what, void *data, size_t bytes,
                         int *ret_fd, sn_time deadline);

/* ---- iface.c ---- */
/* Name of the interface with this address; without one: lo when the job is on one machine
 * (`one_kernel`), else that of the default route, else the first that is up. */
sn_status net_iface_choose(const char *address, bool one_kernel, sn_time deadline, char ret[64]);

/* ---- wire.c: connections ---- */
/* Collective over all ranks; `address`, `one_kernel`: as for net_iface_choose. Sets net->wire. */
sn_status net_wire_open(sn_net *net, sn_boot *boot, const char *address, bool one_kernel,
                        sn_time deadline);
void net_wire_close(net_wire *wire);
void net_wire_progress(net_wire *wire);
void net_wire_sleep(net_wire *wire, sn_time until);
void net_wire_drop(net_wire *wire, int rank); /* its pending requests complete with SN_EPEER */
int net_wire_pending(const net_wire *wire);

/* ---- message.c: what goes over them ---- */
typedef enum net_tag { /* control messages; their own tag space */
                       NET_TAG_HELLO = 1,
                       NET_TAG_BYE,
                       NET_TAG_GATHER,
                       NET_TAG_MEASURE
} net_tag;
sn_status net_control_send(sn_net *net, int peer, net_tag tag, const void *buf, size_t bytes,
                           sn_net_req **ret);
sn_status net_control_recv(sn_net *net, int peer, net_tag tag, void *buf, size_t bytes,
                           sn_net_req **ret);
/* As sn_net_wait, for callers that say themselves what it was for. */
sn_status net_control_wait(sn_net *net, sn_net_req *req, sn_time deadline);

#endif
