/* SPDX-License-Identifier: Apache-2.0
 *
 * Every operation keeps its deadline; members that leave in good order are noticed at once; what
 * fails inside one host is told on the others. */
#include "unit/coll_world.h"

static int with_all(world *w, const char *name, sn_coll_group **ret)
{
    int members[64];
    for (int i = 0; i < w->size; i++)
        members[i] = i;
    RANK_OK(sn_coll_group_create(w->c, name, members, w->size, soon(), ret));
    return 0;
}

/* ---- deadlines ---- */

#define PATIENCE (200 * SN_MS)
#define TRIES 5 /* on a busy machine any one of them may wake up late */

static double overrun_ms(world *w, sn_coll_group *g, sn_coll_op op, int64_t count, float *x,
                         float *y)
{
    /* the one that does not come is the root of those that come from a root */
    sn_coll_call call = {.op = op,
                         .count = count,
                         .root = op == SN_BROADCAST || op == SN_SCATTER ? w->size - 1 : 0,
                         .in = x,
                         .out = y};
    sn_time from = sn_now();
    sn_status status = w->rank == 0 ? sn_coll_run(g, &call, from + PATIENCE) : SN_ETIME;
    double late = (double) (sn_now() - from - PATIENCE) / 1e6;
    if (status != SN_ETIME || (w->rank == 0 && strstr(sn_errmsg(), sn_coll_op_name(op)) == NULL)) {
        fprintf(stderr, "%s of %lld: %s %s\n", sn_coll_op_name(op), (long long) count,
                sn_status_name(status), sn_errmsg());
        return 1e9;
    }
    return late;
}

static int deadlines(sn_boot *boot, int rank, int host, void *ctx)
{
    world w;
    float *x = calloc(200000, sizeof(float)), *y = calloc(200000, sizeof(float));
    if (world_open(boot, host, &w) != 0)
        return 1;
    for (sn_coll_op op = 0; op < SN_COLL_OPS; op++) {
        double best = 1e9;
        for (int k = 0; k < TRIES && best > 20; k++) {
            sn_coll_group *g;
            if (with_all(&w, "slow", &g) != 0)
                return 1;
            double late = overrun_ms(&w, g, op, op % 2 ? 5 : 60000, x, y);
            int64_t enough = late < 1e8, all[2];
            best = late >= 0 ? SN_MIN(best, late) : 1e9;
            sn_coll_call tell = {.op = SN_ALL_REDUCE, .red = SN_MIN, .count = 1};
            float mine = w.rank == 0 ? (float) best : 1e9F, least = 0;
            tell.in = &mine;
            tell.out = &least;
            RANK_OK(sn_coll_run(w.all, &tell, soon()));
            best = least;
            sn_coll_call check = {
                .op = SN_ALL_GATHER, .dtype = SN_I64, .count = 1, .in = &enough, .out = all};
            RANK_OK(sn_coll_run(w.all, &check, soon()));
            RANK_CHECK(all[0] && all[1]);
            sn_coll_group_free(g);
        }
        if (rank == 0 && best > 20)
            fprintf(stderr, "%s was late by %.1f ms\n", sn_coll_op_name(op), best);
        RANK_CHECK(best <= 20);
    }
    sn_coll_req *r;
    if (rank == 0) {
        sn_time from = sn_now();
        RANK_OK(sn_coll_recv(w.c, 1, 4, x, 8, from + PATIENCE, &r));
        while (sn_coll_test(r) == SN_PENDING)
            continue; /* who only asks has deadlines too */
        RANK_CHECK(strstr(sn_errmsg(), "receive from rank 1") != NULL);
        RANK_CHECK(sn_now() - from >= PATIENCE && sn_now() - from < PATIENCE + SN_SEC);
    }
    RANK_OK(world_barrier(&w));
    world_close(&w);
    free(x);
    free(y);
    return 0;
}

