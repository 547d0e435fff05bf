/* SPDX-License-Identifier: Apache-2.0
 *
 * loop — step, step, …
 *
 *   step s:  post the vote ─ feed ─ run the program ─ count the vote ─ page ─ evaluate? save? stop?
 *
 * The vote is one small all-reduce per step that runs behind the computing: whether anybody was
 * asked to stop (so that all leave after the same step although the request reaches each at another
 * time) and, when rank 0 keeps the metrics, what each rank measured in the step before. */
#include <math.h>
#include <string.h>
#include <sys/resource.h>

#include "os/os.h"
#include "train/parts.h"

#define SKIPS_MAX 10 /* steps in a row without a finite gradient before the job gives up */

enum {
    VOTE_STOP,
    VOTE_TIME,
    VOTE_HOST = VOTE_TIME + SN_TIME_KINDS,
    VOTE_NET,
    VOTE_FLOPS,
    VOTE_COMM,
    VOTES
};

typedef struct loop {
    train_worker *w;
    sn_coll_req *vote;
    bool stop;
    int skips;            /* in a row */
    sn_coll_stats before; /* at the step's start */
    sn_step_metrics row;  /* of the step before, this rank's part of the sums */
    bool pending;         /* row waits for the next vote */
    int64_t flying_ns;    /* sn_exec_flying_ns at the step's start */
} loop;

sn_time train_deadline(const train_worker *w)
{
    double patience = w->job->deadline_s > 0 ? w->job->deadline_s : 30;
    return sn_now() + (sn_time) (patience * (double) SN_SEC) + 4 * w->step_ns;
}

/* What was taken so far says where to go on, also after a change of batch_size. */
int64_t train_first_sample(const train_worker *w)
{
    return w->at.tokens / w->job->gpt.sequence;
}

static bool asked_to_stop(const train_worker *w, uint32_t how)
{
    return __atomic_load_n(&w->page->stop, __ATOMIC_RELAXED) >= how;
}

/* ---- the vote ---- */

static sn_status vote_post(loop *l)
{
    train_worker *w = l->w;
    float *v = w->vote;
    v[VOTE_STOP] = asked_to_stop(w, 1);
    for (int k = 0; k < SN_TIME_KINDS; k++)
        v[VOTE_TIME + k] = (float) l->row.time_ns[k];
    v[VOTE_HOST] = (float) l->row.bytes_host;
    v[VOTE_NET] = (float) l->row.bytes_net;
    v[VOTE_FLOPS] = (float) l->row.flops;
    v[VOTE_COMM] = (float) l->row.comm_ns;
    if (!w->coll) {
        memcpy(w->tally, v, VOTES * sizeof(*v));
        return SN_OK;
    }
    sn_coll_call call = {.op = SN_ALL_REDUCE,
                         .red = SN_SUM,
                         .dtype = SN_F32,
                         .count = w->opts->rank0_metrics ? VOTES : 1,
                         .in = v,
                         .out = w->tally};
    return sn_coll_post(w->all, &call, train_deadline(w), &l->vote);
}

static sn_status emit(loop *l)
{
    train_worker *w = l->w;
    if (!l->pending || !w->opts->rank0_metrics || w->rank != 0)
        return SN_OK;
    l->pending = false;
    sn_step_metrics row = l->row;
    for (int k = 0; k < SN_TIME_KINDS; k++)
        row.time_ns[k] = (int64_t) (w->tally[VOTE_TIME + k] / (float) w->world);
    sn_metrics_of_core(&row, sn_topo_sharers(w->opts->topo, 0, w->world));
    row.bytes_host = (uint64_t) w->tally[VOTE_HOST];
    row.bytes_net = (uint64_t) w->tally[VOTE_NET];
    row.flops = (double) w->tally[VOTE_FLOPS];
    row.comm_ns = (int64_t) (w->tally[VOTE_COMM] / (float) w->world);
    if (w->opts->on_step)
        w->opts->on_step(w->opts->ctx, &row);
    sn_status status = w->metrics ? sn_metrics_add(w->metrics, &row) : SN_OK;
    if (status < 0) { /* a full disk costs the curve, not the run */
        train_warn(w, "metrics are no longer written");
        sn_metrics_close(w->metrics);
        w->metrics = NULL;
    }
    return SN_OK;
}

static sn_status vote_count(loop *l)
{
    if (l->vote) {
        sn_coll_req *req = l->vote;
        l->vote = NULL;
        SN_TRY(sn_coll_wait(req));
    }
    l->stop = l->w->tally[VOTE_STOP] > 0;
    return emit(l);
}

