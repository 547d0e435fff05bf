/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of one run: packets, ports, flows, hosts. fabric.c moves packets through switches,
 * host.c sends and receives them, run.c sets up, loops and sums up. */
#ifndef SN_SIM_NET_FABRIC_H
#define SN_SIM_NET_FABRIC_H

#include "private.h"

typedef struct roce_packet {
    int64_t seq; /* first payload byte */
    roce_ps sent;
    int32_t flow, next; /* next in its queue or in the free list; -1: none */
    int32_t payload;
    uint8_t hop; /* of the link it is on, or queues for */
    bool marked;
} roce_packet;

typedef struct roce_port {
    int32_t head, tail;       /* of the queue; switches only */
    double queued;            /* wire bytes there */
    roce_ps busy_until, wake; /* wake: the ROCE_FREE that counts; -1: none */
    double held;              /* wire bytes at the far end that came over this link */
    bool pause_sent, paused;
    roce_ps paused_at;
    int32_t to_switch; /* the switch at the far end; -1: a host */
} roce_port;

typedef struct roce_flow {
    int32_t src, dst, hops, slot; /* slot: in its host's list; -1: nothing to send */
    int32_t path[ROCE_HOPS_MAX];
    int64_t total, sent, expected; /* payload bytes; expected: by the receiver */
    int64_t nacked, retried;       /* `expected` when that was last said */
    roce_ps start, end, last_sent;
    double last_bits, alone_ps, wire; /* wire: all its bytes with headers */
    roce_rate rate;
    roce_ps last_cnp;
    uint32_t generation; /* timers of an older one are dead */
    roce_report seen, flying;
    roce_view view;
} roce_flow;

typedef struct roce_slot {
    roce_ps next; /* when its rate lets it send */
    int32_t flow;
} roce_slot;

typedef struct roce_host {
    roce_slot *slot;
    int n, cap;
    roce_ps paused_total, looked; /* of its port, for what the policy sees */
} roce_host;

typedef struct roce_run {
    const sn_roce_opts *o;
    roce_tree tree;
    roce_heap heap;
    roce_ps now, delay, from, until, limit; /* measured: from … until; the run ends at limit */
    double ps_per_byte, xoff, xon;
    sn_prng random; /* of the marks */
    roce_packet *packet;
    int packets, packet_free;
    roce_port *port;
    double *switch_used;
    roce_flow *flow;
    int flows, started, finished;
    roce_host *host;
    roce_histogram queue;
    double queue_max, paused_ps, pause_longest_ps;
    double *window;
    int windows;
    roce_ps window_ps;
    int64_t delivered, delivered_measured, dropped, dropped_packets, sent, marked, arrived, moved,
        pauses;
} roce_run;

/* ---- fabric.c ---- */
int roce_packet_new(roce_run *r);
void roce_packet_free(roce_run *r, int packet);
double roce_wire_bytes(int64_t payload);               /* of one packet */
void roce_transmit(roce_run *r, int port, int packet); /* the port is idle */
void roce_wake(roce_run *r, int port, roce_ps at); /* ROCE_FREE then, unless one comes earlier */
void roce_arrive(roce_run *r, int packet);
void roce_port_free(roce_run *r, int port); /* send the next, if it may */
void roce_port_pause(roce_run *r, int port, bool pause);
void roce_pause_account(roce_run *r, roce_port *p); /* up to now */

/* ---- fluid.c: the whole run, without packets; returns the number of rate changes ---- */
int64_t roce_fluid(roce_run *r);

/* ---- host.c ---- */
void roce_nic_send(roce_run *r, int host);
void roce_flow_start(roce_run *r, int flow);
void roce_receive(roce_run *r, int packet);
void roce_flow_event(roce_run *r, const roce_event *e);

#endif
