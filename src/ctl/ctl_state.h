/* SPDX-License-Identifier: Apache-2.0
 *
 * ctl_state — the supervisor's state, shared by its verdicts (verdict.c), words (words.c) and
 * transitions (ctl.c). Private to the layer. */
#ifndef SN_CTL_STATE_H
#define SN_CTL_STATE_H

#include "ctl/ctl.h"

#define CTL_GAP_MAX (100 * SN_MS) /* of the time between two looks, counted at most */

typedef enum ctl_phase { CTL_IDLE, CTL_RUNNING, CTL_SUSPECT, CTL_DRAINING, CTL_OVER } ctl_phase;

typedef struct ctl_worker {
    bool exited;
    sn_ctl_worker state;
    uint64_t beat;
    int64_t step;
    sn_time silent_ns; /* watched without a new beat */
} ctl_worker;

typedef struct ctl_cause {
    bool known, done; /* done: no failure, all workers ended well */
    bool final;       /* trying again would give the same */
    int victim;       /* -1: no rank in particular */
    sn_status status;
    char text[SN_CTL_TEXT];
} ctl_cause;

struct sn_ctl {
    sn_ctl_opts opts;
    ctl_phase phase;
    int attempt;          /* the current one; -1 before the first */
    int stop;             /* level asked so far */
    int failures;         /* in a row without new progress */
    int64_t best_step;    /* furthest step completed by all, of all attempts */
    bool progressed;      /* this attempt went beyond best_step of those before */
    bool killing;         /* KILL was asked for this attempt */
    sn_time seen_at;      /* of the last SEEN, 0 none yet */
    sn_time waiting_ns;   /* watched without any step or state changing */
    sn_time starting_ns;  /* watched with somebody not ready */
    sn_time lingering_ns; /* watched with only done workers left */
    ctl_cause cause;      /* of the current attempt */
    ctl_cause echo;       /* SUSPECT: what to say when no original shows up */
    ctl_worker worker[];  /* [world] */
};

/* Add the time since the last look and the pages' news to the worker records. */
void ctl_observe(sn_ctl *c, const sn_ctl_view *views, sn_time now);
/* A step counts when every worker completed it: some run ahead of one that always fails. */
void ctl_count_progress(sn_ctl *c);
/* Judge what was observed: fills `ret` and returns true when somebody failed, stalled, is stuck.
 * An echo is returned with known == false: only a suspicion. */
bool ctl_judge_seen(const sn_ctl *c, const sn_ctl_view *views, sn_time now, ctl_cause *ret);
bool ctl_judge_exit(const sn_ctl *c, const sn_ctl_event *event, ctl_cause *ret);
void ctl_judge_broken(const sn_ctl *c, const sn_ctl_event *event, ctl_cause *ret);
void ctl_judge_host(const sn_ctl *c, const sn_ctl_event *event, ctl_cause *ret);

/* Words; each writes a sentence of at most SN_CTL_TEXT - 1 bytes. */
void ctl_say_exit(char *out, const sn_ctl *c, int rank, const sn_ctl_event *event);
void ctl_say_failed(char *out, const sn_ctl *c, int rank, const sn_ctl_view *view);
void ctl_say_stalled(char *out, const sn_ctl *c, int rank, const sn_ctl_view *view);
void ctl_say_stuck(char *out, const sn_ctl *c, int rank, const sn_ctl_view *view, sn_time now);
void ctl_say_not_ready(char *out, const sn_ctl *c, const sn_ctl_view *views);
void ctl_say_broken(char *out, const sn_ctl *c, const sn_ctl_event *event);
void ctl_say_host(char *out, const sn_ctl *c, const sn_ctl_event *event);
/* What follows the cause: "; restarting, retry 1 of 3" or why not. */
void ctl_say_next(char *out, const sn_ctl *c, const ctl_cause *cause, bool again);

#endif
