/* SPDX-License-Identifier: Apache-2.0
 * A worker that mpirun or srun started: finds its peers by PMIx; rank 0 speaks for the job. */
#include "cmd.h"

#include "os/os.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
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

/* mpirun passes ^C on as SIGTERM: it ends as under our own launcher, with a checkpoint. */
static sn_page *page;
static volatile sig_atomic_t last_signal;

static void on_signal(int number)
{
    last_signal = number;
    __atomic_fetch_add(&page->stop, 1, __ATOMIC_RELEASE);
}

static sn_status open_page(int rank, const char *host)
{
    int fd;
    SN_TRY(sn_page_create(rank, 0, host, &fd, &page));
    close(fd);
    sn_catch_stop(on_signal);
    return SN_OK;
}

static void close_page(void)
{
    sn_catch_stop(SIG_DFL);
    sn_page_unmap(page);
    page = NULL;
}

/* ---- what all ranks must agree on before they start ---- */

typedef struct word { /* how it went for one rank */
    int32_t status;
    char text[508];
} word;

/* Everyone's status; the first failure becomes everyone's, with its sentence. */
static sn_status agree(sn_boot *boot, sn_status status)
{
    const void *const *blob;
    const size_t *bytes;
    word mine = {.status = status};
    if (status < 0)
        snprintf(mine.text, sizeof mine.text, "%s", sn_errmsg());
    SN_TRY(sn_boot_allgather(boot, &mine, sizeof mine, sn_now() + 60 * SN_SEC, &blob, &bytes));
    int world = sn_boot_world(boot), failed = 0, at = 0;
    word first = {0}, w;
    for (int r = 0; r < world; r++) {
        if (bytes[r] != sizeof w)
            return sn_fail(SN_EMISMATCH, "rank %d runs another build of supernode", r);
        memcpy(&w, blob[r], sizeof w);
        if (w.status < 0 && !failed++) {
            first = w;
            at = r;
        }
    }
    if (!failed)
        return SN_OK;
    first.text[sizeof first.text - 1] = 0;
    sn_fail(first.status, "%s", first.text);
    return at ? sn_fail_in(first.status, "rank %d", at) : first.status;
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
    SN_TRY(agree(boot, status));
    SN_TRY(sn_boot_allgather(boot, ret, sizeof *ret, sn_now() + 60 * SN_SEC, &blob, &bytes));
    if (sn_boot_rank(boot) == 0) /* holds the locks */
        return SN_OK;
    *ret = *(const sn_run *) blob[0];
    ret->lock[0] = ret->lock[1] = -1;
    return SN_OK;
}

/* What a run's directory says of it. Not having it costs a later resume its short form, no more. */
static void describe(const sn_run *run, const sn_job *job, const sn_topo *topo)
{
    sn_plan *plan;
    sn_job resolved = *job;
    if (sn_job_plan(job, topo, topo->cards, &plan) < 0)
        return; /* every rank will say so in a moment */
    resolved.tensor = plan->tensor;
    resolved.pipeline = plan->pipeline;
    resolved.data_parallel = plan->data;
    if (sn_run_describe(run, &resolved, topo, plan) < 0)
        sn_log(SN_LOG_WARN, "%s, going on without it", sn_errmsg());
    else
        sn_run_latest(run);
    sn_plan_free(plan);
}

/* Each rank has its machine's; a group takes that of its lowest rank. */
static sn_calibration *find_calibration(const sn_job *job, bool speaks)
{
    sn_calibration *c = sn_alloc(sizeof *c);
    sn_str warning = {0};
    bool found = sn_calibration_load(job->hosts, job->cards_per_host,
                                     sn_hosts_kind_of(job->hosts, true), c, &warning);
    if (warning.len && speaks)
        sn_log(SN_LOG_WARN, "%s", sn_str_get(&warning));
    sn_str_done(&warning);
    if (found)
        return c;
    free(c);
    return NULL;
}

