/* SPDX-License-Identifier: Apache-2.0
 *
 * Cases A1, A22, A26, A28: ranks that the kernel kills at any moment, in any operation, while
 * finding each other, under load, two at a time. Whoever is left is told who it was, soon. */
#include "unit/cases_world.h"

#include <sched.h>

static const int here[] = {0, 0, 0}, both[] = {0, 0, 1, 1}, apart[] = {0, 1, 2};

typedef struct death {
    sn_coll_op op;
    int64_t count;
    int victim, second; /* second: -1, or dies 2 ms later */
    sn_time after;      /* from when everybody is ready */
    uint64_t seed;
    uint32_t ready;           /* ranks that have left the barrier before it */
    sn_time died;             /* when the timer fires */
    sn_time told[CASES_MANY]; /* when the failure was returned, per rank */
} death;

static death *shared_death(death d)
{
    death *shared = sn_ranks_shared(sizeof *shared);
    *shared = d;
    return shared;
}

/* "rank 2 (h1)" of the victim, or of the second one. */
static bool names_victim(const death *d, const world *w)
{
    char who[32];
    for (int k = 0; k < 2; k++) {
        int v = k == 0 ? d->victim : d->second;
        if (v < 0)
            continue;
        snprintf(who, sizeof who, "rank %d (%s)", v, sn_net_host_name(w->net, v));
        if (strstr(sn_errmsg(), who))
            return true;
    }
    return false;
}

/* Nobody dies before all have left the barrier, which they do one by one. */
static bool everybody_ready(death *d, const world *w)
{
    case_done(&d->ready);
    return case_await(&d->ready, w->size);
}

static void arm(death *d, int rank)
{
    if (rank == d->victim) {
        d->died = sn_now() + d->after;
        case_die_at(d->died);
    }
    if (rank == d->second)
        case_die_at(sn_now() + d->after + 2 * SN_MS);
}

/* ---- A1: in the middle of each collective ---- */

static int in_collective(sn_boot *boot, int rank, int host, void *ctx)
{
    death *d = ctx;
    world w;
    char *in, *out;
    sn_status status;
    if (case_open(boot, host, 4 << 20, &w) != 0)
        return 1;
    size_t bytes = (size_t) (d->count * w.size) * 4 + 64;
    RANK_OK(sn_coll_alloc(w.c, bytes, (void **) &in));
    RANK_OK(sn_coll_alloc(w.c, bytes, (void **) &out));
    sn_coll_call call = {.op = d->op, .count = d->count, .in = in, .out = out};
    RANK_OK(world_barrier(&w));
    RANK_CHECK(everybody_ready(d, &w));
    arm(d, rank);
    do
        status = sn_coll_run(w.all, &call, soon());
    while (status == SN_OK);
    d->told[rank] = sn_now();
    RANK_CHECK(status == SN_EPEER && names_victim(d, &w));
    RANK_CHECK(strstr(sn_errmsg(), sn_coll_op_name(d->op)) != NULL);
    RANK_FAILS(sn_coll_run(w.all, &call, soon()), SN_EPEER, sn_coll_op_name(d->op));
    world_close(&w);
    return 0;
}

/* How long the last of the survivors took to be told. */
static sn_time news(const death *d, int n)
{
    sn_time last = 0;
    for (int r = 0; r < n; r++)
        if (r != d->victim && r != d->second)
            last = SN_MAX(last, d->told[r] - d->died);
    return last;
}

static sn_time kill_once(const int *map, int n, sn_rank_fn fn, death d)
{
    death *shared = shared_death(d);
    assert_int_equal(sn_ranks_run(n, map, fn, shared, sn_now() + 30 * SN_SEC), 0);
    sn_time took = news(shared, n);
    assert_true(took < 2 * SN_SEC);
    munmap(shared, sizeof *shared);
    return took;
}

/* Every operation, short and long, on each map; the median of all is what users are promised. */
static void test_killed_in_collective(void **state)
{
    enum { MAPS = 3 };
    static const int *const maps[MAPS] = {here, both, apart};
    static const int sizes[MAPS] = {3, 4, 3};
    sn_time took[MAPS][SN_COLL_OPS * 8];
    int runs = SN_COLL_OPS * SN_MIN(case_times, 8);
    for (int m = 0; m < MAPS; m++) {
        for (int k = 0; k < runs; k++) {
            uint64_t seed = sn_hash64(CASES_SEED, (uint64_t) m, (uint64_t) k);
            death d = {.op = (sn_coll_op) (k % SN_COLL_OPS),
                       .count = case_draw(seed, 0, 0, 2) ? 100000 : 100,
                       .victim = case_draw(seed, 0, 1, sizes[m]),
                       .second = -1,
                       .after = case_draw(seed, 0, 2, 3000) * 1000};
            took[m][k] = kill_once(maps[m], sizes[m], in_collective, d);
        }
        sn_time median = case_median(took[m], runs);
        print_message("told after %.1f ms (median), %.1f ms (longest)\n", (double) median / 1e6,
                      (double) took[m][runs - 1] / 1e6);
        assert_true(median < 100 * SN_MS);
    }
}

