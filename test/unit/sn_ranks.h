/* SPDX-License-Identifier: Apache-2.0
 *
 * Many ranks in one test: forks them, serves their boot exchange, waits for them with a deadline.
 *
 *   int failing = sn_ranks_run(4, (int[]){0, 0, 1, 1}, fn, ctx, sn_now() + 10 * SN_SEC);
 *
 * A test whose main calls sn_ranks_args takes --transports rc (ud, tcp), for use where there is an
 * RDMA device: ranks of different hosts then talk over it. And --patience N, for where all is slow.
 *
 * fn runs in each child and returns 0 when all was well (RANK_OK and RANK_CHECK help). A rank that
 * dies by a signal counts as failing unless it was SIGKILL from within (sn_rank_die). What a child
 * has to say it prints on stderr. */
#ifndef SN_RANKS_H
#define SN_RANKS_H

#include "net/net.h"
#include "os/os.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int (*sn_rank_fn)(sn_boot *boot, int rank, int host, void *ctx);

/* In a rank's function: leave it when something does not hold. */
#define RANK_OK(expr)                                                                              \
    do {                                                                                           \
        sn_status rank_status_ = (expr);                                                           \
        if (rank_status_ != SN_OK) {                                                               \
            fprintf(stderr, "%s:%d: %s: %s: %s\n", __FILE__, __LINE__, #expr,                      \
                    sn_status_name(rank_status_), rank_status_ < 0 ? sn_errmsg() : "");            \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)
#define RANK_CHECK(cond)                                                                           \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: %s does not hold (%s)\n", __FILE__, __LINE__, #cond,           \
                    sn_errmsg());                                                                  \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)
