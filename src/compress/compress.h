/* SPDX-License-Identifier: Apache-2.0
 *
 * compress — collectives over f32 vectors whose bytes between hosts are encoded (codec), with error
 * feedback. Built from coll's own operations on sub-groups; inside a host nothing is lossy.
 *
 *   reduce_scatter   host: reduce_scatter to lanes ▸ encode the blocks of the other hosts ▸
 *                    lane: all_to_all of codes ▸ decode, add to mine in host order
 *   all_gather       encode what of my block the others have not seen ▸ lane: all_gather of codes ▸
 *                    host: all_gather of codes ▸ everybody decodes and adds to `seen`
 *   all_reduce       the two after each other, each with its own error feedback; between two hosts
 *                    lane: all_gather of the codes of everything ▸ host: all_gather of codes ▸
 *                    everybody decodes and adds up
 *   PowerSGD         host: all_reduce ▸ lane: all_reduce of P, then of Q ▸ host: broadcast of both
 *
 * A *relay* is a member that talks to other hosts. Where all hosts have equally many members each
 * is one, and the relays with the same place on their hosts are a lane; otherwise the first member
 * of each host is. A group inside one host is not compressed: the calls become coll's.
 *
 * Invariants
 *  1. What one member decodes, all decode from the same bytes: results of all_gather and all_reduce
 *     are the same bits on all members. A sum is the owner's part, then the others' in
 *     host order; of an exchange, all in host order.
 *  2. Unless it is to be forgotten nothing is lost, only late: what a code leaves out stays in a
 *     residual and goes with the next call; for all_gather it is the difference between a block and
 *     what was seen of it.
 *  3. Calls of a group must come in the same order on all members. Several vectors may be under
 *     way at once; each sub-group sees their operations in the order of the calls.
 *  4. Sizes depend on counts and codec alone: after sn_compress_open nothing is allocated.
 *  5. NaN and infinity pass through as NaN and leave no trace in the residual.
 *  6. Failures are coll's sentences after "compressed all_gather of NAME: ". */
#ifndef SN_COMPRESS_COMPRESS_H
#define SN_COMPRESS_COMPRESS_H

#include "codec/codec.h"
#include "coll/coll.h"

/* ---- who: the sub-groups of a group, shared by all its vectors ---- */

typedef struct sn_compress_group sn_compress_group;
/* Collective over the members. host[i]: the host of member i, any numbering, the same on all.
 * `all` is the group of exactly these members, borrowed; name is copied. */
sn_status sn_compress_group_create(sn_coll *c, sn_coll_group *all, const char *name,
                                   const int *members, const int *host, int n, sn_time deadline,
                                   sn_compress_group **ret);
void sn_compress_group_free(sn_compress_group *g); /* after its vectors; NULL is fine */
int sn_compress_group_hosts(const sn_compress_group *g);

/* ---- what: one vector ---- */

typedef struct sn_compress_matrix { /* PowerSGD: elements [at, at + rows · cols), row-major */
    int64_t at, rows, cols;
} sn_compress_matrix;

/* A code of its own: elements of one kind, so that large ones elsewhere do not drown small ones. */
typedef struct sn_compress_segment {
    int64_t at, count;
    sn_codec codec;
    int passes; /* codes one after the other, each of what the one before left; 0: 1 */
} sn_compress_segment;

typedef struct sn_compress_opts {
    const char *name; /* for messages; borrowed until close */
    sn_codec
        codec; /* of all, or of what segments do not say otherwise: PowerSGD or not, none or not */
    int64_t count; /* elements of the whole vector */
    int segments;  /* copied, in order, but for PowerSGD; what they do not cover is padding: 0 */
    const sn_compress_segment *segment; /* 0 segments: one of everything */
    int matrices; /* PowerSGD, copied: in order; what they do not cover goes uncompressed */
    const sn_compress_matrix *matrix;
    int first_relay; /* PowerSGD: matrices go to the relays of a host in turn, from this one on */
    double momentum; /* top-k's momentum correction, 0: none */
    bool forget;     /* what a code leaves out of a contribution to a sum is not kept */
    unsigned calls;  /* which of the three will be made: SN_COMPRESS_… below, or'ed */
} sn_compress_opts;

