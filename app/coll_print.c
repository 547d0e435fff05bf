/* SPDX-License-Identifier: Apache-2.0
 * What coll explain says. */
#include "coll_question.h"

#include <stdio.h>

#include <jansson.h>

static const char *why_not(const sn_question *q, const sn_row_times *c, char out[160])
{
    bool does = c->row->ops >> q->call.op & 1;
    snprintf(out, 160, does ? "needs %s" : "has no %s",
             does ? c->row->needs : sn_coll_op_name(q->call.op));
    return out;
}

/* The choice beside the fastest other one. */
static void reason(const sn_question *q, const sn_answer *a, sn_str *out)
{
    const sn_row_times *chosen = NULL, *other = NULL;
    for (int i = 0; i < a->candidates; i++) {
        const sn_row_times *c = &a->candidate[i];
        if (c->row == a->choice)
            chosen = c;
        else if (c->fits && !c->row->by_name && other == NULL)
            other = c;
    }
    int waiting = chosen->ns > 0 ? (int) (chosen->waiting_ns / chosen->ns * 100 + 0.5) : 100;
    sn_str_printf(out, "%s: ", chosen->row->name);
    if (other == NULL)
        sn_str_add(out, "nothing else fits");
    else if (other->ns < chosen->ns)
        sn_str_printf(out, "%s is predicted faster, but a small all_reduce stays in the notes",
                      other->row->name);
    else
        sn_str_printf(out, "least predicted time; %s would take %.2f times as long",
                      other->row->name, other->ns / chosen->ns);
    sn_str_printf(out, "; %d %% of its time is waiting, %d %% bytes", waiting, 100 - waiting);
}

/* ---- for people ---- */

static void text_rows(const sn_question *q, const sn_answer *a, sn_str *out)
{
    char x[32], y[32], z[32], why[160];
    sn_str_printf(out, "  %-20s %12s %12s %12s%s\n", "algorithm", "predicted", "waiting", "bytes",
                  a->measured ? "     measured" : "");
    for (int i = 0; i < a->candidates; i++) {
        const sn_row_times *c = &a->candidate[i];
        if (!c->fits) {
            sn_str_printf(out, "  %-20s %s\n", c->row->name, why_not(q, c, why));
            continue;
        }
        sn_str_printf(out, "%c %-20s %12s %12s %12s", c->row == a->choice ? '*' : ' ', c->row->name,
                      sn_fmt_ns(x, c->ns), sn_fmt_ns(y, c->waiting_ns),
                      sn_fmt_ns(z, c->ns - c->waiting_ns));
        if (c->measured_ns > 0)
            sn_str_printf(out, " %12s", sn_fmt_ns(x, c->measured_ns));
        sn_str_add(out, c->row->by_name ? "  only by name\n" : "\n");
    }
}

static void text_measured(const sn_answer *a, sn_str *out)
{
    if (a->best == a->choice)
        sn_str_add(out, "\nregret  none: the choice was also the fastest");
    else
        sn_str_printf(out, "\nregret  %.1f %%: %s was the fastest", 100 * a->regret, a->best->name);
    sn_str_printf(out, " (%s, emulated here)", a->where);
}

static void text_model(const sn_question *q, sn_str *out)
{
    char x[32], y[32], z[32];
    const sn_algo_model *m = &q->model;
    const sn_calibration *c = q->calibration;
    sn_str_printf(out, "\nmodel   in a host: signal %s, ", sn_fmt_ns(x, m->signal_ns));
    sn_str_printf(out, "copy %s/s, reduce %s/s, %.3g members a core\n",
                  sn_fmt_bytes(x, m->copy_bytes_per_s), sn_fmt_bytes(y, m->reduce_bytes_per_s),
                  m->members_per_core);
    if (q->hosts > 1)
        sn_str_printf(out, "        between hosts: latency %s, %s/s, %s a further message\n",
                      sn_fmt_ns(x, m->net_latency_ns), sn_fmt_bytes(y, m->net_bytes_per_s),
                      sn_fmt_ns(z, m->net_message_ns));
    if (c)
        sn_str_printf(out,
                      "        calibrated %s on %d collectives, %.0f %% off on average:\n"
                      "        %s\n",
                      c->when, c->samples, 100 * c->error, c->path);
    else if (q->cluster)
        sn_str_printf(out, "        from the topology of %s\n", q->cluster);
    else
        sn_str_printf(out,
                      "        from the topology; measure it with\n"
                      "        supernode bench calibrate --hosts %d --cards %d\n",
                      q->hosts, q->cards);
}

