/* SPDX-License-Identifier: Apache-2.0
 *
 * Cases A9, A18, F1, F2, F4, F8: where the bytes are. Nothing outside a result is written, nothing
 * of an input, whatever the size; overlaps are refused; counts beyond 2^31; owners who leave early.
 */
#include "unit/cases_world.h"

#define PAGE 4096

/* ---- A18: pages that must not be touched ---- */

/* `bytes` of memory that end (or begin) at a page that faults. */
static char *fenced(size_t bytes, bool at_end, char **ret_map)
{
    size_t whole = SN_ALIGN_UP(bytes + 1, PAGE);
    char *map = mmap(NULL, whole + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || mprotect(map + PAGE, whole, PROT_READ | PROT_WRITE))
        abort();
    *ret_map = map;
    return at_end ? map + PAGE + whole - bytes : map + PAGE;
}

/* Each buffer lies between pages that fault; IN is read-only while the call runs, and so is the
 * page of what a call has no use for. */
static int guarded(sn_boot *boot, int rank, int host, void *ctx)
{
    world w;
    if (case_open(boot, host, 1 << 20, &w) != 0)
        return 1;
    for (uint64_t k = 0; k < 60; k++) {
        char *maps[2];
        int64_t count = k % 4 == 0 ? 30000 : 1 + case_draw(CASES_SEED, k, 6, 100);
        sn_coll_call c = case_call(CASES_SEED + 18, k, w.size, count);
        size_t el = sn_dtype_bytes(c.dtype), ins = (size_t) case_ins(&c, rank, w.size) * el;
        size_t outs = (size_t) case_outs(&c, rank, w.size) * el;
        char *in = fenced(ins, k % 2, &maps[0]), *out = fenced(outs, k % 2, &maps[1]);
        case_fill(&c, k, rank, w.size, in, out);
        RANK_CHECK(
            mprotect(maps[0] + PAGE, SN_ALIGN_UP(ins + 1, PAGE), ins ? PROT_READ : PROT_NONE) == 0);
        c.in = in;
        c.out = out;
        RANK_OK(sn_coll_run(w.all, &c, soon()));
        RANK_CHECK(case_check(&c, k, rank, w.size, out) == 0);
        munmap(maps[0], SN_ALIGN_UP(ins + 1, PAGE) + 2 * PAGE);
        munmap(maps[1], SN_ALIGN_UP(outs + 1, PAGE) + 2 * PAGE);
    }
    world_close(&w);
    return 0;
}

static void test_guard_pages(void **state)
{
    static const int here[] = {0, 0, 0}, both[] = {0, 1, 1, 0}, apart[] = {0, 1, 2};
    WORLD(here, guarded);
    WORLD(both, guarded);
    WORLD(apart, guarded);
}

/* ---- F8: small sizes between canaries ---- */

/* Every operation of 1 … 33 elements, side by side in one block of memory that is else 0x5c. */
static int canaries(sn_boot *boot, int rank, int host, void *ctx)
{
    world w;
    unsigned char *arena, *plain;
    if (case_open(boot, host, 1 << 20, &w) != 0)
        return 1;
    size_t room = (size_t) 33 * 8 * (size_t) w.size + 2 * 64;
    RANK_OK(sn_coll_alloc(w.c, 2 * room, (void **) &arena));
    plain = malloc(2 * room);
    for (int64_t count = 1; count <= 33; count++)
        for (uint64_t op = 0; op < SN_COLL_OPS; op++) {
            uint64_t k = (uint64_t) count * SN_COLL_OPS + op;
            sn_coll_call c = case_call(CASES_SEED + 8, k, w.size, count);
            c.op = (sn_coll_op) op;
            if (case_reduces(c.op) && c.dtype > SN_BF16)
                c.dtype = SN_F32;
            size_t el = sn_dtype_bytes(c.dtype), odd = el * (size_t) case_draw(9, k, 9, 5);
            unsigned char *mem = case_draw(9, k, (uint64_t) rank, 2) ? arena : plain;
            unsigned char *in = mem + 64 - odd, *out = mem + room + 64 - odd;
            memset(mem, 0x5c, 2 * room);
            RANK_CHECK(case_run(w.all, c, k, in, out) == 0);
            memset(in, 0x5c, (size_t) case_ins(&c, rank, w.size) * el);
            memset(out, 0x5c, (size_t) case_outs(&c, rank, w.size) * el);
            for (size_t i = 0; i < 2 * room; i++)
                RANK_CHECK(mem[i] == 0x5c);
            RANK_OK(world_barrier(&w)); /* before peers' buffers are filled again */
        }
    free(plain);
    world_close(&w);
    return 0;
}

