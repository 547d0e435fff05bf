/* SPDX-License-Identifier: Apache-2.0
 * compress: PowerSGD, what cannot be coded, failures, and a change of the split. */
#include "unit/compress_world.h"

#include <sched.h>

/* ---- PowerSGD ---- */

enum { ROWS = 40, COLS = 24, SIDE = 30, COUNT = 5 + ROWS * COLS + 3 + SIDE * SIDE + 12 };

static const sn_compress_matrix matrices[] = {{5, ROWS, COLS}, {8 + ROWS * COLS, SIDE, SIDE}};

typedef struct board {
    const host_map *map;
    int64_t count;
    int posted; /* ranks that have come so far */
    float out[STEPS + 1][RANKS][COUNT];
    float owed[RANKS][COUNT], other[RANKS][COUNT];
} board;

static bool plain(int64_t i)
{
    return i < 5 || (i >= 5 + ROWS * COLS && i < 8 + ROWS * COLS) ||
           i >= 8 + ROWS * COLS + SIDE * SIDE;
}

static sn_compress_opts lowrank_opts(int64_t count, int rank, unsigned calls)
{
    return (sn_compress_opts){.name = "weights",
                              .codec = {.kind = SN_CODEC_POWERSGD, .rank = rank},
                              .count = count,
                              .matrices = 2,
                              .matrix = matrices,
                              .first_relay = 1,
                              .calls = calls};
}

static void tell_owed(sn_compress *z, float owed[RANKS][COUNT], sn_compress_state_kind kind)
{
    const sn_compress_state *s;
    int n = sn_compress_states(z, &s);
    for (int i = 0; i < n; i++)
        for (int64_t k = 0; s[i].kind == kind && k < s[i].count; k++)
            owed[s[i].source][s[i].at + k] += s[i].data[k];
}

static int lowrank_rank(sn_boot *boot, int rank, int host, void *ctx)
{
    board *b = ctx;
    compress_world c = {0};
    int64_t block = b->count / b->map->n;
    sn_compress_opts opts =
        lowrank_opts(b->count, 4, SN_COMPRESS_REDUCE_SCATTER | SN_COMPRESS_ALL_REDUCE);
    if (compress_world_open(boot, host, b->map, &opts, &c))
        return 1;
    float *in = floats(&c.w, b->count), *out = floats(&c.w, b->count);
    for (int step = 0; step < STEPS; step++) {
        for (int64_t i = 0; i < b->count; i++)
            in[i] = element(rank, step, i);
        if (step % 2)
            RANK_OK(sn_compress_all_reduce(c.z, in, SN_SUM, 0, soon()));
        else
            RANK_OK(sn_compress_reduce_scatter(c.z, in, out, SN_SUM, 0, soon()));
        RANK_OK(sn_compress_wait(c.z));
        memcpy(b->out[step][rank], step % 2 ? in : out,
               (size_t) (step % 2 ? b->count : block) * sizeof(float));
    }
    tell_owed(c.z, b->owed, SN_COMPRESS_OWED);
    compress_world_close(&c);
    return 0;
}

static float delivered(const board *b, int step, int64_t i)
{
    int64_t block = b->count / b->map->n;
    return step % 2 ? b->out[step][0][i] : b->out[step][i / block][i % block];
}

static void check_lowrank(const board *b)
{
    for (int64_t i = 0; i < b->count; i++) {
        double in = 0, out = 0;
        for (int step = 0; step < STEPS; step++) {
            double now = 0;
            for (int r = 0; r < b->map->n; r++)
                now += (double) element(r, step, i);
            if (plain(i))
                assert_true(now == (double) delivered(b, step, i));
            in += now;
            out += (double) delivered(b, step, i);
            for (int r = 0; step % 2 && r < b->map->n; r++)
                assert_memory_equal(&b->out[step][r][i], &b->out[step][0][i], sizeof(float));
        }
        for (int h = 0; h < b->map->hosts; h++)
            out += (double) b->owed[h][i];
        if (fabs(in - out) > 0.05)
            fail_msg("element %lld: %g in, %g out and owed", (long long) i, in, out);
    }
}

static board *board_make(const host_map *map)
{
    board *b = sn_ranks_shared(sizeof(*b));
    b->map = map;
    b->count = COUNT - COUNT % map->n;
    return b;
}

static void board_run(board *b, sn_rank_fn fn)
{
    assert_int_equal(sn_ranks_run(b->map->n, b->map->host, fn, b, sn_now() + 30 * SN_SEC), 0);
}

static void test_lowrank(void **state)
{
    for (size_t k = 0; k < SN_COUNT(host_maps) - 1; k++) {
        board *b = board_make(&host_maps[k]);
        board_run(b, lowrank_rank);
        check_lowrank(b);
        munmap(b, sizeof(*b));
    }
}

