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
 *  1. A part's first SN_GMEM_HEAD bytes are the segment's own (flags for signalling); allocations
 * follow, 64-byte aligned.
 *  2. Parts are backed before create returns (touched once): no SIGBUS later. SN_ENOMEM names the
 * bytes asked and available.
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

void *sn_gmem_base(const sn_segment *seg,
                   int member); /* of the usable part; NULL on another host */
void *sn_gmem_head(const sn_segment *seg,
                   int member); /* the SN_GMEM_HEAD bytes, zero at start; NULL likewise */
uint64_t sn_gmem_bytes(const sn_segment *seg, int member);
int sn_gmem_members(const sn_segment *seg);
int sn_gmem_me(const sn_segment *seg); /* my index among the members */
int sn_gmem_rank(const sn_segment *seg, int member);

/* 64-byte aligned memory from my own part; SN_EFIT when it is full. Freed with the segment. */
sn_status sn_gmem_alloc(sn_segment *seg, uint64_t bytes, void **ret);

/* True when [p, p + bytes) lies in my part; then *ret_offset from sn_gmem_base(me). */
bool sn_gmem_find(const sn_segment *seg, const void *p, uint64_t bytes, uint64_t *ret_offset);

/* Waiting on shared flags, right for more workers than cores: a short spin, then yields, then a
 * futex sleep of ≤ 1 ms at a time between checks of `sn_net_alive` and the deadline. Returns when
 * *word >= target (wrap-safe). */
sn_status sn_gmem_wait_u32(sn_net *net, const uint32_t *word, uint32_t target, sn_time deadline);
void sn_gmem_store_u32(uint32_t *word, uint32_t value); /* release store, wakes futex sleepers */

#endif