static void test_canaries(void **state)
{
    for (int n = 2; n <= 9; n++) {
        int map[9];
        for (int i = 0; i < n; i++)
            map[i] = i % (1 + n % 3);
        assert_int_equal(sn_ranks_run(n, map, canaries, NULL, sn_now() + 60 * SN_SEC), 0);
    }
}

/* ---- F1: all_to_all with nothing for some ---- */

static int exchange(sn_boot *boot, int rank, int host, void *ctx)
{
    int32_t in[512], out[512];
    char text[32];
    world w;
    sn_coll_group *g;
    if (case_open(boot, host, 1 << 20, &w) != 0)
        return 1;
    sn_coll_call none = {.op = SN_ALL_TO_ALL, .dtype = SN_I32}, one = none;
    one.count = 1;
    for (uint64_t k = 0; k < 20; k++) {
        none.in = k % 2 ? in : NULL; /* on every rank in its own way */
        none.out = (k + (uint64_t) rank) % 3 ? out : NULL;
        RANK_OK(sn_coll_run(w.all, &none, soon()));
        RANK_CHECK(case_run(w.all, one, k, in, out) == 0);
    }
    /* one rank has something to send and nobody expects it: both are named, long before the end */
    if (case_group(&w, "uneven", &g) != 0)
        return 1;
    sn_coll_call c = rank == w.size - 1 ? one : none;
    c.in = in;
    c.out = out;
    sn_time from = sn_now();
    RANK_FAILS(sn_coll_run(g, &c, soon()), SN_EMISMATCH, "all_to_all of 1 I32");
    RANK_CHECK(strstr(sn_errmsg(), "all_to_all of 0 I32") != NULL);
    snprintf(text, sizeof text, "rank %d (", w.size - 1);
    RANK_CHECK(strstr(sn_errmsg(), text) != NULL && sn_now() - from < 5 * SN_SEC);
    sn_coll_group_free(g);
    /* and a buffer that is missing is refused before anything is sent */
    c = one;
    c.in = in;
    RANK_FAILS(sn_coll_run(w.all, &c, soon()), SN_EINVAL, "no buffer");
    RANK_OK(world_barrier(&w));
    world_close(&w);
    return 0;
}

static void test_exchange_of_nothing(void **state)
{
    static const int two[] = {0, 0}, three[] = {0, 1, 2}, eight[] = {0, 1, 2, 0, 1, 2, 0, 1};
    WORLD(two, exchange);
    WORLD(three, exchange);
    WORLD(eight, exchange);
}

/* ---- F2: overlaps ---- */

static int overlap(sn_boot *boot, int rank, int host, void *ctx)
{
    enum { N = 40 };
    float mem[8 * N];
    sn_coll_req *r;
    world w;
    if (case_open(boot, host, 1 << 20, &w) != 0)
        return 1;
    for (int op = 0; op < SN_COLL_OPS; op++) {
        sn_coll_call c = {.op = (sn_coll_op) op, .count = N};
        int64_t ins = case_ins(&c, rank, w.size), outs = case_outs(&c, rank, w.size);
        if (ins == 0 || outs == 0)
            continue;
        for (int64_t by = -ins + 1; by < outs; by++) { /* IN begins so many elements after OUT */
            bool same = by == 0 && ins == outs, block = false;
            block = (ins < outs && by == ins * rank) || (ins > outs && by == -outs * rank);
            c.out = mem + 4 * N - 1;
            c.in = (float *) c.out + by;
            if (!same && !block)
                RANK_FAILS(sn_coll_post(w.all, &c, soon(), &r), SN_EINVAL, "overlap");
        }
    }
    /* side by side is no overlap, and equal pointers with nothing to move are fine */
    sn_coll_call c = {.op = SN_ALL_REDUCE, .count = N, .in = mem, .out = mem + N};
    memset(mem, 0, sizeof mem);
    RANK_OK(sn_coll_run(w.all, &c, soon()));
    for (int op = 0; op < SN_COLL_OPS; op++) {
        c = (sn_coll_call){.op = (sn_coll_op) op, .in = mem, .out = mem};
        RANK_OK(sn_coll_run(w.all, &c, soon()));
    }
    world_close(&w);
    return 0;
}

