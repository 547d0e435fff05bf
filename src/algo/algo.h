/* SPDX-License-Identifier: Apache-2.0
 *
 * algo — collective algorithms as schedules: (operation, group, bytes) → for one member, the list
 * of its steps.
 *
 * A schedule says nothing about how bytes move. Steps name members by index in the group and ranges
 * in elements; `coll` executes them over gmem and net, a simulator prices them, a test runs them on
 * plain arrays.
 *
 *   flat all_reduce of two members, in place, no copies (slice 0 is member 0's to reduce):
 *
 *     member 0   SIGNAL 1 · WAIT 1 · REDUCE slice 0: all INs → all OUTs · SIGNAL 2 · WAIT 2
 *     member 1   SIGNAL 1 · WAIT 1 · REDUCE slice 1: all INs → all OUTs · SIGNAL 2 · WAIT 2
 *
 * Members see each other's memory only when they are on one host (group.host[a] == group.host[b]);
 * between hosts there are only SEND and RECV.
 *
 * Invariants (sn_sched_check asserts the first four)
 *  1. Sends and receives between two members match in order and count.
 *  2. Every element of a result is written. It is computed by exactly one member and copied from
 *     it, or by all in the same order: results are bit-identical on all members.
 *  3. Signals are numbered: a member's SIGNALs are its rounds 1, 2, 3 … `rounds`, and WAIT names
 *     the round of the member it waits for. No set of waits, receives and fences blocks for ever.
 *  4. Nobody touches another's IN or OUT before that member's round 1, nor after that member's last
 *     step. A member waits for round 1 of all on its host before it moves data.
 *  5. bf16 is accumulated in f32: a REDUCE reads all its sources at once and rounds once. So a
 *     result is rounded once inside a host, and once more per host where the group spans several.
 *
 * In place: IN and OUT may be the same memory, and IN may be the member's own block of OUT
 * (all_gather) or OUT its own block of IN (reduce_scatter). Pure. */
#ifndef SN_ALGO_ALGO_H
#define SN_ALGO_ALGO_H

#include "base/base.h"
#include "fold/fold.h"
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

const char *sn_coll_op_name(sn_coll_op op); /* "all_reduce" */

struct sn_algo_model;

typedef struct sn_algo_group {
    int members;
    const int *host; /* [members] host index of each, any numbering */
    const int *dim;  /* [dims] lengths of the mesh that the members are, the last one runs fastest;
                        NULL: "torus" finds one itself */
    int dims;
    const struct sn_algo_model *model; /* for the number of segments; NULL: that of no topology */
} sn_algo_group;

typedef struct sn_algo_call {
    sn_coll_op op;
    sn_red red;
    sn_dtype dtype;
    int64_t count; /* the n above, elements; 0 allowed */
    int root;      /* member index, broadcast only */
    bool in_place; /* this member's IN is its OUT; others may differ */
} sn_algo_call;

typedef enum sn_buf {
    SN_BUF_IN,
    SN_BUF_OUT,
    SN_BUF_TMP,  /* private scratch: sched.tmp_count elements of the call's type */
    SN_BUF_NOTE, /* SN_ALGO_NOTE_BYTES that members of the host may read even after their owner
                    finished, until all of them have */
} sn_buf;

#define SN_ALGO_NOTE_BYTES 2048

typedef struct sn_place {
    int member; /* whose buffer */
    sn_buf buf;
    int64_t at; /* elements */
} sn_place;

typedef enum sn_step_kind {
    SN_STEP_SIGNAL, /* my round `round`: everything I did before this is visible on my host */
    SN_STEP_WAIT,   /* until round `round` of `member`; SN_ALL: of every member on my host */
    SN_STEP_COPY,   /* one place → one place, of which one at least is mine */
    SN_STEP_REDUCE, /* sources in their order → every destination; AVG divides by `divide` > 0; a
                       destination may be exactly a source */
    SN_STEP_SEND,  /* my place → member on another host; goes on by itself until the next FENCE */
    SN_STEP_RECV,  /* my place ← member on another host; likewise */
    SN_STEP_FENCE, /* until all my sends and receives so far are complete; the end is a fence too */
} sn_step_kind;

#define SN_ALL (-1)

typedef struct sn_step {
    sn_step_kind kind;
    int member;    /* WAIT, SEND, RECV */
    int round;     /* SIGNAL, WAIT */
    int src, srcs; /* sched.place[src … src + srcs) */
    int dst, dsts;
    int64_t count; /* elements */
    int divide;
} sn_step;

typedef struct sn_sched {
    const char *algorithm;
    int steps, places;
    sn_step *step;
    sn_place *place;
    int64_t tmp_count;
    int rounds;  /* the same on all members: the most that any of them signals */
    bool shared; /* the same on all members: some member's IN or OUT is touched by another */
} sn_sched;

typedef struct sn_algo_model {                   /* calibrated or stated; from the topology */
    double signal_ns;                            /* one signal–wait in a host */
    double copy_bytes_per_s, reduce_bytes_per_s; /* of one member alone */
    double net_latency_ns, net_bytes_per_s;
    double net_message_ns;   /* each further message that a member sends in the same round */
    double members_per_core; /* ≥ 1: how many members share a core and its memory path */
} sn_algo_model;

/* One algorithm: one file, one row. */
typedef struct sn_algo_row {
    const char *name;  /* "flat", "ring", "hierarchical" */
    const char *needs; /* when it fits, in words: "one host" */
    uint32_t ops;      /* bit per sn_coll_op */
    bool notes;        /* an all_reduce of half a note goes through notes, never shared */
    bool (*fits)(const sn_algo_group *g, const sn_algo_call *c); /* whatever the count */
    sn_status (*schedule)(const sn_algo_group *g, const sn_algo_call *c, int me, sn_arena *arena,
                          sn_sched *ret);
    /* predicted ns for the slowest member: α, bandwidth of in-host and inter-host paths, `busy`
     * members per core */
    double (*cost_ns)(const sn_algo_group *g, const sn_algo_call *c, const sn_algo_model *m);
} sn_algo_row;

/* cards of the group */
sn_algo_model sn_algo_model_from(const sn_topo *topo, const int *card, int members);

int sn_algo_rows(const sn_algo_row *const **ret); /* the table: (*ret)[0 … n) */

/* The cheapest fitting algorithm by cost_ns; deterministic, the same on every member. An all_reduce
 * of half a note or less is never shared unless forced to. name != NULL forces one (SN_ENOTSUP when
 * it does not fit, saying which do). */
sn_status sn_algo_choose(const sn_algo_group *g, const sn_algo_call *c, const sn_algo_model *m,
                         const char *name, const sn_algo_row **ret, double *ret_cost_ns);

/* All members' schedules together: matching, bounds, exactly-once. Asserts. */
void sn_sched_check(const sn_algo_group *g, const sn_algo_call *c, const sn_sched *all);

#endif
