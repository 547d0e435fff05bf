/* SPDX-License-Identifier: Apache-2.0
 *
 * What coll tells the flight recorder: operations of groups and pairs, in a host and across hosts,
 * their fates, and whom a rank is blocked by. */
#include "unit/coll_world.h"

#include <stdio.h>
#include <sys/wait.h>

typedef struct shared {
    char dir[64];
    uint32_t waiting; /* the ranks that are about to wait */
} shared;

static int open_recorded(sn_boot *boot, int host, const shared *s, world *w, sn_recorder **ret)
{
    char name[16];
    int members[64];
    snprintf(name, sizeof(name), "h%d", host);
    RANK_OK(sn_rank_open(boot, host, NULL, &w->net));
    w->rank = sn_net_rank(w->net);
    w->size = sn_net_world(w->net);
    sn_recorder_opts ro = {.rank = w->rank, .world = w->size, .host = name};
    RANK_OK(sn_recorder_create(s->dir, &ro, ret));
    sn_coll_opts opts = {
        .arena_bytes = 4 << 20, .stage_bytes = 2 << 20, .deadline = soon(), .recorder = *ret};
    RANK_OK(sn_coll_open(w->net, &opts, &w->c));
    for (int i = 0; i < w->size; i++)
        members[i] = i;
    RANK_OK(sn_coll_group_create(w->c, "world", members, w->size, soon(), &w->all));
    return 0;
}

static void close_recorded(world *w, sn_recorder *r)
{
    world_close(w);
    sn_recorder_close(r, SN_OK, NULL);
}

static bool is(const sn_recorded *op, const char *name, uint64_t seq, uint64_t bytes)
{
    return strcmp(op->op, name) == 0 && op->seq == seq && op->bytes == bytes;
}

/* One short, one long, one staged collective, a message each way; then rank 0 reads all files. */
static int operations(sn_boot *boot, int rank, int host, void *ctx)
{
    shared *s = ctx;
    static float x[100000], y[100000];
    world w;
    sn_recorder *r;
    sn_coll_req *out, *in;
    if (open_recorded(boot, host, s, &w, &r) != 0)
        return 1;
    sn_recorder_step(r, 5);
    sn_coll_call brief = {.op = SN_ALL_REDUCE, .count = 2, .in = x, .out = y};
    sn_coll_call more = {.op = SN_ALL_GATHER, .count = 5000, .in = x, .out = y};
    RANK_OK(sn_coll_run(w.all, &brief, soon()));
    RANK_OK(sn_coll_run(w.all, &more, soon()));
    int next = (rank + 1) % w.size, last = (rank + w.size - 1) % w.size;
    RANK_OK(sn_coll_send(w.c, next, 7, x, 6000, soon(), &out));
    RANK_OK(sn_coll_recv(w.c, last, 7, y, 6000, soon(), &in));
    RANK_OK(sn_coll_wait(in));
    RANK_OK(sn_coll_wait(out));
    RANK_OK(world_barrier(&w)); /* all others have written what is looked at */
    sn_arena *arena = sn_arena_create();
    sn_recordings all;
    RANK_OK(sn_recordings_read(s->dir, false, 100, arena, &all));
    RANK_CHECK(all.world == w.size);
    for (int k = 0; k < w.size; k++) {
        const sn_recording *rec = all.rank[k];
        RANK_CHECK(rec != NULL && rec->ops >= 4);
        const sn_recorded *op = rec->op;
        RANK_CHECK(is(&op[0], "all_reduce", 1, 8) && op[0].state == SN_RECORD_DONE);
        RANK_CHECK(strcmp(op[0].red, "sum") == 0 && op[0].algorithm[0] != '\0');
        RANK_CHECK(strcmp(rec->group[op[0].group].name, "world") == 0);
        RANK_CHECK(is(&op[1], "all_gather", 2, 20000 * (uint64_t) w.size));
        RANK_CHECK(is(&op[2], "send to", 7, 6000) && op[2].peer == (k + 1) % w.size);
        RANK_CHECK(is(&op[3], "receive from", 7, 6000));
        for (int i = 0; i < 4; i++)
            RANK_CHECK(op[i].state == SN_RECORD_DONE && op[i].step == 5 && op[i].posted > 0 &&
                       op[i].posted <= op[i].ended && op[i].started <= op[i].ended);
    }
    sn_recordings_done(&all);
    sn_arena_free(arena);
    RANK_OK(world_barrier(&w));
    close_recorded(&w, r);
    return 0;
}

