/* SPDX-License-Identifier: Apache-2.0
 *
 * Nets of forked ranks: messages, groups, descriptors, and peers that die. */
#include "net/net.h"
#include "unit/sn_ranks.h"
#include "unit/sn_test.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>

#define SOON (sn_now() + *sn_ranks_patience() * 10 * SN_SEC)

static const int two_hosts[] = {0, 0, 1, 1};
static const int one_host[] = {0, 0, 0, 0};
static const int far[] = {0, 1};
static const int uneven[] = {0, 1, 1, 2, 1, 0};

static int rank_queries(sn_boot *boot, int rank, int host, void *ctx)
{
    sn_net *net;
    RANK_OK(sn_rank_open(boot, host, NULL, &net));
    RANK_CHECK(sn_net_rank(net) == rank && sn_net_world(net) == 6 && sn_net_hosts(net) == 3);
    for (int r = 0; r < 6; r++) {
        char name[8];
        snprintf(name, sizeof name, "h%d", uneven[r]);
        RANK_CHECK(sn_net_same_host(net, r) == (uneven[r] == host));
        RANK_CHECK(sn_net_host_index(net, r) == uneven[r]);
        RANK_CHECK(strcmp(sn_net_host_name(net, r), name) == 0);
    }
    RANK_OK(sn_net_alive(net));
    RANK_OK(sn_net_look(net));
    sn_net_close(net);
    return 0;
}

static void test_queries(void **state)
{
    assert_int_equal(sn_ranks_run(6, uneven, rank_queries, NULL, SOON), 0);
}

static int sizes[] = {0, 1, 7, 64, 1000, 4096, 8191, 65536, 65537, 262144, 1 << 20};

static void fill(char *buf, size_t bytes, int salt)
{
    for (size_t i = 0; i < bytes; i++)
        buf[i] = (char) (i * 7 + (size_t) salt);
}

static int rank_sizes(sn_boot *boot, int rank, int host, void *ctx)
{
    sn_net *net;
    RANK_OK(sn_rank_open(boot, host, NULL, &net));
    int peer = (rank + 2) % 4;
    char *out = malloc(1 << 20), *in = malloc(1 << 20), *want = malloc(1 << 20);
    for (size_t k = 0; k < SN_COUNT(sizes); k++) {
        size_t n = (size_t) sizes[k];
        sn_net_req *s, *r;
        fill(out, n, rank + (int) k);
        fill(want, n, peer + (int) k);
        memset(in, 0, n);
        RANK_OK(sn_net_recv(net, peer, 9, in, n, &r));
        RANK_OK(sn_net_send(net, peer, 9, out, n, &s));
        RANK_OK(sn_net_wait(net, r, SOON, "recv"));
        RANK_OK(sn_net_wait(net, s, SOON, "send"));
        RANK_CHECK(memcmp(in, want, n) == 0);
    }
    sn_net_req *r;
    RANK_FAILS(sn_net_send(net, rank ^ 1, 1, out, 1, &r), SN_ENOTSUP, "on my host");
    RANK_FAILS(sn_net_send(net, rank, 1, out, 1, &r), SN_ENOTSUP, "on my host");
    RANK_FAILS(sn_net_recv(net, 4, 1, out, 1, &r), SN_EINVAL, "rank 4");
    RANK_FAILS(sn_net_send(net, peer, UINT64_C(1) << 40, out, 1, &r), SN_EINVAL, "bits");
    free(out);
    free(in);
    free(want);
    sn_net_close(net);
    return 0;
}

static void test_sizes(void **state)
{
    assert_int_equal(sn_ranks_run(4, two_hosts, rank_sizes, NULL, SOON), 0);
}

/* ---- order, mismatch, limits ---- */

enum { MANY = 200 };

