/* SPDX-License-Identifier: Apache-2.0
 * How long foresight takes: each split of a large model, a million cards, 54 days with failures. */
#include "bench.h"

#include "os/os.h"
#include "sim/sim.h"

#include <stdio.h>
#include <stdlib.h>

enum { GPT3, RATE, MILLION, DAYS };

static sn_status one_search(int which, double *ret_seconds, sn_sim_answer *a)
{
    bool million = which == MILLION;
    sn_sim_cluster c = sn_sim_cluster_of(sn_sim_card_find("h100"), million ? 1048576 : 1024, 50e9);
    const sn_sim_model *m = sn_sim_model_find(million ? "gpt-1t" : "gpt3-175b");
    sn_time began = sn_now();
    SN_TRY(sn_sim_search(&c, m, million ? 65536 : 1536, a));
    *ret_seconds = (double) (sn_now() - began) * 1e-9;
    return SN_OK;
}

static sn_status run_search(const bench_case *c, const bench_opts *o, bench_result *ret)
{
    sn_sim_answer *a = sn_alloc(sizeof *a);
    sn_status status = SN_OK;
    for (int i = 0; i < o->pairs && status >= 0; i++) {
        double seconds = 1;
        status = one_search(c->arg, &seconds, a);
        ret->sample[ret->samples++] = c->arg == RATE ? (double) a->candidates / seconds : seconds;
    }
    snprintf(ret->note, sizeof ret->note, "%s, %lld candidates, %lld of them fit",
             c->arg == MILLION ? "gpt-1t on 1,048,576 h100" : "gpt3-175b on 1,024 h100",
             (long long) a->candidates, (long long) a->fitting);
    free(a);
    return status;
}

static sn_status run_days(const bench_case *c, const bench_opts *o, bench_result *ret)
{
    const sn_sim_recovery *all;
    sn_sim_ran ran = {0};
    (void) sn_sim_recoveries(&all);
    for (int i = 0; i < o->pairs; i++) {
        sn_sim_plan_of_run p = {.step_seconds = 6.3,
                                .tokens_per_step = 16.8e6,
                                .days = 54,
                                .cards = 16384,
                                .per_host = 8,
                                .failures_per_1000_node_days = 6.5,
                                .recovery = all[0],
                                .repair_hours = 24,
                                .seed = (uint64_t) i + 1};
        sn_time began = sn_now();
        SN_TRY(sn_sim_run(&p, &ran));
        ret->sample[ret->samples++] = (double) (sn_now() - began) * 1e-9;
    }
    snprintf(ret->note, sizeof ret->note,
             "16,384 cards, 54 days, %lld failures, %.3f %% of the time useful",
             (long long) ran.failures, 100 * ran.useful);
    return SN_OK;
}

#define CASE(i, label, what, less, kind, value, how)                                               \
    {                                                                                              \
        .area = "sim", .name = label, .unit = what, .less_is_better = less, .arg = i, .bar = kind, \
        .bar_value = value, .run = how                                                             \
    }

const bench_case bench_sim[] = {
    CASE(GPT3, "sim_search_gpt3_175b_1024", "s", true, BENCH_VALUE_MAX, 2, run_search),
    CASE(RATE, "sim_search_candidates", "1/s", false, BENCH_VALUE_MIN, 100000, run_search),
    CASE(MILLION, "sim_search_gpt_1t_1048576", "s", true, BENCH_VALUE_MAX, 10, run_search),
    CASE(DAYS, "sim_run_16384_54_days", "s", true, BENCH_VALUE_MAX, 5, run_days),
    {.area = "sim"}};
