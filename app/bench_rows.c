/* SPDX-License-Identifier: Apache-2.0
 * Every algorithm for a call, timed in turn. */
#include "bench_rows.h"

#include "os/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ROUNDS_MIN = 3,
    ROUNDS_MAX = 25,
    TIMES_MAX = 2000,
    CHECK_MAX = 1 << 18 /* elements: filling in takes time */
};

/* ---- ranks ---- */

uint64_t bench_call_bytes(const sn_algo_call *c, int n)
{
    int64_t in = bench_in_count(c->op, c->count, n), out = bench_out_count(c->op, c->count, n);
    return (uint64_t) SN_MAX(in, out) * sn_dtype_bytes(c->dtype);
}

const char *bench_shape_words(const bench_shape *s)
{
    if (s->hosts == 1)
        return "one host";
    if (s->launched)
        return "hosts of the launcher";
    return s->wire ? "hosts in namespaces" : "hosts that are process groups over the loopback";
}

/* Rank 0's groups as the algorithms see them. */
static void describe_groups(bench_shape *s, const int *host, int ranks, const sn_algo_model *model)
{
    for (int k = 0; k < BENCH_GROUPS; k++) {
        int members[BENCH_WORLD_MAX];
        int n = bench_group_members(host, ranks, 0, (bench_group) k, members);
        for (int i = 0; i < n; i++)
            s->host[k][i] = host[members[i]];
        s->group[k] = (sn_algo_group){.members = n, .host = s->host[k], .model = model};
    }
}

static sn_status enough_memory(int ranks, uint64_t bytes)
{
    char a[32], b[32];
    double have = (double) sn_memory_available();
    double need = (double) ranks * (2.0 * (double) bytes + (16 << 20)); /* staging, themselves */
    if (need <= 0.8 * have)
        return SN_OK;
    return sn_fail(SN_EFIT, "%d ranks with such buffers need %s of memory, %s are available", ranks,
                   sn_fmt_bytes(a, need), sn_fmt_bytes(b, have));
}

static sn_status start_ranks(const bench_shape_opts *o, bench_shape *s)
{
    int host[BENCH_WORLD_MAX], ranks = o->hosts * o->cards;
    for (int r = 0; r < ranks; r++)
        host[r] = r / o->cards;
    describe_groups(s, host, ranks, o->model);
    bench_rig_opts opts = {.ranks = ranks,
                           .host = o->hosts > 1 ? s->host[BENCH_ALL] : NULL,
                           .wire = s->wire,
                           .in_bytes = o->bytes,
                           .out_bytes = o->bytes,
                           .topo = o->topo,
                           .model = o->model};
    SN_TRY(enough_memory(ranks, o->bytes));
    return bench_rig_start(&opts, &s->rig);
}

sn_status bench_shape_start(const bench_shape_opts *o, bench_shape *ret)
{
    if (o->hosts > BENCH_HOSTS_MAX || o->cards > BENCH_WORLD_MAX ||
        o->hosts * o->cards > BENCH_WORLD_MAX)
        return sn_fail(SN_EFIT, "%d hosts of %d cards cannot be run here: %d hosts, %d ranks can",
                       o->hosts, o->cards, BENCH_HOSTS_MAX, BENCH_WORLD_MAX);
    *ret = (bench_shape){.hosts = o->hosts, .cards = o->cards};
    sn_status status = o->hosts > 1 ? bench_wire_create(o->hosts, 0, &ret->wire) : SN_OK;
    if (status == SN_EPERM || status == SN_ENOTFOUND)
        status = SN_OK; /* process groups, then */
    if (status >= 0)
        status = start_ranks(o, ret);
    if (status < 0)
        bench_shape_stop(ret);
    return status;
}

sn_status bench_shape_join(sn_boot *boot, uint64_t bytes, bench_shape *ret)
{
    bench_rig_opts opts = {.in_bytes = bytes, .out_bytes = bytes};
    int host[BENCH_WORLD_MAX], ranks = sn_boot_world(boot);
    *ret = (bench_shape){.hosts = 1, .launched = true};
    SN_TRY(bench_rig_join(&opts, boot, &ret->rig, host));
    for (int r = 0; r < ranks; r++)
        ret->hosts = SN_MAX(ret->hosts, host[r] + 1);
    ret->cards = ranks / ret->hosts;
    describe_groups(ret, host, ranks, NULL);
    return SN_OK;
}