static int rank_order(sn_boot *boot, int rank, int host, void *ctx)
{
    sn_net *net;
    RANK_OK(sn_rank_open(boot, host, NULL, &net));
    int out[2][MANY], in[2][MANY];
    sn_net_req *s[2][MANY], *r[2][MANY];
    for (int i = 0; i < MANY; i++)
        for (int t = 0; t < 2; t++) {
            out[t][i] = rank * 1000000 + t * 1000 + i;
            RANK_OK(sn_net_send(net, 1 - rank, (uint64_t) t, &out[t][i], sizeof(int), &s[t][i]));
        }
    for (int t = 1; t >= 0; t--) /* the tag sent second is taken first */
        for (int i = 0; i < MANY; i++)
            RANK_OK(sn_net_recv(net, 1 - rank, (uint64_t) t, &in[t][i], sizeof(int), &r[t][i]));
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < MANY; i++) {
            RANK_OK(sn_net_wait(net, r[t][i], SOON, "recv"));
            RANK_OK(sn_net_wait(net, s[t][i], SOON, "send"));
            RANK_CHECK(in[t][i] == (1 - rank) * 1000000 + t * 1000 + i);
        }
    RANK_CHECK(sn_net_pending(net) == 0);
    sn_net_close(net);
    return 0;
}

static void test_order(void **state)
{
    assert_int_equal(sn_ranks_run(2, far, rank_order, NULL, SOON), 0);
}

/* What has been sent arrives though the sender does not come back to the net: the sender stops when
 * the kernel takes no more, and only what it was told is sent is received. */
enum { GONE_MESSAGES = 20000, GONE_BYTES = 4000, GONE_TURNS = 2000 };

typedef struct gone {
    int sent; /* as the sender was told, when it stops */
    int got;
} gone;

static int rank_gone_receives(sn_net *net, gone *g, char *buf)
{
    int sent;
    while ((sent = __atomic_load_n(&g->sent, __ATOMIC_ACQUIRE)) == 0)
        sched_yield();
    RANK_CHECK(sent < GONE_MESSAGES);
    for (int i = 0; i <= sent; i++) {
        sn_net_req *r;
        if (i == sent)
            __atomic_store_n(&g->got, 1, __ATOMIC_RELEASE);
        RANK_OK(sn_net_recv(net, 0, 1, buf, GONE_BYTES, &r));
        RANK_OK(sn_net_wait(net, r, SOON, "recv"));
    }
    return 0;
}

static int rank_gone_sends(sn_net *net, gone *g, const char *buf)
{
    sn_net_req *s = NULL;
    sn_status status = SN_OK;
    int i = -1;
    while (status == SN_OK && ++i < GONE_MESSAGES) {
        RANK_OK(sn_net_send(net, 1, 1, buf, GONE_BYTES, &s));
        status = sn_net_test(net, s);
        for (int turn = 0; status == SN_PENDING && turn < GONE_TURNS; turn++)
            status = sn_net_test(net, s);
    }
    RANK_CHECK(status == SN_PENDING);
    __atomic_store_n(&g->sent, i, __ATOMIC_RELEASE);
    for (sn_time limit = SOON; !__atomic_load_n(&g->got, __ATOMIC_ACQUIRE); sched_yield())
        RANK_CHECK(sn_now() < limit);
    RANK_OK(sn_net_wait(net, s, SOON, "send"));
    return 0;
}

static int rank_gone(sn_boot *boot, int rank, int host, void *ctx)
{
    static char buf[GONE_BYTES];
    sn_net *net;
    RANK_OK(sn_rank_open(boot, host, NULL, &net));
    int bad = rank ? rank_gone_receives(net, ctx, buf) : rank_gone_sends(net, ctx, buf);
    sn_net_close(net);
    return bad;
}

static void test_gone(void **state)
{
    for (int k = 0; k < 3; k++)
        assert_int_equal(sn_ranks_run(2, far, rank_gone, sn_ranks_shared(sizeof(gone)), SOON), 0);
}

static int rank_mismatch(sn_boot *boot, int rank, int host, void *ctx)
{
    static const int sent[] = {8, 8, 0, 100000, 100000, 8}, wanted[] = {7, 9, 1, 8, 100001, 8};
    static char out[100001], in[100001];
    sn_net *net;
    RANK_OK(sn_rank_open(boot, host, NULL, &net));
    for (size_t k = 0; k < SN_COUNT(sent); k++) {
        sn_net_req *q;
        char words[64];
        snprintf(words, sizeof words, "rank 1 (h1) sent %d bytes where rank 0 (h0) expected %d",
                 sent[k], wanted[k]);
        if (rank == 1) {
            RANK_OK(sn_net_send(net, 0, 5, out, (size_t) sent[k], &q));
            RANK_OK(sn_net_wait(net, q, SOON, "send"));
            continue;
        }
        RANK_OK(sn_net_recv(net, 1, 5, in, (size_t) wanted[k], &q));
        if (sent[k] == wanted[k])
            RANK_OK(sn_net_wait(net, q, SOON, "recv"));
        else
            RANK_FAILS(sn_net_wait(net, q, SOON, "recv #3"), SN_EMISMATCH, words);
    }
    sn_net_close(net);
    return 0;
}

