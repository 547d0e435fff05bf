/* SPDX-License-Identifier: Apache-2.0
 *
 * NICs: a sender picks the flow whose rate let it go first; a receiver takes packets in order only
 * (go back N), and tells the sender what it saw. That word takes the links' delay and no queue. */
#include "fabric.h"

#include <math.h>
#include <stdlib.h>

enum { RETRY_US = 1000 };

/* ---- the list of flows with something to send ---- */

static void list_add(roce_run *r, int flow)
{
    roce_flow *f = &r->flow[flow];
    roce_host *h = &r->host[f->src];
    if (f->slot >= 0)
        return;
    if (h->n == h->cap) {
        h->cap = h->cap ? 2 * h->cap : 16;
        h->slot = realloc(h->slot, (size_t) h->cap * sizeof(*h->slot));
        SN_ASSERT(h->slot != NULL); /* bounded by the flows, which are there already */
    }
    f->slot = h->n;
    h->slot[h->n++] = (roce_slot){r->now, flow};
}

static void list_remove(roce_run *r, roce_flow *f)
{
    roce_host *h = &r->host[f->src];
    roce_slot last = h->slot[--h->n];
    h->slot[f->slot] = last;
    r->flow[last.flow].slot = f->slot;
    f->slot = -1;
}

/* The rate changed: the wait that began with the last packet gets its new length. */
static void repace(roce_run *r, roce_flow *f)
{
    if (f->slot < 0)
        return;
    roce_ps next = f->last_sent + (roce_ps) (f->last_bits / f->rate.current * 1e12);
    r->host[f->src].slot[f->slot].next = SN_MAX(next, r->now);
    roce_nic_send(r, f->src);
}

/* ---- sending ---- */

static void send(roce_run *r, int host, roce_flow *f, int flow)
{
    int packet = roce_packet_new(r);
    int64_t payload = SN_MIN(f->total - f->sent, (int64_t) r->o->mtu_bytes);
    r->packet[packet] = (roce_packet){
        .seq = f->sent, .sent = r->now, .flow = flow, .next = -1, .payload = (int32_t) payload};
    f->sent += payload;
    r->sent += payload;
    f->last_sent = r->now;
    f->last_bits = roce_wire_bytes(payload) * 8;
    if (r->o->control == SN_ROCE_DCQCN)
        roce_dcqcn_bytes(&r->o->dcqcn, &f->rate, r->o->link_bps, roce_wire_bytes(payload));
    r->host[host].slot[f->slot].next = r->now + (roce_ps) (f->last_bits / f->rate.current * 1e12);
    if (f->sent == f->total) {
        list_remove(r, f);
        if (r->o->pfc_off)
            roce_heap_push(&r->heap, r->now + RETRY_US * ROCE_US, ROCE_RETRY, flow, 0);
    }
    roce_transmit(r, host, packet);
}

void roce_nic_send(roce_run *r, int host)
{
    roce_port *p = &r->port[host];
    roce_host *h = &r->host[host];
    if (p->paused || h->n == 0)
        return;
    if (p->busy_until > r->now) {
        roce_wake(r, host, p->busy_until);
        return;
    }
    int first = 0;
    for (int i = 1; i < h->n; i++)
        if (h->slot[i].next < h->slot[first].next)
            first = i;
    if (h->slot[first].next > r->now) {
        roce_wake(r, host, h->slot[first].next);
        return;
    }
    send(r, host, &r->flow[h->slot[first].flow], h->slot[first].flow);
    if (h->n > 0)
        roce_wake(r, host, p->busy_until);
}

void roce_flow_start(roce_run *r, int flow)
{
    roce_flow *f = &r->flow[flow];
    f->rate = (roce_rate){.current = r->o->link_bps, .target = r->o->link_bps, .alpha = 1};
    f->slot = -1;
    f->nacked = f->retried = -1;
    f->last_cnp = -ROCE_MS;
    f->seen.since = r->now;
    list_add(r, flow);
    if (r->o->control == SN_ROCE_LEARNED)
        f->rate.current = roce_policy_start(r->o->policy, r->o->link_bps, r->o->dcqcn.rate_min_bps,
                                            r->host[f->src].n, r->port[f->src].paused);
    roce_nic_send(r, f->src);
}

/* ---- receiving ---- */

static roce_ps way_back(const roce_run *r, const roce_flow *f)
{
    return r->now + f->hops * r->delay;
}