/* ---- one step ---- */

static void set_hyper(train_worker *w, int64_t step)
{
    const sn_job *job = w->job;
    float *h = sn_exec_slot(w->exec, w->program->hyper);
    if (!h)
        return;
    double t = (double) (step + 1);
    h[0] = (float) sn_job_lr(job, step);
    h[1] = (float) job->optimizer.beta1;
    h[2] = (float) job->optimizer.beta2;
    h[3] = (float) job->optimizer.eps;
    h[4] = (float) job->optimizer.weight_decay;
    h[5] = (float) (1 / (1 - pow(job->optimizer.beta1, t)));
    h[6] = (float) (1 / (1 - pow(job->optimizer.beta2, t)));
    h[7] = (float) job->optimizer.clip;
}

static void put(double *field, double value)
{
    __atomic_store(field, &value, __ATOMIC_RELAXED);
}

static void put_int(int64_t *field, int64_t value)
{
    __atomic_store_n(field, value, __ATOMIC_RELAXED);
}

static uint64_t memory_peak(void)
{
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) ? 0 : (uint64_t) u.ru_maxrss * 1024;
}

/* The fields of the last step; sn_page_step_done makes them one once its evaluation is there. */
static void publish(train_worker *w, const sn_step_metrics *row)
{
    sn_page *p = w->page;
    put(&p->loss, row->loss);
    put(&p->grad_norm, row->grad_norm);
    put(&p->lr, row->lr);
    put(&p->flops, row->flops);
    put_int(&p->step_ns, row->step_ns);
    for (int k = 0; k < SN_TIME_KINDS; k++)
        put_int(&p->time_ns[k], row->time_ns[k]);
    put_int(&p->comm_ns, row->comm_ns);
    put_int(&p->tokens, row->tokens);
    __atomic_store_n(&p->bytes_host, row->bytes_host, __ATOMIC_RELAXED);
    __atomic_store_n(&p->bytes_net, row->bytes_net, __ATOMIC_RELAXED);
    __atomic_store_n(&p->memory_peak_bytes, memory_peak(), __ATOMIC_RELAXED);
}

static void measure(loop *l, int64_t step, sn_time began, const int64_t time_ns[SN_TIME_KINDS])
{
    train_worker *w = l->w;
    const float *scalars = sn_exec_slot(w->exec, w->program->scalars);
    sn_coll_stats now = w->coll ? sn_coll_stats_get(w->coll) : (sn_coll_stats){0};
    sn_step_metrics *row = &l->row;
    *row = (sn_step_metrics){.step = step + 1,
                             .tokens = w->job->batch * w->job->gpt.sequence,
                             .loss = (double) scalars[0] / sn_tokens_mean_bytes(w->tokens),
                             .grad_norm = sqrt((double) scalars[1]),
                             .lr = sn_job_lr(w->job, step),
                             .val_loss = NAN,
                             .step_ns = sn_now() - began,
                             .comm_ns = sn_exec_flying_ns(w->exec) - l->flying_ns,
                             .flops = w->plan->cost.flops / w->world,
                             .peak_flops = w->peak_flops,
                             .bytes_host = now.bytes_host - l->before.bytes_host,
                             .bytes_net = now.bytes_net - l->before.bytes_net};
    int64_t rest = row->step_ns;
    for (int k = 0; k < SN_TIME_KINDS; k++) {
        row->time_ns[k] = time_ns[k];
        rest -= time_ns[k];
    }
    row->time_ns[SN_TIME_OTHER] += rest;
    l->before = now;
    l->pending = true;
    w->step_ns = row->step_ns;
    w->result.train_loss = row->loss;
    publish(w, row);
}

/* AdamW left everything as it was when the gradient was not finite; a few of those happen, a row of
 * them means that the run is lost. */
static sn_status check_finite(loop *l)
{
    if (isfinite(l->row.loss) && isfinite(l->row.grad_norm)) {
        l->skips = 0;
        return SN_OK;
    }
    l->w->at.skipped++;
    if (++l->skips < SKIPS_MAX)
        return SN_OK;
    return sn_fail(SN_EFAIL,
                   "loss %g and gradient norm %g: no finite gradient for %d steps in a row: lower "
                   "optimizer lr %g, raise warmup, or set clip",
                   l->row.loss, l->row.grad_norm, SKIPS_MAX, l->w->job->optimizer.lr);
}

/* The steps of a trace are the second and those after it: the first one warms up. */
static void trace(train_worker *w, int64_t step)
{
    if (!w->trace || step == w->result.first_step)
        return;
    train_trace_step(w->trace, step);
    if (train_trace_over(w->trace, step))
        train_end_trace(w);
}

