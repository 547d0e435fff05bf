/* SPDX-License-Identifier: Apache-2.0
 *
 * Who waits for whom.
 *
 *   a rank that is blocked ──▶ the members that have not posted that operation, else the one that
 *                              the rank itself names
 *
 * Following these arrows ends at a rank that waits for nobody (a cause: stopped, dead, computing,
 * in another operation) or in a circle. */
#include "mon/mon.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LONG SN_SEC /* a wait worth a verdict; a job that moves has shorter ones all the time */

/* ---- arrows ---- */

static const sn_recorded_group *group_of(const sn_recording *rec, uint64_t key)
{
    for (int i = 0; i < rec->groups; i++)
        if (rec->group[i].key == key)
            return &rec->group[i];
    return NULL;
}

/* It died while others lived on: whatever it waited for then, now they lack it. Not so when all
 * were killed together. */
static bool died_alone(const sn_recordings *all, const sn_recording *rec)
{
    bool others = all->live;
    for (int r = 0; r < all->world && !others; r++)
        others = all->rank[r] != NULL && all->rank[r]->alive == SN_ALIVE_LEFT;
    return rec->alive == SN_ALIVE_DEAD && others;
}

static bool is_blocked(const sn_recordings *all, const sn_recording *rec)
{
    if (rec == NULL || rec->wait == NULL)
        return false;
    return rec->alive != SN_ALIVE_LEFT && rec->alive != SN_ALIVE_STOPPED && !died_alone(all, rec);
}

static void add_target(sn_blame_wait *w, int rank)
{
    for (int i = 0; i < w->targets; i++)
        if (w->target[i] == rank)
            return;
    if (w->targets < SN_RECORDER_MEMBERS)
        w->target[w->targets++] = rank;
}

/* Members that are not there yet. */
static void find_missing(const sn_recordings *all, const sn_recorded_group *g, sn_blame_wait *w)
{
    for (int i = 0; i < g->listed; i++) {
        const sn_recording *rec = all->rank[g->member[i]];
        const sn_recorded_group *theirs = rec ? group_of(rec, g->key) : NULL;
        if (theirs != NULL && theirs->posted < w->op->seq && g->member[i] != w->rank)
            add_target(w, g->member[i]);
    }
}

static void find_targets(const sn_recordings *all, const sn_recording *rec, sn_blame_wait *w)
{
    if (w->op->group >= 0)
        find_missing(all, &rec->group[w->op->group], w);
    else if (w->op->group == SN_RECORDER_PAIR && w->op->peer >= 0 && w->op->peer < all->world)
        add_target(w, w->op->peer);
    if (w->targets == 0 && rec->wait_for >= 0 && rec->wait_for < all->world &&
        rec->wait_for != w->rank)
        add_target(w, rec->wait_for);
}

static sn_blame_wait *wait_of(sn_blame *b, int rank)
{
    for (int i = 0; i < b->waits; i++)
        if (b->wait[i].rank == rank)
            return &b->wait[i];
    return NULL;
}

static void find_waits(const sn_recordings *all, sn_arena *arena, sn_blame *b)
{
    b->wait = SN_NEW_N(arena, sn_blame_wait, all->world);
    for (int r = 0; r < all->world; r++) {
        const sn_recording *rec = all->rank[r];
        if (!is_blocked(all, rec))
            continue;
        sn_blame_wait *w = &b->wait[b->waits++];
        *w = (sn_blame_wait){.rank = r, .op = rec->wait, .since = rec->wait_since};
        find_targets(all, rec, w);
    }
}

/* ---- causes ---- */

static void add_cause(sn_blame *b, int rank)
{
    for (int i = 0; i < b->causes; i++)
        if (b->cause[i] == rank)
            return;
    b->cause[b->causes++] = rank;
}

/* Ranks that are waited for and wait for nobody; among living ranks also the dead and the stopped.
 */
