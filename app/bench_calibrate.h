/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_calibrate — what collectives cost here, measured in seconds and fitted.
 *
 *   rates  signal, copy, reduce, contention, net: each by itself ──▶ a first model
 *   calls  every row of every operation, 2^8 … 2^22 bytes, in the whole group, in hosts, in lanes
 *   fit    sn_algo_fit ──▶ the model that is kept (calibration.h)
 *   check  other sizes: what the model chooses beside the best of all rows */
#ifndef SN_APP_BENCH_CALIBRATE_H
#define SN_APP_BENCH_CALIBRATE_H

#include "bench_rows.h"
#include "calibration.h"

/* About `seconds` in all. Does not save. */
sn_status bench_calibrate(int hosts, int cards, double seconds, sn_calibration *ret);

/* The same by all ranks that mpirun started; only rank 0 has an answer. */
sn_status bench_calibrate_launched(sn_boot *boot, double seconds, sn_calibration *ret);

/* ---- the choice beside an exhaustive run ---- */

typedef struct bench_choice {
    sn_algo_call call;
    const sn_algo_row *chosen, *best;
    double regret; /* 0.05: the chosen takes 5 % longer */
    double predicted_ns, chosen_ns, best_ns;
} bench_choice;

#define BENCH_CHOICES_MAX 128

typedef struct bench_choices {
    int n;
    bench_choice at[BENCH_CHOICES_MAX];
    double mean, worst, within; /* regrets; share of those of at most 5 % */
} bench_choices;

/* Every operation at sizes that calibration did not measure, in the whole group. */
sn_status bench_choices_measure(int hosts, int cards, const sn_algo_model *model, double seconds,
                                bench_choices *ret);

/* supernode bench calibrate; returns an exit code */
int bench_calibrate_verb(const sn_args *args);

#endif
