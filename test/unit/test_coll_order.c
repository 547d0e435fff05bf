/* SPDX-License-Identifier: Apache-2.0
 *
 * What is urgent goes first, many small tensors go as one, and buffers of other segments go as they
 * are. */
#include "unit/coll_world.h"

/* ---- urgent first ---- */

#define LONG (4 << 20) /* elements */

/* A long operation, then an urgent short one: whoever has the short one first has not the long one.
 * It cannot be otherwise: when the later of the two posts the short one it has done a piece of its
 * share of the long one at most. */
static int urgent(sn_boot *boot, int rank, int host, void *ctx)
{
    world w;
    void *mem;
    const bool *arena = ctx;
    float x[16] = {1};
    int64_t pending[4] = {0}, mine = 0;
    if (world_open(boot, host, &w) != 0)
        return 1;
    RANK_OK(sn_coll_alloc(w.c, LONG * sizeof(float), &mem));
    float *big = *arena ? mem : malloc(LONG * sizeof(float));
    for (int i = 0; i < LONG; i++)
        big[i] = (float) (i % 5 + rank);
    sn_coll_call all[2] = {{.op = SN_ALL_REDUCE, .count = LONG, .in = big, .out = big},
                           {.op = SN_ALL_REDUCE, .count = 16, .in = x, .out = x, .priority = 5}};
    sn_coll_req *req[2];
    for (int i = 0; i < 2; i++)
        RANK_OK(sn_coll_post(w.all, &all[i], soon(), &req[i]));
    RANK_OK(sn_coll_wait(req[1]));
    sn_status status = sn_coll_test(req[0]);
    mine = status == SN_PENDING;
    if (mine)
        RANK_OK(sn_coll_wait(req[0]));
    else
        RANK_OK(status);
    sn_coll_call tell = {
        .op = SN_ALL_GATHER, .dtype = SN_I64, .count = 1, .in = &mine, .out = pending};
    RANK_OK(sn_coll_run(w.all, &tell, soon()));
    RANK_CHECK(pending[0] + pending[1] > 0 && x[0] == 2);
    for (int i = 0; i < LONG; i++)
        RANK_CHECK(big[i] == (float) (2 * (i % 5) + 1));
    if (!*arena)
        free(big);
    world_close(&w);
    return 0;
}

static void test_urgent(void **state)
{
    static const int here[] = {0, 0}, apart[] = {0, 1};
    bool arena[2] = {true, false};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sn_ranks_run(2, here, urgent, &arena[i], sn_now() + 30 * SN_SEC), 0);
        assert_int_equal(sn_ranks_run(2, apart, urgent, &arena[i], sn_now() + 30 * SN_SEC), 0);
    }
}

/* ---- many as one ---- */

#define PARTS 300

static int64_t part_count(int k)
{
    static const int64_t counts[] = {7, 0, 1, 1000, 64, 300, 33, 5000};
    return counts[(size_t) k % SN_COUNT(counts)];
}

static int parts(sn_boot *boot, int rank, int host, void *ctx)
{
    world w;
    void *arena;
    static sn_coll_call call[PARTS];
    if (world_open(boot, host, &w) != 0)
        return 1;
    RANK_OK(sn_coll_alloc(w.c, 8 << 20, &arena));
    static const int numbers[] = {1, 10, 73, PARTS};
    for (size_t round = 0; round < SN_COUNT(numbers); round++) {
        int n = numbers[round];
        float *at = arena, *plain = malloc(8 << 20), *from = plain;
        for (int k = 0; k < n; k++) {
            int64_t count = part_count(k);
            float *buf = (k + rank) % 3 == 0 ? from : at, *out = buf;
            if (k % 4 == 1) /* not in place */
                out = buf + count;
            *(buf == from ? &from : &at) += 2 * count;
            for (int64_t i = 0; i < count; i++)
                buf[i] = (float) (k + rank * (int) (i % 10));
            call[k] = (sn_coll_call){
                .op = SN_ALL_REDUCE, .red = SN_AVG, .count = count, .in = buf, .out = out};
        }
        sn_coll_req *req;
        RANK_OK(sn_coll_post_many(w.all, call, n, soon(), &req));
        RANK_OK(sn_coll_wait(req));
        for (int k = 0; k < n; k++) {
            const float *out = call[k].out;
            for (int64_t i = 0; i < call[k].count; i++)
                RANK_CHECK(out[i] == (float) k + (float) (w.size - 1) / 2 * (float) (i % 10));
        }
        free(plain);
    }
    sn_coll_stats stats = sn_coll_stats_get(w.c);
    RANK_CHECK(stats.calls == 4);
    for (int k = 0; k < 3; k++) /* as long in all, but in other parts */
        call[k] = (sn_coll_call){.op = SN_ALL_REDUCE, .count = 7, .in = arena, .out = arena};
    call[0].count += rank == 1;
    call[2].count -= rank == 1;
    sn_coll_req *req;
    RANK_OK(sn_coll_post_many(w.all, call, 3, soon(), &req));
    RANK_FAILS(sn_coll_wait(req), SN_EMISMATCH, "in parts");
    world_close(&w);
    return 0;
}

