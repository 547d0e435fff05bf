/* SPDX-License-Identifier: Apache-2.0
 *
 * net_private — what the files of net share.
 *
 *   net.c    opening: who is where; verdicts about peers; closing
 *   life.c   in a host: death notice through a robust mutex in shared memory, beats, verdicts
 *   beat.c   the heartbeat thread, in memory of its own (den.c); pulse.c heartbeats between hosts
 *   local.c  sockets between the ranks of a host: descriptors and small blobs
 *   wire.c   messages across hosts; ucx.c loads UCX and holds its table of functions
 *   iface.c  which network interface UCX should use
 *
 * Threads: the heartbeat thread writes the page's beat, the life's beat, and verdicts (under
 * `verdict`, as the worker does); everything else belongs to the worker's thread. */
#ifndef SN_NET_PRIVATE_H
#define SN_NET_PRIVATE_H

#include "net/iface.h"
#include "net/net.h"

#include <pthread.h>

#define NET_NAME_MAX 32
#define NET_HOW_MAX 96

typedef enum net_peer_state {
    NET_FINE,
    NET_LEFT, /* said goodbye */
    NET_DEAD,
} net_peer_state;

typedef struct net_life net_life; /* shared with the other ranks of the host */
typedef struct net_pulse net_pulse;
typedef struct net_wire net_wire;

typedef struct net_peer {
    int host; /* index */
    char host_name[NET_NAME_MAX];
    int sock;              /* to a rank on my host; -1 for me and for other hosts */
    net_life *life;        /* its life, mapped; NULL on other hosts */
    uint32_t state;        /* net_peer_state, atomic */
    char how[NET_HOW_MAX]; /* "died: …", "stopped …"; written before `state` becomes NET_DEAD */
} net_peer;

typedef struct net_den { /* memory of the heartbeat thread */
    char *at, *stack;
    size_t bytes, room, own, used; /* room: to be written; own: not for children */
} net_den;

typedef struct net_ear { /* how a host mate's life sounds */
    uint64_t beat;       /* when last looked at */
    sn_time silent;      /* how long that has not changed */
} net_ear;

typedef struct net_served { /* how the heartbeat thread is served */
    sn_time late[2], since; /* at worst, in this second and the last; when this one began */
    sn_time urged;          /* when it last needed to be first */
    bool first, refused;    /* before all ordinary threads, may not be */
    bool kept;              /* it was made so by the program */
} net_served;

typedef struct net_beat { /* what the heartbeat thread writes */
    pthread_t thread;
    bool running;
    int quit; /* an eventfd */
    sn_time started;
    net_served served;
    net_ear *ear; /* [world] */
} net_beat;

struct sn_net {
    int rank, world, hosts;
    net_peer *peers; /* [world] */
    sn_page *page;
    uint32_t epoch;          /* of the page when the net was opened */
    int dead;                /* first rank known dead, -1 none; atomic */
    net_life *life;          /* mine, held by the thread that opened the net; atomic */
    pthread_mutex_t verdict; /* guards `how`, and that a peer dies once */
    bool news;               /* a verdict that the wire has not acted on; atomic */
    net_wire *wire;          /* NULL when everybody is on my host */
    uint32_t idle;           /* calls of sn_net_progress with nothing pending */
    sn_boot *boot;           /* until the net is open: says who left first */

    net_den den;
    net_beat *beat;       /* in the den */
    sn_time detect, tick; /* bound of silence, 0 off; between two beats */
    bool watching;        /* peers[].life may be looked at; atomic */
    net_pulse *pulse;     /* NULL until heartbeats to other hosts can start; atomic */
};

/* ---- verdicts (net.c) ---- */
net_peer_state net_state(const sn_net *net, int rank);
/* Any thread. "died: its connection broke": the predicate of the sentence. The first verdict on a
 * rank stays. */
void net_dead(sn_net *net, int rank, const char *how, ...) __attribute__((format(printf, 3, 4)));
/* While the net is opened: was there news of a rank that left? Its failure is noted, with who was
 * first; SN_OK when nobody has left until then. */
sn_status net_boot_news(sn_net *net, sn_time until);
/* An all-gather of the boot exchange; notes who left when it fails. */
sn_status net_boot_gather(sn_net *net, const void *blob, size_t bytes, sn_time deadline,
                          const void *const **ret_blobs, const size_t **ret_bytes);
/* `rank` said goodbye because of `culprit` (-1 nobody). Any thread. */
void net_said_goodbye(sn_net *net, int rank, int culprit);
/* SN_EPEER with rank, host and reason. For one that only left, the reason why it did comes first:
 * a moved epoch, or somebody's death. */
sn_status net_peer_gone(sn_net *net, int rank);
/* Whose failure makes me leave, -1 nobody's: what my goodbye says. */
int net_culprit(const sn_net *net);

/* A list of ranks that names me, sorted, without doubles; SN_EINVAL says what is wrong with it. */
sn_status net_check_members(const sn_net *net, const int *members, int n);
uint64_t net_hash_members(const int *members, int n, uint64_t kind);

