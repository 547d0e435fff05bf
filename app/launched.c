/* SPDX-License-Identifier: Apache-2.0
 * A worker that mpirun or srun started: finds its peers by PMIx; rank 0 speaks for the job. */
#include "cmd.h"

#include "os/os.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct speaker {
    sn_collector collected;
    sn_time started;
} speaker;

static void on_step(void *ctx, const sn_step_metrics *row)
{
    speaker *s = ctx;
    sn_collector *c = &s->collected;
    sn_step_metrics full = *row;
    full.peak_flops = c->peak_flops;
    sn_progress_step(c->progress, &full);
    c->steps++;
    c->tokens += row->tokens;
    c->time_ns += row->step_ns;
    c->flops += row->flops;
    c->last_loss = row->loss;
}

/* How many hosts the ranks are on, and that they are laid out evenly in order. */
static sn_status count_hosts(sn_boot *boot, const char *name, int *ret_hosts)
{
    const void *const *blob;
    const size_t *bytes;
    int world = sn_boot_world(boot), hosts = 1;
    SN_TRY(sn_boot_allgather(boot, name, strlen(name) + 1, sn_now() + 60 * SN_SEC, &blob, &bytes));
    for (int r = 1; r < world; r++)
        hosts += strcmp(blob[r], blob[r - 1]) != 0;
    *ret_hosts = world % hosts ? 1 : hosts;
    return SN_OK;
}

/* Rank 0 makes the run's directory and tells its name. */
static sn_status agree_on_run(sn_boot *boot, const char *dir, bool resume, const sn_job *job,
                              sn_run *ret)
{
    const void *const *blob;
    const size_t *bytes;
    sn_status status = SN_OK;
    *ret = (sn_run){.lock = {-1, -1}};
    if (sn_boot_rank(boot) == 0)
        status = sn_run_open(dir, resume, job, ret);
    if (status < 0)
        *ret->dir = 0;
    SN_TRY(sn_boot_allgather(boot, ret, sizeof *ret, sn_now() + 60 * SN_SEC, &blob, &bytes));
    SN_TRY(status);
    if (bytes[0] != sizeof *ret || !*((const sn_run *) blob[0])->dir)
        return sn_fail(SN_EPEER, "rank 0 could not open the run's directory");
    if (sn_boot_rank(boot) == 0) { /* holds the locks */
        sn_run_latest(ret);
        return SN_OK;
    }
    *ret = *(const sn_run *) blob[0];
    ret->lock[0] = ret->lock[1] = -1;
    return SN_OK;
}

static sn_status work(sn_boot *boot, sn_job_spec *spec, const char *run_dir, bool resume,
                      speaker *s, sn_run *run, sn_topo **topo, sn_train_result *result)
{
    char host[32] = "";
    int rank = sn_boot_rank(boot), hosts;
    gethostname(host, sizeof host - 1);
    SN_TRY(count_hosts(boot, host, &hosts));
    spec->job.hosts = hosts;
    spec->job.cards_per_host = sn_boot_world(boot) / hosts;
    SN_TRY(agree_on_run(boot, run_dir, resume, &spec->job, run));
    spec->job.checkpoint.dir = run->ckpt_dir;
    SN_TRY(sn_job_topology(&spec->job, topo));
    s->collected.peak_flops = (*topo)->card[0].flops_f32 * SN_MIN(sn_cores(), (*topo)->cards);
    /* every rank must plan with the same numbers: those that rank 0 measured */
    const void *const *blob;
    const size_t *bytes;
    sn_str text = {0};
    sn_topo_yaml(*topo, &text);
    SN_TRY(sn_boot_allgather(boot, rank ? "" : sn_str_get(&text), rank ? 0 : text.len,
                             sn_now() + 60 * SN_SEC, &blob, &bytes));
    sn_topo_free(*topo);
    *topo = NULL;
    sn_str_done(&text);
    SN_TRY(sn_topo_parse(blob[0], bytes[0], "rank 0's topology", topo));
    sn_net_opts net = {.host_name = host, .deadline = sn_now() + 60 * SN_SEC};
    sn_train_opts opts = {.job = &spec->job,
                          .topo = *topo,
                          .run_dir = run->dir,
                          .core = -1,
                          .resume = resume,
                          .rank0_metrics = true,
                          .on_step = on_step,
                          .ctx = s};
    return sn_train_worker(boot, &net, &opts, result);
}

static void speak(speaker *s, sn_job_spec *spec, const sn_run *run, const sn_topo *topo,
                  const sn_train_result *result)
{
    sn_plan *plan;
    if (sn_job_plan(&spec->job, topo, topo->cards, &plan) < 0)
        return;
    sn_ending e = {.run = run,
                   .job = &spec->job,
                   .plan = plan,
                   .topo = topo,
                   .collected = &s->collected,
                   .final_loss = result->final_loss,
                   .baseline = NAN,
                   .wall_ns = sn_now() - s->started};
    if (sn_ending_extras(&e, spec->arena) < 0 || sn_write_report(&e) < 0)
        sn_log(SN_LOG_WARN, "%s, ignoring", sn_errmsg());
    sn_say_summary(&e);
    sn_plan_free(plan);
}

int sn_train_under_launcher(sn_job_spec *spec, const char *run_dir, bool resume,
                            sn_progress_style style)
{
    sn_boot *boot;
    speaker s = {.started = sn_now()};
    sn_run run = {.lock = {-1, -1}};
    sn_topo *topo = NULL;
    sn_train_result result;
    if (sn_boot_pmix(&boot) < 0)
        return sn_exit_with("train", SN_EPEER);
    bool first = sn_boot_rank(boot) == 0;
    s.collected.progress = sn_progress_create(first ? style : SN_PROGRESS_NONE, 2,
                                              sn_plain_output(), 0, spec->job.steps);
    sn_status status = work(boot, spec, run_dir, resume, &s, &run, &topo, &result);
    sn_progress_free(s.collected.progress);
    int code = SN_EXIT_OK;
    if (status < 0)
        code = sn_exit_with("train", status);
    else if (first && !result.stopped)
        speak(&s, spec, &run, topo, &result);
    sn_run_close(&run);
    sn_topo_free(topo);
    sn_boot_free(boot);
    return code;
}
