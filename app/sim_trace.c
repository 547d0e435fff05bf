/* SPDX-License-Identifier: Apache-2.0
 *
 * A step of foresight in Chrome's trace format, which Perfetto reads: a thread a stage with its
 * forwards and backwards in 1F1B order, then gradients and optimizer. Times are the model's. */
#include "sim_say.h"

#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>

typedef struct trace {
    json_t *events;
    int stages;
} trace;

static void put(trace *t, int stage, const char *name, const char *kind, double from, double to)
{
    json_array_append_new(t->events, json_pack("{s:s, s:s, s:s, s:i, s:i, s:f, s:f}", "ph", "X",
                                               "name", name, "cat", kind, "pid", 0, "tid", stage,
                                               "ts", from * 1e6, "dur", (to - from) * 1e6));
}

static void unit(void *ctx, const sn_sim_unit *u)
{
    char name[48];
    snprintf(name, sizeof name, "%s %lld", u->backward ? "backward" : "forward",
             (long long) u->micro + 1);
    put(ctx, u->stage, name, u->backward ? "backward" : "forward", u->from, u->to);
}

void sim_trace(const sim_question *q, const sn_sim_answer *a, sn_str *out)
{
    const sn_sim_step *s = &a->best[0].step;
    trace t = {json_array(), a->best[0].layout.pipeline};
    for (int k = 0; k < t.stages; k++) {
        char name[32];
        snprintf(name, sizeof name, "stage %d", k);
        json_array_append_new(t.events,
                              json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "ph", "M", "name",
                                        "thread_name", "pid", 0, "tid", k, "args", "name", name));
    }
    double end =
        sn_sim_walk(t.stages, s->micros, s->forward, s->backward + s->weights, 0, unit, &t);
    for (int k = 0; k < t.stages; k++) {
        put(&t, k, "gradients, exposed", "data", end, end + s->data);
        put(&t, k, "optimizer", "optimizer", end + s->data, end + s->data + s->optimizer);
    }
    json_t *root = json_pack("{s:s, s:o}", "displayTimeUnit", "ms", "traceEvents", t.events);
    char *text = json_dumps(root, JSON_COMPACT);
    sn_str_add(out, text ? text : "{}");
    free(text);
    json_decref(root);
}
