/* SPDX-License-Identifier: Apache-2.0
 *
 * ctl — the supervisor's transitions: one handler per event, each a few lines. */
#include "ctl/ctl_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The actions of one step, in order. */
typedef struct plan {
    sn_ctl_action *action;
    int count;
} plan;

static sn_ctl_action *add(plan *p, sn_ctl_act kind)
{
    SN_ASSERT(p->count < SN_CTL_ACTIONS_MAX);
    sn_ctl_action *a = &p->action[p->count++];
    memset(a, 0, sizeof *a);
    a->kind = kind;
    a->rank = -1;
    return a;
}

static void set_timer(plan *p, sn_time at)
{
    add(p, SN_CTL_SET_TIMER)->at = at;
}

static void note(plan *p, const char *text)
{
    snprintf(add(p, SN_CTL_NOTE)->text, SN_CTL_TEXT, "%s", text);
}

static void launch(sn_ctl *c, plan *p)
{
    SN_ASSERT(c->phase == CTL_IDLE || c->phase == CTL_DRAINING);
    c->attempt++;
    c->phase = CTL_RUNNING;
    c->killing = c->progressed = false;
    c->seen_at = c->waiting_ns = c->starting_ns = c->lingering_ns = 0;
    c->cause = c->echo = (ctl_cause){.victim = -1};
    memset(c->worker, 0, sizeof c->worker[0] * (size_t) c->opts.world);
    add(p, SN_CTL_LAUNCH)->attempt = c->attempt;
}

static void finish(sn_ctl *c, plan *p, int code, sn_status status, const char *reason)
{
    c->phase = CTL_OVER;
    sn_ctl_action *a = add(p, SN_CTL_FINISH);
    a->code = code;
    a->status = status;
    snprintf(a->text, SN_CTL_TEXT, "%s", reason);
}

static void kill_all(sn_ctl *c, plan *p)
{
    c->killing = true;
    add(p, SN_CTL_KILL);
    set_timer(p, 0);
}

/* A second try may help, is allowed, and nobody asked to leave. */
static bool may_retry(const sn_ctl *c)
{
    return !c->stop && !c->cause.final && c->failures <= c->opts.retries &&
           c->attempt + 1 < SN_CTL_ATTEMPTS_MAX;
}

static bool all_exited(const sn_ctl *c)
{
    for (int r = 0; r < c->opts.world; r++)
        if (!c->worker[r].exited)
            return false;
    return true;
}

/* The cause is known: say it, raise the epoch, give the survivors a moment to leave. */
static void fail_attempt(sn_ctl *c, plan *p, const ctl_cause *cause, sn_time now)
{
    c->cause = *cause;
    c->cause.known = true;
    c->phase = CTL_DRAINING;
    c->failures = c->progressed ? 1 : c->failures + 1;
    char text[SN_CTL_TEXT];
    snprintf(text, sizeof text, "%s", c->cause.text);
    ctl_say_next(text, c, &c->cause, may_retry(c));
    add(p, SN_CTL_EPOCH)->rank = c->cause.victim;
    note(p, text);
    if (all_exited(c))
        kill_all(c, p);
    else
        set_timer(p, now + c->opts.drain_ns);
}

/* Somebody speaks of another's failure: wait for that other one. */
static void suspect(sn_ctl *c, plan *p, const ctl_cause *echo, sn_time now)
{
    if (c->phase == CTL_SUSPECT)
        return;
    c->echo = *echo;
    c->phase = CTL_SUSPECT;
    set_timer(p, now + c->opts.suspect_ns);
}

static void judge(sn_ctl *c, plan *p, const ctl_cause *cause, sn_time now)
{
    if (cause->known)
        fail_attempt(c, p, cause, now);
    else
        suspect(c, p, cause, now);
}

static void end_well(sn_ctl *c, plan *p)
{
    c->cause = (ctl_cause){.known = true, .done = true, .victim = -1};
    c->phase = CTL_DRAINING;
    kill_all(c, p);
}

static bool is_watching(const sn_ctl *c)
{
    return c->phase == CTL_RUNNING || c->phase == CTL_SUSPECT;
}

