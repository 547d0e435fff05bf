/* SPDX-License-Identifier: Apache-2.0
 *
 * save — a checkpoint that all ranks agree on.
 *
 *   each rank: write my part ─ tell everyone how it went ─ all went well? gather the descriptions ─
 *   rank 0: publish ─ tell everyone how that went
 *
 * So either all ranks have the new checkpoint or all go on with the one before. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "os/os.h"
#include "train/parts.h"

typedef struct verdict { /* what one rank tells the others */
    int32_t status;
    uint32_t bytes; /* of its part's description */
    char text[504];
} verdict;

static void set_verdict(verdict *v, sn_status status, size_t bytes)
{
    memset(v, 0, sizeof(*v));
    v->status = status;
    v->bytes = (uint32_t) bytes;
    if (status < 0)
        snprintf(v->text, sizeof(v->text), "%s", sn_errmsg());
}

/* `bytes` from each rank to all of them, in rank order. */
static sn_status gather(train_worker *w, const void *mine, size_t bytes, void *ret)
{
    if (!w->coll) {
        memcpy(ret, mine, bytes);
        return SN_OK;
    }
    sn_coll_call call = {
        .op = SN_ALL_GATHER, .dtype = SN_U8, .count = (int64_t) bytes, .in = mine, .out = ret};
    return sn_coll_run(w->all, &call, train_deadline(w));
}

static sn_status broadcast(train_worker *w, void *data, size_t bytes)
{
    if (!w->coll)
        return SN_OK;
    sn_coll_call call = {
        .op = SN_BROADCAST, .dtype = SN_U8, .count = (int64_t) bytes, .in = data, .out = data};
    return sn_coll_run(w->all, &call, train_deadline(w));
}

static sn_status first_failure(const verdict *v, int n)
{
    for (int r = 0; r < n; r++)
        if (v[r].status < 0)
            return sn_fail((sn_status) v[r].status, "rank %d: %.480s", r, v[r].text);
    return SN_OK;
}

/* A part that will not be published is of no use to anybody, least of all on a full disk. The file
 * is the one that its description names: others of the directory may be a complete checkpoint's. */
static void discard(train_worker *w, const sn_str *part)
{
    json_error_t error;
    json_t *description = json_loads(sn_str_get(part), 0, &error);
    const char *file = json_string_value(json_object_get(description, "file"));
    sn_str path = {0};
    sn_str_printf(&path, "%s/step-%08lld", w->ckpt_dir, (long long) w->at.step);
    size_t dir = path.len;
    sn_str_printf(&path, "/%s", file ? file : "");
    if (file)
        (void) unlink(path.data);
    path.data[dir] = 0;
    (void) rmdir(path.data); /* the last one out of an empty one succeeds */
    sn_str_done(&path);
    json_decref(description);
}

static sn_status publish(train_worker *w, const verdict *v, const char *texts, size_t stride)
{
    const char **part = sn_alloc((size_t) w->world * sizeof(*part));
    for (int r = 0; r < w->world; r++)
        part[r] = texts + (size_t) r * stride;
    sn_str meta = {0};
    train_meta_write(w->job, sn_tokens_fingerprint(w->tokens), &w->at, w->page, &meta);
    sn_status status = sn_ckpt_publish(w->ckpt_dir, w->at.step, part, w->world, sn_str_get(&meta),
                                       w->job->checkpoint.keep);
    sn_str_done(&meta);
    free(part);
    return status;
}

/* Everyone's description to rank 0, which publishes; everyone learns how it went. */
static sn_status gather_and_publish(train_worker *w, const verdict *v, const sn_str *part)
{
    size_t stride = 0;
    for (int r = 0; r < w->world; r++)
        stride = SN_MAX(stride, (size_t) v[r].bytes + 1);
    char *mine = calloc(1, stride), *texts = malloc(stride * (size_t) w->world);
    sn_status status = SN_OK;
    if (!mine || !texts)
        status = sn_fail(SN_ENOMEM, "no memory for %d descriptions of %zu bytes", w->world, stride);
    if (status >= 0) {
        memcpy(mine, sn_str_get(part), part->len);
        status = gather(w, mine, stride, texts);
    }
    verdict end = {0};
    if (status >= 0 && w->rank == 0)
        set_verdict(&end, publish(w, v, texts, stride), 0);
    free(mine);
    free(texts);
    SN_TRY(status);
    SN_TRY(broadcast(w, &end, sizeof(end)));
    return first_failure(&end, 1);
}

