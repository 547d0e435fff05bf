/* SPDX-License-Identifier: Apache-2.0
 *
 * Every schedule, run on plain arrays by members that advance in random order, whose messages are
 * copied at a random moment between their posting and the fence, and whose buffers are overwritten
 * as soon as they finish; against a naive sum. */
#include "algo/algo.h"
#include "unit/sn_test.h"

#include <math.h>
#include <stdio.h>

#define MEMBERS 8
#define CANARY 16

typedef struct message {
    int from, to;
    bool sent, received, done;
    void *src, *dst;
    size_t bytes;
} message;

typedef struct member {
    sn_sched s;
    int at, round;
    unsigned char *in, *out, *tmp, *note; /* behind CANARY bytes each */
    unsigned char *in_mem, *out_mem, *tmp_mem, *note_mem;
    unsigned char *in_copy, *result;
    int64_t in_count, out_count;
    bool done;
} member;

typedef struct world {
    sn_algo_group g;
    sn_algo_call c;
    member m[MEMBERS];
    message *msg;
    int msgs;
    sn_prng rng;
    size_t el;
} world;

static float get(const world *w, const void *p, int64_t i)
{
    return w->c.dtype == SN_F32 ? ((const float *) p)[i]
                                : sn_bf16_to_f32(((const uint16_t *) p)[i]);
}

static void put(const world *w, void *p, int64_t i, float f)
{
    if (w->c.dtype == SN_F32)
        ((float *) p)[i] = f;
    else
        ((uint16_t *) p)[i] = sn_f32_to_bf16(f);
}

static float combine(sn_red red, float a, float b)
{
    if (red == SN_MAX)
        return a > b ? a : b;
    if (red == SN_MIN)
        return a < b ? a : b;
    return a + b;
}

static void *place(world *w, sn_place p)
{
    member *m = &w->m[p.member];
    unsigned char *base = p.buf == SN_BUF_IN    ? m->in
                          : p.buf == SN_BUF_OUT ? m->out
                          : p.buf == SN_BUF_TMP ? m->tmp
                                                : m->note;
    return base + (size_t) p.at * w->el;
}

static void reduce(world *w, const sn_sched *s, const sn_step *st)
{
    for (int64_t i = 0; i < st->count; i++) {
        float acc = get(w, place(w, s->place[st->src]), i);
        for (int k = 1; k < st->srcs; k++)
            acc = combine(w->c.red, acc, get(w, place(w, s->place[st->src + k]), i));
        if (st->divide > 0)
            acc /= (float) st->divide;
        for (int k = 0; k < st->dsts; k++)
            put(w, place(w, s->place[st->dst + k]), i, acc);
    }
}

/* The first message of the pair whose half `sent` or `received` is still missing, or a new one. */
static message *half(world *w, int from, int to, bool send)
{
    for (int i = 0; i < w->msgs; i++) {
        message *m = &w->msg[i];
        if (m->from == from && m->to == to && !(send ? m->sent : m->received))
            return m;
    }
    assert_true(w->msgs < 4096);
    w->msg[w->msgs] = (message){.from = from, .to = to};
    return &w->msg[w->msgs++];
}

static bool transfer(message *m)
{
    if (!m->done && m->sent && m->received) {
        memcpy(m->dst, m->src, m->bytes);
        m->done = true;
        return true;
    }
    return false;
}

static bool fenced(const world *w, int me)
{
    for (int i = 0; i < w->msgs; i++) {
        const message *m = &w->msg[i];
        if (!m->done && ((m->from == me && m->sent) || (m->to == me && m->received)))
            return false;
    }
    return true;
}

static bool waiting(const world *w, int me, const sn_step *st)
{
    for (int i = 0; i < w->g.members; i++) {
        bool named = st->member == SN_ALL ? w->g.host[i] == w->g.host[me] : i == st->member;
        if (named && w->m[i].round < st->round)
            return true;
    }
    return false;
}

