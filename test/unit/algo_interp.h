/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the schedules of all members on plain arrays: members advance in random order, messages are
 * copied at a random moment between their posting and the fence, and buffers are overwritten as
 * soon as their owner finishes. Then every result is compared with the sum in double. */
#ifndef SN_TEST_ALGO_INTERP_H
#define SN_TEST_ALGO_INTERP_H

#include "algo/algo.h"
#include "unit/sn_test.h"

#include <math.h>
#include <stdio.h>

#define CANARY 16

typedef struct message {
    int from, to, next; /* next of the same pair, -1 none */
    bool sent, received, done;
    void *src, *dst;
    size_t bytes, room;
} message;

typedef struct pair {
    int send, recv, last; /* the messages that the next send and receive belong to; -1: a new one */
} pair;

typedef struct member {
    sn_sched s;
    int at, round, under_way;
    unsigned char *buf[5];
    unsigned char *mem[4]; /* behind CANARY bytes each; WIDE and the others apart */
    size_t bytes[5];
    unsigned char *wide_mem;
    double *want_in; /* what IN (broadcast: OUT) was */
    unsigned char *result;
    int64_t in_count, out_count;
    bool done;
} member;

typedef enum kind { VALUES_UNIFORM, VALUES_SMALL_TERMS, VALUES_LARGE, VALUES_WHOLE } kind;

typedef struct world {
    sn_algo_group g;
    sn_algo_call c;
    member *m;
    pair *pair;
    message *msg;
    int msgs, msg_cap, *live, lives; /* live: posted on both sides and not copied */
    sn_prng rng;
    size_t el;
    kind values;
} world;

/* ---- numbers ---- */

static float half_to_float(uint16_t h)
{
    union {
        uint32_t u;
        float f;
    } v = {.u = ((uint32_t) (h & 0x7fff) << 13) + (112u << 23)};
    int e = h >> 10 & 31;
    if (e == 31)
        v.f = (h & 0x3ff) != 0 ? NAN : INFINITY;
    if (e == 0)
        v.f = (float) (h & 0x3ff) * 0x1p-24f;
    return h >> 15 ? -v.f : v.f;
}

/* To nearest, ties to even: below 2^-14 by the addition of 1/2, whose neighbours are 2^-24 away. */
static uint16_t float_to_half(float f)
{
    union {
        float f;
        uint32_t u;
    } v = {.f = fabsf(f)};
    uint16_t sign = signbit(f) ? 0x8000 : 0;
    if (isnan(f))
        return 0x7e00;
    if (v.f >= 65520)
        return sign | 0x7c00;
    if (v.f < 0x1p-14f) {
        v.f += 0.5f;
        return sign | (uint16_t) (v.u - 0x3f000000);
    }
    return sign | (uint16_t) (((v.u + 0xfff + (v.u >> 13 & 1)) >> 13) - (112 << 10));
}

static float load(sn_dtype dtype, const void *p, int64_t i)
{
    if (dtype == SN_F32)
        return ((const float *) p)[i];
    uint16_t h = ((const uint16_t *) p)[i];
    return dtype == SN_BF16 ? sn_bf16_to_f32(h) : half_to_float(h);
}

static void store(sn_dtype dtype, void *p, int64_t i, float f)
{
    if (dtype == SN_F32)
        ((float *) p)[i] = f;
    else
        ((uint16_t *) p)[i] = dtype == SN_BF16 ? sn_f32_to_bf16(f) : float_to_half(f);
}

/* The distance of neighbours of the type around x. */
static double ulp(sn_dtype dtype, double x)
{
    int bits = dtype == SN_F32 ? 24 : dtype == SN_BF16 ? 8 : 11;
    int least = dtype == SN_F16 ? -24 : dtype == SN_F32 ? -149 : -133;
    int e;
    if (x == 0)
        return ldexp(1, least);
    frexp(x, &e);
    return ldexp(1, SN_MAX(e - bits, least));
}

