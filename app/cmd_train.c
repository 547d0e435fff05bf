/* SPDX-License-Identifier: Apache-2.0
 * supernode train: read the job, plan it, start the workers, watch, and say how it went. */
#include "cmd.h"

#include "os/os.h"
#include "pool/pool.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t asked_to_stop, last_signal;

static void on_signal(int number)
{
    asked_to_stop++;
    last_signal = number;
}

static void catch_signals(void)
{
    sn_catch_stop(on_signal);
}

/* Once all is trained and saved nothing is lost by leaving at once. */
static void leave_on_signals(void)
{
    sn_catch_stop(SIG_DFL);
}

typedef struct session {
    sn_arena *arena;
    sn_job_spec spec;
    sn_run run;
    sn_topo *topo;
    sn_plan *plan;
    sn_collector collected;
    sn_isolation isolation;
    int64_t retries;
    bool resume, named, told; /* named: runs/latest is this one; told: that it is stopping */
    const char *event[64];
    int events;
    char warned[512]; /* the last warning shown */
    double final_loss;
} session;

static void on_note(void *ctx, const char *text)
{
    session *s = ctx;
    sn_progress_note(s->collected.progress, text);
    if (s->events < (int) SN_COUNT(s->event))
        s->event[s->events++] = sn_arena_str(s->arena, text);
}

static int interrupted(void *ctx)
{
    session *s = ctx;
    int level = SN_MIN((int) asked_to_stop, 2);
    if (level == 1 && !s->told)
        sn_progress_note(s->collected.progress, "stopping with a checkpoint; once more leaves at "
                                                "once and keeps the last one");
    s->told |= level > 0;
    return level;
}

/* What rank 0 warns of and goes on: a checkpoint that was not written, a bad one passed over. */
static void show_warning(session *s, const sn_page *page)
{
    char text[sizeof page->error];
    if (!__atomic_load_n(&page->error[0], __ATOMIC_ACQUIRE) ||
        __atomic_load_n(&page->state, __ATOMIC_ACQUIRE) == SN_WORKER_FAILED)
        return; /* a failure is the supervisor's to tell */
    snprintf(text, sizeof text, "%.*s", (int) sizeof text - 1, page->error);
    if (strcmp(text, s->warned)) {
        snprintf(s->warned, sizeof s->warned, "%s", text);
        on_note(s, text);
    }
}

static void on_tick(void *ctx, sn_page *const *pages, int world)
{
    session *s = ctx;
    sn_collect(&s->collected, pages, world);
    if (!s->named && (pages[0]->state == SN_WORKER_TRAINING || s->collected.steps)) {
        sn_run_latest(&s->run);
        s->named = true;
    }
    show_warning(s, pages[0]);
    double final = pages[0]->final_loss;
    if (final > 0)
        s->final_loss = final;
}

static const char *const *on_attempt(void *ctx, int attempt)
{
    static const char *const again[] = {"--resume", NULL};
    session *s = ctx;
    s->collected.next = 0;
    return s->resume || attempt ? again : NULL;
}

static sn_status read_flags(session *s, const sn_args *args)
{
    static const char *const name[] = {
        [SN_ISOLATION_AUTO] = "auto",
        [SN_ISOLATION_NAMESPACES] = "namespaces",
        [SN_ISOLATION_GROUPS] = "groups",
    };
    const char *isolation = sn_args_get(args, "isolation"), *retries = sn_args_get(args, "retries");
    s->retries = 3;
    if (retries && (!sn_str_to_int(retries, &s->retries) || s->retries < 0 || s->retries > 1000))
        return sn_fail(SN_EINVAL, "--retries is '%s', it must be a whole number from 0 to 1000",
                       retries);
    s->isolation = SN_ISOLATION_AUTO;
    for (size_t i = 0; isolation && i < SN_COUNT(name); i++)
        if (!strcmp(isolation, name[i])) {
            s->isolation = (sn_isolation) i;
            return SN_OK;
        }
    return isolation
               ? sn_fail(SN_EINVAL, "--isolation is '%s', it must be auto, namespaces or groups",
                         isolation)
               : SN_OK;
}

