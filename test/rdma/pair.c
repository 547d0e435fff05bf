/* SPDX-License-Identifier: Apache-2.0
 *
 * A job over two machines: tool/rdma runs this on both of them, once per case.
 *
 *   test_rdma_pair MACHINE CASE [--server IP] [--transports T] [--ready FILE] [--within SECONDS]
 *
 *   machine 0: boot server on --server, ranks 0 and 1      machine 1: ranks 2 and 3
 *
 * A machine waits until the other has come (--within), then the case has 60 s. It exits with 0 when
 * all of its ranks found what they expect. A case that loses a machine writes to --ready when it is
 * time to lose it. */
#include "coll/coll.h"
#include "unit/sn_ranks.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>

enum { MACHINES = 2, EACH = 2, WORLD = MACHINES * EACH, PORT = 7100 };

typedef struct pair {
    int machine, port;
    const char *what, *server, *transports, *ready;
    sn_time within;
} pair;

/* What a case works with. */
typedef struct job {
    const pair *args;
    int rank;
    sn_net *net;
    sn_coll *c;
    sn_coll_group *all;
} job;

static sn_time soon(void)
{
    return sn_now() + 30 * SN_SEC;
}

static sn_status sum(job *j, float *in, float *out, int64_t count)
{
    sn_coll_call call = {
        .op = SN_ALL_REDUCE, .red = SN_SUM, .dtype = SN_F32, .count = count, .in = in, .out = out};
    return sn_coll_run(j->all, &call, soon());
}

static void fill(char *buf, size_t bytes, int salt)
{
    for (size_t i = 0; i < bytes; i++)
        buf[i] = (char) (i * 31 + i / 4096 + (size_t) salt * 101);
}

/* ---- the cases ---- */

/* Every rank sends each size to its partner on the other machine and to the partner's neighbour. */
static int messages(job *j)
{
    static const size_t sizes[] = {0, 1, 8, 1000, 8191, 65536, 100001, 1 << 20};
    size_t most = sizes[SN_COUNT(sizes) - 1];
    char *out = sn_alloc(most), *in = sn_alloc(most), *want = sn_alloc(most);
    for (size_t k = 0; k < SN_COUNT(sizes); k++)
        for (int swap = 0; swap < EACH; swap++) {
            int peer = ((j->rank + EACH) % WORLD) ^ swap;
            sn_net_req *s, *r;
            fill(out, sizes[k], j->rank + (int) k);
            fill(want, sizes[k], peer + (int) k);
            memset(in, 0, sizes[k]);
            RANK_OK(sn_net_recv(j->net, peer, 7, in, sizes[k], &r));
            RANK_OK(sn_net_send(j->net, peer, 7, out, sizes[k], &s));
            RANK_OK(sn_net_wait(j->net, r, soon(), "recv"));
            RANK_OK(sn_net_wait(j->net, s, soon(), "send"));
            RANK_CHECK(memcmp(in, want, sizes[k]) == 0);
        }
    free(out);
    free(in);
    free(want);
    return 0;
}

/* A network card holds on to the pages behind a buffer. Once the program has other pages at that
 * address, the card must use those: what it reads and writes must be what the program sees. */
static int remap(job *j)
{
    enum { BYTES = 1 << 19, ROUNDS = 4 };
    int peer = (j->rank + EACH) % WORLD, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    char *want = sn_alloc(BYTES), *out = NULL, *in = NULL;
    for (int k = 0; k < ROUNDS; k++) {
        int fixed = k ? MAP_FIXED : 0;
        sn_net_req *s, *r;
        if (k && (munmap(out, BYTES) || munmap(in, BYTES)))
            return 1;
        out = mmap(out, BYTES, PROT_READ | PROT_WRITE, flags | fixed, -1, 0);
        in = mmap(in, BYTES, PROT_READ | PROT_WRITE, flags | fixed, -1, 0);
        RANK_CHECK(out != MAP_FAILED && in != MAP_FAILED);
        fill(out, BYTES, j->rank + 10 * k);
        fill(want, BYTES, peer + 10 * k);
        RANK_OK(sn_net_recv(j->net, peer, 8, in, BYTES, &r));
        RANK_OK(sn_net_send(j->net, peer, 8, out, BYTES, &s));
        RANK_OK(sn_net_wait(j->net, r, soon(), "recv"));
        RANK_OK(sn_net_wait(j->net, s, soon(), "send"));
        RANK_CHECK(memcmp(in, want, BYTES) == 0);
    }
    munmap(out, BYTES);
    munmap(in, BYTES);
    free(want);
    return 0;
}