static float combine(sn_red red, float a, float b)
{
    if (red == SN_MAX)
        return a > b ? a : b;
    if (red == SN_MIN)
        return a < b ? a : b;
    return a + b;
}

/* ---- steps ---- */

static size_t element(const world *w, sn_place p)
{
    return p.buf == SN_BUF_WIDE ? 4 : w->el;
}

static void *place(const world *w, sn_place p)
{
    return w->m[p.member].buf[p.buf] + (size_t) p.at * element(w, p);
}

static void reduce(const world *w, const sn_sched *s, const sn_step *st)
{
    float *acc = calloc((size_t) st->count, sizeof(float));
    for (int k = 0; k < st->srcs; k++) {
        sn_place p = s->place[st->src + k];
        sn_dtype dtype = p.buf == SN_BUF_WIDE ? SN_F32 : w->c.dtype;
        const void *src = place(w, p);
        for (int64_t i = 0; i < st->count; i++) {
            float f = load(dtype, src, i);
            acc[i] = k == 0 ? f : combine(w->c.red, acc[i], f);
        }
    }
    for (int64_t i = 0; i < st->count && st->divide > 0; i++)
        acc[i] /= (float) st->divide;
    for (int k = 0; k < st->dsts; k++) {
        sn_place p = s->place[st->dst + k];
        sn_dtype dtype = p.buf == SN_BUF_WIDE ? SN_F32 : w->c.dtype;
        for (int64_t i = 0; i < st->count; i++)
            store(dtype, place(w, p), i, acc[i]);
    }
    free(acc);
}

/* The message that the next send, or receive, of a pair belongs to. */
static message *half(world *w, int from, int to, bool send)
{
    pair *p = &w->pair[from * w->g.members + to];
    int *at = send ? &p->send : &p->recv;
    if (*at < 0) {
        if (w->msgs == w->msg_cap) {
            w->msg_cap = w->msg_cap * 2 + 64;
            w->msg = realloc(w->msg, (size_t) w->msg_cap * sizeof(message));
            w->live = realloc(w->live, (size_t) w->msg_cap * sizeof(int));
        }
        w->msg[w->msgs] = (message){.from = from, .to = to, .next = -1};
        if (p->last >= 0)
            w->msg[p->last].next = w->msgs;
        if (p->send < 0)
            p->send = w->msgs;
        if (p->recv < 0)
            p->recv = w->msgs;
        p->last = w->msgs++;
    }
    message *m = &w->msg[*at];
    *at = m->next;
    return m;
}

static void post(world *w, int me, const sn_step *st, const sn_sched *s)
{
    bool send = st->kind == SN_STEP_SEND;
    message *m = send ? half(w, me, st->member, true) : half(w, st->member, me, false);
    sn_place p = s->place[send ? st->src : st->dst];
    size_t bytes = (size_t) st->count * element(w, p);
    if (send) {
        m->sent = true;
        m->src = place(w, p);
        m->bytes = bytes;
    } else {
        m->received = true;
        m->dst = place(w, p);
        m->room = bytes;
    }
    w->m[me].under_way++;
    if (m->sent && m->received) {
        if (m->bytes != m->room)
            fail_msg("%s: %zu bytes sent to %zu", s->algorithm, m->bytes, m->room);
        w->live[w->lives++] = (int) (m - w->msg);
    }
}

static void transfer(world *w, int k)
{
    message *m = &w->msg[w->live[k]];
    memcpy(m->dst, m->src, m->bytes);
    w->m[m->from].under_way--;
    w->m[m->to].under_way--;
    w->live[k] = w->live[--w->lives];
}

static bool waiting(const world *w, int me, const sn_step *st)
{
    if (st->member != SN_ALL)
        return w->m[st->member].round < st->round;
    for (int i = 0; i < w->g.members; i++)
        if (w->g.host[i] == w->g.host[me] && w->m[i].round < st->round)
            return true;
    return false;
}

