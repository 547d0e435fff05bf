/* SPDX-License-Identifier: Apache-2.0
 *
 * The tensor axis: which label each node splits.
 *
 * Every forward node is a variable whose choices are the labels of its shard rule (or none); its
 * backward nodes follow it. What a value costs depends on the choices of its producer and of its
 * consumers only, forward and backward, so the cheapest assignment is found by dynamic programming
 * over the node order:
 *
 *   a ──x── b ──y── c          state after b: the choices that some open value still asks for
 *           └──────────z── d    (here b's); equal states keep the cheaper history
 *
 * Exact unless a graph is so wide that a state would hold more than OPEN_MAX choices or more than
 * BEAM states stay; then the cheapest are kept. */
#include "plan/private.h"

#include <stdlib.h>
#include <string.h>

#define OPEN_MAX 24
#define BEAM 384
#define CHOICES (SN_LABELS_MAX + 1)

typedef struct variable {
    int node, choices;
    int id[CHOICES]; /* label ids, -1 none */
    int last;        /* the variable at which its last value closes */
    double work[CHOICES];
} variable;

typedef struct state {
    double cost;
    int parent, order;
    uint8_t choice;
    uint8_t open[OPEN_MAX]; /* choices of the open variables; the rest is 0 */
} state;

typedef struct price_entry {
    sn_coll_op op;
    sn_dtype dtype;
    int64_t count;
    double ns;
} price_entry;

typedef struct sharder {
    plan_model *m;
    const plan_price *price;
    int variables, *var_of; /* [nodes] -1: not live */
    variable *var;
    int8_t *table;                 /* [nodes][CHOICES] label index by choice of its variable */
    int *closes_at, *closes;       /* values whose cost is known once variable k is chosen */
    uint8_t *pick;                 /* [variables] the state being looked at */
    int opens, open[OPEN_MAX + 1]; /* variables that states hold, in order */
    price_entry cache[64];
    int cached;
} sharder;

/* ---- choices */

/* Does splitting this label collide with the data axis? */
static bool carries_samples(const plan_model *m, int n, int label)
{
    const sn_node *node = &m->g->node[n];
    if (label == m->label[PLAN_DATA][n])
        return true;
    for (int i = 0; i < node->ins; i++) {
        int8_t form = node->in[i] >= 0 ? m->form[PLAN_DATA][node->in[i]] : FORM_WHOLE;
        if (form >= 0 && m->rule[n].in[i][form] == label)
            return true;
    }
    return false;
}

static bool can_split(const plan_model *m, int n, int label)
{
    return plan_label_fits(&m->rule[n], label, m->g, &m->g->node[n]) &&
           !carries_samples(m, n, label);
}

/* The operand that is the largest matrix parameter with a label to split, -1 none. */
static int matrix_operand(const plan_model *m, int n)
{
    const sn_node *node = &m->g->node[n];
    int best = -1;
    for (int i = 0; i < node->ins && !node->backward; i++) {
        const sn_value *v = node->in[i] >= 0 ? &m->g->value[node->in[i]] : NULL;
        if (!v || v->kind != SN_VALUE_PARAM || v->shape.rank < 2)
            continue;
        if (best >= 0 &&
            sn_shape_count(v->shape) <= sn_shape_count(m->g->value[node->in[best]].shape))
            continue;
        for (int d = 0; d < v->shape.rank; d++)
            if (can_split(m, n, m->rule[n].in[i][d])) {
                best = i;
                break;
            }
    }
    return best;
}

static bool along(const plan_model *m, int n, int operand, int label)
{
    for (int d = 0; d < m->g->value[m->g->node[n].in[operand]].shape.rank; d++)
        if (m->rule[n].in[operand][d] == label)
            return true;
    return false;
}

/* The choices of node n at a degree; 0: none is allowed. A node with a matrix parameter has to
 * split it, one with a label that `must` be split has to split that. */
