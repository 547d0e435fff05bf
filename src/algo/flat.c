/* SPDX-License-Identifier: Apache-2.0
 *
 * flat — inside one host: everybody loads from and stores to everybody's buffers.
 *
 *   small    NOTE ← IN · signal · wait · read all the notes           one round; a note outlives
 *            its owner's call, so nobody waits for its readers
 *   large    signal · wait · my slice, in place · signal · wait       two rounds, no copies
 *
 * In place is safe: slice i of all buffers is touched by member i alone. all_to_all: the four
 * places of a pair's exchange are touched by one member, so it can swap them.
 *
 * Cost: rounds · signal + (bytes read + written) / bandwidth. */
#include "algo/build.h"

/* Elements that go through a pair's scratch at a time: 32 KiB of f32 stays in the L1/L2. */
#define SWAP_COUNT 8192

static bool fits(const algo_shape *s, const sn_algo_group *g, const sn_algo_call *c)
{
    return s->hosts == 1;
}

static bool small(const sn_algo_call *c)
{
    return algo_bytes(c) <= SN_ALGO_NOTE_BYTES;
}

/* Does the call go through notes, in one round? gather does not: with it the root would copy all
 * by itself. */
static bool noted(const sn_algo_call *c, int members)
{
    switch (c->op) {
    case SN_ALL_REDUCE:
    case SN_ALL_GATHER:
    case SN_BROADCAST:
        return small(c);
    case SN_SCATTER:
        return algo_bytes(c) * members <= SN_ALGO_NOTE_BYTES;
    case SN_BARRIER:
        return true;
    default:
        return false;
    }
}

/* The same place in every member's buffer. */
static sn_place *of_all(algo_build *b, sn_buf buf, int64_t at)
{
    sn_place *p = SN_NEW_N(b->arena, sn_place, b->members);
    for (int i = 0; i < b->members; i++)
        p[i] = algo_at(i, buf, at);
    return p;
}

static void all_reduce(algo_build *b)
{
    if (small(b->call)) {
        int64_t n = b->call->count;
        sn_place out = algo_at(b->me, SN_BUF_OUT, 0);
        algo_copy(b, algo_at(b->me, SN_BUF_NOTE, 0), algo_at(b->me, SN_BUF_IN, 0), n);
        algo_enter(b);
        algo_reduce(b, &out, 1, of_all(b, SN_BUF_NOTE, 0), b->members, n, true);
        return;
    }
    algo_range mine = algo_slice(b->call->count, b->members, b->me);
    algo_enter(b);
    algo_reduce(b, of_all(b, SN_BUF_OUT, mine.at), b->members, of_all(b, SN_BUF_IN, mine.at),
                b->members, mine.count, true);
    algo_enter(b);
}

static void reduce_scatter(algo_build *b)
{
    int64_t n = b->call->count;
    sn_place out = algo_at(b->me, SN_BUF_OUT, 0);
    algo_enter(b);
    algo_reduce(b, &out, 1, of_all(b, SN_BUF_IN, n * b->me), b->members, n, true);
    algo_enter(b);
}

static void all_gather(algo_build *b)
{
    int64_t n = b->call->count;
    sn_buf from = small(b->call) ? SN_BUF_NOTE : SN_BUF_IN;
    if (from == SN_BUF_NOTE)
        algo_copy(b, algo_at(b->me, SN_BUF_NOTE, 0), algo_at(b->me, SN_BUF_IN, 0), n);
    algo_enter(b);
    for (int k = 0; k < b->members; k++) { /* start with my own, then each with another peer */
        int i = (b->me + k) % b->members;
        algo_copy(b, algo_at(b->me, SN_BUF_OUT, n * i), algo_at(i, k > 0 ? from : SN_BUF_IN, 0), n);
    }
    if (from == SN_BUF_IN)
        algo_enter(b);
}

static void broadcast(algo_build *b)
{
    int root = b->call->root;
    int64_t n = b->call->count;
    sn_buf from = small(b->call) ? SN_BUF_NOTE : SN_BUF_OUT;
    if (from == SN_BUF_NOTE && b->me == root)
        algo_copy(b, algo_at(root, SN_BUF_NOTE, 0), algo_at(root, SN_BUF_OUT, 0), n);
    algo_enter(b);
    if (b->me != root)
        algo_copy(b, algo_at(b->me, SN_BUF_OUT, 0), algo_at(root, from, 0), n);
    if (from == SN_BUF_OUT) {
        algo_signal(b);
        if (b->me == root)
            algo_wait(b, SN_ALL, b->round);
    }
}