static void test_mismatch(void **state)
{
    assert_int_equal(sn_ranks_run(2, far, rank_mismatch, NULL, SOON), 0);
}

/* The pool's limit, cancelling, and that a cancelled receive takes no message. */
static int rank_pool(sn_boot *boot, int rank, int host, void *ctx)
{
    static sn_net_req *q[1024], *extra;
    static int in[1024];
    sn_net *net;
    RANK_OK(sn_rank_open(boot, host, NULL, &net));
    int peer = 1 - rank, one = 41, got = 0;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 1024; i++)
            RANK_OK(sn_net_recv(net, peer, 3, &in[i], sizeof(int), &q[i]));
        RANK_CHECK(sn_net_recv(net, peer, 3, &in[0], sizeof(int), &extra) == SN_AGAIN);
        RANK_CHECK(sn_net_pending(net) == 1024);
        RANK_CHECK(sn_net_test(net, q[0]) == SN_PENDING);
        for (int i = 0; i < 1024; i++)
            sn_net_cancel(net, q[i]);
        RANK_CHECK(sn_net_pending(net) == 0);
        int members[] = {0, 1}, both[2]; /* nobody sends before everybody has cancelled */
        RANK_OK(sn_net_gather(net, members, 2, &rank, sizeof rank, SOON, both));
        RANK_OK(sn_net_send(net, peer, 3, &one, sizeof one, &q[0]));
        RANK_OK(sn_net_recv(net, peer, 3, &got, sizeof got, &q[1]));
        RANK_OK(sn_net_wait(net, q[0], SOON, "send"));
        RANK_OK(sn_net_wait(net, q[1], SOON, "recv"));
        RANK_CHECK(got == 41);
        RANK_OK(sn_net_gather(net, members, 2, &rank, sizeof rank, SOON, both));
    }
    sn_net_close(net);
    return 0;
}

static void test_pool(void **state)
{
    assert_int_equal(sn_ranks_run(2, far, rank_pool, NULL, SOON), 0);
}

/* Large messages that nobody takes are cancelled, at once or at their deadline, and the connection
 * goes on; what was sent before and after with the same tag is not touched. */
static int rank_revoke(sn_boot *boot, int rank, int host, void *ctx)
{
    enum { LARGE = 4 << 20, ROUNDS = 10 };
    sn_net *net;
    sn_net_req *q[2];
    int members[] = {0, 1}, both[2], before = 17, after = 19, in[2] = {0}, *sent = ctx;
    char *data = calloc(1, LARGE);
    RANK_OK(sn_rank_open(boot, host, NULL, &net));
    for (int k = 0; k < ROUNDS; k++) {
        uint64_t tag = k < 5 ? 5 : 40 + (uint64_t) k;
        if (rank == 0) {
            RANK_OK(sn_net_send(net, 1, tag + 1, &before, sizeof before, &q[0]));
            RANK_OK(sn_net_send(net, 1, tag, data, LARGE, &q[1]));
            RANK_OK(sn_net_wait(net, q[0], SOON, "send"));
            if (k % 2)
                sn_net_cancel(net, q[1]);
            else
                RANK_FAILS(sn_net_wait(net, q[1], sn_now() + 5 * SN_MS, "send"), SN_ETIME,
                           "nothing taken by rank 1 (h1)");
            memset(data, k, LARGE); /* it is ours again */
            RANK_OK(sn_net_alive(net));
            RANK_OK(sn_net_send(net, 1, tag, &after, sizeof after, &q[0]));
            RANK_OK(sn_net_wait(net, q[0], SOON, "send"));
            __atomic_store_n(sent, k + 1, __ATOMIC_RELEASE);
        }
        while (rank == 1 && __atomic_load_n(sent, __ATOMIC_ACQUIRE) <= k)
            sn_net_progress(net);
        if (rank == 1) {
            RANK_OK(sn_net_recv(net, 0, tag, &in[0], sizeof in[0], &q[0]));
            RANK_OK(sn_net_recv(net, 0, tag + 1, &in[1], sizeof in[1], &q[1]));
            RANK_OK(sn_net_wait(net, q[0], SOON, "recv"));
            RANK_OK(sn_net_wait(net, q[1], SOON, "recv"));
            RANK_CHECK(in[0] == 19 && in[1] == 17);
        }
        RANK_OK(sn_net_gather(net, members, 2, &rank, sizeof rank, SOON, both));
    }
    free(data);
    sn_net_close(net);
    return 0;
}

