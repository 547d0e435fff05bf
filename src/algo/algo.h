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
 *  5. Sums of bf16 and f16 are rounded once, at the end: a REDUCE reads all its sources at once,
 *     and what is not yet a result stays F32 (SN_BUF_WIDE), on the wire too.
 *
 * In place: IN and OUT may be the same memory, and IN may be the member's own block of OUT
 * (all_gather, gather) or OUT its own block of IN (reduce_scatter, scatter). Pure. */
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
    SN_GATHER,         /* in [n] → out [n·p] of the root; the others' OUT is never touched */
    SN_SCATTER,        /* in [n·p] of the root → out [n]; the others' IN is never touched */
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
    const struct sn_algo_model *model; /* for the number of segments: the one that is chosen by;
                                          NULL: that of no topology */
} sn_algo_group;

typedef struct sn_algo_call {
    sn_coll_op op;
    sn_red red;
    sn_dtype dtype;
    int64_t count;      /* the n above, elements; 0 allowed */
    int root;           /* member index: broadcast, gather, scatter */
    bool in_place;      /* this member's IN is its OUT; others may differ */
    bool deterministic; /* sums are those of members 0, 1, 2 … in this order, in f32, rounded once:
                           the same bits whatever the algorithm, the hosts and the segments */
} sn_algo_call;

typedef enum sn_buf {
    SN_BUF_IN,
    SN_BUF_OUT,
    SN_BUF_TMP,  /* private scratch: sched.tmp_count elements of the call's type */
    SN_BUF_WIDE, /* private scratch: sched.wide_count F32 elements, whatever the call's type: bf16
                    and f16 sums that are not finished */
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
    SN_STEP_COPY,   /* one place → one place, of which one at least is mine; never WIDE */
    SN_STEP_REDUCE, /* sources in their order → every destination, as many as members at most; AVG
                       divides by `divide` > 0; a destination may be exactly a source of its type;
                       WIDE among others is converted */
    SN_STEP_SEND,   /* my place → member on another host; goes on by itself until the next FENCE;
                      from WIDE, count · 4 bytes, and the receiver's place is WIDE too */
    SN_STEP_RECV,   /* my place ← member on another host; likewise */
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
    int64_t tmp_count, wide_count;
    int rounds;  /* the same on all members: the most that any of them signals */
    bool shared; /* the same on all members: some member's IN or OUT is touched by another */
} sn_sched;

#define SN_ALGO_ROWS_MAX 16
#define SN_ALGO_BANDS 6 /* of bytes around 2^9, 2^13 … 2^29; between them by interpolation */

/* What time is predicted from: from the topology, or fitted to measurements (sn_algo_fit). Plain
 * data: a group sends it about, so it stays below a kibibyte. */
typedef struct sn_algo_model {
    double signal_ns;                            /* one signal–wait in a host */
    double copy_bytes_per_s, reduce_bytes_per_s; /* of one member alone */
    double net_latency_ns, net_bytes_per_s;      /* of a host's wire, one way */
    double net_message_ns;         /* each further message that a member sends in the same round */
    double members_per_core;       /* ≥ 1: how many members share a core and its memory path */
    double call_ns;                /* each call, whatever it does */
    double net_member_bytes_per_s; /* of one member alone through its sockets; 0: no limit */
    double fitted;                 /* 1: by sn_algo_fit; 0: stated */
    /* Of a fitted model: how much longer than predicted by the above a row took for calls of an
     * operation around that many bytes, in steps of 2^(1/24); 0, as predicted, where none was
     * measured. */
    int8_t factor[SN_ALGO_ROWS_MAX][SN_COLL_OPS][SN_ALGO_BANDS];
} sn_algo_model;

_Static_assert(sizeof(sn_algo_model) <= 900, "members of a group send it to each other");

/* One algorithm: one file, one row. Others ask sn_algo_fits and sn_algo_cost_ns. */
struct algo_shape;
struct algo_counts;

typedef struct sn_algo_row {
    const char *name;  /* "flat", "ring", "hierarchical" */
    const char *needs; /* when it fits, in words: "one host" */
    uint32_t ops;      /* bit per sn_coll_op */
    uint32_t ordered;  /* likewise: those whose sums are deterministic (sn_algo_call) */
    bool notes;        /* an all_reduce of half a note goes through notes, never shared */
    bool by_name;      /* to compare with: taken only when asked for */
    /* Whatever the count. */
    bool (*fits)(const struct algo_shape *s, const sn_algo_group *g, const sn_algo_call *c);
    sn_status (*schedule)(const sn_algo_group *g, const sn_algo_call *c, int me, sn_arena *arena,
                          sn_sched *ret);
    /* What the slowest member's time is made of: how many signals, bytes, latencies … */
    void (*count)(const struct algo_shape *s, const sn_algo_group *g, const sn_algo_call *c,
                  const sn_algo_model *m, struct algo_counts *ret);
} sn_algo_row;

/* `card`: those of the group. */
sn_algo_model sn_algo_model_from(const sn_topo *topo, const int *card, int members);

/* A fitted model for a group: its speeds, and the members a core of the topology. */
sn_algo_model sn_algo_model_for(const sn_algo_model *fitted, const sn_topo *topo, const int *card,
                                int members);

int sn_algo_rows(const sn_algo_row *const **ret); /* the table: (*ret)[0 … n) */

/* Does the row do this call in this group? With `deterministic`, only rows that sum in order do. */
bool sn_algo_fits(const sn_algo_row *row, const sn_algo_group *g, const sn_algo_call *c);

/* Predicted ns for the slowest member. */
double sn_algo_cost_ns(const sn_algo_row *row, const sn_algo_group *g, const sn_algo_call *c,
                       const sn_algo_model *m);

/* The cheapest fitting algorithm by sn_algo_cost_ns; the same on every member. An all_reduce of
 * half a note or less is never shared unless forced to. name != NULL forces one (SN_ENOTSUP when it
 * does not fit, saying which do). */
sn_status sn_algo_choose(const sn_algo_group *g, const sn_algo_call *c, const sn_algo_model *m,
                         const char *name, const sn_algo_row **ret, double *ret_cost_ns);

/* ---- calibration ---- */

typedef struct sn_algo_sample { /* one measured call */
    const sn_algo_group *group; /* its model: the one that the members took their segments by */
    sn_algo_call call;
    const sn_algo_row *row;
    double ns;               /* of the slowest member, > 0 */
    double members_per_core; /* in this measurement; 0: the model's */
} sn_algo_sample;

/* The speeds that predict the samples with the least relative error, none of them negative, and
 * each row's factors. Deterministic. In: a model to start from, whose values stay where the samples
 * say nothing. ret_error: the mean of |predicted / measured - 1|; may be NULL. */
sn_status sn_algo_fit(const sn_algo_sample *sample, int samples, sn_algo_model *inout,
                      double *ret_error);

/* As JSON text, for a cache. Reading takes any bytes and fails with a sentence. */
void sn_algo_model_write(const sn_algo_model *m, sn_str *out);
sn_status sn_algo_model_read(const char *text, size_t bytes, sn_algo_model *ret);

/* All members' schedules together: matching, bounds, exactly-once. Asserts. */
void sn_sched_check(const sn_algo_group *g, const sn_algo_call *c, const sn_sched *all);

#endif
