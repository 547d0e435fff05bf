/* SPDX-License-Identifier: Apache-2.0
 * What a rank of a rig has, and does when it is asked. */
#include "bench_loops.h"
#include "bench_rig.h"

#include "os/os.h"

#include <stdlib.h>
#include <string.h>

enum { OPEN_S = 30, RUN_S = 60 };

int64_t bench_in_count(sn_coll_op op, int64_t count, int n)
{
    return op == SN_REDUCE_SCATTER || op == SN_ALL_TO_ALL || op == SN_SCATTER ? count * n : count;
}

int64_t bench_out_count(sn_coll_op op, int64_t count, int n)
{
    return op == SN_ALL_GATHER || op == SN_ALL_TO_ALL || op == SN_GATHER ? count * n : count;
}

sn_flag_line *bench_rank_flag(bench_rank *r, int rank)
{
    return &r->shared->flag[rank];
}

int bench_group_members(const int *host, int ranks, int me, bench_group kind,
                        int ret[BENCH_WORLD_MAX])
{
    int local[BENCH_WORLD_MAX], n = 0, here;
    for (int r = 0; r < ranks; r++) {
        local[r] = 0;
        for (int q = 0; q < r; q++)
            local[r] += host && host[q] != host[r] ? 0 : 1;
    }
    for (int r = 0; r < ranks; r++) {
        here = !host || host[r] == host[me];
        if (kind == BENCH_ALL || (kind == BENCH_HOST ? here : local[r] == local[me]))
            ret[n++] = r;
    }
    return n;
}

void bench_rank_meet(bench_rank *r)
{
    if (r->shared) {
        bench_barrier_wait(&r->shared->barrier, r->opts->ranks);
        return;
    }
    sn_coll_call barrier = {.op = SN_BARRIER}; /* a failure comes again in what follows */
    sn_coll_run(r->group[BENCH_ALL], &barrier, sn_now() + RUN_S * SN_SEC);
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
    case SN_GATHER:
        return given((int) (i / count), i % count);
    case SN_ALL_TO_ALL:
        return given((int) (i / count), me * count + i % count);
    case SN_SCATTER:
        return given(0, me * count + i);
    default:
        return given(0, i); /* a broadcast's root's */
    }
}

static sn_status check_call(sn_coll_group *g, const sn_coll_call *call)
{
    int n = sn_coll_group_size(g), me = sn_coll_group_me(g);
    int64_t ins = bench_in_count(call->op, call->count, n);
    int64_t outs = bench_out_count(call->op, call->count, n);
    float *in = (float *) call->in, *out = call->out;
    for (int64_t i = 0; i < ins; i++)
        in[i] = given(me, i);
    SN_TRY(sn_coll_run(g, call, sn_now() + RUN_S * SN_SEC));
    for (int64_t i = 0; i < outs && !(call->op == SN_GATHER && me != call->root); i++)
        if (out[i] != wanted(call->op, n, me, call->count, i))
            return sn_fail(SN_EFAIL, "%s by %s gives %g at element %lld, not %g",
                           sn_coll_op_name(call->op), call->algorithm ? call->algorithm : "choice",
                           (double) out[i], (long long) i,
                           (double) wanted(call->op, n, me, call->count, i));
    sn_coll_call barrier = {.op = SN_BARRIER}; /* who reads my buffers has done so */
    SN_TRY(sn_coll_run(g, &barrier, sn_now() + RUN_S * SN_SEC));
    memset(in, 0, (size_t) ins * sizeof *in);
    memset(out, 0, (size_t) outs * sizeof *out);
    return SN_OK;
}

sn_status bench_do_call(bench_rank *r, const bench_ask *ask, double ret[BENCH_VALUES])
{
    sn_coll_call call = bench_rank_call(r, ask);
    sn_coll_group *g = r->group[ask->group];
    if (ask->check)
        return g && call.dtype == SN_F32 && call.op != SN_BARRIER ? check_call(g, &call) : SN_OK;
    bench_rank_meet(r);
    sn_time t = sn_now();
    for (int i = 0; i < ask->times && g; i++)
        SN_TRY(sn_coll_run(g, &call, t + RUN_S * SN_SEC));
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

/* ---- its life ---- */

void bench_rank_close(bench_rank *r)
{
    if (!r)
        return;
    for (int k = 0; k < BENCH_GROUPS; k++)
        if (r->group[k])
            sn_coll_group_free(r->group[k]);
    sn_coll_close(r->coll);
    sn_gmem_free(r->segment);
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

static sn_status make_groups(bench_rank *r, sn_time deadline)
{
    static const char *const name[] = {"bench", "host", "lane"};
    int host[BENCH_WORLD_MAX], members[BENCH_WORLD_MAX];
    for (int m = 0; m < r->opts->ranks; m++)
        host[m] = sn_net_host_index(r->net, m);
    for (int k = 0; k < BENCH_GROUPS; k++) {
        int n = bench_group_members(host, r->opts->ranks, r->me, (bench_group) k, members);
        if (n > 1)
            SN_TRY(sn_coll_group_create(r->coll, name[k], members, n, deadline, &r->group[k]));
    }
    int n = bench_group_members(host, r->opts->ranks, r->me, BENCH_HOST, members);
    return n > 1 ? sn_gmem_create(r->net, members, n, 4096, deadline, &r->segment) : SN_OK;
}

static sn_status open_rank(bench_rank *r)
{
    const bench_rig_opts *o = r->opts;
    sn_coll_opts opts = {.arena_bytes = o->in_bytes + o->out_bytes + 65536,
                         .topo = o->topo,
                         .model = o->model,
                         .threads = o->threads,
                         .deadline = sn_now() + OPEN_S * SN_SEC};
    if (o->record) {
        sn_recorder_opts rec = {
            .rank = r->me, .world = o->ranks, .host = sn_net_host_name(r->net, r->me)};
        SN_TRY(sn_recorder_create(o->record, &rec, &r->recorder));
    }
    opts.recorder = r->recorder;
    if (r->shared && r->shared->loop[r->me])
        memset(r->shared->loop[r->me], 0, o->loop_bytes);
    SN_TRY(sn_coll_open(r->net, &opts, &r->coll));
    SN_TRY(make_groups(r, opts.deadline));
    return make_buffers(r);
}

sn_status bench_rank_open(const bench_rig_opts *opts, bench_rig_shared *shared, sn_net *net,
                          bench_rank **ret)
{
    bench_rank *r = sn_alloc(sizeof *r);
    r->opts = opts;
    r->shared = shared;
    r->net = net;
    r->me = sn_net_rank(net);
    sn_status status = open_rank(r);
    if (status < 0)
        bench_rank_close(r);
    else
        *ret = r;
    return status;
}
