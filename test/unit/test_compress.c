/* SPDX-License-Identifier: Apache-2.0
 * compress against a model of it in one process: every codec that codes blocks, on every map of
 * hosts. */
#include "unit/compress_world.h"

typedef struct board { /* shared by the ranks */
    const host_map *map;
    sn_codec codec;
    double momentum;
    bool forget;
    int segments;
    sn_compress_segment segment[3];
    sn_red red;
    int64_t count;
    float out[STEPS][RANKS][ELEMENTS]; /* what each rank got: its block, or everything */
    float owed[RANKS][ELEMENTS];       /* by source */
    float back[ELEMENTS];
} board;

/* ---- the model ---- */

/* 0 between segments. */
static float input(const board *b, int rank, int step, int64_t i)
{
    bool inside = b->segments == 0;
    for (int k = 0; k < b->segments; k++)
        inside = inside || (i >= b->segment[k].at && i < b->segment[k].at + b->segment[k].count);
    return inside ? element(rank, step, i) : 0;
}

typedef struct model {
    const board *b;
    int64_t block, span;
    int per; /* blocks that one relay codes for a host */
    int size[RANKS], member[RANKS][RANKS];
    float *residual, *velocity; /* [host][host][place][block] */
    float *code, *part, *value;
} model;

static model model_make(const board *b)
{
    model m = {.b = b, .block = (b->count + b->map->n - 1) / b->map->n};
    int most = 0, least = RANKS;
    for (int i = 0; i < b->map->n; i++)
        m.member[b->map->host[i]][m.size[b->map->host[i]]++] = i;
    for (int h = 0; h < b->map->hosts; h++) {
        most = SN_MAX(most, m.size[h]);
        least = SN_MIN(least, m.size[h]);
    }
    m.per = most == least ? 1 : most;
    m.span = m.per * m.block;
    size_t all = RANKS * RANKS * RANKS * (size_t) m.block;
    m.residual = calloc(all, sizeof(float));
    m.velocity = calloc(all, sizeof(float));
    m.code = calloc((size_t) m.span + 1024, 8);
    m.part = calloc((size_t) m.span, sizeof(float));
    m.value = calloc((size_t) m.span, sizeof(float));
    return m;
}

static void model_free(model *m)
{
    free(m->residual);
    free(m->velocity);
    free(m->code);
    free(m->part);
    free(m->value);
}

static float *state_of(const model *m, float *all, int from, int to, int place)
{
    return all + ((from * RANKS + to) * RANKS + place) * m->block;
}

/* The sum of host `from` of what the relay of `place` codes for host `to`. */
static void host_sum(const model *m, int step, int from, int to, int place)
{
    memset(m->part, 0, (size_t) m->span * sizeof(float));
    for (int k = 0; k < m->per; k++) {
        int at = place + k;
        if (at >= m->size[to])
            continue;
        int64_t begin = m->member[to][at] * m->block;
        for (int i = 0; i < m->size[from]; i++)
            for (int64_t e = 0; e < m->block && begin + e < m->b->count; e++)
                m->part[k * m->block + e] += input(m->b, m->member[from][i], step, begin + e);
    }
}

/* Code x, then what is left, and add what comes out to y. */
static void model_passes(model *m, const sn_compress_segment *s, const float *x, float *owed,
                         float *velocity, int64_t n, float *y)
{
    float *zeros = calloc((size_t) n, sizeof(float)), *left = calloc((size_t) n, sizeof(float));
    int64_t bytes = sn_codec_bytes(&s->codec, n);
    owed = owed || s->passes < 2 ? owed : left;
    for (int pass = 0; pass < SN_MAX(1, s->passes); pass++) {
        sn_codec_encode(&s->codec, pass ? zeros : x, owed, pass ? NULL : velocity, m->b->momentum,
                        n, m->code);
        assert_ok(sn_codec_decode(&s->codec, m->code, bytes, n, true, y));
    }
    free(zeros);
    free(left);
}

