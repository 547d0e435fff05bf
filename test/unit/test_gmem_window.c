/* SPDX-License-Identifier: Apache-2.0
 *
 * Windows: every operation, near and far, against what it must give; and how they fail. */
#include "gmem/gmem.h"
#include "unit/sn_ranks.h"
#include "unit/sn_test.h"

#include <math.h>
#include <sched.h>

#define SOON (sn_now() + *sn_ranks_patience() * 20 * SN_SEC)

static const int one_host[8] = {0};
static const int two_hosts[] = {0, 0, 1, 1};
static const int mixed[] = {0, 1, 1, 0, 1};
static const int far[] = {0, 1};
static const int all[] = {0, 1, 2, 3, 4, 5, 6, 7};

typedef struct with { /* what a test of a window needs: opened by enter, closed by leave */
    int n;
    sn_net *net;
    sn_segment *seg;
    sn_window *win;
} with;

static sn_status enter(with *w, sn_boot *boot, int host, int n, uint64_t bytes)
{
    w->n = n;
    if (!w->net)
        SN_TRY(sn_rank_open(boot, host, NULL, &w->net));
    SN_TRY(sn_gmem_create(w->net, all, n, bytes, SOON, &w->seg));
    return sn_window_create(w->seg, NULL, bytes, SOON, &w->win);
}

static sn_status leave(with *w)
{
    SN_TRY(sn_window_free(w->win, SOON));
    sn_gmem_free(w->seg);
    sn_net_close(w->net);
    return SN_OK;
}

/* ---- put and get ---- */

static const uint64_t sizes[] = {0, 1, 2, 3, 4, 7, 8, 9, 63, 4095, 4096, 4097, 8000, 70001, 300000};

static void fill(unsigned char *buf, uint64_t bytes, int salt)
{
    for (uint64_t i = 0; i < bytes; i++)
        buf[i] = (unsigned char) (i * 13 + (i >> 8) + (uint64_t) salt * 31);
}

/* Everybody puts into everybody's window, each into its own part of it, then gets it back from the
 * next one's. Guard bytes beside each part stay as they were. */
static int rank_put(sn_boot *boot, int rank, int host, void *ctx)
{
    enum { ROOM = 300000 + 128 };
    with w = {0};
    int n = *(int *) ctx;
    RANK_OK(enter(&w, boot, host, n, (uint64_t) n * ROOM));
    unsigned char *buf = malloc(ROOM), *want = malloc(ROOM), *mine = sn_window_base(w.win, rank);
    for (size_t k = 0; k < SN_COUNT(sizes); k++) {
        uint64_t bytes = sizes[k], shift = k % 3 ? k % 9 : 0;
        memset(mine, 0xee, (size_t) n * ROOM);
        RANK_OK(sn_window_fence(w.win, SOON));
        fill(buf, bytes, rank + (int) k);
        for (int m = 0; m < n; m++)
            RANK_OK(sn_window_put(w.win, m, (uint64_t) rank * ROOM + 64 + shift, buf, bytes, SOON));
        RANK_OK(sn_window_fence(w.win, SOON));
        for (int m = 0; m < n; m++) {
            const unsigned char *part = mine + (uint64_t) m * ROOM + 64 + shift;
            fill(want, bytes, m + (int) k);
            RANK_CHECK(memcmp(part, want, bytes) == 0);
            RANK_CHECK(part[-1] == 0xee && part[bytes] == 0xee);
        }
        int from = (rank + (int) k) % n, whose = (rank + 1) % n;
        memset(buf, 0, bytes);
        RANK_OK(sn_window_get(w.win, from, (uint64_t) whose * ROOM + 64 + shift, buf, bytes, SOON));
        RANK_OK(sn_window_flush(w.win, from, SOON));
        fill(want, bytes, whose + (int) k);
        RANK_CHECK(memcmp(buf, want, bytes) == 0);
        RANK_OK(sn_window_fence(w.win, SOON));
    }
    free(buf);
    free(want);
    RANK_OK(leave(&w));
    return 0;
}

