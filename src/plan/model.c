/* SPDX-License-Identifier: Apache-2.0
 *
 * The model of the work: build the graph, mark stages, fuse, differentiate, and write down what the
 * later passes ask again and again: who uses a value, how it is stored, whose gradient it is. */
#include "plan/private.h"

#include <string.h>

/* The node that uses parameter v first, -1 none. */
static int first_user(const sn_graph *g, int v)
{
    for (int n = 0; n < g->nodes; n++)
        for (int i = 0; i < g->node[n].ins; i++)
            if (g->node[n].in[i] == v)
                return n;
    return -1;
}

static bool has_user(const sn_graph *g, int v)
{
    return first_user(g, v) >= 0;
}

/* A gradient that is also something else (the gradient of x where z = x + p, another parameter's),
 * or is made in another stage than the parameter's, becomes a value of its own there. */
static sn_status own_gradients(sn_graph *g)
{
    bool *taken = SN_NEW_N(g->arena, bool, g->values);
    int values = g->values;
    for (int v = 0; v < values; v++) {
        int grad = g->value[v].kind == SN_VALUE_PARAM ? g->value[v].grad : -1;
        if (grad < 0)
            continue;
        int user = first_user(g, v), out;
        bool own = g->node[g->value[grad].producer].stage == g->node[user].stage;
        if (own && !taken[grad] && !has_user(g, grad)) {
            taken[grad] = true;
            continue;
        }
        sn_attr same = {.shape = g->value[grad].shape};
        SN_TRY(sn_graph_add(g, SN_OP_SUM_TO, g->value[v].name, &same, &grad, 1, &out));
        sn_node *n = &g->node[g->nodes - 1];
        n->backward = true;
        n->origin = user;
        n->stage = g->node[user].stage;
        g->value[out].name = sn_arena_printf(g->arena, "d.%s", g->value[v].name);
        g->value[v].grad = out;
    }
    return SN_OK;
}

static sn_status build_graph(const sn_plan *plan, const plan_price *price, plan_model *m)
{
    const sn_plan_opts *o = &plan->opts;
    int64_t micro_batch = o->batch / o->accumulation;
    double tokens = (double) o->batch * (double) o->tokens_per_sample;
    SN_TRY(o->build(o->ctx, m->arena, micro_batch, tokens, &m->g));
    if (m->g->nodes == 0)
        return sn_fail(SN_EINVAL, "graph %s has no operation", m->g->name);
    SN_TRY(plan_stages_mark(m->g, plan->pipeline, (double) plan->tensor * plan->data, price,
                            m->arena));
    SN_TRY(sn_graph_fuse(m->g));
    if (m->g->loss < 0 && !m->forward_only)
        return sn_fail(SN_EINVAL, "graph %s has no loss to train for", m->g->name);
    if (m->g->loss < 0)
        return SN_OK;
    SN_TRY(sn_graph_backward(m->g));
    return own_gradients(m->g);
}

/* ---- who uses what */

void plan_model_uses(plan_model *m, bool backward)
{
    const sn_graph *g = m->g;
    int total = 0;
    memset(m->use_at, 0, sizeof(int) * (size_t) (g->values + 1));
    for (int n = 0; n < g->nodes; n++)
        for (int i = 0; m->live[n] && (backward || !g->node[n].backward) && i < g->node[n].ins; i++)
            if (g->node[n].in[i] >= 0) {
                m->use_at[g->node[n].in[i] + 1]++;
                total++;
            }
    for (int v = 0; v < g->values; v++)
        m->use_at[v + 1] += m->use_at[v];
    m->use = SN_NEW_N(m->arena, int, total + 1);
    int *next = SN_NEW_N(m->arena, int, g->values + 1);
    memcpy(next, m->use_at, sizeof(int) * (size_t) (g->values + 1));
    for (int n = 0; n < g->nodes; n++)
        for (int i = 0; m->live[n] && (backward || !g->node[n].backward) && i < g->node[n].ins; i++)
            if (g->node[n].in[i] >= 0)
                m->use[next[g->node[n].in[i]]++] = n;
}

