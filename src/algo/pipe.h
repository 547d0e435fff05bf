/* SPDX-License-Identifier: Apache-2.0
 *
 * pipe — data in segments through stages of transfers, so that the wire and the processor work at
 * the same time. Private to algo.
 *
 *   slot   0          1          2          3          4          two segments, two stages that
 *   wire   post 0,0   post 1,0   post 0,1   post 1,1              add what comes:
 *   work   enter 1    work 0,0   work 1,0   work 0,1   work 1,1   segment, stage
 *                                           signal     leave 0
 *
 * A slot is: post the transfers that are due, work on what came in the slot before, fence. A slot
 * is the same one on all members, and whatever blocks in it (fence, wait) needs only what others
 * post in it or did in earlier ones: nobody waits in a circle. Where nothing is added a stage takes
 * one slot; one segment is not spread at all.
 *
 * Segment s is complete when its owner signals round 2 + s; the others of the host leave with it in
 * the slot after. */
#ifndef SN_ALGO_PIPE_H
#define SN_ALGO_PIPE_H

#include "algo/build.h"

typedef struct algo_pipe {
    int segments, stages;
    bool works;   /* as in algo_flow */
    bool signals; /* somebody on my host waits for my segments */
    void *ctx;
    void (*enter)(void *ctx, int segment); /* before its first transfer; NULL: nothing */
    void (*post)(void *ctx, int segment, int stage);
    void (*work)(void *ctx, int segment, int stage); /* NULL: nothing */
    void (*leave)(void *ctx, int segment);           /* NULL: nothing */
} algo_pipe;

void algo_pipe_run(algo_build *b, const algo_pipe *p);

/* A segment's scratch may be used again by the segment that comes so many after it, when the first
 * `adding` stages use it. */
int algo_pipe_window(int segments, int adding);

#endif