static void test_put(void **state)
{
    assert_int_equal(sn_ranks_run(1, one_host, rank_put, &(int){1}, SOON), 0);
    assert_int_equal(sn_ranks_run(3, one_host, rank_put, &(int){3}, SOON), 0);
    assert_int_equal(sn_ranks_run(2, far, rank_put, &(int){2}, SOON), 0);
    assert_int_equal(sn_ranks_run(5, mixed, rank_put, &(int){5}, SOON), 0);
}

/* Many small puts without a flush in between: more than all parcels hold, while the target, which
 * does the same, takes them only when it drives progress. */
static int rank_many(sn_boot *boot, int rank, int host, void *ctx)
{
    enum { MANY = 100000 };
    with w = {0};
    RANK_OK(enter(&w, boot, host, 2, 8 * MANY));
    uint64_t *mine = sn_window_base(w.win, rank);
    for (uint64_t i = 0; i < MANY; i++) {
        uint64_t value = i * 3 + (uint64_t) rank;
        RANK_OK(sn_window_put(w.win, 1 - rank, 8 * i, &value, 8, SOON));
    }
    RANK_OK(sn_window_fence(w.win, SOON));
    for (uint64_t i = 0; i < MANY; i++)
        RANK_CHECK(mine[i] == i * 3 + 1 - (uint64_t) rank);
    RANK_OK(leave(&w));
    return 0;
}

static void test_many(void **state)
{
    assert_int_equal(sn_ranks_run(2, far, rank_many, NULL, SOON), 0);
}

/* ---- atomics ---- */

/* Each rank, near or far, draws tickets from one counter: every ticket once, and each rank's own
 * grow. */
static int rank_tickets(sn_boot *boot, int rank, int host, void *ctx)
{
    enum { DRAWS = 300 };
    with w = {0};
    int n = 5;
    uint64_t last = 0, ticket;
    RANK_OK(enter(&w, boot, host, n, 8 * (uint64_t) (1 + n * DRAWS)));
    for (uint64_t i = 0; i < DRAWS; i++) {
        RANK_OK(sn_window_fetch_u64(w.win, 1, 0, SN_FETCH_ADD, 1, SOON, &ticket));
        RANK_CHECK(i == 0 || ticket > last);
        RANK_CHECK(ticket < (uint64_t) (n * DRAWS));
        last = ticket;
        uint64_t one = 1; /* how often was it drawn? */
        RANK_OK(sn_window_accumulate(w.win, 0, 8 * (1 + ticket), &one, 1, SN_I64, SN_SUM, SOON));
    }
    RANK_OK(sn_window_fence(w.win, SOON));
    const uint64_t *counter = sn_window_base(w.win, rank);
    if (rank == 1)
        RANK_CHECK(counter[0] == (uint64_t) (n * DRAWS));
    for (int i = 0; rank == 0 && i < n * DRAWS; i++)
        RANK_CHECK(counter[1 + i] == 1);
    RANK_OK(leave(&w));
    return 0;
}

static void test_tickets(void **state)
{
    assert_int_equal(sn_ranks_run(5, mixed, rank_tickets, NULL, SOON), 0);
    assert_int_equal(sn_ranks_run(5, one_host, rank_tickets, NULL, SOON), 0);
}

/* A lock made of compare-and-swap guards a plain counter, which is moved by get and put. */
static int rank_lock(sn_boot *boot, int rank, int host, void *ctx)
{
    enum { ROUNDS = 40 };
    with w = {0};
    RANK_OK(enter(&w, boot, host, 4, 64));
    for (int i = 0; i < ROUNDS; i++) {
        uint32_t old = 1, value;
        while (old) {
            RANK_OK(sn_window_cas_u32(w.win, 2, 4, 0, (uint32_t) rank + 1, SOON, &old));
            if (old)
                sched_yield();
        }
        RANK_OK(sn_window_get(w.win, 2, 8, &value, 4, SOON));
        RANK_OK(sn_window_flush(w.win, 2, SOON));
        value++;
        RANK_OK(sn_window_put(w.win, 2, 8, &value, 4, SOON));
        RANK_OK(sn_window_flush(w.win, 2, SOON));
        RANK_OK(sn_window_fetch_u32(w.win, 2, 4, SN_FETCH_SWAP, 0, SOON, &old));
        RANK_CHECK(old == (uint32_t) rank + 1);
    }
    RANK_OK(sn_window_fence(w.win, SOON));
    const uint32_t *words = sn_window_base(w.win, rank);
    RANK_CHECK(rank != 2 || (words[2] == 4 * ROUNDS && words[1] == 0));
    RANK_OK(leave(&w));
    return 0;
}