static void test_revoke(void **state)
{
    assert_int_equal(sn_ranks_run(2, far, rank_revoke, sn_ranks_shared(sizeof(int)), SOON), 0);
}

/* ---- waits end ---- */

static int rank_late(sn_boot *boot, int rank, int host, void *ctx)
{
    sn_net *net;
    sn_net_req *q;
    int in, members[] = {0, 1}, both[2];
    RANK_OK(sn_rank_open(boot, host, NULL, &net));
    if (rank == 0) {
        sn_time began = sn_now();
        RANK_OK(sn_net_recv(net, 1, 77, &in, sizeof in, &q));
        RANK_FAILS(sn_net_wait(net, q, began + 50 * SN_MS, "recv #7 of group data"), SN_ETIME,
                   "rank 0 (h0): recv #7 of group data: nothing from rank 1 (h1) for");
        RANK_CHECK(sn_now() - began >= 50 * SN_MS && sn_now() - began < 5 * SN_SEC);
        RANK_CHECK(strstr(sn_errmsg(), "tag 77"));
    }
    RANK_OK(sn_net_gather(net, members, 2, &rank, sizeof rank, SOON, both));
    sn_net_close(net);
    return 0;
}

static void test_late(void **state)
{
    assert_int_equal(sn_ranks_run(2, far, rank_late, NULL, SOON), 0);
}

/* A page as mon would make it. */
static sn_page *new_page(void)
{
    sn_page *page = sn_ranks_shared(SN_PAGE_BYTES);
    page->victim = -1;
    return page;
}

/* Rank 1 plays the launcher and changes rank 0's page while rank 0 waits. */
static int rank_page(sn_boot *boot, int rank, int host, void *ctx)
{
    sn_page *page = ctx;
    sn_net *net;
    sn_net_req *q;
    int in;
    RANK_OK(sn_rank_open(boot, host, rank == 0 ? page : NULL, &net));
    if (rank == 0) {
        RANK_OK(sn_net_recv(net, 1, 1, &in, sizeof in, &q));
        RANK_FAILS(sn_net_wait(net, q, SOON, "recv"), SN_EEPOCH, "rank 1 (h1) died");
        RANK_OK(sn_net_recv(net, 1, 1, &in, sizeof in, &q));
        RANK_FAILS(sn_net_wait(net, q, SOON, "recv"), SN_EEPOCH, "epoch 1");
        __atomic_store_n(&page->stop, 2, __ATOMIC_RELEASE);
        RANK_FAILS(sn_net_alive(net), SN_ECANCEL, "asked to stop");
        sn_time beat = __atomic_load_n(&page->beat_ns, __ATOMIC_RELAXED);
        RANK_CHECK(beat <= sn_now() && beat > sn_now() - 5 * SN_SEC);
    } else {
        for (uint64_t began = __atomic_load_n(&page->beat, __ATOMIC_ACQUIRE);
             __atomic_load_n(&page->beat, __ATOMIC_ACQUIRE) < began + 3;)
            usleep(1000); /* so it beats while it waits */
        __atomic_store_n(&page->victim, 1, __ATOMIC_RELAXED);
        __atomic_store_n(&page->epoch, 1, __ATOMIC_RELEASE);
    }
    sn_net_close(net);
    return 0;
}

static void test_page(void **state)
{
    assert_int_equal(sn_ranks_run(2, far, rank_page, new_page(), SOON), 0);
}

