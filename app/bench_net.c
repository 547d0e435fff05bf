/* SPDX-License-Identifier: Apache-2.0
 *
 * The ways between two ranks: across hosts (UCX over the loopback's TCP, the ranks are hosts that
 * share no memory) beside a bare TCP socket, and inside a host (shared segments) beside a bare
 * spinning loop and a bare copy. */
#include "bench.h"
#include "bench_world.h"

#include "gmem/gmem.h"
#include "os/os.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { NET_LATENCY, NET_BANDWIDTH, FLAG_LATENCY, PEER_COPY, WINDOW_PUT };
enum { ASK_OURS = 1, ASK_BOUND };
enum { ROUNDS = 200, BLOCKS = 8, BLOCK = 1 << 20, COPIES = 100 };
enum {
    PAGE = 4096,
    APART = 1088
}; /* source and target must not lie alike in their pages: that stalls a copy */

typedef struct pair_shared {
    int what;
    int socket[2];
    bench_barrier barrier;
    sn_flag_line flag[2];
} pair_shared;

typedef struct pair_rank {
    pair_shared *s;
    int me;
    uint32_t round, bare;
    sn_net *net;
    sn_segment *seg;
    sn_window *win;
    void *memory; /* private */
    char *block;  /* in it, BLOCK bytes */
} pair_rank;

/* ---- a TCP connection with itself ---- */