static void test_lock(void **state)
{
    assert_int_equal(sn_ranks_run(4, two_hosts, rank_lock, NULL, SOON), 0);
}

/* What each operation makes of a word. */
static uint64_t expected(sn_fetch op, uint64_t old, uint64_t v)
{
    const uint64_t is[SN_FETCHES] = {old,     v,       old + v,        old & v,
                                     old | v, old ^ v, SN_MIN(old, v), SN_MAX(old, v)};
    return is[op];
}

static int rank_words(sn_boot *boot, int rank, int host, void *ctx)
{
    static const uint64_t values[] = {
        0, 1, 5, UINT64_C(0x80000000), UINT32_MAX, UINT64_MAX, UINT64_C(0xf0f0f0f0f0f0f0f0)};
    with w = {0};
    RANK_OK(enter(&w, boot, host, 2, 64));
    for (int m = 0; m < 2 && rank == 0; m++)
        for (int op = 0; op < SN_FETCHES; op++)
            for (size_t i = 0; i < SN_COUNT(values) * SN_COUNT(values); i++) {
                uint64_t a = values[i % SN_COUNT(values)], b = values[i / SN_COUNT(values)], old;
                uint32_t old32, a32 = (uint32_t) a, b32 = (uint32_t) b;
                RANK_OK(sn_window_fetch_u64(w.win, m, 8, SN_FETCH_SWAP, a, SOON, &old));
                RANK_OK(sn_window_fetch_u64(w.win, m, 8, (sn_fetch) op, b, SOON, &old));
                RANK_CHECK(old == a);
                RANK_OK(
                    sn_window_cas_u64(w.win, m, 8, expected((sn_fetch) op, a, b), 7, SOON, &old));
                RANK_CHECK(old == expected((sn_fetch) op, a, b));
                RANK_OK(sn_window_fetch_u32(w.win, m, 20, SN_FETCH_SWAP, a32, SOON, &old32));
                RANK_OK(sn_window_fetch_u32(w.win, m, 20, (sn_fetch) op, b32, SOON, &old32));
                RANK_CHECK(old32 == a32);
                RANK_OK(sn_window_cas_u32(w.win, m, 20, ~old32, 9, SOON, &old32));
                RANK_CHECK(old32 == (uint32_t) expected((sn_fetch) op, a32, b32));
            }
    RANK_OK(sn_window_fence(w.win, SOON));
    const uint32_t *words = sn_window_base(w.win, rank); /* neighbours are untouched */
    RANK_CHECK(words[1] == 0 && words[4] == 0 && words[6] == 0);
    RANK_OK(leave(&w));
    return 0;
}

static void test_words(void **state)
{
    assert_int_equal(sn_ranks_run(2, far, rank_words, NULL, SOON), 0);
}

/* ---- accumulate ---- */

static void set(void *buf, int i, sn_dtype type, int v)
{
    if (type == SN_F32)
        ((float *) buf)[i] = (float) v;
    else if (type == SN_BF16)
        ((uint16_t *) buf)[i] = sn_f32_to_bf16((float) v);
    else if (type == SN_F16)
        ((uint16_t *) buf)[i] = sn_f32_to_f16((float) v);
    else if (type == SN_F64)
        ((double *) buf)[i] = v;
    else if (type == SN_I32)
        ((int32_t *) buf)[i] = v;
    else
        ((int64_t *) buf)[i] = v;
}

static double value(const void *buf, int i, sn_dtype type)
{
    switch (type) {
    case SN_F32:
        return ((const float *) buf)[i];
    case SN_BF16:
        return sn_bf16_to_f32(((const uint16_t *) buf)[i]);
    case SN_F16:
        return sn_f16_to_f32(((const uint16_t *) buf)[i]);
    case SN_F64:
        return ((const double *) buf)[i];
    case SN_I32:
        return ((const int32_t *) buf)[i];
    default:
        return (double) ((const int64_t *) buf)[i];
    }
}

