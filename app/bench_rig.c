/* SPDX-License-Identifier: Apache-2.0
 * Ranks with a communicator. */
#include "bench_rig.h"
#include "bench_loops.h"

#include "os/os.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { OPEN_S = 30, RUN_S = 60 };

typedef struct bench_rig_shared { /* by the harness and all ranks */
    bench_barrier barrier;
    sn_flag_line flag[BENCH_WORLD_MAX];
    bench_ask ask;
    float *loop[BENCH_WORLD_MAX];
} bench_rig_shared;

struct bench_rig {
    bench_rig_opts opts;
    bench_rig_shared *shared;
    size_t shared_bytes;
    bench_world *world;
};

int64_t bench_in_count(sn_coll_op op, int64_t count, int n)
{
    return op == SN_REDUCE_SCATTER || op == SN_ALL_TO_ALL ? count * n : count;
}

int64_t bench_out_count(sn_coll_op op, int64_t count, int n)
{
    return op == SN_ALL_GATHER || op == SN_ALL_TO_ALL ? count * n : count;
}

/* ---- in a rank ---- */

sn_flag_line *bench_rank_flag(bench_rank *r, int rank)
{
    return &r->shared->flag[rank];
}

void bench_rank_meet(bench_rank *r)
{
    bench_barrier_wait(&r->shared->barrier, r->opts->ranks);
}

static bool one_buffer(sn_coll_op op)
{
    return op == SN_ALL_REDUCE || op == SN_BROADCAST;
}

sn_coll_call bench_rank_call(const bench_rank *r, const bench_ask *ask)
{
    void *out = r->out[ask->ordinary];
    return (sn_coll_call){.op = ask->op,
                          .red = SN_SUM,
                          .dtype = ask->dtype,
                          .count = ask->count,
                          .in = one_buffer(ask->op) ? out : r->in[ask->ordinary],
                          .out = out,
                          .algorithm = *ask->algorithm ? ask->algorithm : NULL};
}

/* Member m's element i before the call: small whole numbers, whose sums are exact. */
static float given(int member, int64_t i)
{
    return (float) ((member + 1) * (1 + i % 5));
}

static float wanted(sn_coll_op op, int n, int me, int64_t count, int64_t i)
{
    int sum = n * (n + 1) / 2;
    switch (op) {
    case SN_ALL_REDUCE:
        return (float) (sum * (1 + i % 5));
    case SN_REDUCE_SCATTER:
        return (float) (sum * (1 + (me * count + i) % 5));
    case SN_ALL_GATHER:
        return given((int) (i / count), i % count);
    case SN_ALL_TO_ALL:
        return given((int) (i / count), me * count + i % count);
    default:
        return given(0, i); /* the root's */
    }
}

static sn_status check_call(const bench_rank *r, const sn_coll_call *call)
{
    int n = r->opts->ranks;
    int64_t ins = bench_in_count(call->op, call->count, n);
    int64_t outs = bench_out_count(call->op, call->count, n);
    float *in = (float *) call->in, *out = call->out;
    for (int64_t i = 0; i < ins; i++)
        in[i] = given(r->me, i);
    SN_TRY(sn_coll_run(r->group, call, sn_now() + RUN_S * SN_SEC));
    for (int64_t i = 0; i < outs; i++)
        if (out[i] != wanted(call->op, n, r->me, call->count, i))
            return sn_fail(SN_EFAIL, "%s by %s gives %g at element %lld, not %g",
                           sn_coll_op_name(call->op), call->algorithm ? call->algorithm : "choice",
                           (double) out[i], (long long) i,
                           (double) wanted(call->op, n, r->me, call->count, i));
    sn_coll_call barrier = {.op = SN_BARRIER}; /* who reads my buffers has done so */
    SN_TRY(sn_coll_run(r->group, &barrier, sn_now() + RUN_S * SN_SEC));
    memset(in, 0, (size_t) ins * sizeof *in);
    memset(out, 0, (size_t) outs * sizeof *out);
    return SN_OK;
}

sn_status bench_do_call(bench_rank *r, const bench_ask *ask, double ret[BENCH_VALUES])
{
    sn_coll_call call = bench_rank_call(r, ask);
    if (ask->check)
        return call.dtype == SN_F32 && call.op != SN_BARRIER ? check_call(r, &call) : SN_OK;
    bench_rank_meet(r);
    sn_time t = sn_now();
    for (int i = 0; i < ask->times; i++)
        SN_TRY(sn_coll_run(r->group, &call, t + RUN_S * SN_SEC));
    ret[0] = (double) (sn_now() - t) * 1e-9 / ask->times;
    return SN_OK;
}

sn_status bench_do_loop(bench_rank *r, const bench_ask *ask, double ret[BENCH_VALUES])
{
    int n = r->opts->ranks;
    int64_t part = ask->count / n;
    bench_rank_meet(r);
    sn_time t = sn_now();
    for (int i = 0; i < ask->times; i++) {
        bench_loop_sum(r->shared->loop, n, r->me * part, (r->me + 1) * part, ask->stream);
        bench_rank_meet(r);
    }
    ret[0] = (double) (sn_now() - t) * 1e-9 / ask->times;
    return SN_OK;
}

