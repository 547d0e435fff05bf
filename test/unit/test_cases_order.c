/* SPDX-License-Identifier: Apache-2.0
 *
 * Cases A8, A24: many operations under way at once, on groups that overlap, posted by each rank in
 * an order of its own, waited for in another, against an oracle. */
#include "unit/cases_world.h"

enum { GROUPS = 6, EACH = 6, MAILS = 8, MOST = 6000, SLOTS = GROUPS * EACH + 2 * MAILS };

typedef struct task {     /* one request of a round */
    sn_coll_group *group; /* NULL: a message */
    sn_coll_call call;
    uint64_t seed;
    sn_coll_req *req;
    bool sends;
    int peer;
    uint32_t tag;
    size_t bytes;
    unsigned char *in, *out;
} task;

typedef struct crowd {
    world w;
    sn_coll_group *group[GROUPS];
    unsigned char *arena, *plain;
    size_t room;
    sn_prng dice; /* this rank's own */
    task task[SLOTS];
    int tasks;
} crowd;

static int roll(crowd *c, int n)
{
    return (int) sn_prng_below(&c->dice, n);
}

/* Groups of any ranks in any order; the first is everybody. */
static int make_groups(crowd *c, uint64_t seed)
{
    for (int g = 0; g < GROUPS; g++) {
        int members[16], n = 0, at = -1;
        char name[16];
        for (int i = 0; i < c->w.size; i++) {
            int r = (i + case_draw(seed, 21, (uint64_t) g, c->w.size)) % c->w.size;
            if (g > 0 && case_draw(seed, 100 + (uint64_t) g, (uint64_t) r, 3) == 0)
                continue;
            at = r == c->w.rank ? n : at;
            members[n++] = r;
        }
        snprintf(name, sizeof name, "g%d", g);
        if (at >= 0)
            RANK_OK(sn_coll_group_create(c->w.c, name, members, n, soon(), &c->group[g]));
    }
    return 0;
}

static task *new_task(crowd *c)
{
    task *t = &c->task[c->tasks];
    unsigned char *at = roll(c, 3) ? c->arena : c->plain;
    *t = (task){.in = at + 2 * (size_t) c->tasks * c->room};
    t->out = t->in + c->room;
    c->tasks++;
    return t;
}

/* The round's calls, the same for all members of a group. */
static void draw_calls(crowd *c, uint64_t round)
{
    for (int g = 0; g < GROUPS; g++)
        for (uint64_t k = 0; k < EACH && c->group[g]; k++) {
            uint64_t seed = sn_hash64(round, (uint64_t) g, k);
            int p = sn_coll_group_size(c->group[g]), me = sn_coll_group_me(c->group[g]);
            task *t = new_task(c);
            t->group = c->group[g];
            t->seed = seed;
            t->call = case_call(seed, 1, p,
                                case_draw(seed, 2, 0, 8) ? case_draw(seed, 3, 0, 50) : MOST / p);
            t->call.priority = case_draw(seed, 4, 0, 3);
            case_fill(&t->call, seed, me, p, t->in, t->out);
            t->call.in = t->in;
            t->call.out = t->out;
        }
}

/* Messages between any two ranks, of any length. */
static void draw_mails(crowd *c, uint64_t round)
{
    for (uint64_t k = 0; k < MAILS; k++) {
        uint64_t seed = sn_hash64(round, 777, k);
        int from = case_draw(seed, 0, 0, c->w.size), to = case_draw(seed, 0, 1, c->w.size);
        if (from == to || (c->w.rank != from && c->w.rank != to))
            continue;
        task *t = new_task(c);
        t->sends = c->w.rank == from;
        t->peer = t->sends ? to : from;
        t->tag = (uint32_t) case_draw(seed, 0, 2, 2);
        t->bytes = (size_t) (case_draw(seed, 0, 3, 4) ? case_draw(seed, 0, 4, 200) : MOST);
        for (size_t i = 0; i < t->bytes && t->sends; i++)
            t->in[i] = (unsigned char) sn_hash64(seed, 5, i);
        t->seed = seed;
    }
}

