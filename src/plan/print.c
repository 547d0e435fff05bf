/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans and programs for people. */
#include "plan/private.h"

#include <stdio.h>
#include <string.h>

static void form_text(char out[16], int8_t form)
{
    static const char *const partial[] = {"max", "sum", "whole"};
    if (form >= 0)
        snprintf(out, 16, "dim %d", form);
    else
        snprintf(out, 16, "%s", partial[form - FORM_MAX]);
}

static void print_cost(const sn_plan *plan, sn_str *out)
{
    char a[32], b[32], c[32], d[32], e[32];
    const sn_plan_cost *k = &plan->cost;
    sn_str_printf(out, "step      %s: compute %s, collectives %s, pipeline %s, optimizer %s\n",
                  sn_fmt_ns(a, k->step_ns), sn_fmt_ns(b, k->compute_ns),
                  sn_fmt_ns(c, k->collective_ns), sn_fmt_ns(d, k->pipeline_ns),
                  sn_fmt_ns(e, k->optimizer_ns));
    sn_str_printf(
        out,
        "memory    %s on the fullest card: parameters %s, gradients %s, optimizer %s, "
        "activations %s\n",
        sn_fmt_bytes(a, (double) k->memory_bytes), sn_fmt_bytes(b, (double) k->params_bytes),
        sn_fmt_bytes(c, (double) k->grads_bytes), sn_fmt_bytes(d, (double) k->optimizer_bytes),
        sn_fmt_bytes(e, (double) k->activation_bytes));
}

static void print_compression(const sn_plan *plan, sn_str *out)
{
    const sn_plan_compression *c = &plan->opts.compression;
    const sn_plan_cost *k = &plan->cost;
    char gradients[32], parameters[32], plain[32], coded[32], times[16] = "";
    if (!plan_compresses(c))
        return;
    sn_codec_text(&c->gradients, gradients);
    sn_codec_text(&c->parameters, parameters);
    if (c->kept)
        snprintf(parameters, sizeof(parameters), "kept");
    if (c->passes > 1)
        snprintf(times, sizeof(times), "%dx", c->passes);
    if (k->plain_bytes <= 0)
        sn_str_printf(out, "encoding  %s is asked for, but no data group spans hosts\n", gradients);
    else
        sn_str_printf(
            out,
            "encoding  gradients %s, parameters %s%s: a step moves %s between hosts instead "
            "of %s, %.1f %% less\n",
            gradients, times, parameters, sn_fmt_bytes(coded, k->coded_bytes),
            sn_fmt_bytes(plain, k->plain_bytes), 100 * (1 - k->coded_bytes / k->plain_bytes));
}

static void print_stages(const sn_plan *plan, sn_str *out)
{
    const plan_model *m = plan->private_->model;
    for (int s = 0; s < m->stages; s++) {
        int first = -1, last = -1;
        int64_t params = 0;
        char count[32];
        for (int n = 0; n < m->g->nodes; n++)
            if (m->g->node[n].stage == s && !m->g->node[n].backward) {
                first = first < 0 ? n : first;
                last = n;
            }
        for (int i = 0; i < m->layout[s].params; i++)
            params += m->layout[s].param[i].count;
        sn_str_printf(out, "stage %-3d %s … %s, %s parameters a card in %d buckets\n", s,
                      m->g->node[first].name, m->g->node[last].name,
                      sn_fmt_count(count, (double) params), m->layout[s].buckets);
    }
}

/* "h.3.mlp.w1" → "h.*.mlp.w1": parameters that differ only in a number are one line. */
static void pattern_of(char out[64], const char *name)
{
    size_t n = 0;
    for (const char *p = name; *p && n < 63; p++) {
        bool digit = *p >= '0' && *p <= '9', after_dot = p > name && p[-1] == '.';
        bool more = digit && n && out[n - 1] == '*' && p[-1] >= '0' && p[-1] <= '9';
        if (more)
            continue;
        out[n++] = digit && after_dot ? '*' : *p;
    }
    out[n] = 0;
}

static bool same_line(const plan_model *m, int a, int b)
{
    char left[64], right[64];
    const sn_value *v = m->g->value;
    if (v[a].kind != SN_VALUE_PARAM || v[b].kind != SN_VALUE_PARAM ||
        m->form[PLAN_TENSOR][a] != m->form[PLAN_TENSOR][b] ||
        !sn_shape_equal(v[a].shape, v[b].shape))
        return false;
    pattern_of(left, m->name[a]);
    pattern_of(right, m->name[b]);
    return !strcmp(left, right);
}

static void print_shards(const sn_plan *plan, sn_str *out)
{
    const plan_model *m = plan->private_->model;
    char shape[96], form[16], name[64];
    for (int v = 0; v < m->g->values && plan->tensor > 1; v++) {
        bool said = m->g->value[v].kind != SN_VALUE_PARAM;
        for (int u = 0; u < v && !said; u++)
            said = same_line(m, u, v);
        if (said)
            continue;
        form_text(form, m->form[PLAN_TENSOR][v]);
        pattern_of(name, m->name[v]);
        sn_str_printf(out, "  %-20s %-20s %s\n", name, sn_shape_text(shape, m->g->value[v].shape),
                      form);
    }
}