static void mark_live(plan_model *m)
{
    const sn_graph *g = m->g;
    bool *wanted = SN_NEW_N(m->arena, bool, g->values);
    if (g->loss >= 0)
        wanted[g->loss] = true;
    if (m->logits >= 0)
        wanted[m->logits] = true;
    for (int v = 0; v < g->values; v++)
        if (g->value[v].kind == SN_VALUE_PARAM && g->value[v].grad >= 0)
            wanted[g->value[v].grad] = true;
    for (int v = 0; v < g->values && !m->forward_only; v++)
        if (g->value[v].next >= 0)
            wanted[g->value[v].next] = true;
    for (int n = g->nodes - 1; n >= 0; n--) {
        const sn_node *node = &g->node[n];
        for (int o = 0; o < node->outs; o++)
            m->live[n] |= node->out[o] >= 0 && wanted[node->out[o]];
        for (int i = 0; m->live[n] && i < node->ins; i++)
            if (node->in[i] >= 0)
                wanted[node->in[i]] = true;
    }
}

/* ---- how values are stored */

/* In BF16 precision states and what an op wants exact stay F32. So does a result that is small
 * against what it was made of: it costs nothing and is mostly a statistic (maxima, sums, means)
 * that others divide or exponentiate by. */
static sn_dtype dtype_of(const plan_model *m, int v)
{
    const sn_graph *g = m->g;
    const sn_value *value = &g->value[v];
    int64_t largest = 0;
    if (value->dtype != SN_F32 || m->precision != SN_BF16)
        return value->dtype;
    if (value->producer < 0)
        return value->kind == SN_VALUE_STATE ? SN_F32 : SN_BF16;
    const sn_node *n = &g->node[value->producer];
    for (int o = 0; o < n->outs; o++)
        if (n->out[o] == v && sn_op_row_of(n->op)->exact >> o & 1)
            return SN_F32;
    for (int i = 0; i < n->ins; i++)
        if (n->in[i] >= 0)
            largest = SN_MAX(largest, sn_shape_count(g->value[n->in[i]].shape));
    return sn_shape_count(value->shape) * 8 <= largest ? SN_F32 : SN_BF16;
}

static bool kept(const sn_value *v)
{
    return v->kind == SN_VALUE_PARAM || v->kind == SN_VALUE_STATE;
}

static void describe_values(plan_model *m)
{
    const sn_graph *g = m->g;
    for (int v = 0; v < g->values; v++) {
        const sn_value *value = &g->value[v];
        m->dtype[v] = dtype_of(m, v);
        m->name[v] = value->name;
        m->adds_to[v] = m->becomes[v] = -1;
        m->home[v] = value->producer >= 0 ? g->node[value->producer].stage : -1;
        if (!value->name)
            m->name[v] = sn_arena_printf(m->arena, "v%d", v);
    }
    for (int n = 0; n < g->nodes; n++)
        for (int i = 0; i < g->node[n].ins; i++) {
            int v = g->node[n].in[i];
            if (v >= 0 && kept(&g->value[v]) && m->home[v] < 0)
                m->home[v] = g->node[n].stage;
        }
    for (int v = 0; v < g->values; v++) {
        int next = g->value[v].next;
        if (next >= 0 && !m->forward_only)
            m->becomes[next] = v;
        if (kept(&g->value[v]) && m->home[v] < 0) /* nobody uses it: somebody must keep it */
            m->home[v] = next >= 0 ? m->home[next] : 0;
    }
}

/* ---- whose gradient a value is
 *
 * The gradient of a parameter with several uses is a tree of sums. Its leaves are added straight
 * into the gradient buffer, as the micro-batches are; the sums themselves are never computed. */

static bool is_sum(const plan_model *m, int v)
{
    const sn_graph *g = m->g;
    int n = g->value[v].producer;
    if (n < 0 || g->node[n].op != SN_OP_ADD || !g->node[n].backward)
        return false;
    return sn_shape_equal(g->value[g->node[n].in[1]].shape, g->value[v].shape);
}