/* ---- A1: while the ranks find each other ---- */

/* The victim is gone when the others want to meet it: 0 at once, 1 to share memory, 2 to make a
 * group. */
static int in_bootstrap(sn_boot *boot, int rank, int host, void *ctx)
{
    death *d = ctx;
    world w = {0};
    sn_coll_opts opts = {.arena_bytes = 1 << 20, .deadline = soon()};
    const void *const *blobs;
    const size_t *bytes;
    char who[16];
    int members[8], n = sn_boot_world(boot);
    for (int i = 0; i < n; i++)
        members[i] = i;
    RANK_OK(sn_boot_allgather(boot, "", 0, soon(), &blobs, &bytes));
    sn_status status = SN_OK;
    for (int stage = 0; status == SN_OK && stage < 3; stage++) {
        if (rank == d->victim && (uint64_t) stage == d->seed) {
            d->died = sn_now();
            sn_rank_die();
        }
        status = stage == 0   ? sn_rank_open(boot, host, NULL, &w.net)
                 : stage == 1 ? sn_coll_open(w.net, &opts, &w.c)
                              : sn_coll_group_create(w.c, "world", members, n, soon(), &w.all);
    }
    d->told[rank] = sn_now();
    snprintf(who, sizeof who, "rank %d ", d->victim);
    RANK_CHECK(status == SN_EPEER);
    RANK_CHECK(strstr(sn_errmsg(), who) != NULL);
    world_close(&w);
    return 0;
}

static void test_killed_in_bootstrap(void **state)
{
    for (int k = 0; k < 6; k++) {
        bool one_host = k % 2 == 0;
        death d = {.victim = k % 3, .second = -1, .seed = (uint64_t) k / 2};
        kill_once(one_host ? here : both, one_host ? 3 : 4, in_bootstrap, d);
    }
}

/* Open everything, then barriers, until it fails: the death may come anywhere. */
static int anywhere(sn_boot *boot, int rank, int host, void *ctx)
{
    death *d = ctx;
    world w = {0};
    sn_coll_call barrier = {.op = SN_BARRIER};
    sn_coll_opts opts = {.arena_bytes = 1 << 20, .deadline = soon()};
    const void *const *blobs;
    const size_t *bytes;
    char who[16];
    int members[8];
    RANK_OK(sn_boot_allgather(boot, "", 0, soon(), &blobs, &bytes));
    arm(d, rank);
    sn_status status = sn_rank_open(boot, host, NULL, &w.net);
    if (status == SN_OK)
        status = sn_coll_open(w.net, &opts, &w.c);
    for (int i = 0; status == SN_OK && i < sn_net_world(w.net); i++)
        members[i] = i;
    if (status == SN_OK)
        status = sn_coll_group_create(w.c, "world", members, sn_net_world(w.net), soon(), &w.all);
    while (status == SN_OK)
        status = sn_coll_run(w.all, &barrier, soon());
    d->told[rank] = sn_now();
    snprintf(who, sizeof who, "rank %d ", d->victim);
    RANK_CHECK(status == SN_EPEER);
    RANK_CHECK(strstr(sn_errmsg(), who) != NULL);
    world_close(&w);
    return 0;
}

static void test_killed_anywhere(void **state)
{
    for (int k = 0; k < 24 * case_times; k++) {
        uint64_t seed = sn_hash64(CASES_SEED, 77, (uint64_t) k);
        bool one_host = k % 2 == 0;
        death d = {.victim = case_draw(seed, 0, 1, one_host ? 3 : 4), .second = -1};
        d.after = case_draw(seed, 0, 2, one_host ? 3000 : 30000) * 1000;
        kill_once(one_host ? here : both, one_host ? 3 : 4, anywhere, d);
    }
}

/* ---- A22: under load ---- */