static int rank_alone(sn_boot *boot, int rank, int host, void *ctx)
{
    sn_net *net;
    sn_page *page = ctx;
    int members[] = {0}, out, fd = open("/dev/null", O_RDONLY | O_CLOEXEC), got;
    RANK_OK(sn_rank_open(boot, host, page, &net));
    RANK_CHECK(sn_net_hosts(net) == 1 && sn_net_same_host(net, 0));
    RANK_OK(sn_net_gather(net, members, 1, &fd, sizeof fd, SOON, &out));
    RANK_CHECK(out == fd);
    RANK_OK(sn_net_share_fds(net, members, 1, fd, SOON, &got));
    RANK_CHECK(got != fd && close(got) == 0);
    while (!__atomic_load_n(&page->beat, __ATOMIC_ACQUIRE))
        usleep(1000);
    sn_net_progress(net);
    RANK_OK(sn_net_alive(net));
    sn_net_close(net);
    sn_net_close(NULL);
    return 0;
}

static void test_alone(void **state)
{
    assert_int_equal(sn_ranks_run(1, one_host, rank_alone, new_page(), SOON), 0);
}

/* ---- deaths ---- */

typedef struct death {
    const int *hosts;
    int victim;
    bool large;   /* while a large message is under way to it */
    sn_time died; /* by the victim */
    sn_time noticed[8];
} death;

/* The victim dies once everybody waits for it; each survivor is told who it was, and where. */
static int rank_death(sn_boot *boot, int rank, int host, void *ctx)
{
    death *d = ctx;
    sn_net *net;
    sn_net_req *q = NULL, *big = NULL;
    int in, members[] = {0, 1, 2, 3};
    char words[64], blobs[4], *data = calloc(1, 4 << 20);
    RANK_OK(sn_rank_open(boot, host, NULL, &net));
    RANK_OK(sn_net_gather(net, members, 4, "x", 1, SOON, blobs));
    if (rank == d->victim) {
        usleep(20000); /* likely, not surely, after the others began to wait: both must do */
        d->died = sn_now();
        sn_rank_die();
    }
    snprintf(words, sizeof words, "rank %d (h%d)", d->victim, d->hosts[d->victim]);
    sn_status status = SN_OK;
    if (sn_net_same_host(net, d->victim)) {
        status = sn_net_gather(net, members, 4, "y", 1, SOON, blobs);
    } else {
        if (d->large)
            status = sn_net_send(net, d->victim, 2, data, 4 << 20, &big);
        if (status >= 0)
            status = sn_net_recv(net, d->victim, 1, &in, sizeof in, &q);
        if (status >= 0)
            status = sn_net_wait(net, q, SOON, "recv");
        if (big)
            RANK_FAILS(sn_net_wait(net, big, SOON, "send"), SN_EPEER, words);
    }
    d->noticed[rank] = sn_now();
    RANK_CHECK(status == SN_EPEER && strstr(sn_errmsg(), words));
    RANK_FAILS(sn_net_alive(net), SN_EPEER, words);
    if (!sn_net_same_host(net, d->victim)) { /* and at once from now on */
        RANK_FAILS(sn_net_recv(net, d->victim, 1, &in, sizeof in, &q), SN_EPEER, words);
        RANK_FAILS(sn_net_send(net, d->victim, 1, &in, sizeof in, &q), SN_EPEER, words);
    }
    sn_net_close(net);
    free(data);
    return 0;
}

static void check_death(const int *hosts, int victim, bool large)
{
    death *d = sn_ranks_shared(sizeof *d);
    d->hosts = hosts;
    d->victim = victim;
    d->large = large;
    assert_int_equal(sn_ranks_run(4, hosts, rank_death, d, SOON), 0);
    for (int r = 0; r < 4; r++)
        if (r != victim)
            assert_true(d->noticed[r] - d->died < *sn_ranks_patience() * SN_SEC);
}

static void test_death_on_my_host(void **state)
{
    check_death(one_host, 0, false);
    check_death(one_host, 2, false);
}

static void test_death_across_hosts(void **state)
{
    static const int apart[] = {0, 1, 2, 3}, last_apart[] = {0, 0, 0, 1};
    check_death(apart, 1, false);
    check_death(apart, 2, true);
    check_death(last_apart, 3, false);
    check_death(two_hosts, 1, false);
    check_death(two_hosts, 3, true);
}