/* All ranks accumulate into the same elements of every member at once; small whole numbers, so that
 * every order gives one result in each type. */
static int rank_accumulate(sn_boot *boot, int rank, int host, void *ctx)
{
    enum { COUNT = 2003, TIMES = 3, N = 5 };
    static const sn_dtype types[] = {SN_F32, SN_BF16, SN_F16, SN_F64, SN_I32, SN_I64};
    static const sn_red reds[] = {SN_SUM, SN_MAX, SN_MIN};
    with w = {0};
    RANK_OK(enter(&w, boot, host, N, 8 * COUNT + 16));
    char *buf = malloc(8 * COUNT), *mine = sn_window_base(w.win, rank);
    for (size_t t = 0; t < SN_COUNT(types) * SN_COUNT(reds); t++) {
        sn_dtype type = types[t % SN_COUNT(types)];
        sn_red red = reds[t / SN_COUNT(types)];
        size_t width = sn_dtype_bytes(type);
        memset(mine, 0, 8 * COUNT + 16);
        RANK_OK(sn_window_fence(w.win, SOON));
        for (int i = 0; i < COUNT; i++)
            set(buf, i, type, (i + rank) % 7 - 3);
        for (int k = 0; k < TIMES * N; k++)
            RANK_OK(sn_window_accumulate(w.win, (rank + k) % N, 8, buf, COUNT, type, red, SOON));
        RANK_OK(sn_window_fence(w.win, SOON));
        for (int i = 0; i < COUNT; i++) {
            double want = 0, got = value(mine + 8, i, type);
            for (int r = 0; r < N; r++) {
                double v = (i + r) % 7 - 3;
                want = red == SN_SUM   ? want + TIMES * v
                       : red == SN_MAX ? SN_MAX(want, v)
                                       : SN_MIN(want, v);
            }
            RANK_CHECK(got == want);
        }
        RANK_CHECK(*(int64_t *) (void *) mine == 0 && mine[8 + COUNT * width] == 0);
        RANK_OK(sn_window_fence(w.win, SOON));
    }
    free(buf);
    RANK_OK(leave(&w));
    return 0;
}

static void test_accumulate(void **state)
{
    assert_int_equal(sn_ranks_run(5, mixed, rank_accumulate, NULL, SOON), 0);
}

/* NaN, infinities and signed zeros, by the same rules near and far. */
static int rank_special(sn_boot *boot, int rank, int host, void *ctx)
{
    static const double values[] = {0.0, -0.0, 1, -1, INFINITY, -INFINITY, NAN, 1e-310};
    with w = {0};
    RANK_OK(enter(&w, boot, host, 2, 64));
    for (size_t i = 0; rank == 0 && i < 64 * 3; i++) {
        double a = values[i % 8], b = values[i / 8 % 8], got[2];
        float a32 = (float) a, b32 = (float) b, got32[2];
        sn_red red = (sn_red[]){SN_SUM, SN_MAX, SN_MIN}[i / 64];
        for (int m = 0; m < 2; m++) {
            RANK_OK(sn_window_put(w.win, m, 0, &a, 8, SOON));
            RANK_OK(sn_window_put(w.win, m, 8, &a32, 4, SOON));
            RANK_OK(sn_window_accumulate(w.win, m, 0, &b, 1, SN_F64, red, SOON));
            RANK_OK(sn_window_accumulate(w.win, m, 8, &b32, 1, SN_F32, red, SOON));
            RANK_OK(sn_window_flush(w.win, m, SOON));
            RANK_OK(sn_window_get(w.win, m, 0, &got[m], 8, SOON));
            RANK_OK(sn_window_get(w.win, m, 8, &got32[m], 4, SOON));
            RANK_OK(sn_window_flush(w.win, m, SOON));
        }
        bool nan = isnan(a) || isnan(b) || (red == SN_SUM && isnan(a + b));
        RANK_CHECK(nan == (bool) isnan(got[0]) && nan == (bool) isnan(got32[0]));
        RANK_CHECK(nan ||
                   (memcmp(&got[0], &got[1], 8) == 0 && memcmp(&got32[0], &got32[1], 4) == 0));
        RANK_CHECK(nan || got[0] == (red == SN_SUM   ? a + b
                                     : red == SN_MAX ? fmax(a, b)
                                                     : fmin(a, b)));
        RANK_CHECK(!nan || (isnan(got[1]) && isnan(got32[1])));
    }
    RANK_OK(leave(&w));
    return 0;
}

