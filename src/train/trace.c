/* SPDX-License-Identifier: Apache-2.0
 *
 * trace — a few steps of one card in full: each kernel, each wait, and each transfer from its post
 * to its end, as events of Chrome's trace format, which Perfetto reads. The card is a process; what
 * its core does is one thread, what is under way beside it lies in lanes that do not overlap.
 *
 * Events are written into memory that was there before the first step; the file comes after. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "os/os.h"
#include "train/parts.h"

enum { LANES = 64, STEPS = 3 };

typedef struct event {
    int instr; /* or train_trace_wait of one */
    int step;
    sn_time begin, end;
} event;

struct train_trace {
    const sn_plan *plan;
    const sn_program *program;
    int64_t first, steps; /* first < 0: none yet */
    int step;
    bool on;
    int64_t events, cap;
    event *event;
};

static char *path_of(const char *run_dir, int rank)
{
    sn_str path = {0};
    sn_str_printf(&path, "%s/trace-%d.jsonl", run_dir, rank);
    return path.data;
}

train_trace *train_trace_open(const sn_plan *plan, const sn_program *program, int64_t steps,
                              const char *run_dir)
{
    train_trace *t = sn_alloc(sizeof(*t));
    char *old = path_of(run_dir, program->rank);
    unlink(old); /* of an attempt before */
    free(old);
    int64_t each = program->instrs + program->tickets; /* a wait is an event when it waits */
    *t = (train_trace){.plan = plan,
                       .program = program,
                       .first = -1,
                       .steps = steps > 0 ? steps : STEPS,
                       .cap = each * (steps > 0 ? steps : STEPS)};
    t->event = sn_alloc((size_t) SN_MAX(t->cap, 1) * sizeof(*t->event));
    memset(t->event, 0, (size_t) SN_MAX(t->cap, 1) * sizeof(*t->event)); /* touched here */
    return t;
}

void train_trace_close(train_trace *t)
{
    if (!t)
        return;
    free(t->event);
    free(t);
}

void train_trace_step(train_trace *t, int64_t step)
{
    if (t->first < 0)
        t->first = step;
    t->step = (int) step;
    t->on = step < t->first + t->steps;
}

bool train_trace_over(const train_trace *t, int64_t step)
{
    return t->first >= 0 && step >= t->first + t->steps;
}

void train_trace_add(train_trace *t, int instr, sn_time begin, sn_time end)
{
    if (t->on && t->events < t->cap)
        t->event[t->events++] = (event){instr, t->step, begin, end};
}

/* ---- the file ---- */

/* Perfetto's microseconds are doubles: counted from here they resolve nanoseconds for years. */
#define SINCE_NS (INT64_C(1767225600) * SN_SEC) /* 1 January 2026 */

typedef struct writer {
    const train_trace *t;
    FILE *out;
    int64_t wall; /* what to add to this machine's clock, so that those of others fit */
    bool failed;
} writer;

static void put(writer *w, json_t *o)
{
    char *text = o ? json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    if (!text || fprintf(w->out, "%s\n", text) < 0)
        w->failed = true;
    free(text);
    json_decref(o);
}

static void name_lane(writer *w, int lane, const char *name)
{
    int rank = w->t->program->rank;
    put(w, json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "ph", "M", "name", "thread_name", "pid", rank,
                     "tid", lane, "args", "name", name));
    put(w, json_pack("{s:s, s:s, s:i, s:i, s:{s:i}}", "ph", "M", "name", "thread_sort_index", "pid",
                     rank, "tid", lane, "args", "sort_index", lane));
}

static void name_process(writer *w, const char *host)
{
    int rank = w->t->program->rank, tensor, stage, data;
    char name[160];
    sn_plan_coords(w->t->plan, rank, &tensor, &stage, &data);
    snprintf(name, sizeof(name), "rank %d (%.64s): stage %d, tensor %d, data %d", rank, host, stage,
             tensor, data);
    put(w, json_pack("{s:s, s:s, s:i, s:{s:s}}", "ph", "M", "name", "process_name", "pid", rank,
                     "args", "name", name));
    put(w, json_pack("{s:s, s:s, s:i, s:{s:i}}", "ph", "M", "name", "process_sort_index", "pid",
                     rank, "args", "sort_index", rank));
}

