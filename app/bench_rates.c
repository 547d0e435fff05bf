/* SPDX-License-Identifier: Apache-2.0
 * How fast the parts of a collective are, each by itself: where a fit starts from. */
#include "bench_rig.h"

#include "fold/fold.h"
#include "os/os.h"

#include <string.h>

enum { BLOCK = 4 << 20, BLOCKS = 6, PINGS = 400, PARCELS = 16, FLIGHTS = 40, PATIENCE_S = 30 };

/* The two lowest of each host; as `signal` means it: half of there and back. */
sn_status bench_do_signal(bench_rank *r, const bench_ask *ask, double ret[BENCH_VALUES])
{
    int me = r->segment ? sn_gmem_me(r->segment) : -1;
    bench_rank_meet(r);
    if (me < 0 || me > 1)
        return SN_OK;
    sn_flag_line *mine = sn_gmem_head(r->segment, me), *other = sn_gmem_head(r->segment, !me);
    sn_time t = sn_now(), deadline = t + PATIENCE_S * SN_SEC;
    for (int i = 0; i < PINGS; i++) {
        r->round++;
        if (me == 0)
            sn_gmem_store_u32(&other->word[0], r->round);
        SN_TRY(sn_gmem_wait_u32(r->net, &mine->word[0], r->round, deadline));
        if (me == 1)
            sn_gmem_store_u32(&other->word[0], r->round);
    }
    ret[0] = (double) (sn_now() - t) * 1e-9 / PINGS / 2;
    return SN_OK;
}

/* Seconds of a block, so that the slowest is the largest; the harness turns it round. */
sn_status bench_do_copy(bench_rank *r, const bench_ask *ask, double ret[BENCH_VALUES])
{
    const sn_fold_table *k = sn_fold_kernels();
    SN_ASSERT(r->opts->in_bytes >= BLOCK && r->opts->out_bytes >= BLOCK);
    bench_rank_meet(r);
    if (ask->arg == 0 && r->me != 0)
        return SN_OK;
    sn_time t = sn_now();
    for (int i = 0; i < BLOCKS; i++)
        k->copy(r->out[0], r->in[0], BLOCK, false);
    ret[0] = (double) (sn_now() - t) * 1e-9 / BLOCKS / BLOCK;
    return SN_OK;
}

/* Two sources into one of them: what is read and written counts. */
sn_status bench_do_reduce(bench_rank *r, const bench_ask *ask, double ret[BENCH_VALUES])
{
    const sn_fold_table *k = sn_fold_kernels();
    void *dst[1] = {r->out[0]};
    const void *src[2] = {r->out[0], r->in[0]};
    sn_fold f = {.red = SN_SUM,
                 .dtype = SN_F32,
                 .dst = dst,
                 .src = src,
                 .dsts = 1,
                 .srcs = 2,
                 .count = BLOCK / 4};
    SN_ASSERT(r->opts->in_bytes >= BLOCK && r->opts->out_bytes >= BLOCK);
    bench_rank_meet(r);
    if (ask->arg == 0 && r->me != 0)
        return SN_OK;
    sn_time t = sn_now();
    for (int i = 0; i < BLOCKS; i++)
        k->fold(&f);
    ret[0] = (double) (sn_now() - t) * 1e-9 / BLOCKS / (3 * BLOCK);
    return SN_OK;
}

/* ---- between hosts ---- */

static sn_status move(bench_rank *r, int peer, bool out, int n)
{
    static char bytes[PARCELS][64];
    sn_net_req *req[PARCELS];
    for (int i = 0; i < n; i++)
        SN_TRY(out ? sn_net_send(r->net, peer, 7, bytes[i], 8, &req[i])
                   : sn_net_recv(r->net, peer, 7, bytes[i], 8, &req[i]));
    for (int i = 0; i < n; i++)
        SN_TRY(sn_net_wait(r->net, req[i], sn_now() + PATIENCE_S * SN_SEC, "a measured message"));
    return SN_OK;
}

/* Seconds of n small messages there and one back. */
static sn_status flight(bench_rank *r, int peer, int n, double *ret)
{
    bool first = r->me < peer;
    sn_time t = sn_now();
    for (int i = 0; i < FLIGHTS; i++) {
        SN_TRY(move(r, peer, first, n));
        SN_TRY(move(r, peer, !first, 1));
    }
    *ret = (double) (sn_now() - t) * 1e-9 / FLIGHTS;
    return SN_OK;
}

sn_status bench_do_net(bench_rank *r, const bench_ask *ask, double ret[BENCH_VALUES])
{
    int far = 1;
    double latency_ns, one, many;
    while (far < r->opts->ranks && sn_net_host_index(r->net, far) != 1)
        far++;
    bench_rank_meet(r);
    if (far == r->opts->ranks || (r->me != 0 && r->me != far))
        return SN_OK;
    int peer = r->me ? 0 : far;
    SN_TRY(sn_net_measure(r->net, peer, sn_now() + PATIENCE_S * SN_SEC, &latency_ns, &ret[1]));
    SN_TRY(flight(r, peer, 1, &one));
    SN_TRY(flight(r, peer, PARCELS, &many));
    ret[0] = latency_ns * 1e-9;
    ret[2] = SN_MAX(many - one, 0) / (PARCELS - 1);
    return SN_OK;
}
