/* SPDX-License-Identifier: Apache-2.0
 *
 * plan — schedules that a group keeps, so that a call like an earlier one builds nothing. */
#include "coll/coll_private.h"

#include <stdio.h>
#include <string.h>

static sn_status unknown(const char *name)
{
    const sn_algo_row *const *rows;
    int n = sn_algo_rows(&rows);
    char known[256] = "";
    for (int i = 0; i < n; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof(known) - used, "%s%s", i > 0 ? ", " : "", rows[i]->name);
    }
    return sn_fail(SN_ENOTSUP, "no algorithm \"%s\"; there is %s", name, known);
}

sn_status coll_algorithm_index(const char *name, int *ret)
{
    const sn_algo_row *const *rows;
    int n = sn_algo_rows(&rows);
    int found = -1;
    for (int i = 0; i < n && name != NULL; i++)
        if (strcmp(rows[i]->name, name) == 0)
            found = i;
    if (name != NULL && found < 0)
        return unknown(name);
    *ret = found;
    return SN_OK;
}

static bool same_call(const coll_plan *p, const sn_algo_call *c, int asked)
{
    return p->arena != NULL && p->algorithm >= 0 && p->call.count == c->count &&
           p->call.op == c->op && p->call.red == c->red && p->call.dtype == c->dtype &&
           p->call.root == c->root && p->call.in_place == c->in_place &&
           p->call.deterministic == c->deterministic && p->asked == asked;
}

/* The one not used for the longest time. A window's runs use fewer than there are. */
static coll_plan *oldest(sn_coll_group *g)
{
    coll_plan *best = NULL;
    for (int i = 0; i < COLL_PLANS; i++) {
        coll_plan *p = &g->plan[i];
        if (p->used == 0 && (best == NULL || p->tick < best->tick))
            best = p;
    }
    SN_ASSERT(best != NULL);
    return best;
}

static sn_status build(sn_coll_group *g, const sn_algo_call *call, int asked, coll_plan *p)
{
    const sn_algo_row *const *rows, *row;
    int n = sn_algo_rows(&rows);
    SN_TRY(sn_algo_choose(&g->algo, call, &g->model, asked < 0 ? NULL : rows[asked]->name, &row,
                          NULL));
    if (p->arena == NULL)
        p->arena = sn_arena_create();
    else
        sn_arena_reset(p->arena);
    p->algorithm = -1;
    p->mapped = false;
    SN_TRY(row->schedule(&g->algo, call, g->me, p->arena, &p->sched));
    for (int i = 0; i < n; i++)
        if (rows[i] == row)
            p->algorithm = i;
    p->call = *call;
    p->asked = asked;
    return SN_OK;
}

sn_status coll_plan_get(sn_coll_group *g, const sn_algo_call *call, int asked, coll_plan **ret)
{
    coll_plan *p = g->last != NULL && same_call(g->last, call, asked) ? g->last : NULL;
    for (int i = 0; i < COLL_PLANS && p == NULL; i++)
        if (same_call(&g->plan[i], call, asked))
            p = &g->plan[i];
    if (p == NULL) {
        p = oldest(g);
        SN_TRY(build(g, call, asked, p));
    }
    p->tick = ++g->tick;
    g->last = p;
    *ret = p;
    return SN_OK;
}
