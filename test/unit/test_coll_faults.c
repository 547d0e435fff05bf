/* SPDX-License-Identifier: Apache-2.0
 *
 * What goes wrong is told to everybody, with names, and never hangs: calls that differ, members
 * that do not come, members that are killed, requests that make no sense. */
#include "unit/coll_world.h"

static int everyone(world *w, const char *name, sn_coll_group **ret)
{
    int members[64];
    for (int i = 0; i < w->size; i++)
        members[i] = i;
    RANK_OK(sn_coll_group_create(w->c, name, members, w->size, soon(), ret));
    return 0;
}

/* ---- calls that differ ---- */

/* The last rank calls something else; everybody is told, and who; a new group works again. */
static int differ(sn_boot *boot, int rank, int host, void *ctx)
{
    static const sn_coll_call kinds[][2] = {
        {{.op = SN_ALL_REDUCE, .count = 100}, {.op = SN_ALL_REDUCE, .count = 101}},
        {{.op = SN_ALL_REDUCE, .count = 9}, {.op = SN_ALL_REDUCE, .count = 9, .red = SN_MAX}},
        {{.op = SN_ALL_REDUCE, .count = 9}, {.op = SN_ALL_REDUCE, .count = 9, .dtype = SN_BF16}},
        {{.op = SN_BROADCAST, .count = 3000}, {.op = SN_BROADCAST, .count = 3000, .root = 1}},
        {{.op = SN_ALL_GATHER, .count = 2000}, {.op = SN_BARRIER}},
        {{.op = SN_ALL_REDUCE, .count = 30000}, {.op = SN_REDUCE_SCATTER, .count = 7}},
    };
    static float x[80000], y[80000];
    world w;
    char other[32];
    if (world_open(boot, host, &w) != 0)
        return 1;
    snprintf(other, sizeof(other), "rank %d (h", w.size - 1);
    for (size_t k = 0; k < SN_COUNT(kinds); k++) {
        sn_coll_group *g;
        sn_coll_call fine = {.op = SN_ALL_REDUCE, .count = 5, .in = x, .out = y};
        sn_coll_call call = kinds[k][rank == w.size - 1];
        call.in = x;
        call.out = y;
        if (everyone(&w, "odd", &g) != 0)
            return 1;
        RANK_OK(sn_coll_run(g, &fine, soon()));
        RANK_FAILS(sn_coll_run(g, &call, soon()), SN_EMISMATCH, other);
        RANK_CHECK(strstr(sn_errmsg(), "call #2 in group odd") != NULL);
        RANK_FAILS(sn_coll_run(g, &fine, soon()), SN_EMISMATCH, other); /* it stays broken */
        sn_coll_group_free(g);
        RANK_OK(world_barrier(&w));
    }
    world_close(&w);
    return 0;
}

static void test_differ(void **state)
{
    static const int here[] = {0, 0, 0}, apart[] = {0, 1}, both[] = {0, 0, 1, 1},
                     uneven[] = {0, 0, 1};
    WORLD(here, differ);
    WORLD(apart, differ);
    WORLD(both, differ);
    WORLD(uneven, differ);
}

/* ---- members that do not come ---- */

static int late(sn_boot *boot, int rank, int host, void *ctx)
{
    world w;
    sn_coll_group *g;
    char who[128];
    static float x[4096];
    if (world_open(boot, host, &w) != 0 || everyone(&w, "data[s0,t1]", &g) != 0)
        return 1;
    snprintf(who, sizeof(who), "all_reduce #1 in group data[s0,t1]: no signal from rank %d (h%d)",
             w.size - 1, sn_net_host_index(w.net, w.size - 1));
    if (rank != w.size - 1) {
        sn_coll_call call = {.op = SN_ALL_REDUCE, .count = 2000, .in = x, .out = x};
        sn_time from = sn_now();
        sn_status status = sn_coll_run(g, &call, from + 200 * SN_MS);
        double ms = (double) (sn_now() - from) / 1e6;
        RANK_CHECK(status == SN_ETIME && strstr(sn_errmsg(), who) != NULL);
        RANK_CHECK(ms < 5000 && (ms >= 200 || w.size > 2)); /* a third may tell it first */
        RANK_FAILS(sn_coll_run(g, &call, soon()), SN_ETIME, who);
    }
    RANK_OK(world_barrier(&w)); /* the other group goes on */
    world_close(&w);
    return 0;
}