/* A gradient that is the same each step and has the rank of the code is delivered without loss,
 * zeros do not end the iteration, and NaN leaves nothing behind. */
static int converge_rank(sn_boot *boot, int rank, int host, void *ctx)
{
    board *b = ctx;
    compress_world c = {0};
    sn_compress_opts opts = lowrank_opts(b->count, 2, SN_COMPRESS_ALL_REDUCE);
    if (compress_world_open(boot, host, b->map, &opts, &c))
        return 1;
    float *data = floats(&c.w, b->count);
    for (int step = 0; step < 16; step++) {
        for (int64_t i = 0; i < b->count; i++)
            data[i] = 0;
        for (int64_t i = 0; step >= 2 && i < ROWS * COLS; i++)
            data[5 + i] = (float) ((i / COLS) % 5 - 2) * (float) (i % COLS);
        if (step == 6 && rank == 1)
            data[5] = step == 6 ? NAN : 0;
        RANK_OK(sn_compress_all_reduce(c.z, data, SN_AVG, 0, soon()));
        RANK_OK(sn_compress_wait(c.z));
        for (int64_t i = 0; i < ROWS * COLS; i++) {
            float want = (float) ((i / COLS) % 5 - 2) * (float) (i % COLS);
            if (step == 6)
                RANK_CHECK(isnan(data[5 + i]));
            else if (step == 5 || step == 15)
                RANK_CHECK(fabsf(data[5 + i] - want) < 0.01f);
        }
        RANK_CHECK(data[0] == 0 && data[b->count - 1] == 0);
    }
    compress_world_close(&c);
    return 0;
}

static void test_lowrank_converges(void **state)
{
    for (size_t k = 1; k < 4; k += 2) {
        board *b = board_make(&host_maps[k]);
        board_run(b, converge_rank);
        munmap(b, sizeof(*b));
    }
}

/* ---- what cannot be coded, and calls that are wrong ---- */

static int nan_rank(sn_boot *boot, int rank, int host, void *ctx)
{
    board *b = ctx;
    static const char *const codec[] = {"bf16", "int4", "onebit", "topk:0.1"};
    compress_world c = {0};
    sn_compress *z;
    sn_compress_opts opts = {.name = "x",
                             .codec = codec_of("none"),
                             .count = b->count,
                             .calls = SN_COMPRESS_REDUCE_SCATTER};
    if (compress_world_open(boot, host, b->map, &opts, &c))
        return 1;
    float *in = floats(&c.w, b->count), *out = floats(&c.w, b->count);
    for (size_t k = 0; k < SN_COUNT(codec); k++) {
        opts.codec = codec_of(codec[k]);
        RANK_OK(sn_compress_open(c.g, &opts, &z));
        for (int step = 0; step < 2; step++) {
            for (int64_t i = 0; i < b->count; i++)
                in[i] = 1;
            if (step == 0 && rank == 1)
                in[0] = NAN;
            RANK_OK(sn_compress_reduce_scatter(z, in, out, SN_SUM, 0, soon()));
            RANK_OK(sn_compress_wait(z));
            RANK_CHECK(rank != 0 || isnan(out[0]) == (step == 0));
        }
        sn_compress_close(z);
    }
    compress_world_close(&c);
    return 0;
}

static void test_nan(void **state)
{
    board *b = board_make(&host_maps[0]);
    board_run(b, nan_rank);
    munmap(b, sizeof(*b));
}

static int wrong_rank(sn_boot *boot, int rank, int host, void *ctx)
{
    board *b = ctx;
    compress_world c = {0};
    sn_compress *z = NULL;
    sn_compress_matrix far = {0, 1 << 20, 1 << 20};
    sn_compress_opts opts = lowrank_opts(b->count, 2, SN_COMPRESS_ALL_GATHER);
    if (compress_world_open(boot, host, b->map, &opts, &c))
        return 1;
    float *x = floats(&c.w, b->count);
    RANK_FAILS(sn_compress_all_gather(c.z, x, x, 0, soon()), SN_ENOTSUP, "powersgd codes sums");
    RANK_FAILS(sn_compress_all_reduce(c.z, x, SN_SUM, 0, soon()), SN_EINVAL,
               "weights was not opened for this call");
    opts.matrix = &far;
    opts.matrices = 1;
    RANK_FAILS(sn_compress_open(c.g, &opts, &z), SN_EINVAL, "overlaps or reaches beyond");
    opts.matrices = 0;
    opts.count = 101;
    RANK_FAILS(sn_compress_open(c.g, &opts, &z), SN_EINVAL, "do not divide among 2 members");
    opts.count = 100;
    opts.momentum = 0.5;
    RANK_FAILS(sn_compress_open(c.g, &opts, &z), SN_EINVAL, "momentum correction is top-k's");
    opts.momentum = 0;
    opts.codec = codec_of("onebit");
    opts.count = INT64_C(1) << 40;
    RANK_FAILS(sn_compress_open(c.g, &opts, &z), SN_EFIT, "");
    opts.count = 100;
    opts.calls = SN_COMPRESS_REDUCE_SCATTER;
    RANK_OK(sn_compress_open(c.g, &opts, &z));
    RANK_FAILS(sn_compress_reduce_scatter(z, x, x, SN_MAX, 0, soon()), SN_ENOTSUP,
               "sum and avg can");
    RANK_OK(sn_compress_reduce_scatter(z, x, x + rank * 50, SN_SUM, 0, soon()));
    RANK_FAILS(sn_compress_reduce_scatter(z, x, x, SN_SUM, 0, soon()), SN_EINVAL,
               "under way already");
    RANK_OK(sn_compress_wait(z));
    RANK_OK(sn_compress_test(z));
    sn_compress_close(z);
    compress_world_close(&c);
    return 0;
}

