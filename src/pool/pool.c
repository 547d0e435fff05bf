/* SPDX-License-Identifier: Apache-2.0
 *
 * pool — checks the request, carries out what the supervisor decides, and ends in one result. */
#include "pool/pool.h"
#include "pool/launcher.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { CLEAR_LIMIT_S = 10 }; /* a process that survives SIGKILL for so long is left behind */

sn_status sn_pool_namespaces_possible(void)
{
    char ip[256];
    SN_TRY(sn_host_possible());
    if (sn_program_find("ip", ip) < 0)
        return sn_fail(SN_ENOTFOUND, "ip of iproute2 is not installed, and emulated hosts are "
                                     "wired with it (apt-get install iproute2)");
    return SN_OK;
}

static void note(const pool_launcher *l, const char *text)
{
    if (l->job->on_note)
        l->job->on_note(l->job->ctx, text);
}

/* ---- actions ---- */

static sn_status try_launch(pool_launcher *l, int number, const char *const *extra)
{
    l->attempt = (pool_attempt){.job = l->job, .number = number, .isolation = l->isolation};
    l->running = true;
    l->tick = sn_now() + POOL_TICK;
    memset(l->view, 0, sizeof *l->view * (size_t) l->job->world);
    sn_status status = pool_attempt_start(&l->attempt, extra);
    for (int r = 0; r < l->job->world; r++)
        l->pages[r] = l->attempt.worker[r].page;
    l->whole = status >= 0;
    return status;
}

/* Until nothing of it is left, or what is left cannot be killed. */
static void clear_now(pool_launcher *l)
{
    pool_attempt_kill(&l->attempt);
    while (!pool_attempt_cleared(&l->attempt) &&
           sn_now() - l->attempt.killed_at < CLEAR_LIMIT_S * SN_SEC)
        sn_sleep_until(sn_now() + SN_MS);
    pool_attempt_done(&l->attempt);
    l->running = false;
}

static void launch(pool_launcher *l, int number)
{
    const sn_pool_job *job = l->job;
    const char *const *extra = job->on_attempt ? job->on_attempt(job->ctx, number) : NULL;
    sn_status status = try_launch(l, number, extra);
    bool fall_back = number == 0 && job->isolation == SN_ISOLATION_AUTO &&
                     job->link_bits_per_s <= 0 && l->isolation == SN_ISOLATION_NAMESPACES;
    if (status < 0 && fall_back) {
        char text[600];
        snprintf(text, sizeof text, "%s; going on with process groups as hosts", sn_errmsg());
        clear_now(l);
        note(l, text);
        l->isolation = SN_ISOLATION_GROUPS;
        status = try_launch(l, number, extra);
    }
    if (status < 0) {
        char text[512];
        snprintf(text, sizeof text, "%s", sn_errmsg());
        l->refused = number == 0;
        pool_feed(l, (sn_ctl_event){.kind = SN_CTL_LAUNCH_REFUSED,
                                    .attempt = number,
                                    .status = status,
                                    .text = text});
    }
}

static void raise_epoch(pool_launcher *l, int victim)
{
    for (int r = 0; r < l->job->world; r++) {
        sn_page *page = l->pages[r];
        if (!page)
            continue;
        __atomic_store_n(&page->victim, victim, __ATOMIC_RELAXED);
        __atomic_fetch_add(&page->epoch, 1, __ATOMIC_RELEASE);
    }
}

static void ask_stop(pool_launcher *l, int level)
{
    for (int r = 0; r < l->job->world; r++)
        if (l->pages[r])
            __atomic_store_n(&l->pages[r]->stop, (uint32_t) level, __ATOMIC_RELEASE);
}

static void carry_out(pool_launcher *l, const sn_ctl_action *a)
{
    switch (a->kind) {
    case SN_CTL_LAUNCH:
        launch(l, a->attempt);
        break;
    case SN_CTL_EPOCH:
        raise_epoch(l, a->rank);
        break;
    case SN_CTL_STOP:
        ask_stop(l, a->level);
        break;
    case SN_CTL_KILL_RANK:
        if (l->attempt.worker[a->rank].pidfd >= 0)
            sn_pidfd_kill(l->attempt.worker[a->rank].pidfd, SIGKILL);
        break;
    case SN_CTL_KILL:
        pool_attempt_kill(&l->attempt);
        break;
    case SN_CTL_SET_TIMER:
        l->timer = a->at;
        break;
    case SN_CTL_NOTE:
        note(l, a->text);
        break;
    case SN_CTL_FINISH:
        l->finish = *a;
        l->over = true;
        break;
    }
}

void pool_feed(pool_launcher *l, sn_ctl_event event)
{
    sn_ctl_action action[SN_CTL_ACTIONS_MAX];
    int n = sn_ctl_step(l->ctl, &event, sn_now(), action);
    for (int i = 0; i < n; i++)
        carry_out(l, &action[i]);
}

/* ---- a run ---- */

static void check_cleared(pool_launcher *l)
{
    pool_attempt *a = &l->attempt;
    if (!a->killed_at)
        return;
    bool stuck = sn_now() - a->killed_at > CLEAR_LIMIT_S * SN_SEC;
    if (!pool_attempt_cleared(a) && !stuck)
        return;
    if (stuck)
        note(l, "some processes of the job do not die though they were killed (is a disk or a "
                "network file system stuck?); leaving them behind");
    int number = a->number;
    if (l->job->on_tick && l->whole) /* the last steps, which no look has seen yet */
        l->job->on_tick(l->job->ctx, l->pages, l->job->world);
    pool_attempt_done(a);
    memset(l->pages, 0, sizeof *l->pages * (size_t) l->job->world);
    l->running = false;
    pool_feed(l, (sn_ctl_event){.kind = SN_CTL_CLEARED, .attempt = number});
}