/* In place in the three ways there are; the rest of the longer buffer is what it was. */
static int in_place(sn_boot *boot, int rank, int host, void *ctx)
{
    enum { MOST = 20000 };
    world w;
    float *arena;
    if (case_open(boot, host, 2 << 20, &w) != 0)
        return 1;
    RANK_OK(sn_coll_alloc(w.c, (size_t) MOST * 5 * sizeof(float), (void **) &arena));
    float *plain = malloc((size_t) MOST * 5 * sizeof(float));
    for (int k = 0; k < 3 * 12; k++) {
        int64_t n = k % 4 == 0 ? MOST : 1 + k;
        float *mem = (k / 3 + rank) % 2 ? arena : plain;
        sn_coll_call c = {.op = SN_REDUCE_SCATTER, .count = n, .in = mem, .out = mem + n * rank};
        if (k % 3 == 0)
            c = (sn_coll_call){.op = SN_ALL_GATHER, .count = n, .in = mem + n * rank, .out = mem};
        if (k % 3 == 1)
            c = (sn_coll_call){.op = SN_ALL_TO_ALL, .count = n, .in = mem, .out = mem};
        case_fill(&c, (uint64_t) k, rank, w.size, (void *) (uintptr_t) c.in, c.out);
        RANK_OK(sn_coll_run(w.all, &c, soon()));
        RANK_CHECK(case_check(&c, (uint64_t) k, rank, w.size, c.out) == 0);
        for (int64_t i = 0; c.op == SN_REDUCE_SCATTER && i < n * w.size; i++)
            if (i / n != rank)
                RANK_CHECK((double) mem[i] == case_value((uint64_t) k, rank, i));
        RANK_OK(world_barrier(&w));
    }
    free(plain);
    world_close(&w);
    return 0;
}

static void test_overlaps(void **state)
{
    static const int here[] = {0, 0, 0}, both[] = {0, 1, 1, 0};
    WORLD(here, overlap);
    WORLD(here, in_place);
    WORLD(both, overlap);
    WORLD(both, in_place);
}

/* ---- F4: leaving while operations are under way ---- */

enum { CLOSES, EXITS, FREES_GROUP, LEAVES };

/* The last rank starts operations and goes without waiting for them. Nobody hangs, everybody is
 * told, and nobody takes half a result for one. */
static int leaves(sn_boot *boot, int rank, int host, void *ctx)
{
    enum { N = 100000 };
    const int *how = ctx;
    float *in, *out;
    char who[32];
    sn_coll_req *req[3];
    world w;
    if (case_open(boot, host, 4 << 20, &w) != 0)
        return 1;
    RANK_OK(sn_coll_alloc(w.c, N * sizeof(float), (void **) &in));
    RANK_OK(sn_coll_alloc(w.c, N * sizeof(float), (void **) &out));
    RANK_OK(world_barrier(&w));
    sn_coll_call c = {.op = SN_ALL_REDUCE, .count = N, .in = in, .out = out};
    snprintf(who, sizeof who, "rank %d", w.size - 1);
    sn_time until = sn_now() + SN_SEC;
    if (rank == w.size - 1) {
        for (int i = 0; i < 3; i++)
            RANK_OK(sn_coll_post(w.all, &c, until, &req[i]));
        if (*how == EXITS)
            return 0;
        sn_coll_group_free(w.all);
        w.all = NULL;
        if (*how == FREES_GROUP) /* it stays in the job until the others have run out of time */
            while (sn_now() < until + SN_SEC / 4)
                usleep(1000);
        sn_coll_close(w.c);
        sn_net_close(w.net);
        return 0;
    }
    sn_status status = SN_OK;
    for (int i = 0; i < 4 && status == SN_OK; i++) {
        for (int k = 0; k < N; k++)
            in[k] = (float) i;
        status = sn_coll_run(w.all, &c, until);
    }
    RANK_CHECK(status < 0 && sn_now() < until + SN_SEC);
    RANK_CHECK(strstr(sn_errmsg(), who) != NULL);
    world_close(&w);
    return 0;
}

