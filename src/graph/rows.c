/* SPDX-License-Identifier: Apache-2.0
 * The op table put together from its families, and the questions asked of a row. */
#include "graph/private.h"

static const char *const names[] = {
#define NAME(id, name) [id] = name,
    SN_OP_LIST(NAME)
#undef NAME
};

const char *sn_op_name(sn_op op)
{
    return names[op];
}

static const sn_op_row *search(const sn_op_row *row, int count, sn_op op)
{
    for (int i = 0; i < count; i++)
        if (row[i].op == op)
            return &row[i];
    return NULL;
}

const sn_op_row *sn_op_row_of(sn_op op)
{
    const struct {
        const sn_op_row *row;
        int count;
    } family[] = {
#define FAMILY(name) {sn_rows_##name, sn_rows_##name##_count}
        FAMILY(linear),      FAMILY(batch_linear), FAMILY(norm),      FAMILY(rms),
        FAMILY(pointwise),   FAMILY(activate),     FAMILY(attention), FAMILY(attend),
        FAMILY(xent),        FAMILY(loss),         FAMILY(embedding), FAMILY(conv),
        FAMILY(pool),        FAMILY(batch_norm),   FAMILY(moe),       FAMILY(program),
        FAMILY(elementwise), FAMILY(move),         FAMILY(index),     FAMILY(window),
#undef FAMILY
    };
    for (size_t f = 0; f < SN_COUNT(family); f++) {
        const sn_op_row *row = search(family[f].row, family[f].count, op);
        if (row)
            return row;
    }
    SN_ASSERT(!"every op has a row");
    return NULL;
}

double sn_node_flops(const sn_graph *g, const sn_node *n)
{
    const sn_op_row *row = sn_op_row_of(n->op);
    if (row->flops)
        return row->flops(g, n);
    double sum = 0;
    for (int o = 0; o < n->outs; o++)
        sum += (double) sn_shape_count(g->value[n->out[o]].shape);
    return sum;
}

double sn_node_bytes(const sn_graph *g, const sn_node *n)
{
    double sum = 0;
    for (int i = 0; i < n->ins; i++)
        if (n->in[i] >= 0)
            sum += (double) sn_shape_count(g->value[n->in[i]].shape) *
                   (double) sn_dtype_bytes(g->value[n->in[i]].dtype);
    for (int o = 0; o < n->outs; o++)
        sum += (double) sn_shape_count(g->value[n->out[o]].shape) *
               (double) sn_dtype_bytes(g->value[n->out[o]].dtype);
    return sum;
}

void sn_node_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *ret)
{
    *ret = (sn_shard_rule){.begin_label = -1};
    for (int i = 0; i < SN_OP_IN_MAX; i++)
        for (int d = 0; d < SN_RANK_MAX; d++)
            ret->in[i][d] = -1;
    for (int o = 0; o < SN_OP_OUT_MAX; o++)
        for (int d = 0; d < SN_RANK_MAX; d++)
            ret->out[o][d] = -1;
    const sn_op_row *row = sn_op_row_of(n->op);
    if (row->shard)
        row->shard(g, n, ret);
}

int sn_label(sn_shard_rule *rule, int id, int64_t size, bool splittable, sn_combine combine)
{
    for (int l = 0; l < rule->labels; l++)
        if (rule->label[l].id == id)
            return l;
    SN_ASSERT(rule->labels < SN_LABELS_MAX);
    int l = rule->labels++;
    rule->label[l].id = id;
    rule->label[l].size = size;
    rule->label[l].splittable = splittable;
    rule->label[l].combine = combine;
    return l;
}

void sn_label_rows(sn_shape x, int8_t *row, sn_combine lead, bool last_splits, sn_shard_rule *r)
{
    for (int d = 0; d < x.rank; d++) {
        bool last = d == x.rank - 1;
        row[d] = (int8_t) sn_label(r, last ? LABEL_LAST : LABEL_LEAD + d, x.dim[d],
                                   !last || last_splits, last ? SN_COMBINE_NONE : lead);
    }
}

void sn_set_out(sn_graph *g, const sn_node *n, int o, sn_shape shape)
{
    g->value[n->out[o]].shape = shape;
}

sn_status sn_bad_node(const sn_graph *g, const sn_node *n, const char *what)
{
    sn_str shapes = {0};
    char one[96];
    for (int i = 0; i < n->ins; i++)
        sn_str_printf(&shapes, "%s%s", i ? " " : "",
                      n->in[i] < 0 ? "-" : sn_shape_text(one, g->value[n->in[i]].shape));
    sn_fail(SN_EINVAL, "%s '%s': %s (operands %.200s)", sn_op_name(n->op), n->name, what,
            sn_str_get(&shapes));
    sn_str_done(&shapes);
    return SN_EINVAL;
}