static sn_status post(crowd *c, task *t)
{
    if (t->group)
        return sn_coll_post(t->group, &t->call, soon(), &t->req);
    if (t->sends)
        return sn_coll_send(c->w.c, t->peer, t->tag, t->in, t->bytes, soon(), &t->req);
    return sn_coll_recv(c->w.c, t->peer, t->tag, t->in, t->bytes, soon(), &t->req);
}

/* Any order among the groups, the given one within each and among the messages of a pair. */
static int post_all(crowd *c)
{
    bool posted[SLOTS] = {false};
    for (int left = c->tasks; left > 0; left--) {
        int k = roll(c, c->tasks);
        while (posted[k])
            k = (k + 1) % c->tasks;
        for (int i = 0; i < k; i++)
            if (!posted[i] && c->task[i].group == c->task[k].group) {
                k = i;
                break;
            }
        RANK_OK(post(c, &c->task[k]));
        posted[k] = true;
        if (roll(c, 4) == 0)
            sn_coll_progress(c->w.c);
    }
    return 0;
}

static int check(const task *t)
{
    if (t->group)
        return case_check(&t->call, t->seed, sn_coll_group_me(t->group),
                          sn_coll_group_size(t->group), t->out);
    for (size_t i = 0; i < t->bytes && !t->sends; i++)
        RANK_CHECK(t->in[i] == (unsigned char) sn_hash64(t->seed, 5, i));
    return 0;
}

static int wait_all(crowd *c)
{
    for (int left = c->tasks; left > 0;) {
        int k = roll(c, c->tasks);
        while (!c->task[k].req)
            k = (k + 1) % c->tasks;
        task *t = &c->task[k];
        sn_status status = roll(c, 2) ? sn_coll_wait(t->req) : sn_coll_test(t->req);
        if (status == SN_PENDING)
            continue;
        RANK_OK(status);
        t->req = NULL;
        left--;
        RANK_CHECK(check(t) == 0);
    }
    return 0;
}

static int overlapping(sn_boot *boot, int rank, int host, void *ctx)
{
    const int *rounds = ctx;
    static crowd c;
    c.dice = (sn_prng){.seed = sn_hash64(CASES_SEED, 8, (uint64_t) rank)};
    c.room = MOST * 8 + 64;
    if (case_open(boot, host, 2 * SLOTS * c.room, &c.w) != 0 || make_groups(&c, CASES_SEED) != 0)
        return 1;
    RANK_OK(sn_coll_alloc(c.w.c, 2 * SLOTS * c.room, (void **) &c.arena));
    c.plain = malloc(2 * SLOTS * c.room);
    uint64_t ops = 0;
    for (int k = 0; k < *rounds; k++) {
        c.tasks = 0;
        draw_calls(&c, sn_hash64(CASES_SEED, 9, (uint64_t) k));
        draw_mails(&c, sn_hash64(CASES_SEED, 9, (uint64_t) k));
        if (post_all(&c) != 0 || wait_all(&c) != 0)
            return 1;
        ops += (uint64_t) c.tasks;
    }
    if (rank == 0)
        printf("%llu operations on rank 0\n", (unsigned long long) ops);
    for (int g = 0; g < GROUPS; g++)
        sn_coll_group_free(c.group[g]);
    free(c.plain);
    world_close(&c.w);
    return 0;
}

static void run(const int *map, int n, int rounds)
{
    int *shared = sn_ranks_shared(sizeof *shared);
    *shared = rounds * case_times;
    sn_time limit = sn_now() + 60 * SN_SEC * case_times;
    assert_int_equal(sn_ranks_run(n, map, overlapping, shared, limit), 0);
}