static void test_deadlines(void **state)
{
    static const int here[] = {0, 0}, apart[] = {0, 1};
    WORLD(here, deadlines);
    WORLD(apart, deadlines);
}

/* ---- leaving ---- */

/* Rank 1 frees its side of the group, then closes all; rank 0 is told long before its deadline. */
static int leave(sn_boot *boot, int rank, int host, void *ctx)
{
    world w;
    sn_coll_group *g;
    sn_coll_req *out, *in;
    static float x[50000];
    uint32_t *over = ctx;
    if (world_open(boot, host, &w) != 0 || with_all(&w, "short", &g) != 0)
        return 1;
    sn_coll_call call = {.op = SN_ALL_REDUCE, .count = 5, .in = x, .out = x};
    sn_coll_call more = {.op = SN_ALL_REDUCE, .count = 50000, .in = x, .out = x};
    RANK_OK(sn_coll_run(g, &call, soon()));
    if (rank == 1) {
        sn_coll_group_free(g);
        RANK_OK(world_barrier(&w));
        world_close(&w);
        __atomic_store_n(over, 1, __ATOMIC_RELEASE);
        return 0;
    }
    sn_time from = sn_now();
    RANK_FAILS(sn_coll_run(g, &more, soon()), SN_EPEER, "rank 1 (h0) has left");
    RANK_CHECK(strstr(sn_errmsg(), "all_reduce #2 in group short") != NULL);
    RANK_OK(world_barrier(&w)); /* other groups go on */
    RANK_OK(sn_coll_recv(w.c, 1, 9, x, 8, soon(), &in));
    RANK_FAILS(sn_coll_wait(in), SN_EPEER, "rank 1 (h0) has left");
    RANK_OK(sn_coll_send(w.c, 1, 9, x, sizeof(x), soon(), &out));
    RANK_FAILS(sn_coll_wait(out), SN_EPEER, "rank 1 (h0) has left");
    RANK_CHECK(sn_now() - from < 5 * SN_SEC);
    sn_coll_group_free(g);
    world_close(&w);
    return 0;
}

static void test_leave(void **state)
{
    static const int here[] = {0, 0};
    uint32_t *over = sn_ranks_shared(sizeof(*over));
    assert_int_equal(sn_ranks_run(2, here, leave, over, sn_now() + 30 * SN_SEC), 0);
}

/* ---- a failure inside one host ---- */

/* Rank 1 runs out of time inside host 0. Those on host 1, which wait for rank 0 only, hear it. */
static int inside(sn_boot *boot, int rank, int host, void *ctx)
{
    world w;
    sn_coll_group *g;
    static float x[60000];
    if (world_open(boot, host, &w) != 0 || with_all(&w, "inner", &g) != 0)
        return 1;
    sn_coll_call call = {.op = SN_ALL_REDUCE, .count = 60000, .in = x, .out = x};
    RANK_OK(sn_coll_run(g, &call, soon()));
    sn_time from = sn_now();
    if (rank != 0) {
        sn_time patience = rank == 1 ? 100 * SN_MS : 9 * SN_SEC;
        RANK_FAILS(sn_coll_run(g, &call, from + patience), SN_ETIME, "rank 1 (h0): all_reduce #2");
        RANK_CHECK(strstr(sn_errmsg(), "no signal from rank 0 (h0)") != NULL);
        RANK_CHECK(sn_now() - from < 6 * SN_SEC);
    }
    RANK_OK(world_barrier(&w));
    if (rank == 0)
        RANK_FAILS(sn_coll_run(g, &call, soon()), SN_ETIME, "rank 1 (h0): all_reduce #2");
    RANK_OK(world_barrier(&w));
    sn_coll_group_free(g);
    world_close(&w);
    return 0;
}

static void test_inside(void **state)
{
    static const int both[] = {0, 0, 1, 1};
    WORLD(both, inside);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deadlines),
        cmocka_unit_test(test_leave),
        cmocka_unit_test(test_inside),
    };
    return sn_test_run(tests);
}
