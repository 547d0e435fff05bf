/* SPDX-License-Identifier: Apache-2.0
 *
 * net — RoCE on a fat tree, packet by packet: PFC, ECN marks, and a rate for every flow that DCQCN
 * or a small learned policy sets.
 *
 *   sender NIC ── paced packets ──► edge ─► aggregation ─► core ─► … ─► receiver NIC
 *      ▲   ▲                          │ queue: RED marks between kmin and kmax
 *      │   └── PAUSE / RESUME, link by link, when what a link brought fills its share of the buffer
 *      └────── CNP (DCQCN) or report (learned) from the receiver, behind no queue
 *
 * Invariants
 *  1. Same options, same result, bit for bit. No system call, no clock, no thread, no global state.
 *  2. Payload sent = delivered + dropped + under way (sn_roce_run asserts it at the end).
 *  3. With PFC nothing is dropped: the part of the buffer above `xoff` holds what a link can still
 *     bring before its far end has read the PAUSE.
 *
 * Left out: the time that CNPs, reports and PAUSE frames occupy links (each is 64 bytes; they
 * have their own class), and reordering (ECMP is by flow).
 *
 * Limits: k even, 2 … 16 (1,024 hosts). Cost: see README.md. Threads: calls are independent.
 * Sources: Zhu et al., "Congestion control for large-scale RDMA deployments", SIGCOMM 2015 (DCQCN
 * and its parameters); Zhu et al., "ECN or delay", CoNEXT 2016 (the fixed point); IEEE 802.1Qbb
 * (PFC); Alizadeh et al., "Data center TCP", SIGCOMM 2010 (web search flow sizes). */
#ifndef SN_SIM_NET_H
#define SN_SIM_NET_H

#include "base/base.h"

typedef enum sn_roce_control {
    SN_ROCE_NONE,    /* line rate always: only PFC holds anybody back */
    SN_ROCE_DCQCN,   /* the parameters given in the options */
    SN_ROCE_LEARNED, /* the policy given in the options */
    SN_ROCE_IDEAL,   /* no packets: each flow has its max-min fair rate at once (fluid.c) */
} sn_roce_control;

typedef enum sn_roce_traffic {
    SN_ROCE_WEBSEARCH,  /* Poisson, uniform pairs, sizes of the web search cluster */
    SN_ROCE_INCAST,     /* bursts: eight senders, one receiver, 256 KB each */
    SN_ROCE_ALL_TO_ALL, /* bursts: one host sends 64 KB to each other host */
    SN_ROCE_RING,       /* Poisson messages of 1 MB from each host to the next */
    SN_ROCE_MIXED,      /* by bytes 60 % web search, 20 % ring, 10 % incast, 10 % all-to-all */
    SN_ROCE_TRAFFICS
} sn_roce_traffic;

/* RED at the egress queue: no mark below kmin, pmax at kmax, all above. */
typedef struct sn_roce_red {
    double kmin_bytes, kmax_bytes, pmax;
} sn_roce_red;

/* Reaction and notification point of DCQCN, in the paper's names. */
typedef struct sn_roce_dcqcn {
    double g;                 /* gain of alpha */
    double alpha_us;          /* alpha decays after so long without a CNP */
    double cnp_us;            /* a receiver sends at most one CNP a flow in this time */
    double timer_us;          /* rate increase timer */
    double byte_counter;      /* rate increase every so many bytes */
    int fast_recovery;        /* F */
    double rai_bps, rhai_bps; /* additive and hyper increase, bits a second */
    double rate_min_bps;
} sn_roce_dcqcn;

enum { SN_ROCE_INPUTS = 8, SN_ROCE_HIDDEN = 16, SN_ROCE_OUTPUTS = 3 };
enum {
    SN_ROCE_WEIGHTS = SN_ROCE_HIDDEN * (SN_ROCE_INPUTS + 1) + SN_ROCE_OUTPUTS * (SN_ROCE_HIDDEN + 1)
};
/* hidden [16][8 + bias], then output [3][16 + bias]; tanh between */
typedef struct sn_roce_policy {
    float w[SN_ROCE_WEIGHTS];
} sn_roce_policy;