static void test_overlapping_groups(void **state)
{
    static const int here[] = {0, 0, 0, 0}, both[] = {0, 0, 1, 1}, mixed[] = {0, 1, 2, 0, 1},
                     two[] = {0, 0};
    run(two, 2, 60);
    run(here, 4, 60);
    run(both, 4, 40);
    run(mixed, 5, 25);
}

/* ---- messages of a pair with one tag keep their order ---- */

/* A receive that is posted while an older one still waits must not take the older one's message. */
static int late_receive(sn_boot *boot, int rank, int host, void *ctx)
{
    int value[2] = {41, 42}, got[2] = {0};
    sn_coll_req *r[2];
    world w;
    if (case_open(boot, host, 1 << 20, &w) != 0)
        return 1;
    if (rank == 1)
        RANK_OK(sn_coll_recv(w.c, 0, 7, &got[0], sizeof(int), soon(), &r[0]));
    case_done(ctx);
    RANK_CHECK(case_await(ctx, 2));
    for (int i = 0; i < 2 && rank == 0; i++)
        RANK_OK(sn_coll_send(w.c, 1, 7, &value[i], sizeof(int), soon(), &r[i]));
    for (int i = 0; i < 1000 && rank == 0; i++)
        sn_coll_progress(w.c);
    case_done(ctx);
    RANK_CHECK(case_await(ctx, 4));
    if (rank == 1)
        RANK_OK(sn_coll_recv(w.c, 0, 7, &got[1], sizeof(int), soon(), &r[1]));
    RANK_OK(sn_coll_wait(r[1]));
    RANK_OK(sn_coll_wait(r[0]));
    RANK_CHECK(rank == 0 || (got[0] == 41 && got[1] == 42));
    RANK_OK(world_barrier(&w));
    world_close(&w);
    return 0;
}

/* A send that needs no staging must not overtake older ones that wait for room. */
static int late_send(sn_boot *boot, int rank, int host, void *ctx)
{
    enum { N = 40, BYTES = 50000 };
    sn_coll_req *r[N];
    unsigned char *arena, *plain = malloc((size_t) N * BYTES);
    world w;
    if (case_open(boot, host, 4 << 20, &w) != 0)
        return 1;
    RANK_OK(sn_coll_alloc(w.c, (size_t) N * BYTES, (void **) &arena));
    for (int i = 0; i < N; i++) {
        unsigned char *at = (i % 4 == 3 ? arena : plain) + (size_t) i * BYTES;
        memset(at, rank == 0 ? i + 1 : 0, BYTES);
        RANK_OK(rank == 0 ? sn_coll_send(w.c, 1, 7, at, BYTES, soon(), &r[i])
                          : sn_coll_recv(w.c, 0, 7, at, BYTES, soon(), &r[i]));
    }
    for (int i = 0; i < N; i++) {
        unsigned char *at = (i % 4 == 3 ? arena : plain) + (size_t) i * BYTES;
        RANK_OK(sn_coll_wait(r[i]));
        if (at[0] != i + 1 || at[BYTES - 1] != i + 1) {
            fprintf(stderr, "message %d came in place of message %d\n", at[0] - 1, i);
            return 1;
        }
    }
    RANK_OK(world_barrier(&w));
    free(plain);
    world_close(&w);
    return 0;
}

static void test_messages_keep_their_order(void **state)
{
    static const int here[] = {0, 0}, far[] = {0, 1};
    uint32_t *done = sn_ranks_shared(sizeof *done);
    WORLD(far, late_send);
    WORLD(here, late_send);
    assert_int_equal(sn_ranks_run(2, far, late_receive, done, sn_now() + 30 * SN_SEC), 0);
    *done = 0;
    assert_int_equal(sn_ranks_run(2, here, late_receive, done, sn_now() + 30 * SN_SEC), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_overlapping_groups),
    cmocka_unit_test(test_messages_keep_their_order),
};

CASES_MAIN(tests)