static int choices_of(const plan_model *m, int n, int degree, int *ret_id)
{
    const sn_shard_rule *rule = &m->rule[n];
    int matrix = matrix_operand(m, n), must = -1, count = 0;
    for (int l = 0; l < rule->labels && !m->g->node[n].backward; l++)
        if (rule->label[l].must)
            must = l;
    if (degree == 1 || (matrix < 0 && must < 0))
        ret_id[count++] = -1;
    for (int l = 0; l < rule->labels && degree > 1; l++)
        if (can_split(m, n, l) && rule->label[l].size % degree == 0 && (must < 0 || l == must) &&
            (matrix < 0 || along(m, n, matrix, l)))
            ret_id[count++] = rule->label[l].id;
    return count;
}

static bool degree_fits(const plan_model *m, int degree)
{
    int id[CHOICES];
    for (int n = 0; n < m->g->nodes; n++)
        if (m->live[n] && !m->g->node[n].backward && !choices_of(m, n, degree, id))
            return false;
    return true;
}

/* "1, 2 or 4" */
static void fitting_degrees(const plan_model *m, int cards, sn_str *out)
{
    int fit[32], n = 0;
    for (int q = 1; q <= cards && n < 32; q++)
        if (degree_fits(m, q))
            fit[n++] = q;
    for (int i = 0; i < n; i++)
        sn_str_printf(out, "%s%d", i == 0 ? "" : i == n - 1 ? " or " : ", ", fit[i]);
}

static sn_status cannot_split(const plan_model *m, int n, int cards)
{
    sn_str fit = {0};
    char shape[96];
    int matrix = matrix_operand(m, n), degree = m->degree[PLAN_TENSOR];
    const sn_shard_rule *rule = &m->rule[n];
    fitting_degrees(m, cards, &fit);
    for (int l = 0; l < rule->labels; l++)
        if (rule->label[l].must) {
            sn_fail(SN_EFIT, "%s %lld cannot be split over tensor %d: tensor may be %s (%s)",
                    rule->label[l].must, (long long) rule->label[l].size, degree, sn_str_get(&fit),
                    m->g->node[n].name);
            sn_str_done(&fit);
            return SN_EFIT;
        }
    const sn_value *v = &m->g->value[m->g->node[n].in[matrix]];
    sn_fail(SN_EFIT, "%s %s cannot be split over tensor %d: tensor may be %s", v->name,
            sn_shape_text(shape, v->shape), degree, sn_str_get(&fit));
    sn_str_done(&fit);
    return SN_EFIT;
}

/* A backward node follows its origin when its rule knows all that the origin may choose; else (a
 * sum of gradients behind an op with labels of its own) it chooses for itself. */
static bool follows(const plan_model *m, int n)
{
    const sn_node *node = &m->g->node[n];
    const sn_shard_rule *origin = &m->rule[node->origin];
    if (!node->backward || !m->live[node->origin])
        return false;
    for (int l = 0; l < origin->labels; l++)
        if (can_split(m, node->origin, l) && plan_label_find(&m->rule[n], origin->label[l].id) < 0)
            return false;
    return true;
}

/* ---- what an assignment costs */

static int8_t label_of(const sharder *s, int n)
{
    return s->table[n * CHOICES + s->pick[s->var_of[n]]];
}

static double coll_ns(sharder *s, sn_coll_op op, sn_dtype dtype, int64_t count)
{
    for (int i = 0; i < s->cached; i++)
        if (s->cache[i].op == op && s->cache[i].dtype == dtype && s->cache[i].count == count)
            return s->cache[i].ns;
    double ns = plan_price_coll(s->price, PLAN_TENSOR, op, dtype, count);
    if (s->cached < (int) SN_COUNT(s->cache))
        s->cache[s->cached++] = (price_entry){op, dtype, count, ns};
    return ns;
}

static double repack_ns(const sharder *s, const plan_fold *f, double bytes)
{
    return f->outer == 1 ? 0 : plan_price_kernel(s->price, 0, 2 * bytes);
}

