/* SPDX-License-Identifier: Apache-2.0
 *
 * Cases A5, A7, A25: ranks placed on hosts in any way, nothing to move, and every number of ranks.
 */
#include "unit/cases_world.h"

/* ---- A5: any map of ranks to hosts ---- */

enum { CALLS = 40, MOST = 3000 };

/* Any calls, short and long enough for segments and staging, from the arena or from elsewhere. */
static int any_calls(sn_boot *boot, int rank, int host, void *ctx)
{
    const uint64_t *seed = ctx;
    world w;
    unsigned char *arena;
    if (case_open(boot, host, 4 << 20, &w) != 0)
        return 1;
    size_t room = (size_t) MOST * 8 * (size_t) w.size + 64;
    unsigned char *plain = malloc(2 * room);
    RANK_OK(sn_coll_alloc(w.c, 2 * room, (void **) &arena));
    for (uint64_t k = 0; k < CALLS; k++) {
        int64_t count = case_draw(*seed, k, 5, 4) ? case_draw(*seed, k, 6, 40) : MOST;
        sn_coll_call c = case_call(*seed, k, w.size, count);
        unsigned char *at = case_draw(*seed, k, 100 + (uint64_t) rank, 2) ? plain : arena;
        RANK_CHECK(case_run(w.all, c, *seed + k, at, at + room) == 0);
    }
    free(plain);
    world_close(&w);
    return 0;
}

static void run_map(const int *map, int n, uint64_t seed)
{
    uint64_t *shared = sn_ranks_shared(sizeof *shared);
    *shared = seed;
    int failing = sn_ranks_run(n, map, any_calls, shared, sn_now() + 100 * SN_SEC);
    if (failing) {
        print_message("the map was");
        for (int i = 0; i < n; i++)
            print_message(" %d", map[i]);
        print_message("\n");
    }
    assert_int_equal(failing, 0);
}

static void test_uneven_hosts(void **state)
{
    static const int seven_eight[] = {0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1},
                     eight_seven[] = {1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1},
                     one_each[] = {5, 4, 3, 2, 1, 0}, robin[] = {0, 1, 2, 0, 1, 2, 0, 1, 2},
                     one_aside[] = {0, 0, 1, 0, 0, 0}, sandwich[] = {0, 1, 1, 0, 2, 0};
    run_map(seven_eight, 15, CASES_SEED);
    run_map(eight_seven, 15, CASES_SEED + 1);
    run_map(one_each, 6, CASES_SEED + 2);
    run_map(robin, 9, CASES_SEED + 3);
    run_map(one_aside, 6, CASES_SEED + 4);
    run_map(sandwich, 6, CASES_SEED + 5);
}

static void test_any_map(void **state)
{
    for (uint64_t k = 0; k < (uint64_t) (6 * case_times); k++) {
        int map[12], n = 2 + case_draw(CASES_SEED, k, 1, 11),
                     hosts = 1 + case_draw(CASES_SEED, k, 2, n);
        for (int i = 0; i < n; i++)
            map[i] = case_draw(CASES_SEED + k, 3, (uint64_t) i, hosts);
        run_map(map, n, CASES_SEED + k);
    }
}

/* ---- A7: nothing to move, nobody to move it to, and in place ---- */

/* Count 0 of everything, with no buffers at all; the calls before and after it do move data. */
static int nothing(sn_boot *boot, int rank, int host, void *ctx)
{
    world w;
    float in[256], out[256];
    if (case_open(boot, host, 1 << 20, &w) != 0)
        return 1;
    for (uint64_t k = 0; k < SN_COLL_OPS * SN_DTYPE_COUNT; k++) {
        sn_coll_call c = {.op = (sn_coll_op) (k % SN_COLL_OPS),
                          .dtype = (sn_dtype) (k / SN_COLL_OPS),
                          .root = (int) (k % (uint64_t) w.size)};
        if (case_reduces(c.op) && c.dtype > SN_BF16)
            continue;
        memset(in, 0x5c, sizeof in);
        memset(out, 0x5c, sizeof out);
        RANK_OK(sn_coll_run(w.all, &c, case_soon()));
        c.in = in + 1;
        c.out = k % 2 ? in + 1 : out + 1;
        RANK_OK(sn_coll_run(w.all, &c, case_soon()));
        for (int i = 0; i < 1024; i++)
            RANK_CHECK(((char *) in)[i] == 0x5c && ((char *) out)[i] == 0x5c);
        c = case_call(CASES_SEED, k, w.size, 3);
        RANK_CHECK(case_run(w.all, c, k, in, out) == 0);
    }
    world_close(&w);
    return 0;
}

