/* SPDX-License-Identifier: Apache-2.0
 *
 * run — the life of a call: start, stages in turn, end. See compress_private.h for the order. */
#include "compress/compress_private.h"

#include <sched.h>
#include <string.h>

#include "os/os.h"

#define IDLE_TURNS 64 /* looks at everything before a wait gives the processor away */

static void enlist(sn_compress *z)
{
    sn_compress **end = &z->g->first;
    while (*end)
        end = &(*end)->next;
    *end = z;
    z->next = NULL;
    z->active = true;
}

static void delist(sn_compress *z)
{
    sn_compress **at = &z->g->first;
    while (*at && *at != z)
        at = &(*at)->next;
    if (*at)
        *at = z->next;
    z->active = false;
}

static const char *name_of(const sn_compress *z)
{
    const compress_run *r = &z->run;
    return r->whole ? "all_reduce" : r->half[r->at]->name;
}

/* The call failed, and with it the group: sub-groups whose order has a hole are of no use. */
static sn_status fail(sn_compress *z, sn_status status)
{
    sn_compress_group *g = z->g;
    sn_fail_in(status, "compressed %s of %s", name_of(z), z->opts.name);
    if (g->failed == SN_OK) {
        g->failed = status;
        strncpy(g->why, sn_errmsg(), sizeof(g->why) - 1);
    }
    z->status = status;
    delist(z);
    return status;
}

static sn_status broken(const sn_compress_group *g)
{
    return sn_fail(g->failed, "%s", g->why);
}

void compress_start(sn_compress *z, const compress_half *first, const compress_half *second)
{
    compress_run *r = &z->run;
    r->half[0] = first;
    r->half[1] = second;
    r->halves = second ? 2 : 1;
    r->at = r->stage = r->posted = r->done = 0;
    r->opened = false;
    r->number = z->g->halves + 1;
    z->g->halves += (uint64_t) r->halves;
    z->status = SN_PENDING;
    enlist(z);
}

static uint64_t number_of(const sn_compress *z)
{
    return z->run.number + (uint64_t) z->run.at;
}

/* Post what the stage still has to post; SN_PENDING: coll has no room now. */
static sn_status post(sn_compress *z, int calls)
{
    compress_run *r = &z->run;
    for (; r->posted < calls; r->posted++) {
        sn_coll_call call = {.priority = r->priority};
        r->half[r->at]->call(z, r->stage, r->posted, &call);
        sn_status status =
            sn_coll_post(z->g->stage[r->stage], &call, r->deadline, &z->req[r->posted]);
        if (status == SN_AGAIN)
            return SN_PENDING;
        SN_TRY(status);
    }
    return SN_OK;
}

/* Requests of a stage end in any order. */
static sn_status collect(sn_compress *z, int calls)
{
    compress_run *r = &z->run;
    for (int i = 0; i < calls; i++) {
        if (!z->req[i])
            continue;
        sn_status status = sn_coll_test(z->req[i]);
        if (status == SN_PENDING)
            continue;
        z->req[i] = NULL;
        SN_TRY(status);
        r->done++;
    }
    return r->done == calls ? SN_OK : SN_PENDING;
}

static int calls_of(const sn_compress *z)
{
    const compress_run *r = &z->run;
    return z->g->stage[r->stage] ? r->half[r->at]->calls(z, r->stage) : 0;
}

/* One stage as far as it goes. */
static sn_status advance(sn_compress *z)
{
    compress_run *r = &z->run;
    const compress_half *half = r->half[r->at];
    int calls = calls_of(z);
    if (!r->opened) {
        if (z->g->turn[r->stage] != number_of(z))
            return SN_PENDING;
        half->before(z, r->stage);
        r->opened = true;
    }
    if (r->posted < calls || z->g->turn[r->stage] == number_of(z)) {
        sn_status status = post(z, calls);
        if (status != SN_OK)
            return status;
        z->g->turn[r->stage] = number_of(z) + 1;
    }
    sn_status status = collect(z, calls);
    if (status != SN_OK)
        return status;
    SN_TRY(half->after(z, r->stage));
    r->posted = r->done = 0;
    r->opened = false;
    if (++r->stage == STAGES) {
        r->stage = 0;
        r->at++;
    }
    return SN_OK;
}

/* A call as far as it goes; SN_PENDING, or how it ended. */
static sn_status drive(sn_compress *z)
{
    sn_status status = SN_OK;
    while (status == SN_OK && z->run.at < z->run.halves)
        status = advance(z);
    if (status == SN_PENDING)
        return SN_PENDING;
    if (status < 0)
        return fail(z, status);
    z->status = SN_OK;
    delist(z);
    return SN_OK;
}

static void drive_all(sn_compress_group *g)
{
    for (sn_compress *z = g->first, *next; z && g->failed == SN_OK; z = next) {
        next = z->next;
        drive(z);
    }
}

void sn_compress_progress(sn_compress_group *g)
{
    if (!g->first)
        return;
    sn_coll_progress(g->coll);
    drive_all(g);
}

static sn_status test_direct(sn_compress *z)
{
    sn_status status = sn_coll_test(z->direct);
    if (status != SN_PENDING) {
        z->direct = NULL;
        z->status = status;
    }
    return status;
}

sn_status sn_compress_test(sn_compress *z)
{
    if (z->direct)
        return test_direct(z);
    if (z->active && z->g->failed == SN_OK)
        sn_compress_progress(z->g);
    if (z->g->failed != SN_OK && z->status != SN_OK) {
        delist(z); /* it ends with the group, whichever call failed first */
        return broken(z->g);
    }
    return z->status;
}

/* Sleep on the oldest call's next operation: nothing younger can be what peers wait for. */
static void rest(sn_compress_group *g)
{
    sn_compress *z = g->first;
    for (int i = 0; z && i < z->requests; i++)
        if (z->req[i]) {
            sn_status status = sn_coll_wait(z->req[i]);
            z->req[i] = NULL;
            if (status < 0)
                fail(z, status);
            else
                z->run.done++;
            return;
        }
    sched_yield();
}

sn_status sn_compress_wait(sn_compress *z)
{
    sn_status status;
    if (z->direct) {
        z->status = sn_coll_wait(z->direct);
        z->direct = NULL;
        return z->status;
    }
    for (int turn = 0; (status = sn_compress_test(z)) == SN_PENDING; turn++)
        if (turn >= IDLE_TURNS) {
            rest(z->g);
            turn = 0;
        }
    return status;
}
