/* SPDX-License-Identifier: Apache-2.0
 * `supernode debug --json`. Times are seconds before now. */
#include "debug.h"

#include <jansson.h>

static json_t *ago(const sn_recordings *all, sn_time t)
{
    return t == 0 ? json_null() : json_real((double) (all->now - t) / 1e9);
}

static json_t *op_json(const sn_recordings *all, const sn_recording *rec, const sn_recorded *op)
{
    sn_str text = {0};
    if (op == NULL)
        return json_null();
    sn_recorded_text(rec, op, &text);
    json_t *o = json_object();
    json_object_set_new(o, "operation", json_string(sn_str_get(&text)));
    json_object_set_new(o, "state", json_string(sn_debug_state(op)));
    json_object_set_new(o, "number", json_integer((json_int_t) op->number));
    json_object_set_new(o, op->group == SN_RECORDER_PAIR ? "tag" : "seq",
                        json_integer((json_int_t) op->seq));
    if (op->group >= 0)
        json_object_set_new(o, "group", json_string(rec->group[op->group].name));
    if (op->peer >= 0)
        json_object_set_new(o, op->group == SN_RECORDER_PAIR ? "peer" : "root",
                            json_integer(op->peer));
    json_object_set_new(o, "bytes", json_integer((json_int_t) op->bytes));
    if (op->dtype < SN_DTYPE_COUNT)
        json_object_set_new(o, "dtype", json_string(sn_dtype_name((sn_dtype) op->dtype)));
    if (op->algorithm[0] != '\0')
        json_object_set_new(o, "algorithm", json_string(op->algorithm));
    json_object_set_new(o, "step", json_integer(op->step));
    json_object_set_new(o, "posted_s", ago(all, op->posted));
    json_object_set_new(o, "started_s", ago(all, op->started));
    json_object_set_new(o, "ended_s", ago(all, op->ended));
    if (op->state == SN_RECORD_FAILED)
        json_object_set_new(o, "status", json_string(sn_status_name(op->status)));
    sn_str_done(&text);
    return o;
}

static json_t *rank_json(const sn_recordings *all, int rank, int64_t last)
{
    const sn_recording *rec = all->rank[rank];
    json_t *o = json_object(), *ops = json_array();
    json_object_set_new(o, "rank", json_integer(rank));
    json_object_set_new(o, "state", json_string(rec ? sn_alive_name(rec->alive) : "unknown"));
    if (rec == NULL) {
        json_decref(ops);
        return o;
    }
    json_object_set_new(o, "host", json_string(rec->host));
    json_object_set_new(o, "pid", rec->pid ? json_integer(rec->pid) : json_null());
    json_object_set_new(o, "step", json_integer(rec->step));
    json_object_set_new(o, "doing", json_string(rec->doing));
    json_object_set_new(o, "last_sign_s", ago(all, rec->last));
    if (rec->alive == SN_ALIVE_LEFT)
        json_object_set_new(o, "left_with", json_string(rec->left_why));
    json_object_set_new(o, "recorded", json_integer(rec->total));
    json_object_set_new(o, "waits_in", op_json(all, rec, rec->wait));
    for (int64_t i = SN_MAX(0, rec->ops - last); i < rec->ops; i++)
        json_array_append_new(ops, op_json(all, rec, &rec->op[i]));
    json_object_set_new(o, "operations", ops);
    return o;
}

static json_t *ranks_json(const int *rank, int n)
{
    json_t *a = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(a, json_integer(rank[i]));
    return a;
}

static json_t *waits_json(const sn_recordings *all, const sn_blame *blame)
{
    json_t *a = json_array();
    for (int i = 0; i < blame->waits; i++) {
        const sn_blame_wait *w = &blame->wait[i];
        json_t *o = json_object();
        json_object_set_new(o, "rank", json_integer(w->rank));
        json_object_set_new(o, "in", op_json(all, all->rank[w->rank], w->op));
        json_object_set_new(o, "for", ranks_json(w->target, w->targets));
        json_object_set_new(o, "since_s", ago(all, w->since));
        json_array_append_new(a, o);
    }
    return a;
}

void sn_debug_json(const char *dir, const sn_recordings *all, const sn_blame *blame, int64_t last)
{
    json_t *o = json_object(), *ranks = json_array();
    json_object_set_new(o, "run", json_string(dir));
    json_object_set_new(o, "world", json_integer(all->world));
    json_object_set_new(o, "live", json_boolean(all->live));
    json_object_set_new(o, "waits", waits_json(all, blame));
    json_object_set_new(o, "causes", ranks_json(blame->cause, blame->causes));
    json_object_set_new(o, "circle", ranks_json(blame->circle, blame->circles));
    json_object_set_new(o, "mismatch", json_string(sn_str_get(&blame->mismatch)));
    json_object_set_new(o, "verdict", json_string(sn_str_get(&blame->verdict)));
    json_object_set_new(o, "notes", json_string(sn_str_get(&all->notes)));
    for (int r = 0; r < all->world; r++)
        json_array_append_new(ranks, rank_json(all, r, last));
    json_object_set_new(o, "ranks", ranks);
    json_dumpf(o, stdout, JSON_INDENT(2));
    fputc('\n', stdout);
    json_decref(o);
}
