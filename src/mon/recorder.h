/* SPDX-License-Identifier: Apache-2.0
 *
 * recorder — the flight recorder: the last 10,000 communication operations of each rank, in a file
 * of the run's directory that its worker has mapped. Reached through mon.h.
 *
 *   worker ── stores ──► RUN/recorder-RANK.bin ── reads ──► supernode debug
 *                        (page cache: outlives the worker, however it ended)
 *
 * The file: who (rank, host, clocks) · now (step, phase, what is waited for) · words (names of
 * operations) · groups · records, a ring. It explains itself: a reader needs no other file.
 *
 * Invariants
 *  1. One writer, no lock, no system call after creation. A record is valid while its number is the
 *     same before and after it was read; numbers count from 1 and say the place in the ring.
 *  2. The blocks of the file are there before it is mapped: a full disk cannot kill the worker.
 *  3. The writer holds a lock on the file as long as it lives, which tells the living from the dead
 *     across PID namespaces and without trust in numbers.
 *  4. A new attempt puts a new file in place of the old one, which stays as
 *     recorder-RANK.previous.bin. Nobody may shorten a file that a worker has mapped.
 *  5. A reader believes nothing: short, torn or hostile files cost a sentence.
 *
 * Cost on the writer: two ticks and one cache line an operation, see `supernode bench watch`. */
#ifndef SN_MON_RECORDER_H
#define SN_MON_RECORDER_H

#include "base/base.h"

#define SN_RECORDER_RECORDS 16384 /* a power of two: one is found by a mask */
#define SN_RECORDER_GROUPS 128
#define SN_RECORDER_MEMBERS 64 /* of a group that are listed */
#define SN_RECORDER_WORDS 64
#define SN_RECORDER_NO_WORD 255
#define SN_RECORDER_PAIR (-1)  /* no group: between two ranks */
#define SN_RECORDER_OTHER (-2) /* a group that found no place in the table */

typedef enum sn_record_state {
    SN_RECORD_POSTED = 1, /* waits for its turn */
    SN_RECORD_STARTED,
    SN_RECORD_DONE,
    SN_RECORD_FAILED
} sn_record_state;

/* ---- the writer; a NULL recorder records nothing ---- */

typedef struct sn_recorder sn_recorder;

typedef struct sn_recorder_opts {
    int rank, world;
    const char *host; /* "h1" */
} sn_recorder_opts;

sn_status sn_recorder_create(const char *run_dir, const sn_recorder_opts *opts, sn_recorder **ret);
/* The worker leaves: in order, or for the reason given. Unmaps; the file stays. */
void sn_recorder_close(sn_recorder *r, sn_status status, const char *why);

/* Which start of the job this is: equal on all ranks, another at each start. */
void sn_recorder_attempt(sn_recorder *r, uint64_t attempt);
/* The name of operation (reduction, algorithm) number `index`. */
void sn_recorder_word(sn_recorder *r, int index, const char *text);
/* `id` tells groups of one name apart; equal on all members. Returns the group's place. */
int sn_recorder_group(sn_recorder *r, uint32_t id, const char *name, const int *members, int n,
                      int me);
void sn_recorder_group_left(sn_recorder *r, int group);

typedef struct sn_record_what {
    uint8_t op, red, algorithm; /* words */
    uint8_t dtype;
    int32_t group; /* of sn_recorder_group */
    int32_t peer;  /* the other rank; in a group the root's member index; -1 none */
    uint64_t seq;  /* number in the group, or the tag */
    uint64_t count;
    uint32_t blocks; /* of `count` elements, 1 to 65,536: together its bytes */
} sn_record_what;

uint64_t sn_recorder_now(const sn_recorder *r); /* ticks */
/* Returns the record's number, 0 when r is NULL. `at`: ticks at which it was posted. */
uint64_t sn_recorder_post(sn_recorder *r, const sn_record_what *what, sn_record_state state,
                          uint64_t at);
/* Later marks; number 0, and a record that was overwritten meanwhile, are left alone. */
void sn_recorder_start(sn_recorder *r, uint64_t number);
void sn_recorder_end(sn_recorder *r, uint64_t number, sn_status status);
void sn_recorder_end_at(sn_recorder *r, uint64_t number, sn_status status, uint64_t at);

