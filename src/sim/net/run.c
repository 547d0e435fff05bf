/* SPDX-License-Identifier: Apache-2.0
 *
 * A run from options to result: check, set up, loop until all flows are through, sum up. */
#include "fabric.h"

#include <math.h>
#include <stdlib.h>

enum { PACE_BYTES = 1000000 }; /* flows of so many bytes enter Jain's index */

void sn_roce_defaults(sn_roce_opts *ret)
{
    *ret = (sn_roce_opts){.k = 4,
                          .link_bps = 100e9,
                          .delay_ns = 1000,
                          .mtu_bytes = 4096,
                          .buffer_bytes = 512 << 10,
                          .red = {.kmin_bytes = 5e3, .kmax_bytes = 200e3, .pmax = 0.01},
                          .control = SN_ROCE_DCQCN,
                          .dcqcn = sn_roce_dcqcn_paper(),
                          .traffic = SN_ROCE_MIXED,
                          .load = 0.9,
                          .duration_ms = 12,
                          .warmup_ms = 2,
                          .window_ms = 0.5,
                          .seed = 1};
}

/* ---- checks ---- */

static double headroom(const sn_roce_opts *o)
{
    return 2 * o->delay_ns * 1e-9 * o->link_bps / 8 + 3.0 * (o->mtu_bytes + ROCE_HEADER_BYTES);
}

static sn_status check_given(const sn_roce_opts *o, int hosts)
{
    for (int i = 0; i < o->flows; i++) {
        const sn_roce_flow *f = &o->flow[i];
        if (f->src < 0 || f->src >= hosts || f->dst < 0 || f->dst >= hosts || f->src == f->dst)
            return sn_fail(SN_EINVAL, "flow %d goes from host %d to %d; there are hosts 0 to %d", i,
                           f->src, f->dst, hosts - 1);
        if (f->bytes < 1 || !(f->start_ns >= (i ? o->flow[i - 1].start_ns : 0)))
            return sn_fail(SN_EINVAL, "flow %d is empty or begins before the one ahead of it", i);
    }
    return SN_OK;
}

static sn_status check_switch(const sn_roce_opts *o)
{
    if (o->buffer_bytes < headroom(o) + 4.0 * (o->mtu_bytes + ROCE_HEADER_BYTES))
        return sn_fail(SN_EINVAL,
                       "a buffer of %.0f bytes a port is too small: %.0f arrive before a PAUSE is "
                       "obeyed, and four packets must fit beside them",
                       o->buffer_bytes, headroom(o));
    if (!(o->red.kmin_bytes >= 0 && o->red.kmax_bytes > o->red.kmin_bytes && o->red.pmax > 0 &&
          o->red.pmax <= 1))
        return sn_fail(SN_EINVAL, "marking needs 0 <= kmin < kmax and pmax in (0, 1]");
    return SN_OK;
}

static sn_status check(const sn_roce_opts *o)
{
    const sn_roce_dcqcn *d = &o->dcqcn;
    if (o->k < 2 || o->k > 16 || o->k % 2)
        return sn_fail(SN_EINVAL, "a fat tree of %d-port switches: an even number in 2 … 16", o->k);
    if (!o->flow && (unsigned) o->traffic >= SN_ROCE_TRAFFICS)
        return sn_fail(SN_EINVAL, "there is no traffic of number %d", (int) o->traffic);
    if (!(o->link_bps >= 1e9 && o->link_bps <= 10e12) || !(o->delay_ns >= 0 && o->delay_ns <= 1e6))
        return sn_fail(SN_EINVAL,
                       "links run at 1 Gbit/s to 10 Tbit/s with a delay of at most 1 ms");
    if (o->mtu_bytes < 256 || o->mtu_bytes > 16384)
        return sn_fail(SN_EINVAL, "an MTU of %d bytes; 256 … 16384 can be had", o->mtu_bytes);
    if (!(o->duration_ms > 0 && o->duration_ms <= 1e4) ||
        !(o->warmup_ms >= 0 && o->warmup_ms < o->duration_ms) || !(o->window_ms > 0))
        return sn_fail(SN_EINVAL,
                       "measured is from %g ms to %g ms: it must be a time, of at most 10 s",
                       o->warmup_ms, o->duration_ms);
    if (!o->flow && !(o->load >= 0.01 && o->load <= 1.5))
        return sn_fail(SN_EINVAL, "a load of %g; 0.01 … 1.5 of the links can be offered", o->load);
    if (!(d->g > 0 && d->g <= 1 && d->alpha_us > 0 && d->cnp_us >= 0 && d->timer_us > 0 &&
          d->byte_counter > 0 && d->rate_min_bps > 0 && d->rate_min_bps <= o->link_bps))
        return sn_fail(SN_EINVAL,
                       "a parameter of DCQCN is not positive, or its least rate above the link's");
    if (o->control == SN_ROCE_LEARNED && !o->policy)
        return sn_fail(SN_EINVAL, "learned control without a policy");
    SN_TRY(check_switch(o));
    return check_given(o, roce_tree_of(o->k).hosts);
}