static void finish(member *m)
{
    m->done = true;
    memcpy(m->result, m->buf[SN_BUF_OUT], m->bytes[SN_BUF_OUT]);
    memset(m->buf[SN_BUF_IN], 0xa5, m->bytes[SN_BUF_IN]);
    memset(m->buf[SN_BUF_OUT], 0xa5, m->bytes[SN_BUF_OUT]);
}

static bool step(world *w, int me)
{
    member *m = &w->m[me];
    if (m->done || (m->at == m->s.steps && m->under_way > 0))
        return false;
    if (m->at == m->s.steps) {
        finish(m);
        return true;
    }
    const sn_step *st = &m->s.step[m->at];
    const sn_place *at = m->s.place;
    switch (st->kind) {
    case SN_STEP_SIGNAL:
        m->round = st->round;
        break;
    case SN_STEP_WAIT:
        if (waiting(w, me, st))
            return false;
        break;
    case SN_STEP_FENCE:
        if (m->under_way > 0)
            return false;
        break;
    case SN_STEP_COPY:
        memmove(place(w, at[st->dst]), place(w, at[st->src]), (size_t) st->count * w->el);
        break;
    case SN_STEP_REDUCE:
        reduce(w, &m->s, st);
        break;
    case SN_STEP_SEND:
    case SN_STEP_RECV:
        post(w, me, st, &m->s);
        break;
    }
    m->at++;
    return true;
}

/* A few random moves until everybody is done; false when nobody can move. */
static bool run(world *w)
{
    int p = w->g.members, left = p, idle = 0;
    while (left > 0) {
        bool moved = false;
        if (w->lives > 0 && sn_prng_below(&w->rng, 3) == 0) {
            transfer(w, (int) sn_prng_below(&w->rng, w->lives));
            moved = true;
        } else {
            int i = (int) sn_prng_below(&w->rng, p), some = 1 + (int) sn_prng_below(&w->rng, 6);
            bool was = w->m[i].done;
            while (some-- > 0 && step(w, i))
                moved = true;
            left -= w->m[i].done && !was;
        }
        idle = moved ? 0 : idle + 1;
        if (idle < 8 * p + 16)
            continue;
        for (int i = 0; i < p && !moved; i++) { /* is it bad luck? */
            bool was = w->m[i].done;
            moved = step(w, i);
            left -= w->m[i].done && !was;
        }
        if (!moved && w->lives == 0)
            return false;
        idle = 0;
    }
    return true;
}

/* ---- buffers ---- */

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

static float draw(world *w, int me, int64_t i)
{
    double x = sn_prng_uniform(&w->rng) * 4 - 2;
    switch (w->values) {
    case VALUES_SMALL_TERMS: /* one and many small ones, which one rounding each would lose */
        return me == 0 ? 1 : 0x1p-9f;
    case VALUES_LARGE: /* what cancels, near the limit of f16; the limit of bf16 is f32's */
        x = w->c.dtype == SN_F16 ? 65504 : 0x1p110;
        return (float) ((me + i) % 2 ? -x : x) * (me == 0 && i % 3 == 0 ? 0.5f : 1);
    case VALUES_WHOLE:
        return (float) (int) (x * 4);
    case VALUES_UNIFORM:
        break;
    }
    return (float) x;
}

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
    m->bytes[SN_BUF_IN] = (size_t) m->in_count * w->el;
    m->bytes[SN_BUF_OUT] = (size_t) m->out_count * w->el;
    m->bytes[SN_BUF_NOTE] = SN_ALGO_NOTE_BYTES;
    m->buf[SN_BUF_IN] = guarded(m->bytes[SN_BUF_IN], &m->mem[0]);
    m->buf[SN_BUF_OUT] = guarded(m->bytes[SN_BUF_OUT], &m->mem[1]);
    m->buf[SN_BUF_NOTE] = guarded(SN_ALGO_NOTE_BYTES, &m->mem[2]);
    size_t mine = (size_t) (n * me) * w->el;
    if (in_place && m->in_count > 0 && m->out_count > 0) {
        if (op == SN_ALL_GATHER || op == SN_GATHER)
            m->buf[SN_BUF_IN] = m->buf[SN_BUF_OUT] + mine;
        else if (op == SN_REDUCE_SCATTER || op == SN_SCATTER)
            m->buf[SN_BUF_OUT] = m->buf[SN_BUF_IN] + mine;
        else
            m->buf[SN_BUF_OUT] = m->buf[SN_BUF_IN];
    }
    sn_buf given = op == SN_BROADCAST ? SN_BUF_OUT : SN_BUF_IN;
    int64_t count = op == SN_BROADCAST ? m->out_count : m->in_count;
    m->want_in = malloc((size_t) count * sizeof(double) + 1);
    for (int64_t i = 0; i < count; i++) {
        store(w->c.dtype, m->buf[given], i, draw(w, me, i));
        m->want_in[i] = load(w->c.dtype, m->buf[given], i);
    }
    m->result = malloc(m->bytes[SN_BUF_OUT] + 1);
}