void bench_shape_stop(bench_shape *s)
{
    bench_rig_stop(s->rig);
    bench_wire_free(s->wire);
    *s = (bench_shape){0};
}

/* ---- rows ---- */

static void fitting(const bench_shape *s, bench_group group, const sn_algo_call *c, bench_rows *ret)
{
    const sn_algo_row *const *rows;
    int n = sn_algo_rows(&rows);
    for (int i = 0; i < n && ret->rows < BENCH_ROWS_MAX; i++)
        if ((s->by_name_too || !rows[i]->by_name) && sn_algo_fits(rows[i], &s->group[group], c))
            ret->row[ret->rows++] = rows[i];
}

static bench_ask ask_of(const sn_algo_call *c, bench_group group, const sn_algo_row *row)
{
    bench_ask ask = {.fn = bench_do_call,
                     .op = c->op,
                     .dtype = c->dtype,
                     .count = c->count,
                     .group = group,
                     .times = 1};
    snprintf(ask.algorithm, sizeof ask.algorithm, "%s", row->name);
    return ask;
}

/* Is it right, and how often is it done in a burst: so that one takes about `burst` seconds. */
static sn_status prepare(bench_shape *s, bench_ask *ask, double burst)
{
    bench_ask check = *ask;
    double t;
    check.check = ask->count <= CHECK_MAX;
    if (check.check)
        SN_TRY(bench_rig_ask(s->rig, &check, &t));
    for (int i = 0; i < 2; i++) { /* the first one builds the schedule */
        SN_TRY(bench_rig_ask(s->rig, ask, &t));
        ask->times = (int) SN_MIN(SN_MAX(1, burst / t), i ? TIMES_MAX : 8);
    }
    return SN_OK;
}

typedef double samples[BENCH_ROWS_MAX][ROUNDS_MAX];

static sn_status time_in_turn(bench_shape *s, const bench_ask *ask, sn_time end, bench_rows *ret,
                              samples sample)
{
    double t;
    for (; ret->rounds < ROUNDS_MAX; ret->rounds++) {
        if (ret->rounds >= ROUNDS_MIN && sn_now() > end)
            break;
        for (int k = 0; k < ret->rows; k++) {
            SN_TRY(bench_rig_ask(s->rig, &ask[k], &t));
            sample[k][ret->rounds] = t * 1e9;
        }
    }
    for (int k = 0; k < ret->rows; k++)
        ret->ns[k] = bench_median(sample[k], ret->rounds);
    return SN_OK;
}

sn_status bench_rows_measure(bench_shape *s, bench_group group, const sn_algo_call *c,
                             double seconds, bench_rows *ret)
{
    bench_ask ask[BENCH_ROWS_MAX];
    samples sample;
    sn_time end = sn_now() + (sn_time) (seconds * 1e9);
    *ret = (bench_rows){0};
    fitting(s, group, c, ret);
    for (int k = 0; k < ret->rows; k++) {
        ask[k] = ask_of(c, group, ret->row[k]);
        SN_TRY(prepare(s, &ask[k], seconds / (2 * ROUNDS_MAX) / ret->rows));
    }
    return time_in_turn(s, ask, end, ret, sample);
}

int bench_rows_best(const bench_rows *r)
{
    int best = 0;
    for (int k = 1; k < r->rows; k++)
        if (r->ns[k] < r->ns[best])
            best = k;
    return best;
}

sn_status bench_rows_regret(bench_shape *s, bench_group group, const sn_algo_call *c,
                            const bench_rows *rows, const sn_algo_row *row, double seconds,
                            double *ret)
{
    const sn_algo_row *best = rows->row[bench_rows_best(rows)];
    bench_rows duel = {.rows = 2, .row = {row, best}};
    bench_ask ask[2];
    samples sample;
    *ret = 0;
    if (row == best)
        return SN_OK;
    sn_time end = sn_now() + (sn_time) (seconds * 1e9);
    for (int k = 0; k < 2; k++) {
        ask[k] = ask_of(c, group, duel.row[k]);
        SN_TRY(prepare(s, &ask[k], seconds / (4 * ROUNDS_MAX)));
    }
    SN_TRY(time_in_turn(s, ask, end, &duel, sample));
    for (int i = 0; i < duel.rounds; i++)
        sample[0][i] /= sample[1][i];
    *ret = SN_MAX(bench_median(sample[0], duel.rounds) - 1, 0);
    return SN_OK;
}
