/* SPDX-License-Identifier: Apache-2.0
 *
 * The worker that test_pool starts: this same program with the word "worker", a mode, a directory.
 * It keeps its page as a real one does, finds its peers over the boot exchange, and then does what
 * its mode says: work, die, fail, stop, stand still, serve, fork. */
#ifndef SN_TEST_POOL_WORKER_H
#define SN_TEST_POOL_WORKER_H

#include "net/net.h"
#include "os/os.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define WORKER_STEPS 20
#define WORKER_OP "all_reduce #12 in group data[s0,t1], step 3"

typedef struct me {
    const char *mode, *dir, *host, *address;
    int rank, world, agent_fd, page_fd;
    bool resumed;
    sn_page *page;
    sn_boot *boot;
} me;

/* What each tells all: to see who is apart from whom. */
typedef struct card {
    uint64_t net, ipc, pid_ns;
    char host[32];
    int pid;
} card;

static me worker_words(int argc, char **argv)
{
    me m = {.mode = argv[2], .dir = argv[3]};
    for (int i = 4; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        m.resumed |= !strcmp(argv[i], "--resume");
        if (!strcmp(argv[i], "--rank"))
            m.rank = atoi(value);
        if (!strcmp(argv[i], "--world"))
            m.world = atoi(value);
        if (!strcmp(argv[i], "--agent-fd"))
            m.agent_fd = atoi(value);
        if (!strcmp(argv[i], "--page-fd"))
            m.page_fd = atoi(value);
        if (!strcmp(argv[i], "--host"))
            m.host = value;
        if (!strcmp(argv[i], "--bind-address"))
            m.address = value;
    }
    return m;
}

static int worker_fail(me *m, sn_status status)
{
    fprintf(stderr, "rank %d: %s\n", m->rank, sn_errmsg());
    sn_page_fail(m->page, status, sn_errmsg());
    return 1;
}

static uint64_t worker_ns(const char *path)
{
    struct stat st;
    return stat(path, &st) ? 0 : st.st_ino;
}

/* Every card tells where it lives; ranks of other hosts must live elsewhere when apart. */
static sn_status worker_meet(me *m)
{
    const void *const *blob;
    const size_t *bytes;
    card mine = {.net = worker_ns("/proc/self/ns/net"),
                 .ipc = worker_ns("/proc/self/ns/ipc"),
                 .pid_ns = worker_ns("/proc/self/ns/pid"),
                 .pid = getpid()};
    snprintf(mine.host, sizeof mine.host, "%s", m->host);
    SN_TRY(sn_boot_allgather(m->boot, &mine, sizeof mine, sn_now() + 5 * SN_SEC, &blob, &bytes));
    for (int r = 0; r < m->world; r++) {
        card other, *c = &other; /* blobs lie at any address */
        memcpy(c, blob[r], sizeof other);
        bool same = !strcmp(c->host, mine.host);
        bool apart = c->net != mine.net && c->ipc != mine.ipc && c->pid_ns != mine.pid_ns;
        if (m->address && same == apart)
            return sn_fail(SN_EFAIL, "rank %d on %s and rank %d on %s: apart %d", m->rank, m->host,
                           r, c->host, apart);
        if (!m->address && c->net != mine.net)
            return sn_fail(SN_EFAIL, "rank %d has a network of its own", r);
    }
    return SN_OK;
}

/* Rank 0 of h0 listens on its address; everybody else connects, also from another host. */
static sn_status worker_tcp(me *m)
{
    const void *const *blob;
    const size_t *bytes;
    sn_time limit = sn_now() + 5 * SN_SEC;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(7001)};
    inet_pton(AF_INET, "10.77.0.1", &at.sin_addr);
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (m->rank == 0 && (bind(s, (struct sockaddr *) &at, sizeof at) || listen(s, 16)))
        return sn_fail(SN_EIO, "cannot listen: %s", strerror(errno));
    SN_TRY(sn_boot_allgather(m->boot, "", 0, limit, &blob, &bytes));
    int sum = 0;
    for (int i = 1; m->rank == 0 && i < m->world; i++) {
        int c = accept(s, NULL, NULL), rank = 0;
        if (recv(c, &rank, sizeof rank, MSG_WAITALL) != sizeof rank)
            return sn_fail(SN_EIO, "cannot receive: %s", strerror(errno));
        sum += rank;
        close(c);
    }
    if (m->rank == 0 && sum != m->world * (m->world - 1) / 2)
        return sn_fail(SN_EFAIL, "the sum is %d", sum);
    if (m->rank && (connect(s, (struct sockaddr *) &at, sizeof at) ||
                    send(s, &m->rank, sizeof m->rank, MSG_NOSIGNAL) != sizeof m->rank))
        return sn_fail(SN_EIO, "cannot reach 10.77.0.1: %s", strerror(errno));
    close(s);
    return sn_boot_allgather(m->boot, "", 0, limit, &blob, &bytes);
}