static int connect_both(int listener, int *ret)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    if (bind(listener, (struct sockaddr *) &at, len) || listen(listener, 1) ||
        getsockname(listener, (struct sockaddr *) &at, &len))
        return -1;
    ret[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (ret[0] < 0 || connect(ret[0], (struct sockaddr *) &at, len))
        return -1;
    ret[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    return ret[1] < 0 ? -1 : 0;
}

static sn_status tcp_pair(int ret[2])
{
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    ret[0] = ret[1] = -1;
    int bad = listener < 0 || connect_both(listener, ret);
    int why = errno;
    if (listener >= 0)
        close(listener);
    if (bad)
        return sn_fail(SN_EIO, "a TCP connection over the loopback: %s", strerror(why));
    for (int i = 0; i < 2; i++)
        setsockopt(ret[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return SN_OK;
}

static bool move(int fd, char *data, size_t bytes, bool out, int flags)
{
    while (bytes) {
        ssize_t n =
            out ? send(fd, data, bytes, flags | MSG_NOSIGNAL) : recv(fd, data, bytes, flags);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return false;
        data += SN_MAX(n, 0);
        bytes -= (size_t) SN_MAX(n, 0);
    }
    return true;
}

/* Half a round trip of 8 bytes, or seconds of one block with an answer at the end; both spinning.
 */
static sn_status bare_socket(pair_rank *r, double *ret)
{
    int fd = r->s->socket[r->me];
    bool latency = r->s->what == NET_LATENCY, fine = true;
    int rounds = latency ? ROUNDS : BLOCKS;
    size_t bytes = latency ? 8 : BLOCK;
    sn_time t = sn_now();
    for (int i = 0; i < rounds && fine; i++) {
        fine = move(fd, r->block, bytes, r->me == 0, MSG_DONTWAIT);
        if (fine && (latency || i == rounds - 1))
            fine = move(fd, r->block, latency ? bytes : 1, r->me != 0, MSG_DONTWAIT);
    }
    *ret = (double) (sn_now() - t) * 1e-9 / rounds / (latency ? 2 : 1);
    return fine ? SN_OK : sn_fail(SN_EIO, "the TCP connection failed: %s", strerror(errno));
}

/* ---- ours ---- */

static sn_status measure_net(pair_rank *r, double *ret)
{
    double latency_ns, bytes_per_s;
    SN_TRY(sn_net_measure(r->net, !r->me, sn_now() + 30 * SN_SEC, &latency_ns, &bytes_per_s));
    *ret = r->s->what == NET_LATENCY ? latency_ns * 1e-9 : BLOCK / bytes_per_s;
    return SN_OK;
}

/* Each waits for the other's flag and answers by raising its own. */
static sn_status ping_flags(pair_rank *r, double *ret)
{
    sn_flag_line *mine = sn_gmem_head(r->seg, r->me);
    sn_flag_line *theirs = sn_gmem_head(r->seg, !r->me);
    sn_time t = sn_now(), deadline = t + 30 * SN_SEC;
    for (int i = 0; i < ROUNDS; i++) {
        r->round++;
        if (r->me == 0)
            sn_gmem_store_u32(&theirs->word[0], r->round);
        SN_TRY(sn_gmem_wait_u32(r->net, &mine->word[0], r->round, deadline));
        if (r->me == 1)
            sn_gmem_store_u32(&theirs->word[0], r->round);
    }
    *ret = (double) (sn_now() - t) * 1e-9 / ROUNDS / 2;
    return SN_OK;
}

/* Each waits, with loads alone, for the number that the other puts, and puts it back. */
static sn_status ping_puts(pair_rank *r, double *ret)
{
    const uint64_t *mine = sn_window_base(r->win, r->me);
    sn_time t = sn_now(), deadline = t + 30 * SN_SEC;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t number = ++r->round;
        if (r->me == 0)
            SN_TRY(sn_window_put(r->win, 1, 0, &number, sizeof number, deadline));
        while (__atomic_load_n(mine, __ATOMIC_ACQUIRE) != number)
            SN_PAUSE();
        if (r->me == 1)
            SN_TRY(sn_window_put(r->win, 0, 0, &number, sizeof number, deadline));
    }
    *ret = (double) (sn_now() - t) * 1e-9 / ROUNDS / 2;
    return SN_OK;
}

static void bare_flags(pair_rank *r, double *ret)
{
    uint32_t *mine = r->s->flag[r->me].word, *theirs = r->s->flag[!r->me].word;
    sn_time t = sn_now();
    for (int i = 0; i < ROUNDS; i++) {
        r->bare++;
        if (r->me == 0)
            __atomic_store_n(theirs, r->bare, __ATOMIC_RELEASE);
        while (__atomic_load_n(mine, __ATOMIC_ACQUIRE) != r->bare)
            SN_PAUSE();
        if (r->me == 1)
            __atomic_store_n(theirs, r->bare, __ATOMIC_RELEASE);
    }
    *ret = (double) (sn_now() - t) * 1e-9 / ROUNDS / 2;
}

/* Rank 0 copies a block out of a part of the segment: the other's, or (the bound) its own. */
static void copy_block(pair_rank *r, int part, double *ret)
{
    const void *from = sn_gmem_base(r->seg, part);
    sn_time t = sn_now();
    for (int i = 0; i < COPIES && r->me == 0; i++) {
        memcpy(r->block, from, BLOCK);
        __asm__ volatile("" ::: "memory"); /* each copy is made */
    }
    *ret = (double) (sn_now() - t) * 1e-9 / COPIES;
}

static sn_status pair_step(void *state, int64_t arg, double ret[BENCH_VALUES])
{
    pair_rank *r = state;
    bench_barrier_wait(&r->s->barrier, 2);
    switch (r->s->what) {
    case FLAG_LATENCY:
        if (arg == ASK_OURS)
            return ping_flags(r, &ret[0]);
        bare_flags(r, &ret[0]);
        return SN_OK;
    case WINDOW_PUT:
        if (arg == ASK_OURS)
            return ping_puts(r, &ret[0]);
        bare_flags(r, &ret[0]);
        return SN_OK;
    case PEER_COPY:
        copy_block(r, arg == ASK_OURS, &ret[0]);
        return SN_OK;
    default:
        return arg == ASK_OURS ? measure_net(r, &ret[0]) : bare_socket(r, &ret[0]);
    }
}

static void pair_close(void *state)
{
    pair_rank *r = state;
    sn_window_free(r->win, sn_now() + 5 * SN_SEC);
    sn_gmem_free(r->seg);
    sn_net_close(r->net);
    free(r->memory);
    free(r);
}

static sn_status pair_open(sn_boot *boot, const bench_job *job, void **ret)
{
    static const int both[] = {0, 1};
    pair_rank *r = sn_alloc(sizeof *r);
    *ret = r;
    r->s = job->ctx;
    r->me = sn_boot_rank(boot);
    if (posix_memalign((void **) &r->memory, 4096, BLOCK + PAGE))
        return sn_fail(SN_ENOMEM, "no memory for a block");
    r->block = (char *) r->memory + APART;
    memset(r->block, 1, BLOCK);
    SN_TRY(bench_net_open(boot, job, &r->net));
    if (r->s->what < FLAG_LATENCY)
        return SN_OK;
    SN_TRY(sn_gmem_create(r->net, both, 2, BLOCK, sn_now() + 30 * SN_SEC, &r->seg));
    if (r->s->what == WINDOW_PUT)
        return sn_window_create(r->seg, NULL, 4096, sn_now() + 30 * SN_SEC, &r->win);
    memset(sn_gmem_base(r->seg, r->me), 1, BLOCK);
    return SN_OK;
}

/* ---- in the harness ---- */

static sn_status measure(const bench_case *c, bench_world *w, int pairs, bench_result *ret)
{
    double bound[BENCH_SAMPLES_MAX];
    SN_TRY(bench_world_ask(w, ASK_OURS));
    SN_TRY(bench_world_ask(w, ASK_BOUND));
    for (int i = 0; i < pairs; i++) {
        double v[2];
        for (int k = 0; k < 2; k++) {
            SN_TRY(bench_world_ask(w, k ? ASK_BOUND : ASK_OURS));
            double s = bench_world_value(w, 0, 0);
            v[k] = c->less_is_better ? s * 1e6 : BLOCK / s * 1e-9;
        }
        ret->sample[ret->samples++] = v[0];
        bound[i] = v[1];
    }
    ret->bound = bench_median(bound, pairs);
    return SN_OK;
}

static sn_status run_pair(const bench_case *c, const bench_opts *o, bench_result *ret)
{
    static const int apart[] = {0, 1};
    static const char *const note[] = {
        "half round trip of 8 B, UCX over the loopback's TCP, median of 200",
        "1 MiB messages, UCX over the loopback's TCP, median of 8",
        "half round trip of a flag in a shared segment, mean of 200",
        "1 MiB out of another rank's part of a segment; the bound copies its own; mean of 100",
        "half round trip of an sn_window_put of 8 B that the target polls for, mean of 200"};
    void *memory;
    bench_world *w = NULL;
    SN_TRY(bench_shared(sizeof(pair_shared), &memory));
    pair_shared *s = memory;
    *s = (pair_shared){.what = c->arg, .socket = {-1, -1}};
    bench_job job = {.world = 2,
                     .host = c->arg < FLAG_LATENCY ? apart : NULL,
                     .ctx = s,
                     .open = pair_open,
                     .step = pair_step,
                     .close = pair_close};
    sn_status status = c->arg < FLAG_LATENCY ? tcp_pair(s->socket) : SN_OK;
    if (status >= 0)
        status = bench_world_start(&job, &w);
    if (status >= 0)
        status = measure(c, w, o->pairs, ret);
    bench_world_stop(w);
    for (int i = 0; i < 2; i++)
        if (s->socket[i] >= 0)
            close(s->socket[i]);
    bench_shared_free(memory, sizeof *s);
    snprintf(ret->note, sizeof ret->note, "%s", note[c->arg]);
    return status;
}

const bench_case bench_net[] = {{.area = "net",
                                 .name = "net_latency_8B",
                                 .unit = "us",
                                 .less_is_better = true,
                                 .bound_name = "bare TCP socket",
                                 .arg = NET_LATENCY,
                                 .run = run_pair},
                                {.area = "net",
                                 .name = "net_bandwidth_1MiB",
                                 .unit = "GB/s",
                                 .bound_name = "bare TCP socket",
                                 .arg = NET_BANDWIDTH,
                                 .run = run_pair},
                                {.area = "net"}};

const bench_case bench_gmem[] = {{.area = "gmem",
                                  .name = "gmem_flag_latency",
                                  .unit = "us",
                                  .less_is_better = true,
                                  .bound_name = "bare spinning",
                                  .arg = FLAG_LATENCY,
                                  .run = run_pair},
                                 {.area = "gmem",
                                  .name = "gmem_copy_from_peer_1MiB",
                                  .unit = "GB/s",
                                  .bound_name = "copy from own part",
                                  .arg = PEER_COPY,
                                  .run = run_pair},
                                 {.area = "gmem",
                                  .name = "gmem_put_8B",
                                  .unit = "us",
                                  .less_is_better = true,
                                  .bound_name = "bare spinning",
                                  .bar = BENCH_VALUE_MAX,
                                  .bar_value = 0.3,
                                  .arg = WINDOW_PUT,
                                  .run = run_pair},
                                 {.area = "gmem"}};