/* Leaving in order is no death, and what was sent before may still be taken. */
static int rank_leave(sn_boot *boot, int rank, int host, void *ctx)
{
    sn_net *net;
    sn_net_req *q;
    int value = 17, in = 0, in2;
    RANK_OK(sn_rank_open(boot, host, NULL, &net));
    if (rank == 1) {
        RANK_OK(sn_net_send(net, 0, 1, &value, sizeof value, &q));
        RANK_OK(sn_net_wait(net, q, SOON, "send"));
        sn_net_close(net);
        return 0;
    }
    if (rank == 0) {
        RANK_OK(sn_net_recv(net, 1, 2, &in2, sizeof in2, &q));
        RANK_FAILS(sn_net_wait(net, q, SOON, "recv"), SN_EPEER, "rank 1 (h1) has left");
        RANK_OK(sn_net_alive(net));
        RANK_OK(sn_net_recv(net, 1, 1, &in, sizeof in, &q));
        RANK_OK(sn_net_wait(net, q, SOON, "recv"));
        RANK_CHECK(in == 17);
        RANK_FAILS(sn_net_send(net, 1, 1, &in, sizeof in, &q), SN_EPEER, "has left");
    }
    RANK_OK(sn_net_alive(net));
    sn_net_close(net);
    return 0;
}

static void test_leave(void **state)
{
    static const int hosts[] = {0, 1, 1};
    assert_int_equal(sn_ranks_run(3, hosts, rank_leave, NULL, SOON), 0);
}

static int rank_told(sn_boot *boot, int rank, int host, void *ctx)
{
    sn_net *net;
    sn_net_req *q;
    int in, members[] = {0, 1}, both[2];
    RANK_OK(sn_rank_open(boot, host, NULL, &net));
    RANK_OK(sn_net_gather(net, members, 2, &rank, sizeof rank, SOON, both));
    RANK_OK(sn_net_recv(net, 1 - rank, 1, &in, sizeof in, &q));
    sn_net_peer_failed(net, 1 - rank, "it sends nonsense");
    sn_net_peer_failed(net, 1 - rank, "another reason");
    RANK_FAILS(sn_net_wait(net, q, SOON, "recv"), SN_EPEER, "it sends nonsense");
    RANK_FAILS(sn_net_alive(net), SN_EPEER, rank ? "rank 0 (h0)" : "rank 1 (h1)");
    sn_net_close(net);
    return 0;
}

static void test_told(void **state)
{
    assert_int_equal(sn_ranks_run(2, far, rank_told, NULL, SOON), 0);
}

/* ---- groups ---- */

static int rank_groups(sn_boot *boot, int rank, int host, void *ctx)
{
    static const int lists[][6] = {{0, 1, 2, 3, 4, 5}, {0, 2, 3, 5}, {1, 2, 4}, {0, 5}, {3}};
    static const int count[] = {6, 4, 3, 2, 1};
    static char blob[1024], all[6 * 1024];
    sn_net *net;
    RANK_OK(sn_rank_open(boot, host, NULL, &net));
    for (int round = 0; round < 10; round++)
        for (size_t k = 0; k < SN_COUNT(count); k++) {
            bool in = false;
            for (int i = 0; i < count[k]; i++)
                in |= lists[k][i] == rank;
            if (!in)
                continue;
            size_t n = (size_t[]){0, 1, 8, 1000, 1024}[(round + (int) k) % 5];
            memset(blob, rank + round, n);
            RANK_OK(sn_net_gather(net, lists[k], count[k], blob, n, SOON, all));
            for (int i = 0; i < count[k]; i++)
                for (size_t b = 0; b < n; b++)
                    RANK_CHECK(all[(size_t) i * n + b] == lists[k][i] + round);
        }
    RANK_FAILS(sn_net_gather(net, lists[0], 6, all, 1025, SOON, all), SN_EINVAL, "1024");
    RANK_FAILS(sn_net_gather(net, (int[]){1, 0}, 2, all, 1, SOON, all), SN_EINVAL, "sorted");
    RANK_FAILS(sn_net_gather(net, (int[]){6}, 1, all, 1, SOON, all), SN_EINVAL, "no rank");
    RANK_FAILS(sn_net_gather(net, (int[]){(rank + 1) % 6}, 1, all, 1, SOON, all), SN_EINVAL,
               "not among");
    sn_net_close(net);
    return 0;
}

