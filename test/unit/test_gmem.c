/* SPDX-License-Identifier: Apache-2.0
 *
 * Segments of forked ranks, and waiting on their flags. */
#include "gmem/gmem.h"
#include "unit/sn_ranks.h"
#include "unit/sn_test.h"

#include <dirent.h>
#include <sched.h>
#include <sys/resource.h>

#define SOON (sn_now() + *sn_ranks_patience() * 10 * SN_SEC)

static const int one_host[8] = {0};
static const int mixed[] = {0, 1, 1, 0, 1};

/* Every member writes its base and head; after a flag round every member reads the others'. */
static int rank_segment(sn_boot *boot, int rank, int host, void *ctx)
{
    static const int members[] = {0, 1, 3, 4};
    sn_net *net;
    sn_segment *seg;
    RANK_OK(sn_rank_open(boot, host, NULL, &net));
    if (rank == 2) { /* not a member */
        sn_net_close(net);
        return 0;
    }
    uint64_t bytes = 10000 + 1000 * (uint64_t) rank;
    RANK_OK(sn_gmem_create(net, members, 4, bytes, SOON, &seg));
    int me = sn_gmem_me(seg);
    RANK_CHECK(sn_gmem_members(seg) == 4 && members[me] == rank);
    sn_flag_line *flag = sn_gmem_head(seg, me);
    for (int i = sizeof *flag; i < SN_GMEM_HEAD; i++) /* in the first line others may sleep */
        RANK_CHECK(((char *) sn_gmem_head(seg, me))[i] == 0);
    memset(sn_gmem_base(seg, me), rank + 1, bytes);
    sn_gmem_store_u32(&flag->word[3], 7);
    for (int m = 0; m < 4; m++) {
        RANK_CHECK(sn_gmem_rank(seg, m) == members[m]);
        RANK_CHECK(sn_gmem_bytes(seg, m) == 10000 + 1000 * (uint64_t) members[m]);
        RANK_CHECK((sn_gmem_base(seg, m) != NULL) == sn_net_same_host(net, members[m]));
        RANK_CHECK((sn_gmem_head(seg, m) != NULL) == sn_net_same_host(net, members[m]));
        if (!sn_gmem_base(seg, m))
            continue;
        sn_flag_line *theirs = sn_gmem_head(seg, m);
        RANK_OK(sn_gmem_wait_u32(net, &theirs->word[3], 7, SOON));
        char *p = sn_gmem_base(seg, m);
        RANK_CHECK(p[0] == members[m] + 1 && p[sn_gmem_bytes(seg, m) - 1] == members[m] + 1);
    }
    sn_gmem_free(seg);
    sn_net_close(net);
    return 0;
}

static void test_segment(void **state)
{
    assert_int_equal(sn_ranks_run(5, mixed, rank_segment, NULL, SOON), 0);
}

/* A counter goes round 8 ranks on however few cores there are. */
static int rank_round(sn_boot *boot, int rank, int host, void *ctx)
{
    static const int members[] = {0, 1, 2, 3, 4, 5, 6, 7};
    enum { ROUNDS = 200 };
    sn_net *net;
    sn_segment *seg;
    RANK_OK(sn_rank_open(boot, host, NULL, &net));
    RANK_OK(sn_gmem_create(net, members, 8, 0, SOON, &seg));
    sn_flag_line *mine = sn_gmem_head(seg, rank), *before = sn_gmem_head(seg, (rank + 7) % 8);
    for (uint32_t i = 1; i <= ROUNDS; i++) {
        if (rank || i > 1)
            RANK_OK(sn_gmem_wait_u32(net, &before->word[0], rank ? i : i - 1, SOON));
        sn_gmem_store_u32(&mine->word[0], i);
    }
    RANK_OK(sn_gmem_wait_u32(net, &before->word[0], ROUNDS, SOON));
    sn_gmem_free(seg);
    sn_net_close(net);
    return 0;
}

static void test_round(void **state)
{
    assert_int_equal(sn_ranks_run(8, one_host, rank_round, NULL, SOON), 0);
}

/* ---- allocation ---- */

