/* SPDX-License-Identifier: Apache-2.0
 *
 * How soon every survivor knows that a rank is gone, from the signal (or the pulled plug) to the
 * return of the collective that it waited in.
 *
 *   harness   start ranks · all wait in a barrier but the victim · kill -9 ·     next ranks
 *   survivor                                       … SN_EPEER "rank 3 …" ◀── clock
 *
 * The survivors' sentences have to name the victim. */
#include "bench.h"
#include "bench_rig.h"

#include "os/os.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 4, VICTIM = 3, PATIENCE_S = 5, READY_S = 60 /* to touch 2 GiB */ };

typedef struct end {
    bool hosts;        /* two of them, over a wire */
    int signal;        /* to the victim; 0: its host's plug is pulled */
    uint64_t resident; /* what the victim has touched */
    int per_pair;      /* samples for each pair that the user asked for */
} end;

/* ---- in a rank ---- */

/* Whoever waits notes when it was told, and that it was told of the right one. */
static sn_status wait_for_end(bench_rank *r, bool cut, double ret[BENCH_VALUES])
{
    char named[32];
    sn_coll_call barrier = {.op = SN_BARRIER};
    sn_status status = sn_coll_run(r->group[BENCH_ALL], &barrier, sn_now() + PATIENCE_S * SN_SEC);
    ret[0] = (double) sn_now();
    snprintf(named, sizeof named, "rank %d", VICTIM);
    if (status == SN_OK)
        return sn_fail(SN_EFAIL, "a barrier without rank %d was passed", VICTIM);
    if (status != SN_EPEER)
        return sn_fail_in(status, "instead of a lost peer");
    if (!cut && !strstr(sn_errmsg(), named))
        return sn_fail(SN_EFAIL, "the victim is %s, but: %.300s", named, sn_errmsg());
    return SN_OK;
}

static sn_status do_end(bench_rank *r, const bench_ask *ask, double ret[BENCH_VALUES])
{
    sn_flag_line *ready = bench_rank_flag(r, 0);
    bool cut = ask->arg < 0;
    if (r->me == VICTIM && ask->arg > 0) {
        char *memory = malloc((size_t) ask->arg);
        if (!memory)
            return sn_fail(SN_ENOMEM, "no %lld bytes for the victim", (long long) ask->arg);
        memset(memory, 1, (size_t) ask->arg);
        __asm__ volatile("" : : "r"(memory) : "memory"); /* the writes are made */
    }
    bench_rank_meet(r);
    __atomic_add_fetch(&ready->word[0], 1, __ATOMIC_RELEASE);
    if (r->me != VICTIM || cut)
        return r->me == VICTIM ? SN_OK : wait_for_end(r, cut, ret);
    for (;;)
        pause();
}

/* ---- in the harness ---- */

/* Until all have met; then a little more, another each time, so that they are found spinning,
 * yielding and asleep. */
static sn_status let_them_wait(bench_rig *rig, int i)
{
    const uint32_t *ready = &bench_rig_flag(rig, 0)->word[0];
    sn_time deadline = sn_now() + READY_S * SN_SEC;
    while (__atomic_load_n(ready, __ATOMIC_ACQUIRE) < RANKS) {
        if (sn_now() > deadline)
            return sn_fail(SN_ETIME, "the ranks do not come to wait");
        sn_sleep_until(sn_now() + SN_MS);
    }
    sn_sleep_until(sn_now() + (sn_time) (sn_hash64(1, 2, (uint64_t) i) % 20) * SN_MS);
    return SN_OK;
}

static sn_status end_it(const end *e, bench_rig *rig, const bench_wire *wire, int i, double *ret)
{
    bench_world *w = bench_rig_world(rig);
    bench_ask ask = {.fn = do_end, .arg = e->signal ? (int64_t) e->resident : -1};
    SN_TRY(bench_rig_tell(rig, &ask));
    SN_TRY(let_them_wait(rig, i));
    double t = (double) sn_now(), last = 0;
    if (e->signal)
        bench_world_signal(w, VICTIM, e->signal);
    else
        SN_TRY(bench_wire_plug(wire, 1, false));
    SN_TRY(bench_world_hear(w, VICTIM));
    for (int r = 0; r < RANKS; r++)
        last = SN_MAX(last, r == VICTIM ? 0 : bench_world_value(w, r, 0));
    *ret = (last - t) * 1e-6;
    return SN_OK;
}

static sn_status end_once(const end *e, const bench_wire *wire, int i, double *ret)
{
    static const int host[RANKS] = {0, 0, 1, 1};
    bench_rig_opts opts = {
        .ranks = RANKS, .host = e->hosts ? host : NULL, .wire = wire, .detect_ns = BENCH_DETECT};
    bench_rig *rig;
    SN_TRY(bench_rig_start(&opts, &rig));
    sn_status status = end_it(e, rig, wire, i, ret);
    bench_rig_kill(rig);
    if (!e->signal)
        bench_wire_plug(wire, 1, true); /* for the next; if not, that one says so */
    return status;
}

static const end ends[] = {{false, SIGKILL, 64u << 20, 4}, {false, SIGKILL, 2ull << 30, 1},
                           {true, SIGKILL, 64u << 20, 4},  {false, SIGSTOP, 0, 1},
                           {true, SIGSTOP, 0, 1},          {true, 0, 0, 1}};

static void describe(const end *e, bench_result *ret)
{
    char size[32];
    int n = snprintf(ret->note, sizeof ret->note, "4 ranks %s, waiting in a barrier: %s",
                     e->hosts ? "on 2 hosts in namespaces" : "on one host",
                     e->signal == SIGKILL   ? "kill -9 of one"
                     : e->signal == SIGSTOP ? "SIGSTOP of one"
                                            : "the link of a host is cut");
    if (e->resident)
        n += snprintf(ret->note + n, sizeof ret->note - (size_t) n, " with %s resident",
                      sn_fmt_bytes(size, (double) e->resident));
    snprintf(ret->note + n, sizeof ret->note - (size_t) n,
             "; to the return of the last survivor, 99th percentile of %d", ret->samples);
}

static sn_status run_death(const bench_case *c, const bench_opts *o, bench_result *ret)
{
    const end *e = &ends[c->arg];
    bench_wire *wire = NULL;
    int samples = SN_MIN(o->pairs * e->per_pair, BENCH_SAMPLES_MAX);
    sn_status status = e->hosts ? bench_wire_create(2, 0, &wire) : SN_OK;
    if (status == SN_EPERM || status == SN_ENOTFOUND) {
        snprintf(ret->note, sizeof ret->note, "not measured: %.200s", sn_errmsg());
        return SN_OK;
    }
    for (int i = 0; i < samples && status >= 0; i++) {
        status = end_once(e, wire, i, &ret->sample[i]);
        ret->samples += status >= 0;
    }
    bench_wire_free(wire);
    describe(e, ret);
    return status;
}

#define CASE(i, label, most)                                                                       \
    {                                                                                              \
        .area = "heal", .name = "heal_known_" label, .unit = "ms", .less_is_better = true,         \
        .bar = BENCH_TAIL_MAX, .bar_value = most, .arg = i, .run = run_death                       \
    }

const bench_case bench_death[] = {CASE(0, "killed_64MiB", 20),
                                  CASE(1, "killed_2GiB", 20),
                                  CASE(2, "killed_other_host", 100),
                                  CASE(3, "stopped", 100),
                                  CASE(4, "stopped_other_host", 100),
                                  CASE(5, "link_cut", 100),
                                  {.area = "heal"}};