static void finish(world *w, member *m)
{
    m->done = true;
    memcpy(m->result, m->out, (size_t) m->out_count * w->el);
    memset(m->in, 0xa5, (size_t) m->in_count * w->el);
    memset(m->out, 0xa5, (size_t) m->out_count * w->el);
}

static bool step(world *w, int me)
{
    member *m = &w->m[me];
    if (m->done)
        return false;
    if (m->at == m->s.steps) {
        if (!fenced(w, me))
            return false;
        finish(w, m);
        return true;
    }
    const sn_step *st = &m->s.step[m->at];
    size_t bytes = (size_t) st->count * w->el;
    message *msg;
    switch (st->kind) {
    case SN_STEP_SIGNAL:
        m->round = st->round;
        break;
    case SN_STEP_WAIT:
        if (waiting(w, me, st))
            return false;
        break;
    case SN_STEP_FENCE:
        if (!fenced(w, me))
            return false;
        break;
    case SN_STEP_COPY:
        memmove(place(w, m->s.place[st->dst]), place(w, m->s.place[st->src]), bytes);
        break;
    case SN_STEP_REDUCE:
        reduce(w, &m->s, st);
        break;
    case SN_STEP_SEND:
        msg = half(w, me, st->member, true);
        msg->sent = true;
        msg->src = place(w, m->s.place[st->src]);
        msg->bytes = bytes;
        break;
    case SN_STEP_RECV:
        msg = half(w, st->member, me, false);
        msg->received = true;
        msg->dst = place(w, m->s.place[st->dst]);
        break;
    }
    m->at++;
    return true;
}

/* A few random moves until everybody is done; false when nobody can move. */
static bool run(world *w)
{
    int left = w->g.members, idle = 0;
    while (left > 0) {
        int i = (int) sn_prng_below(&w->rng, w->g.members);
        bool moved = false;
        if (w->msgs > 0 && sn_prng_below(&w->rng, 3) == 0)
            moved = transfer(&w->msg[sn_prng_below(&w->rng, w->msgs)]);
        else
            moved = step(w, i);
        left = 0;
        for (int k = 0; k < w->g.members; k++)
            left += !w->m[k].done;
        idle = moved ? 0 : idle + 1;
        if (idle > 20000)
            return false;
    }
    return true;
}

static unsigned char *guarded(size_t bytes, unsigned char **ret_mem)
{
    unsigned char *p = malloc(bytes + 2 * CANARY);
    memset(p, 0xc5, bytes + 2 * CANARY);
    *ret_mem = p;
    return p + CANARY;
}

static void check_guard(const unsigned char *mem, size_t bytes)
{
    for (int i = 0; i < CANARY; i++) {
        assert_int_equal(mem[i], 0xc5);
        assert_int_equal(mem[CANARY + bytes + (size_t) i], 0xc5);
    }
}

static void fill(world *w, void *p, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        put(w, p, i, (float) (sn_prng_uniform(&w->rng) * 4 - 2));
}