/* What it costs to have value v in form `want` as well. */
static double move_ns(sharder *s, int v, uint32_t *have, int8_t want)
{
    int8_t from;
    plan_move move = plan_move_find(*have, want, &from);
    if (move == MOVE_NONE)
        return 0;
    if (move == MOVE_VIA_WHOLE)
        return move_ns(s, v, have, FORM_WHOLE) + move_ns(s, v, have, want);
    *have |= FORM_BIT(want);
    sn_dtype dtype = s->m->dtype[v];
    sn_shape whole = plan_local(s->m, v, FORM_WHOLE, s->m->form[PLAN_DATA][v]);
    int64_t count = sn_shape_count(whole), part = count / s->m->degree[PLAN_TENSOR];
    double bytes = (double) count * (double) sn_dtype_bytes(dtype);
    if (move == MOVE_ALL_REDUCE)
        return coll_ns(s, SN_ALL_REDUCE, dtype, count);
    plan_fold f = plan_fold_at(whole, move == MOVE_ALL_GATHER ? from : want);
    if (move == MOVE_REDUCE_SCATTER)
        return coll_ns(s, SN_REDUCE_SCATTER, dtype, part) + repack_ns(s, &f, bytes);
    if (move == MOVE_ALL_GATHER)
        return coll_ns(s, SN_ALL_GATHER, dtype, part) + repack_ns(s, &f, bytes);
    return repack_ns(s, &f, bytes / s->m->degree[PLAN_TENSOR]);
}

static int8_t result_form(const sharder *s, int v)
{
    int n = s->m->g->value[v].producer;
    const sn_node *node = &s->m->g->node[n];
    for (int o = 0; o < node->outs; o++)
        if (node->out[o] == v)
            return plan_leaves(&s->m->rule[n], label_of(s, n), o, s->m->g->value[v].shape.rank);
    SN_ASSERT(!"a producer has its value among its results");
    return FORM_WHOLE;
}

/* A parameter lies as its first splitting user wants it. */
static int8_t stored_form(const sharder *s, int v)
{
    const plan_model *m = s->m;
    for (int u = m->use_at[v]; u < m->use_at[v + 1]; u++) {
        const sn_node *node = &m->g->node[m->use[u]];
        for (int i = 0; i < node->ins; i++) {
            int8_t need = FORM_WHOLE;
            if (node->in[i] == v)
                need = plan_need(&m->rule[m->use[u]], label_of(s, m->use[u]), i,
                                 m->g->value[v].shape.rank);
            if (need >= 0)
                return need;
        }
    }
    return FORM_WHOLE;
}

/* The gradient of a parameter: partial sums of a whole parameter wait for the end of the step. */
static double gradient_ns(sharder *s, int w, int8_t stored)
{
    int8_t form = result_form(s, w);
    uint32_t have = FORM_BIT(form);
    if (form == FORM_SUM && stored == FORM_WHOLE)
        return coll_ns(s, SN_ALL_REDUCE, SN_F32, sn_shape_count(s->m->g->value[w].shape)) /
               (double) s->m->micros;
    return move_ns(s, w, &have, stored);
}

static double value_ns(sharder *s, int v)
{
    const plan_model *m = s->m;
    const sn_value *value = &m->g->value[v];
    int8_t form = value->kind == SN_VALUE_RESULT  ? result_form(s, v)
                  : value->kind == SN_VALUE_PARAM ? stored_form(s, v)
                                                  : FORM_WHOLE;
    uint32_t have = FORM_BIT(form);
    double ns = 0;
    for (int u = m->use_at[v]; u < m->use_at[v + 1]; u++) {
        const sn_node *node = &m->g->node[m->use[u]];
        for (int i = 0; i < node->ins; i++)
            if (node->in[i] == v)
                ns += move_ns(
                    s, v, &have,
                    plan_need(&m->rule[m->use[u]], label_of(s, m->use[u]), i, value->shape.rank));
    }
    if (value->kind == SN_VALUE_PARAM)
        ns /= (double) m->micros;
    for (int w = m->summand_at[v]; w < m->summand_at[v + 1]; w++)
        ns += gradient_ns(s, m->summand[w], form);
    return ns;
}

