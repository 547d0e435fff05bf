/* SPDX-License-Identifier: Apache-2.0
 *
 * The data axis: inputs are split along the dimension that counts samples, and each node splits the
 * label that arrives so. Nothing is chosen; it is propagated even when data is 1, because the
 * tensor axis must keep off the labels found here. */
#include "plan/private.h"

/* The label along which an operand of the node arrives split. */
static int arriving(const plan_model *m, int n)
{
    const sn_node *node = &m->g->node[n];
    for (int i = 0; i < node->ins; i++) {
        int8_t form = node->in[i] >= 0 ? m->form[PLAN_DATA][node->in[i]] : FORM_WHOLE;
        int label = form >= 0 ? m->rule[n].in[i][form] : -1;
        if (plan_label_fits(&m->rule[n], label, m->g, node))
            return label;
    }
    return -1;
}

static int label_of(const plan_model *m, int n)
{
    const sn_node *node = &m->g->node[n];
    int origin = node->origin;
    if (node->backward && origin >= 0 && m->label[PLAN_DATA][origin] >= 0) {
        int id = m->rule[origin].label[m->label[PLAN_DATA][origin]].id;
        int label = plan_label_find(&m->rule[n], id);
        if (plan_label_fits(&m->rule[n], label, m->g, node))
            return label;
    }
    return arriving(m, n);
}

sn_status plan_data_propagate(plan_model *m)
{
    const sn_graph *g = m->g;
    for (int v = 0; v < g->values; v++) {
        const sn_value *value = &g->value[v];
        m->form[PLAN_DATA][v] = FORM_WHOLE;
        if (value->kind != SN_VALUE_INPUT || value->batch_dim < 0)
            continue;
        if (value->shape.dim[value->batch_dim] % m->degree[PLAN_DATA])
            return sn_fail(SN_EFIT, "%lld samples in a micro-batch are not divisible by data %d",
                           (long long) value->shape.dim[value->batch_dim], m->degree[PLAN_DATA]);
        m->form[PLAN_DATA][v] = (int8_t) value->batch_dim;
    }
    for (int n = 0; n < g->nodes; n++) {
        const sn_node *node = &g->node[n];
        int label = label_of(m, n);
        if (label >= 0 && m->rule[n].label[label].size % m->degree[PLAN_DATA])
            return sn_fail(SN_EFIT, "%s has %lld samples, not divisible by data %d", node->name,
                           (long long) m->rule[n].label[label].size, m->degree[PLAN_DATA]);
        m->label[PLAN_DATA][n] = (int8_t) label;
        for (int o = 0; o < node->outs; o++)
            if (node->out[o] >= 0)
                m->form[PLAN_DATA][node->out[o]] =
                    plan_leaves(&m->rule[n], label, o, g->value[node->out[o]].shape.rank);
    }
    return SN_OK;
}
