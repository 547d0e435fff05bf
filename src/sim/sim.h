/* SPDX-License-Identifier: Apache-2.0
 *
 * sim — what a training run would take on cards that are not here: seconds a step, bytes a card,
 * days, failures, energy, money. Pure.
 *
 *   cluster (cards, links) ┐
 *   model (a transformer)  ├─ sn_sim_price ─▶ a step: its parts, its memory
 *   layout (how it is split)┘       ▲                 │
 *                     sn_sim_search ┘                 └─▶ sn_sim_run: a whole run with failures
 *
 * A step is priced from its kernels: a product by tiles and waves on the card's units, all else by
 * the bytes it moves, each with what a launch costs; collectives by latency and bandwidth of the
 * links they use; the pipeline by its schedule. doc/foresight.md compares it with published
 * measurements (sn_sim_truth) and says where it is blind. All times are seconds, sizes bytes. */
#ifndef SN_SIM_SIM_H
#define SN_SIM_SIM_H

#include "base/base.h"
#include "topo/topo.h"

/* ---- what is there ---- */

typedef struct sn_sim_card { /* a kind of card; the table has each figure's source */
    const char *name;        /* "h100" */
    double flops;            /* dense 16-bit products a second, as stated */
    double best_share;       /* of it that the best measured product reaches */
    int units;               /* that work on tiles: SMs, CUs, cube cores */
    double memory, memory_per_s;
    double scale_up_per_s;   /* to cards of its domain, one way */
    int domain;              /* cards that reach each other so, as usually sold */
    double watts;            /* of the card alone, fully loaded */
    double dollars_per_hour; /* on demand; 0: unknown */
    const char *source;
} sn_sim_card;

int sn_sim_cards(const sn_sim_card **ret);
const sn_sim_card *sn_sim_card_find(const char *name); /* NULL: not in the table */

typedef struct sn_sim_cluster {
    const sn_sim_card *card;
    int cards, per_host, domain;       /* domain: cards joined by scale_up */
    double scale_up_per_s, scale_up_s; /* bandwidth one way and latency of a hop */
    double net_per_s, net_s;           /* a card's share of the network beyond, latency */
    double oversubscription;           /* of the network's top; 1: none */
    double host_watts;                 /* beside its cards */
    double pue;                        /* power of the site for each watt of the machines */
} sn_sim_cluster;

/* A cluster of a kind as it is usually built: domain and links from the table, the network given
 * (bytes a second a card, one way; 0: 50 GB/s). */
sn_sim_cluster sn_sim_cluster_of(const sn_sim_card *card, int cards, double net_per_s);
/* From a cluster file. SN_ENOTFOUND: its cards' kind is not in the table (the sentence lists it);
 * SN_EFIT: cards of more than one kind, or not connected. */
sn_status sn_sim_cluster_from(const sn_topo *topo, sn_sim_cluster *ret);

/* ---- what is trained ---- */

typedef struct sn_sim_model {
    const char *name;
    int64_t layers, hidden, heads, kv_heads, mlp, vocab, sequence;
    bool gated; /* three matrices in an MLP */
    bool fused; /* attention in one kernel that skips what is masked */
    bool drops; /* dropout, with its masks */
} sn_sim_model;

int sn_sim_models(const sn_sim_model **ret);
const sn_sim_model *sn_sim_model_find(const char *name);
double sn_sim_parameters(const sn_sim_model *m);
/* Of a sample, forward and backward, nothing computed twice; attention whole, as papers count. */
double sn_sim_flops(const sn_sim_model *m);

/* ---- how it is split ---- */

typedef enum sn_sim_recompute {
    SN_SIM_KEEP,      /* all activations */
    SN_SIM_SELECTIVE, /* the core of attention is computed again */
    SN_SIM_FULL,      /* each layer keeps its input */
    SN_SIM_RECOMPUTES
} sn_sim_recompute;

typedef enum sn_sim_schedule {
    SN_SIM_1F1B,  /* interleaved where virtual_stages > 1 */
    SN_SIM_ZB_H1, /* weight gradients fill the bubble, memory of 1F1B */
    SN_SIM_ZB_H2, /* with twice that memory */
    SN_SIM_SCHEDULES
} sn_sim_schedule;

typedef struct sn_sim_layout {
    int tensor, pipeline, virtual_stages, data, context;
    int64_t micro_batch; /* samples */
    sn_sim_recompute recompute;
    sn_sim_schedule schedule;
    bool sequence_parallel; /* what tensor parallelism leaves whole is split along the sequence */
    int shards;             /* optimizer over the data group: 0 not, 1 its state, 3 all */
    bool no_overlap;        /* gradients are reduced when the last backward is over */
    bool fused_sum;         /* weight gradients are added up where they are computed */
} sn_sim_layout;

/* ---- what comes out ---- */

typedef struct sn_sim_step {
    double seconds;
    /* of it, of the busiest card: */
    double compute, again, tensor, bubble, data, optimizer;
    double forward, backward, weights; /* of a micro-batch on a stage: all, all but, products of */
    int64_t micros;
    double flops; /* of the step, whole job, nothing counted twice */
    double use;   /* of the stated peak: model FLOPs */
    double memory, parameters, gradients, states, activations; /* of the fullest card */
} sn_sim_step;

/* SN_EFIT: the layout does not divide, or needs more cards than there are (the sentence says
 * which). Memory is reported, not judged. Cost: about a microsecond. */
