/* SPDX-License-Identifier: Apache-2.0
 *
 * watch — what happens to an attempt, as events: agents' reports, deaths, pages, ^C, time; and the
 * bytes of the boot exchange, which happen on the side. */
#include "pool/launcher.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REPORT_WAIT_MS = 250 }; /* a dead worker's agent has so long to say how it ended */

/* ---- pages ---- */

/* A page is written by a process that may be broken: what is shown of it is printable. */
static void make_printable(char *text)
{
    for (; *text; text++)
        if (iscntrl((unsigned char) *text))
            *text = ' ';
}

static sn_ctl_worker worker_state(uint32_t state)
{
    switch (state) {
    case SN_WORKER_NEW:
    case SN_WORKER_JOINING:
    case SN_WORKER_READY:
        return SN_CTL_STARTING;
    case SN_WORKER_SAVING:
        return SN_CTL_SAVING;
    case SN_WORKER_DONE:
        return SN_CTL_DONE;
    case SN_WORKER_FAILED:
        return SN_CTL_FAILED;
    default:
        return SN_CTL_TRAINING;
    }
}

static void look(pool_launcher *l, int rank)
{
    const pool_worker *w = &l->attempt.worker[rank];
    const sn_page *page = w->page;
    sn_ctl_view *v = &l->view[rank];
    pool_text *t = &l->text[rank];
    if (!page)
        return;
    v->state = worker_state(__atomic_load_n(&page->state, __ATOMIC_ACQUIRE));
    v->pid = w->pid;
    v->beat = __atomic_load_n(&page->beat, __ATOMIC_RELAXED);
    v->step = __atomic_load_n(&page->step, __ATOMIC_RELAXED);
    v->status = (sn_status) page->error_status;
    v->op = t->op;
    v->error = t->error;
    sn_page_op_read(page, t->op, &v->op_since);
    make_printable(t->op);
    if (v->state == SN_CTL_FAILED) {
        snprintf(t->error, sizeof t->error, "%.*s", (int) sizeof page->error - 1, page->error);
        make_printable(t->error);
    }
}

static void look_at_all(pool_launcher *l)
{
    for (int r = 0; r < l->job->world; r++)
        if (!l->attempt.worker[r].exited)
            look(l, r);
}

static sn_ctl_event event_of(const pool_launcher *l, sn_ctl_kind kind)
{
    return (sn_ctl_event){.kind = kind, .attempt = l->attempt.number, .views = l->view};
}

/* ---- deaths ---- */

static void worker_exited(pool_launcher *l, int rank, int code, int signal)
{
    pool_worker *w = &l->attempt.worker[rank];
    if (w->exited)
        return;
    look(l, rank); /* its last word */
    w->exited = true;
    sn_ctl_event e = event_of(l, SN_CTL_EXITED);
    e.rank = rank;
    e.code = code;
    e.signal = signal;
    pool_feed(l, e);
}

static void worker_started(pool_launcher *l, int rank, int pidfd)
{
    pool_worker *w = &l->attempt.worker[rank];
    if (pidfd < 0 || w->pidfd >= 0)
        return;
    w->pidfd = pidfd;
    w->pid = sn_pidfd_pid(pidfd);
    if (l->attempt.killed_at) /* it was born while the others were being killed */
        sn_pidfd_kill(pidfd, SIGKILL);
}

/* True when it had anything to say. */
static bool hear_agent(pool_launcher *l, pool_host *h)
{
    pool_message m;
    int fd, heard = 0;
    while (h->sock >= 0 && sn_datagram_recv(h->sock, &m, sizeof m, &fd) == SN_OK) {
        heard++;
        bool mine = m.rank >= h->first && m.rank < h->first + h->count;
        if (m.kind == POOL_STARTED && mine) {
            worker_started(l, m.rank, fd);
            fd = -1;
        } else if (m.kind == POOL_EXITED && mine) {
            worker_exited(l, m.rank, m.code, m.signal);
        } else if (m.kind == POOL_FAILED) {
            m.text[sizeof m.text - 1] = 0;
            sn_ctl_event e = event_of(l, SN_CTL_LAUNCH_REFUSED);
            e.status = m.status < 0 ? (sn_status) m.status : SN_EIO;
            e.text = m.text;
            pool_feed(l, e);
        }
        if (fd >= 0)
            close(fd);
    }
    return heard > 0;
}

