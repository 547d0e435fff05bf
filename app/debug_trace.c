/* SPDX-License-Identifier: Apache-2.0
 *
 * `supernode debug --trace`: Chrome's trace format, which Perfetto reads.
 *
 * A rank is a process. Slices of one thread must not overlap, operations do: each goes to the first
 * lane (thread) that is free when it starts. */
#include "debug.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define LANES 64

typedef struct trace {
    FILE *out;
    const sn_recordings *all;
    sn_time from;
    int64_t ops;
} trace;

static sn_time begin_of(const sn_recorded *op)
{
    return op->started ? op->started : op->posted;
}

static int by_begin(const void *a, const void *b)
{
    sn_time x = begin_of(*(const sn_recorded *const *) a),
            y = begin_of(*(const sn_recorded *const *) b);
    return x < y ? -1 : x > y;
}

static void put(trace *t, json_t *event)
{
    fputs(t->ops++ ? ",\n" : "", t->out);
    json_dumpf(event, t->out, JSON_COMPACT);
    json_decref(event);
}

static void name_process(trace *t, const sn_recording *rec)
{
    char name[128];
    snprintf(name, sizeof(name), "rank %d (%.64s), %s", rec->rank, rec->host,
             sn_alive_name(rec->alive));
    put(t, json_pack("{s:s, s:s, s:i, s:{s:s}}", "ph", "M", "name", "process_name", "pid",
                     rec->rank, "args", "name", name));
    put(t, json_pack("{s:s, s:s, s:i, s:{s:i}}", "ph", "M", "name", "process_sort_index", "pid",
                     rec->rank, "args", "sort_index", rec->rank));
}

static void slice(trace *t, const sn_recording *rec, const sn_recorded *op, int lane, sn_time end)
{
    sn_str text = {0};
    sn_time begin = begin_of(op);
    sn_recorded_text(rec, op, &text);
    json_t *args =
        json_pack("{s:s, s:I, s:s, s:I, s:f}", "state", sn_debug_state(op), "bytes",
                  (json_int_t) op->bytes, "algorithm", op->algorithm, "step", (json_int_t) op->step,
                  "queued_us", (double) (begin - op->posted) / 1e3);
    put(t, json_pack("{s:s, s:s, s:s, s:f, s:f, s:i, s:i, s:o}", "ph", "X", "name",
                     sn_str_get(&text), "cat", op->group == SN_RECORDER_PAIR ? "pair" : "group",
                     "ts", (double) (begin - t->from) / 1e3, "dur", (double) (end - begin) / 1e3,
                     "pid", rec->rank, "tid", lane, "args", args));
    sn_str_done(&text);
}

static void rank_slices(trace *t, const sn_recording *rec)
{
    sn_time free_at[LANES] = {0};
    const sn_recorded **op = sn_alloc((size_t) SN_MAX(1, rec->ops) * sizeof(*op));
    for (int64_t i = 0; i < rec->ops; i++)
        op[i] = &rec->op[i];
    qsort(op, (size_t) rec->ops, sizeof(*op), by_begin);
    name_process(t, rec);
    for (int64_t i = 0; i < rec->ops; i++) {
        sn_time begin = begin_of(op[i]), end = op[i]->ended ? op[i]->ended : t->all->now;
        int lane = 0;
        while (lane < LANES - 1 && free_at[lane] > begin)
            lane++;
        end = SN_MAX(end, begin);
        free_at[lane] = end;
        slice(t, rec, op[i], lane, end);
    }
    free(op);
}

sn_status sn_debug_trace(const sn_recordings *all, const char *path, int64_t *ret_ops)
{
    trace t = {.all = all, .from = all->now};
    int64_t ops = 0;
    t.out = fopen(path, "we");
    if (t.out == NULL)
        return sn_fail(SN_EIO, "cannot write %s: %s", path, strerror(errno));
    for (int r = 0; r < all->world; r++)
        for (int64_t i = 0; all->rank[r] != NULL && i < all->rank[r]->ops; i++)
            t.from = SN_MIN(t.from, all->rank[r]->op[i].posted);
    fputs("{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n", t.out);
    for (int r = 0; r < all->world; r++) {
        if (all->rank[r] == NULL)
            continue;
        rank_slices(&t, all->rank[r]);
        ops += all->rank[r]->ops;
    }
    fputs("\n]}\n", t.out);
    bool failed = ferror(t.out) != 0;
    failed = fclose(t.out) != 0 || failed;
    if (failed)
        return sn_fail(errno == ENOSPC ? SN_ENOSPC : SN_EIO, "cannot write %s: %s", path,
                       strerror(errno));
    *ret_ops = ops;
    return SN_OK;
}
