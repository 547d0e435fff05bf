/* SPDX-License-Identifier: Apache-2.0
 *
 * Which stages are alike: their programs are the same but for names, numbers of values and ranks.
 * A stage is read once, node by node, into a signature of 128 bits; values are numbered as they
 * appear. What emit.c, reshard.c, optimizer.c and the prices look at goes in, nothing else. */
#include "plan/closed.h"

#include <string.h>

typedef struct signature {
    uint64_t a, b;
} signature;

typedef struct reader {
    const sn_plan *plan;
    const plan_model *m;
    const plan_alike *of;
    int *number; /* [values] in this stage, from 1; 0: not met yet */
    int *met;    /* values in the order in which they were met */
    int values;
    signature s;
} reader;

static void add(reader *r, uint64_t word)
{
    r->s.a = sn_hash64(r->s.a, 1, word);
    r->s.b = sn_hash64(r->s.b, 2, word);
}

static void add_shape(reader *r, sn_shape shape)
{
    add(r, (uint64_t) shape.rank);
    for (int d = 0; d < shape.rank; d++)
        add(r, (uint64_t) shape.dim[d]);
}

/* Where the value is among the links of a run, from 1; 0: nowhere. */
static int place(const plan_alike *of, const int *links, int from, int to, int value)
{
    for (int i = from; i < to; i++)
        if (of->link[links[i]].value == value)
            return i - from + 1;
    return 0;
}

static int users_here(const plan_model *m, int v, int stage)
{
    int users = 0;
    for (int u = m->use_at[v]; u < m->use_at[v + 1]; u++)
        users += m->g->node[m->use[u]].stage == stage;
    return users;
}

static void add_value(reader *r, int v, int stage)
{
    const plan_model *m = r->m;
    if (v < 0 || r->number[v]) {
        add(r, v < 0 ? 0 : (uint64_t) r->number[v]);
        return;
    }
    r->met[r->values++] = v;
    r->number[v] = r->values;
    add(r, (uint64_t) r->values);
    add(r, (uint64_t) m->g->value[v].kind << 8 | (uint64_t) m->dtype[v]);
    add_shape(r, m->g->value[v].shape);
    for (int a = 0; a < PLAN_AXES; a++)
        add(r, (uint64_t) (m->form[a][v] + 4) << 8 | (uint64_t) (m->sent[a][v] + 4));
    add(r, (uint64_t) (v == m->g->loss) << 1 | (uint64_t) (v == m->logits));
    add(r, (uint64_t) users_here(m, v, stage) << 32 | (uint64_t) (m->use_at[v + 1] - m->use_at[v]));
    add(r, (uint64_t) place(r->of, r->of->in, r->of->in_at[stage], r->of->in_at[stage + 1], v));
    add(r, (uint64_t) place(r->of, r->of->out, r->of->out_at[stage], r->of->out_at[stage + 1], v));
    if (m->adds_to[v] >= 0)
        add_value(r, m->adds_to[v], stage);
    if (m->becomes[v] >= 0)
        add_value(r, m->becomes[v], stage);
}

static void add_node(reader *r, int n, int stage)
{
    const sn_node *node = &r->m->g->node[n];
    add(r, (uint64_t) node->op << 8 | node->backward);
    add(r, sn_hash_bytes(&node->attr, sizeof node->attr));
    for (int a = 0; a < PLAN_AXES; a++)
        add(r, (uint64_t) (r->m->label[a][n] + 1));
    for (int i = 0; i < node->ins; i++)
        add_value(r, node->in[i], stage);
    for (int o = 0; o < node->outs; o++)
        add_value(r, node->out[o], stage);
}

static void add_layout(reader *r, int stage)
{
    const plan_layout *l = &r->m->layout[stage];
    add(r, (uint64_t) l->elements);
    for (int i = 0; i < l->params; i++) {
        const plan_param *p = &l->param[i];
        add_value(r, p->value, stage);
        add(r, (uint64_t) p->at);
        add(r, (uint64_t) p->count);
        add(r, (uint64_t) p->bucket << 4 | (uint64_t) p->decay << 3 | (uint64_t) p->trained << 2 |
                   (uint64_t) p->replicated << 1 | p->partial);
    }
    for (int b = 0; b < l->buckets; b++) {
        add(r, (uint64_t) l->bucket[b].at);
        add(r, (uint64_t) l->bucket[b].count);
        add(r, (uint64_t) l->bucket[b].contributions);
    }
}