static int odd_parts(sn_boot *boot, int rank, int host, void *ctx)
{
    world w;
    sn_coll_req *req;
    float x[8];
    if (world_open(boot, host, &w) != 0)
        return 1;
    sn_coll_call call[2] = {{.op = SN_ALL_REDUCE, .count = 4, .in = x, .out = x},
                            {.op = SN_BROADCAST, .count = 4, .out = x + 4}};
    RANK_FAILS(sn_coll_post_many(w.all, call, 2, soon(), &req), SN_EINVAL, "all are all_reduces");
    RANK_FAILS(sn_coll_post_many(w.all, call, 0, soon(), &req), SN_EINVAL, "0 calls");
    call[1] = (sn_coll_call){.op = SN_ALL_REDUCE, .count = 4, .in = x, .out = x + 2};
    RANK_FAILS(sn_coll_post_many(w.all, call, 2, soon(), &req), SN_EINVAL, "overlap");
    call[1].out = NULL;
    RANK_FAILS(sn_coll_post_many(w.all, call, 2, soon(), &req), SN_EINVAL, "no buffer");
    world_close(&w);
    return 0;
}

static void test_parts(void **state)
{
    static const int here[] = {0, 0, 0}, both[] = {0, 0, 1, 1}, one[] = {0};
    WORLD(here, parts);
    WORLD(both, parts);
    WORLD(one, odd_parts);
}

/* ---- buffers of other segments ---- */

static int elsewhere(sn_boot *boot, int rank, int host, void *ctx)
{
    world w;
    sn_segment *seg;
    sn_coll_req *req;
    void *mem;
    int mates[2] = {rank / 2 * 2, rank / 2 * 2 + 1};
    enum { N = 100000 };
    if (world_open(boot, host, &w) != 0)
        return 1;
    RANK_OK(sn_gmem_create(w.net, mates, 2, 2 << 20, soon(), &seg));
    RANK_OK(sn_gmem_alloc(seg, N * sizeof(float), &mem));
    RANK_OK(sn_coll_use(w.c, seg));
    float *x = mem;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < N; i++)
            x[i] = (float) (i % 100 + rank);
        sn_coll_call call = {.op = SN_ALL_REDUCE, .count = N, .in = x, .out = x};
        RANK_OK(sn_coll_run(w.all, &call, soon()));
        for (int i = 0; i < N; i++)
            RANK_CHECK(x[i] == (float) (4 * (i % 100) + 6));
        x[0] = (float) rank;
        RANK_OK(sn_coll_send(w.c, rank ^ 1, 3, x, 40000, soon(), &req));
        static float got[10000];
        sn_coll_req *in;
        RANK_OK(sn_coll_recv(w.c, rank ^ 1, 3, got, sizeof(got), soon(), &in));
        RANK_OK(sn_coll_wait(in));
        RANK_OK(sn_coll_wait(req));
        RANK_CHECK(got[0] == (float) (rank ^ 1) && got[1] == 10 && got[9999] == 402);
    }
    world_close(&w);
    sn_gmem_free(seg);
    return 0;
}

/* One rank has not said that it knows the segment. */
static int unknown(sn_boot *boot, int rank, int host, void *ctx)
{
    world w;
    sn_segment *seg;
    void *mem;
    static const int both[2] = {0, 1};
    if (world_open(boot, host, &w) != 0)
        return 1;
    RANK_OK(sn_gmem_create(w.net, both, 2, 1 << 20, soon(), &seg));
    RANK_OK(sn_gmem_alloc(seg, 40000, &mem));
    if (rank == 0)
        RANK_OK(sn_coll_use(w.c, seg));
    sn_coll_call call = {.op = SN_ALL_REDUCE, .count = 10000, .in = mem, .out = mem};
    RANK_FAILS(sn_coll_run(w.all, &call, soon()), SN_EINVAL, "sn_coll_use");
    world_close(&w);
    sn_gmem_free(seg);
    return 0;
}

static void test_elsewhere(void **state)
{
    static const int two[] = {0, 0}, here[] = {0, 0, 0, 0}, both[] = {0, 0, 1, 1};
    WORLD(both, elsewhere);
    WORLD(here, elsewhere);
    WORLD(two, unknown);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_urgent),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_elsewhere),
    };
    return sn_test_run(tests);
}