static void find_causes(const sn_recordings *all, sn_arena *arena, sn_blame *b)
{
    b->cause = SN_NEW_N(arena, int, all->world);
    for (int r = 0; r < all->world; r++) {
        const sn_recording *rec = all->rank[r];
        if (rec != NULL && (rec->alive == SN_ALIVE_STOPPED || died_alone(all, rec)))
            add_cause(b, r);
    }
    for (int i = 0; i < b->waits; i++)
        for (int k = 0; k < b->wait[i].targets; k++)
            if (wait_of(b, b->wait[i].target[k]) == NULL)
                add_cause(b, b->wait[i].target[k]);
}

/* Follow the first arrow of each; who comes back to where it was is in a circle. */
static void find_circle(const sn_recordings *all, sn_arena *arena, sn_blame *b)
{
    int *turn = SN_NEW_N(arena, int, all->world); /* walk in which the rank was met, from 1 */
    b->circle = SN_NEW_N(arena, int, all->world);
    for (int i = 0; i < b->waits && b->circles == 0; i++) {
        int at = b->wait[i].rank;
        const sn_blame_wait *w = &b->wait[i];
        while (turn[at] == 0 && w != NULL && w->targets > 0) {
            turn[at] = i + 1;
            at = w->target[0];
            w = wait_of(b, at);
        }
        if (w == NULL || w->targets == 0 || turn[at] != i + 1)
            continue;
        for (int from = at; b->circles == 0 || at != from; at = wait_of(b, at)->target[0])
            b->circle[b->circles++] = at;
    }
}

/* ---- calls that differ ---- */

typedef struct call {
    uint64_t key;
    const sn_recorded *op;
    const sn_recording *rec;
} call;

static int by_call(const void *a, const void *b)
{
    const call *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    if (x->op->seq != y->op->seq)
        return x->op->seq < y->op->seq ? -1 : 1;
    return x->rec->rank - y->rec->rank;
}

static bool same_call(const sn_recorded *a, const sn_recorded *b)
{
    return a->count == b->count && a->dtype == b->dtype && a->peer == b->peer &&
           strcmp(a->op, b->op) == 0 && strcmp(a->red, b->red) == 0;
}

static void say_call(const call *c, sn_str *out)
{
    const char *dtype =
        c->op->dtype < SN_DTYPE_COUNT ? sn_dtype_name((sn_dtype) c->op->dtype) : "?";
    sn_str_printf(out, "rank %d (%s) calls %s%s%s of %" PRIu64 " %s", c->rec->rank, c->rec->host,
                  c->op->op, c->op->red[0] ? " " : "", c->op->red, c->op->count, dtype);
    if (c->op->peer >= 0)
        sn_str_printf(out, " from member %d", c->op->peer);
}

static void find_mismatches(const sn_recordings *all, sn_blame *b)
{
    size_t n = 0, most = 1;
    for (int r = 0; r < all->world; r++)
        most += all->rank[r] ? (size_t) all->rank[r]->ops : 0;
    call *c = sn_alloc(most * sizeof(*c));
    for (int r = 0; r < all->world; r++) {
        const sn_recording *rec = all->rank[r];
        for (int64_t i = 0; rec != NULL && i < rec->ops; i++)
            if (rec->op[i].group >= 0)
                c[n++] = (call){rec->group[rec->op[i].group].key, &rec->op[i], rec};
    }
    qsort(c, n, sizeof(*c), by_call);
    uint64_t said = 0; /* one line a group: what follows is its consequence */
    for (size_t i = 1; i < n; i++) {
        const call *x = &c[i - 1], *y = &c[i];
        if (x->key != y->key || x->op->seq != y->op->seq || y->key == said || x->rec == y->rec ||
            same_call(x->op, y->op))
            continue;
        said = y->key;
        sn_str_printf(&b->mismatch, "call #%" PRIu64 " of group %s: ", y->op->seq,
                      y->rec->group[y->op->group].name);
        say_call(x, &b->mismatch);
        sn_str_add(&b->mismatch, ", but ");
        say_call(y, &b->mismatch);
        sn_str_add(&b->mismatch, "\n");
    }
    free(c);
}