/* A group of one among others: every operation is a copy or nothing. */
static int alone(sn_boot *boot, int rank, int host, void *ctx)
{
    static float in[20000], out[20000];
    world w;
    sn_coll_group *self;
    if (case_open(boot, host, 1 << 20, &w) != 0)
        return 1;
    RANK_OK(sn_coll_group_create(w.c, "self", &rank, 1, case_soon(), &self));
    RANK_CHECK(sn_coll_group_size(self) == 1 && sn_coll_group_me(self) == 0);
    for (uint64_t k = 0; k < 60; k++) {
        sn_coll_call c = case_call(CASES_SEED + 9, k, 1, k % 3 ? (int64_t) k : 10000);
        RANK_CHECK(case_run(self, c, k, in, out) == 0);
        if (case_ins(&c, 0, 1) > 0) /* in place */
            RANK_CHECK(case_run(self, c, k, in, in) == 0);
    }
    sn_coll_group_free(self);
    RANK_OK(world_barrier(&w));
    world_close(&w);
    return 0;
}

static void test_nothing_to_move(void **state)
{
    static const int one[] = {0}, here[] = {0, 0, 0}, apart[] = {0, 1, 2}, both[] = {0, 1, 1, 0};
    WORLD(one, nothing);
    WORLD(here, nothing);
    WORLD(apart, nothing);
    WORLD(both, nothing);
}

static void test_group_of_one(void **state)
{
    static const int one[] = {0}, both[] = {0, 0, 1};
    WORLD(one, alone);
    WORLD(both, alone);
}

/* ---- A25: every number of ranks ---- */

static int sweep_calls(sn_coll_group *g, uint64_t seed)
{
    static float in[8 * CASES_MANY], out[8 * CASES_MANY];
    sn_coll_call barrier = {.op = SN_BARRIER}, sum = {.op = SN_ALL_REDUCE, .count = 33},
                 gather = {.op = SN_ALL_GATHER, .dtype = SN_I32, .count = 2};
    RANK_OK(sn_coll_run(g, &barrier, case_soon()));
    RANK_CHECK(case_run(g, sum, seed, in, out) == 0);
    RANK_CHECK(case_run(g, gather, seed, in, out) == 0);
    sum.in = in; /* the order of the members, too */
    sum.out = out;
    for (int i = 0; i < 33; i++)
        in[i] = (float) (sn_coll_group_me(g) + 1);
    RANK_OK(sn_coll_run(g, &sum, case_soon()));
    for (int i = 0; i < 33; i++)
        RANK_CHECK(out[i] == (float) (sn_coll_group_size(g) * (sn_coll_group_size(g) + 1) / 2));
    return 0;
}

/* Groups of the first 1, 2, 3 … ranks of one world, listed from some rank on. */
static int prefixes(sn_boot *boot, int rank, int host, void *ctx)
{
    world w;
    if (case_open(boot, host, 1 << 16, &w) != 0)
        return 1;
    for (int n = 1; n <= w.size; n++) {
        int members[CASES_MANY];
        sn_coll_group *g;
        for (int i = 0; i < n; i++)
            members[i] = (i + n / 3) % n;
        if (rank >= n)
            continue;
        RANK_OK(sn_coll_group_create(w.c, "first", members, n, case_soon(), &g));
        RANK_CHECK(sweep_calls(g, (uint64_t) n) == 0);
        sn_coll_group_free(g);
    }
    RANK_OK(world_barrier(&w));
    world_close(&w);
    return 0;
}

static int whole(sn_boot *boot, int rank, int host, void *ctx)
{
    world w;
    if (case_open(boot, host, 1 << 16, &w) != 0)
        return 1;
    RANK_CHECK(sweep_calls(w.all, 7) == 0);
    world_close(&w);
    return 0;
}

static void run_whole(int n, int hosts, sn_rank_fn fn)
{
    int map[CASES_MANY];
    for (int i = 0; i < n; i++)
        map[i] = i % hosts;
    sn_time from = sn_now();
    assert_int_equal(sn_ranks_run(n, map, fn, NULL, sn_now() + 100 * SN_SEC), 0);
    print_message("%d ranks on %d hosts: %.2f s\n", n, hosts, (double) (sn_now() - from) / 1e9);
}

static void test_every_size(void **state)
{
    run_whole(CASES_SANITIZED ? 32 : 64, 1, prefixes);
    run_whole(12, 3, prefixes);
}

static void test_large_worlds(void **state)
{
    static const int sizes[] = {18, 96, 127, 128};
    for (size_t k = 0; k < (CASES_SANITIZED ? 1 : SN_COUNT(sizes)); k++)
        run_whole(sizes[k], 1, whole);
    run_whole(18, 2, whole);
    for (int n = 1; case_times > 1 && n <= 64; n++)
        for (int hosts = 1; hosts <= SN_MIN(n, 4); hosts++)
            run_whole(n, hosts, whole);
    for (int hosts = 2; case_times > 1 && hosts <= 4; hosts++)
        run_whole(128, hosts, whole);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_uneven_hosts),    cmocka_unit_test(test_any_map),
    cmocka_unit_test(test_nothing_to_move), cmocka_unit_test(test_group_of_one),
    cmocka_unit_test(test_every_size),      cmocka_unit_test(test_large_worlds),
};

CASES_MAIN(tests)
