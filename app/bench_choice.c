/* SPDX-License-Identifier: Apache-2.0
 *
 * What choosing costs: for a grid of calls, every row is run and the one that the calibrated model
 * chooses is set beside the best. */
#include "bench_calibrate.h"

#include "cmd.h"

#include "os/os.h"

#include <stdio.h>
#include <stdlib.h>

enum { BYTES_MAX = 2 << 20 };

static const int64_t sizes[] = {64, 1 << 10, 1 << 13, 1 << 16, 1 << 19, 1 << 21};

static sn_status one_choice(bench_shape *s, const sn_algo_model *m, double seconds, bench_choice *c)
{
    bench_rows rows;
    SN_TRY(sn_algo_choose(&s->group[BENCH_ALL], &c->call, m, NULL, &c->chosen, &c->predicted_ns));
    SN_TRY(bench_rows_measure(s, BENCH_ALL, &c->call, 0.6 * seconds, &rows));
    int best = bench_rows_best(&rows);
    c->best = rows.row[best];
    c->best_ns = rows.ns[best];
    for (int k = 0; k < rows.rows; k++)
        if (rows.row[k] == c->chosen)
            c->chosen_ns = rows.ns[k];
    return bench_rows_regret(s, BENCH_ALL, &c->call, &rows, c->chosen, 0.4 * seconds, &c->regret);
}

static int make_grid(int members, bench_choices *ret)
{
    for (int op = 0; op < SN_BARRIER; op++)
        for (size_t i = 0; i < SN_COUNT(sizes); i++) {
            sn_algo_call call = {
                .op = (sn_coll_op) op, .red = SN_SUM, .dtype = SN_F32, .count = sizes[i] / 4};
            if (bench_call_bytes(&call, members) <= BYTES_MAX && ret->n < BENCH_CHOICES_MAX)
                ret->at[ret->n++].call = call;
        }
    return ret->n;
}

static void sum_up(bench_choices *c)
{
    for (int i = 0; i < c->n; i++) {
        double regret = c->at[i].regret;
        c->mean += regret / c->n;
        c->worst = SN_MAX(c->worst, regret);
        c->within += (regret <= 0.05) / (double) c->n;
    }
}

sn_status bench_choices_measure(int hosts, int cards, const sn_algo_model *model, double seconds,
                                bench_choices *ret)
{
    sn_job job = {.hosts = hosts, .cards_per_host = cards};
    sn_topo *topo;
    bench_shape s;
    *ret = (bench_choices){0};
    SN_TRY(sn_job_topology(&job, &topo));
    bench_shape_opts opts = {
        .hosts = hosts, .cards = cards, .bytes = BYTES_MAX, .topo = topo, .model = model};
    sn_status status = bench_shape_start(&opts, &s);
    if (status >= 0) {
        s.by_name_too = true;
        int n = make_grid(hosts * cards, ret);
        for (int i = 0; i < n && status >= 0; i++)
            status = one_choice(&s, model, seconds / n, &ret->at[i]);
        bench_shape_stop(&s);
    }
    sn_topo_free(topo);
    sum_up(ret);
    return status;
}

/* ---- cases ---- */

static const int shapes[][2] = {{1, 2}, {1, 4}, {2, 1}, {2, 2}};

static sn_status run_choice(const bench_case *c, const bench_opts *o, bench_result *ret)
{
    int hosts = shapes[c->arg][0], cards = shapes[c->arg][1];
    bench_choices *all = sn_alloc(sizeof *all);
    sn_calibration *cal = sn_alloc(sizeof *cal);
    sn_status status = bench_calibrate(hosts, cards, 6, cal);
    if (status >= 0)
        status = bench_choices_measure(hosts, cards, &cal->model, 0.5 * o->pairs, all);
    for (int i = 0; i < all->n && status >= 0; i++)
        ret->sample[ret->samples++] = 100 * all->at[i].regret;
    snprintf(
        ret->note, sizeof ret->note,
        "%d calls of %d operations, 64 B to 2 MiB, each by every row, after a calibration "
        "of %.1f s (%d samples, fitted to within %.0f %%); worst %.0f %%, %.0f %% of the calls "
        "within 5 %%",
        all->n, SN_BARRIER, cal->seconds, cal->samples, 100 * cal->error, 100 * all->worst,
        100 * all->within);
    free(cal);
    free(all);
    return status;
}

#define CASE(i, label)                                                                             \
    {                                                                                              \
        .area = "choice", .name = "choice_regret_" label, .unit = "%", .less_is_better = true,     \
        .bar = BENCH_MEAN_MAX, .bar_value = 5, .arg = i, .run = run_choice                         \
    }

const bench_case bench_choice_cases[] = {CASE(0, "1_host_2_cards"),
                                         CASE(1, "1_host_4_cards"),
                                         CASE(2, "2_hosts_1_card"),
                                         CASE(3, "2_hosts_2_cards"),
                                         {.area = "choice"}};
