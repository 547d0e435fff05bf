/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives among real processes: every operation, type and reduction over sizes and maps, from
 * the arena and from elsewhere, in place and not, against a naive sum; the same bits everywhere. */
#include "unit/coll_world.h"

#include <math.h>

#define GUARD 64
#define LONG 100000 /* elements: more than a stage region */

typedef struct shape {
    sn_coll_call call;
    bool arena, in_place;
    uint64_t seed;
} shape;

static float input(const shape *s, int member, int64_t i)
{
    float f = (float) (sn_hash_uniform(s->seed, (uint64_t) member, (uint64_t) i) * 4 - 2);
    if (s->call.dtype == SN_F16)
        return sn_f16_to_f32(sn_f32_to_f16(f));
    return s->call.dtype == SN_BF16 ? sn_bf16_to_f32(sn_f32_to_bf16(f)) : f;
}

static void put(const shape *s, void *p, int64_t i, float f)
{
    if (s->call.dtype == SN_BF16)
        ((uint16_t *) p)[i] = sn_f32_to_bf16(f);
    else if (s->call.dtype == SN_F16)
        ((uint16_t *) p)[i] = sn_f32_to_f16(f);
    else
        ((float *) p)[i] = f;
}

static float get(const shape *s, const void *p, int64_t i)
{
    if (s->call.dtype == SN_F16)
        return sn_f16_to_f32(((const uint16_t *) p)[i]);
    return s->call.dtype == SN_BF16 ? sn_bf16_to_f32(((const uint16_t *) p)[i])
                                    : ((const float *) p)[i];
}

static int64_t in_count(const shape *s, int p)
{
    sn_coll_op op = s->call.op;
    if (op == SN_BROADCAST || op == SN_BARRIER)
        return 0;
    bool each = op == SN_REDUCE_SCATTER || op == SN_ALL_TO_ALL || op == SN_SCATTER;
    return each ? s->call.count * p : s->call.count;
}

static int64_t out_count(const shape *s, int p)
{
    sn_coll_op op = s->call.op;
    if (op == SN_BARRIER)
        return 0;
    bool each = op == SN_ALL_GATHER || op == SN_ALL_TO_ALL || op == SN_GATHER;
    return each ? s->call.count * p : s->call.count;
}

/* Relative: of sums that are rounded once, at the end. */
static double tolerance_of(sn_dtype dtype)
{
    return dtype == SN_F32 ? 1e-6 : dtype == SN_F16 ? 1.0 / 1024 : 1.0 / 128;
}

static double expected(const shape *s, int me, int p, int64_t i, double *ret_tolerance)
{
    const sn_coll_call *c = &s->call;
    int64_t n = c->count;
    *ret_tolerance = 0;
    if (c->op == SN_BROADCAST)
        return input(s, c->root, i);
    if (c->op == SN_SCATTER)
        return input(s, c->root, n * me + i);
    if (c->op == SN_ALL_GATHER || c->op == SN_GATHER)
        return input(s, (int) (i / n), i % n);
    if (c->op == SN_ALL_TO_ALL)
        return input(s, (int) (i / n), n * me + i % n);
    int64_t at = c->op == SN_REDUCE_SCATTER ? n * me + i : i;
    double sum = input(s, 0, at), size = fabs(sum);
    for (int k = 1; k < p; k++) {
        double x = input(s, k, at);
        sum = c->red == SN_MAX ? fmax(sum, x) : c->red == SN_MIN ? fmin(sum, x) : sum + x;
        size += fabs(x);
    }
    double divide = c->red == SN_AVG ? p : 1;
    if (c->red != SN_MAX && c->red != SN_MIN)
        *ret_tolerance = size / divide * tolerance_of(c->dtype);
    return sum / divide;
}

typedef struct buffers {
    unsigned char *in, *out, *mem[2];
    int64_t ins, outs;
    size_t bytes[2];
} buffers;