static const char *slot_name(const sn_program *p, int slot)
{
    return slot >= 0 && p->slot[slot].name ? p->slot[slot].name : "?";
}

static void describe(const train_trace *t, const sn_instr *n, sn_str *out)
{
    if (n->kind == SN_INSTR_KERNEL)
        sn_str_printf(out, "%s", sn_op_name(n->op));
    else if (n->kind == SN_INSTR_COLL)
        sn_str_printf(out, "%s of %s in %s", sn_coll_op_name(n->coll),
                      slot_name(t->program, n->out[0]), t->plan->group[n->group].name);
    else if (n->kind == SN_INSTR_SEND)
        sn_str_printf(out, "send %s to rank %d", slot_name(t->program, n->in[0]), n->peer);
    else
        sn_str_printf(out, "receive %s from rank %d", slot_name(t->program, n->out[0]), n->peer);
}

static void put_event(writer *w, const event *v, int lane)
{
    static const char *const phase[] = {"forward", "backward", "reduce", "optimizer", "gather"};
    bool wait = v->instr < 0;
    const sn_instr *n = &w->t->program->instr[wait ? ~v->instr : v->instr];
    const char *node = n->node >= 0 ? w->t->plan->graph->node[n->node].name : NULL;
    sn_str name = {0};
    sn_str_add(&name, wait ? "wait: " : "");
    describe(w->t, n, &name);
    json_t *args =
        json_pack("{s:i, s:s, s:s?}", "step", v->step + 1, "phase", phase[n->phase], "node", node);
    if (n->micro >= 0)
        json_object_set_new(args, "micro-batch", json_integer(n->micro));
    if (n->kind != SN_INSTR_KERNEL)
        json_object_set_new(
            args, "bytes",
            json_integer((json_int_t) n->count * (json_int_t) sn_dtype_bytes(n->dtype)));
    put(w, json_pack("{s:s, s:s, s:s, s:f, s:f, s:i, s:i, s:o}", "ph", "X", "name",
                     sn_str_get(&name), "cat",
                     wait                         ? "exposed"
                     : n->kind == SN_INSTR_KERNEL ? phase[n->phase]
                                                  : "transfer",
                     "ts", (double) (v->begin + w->wall) / 1e3, "dur",
                     (double) (v->end - v->begin) / 1e3, "pid", w->t->program->rank, "tid", lane,
                     "args", args));
    sn_str_done(&name);
}

static int by_begin(const void *a, const void *b)
{
    const event *x = *(const event *const *) a, *y = *(const event *const *) b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static void put_all(writer *w)
{
    const train_trace *t = w->t;
    const event **v = sn_alloc((size_t) SN_MAX(t->events, 1) * sizeof(*v));
    sn_time until[LANES] = {0};
    int lanes = 0;
    for (int64_t i = 0; i < t->events; i++)
        v[i] = &t->event[i];
    qsort(v, (size_t) t->events, sizeof(*v), by_begin);
    for (int64_t i = 0; i < t->events; i++) {
        int lane = 0;
        if (v[i]->instr >= 0 && t->program->instr[v[i]->instr].kind != SN_INSTR_KERNEL) {
            while (lane < LANES - 1 && until[lane] > v[i]->begin)
                lane++;
            until[lane++] = v[i]->end;
            lanes = SN_MAX(lanes, lane);
        }
        put_event(w, v[i], lane);
    }
    name_lane(w, 0, "core");
    for (int lane = 1; lane <= lanes; lane++)
        name_lane(w, lane, "under way");
    free(v);
}

sn_status train_trace_write(const train_trace *t, const char *run_dir, const char *host)
{
    if (t->events == 0)
        return SN_OK;
    char *path = path_of(run_dir, t->program->rank);
    writer w = {.t = t, .out = fopen(path, "we"), .wall = sn_now_wall() - SINCE_NS - sn_now()};
    sn_status status = SN_OK;
    if (w.out) {
        name_process(&w, host);
        put_all(&w);
        w.failed |= fclose(w.out) != 0;
    }
    if (!w.out || w.failed)
        status = sn_fail(SN_EIO, "cannot write the trace %s: %s", path, strerror(errno));
    free(path);
    return status;
}