static sn_status work(sn_boot *boot, sn_job_spec *spec, const char *run_dir, bool resume,
                      speaker *s, sn_run *run, sn_topo **topo, sn_train_result *result)
{
    char host[32] = "";
    int rank = sn_boot_rank(boot), hosts;
    gethostname(host, sizeof host - 1);
    SN_TRY(open_page(rank, host));
    SN_TRY(count_hosts(boot, host, &hosts));
    spec->job.hosts = hosts;
    spec->job.cards_per_host = sn_boot_world(boot) / hosts;
    SN_TRY(agree_on_run(boot, run_dir, resume, &spec->job, run));
    if (spec->job.checkpoint.dir)
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
    if (rank == 0)
        describe(run, &spec->job, *topo);
    sn_calibration *calibration = find_calibration(&spec->job, rank == 0);
    if (rank == 0 && sn_run_calibrated(run, calibration) < 0)
        sn_log(SN_LOG_WARN, "%s, going on without it", sn_errmsg());
    sn_net_opts net = {.host_name = host,
                       .page = page,
                       .detect_ns = (sn_time) (spec->job.detect_s * SN_SEC),
                       .deadline = sn_now() + 60 * SN_SEC};
    sn_train_opts opts = {.job = &spec->job,
                          .topo = *topo,
                          .model = calibration ? &calibration->model : NULL,
                          .run_dir = run->dir,
                          .core = -1,
                          .resume = resume,
                          .rank0_metrics = true,
                          .on_step = on_step,
                          .ctx = s};
    sn_status status = sn_train_worker(boot, &net, &opts, result);
    free(calibration);
    return status;
}

static void speak(speaker *s, sn_job_spec *spec, const sn_run *run, const sn_topo *topo,
                  const sn_train_result *result, bool json)
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
                   .wall_ns = sn_now() - s->started,
                   .json = json};
    if (sn_ending_extras(&e, spec->arena) < 0)
        sn_log(SN_LOG_WARN, "%s, ignoring", sn_errmsg());
    e.reported = sn_write_report(&e) >= 0;
    if (!e.reported)
        sn_log(SN_LOG_WARN, "the report was not written: %s, ignoring", sn_errmsg());
    sn_say_summary(&e);
    sn_plan_free(plan);
}

/* What all ranks know only rank 0 says. Of a lost peer the first two speak: one of them is left. */
static int say_failed(int rank, sn_status status, bool started)
{
    bool of_peer = status == SN_EPEER || status == SN_EEPOCH || status == SN_ETIME;
    bool speaks = rank == 0 || (started && (!of_peer || rank == 1));
    return speaks ? sn_exit_with("train", status) : sn_exit_code(status);
}

/* The end of the launcher is ours: nobody is left to stop us or to hear us. What is saved stays. */
static void die_with_launcher(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

int sn_train_under_launcher(sn_status status, sn_job_spec *spec, const char *run_dir, bool resume,
                            sn_progress_style style)
{
    sn_boot *boot;
    speaker s = {.started = sn_now()};
    sn_run run = {.lock = {-1, -1}};
    sn_topo *topo = NULL;
    sn_train_result result = {0};
    char text[512];
    snprintf(text, sizeof text, "%s", sn_errmsg());
    die_with_launcher();
    if (sn_boot_pmix(&boot) < 0)
        return sn_exit_with("train", SN_EPEER);
    bool first = sn_boot_rank(boot) == 0, json = style == SN_PROGRESS_JSON;
    s.collected.progress = sn_progress_create(first ? style : SN_PROGRESS_NONE, json ? 1 : 2,
                                              sn_plain_output(), 0, spec->job.steps);
    status = agree(boot, status < 0 ? sn_fail(status, "%s", text) : SN_OK);
    if (status >= 0)
        status = work(boot, spec, run_dir, resume, &s, &run, &topo, &result);
    bool started = page && page->step > 0;
    close_page();
    sn_progress_free(s.collected.progress);
    int code = SN_EXIT_OK;
    if (status < 0)
        code = say_failed(sn_boot_rank(boot), status, started);
    else if (result.stopped)
        code = last_signal == SIGINT ? SN_EXIT_INTERRUPTED : 143;
    if (status >= 0 && first && result.stopped)
        sn_say_interrupted(&run);
    else if (status >= 0 && first)
        speak(&s, spec, &run, topo, &result, json);
    sn_run_close(&run);
    sn_topo_free(topo);
    sn_boot_free(boot);
    return code;
}