/* From the start of the arena's scratch, or from malloc; guarded on both sides. */
static buffers make(const shape *s, const world *w, unsigned char *scratch)
{
    sn_coll_group *g = w->all;
    size_t el = sn_dtype_bytes(s->call.dtype);
    buffers b = {.ins = in_count(s, sn_coll_group_size(g)),
                 .outs = out_count(s, sn_coll_group_size(g))};
    b.bytes[0] = (size_t) b.ins * el;
    b.bytes[1] = (size_t) b.outs * el;
    for (int k = 0; k < 2; k++) {
        size_t whole = SN_ALIGN_UP(b.bytes[k] + 2 * GUARD, 64);
        b.mem[k] = s->arena ? scratch : malloc(whole);
        scratch += whole;
        memset(b.mem[k], 0x5c, whole);
    }
    b.in = b.mem[0] + GUARD;
    b.out = b.mem[1] + GUARD;
    size_t mine = (size_t) s->call.count * el * (size_t) w->rank;
    if (s->in_place && (s->call.op == SN_ALL_GATHER || s->call.op == SN_GATHER))
        b.in = b.out + mine;
    else if (s->in_place && (s->call.op == SN_REDUCE_SCATTER || s->call.op == SN_SCATTER))
        b.out = b.in + mine;
    else if (s->in_place && b.ins > 0)
        b.out = b.in;
    return b;
}

static bool guards_ok(const buffers *b)
{
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < GUARD; i++)
            if (b->mem[k][i] != 0x5c || b->mem[k][GUARD + b->bytes[k] + (size_t) i] != 0x5c)
                return false;
    return true;
}

static int same_everywhere(world *w, const buffers *b, size_t el)
{
    int64_t mine = (int64_t) sn_hash_bytes(b->out, (size_t) b->outs * el), all[64];
    sn_coll_call gather = {
        .op = SN_ALL_GATHER, .dtype = SN_I64, .count = 1, .in = &mine, .out = all};
    RANK_OK(sn_coll_run(w->all, &gather, soon()));
    for (int i = 0; i < w->size; i++)
        RANK_CHECK(all[i] == mine);
    return 0;
}

static int one(world *w, shape s, unsigned char *scratch)
{
    size_t el = sn_dtype_bytes(s.call.dtype);
    buffers b = make(&s, w, scratch);
    bool root = s.call.op == SN_BROADCAST && s.call.root == w->rank;
    for (int64_t i = 0; i < b.ins; i++)
        put(&s, b.in, i, input(&s, w->rank, i));
    for (int64_t i = 0; root && i < b.outs; i++)
        put(&s, b.out, i, input(&s, w->rank, i));
    s.call.in = b.in;
    s.call.out = b.out;
    RANK_OK(sn_coll_run(w->all, &s.call, soon()));
    bool has = s.call.op != SN_GATHER || s.call.root == w->rank;
    for (int64_t i = 0; i < b.outs && has; i++) {
        double tolerance, want = expected(&s, w->rank, w->size, i, &tolerance);
        double got = get(&s, b.out, i);
        if (fabs(got - want) > tolerance) {
            fprintf(stderr, "rank %d of %d: %s %s n=%lld %s%s: [%lld] = %g, not %g\n", w->rank,
                    w->size, sn_coll_op_name(s.call.op), sn_red_name(s.call.red),
                    (long long) s.call.count, s.arena ? "arena" : "malloc",
                    s.in_place ? " in place" : "", (long long) i, got, want);
            return 1;
        }
    }
    RANK_CHECK(guards_ok(&b));
    if (s.call.op == SN_ALL_REDUCE || s.call.op == SN_BROADCAST)
        RANK_CHECK(same_everywhere(w, &b, el) == 0);
    for (int k = 0; k < 2 && !s.arena; k++)
        free(b.mem[k]);
    return 0;
}

static int64_t size_of(uint64_t k)
{
    static const int64_t odd[] = {0, 1, 2, 3, 5, LONG};
    uint64_t pick = sn_hash64(k, 7, 0);
    if (pick % 8 == 0)
        return odd[pick / 8 % SN_COUNT(odd)];
    return (INT64_C(1) << (pick / 8 % 15)) + (int64_t) (pick / 128 % 3) - 1;
}

