/* SPDX-License-Identifier: Apache-2.0
 *
 * Schedules in virtual time: members compute at a stated speed, the wire of a host carries one
 * message after the other in each direction. Is the wire kept busy, and are long vectors as much
 * faster than around rings as the bytes say? */
#include "algo/algo.h"
#include "unit/sn_test.h"

#include <stdlib.h>

#define MEMBERS 16
#define ROUNDS 600

typedef struct half {
    double at;
    int64_t bytes;
} half;

typedef struct queue { /* of sends, or receives, between two members that the other end lacks */
    half *wait;
    int first, n, cap;
} queue;

typedef struct clockwork {
    const sn_algo_group *g;
    const sn_algo_model *m;
    size_t el;
    sn_sched s[MEMBERS];
    int at[MEMBERS], round[MEMBERS], open[MEMBERS]; /* open: posted, the other end not */
    double now[MEMBERS], come[MEMBERS];             /* come: when all that was posted is through */
    double signalled[MEMBERS][ROUNDS];
    double out_free[MEMBERS], in_free[MEMBERS]; /* by host */
    queue send[MEMBERS][MEMBERS], recv[MEMBERS][MEMBERS];
} clockwork;

static void push(queue *q, half h)
{
    if (q->n == q->cap) {
        q->cap = q->cap * 2 + 16;
        q->wait = realloc(q->wait, (size_t) q->cap * sizeof(half));
    }
    q->wait[q->n++] = h;
}

/* Both ends are there: out of one host and into the other, when their wires are free; in between
 * there is a switch with buffers. */
static void cross(clockwork *c, int from, int to, double at, int64_t bytes)
{
    int a = c->g->host[from], b = c->g->host[to];
    double takes = (double) bytes / c->m->net_bytes_per_s * 1e9;
    double begin = SN_MAX(at, c->out_free[a]);
    c->out_free[a] = begin + takes;
    c->in_free[b] = SN_MAX(begin, c->in_free[b]) + takes;
    c->come[from] = SN_MAX(c->come[from], c->out_free[a]);
    c->come[to] = SN_MAX(c->come[to], c->in_free[b] + c->m->net_latency_ns);
}

static void post(clockwork *c, int me, const sn_step *st, int64_t bytes)
{
    bool send = st->kind == SN_STEP_SEND;
    int from = send ? me : st->member, to = send ? st->member : me;
    queue *mine = send ? &c->send[from][to] : &c->recv[from][to];
    queue *other = send ? &c->recv[from][to] : &c->send[from][to];
    if (other->first == other->n) {
        push(mine, (half){c->now[me], bytes});
        c->open[me]++;
        return;
    }
    half h = other->wait[other->first++];
    assert_int_equal(h.bytes, bytes);
    c->open[send ? to : from]--;
    cross(c, from, to, SN_MAX(h.at, c->now[me]), bytes);
}

static bool wait(clockwork *c, int me, const sn_step *st)
{
    double latest = c->now[me];
    for (int i = 0; i < c->g->members; i++) {
        if (st->member == SN_ALL ? c->g->host[i] != c->g->host[me] : i != st->member)
            continue;
        if (c->round[i] < st->round)
            return false;
        latest = SN_MAX(latest, c->signalled[i][st->round]);
    }
    c->now[me] = latest + c->m->signal_ns;
    return true;
}