/* What bench calibrate measured for as many hosts and cards, for the workers. */
static sn_status keep_calibration(const session *s)
{
    const sn_job *j = &s->spec.job;
    sn_calibration *c =
        sn_calibration_find(j->hosts, j->cards_per_host, sn_hosts_kind_of(j->hosts, false));
    sn_status status = sn_run_calibrated(&s->run, c);
    free(c);
    return status;
}

/* Everything that can be known before a worker starts. */
static sn_status prepare(session *s, const sn_args *args)
{
    sn_tokens *tokens;
    SN_TRY(sn_tokens_open(&s->spec.job, &tokens));
    sn_tokens_close(tokens);
    sn_resolve_cards(&s->spec, sn_cores());
    SN_TRY(sn_job_topology(&s->spec.job, &s->topo));
    SN_TRY(sn_job_plan(&s->spec.job, s->topo, s->spec.job.hosts * s->spec.job.cards_per_host,
                       &s->plan));
    s->spec.job.tensor = s->plan->tensor;
    s->spec.job.pipeline = s->plan->pipeline;
    s->spec.job.data_parallel = s->plan->data;
    SN_TRY(sn_run_open(sn_args_get(args, "run"), s->resume, &s->spec.job, &s->run));
    if (s->spec.job.checkpoint.dir)
        s->spec.job.checkpoint.dir = s->run.ckpt_dir;
    SN_TRY(sn_run_tokenizer(&s->run, &s->spec));
    SN_TRY(sn_run_describe(&s->run, &s->spec.job, s->topo, s->plan));
    return keep_calibration(s);
}

static double peak_of(const session *s)
{
    int cores = SN_MIN(sn_cores(), s->plan->world);
    return s->topo->card[0].flops_f32 * cores;
}

static sn_status launch(session *s, sn_pool_result *ret)
{
    const char *argv[] = {"/proc/self/exe", "worker", "--run", s->run.dir, NULL};
    sn_pool_job job = {.hosts = s->spec.job.hosts,
                       .cards_per_host = s->spec.job.cards_per_host,
                       .world = s->plan->world,
                       .link_bits_per_s = s->spec.job.link_bits_per_s,
                       .argv = argv,
                       .log_dir = s->run.dir,
                       .retries = (int) s->retries,
                       .isolation = s->isolation,
                       .ctx = s,
                       .on_tick = on_tick,
                       .on_note = on_note,
                       .on_attempt = on_attempt,
                       .interrupted = interrupted};
    return sn_pool_run(&job, ret);
}

static int finish(session *s, const sn_args *args, const sn_pool_result *result, sn_time started)
{
    sn_ending e = {.run = &s->run,
                   .job = &s->spec.job,
                   .plan = s->plan,
                   .topo = s->topo,
                   .collected = &s->collected,
                   .final_loss = s->final_loss,
                   .baseline = NAN,
                   .wall_ns = sn_now() - started,
                   .event = s->event,
                   .events = s->events,
                   .json = sn_args_get(args, "json") != NULL};
    bool well = result->exit_code == SN_EXIT_OK && !result->interrupted;
    if (well)
        leave_on_signals();
    if (well && sn_ending_extras(&e, s->arena) < 0)
        sn_log(SN_LOG_WARN, "%s, ignoring", sn_errmsg());
    e.reported = sn_write_report(&e) >= 0;
    if (!e.reported)
        sn_log(SN_LOG_WARN, "the report was not written: %s, ignoring", sn_errmsg());
    if (s->spec.job.trace)
        e.traced = sn_trace_join(&s->run, s->plan->world, s->spec.job.trace) >= 0;
    if (s->spec.job.trace && !e.traced)
        sn_log(SN_LOG_WARN, "%s, ignoring", sn_errmsg());
    if (well)
        sn_say_summary(&e);
    if (result->interrupted) {
        sn_say_interrupted(&s->run);
        return last_signal == SIGTERM ? 143 : SN_EXIT_INTERRUPTED;
    }
    if (result->exit_code == SN_EXIT_OK)
        return SN_EXIT_OK;
    fprintf(stderr, "supernode train: %s; logs are in %s\n", result->reason, s->run.dir);
    return sn_exit_code(result->status) == SN_EXIT_UNFIT ? SN_EXIT_UNFIT : SN_EXIT_FAILED;
}

