/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/attempt.h"
#include "pool/words.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FORCE_AFTER_MS = 300 }; /* an agent that does not quit by then is killed as well */

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* ---- start ---- */

static sn_status open_log(const pool_attempt *a, pool_worker *w)
{
    char path[4096];
    if (!a->job->log_dir)
        return SN_OK;
    if (snprintf(path, sizeof path, "%s/rank-%d.log", a->job->log_dir, w->rank) >=
        (int) sizeof path)
        return sn_fail(SN_EINVAL, "the path %.80s… is too long", path);
    w->log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (w->log_fd < 0)
        return sn_fail(errno == ENOSPC                      ? SN_ENOSPC
                       : errno == EMFILE || errno == ENFILE ? SN_EFIT
                                                            : SN_EPERM,
                       "cannot write %s: %s", path, strerror(errno));
    if (a->number > 0)
        dprintf(w->log_fd, "---- attempt %d ----\n", a->number + 1);
    return SN_OK;
}

static sn_status prepare_worker(pool_attempt *a, pool_worker *w, const char *const *extra)
{
    int pair[2];
    const char *host = a->host[w->host].name;
    SN_TRY(sn_page_create(w->rank, w->host, host, &w->page_fd, &w->page));
    SN_TRY(sn_pair_stream(pair));
    w->boot = pair[0];
    w->boot_fd = pair[1];
    /* The worker's end waits in read and write as its boot code likes it. */
    fcntl(w->boot_fd, F_SETFL, fcntl(w->boot_fd, F_GETFL) & ~O_NONBLOCK);
    SN_TRY(open_log(a, w));
    w->argv = pool_words_argv(a, w, extra);
    return SN_OK;
}

static sn_status start_agent(pool_attempt *a, pool_host *h)
{
    int pair[2], keep[3 * POOL_WORLD_MAX + 2], n = 0;
    SN_TRY(sn_pair_datagram(pair));
    keep[n++] = pair[1];
    keep[n++] = a->null_fd;
    for (int r = h->first; r < h->first + h->count; r++) {
        keep[n++] = a->worker[r].boot_fd;
        keep[n++] = a->worker[r].page_fd;
        keep[n++] = a->worker[r].log_fd;
    }
    bool apart = a->isolation == SN_ISOLATION_NAMESPACES;
    sn_fork_opts opts = {.namespaces = apart ? sn_host_namespaces() : 0, .keep = keep, .keeps = n};
    pool_agent agent = {a, h, pair[1]};
    sn_status status = sn_child_fork(&opts, pool_agent_main, &agent, &h->agent);
    close(pair[1]);
    h->sock = pair[0];
    h->agent_pid = status < 0 ? 0 : h->agent.pid;
    return status < 0 ? sn_fail_in(status, "host %s", h->name) : SN_OK;
}

static void tell_agent(const pool_host *h, pool_kind kind)
{
    pool_message m = {.kind = kind};
    if (h->sock >= 0) /* a lost agent is noticed by its pidfd */
        sn_datagram_send(h->sock, &m, sizeof m, -1);
}

static void lay_out(pool_attempt *a)
{
    const sn_pool_job *job = a->job;
    a->hosts = (job->world + job->cards_per_host - 1) / job->cards_per_host;
    a->arena = sn_arena_create();
    a->host = SN_NEW_N(a->arena, pool_host, a->hosts);
    a->worker = SN_NEW_N(a->arena, pool_worker, job->world);
    a->network = a->null_fd = -1;
    for (int h = 0; h < a->hosts; h++) {
        int first = h * job->cards_per_host;
        a->host[h] = (pool_host){.index = h,
                                 .first = first,
                                 .count = SN_MIN(job->cards_per_host, job->world - first),
                                 .agent = {0, -1},
                                 .sock = -1};
        snprintf(a->host[h].name, sizeof a->host[h].name, "h%d", h);
    }
    for (int r = 0; r < job->world; r++)
        a->worker[r] = (pool_worker){.rank = r,
                                     .host = r / job->cards_per_host,
                                     .pidfd = -1,
                                     .boot = -1,
                                     .boot_fd = -1,
                                     .page_fd = -1,
                                     .log_fd = -1};
    a->environment = pool_words_environment(a->arena);
    a->boot = sn_boot_server_create(job->world);
}

