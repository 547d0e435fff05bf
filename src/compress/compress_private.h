/* SPDX-License-Identifier: Apache-2.0
 *
 * compress_private — what the files of compress share.
 *
 *   call ──▶ one *half* or two (all_reduce: reduce-scatter, then gather)
 *   half     stages in order, each a number of coll operations on one sub-group:
 *
 *            IN   ▸ LANE ▸ LANE2 ▸ OUT
 *            host   relays relays  host       local work before the first and after the last of a
 *            stage
 *
 * Halves are numbered in the order of the calls. A stage's operations are posted only after those
 * of the same stage of the half before: so each sub-group sees the same order on all members,
 * whatever arrives first. Nobody waits in a circle: stage k of half s depends on stages before k
 * and halves before s only. Private. */
#ifndef SN_COMPRESS_PRIVATE_H
#define SN_COMPRESS_PRIVATE_H

#include "compress/compress.h"

enum { STAGE_IN, STAGE_LANE, STAGE_LANE2, STAGE_OUT, STAGES };

/* Where the members are. The grid has a row of `most` places for each host: place (h, i) is the
 * i-th member of host h. */
typedef struct compress_map {
    int n, me, hosts, most;
    bool uniform; /* equally many members on each host */
    bool natural; /* and member m has place (m / most, m % most) */
    int relays;   /* of a host: `most` where uniform; for PowerSGD the fewest members of a host */
    int *host;    /* [n] 0 … hosts - 1 in order of first appearance */
    int *local;   /* [n] place on it */
    int *size;    /* [hosts] members */
    int *member;  /* [hosts · most], -1 none */
} compress_map;

void compress_map_make(compress_map *m, const int *host, int n, int me);
void compress_map_free(compress_map *m);
bool compress_map_relay(const compress_map *m); /* do I talk to other hosts? (not PowerSGD) */

struct sn_compress_group {
    sn_coll *coll;
    sn_coll_group *all;           /* the caller's */
    sn_coll_group *stage[STAGES]; /* NULL: of one member, or I am no relay */
    char *name;
    compress_map map;
    uint64_t halves;       /* numbered so far: 1, 2, … */
    uint64_t turn[STAGES]; /* the half that may post next */
    sn_compress *first;    /* under way, in the order of the calls */
    sn_status failed;      /* of the first call that failed: the group is broken */
    char why[512];
    sn_compress_stats stats;
};

/* What kinds of halves there are: which operations a stage has, and the local work around them. */
typedef struct compress_half {
    const char *name;
    int (*calls)(const sn_compress *z, int stage);
    void (*call)(sn_compress *z, int stage, int i, sn_coll_call *ret);
    void (*before)(sn_compress *z, int stage);
    sn_status (*after)(sn_compress *z, int stage);
} compress_half;

extern const compress_half compress_reduce, compress_gather, compress_exchange, compress_lowrank;

/* What is encoded by itself: the part of a segment that lies in one member's block. */
typedef struct compress_piece {
    int64_t at, count; /* of the block */
    const sn_compress_segment *of;
    sn_codec codec;       /* the segment's, and where in a row the piece begins */
    uint64_t code, bytes; /* of the block's code; of one pass */
} compress_piece;

typedef struct compress_sizes { /* all in elements or bytes as named; pure */
    int64_t block;              /* elements of one member's block */
    int64_t span;               /* elements that a relay encodes for one host */
    bool pack;                  /* the vector is copied into the grid first */
    uint64_t code;              /* bytes of a block's code, the longest; a multiple of 64 */
    uint64_t reduce_code;       /* of a span */
    uint64_t reduce_bytes, gather_bytes, /* all codes of a half, sent and received */
        exchange_bytes;
    uint64_t grid_bytes, sum_bytes; /* of f32 buffers that peers on the host read */
    uint64_t factor_bytes;
} compress_sizes;

typedef struct lowrank_part { /* what one relay of a host handles */
    int64_t
        at; /* of its P in the factors; the P of its matrices, then (relay 0) the plain elements */
    int64_t p, q; /* elements of each */
} lowrank_part;

