/* SPDX-License-Identifier: Apache-2.0
 *
 * all_reduce of f32 sums, in place, ranks on the cores of one host, beside Open MPI's.
 *
 * A sample is the mean of a burst of back-to-back operations, the slowest rank's; both sides do the
 * same burst. The bound is what no all-reduce in shared memory can beat: each rank reads its part
 * of all inputs once and writes it to all outputs once, between two barriers. */
#include "bench.h"
#include "bench_peer.h"
#include "bench_rig.h"

#include "os/os.h"

#include <stdio.h>

typedef struct size_case {
    int ranks, burst;
    uint64_t bytes;
    bool ordinary; /* malloc'ed buffers */
} size_case;

/* ---- Open MPI ---- */

static sn_status compile_peer(const bench_opts *o, const char *dir, char *ret, size_t max)
{
    char source[4096];
    sn_str said = {0};
    if (!bench_has("mpicc.openmpi") || !bench_has("mpirun.openmpi"))
        return sn_fail(SN_ENOTFOUND, "Open MPI is not installed");
    SN_TRY(bench_peer_file(o->peers, "peer_mpi.c", source, sizeof source));
    snprintf(ret, max, "%.4095s/peer_mpi", dir);
    const char *argv[] = {"mpicc.openmpi", "-O2", "-o", ret, source, NULL};
    int code = bench_capture(argv, 60, &said);
    sn_str_done(&said);
    return code == 0 ? SN_OK : sn_fail(SN_EFAIL, "mpicc.openmpi does not compile %s", source);
}

/* With more ranks than cores it has to yield; bound to cores, it would not get one. */
static sn_status start_peer(const bench_opts *o, const size_case *s, const char *dir,
                            bench_peer *ret)
{
    char program[4200], ranks[16], bytes[32];
    double ready;
    SN_TRY(compile_peer(o, dir, program, sizeof program));
    snprintf(ranks, sizeof ranks, "%d", s->ranks);
    snprintf(bytes, sizeof bytes, "%llu", (unsigned long long) s->bytes);
    bool crowded = s->ranks > sn_cores();
    const char *argv[] = {"mpirun.openmpi",
                          "--allow-run-as-root",
                          "--bind-to",
                          crowded ? "none" : "core",
                          "--mca",
                          "mpi_yield_when_idle",
                          crowded ? "1" : "0",
                          "-np",
                          ranks,
                          crowded ? "--oversubscribe" : "--nooversubscribe",
                          program,
                          bytes,
                          dir,
                          NULL};
    SN_TRY(bench_peer_start(argv, ret));
    sn_status status = bench_peer_ask(ret, "1", 30, &ready);
    if (status < 0)
        bench_peer_stop(ret, 1);
    return status;
}

static sn_status ask_peer(void *ctx, int times, double *ret)
{
    char line[32];
    snprintf(line, sizeof line, "%d", times);
    return bench_peer_ask(ctx, line, 120, ret);
}

/* ---- in the harness ---- */

static sn_status measure(const bench_opts *o, const size_case *s, bench_peer *peer,
                         bench_result *ret)
{
    bench_rig *rig;
    bool bounded = s->ranks <= sn_cores() && s->bytes >= 65536;
    bench_rig_opts opts = {.ranks = s->ranks,
                           .in_bytes = s->bytes,
                           .out_bytes = s->bytes,
                           .ordinary = s->ordinary,
                           .loop_bytes = bounded ? s->bytes : 0};
    bench_ask ask = {.fn = bench_do_call,
                     .op = SN_ALL_REDUCE,
                     .dtype = SN_F32,
                     .count = (int64_t) (s->bytes / 4),
                     .times = s->burst,
                     .ordinary = s->ordinary};
    bench_rival rival = {ask_peer, peer};
    SN_TRY(bench_rig_start(&opts, &rig));
    sn_status status = bench_rig_pairs(rig, &ask, peer ? &rival : NULL, bounded, o->pairs, ret);
    bench_rig_stop(rig);
    return status;
}

static sn_status run_size(const size_case *s, const bench_opts *o, bench_result *ret)
{
    char dir[4096];
    bench_peer peer = {.in = -1, .out = -1, .err = -1};
    SN_TRY(bench_dir_create(dir, sizeof dir));
    bool has = start_peer(o, s, dir, &peer) >= 0;
    snprintf(ret->note, sizeof ret->note,
             "in place, f32 sum, %s, mean of bursts of %d, slowest rank%s%.120s",
             s->ordinary ? "malloc'ed buffers" : "buffers in the segment", s->burst,
             has ? "" : "; no peer: ", has ? "" : sn_errmsg());
    sn_status status = measure(o, s, has ? &peer : NULL, ret);
    bench_peer_stop(&peer, 5);
    bench_dir_remove(dir);
    return status;
}

static const size_case sizes[] = {
    {2, 1000, 8, false},    {2, 200, 64 << 10, false}, {2, 40, 1 << 20, false},
    {2, 8, 8 << 20, false}, {2, 2, 64 << 20, false},   {2, 200, 64 << 10, true},
    {2, 40, 1 << 20, true}, {2, 8, 8 << 20, true},     {2, 2, 64 << 20, true},
    {4, 200, 4, false},     {4, 10, 1 << 20, false},   {8, 100, 4, false},
    {8, 5, 1 << 20, false}};

static sn_status run_all_reduce(const bench_case *c, const bench_opts *o, bench_result *ret)
{
    return run_size(&sizes[c->arg], o, ret);
}

#define CASE(i, label, least, share)                                                               \
    {                                                                                              \
        .area = "coll", .name = "all_reduce_" label, .unit = "us", .less_is_better = true,         \
        .peer = "Open MPI", .bound_name = "shared-memory loop", .bar = BENCH_RATIO_MIN,            \
        .bar_value = least, .share_min = share, .arg = i, .run = run_all_reduce                    \
    }

const bench_case bench_coll[] = {CASE(0, "2_ranks_8B", 1, 0),
                                 CASE(1, "2_ranks_64KiB", 4, 0.5),
                                 CASE(2, "2_ranks_1MiB", 3, 0.75),
                                 CASE(3, "2_ranks_8MiB", 3, 0.75),
                                 CASE(4, "2_ranks_64MiB", 4, 0.75),
                                 CASE(5, "2_ranks_64KiB_malloc", 1.5, 0),
                                 CASE(6, "2_ranks_1MiB_malloc", 1.5, 0),
                                 CASE(7, "2_ranks_8MiB_malloc", 1.5, 0),
                                 CASE(8, "2_ranks_64MiB_malloc", 1.5, 0),
                                 CASE(9, "4_ranks_4B", 2, 0),
                                 CASE(10, "4_ranks_1MiB", 3, 0),
                                 CASE(11, "8_ranks_4B", 2, 0),
                                 CASE(12, "8_ranks_1MiB", 3, 0),
                                 {.area = "coll"}};