/* in_place 0: apart, 1: the same memory where sizes agree, else the member's own block. */
static void make_member(world *w, int me, bool in_place)
{
    member *m = &w->m[me];
    sn_coll_op op = w->c.op;
    int64_t n = w->c.count, p = w->g.members;
    bool root = me == w->c.root;
    bool blocks_in = op == SN_REDUCE_SCATTER || op == SN_ALL_TO_ALL || op == SN_SCATTER;
    bool blocks_out = op == SN_ALL_GATHER || op == SN_ALL_TO_ALL || op == SN_GATHER;
    bool no_in = op == SN_BROADCAST || op == SN_BARRIER || (op == SN_SCATTER && !root);
    bool no_out = op == SN_BARRIER || (op == SN_GATHER && !root);
    m->in_count = no_in ? 0 : blocks_in ? n * p : n;
    m->out_count = no_out ? 0 : blocks_out ? n * p : n;
    m->in = guarded((size_t) m->in_count * w->el, &m->in_mem);
    m->out = guarded((size_t) m->out_count * w->el, &m->out_mem);
    m->note = guarded(SN_ALGO_NOTE_BYTES, &m->note_mem);
    if (in_place && m->in_count > 0 && m->out_count > 0) {
        if (op == SN_ALL_GATHER || op == SN_GATHER)
            m->in = m->out + (size_t) (n * me) * w->el;
        else if (op == SN_REDUCE_SCATTER || op == SN_SCATTER)
            m->out = m->in + (size_t) (n * me) * w->el;
        else
            m->out = m->in;
    }
    fill(w, op == SN_BROADCAST ? m->out : m->in, op == SN_BROADCAST ? m->out_count : m->in_count);
    int64_t copied = op == SN_BROADCAST ? m->out_count : m->in_count;
    m->in_copy = malloc((size_t) copied * w->el + 1);
    memcpy(m->in_copy, op == SN_BROADCAST ? m->out : m->in, (size_t) copied * w->el);
    m->result = malloc((size_t) m->out_count * w->el + 1);
}

static void free_member(world *w, member *m)
{
    check_guard(m->in_mem, (size_t) m->in_count * w->el);
    check_guard(m->out_mem, (size_t) m->out_count * w->el);
    check_guard(m->note_mem, SN_ALGO_NOTE_BYTES);
    check_guard(m->tmp_mem, (size_t) m->s.tmp_count * w->el);
    free(m->in_mem);
    free(m->out_mem);
    free(m->note_mem);
    free(m->tmp_mem);
    free(m->in_copy);
    free(m->result);
}

static double expected(const world *w, int me, int64_t i, double *ret_tolerance)
{
    int64_t n = w->c.count;
    *ret_tolerance = 0;
    switch (w->c.op) {
    case SN_BROADCAST:
        return get(w, w->m[w->c.root].in_copy, i);
    case SN_ALL_GATHER:
    case SN_GATHER:
        return get(w, w->m[i / n].in_copy, i % n);
    case SN_SCATTER:
        return get(w, w->m[w->c.root].in_copy, n * me + i);
    case SN_ALL_TO_ALL:
        return get(w, w->m[i / n].in_copy, n * me + i % n);
    default:
        break;
    }
    int64_t at = w->c.op == SN_REDUCE_SCATTER ? n * me + i : i;
    double sum = get(w, w->m[0].in_copy, at), size = fabs(sum);
    for (int k = 1; k < w->g.members; k++) {
        double x = get(w, w->m[k].in_copy, at);
        sum = w->c.red == SN_MAX ? fmax(sum, x) : w->c.red == SN_MIN ? fmin(sum, x) : sum + x;
        size += fabs(x);
    }
    double divide = w->c.red == SN_AVG ? w->g.members : 1;
    bool exact = w->c.red == SN_MAX || w->c.red == SN_MIN;
    /* one rounding a host and one in all */
    *ret_tolerance = exact ? 0 : size / divide * (w->c.dtype == SN_F32 ? 1e-6 : 1.0 / 128);
    return sum / divide;
}

static void verify(world *w)
{
    for (int i = 0; i < w->g.members; i++) {
        const member *m = &w->m[i];
        for (int64_t k = 0; k < m->out_count; k++) {
            double tolerance, want = expected(w, i, k, &tolerance);
            double got = get(w, m->result, k);
            if (fabs(got - want) > tolerance)
                fail_msg("%s %s %s n=%lld p=%d member %d element %lld: %g, not %g", m->s.algorithm,
                         sn_coll_op_name(w->c.op), sn_red_name(w->c.red), (long long) w->c.count,
                         w->g.members, i, (long long) k, got, want);
        }
        if (w->c.op == SN_ALL_REDUCE || w->c.op == SN_BROADCAST)
            assert_memory_equal(m->result, w->m[0].result, (size_t) m->out_count * w->el);
    }
}