static sn_status rank_step(void *state, int64_t arg, double ret[BENCH_VALUES])
{
    bench_rank *r = state;
    bench_ask ask = r->shared->ask;
    return ask.fn(r, &ask, ret);
}

static void rank_close(void *state)
{
    bench_rank *r = state;
    if (r->group)
        sn_coll_group_free(r->group);
    sn_coll_close(r->coll);
    sn_net_close(r->net);
    sn_recorder_close(r->recorder, SN_OK, NULL);
    free(r->in[1]);
    free(r->out[1]);
    free(r);
}

static sn_status make_buffers(bench_rank *r)
{
    const bench_rig_opts *o = r->opts;
    SN_TRY(sn_coll_alloc(r->coll, SN_MAX(o->in_bytes, 64), &r->in[0]));
    SN_TRY(sn_coll_alloc(r->coll, SN_MAX(o->out_bytes, 64), &r->out[0]));
    if (!o->ordinary)
        return SN_OK;
    r->in[1] = sn_alloc(SN_MAX(o->in_bytes, 64));
    r->out[1] = sn_alloc(SN_MAX(o->out_bytes, 64));
    memset(r->in[1], 0, o->in_bytes); /* backed from here on */
    memset(r->out[1], 0, o->out_bytes);
    return SN_OK;
}

static sn_status open_coll(bench_rank *r)
{
    const bench_rig_opts *o = r->opts;
    int members[BENCH_WORLD_MAX];
    sn_coll_opts opts = {.arena_bytes = o->in_bytes + o->out_bytes + 65536,
                         .recorder = r->recorder,
                         .deadline = sn_now() + OPEN_S * SN_SEC};
    for (int m = 0; m < o->ranks; m++)
        members[m] = m;
    SN_TRY(sn_coll_open(r->net, &opts, &r->coll));
    SN_TRY(sn_coll_group_create(r->coll, "bench", members, o->ranks, opts.deadline, &r->group));
    return make_buffers(r);
}

static sn_status rank_open(sn_boot *boot, const bench_job *job, void **ret)
{
    const bench_rig *rig = job->ctx;
    bench_rank *r = sn_alloc(sizeof *r);
    *ret = r;
    r->opts = &rig->opts;
    r->shared = rig->shared;
    r->me = sn_boot_rank(boot);
    SN_TRY(bench_net_open(boot, job, &r->net));
    if (r->opts->record) {
        sn_recorder_opts o = {
            .rank = r->me, .world = r->opts->ranks, .host = sn_net_host_name(r->net, r->me)};
        SN_TRY(sn_recorder_create(r->opts->record, &o, &r->recorder));
    }
    if (r->shared->loop[r->me])
        memset(r->shared->loop[r->me], 0, r->opts->loop_bytes);
    return open_coll(r);
}

/* ---- in the harness ---- */

static sn_status share(bench_rig *rig)
{
    size_t each = SN_ALIGN_UP(rig->opts.loop_bytes, 4096);
    size_t head = SN_ALIGN_UP(sizeof(bench_rig_shared), 4096);
    void *memory;
    rig->shared_bytes = head + each * (size_t) rig->opts.ranks;
    SN_TRY(bench_shared(rig->shared_bytes, &memory));
    rig->shared = memory;
    for (int r = 0; r < rig->opts.ranks && each; r++)
        rig->shared->loop[r] = (float *) ((char *) memory + head + each * (size_t) r);
    return SN_OK;
}

sn_status bench_rig_start(const bench_rig_opts *opts, bench_rig **ret)
{
    bench_rig *rig = sn_alloc(sizeof *rig);
    rig->opts = *opts;
    bench_job job = {.world = opts->ranks,
                     .host = opts->host,
                     .wire = opts->wire,
                     .detect_ns = opts->detect_ns,
                     .ctx = rig,
                     .open = rank_open,
                     .step = rank_step,
                     .close = rank_close};
    sn_status status = share(rig);
    if (status >= 0)
        status = bench_world_start(&job, &rig->world);
    if (status < 0) {
        bench_rig_stop(rig);
        return status;
    }
    *ret = rig;
    return SN_OK;
}

void bench_rig_stop(bench_rig *rig)
{
    if (!rig)
        return;
    bench_world_stop(rig->world);
    bench_shared_free(rig->shared, rig->shared_bytes);
    free(rig);
}

void bench_rig_kill(bench_rig *rig)
{
    for (int r = 0; r < rig->opts.ranks; r++)
        bench_world_signal(rig->world, r, SIGKILL);
    bench_rig_stop(rig);
}

sn_flag_line *bench_rig_flag(bench_rig *rig, int rank)
{
    return &rig->shared->flag[rank];
}

sn_status bench_rig_tell(bench_rig *rig, const bench_ask *ask)
{
    rig->shared->ask = *ask;
    return bench_world_tell(rig->world, 0);
}

sn_status bench_rig_ask(bench_rig *rig, const bench_ask *ask, double *ret)
{
    SN_TRY(bench_rig_tell(rig, ask));
    SN_TRY(bench_world_hear(rig->world, -1));
    *ret = bench_world_max(rig->world, 0);
    return SN_OK;
}

bench_world *bench_rig_world(const bench_rig *rig)
{
    return rig->world;
}