/* Many requests of all kinds under way, arena and not; the death comes somewhere among them. */
static int under_load(sn_boot *boot, int rank, int host, void *ctx)
{
    enum { ROUND = 12, ROOM = 200000 };
    death *d = ctx;
    world w;
    unsigned char *arena, *plain = malloc(2 * ROUND * ROOM);
    sn_status status = SN_OK;
    if (case_open(boot, host, 3 * ROUND * ROOM, &w) != 0)
        return 1;
    RANK_OK(sn_coll_alloc(w.c, 2 * ROUND * ROOM, (void **) &arena));
    RANK_OK(world_barrier(&w));
    RANK_CHECK(everybody_ready(d, &w));
    arm(d, rank);
    for (uint64_t k = 0; status == SN_OK; k += ROUND) {
        sn_coll_req *req[ROUND * 2] = {0};
        int posted = 0;
        for (uint64_t i = k; i < k + ROUND && status == SN_OK; i++) {
            uint32_t size = (uint32_t) case_draw(d->seed, i, 7, 3) * 30000 + 8, tag = (uint32_t) i;
            unsigned char *at = (i % 3 ? arena : plain) + i % ROUND * 2 * ROOM;
            int to = (rank + 1 + (int) (i % (uint64_t) (w.size - 1))) % w.size;
            int from = (rank + w.size - 1 - (int) (i % (uint64_t) (w.size - 1))) % w.size;
            sn_coll_call c = {.op = SN_ALL_REDUCE, .count = size / 4, .in = at, .out = at + ROOM};
            if (i % 4 == 0) {
                status = sn_coll_post(w.all, &c, soon(), &req[posted++]);
                continue;
            }
            status = sn_coll_send(w.c, to, tag, at, size, soon(), &req[posted++]);
            if (status == SN_OK)
                status = sn_coll_recv(w.c, from, tag, at + ROOM, size, soon(), &req[posted++]);
        }
        for (int i = 0; i < posted; i++) {
            sn_status one = req[i] ? sn_coll_wait(req[i]) : status;
            status = status < 0 ? status : one;
        }
    }
    d->told[rank] = sn_now();
    RANK_CHECK(status == SN_EPEER && names_victim(d, &w));
    world_close(&w); /* and everything can be given back */
    free(plain);
    return 0;
}

static void test_killed_under_load(void **state)
{
    static const int two[] = {0, 1};
    for (int k = 0; k < 9 * case_times; k++) {
        uint64_t seed = sn_hash64(CASES_SEED, 78, (uint64_t) k);
        const int *map = k % 3 == 0 ? here : k % 3 == 1 ? both : two;
        int n = k % 3 == 0 ? 3 : k % 3 == 1 ? 4 : 2;
        death d = {.victim = case_draw(seed, 0, 1, n), .second = -1, .seed = seed};
        d.after = case_draw(seed, 0, 2, 10000) * 1000;
        kill_once(map, n, under_load, d);
    }
}

/* ---- A26: a second death while the first is being told ---- */

static void test_two_deaths(void **state)
{
    static const int five[] = {0, 0, 0, 1, 1};
    for (int k = 0; k < 6 * case_times; k++) {
        uint64_t seed = sn_hash64(CASES_SEED, 79, (uint64_t) k);
        death d = {.op = SN_ALL_REDUCE, .count = k % 2 ? 100 : 50000};
        d.victim = case_draw(seed, 0, 1, 5);
        d.second = (d.victim + 1 + case_draw(seed, 0, 2, 4)) % 5;
        d.after = case_draw(seed, 0, 3, 3000) * 1000;
        kill_once(five, 5, in_collective, d);
    }
}

/* ---- A26, A28: groups that overlap, a chain to the victim ---- */

/* Ranks 0–1, 1–2 and 2–3 are groups; rank 3 dies. Rank 0 waits for rank 1, which waits for rank 2,
 * which waits for rank 3: all three are told of rank 3, though two share no group with it. */