static int rank_alloc(sn_boot *boot, int rank, int host, void *ctx)
{
    static const int members[] = {0};
    sn_net *net;
    sn_segment *seg;
    void *a, *b, *c = NULL;
    uint64_t at;
    RANK_OK(sn_rank_open(boot, host, NULL, &net));
    RANK_OK(sn_gmem_create(net, members, 1, 1000, SOON, &seg));
    char *base = sn_gmem_base(seg, 0);
    RANK_CHECK(base == (char *) sn_gmem_head(seg, 0) + SN_GMEM_HEAD);
    RANK_OK(sn_gmem_alloc(seg, 1, &a));
    RANK_OK(sn_gmem_alloc(seg, 100, &b));
    RANK_CHECK(a == base && b == base + 64);
    RANK_FAILS(sn_gmem_alloc(seg, 900, &c), SN_EFIT, "left");
    RANK_FAILS(sn_gmem_alloc(seg, UINT64_MAX, &c), SN_EFIT, "left");
    RANK_CHECK(c == NULL);
    RANK_OK(sn_gmem_alloc(seg, 1000 - 192, &c));
    RANK_FAILS(sn_gmem_alloc(seg, 1, &a), SN_EFIT, "left");
    RANK_CHECK(sn_gmem_find(seg, b, 100, &at) && at == 64);
    RANK_CHECK(sn_gmem_find(seg, base, 1000, &at) && at == 0);
    RANK_CHECK(sn_gmem_find(seg, base + 1000, 0, &at) && at == 1000);
    at = 5;
    RANK_CHECK(!sn_gmem_find(seg, base, 1001, &at) && !sn_gmem_find(seg, base - 1, 1, &at));
    RANK_CHECK(!sn_gmem_find(seg, base + 999, 2, &at) && !sn_gmem_find(seg, &at, 1, &at));
    RANK_CHECK(!sn_gmem_find(seg, base + 8, UINT64_MAX, &at) && at == 5);
    sn_gmem_free(seg);
    sn_gmem_free(NULL);
    sn_net_close(net);
    return 0;
}

static void test_alloc(void **state)
{
    assert_int_equal(sn_ranks_run(1, one_host, rank_alloc, NULL, SOON), 0);
}

/* ---- what does not fit is refused by all alike, and a smaller segment works afterwards ---- */

static int rank_too_big(sn_boot *boot, int rank, int host, void *ctx)
{
    static const int members[] = {0, 1, 2, 3, 4};
    sn_net *net;
    sn_segment *seg = NULL;
    RANK_OK(sn_rank_open(boot, host, NULL, &net));
    uint64_t much = rank == 3 ? UINT64_C(1) << 50 : 4096;
    RANK_FAILS(sn_gmem_create(net, members, 5, much, SOON, &seg), SN_ENOMEM, "on h0 need 1.00 PiB");
    much = rank == 3 ? UINT64_MAX : 4096;
    RANK_FAILS(sn_gmem_create(net, members, 5, much, SOON, &seg), SN_ENOMEM, "rank 3");
    struct rlimit small = {1 << 20, 1 << 20}; /* ftruncate beyond it would be a SIGXFSZ */
    if (rank == 1)
        RANK_CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
    RANK_FAILS(sn_gmem_create(net, members, 5, 2 << 20, SOON, &seg), SN_ENOMEM, "ulimit -f");
    RANK_CHECK(strstr(sn_errmsg(), "rank 1 (h1)") && !seg);
    RANK_OK(sn_gmem_create(net, members, 5, 4096, SOON, &seg));
    sn_gmem_free(seg);
    sn_net_close(net);
    return 0;
}

static void test_too_big(void **state)
{
    assert_int_equal(sn_ranks_run(5, mixed, rank_too_big, NULL, SOON), 0);
}

/* ---- waiting ---- */

typedef struct waiting {
    sn_page page; /* rank 0's */
    char room[SN_PAGE_BYTES - sizeof(sn_page)];
    uint32_t asleep;
} waiting;

/* Rank 0 waits long enough to be in its futex sleep; each end of a wait is met. */
static int rank_waits(sn_boot *boot, int rank, int host, void *ctx)
{
    static const int members[] = {0, 1};
    waiting *w = ctx;
    sn_net *net;
    sn_segment *seg;
    RANK_OK(sn_rank_open(boot, host, rank ? NULL : &w->page, &net));
    RANK_OK(sn_gmem_create(net, members, 2, 0, SOON, &seg));
    sn_flag_line *theirs = sn_gmem_head(seg, 1);
    if (rank == 0) {
        RANK_OK(sn_gmem_wait_u32(net, &theirs->word[0], 5, SOON));
        RANK_OK(sn_gmem_wait_u32(net, &theirs->word[0], 4, SOON)); /* past it */
        RANK_CHECK(theirs->sleepers == 0);
        RANK_OK(sn_gmem_wait_u32(net, &theirs->word[14], UINT32_MAX - 1, 0)); /* wrap-safe */
        RANK_FAILS(sn_gmem_wait_u32(net, &theirs->word[0], 6, sn_now() + 20 * SN_MS), SN_ETIME,
                   "(at 5 of 6)");
        RANK_FAILS(sn_gmem_wait_u32(net, &theirs->word[0], 6, SOON), SN_EEPOCH, "rank 1 (h0) died");
    } else {
        while (!__atomic_load_n(&theirs->sleepers, __ATOMIC_ACQUIRE)) /* it sleeps now */
            sched_yield();
        sn_gmem_store_u32(&theirs->word[0], 5);
        while (!__atomic_load_n(&theirs->sleepers, __ATOMIC_ACQUIRE))
            sched_yield();
        usleep(30000);
        w->page.victim = 1;
        __atomic_store_n(&w->page.epoch, 1, __ATOMIC_RELEASE);
        while (sn_net_look(net) >= 0 && !__atomic_load_n(&w->asleep, __ATOMIC_ACQUIRE))
            usleep(1000);
    }
    if (rank == 0)
        __atomic_store_n(&w->asleep, 1, __ATOMIC_RELEASE);
    sn_gmem_free(seg);
    sn_net_close(net);
    return 0;
}

