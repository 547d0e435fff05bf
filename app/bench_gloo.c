/* SPDX-License-Identifier: Apache-2.0
 * all_reduce of f32 sums, in place, ranks on one host, beside PyTorch's Gloo backend. */
#include "bench.h"
#include "bench_peer.h"
#include "bench_rig.h"

#include <stdio.h>
#include <string.h>

#define PYTHON "/usr/bin/python3" /* the one that Debian's python3-torch belongs to */

typedef struct gloo {
    int ranks;
    bench_peer rank[4];
    char dir[4096];
} gloo;

static void gloo_stop(gloo *g)
{
    for (int r = 0; r < g->ranks; r++)
        bench_peer_stop(&g->rank[r], 0);
    g->ranks = 0;
    if (*g->dir)
        bench_dir_remove(g->dir);
    *g->dir = 0;
}

/* The slowest rank's seconds. */
static sn_status gloo_ask(void *ctx, int times, double *ret)
{
    gloo *g = ctx;
    char line[128];
    double t, most = 0;
    snprintf(line, sizeof line, "%d", times);
    for (int r = 0; r < g->ranks; r++)
        SN_TRY(bench_peer_say(&g->rank[r], line));
    for (int r = 0; r < g->ranks; r++) {
        SN_TRY(bench_peer_line(&g->rank[r], 120, line, sizeof line));
        if (!sn_str_to_float(line, &t))
            return sn_fail(SN_EPEER, "Gloo answered '%.100s' instead of a number", line);
        most = SN_MAX(most, t);
    }
    *ret = most;
    return SN_OK;
}

static sn_status gloo_open(const bench_opts *o, int ranks, uint64_t bytes, gloo *g)
{
    char script[4096], meet[4200], size[32], world[16], rank[16];
    double warm;
    SN_TRY(bench_peer_file(o->peers, "peer_gloo.py", script, sizeof script));
    SN_TRY(bench_dir_create(g->dir, sizeof g->dir));
    snprintf(meet, sizeof meet, "%s/meet", g->dir);
    snprintf(size, sizeof size, "%llu", (unsigned long long) bytes);
    snprintf(world, sizeof world, "%d", ranks);
    for (int r = 0; r < ranks; r++) {
        snprintf(rank, sizeof rank, "%d", r);
        const char *argv[] = {PYTHON, script, size, rank, world, meet, NULL};
        SN_TRY(bench_peer_start(argv, &g->rank[r]));
        g->ranks = r + 1;
    }
    return gloo_ask(g, 1, &warm);
}

static sn_status gloo_start(const bench_opts *o, int ranks, uint64_t bytes, gloo *g)
{
    const char *argv[] = {PYTHON, "-c", "import torch.distributed", NULL};
    sn_str said = {0};
    memset(g, 0, sizeof *g);
    int code = bench_capture(argv, 120, &said);
    sn_str_done(&said);
    if (code != 0)
        return sn_fail(SN_ENOTFOUND, "python3-torch is not installed");
    sn_status status = gloo_open(o, ranks, bytes, g);
    if (status < 0)
        gloo_stop(g);
    return status;
}

static const struct {
    int ranks, burst;
    uint64_t bytes;
} sizes[] = {{2, 10, 4 << 20}, {2, 2, 64 << 20}, {4, 5, 4 << 20}, {4, 1, 64 << 20}};

static sn_status run_gloo(const bench_case *c, const bench_opts *o, bench_result *ret)
{
    int ranks = sizes[c->arg].ranks;
    uint64_t bytes = sizes[c->arg].bytes;
    gloo g;
    bench_rig *rig;
    bool has = gloo_start(o, ranks, bytes, &g) >= 0;
    snprintf(
        ret->note, sizeof ret->note,
        "in place, f32 sum, buffers in the segment, mean of bursts of %d, slowest rank%s%.120s",
        sizes[c->arg].burst, has ? "" : "; no peer: ", has ? "" : sn_errmsg());
    bench_rig_opts opts = {.ranks = ranks, .in_bytes = bytes, .out_bytes = bytes};
    bench_ask ask = {.fn = bench_do_call,
                     .op = SN_ALL_REDUCE,
                     .dtype = SN_F32,
                     .count = (int64_t) (bytes / 4),
                     .times = sizes[c->arg].burst};
    bench_rival rival = {gloo_ask, &g};
    sn_status status = bench_rig_start(&opts, &rig);
    if (status >= 0) {
        status = bench_rig_pairs(rig, &ask, has ? &rival : NULL, false, o->pairs, ret);
        bench_rig_stop(rig);
    }
    gloo_stop(&g);
    return status;
}

#define CASE(i, label)                                                                             \
    {                                                                                              \
        .area = "gloo", .name = "all_reduce_gloo_" label, .unit = "us", .less_is_better = true,    \
        .peer = "Gloo", .bar = BENCH_RATIO_MIN, .bar_value = 4, .arg = i, .run = run_gloo          \
    }

const bench_case bench_gloo[] = {CASE(0, "2_ranks_4MiB"),
                                 CASE(1, "2_ranks_64MiB"),
                                 CASE(2, "4_ranks_4MiB"),
                                 CASE(3, "4_ranks_64MiB"),
                                 {.area = "gloo"}};
