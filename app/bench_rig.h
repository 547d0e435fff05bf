/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_rig — ranks with a communicator and buffers, that run what they are asked for.
 *
 *   harness ── bench_ask in shared memory ──▶ rank 0 … n-1: ask.fn(rank, ask), e.g. a burst of
 *           ◀── the slowest rank's value ────               all_reduce, or the loop that bounds it
 *
 * What is asked is a function of this program (ranks are forks, so it lies at the same address) and
 * a collective call. Ranks are on this machine's cores in turn, on hosts that are process groups
 * over the loopback, or namespaces over a wire. */
#ifndef SN_APP_BENCH_RIG_H
#define SN_APP_BENCH_RIG_H

#include "bench.h"
#include "bench_world.h"

#include "coll/coll.h"

typedef struct bench_rig_opts {
    int ranks;
    const int *host;              /* as in bench_job */
    const bench_wire *wire;       /* likewise */
    uint64_t in_bytes, out_bytes; /* room for the largest call's IN and OUT */
    bool ordinary;                /* malloc'ed buffers too */
    uint64_t loop_bytes;          /* a buffer a rank that all map, for bench_do_loop; 0 none */
    const char *record;           /* a directory for flight recorders, NULL: none */
    sn_time detect_ns;            /* as in bench_job */
    bool threads;                 /* as in sn_coll_opts, */
    const sn_topo *topo;          /* as in sn_coll_opts */
    const sn_algo_model *model;   /* likewise */
} bench_rig_opts;

struct bench_rank;

typedef enum bench_group {
    BENCH_ALL,  /* ranks in order */
    BENCH_HOST, /* those of one's host; all hosts do it at the same time */
    BENCH_LANE, /* the k-th of every host; likewise */
    BENCH_GROUPS
} bench_group;

typedef struct bench_ask {
    sn_status (*fn)(struct bench_rank *r, const struct bench_ask *ask, double ret[BENCH_VALUES]);
    sn_coll_op op;
    sn_dtype dtype;
    int64_t count; /* as in sn_coll_call */
    int times;     /* back to back */
    bench_group group;
    bool ordinary, stream, check;
    char algorithm[32]; /* "": chosen */
    int64_t arg;        /* for functions of a case's own */
} bench_ask;

typedef struct bench_rig_shared { /* by the harness and all ranks that it forked */
    bench_barrier barrier;
    sn_flag_line flag[BENCH_WORLD_MAX];
    bench_ask ask;
    float *loop[BENCH_WORLD_MAX];
} bench_rig_shared;

typedef struct bench_rank { /* in a rank */
    const bench_rig_opts *opts;
    bench_rig_shared *shared; /* NULL: started by somebody else */
    int me;
    uint32_t round; /* of flags, since it started */
    sn_net *net;
    sn_coll *coll;
    sn_coll_group *group[BENCH_GROUPS]; /* NULL: not in one */
    sn_segment *segment;                /* of the ranks on its host, for flags */
    sn_recorder *recorder;
    void *in[2], *out[2]; /* of the arena, of malloc */
} bench_rank;

typedef struct bench_rig bench_rig;

sn_status bench_rig_start(const bench_rig_opts *opts, bench_rig **ret);
void bench_rig_stop(bench_rig *rig); /* NULL is fine */
/* Every rank does it once; *ret is the slowest rank's first value. */
sn_status bench_rig_ask(bench_rig *rig, const bench_ask *ask, double *ret);
double bench_rig_value(const bench_rig *rig, int rank, int i); /* of the last one asked */

/* The same for ranks that mpirun or srun started, of which this process is one: rank 0 asks, the
 * others serve until it stops. Functions asked for have to be in bench_fns. opts->host is not
 * looked at; the map that was found is written to ret_host [world]. Borrows boot. */
sn_status bench_rig_join(const bench_rig_opts *opts, sn_boot *boot, bench_rig **ret, int *ret_host);
sn_status bench_rig_serve(bench_rig *rig);
/* The same in two, for what happens in between: then bench_world_hear. */
sn_status bench_rig_tell(bench_rig *rig, const bench_ask *ask);
bench_world *bench_rig_world(const bench_rig *rig);
sn_flag_line *bench_rig_flag(bench_rig *rig, int rank); /* the one that bench_rank_flag gives */
void bench_rig_kill(bench_rig *rig);                    /* stop, without waiting for goodbyes */

/* Who else can do `times` operations back to back, and says the seconds of one. */
typedef struct bench_rival {
    sn_status (*ask)(void *ctx, int times, double *ret);
    void *ctx;
} bench_rival;

/* Fills in `pairs` samples in microseconds, A B A B: ours, the rival's (NULL: none) and, when
 * `bounded`, the loop's, stored whichever way is faster. */
sn_status bench_rig_pairs(bench_rig *rig, const bench_ask *ask, const bench_rival *rival,
                          bool bounded, int pairs, bench_result *ret);

/* ---- what can be asked ---- */

/* Seconds of one of `times` operations back to back, in place where IN and OUT are of one size.
 * `check`: once instead, on numbers whose result is known (f32 only); leaves zeros. */
sn_status bench_do_call(bench_rank *r, const bench_ask *ask, double ret[BENCH_VALUES]);
/* The bound of an all_reduce of `count` f32: seconds in which each rank reads its part of all
 * inputs once and writes it to all outputs once, between two barriers. */
sn_status bench_do_loop(bench_rank *r, const bench_ask *ask, double ret[BENCH_VALUES]);

/* The parts that collectives are made of, in seconds; 0: not here. signal: between two ranks of a
 * host. copy, reduce: a byte moved, by one rank alone (`arg` 0) or by all at once (1). net, between
 * the first ranks of two hosts: ret[0] one way, ret[1] bytes a second, ret[2] of each further
 * message. */
sn_status bench_do_signal(bench_rank *r, const bench_ask *ask, double ret[BENCH_VALUES]);
sn_status bench_do_copy(bench_rank *r, const bench_ask *ask, double ret[BENCH_VALUES]);
sn_status bench_do_reduce(bench_rank *r, const bench_ask *ask, double ret[BENCH_VALUES]);
sn_status bench_do_net(bench_rank *r, const bench_ask *ask, double ret[BENCH_VALUES]);

/* A rank on a net that is open, which it closes. */
sn_status bench_rank_open(const bench_rig_opts *opts, bench_rig_shared *shared, sn_net *net,
                          bench_rank **ret);
void bench_rank_close(bench_rank *r); /* NULL is fine */

/* For functions of one's own: the call that is asked for, and a place where ranks meet. */
sn_coll_call bench_rank_call(const bench_rank *r, const bench_ask *ask);
void bench_rank_meet(bench_rank *r);
sn_flag_line *bench_rank_flag(bench_rank *r, int rank); /* one a rank, seen by all */

/* The members of `me`'s group in order; 0: it is in none. */
int bench_group_members(const int *host, int ranks, int me, bench_group kind,
                        int ret[BENCH_WORLD_MAX]);

/* Elements that IN and OUT of a call among n members have. */
int64_t bench_in_count(sn_coll_op op, int64_t count, int n);
int64_t bench_out_count(sn_coll_op op, int64_t count, int n);

#endif