typedef struct sn_roce_opts {
    int k;               /* ports of a switch; k^3/4 hosts */
    double link_bps;     /* all links */
    double delay_ns;     /* of a link, one way, with the switch behind it */
    int mtu_bytes;       /* payload of a packet; 82 bytes of headers and gap come on top */
    double buffer_bytes; /* of a switch, for each of its ports */
    bool pfc_off;        /* drop instead, and go back N */
    sn_roce_red red;
    sn_roce_control control;
    sn_roce_dcqcn dcqcn;
    const sn_roce_policy *policy; /* borrowed for the run */
    sn_roce_traffic traffic;
    double load;        /* offered wire bytes of a host / its link, 0.01 … 1.5 */
    double duration_ms; /* arrivals; what is under way then is finished, at most 4 times longer */
    double warmup_ms;   /* not measured */
    double window_ms;   /* of the goodput's variation */
    uint64_t seed;
    /* Instead of `traffic`: flows that are given. */
    int flows;
    const struct sn_roce_flow *flow; /* [flows], by start; borrowed for the run */
} sn_roce_opts;

typedef struct sn_roce_flow {
    int src, dst;
    int64_t bytes;
    double start_ns;
    double end_ns; /* out, where asked for: last byte received; -1: not finished */
} sn_roce_flow;

typedef struct sn_roce_result {
    double offered_bps, goodput_bps;                  /* payload, mean of a host, while measured */
    double served;                                    /* goodput / offered */
    double goodput_cov;                               /* standard deviation / mean over windows */
    double slowdown_mean, slowdown_p50, slowdown_p99; /* time / time alone on the path */
    double jain;                                      /* of the rates of flows of 1 MB and more */
    int64_t flows, flows_finished;                    /* begun while measured */
    int64_t pause_frames;
    double pause_share;      /* link time paused / all link time, while measured */
    double pause_longest_us; /* the longest pause of one link */
    double queue_mean_bytes, queue_p99_bytes,
        queue_max_bytes; /* of switch ports; mean and p99: seen by packets */
    double marked_share; /* of packets delivered */
    int64_t drops;
    int64_t payload_sent, payload_delivered, payload_dropped, payload_under_way;
    int64_t events, packets;
    int windows;
    float window_goodput[256]; /* share of the line, first 256 windows */
} sn_roce_result;

/* The paper's setup on 100 Gbit/s links: k 4, MTU 4096, 512 KB a port; mixed traffic at 90 %. */
void sn_roce_defaults(sn_roce_opts *ret);
sn_roce_dcqcn sn_roce_dcqcn_paper(void);
/* Found by sn_roce_tune on training seeds: parameters of NIC and switch. */
void sn_roce_use_tuned(sn_roce_opts *opts);
const sn_roce_policy *sn_roce_policy_shipped(void);

const char *sn_roce_traffic_name(sn_roce_traffic traffic);

/* Run it. `ret_flow`: [opts->flows] with the ends filled in, or NULL.
 * Returns SN_OK; SN_EINVAL with a sentence; SN_ENOMEM. */
sn_status sn_roce_run(const sn_roce_opts *opts, sn_roce_result *ret, sn_roce_flow *ret_flow);

/* The marking probability at which `flows` DCQCN senders share a link of `link_bps` and neither
 * rate nor alpha moves (CoNEXT 2016, equation 10 and its neighbours). */
double sn_roce_dcqcn_fixed_point(const sn_roce_dcqcn *p, double link_bps, int flows,
                                 int packet_bytes);

/* NULL: the run is stable: nothing dropped; links paused for at most 1 % of the time; 85 % of what
 * was offered while measured also served then; goodput's standard deviation over windows at most
 * 15 % of its mean; p99 slowdown at most 40. Else the condition missed. */
const char *sn_roce_unstable(const sn_roce_result *r);

/* ---- learning ---- */
typedef struct sn_roce_train_opts {
    int generations, pairs; /* of antithetic samples a generation */
    double sigma, step;
    uint64_t seed;
    /* Called after each generation; may be NULL. */
    void (*progress)(void *ctx, int generation, double cost);
    void *ctx;
} sn_roce_train_opts;

/* What training minimises, of one run: see README.md. */
double sn_roce_cost(const sn_roce_result *r);
/* Evolution strategy from small random weights, on traffic seeds 1,000,000 and up. */
sn_status sn_roce_train(const sn_roce_opts *base, const sn_roce_train_opts *o, sn_roce_policy *ret);
/* Random search over DCQCN and RED parameters on the same seeds: the fair opponent. */
sn_status sn_roce_tune(const sn_roce_opts *base, int trials, uint64_t seed,
                       void (*progress)(void *ctx, int trial, double cost), void *ctx,
                       sn_roce_opts *ret);

#endif
