/* SPDX-License-Identifier: Apache-2.0
 * Measuring and fitting. */
#include "bench_calibrate.h"

#include "cmd.h"

#include "os/os.h"

#include <stdlib.h>
#include <string.h>

enum { BYTES_MAX = 4 << 20, SAMPLES_MAX = 4096 };

/* Far apart first: should the time run out, all of the range has been seen. */
static const int64_t sizes[] = {1 << 14, 1 << 20, 1 << 8, 1 << 17, 1 << 11, 1 << 22};

typedef struct campaign {
    bench_shape shape;
    sn_algo_model start; /* from the topology and the rates */
    sn_algo_sample *sample;
    int samples, points, done; /* points: calls in groups */
    sn_time end;
} campaign;

/* ---- rates ---- */

static sn_status one_rate(bench_shape *s, const bench_ask *ask, double *ret)
{
    double t, best = 0;
    for (int i = 0; i < 3; i++) { /* the least: what it can do undisturbed */
        SN_TRY(bench_rig_ask(s->rig, ask, &t));
        best = best > 0 ? SN_MIN(best, t) : t;
    }
    *ret = best;
    return SN_OK;
}

static sn_status measure_rates(bench_shape *s, sn_calibration_rates *ret)
{
    bench_ask ask = {.fn = bench_do_signal};
    double signal, copy, alone, together, latency = 0;
    SN_TRY(one_rate(s, &ask, &signal));
    ask.fn = bench_do_copy;
    SN_TRY(one_rate(s, &ask, &copy));
    ask.fn = bench_do_reduce;
    SN_TRY(one_rate(s, &ask, &alone));
    ask.arg = 1;
    SN_TRY(one_rate(s, &ask, &together));
    ask.fn = bench_do_net;
    if (s->hosts > 1)
        SN_TRY(bench_rig_ask(s->rig, &ask, &latency));
    *ret = (sn_calibration_rates){.signal_ns = signal * 1e9,
                                  .copy_bytes_per_s = 1 / copy,
                                  .reduce_bytes_per_s = 1 / alone,
                                  .contention = SN_MAX(1, together / alone)};
    if (s->hosts == 1)
        return SN_OK;
    ret->net_latency_ns = latency * 1e9;
    ret->net_bytes_per_s = bench_rig_value(s->rig, 0, 1);
    ret->net_message_ns = bench_rig_value(s->rig, 0, 2) * 1e9;
    return SN_OK;
}

static void start_from(const sn_calibration_rates *r, sn_algo_model *m)
{
    if (r->signal_ns > 0)
        m->signal_ns = r->signal_ns;
    m->copy_bytes_per_s = r->copy_bytes_per_s;
    m->reduce_bytes_per_s = r->reduce_bytes_per_s;
    if (r->net_latency_ns > 0 && r->net_bytes_per_s > 0) {
        m->net_latency_ns = r->net_latency_ns;
        m->net_bytes_per_s = r->net_bytes_per_s;
        m->net_message_ns = SN_MAX(r->net_message_ns, 1);
    }
}

/* ---- calls ---- */

static sn_status sample_call(campaign *c, bench_group group, const sn_algo_call *call)
{
    bench_rows rows;
    double left = (double) (c->end - sn_now()) * 1e-9;
    int points = SN_MAX(c->points - c->done, 1);
    c->done++;
    if (left <= 0)
        return SN_OK;
    SN_TRY(bench_rows_measure(&c->shape, group, call, left / points, &rows));
    for (int k = 0; k < rows.rows && c->samples < SAMPLES_MAX; k++)
        c->sample[c->samples++] = (sn_algo_sample){.group = &c->shape.group[group],
                                                   .call = *call,
                                                   .row = rows.row[k],
                                                   .ns = rows.ns[k],
                                                   .members_per_core = c->start.members_per_core};
    return SN_OK;
}

/* A group worth measuring: more than one member, and not the whole under another name. */
static bool distinct(const bench_shape *s, bench_group k)
{
    return s->group[k].members > 1 &&
           (k == BENCH_ALL || s->group[k].members < s->group[BENCH_ALL].members);
}

static sn_status sample_size(campaign *c, bench_group group, int64_t bytes)
{
    for (int op = 0; op < SN_BARRIER; op++) {
        sn_algo_call call = {
            .op = (sn_coll_op) op, .red = SN_SUM, .dtype = SN_F32, .count = bytes / 4};
        bool fits = bench_call_bytes(&call, c->shape.group[group].members) <= BYTES_MAX;
        SN_TRY(fits ? sample_call(c, group, &call) : SN_OK);
        c->done += !fits;
    }
    return SN_OK;
}

