/* SPDX-License-Identifier: Apache-2.0 */
#include "algo/build.h"

#include <string.h>

static const char *const op_name[SN_COLL_OPS] = {"all_reduce", "reduce_scatter", "all_gather",
                                                 "broadcast",  "all_to_all",     "gather",
                                                 "scatter",    "barrier"};

const char *sn_coll_op_name(sn_coll_op op)
{
    return (unsigned) op < SN_COLL_OPS ? op_name[op] : "?";
}

/* ---- the table: one row an algorithm; on equal cost the first one wins ---- */

static const sn_algo_row *const table[] = {&algo_flat,     &algo_hierarchical, &algo_ring,
                                           &algo_doubling, &algo_rabenseifner, &algo_double_tree,
                                           &algo_torus,    &algo_binomial};

int sn_algo_rows(const sn_algo_row *const **ret)
{
    *ret = table;
    return (int) SN_COUNT(table);
}

bool sn_algo_fits(const sn_algo_row *row, const sn_algo_group *g, const sn_algo_call *c)
{
    bool ordered = !c->deterministic || !algo_reduces(c->op) || (row->ordered >> c->op & 1) != 0;
    return (row->ops >> c->op & 1) != 0 && ordered && row->fits(g, c);
}

double sn_algo_cost_ns(const sn_algo_row *row, const sn_algo_group *g, const sn_algo_call *c,
                       const sn_algo_model *m)
{
    return row->cost_ns(g, c, m);
}

/* Calls so small need no staging and no closing round; whoever asks with one whether to stage (coll
 * does) must not be told to stage that. */
static bool choosable(const sn_algo_row *row, const sn_algo_group *g, const sn_algo_call *c)
{
    bool small = c->op == SN_ALL_REDUCE && 2 * algo_bytes(c) <= SN_ALGO_NOTE_BYTES;
    return sn_algo_fits(row, g, c) && (row->notes || !small);
}

static sn_status forced(const sn_algo_group *g, const sn_algo_call *c, const char *name,
                        const sn_algo_row **ret)
{
    char fitting[256] = "";
    for (size_t i = 0; i < SN_COUNT(table); i++) {
        if (!sn_algo_fits(table[i], g, c))
            continue;
        if (strcmp(table[i]->name, name) == 0) {
            *ret = table[i];
            return SN_OK;
        }
        if (fitting[0] != '\0')
            strcat(fitting, ", ");
        strcat(fitting, table[i]->name);
    }
    return sn_fail(
        SN_ENOTSUP, "no algorithm \"%s\" for %s of %s among %d members on %d hosts; there is %s",
        name, sn_coll_op_name(c->op), sn_dtype_name(c->dtype), g->members, algo_hosts(g), fitting);
}

sn_status sn_algo_choose(const sn_algo_group *g, const sn_algo_call *c, const sn_algo_model *m,
                         const char *name, const sn_algo_row **ret, double *ret_cost_ns)
{
    if ((unsigned) c->op >= SN_COLL_OPS || c->count < 0 || g->members < 1)
        return sn_fail(SN_EINVAL, "%s of %lld elements among %d members", sn_coll_op_name(c->op),
                       (long long) c->count, g->members);
    const sn_algo_row *best = NULL;
    bool rooted = c->op == SN_BROADCAST || c->op == SN_GATHER || c->op == SN_SCATTER;
    double best_ns = 0;
    if (rooted && (c->root < 0 || c->root >= g->members))
        return sn_fail(SN_EINVAL, "%s from root %d among %d members", sn_coll_op_name(c->op),
                       c->root, g->members);
    if (name != NULL) {
        SN_TRY(forced(g, c, name, &best));
        best_ns = sn_algo_cost_ns(best, g, c, m);
    }
    for (size_t i = 0; i < SN_COUNT(table) && name == NULL; i++) {
        if (!choosable(table[i], g, c))
            continue;
        double ns = sn_algo_cost_ns(table[i], g, c, m);
        if (best == NULL || ns < best_ns) {
            best = table[i];
            best_ns = ns;
        }
    }
    if (best == NULL) /* flat fits one host, hierarchical any other group: but not in order */
        return sn_fail(SN_ENOTSUP,
                       "no algorithm for a deterministic %s among %d members on %d hosts: they are "
                       "on one host, or deterministic is off",
                       sn_coll_op_name(c->op), g->members, algo_hosts(g));
    *ret = best;
    if (ret_cost_ns != NULL)
        *ret_cost_ns = best_ns;
    return SN_OK;
}