static void test_groups(void **state)
{
    assert_int_equal(sn_ranks_run(6, uneven, rank_groups, NULL, SOON), 0);
}

/* Two ranks in different exchanges: said, not hung, in a host and across. */
static int rank_confused(sn_boot *boot, int rank, int host, void *ctx)
{
    static const int a[] = {0, 1}, b[] = {0, 1, 2};
    sn_net *net;
    char all[3];
    RANK_OK(sn_rank_open(boot, host, NULL, &net));
    if (rank == 0)
        RANK_CHECK(sn_net_gather(net, a, 2, "x", 1, SOON, all) < 0);
    if (rank == 1)
        RANK_FAILS(sn_net_gather(net, b, 3, "x", 1, SOON, all), SN_EMISMATCH, "rank 0");
    if (rank == 1)
        __atomic_store_n((int *) ctx, 1, __ATOMIC_RELEASE);
    while (rank == 2 && !__atomic_load_n((int *) ctx, __ATOMIC_ACQUIRE))
        usleep(1000);
    sn_net_close(net);
    return 0;
}

static void test_confused(void **state)
{
    static const int near3[] = {0, 0, 0}, far3[] = {0, 1, 2};
    assert_int_equal(sn_ranks_run(3, near3, rank_confused, sn_ranks_shared(sizeof(int)), SOON), 0);
    assert_int_equal(sn_ranks_run(3, far3, rank_confused, sn_ranks_shared(sizeof(int)), SOON), 0);
}

static int rank_fds(sn_boot *boot, int rank, int host, void *ctx)
{
    static const int members[] = {0, 1, 3};
    sn_net *net;
    int fds[3], ends[2];
    RANK_OK(sn_rank_open(boot, host, NULL, &net));
    RANK_CHECK(pipe2(ends, O_CLOEXEC) == 0);
    if (rank != 2) {
        RANK_OK(sn_net_share_fds(net, members, 3, ends[1], SOON, fds));
        for (int i = 0; i < 3; i++) { /* everybody writes into everybody's pipe */
            RANK_CHECK(fcntl(fds[i], F_GETFD) == FD_CLOEXEC);
            RANK_CHECK(write(fds[i], &rank, sizeof rank) == sizeof rank);
            close(fds[i]);
        }
        int sum = 0, from;
        for (int i = 0; i < 3; i++) {
            RANK_CHECK(read(ends[0], &from, sizeof from) == sizeof from);
            sum += from;
        }
        RANK_CHECK(sum == 4);
    }
    sn_net_close(net);
    return 0;
}

static int rank_fds_far(sn_boot *boot, int rank, int host, void *ctx)
{
    static const int members[] = {0, 1};
    sn_net *net;
    int fds[2] = {-5, -5};
    RANK_OK(sn_rank_open(boot, host, NULL, &net));
    RANK_FAILS(sn_net_share_fds(net, members, 2, 0, SOON, fds), SN_ENOTSUP, "another host");
    RANK_CHECK(fds[0] == -5);
    sn_net_close(net);
    return 0;
}

static void test_fds(void **state)
{
    assert_int_equal(sn_ranks_run(4, one_host, rank_fds, NULL, SOON), 0);
    assert_int_equal(sn_ranks_run(2, far, rank_fds_far, NULL, SOON), 0);
}

/* ---- the link, and what UCX must not do ---- */

static int rank_measure(sn_boot *boot, int rank, int host, void *ctx)
{
    double *shared = ctx, latency = 0, rate = 0;
    sn_net *net;
    RANK_OK(sn_rank_open(boot, host, NULL, &net));
    RANK_OK(sn_net_measure(net, 1 - rank, SOON, &latency, &rate));
    RANK_CHECK(latency > 100 && latency < 1e9 && rate > 1e6 && rate < 1e13);
    shared[2 * rank] = latency;
    shared[2 * rank + 1] = rate;
    sn_net_close(net);
    return 0;
}

