/* SPDX-License-Identifier: Apache-2.0
 *
 * A plan as a picture, in Graphviz's language: the forward graph, a box a stage. Where a value
 * changes its form on the way to a reader, the edge says from what to what and is drawn thick: that
 * is where communication was put in. Edges between stages are sends. */
#include "plan/private.h"

#include <stdio.h>

static const char *const colour[] = {"#4c9bd6", "#e8973a", "#8fbf5f", "#c678a6",
                                     "#7aa9a3", "#b59b5b", "#8d8fc9", "#c9786d"};

static const char *form_text(char out[16], int8_t form)
{
    static const char *const partial[] = {"max", "sum", "whole"};
    if (form >= 0)
        snprintf(out, 16, "dim %d", form);
    else
        snprintf(out, 16, "%s", partial[form - FORM_MAX]);
    return out;
}

/* Names come from users' files too. */
static void quoted(sn_str *out, const char *text)
{
    for (const char *p = text ? text : "?"; *p; p++)
        if (*p == '"' || *p == '\\')
            sn_str_printf(out, "\\%c", *p);
        else
            sn_str_add_n(out, (unsigned char) *p < ' ' ? " " : p, 1);
}

static bool drawn(const plan_model *m, int n)
{
    return m->live[n] && !m->g->node[n].backward;
}

static void add_node(const sn_plan *plan, int n, sn_str *out)
{
    const plan_model *m = plan->private_->model;
    const sn_node *node = &m->g->node[n];
    char form[16], shape[96];
    int v = node->out[0];
    sn_str_printf(out, "    n%d [label=\"%s\\n", n, sn_op_name(node->op));
    quoted(out, node->name);
    if (v >= 0)
        sn_str_printf(out, "\\n%s%s%s", sn_shape_text(shape, m->g->value[v].shape),
                      plan->tensor > 1 ? ", " : "",
                      plan->tensor > 1 ? form_text(form, m->form[PLAN_TENSOR][v]) : "");
    sn_str_add(out, "\"]\n");
}

static void add_stage(const sn_plan *plan, int s, sn_str *out)
{
    const plan_model *m = plan->private_->model;
    sn_str_printf(out,
                  "  subgraph cluster_%d {\n    label=\"stage %d\"; color=\"%s\"; penwidth=2;\n", s,
                  s, colour[(size_t) s % SN_COUNT(colour)]);
    for (int n = 0; n < m->g->nodes; n++)
        if (drawn(m, n) && m->g->node[n].stage == s)
            add_node(plan, n, out);
    sn_str_add(out, "  }\n");
}

static void add_edge(const sn_plan *plan, int n, int i, sn_str *out)
{
    const plan_model *m = plan->private_->model;
    int v = m->g->node[n].in[i];
    if (v < 0 || m->g->value[v].kind != SN_VALUE_RESULT || !drawn(m, m->g->value[v].producer))
        return;
    int from = m->g->value[v].producer;
    int8_t is = m->form[PLAN_TENSOR][v];
    int8_t wants = plan_need(&m->rule[n], m->label[PLAN_TENSOR][n], i, m->g->value[v].shape.rank);
    bool sent = m->g->node[from].stage != m->g->node[n].stage;
    bool changes = plan->tensor > 1 && is != wants;
    char a[16], b[16];
    sn_str_printf(out, "  n%d -> n%d", from, n);
    if (changes)
        sn_str_printf(out, " [label=\"%s to %s\", penwidth=3%s]", form_text(a, is),
                      form_text(b, wants), sent ? ", style=dashed" : "");
    else if (sent)
        sn_str_add(out, " [label=\"send\", style=dashed]");
    sn_str_add(out, "\n");
}

void sn_plan_dot(const sn_plan *plan, sn_str *out)
{
    const plan_model *m = plan->private_->model;
    sn_str_add(out, "digraph plan {\n  label=\"");
    quoted(out, plan->graph->name);
    sn_str_printf(out,
                  ": tensor %d x pipeline %d x data %d\"; labelloc=t;\n"
                  "  node [shape=box, fontname=\"sans-serif\", fontsize=10];\n"
                  "  edge [fontname=\"sans-serif\", fontsize=9];\n",
                  plan->tensor, plan->pipeline, plan->data);
    for (int s = 0; s < m->stages; s++)
        add_stage(plan, s, out);
    for (int n = 0; n < m->g->nodes; n++)
        for (int i = 0; drawn(m, n) && i < m->g->node[n].ins; i++)
            add_edge(plan, n, i, out);
    sn_str_add(out, "}\n");
}
