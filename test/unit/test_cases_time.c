/* SPDX-License-Identifier: Apache-2.0
 *
 * Cases A3, A4, A6, A10, A15: calls that cannot succeed end in time, on every rank, with a sentence
 * that says who, what and where. Deadlines, ranks that differ, memory that is missing, and errors
 * that only some ranks see. */
#include "unit/cases_world.h"

#include <sys/resource.h>

static const int pair[] = {0, 0}, here[] = {0, 0, 0}, far[] = {0, 1}, both[] = {0, 0, 1, 1},
                 uneven[] = {0, 0, 0, 1, 1};

/* With a counter of the ranks that are done. */
static void with_done(const int *map, int n, sn_rank_fn fn)
{
    uint32_t *done = sn_ranks_shared(sizeof *done);
    assert_int_equal(sn_ranks_run(n, map, fn, done, sn_now() + 30 * SN_SEC), 0);
}

/* ---- A3: deadlines of every wait ---- */

/* Ended in time: not before the deadline, and after it by at most 10 % or 10 ms. The machine may be
 * busy, so the best of several tries counts; an early end never does. */
static int in_time(sn_time from, sn_time deadline, sn_time *best)
{
    sn_time late = sn_now() - deadline;
    if (late < 0) {
        fprintf(stderr, "ended %.1f ms early: %s\n", (double) -late / 1e6, sn_errmsg());
        return 1;
    }
    *best = SN_MIN(*best, late - SN_MAX((deadline - from) / 10, 10 * SN_MS));
    return 0;
}

/* The last rank never comes. */
static int late_call(world *w, sn_coll_op op, int64_t count, sn_time *common, sn_time *best)
{
    static float in[20000 * 4], out[20000 * 4];
    sn_coll_group *g;
    sn_coll_call c = {.op = op, .count = count, .in = in, .out = out, .root = w->size - 1};
    RANK_CHECK(case_group(w, "late", &g) == 0);
    if (w->rank == 0)
        __atomic_store_n(common, sn_now() + 50 * SN_MS, __ATOMIC_RELEASE);
    RANK_OK(world_barrier(w));
    sn_time deadline = __atomic_load_n(common, __ATOMIC_ACQUIRE);
    if (w->rank != w->size - 1) {
        RANK_FAILS(sn_coll_run(g, &c, deadline), SN_ETIME, "#1 in group late");
        RANK_CHECK(strstr(sn_errmsg(), sn_coll_op_name(op)) != NULL);
        RANK_CHECK(in_time(deadline - 50 * SN_MS, deadline, best) == 0);
    }
    RANK_OK(world_barrier(w));
    sn_coll_group_free(g);
    return 0;
}

static int late_calls(sn_boot *boot, int rank, int host, void *ctx)
{
    sn_time *common = ctx; /* the deadline, the same on all ranks */
    world w;
    if (case_open(boot, host, 1 << 20, &w) != 0)
        return 1;
    for (int k = 0; k < SN_COLL_OPS; k++) {
        sn_time best = SN_SEC;
        for (int t = 0; t < 3; t++)
            RANK_CHECK(late_call(&w, (sn_coll_op) k, t % 2 ? 30 : 20000, common, &best) == 0);
        if (rank != w.size - 1 && best > 0)
            fprintf(stderr, "%s is %.1f ms late\n", sn_coll_op_name((sn_coll_op) k),
                    (double) best / 1e6);
        RANK_CHECK(rank == w.size - 1 || best <= 0);
    }
    world_close(&w);
    return 0;
}

static void test_deadline_of_every_call(void **state)
{
    sn_time *common = sn_ranks_shared(sizeof *common);
    assert_int_equal(sn_ranks_run(2, pair, late_calls, common, sn_now() + 60 * SN_SEC), 0);
    assert_int_equal(sn_ranks_run(2, far, late_calls, common, sn_now() + 60 * SN_SEC), 0);
    assert_int_equal(sn_ranks_run(4, both, late_calls, common, sn_now() + 60 * SN_SEC), 0);
}

enum { RECV, SEND, GROUP, SEGMENT, GATHER, SHARE, WAITS };

/* One wait of rank 0 for rank 1, which does not take part. */
static sn_status wait_in_vain(world *w, int k, sn_time deadline)
{
    static char buf[1 << 20], blobs[2];
    int members[2] = {0, 1}, fds[2];
    sn_coll_req *r;
    sn_coll_group *g;
    sn_segment *seg;
    switch (k) {
    case RECV:
        SN_TRY(sn_coll_recv(w->c, 1, 9, buf, 8, deadline, &r));
        return sn_coll_wait(r);
    case SEND:
        SN_TRY(sn_coll_send(w->c, 1, 9, buf, sizeof buf, deadline, &r));
        return sn_coll_wait(r);
    case GROUP:
        return sn_coll_group_create(w->c, "alone", members, 2, deadline, &g);
    case SEGMENT:
        return sn_gmem_create(w->net, members, 2, 4096, deadline, &seg);
    case GATHER:
        return sn_net_gather(w->net, members, 2, "x", 1, deadline, blobs);
    default:
        return sn_net_share_fds(w->net, members, 2, 0, deadline, fds);
    }
}

