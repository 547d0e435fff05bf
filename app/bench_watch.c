/* SPDX-License-Identifier: Apache-2.0
 *
 * What watching costs: a small all_reduce of two ranks with and without noticing silent peers, and
 * with and without the flight recorder. Two pairs of ranks take turns; the "peer" is the pair that
 * does without. Where a rank's memory happens to lie makes it some per cent faster or slower for
 * life, so every sample has ranks of its own. And how soon an abort, from a thread of its own, ends
 * what all members wait in. */
#include "bench.h"
#include "bench_peer.h"
#include "bench_rig.h"

#include "os/os.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { RECORDER, DETECT_HOST, DETECT_HOSTS };
enum { BURSTS = 5 }; /* of each side, in turns, for a sample: their median */

static sn_status ask_without(void *ctx, int times, double *ret)
{
    bench_ask ask = {
        .fn = bench_do_call, .op = SN_ALL_REDUCE, .dtype = SN_F32, .count = 2, .times = times};
    return bench_rig_ask(ctx, &ask, ret);
}

/* With and without, started in this order or the other. */
static sn_status start(const bench_rig_opts *opts, const bench_rig_opts *bare, bool bare_first,
                       bench_rig *ret[2])
{
    const bench_rig_opts *side[2] = {opts, bare};
    SN_TRY(bench_rig_start(side[bare_first], &ret[bare_first]));
    sn_status status = bench_rig_start(side[!bare_first], &ret[!bare_first]);
    if (status < 0)
        bench_rig_stop(ret[bare_first]);
    return status;
}

/* One sample, of fresh ranks. */
static sn_status pair(const bench_rig_opts *opts, const bench_rig_opts *bare, const bench_ask *ask,
                      bench_result *ret)
{
    bench_rig *rig[2];
    bench_result *r = sn_alloc(sizeof *r);
    bool bare_first = ret->samples % 2;
    sn_status status = start(opts, bare, bare_first, rig);
    if (status >= 0) {
        bench_rival rival = {ask_without, rig[1]};
        status = bench_rig_pairs(rig[0], ask, &rival, false, BURSTS, r);
        bench_rig_stop(rig[!bare_first]); /* its ranks hold copies of the other's pipes */
        bench_rig_stop(rig[bare_first]);
    }
    if (status >= 0) {
        ret->sample[ret->samples++] = bench_median(r->sample, BURSTS);
        ret->peer_sample[ret->peer_samples++] = bench_median(r->peer_sample, BURSTS);
    }
    free(r);
    return status;
}

static sn_status measure(const bench_case *c, const bench_opts *o, const char *dir,
                         bench_result *ret)
{
    static const int apart[] = {0, 1};
    sn_status status = SN_OK;
    bench_rig_opts opts = {
        .ranks = 2, .host = c->arg == DETECT_HOSTS ? apart : NULL, .detect_ns = BENCH_DETECT};
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
    for (int i = 0; i < o->pairs && status >= 0; i++)
        status = pair(&opts, &bare, &ask, ret);
    return status;
}

static sn_status run_watch(const bench_case *c, const bench_opts *o, bench_result *ret)
{
    char dir[4096];
    SN_TRY(bench_dir_create(dir, sizeof dir));
    sn_status status = measure(c, o, dir, ret);
    bench_dir_remove(dir);
    snprintf(ret->note, sizeof ret->note,
             "8 B all_reduce, 2 ranks %s, slowest rank, median of %d, fresh ranks for each sample",
             c->arg == DETECT_HOSTS ? "on two hosts over the loopback, means of bursts of 500"
                                    : "on one host, means of bursts of 10000",
             BURSTS);
    return status;
}

/* ---- abort ---- */

enum { ABORT_RANKS = 4, ABORTER = 0, ABSENT = 3 };

typedef struct aborter {
    sn_coll_group *group;
    sn_time at; /* when it aborts, and then when it did */
} aborter;

static void *abort_at(void *ctx)
{
    aborter *a = ctx;
    sn_sleep_until(a->at);
    a->at = sn_now();
    sn_coll_group_abort(a->group, "the bench asked for it");
    return NULL;
}

/* All wait in a barrier that one does not enter, until a thread of rank 0 aborts. */
static sn_status wait_for_abort(bench_rank *r, sn_coll_group *g, double ret[BENCH_VALUES])
{
    sn_coll_call barrier = {.op = SN_BARRIER};
    aborter a = {.group = g, .at = sn_now() + 5 * SN_MS};
    pthread_t thread;
    if (r->me == ABORTER && pthread_create(&thread, NULL, abort_at, &a))
        return sn_fail(SN_EIO, "no thread for the abort");
    sn_status status = sn_coll_run(g, &barrier, sn_now() + 5 * SN_SEC);
    ret[0] = (double) sn_now();
    if (r->me == ABORTER) {
        pthread_join(thread, NULL);
        ret[1] = (double) a.at;
    }
    if (status == SN_ECANCEL)
        return SN_OK;
    return status < 0 ? sn_fail_in(status, "instead of an abort")
                      : sn_fail(SN_EFAIL, "a barrier without rank %d was passed", ABSENT);
}

static sn_status do_abort(bench_rank *r, const bench_ask *ask, double ret[BENCH_VALUES])
{
    static const int members[ABORT_RANKS] = {0, 1, 2, 3};
    sn_coll_group *g;
    SN_TRY(
        sn_coll_group_create(r->coll, "aborted", members, ABORT_RANKS, sn_now() + 10 * SN_SEC, &g));
    bench_rank_meet(r);
    sn_status status = r->me == ABSENT ? SN_OK : wait_for_abort(r, g, ret);
    bench_rank_meet(r); /* nobody takes his block away from the others */
    sn_coll_group_free(g);
    return status;
}

static sn_status run_abort(const bench_case *c, const bench_opts *o, bench_result *ret)
{
    static const int host[ABORT_RANKS] = {0, 0, 1, 1};
    bench_rig_opts opts = {.ranks = ABORT_RANKS, .host = c->arg ? host : NULL, .threads = true};
    bench_ask ask = {.fn = do_abort};
    bench_rig *rig;
    double last;
    SN_TRY(bench_rig_start(&opts, &rig));
    sn_status status = SN_OK;
    for (int i = 0; i < SN_MIN(4 * o->pairs, BENCH_SAMPLES_MAX) && status >= 0; i++) {
        status = bench_rig_ask(rig, &ask, &last);
        if (status >= 0)
            ret->sample[ret->samples++] = (last - bench_rig_value(rig, ABORTER, 1)) * 1e-6;
    }
    bench_rig_stop(rig);
    snprintf(ret->note, sizeof ret->note,
             "abort from a thread of one of 4 ranks %s to the return of the last member from a "
             "barrier; 99th percentile of %d",
             c->arg ? "on 2 hosts over the loopback" : "on one host", ret->samples);
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
    {.area = "watch",
     .name = "watch_abort_4_ranks",
     .unit = "ms",
     .less_is_better = true,
     .bar = BENCH_TAIL_MAX,
     .bar_value = 20,
     .run = run_abort},
    {.area = "watch",
     .name = "watch_abort_2_hosts",
     .unit = "ms",
     .less_is_better = true,
     .bar = BENCH_TAIL_MAX,
     .bar_value = 100,
     .arg = 1,
     .run = run_abort},
    {.area = "watch"}};