/* What a checkpoint says was seen of the masters is what the cards have after gathering: so a run
 * that goes on and one that resumes here code the same changes. */
static sn_status bring_up_to_date(train_worker *w)
{
    int64_t time_ns[SN_TIME_KINDS] = {0};
    if (w->program->wires == 0 || sn_exec_fresh(w->exec))
        return SN_OK;
    return sn_exec_gather(w->exec, train_deadline(w), time_ns);
}

sn_status train_save(train_worker *w)
{
    sn_str part = {0};
    SN_TRY(bring_up_to_date(w));
    verdict mine, *all = sn_alloc((size_t) w->world * sizeof(*all));
    sn_status status =
        sn_ckpt_write_part(w->ckpt_dir, w->at.step, w->rank, w->save, w->saves, &part);
    set_verdict(&mine, status, part.len);
    status = gather(w, &mine, sizeof(mine), all);
    if (status >= 0) {
        status = first_failure(all, w->world);
        if (status >= 0)
            status = gather_and_publish(w, all, &part);
        else
            discard(w, &part);
    }
    sn_str_done(&part);
    free(all);
    return status < 0 ? sn_fail_in(status, "checkpoint of step %lld", (long long) w->at.step)
                      : SN_OK;
}

/* ---- the way back ---- */

/* Rank 0 looks (a look verifies every file) and names the step to the others; -1: none. */
static sn_status choose(train_worker *w, int64_t *ret_step, sn_ckpt **ret)
{
    struct {
        int64_t step;
        verdict v;
    } found = {.step = -1};
    if (w->rank == 0) {
        sn_str skipped = {0};
        sn_status status = sn_ckpt_find(w->ckpt_dir, &skipped, ret);
        if (skipped.len)
            train_say(w, sn_str_get(&skipped));
        sn_str_done(&skipped);
        if (status >= 0)
            found.step = sn_ckpt_step(*ret);
        set_verdict(&found.v, status == SN_ENOTFOUND ? SN_OK : status, 0);
    }
    SN_TRY(broadcast(w, &found, sizeof(found)));
    SN_TRY(first_failure(&found.v, 1));
    *ret_step = found.step;
    return SN_OK;
}

static sn_status load_from(train_worker *w, const sn_ckpt *c)
{
    sn_str notes = {0};
    sn_status status =
        train_meta_read(sn_ckpt_meta(c), w->job, sn_tokens_fingerprint(w->tokens), &w->at, &notes);
    if (status >= 0 && w->rank == 0)
        train_meta_past(sn_ckpt_meta(c), w->at.step, w->page);
    if (status >= 0)
        status = train_state_load(w->program, c, w->load, w->loads);
    int sources = 0;
    if (status >= 0)
        status = train_wires_load(train_exec_wires(w->exec), c, &sources);
    if (status >= 0 && sources > 0 && w->program->wires == 0)
        sn_str_printf(&notes, "%swhat compression still owed is dropped: this job has none",
                      notes.len ? "; " : "");
    if (status >= 0 && notes.len && w->rank == 0)
        sn_log(SN_LOG_WARN, "resuming with other numbers than before: %s", sn_str_get(&notes));
    sn_str_done(&notes);
    return status;
}

sn_status train_restore(train_worker *w)
{
    sn_ckpt *c = NULL;
    int64_t step = -1;
    sn_status status = choose(w, &step, &c);
    if (status == SN_OK && step < 0 && !w->page->error[0])
        train_say(w, "there is no checkpoint yet: beginning with step 1");
    if (status >= 0 && step >= 0) {
        if (!c)
            status = sn_ckpt_open(w->ckpt_dir, step, &c);
        if (status >= 0)
            status = load_from(w, c);
        w->saved_step = step;
    }
    sn_ckpt_close(c);
    return status < 0 ? sn_fail_in(status, "resuming from %s", w->ckpt_dir) : SN_OK;
}