/* The segments of block `member`, from x into y. */
static void model_code(model *m, int member, const float *x, float *owed, float *velocity, float *y)
{
    sn_compress_segment all = {.count = m->b->count, .codec = m->b->codec};
    int64_t begin = member * m->block;
    for (int k = 0; k < SN_MAX(1, m->b->segments); k++) {
        const sn_compress_segment *s = m->b->segments ? &m->b->segment[k] : &all;
        int64_t at = SN_MAX(s->at - begin, 0), to = SN_MIN(s->at + s->count - begin, m->block);
        if (to > at)
            model_passes(m, s, x + at, owed ? owed + at : NULL,
                         velocity && s->codec.kind == SN_CODEC_TOPK ? velocity + at : NULL, to - at,
                         y + at);
    }
}

static bool feedback(const board *b)
{
    bool wants = sn_codec_feedback(&b->codec);
    if (b->forget)
        return false;
    for (int k = 0; k < b->segments; k++)
        wants = wants || sn_codec_feedback(&b->segment[k].codec);
    return wants;
}

/* The blocks of host `to` from `place` on, `per` of them, into m->value. */
static void model_reduce(model *m, int step, int to, int place)
{
    host_sum(m, step, to, to, place);
    memcpy(m->value, m->part, (size_t) m->span * sizeof(float));
    for (int from = 0; from < m->b->map->hosts; from++) {
        if (from == to)
            continue;
        host_sum(m, step, from, to, place);
        for (int k = 0; k < m->per && place + k < m->size[to]; k++)
            model_code(m, m->member[to][place + k], m->part + k * m->block,
                       feedback(m->b) ? state_of(m, m->residual, from, to, place + k) : NULL,
                       m->b->momentum > 0 ? state_of(m, m->velocity, from, to, place + k) : NULL,
                       m->value + k * m->block);
    }
}

static void check_reduce(const board *b)
{
    model m = model_make(b);
    float share = b->red == SN_AVG ? (float) b->map->n : 1;
    for (int step = 0; step < STEPS; step++)
        for (int h = 0; h < b->map->hosts; h++)
            for (int place = 0; place < m.size[h]; place += m.per) {
                model_reduce(&m, step, h, place);
                for (int k = 0; k < m.per && place + k < m.size[h]; k++)
                    for (int64_t e = 0; e < m.block; e++) {
                        float want = m.value[k * m.block + e] / share;
                        float got = b->out[step][m.member[h][place + k]][e];
                        if (want != got)
                            fail_msg("step %d, host %d, place %d, element %lld: %g, not %g", step,
                                     h, place + k, (long long) e, (double) got, (double) want);
                    }
            }
    model_free(&m);
}

/* What was delivered and what is owed make what was put in. */
static void check_nothing_lost(const board *b)
{
    int64_t block = b->count / b->map->n;
    for (int64_t i = 0; i < b->count; i++) {
        double in = 0, out = 0;
        for (int step = 0; step < STEPS; step++) {
            for (int r = 0; r < b->map->n; r++)
                in += (double) input(b, r, step, i);
            out += (double) b->out[step][i / block][i % block];
        }
        for (int h = 0; h < b->map->hosts; h++)
            out += (double) b->owed[h][i];
        if (fabs(in - out) > 0.05)
            fail_msg("element %lld: %g in, %g out and owed", (long long) i, in, out);
    }
}

/* ---- reduce_scatter ---- */

static sn_compress_opts opts_of(const board *b, unsigned calls)
{
    return (sn_compress_opts){.name = "x",
                              .codec = b->codec,
                              .segments = b->segments,
                              .segment = b->segment,
                              .count = b->count,
                              .momentum = b->momentum,
                              .forget = b->forget,
                              .calls = calls};
}

static void tell_owed(board *b, sn_compress *z)
{
    const sn_compress_state *s;
    int n = sn_compress_states(z, &s);
    for (int i = 0; i < n; i++)
        for (int64_t k = 0; k < s[i].count; k++) {
            if (s[i].kind == SN_COMPRESS_OWED)
                b->owed[s[i].source][s[i].at + k] += s[i].data[k];
            if (s[i].kind == SN_COMPRESS_OWED_BACK)
                b->back[s[i].at + k] += s[i].data[k];
        }
}