/* ---- set up ---- */

static void set_flow(roce_run *r, int i, const sn_roce_flow *given)
{
    roce_flow *f = &r->flow[i];
    *f = (roce_flow){
        .src = given->src, .dst = given->dst, .total = given->bytes, .slot = -1, .end = -1};
    f->start = (roce_ps) (given->start_ns * 1e3);
    f->hops = roce_tree_path(&r->tree, f->src, f->dst, sn_hash64(r->o->seed, 0xec39, (uint64_t) i),
                             f->path);
    int64_t mtu = r->o->mtu_bytes, packets = (f->total + mtu - 1) / mtu;
    f->wire = (double) (f->total + packets * ROCE_HEADER_BYTES);
    double last = roce_wire_bytes(f->total - (packets - 1) * mtu);
    /* All packets through the first link, then the last one through the others. */
    f->alone_ps = (f->wire + (f->hops - 1) * last) * r->ps_per_byte + f->hops * (double) r->delay;
}

static sn_status set_up(roce_run *r, const sn_roce_opts *o, const sn_roce_flow *given, int n)
{
    *r = (roce_run){.o = o, .tree = roce_tree_of(o->k), .packet_free = -1, .flows = n};
    r->delay = (roce_ps) (o->delay_ns * 1e3);
    r->ps_per_byte = 8e12 / o->link_bps;
    r->from = (roce_ps) (o->warmup_ms * ROCE_MS);
    r->until = (roce_ps) (o->duration_ms * ROCE_MS);
    r->limit = 5 * r->until;
    r->window_ps = SN_MAX((roce_ps) (o->window_ms * ROCE_MS), 1);
    r->windows = (int) SN_MIN((r->until - r->from) / r->window_ps, 100000);
    r->xoff = o->buffer_bytes - headroom(o);
    r->xon = r->xoff - 2 * roce_wire_bytes(o->mtu_bytes);
    r->random = (sn_prng){.seed = sn_hash64(o->seed, 0x4ed, 0)};
    r->port = calloc((size_t) r->tree.ports, sizeof(*r->port));
    r->host = calloc((size_t) r->tree.hosts, sizeof(*r->host));
    r->flow = calloc((size_t) SN_MAX(n, 1), sizeof(*r->flow));
    r->switch_used = calloc((size_t) roce_tree_switches(&r->tree), sizeof(*r->switch_used));
    r->window = calloc((size_t) r->windows + 1, sizeof(*r->window));
    if (!r->port || !r->host || !r->flow || !r->switch_used || !r->window)
        return sn_fail(SN_ENOMEM, "no memory for %d ports and %d flows", r->tree.ports, n);
    for (int i = 0; i < r->tree.ports; i++) {
        r->port[i].head = -1;
        r->port[i].wake = -1;
        r->port[i].to_switch = roce_tree_far_switch(&r->tree, i);
    }
    for (int i = 0; i < n; i++)
        set_flow(r, i, &given[i]);
    if (n)
        roce_heap_push(&r->heap, r->flow[0].start, ROCE_START, 0, 0);
    return SN_OK;
}

static void tear_down(roce_run *r)
{
    for (int i = 0; r->host && i < r->tree.hosts; i++)
        free(r->host[i].slot);
    free(r->port);
    free(r->host);
    free(r->flow);
    free(r->switch_used);
    free(r->window);
    free(r->packet);
    free(r->heap.e);
}

/* ---- the loop ---- */

static void start_flow(roce_run *r, int flow)
{
    r->started = flow + 1;
    roce_flow_start(r, flow);
    if (r->started < r->flows)
        roce_heap_push(&r->heap, r->flow[r->started].start, ROCE_START, r->started, 0);
}

static void handle(roce_run *r, const roce_event *e)
{
    switch ((roce_kind) (e->order & 0xff)) {
    case ROCE_START:
        start_flow(r, e->at);
        break;
    case ROCE_ARRIVE:
        roce_arrive(r, e->at);
        break;
    case ROCE_FREE:
        if (r->port[e->at].wake != e->time)
            break; /* an earlier one came in between */
        r->port[e->at].wake = -1;
        roce_port_free(r, e->at);
        break;
    case ROCE_PAUSE:
    case ROCE_RESUME:
        roce_port_pause(r, e->at, (e->order & 0xff) == ROCE_PAUSE);
        break;
    default:
        roce_flow_event(r, e);
    }
}

static int64_t loop(roce_run *r)
{
    roce_event e;
    int64_t events = 0;
    while ((r->finished < r->flows || r->now < r->until) && roce_heap_pop(&r->heap, &e)) {
        if (e.time > r->limit)
            break;
        SN_ASSERT(e.time >= r->now);
        r->now = e.time;
        handle(r, &e);
        events++;
    }
    r->now = SN_MAX(r->now, r->until);
    for (int i = 0; i < r->tree.ports; i++)
        if (r->port[i].paused)
            roce_pause_account(r, &r->port[i]);
    return events;
}