static bool step(clockwork *c, int me)
{
    const sn_sched *s = &c->s[me];
    const sn_step *st = &s->step[c->at[me]];
    const sn_place *p = s->place;
    bool end = c->at[me] == s->steps;
    if (end || st->kind == SN_STEP_FENCE) {
        if (c->open[me] > 0)
            return false;
        c->now[me] = SN_MAX(c->now[me], c->come[me]);
        c->at[me]++;
        return true;
    }
    int64_t n = st->count;
    bool wide = (st->srcs > 0 && p[st->src].buf == SN_BUF_WIDE) ||
                (st->dsts > 0 && p[st->dst].buf == SN_BUF_WIDE);
    double share = c->m->members_per_core;
    switch (st->kind) {
    case SN_STEP_SIGNAL:
        assert_true(st->round < ROUNDS);
        c->signalled[me][st->round] = c->now[me];
        c->round[me] = st->round;
        break;
    case SN_STEP_WAIT:
        if (!wait(c, me, st))
            return false;
        break;
    case SN_STEP_COPY:
        c->now[me] += share * (double) n * (double) c->el / c->m->copy_bytes_per_s * 1e9;
        break;
    case SN_STEP_REDUCE:
        c->now[me] += share * (double) (n * (st->srcs + st->dsts)) * (double) c->el /
                      c->m->reduce_bytes_per_s * 1e9;
        break;
    case SN_STEP_SEND:
    case SN_STEP_RECV:
        post(c, me, st, n * (wide ? 4 : (int64_t) c->el));
        break;
    case SN_STEP_FENCE:
        break;
    }
    c->at[me]++;
    return true;
}

static bool earlier(const clockwork *c, int a, int b)
{
    return c->now[a] < c->now[b] || (c->now[a] == c->now[b] && c->at[a] < c->at[b]);
}

/* Who is the earliest goes first. Returns when the last is done, in ns. */
static double simulate(const sn_algo_group *g, const sn_algo_call *call, const char *name)
{
    clockwork *c = calloc(1, sizeof(*c));
    sn_arena *arena = sn_arena_create();
    const sn_algo_row *row;
    double last = 0;
    *c = (clockwork){.g = g, .m = g->model, .el = sn_dtype_bytes(call->dtype)};
    assert_ok(sn_algo_choose(g, call, g->model, name, &row, NULL));
    for (int i = 0; i < g->members; i++)
        assert_ok(row->schedule(g, call, i, arena, &c->s[i]));
    for (;;) {
        bool tried[MEMBERS] = {false}, moved = false;
        for (int k = 0; k < g->members && !moved; k++) {
            int best = -1;
            for (int i = 0; i < g->members; i++)
                if (!tried[i] && c->at[i] <= c->s[i].steps && (best < 0 || earlier(c, i, best)))
                    best = i;
            if (best < 0)
                break;
            tried[best] = true;
            moved = step(c, best);
        }
        if (!moved)
            break;
    }
    for (int i = 0; i < g->members; i++) {
        assert_int_equal(c->at[i], c->s[i].steps + 1);
        last = SN_MAX(last, c->now[i]);
        for (int k = 0; k < g->members; k++) {
            free(c->send[i][k].wait);
            free(c->recv[i][k].wait);
        }
    }
    sn_arena_free(arena);
    free(c);
    return last;
}

/* 1 Gbit/s, two members a core. */
static sn_algo_model gigabit(void)
{
    sn_algo_model m = sn_algo_model_from(NULL, NULL, 0);
    m.net_bytes_per_s = 1.25e8;
    m.net_latency_ns = 60000;
    m.members_per_core = 2;
    return m;
}

static void test_two_hosts_of_two(void **state)
{
    static const int host[] = {0, 0, 1, 1};
    sn_algo_model m = gigabit();
    sn_algo_group g = {.members = 4, .host = host, .model = &m};
    sn_algo_call c = {.op = SN_ALL_REDUCE, .dtype = SN_F32, .count = 16 << 20};
    double wire = 64.0 * (1 << 20) / m.net_bytes_per_s * 1e9;
    double direct = simulate(&g, &c, "hierarchical");
    assert_true(wire / direct > 0.95);
    assert_true(wire / simulate(&g, &c, "hierarchical_ring") > 0.95);
    assert_true(wire / simulate(&g, &c, "recursive_doubling") > 0.95);
    assert_true(wire / simulate(&g, &c, "rabenseifner") > 0.95);
    assert_true(wire / simulate(&g, &c, "double_tree") > 0.9);
    assert_true(wire / simulate(&g, &c, "chain") > 0.9);
    double ring = simulate(&g, &c, "ring"), around = simulate(&g, &c, "ring_round_robin");
    assert_true(ring / direct > 1.4 && ring / wire < 1.5 / 0.9);
    assert_true(around / direct > 2.7 && around / wire < 3 / 0.9);
}