static int reduce_rank(sn_boot *boot, int rank, int host, void *ctx)
{
    board *b = ctx;
    compress_world c = {0};
    sn_compress_opts opts = opts_of(b, SN_COMPRESS_REDUCE_SCATTER);
    if (compress_world_open(boot, host, b->map, &opts, &c))
        return 1;
    float *in = floats(&c.w, b->count), *out = floats(&c.w, b->count);
    int64_t block = b->count / b->map->n;
    for (int step = 0; step < STEPS; step++) {
        float *to = step % 2 ? in + rank * block : out; /* in place, and not */
        for (int64_t i = 0; i < b->count; i++)
            in[i] = input(b, rank, step, i);
        RANK_OK(sn_compress_reduce_scatter(c.z, in, to, b->red, 0, soon()));
        RANK_OK(sn_compress_wait(c.z));
        memcpy(b->out[step][rank], to, (size_t) block * sizeof(float));
    }
    tell_owed(b, c.z);
    compress_world_close(&c);
    return 0;
}

static board *board_make(const host_map *map, const char *codec)
{
    board *b = sn_ranks_shared(sizeof(*b));
    b->map = map;
    b->codec = codec_of(codec);
    b->red = SN_SUM;
    b->count = ELEMENTS / 8 / 7 / 5 * map->n * (map->n == 7 ? 5 : 7);
    return b;
}

static void board_free(board *b)
{
    munmap(b, sizeof(*b));
}

static void board_run(board *b, sn_rank_fn fn)
{
    assert_int_equal(sn_ranks_run(b->map->n, b->map->host, fn, b, sn_now() + 30 * SN_SEC), 0);
}

static const char *const dense[] = {"bf16", "int8", "int4", "onebit", "topk:0.05", "none"};

static void test_reduce(void **state)
{
    for (size_t k = 0; k < SN_COUNT(host_maps); k++)
        for (size_t c = k % 2; c < SN_COUNT(dense); c += k ? 2 : 1) {
            board *b = board_make(&host_maps[k], dense[c]);
            b->red = c % 3 == 2 ? SN_AVG : SN_SUM;
            board_run(b, reduce_rank);
            check_reduce(b);
            if (b->red == SN_SUM && (sn_codec_feedback(&b->codec) || c == 5))
                check_nothing_lost(b);
            board_free(b);
        }
}

/* Nothing is kept for later, and nothing for a checkpoint. */
static void test_forget(void **state)
{
    static const char *const text[] = {"int4", "ternary"};
    for (size_t k = 0; k < SN_COUNT(host_maps); k++) {
        board *b = board_make(&host_maps[k], text[k % 2]);
        b->forget = true;
        board_run(b, reduce_rank);
        check_reduce(b);
        for (int h = 0; h < b->map->hosts; h++)
            for (int64_t i = 0; i < b->count; i++)
                assert_true(b->owed[h][i] == 0);
        board_free(b);
    }
}

static void test_momentum(void **state)
{
    for (size_t k = 1; k < 4; k += 2) {
        board *b = board_make(&host_maps[k], "topk:0.05");
        b->momentum = 0.9;
        board_run(b, reduce_rank);
        check_reduce(b);
        board_free(b);
    }
}

/* ---- all_gather ---- */

/* The value of an element of a block: at step 3 nothing is new. */
static float gathered(const board *b, int rank, int step, int64_t i)
{
    return input(b, 0, rank * 8 + (step == 3 ? 2 : step), rank * (b->count / b->map->n) + i);
}

