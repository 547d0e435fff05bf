/* SPDX-License-Identifier: Apache-2.0
 *
 * cost — what an algorithm costs, as numbers that a model puts prices on. Private to algo.
 *
 *   row.count(shape, call) ──▶ counts: 3 signals, 2 latencies, 4 MiB reduced, 2 MiB on the wire …
 *   counts · prices(model) ──▶ ns
 *
 * So the prices can be fitted to measured times (fit.c). What overlaps is decided by the prices: of
 * two things that go on at once only the longer one is counted. */
#ifndef SN_ALGO_COST_H
#define SN_ALGO_COST_H

#include "algo/algo.h"

typedef enum algo_term {
    ALGO_CALL,    /* calls: 1 */
    ALGO_SIGNAL,  /* signal-wait rounds in a host, one after the other */
    ALGO_COPY,    /* bytes that the busiest member copies */
    ALGO_REDUCE,  /* bytes that it reads and writes in reductions */
    ALGO_LATENCY, /* messages between hosts, one after the other */
    ALGO_MESSAGE, /* further messages that a member sends at the same time */
    ALGO_WIRE,    /* bytes into or out of the busiest host */
    ALGO_SOCKET,  /* bytes that the busiest member sends and receives */
    ALGO_TERMS
} algo_term;

typedef struct algo_counts {
    double of[ALGO_TERMS];
} algo_counts;

algo_counts algo_prices(const sn_algo_model *m); /* ns each */
double algo_ns(const algo_counts *count, const algo_counts *price);
void algo_counts_add(algo_counts *c, const algo_counts *more, double times);

/* How much longer than its counts say a row takes (sn_algo_model.factor), and where a size stands
 * among the bands: *ret_band and the next, which has a weight of 0 … 1. */
double algo_factor(const sn_algo_model *m, int row, const sn_algo_call *c);
double algo_band(const sn_algo_call *c, int *ret_band);
int algo_row_index(const sn_algo_row *row);

/* ---- the group, looked at once ---- */

typedef struct algo_shape {
    int members, hosts;
    int size_min, size_max; /* members of a host */
    int lanes, most_lanes;  /* lanes across hosts (lanes.h), and how many one member has at most */
    bool contiguous;        /* members of a host follow each other in the group */
} algo_shape;

algo_shape algo_shape_of(const sn_algo_group *g);

/* Dense numbers of the hosts, by their first member: [members]. Returns how many. */
int algo_hosts_number(const sn_algo_group *g, int *ret_host);

/* ---- pipelines (pipe.h) ----
 *
 * All data goes through `stages` transfers, one after the other, in segments that follow each
 * other. One segment takes the whole path; the more there are, the more the busiest resource
 * alone counts, wire or processor:
 *
 *   once + slots · latency + path / segments + (1 - 1 / segments) · max(wire, processor)
 *
 * of what is in `steady`. */
typedef struct algo_flow {
    int stages, adding; /* adding: the first stages, in which sums are used */
    bool works;         /* what comes is worked on: one more slot a stage, to overlap with */
    bool signals;       /* members of one host wait for each segment */
    int posts;          /* sends and receives of a member in a stage of a segment, at most */
    int posts_all;      /* in all stages at once; 0: as many in each */
    double messages;    /* further ones of a segment, in all stages */
    double bytes;       /* of what is cut into segments */
    algo_counts once, path, steady;
} algo_flow;

/* In how many segments it goes: 1, 2, 4 … of at least 4 KiB, the fastest by the group's model, such
 * that no more sends and receives are under way than coll has room for. */
int algo_flow_segments(const algo_flow *f, const sn_algo_group *g);

/* What it then takes, overlapping as under the prices of `m`; a group without a model has that. */
void algo_flow_count(const algo_flow *f, const sn_algo_group *g, const sn_algo_model *m,
                     algo_counts *ret);

#define ALGO_UNDER_WAY(members) (4 * (members) + 8)

#endif
