/* SPDX-License-Identifier: Apache-2.0
 *
 * words — the sentences of the supervisor: who (rank, host, pid), what happened, doing what. */
#include "ctl/ctl_state.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A sentence that is built piece by piece and silently ends at the buffer's end. */
typedef struct line {
    char *out;
    size_t used;
} line;

static void say(line *l, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(line *l, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(l->out + l->used, SN_CTL_TEXT - l->used, format, args);
    va_end(args);
    if (n > 0)
        l->used = SN_MIN(l->used + (size_t) n, (size_t) SN_CTL_TEXT - 1);
}

static void say_who(line *l, const sn_ctl *c, int rank, int pid)
{
    say(l, "rank %d on h%d", rank, rank / c->opts.cards_per_host);
    if (pid > 0)
        say(l, " (pid %d)", pid);
}

static void say_doing(line *l, const sn_ctl_view *v)
{
    if (v && v->op && *v->op)
        say(l, " during %s", v->op);
    else if (v && v->state == SN_CTL_STARTING)
        say(l, " while it was starting");
    else if (v && v->state == SN_CTL_SAVING)
        say(l, " while it was saving a checkpoint, after step %lld", (long long) v->step);
    else if (v)
        say(l, " after step %lld", (long long) v->step);
}

static void say_end(line *l, int code, int signal)
{
    const char *name = signal ? sigabbrev_np(signal) : NULL;
    if (name)
        say(l, "was killed by SIG%s", name);
    else if (signal)
        say(l, "was killed by signal %d", signal);
    else if (code < 0)
        say(l, "died in an unknown way");
    else
        say(l, "exited with code %d", code);
}

void ctl_say_exit(char *out, const sn_ctl *c, int rank, const sn_ctl_event *e)
{
    const sn_ctl_view *v = e->views ? &e->views[rank] : NULL;
    line l = {out, 0};
    say_who(&l, c, rank, v ? v->pid : 0);
    say(&l, " ");
    say_end(&l, e->code, e->signal);
    if (!e->signal && e->code == 0)
        say(&l, " before its work was done,");
    say_doing(&l, v);
}

void ctl_say_failed(char *out, const sn_ctl *c, int rank, const sn_ctl_view *v)
{
    line l = {out, 0};
    say_who(&l, c, rank, v->pid);
    say(&l, " failed");
    say_doing(&l, v->op && *v->op ? v : NULL);
    say(&l, ": %s", v->error && *v->error ? v->error : sn_status_meaning(v->status));
}

void ctl_say_stalled(char *out, const sn_ctl *c, int rank, const sn_ctl_view *v)
{
    line l = {out, 0};
    say_who(&l, c, rank, v->pid);
    say(&l, " stopped responding (no heartbeat for %.1f s)",
        (double) c->worker[rank].silent_ns / 1e9);
    say_doing(&l, v);
}

void ctl_say_stuck(char *out, const sn_ctl *c, int rank, const sn_ctl_view *v, sn_time now)
{
    line l = {out, 0};
    say(&l, "no step was completed for %.1f s; longest in one place is ",
        (double) c->waiting_ns / 1e9);
    say_who(&l, c, rank, v->pid);
    say_doing(&l, v);
    if (v->op_since > 0 && now > v->op_since)
        say(&l, ", for %.1f s", (double) (now - v->op_since) / 1e9);
}

void ctl_say_not_ready(char *out, const sn_ctl *c, const sn_ctl_view *views)
{
    line l = {out, 0};
    int first = -1, missing = 0;
    for (int r = 0; r < c->opts.world; r++)
        if (!c->worker[r].exited && views[r].state == SN_CTL_STARTING) {
            first = first < 0 ? r : first;
            missing++;
        }
    say(&l, "%d of %d workers not ready after %.1f s: ", missing, c->opts.world,
        (double) c->starting_ns / 1e9);
    say_who(&l, c, first, views[first].pid);
    if (views[first].op && *views[first].op)
        say(&l, " in %s", views[first].op);
    for (int r = first + 1, said = 1; r < c->opts.world && said < 8; r++)
        if (!c->worker[r].exited && views[r].state == SN_CTL_STARTING) {
            say(&l, said == 1 ? ", also rank %d" : ", %d", r);
            said++;
        }
}

void ctl_say_broken(char *out, const sn_ctl *c, const sn_ctl_event *e)
{
    line l = {out, 0};
    say_who(&l, c, e->rank, e->views ? e->views[e->rank].pid : 0);
    say(&l, " broke a protocol: %s", e->text ? e->text : sn_status_meaning(e->status));
}

void ctl_say_host(char *out, const sn_ctl *c, const sn_ctl_event *e)
{
    int first = e->host * c->opts.cards_per_host;
    int last = SN_MIN(first + c->opts.cards_per_host, c->opts.world) - 1;
    line l = {out, 0};
    say(&l, "host h%d was lost with ranks %d to %d: its agent", e->host, first, last);
    if (e->pid > 0)
        say(&l, " (pid %d)", e->pid);
    say(&l, " ");
    say_end(&l, e->code, e->signal);
    if (e->views) {
        say(&l, "; rank %d was lost", first);
        say_doing(&l, &e->views[first]);
    }
}

void ctl_say_next(char *out, const sn_ctl *c, const ctl_cause *cause, bool again)
{
    /* The cause may fill the buffer; what comes next must still be readable. */
    line l = {out, strlen(out)};
    l.used = SN_MIN(l.used, (size_t) SN_CTL_TEXT - 96);
    if (c->stop)
        say(&l, "; the job was being interrupted and is not started again");
    else if (again)
        say(&l, "; restarting, retry %d of %d", c->failures, c->opts.retries);
    else if (cause->final)
        say(&l, "; not retried, the same would happen again");
    else if (c->opts.retries <= 0)
        say(&l, "; not retried, retries is 0");
    else if (c->attempt + 1 >= SN_CTL_ATTEMPTS_MAX)
        say(&l, "; giving up after %d attempts", c->attempt + 1);
    else
        say(&l, "; giving up, %d %s made no progress", c->opts.retries,
            c->opts.retries == 1 ? "retry" : "retries");
}