static void one(const sn_algo_row *row, const sn_algo_group *g, sn_algo_call c, uint64_t seed)
{
    static message msgs[4096];
    world w = {.g = *g, .c = c, .rng = {.seed = seed}, .el = sn_dtype_bytes(c.dtype), .msg = msgs};
    sn_arena *arena = sn_arena_create();
    sn_sched all[MEMBERS];
    for (int i = 0; i < g->members; i++) {
        bool in_place = sn_prng_below(&w.rng, 2) == 1;
        make_member(&w, i, in_place);
        c.in_place = in_place;
        assert_ok(row->schedule(g, &c, i, arena, &all[i]));
        w.m[i].s = all[i];
        w.m[i].tmp = guarded((size_t) all[i].tmp_count * w.el, &w.m[i].tmp_mem);
    }
    sn_sched_check(g, &c, all);
    if (!run(&w))
        fail_msg("%s %s n=%lld p=%d: nobody can move", row->name, sn_coll_op_name(c.op),
                 (long long) c.count, g->members);
    verify(&w);
    for (int i = 0; i < g->members; i++)
        free_member(&w, &w.m[i]);
    sn_arena_free(arena);
}

/* Every algorithm and operation that fits. */
static void all_of(const sn_algo_group *g, int64_t count, sn_dtype dtype, uint64_t seed)
{
    const sn_algo_row *const *rows;
    int n = sn_algo_rows(&rows);
    for (int r = 0; r < n; r++) {
        for (sn_coll_op op = 0; op < SN_COLL_OPS; op++) {
            sn_algo_call c = {.op = op,
                              .red = (sn_red) (sn_hash64(seed, 1, op) % SN_REDS),
                              .dtype = dtype,
                              .count = op == SN_BARRIER ? 0 : count,
                              .root = (int) (sn_hash64(seed, 2, op) % (uint64_t) g->members)};
            if (rows[r]->ops >> op & 1 && rows[r]->fits(g, &c))
                one(rows[r], g, c, sn_hash64(seed, (uint64_t) r, op));
        }
    }
}

/* Every map of up to 5 members onto 3 hosts, a few small sizes. */
static void test_every_map(void **state)
{
    static const int64_t sizes[] = {0, 1, 3, 65, 700};
    uint64_t seed = 1;
    for (int p = 1; p <= 5; p++) {
        int maps = 1;
        for (int i = 0; i < p; i++)
            maps *= 3;
        for (int map = 0; map < maps; map++) {
            int host[MEMBERS], rest = map;
            for (int i = 0; i < p; i++, rest /= 3)
                host[i] = rest % 3;
            sn_algo_group g = {.members = p, .host = host};
            all_of(&g, sizes[seed % SN_COUNT(sizes)], seed % 3 == 0 ? SN_BF16 : SN_F32, seed);
            seed++;
        }
    }
}

/* Sizes 0 … 64 KiB, one around each power of two, on maps of 1 … 8 members. */
static void test_every_size(void **state)
{
    static const int maps[][MEMBERS] = {
        {0, 0, 0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 1, 1, 1, 1}, {0, 1, 0, 1, 0, 1, 0, 1},
        {2, 0, 0, 1, 0, 2, 1, 0}, {0, 1, 2, 0, 0, 0, 0, 0}, {5, 4, 4, 4, 4, 4, 4, 4},
    };
    uint64_t seed = 100;
    for (int64_t two = 1; two <= 65536; two *= 2) {
        for (int d = -1; d <= 1; d++) {
            for (int p = 1; p <= MEMBERS; p++) {
                sn_dtype dtype = seed % 2 == 0 ? SN_BF16 : SN_F32;
                int64_t n = two / (int64_t) sn_dtype_bytes(dtype) + d;
                if (n < 0)
                    continue;
                sn_algo_group g = {.members = p,
                                   .host = maps[sn_hash64(seed, 4, 0) % SN_COUNT(maps)]};
                all_of(&g, n, dtype, seed);
                seed++;
            }
        }
    }
}

