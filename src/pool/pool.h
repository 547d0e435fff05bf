/* SPDX-License-Identifier: Apache-2.0
 *
 * pool — starts a job's workers on hosts, watches them, and starts them again when one dies.
 *
 *   launcher ──socketpair── host agent h0 (init of its own namespaces) ── worker 0, 1, 2, 3
 *            ──socketpair── host agent h1                              ── worker 4, 5, 6, 7
 *
 * The agent is a fork of the launcher. As root an emulated host has its own network, IPC, PID, UTS
 * and mount namespaces (own /dev/shm), joined by veth pairs to a bridge in a switch namespace;
 * without root it is a process group that refuses to share memory with the others (only the host
 * name differs). Everything dies with the launcher, whatever kills it: nothing is left behind.
 *
 * What to do when something happens is decided by ctl's pure state machine; pool only acts.
 *
 * Invariants
 *  1. Workers are started by exec of this program with the words the caller gives plus --rank R
 *     --world W --host NAME --agent-fd FD --page-fd FD [--bind-address IP]; OMP_NUM_THREADS is 1
 *     and UCX leaves signals alone in their environment.
 *  2. The boot exchange of net (sn_boot_server) runs in the launcher; a worker's --agent-fd is one
 *     end of a socket whose other end the launcher holds, so the agents pass no bytes on.
 *  3. A worker's death is noticed at once (SIGCHLD in the agent, its pidfd in the launcher); a
 *     stopped or stuck one by its beat (≥ 1 s without while the launcher's own timer is on time).
 *  4. After sn_pool_run returns no process, namespace, veth or segment of the job is left.
 *  5. Processes are killed by pidfd, or by number as children that only we can reap: nobody
 *     else's process is ever touched.
 *
 * Threads: call sn_pool_run from a thread that lives until it returns, normally the main one: all
 * children die when the thread that started them ends. The caller may have other threads; between
 * fork and exec nothing is called that could need a lock of theirs. While it runs the process is a
 * child subreaper, so that orphans of a lost host can be reaped. */
#ifndef SN_POOL_POOL_H
#define SN_POOL_POOL_H

#include "base/base.h"
#include "ctl/ctl.h"
#include "mon/mon.h"

typedef enum sn_isolation {
    SN_ISOLATION_AUTO,
    SN_ISOLATION_NAMESPACES,
    SN_ISOLATION_GROUPS
} sn_isolation;

typedef struct sn_pool_job {
    int hosts, cards_per_host;
    int world; /* ≤ hosts · cards_per_host; rank r is on host r / cards_per_host */
    /* AUTO: namespaces when there is more than one host and they can be had, else groups (and why
     * is said through on_note). */
    sn_isolation isolation;
    double link_bits_per_s;  /* what each emulated host may send; 0: what the machine can. Wants
                               namespaces: SN_ENOTSUP without */
    const char *const *argv; /* NULL-terminated: program path and first words, e.g.
                                {"/proc/self/exe", "worker", "--run", DIR} */
    const char *log_dir;     /* rank R's stdout and stderr go to LOG_DIR/rank-R.log (appended);
                                NULL: to ours */
    /* Attempts after the first that may fail in a row without completing a new step; 0: none.
     * Progress beyond the furthest step gives the full number back. Errors that would come again
     * the same (SN_EINVAL, EFIT, ENOSPC, ENOTSUP, EPERM, ENOTFOUND of a worker) are not retried. */
    int retries;
    int64_t step_limit_ns; /* no progress of any worker for so long: the job failed; 0: 60 s */

    /* Called from the launcher's loop. */
    void *ctx;
    /* Every ~50 ms and on each event: the workers' pages (read-only, [world]). */
    void (*on_tick)(void *ctx, sn_page *const *pages, int world);
    /* "rank 3 on h1 (pid 812) was killed by SIGKILL during all_reduce #12 of group data[s0,t1],
     * step 40; …" */
    void (*on_note)(void *ctx, const char *text);
    /* A new attempt is about to start (attempt 0, 1, …): return extra words for the workers, e.g.
     * {"--resume", NULL}; may be NULL */
    const char *const *(*on_attempt)(void *ctx, int attempt);
    /* Optional: true once the user asked to stop (^C); polled. 1: end cleanly with a checkpoint, 2:
     * leave now. */
    int (*interrupted)(void *ctx);
} sn_pool_job;

typedef struct sn_pool_result {
    int attempts;
    bool interrupted;
    int exit_code;          /* of the job: 0, 1, or 130 when interrupted */
    sn_status status;       /* why it failed: SN_EFIT of a worker and such; SN_OK when it did not */
    char reason[512];       /* the sentence when it failed */
    sn_isolation isolation; /* what was used */
} sn_pool_result;

/* Runs the job to its end. SN_OK: it ran, *ret says how it ended. Else it could not be started at
 * all: SN_EINVAL the request, SN_EFIT too many hosts or workers, SN_ENOTFOUND the program or ip,
 * SN_EPERM namespaces or the log directory, SN_EIO. Setting up two hosts takes 8 ms. */
sn_status sn_pool_run(const sn_pool_job *job, sn_pool_result *ret);

/* Why emulated hosts cannot be had here: SN_EPERM "namespaces need root (or CAP_SYS_ADMIN)…",
 * SN_ENOTFOUND "ip of iproute2 …". */
sn_status sn_pool_namespaces_possible(void);

#endif