static void on_seen(sn_ctl *c, plan *p, const sn_ctl_event *e, sn_time now)
{
    if (!is_watching(c))
        return;
    ctl_cause cause;
    ctl_observe(c, e->views, now);
    if (ctl_judge_seen(c, e->views, now, &cause)) {
        bool mute = cause.known && cause.victim >= 0 && e->views[cause.victim].state < SN_CTL_DONE;
        if (mute) /* stopped or stuck: it will not leave by itself */
            add(p, SN_CTL_KILL_RANK)->rank = cause.victim;
        judge(c, p, &cause, now);
    } else if (c->lingering_ns >= c->opts.linger_ns) {
        note(p, "all workers are done but not all of them left; stopping those that remain");
        end_well(c, p);
    }
}

static void on_exited(sn_ctl *c, plan *p, const sn_ctl_event *e, sn_time now)
{
    if (e->rank < 0 || e->rank >= c->opts.world || c->worker[e->rank].exited)
        return;
    ctl_worker *w = &c->worker[e->rank];
    const sn_ctl_view *v = &e->views[e->rank];
    ctl_cause cause;
    w->exited = true;
    if (is_watching(c)) {
        w->step = v->step;
        ctl_count_progress(c);
        if (ctl_judge_exit(c, e, &cause))
            judge(c, p, &cause, now);
        if (c->phase == CTL_SUSPECT && all_exited(c)) /* no original will come any more */
            fail_attempt(c, p, &c->echo, now);
        else if (c->phase == CTL_RUNNING && all_exited(c))
            end_well(c, p);
    } else if (c->phase == CTL_DRAINING && !c->killing && all_exited(c)) {
        kill_all(c, p);
    }
}

static void on_broken(sn_ctl *c, plan *p, const sn_ctl_event *e, sn_time now)
{
    if (!is_watching(c) || e->rank < 0 || e->rank >= c->opts.world)
        return;
    ctl_cause cause;
    ctl_judge_broken(c, e, &cause);
    if (!c->worker[e->rank].exited)
        add(p, SN_CTL_KILL_RANK)->rank = e->rank;
    judge(c, p, &cause, now);
}

static void on_host_died(sn_ctl *c, plan *p, const sn_ctl_event *e, sn_time now)
{
    if (!is_watching(c) || e->host < 0 || e->host * c->opts.cards_per_host >= c->opts.world)
        return;
    ctl_cause cause;
    ctl_judge_host(c, e, &cause);
    judge(c, p, &cause, now);
}

static void on_refused(sn_ctl *c, plan *p, const sn_ctl_event *e)
{
    if (c->phase != CTL_RUNNING)
        return;
    c->cause = (ctl_cause){.known = true, .final = true, .victim = -1, .status = e->status};
    snprintf(c->cause.text, sizeof c->cause.text, "%s", e->text ? e->text : "cannot start the job");
    c->phase = CTL_DRAINING;
    kill_all(c, p);
}

static void on_cleared(sn_ctl *c, plan *p)
{
    if (c->phase != CTL_DRAINING || !c->killing)
        return;
    if (c->cause.done)
        finish(c, p, c->stop ? 130 : 0, c->stop ? SN_ECANCEL : SN_OK, c->stop ? "interrupted" : "");
    else if (may_retry(c))
        launch(c, p);
    else
        finish(c, p, c->stop ? 130 : 1, c->stop ? SN_ECANCEL : c->cause.status, c->cause.text);
}

static void on_interrupt(sn_ctl *c, plan *p, const sn_ctl_event *e, sn_time now)
{
    int level = SN_MIN(e->level, 2);
    if (level <= c->stop || (c->phase == CTL_DRAINING && c->cause.done))
        return;
    c->stop = level;
    if (c->phase == CTL_IDLE) {
        finish(c, p, 130, SN_ECANCEL, "interrupted before it started");
    } else if (is_watching(c)) {
        add(p, SN_CTL_STOP)->level = level;
        /* In SUSPECT the workers are failing anyway: what comes first ends the wait. */
        set_timer(
            p, now + (level == 1 && c->phase == CTL_RUNNING ? c->opts.stop_ns : c->opts.kill_ns));
    }
}

