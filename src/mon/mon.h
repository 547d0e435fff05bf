/* SPDX-License-Identifier: Apache-2.0
 *
 * mon — what a run tells about itself: the control page of each worker, metrics, the report, and
 * the flight recorder (recorder.h).
 *
 * The control page is one shared page (memfd) per worker. The worker writes it, its agent and
 * launcher read it, at no cost to the worker; it outlives the worker, so a killed one still says
 * what it was doing.
 *
 * Invariants of the page
 *  1. One writer per field: `epoch`, `stop`, `victim` by the launcher; all the rest by the worker.
 *  2. Fields are naturally aligned and accessed with the __atomic builtins (relaxed unless said);
 *     text fields are written under `op_seq` as a sequence lock: odd while being written.
 *  3. The layout is fixed by `magic` and `version`; a reader refuses another. */
#ifndef SN_MON_MON_H
#define SN_MON_MON_H

#include "base/base.h"
#include "mon/recorder.h"

#define SN_PAGE_MAGIC UINT32_C(0x534e5047) /* "SNPG" */
#define SN_PAGE_VERSION 2
#define SN_PAGE_BYTES 16384
#define SN_PAGE_TEXT 200

typedef enum sn_worker_state {
    SN_WORKER_NEW,     /* forked */
    SN_WORKER_JOINING, /* finding its peers */
    SN_WORKER_READY,
    SN_WORKER_TRAINING,
    SN_WORKER_SAVING,
    SN_WORKER_DONE,
    SN_WORKER_FAILED, /* `error` holds the sentence */
} sn_worker_state;

typedef enum sn_time_kind { /* where a step's nanoseconds go; the report's breakdown */
                            SN_TIME_COMPUTE,
                            SN_TIME_COLLECTIVE, /* exposed: nothing was computed meanwhile */
                            SN_TIME_PIPELINE, /* waiting for activations or gradients of a neighbour
                                                 stage */
                            SN_TIME_OPTIMIZER,
                            SN_TIME_OTHER,
                            SN_TIME_KINDS
} sn_time_kind;

#define SN_PAGE_RING 64

typedef struct sn_page_step { /* one completed step of one worker */
    int64_t step;             /* -1 while being written */
    double loss, grad_norm, lr, val_loss;
    int64_t step_ns, tokens;
    int64_t time_ns[SN_TIME_KINDS];
    int64_t comm_ns;
    double flops;
    uint64_t bytes_host, bytes_net;
} sn_page_step;

typedef struct sn_page {
    uint32_t magic, version;
    int32_t rank, host, pid; /* pid as the worker sees it; 0 until it is JOINING */
    uint32_t state;          /* sn_worker_state */
    char host_name[32];

    /* launcher → worker */
    uint32_t epoch; /* a change makes every wait in net and coll return SN_EEPOCH */
    uint32_t stop;  /* 1: finish the step, write a checkpoint, leave; 2: leave now */
    int32_t victim; /* rank that died, -1 none: named in the SN_EPEER text */

    /* worker → everyone */
    uint64_t beat;       /* raised every 20 ms by net's heartbeat thread */
    int64_t beat_ns;     /* CLOCK_MONOTONIC of the last beat */
    int64_t step;        /* steps completed */
    int64_t deadline_ns; /* of the wait it is in; 0 when not waiting */

    uint32_t op_seq;       /* sequence lock of the next three */
    char op[SN_PAGE_TEXT]; /* "all_reduce #812 in group data[s0,t1], step 40" */
    int64_t op_since_ns;

    /* the last completed step */
    double loss, grad_norm, lr;
    int64_t step_ns;
    int64_t time_ns[SN_TIME_KINDS];
    int64_t comm_ns;                /* some transfer was under way, computing beside it or not */
    double flops;                   /* model FLOPs this worker did in it */
    uint64_t bytes_host, bytes_net; /* communicated in it: within the host, across hosts */
    int64_t tokens;                 /* of the whole job in it */
    double val_loss;                /* NaN until there is one */
    int64_t val_step;
    uint64_t memory_peak_bytes;
    int64_t first_step; /* this worker began with (0, or where a checkpoint left off) */
    double final_loss;  /* on all held-out text, once the job is done; 0 before */

    char error[512]; /* state FAILED: why; before, what rank 0 warns of (first byte last) */
    int32_t error_status;

    sn_page_step ring[SN_PAGE_RING]; /* the last completed steps, at step modulo SN_PAGE_RING */
} sn_page;

_Static_assert(sizeof(sn_page) <= SN_PAGE_BYTES, "the control page has room");

/* A page in a new memfd (ret_fd, close-on-exec, for handing over) mapped here. */
sn_status sn_page_create(int rank, int host, const char *host_name, int *ret_fd, sn_page **ret);
sn_status sn_page_map(int fd, sn_page **ret); /* checks magic and version; fd may be closed after */
void sn_page_unmap(sn_page *page);            /* NULL is fine */

void sn_page_set_state(sn_page *page, sn_worker_state state);
/* Say what this worker starts now; "" when it waits for nothing. NULL page is fine. Costs a copy of
 * the text. */
void sn_page_op(sn_page *page, const char *text, sn_time deadline);
/* A consistent copy of the op text and its start; false when the writer died half way (then `out`
 * is what was there). */