static int gather_rank(sn_boot *boot, int rank, int host, void *ctx)
{
    board *b = ctx;
    compress_world c = {0};
    sn_compress_opts opts = opts_of(b, SN_COMPRESS_ALL_GATHER);
    if (compress_world_open(boot, host, b->map, &opts, &c))
        return 1;
    int64_t block = b->count / b->map->n;
    float *seen = floats(&c.w, b->count), *mine = floats(&c.w, block);
    for (int step = 0; step < STEPS; step++) {
        for (int64_t i = 0; i < block; i++)
            mine[i] = gathered(b, rank, step, i);
        RANK_OK(sn_compress_all_gather(c.z, mine, seen, 0, soon()));
        RANK_OK(sn_compress_wait(c.z));
        memcpy(b->out[step][rank], seen, (size_t) b->count * sizeof(float));
    }
    compress_world_close(&c);
    return 0;
}

static void check_gather(const board *b)
{
    model m = model_make(b);
    int64_t block = m.block;
    float *seen = calloc((size_t) block, sizeof(float)), *change = calloc((size_t) block, 4);
    bool exact = b->map->hosts == 1;
    for (int r = 0; r < b->map->n; r++) {
        memset(seen, 0, (size_t) block * sizeof(float));
        for (int step = 0; step < STEPS; step++) {
            for (int64_t i = 0; i < block; i++)
                change[i] = gathered(b, r, step, i) - (exact ? 0 : seen[i]);
            if (!exact)
                model_code(&m, r, change, NULL, NULL, seen);
            for (int who = 0; who < b->map->n; who++)
                assert_memory_equal(b->out[step][who] + r * block, exact ? change : seen,
                                    (size_t) block * sizeof(float));
        }
    }
    free(seen);
    free(change);
    model_free(&m);
}

static void test_gather(void **state)
{
    for (size_t k = 0; k < SN_COUNT(host_maps); k++)
        for (size_t c = k % 2; c < SN_COUNT(dense) - 1; c += 2) {
            board *b = board_make(&host_maps[k], dense[c]);
            board_run(b, gather_rank);
            check_gather(b);
            board_free(b);
        }
}

/* ---- all_reduce: any count; both halves keep what they owe ---- */

static int all_reduce_rank(sn_boot *boot, int rank, int host, void *ctx)
{
    board *b = ctx;
    compress_world c = {0};
    sn_compress_opts opts = opts_of(b, SN_COMPRESS_ALL_REDUCE);
    if (compress_world_open(boot, host, b->map, &opts, &c))
        return 1;
    float *data = floats(&c.w, b->count + 1);
    data[b->count] = 77;
    for (int step = 0; step < STEPS; step++) {
        for (int64_t i = 0; i < b->count; i++)
            data[i] = input(b, rank, step, i);
        RANK_OK(sn_compress_all_reduce(c.z, data, SN_SUM, 0, soon()));
        RANK_OK(sn_compress_wait(c.z));
        memcpy(b->out[step][rank], data, (size_t) b->count * sizeof(float));
    }
    RANK_CHECK(data[b->count] == 77);
    tell_owed(b, c.z);
    compress_world_close(&c);
    return 0;
}

static void check_all_reduce(const board *b)
{
    for (int64_t i = 0; i < b->count; i++) {
        double in = 0, out = (double) b->back[i];
        for (int step = 0; step < STEPS; step++) {
            for (int r = 0; r < b->map->n; r++) {
                in += (double) input(b, r, step, i);
                assert_memory_equal(&b->out[step][r][i], &b->out[step][0][i], sizeof(float));
            }
            out += (double) b->out[step][0][i];
        }
        for (int h = 0; h < b->map->hosts; h++)
            out += (double) b->owed[h][i];
        if (fabs(in - out) > 0.1)
            fail_msg("element %lld: %g in, %g out and owed", (long long) i, in, out);
    }
}

static void test_all_reduce(void **state)
{
    for (size_t k = 0; k < SN_COUNT(host_maps); k++)
        for (int c = 0; c < 2; c++) {
            board *b = board_make(&host_maps[k], (k + (size_t) c) % 2 ? "onebit" : "topk:0.05");
            b->count = c ? b->count : (int[]){1, 5, 1001, 130, 333, 2, 77}[k];
            board_run(b, all_reduce_rank);
            check_all_reduce(b);
            board_free(b);
        }
}

