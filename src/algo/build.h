/* SPDX-License-Identifier: Apache-2.0
 *
 * build — how an algorithm writes its schedule down: one call a step. Private to algo.
 *
 * Steps that move nothing (zero elements) are left out, on both sides alike, and so are fences when
 * nothing is under way. A builder is good for one schedule; everything lives in the caller's arena.
 */
#ifndef SN_ALGO_BUILD_H
#define SN_ALGO_BUILD_H

#include "algo/algo.h"
#include "algo/cost.h"

typedef struct algo_build {
    sn_arena *arena;
    const sn_algo_group *group;
    const sn_algo_call *call;
    int me, members;
    int round;   /* the last one signalled */
    int pending; /* sends and receives since the last fence */
    size_t step_cap, place_cap;
    sn_sched sched;
} algo_build;

/* A part of a vector, in elements. */
typedef struct algo_range {
    int64_t at, count;
} algo_range;

/* The group as hosts of members: member_of[first[h] … first[h] + size[h]) are host h's members in
 * group order; hosts are numbered by their first member. */
typedef struct algo_map {
    int hosts;
    int *host;  /* [members] dense host index */
    int *local; /* [members] index within its host */
    int *size, *first, *member_of;
} algo_map;

algo_build algo_build_begin(const sn_algo_group *g, const sn_algo_call *c, int me, sn_arena *arena);
void algo_build_end(algo_build *b, const char *name, int rounds, bool shared, sn_sched *ret);

void algo_signal(algo_build *b);
void algo_wait(algo_build *b, int member, int round);
void algo_enter(algo_build *b); /* signal, then wait for everybody on the host */
void algo_copy(algo_build *b, sn_place dst, sn_place src, int64_t count);
void algo_reduce(algo_build *b, const sn_place *dst, int dsts, const sn_place *src, int srcs,
                 int64_t count, bool last);
void algo_send(algo_build *b, int to, sn_place src, int64_t count);
void algo_recv(algo_build *b, int from, sn_place dst, int64_t count);
void algo_fence(algo_build *b);

static inline sn_place algo_at(int member, sn_buf buf, int64_t at)
{
    return (sn_place){.member = member, .buf = buf, .at = at};
}

static inline sn_place algo_past(sn_place p, int64_t more)
{
    p.at += more;
    return p;
}

algo_map algo_map_of(const sn_algo_group *g, sn_arena *arena);
int algo_map_member(const algo_map *m, int host, int local);

/* Part i of n elements cut into `parts`: equal but for the end, borders at multiples of 64 elements
 * so that a slice starts on a cache line and nobody shares one. */
algo_range algo_slice(int64_t n, int parts, int i);
algo_range algo_slice_of(algo_range whole, int parts, int i);

int64_t algo_bytes(const sn_algo_call *c); /* count · bytes of an element */
bool algo_reduces(sn_coll_op op);
bool algo_wide(const sn_algo_call *c); /* sums that are not finished are kept as F32 */
int algo_log2_up(int n);               /* ⌈log2 n⌉ */

extern const sn_algo_row algo_flat, algo_ring, algo_ring_round_robin, algo_hierarchical,
    algo_hierarchical_ring, algo_chain, algo_ordered, algo_doubling, algo_rabenseifner,
    algo_double_tree, algo_torus, algo_binomial;

#endif
