/* SPDX-License-Identifier: Apache-2.0
 *
 * worker — a worker's whole life: opens everything in order, trains, closes in reverse.
 *
 *   join (net) ─ plan ─ agree ─ memory (coll) ─ kernels (exec) ─ state (drawn or loaded) ─ loop
 *
 * Every rank plans for itself from the same inputs; before memory is shared the ranks compare what
 * they came to, so that a differing job file, text or build is named instead of going wrong later.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "os/os.h"
#include "train/parts.h"

/* Into the log and, for the launcher to show, into the page: the first byte comes last, so that a
 * text which has begun is whole. */
void train_say(train_worker *w, const char *text)
{
    char line[sizeof(w->page->error)] = "";
    if (w->rank != 0)
        return;
    sn_log(SN_LOG_WARN, "%s", text);
    snprintf(line, sizeof(line), "%s", text);
    __atomic_store_n(&w->page->error[0], 0, __ATOMIC_RELEASE);
    memcpy(w->page->error + 1, line + 1, sizeof(line) - 1);
    __atomic_store_n(&w->page->error[0], line[0], __ATOMIC_RELEASE);
}

void train_warn(train_worker *w, const char *what)
{
    char text[sizeof(w->page->error)];
    snprintf(text, sizeof(text), "%s: %.400s", what, sn_errmsg());
    train_say(w, text);
}

/* ---- joining ---- */

/* What cannot be recorded does not stop the job. */
static void start_recorder(train_worker *w, const sn_net_opts *net)
{
    sn_recorder_opts opts = {
        .rank = w->rank, .world = w->world, .host = net && net->host_name ? net->host_name : ""};
    if (!w->opts->run_dir)
        return;
    if (sn_recorder_create(w->opts->run_dir, &opts, &w->recorder) < 0)
        sn_log(SN_LOG_WARN, "%s, going on without the flight recorder", sn_errmsg());
    sn_recorder_doing(w->recorder, "starting");
}

static sn_status join(train_worker *w, const sn_net_opts *net)
{
    w->rank = sn_boot_rank(w->boot);
    w->world = sn_boot_world(w->boot);
    w->page = net && net->page ? net->page : &w->own_page;
    sn_page_set_state(w->page, SN_WORKER_JOINING);
    if (w->opts->core >= 0)
        SN_TRY(sn_bind_core(w->opts->core));
    if (w->world > 1)
        SN_TRY(sn_net_open(w->boot, net, &w->net));
    start_recorder(w, net);
    return SN_OK;
}

static sn_status read_and_plan(train_worker *w)
{
    SN_TRY(sn_tokens_open(w->job, &w->tokens));
    SN_TRY(sn_job_plan(w->job, w->opts->topo, w->world, &w->plan));
    if (w->plan->world != w->world)
        return sn_fail(SN_EFIT,
                       "%d workers were started, the plan is for %d cards (tensor %d × "
                       "pipeline %d × data %d)",
                       w->world, w->plan->world, w->plan->tensor, w->plan->pipeline, w->plan->data);
    return sn_plan_program(w->plan, w->rank, &w->program);
}

/* ---- agreeing ---- */

typedef struct claim { /* what a rank tells the others before they depend on it */
    int32_t status;
    char text[480]; /* why not */
    uint64_t plan, numbers, data;
    uint64_t attempt; /* rank 0's: tells this start of the job from others */
    double link_latency_ns, link_bytes_per_s;
} claim;

_Static_assert(sizeof(claim) <= 1024, "sn_net_gather takes no more");

static uint64_t hash_plan(const train_worker *w)
{
    sn_str s = {0};
    sn_plan_print(w->plan, &s);
    uint64_t h = sn_hash_bytes(sn_str_get(&s), s.len);
    sn_str_done(&s);
    return h;
}

