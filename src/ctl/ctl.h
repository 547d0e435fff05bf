/* SPDX-License-Identifier: Apache-2.0
 *
 * ctl — the supervisor of a job as a pure state machine: (state, event, now) → actions.
 *
 *                    first cause                   CLEARED, retries left
 *     start            ┌──────────────► DRAINING ───────────────┐
 *   IDLE ──► RUNNING ──┤  EPEER, ETIME …  ▲                      └──► RUNNING (attempt + 1)
 *              ▲       └────► SUSPECT ────┘ original found, or waited long enough
 *              └─ interrupt 1: STOP 1      all exited well ──► DRAINING ── CLEARED ──► OVER
 *
 * pool feeds it what it sees (exits, pages, ^C, timers) and carries the actions out; a simulator
 * or a test feeds it a table or a seed. It owns every verdict: who is dead, who was first, whether
 * to start again, which exit code.
 *
 * Invariants
 *  1. LAUNCH is asked only from IDLE or after CLEARED of the attempt before: never two at once.
 *  2. Exactly one FINISH; after it no action at all.
 *  3. The first cause wins. A failure that is only an echo (SN_EPEER, SN_EEPOCH, SN_ETIME,
 *     SN_ECANCEL) waits `suspect_ns` for the original to show up and is named only when none does.
 *  4. Time that the launcher did not watch (it was late, stopped, or the machine asleep) counts
 *     against nobody: of a gap between two SEEN at most 100 ms are counted.
 *  5. `retries` failures in a row without a step that all workers completed beyond the furthest one
 *     end the job; new progress gives the full number back. An error that would come again the same
 *     (a bad job, no room, a full disk) ends it at once. ATTEMPTS_MAX ends it in any case.
 *  6. After an interrupt nothing is launched and the exit code is 130. */
#ifndef SN_CTL_CTL_H
#define SN_CTL_CTL_H

#include "base/base.h"

#define SN_CTL_ACTIONS_MAX 8
#define SN_CTL_ATTEMPTS_MAX 1000
#define SN_CTL_TEXT 512

typedef struct sn_ctl_opts { /* times: 0 is the default in brackets */
    int world, cards_per_host;
    int retries;           /* 0: none */
    sn_time beat_limit_ns; /* without a heartbeat: dead [1 s] */
    sn_time
        step_limit_ns; /* without a completed step: stuck [60 s]; five times that while saving */
    sn_time start_limit_ns;   /* from launch until all are ready [120 s] */
    sn_time suspect_ns;       /* an echo waits for its original [1.5 s] */
    sn_time drain_ns;         /* survivors may leave by themselves before they are killed [0.3 s] */
    sn_time stop_ns, kill_ns; /* after interrupt 1 [30 s], 2 [2 s] */
    sn_time linger_ns;        /* a worker that is done may take so long to exit [10 s] */
} sn_ctl_opts;

typedef enum sn_ctl_worker {
    SN_CTL_STARTING,
    SN_CTL_TRAINING,
    SN_CTL_SAVING,
    SN_CTL_DONE,
    SN_CTL_FAILED
} sn_ctl_worker;

/* What a worker's page says; texts are borrowed for the call. */
typedef struct sn_ctl_view {
    sn_ctl_worker state;
    int pid;           /* for the sentences, 0 unknown */
    uint64_t beat;     /* 0: not begun */
    int64_t step;      /* completed */
    sn_time op_since;  /* 0 none */
    const char *op;    /* "" or NULL: nothing */
    sn_status status;  /* of FAILED */
    const char *error; /* its sentence */
} sn_ctl_view;

typedef enum sn_ctl_kind {
    SN_CTL_START,
    SN_CTL_SEEN,           /* views[world]: every ~50 ms */
    SN_CTL_EXITED,         /* rank, code, signal; views[rank] is its last word */
    SN_CTL_BROKEN,         /* rank, status, text: it does not keep to a protocol */
    SN_CTL_HOST_DIED,      /* host, code, signal, pid of the host's agent */
    SN_CTL_LAUNCH_REFUSED, /* status, text: the attempt could not be started */
    SN_CTL_CLEARED,        /* every process of the attempt is gone; answers KILL */
    SN_CTL_INTERRUPT,      /* level 1: end cleanly, 2: leave now */
    SN_CTL_TIMER           /* the time of the last TIMER action came */
} sn_ctl_kind;

typedef struct sn_ctl_event {
    sn_ctl_kind kind;
    int attempt; /* SEEN … CLEARED: of which attempt; events of an old one are ignored */
    int rank, host, level;
    int code, signal; /* signal 0: exited with code; code -1 and signal 0: nobody knows */
    int pid;
    sn_status status;
    const char *text;
    const sn_ctl_view *views;
} sn_ctl_event;

typedef enum sn_ctl_act {
    SN_CTL_LAUNCH, /* attempt: start it */
    SN_CTL_EPOCH, /* rank (-1: none in particular): raise the epoch in all pages, name the victim */
    SN_CTL_STOP,  /* level: into all pages */
    SN_CTL_KILL_RANK, /* rank: it does not respond */
    SN_CTL_KILL,      /* everything of the attempt; answer with CLEARED when it is gone */
    SN_CTL_SET_TIMER, /* at: replaces the timer before; 0: none */
    SN_CTL_NOTE,      /* text */
    SN_CTL_FINISH     /* code, status, text (reason, "" when all went well) */
} sn_ctl_act;

typedef struct sn_ctl_action {
    sn_ctl_act kind;
    int attempt, rank, level, code;
    sn_time at;
    sn_status status;
    char text[SN_CTL_TEXT];
} sn_ctl_action;

typedef struct sn_ctl sn_ctl;

sn_ctl *sn_ctl_create(const sn_ctl_opts *opts);
void sn_ctl_free(sn_ctl *ctl); /* NULL is fine */

/* One event in, its actions out, in the order in which they are to be done; returns their number.
 * Never fails; an event that makes no sense now is ignored. Cost: O(world), no allocation. */
int sn_ctl_step(sn_ctl *ctl, const sn_ctl_event *event, sn_time now,
                sn_ctl_action ret_actions[SN_CTL_ACTIONS_MAX]);

int sn_ctl_attempts(const sn_ctl *ctl); /* launched so far */
bool sn_ctl_interrupted(const sn_ctl *ctl);

#endif