static sn_status check_program(const sn_pool_job *job)
{
    if (!job->argv || !job->argv[0])
        return sn_fail(SN_EINVAL, "no program to start workers with");
    if (access(job->argv[0], X_OK))
        return sn_fail(errno == ENOENT || errno == ENOTDIR ? SN_ENOTFOUND : SN_EPERM,
                       "cannot execute %s: %s", job->argv[0], strerror(errno));
    return SN_OK;
}

static sn_status check(const sn_pool_job *job)
{
    if (job->hosts < 1 || job->cards_per_host < 1 || job->world < 1)
        return sn_fail(SN_EINVAL,
                       "%d workers on %d hosts with %d cards each: all must be at least "
                       "1",
                       job->world, job->hosts, job->cards_per_host);
    if (job->world > (int64_t) job->hosts * job->cards_per_host)
        return sn_fail(SN_EFIT, "%d workers are asked, but %d hosts with %d cards each hold %lld",
                       job->world, job->hosts, job->cards_per_host,
                       (long long) job->hosts * job->cards_per_host);
    if (job->world > POOL_WORLD_MAX || job->hosts > POOL_HOSTS_MAX)
        return sn_fail(SN_EFIT,
                       "%d workers on %d hosts: one machine runs at most %d workers and emulates "
                       "%d hosts",
                       job->world, job->hosts, POOL_WORLD_MAX, POOL_HOSTS_MAX);
    SN_TRY(check_program(job));
    if (job->log_dir) {
        SN_TRY(sn_dir_create(job->log_dir));
        SN_TRY(sn_dir_writable(job->log_dir));
    }
    return SN_OK;
}

static sn_status choose_isolation(const sn_pool_job *job, sn_isolation *ret)
{
    *ret = SN_ISOLATION_GROUPS;
    bool apart = job->world > job->cards_per_host;
    if (job->isolation == SN_ISOLATION_GROUPS && apart && job->link_bits_per_s > 0)
        return sn_fail(SN_ENOTSUP, "a link that is slowed down needs hosts in namespaces, not "
                                   "process groups: leave the isolation to auto");
    if (job->isolation == SN_ISOLATION_GROUPS)
        return SN_OK;
    if (job->isolation == SN_ISOLATION_AUTO && !apart)
        return SN_OK;
    sn_status status = sn_pool_namespaces_possible();
    if (status >= 0) {
        *ret = SN_ISOLATION_NAMESPACES;
    } else if (job->isolation == SN_ISOLATION_NAMESPACES) {
        return status;
    } else if (job->link_bits_per_s > 0) {
        return sn_fail_in(SN_ENOTSUP, "a link that is slowed down needs hosts in namespaces");
    } else if (job->on_note) {
        char text[600];
        snprintf(text, sizeof text, "hosts are process groups without a network of their own: %s",
                 sn_errmsg());
        job->on_note(job->ctx, text);
    }
    return SN_OK;
}

static pool_launcher create_launcher(const sn_pool_job *job, sn_isolation isolation)
{
    size_t world = (size_t) job->world, hosts = (size_t) job->hosts;
    sn_ctl_opts opts = {.world = job->world,
                        .cards_per_host = job->cards_per_host,
                        .retries = job->retries,
                        .step_limit_ns = job->step_limit_ns};
    return (pool_launcher){.job = job,
                           .isolation = isolation,
                           .ctl = sn_ctl_create(&opts),
                           .pages = sn_alloc(sizeof(sn_page *) * world),
                           .view = sn_alloc(sizeof(sn_ctl_view) * world),
                           .text = sn_alloc(sizeof(pool_text) * world),
                           .poll = sn_alloc(sizeof(struct pollfd) * 2 * (world + hosts))};
}

static void free_launcher(pool_launcher *l)
{
    sn_ctl_free(l->ctl);
    free(l->pages);
    free(l->view);
    free(l->text);
    free(l->poll);
}

static void fill_result(const pool_launcher *l, sn_pool_result *ret)
{
    ret->attempts = sn_ctl_attempts(l->ctl);
    ret->interrupted = sn_ctl_interrupted(l->ctl);
    ret->exit_code = l->finish.code;
    ret->status = l->finish.status;
    ret->isolation = l->isolation;
    snprintf(ret->reason, sizeof ret->reason, "%s", l->finish.text);
}

sn_status sn_pool_run(const sn_pool_job *job, sn_pool_result *ret)
{
    sn_isolation isolation;
    SN_TRY(check(job));
    SN_TRY(choose_isolation(job, &isolation));
    sn_fd_standard();
    int reaper = 0;
    prctl(PR_GET_CHILD_SUBREAPER, &reaper);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    pool_launcher l = create_launcher(job, isolation);
    pool_feed(&l, (sn_ctl_event){.kind = SN_CTL_START});
    while (!l.over) {
        pool_watch(&l);
        check_cleared(&l);
    }
    prctl(PR_SET_CHILD_SUBREAPER, reaper);
    sn_status status = l.refused ? sn_fail(l.finish.status, "%s", l.finish.text) : SN_OK;
    if (status >= 0)
        fill_result(&l, ret);
    free_launcher(&l);
    return status;
}