enum { SN_COMPRESS_REDUCE_SCATTER = 1, SN_COMPRESS_ALL_GATHER = 2, SN_COMPRESS_ALL_REDUCE = 4 };

typedef struct sn_compress sn_compress;
/* Bytes that member `me` takes from coll's arena for a vector. Pure. */
uint64_t sn_compress_arena_bytes(const int *host, int n, int me, const sn_compress_opts *opts);
/* Local. SN_EINVAL: matrices that overlap or reach beyond the vector, momentum for another codec.
 * Codes lie in coll's arena (SN_EFIT when it is full), residuals in memory of their own. */
sn_status sn_compress_open(sn_compress_group *g, const sn_compress_opts *opts, sn_compress **ret);
/* After a failure: not before the operations under way are given up, see coll.h, invariant 4. */
void sn_compress_close(sn_compress *z); /* NULL is fine */
/* From now on calls go uncompressed (a warm-up), or encoded again. Between calls, the same on all
 * members. */
void sn_compress_plain(sn_compress *z, bool plain);

/* ---- calls: one at a time per vector; they start and return ----
 *
 * SN_AGAIN: uncompressed, and coll has no free request: call again after progress. red: SUM or AVG.
 * count of the vector must divide by the members, except for all_reduce. */

/* `in` [count] is used up: its contents are undefined afterwards. out [count / n] may be my own
 * block of it. */
sn_status sn_compress_reduce_scatter(sn_compress *z, float *in, float *out, sn_red red,
                                     int priority, sn_time deadline);
/* mine [count / n]; seen [count]: the same bits on all members before and after. With PowerSGD:
 * SN_ENOTSUP. */
sn_status sn_compress_all_gather(sn_compress *z, const float *mine, float *seen, int priority,
                                 sn_time deadline);
sn_status sn_compress_all_reduce(sn_compress *z, float *data, sn_red red, int priority,
                                 sn_time deadline);

sn_status sn_compress_test(sn_compress *z); /* SN_OK, SN_PENDING, or the failure */
sn_status sn_compress_wait(sn_compress *z); /* to its deadline */
/* Move every vector of the group as far as it goes without waiting: call between kernels. */
void sn_compress_progress(sn_compress_group *g);

/* ---- training state: what a checkpoint carries ---- */

typedef enum sn_compress_state_kind {
    SN_COMPRESS_OWED,      /* error feedback: what host `source` has not delivered yet */
    SN_COMPRESS_OWED_BACK, /* the same of all_reduce's second half; source: the owner's host */
    SN_COMPRESS_VELOCITY,  /* momentum correction of host `source` */
    SN_COMPRESS_FACTOR     /* PowerSGD's Q of a matrix: only a better start; no sum */
} sn_compress_state_kind;

typedef struct sn_compress_state {
    sn_compress_state_kind kind;
    int source; /* host, 0 … hosts - 1 in order of first appearance among the members */
    int64_t at,
        count; /* elements [at, at + count) of the vector; FACTOR: at of its matrix, cols · rank */
    float *data; /* read by a save, written by a load, between calls */
    bool shared; /* others hold the same bits: the member of host 0 saves it */
} sn_compress_state;
/* The pieces of this member. Over all members they cover, per source, each element exactly once
 * (OWED_BACK: once for all sources together). */
int sn_compress_states(sn_compress *z, const sn_compress_state **ret);

/* Take over what host `source` of a job that was split otherwise owed for elements [at, at +
 * count): every member is told everything and adds what falls to it. The sum over all hosts stays
 * what it was. */
void sn_compress_take_over(sn_compress *z, sn_compress_state_kind kind, int source, int64_t at,
                           int64_t count, const float *data);

/* ---- numbers ---- */

typedef struct sn_compress_stats {
    uint64_t plain_bytes; /* what this member would have received from other hosts uncompressed */
    uint64_t coded_bytes; /* what it did receive */
    int64_t codec_ns;     /* encoding and decoding */
} sn_compress_stats;
sn_compress_stats sn_compress_stats_get(const sn_compress_group *g); /* of its calls so far */

#endif