/* Shapes drawn from a seed; every rank draws the same but for where its buffers are. */
static int sweep(sn_boot *boot, int rank, int host, void *ctx)
{
    world w;
    unsigned char *scratch;
    if (world_open(boot, host, &w) != 0)
        return 1;
    RANK_OK(sn_coll_alloc(w.c, 20 << 20, (void **) &scratch));
    int cases = 260 / w.size;
    for (uint64_t k = 0; k < (uint64_t) cases; k++) {
        uint64_t own = sn_hash64(k, 8, (uint64_t) rank);
        shape s = {.seed = k, .arena = own % 3 != 0, .in_place = own / 3 % 2 == 0};
        s.call.op = (sn_coll_op) (k % SN_COLL_OPS);
        s.call.red = (sn_red) (sn_hash64(k, 1, 0) % SN_REDS);
        static const sn_dtype dtypes[] = {SN_F32, SN_BF16, SN_F16};
        s.call.dtype = dtypes[sn_hash64(k, 2, 0) % 3];
        s.call.deterministic = sn_hash64(k, 4, 0) % 4 == 0;
        s.call.count = size_of(k);
        if (s.call.count == LONG && (s.call.op == SN_ALL_TO_ALL || s.call.op == SN_ALL_GATHER))
            s.call.count = LONG / 4;
        s.call.root = (int) (sn_hash64(k, 3, 0) % (uint64_t) w.size);
        if (one(&w, s, scratch) != 0)
            return 1;
    }
    RANK_CHECK(sn_coll_stats_get(w.c).calls > (uint64_t) cases);
    world_close(&w);
    return 0;
}

static void test_one_host(void **state)
{
    static const int one_rank[] = {0}, two[] = {0, 0}, three[] = {0, 0, 0},
                     eight[] = {0, 0, 0, 0, 0, 0, 0, 0};
    WORLD(one_rank, sweep);
    WORLD(two, sweep);
    WORLD(three, sweep);
    WORLD(eight, sweep);
}

static void test_two_hosts(void **state)
{
    static const int ends[] = {0, 1}, even[] = {0, 0, 1, 1}, mixed[] = {0, 1, 0, 1, 0},
                     eight[] = {0, 0, 0, 0, 1, 1, 1, 1};
    WORLD(ends, sweep);
    WORLD(even, sweep);
    WORLD(mixed, sweep);
    WORLD(eight, sweep);
}

static void test_three_hosts(void **state)
{
    static const int uneven[] = {0, 0, 0, 1, 1, 2}, mixed[] = {2, 0, 1, 0, 2, 0, 1};
    WORLD(uneven, sweep);
    WORLD(mixed, sweep);
}

/* Every algorithm that fits, by name, for every operation: short, and long enough for segments. */
static int by_name(sn_boot *boot, int rank, int host, void *ctx)
{
    const sn_algo_row *const *rows;
    int n = sn_algo_rows(&rows), ran = 0;
    world w;
    unsigned char *scratch;
    if (world_open(boot, host, &w) != 0)
        return 1;
    RANK_OK(sn_coll_alloc(w.c, 20 << 20, (void **) &scratch));
    for (int k = 0; k < 2 * n * SN_COLL_OPS; k++) {
        static const int64_t counts[] = {150, 40000};
        if (w.size > 4 && (k / n + k) % 2 != 0)
            continue; /* short or long: they take turns on fewer cores than ranks */
        uint64_t own = sn_hash64((uint64_t) k, 9, (uint64_t) rank);
        shape s = {.seed = (uint64_t) k, .arena = own % 2 == 0, .in_place = own / 2 % 2 == 0};
        s.call = (sn_coll_call){.op = (sn_coll_op) (k % SN_COLL_OPS),
                                .count = counts[k / SN_COLL_OPS / n],
                                .root = k % w.size,
                                .algorithm = rows[k / SN_COLL_OPS % n]->name};
        sn_coll_req *probe;
        shape empty = s;
        empty.call.count = 0;
        sn_status status = sn_coll_post(w.all, &empty.call, soon(), &probe);
        if (status == SN_ENOTSUP)
            continue;
        RANK_OK(status);
        RANK_OK(sn_coll_wait(probe));
        RANK_CHECK(one(&w, s, scratch) == 0);
        ran++;
    }
    RANK_CHECK(ran > 10);
    world_close(&w);
    return 0;
}

static void test_by_name(void **state)
{
    static const int mixed[] = {0, 1, 0}, here[] = {0, 0, 0}, apart[] = {0, 1, 2},
                     rows[] = {0, 0, 1, 1}, mesh_apart[] = {0, 1, 2, 3, 4, 5},
                     uneven[] = {2, 0, 1, 0, 2, 0, 1, 3};
    WORLD(mixed, by_name);
    WORLD(here, by_name);
    WORLD(apart, by_name);
    WORLD(rows, by_name);
    WORLD(mesh_apart, by_name);
    WORLD(uneven, by_name);
}

