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
#include "fold/fold.h"
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

/* ---- windows: one-sided access to memory on any host (the RMA model of MPI-3) ----
 *
 *   create ── put get accumulate fetch cas … ── flush ──┬── … ── fence ── free
 *             a place: (member, bytes from the start    │
 *             of its window)                  done at the target
 *
 * On my host an operation is loads, stores and atomics on the mapped part, done when it returns.
 * To another host, small puts and accumulates are batched into one message per target, which leaves
 * when it is full (8,000 bytes), at a flush, a fence or a fetch; larger ones go by UCX's one-sided
 * calls. Over RDMA those need nothing from the target; all else is applied by the target's worker,
 * with the same atomic operations that its host mates use, inside any call of net, gmem or coll
 * that drives progress (as MPI over tcp). A target that computes for 1 s answers after 1 s.
 *
 * Order: accumulates, fetches and swaps of one origin to one word happen as issued, and words that
 * are accessed only by them see all origins in one order, near or far. Puts and gets have no order
 * among themselves until a flush; those that overlap without one give either's bytes. What one rank
 * wrote and flushed, another sees after it was told so (by a fence, a flag, a message).
 *
 * Deadlines: every call that may wait takes one and fails with a sentence that names the rank, its
 * host and the operation; the window is then good only for freeing. A bulk transfer that is under
 * way at the deadline costs the connection, as a cancelled message does.
 *
 * Limits: 64 windows at once per segment; one thread, that of the net. */
typedef struct sn_window sn_window;

#define SN_WINDOWS_MAX 64
#define SN_EVERYONE (-1) /* as a member: all of them */

/* Collective over the segment's members. Exposes [at, at + bytes) of my part, which sn_gmem_alloc
 * gave or which I keep by offset; NULL: allocates it. bytes may differ by member and be 0. The
 * segment may be freed before the window. */
sn_status sn_window_create(sn_segment *seg, void *at, uint64_t bytes, sn_time deadline,
                           sn_window **ret);
/* Collective: nobody's operations are under way any more when it returns. Always frees; a failure
 * says who did not come. NULL is fine. */
sn_status sn_window_free(sn_window *win, sn_time deadline);

/* A member's exposed memory, where it is mapped here, for loads of one's own; else NULL. */
void *sn_window_base(const sn_window *win, int member);
uint64_t sn_window_bytes(const sn_window *win, int member);

/* `buf` is borrowed until a flush. An aligned put of 1, 2, 4 or 8 bytes is one store. */
sn_status sn_window_put(sn_window *win, int member, uint64_t at, const void *buf, uint64_t bytes,
                        sn_time deadline);
/* `buf` is filled after a flush (at once for a member on my host). */
sn_status sn_window_get(sn_window *win, int member, uint64_t at, void *buf, uint64_t bytes,
                        sn_time deadline);
/* target[i] = red(target[i], buf[i]), each element by itself atomic; SN_SUM, SN_MAX, SN_MIN of
 * F32, BF16, F16, F64, I32 or I64; `at` aligned to the element. */
sn_status sn_window_accumulate(sn_window *win, int member, uint64_t at, const void *buf,
                               int64_t count, sn_dtype dtype, sn_red red, sn_time deadline);

typedef enum sn_fetch {
    SN_FETCH, /* read, without changing it */
    SN_FETCH_SWAP,
    SN_FETCH_ADD,
    SN_FETCH_AND,
    SN_FETCH_OR,
    SN_FETCH_XOR,
    SN_FETCH_MIN, /* unsigned */
    SN_FETCH_MAX,
    SN_FETCHES
} sn_fetch;

/* What the word was before; the word then is as `op` says. `at` is aligned to the word. */
sn_status sn_window_fetch_u64(sn_window *win, int member, uint64_t at, sn_fetch op, uint64_t value,
                              sn_time deadline, uint64_t *ret_old);
sn_status sn_window_fetch_u32(sn_window *win, int member, uint64_t at, sn_fetch op, uint32_t value,
                              sn_time deadline, uint32_t *ret_old);
/* Compare and swap: it was swapped when *ret_old == expected. */
sn_status sn_window_cas_u64(sn_window *win, int member, uint64_t at, uint64_t expected,
                            uint64_t desired, sn_time deadline, uint64_t *ret_old);
sn_status sn_window_cas_u32(sn_window *win, int member, uint64_t at, uint32_t expected,
                            uint32_t desired, sn_time deadline, uint32_t *ret_old);

/* All that I issued to `member` (or SN_EVERYONE) is done there, and my buffers are mine again. */
sn_status sn_window_flush(sn_window *win, int member, sn_time deadline);
/* Collective: a flush of everything by everybody; then what anybody did is seen by all. */
sn_status sn_window_fence(sn_window *win, sn_time deadline);

#endif