/* The expression fails so, and the sentence has these words. */
#define RANK_FAILS(expr, want, words)                                                              \
    do {                                                                                           \
        sn_status rank_status_ = (expr);                                                           \
        if (rank_status_ != (want) || !strstr(sn_errmsg(), (words))) {                             \
            fprintf(stderr, "%s:%d: %s: %s: %s; expected %s with \"%s\"\n", __FILE__, __LINE__,    \
                    #expr, sn_status_name(rank_status_), sn_errmsg(), sn_status_name(want),        \
                    (words));                                                                      \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

typedef struct sn_ranks {
    int world;
    const int *host_of_rank;
    sn_rank_fn fn;
    void *ctx;
    int *fd;    /* [world] the server's ends, -1 once closed */
    pid_t *pid; /* [world], 0 once reaped */
} sn_ranks;

/* Zeroed memory that all ranks share, for a test's own bookkeeping; kept until the test ends. */
static inline void *sn_ranks_shared(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        abort();
    return p;
}

static inline _Noreturn void sn_rank_die(void)
{
    raise(SIGKILL);
    abort();
}

static inline _Noreturn void sn_ranks_child(sn_ranks *s, int rank, int fd)
{
    sn_boot *boot = NULL;
    static const int caught[] = {SIGFPE, SIGILL, SIGSEGV, SIGBUS, SIGSYS}; /* by cmocka */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (size_t i = 0; i < SN_COUNT(caught); i++)
        signal(caught[i], SIG_DFL);
    for (int r = 0; r < rank; r++)
        close(s->fd[r]);
    sn_status status = sn_boot_socket(fd, rank, s->world, &boot);
    if (status < 0)
        fprintf(stderr, "rank %d: %s\n", rank, sn_errmsg());
    int bad =
        status < 0 ? 1 : s->fn(boot, rank, s->host_of_rank ? s->host_of_rank[rank] : 0, s->ctx);
    sn_boot_free(boot);
    fflush(NULL);
    _exit(bad != 0);
}

static inline void sn_ranks_fork(sn_ranks *s)
{
    fflush(NULL);
    for (int r = 0; r < s->world; r++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
            abort();
        s->pid[r] = fork();
        if (s->pid[r] == 0) {
            close(pair[0]);
            sn_ranks_child(s, r, pair[1]);
        }
        close(pair[1]);
        s->fd[r] = pair[0];
    }
}

static inline void sn_ranks_read(sn_ranks *s, sn_boot_server *server, int r)
{
    char data[4096];
    ssize_t n = recv(s->fd[r], data, sizeof data, MSG_DONTWAIT);
    if (n > 0 && sn_boot_server_feed(server, r, data, (size_t) n) >= 0)
        return;
    if (n < 0 && errno == EAGAIN)
        return;
    close(s->fd[r]);
    s->fd[r] = -1;
    sn_boot_server_left(server, r);
}

static inline void sn_ranks_write(sn_ranks *s, sn_boot_server *server, int r)
{
    const void *data;
    size_t n = sn_boot_server_pending(server, r, &data);
    ssize_t put = n ? send(s->fd[r], data, n, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;
    if (put > 0)
        sn_boot_server_sent(server, r, (size_t) put);
}

/* Serve until all connections are closed; false at the deadline. */
static inline bool sn_ranks_serve(sn_ranks *s, sn_time deadline)
{
    sn_boot_server *server = sn_boot_server_create(s->world);
    struct pollfd *p = sn_alloc((size_t) s->world * sizeof *p);
    int open = s->world;
    while (open && sn_now() < deadline) {
        const void *data;
        for (int r = 0; r < s->world; r++) {
            bool more = s->fd[r] >= 0 && sn_boot_server_pending(server, r, &data);
            p[r] =
                (struct pollfd){.fd = s->fd[r], .events = (short) (POLLIN | (more ? POLLOUT : 0))};
        }
        poll(p, (nfds_t) s->world, 100);
        open = 0;
        for (int r = 0; r < s->world; r++) {
            if (s->fd[r] >= 0 && (p[r].revents & (POLLIN | POLLHUP | POLLERR)))
                sn_ranks_read(s, server, r);
            if (s->fd[r] >= 0)
                sn_ranks_write(s, server, r);
            open += s->fd[r] >= 0;
        }
    }
    free(p);
    sn_boot_server_free(server);
    return open == 0;
}

/* Ranks that return non-zero, crash or are still there at the deadline; they are killed then. */
static inline int sn_ranks_run(int world, const int *host_of_rank, sn_rank_fn fn, void *ctx,
                               sn_time deadline)
{
    sn_ranks s = {.world = world, .host_of_rank = host_of_rank, .fn = fn, .ctx = ctx};
    s.fd = sn_alloc((size_t) world * sizeof *s.fd);
    s.pid = sn_alloc((size_t) world * sizeof *s.pid);
    sn_ranks_fork(&s);
    bool served = sn_ranks_serve(&s, deadline);
    int failing = 0;
    for (int r = 0; r < world; r++) {
        int how;
        if (!served && s.fd[r] >= 0) {
            fprintf(stderr, "rank %d is still there at the deadline\n", r);
            kill(s.pid[r], SIGABRT);
        }
        if (s.fd[r] >= 0)
            close(s.fd[r]);
        while (waitpid(s.pid[r], &how, 0) < 0 && errno == EINTR)
            continue;
        bool fine = (WIFEXITED(how) && WEXITSTATUS(how) == 0) ||
                    (WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
        if (!fine)
            fprintf(stderr, "rank %d failed (%s %d)\n", r, WIFEXITED(how) ? "exit" : "signal",
                    WIFEXITED(how) ? WEXITSTATUS(how) : WTERMSIG(how));
        failing += !fine;
    }
    free(s.fd);
    free(s.pid);
    return failing;
}

/* --patience N: this machine is so slow (an emulated processor) that all takes N times as long. */
static inline int *sn_ranks_patience(void)
{
    static int patience = 1;
    return &patience;
}

/* The value of --transports on this test's command line, NULL none. */
static inline const char **sn_ranks_transports(void)
{
    static const char *transports;
    return &transports;
}

static inline void sn_ranks_args(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--transports") == 0 && i + 1 < argc)
            *sn_ranks_transports() = argv[++i];
        else if (strcmp(argv[i], "--patience") == 0 && i + 1 < argc)
            *sn_ranks_patience() = atoi(argv[++i]);
}

/* A rank's net with host name "h<host>"; page may be NULL. */
static inline sn_status sn_rank_open(sn_boot *boot, int host, sn_page *page, sn_net **ret)
{
    char name[16];
    int patience = *sn_ranks_patience();
    snprintf(name, sizeof name, "h%d", host);
    sn_net_opts opts = {.host_name = name,
                        .page = page,
                        .transports = *sn_ranks_transports(),
                        .detect_ns = patience > 1 ? patience * 100 * SN_MS : 0,
                        .deadline = sn_now() + patience * 10 * SN_SEC};
    return sn_net_open(boot, &opts, ret);
}

#endif
