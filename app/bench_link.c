/* SPDX-License-Identifier: Apache-2.0
 *
 * all_reduce of 64 MiB among 2 hosts × 2 ranks whose hosts may each send 1 Gbit/s: what is chosen
 * there, which goes by hierarchy, beside rings, and beside what the wire itself needs.
 *
 *                            crosses the wire, each way
 *   hierarchical             S               (each rank its half, with its partner)
 *   ring h0 h0 h1 h1         2 · 3/4 · S
 *   ring h0 h1 h0 h1         2 · 3/4 · S, twice at a time
 *
 * The bound is S at 1 Gbit/s, frames and headers of TCP not deducted (they are 5 %). */
#include "bench.h"
#include "bench_rig.h"

#include "os/os.h"

#include <stdio.h>

#define BITS_PER_S 1e9

enum { BYTES = 64 << 20, RANKS = 4 };

static const char *const rings[] = {"ring", "ring_round_robin"};

typedef struct other {
    bench_rig *rig;
    bench_ask ask;
} other;

static sn_status ask_other(void *ctx, int times, double *ret)
{
    other *x = ctx;
    x->ask.times = times;
    return bench_rig_ask(x->rig, &x->ask, ret);
}

static bench_ask ask_of(const char *algorithm)
{
    bench_ask ask = {
        .fn = bench_do_call, .op = SN_ALL_REDUCE, .dtype = SN_F32, .count = BYTES / 4, .times = 1};
    snprintf(ask.algorithm, sizeof ask.algorithm, "%s", algorithm);
    return ask;
}

/* What bench calibrate would find on such a link: the cores share nothing that is as slow. */
static sn_algo_model model_of_link(void)
{
    sn_algo_model m = sn_algo_model_from(NULL, NULL, 0);
    m.net_bytes_per_s = BITS_PER_S / 8;
    m.members_per_core = SN_MAX(1, (double) RANKS / sn_cores());
    return m;
}

static void describe(const sn_algo_row *chosen, bench_result *ret)
{
    snprintf(ret->note, sizeof ret->note,
             "64 MiB f32 sum in place by %s, which the model of such a link chooses; 2 hosts x 2 "
             "ranks in namespaces, each host sends 1 Gbit/s (tbf); slowest rank",
             chosen->name);
}

static sn_status measure(const bench_case *c, const bench_opts *o, const bench_wire *wire,
                         bench_result *ret)
{
    static const int host[RANKS] = {0, 0, 1, 1};
    sn_algo_model model = model_of_link();
    bench_rig_opts opts = {.ranks = RANKS,
                           .host = host,
                           .wire = wire,
                           .in_bytes = 64,
                           .out_bytes = BYTES,
                           .model = &model};
    bench_rig *rig;
    const sn_algo_row *chosen;
    sn_algo_group group = {.members = RANKS, .host = host, .model = &model};
    sn_algo_call call = {
        .op = SN_ALL_REDUCE, .red = SN_SUM, .dtype = SN_F32, .count = BYTES / 4, .in_place = true};
    SN_TRY(sn_algo_choose(&group, &call, &model, NULL, &chosen, NULL));
    bench_ask ask = ask_of(chosen->name);
    describe(chosen, ret);
    SN_TRY(bench_rig_start(&opts, &rig));
    other ring = {rig, ask_of(rings[c->arg])};
    bench_rival rival = {ask_other, &ring};
    sn_status status = bench_rig_pairs(rig, &ask, &rival, false, o->pairs, ret);
    ret->bound = (double) BYTES * 8 / BITS_PER_S * 1e6;
    bench_rig_stop(rig);
    return status;
}

static sn_status run_link(const bench_case *c, const bench_opts *o, bench_result *ret)
{
    bench_wire *wire;
    sn_status status = bench_wire_create(2, BITS_PER_S, &wire);
    if (status == SN_EPERM || status == SN_ENOTFOUND) {
        snprintf(ret->note, sizeof ret->note, "not measured: %.200s", sn_errmsg());
        return SN_OK;
    }
    SN_TRY(status);
    status = measure(c, o, wire, ret);
    bench_wire_free(wire);
    return status;
}

#define CASE(kind, label, who, least, share)                                                       \
    {                                                                                              \
        .area = "link", .name = label, .unit = "us", .less_is_better = true, .peer = who,          \
        .bound_name = "wire", .bar = BENCH_RATIO_MIN, .bar_value = least, .share_min = share,      \
        .arg = kind, .run = run_link                                                               \
    }

const bench_case bench_link[] = {
    CASE(0, "all_reduce_1Gbit_ring_in_order", "ring in host order", 1.4, 0.9),
    CASE(1, "all_reduce_1Gbit_ring_round_robin", "round-robin ring", 2.7, 0.9),
    {.area = "link"}};
