/* SPDX-License-Identifier: Apache-2.0
 *
 * lanes — what all algorithms that span hosts share: inside a host by loads and stores, and between
 * the hosts whatever the algorithm says. Private to algo.
 *
 *            host 0            host 1
 *   lane 0   m0  ◀───slice 0───▶  m4        1. reduce slice k of all members of my host (lane k)
 *   lane 1   m1  ◀───slice 1───▶  m5        2. `across`: lane k of all hosts, each lane alone
 *   lane 2   m2  ◀───slice 2───▶  m6        3. gather the slices from the other lanes of my host
 *                                 m7        (in no lane: takes part in 3 only)
 *
 * Any map of members to hosts works; there are as many lanes as the smallest host has members. An
 * all_reduce whose input and result both fit the note goes whole, between the first members. */
#ifndef SN_ALGO_LANES_H
#define SN_ALGO_LANES_H

#include "algo/build.h"

typedef struct algo_lanes {
    algo_build b;
    algo_map m;
    int me, host, local, size; /* my host, my place in it, its members */
    int leader;                /* first member of my host */
} algo_lanes;

/* Between one member of each host, all at the same local index (broadcast: speakers of the root).
 * all_reduce: `part`, the sum over my host, becomes the sum over all, divided for an average.
 * broadcast: `part` of the root's host comes to all. Has come when it returns; what it still sends
 * may be on its way. */
typedef void (*algo_across)(algo_lanes *t, sn_place part, int64_t count);

algo_lanes algo_lanes_begin(const sn_algo_group *g, const sn_algo_call *c, int me, sn_arena *arena);
bool algo_lanes_small(const sn_algo_call *c); /* all_reduce: through the notes, whole */

void algo_lanes_all_reduce(algo_lanes *t, algo_across across);
void algo_lanes_broadcast(algo_lanes *t, algo_across across);

/* gather and scatter (rooted.c); two rounds. */
void algo_rooted_straight(algo_lanes *t);
void algo_rooted_tree(algo_lanes *t);

/* Ends a schedule that was one of the two above. */
void algo_lanes_end(algo_lanes *t, const char *name, sn_sched *ret);

/* Who on host h is in my lane; who there speaks for local index `local` of another host. */
int algo_lanes_peer(const algo_lanes *t, int h);
int algo_lanes_speaker(const algo_lanes *t, int h, int local);

sn_place *algo_lanes_of_host(algo_lanes *t, sn_buf buf, int64_t at); /* of each on my host */

/* Several hosts, and no sum that would be rounded once more at each of several hops. */
bool algo_lanes_fits(const sn_algo_group *g, const sn_algo_call *c);
/* The time of 1 and 3; the bytes that one member has in 2. */
double algo_lanes_ns(const sn_algo_group *g, const sn_algo_call *c, const sn_algo_model *m);
double algo_lanes_part(const sn_algo_group *g, const sn_algo_call *c);

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
void algo_fold_in(algo_lanes *t, const algo_fold *f, sn_place part, int64_t count);
void algo_fold_out(algo_lanes *t, const algo_fold *f, sn_place part, int64_t count);

/* part ← part and what came from host `from` to the start of my scratch, lower host first, so that
 * both sides of an exchange get the same bits. */
void algo_lanes_add(algo_lanes *t, int from, sn_place part, int64_t count, bool last);

#endif
