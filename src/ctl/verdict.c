/* SPDX-License-Identifier: Apache-2.0
 *
 * verdict — from what was seen to "this rank failed, for this reason". */
#include "ctl/ctl_state.h"

#include <stdio.h>

/* Statuses that speak of somebody else's failure. */
static bool is_echo(sn_status s)
{
    return s == SN_EPEER || s == SN_EEPOCH || s == SN_ETIME || s == SN_ECANCEL;
}

/* Statuses that the same job meets again however often it is started. */
static bool is_final(sn_status s)
{
    return s == SN_EINVAL || s == SN_EFIT || s == SN_ENOSPC || s == SN_ENOTSUP || s == SN_EPERM ||
           s == SN_ENOTFOUND;
}

/* It was asked to leave and says so: no failure. */
static bool is_obedient(const sn_ctl *c, const sn_ctl_view *v)
{
    return c->stop && v->state == SN_CTL_FAILED && v->status == SN_ECANCEL;
}

static bool is_live(const sn_ctl *c, int rank)
{
    return !c->worker[rank].exited && c->worker[rank].state < SN_CTL_DONE;
}

void ctl_observe(sn_ctl *c, const sn_ctl_view *views, sn_time now)
{
    sn_time gap = c->seen_at ? SN_MIN(now - c->seen_at, CTL_GAP_MAX) : 0;
    gap = SN_MAX(gap, 0);
    bool moved = false, starting = false, only_done = true;
    for (int r = 0; r < c->opts.world; r++) {
        ctl_worker *w = &c->worker[r];
        const sn_ctl_view *v = &views[r];
        if (w->exited)
            continue;
        w->silent_ns = v->beat == w->beat && v->beat > 0 ? w->silent_ns + gap : 0;
        moved |= v->step != w->step || v->state != w->state;
        w->beat = v->beat;
        w->step = v->step;
        w->state = v->state;
        starting |= v->state == SN_CTL_STARTING;
        only_done &= v->state == SN_CTL_DONE;
    }
    c->waiting_ns = moved || starting ? 0 : c->waiting_ns + gap;
    c->starting_ns = starting ? c->starting_ns + gap : 0;
    c->lingering_ns = only_done ? c->lingering_ns + gap : 0;
    c->seen_at = now;
    ctl_count_progress(c);
}

void ctl_count_progress(sn_ctl *c)
{
    int64_t least = c->worker[0].step;
    for (int r = 1; r < c->opts.world; r++)
        least = SN_MIN(least, c->worker[r].step);
    c->progressed |= least > c->best_step;
    c->best_step = SN_MAX(c->best_step, least);
}

/* A worker that reports a failure itself: an original one before an echo. */
static bool judge_failed(const sn_ctl *c, const sn_ctl_view *views, ctl_cause *ret)
{
    int found = -1;
    for (int r = 0; r < c->opts.world; r++) {
        if (c->worker[r].exited || views[r].state != SN_CTL_FAILED || is_obedient(c, &views[r]))
            continue;
        if (found < 0 || (is_echo(views[found].status) && !is_echo(views[r].status)))
            found = r;
    }
    if (found < 0)
        return false;
    *ret = (ctl_cause){.known = !is_echo(views[found].status),
                       .final = is_final(views[found].status),
                       .victim = found,
                       .status = views[found].status < 0 ? views[found].status : SN_EFAIL};
    ctl_say_failed(ret->text, c, found, &views[found]);
    return true;
}

static bool judge_stalled(const sn_ctl *c, const sn_ctl_view *views, ctl_cause *ret)
{
    int worst = -1;
    for (int r = 0; r < c->opts.world; r++)
        if (is_live(c, r) && c->worker[r].silent_ns >= c->opts.beat_limit_ns &&
            (worst < 0 || c->worker[r].silent_ns > c->worker[worst].silent_ns))
            worst = r;
    if (worst < 0)
        return false;
    *ret = (ctl_cause){.known = true, .victim = worst, .status = SN_EPEER};
    ctl_say_stalled(ret->text, c, worst, &views[worst]);
    return true;
}

static bool judge_stuck(const sn_ctl *c, const sn_ctl_view *views, sn_time now, ctl_cause *ret)
{
    int oldest = -1;
    bool saving = false;
    for (int r = 0; r < c->opts.world; r++) {
        if (!is_live(c, r))
            continue;
        saving |= views[r].state == SN_CTL_SAVING;
        if (oldest < 0 || (views[r].op_since > 0 && (views[oldest].op_since <= 0 ||
                                                     views[r].op_since < views[oldest].op_since)))
            oldest = r;
    }
    if (oldest < 0 || c->waiting_ns < c->opts.step_limit_ns * (saving ? 5 : 1))
        return false;
    *ret = (ctl_cause){.known = true, .victim = oldest, .status = SN_ETIME};
    ctl_say_stuck(ret->text, c, oldest, &views[oldest], now);
    return true;
}

static bool judge_start(const sn_ctl *c, const sn_ctl_view *views, ctl_cause *ret)
{
    if (c->starting_ns < c->opts.start_limit_ns)
        return false;
    *ret = (ctl_cause){.known = true, .victim = -1, .status = SN_ETIME};
    ctl_say_not_ready(ret->text, c, views);
    return true;
}

bool ctl_judge_seen(const sn_ctl *c, const sn_ctl_view *views, sn_time now, ctl_cause *ret)
{
    ctl_cause failed = {0};
    bool reported = judge_failed(c, views, &failed);
    if (reported && failed.known) {
        *ret = failed;
        return true;
    }
    if (judge_stalled(c, views, ret) || judge_start(c, views, ret) ||
        judge_stuck(c, views, now, ret))
        return true;
    if (reported)
        *ret = failed;
    return reported;
}

bool ctl_judge_exit(const sn_ctl *c, const sn_ctl_event *e, ctl_cause *ret)
{
    const sn_ctl_view *v = &e->views[e->rank];
    bool unknown = !e->signal && e->code < 0, clean = !e->signal && e->code == 0;
    if (v->state == SN_CTL_DONE && (clean || unknown)) /* its own last word counts */
        return false;
    if (c->stop && (clean || (!e->signal && is_obedient(c, v))))
        return false;
    *ret = (ctl_cause){.known = true, .victim = e->rank, .status = SN_EFAIL};
    if (v->state == SN_CTL_FAILED && !e->signal) {
        ret->known = !is_echo(v->status);
        ret->final = is_final(v->status);
        ret->status = v->status < 0 ? v->status : SN_EFAIL;
        ctl_say_failed(ret->text, c, e->rank, v);
    } else {
        ctl_say_exit(ret->text, c, e->rank, e);
    }
    return true;
}

void ctl_judge_broken(const sn_ctl *c, const sn_ctl_event *e, ctl_cause *ret)
{
    *ret = (ctl_cause){.known = true, .victim = e->rank, .status = e->status};
    ctl_say_broken(ret->text, c, e);
}

void ctl_judge_host(const sn_ctl *c, const sn_ctl_event *e, ctl_cause *ret)
{
    *ret =
        (ctl_cause){.known = true, .victim = e->host * c->opts.cards_per_host, .status = SN_EPEER};
    ctl_say_host(ret->text, c, e);
}