static void test_leaving_early(void **state)
{
    static const int here[] = {0, 0}, apart[] = {0, 1};
    int *how = sn_ranks_shared(sizeof *how);
    for (*how = 0; *how < LEAVES; (*how)++) {
        assert_int_equal(sn_ranks_run(2, here, leaves, how, sn_now() + 30 * SN_SEC), 0);
        assert_int_equal(sn_ranks_run(2, apart, leaves, how, sn_now() + 30 * SN_SEC), 0);
    }
}

/* ---- A9: counts beyond 2^31 ---- */

typedef struct span {
    int64_t from, to;
} span;

static int by_start(const void *a, const void *b)
{
    const span *x = a, *y = b;
    return (x->from > y->from) - (x->from < y->from);
}

static int64_t room_of(const sn_coll_call *c, const sn_sched *s, sn_place at, int p)
{
    switch (at.buf) {
    case SN_BUF_IN: /* a broadcast is in place */
        return c->op == SN_BROADCAST ? c->count : case_ins(c, at.member, p);
    case SN_BUF_OUT:
        return case_outs(c, at.member, p);
    case SN_BUF_TMP:
        return s->tmp_count;
    case SN_BUF_WIDE:
        return s->wide_count;
    case SN_BUF_NOTE:
        break;
    }
    return SN_ALGO_NOTE_BYTES;
}

/* The places of all steps lie in their buffers; OUT of `member` is written from end to end. */
static void check_spans(const sn_coll_call *c, const sn_sched *all, int p, int member)
{
    int n = 0, most = 0;
    int64_t reached = 0, whole = case_outs(c, member, p);
    for (int m = 0; m < p; m++)
        most += all[m].places;
    span *written = sn_alloc((size_t) (most + 1) * sizeof *written);
    for (int m = 0; m < p; m++)
        for (int s = 0; s < all[m].steps; s++) {
            const sn_step *step = &all[m].step[s];
            for (int i = 0; i < step->srcs + step->dsts; i++) {
                bool dst = i >= step->srcs;
                sn_place at = all[m].place[dst ? step->dst + i - step->srcs : step->src + i];
                int64_t room = room_of(c, &all[m], at, p);
                assert_true(at.at >= 0 && step->count >= 0 && at.at <= room - step->count);
                if (dst && at.member == member && at.buf == SN_BUF_OUT)
                    written[n++] = (span){at.at, at.at + step->count};
            }
        }
    if (c->op == SN_BROADCAST && member == c->root)
        written[n++] = (span){0, c->count};
    qsort(written, (size_t) n, sizeof *written, by_start);
    for (int i = 0; i < n && written[i].from <= reached; i++)
        reached = SN_MAX(reached, written[i].to);
    assert_int_equal(reached, whole);
    free(written);
}

/* What a sends to b is what b takes from a, one by one. */
static void check_messages(const sn_sched *a, int me, const sn_sched *b, int peer)
{
    int s = 0, r = 0;
    for (;;) {
        while (s < a->steps && !(a->step[s].kind == SN_STEP_SEND && a->step[s].member == peer))
            s++;
        while (r < b->steps && !(b->step[r].kind == SN_STEP_RECV && b->step[r].member == me))
            r++;
        assert_int_equal(s < a->steps, r < b->steps);
        if (s == a->steps)
            return;
        assert_int_equal(a->step[s++].count, b->step[r++].count);
    }
}

static void check_huge(const sn_algo_row *row, const sn_algo_group *g, const sn_coll_call *c)
{
    sn_algo_call call = {.op = c->op, .count = c->count, .root = c->root};
    sn_arena *arena = sn_arena_create();
    sn_sched all[4];
    for (int i = 0; i < 4; i++)
        assert_ok(row->schedule(g, &call, i, arena, &all[i]));
    for (int i = 0; i < 4; i++) {
        check_spans(c, all, 4, i);
        for (int k = 0; k < 4; k++)
            check_messages(&all[i], i, &all[k], k);
    }
    assert_true(sn_algo_cost_ns(row, g, &call, g->model) > 0);
    sn_arena_free(arena);
}