static void test_measure(void **state)
{
    double *shared = sn_ranks_shared(4 * sizeof *shared);
    assert_int_equal(sn_ranks_run(2, far, rank_measure, shared, SOON), 0);
    assert_true(shared[0] == shared[2] && shared[1] == shared[3]);
}

static int rank_signals(sn_boot *boot, int rank, int host, void *ctx)
{
    static const int sigs[] = {SIGHUP,  SIGINT,  SIGTERM, SIGSEGV, SIGBUS,  SIGILL, SIGFPE,
                               SIGABRT, SIGCHLD, SIGPIPE, SIGUSR1, SIGUSR2, SIGALRM};
    struct sigaction before[SN_COUNT(sigs)], now;
    sn_net *net;
    for (size_t i = 0; i < SN_COUNT(sigs); i++)
        sigaction(sigs[i], NULL, &before[i]);
    RANK_OK(sn_rank_open(boot, host, NULL, &net));
    for (size_t i = 0; i < SN_COUNT(sigs); i++) {
        sigaction(sigs[i], NULL, &now);
        RANK_CHECK(now.sa_handler == before[i].sa_handler);
    }
    sn_net_close(net);
    return 0;
}

static void test_signals(void **state)
{
    assert_int_equal(sn_ranks_run(2, far, rank_signals, NULL, SOON), 0);
}

static int rank_no_address(sn_boot *boot, int rank, int host, void *ctx)
{
    sn_net *net;
    sn_net_opts opts = {.host_name = rank ? "h1" : "h0",
                        .bind_address = rank ? "203.0.113.77" : "127.0.0.1",
                        .deadline = SOON};
    /* Both fail, with the sentence of the one that cannot. */
    RANK_FAILS(sn_net_open(boot, &opts, &net), SN_ENOTFOUND, "203.0.113.77");
    RANK_CHECK(strstr(sn_errmsg(), "rank 1 (h1)"));
    return 0;
}

static int rank_transports(sn_boot *boot, int rank, int host, void *ctx)
{
    sn_net *net;
    sn_net_opts opts = {.host_name = rank ? "h1" : "h0", .transports = ctx, .deadline = SOON};
    const char *words = strcmp(ctx, "rc") == 0 ? "no RDMA device is active" : "are known";
    RANK_FAILS(sn_net_open(boot, &opts, &net), words[0] == 'n' ? SN_ENOTFOUND : SN_EINVAL, words);
    return 0;
}

static int rank_tcp(sn_boot *boot, int rank, int host, void *ctx)
{
    sn_net *net;
    sn_net_opts opts = {.host_name = rank ? "h1" : "h0", .transports = "tcp", .deadline = SOON};
    RANK_OK(sn_net_open(boot, &opts, &net));
    RANK_CHECK(strcmp(sn_net_transport(net), "tcp on lo") == 0);
    sn_net_close(net);
    return 0;
}

static void test_transports(void **state)
{
    assert_int_equal(sn_ranks_run(2, far, rank_transports, (char[]){"smoke"}, SOON), 0);
    assert_int_equal(sn_ranks_run(2, far, rank_transports, (char[]){"tcp,rd"}, SOON), 0);
    assert_int_equal(sn_ranks_run(2, far, rank_tcp, NULL, SOON), 0);
    if (access("/sys/class/infiniband", F_OK) != 0)
        assert_int_equal(sn_ranks_run(2, far, rank_transports, (char[]){"rc"}, SOON), 0);
}

static void test_no_address(void **state)
{
    assert_int_equal(sn_ranks_run(2, far, rank_no_address, NULL, SOON), 0);
}

int main(int argc, char **argv)
{
    sn_ranks_args(argc, argv);
    sn_test_args(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_queries),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_gone),
        cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_pool),
        cmocka_unit_test(test_revoke),
        cmocka_unit_test(test_late),
        cmocka_unit_test(test_page),
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_death_on_my_host),
        cmocka_unit_test(test_death_across_hosts),
        cmocka_unit_test(test_leave),
        cmocka_unit_test(test_told),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_confused),
        cmocka_unit_test(test_fds),
        cmocka_unit_test(test_measure),
        cmocka_unit_test(test_signals),
        cmocka_unit_test(test_no_address),
        cmocka_unit_test(test_transports),
    };
    return sn_test_run(tests);
}