static double local_bytes(const plan_model *m, int v, int8_t form)
{
    return (double) sn_shape_count(plan_local(m, v, form, m->form[PLAN_DATA][v])) *
           (double) sn_dtype_bytes(m->dtype[v]);
}

static double node_ns(const sharder *s, int n, int8_t label)
{
    const plan_model *m = s->m;
    const sn_node *node = &m->g->node[n];
    double flops = sn_node_flops(m->g, node), bytes = 0;
    if (label >= 0)
        flops /= m->degree[PLAN_TENSOR];
    if (m->label[PLAN_DATA][n] >= 0)
        flops /= m->degree[PLAN_DATA];
    for (int i = 0; i < node->ins; i++)
        if (node->in[i] >= 0)
            bytes +=
                local_bytes(m, node->in[i],
                            plan_need(&m->rule[n], label, i, m->g->value[node->in[i]].shape.rank));
    for (int o = 0; o < node->outs; o++)
        if (node->out[o] >= 0)
            bytes += local_bytes(
                m, node->out[o],
                plan_leaves(&m->rule[n], label, o, m->g->value[node->out[o]].shape.rank));
    return plan_price_kernel(s->price, flops, bytes);
}

/* ---- setting up */

/* Variables in node order; a backward node with a choice of its own comes right after its origin.
 */
static sn_status make_variables(sharder *s, int cards)
{
    plan_model *m = s->m;
    int nodes = m->g->nodes, *head = SN_NEW_N(m->arena, int, nodes),
        *next = SN_NEW_N(m->arena, int, nodes);
    s->var_of = SN_NEW_N(m->arena, int, nodes);
    s->var = SN_NEW_N(m->arena, variable, nodes);
    s->table = SN_NEW_N(m->arena, int8_t, nodes * CHOICES);
    for (int n = nodes - 1; n >= 0; n--) /* lists of those that choose, by origin */
        head[n] = next[n] = s->var_of[n] = -1;
    for (int n = nodes - 1; n >= 0; n--)
        if (m->live[n] && !follows(m, n)) {
            next[n] = head[m->g->node[n].origin];
            head[m->g->node[n].origin] = n;
        }
    for (int k = 0; k < nodes; k++)
        for (int n = head[k]; n >= 0; n = next[n]) {
            variable *v = &s->var[s->variables];
            v->node = n;
            v->choices = choices_of(m, n, m->degree[PLAN_TENSOR], v->id);
            if (!v->choices)
                return cannot_split(m, n, cards);
            s->var_of[n] = s->variables++;
        }
    for (int n = 0; n < nodes; n++)
        if (m->live[n] && s->var_of[n] < 0)
            s->var_of[n] = s->var_of[m->g->node[n].origin];
    return SN_OK;
}

static void make_tables(sharder *s)
{
    const plan_model *m = s->m;
    for (int n = 0; n < m->g->nodes; n++) {
        if (s->var_of[n] < 0)
            continue;
        variable *v = &s->var[s->var_of[n]];
        for (int c = 0; c < v->choices; c++) {
            int l = v->id[c] < 0 ? -1 : plan_label_find(&m->rule[n], v->id[c]);
            if (!can_split(m, n, l) || m->rule[n].label[l].size % m->degree[PLAN_TENSOR])
                l = -1;
            s->table[n * CHOICES + c] = (int8_t) l;
            v->work[c] += node_ns(s, n, (int8_t) l);
        }
    }
}

/* The variables that the cost of value v depends on: the last of them; with hold >= 0 each is kept
 * open until variable `hold`. */
