/* SPDX-License-Identifier: Apache-2.0
 *
 * Several threads in one coll: groups that overlap, used in any order, made and freed meanwhile;
 * and aborts from another thread at any moment.
 *
 *   test_coll_threads [aborts]     10,000 without */
#include "unit/coll_world.h"

#include <pthread.h>
#include <semaphore.h>

#define THREADS 3
#define ROUNDS 40
#define BATCH 12

/* ---- groups that overlap ---- */

typedef struct pipe { /* requests that one thread posts and another waits for */
    sn_coll_req *req[ROUNDS];
    float x[ROUNDS][8];
    sem_t filled;
} pipe_line;

typedef struct worker {
    world *w;
    int index, bad;
    pipe_line *line;
    pthread_t thread;
} worker;

/* Everybody, the even ranks or the odd ones, and those that are not my opposite. */
static int make_groups(worker *t, sn_coll_group *g[3])
{
    world *w = t->w;
    int half[2] = {w->rank % 2, w->rank % 2 + 2}, all[4] = {3, 1, 0, 2}, two[2];
    char name[32];
    snprintf(name, sizeof(name), "thread %d", t->index);
    two[0] = w->rank / 2 * 2;
    two[1] = two[0] + 1;
    RANK_OK(sn_coll_group_create(w->c, name, all, 4, soon(), &g[0]));
    RANK_OK(sn_coll_group_create(w->c, name, half, 2, soon(), &g[1]));
    RANK_OK(sn_coll_group_create(w->c, name, two, 2, soon(), &g[2]));
    return 0;
}

static float sum_of(const world *w, int group)
{
    int mate = group == 1 ? (w->rank + 2) % 4 : w->rank ^ 1;
    return group == 0 ? 10 : (float) (w->rank + mate + 2);
}

static int64_t count_of(int round, int k)
{
    static const int64_t counts[] = {1, 700, 3, 20000, 9};
    return counts[(size_t) (round + k) % SN_COUNT(counts)];
}

/* A batch over three groups: posted and waited for in an order of this rank's own. */
static int batch(worker *t, sn_coll_group *const g[3], int round, float *buf)
{
    sn_coll_req *req[BATCH];
    int order[BATCH], posted[3] = {0};
    uint64_t seed = (uint64_t) (round * 64 + t->index * 8 + t->w->rank);
    for (int i = 0; i < BATCH; i++) {
        order[i] = i;
        for (int64_t k = 0; k < count_of(round, i / 3); k++)
            buf[i * 20000 + k] = (float) (t->w->rank + 1);
    }
    for (int i = BATCH - 1; i > 0; i--) {
        int k = (int) (sn_hash64(seed, (uint64_t) i, 0) % (uint64_t) (i + 1)), was = order[i];
        order[i] = order[k];
        order[k] = was;
    }
    for (int i = 0; i < BATCH; i++) {
        int group = order[i] % 3, k = posted[group]++, at = k * 3 + group;
        sn_coll_call call = {.op = SN_ALL_REDUCE,
                             .count = count_of(round, k),
                             .in = buf + at * 20000,
                             .out = buf + at * 20000,
                             .priority = k};
        RANK_OK(sn_coll_post(g[group], &call, soon(), &req[at]));
    }
    for (int i = 0; i < BATCH; i++) {
        int at = order[(i + 5) % BATCH];
        int64_t last = count_of(round, at / 3) - 1;
        RANK_OK(sn_coll_wait(req[at]));
        RANK_CHECK(buf[at * 20000] == sum_of(t->w, at % 3));
        RANK_CHECK(buf[at * 20000 + last] == sum_of(t->w, at % 3));
    }
    return 0;
}

/* The first thread posts what the last one waits for. */
static int hand_on(worker *t, int round)
{
    pipe_line *l = t->line;
    if (t->index == 0) {
        sn_coll_call call = {
            .op = SN_ALL_REDUCE, .count = 8, .in = l->x[round], .out = l->x[round]};
        for (int i = 0; i < 8; i++)
            l->x[round][i] = (float) (t->w->rank + 1);
        RANK_OK(sn_coll_post(t->w->all, &call, soon(), &l->req[round]));
        sem_post(&l->filled);
    } else if (t->index == THREADS - 1) {
        while (sem_wait(&l->filled) != 0)
            continue;
        RANK_OK(sn_coll_wait(l->req[round]));
        RANK_CHECK(l->x[round][7] == 10);
    }
    return 0;
}

static int letters(worker *t, int round)
{
    sn_coll_req *in, *out;
    world *w = t->w;
    int got[40] = {0}, sent[40];
    uint32_t tag = (uint32_t) t->index;
    for (int i = 0; i < 40; i++)
        sent[i] = round + i + t->index * 1000;
    RANK_OK(sn_coll_recv(w->c, (w->rank + 3) % 4, tag, got, sizeof(got), soon(), &in));
    RANK_OK(sn_coll_send(w->c, (w->rank + 1) % 4, tag, sent, sizeof(sent), soon(), &out));
    RANK_OK(sn_coll_wait(in));
    RANK_OK(sn_coll_wait(out));
    RANK_CHECK(memcmp(got, sent, sizeof(got)) == 0);
    return 0;
}

