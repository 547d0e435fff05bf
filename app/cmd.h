/* SPDX-License-Identifier: Apache-2.0
 * The verbs' functions and what they share. */
#ifndef SN_APP_CMD_H
#define SN_APP_CMD_H

#include "run.h"
#include "topo/topo.h"

int sn_cmd_train(const sn_args *args);
int sn_cmd_worker(const sn_args *args);
int sn_cmd_plan(const sn_args *args);
int sn_cmd_sim(const sn_args *args);
sn_status sn_sim_plan(const sn_args *args); /* sim plan, also plan --batch */
sn_status sn_simnet(const sn_args *args);        /* sim net */
int sn_cmd_coll(const sn_args *args);
int sn_cmd_topo(const sn_args *args);
int sn_cmd_export(const sn_args *args);
int sn_cmd_generate(const sn_args *args);
int sn_cmd_tokenize(const sn_args *args);
int sn_cmd_report(const sn_args *args);
int sn_cmd_bench(const sn_args *args);
int sn_cmd_onnx(const sn_args *args);
int sn_cmd_debug(const sn_args *args);
int sn_cmd_man(const sn_args *args);
int sn_cmd_completion(const sn_args *args);

/* The job of the positional word and the flags, resolved and checked; the corpus is made when it is
 * a named one. Prints what went wrong and returns an exit code, or -1. */
int sn_load_job(const sn_args *args, const char *word, sn_arena *arena, sn_job_spec *ret);
/* The same as a status: for who says it to more than this process's user. */
sn_status sn_read_job(const sn_args *args, const char *word, sn_arena *arena, sn_job_spec *ret);

/* The file of a named corpus, made where it is not there yet, or `data` itself. */
sn_status sn_read_corpus(const char *data, sn_arena *arena, const char **ret_path);

/* Cards the job asks for: hosts and cards_per_host when given, else what the degrees need on one
 * host, else a card a core. */
void sn_resolve_cards(sn_job_spec *spec, int cores);

/* The emulated topology of the job on this machine, peaks measured here (about 60 ms). */
sn_status sn_job_topology(const sn_job *job, sn_topo **ret);

/* $XDG_CACHE_HOME/supernode, else ~/.cache/supernode; NULL: there is neither. */
const char *sn_cache_dir(sn_arena *arena);

sn_status sn_cluster_read(const char *path, sn_topo **ret); /* the file of --cluster */

bool sn_plain_output(void); /* NO_COLOR is set or the terminal cannot do it */

/* SIGINT, SIGTERM and SIGHUP to `handler`, except what the parent told us to ignore (nohup). */
void sn_catch_stop(void (*handler)(int));

/* Under mpirun or srun: this process is one worker of a job started by somebody else; returns the
 * exit code. `status`: how reading the job went here, which is told to the others. */
bool sn_under_launcher(void);
int sn_train_under_launcher(sn_status status, sn_job_spec *spec, const char *run_dir, bool resume,
                            sn_progress_style style);

/* What is said at the end, and the report. */
typedef struct sn_ending {
    const sn_run *run;
    const sn_job *job;
    const sn_plan *plan;
    const sn_topo *topo;
    const sn_collector *collected;
    double final_loss, baseline; /* nats per byte */
    double bytes_per_token;      /* of the training text */
    const char *sample;
    int64_t wall_ns;
    const char *const *event;
    int events;
    bool json, reported, traced; /* the page is there, the trace is there */
} sn_ending;
void sn_say_summary(const sn_ending *e);
/* What compression between hosts saved; false: nothing was encoded. */
bool sn_compression_line(const sn_run *run, sn_str *out);
void sn_say_interrupted(const sn_run *run); /* what is saved, and how to go on */
sn_status sn_write_report(const sn_ending *e);

/* Baseline and sample for a finished run. */
sn_status sn_ending_extras(sn_ending *e, sn_arena *arena);

#endif
