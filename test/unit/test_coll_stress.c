/* SPDX-License-Identifier: Apache-2.0
 *
 * Random operations that overlap, on groups that overlap, against an oracle: posted in one order on
 * all ranks, waited for in another on each, short and staged, from the arena and from elsewhere.
 *
 *   test_coll_stress [operations]      100,000 without */
#include "unit/coll_world.h"

#define FLIGHT 24
#define MOST 1500 /* elements of a block */
#define ROOM (4 * MOST)

static int64_t wanted = 100000;

typedef struct flight {
    sn_coll_req *req;
    sn_coll_call call;
    int group;
    uint64_t seed;
    float *in, *out;
} flight;

typedef struct many {
    world w;
    sn_coll_group *group[3];
    int size[3], member[3][4]; /* ranks in group order */
    float *arena, *plain;
    flight f[FLIGHT];
} many;

/* Small whole numbers: sums are exact in any order. */
static float value(uint64_t seed, int rank, int64_t i)
{
    return (float) (int64_t) ((seed * 31 + (uint64_t) rank * 17 + (uint64_t) i * 7) % 97) - 48;
}

static int64_t blocks(const flight *f, int p, bool in)
{
    switch (f->call.op) {
    case SN_REDUCE_SCATTER:
    case SN_SCATTER:
        return in ? p : 1;
    case SN_ALL_GATHER:
    case SN_GATHER:
        return in ? 1 : p;
    case SN_ALL_TO_ALL:
        return p;
    case SN_BARRIER:
        return 0;
    default:
        return 1;
    }
}

static float expected(const many *m, const flight *f, int64_t i)
{
    int p = m->size[f->group], me = sn_coll_group_me(m->group[f->group]);
    const int *rank = m->member[f->group];
    int64_t n = f->call.count;
    float sum = 0;
    switch (f->call.op) {
    case SN_BROADCAST:
        return value(f->seed, rank[f->call.root], i);
    case SN_SCATTER:
        return value(f->seed, rank[f->call.root], n * me + i);
    case SN_ALL_GATHER:
    case SN_GATHER:
        return value(f->seed, rank[i / n], i % n);
    case SN_ALL_TO_ALL:
        return value(f->seed, rank[i / n], n * me + i % n);
    case SN_REDUCE_SCATTER:
        i += n * me;
        break;
    default:
        break;
    }
    for (int k = 0; k < p; k++)
        sum += value(f->seed, rank[k], i);
    return sum;
}

static int start(many *m, int slot, uint64_t k)
{
    flight *f = &m->f[slot];
    uint64_t h = sn_hash64(k, 77, 0), own = sn_hash64(k, 78, (uint64_t) m->w.rank);
    static const int64_t counts[] = {1, 2, 3, 17, 64, 100, 400, MOST};
    f->group = (int) (h % 3);
    f->seed = k;
    f->call = (sn_coll_call){.op = (sn_coll_op) (h / 3 % SN_COLL_OPS),
                             .count = counts[h / 64 % SN_COUNT(counts)],
                             .root = (int) (h / 1024 % (uint64_t) m->size[f->group]),
                             .priority = (int) (h / 8192 % 3),
                             .deterministic = h / 65536 % 4 == 0};
    float *base = own % 2 ? m->arena : m->plain;
    f->in = base + (2 * slot) * ROOM;
    f->out = base + (2 * slot + 1) * ROOM;
    bool in_place = f->call.op == SN_ALL_REDUCE && own / 2 % 2;
    if (in_place)
        f->in = f->out;
    int64_t ins = f->call.count * blocks(f, m->size[f->group], true);
    for (int64_t i = 0; i < ins; i++)
        f->in[i] = value(k, m->w.rank, i);
    for (int64_t i = 0; f->call.op == SN_BROADCAST && i < f->call.count; i++)
        f->out[i] = value(k, m->w.rank, i);
    f->call.in = f->in;
    f->call.out = f->out;
    RANK_OK(sn_coll_post(m->group[f->group], &f->call, soon(), &f->req));
    return 0;
}