typedef struct lateness {
    uint32_t done;
    sn_time best[WAITS]; /* over all worlds */
} lateness;

/* Receives and sends that nobody meets, groups and segments that nobody joins. */
static int late_others(sn_boot *boot, int rank, int host, void *ctx)
{
    lateness *late = ctx;
    world w;
    if (case_open(boot, host, 1 << 20, &w) != 0)
        return 1;
    for (int k = 0; k < WAITS && rank == 0; k++) {
        if ((k == SEND || k == SHARE) && !sn_net_same_host(w.net, 1)) /* not to be recalled */
            continue;
        sn_time from = sn_now();
        RANK_FAILS(wait_in_vain(&w, k, from + 50 * SN_MS), SN_ETIME, "rank 1");
        RANK_CHECK(in_time(from, from + 50 * SN_MS, &late->best[k]) == 0);
    }
    case_done(&late->done);
    return !case_await(&late->done, 2); /* who leaves is no longer absent, but dead */
}

static void run_late_others(const int *map)
{
    lateness *late = sn_ranks_shared(sizeof *late);
    bool in_time = false;
    for (int t = 0; t < 4 && !in_time; t++) {
        late->done = 0;
        for (int k = 0; k < WAITS && t == 0; k++)
            late->best[k] = (k == SEND || k == SHARE) && map[0] != map[1] ? 0 : SN_SEC;
        assert_int_equal(sn_ranks_run(2, map, late_others, late, sn_now() + 30 * SN_SEC), 0);
        in_time = true;
        for (int k = 0; k < WAITS; k++)
            in_time = in_time && late->best[k] <= 0;
    }
    for (int k = 0; k < WAITS && !in_time; k++)
        print_message("wait %d is %.1f ms late\n", k, (double) late->best[k] / 1e6);
    assert_true(in_time);
}

static void test_deadline_of_other_waits(void **state)
{
    run_late_others(pair);
    run_late_others(far);
}

/* Finding each other: rank 1 is in the job but never opens its net. */
static int late_open(sn_boot *boot, int rank, int host, void *ctx)
{
    sn_net *net;
    char name[8];
    if (rank == 1)
        return !case_await(ctx, 1);
    snprintf(name, sizeof name, "h%d", host);
    sn_time from = sn_now(), best = SN_SEC;
    sn_net_opts opts = {.host_name = name, .deadline = from + 300 * SN_MS};
    sn_status status = sn_net_open(boot, &opts, &net);
    case_done(ctx);
    RANK_CHECK(status == SN_ETIME && strstr(sn_errmsg(), "rank 1") != NULL);
    RANK_CHECK(in_time(from, opts.deadline, &best) == 0 && best < 200 * SN_MS);
    return 0;
}

static void test_deadline_of_opening(void **state)
{
    with_done(pair, 2, late_open);
    with_done(far, 2, late_open);
}

/* ---- A15: the sentence ---- */

/* The last rank is absent from the third call: everybody says who, in which call, after how long,
 * and who says so. */
static int words(sn_boot *boot, int rank, int host, void *ctx)
{
    char text[128];
    float x[8], y[8];
    world w;
    if (case_open(boot, host, 1 << 20, &w) != 0)
        return 1;
    sn_coll_call c = {.op = SN_ALL_REDUCE, .count = 8, .in = x, .out = y};
    RANK_OK(world_barrier(&w));
    RANK_OK(sn_coll_run(w.all, &c, soon()));
    if (rank != w.size - 1) {
        RANK_FAILS(sn_coll_run(w.all, &c, sn_now() + 50 * SN_MS), SN_ETIME,
                   "all_reduce #3 in group world");
        snprintf(text, sizeof text, "no signal from rank %d (%s)", w.size - 1,
                 sn_net_host_name(w.net, w.size - 1));
        RANK_CHECK(strstr(sn_errmsg(), text) != NULL);
        RANK_CHECK(strncmp(sn_errmsg(), "rank ", 5) == 0);
        case_done(ctx);
    }
    RANK_CHECK(case_await(ctx, w.size - 1)); /* who leaves is no longer absent, but dead */
    return 0;
}

static void test_the_sentence_of_a_deadline(void **state)
{
    with_done(pair, 2, words);
    with_done(here, 3, words);
    with_done(far, 2, words);
}

/* ---- A10: ranks whose calls differ ---- */

