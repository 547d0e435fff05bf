/* SPDX-License-Identifier: Apache-2.0
 * Every algorithm for a call, timed in turn. */
#include "bench_rows.h"

#include "os/os.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS_MIN = 3, ROUNDS_MAX = 25, TIMES_MAX = 2000 };

/* ---- ranks ---- */

uint64_t bench_call_bytes(const sn_algo_call *c, int n)
{
    int64_t in = bench_in_count(c->op, c->count, n), out = bench_out_count(c->op, c->count, n);
    return (uint64_t) SN_MAX(in, out) * sn_dtype_bytes(c->dtype);
}

const char *bench_shape_hosts(const bench_shape *s)
{
    if (s->hosts == 1)
        return "one host";
    return s->own ? "hosts in namespaces" : "hosts that are process groups over the loopback";
}

static sn_status start_ranks(bench_shape *s, uint64_t bytes)
{
    bench_rig_opts opts = {.ranks = s->group.members,
                           .host = s->hosts > 1 ? s->host : NULL,
                           .wire = s->own,
                           .in_bytes = bytes,
                           .out_bytes = bytes};
    /* Parts, staging, and what the ranks' programs need themselves. */
    double need = (double) s->group.members * (2.0 * (double) bytes + (16 << 20));
    if (need > 0.8 * (double) sn_memory_available()) {
        char a[32], b[32];
        return sn_fail(SN_EFIT, "%d ranks with such buffers need %s, %s are available",
                       s->group.members, sn_fmt_bytes(a, need),
                       sn_fmt_bytes(b, (double) sn_memory_available()));
    }
    return bench_rig_start(&opts, &s->rig);
}

sn_status bench_shape_start(int hosts, int cards, uint64_t bytes, bench_shape *ret)
{
    if (hosts > BENCH_HOSTS_MAX || cards > BENCH_WORLD_MAX || hosts * cards > BENCH_WORLD_MAX)
        return sn_fail(SN_EFIT, "%d hosts of %d cards are more than can be run here: %d ranks",
                       hosts, cards, BENCH_WORLD_MAX);
    *ret = (bench_shape){.hosts = hosts, .cards = cards};
    for (int m = 0; m < hosts * cards; m++)
        ret->host[m] = m / cards;
    ret->group = (sn_algo_group){.members = hosts * cards, .host = ret->host};
    sn_status status = hosts > 1 ? bench_wire_create(hosts, 0, &ret->own) : SN_OK;
    if (status == SN_EPERM || status == SN_ENOTFOUND)
        status = SN_OK; /* process groups, then */
    if (status >= 0)
        status = start_ranks(ret, bytes);
    if (status < 0)
        bench_shape_stop(ret);
    return status;
}

void bench_shape_stop(bench_shape *s)
{
    bench_rig_stop(s->rig);
    bench_wire_free(s->own);
    *s = (bench_shape){0};
}

/* ---- rows ---- */

static void fitting(const bench_shape *s, const sn_algo_call *c, bench_rows *ret)
{
    const sn_algo_row *const *rows;
    int n = sn_algo_rows(&rows);
    for (int i = 0; i < n && ret->rows < BENCH_ROWS_MAX; i++)
        if ((rows[i]->ops >> c->op & 1) != 0 && rows[i]->fits(&s->group, c))
            ret->row[ret->rows++] = rows[i];
}

static bench_ask ask_of(const sn_algo_call *c, const sn_algo_row *row)
{
    bench_ask ask = {
        .fn = bench_do_call, .op = c->op, .dtype = c->dtype, .count = c->count, .times = 1};
    snprintf(ask.algorithm, sizeof ask.algorithm, "%s", row->name);
    return ask;
}

/* Is it right, and how often is it done in a burst: so that one takes about `burst` seconds. */
static sn_status prepare(bench_shape *s, bench_ask *ask, double burst)
{
    bench_ask check = *ask;
    double t;
    check.check = true;
    SN_TRY(bench_rig_ask(s->rig, &check, &t));
    for (int i = 0; i < 2; i++) { /* the first one builds the schedule */
        SN_TRY(bench_rig_ask(s->rig, ask, &t));
        ask->times = (int) SN_MIN(SN_MAX(1, burst / t), i ? TIMES_MAX : 8);
    }
    return SN_OK;
}

sn_status bench_rows_measure(bench_shape *s, const sn_algo_call *c, double seconds, bench_rows *ret)
{
    bench_ask ask[BENCH_ROWS_MAX];
    double sample[BENCH_ROWS_MAX][ROUNDS_MAX], t;
    *ret = (bench_rows){0};
    fitting(s, c, ret);
    sn_time end = sn_now() + (sn_time) (seconds * 1e9);
    for (int k = 0; k < ret->rows; k++) {
        ask[k] = ask_of(c, ret->row[k]);
        SN_TRY(prepare(s, &ask[k], seconds / (2 * ROUNDS_MAX) / ret->rows));
    }
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

int bench_rows_best(const bench_rows *r)
{
    int best = 0;
    for (int k = 1; k < r->rows; k++)
        if (r->ns[k] < r->ns[best])
            best = k;
    return best;
}

double bench_rows_regret(const bench_rows *r, const sn_algo_row *row)
{
    for (int k = 0; k < r->rows; k++)
        if (r->row[k] == row)
            return r->ns[k] / r->ns[bench_rows_best(r)] - 1;
    return NAN;
}