sn_status sn_sim_price(const sn_sim_cluster *c, const sn_sim_model *m, const sn_sim_layout *l,
                       int64_t batch, sn_sim_step *ret);

/* The clock of a pipeline: forward, input-gradient and weight-gradient units of m micro-batches on
 * p stages, `hop` seconds between neighbours; how long, and what part of it stages stand still. */
double sn_sim_pipeline(sn_sim_schedule s, int p, int virtual_stages, int64_t m, double forward,
                       double backward, double weights, double hop, double *ret_idle);

typedef struct sn_sim_unit { /* a forward or a backward of a micro-batch on a stage */
    int stage;
    int64_t micro;
    bool backward;
    double from, to;
} sn_sim_unit;
typedef void (*sn_sim_visit)(void *ctx, const sn_sim_unit *u);

/* 1F1B unit by unit, each told to `visit` (NULL: nobody) in the order in which stages take them;
 * returns when the last one ends. Without hops that is sn_sim_pipeline's. Cost: 20 ns a unit. */
double sn_sim_walk(int stages, int64_t micros, double forward, double backward, double hop,
                   sn_sim_visit visit, void *ctx);

/* ---- the best of all ---- */

typedef struct sn_sim_found {
    sn_sim_layout layout;
    sn_sim_step step;
} sn_sim_found;

typedef struct sn_sim_answer {
    int64_t candidates, fitting; /* looked at; fit the memory */
    int count;
    sn_sim_found best[16]; /* best first, each of another (tensor, pipeline, data, context) */
    sn_sim_found leanest;  /* least memory of all */
} sn_sim_answer;

/* Every split of `cards` (0: all) and `batch` samples a step. SN_EFIT: nothing fits the memory; the
 * sentence says what the leanest needs, and what would fit it. */
sn_status sn_sim_search(const sn_sim_cluster *c, const sn_sim_model *m, int64_t batch,
                        sn_sim_answer *ret);

/* ---- a whole run ---- */

typedef struct sn_sim_recovery { /* what happens when a node fails */
    const char *name;
    double detect;      /* seconds until it is known */
    double restart;     /* until all compute again, nothing lost counted */
    double saves_every; /* seconds between checkpoints; 0: the best interval is taken */
    double save_stalls; /* seconds that a checkpoint stands in the way */
    bool from_peers;    /* state comes from another card's memory: at most a step is lost */
    const char *source;
} sn_sim_recovery;

int sn_sim_recoveries(const sn_sim_recovery **ret); /* published systems', and this one's */

typedef struct sn_sim_plan_of_run {
    double step_seconds, tokens_per_step, tokens; /* tokens 0: `days` instead */
    double days;
    int cards, per_host;
    double failures_per_1000_node_days;
    sn_sim_recovery recovery;
    double card_watts, host_watts, pue, dollars_per_card_hour, dollars_per_kwh, co2_kg_per_kwh;
    double repair_hours; /* until a failed node is back */
    uint64_t seed;
} sn_sim_plan_of_run;

typedef struct sn_sim_ran {
    double days, useful;              /* share of the time in steps that count */
    double expected;                  /* the same in closed form */
    double interval;                  /* seconds between checkpoints */
    int64_t failures, spares;         /* spares: enough nodes 99.9 % of the time */
    double lost, stalled, restarting; /* shares of the time */
    double availability;              /* share of the time in which the job computes */
    double kwh, dollars, dollars_of_power, co2_kg;
} sn_sim_ran;

/* Failures drawn from the seed. Same seed, same run. Cost: about 0.1 us a failure. */
sn_status sn_sim_run(const sn_sim_plan_of_run *p, sn_sim_ran *ret);

/* ---- many at once ---- */

typedef struct sn_sim_flow { /* from a card to another */
    int from, to;
} sn_sim_flow;

/* Max-min fair rates [flows] of flows that all send at the same time, bytes a second; HUGE_VAL for
 * a card to itself. SN_ENOTFOUND: two cards without a route. Cost: wires times full wires. */
sn_status sn_sim_rates(const sn_topo *topo, const sn_sim_flow *flow, int flows, double *ret_rate);

typedef enum sn_sim_traffic {
    SN_SIM_RING,       /* an all-reduce: each card to the next, 2 (n - 1) / n of the bytes */
    SN_SIM_ALL_TO_ALL, /* each card's bytes to all others, shift by shift */
} sn_sim_traffic;

/* Seconds for `bytes` a card among `cards` cards spread evenly over the topology: the bandwidth's
 * part alone, each step waits for its slowest. */
sn_status sn_sim_pattern(const sn_topo *topo, sn_sim_traffic what, int cards, double bytes,
                         double *ret_seconds);

/* ---- what was measured ---- */

typedef struct sn_sim_fact { /* one published figure beside the model's */
    const char *table, *row, *unit;
    bool fit; /* constants were fitted on it */
    double measured, model;
    bool absolute; /* the error is a difference, not a share */
} sn_sim_fact;

/* All of them, in order; what the constants of price.c are judged by. */
int sn_sim_truth(sn_arena *arena, sn_sim_fact **ret);
/* Mean |error| of a table's rows, fitted ones left out where `unseen`. */
double sn_sim_truth_error(const sn_sim_fact *fact, int facts, const char *table, bool unseen);

#endif