/* ---- life.c ---- */
typedef struct net_token {
    uint8_t bytes[16];
} net_token;
/* Held by this thread from here on. The token shows that a mapping is this rank's memory. */
sn_status net_life_create(const net_token *token, int *ret_fd, net_life **ret);
/* SN_ECORRUPT when it is not the page with this token. */
sn_status net_life_map(int fd, const net_token *token, net_life **ret);
void net_life_leave(net_life *life, int culprit); /* says goodbye, lets go, unmaps */
void net_life_unmap(net_life *life);
void net_life_beat(net_life *life);
/* My verdict, for the others of my host to see; once. */
void net_life_tell(net_life *life, int dead, const char *how);
void net_look_around(sn_net *net);             /* note news of all ranks on my host */
void net_life_judge(sn_net *net, sn_time gap); /* the heartbeat thread: who is silent? */

/* ---- den.c: memory that a fork does not hold up ---- */
sn_status net_den_open(net_den *den, size_t bytes);
void *net_den_alloc(net_den *den, size_t bytes); /* zeroed */
int net_den_thread(net_den *den, pthread_attr_t *attr, void *(*run)(void *), void *ctx,
                   pthread_t *ret);
/* Run on the part of the stack that is not for children. */
void net_den_descend(const net_den *den, void (*run)(void *), void *ctx);
void net_den_close(net_den *den);

/* ---- beat.c ---- */
sn_status net_beat_start(sn_net *net);
void net_beat_stop(sn_net *net);

/* ---- served.c: how soon it is served; all but start are the heartbeat thread's ---- */
int net_served_start(sn_net *net, void *(*run)(void *), pthread_t *ret); /* 0 or an errno */
void net_served_begin(net_served *s, sn_time started);
void net_served_note(net_served *s, sn_time late, sn_time now);
sn_time net_served_late(const sn_net *net); /* at worst, lately */
/* After so much silence a peer has failed: a little less than the bound, which is from its end to
 * everybody's knowledge; more where it or I was late. */
sn_time net_silence_least(const sn_net *net); /* without that */
sn_time net_silence_max(const sn_net *net, sn_time its_late);
/* A small file, ended by a NUL, without the library's wait points; how much was read. */
size_t net_read_small(const char *path, char *out, size_t room);

/* ---- pulse.c: heartbeats between hosts ---- */
typedef struct net_pulse_card { /* travels with the UCX address */
    uint64_t token;             /* what packets to me must carry */
    net_address address;        /* family 0: I take none */
    uint16_t port;              /* in network order */
} net_pulse_card;
size_t net_pulse_bytes(int world); /* of the den */
sn_status net_pulse_open(sn_net *net, const net_address *address, net_pulse **ret,
                         net_pulse_card *ret_card);
/* Fills in whom to send to and whom to watch; from here on the heartbeat thread uses it. */
void net_pulse_start(sn_net *net, net_pulse *pulse, const net_pulse_card *cards);
void net_pulse_arm(sn_net *net);   /* all ranks run by now: silence from the start counts */
void net_pulse_leave(sn_net *net); /* packets say from now on that I leave */
void net_pulse_bye(sn_net *net);   /* a last time; the heartbeat thread has ended */
void net_pulse_tick(sn_net *net, sn_time gap);
void net_pulse_close(net_pulse *pulse); /* NULL is fine */

/* ---- local.c ---- */
typedef struct net_door { /* where a rank's host mates knock */
    char name[40];        /* abstract socket name */
    net_token token;      /* what they must show */
} net_door;
sn_status net_door_open(int *ret_fd, net_door *ret);
/* Connect to all lower ranks of my host, be connected to by the higher ones. */
sn_status net_local_connect(sn_net *net, int door_fd, const net_door *doors, sn_time deadline);
/* The process at the other end, 0 when it is in a process namespace that I do not see. */
int net_local_pid(const sn_net *net, int rank);
/* One message (bytes ≤ 1 KiB, with a descriptor unless -1) to or from a rank of my host. The
 * `what` of both ends must be equal. */
sn_status net_local_send(sn_net *net, int rank, uint64_t what, const void *data, size_t bytes,
                         int fd, sn_time deadline);
sn_status net_local_recv(sn_net *net, int rank, uint64_t what, void *data, size_t bytes,
                         int *ret_fd, sn_time deadline);

/* ---- wire.c: connections ---- */
/* Collective over all ranks. Sets net->wire. */
sn_status net_wire_open(sn_net *net, const net_address *address, const sn_net_opts *opts);
void net_wire_close(net_wire *wire);
bool net_wire_progress(net_wire *wire); /* whether something moved */
void net_wire_sleep(net_wire *wire, sn_time until);
void net_wire_drop(net_wire *wire, int rank); /* its pending requests complete with SN_EPEER */
int net_wire_pending(const net_wire *wire);

/* ---- message.c: what goes over them ---- */
typedef enum net_tag { /* control messages; their own tag space */
                       NET_TAG_HELLO = 1,
                       NET_TAG_BYE,
                       NET_TAG_GATHER,
                       NET_TAG_MEASURE,
                       NET_TAG_REVOKE
} net_tag;
sn_status net_control_send(sn_net *net, int peer, net_tag tag, const void *buf, size_t bytes,
                           sn_net_req **ret);
sn_status net_control_recv(sn_net *net, int peer, net_tag tag, void *buf, size_t bytes,
                           sn_net_req **ret);
/* As sn_net_wait, for callers that say themselves what it was for. */
sn_status net_control_wait(sn_net *net, sn_net_req *req, sn_time deadline);

#endif
