/* SPDX-License-Identifier: Apache-2.0
 *
 * algo — collective algorithms as schedules: (operation, group, bytes) → for one member, the list
 * of its steps.
 *
 * A schedule says nothing about how bytes move. Steps name members by index in the group and ranges
 * in elements; `coll` executes them over gmem and net, a simulator prices them, a test runs them on
 * plain arrays.
 *
 *   reduce-scatter in the host, flat:   SIGNAL all · WAIT all · REDUCE my slice from every member's
 * IN into my OUT · SIGNAL · WAIT
 *
 * Members see each other's memory only when they are on one host (group.host[a] == group.host[b]);
 * between hosts there are only SEND and RECV.
 *
 * Invariants (sn_sched_check asserts them)
 *  1. Sends and receives between two members match in order and count.
 *  2. Each element of a result is computed by exactly one member and copied from it, or computed in
 * the same order by all: results are bit-identical on all members.
 *  3. bf16 and f16 are accumulated in f32 (a REDUCE step reads all its sources at once and rounds
 * once).
 *  4. Signals are counted: the k-th WAIT on a member in a schedule pairs with its k-th SIGNAL to
 * me. Pure. */
#ifndef SN_ALGO_ALGO_H
#define SN_ALGO_ALGO_H

#include "base/base.h"
#include "topo/topo.h"

typedef enum sn_coll_op {
    SN_ALL_REDUCE,     /* in [n] → out [n] */
    SN_REDUCE_SCATTER, /* in [n·p] → out [n]: member i gets the sum of everyone's i-th block */
    SN_ALL_GATHER,     /* in [n] → out [n·p] */
    SN_BROADCAST,      /* out [n] of the root → out [n] of all (in place) */
    SN_ALL_TO_ALL,     /* in [n·p] → out [n·p]: my block j goes to member j's block me */
    SN_BARRIER,
    SN_COLL_OPS
} sn_coll_op;

typedef enum sn_red { SN_SUM, SN_AVG, SN_MAX, SN_MIN, SN_REDS } sn_red;

const char *sn_coll_op_name(sn_coll_op op); /* "all_reduce" */
const char *sn_red_name(sn_red red);

typedef struct sn_algo_group {
    int members;
    const int *host; /* [members] host index of each, any numbering */
} sn_algo_group;

typedef struct sn_algo_call {
    sn_coll_op op;
    sn_red red;
    sn_dtype dtype;
    int64_t count; /* the n above, elements; 0 allowed */
    int root;      /* member index, broadcast only */
} sn_algo_call;

typedef enum sn_buf {
    SN_BUF_IN,
    SN_BUF_OUT,
    SN_BUF_TMP
} sn_buf; /* TMP: sched.tmp_count elements of f32 scratch */

typedef enum sn_step_kind {
    SN_STEP_SIGNAL, /* tell `member` (same host) that everything I did before this is visible */
    SN_STEP_WAIT,   /* until `member`'s matching signal */
    SN_STEP_COPY,   /* my dst ← member's src (same host; member may be me) */
    SN_STEP_REDUCE, /* my dst ← red over members from[0 … n) of their src (same host), in that
                       order; AVG divides by `divide` */
    SN_STEP_SEND,   /* my src → member on another host */
    SN_STEP_RECV,   /* my dst ← member on another host */
    SN_STEP_SCALE,  /* my dst ← my dst / divide (AVG across hosts) */
} sn_step_kind;

typedef struct sn_step {
    sn_step_kind kind;
    int member;
    int from, froms; /* REDUCE: from_list[from … from + froms) */
    sn_buf dst, src;
    int64_t dst_at, src_at, count; /* elements */
    int divide;
} sn_step;

typedef struct sn_sched {
    const char *algorithm;
    int steps;
    sn_step *step;
    int *from_list;
    int64_t tmp_count;
} sn_sched;

typedef struct sn_algo_model {                   /* calibrated or stated; from the topology */
    double signal_ns;                            /* one signal–wait in a host */
    double copy_bytes_per_s, reduce_bytes_per_s; /* of one member alone */
    double net_latency_ns, net_bytes_per_s;
    double members_per_core; /* ≥ 1: how many members share a core and its memory path */
} sn_algo_model;

/* One algorithm: one file, one row. */
typedef struct sn_algo_row {
    const char *name; /* "flat", "ring", "hierarchical" */
    uint32_t ops;     /* bit per sn_coll_op */
    bool (*fits)(const sn_algo_group *g, const sn_algo_call *c);
    sn_status (*schedule)(const sn_algo_group *g, const sn_algo_call *c, int me, sn_arena *arena,
                          sn_sched *ret);
    /* predicted ns for the slowest member: α, bandwidth of in-host and inter-host paths, `busy`
     * members per core */
    double (*cost_ns)(const sn_algo_group *g, const sn_algo_call *c, const sn_algo_model *m);
} sn_algo_row;

sn_algo_model sn_algo_model_from(const sn_topo *topo, const int *card,
                                 int members); /* cards of the group */

int sn_algo_rows(const sn_algo_row **ret); /* the table */

/* The cheapest fitting algorithm by cost_ns; deterministic, the same on every member. name != NULL
 * forces one (SN_ENOTSUP when it does not fit, saying which do). */
sn_status sn_algo_choose(const sn_algo_group *g, const sn_algo_call *c, const sn_algo_model *m,
                         const char *name, const sn_algo_row **ret, double *ret_cost_ns);

/* All members' schedules together: matching, bounds, exactly-once. Asserts. */
void sn_sched_check(const sn_algo_group *g, const sn_algo_call *c, const sn_sched *all);

#endif