static void on_timer(sn_ctl *c, plan *p, sn_time now)
{
    if (c->phase == CTL_SUSPECT) {
        fail_attempt(c, p, &c->echo, now);
    } else if (c->phase == CTL_RUNNING && c->stop == 1) {
        note(p, "the workers did not end in time after the interrupt; stopping them now");
        c->stop = 2;
        add(p, SN_CTL_STOP)->level = 2;
        set_timer(p, now + c->opts.kill_ns);
    } else if (c->phase == CTL_RUNNING && c->stop == 2) {
        c->cause = (ctl_cause){.known = true, .victim = -1, .status = SN_ECANCEL};
        snprintf(c->cause.text, sizeof c->cause.text,
                 "interrupted; the workers did not leave by themselves and were killed");
        c->phase = CTL_DRAINING;
        kill_all(c, p);
    } else if (c->phase == CTL_DRAINING && !c->killing) {
        kill_all(c, p);
    }
}

int sn_ctl_step(sn_ctl *c, const sn_ctl_event *e, sn_time now,
                sn_ctl_action ret_actions[SN_CTL_ACTIONS_MAX])
{
    plan p = {ret_actions, 0};
    bool of_attempt = e->kind >= SN_CTL_SEEN && e->kind <= SN_CTL_CLEARED;
    if (c->phase == CTL_OVER || (of_attempt && e->attempt != c->attempt))
        return 0;
    switch (e->kind) {
    case SN_CTL_START:
        if (c->phase == CTL_IDLE)
            launch(c, &p);
        break;
    case SN_CTL_SEEN:
        on_seen(c, &p, e, now);
        break;
    case SN_CTL_EXITED:
        on_exited(c, &p, e, now);
        break;
    case SN_CTL_BROKEN:
        on_broken(c, &p, e, now);
        break;
    case SN_CTL_HOST_DIED:
        on_host_died(c, &p, e, now);
        break;
    case SN_CTL_LAUNCH_REFUSED:
        on_refused(c, &p, e);
        break;
    case SN_CTL_CLEARED:
        on_cleared(c, &p);
        break;
    case SN_CTL_INTERRUPT:
        on_interrupt(c, &p, e, now);
        break;
    case SN_CTL_TIMER:
        on_timer(c, &p, now);
        break;
    }
    return p.count;
}

static sn_time or_default(sn_time value, sn_time fallback)
{
    return value > 0 ? value : fallback;
}

sn_ctl *sn_ctl_create(const sn_ctl_opts *opts)
{
    SN_ASSERT(opts->world > 0 && opts->cards_per_host > 0);
    sn_ctl *c = sn_alloc(sizeof *c + sizeof c->worker[0] * (size_t) opts->world);
    c->opts = *opts;
    c->opts.beat_limit_ns = or_default(opts->beat_limit_ns, SN_SEC);
    c->opts.step_limit_ns = or_default(opts->step_limit_ns, 60 * SN_SEC);
    c->opts.start_limit_ns = or_default(opts->start_limit_ns, 120 * SN_SEC);
    c->opts.suspect_ns = or_default(opts->suspect_ns, 1500 * SN_MS);
    c->opts.drain_ns = or_default(opts->drain_ns, 300 * SN_MS);
    c->opts.stop_ns = or_default(opts->stop_ns, 30 * SN_SEC);
    c->opts.kill_ns = or_default(opts->kill_ns, 2 * SN_SEC);
    c->opts.linger_ns = or_default(opts->linger_ns, 10 * SN_SEC);
    c->attempt = -1;
    c->cause.victim = c->echo.victim = -1;
    return c;
}

void sn_ctl_free(sn_ctl *c)
{
    free(c);
}

int sn_ctl_attempts(const sn_ctl *c)
{
    return c->attempt + 1;
}

bool sn_ctl_interrupted(const sn_ctl *c)
{
    return c->stop > 0;
}
