/* SPDX-License-Identifier: Apache-2.0
 *
 * The algebra of forms: what a node needs and leaves when it splits a label, and how one form
 * becomes another. */
#include "plan/private.h"

int8_t plan_need(const sn_shard_rule *rule, int label, int operand, int rank)
{
    for (int d = 0; label >= 0 && d < rank; d++)
        if (rule->in[operand][d] == label)
            return (int8_t) d;
    return FORM_WHOLE;
}

int8_t plan_leaves(const sn_shard_rule *rule, int label, int result, int rank)
{
    if (label < 0)
        return FORM_WHOLE;
    for (int d = 0; d < rank; d++)
        if (rule->out[result][d] == label)
            return (int8_t) d;
    return rule->label[label].combine == SN_COMBINE_MAX ? FORM_MAX : FORM_SUM;
}

int plan_label_find(const sn_shard_rule *rule, int id)
{
    for (int l = 0; l < rule->labels; l++)
        if (rule->label[l].id == id)
            return l;
    return -1;
}

/* May the label be split at all? Every result must have it or know how the parts combine. */
bool plan_label_fits(const sn_shard_rule *rule, int label, const sn_graph *g, const sn_node *n)
{
    if (label < 0 || !rule->label[label].splittable)
        return false;
    for (int o = 0; o < n->outs; o++) {
        bool has = false;
        for (int d = 0; n->out[o] >= 0 && d < g->value[n->out[o]].shape.rank; d++)
            has |= rule->out[o][d] == label;
        if (!has && n->out[o] >= 0 && rule->label[label].combine == SN_COMBINE_NONE)
            return false;
    }
    return true;
}

sn_shape plan_local(const plan_model *m, int value, int8_t tensor, int8_t data)
{
    sn_shape s = m->g->value[value].shape;
    if (tensor >= 0)
        s.dim[tensor] /= m->degree[PLAN_TENSOR];
    if (data >= 0)
        s.dim[data] /= m->degree[PLAN_DATA];
    return s;
}

plan_fold plan_fold_at(sn_shape shape, int dim)
{
    plan_fold f = {1, shape.dim[dim], 1};
    for (int d = 0; d < dim; d++)
        f.outer *= shape.dim[d];
    for (int d = dim + 1; d < shape.rank; d++)
        f.inner *= shape.dim[d];
    return f;
}

plan_move plan_move_find(uint32_t have, int8_t want, int8_t *ret_from)
{
    int8_t split = FORM_WHOLE, partial = FORM_WHOLE;
    for (int8_t d = SN_RANK_MAX - 1; d >= 0; d--)
        if (have & FORM_BIT(d))
            split = d;
    if (have & FORM_BIT(FORM_SUM))
        partial = FORM_SUM;
    if (have & FORM_BIT(FORM_MAX))
        partial = FORM_MAX;
    *ret_from = want;
    if (have & FORM_BIT(want))
        return MOVE_NONE;
    if (want == FORM_WHOLE) {
        *ret_from = split >= 0 ? split : partial;
        return split >= 0 ? MOVE_ALL_GATHER : MOVE_ALL_REDUCE;
    }
    if (have & FORM_BIT(FORM_WHOLE)) {
        *ret_from = FORM_WHOLE;
        return MOVE_SLICE;
    }
    if (split < 0) {
        *ret_from = partial;
        return MOVE_REDUCE_SCATTER;
    }
    return MOVE_VIA_WHOLE;
}
