/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_torch — a training script of bench/ under PyTorch, as one process or several that meet,
 * stepped on request and timed by the harness's clock as ours is. */
#ifndef SN_APP_BENCH_TORCH_H
#define SN_APP_BENCH_TORCH_H

#include "bench.h"
#include "bench_peer.h"

enum { BENCH_TORCH_RANKS = 2 };

typedef struct bench_torch {
    int ranks; /* 0: none */
    bench_peer rank[BENCH_TORCH_RANKS];
    char dir[4096];
} bench_torch;

/* `script` with `words` (ends with NULL, 8 at most), then RANK WORLD FILE; three steps are done to
 * warm it. SN_ENOTFOUND: no PyTorch here; *ret is then zero and may be stopped all the same. */
sn_status bench_torch_start(const bench_opts *o, const char *script, const char *const *words,
                            int ranks, bench_torch *ret);
/* One step of every process. */
sn_status bench_torch_step(bench_torch *t, double *ret_seconds);
void bench_torch_stop(bench_torch *t);

#endif
