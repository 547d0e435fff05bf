/* SPDX-License-Identifier: Apache-2.0
 *
 * Links and switches. A packet costs two events a hop at most: it arrives at the far end, and the
 * port is free for the next one if there is a next one. Bytes are charged to the link they came
 * over (`held`), and that link is paused when they pass its share of the buffer. */
#include "fabric.h"

#include <stdlib.h>

int roce_packet_new(roce_run *r)
{
    if (r->packet_free < 0) {
        int n = r->packets ? 2 * r->packets : 4096;
        r->packet = realloc(r->packet, (size_t) n * sizeof(*r->packet));
        SN_ASSERT(r->packet != NULL); /* bounded by buffers and links */
        for (int i = n - 1; i >= r->packets; i--) {
            r->packet[i].next = r->packet_free;
            r->packet_free = i;
        }
        r->packets = n;
    }
    int packet = r->packet_free;
    r->packet_free = r->packet[packet].next;
    return packet;
}

void roce_packet_free(roce_run *r, int packet)
{
    r->packet[packet].next = r->packet_free;
    r->packet_free = packet;
}

double roce_wire_bytes(int64_t payload)
{
    return (double) (payload + ROCE_HEADER_BYTES);
}

void roce_wake(roce_run *r, int port, roce_ps at)
{
    roce_port *p = &r->port[port];
    if (p->wake >= 0 && p->wake <= at)
        return;
    p->wake = at;
    roce_heap_push(&r->heap, at, ROCE_FREE, port, 0);
}

void roce_transmit(roce_run *r, int port, int packet)
{
    roce_port *p = &r->port[port];
    p->busy_until =
        r->now + (roce_ps) (roce_wire_bytes(r->packet[packet].payload) * r->ps_per_byte);
    roce_heap_push(&r->heap, p->busy_until + r->delay, ROCE_ARRIVE, packet, 0);
}

/* ---- pausing ---- */

void roce_pause_account(roce_run *r, roce_port *p)
{
    roce_ps begin = SN_MAX(p->paused_at, r->from), end = SN_MIN(r->now, r->until);
    if (end > begin) {
        r->paused_ps += (double) (end - begin);
        r->pause_longest_ps = SN_MAX(r->pause_longest_ps, (double) (end - begin));
    }
}

void roce_port_pause(roce_run *r, int port, bool pause)
{
    roce_port *p = &r->port[port];
    if (pause) {
        p->paused = true;
        p->paused_at = r->now;
        return;
    }
    roce_pause_account(r, p);
    if (port < r->tree.hosts)
        r->host[port].paused_total += r->now - p->paused_at;
    p->paused = false;
    roce_port_free(r, port);
}

static void hold(roce_run *r, int link, double bytes)
{
    roce_port *l = &r->port[link];
    l->held += bytes;
    if (r->o->pfc_off)
        return;
    SN_ASSERT(l->held <= r->o->buffer_bytes);
    if (!l->pause_sent && l->held > r->xoff) {
        l->pause_sent = true;
        r->pauses += r->now >= r->from && r->now < r->until;
        roce_heap_push(&r->heap, r->now + r->delay, ROCE_PAUSE, link, 0);
    }
}

static void release(roce_run *r, int link, double bytes)
{
    roce_port *l = &r->port[link];
    l->held -= bytes;
    r->switch_used[l->to_switch] -= bytes;
    if (l->pause_sent && l->held <= r->xon) {
        l->pause_sent = false;
        roce_heap_push(&r->heap, r->now + r->delay, ROCE_RESUME, link, 0);
    }
}

/* ---- queues ---- */

static bool marks(roce_run *r, double queued)
{
    const sn_roce_red *red = &r->o->red;
    if (queued <= red->kmin_bytes)
        return false;
    if (queued > red->kmax_bytes)
        return true;
    double p = red->pmax * (queued - red->kmin_bytes) / (red->kmax_bytes - red->kmin_bytes);
    return sn_prng_uniform(&r->random) < p;
}

static void enqueue(roce_run *r, int port, int packet, double bytes)
{
    roce_port *p = &r->port[port];
    roce_packet *k = &r->packet[packet];
    if (r->now >= r->from && r->now < r->until) {
        roce_histogram_add(&r->queue, p->queued);
        r->queue_max = SN_MAX(r->queue_max, p->queued + bytes);
    }
    k->marked = k->marked || marks(r, p->queued);
    k->next = -1;
    if (p->head < 0)
        p->head = packet;
    else
        r->packet[p->tail].next = packet;
    p->tail = packet;
    p->queued += bytes;
}

void roce_port_free(roce_run *r, int port)
{
    roce_port *p = &r->port[port];
    if (port < r->tree.hosts) {
        roce_nic_send(r, port);
        return;
    }
    if (p->paused || p->head < 0)
        return;
    if (p->busy_until > r->now) {
        roce_wake(r, port, p->busy_until);
        return;
    }
    int packet = p->head;
    roce_packet *k = &r->packet[packet];
    double bytes = roce_wire_bytes(k->payload);
    p->head = k->next;
    p->queued -= bytes;
    roce_transmit(r, port, packet);
    if (p->head >= 0)
        roce_wake(r, port, p->busy_until);
    release(r, r->flow[k->flow].path[k->hop - 1], bytes);
}

void roce_arrive(roce_run *r, int packet)
{
    roce_packet *k = &r->packet[packet];
    const roce_flow *f = &r->flow[k->flow];
    r->moved++;
    if (++k->hop == f->hops) {
        roce_receive(r, packet);
        return;
    }
    int link = f->path[k->hop - 1], port = f->path[k->hop];
    double bytes = roce_wire_bytes(k->payload), *used = &r->switch_used[r->port[link].to_switch];
    if (r->o->pfc_off && *used + bytes > r->o->buffer_bytes * r->o->k) {
        r->dropped += k->payload;
        r->dropped_packets++;
        roce_packet_free(r, packet);
        return;
    }
    *used += bytes;
    hold(r, link, bytes);
    enqueue(r, port, packet, bytes);
    roce_port_free(r, port);
}
