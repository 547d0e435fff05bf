/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of net share: the state of a run. Times are picoseconds inside, so that a packet
 * of any size at any speed takes a whole number within one in ten thousand. */
#ifndef SN_SIM_NET_PRIVATE_H
#define SN_SIM_NET_PRIVATE_H

#include "sim/net/net.h"

typedef int64_t roce_ps;
enum { ROCE_HOPS_MAX = 6, ROCE_HEADER_BYTES = 82, ROCE_PORTS_MAX = 16 * 16 * 16 * 2 };
#define ROCE_US INT64_C(1000000)
#define ROCE_MS INT64_C(1000000000)

/* ---- events: a four-ary heap, equal times in the order of posting ---- */
typedef enum roce_kind {
    ROCE_START,  /* the next flow begins */
    ROCE_ARRIVE, /* packet `at` reaches the far end of its link */
    ROCE_FREE,   /* port `at` can send again */
    ROCE_PAUSE,  /* port `at` reads a PAUSE, ROCE_RESUME a RESUME */
    ROCE_RESUME,
    ROCE_CNP, /* flow `at`'s sender reads a CNP, a report, a negative acknowledgement */
    ROCE_REPORT,
    ROCE_NACK,
    ROCE_ALPHA, /* timers of flow `at` */
    ROCE_RATE,
    ROCE_RETRY,
} roce_kind;

typedef struct roce_event {
    roce_ps time;
    uint64_t order; /* posting number << 8 | kind */
    int32_t at;
    uint32_t generation;
} roce_event;

typedef struct roce_heap {
    roce_event *e;
    int n, cap;
    uint64_t posted;
} roce_heap;
void roce_heap_push(roce_heap *h, roce_ps time, roce_kind kind, int at, uint32_t generation);
bool roce_heap_pop(roce_heap *h, roce_event *ret);

/* ---- the tree: a port is a directed link; the first `hosts` ports are the NICs' ---- */
typedef struct roce_tree {
    int k, hosts, ports;
} roce_tree;
roce_tree roce_tree_of(int k);
/* The ports from src to dst; which of the equal paths, `hash` says. Returns their number. */
int roce_tree_path(const roce_tree *t, int src, int dst, uint64_t hash, int32_t ret[ROCE_HOPS_MAX]);
/* The switch that port's queue stands in; -1: a NIC. Numbered edge, aggregation, core. */
int roce_tree_switch(const roce_tree *t, int port);
/* The switch at the far end of the port's link; -1: a host. */
int roce_tree_far_switch(const roce_tree *t, int port);
int roce_tree_switches(const roce_tree *t);

/* ---- traffic ---- */
/* Flows of the whole run, sorted by start; *ret is malloc'd. */
sn_status roce_traffic_make(const sn_roce_opts *o, int hosts, sn_roce_flow **ret, int *ret_n);

/* ---- a sender's rate ---- */
typedef struct roce_rate {
    double current, target; /* bits a second */
    double alpha;
    double bytes;           /* since the byte counter last fired */
    int by_timer, by_bytes; /* increases since the last CNP */
    bool limited;           /* a CNP came: the timers run */
} roce_rate;
void roce_dcqcn_cnp(const sn_roce_dcqcn *p, roce_rate *r);
void roce_dcqcn_decay(const sn_roce_dcqcn *p, roce_rate *r);
void roce_dcqcn_timer(const sn_roce_dcqcn *p, roce_rate *r, double line);
/* true: the byte counter fired */
bool roce_dcqcn_bytes(const sn_roce_dcqcn *p, roce_rate *r, double line, double bytes);

/* What a receiver saw of a flow since its last report. */
typedef struct roce_report {
    double packets, marked, bytes;
    double delay_sum_ps; /* beyond the path's own */
    roce_ps since;
} roce_report;
enum { ROCE_REPORT_US = 20 };
typedef struct roce_view { /* what the policy keeps of a flow */
    float delay, marked;   /* of the report before; average of the marks */
} roce_view;
double roce_policy_start(const sn_roce_policy *p, double line, double least, int flows_of_nic,
                         double paused);
double roce_policy_rate(const sn_roce_policy *p, const roce_report *r, roce_view *v, double line,
                        double least, double rate, roce_ps now, int flows_of_nic, double paused);

/* ---- statistics ---- */
typedef struct roce_numbers {
    double *v;
    int64_t n, cap;
} roce_numbers;
sn_status roce_numbers_add(roce_numbers *s, double v);
double roce_numbers_quantile(roce_numbers *s, double q); /* sorts */
double roce_numbers_mean(const roce_numbers *s);

/* A histogram with eight steps to the octave: queue lengths as packets see them. */
typedef struct roce_histogram {
    int64_t count[400], n;
    double sum;
} roce_histogram;
void roce_histogram_add(roce_histogram *h, double v);
double roce_histogram_quantile(const roce_histogram *h, double q);

#endif