static int work(worker *t)
{
    sn_coll_group *g[3];
    float *buf = malloc(BATCH * 20000 * sizeof(float));
    if (make_groups(t, g) != 0)
        return 1;
    for (int round = 0; round < ROUNDS; round++) {
        if (round % 10 == 9) { /* made anew while the other threads go on */
            for (int i = 0; i < 3; i++)
                sn_coll_group_free(g[i]);
            if (make_groups(t, g) != 0)
                return 1;
        }
        if (batch(t, g, round, buf) != 0 || letters(t, round) != 0 || hand_on(t, round) != 0)
            return 1;
    }
    for (int i = 0; i < 3; i++)
        sn_coll_group_free(g[i]);
    free(buf);
    return 0;
}

static void *run_worker(void *arg)
{
    worker *t = arg;
    t->bad = work(t);
    return NULL;
}

static int threads(sn_boot *boot, int rank, int host, void *ctx)
{
    static pipe_line line;
    world w;
    worker t[THREADS];
    int bad = 0;
    sem_init(&line.filled, 0, 0);
    if (world_open_for(boot, host, true, &w) != 0)
        return 1;
    for (int i = 0; i < THREADS; i++) {
        t[i] = (worker){.w = &w, .index = i, .line = &line};
        pthread_create(&t[i].thread, NULL, run_worker, &t[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(t[i].thread, NULL);
        bad += t[i].bad;
    }
    RANK_CHECK(bad == 0);
    RANK_OK(world_barrier(&w));
    world_close(&w);
    return 0;
}

static void test_threads(void **state)
{
    static const int here[] = {0, 0, 0, 0}, both[] = {0, 0, 1, 1};
    WORLD(here, threads);
    WORLD(both, threads);
}

/* ---- aborts ---- */

static int wanted = 10000;

typedef struct aborter {
    sn_coll_group *group;
    sem_t go, done;
    bool over;
    uint64_t spin;
} aborter;

static void *run_aborter(void *arg)
{
    aborter *a = arg;
    for (;;) {
        while (sem_wait(&a->go) != 0)
            continue;
        if (a->over)
            return NULL;
        for (uint64_t i = 0; i < a->spin; i++)
            __atomic_signal_fence(__ATOMIC_SEQ_CST);
        sn_coll_group_abort(a->group, "out of patience");
        sem_post(&a->done);
    }
}

/* Calls of all kinds until the abort ends one of them; all members are told who did it. */
static int until_aborted(world *w, sn_coll_group *g, int turn, float *x, float *y)
{
    static const int64_t counts[] = {1, 40000, 300, 3000};
    static const sn_coll_op ops[] = {SN_ALL_REDUCE, SN_ALL_REDUCE, SN_ALL_GATHER, SN_BROADCAST,
                                     SN_BARRIER};
    char who[64];
    sn_status status = SN_OK;
    snprintf(who, sizeof(who), "rank %d (h", turn % w->size);
    for (int i = turn; status == SN_OK; i++) {
        sn_coll_call call = {.op = ops[(size_t) i % SN_COUNT(ops)],
                             .count = counts[(size_t) i % SN_COUNT(counts)],
                             .in = x,
                             .out = y};
        status = sn_coll_run(g, &call, soon());
    }
    RANK_CHECK(status == SN_ECANCEL && strstr(sn_errmsg(), "out of patience") != NULL);
    RANK_CHECK(strstr(sn_errmsg(), who) != NULL && strstr(sn_errmsg(), "aborted group brief"));
    sn_coll_call again = {.op = SN_BARRIER};
    RANK_FAILS(sn_coll_run(g, &again, soon()), SN_ECANCEL, who);
    return 0;
}

static int aborts(sn_boot *boot, int rank, int host, void *ctx)
{
    const int *times = ctx;
    world w;
    aborter a = {0};
    pthread_t thread;
    int members[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    static float x[40000], y[8 * 40000];
    if (world_open_for(boot, host, times[1] != 0, &w) != 0)
        return 1;
    sem_init(&a.go, 0, 0);
    sem_init(&a.done, 0, 0);
    pthread_create(&thread, NULL, run_aborter, &a);
    for (int i = 0; i < times[0]; i++) {
        RANK_OK(sn_coll_group_create(w.c, "brief", members, w.size, soon(), &a.group));
        a.spin = sn_hash64((uint64_t) i, 3, 0) % 40000;
        if (i % w.size == rank)
            sem_post(&a.go);
        if (until_aborted(&w, a.group, i, x, y) != 0)
            return 1;
        while (i % w.size == rank && sem_wait(&a.done) != 0)
            continue;
        sn_coll_group_free(a.group);
    }
    a.over = true;
    sem_post(&a.go);
    pthread_join(thread, NULL);
    RANK_OK(world_barrier(&w)); /* another group never noticed */
    world_close(&w);
    return 0;
}

static void test_aborts(void **state)
{
    static const int here[] = {0, 0, 0}, apart[] = {0, 1}, uneven[] = {0, 0, 1};
    int many[2] = {wanted, 0}, threaded[2] = {wanted / 10, 1};
    int few[2] = {wanted / 50, 0}, some[2] = {wanted / 50, 1};
    assert_int_equal(sn_ranks_run(2, here, aborts, many, sn_now() + 100 * SN_SEC), 0);
    assert_int_equal(sn_ranks_run(3, here, aborts, threaded, sn_now() + 60 * SN_SEC), 0);
    assert_int_equal(sn_ranks_run(2, apart, aborts, few, sn_now() + 60 * SN_SEC), 0);
    assert_int_equal(sn_ranks_run(3, uneven, aborts, some, sn_now() + 60 * SN_SEC), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_aborts),
    };
    if (argc > 1)
        wanted = (int) strtol(argv[1], NULL, 10);
    return sn_test_run(tests);
}