/* in[i] of rank r is small and whole, so that sums are exact in any order. */
static float value(int rank, int64_t i)
{
    return (float) ((i * 7 + rank * 13) % 101);
}

static int check_op(job *j, sn_coll_op op, int64_t n, float *in, float *out)
{
    int64_t ins = op == SN_REDUCE_SCATTER || op == SN_ALL_TO_ALL ? n * WORLD : n;
    int64_t outs = op == SN_ALL_GATHER || op == SN_ALL_TO_ALL ? n * WORLD : n;
    for (int64_t i = 0; i < ins; i++)
        in[i] = value(j->rank, i);
    for (int64_t i = 0; i < outs; i++)
        out[i] = op == SN_BROADCAST && j->rank == 2 ? value(2, i) : -1;
    sn_coll_call call = {
        .op = op, .red = SN_SUM, .dtype = SN_F32, .count = n, .root = 2, .in = in, .out = out};
    RANK_OK(sn_coll_run(j->all, &call, soon()));
    for (int64_t i = 0; i < outs; i++) {
        float want = 0;
        for (int r = 0; r < WORLD; r++)
            want += value(r, op == SN_REDUCE_SCATTER ? j->rank * n + i : i);
        if (op == SN_BROADCAST)
            want = value(2, i);
        else if (op == SN_ALL_GATHER)
            want = value((int) (i / n), i % n);
        else if (op == SN_ALL_TO_ALL)
            want = value((int) (i / n), j->rank * n + i % n);
        if (out[i] != want)
            fprintf(stderr, "%s of %lld: element %lld is %g, not %g\n", sn_coll_op_name(op),
                    (long long) n, (long long) i, (double) out[i], (double) want);
        RANK_CHECK(out[i] == want);
    }
    return 0;
}

/* Each operation, from buffers in the segment and from others. */
static int collectives(job *j)
{
    static const sn_coll_op ops[] = {SN_ALL_REDUCE, SN_REDUCE_SCATTER, SN_ALL_GATHER, SN_BROADCAST,
                                     SN_ALL_TO_ALL};
    static const int64_t counts[] = {1, 1000, 50001};
    size_t most = (size_t) counts[SN_COUNT(counts) - 1] * WORLD * sizeof(float);
    void *in[2], *out[2];
    RANK_OK(sn_coll_alloc(j->c, most, &in[0]));
    RANK_OK(sn_coll_alloc(j->c, most, &out[0]));
    in[1] = sn_alloc(most);
    out[1] = sn_alloc(most);
    int bad = 0;
    for (size_t o = 0; o < SN_COUNT(ops); o++)
        for (size_t k = 0; k < SN_COUNT(counts); k++)
            for (int own = 0; own < 2 && !bad; own++)
                bad = check_op(j, ops[o], counts[k], in[own], out[own]);
    free(in[1]);
    free(out[1]);
    return bad;
}

/* Sums until somebody is missed: the sentence names who, and comes in bounded time. */
static int until_missed(job *j, int first, int last)
{
    float x[256] = {0}, y[256];
    sn_status status = SN_OK;
    sn_time start = 0, limit = soon();
    while (status == SN_OK && sn_now() < limit) {
        start = sn_now();
        status = sum(j, x, y, SN_COUNT(x));
    }
    double seconds = (double) (sn_now() - start) / SN_SEC;
    bool named = false;
    for (int r = first; r <= last; r++) {
        char name[16];
        snprintf(name, sizeof name, "rank %d (", r);
        named |= strstr(sn_errmsg(), name) != NULL;
    }
    fprintf(stderr, "rank %d knew after %.2f s: %s\n", j->rank, seconds, sn_errmsg());
    RANK_CHECK(status == SN_EPEER && named && seconds < 5);
    return 0;
}