static int chain(sn_boot *boot, int rank, int host, void *ctx)
{
    death *d = ctx;
    world w;
    sn_coll_group *left = NULL, *right = NULL;
    char name[16];
    float x = 1, y;
    sn_status status = SN_OK;
    if (case_open(boot, host, 1 << 20, &w) != 0)
        return 1;
    for (int i = 0; i < 3; i++) {
        int pair[2] = {i, i + 1};
        snprintf(name, sizeof name, "pair%d", i);
        if (rank == i || rank == i + 1)
            RANK_OK(sn_coll_group_create(w.c, name, pair, 2, soon(), rank == i ? &right : &left));
    }
    RANK_OK(world_barrier(&w));
    RANK_CHECK(everybody_ready(d, &w));
    arm(d, rank);
    sn_coll_call c = {.op = SN_ALL_REDUCE, .count = 1, .in = &x, .out = &y};
    while (status == SN_OK && left != right) {
        if (right)
            status = sn_coll_run(right, &c, soon());
        if (status == SN_OK && left)
            status = sn_coll_run(left, &c, soon());
    }
    d->told[rank] = sn_now();
    RANK_CHECK(status == SN_EPEER && names_victim(d, &w));
    sn_coll_group_free(left);
    sn_coll_group_free(right);
    world_close(&w);
    return 0;
}

static void test_chain(void **state)
{
    static const int four[] = {0, 0, 0, 0};
    static const int *const maps[] = {four, both};
    for (int k = 0; k < 4 * case_times; k++) {
        death d = {.victim = 3, .second = -1, .after = k * SN_MS};
        kill_once(maps[k % 2], 4, chain, d);
    }
}

/* ---- A28: stopped, not dead ---- */

typedef struct halted {
    sn_time stopped, told[4];
    pid_t pid;
    uint32_t done;
} halted;

/* A rank that is stopped (SIGSTOP) says nothing and its connections stay: silence is the news. */
static int stops(sn_boot *boot, int rank, int host, void *ctx)
{
    halted *h = ctx;
    world w;
    sn_status status = SN_OK;
    sn_coll_call barrier = {.op = SN_BARRIER};
    if (case_open(boot, host, 1 << 20, &w) != 0)
        return 1;
    RANK_OK(world_barrier(&w));
    if (rank == 1) {
        h->pid = getpid();
        h->stopped = sn_now();
        raise(SIGSTOP);
        return 1;
    }
    while (status == SN_OK)
        status = sn_coll_run(w.all, &barrier, soon());
    h->told[rank] = sn_now();
    case_done(&h->done);
    RANK_CHECK(case_await(&h->done, w.size - 1));
    if (rank == 0)
        kill(h->pid, SIGKILL);
    RANK_CHECK(status == SN_EPEER && strstr(sn_errmsg(), "rank 1 (h") != NULL);
    world_close(&w);
    return 0;
}

static void test_stopped(void **state)
{
    static const int *const maps[] = {here, apart};
    for (int m = 0; m < 2; m++) {
        sn_time took[3];
        for (int k = 0; k < 3; k++) {
            halted *h = sn_ranks_shared(sizeof *h);
            assert_int_equal(sn_ranks_run(3, maps[m], stops, h, sn_now() + 30 * SN_SEC), 0);
            took[k] = SN_MAX(h->told[0], h->told[2]) - h->stopped;
            assert_true(took[k] < 5 * SN_SEC);
        }
        print_message("told of a stopped rank after %.0f ms\n",
                      (double) case_median(took, 3) / 1e6);
        assert_true(took[1] < 400 * SN_MS); /* the bound is 100 ms; the machine may be busy */
    }
}

/* ---- A1: with much memory resident ---- */

/* The kernel takes long to free 1 GiB; the news must not wait for it. */
static int large(sn_boot *boot, int rank, int host, void *ctx)
{
    death *d = ctx;
    size_t bytes = UINT64_C(1) << 30;
    char *heavy = NULL;
    if (rank == d->victim) {
        heavy = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        RANK_CHECK(heavy != MAP_FAILED);
    }
    return in_collective(boot, rank, host, d);
}

static void test_killed_with_much_memory(void **state)
{
    sn_time best = SN_SEC; /* freeing the memory takes 40 ms at least, on any machine */
    for (int k = 0; k < 30 && best >= 20 * SN_MS; k++) {
        death d = {.op = SN_ALL_REDUCE, .count = 100, .victim = 1, .second = -1, .after = SN_MS};
        best = SN_MIN(best, kill_once(here, 2, large, d));
    }
    print_message("told of a death with 1 GiB after %.1f ms (shortest)\n", (double) best / 1e6);
    assert_true(best < 20 * SN_MS);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_killed_in_collective),
    cmocka_unit_test(test_killed_in_bootstrap),
    cmocka_unit_test(test_killed_anywhere),
    cmocka_unit_test(test_killed_under_load),
    cmocka_unit_test(test_two_deaths),
    cmocka_unit_test(test_chain),
    cmocka_unit_test(test_stopped),
    cmocka_unit_test(test_killed_with_much_memory),
};

CASES_MAIN(tests)