static sn_status one_step(loop *l, int64_t step)
{
    train_worker *w = l->w;
    int64_t time_ns[SN_TIME_KINDS] = {0};
    sn_time began = sn_now();
    sn_recorder_step(w->recorder, step);
    trace(w, step);
    l->flying_ns = sn_exec_flying_ns(w->exec);
    SN_TRY(vote_post(l));
    if (w->prefetch)
        SN_TRY(train_prefetch_take(w->prefetch, train_deadline(w)));
    else
        train_feed_step(&w->feed, w->tokens, w->job->seed, train_first_sample(w));
    set_hyper(w, step);
    sn_exec_set_wire(w->exec, step < w->job->compression.warmup ? SN_WIRE_PLAIN : SN_WIRE_CODED);
    SN_TRY(sn_exec_run(w->exec, train_deadline(w), time_ns));
    SN_TRY(vote_count(l));
    measure(l, step, began, time_ns);
    w->at.step = step + 1;
    w->at.tokens += l->row.tokens;
    w->result.steps = step + 1;
    return check_finite(l);
}

/* ---- what happens between steps ---- */

static bool due(int64_t every, int64_t done)
{
    return every > 0 && done % every == 0;
}

static sn_status evaluate(loop *l, int64_t windows_max, double *ret)
{
    train_worker *w = l->w;
    double loss;
    sn_recorder_doing(w->recorder, "evaluating");
    SN_TRY(train_evaluate(w, windows_max, &loss));
    put(&w->page->val_loss, loss);
    put_int(&w->page->val_step, w->at.step);
    l->row.val_loss = loss;
    *ret = loss;
    return SN_OK;
}

static sn_status save(train_worker *w, bool last)
{
    if (w->saved_step == w->at.step)
        return SN_OK;
    sn_page_set_state(w->page, SN_WORKER_SAVING);
    sn_page_op(w->page, "saving a checkpoint", 0);
    sn_recorder_doing(w->recorder, "saving a checkpoint");
    sn_status status = train_save(w);
    sn_page_set_state(w->page, SN_WORKER_TRAINING);
    if (status >= 0) {
        w->saved_step = w->at.step;
        return SN_OK;
    }
    bool lost_peer = status == SN_EPEER || status == SN_EEPOCH || status == SN_ECANCEL ||
                     status == SN_ETIME || status == SN_EMISMATCH;
    if (last || lost_peer)
        return status;
    train_warn(w, "checkpoint not written, going on with the previous one");
    return SN_OK;
}

static sn_status between(loop *l)
{
    train_worker *w = l->w;
    bool last = w->at.step >= w->job->steps;
    double loss;
    if (!last && due(w->job->eval_every, w->at.step))
        SN_TRY(evaluate(l, SN_MAX(1, w->job->eval_samples), &loss));
    sn_page_step_done(w->page, w->at.step - 1);
    if (!last && !l->stop && due(w->job->checkpoint.every, w->at.step))
        SN_TRY(save(w, false));
    return asked_to_stop(w, 2) ? sn_fail(SN_ECANCEL, "asked to leave at once") : SN_OK;
}

static sn_status leave(loop *l)
{
    train_worker *w = l->w;
    train_end_trace(w);
    SN_TRY(save(w, true));
    SN_TRY(train_tell_compression(w));
    w->result.stopped = l->stop && w->at.step < w->job->steps;
    if (!w->result.stopped) {
        if (w->program->wires > 0) /* the checkpoint's model: the masters, not what was seen */
            SN_TRY(train_gather(w, SN_WIRE_PLAIN));
        SN_TRY(evaluate(l, INT64_MAX, &w->result.final_loss));
        put(&w->page->final_loss, w->result.final_loss);
    }
    if (!w->opts->rank0_metrics || !l->pending)
        return SN_OK;
    SN_TRY(vote_post(l)); /* the last row still waits for the others' parts */
    return vote_count(l);
}

sn_status train_loop(train_worker *w)
{
    loop l = {.w = w};
    if (w->coll)
        l.before = sn_coll_stats_get(w->coll);
    sn_page_set_state(w->page, SN_WORKER_TRAINING);
    while (w->at.step < w->job->steps && !l.stop) {
        int64_t step = w->at.step;
        sn_status status = one_step(&l, step);
        if (status >= 0)
            status = between(&l);
        if (status < 0)
            return sn_fail_in(status, "step %lld", (long long) step);
    }
    return leave(&l);
}
