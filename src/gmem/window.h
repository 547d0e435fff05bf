/* SPDX-License-Identifier: Apache-2.0
 *
 * window — what the files of gmem share about a window.
 *
 *   window.c   creating, fence, freeing           access.c   the calls
 *   batch.c    the origin's side across hosts: small operations in parcels, bulk ones by UCX
 *   serve.c    the target's side: what parcels ask for
 *
 * A parcel is a row of records, each with its payload, padded to 8 bytes:
 *
 *   PUT        bytes → at                      FLUSH   number: answered by DONE
 *   ADD        elements → at, dtype, red       DONE    all parcels up to that FLUSH are applied
 *   FETCH      op, value, id → word at         OLD     id, what the word was
 *   CAS        expected, desired, id           FENCE   number of the fence, round
 *
 * Parcels between two ranks arrive in order, so one DONE answers for all before it. */
#ifndef SN_GMEM_WINDOW_H
#define SN_GMEM_WINDOW_H

#include "gmem/segment.h"

typedef enum window_kind {
    WINDOW_PUT = 1,
    WINDOW_ADD,
    WINDOW_FETCH,
    WINDOW_CAS,
    WINDOW_FLUSH,
    WINDOW_DONE,
    WINDOW_OLD,
    WINDOW_FENCE
} window_kind;

typedef struct window_record {
    uint8_t kind;
    uint8_t what; /* op, dtype, or round */
    uint8_t how;  /* width or red */
    uint8_t spare;
    uint32_t bytes; /* of the payload */
    uint64_t at;    /* from the window's start; FLUSH, DONE, FENCE: the number; OLD: the id */
} window_record;

typedef struct window_member {
    int rank;
    char *base; /* its exposed memory, NULL on another host */
    uint64_t bytes;
    uint32_t port;
    char *parcel; /* being filled */
    size_t fill;
    bool unconfirmed;     /* parcels since the last flush */
    bool bulk;            /* UCX puts since the last flush */
    uint64_t asked, done; /* numbers of flushes */
} window_member;

#define WINDOW_BULK 32    /* transfers under way at once */
#define WINDOW_SMALL 4096 /* puts up to so many bytes go in parcels */

typedef struct window_bulk {
    sn_net_req *req; /* NULL: free */
    int member;
} window_bulk;

struct sn_window {
    sn_segment *seg;
    sn_net *net;
    int n, me, slot, rounds;
    bool far; /* a member is on another host */
    window_member *members;
    int *member_of; /* [world] index of a rank, -1 none */
    sn_flag_line *line;
    sn_net_region *region;
    uint32_t port, fence;
    window_bulk bulk[WINDOW_BULK];
    uint64_t id, answered, answer; /* of the fetch I wait for */
    sn_status broken;
};

/* Words of a flag line: at which fence its owner has arrived, and whether its window is broken;
 * below them one per round of a fence, stored by the member that tells. */
#define WINDOW_ARRIVED 14
#define WINDOW_BROKEN 13

/* window.c */
/* The sentence's prefix: who does what with whom; breaks the window. Returns `status`. */
sn_status window_failed(sn_window *win, sn_status status, int member, const char *what);
/* One idle turn while an answer of `member` is awaited. */
sn_status window_turn(sn_window *win, int *turn, int member, sn_time deadline);

/* batch.c: for members on other hosts */
sn_status window_add(sn_window *win, int member, const window_record *record, const void *payload,
                     sn_time deadline);
sn_status window_send(sn_window *win, int member); /* what is in the parcel */
sn_status window_bulk_start(sn_window *win, int member, bool put, uint64_t at, void *buf,
                            uint64_t bytes, sn_time deadline);
sn_status window_flush_far(sn_window *win, int from, int to, sn_time deadline); /* members */
void window_abandon(sn_window *win); /* drops parcels and transfers */

/* serve.c: the port's function */
void window_serve(void *ctx, int from, const void *data, size_t bytes);

#endif