static void test_special(void **state)
{
    assert_int_equal(sn_ranks_run(2, far, rank_special, NULL, SOON), 0);
}

/* ---- creating and freeing ---- */

/* Over memory of the caller's, sizes that differ, the segment freed first, and the limit. */
static int rank_create(sn_boot *boot, int rank, int host, void *ctx)
{
    enum { N = 5 };
    sn_net *net;
    sn_segment *seg;
    sn_window *win[SN_WINDOWS_MAX + 1] = {NULL};
    void *own = NULL;
    char data[256], outside[8];
    RANK_OK(sn_rank_open(boot, host, NULL, &net));
    RANK_OK(sn_gmem_create(net, all, N, 4096, SOON, &seg));
    RANK_OK(sn_gmem_alloc(seg, 100, &own));
    RANK_FAILS(sn_window_create(seg, rank == 3 ? outside : own, 8, SOON, &win[0]), SN_EINVAL,
               "must lie in the rank's part");
    RANK_CHECK(strstr(sn_errmsg(), "rank 3 (h0)") && !win[0]);
    RANK_FAILS(sn_window_create(seg, NULL, rank == 2 ? 4096 : 8, SOON, &win[0]), SN_EFIT,
               "rank 2 (h1)");
    uint64_t bytes = 20 * (uint64_t) rank; /* rank 0: none */
    for (int i = 0; i < SN_WINDOWS_MAX; i++)
        RANK_OK(sn_window_create(seg, own, bytes, SOON, &win[i]));
    RANK_FAILS(sn_window_create(seg, own, bytes, SOON, &win[SN_WINDOWS_MAX]), SN_EFIT, "64");
    for (int m = 0; m < N; m++)
        RANK_CHECK(sn_window_bytes(win[0], m) == 20 * (uint64_t) m);
    RANK_OK(sn_window_free(win[7], SOON));
    RANK_OK(sn_window_create(seg, sn_gmem_base(seg, rank), 4096, SOON, &win[7])); /* all of it */
    sn_gmem_free(seg);
    memset(data, rank + 1, sizeof data);
    for (int m = 0; m < N; m++)
        RANK_OK(sn_window_put(win[7], m, 1024 + 100 * (uint64_t) rank, data, 100, SOON));
    RANK_OK(sn_window_put(win[3], 4, 0, data, rank == 0 ? 80 : 0, SOON));
    for (int i = 0; i < SN_WINDOWS_MAX; i++)
        RANK_OK(sn_window_fence(win[i], SOON));
    const char *mine = sn_window_base(win[7], rank);
    for (int m = 0; m < N; m++)
        RANK_CHECK(mine[1024 + 100 * m] == m + 1 && mine[1024 + 100 * m + 99] == m + 1);
    RANK_CHECK(rank != 4 || ((char *) own)[79] == 1);
    for (int i = 0; i < SN_WINDOWS_MAX; i++)
        RANK_OK(sn_window_free(win[i], SOON));
    RANK_OK(sn_window_free(NULL, 0));
    sn_net_close(net);
    return 0;
}

static void test_create(void **state)
{
    assert_int_equal(sn_ranks_run(5, mixed, rank_create, NULL, SOON), 0);
}