/* The root's OUT or IN is every member's to write or read its own block. */
static void gather(algo_build *b)
{
    int root = b->call->root;
    int64_t n = b->call->count;
    algo_enter(b);
    algo_copy(b, algo_at(root, SN_BUF_OUT, n * b->me), algo_at(b->me, SN_BUF_IN, 0), n);
    algo_signal(b);
    if (b->me == root)
        algo_wait(b, SN_ALL, b->round);
}

static void scatter(algo_build *b)
{
    int root = b->call->root;
    int64_t n = b->call->count, whole = n * b->members;
    sn_buf from = noted(b->call, b->members) ? SN_BUF_NOTE : SN_BUF_IN;
    if (from == SN_BUF_NOTE && b->me == root)
        algo_copy(b, algo_at(root, SN_BUF_NOTE, 0), algo_at(root, SN_BUF_IN, 0), whole);
    algo_enter(b);
    algo_copy(b, algo_at(b->me, SN_BUF_OUT, 0), algo_at(root, from, n * b->me), n);
    if (from == SN_BUF_IN) {
        algo_signal(b);
        if (b->me == root)
            algo_wait(b, SN_ALL, b->round);
    }
}

/* Exchange `count` elements at `at` of a's block b and b's block a; one of them does it. */
static void swap(algo_build *b, int a, int c, int64_t at, int64_t count)
{
    int64_t n = b->call->count;
    sn_place tmp = algo_at(b->me, SN_BUF_TMP, 0);
    for (int64_t k = 0; k < count; k += SWAP_COUNT) {
        int64_t some = SN_MIN(count - k, SWAP_COUNT), x = n * c + at + k, y = n * a + at + k;
        algo_copy(b, tmp, algo_at(a, SN_BUF_IN, x), some);
        algo_copy(b, algo_at(a, SN_BUF_OUT, x), algo_at(c, SN_BUF_IN, y), some);
        algo_copy(b, algo_at(c, SN_BUF_OUT, y), tmp, some);
    }
}

static void all_to_all(algo_build *b)
{
    int64_t n = b->call->count;
    algo_range half[2] = {algo_slice(n, 2, 0), algo_slice(n, 2, 1)};
    algo_enter(b);
    for (int k = 0; k < b->members; k++) {
        int peer = (b->me + k) % b->members;
        if (k == 0)
            algo_copy(b, algo_at(peer, SN_BUF_OUT, n * peer), algo_at(peer, SN_BUF_IN, n * peer),
                      n);
        else /* the lower member of a pair moves the first half, the other the second */
            swap(b, b->me, peer, half[b->me > peer].at, half[b->me > peer].count);
    }
    algo_enter(b);
}

static sn_status schedule(const sn_algo_group *g, const sn_algo_call *c, int me, sn_arena *arena,
                          sn_sched *ret)
{
    static void (*const build[SN_COLL_OPS])(algo_build *) = {
        [SN_ALL_REDUCE] = all_reduce, [SN_REDUCE_SCATTER] = reduce_scatter,
        [SN_ALL_GATHER] = all_gather, [SN_BROADCAST] = broadcast,
        [SN_ALL_TO_ALL] = all_to_all, [SN_GATHER] = gather,
        [SN_SCATTER] = scatter,       [SN_BARRIER] = algo_enter,
    };
    algo_build b = algo_build_begin(g, c, me, arena);
    bool notes = noted(c, g->members);
    build[c->op](&b);
    algo_build_end(&b, "flat", notes ? 1 : 2, !notes && g->members > 1, ret);
    return SN_OK;
}

static void count(const algo_shape *s, const sn_algo_group *g, const sn_algo_call *c,
                  const sn_algo_model *m, algo_counts *ret)
{
    double bytes = (double) algo_bytes(c), p = s->members;
    bool notes = noted(c, s->members);
    *ret = (algo_counts){.of = {[ALGO_CALL] = 1, [ALGO_SIGNAL] = notes ? 1 : 2}};
    switch (c->op) {
    case SN_ALL_REDUCE:
        ret->of[ALGO_REDUCE] = notes ? (p + 1) * bytes : 2 * bytes;
        return;
    case SN_REDUCE_SCATTER:
        ret->of[ALGO_REDUCE] = (p + 1) * bytes;
        return;
    case SN_ALL_GATHER:
    case SN_ALL_TO_ALL:
        ret->of[ALGO_COPY] = p * bytes;
        return;
    case SN_BROADCAST:
    case SN_GATHER:
    case SN_SCATTER:
        ret->of[ALGO_COPY] = bytes;
        return;
    case SN_BARRIER:
    case SN_COLL_OPS:
        break;
    }
}

const sn_algo_row algo_flat = {
    .name = "flat",
    .needs = "one host",
    .ops = (1u << SN_COLL_OPS) - 1,
    .ordered = 1u << SN_ALL_REDUCE | 1u << SN_REDUCE_SCATTER,
    .notes = true,
    .fits = fits,
    .schedule = schedule,
    .count = count,
};