bool sn_page_op_read(const sn_page *page, char out[SN_PAGE_TEXT], sn_time *ret_since);
/* The fields of "the last completed step" are those of step `step` (0, 1, …): put them into the
 * ring, then raise page->step to step + 1. */
void sn_page_step_done(sn_page *page, int64_t step);
/* False when the step is not (or no longer) in the ring. */
bool sn_page_step_read(const sn_page *page, int64_t step, sn_page_step *ret);
/* Steps of before this worker was started, into the ring (before its first step is done). */
void sn_page_past(sn_page *page, const sn_page_step *past, int steps);
/* The sentence, then state FAILED. The first failure stays: later ones are its consequences. */
void sn_page_fail(sn_page *page, sn_status status, const char *text);
const char *sn_worker_state_name(sn_worker_state state);

/* ---- a run's directory: runs/ID ---- */

/* One line of metrics.jsonl per completed step; the launcher (rank 0 under mpirun) writes it. */
typedef struct sn_step_metrics {
    int64_t step; /* completed, this one included: 1, 2, … */
    int64_t tokens;
    double loss, grad_norm, lr, val_loss /* NaN none */;
    int64_t step_ns;
    int64_t time_ns[SN_TIME_KINDS]; /* mean over the ranks */
    int64_t comm_ns;                /* likewise: some transfer was under way; what of it is not in
                                       time_ns[COLLECTIVE, PIPELINE] was hidden behind computing */
    double flops;                   /* of all ranks */
    double peak_flops;              /* of the cores the job uses, as measured at start */
    uint64_t bytes_host, bytes_net; /* of all ranks */
} sn_step_metrics;

/* From the cards' mean to the core's view: while one card of a core waits, another may compute
 * there, and that wait costs nothing. What the cards of a core compute (processor time) adds up;
 * what is left of the step was lost, waiting or changing places, and is divided as the cards' waits
 * are. One card a core, or no waits: unchanged. */
void sn_metrics_of_core(sn_step_metrics *row, double cards_per_core);

typedef struct sn_metrics sn_metrics;
sn_status sn_metrics_open(const char *path, bool append, sn_metrics **ret);
/* writes the line; ENOSPC is a status */
sn_status sn_metrics_add(sn_metrics *m, const sn_step_metrics *row);
/* The rows up to the page's first step that the file lacks, as rank 0 measured them: whoever wrote
 * the file may have died between a step and its row, and the checkpoint of that step be complete.
 * Nothing to do costs a comparison. */
sn_status sn_metrics_catch_up(sn_metrics *m, const sn_page *page);
void sn_metrics_close(sn_metrics *m);
/* Read a file back; a torn last line is left out. Rows belong to the arena. When a resumed run
 * repeats a step the later row wins. */
sn_status sn_metrics_read(const char *path, sn_arena *arena, sn_step_metrics **ret_rows,
                          int64_t *ret_count);

/* ---- the progress line ---- */
typedef enum sn_progress_style {
    SN_PROGRESS_LIVE,
    SN_PROGRESS_LINES,
    SN_PROGRESS_JSON,
    SN_PROGRESS_NONE
} sn_progress_style;

typedef struct sn_progress sn_progress;
/* LIVE rewrites one line on `fd` (a terminal; width read each time; colour unless `plain`), LINES
 * prints about one line every 5 s and the last step, JSON one object a step. `steps` is the total,
 * `first` the step it starts from. */
sn_progress *sn_progress_create(sn_progress_style style, int fd, bool plain, int64_t first,
                                int64_t steps);
/* step, loss, tokens/s, share of peak, exposed comm, ETA */
void sn_progress_step(sn_progress *p, const sn_step_metrics *row);
void sn_progress_note(sn_progress *p, const char *text); /* a full line above the live one */
void sn_progress_free(sn_progress *p);                   /* leaves the last line standing */

/* ---- the report ---- */
typedef struct sn_report_card {
    const char *name, *host; /* "h0/c2", "h0" */
    int rank, stage, tensor, data;
    double compute_share, collective_share, pipeline_share; /* of the step time, mean of the run */
    uint64_t memory_bytes;
} sn_report_card;

typedef struct sn_report {
    const char *title, *run_id, *job_yaml, *sample_text, *plan_text /* why this plan */;
    int cards, hosts, tensor, pipeline, data;
    const sn_report_card *card;
    const sn_step_metrics *row;
    int64_t rows;
    double final_loss, baseline_loss;         /* nats per byte on the held-out text */
    const char *baseline_name;                /* "interpolated 4-gram" */
    double link_latency_ns, link_bytes_per_s; /* between hosts, 0 when one host */
    int64_t parameters, tokens, wall_ns;
    double peak_flops;
    const char *const *event; /* "step 40: rank 3 on h1 was killed …; restarted from step 30" */
    int events;
} sn_report;

/* One self-contained HTML page (inline CSS and SVG, no script needed to read it): loss curve with
 * the baseline and the validation points, step-time breakdown, the plan drawn on the topology
 * (hosts, cards, stages by colour, tensor pairs, links), summary table, sample text, events, the
 * job file. */
sn_status sn_report_write(const sn_report *report, const char *path);
void sn_report_html(const sn_report *report, sn_str *out);

#endif