/* ---- sentences ---- */

static void say_rank(const sn_recordings *all, int rank, sn_str *out)
{
    const sn_recording *rec = all->rank[rank];
    sn_str_printf(out, "rank %d", rank);
    if (rec != NULL && rec->host[0] != '\0')
        sn_str_printf(out, " (%s)", rec->host);
}

/* "rank 0 (h0), rank 1 (h0) and rank 3 (h1)"; after 8 their number. */
static void say_ranks(const sn_recordings *all, const int *rank, int n, sn_str *out)
{
    int shown = n > 9 ? 8 : n;
    for (int i = 0; i < shown; i++) {
        sn_str_add(out, i == 0 ? "" : i == n - 1 ? " and " : ", ");
        say_rank(all, rank[i], out);
    }
    if (shown < n)
        sn_str_printf(out, " and %d more", n - shown);
}

static bool same_wait(const sn_recordings *all, const sn_blame_wait *a, const sn_blame_wait *b)
{
    const sn_recording *x = all->rank[a->rank], *y = all->rank[b->rank];
    if (a->op->group < 0 || b->op->group < 0 ||
        x->group[a->op->group].key != y->group[b->op->group].key || a->op->seq != b->op->seq)
        return false;
    return a->targets == b->targets &&
           memcmp(a->target, b->target, (size_t) a->targets * sizeof(int)) == 0;
}

/* One sentence for all that wait in one operation for the same ranks. */
static void say_wait(const sn_recordings *all, const sn_blame *b, int i, int *rank, sn_str *out)
{
    char time[32];
    const sn_blame_wait *w = &b->wait[i];
    sn_time since = w->since;
    int n = 0;
    for (int k = 0; k < b->waits; k++) {
        bool same = k == i || same_wait(all, w, &b->wait[k]);
        if (same && k < i)
            return; /* said with that one */
        if (same)
            rank[n++] = b->wait[k].rank;
        if (same)
            since = SN_MIN(since, b->wait[k].since);
    }
    say_ranks(all, rank, n, out);
    sn_str_printf(out, " %s in ", n > 1 ? "wait" : "waits");
    sn_recorded_text(all->rank[w->rank], w->op, out);
    if (w->targets > 0) {
        sn_str_add(out, " for ");
        say_ranks(all, w->target, w->targets, out);
    }
    sn_str_printf(out, ", since %s\n", sn_fmt_ns(time, (double) (all->now - since)));
}

static void say_last(const sn_recordings *all, const sn_recording *rec, sn_str *out)
{
    char time[32];
    const sn_recorded *done = NULL, *open = NULL;
    for (int64_t i = 0; i < rec->ops; i++) {
        const sn_recorded *op = &rec->op[i];
        if (op->state == SN_RECORD_DONE && (done == NULL || op->ended >= done->ended))
            done = op;
        if (op->state < SN_RECORD_DONE)
            open = op;
    }
    if (done != NULL) {
        sn_str_add(out, "; it last finished ");
        sn_recorded_text(rec, done, out);
        sn_str_printf(out, " %s ago", sn_fmt_ns(time, (double) (all->now - done->ended)));
    } else {
        sn_str_add(out, "; it has finished no operation");
    }
    if (rec->wait != NULL || open != NULL) {
        sn_str_add(out, rec->wait != NULL ? " and waits in " : " and has under way ");
        sn_recorded_text(rec, rec->wait != NULL ? rec->wait : open, out);
    } else {
        sn_str_add(out, " and is in no operation");
    }
}