static uint64_t hash_numbers(const sn_job *job)
{
    sn_str s = {0};
    train_meta_write(job, 0, &(train_meta){0}, NULL, &s);
    sn_str_printf(&s, "%lld %lld %lld %g %g %g %g %g %g %lld %lld %g %lld %g",
                  (long long) job->accumulation, (long long) job->checkpoint.every,
                  (long long) job->optimizer.warmup, job->optimizer.lr_min, job->optimizer.beta1,
                  job->optimizer.beta2, job->optimizer.eps, job->optimizer.weight_decay,
                  job->optimizer.clip, (long long) job->eval_every, (long long) job->eval_samples,
                  job->held_out, (long long) job->compression.warmup, job->compression.momentum);
    uint64_t h = sn_hash_bytes(sn_str_get(&s), s.len);
    sn_str_done(&s);
    return h;
}

static sn_status differ(const train_worker *w, int rank, const char *what)
{
    return sn_fail(SN_EMISMATCH,
                   "rank %d (%s) and rank 0 (%s) %s: start every worker with the same job, data "
                   "and build",
                   rank, sn_net_host_name(w->net, rank), sn_net_host_name(w->net, 0), what);
}

/* Everyone's claim; a rank that could not get here says why, and all fail with its words. */
static sn_status exchange(train_worker *w, sn_status status, claim *mine, claim *all)
{
    mine->status = status;
    if (status < 0)
        snprintf(mine->text, sizeof(mine->text), "%s", sn_errmsg());
    int *everyone = SN_NEW_N(w->arena, int, w->world);
    for (int r = 0; r < w->world; r++)
        everyone[r] = r;
    SN_TRY(sn_net_gather(w->net, everyone, w->world, mine, sizeof(*mine), train_deadline(w), all));
    for (int r = 0; r < w->world; r++)
        if (all[r].status < 0)
            return sn_fail((sn_status) all[r].status, "rank %d (%s): %s", r,
                           sn_net_host_name(w->net, r), all[r].text);
    return SN_OK;
}

/* `status`: of reading the text and planning, which each rank did for itself. */
static sn_status agree(train_worker *w, sn_status status)
{
    if (!w->net)
        return status;
    claim mine = {0}, *all = sn_alloc((size_t) w->world * sizeof(*all));
    if (status >= 0) {
        mine.plan = hash_plan(w);
        mine.numbers = hash_numbers(w->job);
        mine.data = sn_tokens_fingerprint(w->tokens);
    }
    mine.attempt = sn_hash64((uint64_t) sn_now_wall(), (uint64_t) getpid(), 0);
    status = exchange(w, status, &mine, all);
    if (status >= 0)
        sn_recorder_attempt(w->recorder, all[0].attempt);
    for (int r = 1; r < w->world && status >= 0; r++) {
        if (all[r].data != all[0].data)
            status = differ(w, r, "read different texts");
        else if (all[r].numbers != all[0].numbers)
            status = differ(w, r, "have different job numbers");
        else if (all[r].plan != all[0].plan)
            status = differ(w, r, "planned differently");
    }
    free(all);
    return status;
}

/* The last time before the first step: nobody starts into a step that somebody cannot take. Rank 0
 * tells what it measured. */
static sn_status ready(train_worker *w, sn_status status)
{
    if (!w->net)
        return status;
    claim mine = {.link_latency_ns = w->result.link_latency_ns,
                  .link_bytes_per_s = w->result.link_bytes_per_s};
    claim *all = sn_alloc((size_t) w->world * sizeof(*all));
    status = exchange(w, status, &mine, all);
    if (status >= 0) {
        w->result.link_latency_ns = all[0].link_latency_ns;
        w->result.link_bytes_per_s = all[0].link_bytes_per_s;
    }
    free(all);
    return status;
}

/* ---- the link between hosts, measured by the first rank of each of the first two ---- */

static int first_rank_of_host(const train_worker *w, int host)
{
    for (int r = 0; r < w->world; r++)
        if (sn_net_host_index(w->net, r) == host)
            return r;
    return -1;
}