static void test_wrong(void **state)
{
    board *b = board_make(&host_maps[0]);
    board_run(b, wrong_rank);
    munmap(b, sizeof(*b));
}

/* Uncompressed calls are coll's, bit by bit, and mix with the others. */
static int plain_rank(sn_boot *boot, int rank, int host, void *ctx)
{
    board *b = ctx;
    compress_world c = {0};
    sn_compress_opts opts = {.name = "x",
                             .codec = codec_of("onebit"),
                             .count = b->count,
                             .calls = SN_COMPRESS_REDUCE_SCATTER};
    if (compress_world_open(boot, host, b->map, &opts, &c))
        return 1;
    int64_t block = b->count / b->map->n;
    float *in = floats(&c.w, b->count), *out = floats(&c.w, block), *want = floats(&c.w, block);
    for (int step = 0; step < 4; step++) {
        for (int64_t i = 0; i < b->count; i++)
            in[i] = element(rank, step, i) / 3;
        sn_coll_call call = {.op = SN_REDUCE_SCATTER,
                             .red = SN_SUM,
                             .dtype = SN_F32,
                             .count = block,
                             .in = in,
                             .out = want};
        RANK_OK(sn_coll_run(c.w.all, &call, soon()));
        sn_compress_plain(c.z, step % 2);
        RANK_OK(sn_compress_reduce_scatter(c.z, in, out, SN_SUM, 0, soon()));
        RANK_OK(sn_compress_wait(c.z));
        RANK_CHECK((memcmp(out, want, (size_t) block * sizeof(float)) == 0) == step % 2);
    }
    compress_world_close(&c);
    return 0;
}

static void test_plain(void **state)
{
    board *b = board_make(&host_maps[1]);
    board_run(b, plain_rank);
    munmap(b, sizeof(*b));
}

/* ---- failures ---- */

static int dead_rank(sn_boot *boot, int rank, int host, void *ctx)
{
    board *b = ctx;
    compress_world c = {0};
    sn_compress *y;
    sn_compress_opts opts = {.name = "bucket 3",
                             .codec = codec_of("onebit"),
                             .count = b->count,
                             .calls = SN_COMPRESS_REDUCE_SCATTER};
    if (compress_world_open(boot, host, b->map, &opts, &c))
        return 1;
    RANK_OK(sn_compress_open(c.g, &opts, &y));
    float *in = floats(&c.w, 2 * b->count);
    while (rank == 1 && __atomic_load_n(&b->posted, __ATOMIC_ACQUIRE) < b->map->n - 1)
        sched_yield();
    if (rank == 1)
        sn_rank_die();
    RANK_OK(sn_compress_reduce_scatter(c.z, in, in, SN_SUM, 0, soon()));
    RANK_OK(sn_compress_reduce_scatter(y, in + b->count, in, SN_SUM, 0, soon()));
    __atomic_fetch_add(&b->posted, 1, __ATOMIC_RELEASE);
    sn_time began = sn_now();
    sn_status status = sn_compress_wait(c.z);
    RANK_CHECK(status == SN_EPEER);
    RANK_CHECK(strstr(sn_errmsg(), "compressed reduce_scatter of bucket 3: "));
    RANK_CHECK(strstr(sn_errmsg(), "rank 1"));
    RANK_FAILS(sn_compress_wait(y), SN_EPEER, "rank 1"); /* behind it in the order */
    RANK_FAILS(sn_compress_reduce_scatter(c.z, in, in, SN_SUM, 0, soon()), SN_EPEER, "rank 1");
    RANK_CHECK(sn_now() - began < 2 * SN_SEC);
    sn_compress_close(y);
    compress_world_close(&c);
    return 0;
}