static void say_cause(const sn_recordings *all, int rank, sn_str *out)
{
    static const char *const how[] = {"may be alive or not (no locks on this file system)", "runs",
                                      "is stopped by a signal or a debugger", "has left",
                                      "ended without a word (killed?)"};
    const sn_recording *rec = all->rank[rank];
    say_rank(all, rank, out);
    if (rec == NULL) {
        sn_str_add(out, " has no recording here: not started yet, or written elsewhere\n");
        return;
    }
    sn_str_printf(out, " %s", how[rec->alive]);
    say_last(all, rec, out);
    if (rec->step >= 0)
        sn_str_printf(out, ", in step %" PRId64, rec->step);
    if (rec->doing[0] != '\0')
        sn_str_printf(out, ", %s", rec->doing);
    sn_str_add(out, "\n");
}

/* What those that left in failure said, each text once: the first is nearest to the cause. */
static void say_failures(const sn_recordings *all, sn_str *out)
{
    for (int r = 0; r < all->world; r++) {
        const sn_recording *rec = all->rank[r];
        if (rec == NULL || rec->alive != SN_ALIVE_LEFT || rec->left_status >= 0)
            continue;
        say_rank(all, r, out);
        sn_str_printf(out, " left with: %s\n", rec->left_why);
    }
}

/* Not those that were named already. */
static void say_absent(const sn_recordings *all, const sn_blame *b, int *scratch, sn_str *out)
{
    int n = 0;
    for (int r = 0; r < all->world; r++) {
        bool named = all->rank[r] != NULL;
        for (int i = 0; i < b->causes && !named; i++)
            named = b->cause[i] == r;
        if (!named)
            scratch[n++] = r;
    }
    if (n == 0)
        return;
    say_ranks(all, scratch, n, out);
    sn_str_printf(out, " %s no recording here: not started yet, or written elsewhere\n",
                  n > 1 ? "have" : "has");
}

static void say_all_well(const sn_recordings *all, sn_str *out)
{
    int left = 0, dead = 0;
    for (int r = 0; r < all->world; r++) {
        left += all->rank[r] != NULL && all->rank[r]->alive == SN_ALIVE_LEFT;
        dead += all->rank[r] != NULL && all->rank[r]->alive == SN_ALIVE_DEAD;
    }
    if (all->live)
        sn_str_add(out, "no rank waits for another\n");
    else if (left == all->world)
        sn_str_add(out, "every rank has left in order\n");
    else if (dead > 0)
        sn_str_printf(out, "%d of %d ranks ended without a word (killed?), none was waiting\n",
                      dead, all->world);
}

static void say(const sn_recordings *all, sn_arena *arena, sn_blame *b)
{
    sn_time longest = 0;
    int *scratch = SN_NEW_N(arena, int, all->world);
    sn_str *out = &b->verdict;
    for (int i = 0; i < b->waits; i++)
        longest = SN_MAX(longest, all->now - b->wait[i].since);
    if (all->live && b->waits > 0 && longest < LONG && b->mismatch.len == 0)
        sn_str_add(out, "nothing has waited for a second; at this moment:\n");
    sn_str_add(out, sn_str_get(&b->mismatch));
    for (int i = 0; i < b->waits; i++)
        say_wait(all, b, i, scratch, out);
    if (b->circles > 0) {
        say_ranks(all, b->circle, b->circles, out);
        sn_str_add(out, " wait for each other in a circle\n");
    }
    for (int i = 0; i < b->causes; i++)
        say_cause(all, b->cause[i], out);
    say_failures(all, out);
    if (out->len == 0)
        say_all_well(all, out);
    say_absent(all, b, scratch, out);
}

void sn_blame_make(const sn_recordings *all, sn_arena *arena, sn_blame *ret)
{
    *ret = (sn_blame){0};
    find_waits(all, arena, ret);
    find_causes(all, arena, ret);
    find_circle(all, arena, ret);
    find_mismatches(all, ret);
    say(all, arena, ret);
}

void sn_blame_done(sn_blame *b)
{
    sn_str_done(&b->verdict);
    sn_str_done(&b->mismatch);
}