static void make_scratch(world *w, member *m, const sn_sched *s)
{
    m->s = *s;
    m->bytes[SN_BUF_TMP] = (size_t) s->tmp_count * w->el;
    m->bytes[SN_BUF_WIDE] = (size_t) s->wide_count * 4;
    m->buf[SN_BUF_TMP] = guarded(m->bytes[SN_BUF_TMP], &m->mem[3]);
    m->buf[SN_BUF_WIDE] = guarded(m->bytes[SN_BUF_WIDE], &m->wide_mem);
}

static void free_member(member *m)
{
    static const sn_buf of[4] = {SN_BUF_IN, SN_BUF_OUT, SN_BUF_NOTE, SN_BUF_TMP};
    for (int k = 0; k < 4; k++) {
        check_guard(m->mem[k], m->bytes[of[k]]);
        free(m->mem[k]);
    }
    check_guard(m->wide_mem, m->bytes[SN_BUF_WIDE]);
    free(m->wide_mem);
    free(m->want_in);
    free(m->result);
}

/* ---- what is right ---- */

static void wrong(const world *w, int me, int64_t at, double got, double want, double tolerance)
{
    fail_msg("%s %s %s %s n=%lld p=%d member %d element %lld: %g, not %g ± %g",
             w->m[me].s.algorithm, sn_coll_op_name(w->c.op), sn_dtype_name(w->c.dtype),
             sn_red_name(w->c.red), (long long) w->c.count, w->g.members, me, (long long) at, got,
             want, tolerance);
}

/* `n` elements of a result from `at` on are those of another's input. */
static void verify_copy(const world *w, int me, int64_t at, const double *want, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double got = load(w->c.dtype, w->m[me].result, at + i);
        if (got != want[i])
            wrong(w, me, at + i, got, want[i], 0);
    }
}

/* A result is the sum of everybody's input from `from` on. */
static void verify_sum(const world *w, int me, int64_t from)
{
    int64_t n = w->c.count;
    double *sum = calloc((size_t) (2 * n + 1), sizeof(double)), *size = sum + n;
    bool exact = w->c.red == SN_MAX || w->c.red == SN_MIN;
    double divide = w->c.red == SN_AVG ? w->g.members : 1;
    for (int k = 0; k < w->g.members; k++) {
        const double *x = w->m[k].want_in + from;
        for (int64_t i = 0; i < n; i++) {
            sum[i] = k == 0               ? x[i]
                     : w->c.red == SN_MAX ? fmax(sum[i], x[i])
                     : w->c.red == SN_MIN ? fmin(sum[i], x[i])
                                          : sum[i] + x[i];
            size[i] += fabs(x[i]);
        }
    }
    for (int64_t i = 0; i < n; i++) {
        double want = sum[i] / divide, got = load(w->c.dtype, w->m[me].result, i);
        /* one rounding to the type, and what additions in f32 lose */
        double tolerance = ulp(w->c.dtype, want) + size[i] / divide * w->g.members * 0x1p-24;
        if (!(fabs(got - want) <= (exact ? 0 : tolerance)))
            wrong(w, me, i, got, want, exact ? 0 : tolerance);
    }
    free(sum);
}