/* The last rank does not come: the others' files name it, and the end of it all is recorded. */
static int absent(sn_boot *boot, int rank, int host, void *ctx)
{
    shared *s = ctx;
    static float x[100];
    world w;
    sn_recorder *r;
    if (open_recorded(boot, host, s, &w, &r) != 0)
        return 1;
    sn_coll_call call = {.op = SN_ALL_REDUCE, .count = 100, .in = x, .out = x};
    RANK_OK(sn_coll_run(w.all, &call, soon()));
    if (rank != w.size - 1) {
        RANK_FAILS(sn_coll_run(w.all, &call, sn_now() + 300 * SN_MS), SN_ETIME, "all_reduce #2");
        __atomic_fetch_add(&s->waiting, 1, __ATOMIC_SEQ_CST);
        close_recorded(&w, r);
        return 0;
    }
    char want[64];
    snprintf(want, sizeof(want), "in all_reduce #2 of group world for rank %d (h%d)", rank, host);
    bool seen = false;
    while (!seen && __atomic_load_n(&s->waiting, __ATOMIC_SEQ_CST) == 0) {
        sn_arena *arena = sn_arena_create();
        sn_recordings all;
        sn_blame b;
        RANK_OK(sn_recordings_read(s->dir, false, 100, arena, &all));
        sn_blame_make(&all, arena, &b);
        seen = strstr(sn_str_get(&b.verdict), want) != NULL && b.waits == w.size - 1;
        sn_blame_done(&b);
        sn_recordings_done(&all);
        sn_arena_free(arena);
    }
    RANK_CHECK(seen);
    while (__atomic_load_n(&s->waiting, __ATOMIC_SEQ_CST) < (uint32_t) w.size - 1)
        sn_sleep_until(sn_now() + SN_MS);
    close_recorded(&w, r);
    return 0;
}

static void check_failed(const shared *s, int last)
{
    sn_arena *arena = sn_arena_create();
    sn_recordings all;
    assert_ok(sn_recordings_read(s->dir, false, 100, arena, &all));
    for (int k = 0; k < last; k++) {
        const sn_recording *rec = all.rank[k];
        assert_int_equal(rec->op[rec->ops - 1].state, SN_RECORD_FAILED);
        assert_int_equal(rec->op[rec->ops - 1].status, SN_ETIME);
        assert_null(rec->wait);
    }
    sn_recordings_done(&all);
    sn_arena_free(arena);
}

static void in_directory(const int *host, int n, sn_rank_fn fn, bool fails)
{
    char path[128];
    shared *s = sn_ranks_shared(sizeof(*s));
    snprintf(s->dir, sizeof(s->dir), "/tmp/sn-record-XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    assert_int_equal(sn_ranks_run(n, host, fn, s, sn_now() + 30 * SN_SEC), 0);
    if (fails)
        check_failed(s, n - 1);
    for (int r = 0; r < n; r++) {
        snprintf(path, sizeof(path), "%s/recorder-%d.bin", s->dir, r);
        unlink(path);
    }
    assert_int_equal(rmdir(s->dir), 0);
}

static void test_operations(void **state)
{
    static const int here[] = {0, 0, 0}, both[] = {0, 0, 1, 1};
    in_directory(here, 3, operations, false);
    in_directory(both, 4, operations, false);
}

static void test_absent(void **state)
{
    static const int here[] = {0, 0, 0};
    in_directory(here, 3, absent, true);
}

int main(int argc, char **argv)
{
    sn_ranks_args(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operations),
        cmocka_unit_test(test_absent),
    };
    return sn_test_run(tests);
}