void sn_plan_print(const sn_plan *plan, sn_str *out)
{
    sn_str_printf(out, "choice    %s\n", plan->reason);
    print_cost(plan, out);
    print_compression(plan, out);
    print_stages(plan, out);
    if (plan->tensor > 1)
        sn_str_printf(out, "parameters over the tensor axis (* stands for every number)\n");
    print_shards(plan, out);
    sn_str_printf(out, "candidates\n");
    for (int i = 0; i < plan->candidates; i++) {
        const sn_candidate *c = &plan->candidate[i];
        char step[32], memory[32];
        sn_str_printf(out, "  tensor %-3d pipeline %-3d data %-3d %-5s %10s %10s  %s\n", c->tensor,
                      c->pipeline, c->data,
                      c->pipeline > 1 && c->data > 1 ? (c->pipeline_near ? "p,d" : "d,p") : "",
                      c->feasible ? sn_fmt_ns(step, c->cost.step_ns) : "-",
                      c->cost.memory_bytes ? sn_fmt_bytes(memory, (double) c->cost.memory_bytes)
                                           : "-",
                      c->why);
    }
}

/* ---- programs */

static void print_operand(const sn_program *p, int slot, sn_str *out)
{
    char shape[96];
    if (slot < 0) {
        sn_str_add(out, " -");
        return;
    }
    const sn_slot *s = &p->slot[slot];
    sn_str_printf(out, " %s%s%s", s->name, sn_shape_text(shape, s->shape),
                  s->dtype == SN_F32    ? ""
                  : s->dtype == SN_BF16 ? "bf16"
                                        : "i32");
}

static void print_operands(const sn_program *p, const sn_instr *in, sn_str *out)
{
    for (int o = 0; o < in->outs; o++) {
        print_operand(p, in->out[o], out);
        if (in->accumulate >> o & 1)
            sn_str_add(out, "+");
    }
    if (in->ins > 0)
        sn_str_add(out, in->outs > 0 ? " ←" : "");
    for (int i = 0; i < in->ins; i++)
        print_operand(p, in->in[i], out);
}

static void print_instr(const sn_plan *plan, const sn_program *p, const sn_instr *in, sn_str *out)
{
    switch (in->kind) {
    case SN_INSTR_KERNEL:
        sn_str_printf(out, "%-20s", sn_op_name(in->op));
        print_operands(p, in, out);
        break;
    case SN_INSTR_COLL:
        sn_str_printf(out, "%-20s", sn_coll_op_name(in->coll));
        print_operands(p, in, out);
        sn_str_printf(out, "  %s over %s, priority %d, ticket %d", sn_red_name(in->red),
                      plan->group[in->group].name, in->priority, in->ticket);
        if (in->wire) {
            char codec[32];
            sn_codec_text(&p->wire[in->wire - 1].codec, codec);
            sn_str_printf(out, ", %s between hosts", codec);
        }
        break;
    case SN_INSTR_SEND:
    case SN_INSTR_RECV:
        sn_str_printf(out, "%-20s", in->kind == SN_INSTR_SEND ? "send" : "receive");
        print_operands(p, in, out);
        sn_str_printf(out, "  %s rank %d, tag %u, ticket %d",
                      in->kind == SN_INSTR_SEND ? "to" : "from", in->peer, in->tag, in->ticket);
        break;
    case SN_INSTR_WAIT:
        sn_str_printf(out, "%-20s ticket %d", "wait", in->ticket);
        break;
    }
}

void sn_program_print(const sn_plan *plan, const sn_program *p, sn_str *out)
{
    static const char *const phase[] = {"forward", "backward", "reduce", "optimizer", "gather"};
    int t, s, d, micro = -2, last = -1;
    char bytes[32];
    sn_plan_coords(plan, p->rank, &t, &s, &d);
    sn_str_printf(out, "rank %d: tensor %d, stage %d, data %d; %s, %d instructions\n", p->rank, t,
                  s, d, sn_fmt_bytes(bytes, (double) p->memory_bytes), p->instrs);
    for (int i = 0; i < p->instrs; i++) {
        const sn_instr *in = &p->instr[i];
        bool ahead = in->kind == SN_INSTR_RECV; /* posted for a later unit */
        if (!ahead && ((int) in->phase != last || in->micro != micro)) {
            sn_str_printf(out, "%s", phase[in->phase]);
            if (in->micro >= 0)
                sn_str_printf(out, " of micro-batch %d", in->micro);
            sn_str_add(out, "\n");
        }
        if (!ahead) {
            last = (int) in->phase;
            micro = in->micro;
        }
        sn_str_printf(out, "%5d  ", i);
        print_instr(plan, p, in, out);
        sn_str_add(out, "\n");
    }
}
