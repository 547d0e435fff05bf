/* SPDX-License-Identifier: Apache-2.0
 *
 * segment — what the files of gmem share about a segment.
 *
 *   a part:   head 64 KiB | usable bytes, to the end of a page | one flag line per window, 4 KiB
 *
 * The lines of windows lie behind the usable part, so that a window over all of it can be made. */
#ifndef SN_GMEM_SEGMENT_H
#define SN_GMEM_SEGMENT_H

#include "gmem/gmem.h"

typedef struct gmem_part {
    int rank;
    uint64_t bytes; /* usable */
    uint64_t mapped;
    char *map; /* NULL on another host */
} gmem_part;

struct sn_segment {
    sn_net *net;
    int n, me;
    gmem_part *parts;   /* [n] */
    int *members;       /* [n] their ranks */
    uint64_t used;      /* of my part */
    uint64_t windows;   /* slots taken, a bit each */
    int refs;           /* the segment's own, and one for each window */
    bool maybe_written; /* a peer on another host may still write to my part */
};

/* The first member's failure becomes everybody's. */
sn_status gmem_agree(sn_segment *seg, sn_status mine, sn_time deadline);
sn_flag_line *gmem_window_line(const sn_segment *seg, int member, int slot); /* mapped ones only */
void gmem_unref(sn_segment *seg);

#endif
