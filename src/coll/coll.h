/* SPDX-License-Identifier: Apache-2.0
 *
 * coll — collectives and point-to-point among the cards of a job: executes algo's schedules over
 * gmem (inside a host) and net (across hosts).
 *
 *   sn_coll          one per worker: the arena segment of its host, groups, progress
 *   sn_coll_group    ordered members; collectives on it are numbered 1, 2, 3 … and must be issued
 *                    in the same order by all
 *   sn_coll_req      a posted operation; sn_coll_progress drives all of them, sn_coll_wait waits
 *                    for one
 *
 * Buffers from sn_coll_alloc lie in the worker's segment: peers on the host read and write them in
 * place, no copies. Any other memory works too: what peers have to touch of it is staged through
 * the segment, in chunks that overlap.
 *
 * Invariants
 *  1. Never a hang: every wait has a deadline and fails with rank, host, operation, group and
 *     sequence number: "rank 3 (h1): all_reduce #12 in group data[s0,t1]: no signal from rank 5
 *     (h1) for 10.0 s".
 *  2. A fingerprint (op, seq, count, dtype, red, root, deterministic) is compared before data
 *     moves: SN_EMISMATCH on every member, naming two.
 *  3. Results are bit-identical on all members. bf16 and f16 accumulate in f32.
 *  4. After a failure the group is broken: later calls return the same failure, on every member, in
 *     bounded time. After SN_EPEER, SN_EEPOCH and SN_ECANCEL buffers under way to other hosts must
 *     live until sn_coll_close.
 *  5. in == out is allowed (in place) for every operation where sizes agree; so is IN as one's own
 *     block of OUT (all_gather) and OUT as one's own block of IN (reduce_scatter). Any other
 *     overlap is SN_EINVAL.
 *  6. One thread, the worker's, unless opts.threads: then any thread may call anything at any time;
 *     the calls on one group are numbered in the order in which they come. sn_coll_group_abort is
 *     for any thread always.
 *  7. No allocation after group creation but when a call is larger than any before. */
#ifndef SN_COLL_COLL_H
#define SN_COLL_COLL_H

#include "algo/algo.h"
#include "gmem/gmem.h"

typedef struct sn_coll sn_coll;
typedef struct sn_coll_group sn_coll_group;
typedef struct sn_coll_req sn_coll_req;

typedef struct sn_coll_opts {
    uint64_t arena_bytes;       /* for sn_coll_alloc */
    uint64_t stage_bytes;       /* more staging for buffers outside the arena; 0: 6 MiB */
    const sn_topo *topo;        /* for the choice of algorithm; borrowed; card i is rank i */
    const sn_algo_model *model; /* calibrated, of a group of all ranks; NULL: from topo. Borrowed */
    sn_recorder *recorder;      /* of every operation; borrowed, NULL: off */
    bool threads;               /* several threads may call at once */
    sn_time deadline;
} sn_coll_opts;

/* collective over the whole job */
sn_status sn_coll_open(sn_net *net, const sn_coll_opts *opts, sn_coll **ret);
void sn_coll_close(sn_coll *c);
sn_status sn_coll_alloc(sn_coll *c, uint64_t bytes, void **ret);
/* Buffers in my part of this segment count as being in the arena too, for groups all of whose
 * members on my host are members of the segment. Every rank of the segment calls it, each in the
 * same order, before anybody uses such a buffer. Borrowed until sn_coll_close; at most 15. */
sn_status sn_coll_use(sn_coll *c, const sn_segment *segment);

/* Collective over members (ranks, in group order, containing me; ≥ 1). The name goes into messages.
 * Groups of one work. What several threads make of the same members at once has different names. */
sn_status sn_coll_group_create(sn_coll *c, const char *name, const int *members, int n,
                               sn_time deadline, sn_coll_group **ret);
void sn_coll_group_free(sn_coll_group *g);
/* Any thread, at any point but after the free: every wait of the group on every member ends in
 * bounded time with SN_ECANCEL and a sentence that names this rank and `why`; so does every later
 * call. Members on other hosts hear of it when a thread of this rank, or of another member on this
 * host, is next in a call of coll (with opts.threads: this one). */
void sn_coll_group_abort(sn_coll_group *g, const char *why);
int sn_coll_group_size(const sn_coll_group *g);
int sn_coll_group_me(const sn_coll_group *g);

typedef struct sn_coll_call {
    sn_coll_op op;
    sn_red red;
    sn_dtype dtype;     /* F32, BF16, F16 for reductions; any type where bytes are only moved */
    int64_t count;      /* elements, as in sn_coll_op; 0 allowed */
    int root;           /* member index: broadcast, gather, scatter */
    bool deterministic; /* the sum in the order of the members, in f32, rounded once */
    const void *in;     /* keeps until the request completes */
    void *out;
    int priority;          /* higher first among those posted */
    const char *algorithm; /* NULL: chosen */
} sn_coll_call;

/* Start an operation. Never blocks. The request comes from the group's pool (64; SN_AGAIN when none
 * is free). */
sn_status sn_coll_post(sn_coll_group *g, const sn_coll_call *call, sn_time deadline,
                       sn_coll_req **ret);
/* Many all_reduces of one type and reduction as one operation: one number in the group, one
 * signal for all of them. calls[] lives until it is complete. Priority, algorithm and deterministic
 * are the first one's. */
sn_status sn_coll_post_many(sn_coll_group *g, const sn_coll_call *calls, int n, sn_time deadline,
                            sn_coll_req **ret);
/* post + wait */
sn_status sn_coll_run(sn_coll_group *g, const sn_coll_call *call, sn_time deadline);

/* Point to point between two ranks of the job, any host; matched by (pair, tag) in order. In a host
 * the receiver copies straight from the sender's buffer when it lies in the arena. The send
 * completes when its buffer may be reused. */
sn_status sn_coll_send(sn_coll *c, int peer, uint32_t tag, const void *buf, uint64_t bytes,
                       sn_time deadline, sn_coll_req **ret);
sn_status sn_coll_recv(sn_coll *c, int peer, uint32_t tag, void *buf, uint64_t bytes,
                       sn_time deadline, sn_coll_req **ret);

sn_status sn_coll_test(sn_coll_req *req); /* SN_OK done (freed), SN_PENDING, or failure (freed) */
sn_status sn_coll_wait(sn_coll_req *req); /* to its deadline; frees it */
void sn_coll_progress(sn_coll *c);        /* call between kernels; < 300 ns when nothing is ready */

typedef struct sn_coll_stats {
    uint64_t calls, bytes_host, bytes_net;
} sn_coll_stats;
sn_coll_stats sn_coll_stats_get(const sn_coll *c); /* since open; bytes this rank received */

#endif