sn_status pool_attempt_start(pool_attempt *a, const char *const *extra)
{
    lay_out(a);
    a->null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    for (int r = 0; r < a->job->world; r++)
        SN_TRY(prepare_worker(a, &a->worker[r], extra));
    for (int h = 0; h < a->hosts; h++)
        SN_TRY(start_agent(a, &a->host[h]));
    for (int r = 0; r < a->job->world; r++) { /* the agents have them now */
        close_fd(&a->worker[r].boot_fd);
        close_fd(&a->worker[r].page_fd);
        close_fd(&a->worker[r].log_fd);
    }
    if (a->isolation == SN_ISOLATION_NAMESPACES)
        SN_TRY(pool_network_create(a->host, a->hosts, a->job->link_bits_per_s, &a->network));
    for (int h = 0; h < a->hosts; h++)
        tell_agent(&a->host[h], POOL_GO);
    return SN_OK;
}

/* ---- end ---- */

void pool_attempt_kill(pool_attempt *a)
{
    if (a->killed_at)
        return;
    a->killed_at = sn_now();
    for (int r = 0; r < a->job->world; r++)
        if (a->worker[r].pidfd >= 0)
            sn_pidfd_kill(a->worker[r].pidfd, SIGKILL);
    for (int h = 0; h < a->hosts; h++)
        tell_agent(&a->host[h], POOL_QUIT);
}

static bool is_dead(pool_worker *w)
{
    if (w->pidfd < 0)
        return true;
    struct pollfd p = {.fd = w->pidfd, .events = POLLIN};
    if (!sn_poll(&p, 1, 0))
        return false;
    waitid(P_PIDFD, (id_t) w->pidfd, NULL, WEXITED | WNOHANG); /* when its agent died before it */
    close_fd(&w->pidfd);
    return true;
}

bool pool_agent_reap(pool_attempt *a, pool_host *h, sn_exit *ret)
{
    struct pollfd p = {.fd = h->agent.pidfd, .events = POLLIN};
    if (h->agent.pid <= 0)
        return true;
    if (!sn_poll(&p, 1, 0))
        return false;
    /* Its number names the group of its workers, and nobody else's before it is reaped. */
    if (a->isolation == SN_ISOLATION_GROUPS)
        kill(-h->agent.pid, SIGKILL);
    sn_child_wait(&h->agent, 0, ret);
    close_fd(&h->sock);
    return true;
}

/* Orphans of a lost host come to us, the subreaper: all of its group must be reaped. */
static bool group_is_gone(const pool_attempt *a, const pool_host *h)
{
    pid_t pid;
    if (a->isolation != SN_ISOLATION_GROUPS || h->agent_pid <= 0)
        return true;
    while ((pid = waitpid(-h->agent_pid, NULL, WNOHANG)) > 0)
        continue;
    return pid < 0;
}

bool pool_attempt_cleared(pool_attempt *a)
{
    bool clear = true;
    sn_exit end;
    for (int h = 0; h < a->hosts; h++)
        clear &= pool_agent_reap(a, &a->host[h], &end);
    for (int r = 0; r < a->job->world; r++)
        clear &= is_dead(&a->worker[r]);
    for (int h = 0; h < a->hosts && clear; h++)
        clear &= group_is_gone(a, &a->host[h]);
    if (!clear && !a->forced && sn_now() - a->killed_at > FORCE_AFTER_MS * SN_MS) {
        a->forced = true;
        for (int h = 0; h < a->hosts; h++)
            sn_child_kill(&a->host[h].agent, SIGKILL);
    }
    return clear;
}

void pool_attempt_done(pool_attempt *a)
{
    for (int r = 0; r < a->job->world && a->worker; r++) {
        pool_worker *w = &a->worker[r];
        sn_page_unmap(w->page);
        close_fd(&w->boot);
        close_fd(&w->pidfd);
        close_fd(&w->boot_fd);
        close_fd(&w->page_fd);
        close_fd(&w->log_fd);
    }
    for (int h = 0; h < a->hosts; h++) {
        close_fd(&a->host[h].agent.pidfd);
        close_fd(&a->host[h].sock);
    }
    if (a->arena) {
        close_fd(&a->network);
        close_fd(&a->null_fd);
    }
    sn_boot_server_free(a->boot);
    sn_arena_free(a->arena);
    *a = (pool_attempt){.job = a->job, .network = -1, .null_fd = -1};
}