enum { OP, COUNT, DTYPE, RED, ROOT, ALGORITHM, ORDER, FIELDS };

/* Two algorithms that fit the operation among these ranks: the first and the last in the table. */
static void two_algorithms(const world *w, sn_coll_op op, const char *ret[2])
{
    const sn_algo_row *const *rows;
    int host[CASES_MANY], n = sn_algo_rows(&rows);
    sn_algo_group g = {.members = w->size, .host = host};
    sn_algo_call c = {.op = op, .count = 100};
    for (int r = 0; r < w->size; r++)
        host[r] = sn_net_host_index(w->net, r);
    ret[0] = ret[1] = NULL;
    for (int i = 0; i < n; i++)
        if (sn_algo_fits(rows[i], &g, &c))
            ret[ret[0] != NULL] = rows[i]->name;
}

/* The call of everybody but one, and that one's. */
static void differing(const world *w, int field, int64_t count, sn_coll_call *fine,
                      sn_coll_call *other)
{
    const char *by[2];
    *fine = (sn_coll_call){.op = SN_ALL_REDUCE, .count = count};
    if (field == ROOT)
        fine->op = SN_BROADCAST;
    *other = *fine;
    switch (field) {
    case OP:
        other->op = SN_REDUCE_SCATTER;
        break;
    case COUNT:
        other->count++;
        break;
    case DTYPE:
        other->dtype = SN_BF16;
        break;
    case RED:
        other->red = SN_MIN;
        break;
    case ROOT:
        other->root = 1;
        break;
    case ALGORITHM:
        two_algorithms(w, SN_ALL_REDUCE, by);
        fine->algorithm = by[0];
        other->algorithm = by[1];
        break;
    default:
        other->op = SN_BARRIER; /* one rank is a call ahead or behind */
    }
}

typedef struct odd_one {
    int rank;
    int64_t count;
} odd_one;

static int differ(sn_boot *boot, int rank, int host, void *ctx)
{
    static float in[60000], out[60000];
    odd_one *odd = ctx;
    char who[80];
    world w;
    if (case_open(boot, host, 1 << 20, &w) != 0)
        return 1;
    snprintf(who, sizeof who, "rank %d (%s) calls", odd->rank, sn_net_host_name(w.net, odd->rank));
    for (int field = 0; field < FIELDS; field++) {
        sn_coll_group *g;
        sn_coll_call fine, other;
        differing(&w, field, odd->count, &fine, &other);
        RANK_CHECK(case_group(&w, "odd", &g) == 0);
        sn_coll_call c = rank == odd->rank ? other : fine;
        c.in = in;
        c.out = out;
        RANK_FAILS(sn_coll_run(g, &c, soon()), SN_EMISMATCH, "call #1 in group odd");
        RANK_CHECK(strstr(sn_errmsg(), who) != NULL);
        const char *one = strstr(sn_errmsg(), " calls "), *but = strstr(sn_errmsg(), ", but rank ");
        RANK_CHECK(one && but && one < but && strstr(but, " calls "));
        sn_coll_group_free(g);
        RANK_OK(world_barrier(&w));
    }
    world_close(&w);
    return 0;
}

static void test_calls_that_differ(void **state)
{
    static const int apart[] = {0, 1, 2}, eight[] = {0, 1, 0, 1, 2, 2, 0, 1};
    static const struct {
        const int *map;
        int n;
    } maps[] = {{here, 3}, {both, 4}, {apart, 3}, {uneven, 5}, {eight, 8}};
    odd_one *odd = sn_ranks_shared(sizeof *odd);
    for (size_t m = 0; m < SN_COUNT(maps); m++)
        for (odd->rank = 0; odd->rank < maps[m].n; odd->rank += SN_MAX(1, maps[m].n / 2)) {
            odd->count = m % 2 ? 7 : 7000;
            assert_int_equal(sn_ranks_run(maps[m].n, maps[m].map, differ, odd, soon()), 0);
        }
}

/* Messages of two sizes. */
static int sizes_differ(sn_boot *boot, int rank, int host, void *ctx)
{
    char buf[64];
    sn_coll_req *r;
    world w;
    if (case_open(boot, host, 1 << 20, &w) != 0)
        return 1;
    if (rank == 0)
        RANK_OK(sn_coll_send(w.c, 1, 5, buf, 33, soon(), &r));
    else
        RANK_OK(sn_coll_recv(w.c, 0, 5, buf, 34, soon(), &r));
    sn_status status = sn_coll_wait(r);
    RANK_CHECK(rank == 0 || status == SN_EMISMATCH);
    RANK_CHECK(rank == 0 || (strstr(sn_errmsg(), "33") && strstr(sn_errmsg(), "34")));
    if (rank == 1)
        RANK_CHECK(strstr(sn_errmsg(), "rank 0") && strstr(sn_errmsg(), "rank 1"));
    RANK_OK(world_barrier(&w));
    world_close(&w);
    return 0;
}