static int rank_refused(sn_boot *boot, int rank, int host, void *ctx)
{
    with w = {0};
    uint64_t old = 5;
    char buf[8] = {0};
    RANK_OK(enter(&w, boot, host, 2, 64));
    for (int m = 0; m < 2; m++) { /* alike for near and far */
        char whose[32];
        snprintf(whose, sizeof whose, "of rank %d (h%d), which has 64", m, m);
        RANK_FAILS(sn_window_put(w.win, m, 60, buf, 5, SOON), SN_EINVAL, whose);
        RANK_FAILS(sn_window_put(w.win, m, 65, buf, 0, SOON), SN_EINVAL, whose);
        RANK_FAILS(sn_window_put(w.win, m, 8, buf, UINT64_MAX, SOON), SN_EINVAL, whose);
        RANK_FAILS(sn_window_get(w.win, m, UINT64_MAX, buf, 2, SOON), SN_EINVAL, whose);
        RANK_FAILS(sn_window_fetch_u64(w.win, m, 64, SN_FETCH, 0, SOON, &old), SN_EINVAL, whose);
        RANK_FAILS(sn_window_fetch_u64(w.win, m, 4, SN_FETCH, 0, SOON, &old), SN_EINVAL, "aligned");
        RANK_FAILS(sn_window_cas_u32(w.win, m, 2, 0, 0, SOON, (uint32_t *) &old), SN_EINVAL,
                   "aligned");
        RANK_FAILS(sn_window_fetch_u64(w.win, m, 8, SN_FETCHES, 0, SOON, &old), SN_EINVAL, "there");
        RANK_FAILS(sn_window_accumulate(w.win, m, 0, buf, INT64_MAX, SN_F64, SN_SUM, SOON),
                   SN_EINVAL, "elements");
        RANK_FAILS(sn_window_accumulate(w.win, m, 2, buf, 1, SN_F32, SN_SUM, SOON), SN_EINVAL,
                   "aligned");
        RANK_FAILS(sn_window_accumulate(w.win, m, 0, buf, 1, SN_F32, SN_AVG, SOON), SN_ENOTSUP,
                   "avg");
        RANK_FAILS(sn_window_accumulate(w.win, m, 0, buf, 1, SN_U8, SN_SUM, SOON), SN_ENOTSUP,
                   "U8");
    }
    RANK_FAILS(sn_window_put(w.win, 2, 0, buf, 1, SOON), SN_EINVAL, "member 2");
    RANK_FAILS(sn_window_flush(w.win, -2, SOON), SN_EINVAL, "member -2");
    RANK_CHECK(old == 5);
    RANK_OK(sn_window_fence(w.win, SOON)); /* none of it broke the window */
    RANK_OK(leave(&w));
    return 0;
}

static void test_refused(void **state)
{
    assert_int_equal(sn_ranks_run(2, far, rank_refused, NULL, SOON), 0);
}

/* ---- failures ---- */

/* A target that does not drive progress: the deadline holds, names it, and breaks the window. */
static int rank_late(sn_boot *boot, int rank, int host, void *ctx)
{
    int *done = ctx;
    with w = {0};
    uint64_t value = 1, old;
    RANK_OK(enter(&w, boot, host, 2, 1 << 20));
    if (rank == 1)
        __atomic_store_n(done, -1, __ATOMIC_RELEASE);
    if (rank == 0) {
        while (__atomic_load_n(done, __ATOMIC_ACQUIRE) == 0)
            usleep(1000);
        sn_time began = sn_now();
        RANK_OK(sn_window_put(w.win, 1, 0, &value, 8, SOON));
        RANK_FAILS(sn_window_flush(w.win, 1, began + 50 * SN_MS), SN_ETIME,
                   "rank 0 (h0): a flush at rank 1 (h1): no answer from rank 1 (h1)");
        sn_time took = sn_now() - began;
        RANK_CHECK(took >= 50 * SN_MS && took < 5 * SN_SEC);
        RANK_FAILS(sn_window_put(w.win, 1, 0, &value, 8, SOON), SN_ETIME, "free it");
        RANK_FAILS(sn_window_fetch_u64(w.win, 0, 0, SN_FETCH, 0, SOON, &old), SN_ETIME, "free it");
        RANK_FAILS(sn_window_fence(w.win, SOON), SN_ETIME, "free it");
        __atomic_store_n(done, 1, __ATOMIC_RELEASE);
    }
    while (__atomic_load_n(done, __ATOMIC_ACQUIRE) <= 0)
        usleep(1000);
    if (rank == 1) { /* which was not told: its own fence ends at its deadline */
        RANK_FAILS(sn_window_free(w.win, sn_now() + 50 * SN_MS), SN_ETIME,
                   "a fence of a window of 2: rank 0 (h0) gives no signal");
        __atomic_store_n(done, 2, __ATOMIC_RELEASE);
    }
    while (__atomic_load_n(done, __ATOMIC_ACQUIRE) != 2)
        usleep(1000);
    if (rank == 0)
        RANK_OK(sn_window_free(w.win, SOON));
    sn_gmem_free(w.seg);
    sn_net_close(w.net);
    return 0;
}

