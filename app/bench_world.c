/* SPDX-License-Identifier: Apache-2.0
 * Ranks that work on request. */
#include "bench_world.h"

#include "os/os.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATIENCE_S = 120, LEAVE_S = 10 };

typedef struct reply {
    int32_t status;
    char text[252];
    double value[BENCH_VALUES];
} reply;

typedef struct rank {
    pid_t pid;
    int boot_fd, ask_fd; /* -1 once closed */
    size_t got;          /* bytes of the reply that are here */
    reply reply;
} rank;

struct bench_world {
    int world;
    sn_boot_server *server;
    rank rank[BENCH_WORLD_MAX];
};

/* ---- in a rank ---- */

static bool send_reply(int fd, sn_status status, const double *value)
{
    reply r = {.status = status};
    if (status < 0)
        snprintf(r.text, sizeof r.text, "%.251s", sn_errmsg());
    memcpy(r.value, value, sizeof r.value);
    return send(fd, &r, sizeof r, MSG_NOSIGNAL) == (ssize_t) sizeof r;
}

static void serve_questions(int fd, const bench_job *job, void *state)
{
    int64_t arg;
    while (recv(fd, &arg, sizeof arg, MSG_WAITALL) == (ssize_t) sizeof arg) {
        double value[BENCH_VALUES] = {0};
        if (!send_reply(fd, job->step(state, arg, value), value))
            return;
    }
}

static int host_of(const bench_job *job, int me)
{
    return job->host ? job->host[me] : 0;
}

static _Noreturn void rank_main(const bench_job *job, int me, int boot_fd, int ask_fd, pid_t parent)
{
    static const double none[BENCH_VALUES];
    sn_boot *boot = NULL;
    void *state = NULL;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    sn_status status = sn_bind_core(me % sn_cores());
    if (status >= 0 && job->wire)
        status = bench_wire_enter(job->wire, host_of(job, me));
    if (status >= 0)
        status = sn_boot_socket(boot_fd, me, job->world, &boot);
    if (status >= 0)
        status = job->open(boot, job, &state);
    if (send_reply(ask_fd, status, none) && status >= 0)
        serve_questions(ask_fd, job, state);
    if (state)
        job->close(state);
    sn_boot_free(boot);
    _exit(0);
}

/* ---- in the parent ---- */

static sn_status fork_rank(bench_world *w, const bench_job *job, int me)
{
    int boot[2], ask[2];
    pid_t parent = getpid();
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, boot))
        return sn_fail(SN_EIO, "socketpair: %s", strerror(errno));
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ask)) {
        close(boot[0]);
        close(boot[1]);
        return sn_fail(SN_EIO, "socketpair: %s", strerror(errno));
    }
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        for (int r = 0; r < me; r++) {
            close(w->rank[r].boot_fd);
            close(w->rank[r].ask_fd);
        }
        close(boot[0]);
        close(ask[0]);
        rank_main(job, me, boot[1], ask[1], parent);
    }
    close(boot[1]);
    close(ask[1]);
    w->rank[me] = (rank){.pid = pid, .boot_fd = boot[0], .ask_fd = ask[0]};
    w->world = me + 1;
    return pid > 0 ? SN_OK : sn_fail(SN_EIO, "fork: %s", strerror(errno));
}

static void boot_closed(bench_world *w, int r)
{
    close(w->rank[r].boot_fd);
    w->rank[r].boot_fd = -1;
    sn_boot_server_left(w->server, r);
}