/* Is the value made where the parameter lives, and for nothing else? */
static bool may_add(const plan_model *m, int param, int v)
{
    return m->adds_to[v] < 0 && m->home[v] == m->home[param] &&
           m->use_at[v + 1] - m->use_at[v] == 1;
}

static void summands(plan_model *m, int param, int v)
{
    if (is_sum(m, v)) {
        int n = m->g->value[v].producer, a = m->g->node[n].in[0], b = m->g->node[n].in[1];
        if (a != b && may_add(m, param, a) && may_add(m, param, b)) {
            summands(m, param, a);
            summands(m, param, b);
            m->live[n] = false;
            return;
        }
    }
    m->adds_to[v] = param;
}

static void list_summands(plan_model *m)
{
    int values = m->g->values, total = 0;
    for (int v = 0; v < values; v++)
        total += m->adds_to[v] >= 0;
    m->summand = SN_NEW_N(m->arena, int, total + 1);
    for (int p = 0, n = 0; p < values; p++) {
        m->summand_at[p] = n;
        for (int v = 0; v < values && m->g->value[p].grad >= 0; v++)
            if (m->adds_to[v] == p)
                m->summand[n++] = v;
        m->summand_at[p + 1] = n;
    }
}

static void find_summands(plan_model *m)
{
    const sn_graph *g = m->g;
    for (int v = 0; v < g->values; v++)
        if (g->value[v].kind == SN_VALUE_PARAM && g->value[v].grad >= 0)
            summands(m, v, g->value[v].grad);
    list_summands(m);
}

static void allocate(plan_model *m)
{
    int values = m->g->values, nodes = m->g->nodes;
    m->rule = SN_NEW_N(m->arena, sn_shard_rule, nodes);
    m->live = SN_NEW_N(m->arena, bool, nodes);
    m->use_at = SN_NEW_N(m->arena, int, values + 1);
    m->dtype = SN_NEW_N(m->arena, sn_dtype, values);
    m->name = SN_NEW_N(m->arena, const char *, values);
    m->adds_to = SN_NEW_N(m->arena, int, values);
    m->summand_at = SN_NEW_N(m->arena, int, values + 1);
    m->home = SN_NEW_N(m->arena, int, values);
    m->becomes = SN_NEW_N(m->arena, int, values);
    for (int a = 0; a < PLAN_AXES; a++) {
        m->label[a] = SN_NEW_N(m->arena, int8_t, nodes);
        m->form[a] = SN_NEW_N(m->arena, int8_t, values);
        m->sent[a] = SN_NEW_N(m->arena, int8_t, values);
    }
    m->layout = SN_NEW_N(m->arena, plan_layout, m->stages);
    for (int n = 0; n < nodes; n++)
        sn_node_shard(m->g, &m->g->node[n], &m->rule[n]);
}

sn_status plan_model_make(const sn_plan *plan, const plan_price *price, sn_arena *arena,
                          plan_model **ret)
{
    plan_model *m = SN_NEW(arena, plan_model);
    *m = (plan_model){.arena = arena,
                      .degree = {plan->tensor, plan->data},
                      .stages = plan->pipeline,
                      .micros = plan->opts.accumulation,
                      .precision = plan->opts.precision,
                      .forward_only = plan->opts.forward_only,
                      .logits = -1};
    SN_TRY(build_graph(plan, price, m));
    allocate(m);
    for (int v = 0; v < m->g->values && m->forward_only; v++)
        if (m->g->value[v].name && strcmp(m->g->value[v].name, "logits") == 0)
            m->logits = v;
    mark_live(m);
    describe_values(m);
    plan_model_uses(m, true);
    find_summands(m);
    plan_model_uses(m, true);
    SN_TRY(plan_data_propagate(m));
    SN_TRY(plan_shard_choose(m, price, plan->topo->cards));
    if (m->forward_only)
        plan_model_uses(m, false);
    plan_layout_make(m, plan->opts.bucket_bytes);
    *ret = m;
    return SN_OK;
}
