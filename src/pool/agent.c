/* SPDX-License-Identifier: Apache-2.0
 *
 * agent — the first process of a host. It makes the host, starts its workers when the network is
 * there, reaps everything, reports every end, and dies with the launcher (and they with it).
 *
 * It is a fork without exec and allocates nothing: all words were laid out by the launcher. */
#include "pool/attempt.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct life {
    const pool_agent *agent;
    sn_child child[POOL_WORLD_MAX]; /* of this host's ranks, from its first */
    int running;
    bool quitting, childless;
} life;

/* Reports must not be lost: wait for room. The launcher reads all the time; if it is gone so are
 * we. */
static void report(const life *l, pool_message *m, int fd)
{
    while (sn_datagram_send(l->agent->sock, m, sizeof *m, fd) == SN_AGAIN) {
        struct pollfd p = {.fd = l->agent->sock, .events = POLLOUT};
        sn_poll(&p, 1, -1);
    }
}

static void report_failure(const life *l, sn_status status)
{
    pool_message m = {.kind = POOL_FAILED, .status = status};
    snprintf(m.text, sizeof m.text, "%s", sn_errmsg());
    report(l, &m, -1);
}

/* ---- a worker, between fork and exec ---- */

typedef struct birth {
    const pool_attempt *attempt;
    const pool_worker *worker;
} birth;

static int worker_main(void *ctx)
{
    const birth *b = ctx;
    const pool_worker *w = b->worker;
    dup2(b->attempt->null_fd, 0);
    if (w->log_fd >= 0) {
        dup2(w->log_fd, 1);
        dup2(w->log_fd, 2);
    }
    sn_fd_inherit(w->boot_fd);
    sn_fd_inherit(w->page_fd);
    execve(w->argv[0], w->argv, b->attempt->environment);
    int code = errno;
    char text[300];
    snprintf(text, sizeof text, "cannot execute %.200s: %s", w->argv[0], strerror(code));
    sn_page_fail(w->page, code == ENOENT ? SN_ENOTFOUND : code == EACCES ? SN_EPERM : SN_EIO, text);
    dprintf(2, "%s\n", text);
    return 127;
}

static void start_workers(life *l)
{
    const pool_host *host = l->agent->host;
    for (int i = 0; i < host->count; i++) {
        const pool_worker *w = &l->agent->attempt->worker[host->first + i];
        birth b = {l->agent->attempt, w};
        int keep[] = {w->boot_fd, w->page_fd, w->log_fd, b.attempt->null_fd};
        sn_fork_opts opts = {.keep = keep, .keeps = SN_COUNT(keep), .stay = true};
        sn_status status = sn_child_fork(&opts, worker_main, &b, &l->child[i]);
        if (status < 0) {
            sn_fail_in(status, "rank %d on %s", w->rank, host->name);
            report_failure(l, status);
            return;
        }
        l->running++;
        pool_message m = {.kind = POOL_STARTED, .rank = w->rank};
        report(l, &m, l->child[i].pidfd);
    }
}

/* ---- ends ---- */

static void report_end(life *l, pid_t pid, int how)
{
    for (int i = 0; i < l->agent->host->count; i++) {
        sn_child *c = &l->child[i];
        if (c->pid != pid)
            continue;
        pool_message m = {.kind = POOL_EXITED, .rank = l->agent->host->first + i};
        m.code = WIFEXITED(how) ? WEXITSTATUS(how) : -1;
        m.signal = WIFSIGNALED(how) ? WTERMSIG(how) : 0;
        report(l, &m, -1);
        close(c->pidfd);
        *c = (sn_child){0, -1};
        l->running--;
        return;
    }
}

/* Ours and whatever ours left behind: as pid 1, or as subreaper, all of it comes to us. While
 * quitting what comes is killed, level by level, until there is nothing more to wait for. */
static void reap(life *l)
{
    pid_t pid;
    int how;
    while ((pid = waitpid(-1, &how, WNOHANG)) > 0)
        report_end(l, pid, how);
    l->childless = pid < 0;
    if (l->quitting && !l->childless)
        sn_children_kill(SIGKILL);
}

static void quit(life *l)
{
    l->quitting = true;
    for (int i = 0; i < l->agent->host->count; i++)
        sn_child_kill(&l->child[i], SIGKILL);
    reap(l);
}

static void listen_to_launcher(life *l)
{
    pool_message m;
    int fd;
    sn_status status;
    while ((status = sn_datagram_recv(l->agent->sock, &m, sizeof m, &fd)) == SN_OK) {
        if (m.kind == POOL_GO && !l->quitting && !l->running)
            start_workers(l);
        else if (m.kind == POOL_QUIT)
            quit(l);
    }
    if (status < 0) /* the launcher is gone: leaving kills what is ours */
        _exit(1);
}

static sn_status become_host(const pool_agent *agent, int *ret_signals)
{
    static const int child[] = {SIGCHLD, 0};
    char title[16];
    snprintf(title, sizeof title, "sn-%.12s", agent->host->name);
    prctl(PR_SET_NAME, title);
    if (agent->attempt->isolation == SN_ISOLATION_NAMESPACES)
        SN_TRY(sn_host_enter(agent->host->name));
    else
        prctl(PR_SET_CHILD_SUBREAPER, 1);
    return sn_signal_open(child, ret_signals);
}

int pool_agent_main(void *ctx)
{
    life l = {.agent = ctx};
    int signals = -1;
    sn_status status = become_host(l.agent, &signals);
    if (status < 0) {
        sn_fail_in(status, "host %s", l.agent->host->name);
        report_failure(&l, status);
    }
    while (!l.quitting || !l.childless) {
        struct pollfd p[] = {{.fd = l.agent->sock, .events = POLLIN},
                             {.fd = signals, .events = POLLIN}};
        sn_poll(p, 2, -1);
        if (p[1].revents) {
            while (sn_signal_take(signals))
                continue;
            reap(&l);
        }
        if (p[0].revents)
            listen_to_launcher(&l);
    }
    return 0;
}
