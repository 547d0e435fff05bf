/* SPDX-License-Identifier: Apache-2.0
 * Ranks that are asked: forks of the harness, or what mpirun started. */
#include "bench_rig.h"

#include "os/os.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OPEN_S = 30, PATIENCE_S = 600 };

typedef struct answer { /* of a rank that mpirun started */
    int32_t status;
    char text[252];
    double value[BENCH_VALUES];
} answer;

struct bench_rig {
    bench_rig_opts opts;
    bench_rig_shared *shared;
    size_t shared_bytes;
    bench_world *world; /* forked … */
    bench_rank *own;    /* … or this process is one of them */
    answer *answer;     /* then: [ranks] */
};

/* ---- forked ranks ---- */

static sn_status rank_step(void *state, int64_t arg, double ret[BENCH_VALUES])
{
    bench_rank *r = state;
    bench_ask ask = r->shared->ask;
    return ask.fn(r, &ask, ret);
}

static void rank_close(void *state)
{
    bench_rank_close(state);
}

static sn_status rank_open(sn_boot *boot, const bench_job *job, void **ret)
{
    const bench_rig *rig = job->ctx;
    sn_net *net;
    bench_rank *r;
    SN_TRY(bench_net_open(boot, job, &net));
    SN_TRY(bench_rank_open(&rig->opts, rig->shared, net, &r));
    *ret = r;
    return SN_OK;
}

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

sn_status bench_rig_tell(bench_rig *rig, const bench_ask *ask)
{
    rig->shared->ask = *ask;
    return bench_world_tell(rig->world, 0);
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

bench_world *bench_rig_world(const bench_rig *rig)
{
    return rig->world;
}

/* ---- ranks that somebody else started ---- */

/* A function's address differs between processes, its place here does not. */
static sn_status (*const fns[])(bench_rank *r, const bench_ask *ask, double ret[BENCH_VALUES]) = {
    bench_do_call, bench_do_signal, bench_do_copy, bench_do_reduce, bench_do_net};

typedef struct order {
    int32_t fn; /* -1: no more */
    bench_ask ask;
} order;

static sn_status gather(bench_rig *rig, const void *mine, size_t bytes, void *ret)
{
    int members[BENCH_WORLD_MAX];
    for (int r = 0; r < rig->opts.ranks; r++)
        members[r] = r;
    return sn_net_gather(rig->own->net, members, rig->opts.ranks, mine, bytes,
                         sn_now() + PATIENCE_S * SN_SEC, ret);
}

/* Rank 0's order is everybody's; all do it and hear how it went. */
static sn_status obey(bench_rig *rig, const order *mine, bool *ret_more)
{
    order all[BENCH_WORLD_MAX];
    answer a = {0};
    SN_TRY(gather(rig, mine, sizeof *mine, all));
    *ret_more = all[0].fn >= 0 && all[0].fn < (int) SN_COUNT(fns);
    if (!*ret_more)
        return SN_OK;
    a.status = fns[all[0].fn](rig->own, &all[0].ask, a.value);
    if (a.status < 0)
        snprintf(a.text, sizeof a.text, "%.251s", sn_errmsg());
    SN_TRY(gather(rig, &a, sizeof a, rig->answer));
    for (int r = 0; r < rig->opts.ranks; r++)
        if (rig->answer[r].status < 0)
            return sn_fail((sn_status) rig->answer[r].status, "rank %d: %.251s", r,
                           rig->answer[r].text);
    return SN_OK;
}

static sn_status ask_launched(bench_rig *rig, const bench_ask *ask)
{
    order o = {.fn = -1, .ask = *ask};
    bool more;
    for (size_t i = 0; i < SN_COUNT(fns); i++)
        if (fns[i] == ask->fn)
            o.fn = (int32_t) i;
    return obey(rig, &o, &more);
}

sn_status bench_rig_serve(bench_rig *rig)
{
    order none = {.fn = -1};
    bool more = true;
    while (more)
        SN_TRY(obey(rig, &none, &more));
    return SN_OK;
}

sn_status bench_rig_join(const bench_rig_opts *opts, sn_boot *boot, bench_rig **ret, int *ret_host)
{
    char name[64] = "";
    sn_net *net;
    gethostname(name, sizeof name - 1);
    if (sn_boot_world(boot) > BENCH_WORLD_MAX)
        return sn_fail(SN_EFIT, "%d ranks; %d can be measured", sn_boot_world(boot),
                       BENCH_WORLD_MAX);
    bench_rig *rig = sn_alloc(sizeof *rig);
    rig->opts = *opts;
    rig->opts.ranks = sn_boot_world(boot);
    rig->answer = sn_alloc((size_t) rig->opts.ranks * sizeof *rig->answer);
    sn_net_opts net_opts = {
        .host_name = name, .deadline = sn_now() + OPEN_S * SN_SEC, .detect_ns = BENCH_PATIENT};
    sn_status status = sn_net_open(boot, &net_opts, &net);
    if (status >= 0)
        status = bench_rank_open(&rig->opts, NULL, net, &rig->own);
    if (status < 0) {
        bench_rig_stop(rig);
        return status;
    }
    for (int r = 0; r < rig->opts.ranks; r++)
        ret_host[r] = sn_net_host_index(net, r);
    *ret = rig;
    return SN_OK;
}

/* ---- both ---- */

sn_status bench_rig_ask(bench_rig *rig, const bench_ask *ask, double *ret)
{
    if (rig->own) {
        SN_TRY(ask_launched(rig, ask));
    } else {
        SN_TRY(bench_rig_tell(rig, ask));
        SN_TRY(bench_world_hear(rig->world, -1));
    }
    *ret = bench_rig_value(rig, 0, 0);
    for (int r = 1; r < rig->opts.ranks; r++)
        *ret = SN_MAX(*ret, bench_rig_value(rig, r, 0));
    return SN_OK;
}

double bench_rig_value(const bench_rig *rig, int rank, int i)
{
    return rig->own ? rig->answer[rank].value[i] : bench_world_value(rig->world, rank, i);
}

void bench_rig_stop(bench_rig *rig)
{
    order end = {.fn = -1};
    bool more;
    if (!rig)
        return;
    if (rig->own && rig->own->me == 0)
        obey(rig, &end, &more); /* the others leave; if they do not hear it, they are gone */
    bench_rank_close(rig->own);
    bench_world_stop(rig->world);
    bench_shared_free(rig->shared, rig->shared_bytes);
    free(rig->answer);
    free(rig);
}