/* ---- segments of their own codec, with padding between, cut anywhere by the blocks ---- */

static void test_segments(void **state)
{
    for (size_t k = 0; k < SN_COUNT(host_maps); k++) {
        board *b = board_make(&host_maps[k], "onebit");
        int64_t third = b->count / 3;
        b->segments = 3;
        b->segment[0] = (sn_compress_segment){3, third - 7, codec_of("onebit"), 2};
        b->segment[1] = (sn_compress_segment){third, 50, codec_of("int8"), 0};
        b->segment[2] = (sn_compress_segment){third + 60, third, codec_of("topk:0.1+int4"), 1};
        board_run(b, reduce_rank);
        check_reduce(b);
        check_nothing_lost(b);
        board_run(b, gather_rank);
        check_gather(b);
        memset(b->owed, 0, sizeof b->owed);
        board_run(b, all_reduce_rank);
        check_all_reduce(b);
        board_free(b);
    }
}

/* ---- many vectors at once, waited for in another order on each rank ---- */

enum { VECTORS = 12 };

static int crowd_rank(sn_boot *boot, int rank, int host, void *ctx)
{
    board *b = ctx;
    compress_world c = {0};
    sn_compress *z[VECTORS];
    float *in[VECTORS], *out[VECTORS];
    int64_t block = b->count / b->map->n;
    sn_compress_opts opts = opts_of(b, SN_COMPRESS_REDUCE_SCATTER);
    if (compress_world_open(boot, host, b->map, &opts, &c))
        return 1;
    for (int v = 0; v < VECTORS; v++) {
        opts.calls = v % 3 == 2 ? SN_COMPRESS_ALL_GATHER : SN_COMPRESS_REDUCE_SCATTER;
        RANK_OK(sn_compress_open(c.g, &opts, &z[v]));
        in[v] = floats(&c.w, b->count);
        out[v] = floats(&c.w, b->count);
    }
    sn_prng order = {.seed = (uint64_t) rank};
    for (int round = 0; round < 20; round++) {
        for (int v = 0; v < VECTORS; v++) {
            for (int64_t i = 0; i < b->count; i++)
                in[v][i] = element(rank, v % 3, i);
            if (v % 3 == 2)
                RANK_OK(sn_compress_all_gather(z[v], in[v], out[v], v % 2, soon()));
            else
                RANK_OK(sn_compress_reduce_scatter(z[v], in[v], out[v], SN_SUM, v % 2, soon()));
            if (sn_prng_below(&order, 3) == 0)
                sn_compress_progress(c.g);
        }
        int first = (int) sn_prng_below(&order, VECTORS);
        for (int k = 0; k < VECTORS; k++)
            RANK_OK(sn_compress_wait(z[(first + k * 5) % VECTORS]));
        for (int v = 3; v < VECTORS; v++) /* the same numbers in, the same out */
            RANK_CHECK(!memcmp(out[v], out[v % 3],
                               (size_t) (v % 3 == 2 ? b->count : block) * sizeof(float)));
    }
    for (int v = 0; v < VECTORS; v++)
        sn_compress_close(z[v]);
    sn_compress_stats s = sn_compress_stats_get(c.g);
    RANK_CHECK(b->map->hosts == 1 || (s.plain_bytes > 0 && s.codec_ns > 0));
    compress_world_close(&c);
    return 0;
}

static void test_crowd(void **state)
{
    for (size_t k = 0; k < 5; k++) {
        board *b = board_make(&host_maps[k], "onebit");
        board_run(b, crowd_rank);
        board_free(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reduce),     cmocka_unit_test(test_forget),
        cmocka_unit_test(test_momentum),   cmocka_unit_test(test_gather),
        cmocka_unit_test(test_all_reduce), cmocka_unit_test(test_segments),
        cmocka_unit_test(test_crowd),
    };
    return cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL);
}