/* A wire faster than sums are made: then the processor is busy, and the wire hidden. */
static void test_fast_wire(void **state)
{
    static const int host[] = {0, 0, 1, 1};
    sn_algo_model m = gigabit();
    m.net_bytes_per_s = 1e11;
    m.net_latency_ns = 2000;
    m.net_member_bytes_per_s = 0;
    sn_algo_group g = {.members = 4, .host = host, .model = &m};
    sn_algo_call c = {.op = SN_ALL_REDUCE, .dtype = SN_F32, .count = 16 << 20};
    double sums = 2 * 64.0 * (1 << 20) * 1e9 *
                  (2 / m.reduce_bytes_per_s + 0.5 / m.copy_bytes_per_s); /* 4 halves and a copy */
    assert_true(simulate(&g, &c, "hierarchical") < 1.15 * sums);
}

/* Broadcast along four hosts: as long as one vector takes, nearly. Sums in order, too. */
static void test_pipelines(void **state)
{
    static const int host[] = {0, 1, 2, 3}, fours[] = {0, 0, 0, 0, 1, 1, 1, 1};
    sn_algo_model m = gigabit();
    sn_algo_group g = {.members = 4, .host = host, .model = &m};
    sn_algo_call c = {.op = SN_BROADCAST, .dtype = SN_F32, .count = 8 << 20, .root = 2};
    double wire = 32.0 * (1 << 20) / m.net_bytes_per_s * 1e9;
    assert_true(wire / simulate(&g, &c, "chain") > 0.9);
    /* both trees may want a host's wire in the same half of a slot: here one after the other */
    assert_true(wire / simulate(&g, &c, "double_tree") > 0.75);
    c = (sn_algo_call){.op = SN_ALL_REDUCE, .dtype = SN_F32, .count = 8 << 20};
    assert_true(1.5 * wire / simulate(&g, &c, "ring") > 0.95);
    c.deterministic = true;
    assert_true(2 * wire / simulate(&g, &c, "chain") > 0.9);
    g = (sn_algo_group){.members = 8, .host = fours, .model = &m};
    assert_true(simulate(&g, &c, "chain") < 0.5 * simulate(&g, &c, "ordered"));
}

/* bf16: sums are twice as long as results on the way. */
static void test_wide(void **state)
{
    static const int host[] = {0, 0, 1, 1}, apart[] = {0, 1, 2, 3};
    sn_algo_model m = gigabit();
    sn_algo_group g = {.members = 4, .host = host, .model = &m};
    sn_algo_call c = {.op = SN_ALL_REDUCE, .dtype = SN_BF16, .count = 16 << 20};
    double wire = 32.0 * (1 << 20) / m.net_bytes_per_s * 1e9;
    assert_true(1.5 * wire / simulate(&g, &c, "hierarchical") > 0.9);
    g.host = apart; /* inputs go as they are */
    assert_true(1.5 * wire / simulate(&g, &c, "hierarchical") > 0.9);
}

/* 1 + 8 members: the eight share their host's sums although the lone one has all that crosses. */
static void test_uneven(void **state)
{
    static const int lone[] = {0, 1, 1, 1, 1, 1, 1, 1, 1};
    sn_algo_model m = gigabit();
    m.net_bytes_per_s = 1e11;
    m.net_latency_ns = 2000;
    sn_algo_group g = {.members = 9, .host = lone, .model = &m};
    sn_algo_call c = {.op = SN_ALL_REDUCE, .dtype = SN_F32, .count = 4 << 20};
    double one = 2 * 16.0 * (1 << 20) * 9 / m.reduce_bytes_per_s * 1e9; /* by one of the eight */
    assert_true(simulate(&g, &c, "hierarchical") < 0.6 * one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_hosts_of_two), cmocka_unit_test(test_fast_wire),
        cmocka_unit_test(test_pipelines),        cmocka_unit_test(test_wide),
        cmocka_unit_test(test_uneven),
    };
    return sn_test_run(tests);
}
