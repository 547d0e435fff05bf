/* SPDX-License-Identifier: Apache-2.0
 *
 * all_reduce of f32 sums, in place, ranks on the cores of one host, beside Open MPI's.
 *
 * A sample is the mean of a burst of back-to-back operations, the slowest rank's; both sides do the
 * same burst. The bound is what no all-reduce in shared memory can beat: each rank reads its part
 * of all inputs once and writes it to all outputs once, between two barriers. */
#include "bench.h"
#include "bench_loops.h"
#include "bench_peer.h"
#include "bench_world.h"

#include "coll/coll.h"
#include "os/os.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct size_case {
    int ranks, burst;
    size_t bytes;
} size_case;

static const size_case sizes[] = {{2, 1000, 8},     {2, 200, 65536},   {2, 40, 1 << 20},
                                  {2, 8, 8u << 20}, {2, 2, 64u << 20}, {4, 200, 4},
                                  {4, 10, 1 << 20}};

typedef struct shared { /* seen by all ranks */
    bench_barrier barrier;
    const size_case *size;
    float *buf[BENCH_WORLD_MAX]; /* for the bound */
} shared;

enum { BOUND_PLAIN = -1, BOUND_STREAM = -1001 }; /* minus the burst */

typedef struct ranked {
    shared *shared;
    int me;
    sn_net *net;
    sn_coll *coll;
    sn_coll_group *group;
    sn_coll_call call;
    float *buf;
} ranked;

/* ---- in a rank ---- */

static sn_status run_burst(ranked *r, int64_t burst, double *ret)
{
    bench_barrier_wait(&r->shared->barrier, r->shared->size->ranks);
    sn_time t = sn_now();
    for (int64_t i = 0; i < burst; i++)
        SN_TRY(sn_coll_run(r->group, &r->call, t + 60 * SN_SEC));
    *ret = (double) (sn_now() - t) * 1e-9 / (double) burst;
    return SN_OK;
}

static double run_bound(const ranked *r, int64_t burst, bool stream)
{
    shared *s = r->shared;
    int n = s->size->ranks;
    int64_t part = (int64_t) (s->size->bytes / 4) / n;
    bench_barrier_wait(&s->barrier, n);
    sn_time t = sn_now();
    for (int64_t i = 0; i < burst; i++) {
        bench_loop_sum(s->buf, n, r->me * part, (r->me + 1) * part, stream);
        bench_barrier_wait(&s->barrier, n);
    }
    return (double) (sn_now() - t) * 1e-9 / (double) burst;
}

static sn_status coll_step(void *state, int64_t arg, double ret[BENCH_VALUES])
{
    ranked *r = state;
    if (arg > 0)
        return run_burst(r, arg, &ret[0]);
    bool stream = arg <= BOUND_STREAM;
    ret[0] = run_bound(r, (stream ? BOUND_STREAM : BOUND_PLAIN) - arg + 1, stream);
    return SN_OK;
}

static void coll_close(void *state)
{
    ranked *r = state;
    if (r->group)
        sn_coll_group_free(r->group);
    sn_coll_close(r->coll);
    sn_net_close(r->net);
    free(r);
}

/* One operation on numbers that are known, then zeros, which stay zeros for ever. */
static sn_status check_sum(ranked *r)
{
    int n = r->shared->size->ranks;
    for (int64_t i = 0; i < r->call.count; i++)
        r->buf[i] = (float) (r->me + 1);
    SN_TRY(sn_coll_run(r->group, &r->call, sn_now() + 30 * SN_SEC));
    for (int64_t i = 0; i < r->call.count; i++)
        if (r->buf[i] != (float) (n * (n + 1) / 2))
            return sn_fail(SN_EFAIL, "the sum is wrong at element %lld", (long long) i);
    SN_TRY(sn_coll_run(r->group, &(sn_coll_call){.op = SN_BARRIER}, sn_now() + 30 * SN_SEC));
    memset(r->buf, 0, r->shared->size->bytes);
    return SN_OK;
}

static sn_status coll_open(sn_boot *boot, const bench_job *job, void **ret)
{
    ranked *r = sn_alloc(sizeof *r);
    void *buf;
    static const int members[BENCH_WORLD_MAX] = {0, 1, 2, 3, 4, 5, 6, 7};
    *ret = r;
    r->shared = job->ctx;
    r->me = sn_boot_rank(boot);
    const size_case *s = r->shared->size;
    sn_coll_opts opts = {.arena_bytes = s->bytes + 4096, .deadline = sn_now() + 30 * SN_SEC};
    SN_TRY(bench_net_open(boot, job, &r->net));
    SN_TRY(sn_coll_open(r->net, &opts, &r->coll));
    SN_TRY(sn_coll_group_create(r->coll, "bench", members, s->ranks, opts.deadline, &r->group));
    SN_TRY(sn_coll_alloc(r->coll, s->bytes, &buf));
    r->buf = buf;
    r->call = (sn_coll_call){.op = SN_ALL_REDUCE,
                             .red = SN_SUM,
                             .dtype = SN_F32,
                             .count = (int64_t) (s->bytes / 4),
                             .in = buf,
                             .out = buf};
    if (r->shared->buf[r->me])
        memset(r->shared->buf[r->me], 0, s->bytes);
    return check_sum(r);
}

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

