/* SPDX-License-Identifier: Apache-2.0
 *
 * What watching costs: a small all_reduce of two ranks with and without noticing silent peers, and
 * with and without the flight recorder. Two pairs of ranks take turns; the "peer" is the pair that
 * does without. */
#include "bench.h"
#include "bench_peer.h"
#include "bench_rig.h"

#include <stdio.h>

enum { RECORDER, DETECT_HOST, DETECT_HOSTS };

static sn_status ask_without(void *ctx, int times, double *ret)
{
    bench_ask ask = {
        .fn = bench_do_call, .op = SN_ALL_REDUCE, .dtype = SN_F32, .count = 2, .times = times};
    return bench_rig_ask(ctx, &ask, ret);
}

static sn_status measure(const bench_case *c, const bench_opts *o, const char *dir,
                         bench_result *ret)
{
    static const int apart[] = {0, 1};
    bench_rig *with, *without;
    bench_rig_opts opts = {.ranks = 2, .host = c->arg == DETECT_HOSTS ? apart : NULL};
    bench_rig_opts bare = opts;
    bench_ask ask = {.fn = bench_do_call,
                     .op = SN_ALL_REDUCE,
                     .dtype = SN_F32,
                     .count = 2,
                     .times = c->arg == DETECT_HOSTS ? 500 : 10000};
    if (c->arg == RECORDER)
        opts.record = dir;
    else
        bare.detect_ns = -1;
    SN_TRY(bench_rig_start(&opts, &with));
    sn_status status = bench_rig_start(&bare, &without);
    if (status >= 0) {
        bench_rival rival = {ask_without, without};
        status = bench_rig_pairs(with, &ask, &rival, false, o->pairs, ret);
        bench_rig_stop(without);
    }
    bench_rig_stop(with);
    return status;
}

static sn_status run_watch(const bench_case *c, const bench_opts *o, bench_result *ret)
{
    char dir[4096];
    SN_TRY(bench_dir_create(dir, sizeof dir));
    sn_status status = measure(c, o, dir, ret);
    bench_dir_remove(dir);
    snprintf(ret->note, sizeof ret->note, "8 B all_reduce, 2 ranks %s, slowest rank",
             c->arg == DETECT_HOSTS ? "on two hosts over the loopback, mean of bursts of 500"
                                    : "on one host, mean of bursts of 10000");
    return status;
}

#define CASE(kind, label, who, kind_of_bar, least)                                                 \
    {                                                                                              \
        .area = "watch", .name = "watch_" label, .unit = "us", .less_is_better = true,             \
        .peer = who, .bar = kind_of_bar, .bar_value = least, .arg = kind, .run = run_watch         \
    }

const bench_case bench_watch[] = {
    CASE(DETECT_HOST, "silence_2_ranks_8B", "without noticing silence", BENCH_RATIO_MIN, 0.97),
    CASE(DETECT_HOSTS, "silence_2_hosts_8B", "without noticing silence", BENCH_RATIO_MIN, 0.97),
    CASE(RECORDER, "recorder_2_ranks_8B", "without the recorder", BENCH_NO_BAR, 0),
    {.area = "watch"}};