void sn_answer_text(const sn_question *q, const sn_answer *a, sn_str *out)
{
    char x[32];
    double bytes = (double) q->call.count * (double) sn_dtype_bytes(q->call.dtype);
    sn_str_printf(out, "%s", sn_coll_op_name(q->call.op));
    if (q->call.op != SN_BARRIER)
        sn_str_printf(out, " of %s %s", sn_fmt_bytes(x, bytes), sn_dtype_name(q->call.dtype));
    sn_str_printf(out, " among %d member%s on %d host%s\n\n", q->group.members,
                  q->group.members > 1 ? "s" : "", q->hosts, q->hosts > 1 ? "s" : "");
    text_rows(q, a, out);
    sn_str_add(out, "\nchosen  ");
    reason(q, a, out);
    if (a->measured)
        text_measured(a, out);
    text_model(q, out);
}

/* ---- for programs ---- */

static json_t *candidate_json(const sn_question *q, const sn_answer *a, const sn_row_times *c)
{
    char why[160];
    if (!c->fits)
        return json_pack("{s:s, s:b, s:s}", "algorithm", c->row->name, "fits", 0, "why",
                         why_not(q, c, why));
    json_t *o =
        json_pack("{s:s, s:b, s:b, s:f, s:f}", "algorithm", c->row->name, "fits", 1, "chosen",
                  c->row == a->choice, "predicted_ns", c->ns, "waiting_ns", c->waiting_ns);
    if (c->measured_ns > 0)
        json_object_set_new(o, "measured_ns", json_real(c->measured_ns));
    return o;
}

static json_t *model_json(const sn_question *q)
{
    const sn_algo_model *m = &q->model;
    const sn_calibration *c = q->calibration;
    json_t *o = json_pack(
        "{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "signal_ns", m->signal_ns, "copy_bytes_per_s",
        m->copy_bytes_per_s, "reduce_bytes_per_s", m->reduce_bytes_per_s, "net_latency_ns",
        m->net_latency_ns, "net_bytes_per_s", m->net_bytes_per_s, "net_message_ns",
        m->net_message_ns, "call_ns", m->call_ns, "members_per_core", m->members_per_core);
    json_object_set_new(o, "from", json_string(c ? "calibration" : "topology"));
    if (c) {
        json_object_set_new(o, "path", json_string(c->path));
        json_object_set_new(o, "when", json_string(c->when));
        json_object_set_new(o, "error", json_real(c->error));
    }
    return o;
}

void sn_answer_json(const sn_question *q, const sn_answer *a)
{
    sn_str why = {0};
    json_t *all = json_array();
    reason(q, a, &why);
    for (int i = 0; i < a->candidates; i++)
        json_array_append_new(all, candidate_json(q, a, &a->candidate[i]));
    json_t *root = json_pack("{s:s, s:s, s:I, s:i, s:i, s:s, s:s, s:o, s:o}", "op",
                             sn_coll_op_name(q->call.op), "dtype", sn_dtype_name(q->call.dtype),
                             "count", (json_int_t) q->call.count, "members", q->group.members,
                             "hosts", q->hosts, "choice", a->choice->name, "reason",
                             sn_str_get(&why), "model", model_json(q), "candidates", all);
    if (a->measured) {
        json_object_set_new(root, "best", json_string(a->best->name));
        json_object_set_new(root, "regret", json_real(a->regret));
        json_object_set_new(root, "measured_on", json_string(a->where));
    }
    json_dumpf(root, stdout, JSON_INDENT(2) | JSON_SORT_KEYS);
    putchar('\n');
    json_decref(root);
    sn_str_done(&why);
}
