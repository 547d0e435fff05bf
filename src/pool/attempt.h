/* SPDX-License-Identifier: Apache-2.0
 *
 * attempt — one start of the job: hosts, workers, what they hold, and how they are taken down.
 * Private to the layer.
 *
 *   start ──► running ──► kill ──► cleared? ──► done
 *   pages, sockets, logs,          every worker's pidfd and every agent has ended
 *   agents, network, GO */
#ifndef SN_POOL_ATTEMPT_H
#define SN_POOL_ATTEMPT_H

#include "net/net.h"
#include "os/os.h"
#include "pool/pool.h"

#define POOL_HOSTS_MAX 254 /* addresses of 10.77.0.0/24 */
#define POOL_WORLD_MAX 256

/* Launcher and agent exchange these datagrams; STARTED brings the worker's pidfd. */
typedef enum pool_kind {
    POOL_GO,      /* launcher → agent: the network is there, start the workers */
    POOL_QUIT,    /* launcher → agent: kill and reap what is left, and end */
    POOL_STARTED, /* agent → launcher: rank runs */
    POOL_EXITED,  /* agent → launcher: rank ended with code or signal */
    POOL_FAILED   /* agent → launcher: status and text; nothing can be started on this host */
} pool_kind;

typedef struct pool_message {
    int32_t kind, rank, code, signal, status;
    char text[300];
} pool_message;

typedef struct pool_worker {
    int rank, host;
    sn_page *page;
    pid_t pid;       /* as seen from here, 0 not known */
    int pidfd;       /* -1: not started, or known dead */
    int boot;        /* our end of its boot socket, -1 closed */
    bool exited;     /* reported to ctl */
    sn_time gone_at; /* its pidfd says it is dead; the agent's report is awaited */

    /* the worker's side, closed here once the agents have it */
    int boot_fd, page_fd, log_fd;
    char **argv;
} pool_worker;

typedef struct pool_host {
    int index, first, count; /* its ranks */
    char name[16];
    sn_child agent;
    pid_t agent_pid; /* stays after it was reaped */
    int sock;        /* to the agent, -1 closed */
} pool_host;

typedef struct pool_attempt {
    const sn_pool_job *job;
    int number, hosts;
    sn_isolation isolation; /* NAMESPACES or GROUPS */
    char **environment;
    sn_arena *arena; /* argv, environment */
    sn_boot_server *boot;
    int network; /* the switch's namespace, -1 none */
    int null_fd;
    sn_time killed_at;   /* 0: not yet */
    bool forced;         /* the agents were killed as well */
    pool_host *host;     /* [hosts] */
    pool_worker *worker; /* [world] */
} pool_attempt;

/* Everything up to the agents' GO. On failure what was started still has to be killed, waited for
 * and done. */
sn_status pool_attempt_start(pool_attempt *a, const char *const *extra);
void pool_attempt_kill(pool_attempt *a);
/* True when no process of it is left. Call again after pidfds fired, or 20 ms later. */
bool pool_attempt_cleared(pool_attempt *a);
/* The agent's end, if it has come: what is left of its group is killed, it is reaped. */
bool pool_agent_reap(pool_attempt *a, pool_host *h, sn_exit *ret);
void pool_attempt_done(pool_attempt *a); /* gives everything back; half-started is fine */

/* The agent's whole life; runs in the forked child, allocates nothing. */
typedef struct pool_agent {
    const pool_attempt *attempt;
    const pool_host *host;
    int sock;
} pool_agent;
int pool_agent_main(void *agent);

/* A switch (bridge in a namespace of its own, held by *ret_fd) with a cable to each host's eth0. */
sn_status pool_network_create(const pool_host *hosts, int n, double link_bits_per_s, int *ret_fd);
void pool_network_address(char out[32], int host); /* "10.77.0.1" */

#endif