/* Its workers die with it, so nobody is left to report them. */
static void host_died(pool_launcher *l, pool_host *h)
{
    sn_exit end;
    hear_agent(l, h); /* what it said before */
    if (!pool_agent_reap(&l->attempt, h, &end) || l->attempt.killed_at)
        return; /* killed_at: it left as it was told */
    look_at_all(l);
    sn_ctl_event e = event_of(l, SN_CTL_HOST_DIED);
    e.host = h->index;
    e.code = end.code;
    e.signal = end.signal;
    e.pid = h->agent_pid;
    pool_feed(l, e);
    for (int r = h->first; r < h->first + h->count; r++)
        if (l->attempt.worker[r].pidfd < 0)
            worker_exited(l, r, -1, 0);
}

/* The pidfd says it is gone; how, only its parent knows. */
static void worker_is_gone(pool_launcher *l, pool_worker *w)
{
    siginfo_t info = {0};
    bool orphan = l->attempt.host[w->host].agent.pid <= 0;
    if (!w->gone_at)
        w->gone_at = sn_now();
    if (orphan && !waitid(P_PIDFD, (id_t) w->pidfd, &info, WEXITED | WNOHANG) && info.si_pid)
        worker_exited(l, w->rank, info.si_code == CLD_EXITED ? info.si_status : -1,
                      info.si_code == CLD_EXITED ? 0 : info.si_status);
    else if (orphan || sn_now() - w->gone_at > REPORT_WAIT_MS * SN_MS)
        worker_exited(l, w->rank, -1, 0);
}

/* ---- boot exchange ---- */

static void boot_closed(pool_launcher *l, pool_worker *w)
{
    close(w->boot);
    w->boot = -1;
    sn_boot_server_left(l->attempt.boot, w->rank);
}

static void boot_broken(pool_launcher *l, pool_worker *w, sn_status status)
{
    char text[512];
    snprintf(text, sizeof text, "%s", sn_errmsg());
    boot_closed(l, w);
    look(l, w->rank);
    sn_ctl_event e = event_of(l, SN_CTL_BROKEN);
    e.rank = w->rank;
    e.status = status;
    e.text = text;
    pool_feed(l, e);
}

