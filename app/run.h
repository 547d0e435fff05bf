/* SPDX-License-Identifier: Apache-2.0
 *
 * run — a run's directory and what the launcher gathers from the workers' pages while it runs.
 *
 *   runs/ID/job.yaml  tokenizer.json  topology.yaml  plan.txt  calibration.json  metrics.jsonl
 *   rank-N.log  links.json  report.html  recorder-N.bin  trace-N.jsonl  checkpoints/
 *   runs/latest -> ID */
#ifndef SN_APP_RUN_H
#define SN_APP_RUN_H

#include "calibration.h"
#include "job.h"
#include "mon/mon.h"
#include "topo/topo.h"

typedef struct sn_run {
    char id[64];
    char dir[4096];
    char ckpt_dir[4096];
    int lock[2]; /* of both directories, held while the run is open; -1: none */
} sn_run;

/* A new directory under `runs`, or `dir` when given (created if missing). resume: with dir NULL the
 * newest run. SN_EINVAL: another process has a run open there, or it holds checkpoints and this is
 * not a resume: what is there is never mixed with something new. */
sn_status sn_run_open(const char *dir, bool resume, const sn_job *job, sn_run *ret);
void sn_run_close(sn_run *run);

/* The job as resolved that a run left: of `dir`, or with NULL of the newest run. */
sn_status sn_run_job_file(const char *dir, char out[4096]);

/* Where a run has its checkpoints: what its job says, or in its directory wherever that is now. */
sn_status sn_run_checkpoints(const char *dir, const sn_job *job, char out[4096]);

/* job.yaml, topology.yaml and plan.txt: what is known before the first step. */
sn_status sn_run_describe(const sn_run *run, const sn_job *job, const sn_topo *topo,
                          const sn_plan *plan);

/* tokenizer.json: the job's tokenizer, which is from now on that of the run, so that the run stays
 * whole when the other file goes. Does nothing for a job without one. */
sn_status sn_run_tokenizer(const sn_run *run, sn_job_spec *spec);

/* calibration.json: what the workers choose algorithms of collectives by; NULL: the topology. */
sn_status sn_run_calibrated(const sn_run *run, const sn_calibration *c);

/* runs/latest now means this run, when it is one of `runs`. Said once it has got as far as
 * training, so that a run that never started does not stand before one that can be resumed. */
void sn_run_latest(const sn_run *run);

sn_status sn_run_write(const sn_run *run, const char *name, const char *text);
sn_status sn_run_path(const sn_run *run, const char *name, char out[4096]);

/* trace.c: RUN/trace-RANK.jsonl of all ranks as one file. SN_ENOTFOUND: no rank has one. */
sn_status sn_trace_join(const sn_run *run, int world, const char *file);

/* Steps in the pages' rings → rows, in order, each once. */
typedef struct sn_collector {
    sn_metrics *metrics;
    sn_progress *progress;
    int64_t next; /* step to report next */
    double peak_flops;
    double cards_per_core; /* ≥ 1 */
    sn_status failed;      /* of writing metrics: said once */
    /* for the summary */
    int64_t steps, tokens, time_ns;
    int64_t comm_ns, exposed_ns; /* communication under way; nothing was computed beside it */
    double flops, last_loss, last_val;
    double share[1024][3]; /* per rank: sums of compute, collective, pipeline time */
    double share_all[1024];
    uint64_t memory[1024];
} sn_collector;

void sn_collect(sn_collector *c, sn_page *const *pages, int world);

#endif
