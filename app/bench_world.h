/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_world — ranks that wait, asleep, until they are told to do their work once.
 *
 *   parent ──argument──▶ rank 0 … n-1 (forked, each on its own core): step(argument)
 *   parent ◀──status, values── each
 *
 * Between two questions a rank blocks in a read, so the peer that is measured in turn has the cores
 * to itself. The parent serves the boot exchange while it waits. */
#ifndef SN_APP_BENCH_WORLD_H
#define SN_APP_BENCH_WORLD_H

#include "bench_wire.h"

#include "net/net.h"

#define BENCH_VALUES 4
#define BENCH_WORLD_MAX 16
#define BENCH_DETECT (100 * SN_MS)  /* the silence after which a peer of a job has failed */
#define BENCH_PATIENT (10 * SN_SEC) /* here a peer program may keep our ranks from running */

typedef struct bench_job {
    int world;
    const int *host; /* [world] index of each rank's host, NULL: all on one */
    /* the hosts are these; NULL: they differ in name only, and talk over the loopback */
    const bench_wire *wire;
    sn_time detect_ns; /* as in sn_net_opts, but 0: BENCH_PATIENT */
    void *ctx;         /* seen by every rank as it was when the world started */
    sn_status (*open)(sn_boot *boot, const struct bench_job *job, void **ret_state);
    sn_status (*step)(void *state, int64_t arg, double ret[BENCH_VALUES]);
    void (*close)(void *state);
} bench_job;

typedef struct bench_world bench_world;

/* Returns once every rank has opened its state. */
sn_status bench_world_start(const bench_job *job, bench_world **ret);
/* Every rank does step(arg); returns when all have. The first failure's sentence names its rank. */
sn_status bench_world_ask(bench_world *w, int64_t arg);
/* The same in two: between them the parent may do something to a rank. `except`: who will not
 * answer, -1 nobody. */
sn_status bench_world_tell(bench_world *w, int64_t arg);
sn_status bench_world_hear(bench_world *w, int except);
void bench_world_signal(const bench_world *w, int rank, int number); /* to its process */
double bench_world_value(const bench_world *w, int rank, int i);
/* The slowest rank's. */
double bench_world_max(const bench_world *w, int i);
void bench_world_stop(bench_world *w); /* NULL is fine */

/* A rank's net on its host "h0", "h1", …, over the wire or the loopback. */
sn_status bench_net_open(sn_boot *boot, const bench_job *job, sn_net **ret);

/* Memory that the ranks of a world started later share, zeroed; SN_ENOMEM. */
sn_status bench_shared(size_t bytes, void **ret);
void bench_shared_free(void *p, size_t bytes);

/* A barrier of n ranks in shared memory: spins, and yields when it takes long. */
typedef struct bench_barrier {
    uint32_t arrived __attribute__((aligned(64)));
    uint32_t round __attribute__((aligned(64)));
} bench_barrier;
void bench_barrier_wait(bench_barrier *b, int n);

#endif