static sn_status sample_calls(campaign *c)
{
    sn_algo_call barrier = {.op = SN_BARRIER, .dtype = SN_F32};
    for (int k = 0; k < BENCH_GROUPS; k++)
        c->points += distinct(&c->shape, (bench_group) k) ? SN_BARRIER * SN_COUNT(sizes) + 1 : 0;
    for (int k = 0; k < BENCH_GROUPS; k++)
        if (distinct(&c->shape, (bench_group) k))
            SN_TRY(sample_call(c, (bench_group) k, &barrier));
    for (size_t i = 0; i < SN_COUNT(sizes); i++)
        for (int k = 0; k < BENCH_GROUPS; k++)
            if (distinct(&c->shape, (bench_group) k))
                SN_TRY(sample_size(c, (bench_group) k, sizes[i]));
    return SN_OK;
}

static sn_status fit(campaign *c, sn_calibration *ret)
{
    c->sample = sn_alloc(SAMPLES_MAX * sizeof *c->sample);
    sn_status status = sample_calls(c);
    ret->model = c->start;
    ret->samples = c->samples;
    if (status >= 0)
        status = sn_algo_fit(c->sample, c->samples, &ret->model, &ret->error);
    free(c->sample);
    return status;
}

/* ---- all of it ---- */

static sn_status measure_and_fit(const sn_topo *topo, int hosts, int cards, sn_calibration *ret)
{
    int card[BENCH_WORLD_MAX];
    campaign c = {.end = sn_now() + (sn_time) (ret->seconds * 1e9)};
    for (int i = 0; i < hosts * cards && i < BENCH_WORLD_MAX; i++)
        card[i] = i;
    c.start = sn_algo_model_from(topo, card, SN_MIN(hosts * cards, BENCH_WORLD_MAX));
    bench_shape_opts opts = {
        .hosts = hosts, .cards = cards, .bytes = BYTES_MAX, .topo = topo, .model = &c.start};
    SN_TRY(bench_shape_start(&opts, &c.shape));
    sn_status status = measure_rates(&c.shape, &ret->rates);
    bench_shape_stop(&c.shape);
    SN_TRY(status);
    start_from(&ret->rates, &c.start);
    SN_TRY(bench_shape_start(&opts, &c.shape)); /* ranks that take segments by these rates */
    status = fit(&c, ret);
    bench_shape_stop(&c.shape);
    return status;
}

sn_status bench_calibrate(int hosts, int cards, double seconds, sn_calibration *ret)
{
    sn_job job = {.hosts = hosts, .cards_per_host = cards};
    sn_topo *topo;
    sn_time start = sn_now();
    *ret = (sn_calibration){
        .hosts = hosts, .cards = cards, .kind = sn_hosts_kind_of(hosts, false), .seconds = seconds};
    SN_TRY(sn_job_topology(&job, &topo));
    sn_status status = measure_and_fit(topo, hosts, cards, ret);
    sn_topo_free(topo);
    ret->seconds = (double) (sn_now() - start) * 1e-9;
    return status;
}

sn_status bench_calibrate_launched(sn_boot *boot, double seconds, sn_calibration *ret)
{
    campaign c = {.end = sn_now() + (sn_time) (seconds * 1e9)};
    sn_time start = sn_now();
    SN_TRY(bench_shape_join(boot, BYTES_MAX, &c.shape));
    if (sn_boot_rank(boot) != 0) {
        sn_status status = bench_rig_serve(c.shape.rig);
        bench_shape_stop(&c.shape);
        return status;
    }
    *ret = (sn_calibration){.hosts = c.shape.hosts,
                            .cards = c.shape.cards,
                            .kind = sn_hosts_kind_of(c.shape.hosts, true)};
    c.start = sn_algo_model_from(NULL, NULL, 0);
    sn_status status = measure_rates(&c.shape, &ret->rates);
    if (status >= 0) {
        start_from(&ret->rates, &c.start);
        c.start.members_per_core = SN_MAX(1, (double) c.shape.cards / sn_cores());
        status = fit(&c, ret);
    }
    bench_shape_stop(&c.shape);
    ret->seconds = (double) (sn_now() - start) * 1e-9;
    return status;
}