static void boot_read(pool_launcher *l, pool_worker *w)
{
    char data[16384];
    for (;;) {
        ssize_t n = recv(w->boot, data, sizeof data, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (n <= 0) {
            boot_closed(l, w);
            return;
        }
        sn_status status = sn_boot_server_feed(l->attempt.boot, w->rank, data, (size_t) n);
        if (status < 0) {
            boot_broken(l, w, status);
            return;
        }
    }
}

static void boot_write(pool_launcher *l, pool_worker *w)
{
    const void *data;
    size_t bytes;
    while (w->boot >= 0 && (bytes = sn_boot_server_pending(l->attempt.boot, w->rank, &data)) > 0) {
        ssize_t n = send(w->boot, data, bytes, MSG_NOSIGNAL);
        if (n > 0)
            sn_boot_server_sent(l->attempt.boot, w->rank, (size_t) n);
        else if (n < 0 && errno == EINTR)
            continue;
        else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return; /* the poll waits for room */
        else
            boot_closed(l, w);
    }
}

/* ---- the loop's one turn ---- */

static bool awaits_report(const pool_launcher *l)
{
    for (int r = 0; r < l->job->world; r++)
        if (l->attempt.worker[r].gone_at && !l->attempt.worker[r].exited)
            return true;
    return false;
}

static int fill_poll(pool_launcher *l)
{
    pool_attempt *a = &l->attempt;
    struct pollfd *p = l->poll;
    for (int h = 0; h < a->hosts; h++) {
        *p++ = (struct pollfd){.fd = a->host[h].sock, .events = POLLIN};
        *p++ = (struct pollfd){.fd = a->host[h].agent.pid > 0 ? a->host[h].agent.pidfd : -1,
                               .events = POLLIN};
    }
    for (int r = 0; r < l->job->world; r++) {
        pool_worker *w = &a->worker[r];
        const void *data;
        bool more = w->boot >= 0 && sn_boot_server_pending(a->boot, r, &data) > 0;
        *p++ = (struct pollfd){.fd = w->boot, .events = (short) (POLLIN | (more ? POLLOUT : 0))};
        *p++ = (struct pollfd){.fd = w->exited || w->gone_at ? -1 : w->pidfd, .events = POLLIN};
    }
    return (int) (p - l->poll);
}

/* True when a descriptor brought news, other than boot bytes. */
static bool serve_poll(pool_launcher *l)
{
    pool_attempt *a = &l->attempt;
    const struct pollfd *host = l->poll, *worker = l->poll + 2 * a->hosts;
    bool news = false, boot = false;
    for (int h = 0; h < a->hosts; h++)
        if (host[2 * h].revents)
            news |= hear_agent(l, &a->host[h]);
    for (int h = 0; h < a->hosts; h++)
        if (host[2 * h + 1].revents) {
            host_died(l, &a->host[h]);
            news = true;
        }
    for (int r = 0; r < l->job->world; r++) {
        if (worker[2 * r].revents && a->worker[r].boot >= 0) {
            boot_read(l, &a->worker[r]);
            boot = true;
        }
        if (!a->worker[r].exited && (worker[2 * r + 1].revents || a->worker[r].gone_at)) {
            worker_is_gone(l, &a->worker[r]);
            news |= a->worker[r].exited;
        }
    }
    for (int r = 0; r < l->job->world && boot; r++) /* one rank's bytes may complete all answers */
        boot_write(l, &a->worker[r]);
    for (int r = 0; r < l->job->world && !boot; r++)
        if (worker[2 * r].revents & POLLOUT)
            boot_write(l, &a->worker[r]);
    return news;
}

static void serve_interrupt(pool_launcher *l)
{
    int level = l->job->interrupted ? l->job->interrupted(l->job->ctx) : 0;
    if (level <= l->level)
        return;
    l->level = level;
    pool_feed(l, (sn_ctl_event){.kind = SN_CTL_INTERRUPT, .level = level});
}

static void serve_clock(pool_launcher *l, bool news)
{
    sn_time now = sn_now();
    if (l->running && (now >= l->tick || news)) {
        look_at_all(l);
        if (l->job->on_tick && l->whole)
            l->job->on_tick(l->job->ctx, l->pages, l->job->world);
    }
    if (l->running && now >= l->tick) {
        l->tick = now + POOL_TICK;
        pool_feed(l, event_of(l, SN_CTL_SEEN));
    }
    if (!l->over && l->timer && now >= l->timer) {
        l->timer = 0;
        pool_feed(l, (sn_ctl_event){.kind = SN_CTL_TIMER});
    }
}

static sn_time next_deadline(const pool_launcher *l)
{
    sn_time at = l->tick;
    if (l->timer)
        at = SN_MIN(at, l->timer);
    if (l->attempt.killed_at || awaits_report(l))
        at = SN_MIN(at, sn_now() + 5 * SN_MS);
    return at;
}

void pool_watch(pool_launcher *l)
{
    SN_ASSERT(l->running);
    sn_poll(l->poll, fill_poll(l), next_deadline(l));
    bool news = serve_poll(l);
    serve_interrupt(l);
    serve_clock(l, news);
}