static void add_place(reader *r, int stage)
{
    int group = plan_mesh_group(r->plan, SN_AXIS_DATA, plan_mesh_rank(r->plan, 0, stage, 0));
    add(r, stage + 1 < r->m->stages); /* does it run ahead? */
    add(r, plan_encodes(r->plan, stage, SN_ALL_GATHER));
    add(r, plan_encodes(r->plan, stage, SN_ALL_REDUCE));
    add(r, plan_encodes(r->plan, stage, SN_REDUCE_SCATTER));
    add(r, group < 0 ? 0 : (uint64_t) plan_hosts_of(&r->plan->group[group]));
    add(r, (uint64_t) (r->of->in_at[stage + 1] - r->of->in_at[stage]));
    add(r, (uint64_t) (r->of->out_at[stage + 1] - r->of->out_at[stage]));
}

/* ---- links */

static bool first_use_there(const plan_model *m, int v, int u)
{
    int stage = m->g->node[m->use[u]].stage;
    bool first = stage != m->home[v];
    for (int w = m->use_at[v]; w < u && first; w++)
        first = m->g->node[m->use[w]].stage != stage;
    return first;
}

/* Fills by_stage from keys of links: a counting sort that keeps the order. */
static void sort_by(const int *key, int links, int stages, sn_arena *arena, int **ret_at,
                    int **ret_by)
{
    int *at = SN_NEW_N(arena, int, stages + 2), *by = SN_NEW_N(arena, int, links + 1);
    for (int i = 0; i < links; i++)
        at[key[i] + 2]++;
    for (int s = 0; s < stages; s++)
        at[s + 2] += at[s + 1];
    for (int i = 0; i < links; i++)
        by[at[key[i] + 1]++] = i;
    *ret_at = at;
    *ret_by = by;
}

/* Results come in the order of their producers, so links do. */
static void find_links(const plan_model *m, sn_arena *arena, plan_alike *a)
{
    const sn_graph *g = m->g;
    int total = m->use_at[g->values];
    a->link = SN_NEW_N(arena, plan_link, total + 1);
    for (int v = 0; v < g->values; v++)
        for (int u = m->use_at[v]; g->value[v].kind == SN_VALUE_RESULT && u < m->use_at[v + 1]; u++)
            if (first_use_there(m, v, u))
                a->link[a->links++] = (plan_link){v, g->node[m->use[u]].stage};
    int *to = SN_NEW_N(arena, int, a->links + 1), *from = SN_NEW_N(arena, int, a->links + 1);
    for (int i = 0; i < a->links; i++) {
        to[i] = a->link[i].stage;
        from[i] = m->home[a->link[i].value];
    }
    sort_by(to, a->links, m->stages, arena, &a->in_at, &a->in);
    sort_by(from, a->links, m->stages, arena, &a->out_at, &a->out);
}

/* ---- the whole */

static int kind_of(const signature *s, int kinds, const signature *known)
{
    int k = 0;
    while (k < kinds && (known[k].a != s->a || known[k].b != s->b))
        k++;
    return k;
}

/* Nodes of stage s in their order: node[at[s] … at[s + 1]). */
static void nodes_of_stages(const plan_model *m, sn_arena *arena, int **ret_at, int **ret_node)
{
    int nodes = m->g->nodes, *key = SN_NEW_N(arena, int, nodes + 1);
    for (int n = 0; n < nodes; n++)
        key[n] = m->g->node[n].stage;
    sort_by(key, nodes, m->stages, arena, ret_at, ret_node);
}

void plan_alike_find(const sn_plan *plan, sn_arena *arena, plan_alike *ret)
{
    const plan_model *m = plan->private_->model;
    reader r = {.plan = plan, .m = m, .of = ret};
    int *at, *node;
    *ret = (plan_alike){.kind = SN_NEW_N(arena, int, m->stages),
                        .first = SN_NEW_N(arena, int, m->stages)};
    signature *known = SN_NEW_N(arena, signature, m->stages);
    r.number = SN_NEW_N(arena, int, m->g->values + 1);
    r.met = SN_NEW_N(arena, int, m->g->values + 1);
    find_links(m, arena, ret);
    nodes_of_stages(m, arena, &at, &node);
    for (int s = 0; s < m->stages; s++) {
        r.s = (signature){1, 2};
        add_place(&r, s);
        for (int i = at[s]; i < at[s + 1]; i++)
            if (m->live[node[i]])
                add_node(&r, node[i], s);
        add_layout(&r, s);
        for (int i = 0; i < r.values; i++)
            r.number[r.met[i]] = 0;
        r.values = 0;
        ret->kind[s] = kind_of(&r.s, ret->kinds, known);
        if (ret->kind[s] == ret->kinds) {
            known[ret->kinds] = r.s;
            ret->first[ret->kinds++] = s;
        }
    }
}
