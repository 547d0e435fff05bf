/* SPDX-License-Identifier: Apache-2.0
 * A loss for a graph that came without one. */
#include "onnx/onnx.h"

#include <string.h>

static sn_status cross_entropy(sn_graph *g, int x, int *ret_targets)
{
    sn_shape lead = g->value[x].shape;
    int in[3] = {x}, m, s;
    if (lead.rank < 1 || lead.dim[--lead.rank] < 1)
        return sn_fail(SN_EINVAL, "the output has no classes in its last dim");
    int targets = sn_graph_input(g, "targets", SN_I32, lead, lead.rank ? 0 : -1);
    double positions = (double) sn_shape_count(lead);
    sn_attr scale = {.f = {1 / (positions > 0 ? positions : 1)}};
    SN_TRY(sn_graph_add(g, SN_OP_ROW_MAX, "loss", NULL, in, 1, &m));
    in[1] = targets;
    in[2] = m;
    SN_TRY(sn_graph_add(g, SN_OP_XENT_SUMS, "loss", NULL, in, 3, &s));
    SN_TRY(sn_graph_add(g, SN_OP_XENT_LOSS, "loss", &scale, (int[]){m, s, targets}, 3, &g->loss));
    *ret_targets = targets;
    return SN_OK;
}

static sn_status squares(sn_graph *g, int x, int *ret_targets)
{
    sn_shape shape = g->value[x].shape;
    int targets = sn_graph_input(g, "targets", SN_F32, shape, shape.rank ? 0 : -1);
    double count = (double) sn_shape_count(shape);
    sn_attr scale = {.f = {1 / (count > 0 ? count : 1)}};
    SN_TRY(sn_graph_add(g, SN_OP_MSE_LOSS, "loss", &scale, (int[]){x, targets}, 2, &g->loss));
    *ret_targets = targets;
    return SN_OK;
}

sn_status sn_onnx_loss(sn_onnx *o, const char *kind, int *ret_targets)
{
    int x = o->outputs ? o->output[0].value : -1;
    if (x < 0 || o->graph->value[x].dtype != SN_F32)
        return sn_fail(SN_EINVAL,
                       "the first output is no F32 result that a loss could be taken of");
    if (!strcmp(kind, "cross-entropy"))
        return cross_entropy(o->graph, x, ret_targets);
    if (!strcmp(kind, "squares"))
        return squares(o->graph, x, ret_targets);
    return sn_fail(SN_EINVAL, "no loss '%s'; there are cross-entropy and squares", kind);
}