static void write_links(const train_worker *w, int peer)
{
    sn_str path = {0}, json = {0};
    sn_str_printf(&path, "%s/links.json", w->opts->run_dir);
    sn_str_printf(&json,
                  "[{\"from\": \"%s\", \"to\": \"%s\", \"latency_ns\": %.0f, \"bytes_per_s\": "
                  "%.0f}]\n",
                  sn_net_host_name(w->net, 0), sn_net_host_name(w->net, peer),
                  w->result.link_latency_ns, w->result.link_bytes_per_s);
    if (sn_file_write(sn_str_get(&path), sn_str_get(&json), json.len) < 0)
        sn_log(SN_LOG_WARN, "%s, going on without that file", sn_errmsg());
    sn_str_done(&path);
    sn_str_done(&json);
}

static sn_status measure_link(train_worker *w)
{
    if (!w->net || sn_net_hosts(w->net) < 2 || w->link_known)
        return SN_OK;
    w->link_known = true;
    int a = first_rank_of_host(w, 0), b = first_rank_of_host(w, 1);
    if (w->rank != a && w->rank != b)
        return SN_OK;
    SN_TRY(sn_net_measure(w->net, w->rank == a ? b : a, train_deadline(w),
                          &w->result.link_latency_ns, &w->result.link_bytes_per_s));
    if (w->rank == 0 && w->opts->run_dir)
        write_links(w, b);
    return SN_OK;
}

/* ---- compression: auto ---- */

typedef struct measured { /* rank 0's numbers decide for all */
    double link_bytes_per_s, codec_bytes_per_s;
    char kept[64]; /* codec of the run that is resumed: it goes on as it was */
} measured;

static void look_back(const train_worker *w, char out[64])
{
    int64_t step;
    sn_ckpt *c = NULL;
    out[0] = 0;
    if (!w->opts->resume || sn_ckpt_newest(w->ckpt_dir, &step) < 0 ||
        sn_ckpt_open(w->ckpt_dir, step, &c) < 0)
        return;
    train_meta_codec(sn_ckpt_meta(c), w->job->hosts, out);
    sn_ckpt_close(c);
}

static sn_status measure(train_worker *w, measured *ret)
{
    measured mine = {0}, *all = sn_alloc((size_t) w->world * sizeof(*all));
    int *everyone = SN_NEW_N(w->arena, int, w->world);
    for (int r = 0; r < w->world; r++)
        everyone[r] = r;
    sn_status status = measure_link(w);
    mine.link_bytes_per_s = w->result.link_bytes_per_s;
    if (w->rank == 0) {
        mine.codec_bytes_per_s = train_codec_rate();
        look_back(w, mine.kept);
    }
    if (status >= 0)
        status =
            sn_net_gather(w->net, everyone, w->world, &mine, sizeof(mine), train_deadline(w), all);
    *ret = all[0];
    free(all);
    return status;
}

/* From here on the job has a codec in the place of auto. */
static sn_status settle_compression(train_worker *w)
{
    measured m = {0};
    sn_plan_compression c;
    sn_str why = {0};
    char codec[32], parameters[32] = "auto";
    if (!train_compression_auto(w->job))
        return SN_OK;
    if (w->net && sn_net_hosts(w->net) > 1)
        SN_TRY(measure(w, &m));
    w->settled = *w->job;
    w->job = &w->settled;
    m.kept[sizeof(m.kept) - 1] = 0;
    if (m.kept[0]) {
        w->settled.compression.codec = sn_arena_str(w->arena, m.kept);
        sn_str_printf(&why, "compression: auto stays with %s, as before", m.kept);
    }
    sn_status status = sn_job_compression(w->job, w->opts->topo, m.link_bytes_per_s,
                                          m.codec_bytes_per_s, &c, m.kept[0] ? NULL : &why);
    if (status >= 0) {
        sn_codec_text(&c.gradients, codec);
        if (!c.kept)
            sn_codec_text(&c.parameters, parameters);
        w->settled.compression.codec = sn_arena_str(w->arena, codec);
        w->settled.compression.parameters = sn_arena_str(w->arena, parameters);
        train_say(w, sn_str_get(&why));
    }
    sn_str_done(&why);
    return status;
}

/* ---- memory, kernels, state ---- */