static void test_late(void **state)
{
    assert_int_equal(sn_ranks_run(2, far, rank_late, sn_ranks_shared(sizeof(int)), SOON), 0);
}

typedef struct death {
    const int *hosts;
    int how; /* which operation meets it */
    int waiting;
} death;

/* Rank 1 dies while rank 0 and 2 are at it. */
static int rank_death(sn_boot *boot, int rank, int host, void *ctx)
{
    death *d = ctx;
    with w = {0};
    char words[32];
    static char big[4 << 20];
    uint64_t old, one = 1;
    RANK_OK(enter(&w, boot, host, 3, sizeof big));
    if (rank == 1) {
        while (__atomic_load_n(&d->waiting, __ATOMIC_ACQUIRE) < 2)
            sched_yield();
        sn_rank_die();
    }
    snprintf(words, sizeof words, "rank 1 (h%d)", d->hosts[1]);
    __atomic_fetch_add(&d->waiting, 1, __ATOMIC_RELEASE);
    sn_status status = SN_OK;
    while (status >= 0) {
        if (d->how == 0)
            status = sn_window_put(w.win, 1, 0, big, sizeof big, SOON);
        else if (d->how == 1)
            status = sn_window_get(w.win, 1, 0, big, sizeof big, SOON);
        else if (d->how == 2)
            status = sn_window_fetch_u64(w.win, 1, 0, SN_FETCH_ADD, 1, SOON, &old);
        else if (d->how == 3)
            status = sn_window_accumulate(w.win, 1, 0, &one, 1, SN_I64, SN_SUM, SOON);
        else
            status = sn_window_fence(w.win, SOON);
        if (status >= 0)
            status = sn_window_flush(w.win, 1, SOON);
    }
    RANK_CHECK(status == SN_EPEER && strstr(sn_errmsg(), words));
    RANK_OK(sn_window_free(w.win, SOON));
    sn_gmem_free(w.seg);
    sn_net_close(w.net);
    return 0;
}

static void test_death(void **state)
{
    static const int apart[] = {0, 1, 0};
    death *d = sn_ranks_shared(sizeof *d);
    for (int k = 0; k < 10; k++) {
        *d = (death){.hosts = k < 5 ? apart : one_host, .how = k % 5};
        assert_int_equal(sn_ranks_run(3, d->hosts, rank_death, d, SOON), 0);
    }
}

/* ---- fork ---- */

/* While a bulk transfer is under way: a child that writes over everything it has got and leaves,
 * with or without the libraries' destructors, or that becomes another program. */
static int fork_child(int round, char *private, char *shared)
{
    pid_t child = fork();
    if (child == 0) {
        memset(private, 0x77, 1 << 20);
        memset(shared, 0x55, 64); /* is shared: the parent sees this */
        if (round % 3 == 0)
            execlp("true", "true", NULL);
        if (round % 3 == 1)
            exit(0);
        _exit(0);
    }
    int how = -1;
    sn_time limit = SOON;
    while (waitpid(child, &how, WNOHANG) == 0)
        if (sn_now() > limit) {
            kill(child, SIGKILL);
            return -1;
        } else {
            usleep(200);
        }
    return how;
}

static int rank_fork(sn_boot *boot, int rank, int host, void *ctx)
{
    enum { ROUNDS = 6, BYTES = 1 << 20 };
    with w = {0};
    sn_net_opts opts = {.host_name = host ? "h1" : "h0",
                        .transports = *sn_ranks_transports(),
                        .deadline = SOON,
                        .detect_ns = -1}; /* a sanitizer stops all threads while one forks */
    RANK_OK(sn_net_open(boot, &opts, &w.net));
    RANK_OK(enter(&w, boot, host, 2, BYTES + 64));
    unsigned char *buf = malloc(BYTES), *want = malloc(BYTES), *mine = sn_window_base(w.win, rank);
    for (int k = 0; k < ROUNDS; k++) {
        fill(buf, BYTES, rank + k);
        RANK_OK(sn_window_put(w.win, 1 - rank, 0, buf, BYTES, SOON));
        RANK_CHECK(fork_child(k, (char *) buf, (char *) mine + BYTES) == 0);
        RANK_OK(sn_window_fence(w.win, SOON));
        fill(want, BYTES, 1 - rank + k);
        RANK_CHECK(memcmp(mine, want, BYTES) == 0 && mine[BYTES] == 0x55);
        RANK_OK(sn_window_fence(w.win, SOON));
    }
    free(buf);
    free(want);
    RANK_OK(leave(&w));
    return 0;
}

