/* SPDX-License-Identifier: Apache-2.0 */
#include "algo/build.h"

#include <stdio.h>
#include <string.h>

static const char *const op_name[SN_COLL_OPS] = {"all_reduce", "reduce_scatter", "all_gather",
                                                 "broadcast",  "all_to_all",     "gather",
                                                 "scatter",    "barrier"};

const char *sn_coll_op_name(sn_coll_op op)
{
    return (unsigned) op < SN_COLL_OPS ? op_name[op] : "?";
}

/* ---- the table: one row an algorithm; on equal cost the first one wins ---- */

static const sn_algo_row *const table[] = {
    &algo_flat,     &algo_hierarchical, &algo_ring,        &algo_hierarchical_ring,
    &algo_doubling, &algo_rabenseifner, &algo_double_tree, &algo_chain,
    &algo_ordered,  &algo_torus,        &algo_binomial,    &algo_ring_round_robin};

_Static_assert(SN_COUNT(table) <= SN_ALGO_ROWS_MAX, "the model has a factor for each row");

int sn_algo_rows(const sn_algo_row *const **ret)
{
    *ret = table;
    return (int) SN_COUNT(table);
}

static bool fits(const sn_algo_row *row, const algo_shape *s, const sn_algo_group *g,
                 const sn_algo_call *c)
{
    bool ordered = !c->deterministic || !algo_reduces(c->op) || (row->ordered >> c->op & 1) != 0;
    return (row->ops >> c->op & 1) != 0 && ordered && row->fits(s, g, c);
}

static double cost_ns(const sn_algo_row *row, const algo_shape *s, const sn_algo_group *g,
                      const sn_algo_call *c, const sn_algo_model *m, const algo_counts *price)
{
    algo_counts counts = {0};
    row->count(s, g, c, m, &counts);
    return algo_ns(&counts, price) * algo_factor(m, algo_row_index(row), c);
}

bool sn_algo_fits(const sn_algo_row *row, const sn_algo_group *g, const sn_algo_call *c)
{
    algo_shape s = algo_shape_of(g);
    return fits(row, &s, g, c);
}

double sn_algo_cost_ns(const sn_algo_row *row, const sn_algo_group *g, const sn_algo_call *c,
                       const sn_algo_model *m)
{
    algo_shape s = algo_shape_of(g);
    algo_counts price = algo_prices(m);
    return cost_ns(row, &s, g, c, m, &price);
}

int algo_row_index(const sn_algo_row *row)
{
    for (size_t i = 0; i < SN_COUNT(table); i++)
        if (table[i] == row)
            return (int) i;
    return -1;
}

/* Calls so small need no staging and no closing round; whoever asks with one whether to stage (coll
 * does) must not be told to stage that. */
static bool choosable(const sn_algo_row *row, const algo_shape *s, const sn_algo_group *g,
                      const sn_algo_call *c)
{
    bool small = c->op == SN_ALL_REDUCE && 2 * algo_bytes(c) <= SN_ALGO_NOTE_BYTES;
    return !row->by_name && (row->notes || !small) && fits(row, s, g, c);
}

static sn_status forced(const algo_shape *s, const sn_algo_group *g, const sn_algo_call *c,
                        const char *name, const sn_algo_row **ret)
{
    char fitting[256] = "";
    for (size_t i = 0; i < SN_COUNT(table); i++) {
        size_t used = strlen(fitting);
        if (!fits(table[i], s, g, c))
            continue;
        if (strcmp(table[i]->name, name) == 0) {
            *ret = table[i];
            return SN_OK;
        }
        snprintf(fitting + used, sizeof(fitting) - used, "%s%s", used > 0 ? ", " : "",
                 table[i]->name);
    }
    return sn_fail(SN_ENOTSUP,
                   "no algorithm \"%s\" for %s%s of %s among %d members on %d hosts; there is %s",
                   name, c->deterministic && algo_reduces(c->op) ? "deterministic " : "",
                   sn_coll_op_name(c->op), sn_dtype_name(c->dtype), s->members, s->hosts, fitting);
}

static sn_status sensible(const sn_algo_group *g, const sn_algo_call *c)
{
    bool rooted = c->op == SN_BROADCAST || c->op == SN_GATHER || c->op == SN_SCATTER;
    if ((unsigned) c->op >= SN_COLL_OPS || c->count < 0 || g->members < 1)
        return sn_fail(SN_EINVAL, "%s of %lld elements among %d members", sn_coll_op_name(c->op),
                       (long long) c->count, g->members);
    if (rooted && (c->root < 0 || c->root >= g->members))
        return sn_fail(SN_EINVAL, "%s with root %d among %d members", sn_coll_op_name(c->op),
                       c->root, g->members);
    return SN_OK;
}

sn_status sn_algo_choose(const sn_algo_group *g, const sn_algo_call *c, const sn_algo_model *m,
                         const char *name, const sn_algo_row **ret, double *ret_cost_ns)
{
    const sn_algo_row *best = NULL;
    double best_ns = 0;
    SN_TRY(sensible(g, c));
    algo_shape s = algo_shape_of(g);
    algo_counts price = algo_prices(m);
    if (name != NULL) {
        SN_TRY(forced(&s, g, c, name, &best));
        best_ns = cost_ns(best, &s, g, c, m, &price);
    }
    for (size_t i = 0; i < SN_COUNT(table) && name == NULL; i++) {
        if (!choosable(table[i], &s, g, c))
            continue;
        double ns = cost_ns(table[i], &s, g, c, m, &price);
        if (best == NULL || ns < best_ns) {
            best = table[i];
            best_ns = ns;
        }
    }
    /* flat fits one host, hierarchical any other group; in order: flat and ordered */
    SN_ASSERT(best != NULL);
    *ret = best;
    if (ret_cost_ns != NULL)
        *ret_cost_ns = best_ns;
    return SN_OK;
}