static int end(many *m, int slot)
{
    flight *f = &m->f[slot];
    int me = sn_coll_group_me(m->group[f->group]);
    int64_t outs = f->call.count * blocks(f, m->size[f->group], false);
    RANK_OK(sn_coll_wait(f->req));
    f->req = NULL;
    if (f->call.op == SN_GATHER && f->call.root != me)
        return 0;
    for (int64_t i = 0; i < outs; i += 1 + i / 8) {
        int64_t at = i % 2 ? i : outs - 1 - i;
        if (f->out[at] == expected(m, f, at))
            continue;
        fprintf(stderr, "rank %d: %s %d of %lld, group %d, [%lld] = %g, not %g\n", m->w.rank,
                sn_coll_op_name(f->call.op), (int) f->seed, (long long) f->call.count, f->group,
                (long long) at, (double) f->out[at], (double) expected(m, f, at));
        return 1;
    }
    return 0;
}

static int open_groups(many *m)
{
    world *w = &m->w;
    int last = w->size - 1;
    for (int i = 0; i < w->size; i++)
        m->member[0][i] = last - i;
    m->size[0] = w->size;
    int half[2] = {w->rank % (w->size / 2), w->rank % (w->size / 2) + w->size / 2};
    memcpy(m->member[1], half, sizeof(half));
    m->size[1] = 2;
    m->member[2][0] = (w->rank | 1);
    m->member[2][1] = (w->rank | 1) - 1;
    m->size[2] = 2;
    for (int i = 0; i < 3; i++)
        RANK_OK(sn_coll_group_create(w->c, "some", m->member[i], m->size[i], soon(), &m->group[i]));
    return 0;
}

static int stress(sn_boot *boot, int rank, int host, void *ctx)
{
    static many m;
    const int64_t *total = ctx;
    if (world_open(boot, host, &m.w) != 0 || open_groups(&m) != 0)
        return 1;
    void *arena;
    RANK_OK(sn_coll_alloc(m.w.c, 2 * FLIGHT * ROOM * sizeof(float), &arena));
    m.arena = arena;
    m.plain = malloc(2 * FLIGHT * ROOM * sizeof(float));
    uint64_t next = 0, each = (uint64_t) (*total / m.w.size);
    for (uint64_t turn = 0; next < each; turn++) {
        int slot = (int) (sn_hash64(turn, 5, (uint64_t) rank) % FLIGHT);
        for (int i = 0; i < FLIGHT && next < each; i++) /* keep it full, in one order on all */
            if (m.f[i].req == NULL && start(&m, i, next++) != 0)
                return 1;
        if (m.f[slot].req != NULL && end(&m, slot) != 0)
            return 1;
    }
    for (int i = 0; i < FLIGHT; i++)
        if (m.f[i].req != NULL && end(&m, i) != 0)
            return 1;
    for (int i = 0; i < 3; i++)
        sn_coll_group_free(m.group[i]);
    RANK_OK(world_barrier(&m.w));
    free(m.plain);
    world_close(&m.w);
    return 0;
}

static void test_stress(void **state)
{
    static const int here[] = {0, 0, 0, 0}, two[] = {0, 0}, both[] = {0, 0, 1, 1};
    int64_t part = wanted * 5 / 10, rest = wanted * 4 / 10, far = wanted / 10;
    sn_time deadline = sn_now() + (60 + wanted / 1000) * SN_SEC;
    assert_int_equal(sn_ranks_run(2, two, stress, &part, deadline), 0);
    assert_int_equal(sn_ranks_run(4, here, stress, &rest, deadline), 0);
    assert_int_equal(sn_ranks_run(4, both, stress, &far, deadline), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_stress)};
    if (argc > 1)
        wanted = strtoll(argv[1], NULL, 10);
    return sn_test_run(tests);
}