static int scope(sharder *s, int v, int hold)
{
    const plan_model *m = s->m;
    int uses = m->use_at[v + 1] - m->use_at[v], last = -1;
    int sums = m->summand_at[v + 1] - m->summand_at[v];
    for (int i = -1; i < uses + sums; i++) {
        int n = i < 0      ? m->g->value[v].producer
                : i < uses ? m->use[m->use_at[v] + i]
                           : m->g->value[m->summand[m->summand_at[v] + i - uses]].producer;
        int var = n >= 0 ? s->var_of[n] : -1;
        last = SN_MAX(last, var);
        if (var >= 0 && hold >= 0)
            s->var[var].last = SN_MAX(s->var[var].last, hold);
    }
    return last;
}

static void make_values(sharder *s)
{
    const plan_model *m = s->m;
    int values = m->g->values, *close = SN_NEW_N(m->arena, int, values);
    s->closes_at = SN_NEW_N(m->arena, int, s->variables + 2);
    s->closes = SN_NEW_N(m->arena, int, values + 1);
    for (int v = 0; v < values; v++) {
        close[v] = scope(s, v, -1);
        int producer = m->g->value[v].producer;
        if (producer >= 0 && s->var_of[producer] < 0)
            close[v] = -1; /* nobody computes it */
        if (close[v] < 0)
            continue;
        scope(s, v, close[v]);
        s->closes_at[close[v] + 1]++;
    }
    for (int k = 0; k <= s->variables; k++)
        s->closes_at[k + 1] += s->closes_at[k];
    int *next = SN_NEW_N(m->arena, int, s->variables + 2);
    memcpy(next, s->closes_at, sizeof(int) * (size_t) (s->variables + 2));
    for (int v = 0; v < values; v++)
        if (close[v] >= 0)
            s->closes[next[close[v]]++] = v;
}

/* ---- the search */

static int by_open(const void *a, const void *b)
{
    const state *x = a, *y = b;
    int open = memcmp(x->open, y->open, OPEN_MAX);
    if (open)
        return open;
    if (x->cost != y->cost)
        return x->cost < y->cost ? -1 : 1;
    return x->order - y->order;
}

static int by_cost(const void *a, const void *b)
{
    const state *x = a, *y = b;
    if (x->cost != y->cost)
        return x->cost < y->cost ? -1 : 1;
    return x->order - y->order;
}

/* All states one variable further. `out` has room for states · choices. */
static int expand(sharder *s, int k, const state *in, int states, state *out)
{
    int n = 0;
    for (int i = 0; i < states; i++) {
        for (int a = 0; a < s->opens; a++)
            s->pick[s->open[a]] = in[i].open[a];
        for (int c = 0; c < s->var[k].choices; c++) {
            double ns = in[i].cost + s->var[k].work[c];
            s->pick[k] = (uint8_t) c;
            for (int f = s->closes_at[k]; f < s->closes_at[k + 1]; f++)
                ns += value_ns(s, s->closes[f]);
            out[n] = (state){.cost = ns, .parent = i, .order = n, .choice = (uint8_t) c};
            memcpy(out[n].open, in[i].open, OPEN_MAX);
            n++;
        }
    }
    return n;
}

/* Forget the variables that no open value asks for; returns how many states stay. */
static int close_variables(sharder *s, int k, state *st, int states)
{
    int keep[OPEN_MAX + 1], opens = 0, kept = 0;
    for (int a = 0; a < s->opens; a++)
        if (s->var[s->open[a]].last > k)
            keep[opens++] = a;
    bool hold_k = s->var[k].last > k;
    int drop = opens + hold_k > OPEN_MAX ? keep[0] : -1; /* too wide: the oldest is settled */
    int settled = -1;
    for (int i = 0; i < states && drop >= 0; i++)
        if (settled < 0 || by_cost(&st[i], &st[settled]) < 0)
            settled = i;
    uint8_t value = drop >= 0 ? st[settled].open[drop] : 0;
    int from = drop >= 0 ? 1 : 0;
    for (int i = 0; i < states; i++) {
        uint8_t open[OPEN_MAX] = {0};
        if (drop >= 0 && st[i].open[drop] != value)
            continue;
        for (int a = from; a < opens; a++)
            open[a - from] = st[i].open[keep[a]];
        if (hold_k)
            open[opens - from] = st[i].choice;
        st[kept] = st[i];
        memcpy(st[kept++].open, open, OPEN_MAX);
    }
    if (drop >= 0)
        s->pick[s->open[drop]] = value;
    for (int a = from; a < opens; a++)
        s->open[a - from] = s->open[keep[a]];
    s->opens = opens - from;
    if (hold_k)
        s->open[s->opens++] = k;
    return kept;
}

