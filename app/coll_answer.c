/* SPDX-License-Identifier: Apache-2.0
 * The algorithms for a call: predicted, chosen, measured. */
#include "coll_question.h"

#include "bench_rows.h"

#include <stdlib.h>

#define MEASURE_S 3.0

static int by_time(const void *a, const void *b)
{
    const sn_row_times *x = a, *y = b;
    if (x->fits != y->fits)
        return x->fits ? -1 : 1;
    return x->ns < y->ns ? -1 : x->ns > y->ns;
}

sn_status sn_question_answer(const sn_question *q, sn_answer *a)
{
    const sn_algo_row *const *rows;
    int n = sn_algo_rows(&rows);
    *a = (sn_answer){0};
    SN_TRY(sn_algo_choose(&q->group, &q->call, &q->model, NULL, &a->choice, NULL));
    sn_algo_model bytes = q->model;
    bytes.signal_ns = bytes.net_latency_ns = bytes.net_message_ns = bytes.call_ns = 0;
    for (int i = 0; i < n && i < SN_ALGO_ROWS_MAX; i++) {
        sn_row_times *c = &a->candidate[a->candidates++];
        *c = (sn_row_times){.row = rows[i]};
        c->fits = sn_algo_fits(rows[i], &q->group, &q->call);
        if (!c->fits)
            continue;
        c->ns = sn_algo_cost_ns(rows[i], &q->group, &q->call, &q->model);
        c->waiting_ns = c->ns - sn_algo_cost_ns(rows[i], &q->group, &q->call, &bytes);
    }
    qsort(a->candidate, (size_t) a->candidates, sizeof *a->candidate, by_time);
    return SN_OK;
}

static sn_status measure_rows(const sn_question *q, bench_shape *s, sn_answer *a)
{
    bench_rows rows;
    SN_TRY(bench_rows_measure(s, BENCH_ALL, &q->call, MEASURE_S, &rows));
    for (int i = 0; i < a->candidates; i++)
        for (int k = 0; k < rows.rows; k++)
            if (a->candidate[i].row == rows.row[k])
                a->candidate[i].measured_ns = rows.ns[k];
    a->best = rows.row[bench_rows_best(&rows)];
    SN_TRY(bench_rows_regret(s, BENCH_ALL, &q->call, &rows, a->choice, MEASURE_S, &a->regret));
    a->where = bench_shape_words(s);
    a->measured = true;
    return SN_OK;
}

sn_status sn_question_measure(const sn_question *q, sn_answer *a)
{
    bench_shape s;
    if (q->cluster)
        return sn_fail(SN_ENOTSUP,
                       "--measure runs the collective on hosts emulated on this "
                       "machine; it cannot run it on those of %s",
                       q->cluster);
    if (q->group.members < 2)
        return sn_fail(SN_EFIT, "--measure needs two cards at least");
    bench_shape_opts opts = {.hosts = q->hosts,
                             .cards = q->cards,
                             .bytes = SN_MAX(bench_call_bytes(&q->call, q->group.members), 64),
                             .topo = q->topo,
                             .model = &q->model};
    SN_TRY(bench_shape_start(&opts, &s));
    s.by_name_too = true;
    sn_status status = measure_rows(q, &s, a);
    bench_shape_stop(&s);
    return status;
}
