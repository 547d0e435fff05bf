/* SPDX-License-Identifier: Apache-2.0
 * Reverse-mode differentiation: walk the forward nodes backwards, let each row append its
 * gradients. */
#include "graph/private.h"

struct sn_grads {
    int values;   /* of the forward graph */
    int *grad;    /* [values] collected so far, -1 none */
    bool *wanted; /* [values] a parameter lies behind it */
};

bool sn_grads_wanted(const sn_grads *grads, int value)
{
    return value >= 0 && value < grads->values && grads->wanted[value];
}

int sn_grads_get(const sn_grads *grads, int value)
{
    return grads->grad[value];
}

void sn_grads_replace(sn_grads *grads, int value, int grad)
{
    grads->grad[value] = grad;
}

sn_status sn_backward_node(sn_graph *g, sn_op op, int origin, const sn_attr *attr, const int *in,
                           int ins, int *ret_out)
{
    SN_TRY(sn_graph_add(g, op, g->node[origin].name, attr, in, ins, ret_out));
    sn_node *n = &g->node[g->nodes - 1];
    n->backward = true;
    n->origin = origin;
    n->stage = g->node[origin].stage;
    for (int o = 0; o < n->outs; o++) /* forward names stay unique */
        g->value[n->out[o]].name =
            sn_arena_printf(g->arena, "d.%s.%s.%d", n->name, sn_op_name(op), n->out[o]);
    return SN_OK;
}

/* Whose labels a sum of gradients follows: the node that made the value. */
static int origin_of(const sn_graph *g, int value, int grad)
{
    int producer = g->value[value].producer;
    return producer >= 0 ? producer : g->node[g->value[grad].producer].origin;
}

/* The constant 1 as a value like any other. */
static sn_status one(sn_graph *g, int origin, int like, int *ret)
{
    sn_attr attr = {.f = {1}, .shape = g->value[like].shape};
    return sn_backward_node(g, SN_OP_CONSTANT, origin, &attr, NULL, 0, ret);
}

sn_status sn_grads_add(sn_graph *g, sn_grads *grads, int value, int grad)
{
    int *both[] = {&grads->grad[value], &grad};
    for (int i = 0; grads->grad[value] != -1 && i < 2; i++)
        if (*both[i] == SN_GRAD_ONE)
            SN_TRY(one(g, SN_MAX(0, g->value[value].producer), value, both[i]));
    if (grads->grad[value] >= 0)
        SN_TRY(sn_backward_node(g, SN_OP_ADD, origin_of(g, value, grad), NULL,
                                (int[]){grads->grad[value], grad}, 2, &grad));
    grads->grad[value] = grad;
    return SN_OK;
}

sn_status sn_backward_sum_to(sn_graph *g, sn_grads *grads, int origin, int grad, int like,
                             int trailing)
{
    if (!sn_shape_equal(g->value[grad].shape, g->value[like].shape)) {
        sn_attr attr = {.i = {trailing}, .shape = g->value[like].shape};
        SN_TRY(sn_backward_node(g, SN_OP_SUM_TO, origin, &attr, &grad, 1, &grad));
    }
    return sn_grads_add(g, grads, like, grad);
}

static void mark_wanted(const sn_graph *g, sn_grads *grads)
{
    for (int v = 0; v < g->values; v++)
        grads->wanted[v] = g->value[v].kind == SN_VALUE_PARAM;
    for (int i = 0; i < g->nodes; i++) {
        bool any = false;
        for (int k = 0; k < g->node[i].ins; k++)
            any |= sn_grads_wanted(grads, g->node[i].in[k]);
        for (int o = 0; o < g->node[i].outs; o++)
            grads->wanted[g->node[i].out[o]] = any;
    }
}

static sn_status differentiate(sn_graph *g, int i, sn_grads *grads)
{
    const sn_op_row *row = sn_op_row_of(g->node[i].op);
    int grad_out[SN_OP_OUT_MAX];
    bool used = false, wanted = false;
    for (int o = 0; o < g->node[i].outs; o++) {
        grad_out[o] = grads->grad[g->node[i].out[o]];
        used |= grad_out[o] != -1;
        wanted |= sn_grads_wanted(grads, g->node[i].out[o]);
    }
    if (!used || !wanted)
        return SN_OK;
    if (!row->backward)
        return sn_fail(SN_ENOTSUP, "%s '%s' has no gradient", row->name, g->node[i].name);
    for (int o = 0; o < g->node[i].outs; o++)
        if (grad_out[o] == SN_GRAD_ONE && !row->takes_one)
            SN_TRY(one(g, i, g->node[i].out[o], &grad_out[o]));
    return row->backward(g, i, grad_out, grads);
}

sn_status sn_graph_backward(sn_graph *g)
{
    if (g->loss < 0)
        return sn_fail(SN_EINVAL, "graph %s has no loss to differentiate", g->name);
    if (sn_shape_count(g->value[g->loss].shape) != 1)
        return sn_fail(SN_EINVAL, "graph %s: the loss is not one number", g->name);
    int forward = g->nodes;
    sn_grads grads = {.values = g->values,
                      .grad = SN_NEW_N(g->arena, int, g->values),
                      .wanted = SN_NEW_N(g->arena, bool, g->values)};
    for (int v = 0; v < g->values; v++)
        grads.grad[v] = -1;
    mark_wanted(g, &grads);
    grads.grad[g->loss] = SN_GRAD_ONE;
    for (int i = forward - 1; i >= 0; i--)
        SN_TRY(differentiate(g, i, &grads));
    for (int v = 0; v < grads.values; v++)
        if (g->value[v].kind == SN_VALUE_PARAM)
            g->value[v].grad = SN_MAX(-1, grads.grad[v]);
    return SN_OK;
}