static sn_status open_coll(train_worker *w)
{
    if (!w->net) {
        w->vote = SN_NEW_N(w->arena, float, 32);
        w->tally = w->vote + 16;
        return SN_OK;
    }
    uint64_t wires = train_wires_bytes(w->plan, w->program);
    sn_coll_opts opts = {.arena_bytes = w->program->memory_bytes + wires + 65536,
                         .topo = w->opts->topo,
                         .model = w->opts->model,
                         .recorder = w->recorder,
                         .deadline = train_deadline(w)};
    SN_TRY(sn_coll_open(w->net, &opts, &w->coll));
    int *everyone = SN_NEW_N(w->arena, int, w->world);
    for (int r = 0; r < w->world; r++)
        everyone[r] = r;
    SN_TRY(sn_coll_group_create(w->coll, "job", everyone, w->world, train_deadline(w), &w->all));
    void *votes;
    SN_TRY(sn_coll_alloc(w->coll, 128, &votes));
    w->vote = votes;
    w->tally = w->vote + 16;
    return SN_OK;
}

static double peak_flops(const train_worker *w)
{
    double sum = 0;
    for (int r = 0; r < w->world && r < w->opts->topo->cards; r++) {
        const sn_topo_card *c = &w->opts->topo->card[r];
        sum += c->share * (w->job->precision == SN_BF16 ? c->flops_bf16 : c->flops_f32);
    }
    return sum;
}

/* The pieces of the program's state, and what is owed beside it. */
static void collect_saves(train_worker *w)
{
    sn_piece *state, *owed;
    int n = train_state_pieces(w->plan, w->program, w->exec, true, w->arena, &state);
    int m = train_wires_pieces(train_exec_wires(w->exec), w->arena, &owed);
    w->saves = n + m;
    w->save = SN_NEW_N(w->arena, sn_piece, SN_MAX(1, n + m));
    memcpy(w->save, state, (size_t) n * sizeof(*state));
    if (m > 0)
        memcpy(w->save + n, owed, (size_t) m * sizeof(*owed));
}

static sn_status make_executor(train_worker *w)
{
    SN_TRY(sn_card_open(w->job->card_kind, &(sn_card_opts){.threads = 1}, &w->card));
    SN_TRY(sn_exec_create(w->plan, w->program, w->card, w->coll, train_deadline(w), &w->exec));
    sn_exec_tell(w->exec, w->page);
    sn_exec_record(w->exec, w->recorder);
    sn_exec_overlap(w->exec, !w->job->no_overlap);
    if (w->job->trace && w->opts->run_dir)
        w->trace = train_trace_open(w->plan, w->program, w->job->trace_steps, w->opts->run_dir);
    train_exec_trace(w->exec, w->trace);
    SN_TRY(train_feed_init(w->plan, w->program, w->exec, w->arena, &w->feed));
    w->window = SN_NEW_N(w->arena, int64_t, w->job->batch);
    collect_saves(w);
    w->loads = train_state_pieces(w->plan, w->program, w->exec, false, w->arena, &w->load);
    w->peak_flops = peak_flops(w);
    return SN_OK;
}

void train_end_trace(train_worker *w)
{
    const sn_topo *t = w->opts->topo;
    if (!w->trace)
        return;
    const char *host = w->net ? sn_net_host_name(w->net, w->rank) : t->host[0].name;
    if (train_trace_write(w->trace, w->opts->run_dir, host) < 0)
        train_warn(w, "going on without it");
    train_exec_trace(w->exec, NULL);
    train_trace_close(w->trace);
    w->trace = NULL;
}

static sn_status open_metrics(train_worker *w)
{
    if (!w->opts->rank0_metrics || w->rank != 0 || !w->opts->run_dir)
        return SN_OK;
    sn_str path = {0};
    sn_str_printf(&path, "%s/metrics.jsonl", w->opts->run_dir);
    sn_status status = sn_metrics_open(sn_str_get(&path), w->at.step > 0, &w->metrics);
    sn_str_done(&path);
    if (status >= 0 && sn_metrics_catch_up(w->metrics, w->page) < 0)
        train_warn(w, "the steps before this one are not in the metrics");
    return status;
}