/* ---- the result ---- */

static void sum_windows(const roce_run *r, sn_roce_result *ret)
{
    double mean = 0, square = 0,
           line = r->o->link_bps * r->tree.hosts / 8 * (double) r->window_ps * 1e-12;
    for (int i = 0; i < r->windows; i++)
        mean += r->window[i] / r->windows;
    for (int i = 0; i < r->windows; i++)
        square += (r->window[i] - mean) * (r->window[i] - mean) / r->windows;
    ret->goodput_cov = mean > 0 ? sqrt(square) / mean : 0;
    ret->windows = r->windows;
    for (int i = 0; i < SN_MIN(r->windows, (int) SN_COUNT(ret->window_goodput)); i++)
        ret->window_goodput[i] = (float) (r->window[i] / line);
}

static sn_status sum_flows(const roce_run *r, sn_roce_result *ret, roce_numbers *slow)
{
    double rates = 0, squares = 0, offered = 0;
    int64_t paced = 0;
    for (int i = 0; i < r->flows; i++) {
        const roce_flow *f = &r->flow[i];
        if (f->start < r->from || f->start >= r->until)
            continue;
        ret->flows++;
        ret->flows_finished += f->end >= 0;
        offered += (double) f->total;
        double took = (double) ((f->end >= 0 ? f->end : r->now) - f->start);
        SN_TRY(roce_numbers_add(slow, SN_MAX(took / f->alone_ps, 1)));
        if (f->total < PACE_BYTES)
            continue;
        double rate = f->alone_ps / took;
        rates += rate, squares += rate * rate, paced++;
    }
    double bits = 8e12 / (double) (r->until - r->from) / r->tree.hosts;
    ret->offered_bps = offered * bits;
    ret->goodput_bps = (double) r->delivered_measured * bits;
    ret->served = offered > 0 ? (double) r->delivered_measured / offered : 0;
    ret->jain = paced ? rates * rates / ((double) paced * squares) : 1;
    ret->slowdown_mean = roce_numbers_mean(slow);
    ret->slowdown_p50 = roce_numbers_quantile(slow, 0.5);
    ret->slowdown_p99 = roce_numbers_quantile(slow, 0.99);
    return SN_OK;
}

static int64_t under_way(const roce_run *r)
{
    /* Everything in the pool that is not free; counted by walking, so that the sums cannot agree by
     * construction. */
    int64_t sum = 0;
    char *is_free = calloc((size_t) r->packets + 1, 1);
    SN_ASSERT(is_free != NULL);
    for (int p = r->packet_free; p >= 0; p = r->packet[p].next)
        is_free[p] = 1;
    for (int p = 0; p < r->packets; p++)
        sum += is_free[p] ? 0 : r->packet[p].payload;
    free(is_free);
    return sum;
}

static sn_status sum_up(roce_run *r, int64_t events, sn_roce_result *ret)
{
    roce_numbers slow = {0};
    double span = (double) (r->until - r->from);
    *ret = (sn_roce_result){.events = events, .packets = r->arrived, .drops = r->dropped_packets};
    sn_status status = sum_flows(r, ret, &slow);
    free(slow.v);
    SN_TRY(status);
    sum_windows(r, ret);
    ret->pause_frames = r->pauses;
    ret->pause_share = r->paused_ps / (span * r->tree.ports);
    ret->pause_longest_us = r->pause_longest_ps / ROCE_US;
    ret->queue_mean_bytes = r->queue.n ? r->queue.sum / (double) r->queue.n : 0;
    ret->queue_p99_bytes = roce_histogram_quantile(&r->queue, 0.99);
    ret->queue_max_bytes = r->queue_max;
    ret->marked_share = r->arrived ? (double) r->marked / (double) r->arrived : 0;
    ret->payload_sent = r->sent;
    ret->payload_delivered = r->delivered;
    ret->payload_dropped = r->dropped;
    ret->payload_under_way = under_way(r);
    SN_ASSERT(r->sent == r->delivered + r->dropped + ret->payload_under_way);
    return SN_OK;
}

sn_status sn_roce_run(const sn_roce_opts *o, sn_roce_result *ret, sn_roce_flow *ret_flow)
{
    sn_roce_flow *made = NULL;
    int n = o->flows;
    roce_run r;
    SN_TRY(check(o));
    if (!o->flow)
        SN_TRY(roce_traffic_make(o, roce_tree_of(o->k).hosts, &made, &n));
    sn_status status = set_up(&r, o, o->flow ? o->flow : made, n);
    if (status >= 0)
        status = sum_up(&r, o->control == SN_ROCE_IDEAL ? roce_fluid(&r) : loop(&r), ret);
    for (int i = 0; status >= 0 && ret_flow && i < o->flows; i++) {
        ret_flow[i] = o->flow[i];
        ret_flow[i].end_ns = r.flow[i].end < 0 ? -1 : (double) r.flow[i].end / 1e3;
    }
    tear_down(&r);
    free(made);
    return status;
}