/* Up to eight hosts: what is done differently for powers of two and others; segments as many as a
 * wire without latency makes worth while. */
static void test_many_hosts(void **state)
{
    static const int apart[MEMBERS] = {0, 1, 2, 3, 4, 5, 6, 7};
    static const int uneven[MEMBERS] = {3, 0, 1, 2, 3, 4, 0, 5};
    sn_algo_model quick = sn_algo_model_from(NULL, NULL, 0);
    quick.net_latency_ns = quick.net_message_ns = 10;
    uint64_t seed = 5000;
    for (int p = 2; p <= MEMBERS; p++) {
        for (int64_t n = 1; n <= 32768; n = n * 3 + 1) {
            sn_algo_group g = {.members = p, .host = seed % 3 == 0 ? uneven : apart};
            g.model = seed % 2 == 0 ? &quick : NULL;
            all_of(&g, n, SN_F32, seed++);
        }
    }
}

/* Meshes of every shape on hosts in rows, in columns, one, and apart; and shapes that are none. */
static void test_meshes(void **state)
{
    static const int hosts[][MEMBERS] = {{0, 1, 2, 3, 4, 5, 6, 7},
                                         {0, 0, 0, 0, 1, 1, 1, 1},
                                         {0, 1, 0, 1, 0, 1, 0, 1},
                                         {0, 0, 0, 0, 0, 0, 0, 0},
                                         {2, 0, 0, 1, 0, 2, 1, 0}};
    static const struct {
        int members, dims, dim[3];
        bool fits;
    } shapes[] = {{4, 2, {2, 2}, true},    {6, 2, {2, 3}, true},    {6, 2, {3, 2}, true},
                  {8, 2, {4, 2}, true},    {8, 2, {2, 4}, true},    {8, 3, {2, 2, 2}, true},
                  {6, 3, {3, 1, 2}, true}, {8, 3, {1, 4, 2}, true}, {8, 2, {2, 3}, false},
                  {8, 1, {8}, false},      {8, 2, {-2, -4}, false}, {6, 2, {6, 1}, false},
                  {8, 3, {2, 4, 1}, true}, {4, 0, {0}, false}};
    sn_algo_call c = {.op = SN_ALL_REDUCE, .dtype = SN_F32, .count = 1};
    sn_algo_model m = sn_algo_model_from(NULL, NULL, 0);
    const sn_algo_row *row;
    uint64_t seed = 9000;
    for (size_t s = 0; s < SN_COUNT(shapes); s++) {
        for (size_t h = 0; h < SN_COUNT(hosts); h++) {
            sn_algo_group g = {.members = shapes[s].members, .host = hosts[h]};
            g.dim = shapes[s].dim;
            g.dims = shapes[s].dims;
            sn_status status = sn_algo_choose(&g, &c, &m, "torus", &row, NULL);
            assert_int_equal(status, shapes[s].fits ? SN_OK : SN_ENOTSUP);
            for (int64_t n = 1; n <= 3000 && shapes[s].fits; n = n * 7 + 3)
                all_of(&g, n, SN_F32, seed++);
        }
    }
}

/* coll asks with an all_reduce of one number whether to stage: that must not itself need staging,
 * on whatever network; and the choice is the same at every count's chunk. */
