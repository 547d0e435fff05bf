/* SPDX-License-Identifier: Apache-2.0
 * Building, checking and printing graphs. */
#include "graph/private.h"

#include <string.h>

sn_graph *sn_graph_create(sn_arena *arena, const char *name)
{
    sn_graph *g = SN_NEW(arena, sn_graph);
    g->arena = arena;
    g->name = sn_arena_str(arena, name);
    g->loss = -1;
    return g;
}

static int add_value(sn_graph *g, sn_value v)
{
    g->value = sn_arena_grow(g->arena, g->value, (size_t) g->values, (size_t) g->values + 1,
                             sizeof *g->value, &g->value_cap);
    g->value[g->values] = v;
    return g->values++;
}

int sn_graph_input(sn_graph *g, const char *name, sn_dtype dtype, sn_shape shape, int batch_dim)
{
    return add_value(g, (sn_value){.name = sn_arena_str(g->arena, name),
                                   .kind = SN_VALUE_INPUT,
                                   .dtype = dtype,
                                   .shape = shape,
                                   .producer = -1,
                                   .batch_dim = batch_dim,
                                   .grad = -1,
                                   .next = -1});
}

int sn_graph_param(sn_graph *g, const char *name, sn_shape shape, sn_init init, double std,
                   bool decay)
{
    return add_value(g, (sn_value){.name = sn_arena_str(g->arena, name),
                                   .kind = SN_VALUE_PARAM,
                                   .dtype = SN_F32,
                                   .shape = shape,
                                   .producer = -1,
                                   .batch_dim = -1,
                                   .init = init,
                                   .init_std = std,
                                   .decay = decay,
                                   .grad = -1,
                                   .next = -1});
}

int sn_graph_state(sn_graph *g, const char *name, sn_shape shape, sn_init init)
{
    return add_value(g, (sn_value){.name = sn_arena_str(g->arena, name),
                                   .kind = SN_VALUE_STATE,
                                   .dtype = SN_F32,
                                   .shape = shape,
                                   .producer = -1,
                                   .batch_dim = -1,
                                   .init = init,
                                   .grad = -1,
                                   .next = -1});
}

sn_status sn_graph_add(sn_graph *g, sn_op op, const char *name, const sn_attr *attr, const int *in,
                       int ins, int *ret_out)
{
    const sn_op_row *row = sn_op_row_of(op);
    if (!row->shape)
        return sn_fail(SN_EINVAL, "%s '%s': only programs contain this op", row->name, name);
    if (ins < row->ins_min || ins > row->ins_max)
        return sn_fail(SN_EINVAL, "%s '%s': %d operands given, takes %d to %d", row->name, name,
                       ins, row->ins_min, row->ins_max);
    sn_node n = {.op = op, .ins = ins, .outs = row->outs, .origin = g->nodes};
    n.name = sn_arena_str(g->arena, name);
    if (attr)
        n.attr = *attr;
    for (int i = 0; i < ins; i++) {
        if (in[i] >= g->values || (in[i] < 0 && i < row->ins_min))
            return sn_fail(SN_EINVAL, "%s '%s': operand %d is missing", row->name, name, i);
        n.in[i] = in[i];
    }
    int values = g->values;
    for (int o = 0; o < n.outs; o++)
        n.out[o] = add_value(g, (sn_value){.name = o ? NULL : n.name,
                                           .kind = SN_VALUE_RESULT,
                                           .dtype = SN_F32,
                                           .producer = g->nodes,
                                           .batch_dim = -1,
                                           .grad = -1,
                                           .next = -1});
    sn_status status = row->shape(g, &n);
    if (status < 0) {
        g->values = values;
        return status;
    }
    g->node = sn_arena_grow(g->arena, g->node, (size_t) g->nodes, (size_t) g->nodes + 1,
                            sizeof *g->node, &g->node_cap);
    g->node[g->nodes++] = n;
    for (int o = 0; ret_out && o < n.outs; o++)
        ret_out[o] = n.out[o];
    return SN_OK;
}

int sn_graph_find(const sn_graph *g, const char *name)
{
    for (int v = 0; v < g->values; v++)
        if (g->value[v].name && !strcmp(g->value[v].name, name))
            return v;
    return -1;
}

int64_t sn_graph_parameters(const sn_graph *g)
{
    int64_t n = 0;
    for (int v = 0; v < g->values; v++)
        if (g->value[v].kind == SN_VALUE_PARAM)
            n += sn_shape_count(g->value[v].shape);
    return n;
}

static void check_node(const sn_graph *g, int i)
{
    const sn_node *n = &g->node[i];
    for (int k = 0; k < n->ins; k++)
        if (n->in[k] >= 0)
            SN_ASSERT(g->value[n->in[k]].producer < i);
    for (int o = 0; o < n->outs; o++)
        SN_ASSERT(g->value[n->out[o]].producer == i);
    SN_ASSERT(n->backward || n->origin == i);
    SN_ASSERT(!g->node[n->origin].backward && g->node[n->origin].stage == n->stage);
    sn_shard_rule rule;
    sn_node_shard(g, n, &rule);
    for (int o = 0; o < n->outs; o++)
        for (int d = 0; d < g->value[n->out[o]].shape.rank; d++) {
            int l = rule.out[o][d];
            SN_ASSERT(l < 0 || rule.label[l].size == g->value[n->out[o]].shape.dim[d]);
        }
}

void sn_graph_check(const sn_graph *g)
{
    for (int i = 0; i < g->nodes; i++)
        check_node(g, i);
    for (int v = 0; v < g->values; v++) {
        const sn_value *value = &g->value[v];
        SN_ASSERT((value->kind == SN_VALUE_RESULT) == (value->producer >= 0));
        if (value->kind == SN_VALUE_PARAM && value->grad >= 0)
            SN_ASSERT(sn_shape_equal(value->shape, g->value[value->grad].shape));
        if (value->next >= 0)
            SN_ASSERT(value->kind == SN_VALUE_STATE &&
                      sn_shape_equal(value->shape, g->value[value->next].shape));
    }
}

static void print_values(const sn_graph *g, const int *v, int n, sn_str *out)
{
    char shape[96];
    for (int k = 0; k < n; k++) {
        if (v[k] < 0) {
            sn_str_add(out, k ? ", -" : "-");
            continue;
        }
        const sn_value *value = &g->value[v[k]];
        sn_str_printf(out, "%s%%%d", k ? ", " : "", v[k]);
        if (value->kind != SN_VALUE_RESULT)
            sn_str_printf(out, ":%s", value->name);
        sn_str_add(out, sn_shape_text(shape, value->shape));
    }
}

void sn_graph_print(const sn_graph *g, sn_str *out)
{
    for (int i = 0; i < g->nodes; i++) {
        const sn_node *n = &g->node[i];
        sn_str_printf(out, "%4d s%d %s ", i, n->stage, n->backward ? "B" : "F");
        print_values(g, n->out, n->outs, out);
        sn_str_printf(out, " = %s(", sn_op_name(n->op));
        print_values(g, n->in, n->ins, out);
        sn_str_printf(out, ")  # %s\n", n->name);
    }
}