static void test_fork(void **state)
{
    assert_int_equal(sn_ranks_run(2, far, rank_fork, NULL, SOON), 0);
}

typedef struct stopped {
    pid_t pid;
    int done;
} stopped;

/* A target that is stopped, the link to it as good as cut: flushes end long before their deadline
 * and say whom they lacked. */
static int rank_stopped(sn_boot *boot, int rank, int host, void *ctx)
{
    stopped *s = ctx;
    with w = {0};
    static char big[4 << 20];
    uint64_t one = 1;
    RANK_OK(enter(&w, boot, host, 3, sizeof big));
    if (rank == 1) {
        __atomic_store_n(&s->pid, getpid(), __ATOMIC_RELEASE);
        for (;;)
            raise(SIGSTOP);
    }
    while (!__atomic_load_n(&s->pid, __ATOMIC_ACQUIRE))
        sched_yield();
    sn_status status = SN_OK;
    sn_time began = sn_now();
    while (status >= 0) {
        if (rank == 0)
            status = sn_window_put(w.win, 1, 0, big, sizeof big, SOON);
        else
            status = sn_window_accumulate(w.win, 1, 0, &one, 1, SN_I64, SN_SUM, SOON);
        if (status >= 0)
            status = sn_window_flush(w.win, 1, SOON);
    }
    RANK_CHECK(sn_now() - began < 5 * SN_SEC && status == SN_EPEER);
    RANK_CHECK(strstr(sn_errmsg(), rank ? "rank 2 (h0)" : "rank 0 (h0)"));
    RANK_CHECK(strstr(sn_errmsg(), "rank 1 (h1) stopped answering for"));
    if (__atomic_add_fetch(&s->done, 1, __ATOMIC_ACQ_REL) == 2)
        kill(s->pid, SIGKILL);
    RANK_OK(sn_window_free(w.win, SOON));
    sn_gmem_free(w.seg);
    sn_net_close(w.net);
    return 0;
}

static void test_stopped(void **state)
{
    static const int apart[] = {0, 1, 0};
    assert_int_equal(sn_ranks_run(3, apart, rank_stopped, sn_ranks_shared(sizeof(stopped)), SOON),
                     0);
}

/* Who leaves without freeing its window is named. */
static int rank_left(sn_boot *boot, int rank, int host, void *ctx)
{
    with w = {0};
    int *noticed = ctx;
    RANK_OK(enter(&w, boot, host, 3, 64));
    if (rank != 1) {
        sn_status status = sn_window_fence(w.win, SOON);
        RANK_CHECK(status == SN_EPEER && (strstr(sn_errmsg(), "rank 1 (h0) has left") ||
                                          strstr(sn_errmsg(), "gave the window up")));
        __atomic_fetch_add(noticed, 1, __ATOMIC_RELEASE);
        while (__atomic_load_n(noticed, __ATOMIC_ACQUIRE) < 2) /* else the other has left too */
            sched_yield();
        RANK_OK(sn_window_free(w.win, SOON));
        sn_gmem_free(w.seg);
    }
    sn_net_close(w.net);
    return 0;
}

static void test_left(void **state)
{
    assert_int_equal(sn_ranks_run(3, one_host, rank_left, sn_ranks_shared(sizeof(int)), SOON), 0);
}

int main(int argc, char **argv)
{
    sn_ranks_args(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_put),     cmocka_unit_test(test_many),
        cmocka_unit_test(test_tickets), cmocka_unit_test(test_lock),
        cmocka_unit_test(test_words),   cmocka_unit_test(test_accumulate),
        cmocka_unit_test(test_special), cmocka_unit_test(test_create),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_late),
        cmocka_unit_test(test_death),   cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_fork),    cmocka_unit_test(test_left),
    };
    return sn_test_run(tests);
}
