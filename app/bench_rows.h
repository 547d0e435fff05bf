/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_rows — how long a collective takes by each algorithm, on hosts emulated on this machine.
 *
 *   ranks of a shape ── for each call: check every row once, then time them A B C A B C … ──▶ ns
 *
 * What explain --measure prints, what calibrate fits its model to, and what the choice is judged
 * by, are all measured here. */
#ifndef SN_APP_BENCH_ROWS_H
#define SN_APP_BENCH_ROWS_H

#include "bench_rig.h"

#define BENCH_ROWS_MAX 32

typedef struct bench_shape {
    int hosts, cards; /* cards of each host */
    sn_algo_group group;
    int host[BENCH_WORLD_MAX];
    bench_wire *own; /* NULL: process groups over the loopback */
    bench_rig *rig;
} bench_shape;

/* Starts hosts · cards ranks whose buffers hold calls of up to `bytes` (of IN or OUT, whichever is
 * larger). Namespaces joined by a wire as root, else process groups. SN_EFIT: too many ranks, or
 * too little memory. */
sn_status bench_shape_start(int hosts, int cards, uint64_t bytes, bench_shape *ret);
void bench_shape_stop(bench_shape *s);
const char *bench_shape_hosts(const bench_shape *s); /* "one host", "namespaces" … in words */

/* Bytes of the larger of IN and OUT of a call among n members. */
uint64_t bench_call_bytes(const sn_algo_call *c, int n);

typedef struct bench_rows {
    int rows;
    const sn_algo_row *row[BENCH_ROWS_MAX]; /* those that fit */
    double ns[BENCH_ROWS_MAX];              /* median of `rounds` bursts, the slowest rank's mean */
    int rounds;
} bench_rows;

/* About `seconds` in all, but at least three rounds. A result that is wrong is SN_EFAIL. */
sn_status bench_rows_measure(bench_shape *s, const sn_algo_call *c, double seconds,
                             bench_rows *ret);
/* The row that took least time. */
int bench_rows_best(const bench_rows *r);
/* What taking `row` costs beside the best: 0.05 is 5 % longer. NAN: not among them. */
double bench_rows_regret(const bench_rows *r, const sn_algo_row *row);

#endif
