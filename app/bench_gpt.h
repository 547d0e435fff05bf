/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_gpt — the GPT of the training benchmark as a world of cards that do one step when asked.
 *
 * A step is what a job does between two steps' reports: the whole program of each card (forward,
 * backward, gradients, AdamW, parameters) on a batch that stays the same, as the peer's does. */
#ifndef SN_APP_BENCH_GPT_H
#define SN_APP_BENCH_GPT_H

#include "bench_world.h"

#include "train/train.h"

enum { BENCH_GPT_BATCH = 8 }; /* samples a card */
enum { BENCH_GPT_PEAK = -1 }; /* asks for the FMA peak of the rank's core instead of a step */

typedef struct bench_gpt {
    sn_job job;
    sn_topo *topo;
    double flops;  /* of a step, all cards */
    double tokens; /* of a step, all cards */
    bench_world *world;
} bench_gpt;

/* `cards` data-parallel ranks, one on each core. */
sn_status bench_gpt_start(int cards, bench_gpt *ret);
sn_status bench_gpt_step(bench_gpt *g, double *ret_seconds);
sn_status bench_gpt_peak(bench_gpt *g, double *ret_flops_per_s); /* of all cards at once */
void bench_gpt_stop(bench_gpt *g);

#endif
