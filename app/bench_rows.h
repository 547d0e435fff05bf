/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_rows — how long a collective takes by each algorithm, on hosts emulated on this machine or
 * on those that mpirun chose.
 *
 *   ranks of a shape ── for each call: check every row once, then time them A B C A B C … ──▶ ns
 *
 * What explain --measure prints, what calibrate fits its model to, and what the choice is judged
 * by, are all measured here. */
#ifndef SN_APP_BENCH_ROWS_H
#define SN_APP_BENCH_ROWS_H

#include "bench_rig.h"

#define BENCH_ROWS_MAX SN_ALGO_ROWS_MAX

typedef struct bench_shape {
    int hosts, cards; /* cards of each host */
    bool launched;
    bool by_name_too; /* measure also the rows that are never chosen */
    /* Rank 0's groups: what is measured is the slowest rank of all such groups at the same time. */
    sn_algo_group group[BENCH_GROUPS];
    int host[BENCH_GROUPS][BENCH_WORLD_MAX];
    bench_wire *wire; /* NULL: process groups over the loopback */
    bench_rig *rig;
} bench_shape;

typedef struct bench_shape_opts {
    int hosts, cards;
    uint64_t bytes;             /* of the largest call's IN or OUT */
    const sn_topo *topo;        /* of these cards, */
    const sn_algo_model *model; /* and what the segments are chosen by */
} bench_shape_opts;

/* Starts the ranks: in namespaces joined by a wire as root, else as process groups. SN_EFIT: too
 * many of them, or too little memory. */
sn_status bench_shape_start(const bench_shape_opts *opts, bench_shape *ret);
/* The ranks are there, this process is one of them; hosts and cards are found. */
sn_status bench_shape_join(sn_boot *boot, uint64_t bytes, bench_shape *ret);
void bench_shape_stop(bench_shape *s);
const char *bench_shape_words(const bench_shape *s); /* "one host", "hosts in namespaces" */

/* Bytes of the larger of IN and OUT of a call among n members. */
uint64_t bench_call_bytes(const sn_algo_call *c, int n);

typedef struct bench_rows {
    int rows;
    const sn_algo_row *row[BENCH_ROWS_MAX]; /* those that fit */
    double ns[BENCH_ROWS_MAX];              /* median of `rounds` bursts, the slowest rank's mean */
    int rounds;
} bench_rows;

/* About `seconds` in all, but at least three rounds. A result that is wrong is SN_EFAIL. */
sn_status bench_rows_measure(bench_shape *s, bench_group group, const sn_algo_call *c,
                             double seconds, bench_rows *ret);
int bench_rows_best(const bench_rows *r); /* the row that took least time */
/* What taking `row` costs beside the best: 0.05 is 5 % longer. The two are measured again, in turn,
 * because the least of many noisy times is too small. */
sn_status bench_rows_regret(bench_shape *s, bench_group group, const sn_algo_call *c,
                            const bench_rows *rows, const sn_algo_row *row, double seconds,
                            double *ret);

#endif