static sn_status open_prefetch(train_worker *w)
{
    int depth = w->job->prefetch ? w->job->prefetch : sn_tokens_mapped(w->tokens) ? 2 : 0;
    int64_t steps = w->job->steps - w->at.step;
    if (!depth || steps <= 0)
        return SN_OK;
    return train_prefetch_open(&w->feed, w->tokens, w->job->seed, train_first_sample(w),
                               w->job->batch, steps, depth, &w->prefetch);
}

/* Masters and moments, drawn or loaded. */
static sn_status fill_state(train_worker *w)
{
    train_state_init(w->plan, w->program, w->exec, w->job->seed);
    if (w->opts->resume)
        SN_TRY(train_restore(w));
    if (w->job->init && w->saved_step < 0)
        SN_TRY(train_state_from_hf(w->job, w->plan, w->program, w->exec));
    w->result.first_step = w->result.steps = w->at.step;
    __atomic_store_n(&w->page->first_step, w->at.step, __ATOMIC_RELAXED);
    __atomic_store_n(&w->page->step, w->at.step, __ATOMIC_RELEASE);
    SN_TRY(open_prefetch(w));
    return open_metrics(w);
}

sn_status train_gather(train_worker *w, sn_exec_wire wire)
{
    sn_exec_set_wire(w->exec, wire);
    int64_t time_ns[SN_TIME_KINDS] = {0};
    sn_status status = sn_exec_gather(w->exec, train_deadline(w), time_ns);
    return status < 0 ? sn_fail_in(status, "before step %lld", (long long) w->at.step) : SN_OK;
}

static const char *checkpoint_dir(train_worker *w)
{
    if (w->job->checkpoint.dir)
        return w->job->checkpoint.dir;
    return sn_arena_printf(w->arena, "%s/checkpoints", w->opts->run_dir ? w->opts->run_dir : ".");
}

/* Everything up to the first step. What was opened stays open for train_worker_close. */
sn_status train_worker_open(train_worker *w, sn_boot *boot, const sn_net_opts *net,
                            const sn_train_opts *opts)
{
    *w = (train_worker){.opts = opts, .job = opts->job, .boot = boot, .saved_step = -1};
    w->result.final_loss = w->result.train_loss = NAN;
    w->arena = sn_arena_create();
    w->ckpt_dir = checkpoint_dir(w);
    SN_TRY(join(w, net));
    SN_TRY(settle_compression(w));
    SN_TRY(agree(w, read_and_plan(w)));
    SN_TRY(measure_link(w));
    SN_TRY(open_coll(w));
    SN_TRY(make_executor(w));
    SN_TRY(ready(w, fill_state(w)));
    sn_page_set_state(w->page, SN_WORKER_READY);
    return train_gather(w, SN_WIRE_SEEN);
}

void train_worker_close(train_worker *w)
{
    sn_metrics_close(w->metrics);
    train_trace_close(w->trace);
    train_prefetch_close(w->prefetch);
    sn_exec_free(w->exec);
    sn_card_close(w->card);
    if (w->all)
        sn_coll_group_free(w->all);
    sn_coll_close(w->coll);
    sn_program_free(w->program);
    sn_plan_free(w->plan);
    sn_tokens_close(w->tokens);
    sn_net_close(w->net);
    sn_recorder_close(w->recorder, w->ended, w->why);
    sn_arena_free(w->arena);
}

sn_status sn_train_worker(sn_boot *boot, const sn_net_opts *net, const sn_train_opts *opts,
                          sn_train_result *ret)
{
    train_worker *w = sn_alloc(sizeof(*w));
    sn_time began = sn_now();
    sn_status status = train_worker_open(w, boot, net, opts);
    if (status >= 0)
        status = train_loop(w);
    w->result.wall_ns = sn_now() - began;
    char why[512];
    snprintf(why, sizeof(why), "%s", sn_errmsg()); /* closing has its own failures to tell */
    if (status < 0)
        sn_page_fail(w->page, status, why);
    else
        sn_page_set_state(w->page, SN_WORKER_DONE);
    w->ended = status;
    w->why = status < 0 ? why : NULL;
    train_worker_close(w);
    if (status >= 0)
        *ret = w->result;
    free(w);
    return status < 0 ? sn_fail(status, "%s", why) : status;
}