static void boot_turn(bench_world *w, int r, short events)
{
    char data[4096];
    const void *out;
    int fd = w->rank[r].boot_fd;
    if (events & (POLLIN | POLLHUP | POLLERR)) {
        ssize_t n = recv(fd, data, sizeof data, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0 || sn_boot_server_feed(w->server, r, data, (size_t) n) < 0) {
            boot_closed(w, r);
            return;
        }
    }
    size_t n = sn_boot_server_pending(w->server, r, &out);
    ssize_t put = n ? send(fd, out, n, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;
    if (put > 0)
        sn_boot_server_sent(w->server, r, (size_t) put);
}

static void reply_turn(rank *k)
{
    ssize_t n =
        recv(k->ask_fd, (char *) &k->reply + k->got, sizeof k->reply - k->got, MSG_DONTWAIT);
    if (n > 0) {
        k->got += (size_t) n;
        return;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    close(k->ask_fd);
    k->ask_fd = -1;
}

/* One poll over all that ranks may say, 100 ms at most. */
static void turn(bench_world *w)
{
    struct pollfd p[2 * BENCH_WORLD_MAX];
    const void *data;
    for (int r = 0; r < w->world; r++) {
        const rank *k = &w->rank[r];
        bool more = k->boot_fd >= 0 && sn_boot_server_pending(w->server, r, &data);
        p[2 * r] = (struct pollfd){k->boot_fd, (short) (POLLIN | (more ? POLLOUT : 0)), 0};
        p[2 * r + 1] = (struct pollfd){k->got < sizeof k->reply ? k->ask_fd : -1, POLLIN, 0};
    }
    if (poll(p, (nfds_t) (2 * w->world), 100) <= 0)
        return;
    for (int r = 0; r < w->world; r++) {
        if (p[2 * r].revents)
            boot_turn(w, r, p[2 * r].revents);
        if (p[2 * r + 1].revents)
            reply_turn(&w->rank[r]);
    }
}

sn_status bench_world_hear(bench_world *w, int except)
{
    sn_time deadline = sn_now() + PATIENCE_S * SN_SEC;
    for (int r = 0; r < w->world; r++) {
        const rank *k = &w->rank[r];
        if (r == except)
            continue;
        while (k->got < sizeof k->reply && k->ask_fd >= 0 && sn_now() < deadline)
            turn(w);
        if (k->got == sizeof k->reply && k->reply.status < 0)
            return sn_fail((sn_status) k->reply.status, "rank %d: %s", r, k->reply.text);
        if (k->got < sizeof k->reply)
            return sn_fail(k->ask_fd < 0 ? SN_EPEER : SN_ETIME, "rank %d %s", r,
                           k->ask_fd < 0 ? "ended without an answer" : "did not answer in time");
    }
    return SN_OK;
}

sn_status bench_world_start(const bench_job *job, bench_world **ret)
{
    bench_world *w = sn_alloc(sizeof *w);
    SN_ASSERT(job->world <= BENCH_WORLD_MAX);
    w->server = sn_boot_server_create(job->world);
    sn_status status = SN_OK;
    for (int r = 0; r < job->world && status >= 0; r++)
        status = fork_rank(w, job, r);
    if (status >= 0)
        status = bench_world_hear(w, -1);
    if (status < 0) {
        bench_world_stop(w);
        return status;
    }
    *ret = w;
    return SN_OK;
}

sn_status bench_world_tell(bench_world *w, int64_t arg)
{
    for (int r = 0; r < w->world; r++)
        w->rank[r].got = 0;
    for (int r = 0; r < w->world; r++)
        if (send(w->rank[r].ask_fd, &arg, sizeof arg, MSG_NOSIGNAL) != (ssize_t) sizeof arg)
            return sn_fail(SN_EPEER, "rank %d ended", r);
    return SN_OK;
}

sn_status bench_world_ask(bench_world *w, int64_t arg)
{
    SN_TRY(bench_world_tell(w, arg));
    return bench_world_hear(w, -1);
}

void bench_world_signal(const bench_world *w, int r, int number)
{
    if (w->rank[r].pid > 0) /* our child, not reaped before bench_world_stop */
        kill(w->rank[r].pid, number);
}

double bench_world_value(const bench_world *w, int r, int i)
{
    return w->rank[r].reply.value[i];
}

double bench_world_max(const bench_world *w, int i)
{
    double most = w->rank[0].reply.value[i];
    for (int r = 1; r < w->world; r++)
        most = SN_MAX(most, w->rank[r].reply.value[i]);
    return most;
}

static void reap(bench_world *w, sn_time deadline)
{
    for (int r = 0; r < w->world; r++) {
        rank *k = &w->rank[r];
        while (k->boot_fd >= 0 && sn_now() < deadline)
            turn(w);
        if (k->boot_fd >= 0) {
            if (k->pid > 0)
                kill(k->pid, SIGKILL);
            close(k->boot_fd);
        }
        while (k->pid > 0 && waitpid(k->pid, NULL, 0) < 0 && errno == EINTR)
            continue;
    }
}

void bench_world_stop(bench_world *w)
{
    if (!w)
        return;
    for (int r = 0; r < w->world; r++) {
        if (w->rank[r].ask_fd >= 0)
            close(w->rank[r].ask_fd);
        w->rank[r].ask_fd = -1;
    }
    reap(w, sn_now() + LEAVE_S * SN_SEC);
    sn_boot_server_free(w->server);
    free(w);
}

/* ---- what ranks share ---- */

sn_status bench_net_open(sn_boot *boot, const bench_job *job, sn_net **ret)
{
    char name[16], address[32] = "127.0.0.1";
    int host = host_of(job, sn_boot_rank(boot));
    snprintf(name, sizeof name, "h%d", host);
    if (job->wire)
        bench_wire_address(host, address);
    sn_net_opts opts = {.host_name = name,
                        .bind_address = address,
                        .deadline = sn_now() + 30 * SN_SEC,
                        .detect_ns = job->detect_ns ? job->detect_ns : BENCH_PATIENT};
    return sn_net_open(boot, &opts, ret);
}

sn_status bench_shared(size_t bytes, void **ret)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return sn_fail(SN_ENOMEM, "no %zu bytes of shared memory: %s", bytes, strerror(errno));
    *ret = p;
    return SN_OK;
}

void bench_shared_free(void *p, size_t bytes)
{
    if (p)
        munmap(p, bytes);
}

void bench_barrier_wait(bench_barrier *b, int n)
{
    uint32_t round = __atomic_load_n(&b->round, __ATOMIC_ACQUIRE);
    if (__atomic_add_fetch(&b->arrived, 1, __ATOMIC_ACQ_REL) == (uint32_t) n) {
        __atomic_store_n(&b->arrived, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&b->round, round + 1, __ATOMIC_RELEASE);
        return;
    }
    for (int spins = 0; __atomic_load_n(&b->round, __ATOMIC_ACQUIRE) == round; spins++) {
        if (spins < 2000)
            SN_PAUSE();
        else
            sched_yield();
    }
}