static void test_late(void **state)
{
    static const int here[] = {0, 0}, three[] = {0, 0, 0}, apart[] = {0, 1};
    WORLD(here, late);
    WORLD(three, late);
    WORLD(apart, late);
}

/* ---- members that are killed ---- */

typedef struct victim {
    sn_coll_op op;
    int64_t count;
} victim;

/* The last rank dies after it has entered some operations; the others find out, long before the
 * deadline. */
static int die(sn_boot *boot, int rank, int host, void *ctx)
{
    const victim *v = ctx;
    world w;
    float *x, *y;
    char who[32];
    if (world_open(boot, host, &w) != 0)
        return 1;
    RANK_OK(sn_coll_alloc(w.c, (size_t) (v->count * w.size) * 4 + 64, (void **) &x));
    RANK_OK(sn_coll_alloc(w.c, (size_t) (v->count * w.size) * 4 + 64, (void **) &y));
    sn_coll_call call = {.op = v->op, .count = v->count, .in = x, .out = y};
    sn_time from = sn_now();
    sn_status status = SN_OK;
    snprintf(who, sizeof(who), "rank %d (h", w.size - 1);
    for (int i = 0; status == SN_OK; i++) {
        sn_coll_req *req;
        if (rank == w.size - 1 && i == 20) {
            sn_coll_post(w.all, &call, soon(), &req);
            sn_rank_die();
        }
        from = sn_now();
        status = sn_coll_run(w.all, &call, soon());
    }
    double s = (double) (sn_now() - from) / 1e9;
    RANK_CHECK(status == SN_EPEER && strstr(sn_errmsg(), who) != NULL);
    RANK_CHECK(strstr(sn_errmsg(), sn_coll_op_name(v->op)) != NULL && s < 5);
    RANK_FAILS(sn_coll_run(w.all, &call, soon()), SN_EPEER, who);
    world_close(&w);
    return 0;
}

static void test_killed(void **state)
{
    static const int here[] = {0, 0, 0}, both[] = {0, 0, 1, 1};
    for (sn_coll_op op = 0; op < SN_COLL_OPS; op++) {
        victim v = {.op = op, .count = op % 2 ? 200 : 100000};
        assert_int_equal(sn_ranks_run(3, here, die, &v, sn_now() + 20 * SN_SEC), 0);
        v.count = op % 2 ? 100000 : 200;
        assert_int_equal(sn_ranks_run(4, both, die, &v, sn_now() + 20 * SN_SEC), 0);
    }
}

/* ---- requests that make no sense ---- */

static int senseless(sn_boot *boot, int rank, int host, void *ctx)
{
    world w;
    sn_coll_group *g;
    sn_coll_req *r;
    static float x[100];
    int twice[2] = {0, 0}, far[2] = {0, 7}, other[1] = {1 - rank};
    if (world_open(boot, host, &w) != 0)
        return 1;
    RANK_FAILS(sn_coll_group_create(w.c, "a", twice, 2, soon(), &g), SN_EINVAL, "twice");
    RANK_FAILS(sn_coll_group_create(w.c, "a", far, 2, soon(), &g), SN_EINVAL, "no rank 7");
    RANK_FAILS(sn_coll_group_create(w.c, "a", other, 1, soon(), &g), SN_EINVAL, "not in it");
    sn_coll_call call = {.op = SN_ALL_REDUCE, .count = 50, .in = x, .out = x + 1};
    RANK_FAILS(sn_coll_post(w.all, &call, soon(), &r), SN_EINVAL, "overlap");
    call.out = NULL;
    RANK_FAILS(sn_coll_post(w.all, &call, soon(), &r), SN_EINVAL, "no buffer");
    call = (sn_coll_call){.op = SN_ALL_REDUCE, .dtype = SN_I64, .count = 5, .in = x, .out = x + 50};
    RANK_FAILS(sn_coll_post(w.all, &call, soon(), &r), SN_ENOTSUP, "I64");
    call = (sn_coll_call){.op = SN_BROADCAST, .count = 5, .out = x, .root = 2};
    RANK_FAILS(sn_coll_post(w.all, &call, soon(), &r), SN_EINVAL, "root 2");
    call = (sn_coll_call){.op = SN_ALL_REDUCE, .count = -1, .in = x, .out = x};
    RANK_FAILS(sn_coll_post(w.all, &call, soon(), &r), SN_EINVAL, "-1");
    call = (sn_coll_call){.op = SN_BARRIER, .algorithm = "spiral"};
    RANK_FAILS(sn_coll_post(w.all, &call, soon(), &r), SN_ENOTSUP, "spiral");
    call = (sn_coll_call){.op = SN_BARRIER, .algorithm = "ring"};
    RANK_FAILS(sn_coll_post(w.all, &call, soon(), &r), SN_ENOTSUP, "flat");
    call = (sn_coll_call){.op = (sn_coll_op) 99};
    RANK_FAILS(sn_coll_post(w.all, &call, soon(), &r), SN_EINVAL, "no such");
    RANK_OK(world_barrier(&w)); /* none of them counted */
    int both[2] = {0, 1};
    RANK_FAILS(sn_coll_group_create(w.c, rank ? "b" : "c", both, 2, soon(), &g), SN_EMISMATCH,
               "another name");
    RANK_OK(world_barrier(&w));
    world_close(&w);
    return 0;
}