static sn_status start_peer(const bench_opts *o, const size_case *s, const char *dir,
                            bench_peer *ret)
{
    char program[4200], ranks[16], bytes[32];
    double ready;
    SN_TRY(compile_peer(o, dir, program, sizeof program));
    snprintf(ranks, sizeof ranks, "%d", s->ranks);
    snprintf(bytes, sizeof bytes, "%zu", s->bytes);
    bool crowded = s->ranks > sn_cores();
    const char *argv[] = {"mpirun.openmpi",
                          "--allow-run-as-root",
                          "--bind-to",
                          crowded ? "none" : "core",
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

/* ---- in the harness ---- */

/* The faster of both ways to store. */
static sn_status choose_bound(bench_world *w, int burst, int64_t *ret)
{
    double best[2] = {HUGE_VAL, HUGE_VAL};
    int64_t ask[2] = {BOUND_PLAIN - burst + 1, BOUND_STREAM - burst + 1};
    for (int i = 0; i < 6; i++) {
        SN_TRY(bench_world_ask(w, ask[i % 2]));
        best[i % 2] = SN_MIN(best[i % 2], bench_world_max(w, 0));
    }
    *ret = ask[best[1] < best[0]];
    return SN_OK;
}

static sn_status measure(const bench_opts *o, const size_case *s, bench_world *w, bench_peer *peer,
                         bench_result *ret)
{
    double bound[BENCH_SAMPLES_MAX];
    char ask[32];
    int64_t ask_bound = 0;
    bool bounded = s->ranks == 2 && s->bytes >= 65536;
    snprintf(ask, sizeof ask, "%d", s->burst);
    SN_TRY(bench_world_ask(w, s->burst));
    if (bounded)
        SN_TRY(choose_bound(w, s->burst, &ask_bound));
    for (int i = 0; i < o->pairs; i++) {
        SN_TRY(bench_world_ask(w, s->burst));
        ret->sample[ret->samples++] = bench_world_max(w, 0) * 1e6;
        if (peer) {
            double t;
            SN_TRY(bench_peer_ask(peer, ask, 120, &t));
            ret->peer_sample[ret->peer_samples++] = t * 1e6;
        }
        if (bounded) {
            SN_TRY(bench_world_ask(w, ask_bound));
            bound[i] = bench_world_max(w, 0) * 1e6;
        }
    }
    if (bounded)
        ret->bound = bench_median(bound, o->pairs);
    return SN_OK;
}

static sn_status with_memory(const bench_opts *o, shared *s, bench_result *ret)
{
    char dir[4096];
    bench_peer peer = {.in = -1, .out = -1, .err = -1};
    bench_world *w;
    const size_case *z = s->size;
    bench_job job = {
        .world = z->ranks, .ctx = s, .open = coll_open, .step = coll_step, .close = coll_close};
    SN_TRY(bench_dir_create(dir, sizeof dir));
    bool has = start_peer(o, z, dir, &peer) >= 0;
    snprintf(ret->note, sizeof ret->note,
             "in place, f32 sum, mean of bursts of %d, slowest rank%s%.120s", z->burst,
             has ? "" : "; no peer: ", has ? "" : sn_errmsg());
    sn_status status = bench_world_start(&job, &w);
    if (status >= 0) {
        status = measure(o, z, w, has ? &peer : NULL, ret);
        bench_world_stop(w);
    }
    bench_peer_stop(&peer, 5);
    bench_dir_remove(dir);
    return status;
}

static sn_status run_all_reduce(const bench_case *c, const bench_opts *o, bench_result *ret)
{
    const size_case *z = &sizes[c->arg];
    size_t each = SN_ALIGN_UP(z->bytes, 4096), bytes = 4096 + each * (size_t) z->ranks;
    void *memory;
    SN_TRY(bench_shared(bytes, &memory));
    shared *s = memory;
    s->size = z;
    for (int r = 0; r < z->ranks; r++)
        s->buf[r] = (float *) ((char *) memory + 4096 + each * (size_t) r);
    sn_status status = with_memory(o, s, ret);
    bench_shared_free(memory, bytes);
    return status;
}

#define CASE(i, label, bar_kind, value)                                                            \
    {                                                                                              \
        .area = "coll", .name = label, .unit = "us", .less_is_better = true, .peer = "Open MPI",   \
        .bound_name = "shared-memory loop", .bar = bar_kind, .bar_value = value, .arg = i,         \
        .run = run_all_reduce                                                                      \
    }

const bench_case bench_coll[] = {CASE(0, "all_reduce_2_ranks_8B", BENCH_NO_BAR, 0),
                                 CASE(1, "all_reduce_2_ranks_64KiB", BENCH_NO_BAR, 0),
                                 CASE(2, "all_reduce_2_ranks_1MiB", BENCH_RATIO_MIN, 2),
                                 CASE(3, "all_reduce_2_ranks_8MiB", BENCH_RATIO_MIN, 2),
                                 CASE(4, "all_reduce_2_ranks_64MiB", BENCH_RATIO_MIN, 2),
                                 CASE(5, "all_reduce_4_ranks_4B", BENCH_NO_BAR, 0),
                                 CASE(6, "all_reduce_4_ranks_1MiB", BENCH_NO_BAR, 0),
                                 {.area = "coll"}};