static void verify_member(const world *w, int me)
{
    int64_t n = w->c.count;
    int p = w->g.members, root = w->c.root;
    switch (w->c.op) {
    case SN_ALL_REDUCE:
        verify_sum(w, me, 0);
        break;
    case SN_REDUCE_SCATTER:
        verify_sum(w, me, n * me);
        break;
    case SN_BROADCAST:
        verify_copy(w, me, 0, w->m[root].want_in, n);
        break;
    case SN_SCATTER:
        verify_copy(w, me, 0, w->m[root].want_in + n * me, n);
        break;
    case SN_ALL_GATHER:
    case SN_GATHER:
    case SN_ALL_TO_ALL:
        for (int i = 0; i < p && w->m[me].out_count > 0; i++)
            verify_copy(w, me, n * i, w->m[i].want_in + (w->c.op == SN_ALL_TO_ALL ? n * me : 0), n);
        break;
    case SN_BARRIER:
    case SN_COLL_OPS:
        break;
    }
}

static void verify(const world *w)
{
    for (int i = 0; i < w->g.members; i++) {
        const member *m = &w->m[i];
        if (i == 0 || w->c.op != SN_ALL_REDUCE)
            verify_member(w, i);
        else
            assert_memory_equal(m->result, w->m[0].result, m->bytes[SN_BUF_OUT]);
    }
}

/* One call by one algorithm. ret_bits: a hash of all results; may be NULL. */
static void one(const sn_algo_row *row, const sn_algo_group *g, sn_algo_call c, kind values,
                uint64_t seed, uint64_t *ret_bits)
{
    int p = g->members;
    world w = {.g = *g, .c = c, .rng = {.seed = seed}, .el = sn_dtype_bytes(c.dtype)};
    sn_arena *arena = sn_arena_create();
    sn_sched *all = SN_NEW_N(arena, sn_sched, p);
    uint64_t bits = 0;
    w.values = values;
    w.m = SN_NEW_N(arena, member, p);
    w.pair = SN_NEW_N(arena, pair, p * p);
    for (int i = 0; i < p * p; i++)
        w.pair[i] = (pair){-1, -1, -1};
    for (int i = 0; i < p; i++) {
        bool in_place = sn_hash64(seed, 77, (uint64_t) i) % 2 == 1;
        make_member(&w, i, in_place);
        c.in_place = in_place;
        assert_ok(row->schedule(g, &c, i, arena, &all[i]));
        make_scratch(&w, &w.m[i], &all[i]);
    }
    sn_sched_check(g, &c, all);
    if (!run(&w))
        fail_msg("%s %s n=%lld p=%d: nobody can move", row->name, sn_coll_op_name(c.op),
                 (long long) c.count, p);
    verify(&w);
    for (int i = 0; i < p; i++) {
        if (ret_bits != NULL)
            bits = sn_hash64(bits, sn_hash_bytes(w.m[i].result, w.m[i].bytes[SN_BUF_OUT]), 0);
        free_member(&w.m[i]);
    }
    if (ret_bits != NULL)
        *ret_bits = bits;
    free(w.msg);
    free(w.live);
    sn_arena_free(arena);
}

/* Every algorithm and operation that fits. */
__attribute__((unused)) static void all_of(const sn_algo_group *g, int64_t count, sn_dtype dtype,
                                           uint64_t seed)
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
            if (sn_algo_fits(rows[r], g, &c))
                one(rows[r], g, c, VALUES_UNIFORM, sn_hash64(seed, (uint64_t) r, op), NULL);
        }
    }
}

#endif
