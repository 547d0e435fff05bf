/* SPDX-License-Identifier: Apache-2.0
 * Ours beside somebody else's and beside the bound, pair by pair. */
#include "bench_rig.h"

#include <math.h>

/* The faster of both ways to store. */
static sn_status choose_loop(bench_rig *rig, const bench_ask *ask, bench_ask *ret)
{
    double best[2] = {HUGE_VAL, HUGE_VAL}, t;
    *ret = (bench_ask){.fn = bench_do_loop, .count = ask->count, .times = ask->times};
    for (int i = 0; i < 6; i++) {
        ret->stream = i % 2;
        SN_TRY(bench_rig_ask(rig, ret, &t));
        best[i % 2] = SN_MIN(best[i % 2], t);
    }
    ret->stream = best[1] < best[0];
    return SN_OK;
}

sn_status bench_rig_pairs(bench_rig *rig, const bench_ask *ask, const bench_rival *rival,
                          bool bounded, int pairs, bench_result *ret)
{
    double bound[BENCH_SAMPLES_MAX], t;
    bench_ask known = *ask, loop = {0};
    known.check = true;
    SN_TRY(bench_rig_ask(rig, &known, &t));
    SN_TRY(bench_rig_ask(rig, ask, &t)); /* warm */
    if (rival)
        SN_TRY(rival->ask(rival->ctx, ask->times, &t));
    if (bounded)
        SN_TRY(choose_loop(rig, ask, &loop));
    for (int i = 0; i < pairs; i++) {
        SN_TRY(bench_rig_ask(rig, ask, &t));
        ret->sample[ret->samples++] = t * 1e6;
        if (rival) {
            SN_TRY(rival->ask(rival->ctx, ask->times, &t));
            ret->peer_sample[ret->peer_samples++] = t * 1e6;
        }
        if (bounded) {
            SN_TRY(bench_rig_ask(rig, &loop, &t));
            bound[i] = t * 1e6;
        }
    }
    if (bounded)
        ret->bound = bench_median(bound, pairs);
    return SN_OK;
}
