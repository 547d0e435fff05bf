/* SPDX-License-Identifier: Apache-2.0
 *
 * lanes — what all algorithms that span hosts share: inside a host by loads and stores, and between
 * the hosts whatever the algorithm says. Private to algo.
 *
 *            host 0            host 1
 *   lane 0   m0  ◀───slice 0───▶  m4      1. a lane's owner on a host sums its slice of all inputs
 *   lane 1   m1  ◀───slice 1───▶  m5         of the host
 *   lane 2   m2  ◀───slice 2───▶  m6      2. `across`: the owners of a lane, each lane alone
 *                                 m7      3. everybody copies the slices of its host's other owners
 *
 * Any map of members to hosts works. There are at least as many lanes as the smallest host has
 * members, and more when a larger host is then less the slowest; a member of a small host then owns
 * several. All three go on at once, in segments (pipe.h). An all_reduce whose input and result both
 * fit the note goes whole, between the first members.
 *
 * Sums of bf16 and f16 that are not finished are in WIDE; those of f32 are in OUT, where the result
 * will be. */
#ifndef SN_ALGO_LANES_H
#define SN_ALGO_LANES_H

#include "algo/pipe.h"

struct algo_across;

typedef struct algo_lanes {
    algo_build b;
    algo_map m;
    algo_shape shape;
    int me, host, local, size; /* my host, my place in it, its members */
    int leader;                /* first member of my host */
    int lanes, first;          /* first: the first that I own; the others are `size` apart */
    bool small, wide;
    const struct algo_across *across;
    const void *plan; /* the algorithm's own */
    int segments, stages;
    int window;        /* segments that scratch is kept for */
    int64_t room;      /* elements of a lane's segment, at most */
    int64_t came_room; /* elements that come for one segment, at most */
    sn_place *source;  /* [2 · members + 2] for one reduction */
} algo_lanes;

/* A segment of a lane, in the hands of its owner on one host. Offsets below count from its start.
 */
typedef struct algo_part {
    algo_lanes *t;
    int lane, segment;
    int64_t at, count; /* of the vector */
} algo_part;

/* What happens between the owners of a lane.
 *
 * all_reduce: the sum over each host, or what `sum` makes of inputs, becomes the result on all, the
 * last addition with `last`. broadcast: the root's result becomes that of all. Has come when the
 * last stage is through; what a stage sends may change in the stage after. */
typedef struct algo_across {
    algo_flow (*flow)(const algo_shape *s, const sn_algo_group *g, const sn_algo_call *c);
    int64_t (*came)(const algo_lanes *t, int64_t); /* elements that come for so many; NULL: none */
    const void *(*plan)(algo_lanes *t);            /* NULL: none */
    void (*enter)(const algo_part *p);             /* NULL: nothing */
    void (*post)(const algo_part *p, int stage);
    void (*work)(const algo_part *p, int stage); /* NULL: nothing */
} algo_across;

algo_lanes algo_lanes_begin(const sn_algo_group *g, const sn_algo_call *c, int me, sn_arena *arena);
bool algo_lanes_small(const sn_algo_call *c); /* all_reduce: through the notes, whole */

/* A whole schedule. */
void algo_lanes_all_reduce(algo_lanes *t, const algo_across *across);
void algo_lanes_broadcast(algo_lanes *t, const algo_across *across);
sn_status algo_lanes_schedule(const sn_algo_group *g, const sn_algo_call *c, int me,
                              sn_arena *arena, const char *name, const algo_across *across,
                              sn_sched *ret);

/* gather and scatter (rooted.c); two rounds. */
void algo_rooted_straight(algo_lanes *t);
void algo_rooted_tree(algo_lanes *t);

/* The member of host h that speaks for a lane; that speaks for local index `local` of another
 * host. */
int algo_lanes_owner(const algo_lanes *t, int h, int lane);
int algo_lanes_speaker(const algo_lanes *t, int h, int local);

sn_place *algo_lanes_of_host(algo_lanes *t, sn_buf buf, int64_t at); /* of each on my host */

/* Several hosts. */
bool algo_lanes_fits(const algo_shape *s, const sn_algo_group *g, const sn_algo_call *c);

/* ---- a part ---- */

int algo_part_peer(const algo_part *p, int host);
void algo_part_send(const algo_part *p, int host, sn_place src, int64_t count);
void algo_part_recv(const algo_part *p, int host, sn_place dst, int64_t count);

sn_place algo_part_sum(const algo_part *p, int64_t off);        /* not finished yet */
sn_place algo_part_result(const algo_part *p, int64_t off);     /* may be the same place */
sn_place algo_part_came(const algo_part *p, int64_t off);       /* scratch for sums that come */
sn_place algo_part_came_as_is(const algo_part *p, int64_t off); /* for one member's input */
sn_place algo_part_input(const algo_part *p, int64_t off);      /* mine */

/* A reduction of elements [off, off + count): sources are added one after the other, then it goes
 * to the sum, or to the result when it was the `last`. */
void algo_part_begin(const algo_part *p, int *srcs);
void algo_part_add(const algo_part *p, int *srcs, sn_place src);
void algo_part_add_inputs(const algo_part *p, int *srcs, int64_t off); /* of all on my host */
void algo_part_end(const algo_part *p, int srcs, int64_t off, int64_t count, bool last);

void algo_part_sum_inputs(const algo_part *p, int64_t off, int64_t count);
void algo_part_sum_all(const algo_part *p);
/* sum ← sum and what came from host `from`, lower host first, so that both sides of an exchange get
 * the same bits. */
void algo_part_sum_came(const algo_part *p, int from, int64_t off, int64_t count, bool last);

/* ---- time ---- */

/* What all_reduce and broadcast take inside a host; the algorithm adds what goes on between them.
 */
algo_flow algo_lanes_flow(const algo_shape *s, const sn_algo_call *c);
double algo_lanes_slice(const algo_shape *s, const sn_algo_call *c); /* bytes a member owns */
double algo_lanes_widened(const sn_algo_call *c); /* how much longer a sum is than a result */
void algo_flow_both(algo_flow *f, algo_term term, double count); /* to path and steady */
/* Bytes of the whole vector that leave a host, by all its lanes. */
void algo_lanes_sent(algo_flow *f, const algo_shape *s, const sn_algo_call *c, double path,
                     double steady);

void algo_lanes_count(const algo_shape *s, const sn_algo_group *g, const sn_algo_call *c,
                      const sn_algo_model *m, const algo_across *across, algo_counts *ret);

/* ---- any number of hosts as a power of two ----
 *
 * The first 2·extra hosts go in pairs: the even one hands its part to the odd one, stands aside,
 * and is given the result. The others are numbered 0 … power-1. */
typedef struct algo_fold {
    int power, extra;
    int index; /* mine, -1: my host stands aside */
} algo_fold;

algo_fold algo_fold_of(int hosts, int host);
int algo_fold_host(const algo_fold *f, int index);
/* The stages before and after: post and work of giving to the partner, and back. */
void algo_fold_in_post(const algo_part *p, const algo_fold *f);
void algo_fold_in_work(const algo_part *p, const algo_fold *f);
void algo_fold_out_post(const algo_part *p, const algo_fold *f);

#endif