static void test_waits(void **state)
{
    assert_int_equal(sn_ranks_run(2, one_host, rank_waits, sn_ranks_shared(sizeof(waiting)), SOON),
                     0);
}

/* A loop of one's own over many words, changed one after another. */
static int rank_turns(sn_boot *boot, int rank, int host, void *ctx)
{
    static const int members[] = {0, 1, 2, 3};
    enum { ROUNDS = 300 };
    sn_net *net;
    sn_segment *seg;
    RANK_OK(sn_rank_open(boot, host, NULL, &net));
    RANK_OK(sn_gmem_create(net, members, 4, 0, SOON, &seg));
    sn_flag_line *mine = sn_gmem_head(seg, rank), *root = sn_gmem_head(seg, 0);
    for (uint32_t i = 1; i <= ROUNDS; i++) {
        if (rank) {
            sn_gmem_store_u32(&mine->word[0], i);
            RANK_OK(sn_gmem_wait_u32(net, &root->word[1], i, SOON));
            continue;
        }
        for (int turn = 0, missing = 3; missing;) {
            sn_gmem_watch watch[3];
            missing = 0;
            for (int m = 1; m < 4; m++) {
                const sn_flag_line *line = sn_gmem_head(seg, m);
                uint32_t seen = __atomic_load_n(&line->word[0], __ATOMIC_ACQUIRE);
                if (seen != i)
                    watch[missing++] = (sn_gmem_watch){&line->word[0], seen};
            }
            if (missing)
                RANK_OK(sn_gmem_turn(net, &turn, watch, missing, SOON));
        }
        sn_gmem_store_u32(&root->word[1], i);
    }
    int turn = 0;
    sn_status status = SN_OK;
    while (status == SN_OK)
        status = sn_gmem_turn(net, &turn, NULL, 0, sn_now() - (turn > 150));
    RANK_CHECK(status == SN_ETIME);
    sn_gmem_free(seg);
    sn_net_close(net);
    return 0;
}

static void test_turns(void **state)
{
    assert_int_equal(sn_ranks_run(4, one_host, rank_turns, NULL, SOON), 0);
}

/* ---- kill -9 ---- */

typedef struct killed {
    sn_time died, noticed[4];
} killed;

static int rank_killed(sn_boot *boot, int rank, int host, void *ctx)
{
    static const int members[] = {0, 1, 2};
    killed *k = ctx;
    sn_net *net;
    sn_segment *seg;
    RANK_OK(sn_rank_open(boot, host, NULL, &net));
    RANK_OK(sn_gmem_create(net, members, 3, 16 << 20, SOON, &seg));
    sn_flag_line *line = sn_gmem_head(seg, 1);
    if (rank == 1) {
        memset(sn_gmem_base(seg, 1), 9, 16 << 20);
        while (__atomic_load_n(&line->sleepers, __ATOMIC_ACQUIRE) < 2) /* both wait for it */
            sched_yield();
        k->died = sn_now();
        sn_rank_die();
    }
    RANK_FAILS(sn_gmem_wait_u32(net, &line->word[0], 1, SOON), SN_EPEER, "rank 1 (h0) died");
    k->noticed[rank] = sn_now();
    char *theirs = sn_gmem_base(seg, 1); /* its memory is still there */
    RANK_CHECK(theirs[0] == 9 && theirs[(16 << 20) - 1] == 9);
    sn_gmem_free(seg);
    sn_net_close(net);
    return 0;
}

static int files_in_shm(void)
{
    int n = 0;
    DIR *d = opendir("/dev/shm");
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        n += strncmp(e->d_name, "sn-", 3) == 0 || strncmp(e->d_name, "ucx", 3) == 0;
    if (d)
        closedir(d);
    return n;
}

/* Shared memory of the whole machine that lies in memfds and the like, KiB. */
static long shmem_kib(void)
{
    char line[128];
    long kib = 0;
    FILE *f = fopen("/proc/meminfo", "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "Shmem: %ld", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib;
}

static void test_killed(void **state)
{
    killed *k = sn_ranks_shared(sizeof *k);
    int files = files_in_shm();
    long before = shmem_kib(), after = 0;
    assert_int_equal(sn_ranks_run(3, one_host, rank_killed, k, SOON), 0);
    assert_true(k->noticed[0] - k->died < SN_SEC && k->noticed[2] - k->died < SN_SEC);
    assert_int_equal(files_in_shm(), files);
    for (int i = 0; i < 100; i++) { /* others on the machine use such memory too: look again */
        after = shmem_kib();
        if (after < before + 16 * 1024)
            break;
        usleep(10000);
    }
    assert_true(after < before + 16 * 1024);
}

int main(int argc, char **argv)
{
    sn_ranks_args(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_segment), cmocka_unit_test(test_round), cmocka_unit_test(test_alloc),
        cmocka_unit_test(test_too_big), cmocka_unit_test(test_waits), cmocka_unit_test(test_turns),
        cmocka_unit_test(test_killed),
    };
    return sn_test_run(tests);
}