static sn_progress_style style_of(const sn_args *args)
{
    if (sn_args_get(args, "json"))
        return SN_PROGRESS_JSON;
    return isatty(2) && !sn_plain_output() ? SN_PROGRESS_LIVE : SN_PROGRESS_LINES;
}

static sn_status run(session *s, const sn_args *args, int *ret_code)
{
    sn_time started = sn_now();
    char path[4096];
    sn_pool_result result;
    SN_TRY(read_flags(s, args));
    SN_TRY(prepare(s, args));
    catch_signals();
    SN_TRY(sn_run_path(&s->run, "metrics.jsonl", path));
    SN_TRY(sn_metrics_open(path, s->resume, &s->collected.metrics));
    bool json = sn_args_get(args, "json") != NULL;
    s->collected.peak_flops = peak_of(s);
    s->collected.cards_per_core = (double) s->plan->world / SN_MIN(sn_cores(), s->plan->world);
    s->collected.progress =
        sn_progress_create(style_of(args), json ? 1 : 2, sn_plain_output(), 0, s->spec.job.steps);
    if (!json) {
        char n[32];
        sn_str line = {0};
        sn_str_printf(
            &line,
            "%s: %s parameters, tensor %d x pipeline %d x data %d on %d host%s x %d card%s, run %s",
            s->spec.job.model, sn_fmt_count(n, (double) sn_graph_parameters(s->plan->graph)),
            s->plan->tensor, s->plan->pipeline, s->plan->data, s->spec.job.hosts,
            s->spec.job.hosts == 1 ? "" : "s", s->spec.job.cards_per_host,
            s->spec.job.cards_per_host == 1 ? "" : "s", s->run.dir);
        sn_progress_note(s->collected.progress, sn_str_get(&line));
        sn_str_done(&line);
    }
    sn_status status = launch(s, &result);
    sn_progress_free(s->collected.progress);
    sn_metrics_close(s->collected.metrics);
    s->collected.metrics = NULL;
    if (status >= 0)
        *ret_code = finish(s, args, &result, started);
    return status;
}

int sn_cmd_train(const sn_args *args)
{
    session *s = sn_alloc(sizeof *s);
    s->arena = sn_arena_create();
    s->resume = sn_args_get(args, "resume") != NULL;
    s->run = (sn_run){.lock = {-1, -1}};
    s->final_loss = NAN;
    const char *word = args->words ? args->word[0] : sn_args_get(args, "model-config");
    char of_run[4096];
    sn_status status = SN_OK;
    if (!word && s->resume) { /* the run knows its job; flags still win */
        word = of_run;
        status = sn_run_job_file(sn_args_get(args, "run"), of_run);
    }
    if (status >= 0)
        status = sn_read_job(args, word, s->arena, &s->spec);
    int code = SN_EXIT_OK;
    if (sn_under_launcher())
        code = sn_train_under_launcher(status, &s->spec, sn_args_get(args, "run"), s->resume,
                                       style_of(args));
    else if (status >= 0)
        status = run(s, args, &code);
    if (status < 0 && !sn_under_launcher())
        code = sn_exit_with("train", status);
    sn_run_close(&s->run);
    sn_plan_free(s->plan);
    sn_topo_free(s->topo);
    sn_arena_free(s->arena);
    free(s);
    return code;
}
