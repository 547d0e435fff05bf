/* SPDX-License-Identifier: Apache-2.0
 *
 * gmem — segments: memory that every member of a group can name.
 *
 *   member 0's part  |  member 1's part  |  member 2's part (other host)
 *   mapped here         mapped here          not mapped: base is NULL, reached through net
 *
 * Inside a host every member maps every other's part (memfd, handed over by fd), so a peer's tensor
 * is one load away. Nothing is named in a file system: a kill -9 leaves nothing behind, and a small
 * /dev/shm does not matter.
 *
 * Invariants
 *  1. A part's first SN_GMEM_HEAD bytes are for flags; allocations follow, 64-byte aligned.
 *  2. Parts are backed and of fixed size before create returns: no SIGBUS later. SN_ENOMEM names
 *     the bytes asked and available, on all members alike.
 *  3. Offsets are the same names on every rank: (member, offset) is a place. */
#ifndef SN_GMEM_GMEM_H
#define SN_GMEM_GMEM_H

#include "base/base.h"
#include "net/net.h"

#define SN_GMEM_HEAD 65536

typedef struct sn_segment sn_segment;

/* Collective over members[] (sorted ranks, contains me, the same list on each). bytes: size of my
 * part's usable memory (may differ by rank). */
sn_status sn_gmem_create(sn_net *net, const int *members, int n, uint64_t bytes, sn_time deadline,
                         sn_segment **ret);
void sn_gmem_free(sn_segment *seg); /* local; unmaps. NULL is fine */

/* The usable part, and the SN_GMEM_HEAD bytes before it, zero at start; NULL on another host. */
void *sn_gmem_base(const sn_segment *seg, int member);
void *sn_gmem_head(const sn_segment *seg, int member);
uint64_t sn_gmem_bytes(const sn_segment *seg, int member);
int sn_gmem_members(const sn_segment *seg);
int sn_gmem_me(const sn_segment *seg); /* my index among the members */
int sn_gmem_rank(const sn_segment *seg, int member);

/* 64-byte aligned memory from my own part; SN_EFIT when it is full. Freed with the segment. */
sn_status sn_gmem_alloc(sn_segment *seg, uint64_t bytes, void **ret);

/* True when [p, p + bytes) lies in my part; then *ret_offset from sn_gmem_base(me). */
bool sn_gmem_find(const sn_segment *seg, const void *p, uint64_t bytes, uint64_t *ret_offset);

/* ---- waiting on shared flags, right for more workers than cores
 *
 * A flag is a word of a flag line; the line's last word belongs to gmem: it counts who sleeps on
 * one of the others, so that a store costs a system call only when somebody does. A value stored
 * in any other way is seen too, up to 1 ms later. */
typedef struct sn_flag_line {
    uint32_t word[15];
    uint32_t sleepers;
} __attribute__((aligned(64))) sn_flag_line;

void sn_gmem_store_u32(uint32_t *word, uint32_t value); /* release store, wakes who sleeps on it */

/* A short spin, then yields, then a futex sleep of ≤ 1 ms at a time between looks at the peers and
 * the deadline. Returns when *word >= target (wrap-safe); SN_ETIME, or what sn_net_look says. */
sn_status sn_gmem_wait_u32(sn_net *net, const uint32_t *word, uint32_t target, sn_time deadline);

/* The same as one turn of a loop of one's own that looks at many things: call it after a look that
 * found nothing, with *turn = 0 after one that found something. Sleeps until one of the n (≤ 16,
 * 0 allowed) words is no longer what was seen. It drives sn_net_progress. SN_OK: look again. */
typedef struct sn_gmem_watch {
    const uint32_t *word; /* of a flag line */
    uint32_t seen;
} sn_gmem_watch;
#define SN_GMEM_WATCH_MAX 16
sn_status sn_gmem_turn(sn_net *net, int *turn, const sn_gmem_watch *watch, int n, sn_time deadline);

#endif