static void test_senseless(void **state)
{
    static const int here[] = {0, 0};
    WORLD(here, senseless);
}

/* ---- the control page ---- */

/* A new epoch ends the wait; while it lasts the page says what for. */
static int epoch(sn_boot *boot, int rank, int host, void *ctx)
{
    sn_page *page;
    sn_net *net;
    sn_coll *c;
    sn_coll_group *g;
    sn_coll_req *r;
    uint32_t *over = ctx;
    int fd, both[2] = {0, 1};
    char text[SN_PAGE_TEXT];
    sn_time since;
    RANK_OK(sn_page_create(rank, host, "h0", &fd, &page));
    RANK_OK(sn_rank_open(boot, host, page, &net));
    sn_coll_opts opts = {.arena_bytes = 1 << 20, .deadline = soon()};
    RANK_OK(sn_coll_open(net, &opts, &c));
    RANK_OK(sn_coll_group_create(c, "p", both, 2, soon(), &g));
    sn_coll_call call = {.op = SN_BARRIER};
    RANK_OK(sn_coll_run(g, &call, soon()));
    if (rank == 0) {
        RANK_OK(sn_coll_post(g, &call, sn_now() + 30 * SN_MS, &r));
        RANK_FAILS(sn_coll_wait(r), SN_ETIME, "no signal from rank 1");
        RANK_CHECK(sn_page_op_read(page, text, &since) && text[0] == '\0');
        int alone[1] = {0};
        sn_coll_group *self;
        RANK_OK(sn_coll_group_create(c, "self", alone, 1, soon(), &self));
        RANK_OK(sn_coll_recv(c, 1, 77, text, 8, soon(), &r));
        RANK_CHECK(sn_coll_test(r) == SN_PENDING);
        __atomic_store_n(&page->victim, 1, __ATOMIC_RELAXED);
        __atomic_store_n(&page->epoch, page->epoch + 1, __ATOMIC_RELEASE);
        RANK_FAILS(sn_coll_wait(r), SN_EEPOCH, "rank 1");
        sn_coll_group_free(self);
        __atomic_store_n(over, 1, __ATOMIC_RELEASE);
    }
    while (__atomic_load_n(over, __ATOMIC_ACQUIRE) == 0)
        sn_sleep_until(sn_now() + SN_MS);
    sn_coll_group_free(g);
    sn_coll_close(c);
    sn_net_close(net);
    sn_page_unmap(page);
    close(fd);
    return 0;
}

static void test_epoch(void **state)
{
    static const int here[] = {0, 0};
    uint32_t *over = sn_ranks_shared(sizeof(*over));
    assert_int_equal(sn_ranks_run(2, here, epoch, over, sn_now() + 20 * SN_SEC), 0);
}

int main(int argc, char **argv)
{
    sn_ranks_args(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_differ), cmocka_unit_test(test_late),
        cmocka_unit_test(test_killed), cmocka_unit_test(test_senseless),
        cmocka_unit_test(test_epoch),
    };
    return sn_test_run(tests);
}
