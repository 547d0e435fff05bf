/* SPDX-License-Identifier: Apache-2.0
 *
 * boot — what the ways of finding each other share: one small table of functions for each, and the
 * messages between a worker and the launcher's server.
 *
 *   worker -> server   BLOB seq bytes data      my part of all-gather `seq`
 *                      WHO  seq                 who is missing?
 *   server -> worker   ALL  seq bytes data      for each rank: u32 bytes, data
 *                      MISSING seq bytes ranks  the answer to WHO: u32 each
 *                      LEFT 0 4 rank            this rank's connection closed
 *
 * Numbers are in the byte order of the machines, which must all have the same: the magic differs
 * otherwise. */
#ifndef SN_NET_BOOT_PRIVATE_H
#define SN_NET_BOOT_PRIVATE_H

#include "net/net.h"

#define BOOT_MAGIC UINT32_C(0x534e4254) /* "SNBT" */
#define BOOT_BLOB_MAX 65536

enum { BOOT_BLOB = 1, BOOT_WHO, BOOT_ALL, BOOT_MISSING, BOOT_LEFT };

typedef struct boot_head {
    uint32_t magic, kind, seq, bytes;
} boot_head;

typedef struct boot_way {
    sn_status (*allgather)(sn_boot *boot, const void *blob, size_t bytes, sn_time deadline);
    /* Between all-gathers: take news until somebody has left, `until` at most. NULL: there is no
     * such news. */
    sn_status (*listen)(sn_boot *boot, sn_time until);
    void (*free)(sn_boot *boot);
} boot_way;

/* First member of each way's own struct. */
struct sn_boot {
    const boot_way *way;
    int rank, world;
    uint32_t seq;       /* of the next all-gather */
    sn_status broken;   /* a failed one: the sequence numbers no longer meet */
    int left;           /* the rank that is known to have gone first, -1 none */
    char *data;         /* what the blobs point into */
    const void **blobs; /* [world] */
    size_t *bytes;      /* [world] */
};

void boot_init(sn_boot *boot, const boot_way *way, int rank, int world);
void boot_done(sn_boot *boot);

/* The rank that left first, as the launcher saw it; -1 when nobody has until then. */
int boot_left(sn_boot *boot, sn_time until);

/* Cut an ALL message's data (malloc'd, taken) into boot->blobs; SN_ECORRUPT when it does not fit.
 */
sn_status boot_cut(sn_boot *boot, char *data, size_t bytes);

/* "rank 3" or "ranks 3, 5 and 9 more" of the ranks whose flag is not set. */
void boot_name_missing(const bool *here, int world, sn_str *out);

#endif
