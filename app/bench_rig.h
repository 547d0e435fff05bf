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
    sn_time detect_ns;            /* as in sn_net_opts */
} bench_rig_opts;

struct bench_rank;

typedef struct bench_ask {
    sn_status (*fn)(struct bench_rank *r, const struct bench_ask *ask, double ret[BENCH_VALUES]);
    sn_coll_op op;
    sn_dtype dtype;
    int64_t count; /* as in sn_coll_call */
    int times;     /* back to back */
    bool ordinary, stream, check;
    char algorithm[32]; /* "": chosen */
    int64_t arg;        /* for functions of a case's own */
} bench_ask;

typedef struct bench_rank { /* in a rank */
    const bench_rig_opts *opts;
    struct bench_rig_shared *shared;
    int me;
    uint32_t round; /* of flags, since it started */
    sn_net *net;
    sn_coll *coll;
    sn_coll_group *group; /* all ranks in order */
    sn_recorder *recorder;
    void *in[2], *out[2]; /* of the arena, of malloc */
} bench_rank;

typedef struct bench_rig bench_rig;

sn_status bench_rig_start(const bench_rig_opts *opts, bench_rig **ret);
void bench_rig_stop(bench_rig *rig); /* NULL is fine */
/* Every rank does it once; *ret is the slowest rank's first value. */
sn_status bench_rig_ask(bench_rig *rig, const bench_ask *ask, double *ret);
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

/* For functions of one's own: the call that is asked for, and a place where ranks meet. */
sn_coll_call bench_rank_call(const bench_rank *r, const bench_ask *ask);
void bench_rank_meet(bench_rank *r);
sn_flag_line *bench_rank_flag(bench_rank *r, int rank); /* one a rank, seen by all */

/* Elements that IN and OUT of a call among n members have. */
int64_t bench_in_count(sn_coll_op op, int64_t count, int n);
int64_t bench_out_count(sn_coll_op op, int64_t count, int n);

#endif