typedef struct lowrank_matrix {
    sn_compress_matrix of;
    int relay;
    int64_t p, q;    /* places in the factors */
    float *residual; /* NULL: not mine */
} lowrank_matrix;

typedef struct compress_run { /* a call under way */
    const compress_half *half[2];
    int halves, at, stage;
    uint64_t number; /* of half[0] */
    bool opened;     /* `before` of the stage is done */
    int posted, done;
    float *in, *out, *seen;
    const float *mine;
    bool whole; /* all_reduce: `seen` gets the values, not their change */
    sn_red red;
    int priority;
    sn_time deadline;
} compress_run;

struct sn_compress {
    sn_compress_group *g;
    sn_compress_opts opts;
    compress_sizes size;
    bool plain, active;
    sn_compress *next; /* under way */
    compress_run run;
    sn_coll_req **req; /* [requests] */
    int requests;
    sn_coll_req *direct; /* uncompressed: coll's request for the whole call */
    sn_status status;    /* of the last call */

    float *grid;                 /* packed copy, NULL: none */
    float *sum;                  /* [span] of hosts with unequal members; all_reduce: my block */
    uint8_t *sent, *got;         /* [hosts] codes of the reduction */
    uint8_t *code, *row, *codes; /* of the gathering: mine; of my lane or host; of all members */
    uint8_t *mine, *lane, *everyone; /* of the exchange: [hosts], [hosts][hosts], [most] of these */
    float *residual, *velocity;      /* [hosts][span], NULL: none */
    float *back;                     /* [block] all_reduce's second half */
    float *change, *left;            /* [block] scratch of the gathering */
    float *zeros;                    /* [block] */

    float *factor; /* PowerSGD */
    int parts;
    lowrank_part *part;
    lowrank_matrix *matrix;
    float *plain_owed;          /* of what lies between matrices, packed: only from another split */
    sn_compress_matrix *shapes; /* opts.matrix and opts.segment, owned */
    sn_compress_segment *segment;
    int *first; /* [members + 1] of a block's pieces */
    compress_piece *piece;

    int states;
    sn_compress_state *state;
};

/* ---- sizes.c */
compress_sizes compress_sizes_of(const compress_map *m, const sn_compress_opts *o);

/* ---- run.c */
void compress_start(sn_compress *z, const compress_half *first, const compress_half *second);

/* ---- pieces.c */
/* Cuts the segments at the borders of n blocks; returns the bytes of the longest block's code.
 * first [n + 1] and piece [segments + n] may be NULL. */
uint64_t compress_cut(const sn_compress_opts *o, int64_t block, int n, int *first,
                      compress_piece *piece);
void compress_encode(sn_compress *z, int member, const float *x, float *owed, float *velocity,
                     uint8_t *code);
sn_status compress_decode(const sn_compress *z, int member, const uint8_t *code, bool add,
                          float *to);
/* Elements of the vector that lie in member i's block: all_reduce may leave the last ones short. */
int64_t compress_length(const sn_compress *z, int i);

/* ---- dense.c */
float *compress_part_of(const sn_compress *z, int h); /* what my relay has of host h's blocks */
void compress_divide(const sn_compress *z, float *x, int64_t n); /* AVG's share of a sum */

/* ---- exchange.c */
/* Is an all_reduce one exchange of codes? Else it is a reduce_scatter and an all_gather. */
bool compress_exchanges(const compress_map *m, const sn_compress_opts *o);

/* ---- lowrank.c */
int64_t lowrank_plain(const sn_compress_opts *o); /* elements between the matrices */
/* Deals the matrices out; returns the elements of all factors. part [relays] and matrix [matrices]
 * may be NULL. */
int64_t lowrank_lay_out(const compress_map *m, const sn_compress_opts *o, lowrank_part *part,
                        lowrank_matrix *matrix);
void lowrank_draw(const sn_compress *z, const lowrank_matrix *k); /* a Q to begin with */

/* ---- state.c */
void compress_states_make(sn_compress *z);

#endif