/* Rank 3 is killed: each other rank hears of it, near or far. */
static int killed(job *j)
{
    float x[64] = {1}, y[64];
    for (int k = 0; k < 3; k++)
        RANK_OK(sum(j, x, y, SN_COUNT(x)));
    if (j->rank == WORLD - 1)
        sn_rank_die();
    return until_missed(j, WORLD - 1, WORLD - 1);
}

/* The whole of machine 1 goes: no process of it can say or close anything. */
static int lost(job *j)
{
    float x[64] = {1}, y[64];
    for (int k = 0; k < 3; k++)
        RANK_OK(sum(j, x, y, SN_COUNT(x)));
    FILE *f = j->rank == 0 && j->args->ready ? fopen(j->args->ready, "w") : NULL;
    if (f) {
        fputs("@ lose 1\n", f);
        fclose(f);
    }
    return until_missed(j, EACH, WORLD - 1);
}

typedef struct test {
    const char *name;
    int (*run)(job *j);
    bool breaks; /* leaves groups that are good for closing only */
} test;

static const test tests[] = {{"messages", messages, false},
                             {"remap", remap, false},
                             {"collectives", collectives, false},
                             {"killed", killed, true},
                             {"lost", lost, true}};

/* ---- a rank ---- */

static int rank_main(sn_boot *boot, int rank, int machine, void *ctx)
{
    const pair *args = ctx;
    const test *t = &tests[args->port - PORT];
    char name[16];
    int members[WORLD], bad;
    job j = {.args = args, .rank = rank};
    for (int i = 0; i < WORLD; i++)
        members[i] = i;
    snprintf(name, sizeof name, "m%d", machine);
    sn_net_opts opts = {.host_name = name,
                        .transports = args->transports,
                        .deadline = soon() + args->within,
                        .detect_ns = 2 * SN_SEC}; /* emulated processors stall for long */
    RANK_OK(sn_net_open(boot, &opts, &j.net));
    RANK_CHECK(sn_net_hosts(j.net) == MACHINES && sn_net_same_host(j.net, rank ^ 1));
    sn_coll_opts more = {.arena_bytes = 8 << 20, .stage_bytes = 1 << 20, .deadline = soon()};
    RANK_OK(sn_coll_open(j.net, &more, &j.c));
    RANK_OK(sn_coll_group_create(j.c, "all", members, WORLD, soon(), &j.all));
    bad = t->run(&j);
    if (!bad && !t->breaks)
        bad = sum(&j, (float[1]){1}, (float[1]){0}, 1) != SN_OK; /* nobody leaves early */
    sn_coll_group_free(j.all);
    sn_coll_close(j.c);
    sn_net_close(j.net);
    return bad;
}

/* ---- finding each other ---- */

static struct sockaddr_in address(const pair *args)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t) args->port)};
    inet_pton(AF_INET, args->server, &at.sin_addr);
    return at;
}

static int connect_within(const pair *args, int rank)
{
    struct sockaddr_in at = address(args);
    uint32_t me = (uint32_t) rank;
    for (sn_time limit = sn_now() + args->within; sn_now() < limit;) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, (struct sockaddr *) &at, sizeof at) == 0 &&
            send(fd, &me, sizeof me, MSG_NOSIGNAL) == sizeof me)
            return fd;
        close(fd);
        sn_sleep_until(sn_now() + 20 * SN_MS); /* the other machine is not there yet */
    }
    fprintf(stderr, "rank %d: nobody answers on %s port %d\n", rank, args->server, args->port);
    return -1;
}

static _Noreturn void child(const pair *args, int rank)
{
    sn_boot *boot = NULL;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int fd = connect_within(args, rank), bad = 1;
    if (fd >= 0 && sn_boot_socket(fd, rank, WORLD, &boot) == SN_OK)
        bad = rank_main(boot, rank, args->machine, (void *) args);
    sn_boot_free(boot);
    fflush(NULL);
    _exit(bad);
}