static void test_small_is_unshared(void **state)
{
    static const double latency[] = {0, 300, 8000, 1e6}, further[] = {0, 1500, 50000};
    sn_algo_call c = {.op = SN_ALL_REDUCE, .red = SN_MAX, .dtype = SN_F32, .count = 1};
    sn_arena *arena = sn_arena_create();
    for (int k = 0; k < 600; k++) {
        int host[40], p = 1 + (int) (sn_hash64(3, (uint64_t) k, 0) % 40);
        int hosts = 1 + (int) (sn_hash64(4, (uint64_t) k, 0) % (uint64_t) p);
        for (int i = 0; i < p; i++)
            host[i] = k % 2 ? i % hosts : (int) (sn_hash64(5, (uint64_t) k, (uint64_t) i) % 7);
        sn_algo_group g = {.members = p, .host = host};
        sn_algo_model m = sn_algo_model_from(NULL, NULL, 0);
        m.net_latency_ns = latency[k % 4];
        m.net_message_ns = further[k % 3];
        const sn_algo_row *row;
        sn_sched s;
        assert_ok(sn_algo_choose(&g, &c, &m, NULL, &row, NULL));
        assert_ok(row->schedule(&g, &c, 0, arena, &s));
        bool alone = true;
        for (int i = 0; i < p; i++)
            for (int j = 0; j < i; j++)
                alone = alone && host[i] != host[j];
        assert_true(alone || !s.shared);
        sn_arena_reset(arena);
    }
    sn_arena_free(arena);
}

/* No member has more sends and receives under way than coll keeps room for: 4 · members + 8. */
static void test_under_way(void **state)
{
    const sn_algo_row *const *rows;
    int n = sn_algo_rows(&rows);
    for (int r = 0; r < n; r++) {
        for (int k = 0; k < 40 * SN_COLL_OPS; k++) {
            int host[12], p = 2 + k % 11;
            for (int i = 0; i < p; i++)
                host[i] = (int) (sn_hash64(6, (uint64_t) k, (uint64_t) i) % (1 + (uint64_t) k % 9));
            sn_algo_group g = {.members = p, .host = host};
            sn_algo_call c = {.op = (sn_coll_op) (k / 40), .dtype = SN_F32, .count = 5000};
            if ((rows[r]->ops >> c.op & 1) == 0 || !rows[r]->fits(&g, &c))
                continue;
            sn_arena *arena = sn_arena_create();
            sn_sched s;
            int now = 0;
            assert_ok(rows[r]->schedule(&g, &c, k % p, arena, &s));
            for (int i = 0; i < s.steps; i++) {
                now += s.step[i].kind == SN_STEP_SEND || s.step[i].kind == SN_STEP_RECV;
                now = s.step[i].kind == SN_STEP_FENCE ? 0 : now;
                assert_true(now <= 4 * p + 8);
            }
            sn_arena_free(arena);
        }
    }
}

/* Where the new ones win: many hosts. Few hosts go straight. */
static void test_winners(void **state)
{
    int host[128];
    for (int i = 0; i < 128; i++)
        host[i] = i;
    sn_algo_group g = {.members = 128, .host = host};
    sn_algo_model m = sn_algo_model_from(NULL, NULL, 0);
    const struct {
        sn_coll_op op;
        int64_t count;
        const char *name;
    } want[] = {{SN_ALL_REDUCE, 2, "recursive_doubling"},
                {SN_ALL_REDUCE, 1 << 16, "rabenseifner"},
                {SN_ALL_GATHER, 2, "recursive_doubling"},
                {SN_BROADCAST, 2, "binomial"},
                {SN_BROADCAST, 1 << 22, "double_tree"}};
    for (size_t i = 0; i < SN_COUNT(want); i++) {
        sn_algo_call c = {.op = want[i].op, .dtype = SN_F32, .count = want[i].count};
        const sn_algo_row *row;
        assert_ok(sn_algo_choose(&g, &c, &m, NULL, &row, NULL));
        assert_string_equal(row->name, want[i].name);
    }
}