/* The sum of members 0, 1, 2 … in this order, whatever the algorithm and the memory. */
static int in_order(sn_boot *boot, int rank, int host, void *ctx)
{
    const sn_algo_row *const *rows;
    int n = sn_algo_rows(&rows), ran = 0;
    enum { MANY = 50000 };
    world w;
    void *mem;
    if (world_open(boot, host, &w) != 0)
        return 1;
    RANK_OK(sn_coll_alloc(w.c, 2 * MANY * sizeof(float), &mem));
    float *plain = malloc(2 * MANY * sizeof(float));
    for (int k = 0; k < 4 * n; k++) {
        shape s = {.seed = (uint64_t) k, .call = {.dtype = SN_F32}};
        float *in = (k + rank) % 2 ? mem : plain, *out = in + MANY;
        sn_coll_call call = {.op = SN_ALL_REDUCE,
                             .count = k / n % 2 ? MANY : 77,
                             .in = in,
                             .out = out,
                             .deterministic = true,
                             .algorithm = rows[k % n]->name};
        for (int64_t i = 0; i < call.count; i++)
            in[i] = input(&s, rank, i);
        sn_coll_req *req;
        sn_status status = sn_coll_post(w.all, &call, soon(), &req);
        if (status == SN_ENOTSUP)
            continue;
        RANK_OK(status);
        RANK_OK(sn_coll_wait(req));
        for (int64_t i = 0; i < call.count; i++) {
            float sum = input(&s, 0, i);
            for (int m = 1; m < w.size; m++)
                sum += input(&s, m, i);
            RANK_CHECK(memcmp(&out[i], &sum, sizeof(sum)) == 0);
        }
        ran++;
    }
    RANK_CHECK(ran >= 4);
    free(plain);
    world_close(&w);
    return 0;
}

static void test_in_order(void **state)
{
    static const int here[] = {0, 0, 0}, mixed[] = {0, 1, 0, 1, 2}, apart[] = {0, 1, 2, 3};
    WORLD(here, in_order);
    WORLD(mixed, in_order);
    WORLD(apart, in_order);
}

/* ---- groups ---- */

/* Rows and columns of a 2 x 2 mesh, listed in another order than the ranks', many requests under
 * way, waited for in another order than posted. */
static int mesh(sn_boot *boot, int rank, int host, void *ctx)
{
    world w;
    sn_coll_group *row, *column, *self;
    sn_coll_req *req[3][12];
    float *buf;
    if (world_open(boot, host, &w) != 0)
        return 1;
    int r[2] = {rank / 2 * 2 + 1, rank / 2 * 2}, c[2] = {rank % 2 + 2, rank % 2}, me[1] = {rank};
    RANK_OK(sn_coll_group_create(w.c, "row", r, 2, soon(), &row));
    RANK_OK(sn_coll_group_create(w.c, "column", c, 2, soon(), &column));
    RANK_OK(sn_coll_group_create(w.c, "self", me, 1, soon(), &self));
    RANK_CHECK(sn_coll_group_size(row) == 2 && sn_coll_group_me(row) == (rank + 1) % 2);
    RANK_OK(sn_coll_alloc(w.c, 36 * 4096 * sizeof(float), (void **) &buf));
    sn_coll_group *g[3] = {row, column, w.all};
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 36 * 4096; i++)
            buf[i] = (float) (rank + 1);
        for (int k = 0; k < 36; k++) {
            sn_coll_call call = {.op = SN_ALL_REDUCE,
                                 .count = k % 2 ? 4096 : 3,
                                 .in = buf + k * 4096,
                                 .out = buf + k * 4096,
                                 .priority = k % 5};
            RANK_OK(sn_coll_post(g[k % 3], &call, soon(), &req[k % 3][k / 3]));
        }
        for (int k = 35; k >= 0; k--)
            RANK_OK(sn_coll_wait(req[(k + rank) % 3][k / 3]));
        for (int k = 0; k < 36; k++) {
            float want = k % 3 == 0   ? (float) (r[0] + r[1] + 2)
                         : k % 3 == 1 ? (float) (c[0] + c[1] + 2)
                                      : 10;
            RANK_CHECK(buf[k * 4096] == want && buf[k * 4096 + 2] == want);
            RANK_CHECK(buf[k * 4096 + 4095] == (k % 2 ? want : (float) (rank + 1)));
        }
    }
    sn_coll_call alone = {
        .op = SN_ALL_REDUCE, .red = SN_AVG, .count = 5000, .in = buf, .out = buf + 8192};
    RANK_OK(sn_coll_run(self, &alone, soon()));
    RANK_CHECK(memcmp(buf, buf + 8192, 5000 * sizeof(float)) == 0);
    sn_coll_group_free(self);
    sn_coll_group_free(row);
    sn_coll_group_free(column);
    world_close(&w);
    return 0;
}