static int listen_on(const pair *args)
{
    struct sockaddr_in at = address(args);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *) &at, sizeof at) || listen(fd, WORLD)) {
        fprintf(stderr, "cannot listen on %s port %d: %s\n", args->server, args->port,
                strerror(errno));
        exit(1);
    }
    return fd;
}

/* A machine that vanishes closes nothing: ask it every second whether it is there. */
static void watch(int fd)
{
    int one = 1, tries = 3, ms = 4000;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &tries, sizeof tries);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms,
               sizeof ms); /* also where it owes an answer */
}

/* Take the connection of every rank; false when some did not come in time. */
static bool accept_all(const pair *args, int door, int *fd)
{
    sn_time limit = sn_now() + args->within;
    int n = 0;
    while (n < WORLD && sn_now() < limit) {
        struct pollfd p = {.fd = door, .events = POLLIN};
        int got = poll(&p, 1, 100) == 1 ? accept(door, NULL, NULL) : -1;
        uint32_t rank = WORLD;
        struct timeval second = {.tv_sec = 1};
        if (got < 0)
            continue;
        watch(got);
        setsockopt(got, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second);
        if (recv(got, &rank, sizeof rank, MSG_WAITALL) == sizeof rank && rank < WORLD &&
            fd[rank] < 0) {
            fd[rank] = got;
            n++;
        } else {
            close(got);
        }
    }
    close(door);
    return n == WORLD;
}

static bool serve(const pair *args, int door)
{
    int fd[WORLD] = {-1, -1, -1, -1};
    sn_ranks ranks = {.world = WORLD, .fd = fd};
    bool met = accept_all(args, door, fd);
    if (!met)
        fprintf(stderr, "the ranks did not all come in time\n");
    bool ended = met && sn_ranks_serve(&ranks, sn_now() + 60 * SN_SEC);
    if (met && !ended)
        fprintf(stderr, "ranks are still there after 60 s\n");
    for (int r = 0; r < WORLD; r++)
        if (fd[r] >= 0)
            close(fd[r]);
    return ended;
}

static bool parse(int n, char **text, pair *ret)
{
    *ret = (pair){.server = "10.77.0.1", .transports = "rc", .within = 30 * SN_SEC};
    if (n < 3 || (strcmp(text[1], "0") && strcmp(text[1], "1")))
        return false;
    ret->machine = atoi(text[1]);
    ret->what = text[2];
    for (size_t k = 0; k < SN_COUNT(tests); k++)
        if (!strcmp(tests[k].name, ret->what))
            ret->port = PORT + (int) k;
    for (int i = 3; i + 1 < n; i += 2) {
        if (!strcmp(text[i], "--server"))
            ret->server = text[i + 1];
        else if (!strcmp(text[i], "--transports"))
            ret->transports = text[i + 1];
        else if (!strcmp(text[i], "--ready"))
            ret->ready = text[i + 1];
        else if (!strcmp(text[i], "--within"))
            ret->within = atoi(text[i + 1]) * SN_SEC;
        else
            return false;
    }
    return ret->port != 0 && n % 2;
}

int main(int n, char **text)
{
    pair args;
    pid_t pid[EACH];
    if (!parse(n, text, &args)) {
        fprintf(stderr, "usage: test_rdma_pair 0|1 CASE [--server IP] [--transports T] "
                        "[--ready FILE] [--within SECONDS]\n");
        return 2;
    }
    int door = args.machine == 0 ? listen_on(&args) : -1;
    for (int i = 0; i < EACH; i++) {
        pid[i] = fork();
        if (pid[i] == 0)
            child(&args, args.machine * EACH + i);
    }
    int bad = args.machine == 0 && !serve(&args, door);
    for (int i = 0; i < EACH; i++) {
        int how;
        waitpid(pid[i], &how, 0);
        bool died = WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL && tests[args.port - PORT].breaks;
        bad |= !(WIFEXITED(how) && WEXITSTATUS(how) == 0) && !died;
    }
    return bad;
}