static void test_choice(void **state)
{
    static const int here[] = {3, 3, 3, 3}, pairs[] = {0, 0, 1, 1};
    sn_algo_group one_host = {4, here}, two_hosts = {4, pairs};
    sn_algo_model m = sn_algo_model_from(NULL, NULL, 0);
    const sn_algo_row *row, *again;
    double ns, ns_again, before = 0;
    for (sn_coll_op op = 0; op < SN_COLL_OPS; op++) {
        before = 0;
        for (int64_t n = 1; n <= 1 << 26; n *= 4) {
            sn_algo_call c = {.op = op, .dtype = SN_F32, .count = n};
            assert_ok(sn_algo_choose(&one_host, &c, &m, NULL, &row, &ns));
            assert_true(ns > 0);
            assert_ok(sn_algo_choose(&two_hosts, &c, &m, NULL, &row, &ns));
            c.in_place = true; /* what differs between members must not change the choice */
            assert_ok(sn_algo_choose(&two_hosts, &c, &m, NULL, &again, &ns_again));
            assert_ptr_equal(row, again);
            assert_true(ns == ns_again && ns >= before);
            before = ns;
        }
    }
    sn_algo_call c = {.op = SN_ALL_REDUCE, .dtype = SN_F32, .count = 1 << 20};
    assert_ok(sn_algo_choose(&one_host, &c, &m, NULL, &row, &ns));
    assert_string_equal(row->name, "flat");
    assert_ok(sn_algo_choose(&two_hosts, &c, &m, NULL, &row, &ns));
    assert_string_equal(row->name, "hierarchical");
    assert_ok(sn_algo_choose(&two_hosts, &c, &m, "ring", &row, NULL));
    assert_string_equal(row->name, "ring");
    assert_int_equal(sn_algo_choose(&two_hosts, &c, &m, "flat", &row, NULL), SN_ENOTSUP);
    assert_non_null(strstr(sn_errmsg(), "hierarchical, ring"));
    c.dtype = SN_BF16; /* a ring would round at every hop */
    assert_int_equal(sn_algo_choose(&two_hosts, &c, &m, "ring", &row, NULL), SN_ENOTSUP);
}

/* Four cards on two cores of two emulated hosts: two members a core; the slow link is the wire. */
static void test_model(void **state)
{
    sn_topo *base = sn_topo_create("base"), *topo;
    int h = sn_topo_add_host(base, "h", 2, UINT64_C(1) << 33);
    sn_topo_card like = {.name = "c0",
                         .kind = "cpu",
                         .share = 1,
                         .flops_f32 = 1e11,
                         .flops_bf16 = 1e11,
                         .memory_bytes = 1 << 30,
                         .memory_bytes_per_s = 1e10};
    for (like.core = 0; like.core < 2; like.core++) {
        int c = sn_topo_add_card(base, h, &like);
        sn_topo_add_link(base, base->card[c].vertex, base->host[h].vertex, 200, 1e10, "shm", true);
    }
    assert_ok(sn_topo_emulate(base, 2, 2, 30000, 1.25e8, &topo));
    int cards[4] = {0, 1, 2, 3};
    sn_algo_model m = sn_algo_model_from(topo, cards, 4);
    assert_true(m.net_bytes_per_s == 1.25e8 && m.net_latency_ns >= 30000);
    assert_true(m.signal_ns > 0 && m.signal_ns < m.net_latency_ns && m.copy_bytes_per_s > 0);
    assert_true(m.members_per_core == 2);
    sn_algo_model outside = sn_algo_model_from(topo, (int[]){0, 9}, 2); /* not a card: defaults */
    assert_true(outside.net_bytes_per_s > 0 && outside.members_per_core == 1);
    sn_topo_free(topo);
    sn_topo_free(base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_map),
        cmocka_unit_test(test_every_size),
        cmocka_unit_test(test_many_hosts),
        cmocka_unit_test(test_meshes),
        cmocka_unit_test(test_small_is_unshared),
        cmocka_unit_test(test_under_way),
        cmocka_unit_test(test_winners),
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_model),
    };
    return sn_test_run(tests);
}