/* The worker is blocked in this operation by `rank` (-1: unknown); number 0: no longer. */
void sn_recorder_wait(sn_recorder *r, uint64_t number, int rank);
void sn_recorder_step(sn_recorder *r, int64_t step);
void sn_recorder_doing(sn_recorder *r, const char *text); /* "computing forward, micro-batch 1" */

/* ---- the reader ---- */

typedef enum sn_alive {
    SN_ALIVE_UNKNOWN, /* the file system knows no locks */
    SN_ALIVE_RUNNING,
    SN_ALIVE_STOPPED, /* by a signal or a debugger */
    SN_ALIVE_LEFT,    /* closed its recorder */
    SN_ALIVE_DEAD     /* ended without a word */
} sn_alive;

typedef struct sn_recorded_group {
    uint64_t key; /* equal on all members, 0: a place never used */
    const char *name;
    int size, me;
    const int *member; /* [listed] ranks */
    int listed;
    uint64_t posted, done; /* numbers of the last operation posted, and finished */
} sn_recorded_group;

typedef struct sn_recorded {
    uint64_t number, seq, count, bytes;
    sn_record_state state;
    sn_status status;
    const char *op, *red, *algorithm; /* "" none */
    int dtype, group, peer;           /* group: place, or PAIR, or OTHER */
    sn_time posted, started, ended;   /* 0: not yet */
    int64_t step;                     /* -1 before the first */
} sn_recorded;

typedef struct sn_recording {
    int rank, world;
    const char *host;
    sn_alive alive;
    int pid; /* as this process sees it, 0 unknown */
    uint64_t boot, attempt;
    sn_time to_wall, created, last; /* times are monotonic + shift of sn_recordings */
    int64_t step;
    const char *doing;
    sn_time doing_since;
    const sn_recorded *wait; /* the operation it is blocked in, NULL none (known) */
    int wait_for;            /* rank, -1 unknown */
    sn_time wait_since;
    sn_status left_status;
    const char *left_why;
    int groups;
    sn_recorded_group *group;
    int64_t ops, total; /* kept here, oldest first; ever recorded */
    sn_recorded *op;
} sn_recording;

/* The newest `keep` records of one file, and those not finished. `before` and `after` are images of
 * the file taken before and after `data` (the same pointer thrice for a file at rest). */
sn_status sn_recording_parse(const void *before, const void *data, const void *after, size_t bytes,
                             int64_t keep, sn_arena *arena, sn_recording *ret);

typedef struct sn_recordings {
    int world;
    sn_recording **rank; /* [world], NULL: no file of this attempt */
    sn_time now;  /* on the clock of all times here; of the last sign of life when all ended */
    bool live;    /* somebody is there still */
    sn_str notes; /* a line per file that could not be used */
} sn_recordings;

/* All recordings of the newest attempt in a run's directory, on one clock. SN_ENOTFOUND when there
 * are none. `previous`: the files that the last restart put aside. */
sn_status sn_recordings_read(const char *run_dir, bool previous, int64_t keep, sn_arena *arena,
                             sn_recordings *ret);
void sn_recordings_done(sn_recordings *r);

/* "all_reduce #12 of group data[s0,t1]", "receive from rank 3, tag 7" */
void sn_recorded_text(const sn_recording *r, const sn_recorded *op, sn_str *out);
const char *sn_alive_name(sn_alive alive);

/* ---- who waits for whom ---- */

typedef struct sn_blame_wait {
    int rank;
    const sn_recorded *op;
    sn_time since;
    int target[SN_RECORDER_MEMBERS]; /* ranks that it waits for; none: nobody known */
    int targets;
} sn_blame_wait;

typedef struct sn_blame {
    sn_blame_wait *wait;
    int waits;
    int *cause; /* ranks that others wait for and that wait for nobody, or that died first */
    int causes;
    int *circle; /* ranks that wait for each other */
    int circles;
    sn_str verdict;  /* sentences, a line each */
    sn_str mismatch; /* a line per group whose members called different things */
} sn_blame;

void sn_blame_make(const sn_recordings *all, sn_arena *arena, sn_blame *ret);
void sn_blame_done(sn_blame *b);

#endif