static void notify(roce_run *r, roce_flow *f, int flow, const roce_packet *k)
{
    if (r->o->control == SN_ROCE_DCQCN && k->marked &&
        (double) (r->now - f->last_cnp) >= r->o->dcqcn.cnp_us * ROCE_US) {
        f->last_cnp = r->now;
        roce_heap_push(&r->heap, way_back(r, f), ROCE_CNP, flow, 0);
    }
    if (r->o->control != SN_ROCE_LEARNED)
        return;
    roce_report *s = &f->seen;
    double alone =
        f->hops * (double) r->delay + f->hops * roce_wire_bytes(k->payload) * r->ps_per_byte;
    s->packets++;
    s->marked += k->marked;
    s->bytes += roce_wire_bytes(k->payload);
    s->delay_sum_ps += fmax((double) (r->now - k->sent) - alone, 0);
    if (r->now - s->since < ROCE_REPORT_US * ROCE_US || f->flying.packets > 0)
        return;
    f->flying = *s;
    f->seen = (roce_report){.since = r->now};
    roce_heap_push(&r->heap, way_back(r, f), ROCE_REPORT, flow, 0);
}

static void deliver(roce_run *r, roce_flow *f, int64_t payload)
{
    f->expected += payload;
    r->delivered += payload;
    if (r->now >= r->from && r->now < r->until) {
        r->delivered_measured += payload;
        int64_t w = (r->now - r->from) / r->window_ps;
        if (w < r->windows)
            r->window[w] += (double) payload;
    }
    if (f->expected < f->total)
        return;
    f->end = r->now;
    f->generation++;
    r->finished++;
}

void roce_receive(roce_run *r, int packet)
{
    roce_packet *k = &r->packet[packet];
    roce_flow *f = &r->flow[k->flow];
    r->arrived++;
    r->marked += k->marked;
    if (k->seq == f->expected) {
        deliver(r, f, k->payload);
    } else {
        r->dropped += k->payload; /* out of order after a loss: go back N */
        if (k->seq > f->expected && f->nacked != f->expected) {
            f->nacked = f->expected;
            roce_heap_push(&r->heap, way_back(r, f), ROCE_NACK, k->flow, 0);
        }
    }
    if (f->end < 0)
        notify(r, f, k->flow, k);
    roce_packet_free(r, packet);
}

/* ---- what comes back to the sender, and its timers ---- */

static void timer(roce_run *r, roce_kind kind, int flow, double us)
{
    roce_heap_push(&r->heap, r->now + (roce_ps) (us * ROCE_US), kind, flow,
                   r->flow[flow].generation);
}

static void on_report(roce_run *r, roce_flow *f)
{
    roce_host *h = &r->host[f->src];
    const roce_port *p = &r->port[f->src];
    roce_report seen = f->flying;
    f->flying.packets = 0;
    if (f->slot < 0)
        return;
    double paused = p->paused ? 1 : 0;
    f->rate.current =
        roce_policy_rate(r->o->policy, &seen, &f->view, r->o->link_bps, r->o->dcqcn.rate_min_bps,
                         f->rate.current, r->now - f->hops * r->delay, h->n, paused);
    repace(r, f);
}

static void go_back(roce_run *r, int flow)
{
    roce_flow *f = &r->flow[flow];
    f->sent = f->expected;
    list_add(r, flow);
    roce_nic_send(r, f->src);
}

static void on_retry(roce_run *r, int flow)
{
    roce_flow *f = &r->flow[flow];
    if (f->sent == f->total && f->retried == f->expected) {
        f->retried = -1;
        f->nacked = -1;
        go_back(r, flow);
        return; /* the next one is set when all is sent again */
    }
    f->retried = f->expected;
    if (f->sent == f->total)
        roce_heap_push(&r->heap, r->now + RETRY_US * ROCE_US, ROCE_RETRY, flow, 0);
}

static void on_cnp(roce_run *r, roce_flow *f, int flow)
{
    roce_dcqcn_cnp(&r->o->dcqcn, &f->rate);
    f->generation++; /* both timers begin anew */
    timer(r, ROCE_ALPHA, flow, r->o->dcqcn.alpha_us);
    timer(r, ROCE_RATE, flow, r->o->dcqcn.timer_us);
    repace(r, f);
}

void roce_flow_event(roce_run *r, const roce_event *e)
{
    roce_flow *f = &r->flow[e->at];
    roce_kind kind = (roce_kind) (e->order & 0xff);
    bool timers = kind == ROCE_ALPHA || kind == ROCE_RATE;
    if (f->end >= 0 || (timers && e->generation != f->generation))
        return;
    switch (kind) {
    case ROCE_CNP:
        on_cnp(r, f, e->at);
        break;
    case ROCE_REPORT:
        on_report(r, f);
        break;
    case ROCE_NACK:
        go_back(r, e->at);
        break;
    case ROCE_RETRY:
        on_retry(r, e->at);
        break;
    case ROCE_ALPHA:
        roce_dcqcn_decay(&r->o->dcqcn, &f->rate);
        timer(r, ROCE_ALPHA, e->at, r->o->dcqcn.alpha_us);
        break;
    default:
        roce_dcqcn_timer(&r->o->dcqcn, &f->rate, r->o->link_bps);
        timer(r, ROCE_RATE, e->at, r->o->dcqcn.timer_us);
        repace(r, f);
    }
}