static void test_dead(void **state)
{
    for (size_t k = 0; k < 4; k++) {
        board *b = board_make(&host_maps[k]);
        board_run(b, dead_rank);
        munmap(b, sizeof(*b));
    }
}

static int late_rank(sn_boot *boot, int rank, int host, void *ctx)
{
    board *b = ctx;
    compress_world c = {0};
    sn_compress_opts opts = {.name = "bucket 3",
                             .codec = codec_of("int8"),
                             .count = b->count,
                             .calls = SN_COMPRESS_ALL_GATHER};
    if (compress_world_open(boot, host, b->map, &opts, &c))
        return 1;
    float *mine = floats(&c.w, b->count), *seen = floats(&c.w, b->count);
    while (rank == b->map->n - 1) { /* alive, and not there */
        sn_coll_progress(c.w.c);
        if (__atomic_load_n(&b->posted, __ATOMIC_ACQUIRE) == b->map->n - 1)
            return 0;
    }
    sn_time began = sn_now(), patience = SN_SEC / 5;
    RANK_OK(sn_compress_all_gather(c.z, mine, seen, 0, began + patience));
    sn_status status = sn_compress_wait(c.z);
    __atomic_fetch_add(&b->posted, 1, __ATOMIC_RELEASE);
    RANK_CHECK(status == SN_ETIME || status == SN_EPEER);
    RANK_CHECK(strstr(sn_errmsg(), "compressed all_gather of bucket 3: "));
    RANK_CHECK(sn_now() - began < patience + SN_SEC); /* a busy machine */
    return 0;
}

static void test_late(void **state)
{
    for (size_t k = 0; k < 4; k += 3) {
        board *b = board_make(&host_maps[k]);
        board_run(b, late_rank);
        munmap(b, sizeof(*b));
    }
}

/* ---- another split ---- */

static int give_rank(sn_boot *boot, int rank, int host, void *ctx)
{
    board *b = ctx;
    compress_world c = {0};
    sn_compress_opts opts = {.name = "x",
                             .codec = codec_of("topk:0.05"),
                             .count = b->count,
                             .momentum = 0.5,
                             .calls = SN_COMPRESS_REDUCE_SCATTER};
    if (compress_world_open(boot, host, b->map, &opts, &c))
        return 1;
    float *in = floats(&c.w, b->count);
    for (int step = 0; step < 3; step++) {
        for (int64_t i = 0; i < b->count; i++)
            in[i] = element(rank, step, i);
        RANK_OK(sn_compress_reduce_scatter(c.z, in, in + rank * (b->count / b->map->n), SN_SUM, 0,
                                           soon()));
        RANK_OK(sn_compress_wait(c.z));
    }
    tell_owed(c.z, b->owed, SN_COMPRESS_OWED);
    compress_world_close(&c);
    return 0;
}

static int take_rank(sn_boot *boot, int rank, int host, void *ctx)
{
    board *b = ctx;
    compress_world c = {0};
    sn_compress_opts opts = {.name = "x",
                             .codec = codec_of("topk:0.05"),
                             .count = b->count,
                             .calls = SN_COMPRESS_REDUCE_SCATTER};
    if (compress_world_open(boot, host, b->map, &opts, &c))
        return 1;
    for (int source = 0; source < RANKS; source++)
        for (int64_t at = 0; at < b->count; at += 100)
            sn_compress_take_over(c.z, SN_COMPRESS_OWED, source, at, SN_MIN(100, b->count - at),
                                  b->owed[source] + at);
    tell_owed(c.z, b->other, SN_COMPRESS_OWED);
    compress_world_close(&c);
    return 0;
}

static void test_take_over(void **state)
{
    for (size_t from = 0; from < 6; from += 2)
        for (size_t to = 0; to < 6; to++) {
            if (840 % host_maps[from].n || 840 % host_maps[to].n)
                continue;
            board *b = board_make(&host_maps[from]);
            b->count = 840;
            board_run(b, give_rank);
            b->map = &host_maps[to];
            board_run(b, take_rank);
            bool all_zero = true;
            for (int64_t i = 0; i < b->count; i++) {
                double before = 0, after = 0;
                for (int h = 0; h < RANKS; h++) {
                    before += (double) b->owed[h][i];
                    after += (double) b->other[h][i];
                }
                all_zero = all_zero && before == 0;
                assert_true(fabs(before - after) < 1e-3);
            }
            assert_false(all_zero);
            if (from == to) /* the same split: the same bits */
                assert_memory_equal(b->owed, b->other, sizeof(b->owed));
            munmap(b, sizeof(*b));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lowrank), cmocka_unit_test(test_lowrank_converges),
        cmocka_unit_test(test_nan),     cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_plain),   cmocka_unit_test(test_dead),
        cmocka_unit_test(test_late),    cmocka_unit_test(test_take_over),
    };
    return cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL);
}