static void test_mesh(void **state)
{
    static const int here[] = {0, 0, 0, 0}, rows[] = {0, 0, 1, 1}, columns[] = {0, 1, 0, 1};
    WORLD(here, mesh);
    WORLD(rows, mesh);
    WORLD(columns, mesh);
}

/* More groups than there are blocks, one after the other; 64 requests and no more. */
static int many(sn_boot *boot, int rank, int host, void *ctx)
{
    world w;
    sn_coll_req *req[64], *over;
    float x = 1, y[64];
    int members[2] = {1, 0};
    if (world_open(boot, host, &w) != 0)
        return 1;
    for (int i = 0; i < 300; i++) {
        sn_coll_group *g;
        RANK_OK(sn_coll_group_create(w.c, "brief", members, 2, soon(), &g));
        sn_coll_call call = {.op = SN_ALL_REDUCE, .count = 1, .in = &x, .out = y};
        RANK_OK(sn_coll_run(g, &call, soon()));
        RANK_CHECK(y[0] == 2);
        sn_coll_group_free(g);
    }
    for (int i = 0; i < 64; i++) {
        sn_coll_call call = {.op = SN_ALL_REDUCE, .count = 1, .in = &x, .out = y + i};
        RANK_OK(sn_coll_post(w.all, &call, soon(), &req[i]));
    }
    sn_coll_call call = {.op = SN_BARRIER};
    RANK_CHECK(sn_coll_post(w.all, &call, soon(), &over) == SN_AGAIN);
    for (int i = 0; i < 64; i++) {
        sn_status status;
        while ((status = sn_coll_test(req[i])) == SN_PENDING)
            sn_coll_progress(w.c);
        RANK_OK(status);
        RANK_CHECK(y[i] == 2);
    }
    RANK_OK(world_barrier(&w));
    world_close(&w);
    return 0;
}

static void test_many(void **state)
{
    static const int here[] = {0, 0}, apart[] = {0, 1};
    WORLD(here, many);
    WORLD(apart, many);
}

/* So many groups that the last ones have the smallest stage: chunks go through notes. */
static int crowd(sn_boot *boot, int rank, int host, void *ctx)
{
    enum { GROUPS = 110 };
    static sn_coll_group *g[GROUPS];
    world w;
    int members[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    if (world_open(boot, host, &w) != 0)
        return 1;
    sn_coll_group *first = w.all;
    for (int i = 0; i < GROUPS; i++)
        RANK_OK(sn_coll_group_create(w.c, "one of many", members, w.size, soon(), &g[i]));
    w.all = g[GROUPS - 1];
    for (uint64_t k = 0; k < 3 * SN_COLL_OPS; k++) {
        shape s = {.seed = k, .in_place = sn_hash64(k, 1, (uint64_t) rank) % 2 == 0};
        s.call = (sn_coll_call){.op = (sn_coll_op) (k % SN_COLL_OPS),
                                .count = k < SN_COLL_OPS ? 6000 : 1500 + (int64_t) k,
                                .root = (int) k % w.size};
        if (one(&w, s, NULL) != 0)
            return 1;
    }
    w.all = first;
    RANK_OK(world_barrier(&w));
    for (int i = 0; i < GROUPS; i++)
        sn_coll_group_free(g[i]);
    world_close(&w);
    return 0;
}

static void test_crowd(void **state)
{
    static const int here[] = {0, 0, 0, 0}, both[] = {0, 0, 1};
    WORLD(here, crowd);
    WORLD(both, crowd);
}

int main(int argc, char **argv)
{
    sn_ranks_args(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_host),    cmocka_unit_test(test_two_hosts),
        cmocka_unit_test(test_three_hosts), cmocka_unit_test(test_by_name),
        cmocka_unit_test(test_mesh),        cmocka_unit_test(test_in_order),
        cmocka_unit_test(test_crowd),       cmocka_unit_test(test_many),
    };
    return sn_test_run(tests);
}