static int prune(state *st, int states)
{
    int n = 0;
    qsort(st, (size_t) states, sizeof *st, by_open);
    for (int i = 0; i < states; i++)
        if (n == 0 || memcmp(st[i].open, st[n - 1].open, OPEN_MAX) != 0)
            st[n++] = st[i];
    if (n > BEAM) {
        qsort(st, (size_t) n, sizeof *st, by_cost);
        n = BEAM;
    }
    return n;
}

static void search(sharder *s)
{
    sn_arena *arena = s->m->arena;
    state *now = SN_NEW_N(arena, state, BEAM), *next = SN_NEW_N(arena, state, BEAM * CHOICES);
    int states = 1, **parent = SN_NEW_N(arena, int *, s->variables + 1);
    uint8_t **choice = SN_NEW_N(arena, uint8_t *, s->variables + 1);
    for (int k = 0; k < s->variables; k++) {
        states = expand(s, k, now, states, next);
        states = prune(next, close_variables(s, k, next, states));
        parent[k] = SN_NEW_N(arena, int, states);
        choice[k] = SN_NEW_N(arena, uint8_t, states);
        for (int i = 0; i < states; i++) {
            parent[k][i] = next[i].parent;
            choice[k][i] = next[i].choice;
            now[i] = next[i];
            now[i].order = i;
        }
    }
    int best = 0;
    for (int i = 1; i < states; i++)
        if (now[i].cost < now[best].cost)
            best = i;
    for (int k = s->variables - 1; k >= 0; k--) {
        s->pick[k] = choice[k][best];
        best = parent[k][best];
    }
}

/* ---- writing the answer down */

static int8_t first_need_elsewhere(const plan_model *m, int axis, int v)
{
    for (int u = m->use_at[v]; u < m->use_at[v + 1]; u++) {
        int n = m->use[u];
        for (int i = 0; m->g->node[n].stage != m->home[v] && i < m->g->node[n].ins; i++)
            if (m->g->node[n].in[i] == v)
                return plan_need(&m->rule[n], m->label[axis][n], i, m->g->value[v].shape.rank);
    }
    return FORM_WHOLE;
}

static void write_down(sharder *s)
{
    plan_model *m = s->m;
    for (int n = 0; n < m->g->nodes; n++)
        m->label[PLAN_TENSOR][n] = s->var_of[n] < 0 ? -1 : label_of(s, n);
    for (int v = 0; v < m->g->values; v++) {
        const sn_value *value = &m->g->value[v];
        int8_t form = FORM_WHOLE;
        if (value->kind == SN_VALUE_PARAM)
            form = stored_form(s, v);
        if (value->kind == SN_VALUE_RESULT && s->var_of[value->producer] >= 0)
            form = result_form(s, v);
        m->form[PLAN_TENSOR][v] = form;
    }
    for (int a = 0; a < PLAN_AXES; a++)
        for (int v = 0; v < m->g->values; v++) {
            int8_t form = m->form[a][v];
            m->sent[a][v] = form < FORM_WHOLE ? first_need_elsewhere(m, a, v) : form;
        }
}

sn_status plan_shard_choose(plan_model *m, const plan_price *price, int cards)
{
    sharder *s = SN_NEW(m->arena, sharder);
    s->m = m;
    s->price = price;
    SN_TRY(make_variables(s, cards));
    s->pick = SN_NEW_N(m->arena, uint8_t, s->variables + 1);
    make_tables(s);
    make_values(s);
    search(s);
    write_down(s);
    return SN_OK;
}