static void test_messages_that_differ(void **state)
{
    WORLD(pair, sizes_differ);
    WORLD(far, sizes_differ);
}

/* ---- A6: what only some ranks see is told to all ---- */

enum { ABSENT, OTHER_COUNT, NO_BUFFER, KINDS };

/* Rank 1, on one of the hosts, goes wrong; whoever calls it, on any host, gets an error, none a
 * result. */
static int one_host_fails(sn_boot *boot, int rank, int host, void *ctx)
{
    static float in[60000], out[60000];
    world w;
    if (case_open(boot, host, 1 << 20, &w) != 0)
        return 1;
    for (int k = 0; k < KINDS * 4; k++) {
        sn_coll_group *g;
        sn_coll_call c = {
            .op = k / KINDS % 2 ? SN_ALL_GATHER : SN_ALL_REDUCE, .in = in, .out = out};
        c.count = k / KINDS / 2 ? 10000 : 10;
        if (case_group(&w, "some", &g) != 0)
            return 1;
        if (rank == 1 && k % KINDS == OTHER_COUNT)
            c.count++;
        if (rank == 1 && k % KINDS == NO_BUFFER)
            c.in = NULL;
        sn_time from = sn_now();
        if (rank != 1 || k % KINDS != ABSENT) {
            sn_status status = sn_coll_run(g, &c, from + 150 * SN_MS);
            RANK_CHECK(status < 0 && sn_now() < from + 2 * SN_SEC);
            RANK_CHECK(sn_errmsg()[0] != '\0');
        }
        RANK_OK(world_barrier(&w));
        sn_coll_group_free(g);
    }
    world_close(&w);
    return 0;
}

static void test_one_host_fails(void **state)
{
    WORLD(both, one_host_fails);
    WORLD(uneven, one_host_fails);
}

/* ---- A4: no memory on one rank ---- */

/* The address space of one rank ends soon: all members get the same sentence, which names it. */
static int no_memory(sn_boot *boot, int rank, int host, void *ctx)
{
    sn_net *net;
    sn_coll *c = NULL;
    int *members = ctx, n = sn_boot_world(boot), poor = n - 1;
    struct rlimit old, small = {UINT64_C(3) << 30, RLIM_INFINITY};
    RANK_OK(sn_rank_open(boot, host, NULL, &net));
    RANK_CHECK(getrlimit(RLIMIT_AS, &old) == 0);
    if (rank == poor)
        RANK_CHECK(setrlimit(RLIMIT_AS, &small) == 0);
    sn_coll_opts opts = {.arena_bytes = UINT64_C(4) << 30, .deadline = soon()};
    if (rank != poor)
        opts.arena_bytes = 1 << 20;
    RANK_FAILS(sn_coll_open(net, &opts, &c), SN_ENOMEM, poor == 2 ? "rank 2 (h0)" : "rank 3 (h1)");
    RANK_CHECK(!c);
    if (rank == poor)
        RANK_CHECK(setrlimit(RLIMIT_AS, &old) == 0);
    opts.arena_bytes = 1 << 20; /* and it can be done again with less */
    RANK_OK(sn_coll_open(net, &opts, &c));
    sn_coll_group *g;
    sn_coll_call barrier = {.op = SN_BARRIER};
    RANK_OK(sn_coll_group_create(c, "again", members, n, soon(), &g));
    RANK_OK(sn_coll_run(g, &barrier, soon()));
    sn_coll_group_free(g);
    sn_coll_close(c);
    sn_net_close(net);
    return 0;
}

/* The sanitizers themselves need the address space that is taken away here. */
static void test_no_memory_on_one_rank(void **state)
{
    static int members[] = {0, 1, 2, 3};
    if (CASES_SANITIZED) {
        print_message("skipped: a sanitizer needs the address space that is taken away here\n");
        skip();
    }
    assert_int_equal(sn_ranks_run(4, both, no_memory, members, sn_now() + 30 * SN_SEC), 0);
    assert_int_equal(sn_ranks_run(3, here, no_memory, members, sn_now() + 30 * SN_SEC), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_deadline_of_every_call),
    cmocka_unit_test(test_deadline_of_other_waits),
    cmocka_unit_test(test_deadline_of_opening),
    cmocka_unit_test(test_the_sentence_of_a_deadline),
    cmocka_unit_test(test_calls_that_differ),
    cmocka_unit_test(test_messages_that_differ),
    cmocka_unit_test(test_one_host_fails),
    cmocka_unit_test(test_no_memory_on_one_rank),
};

CASES_MAIN(tests)