/* h0 has a System V segment and a file in /dev/shm; h1 must see neither, nor foreign processes. */
static sn_status worker_ipc(me *m)
{
    enum { KEY = 0x534e7654 };
    const void *const *blob;
    const size_t *bytes;
    sn_time limit = sn_now() + 5 * SN_SEC;
    int id = m->rank == 0 ? shmget(KEY, 4096, IPC_CREAT | 0600) : 0;
    if (id < 0)
        return sn_fail(SN_EIO, "shmget: %s", strerror(errno));
    if (m->rank == 0)
        SN_TRY(sn_file_write("/dev/shm/sn-test-pool", "x", 1));
    SN_TRY(sn_boot_allgather(m->boot, "", 0, limit, &blob, &bytes));
    bool segment = shmget(KEY, 0, 0) >= 0, file = access("/dev/shm/sn-test-pool", F_OK) == 0;
    bool expected = !strcmp(m->host, "h0");
    if (segment != expected || file != expected)
        return sn_fail(SN_EFAIL, "rank %d on %s sees segment %d file %d", m->rank, m->host, segment,
                       file);
    char comm[64] = "";
    FILE *f = fopen("/proc/1/comm", "re");
    if (!f || !fgets(comm, sizeof comm, f) || strncmp(comm, "sn-h", 4))
        return sn_fail(SN_EFAIL, "rank %d: process 1 is %s", m->rank, comm);
    fclose(f);
    SN_TRY(sn_boot_allgather(m->boot, "", 0, limit, &blob, &bytes));
    if (m->rank == 0)
        shmctl(id, IPC_RMID, NULL);
    return SN_OK;
}

static void worker_beat(me *m)
{
    __atomic_fetch_add(&m->page->beat, 1, __ATOMIC_RELAXED);
    sn_sleep_until(sn_now() + 2 * SN_MS); /* a step's work */
}

static bool worker_called_off(const me *m)
{
    return __atomic_load_n(&m->page->epoch, __ATOMIC_ACQUIRE) != 0;
}

static bool is_mode(const me *m, const char *mode)
{
    return !strcmp(m->mode, mode);
}

/* Accidents of the first attempt (or of all: "fail", "final"). */
static int worker_accident(me *m)
{
    if (is_mode(m, "fail") && m->rank == 0)
        return worker_fail(m, sn_fail(SN_EIO, "the disk is gone"));
    if (is_mode(m, "final") && m->rank == 2)
        return worker_fail(m, sn_fail(SN_EFIT, "needs 9 GiB, 2 GiB are there"));
    if (m->resumed || m->rank != 3)
        return 0;
    if (is_mode(m, "mute")) /* groups: nobody is left who could say how rank 3 ended */
        kill(getppid(), SIGSTOP);
    if (is_mode(m, "die") || is_mode(m, "mute"))
        raise(SIGKILL);
    if (is_mode(m, "stop"))
        raise(SIGSTOP);
    if (is_mode(m, "host")) {
        if (fork() == 0)
            for (;;)
                pause();
        kill(getppid(), SIGKILL); /* groups: the agent itself */
    }
    while (is_mode(m, "stuck") && !worker_called_off(m))
        worker_beat(m);
    return 0;
}

static int worker_steps(me *m)
{
    bool endless = is_mode(m, "forever") || (is_mode(m, "long") && !m->resumed);
    int64_t steps = is_mode(m, "brief") ? 1 : WORKER_STEPS;
    int64_t accident = is_mode(m, "fail") ? 1 : 3; /* at 1 no attempt can get further */
    for (int64_t step = 1; step <= steps || endless; step++) {
        worker_beat(m);
        if (__atomic_load_n(&m->page->stop, __ATOMIC_ACQUIRE))
            break;
        if (worker_called_off(m))
            return worker_fail(m, sn_fail(SN_EEPOCH, "called off, victim %d", m->page->victim));
        if (step == accident) {
            sn_page_op(m->page, WORKER_OP, 0);
            int code = worker_accident(m);
            if (code)
                return code;
        }
        while (m->rank != 3 && is_mode(m, "stuck") && !m->resumed && step == 4 &&
               !worker_called_off(m))
            worker_beat(m); /* waits for rank 3 */
        __atomic_store_n(&m->page->step, step, __ATOMIC_RELEASE);
    }
    return 0;
}

static sn_status worker_begin(me *m)
{
    SN_TRY(sn_page_map(m->page_fd, &m->page));
    sn_page_set_state(m->page, SN_WORKER_JOINING);
    if (is_mode(m, "garbage") && m->rank == 1 && !m->resumed)
        send(m->agent_fd, "GET / HTTP/1.1\r\nHost: example.org\r\n\r\n", 40, MSG_NOSIGNAL);
    SN_TRY(sn_boot_socket(m->agent_fd, m->rank, m->world, &m->boot));
    SN_TRY(worker_meet(m));
    if (is_mode(m, "apart")) {
        SN_TRY(worker_tcp(m));
        SN_TRY(worker_ipc(m));
    }
    return SN_OK;
}

static int worker_main(int argc, char **argv)
{
    me m = worker_words(argc, argv);
    printf("rank %d of %d on %s, %s, threads %s%s\n", m.rank, m.world, m.host,
           m.address ? m.address : "no address", getenv("OMP_NUM_THREADS"),
           m.resumed ? ", resumed" : "");
    fflush(stdout);
    sn_status status = worker_begin(&m);
    if (status < 0)
        return worker_fail(&m, status);
    if (is_mode(&m, "orphan") && fork() == 0) { /* one in the group, one that left it */
        if (fork() == 0)
            setsid();
        for (;;)
            pause();
    }
    sn_page_set_state(m.page, SN_WORKER_TRAINING);
    int code = worker_steps(&m);
    if (code == 0)
        sn_page_set_state(m.page, SN_WORKER_DONE);
    sn_boot_free(m.boot);
    sn_page_unmap(m.page);
    return code;
}

#endif