/* Schedules of huge calls: in bounds, nothing left out, messages that meet. */
static void test_huge_schedules(void **state)
{
    static const int64_t counts[] = {INT64_C(2147483647), INT64_C(2147483648), INT64_C(4294967297)};
    static const int maps[][4] = {{0, 0, 0, 0}, {0, 0, 1, 1}, {0, 1, 2, 3}, {0, 1, 0, 0}};
    const sn_algo_row *const *rows;
    int n = sn_algo_rows(&rows), checked = 0;
    sn_algo_model model = sn_algo_model_from(NULL, NULL, 4);
    for (size_t m = 0; m < SN_COUNT(maps); m++)
        for (int k = 0; k < n * SN_BARRIER * (int) SN_COUNT(counts); k++) {
            sn_algo_group g = {.members = 4, .host = maps[m], .model = &model};
            sn_coll_call c = {.op = (sn_coll_op) (k % SN_BARRIER), .root = 1};
            const sn_algo_row *row = rows[k / SN_BARRIER % n];
            c.count = counts[k / SN_BARRIER / n];
            sn_algo_call call = {.op = c.op, .count = c.count, .root = c.root};
            if (!sn_algo_fits(row, &g, &call))
                continue;
            if (case_times == 1 && ((size_t) k + m) % SN_COUNT(counts) != 0)
                continue;
            check_huge(row, &g, &c);
            checked++;
        }
    assert_true(checked > 30);
}

/* So many bytes of addresses, all of them the same 1 MiB of memory: everything is kept in it at its
 * offset modulo 1 MiB. */
static unsigned char *repeated(uint64_t bytes)
{
    enum { STEP = 1 << 20 };
    uint64_t whole = SN_ALIGN_UP(bytes, STEP);
    int fd = memfd_create("repeated", MFD_CLOEXEC);
    unsigned char *p =
        mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (fd < 0 || ftruncate(fd, STEP) || p == MAP_FAILED)
        abort();
    for (uint64_t at = 0; at < whole; at += STEP)
        if (mmap(p + at, STEP, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
            abort();
    close(fd);
    return p;
}

/* 2^32 + 1 bytes from one rank to the other: the last ones arrive, nothing wraps. */
static int huge(sn_boot *boot, int rank, int host, void *ctx)
{
    uint64_t bytes = (UINT64_C(1) << 32) + 1;
    world w;
    if (case_open(boot, host, 1 << 20, &w) != 0)
        return 1;
    unsigned char *p = repeated(bytes);
    sn_coll_call c = {.op = SN_BROADCAST, .dtype = SN_U8, .count = (int64_t) bytes, .out = p};
    for (uint64_t i = 0; rank == 0 && i < 1 << 20; i++)
        p[i] = (unsigned char) (i * 7 + 3);
    RANK_OK(sn_coll_run(w.all, &c, sn_now() + 300 * SN_SEC));
    for (uint64_t i = 0; i < 1 << 20; i++)
        RANK_CHECK(p[i] == (unsigned char) (i * 7 + 3));
    world_close(&w);
    return 0;
}

static void test_huge_broadcast(void **state)
{
    static const int here[] = {0, 0}, apart[] = {0, 1};
    if (case_times == 1) { /* minutes where many share the cores */
        print_message("skipped: for the soak\n");
        skip();
    }
    assert_int_equal(sn_ranks_run(2, apart, huge, NULL, sn_now() + 400 * SN_SEC), 0);
    assert_int_equal(sn_ranks_run(2, here, huge, NULL, sn_now() + 400 * SN_SEC), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_guard_pages),         cmocka_unit_test(test_canaries),
    cmocka_unit_test(test_exchange_of_nothing), cmocka_unit_test(test_overlaps),
    cmocka_unit_test(test_leaving_early),       cmocka_unit_test(test_huge_schedules),
    cmocka_unit_test(test_huge_broadcast),
};

CASES_MAIN(tests)
