/* SPDX-License-Identifier: Apache-2.0
 *
 * group — the sub-groups of a group: one for each stage, so that each has an order of its own. */
#include "compress/compress_private.h"

#include <stdlib.h>
#include <string.h>

static sn_status make(sn_compress_group *g, int stage, const char *what, const int *ranks, int n,
                      sn_time deadline)
{
    sn_str name = {0};
    if (n < 2)
        return SN_OK;
    sn_str_printf(&name, "%s %s", g->name, what);
    sn_status status =
        sn_coll_group_create(g->coll, sn_str_get(&name), ranks, n, deadline, &g->stage[stage]);
    sn_str_done(&name);
    return status;
}

/* The relays with my place on each host. Where hosts differ the further relays serve PowerSGD
 * alone. */
static int lane_of(const compress_map *m, const int *members, int *ranks)
{
    int n = 0, place = m->local[m->me];
    for (int h = 0; place < m->relays && h < m->hosts; h++)
        ranks[n++] = members[m->member[h * m->most + place]];
    return n;
}

static sn_status make_all(sn_compress_group *g, const int *members, sn_time deadline)
{
    const compress_map *m = &g->map;
    int home = m->host[m->me];
    int *mates = sn_alloc((size_t) m->n * sizeof(int)),
        *lane = sn_alloc((size_t) m->n * sizeof(int));
    int lanes = lane_of(m, members, lane);
    for (int i = 0; i < m->size[home]; i++)
        mates[i] = members[m->member[home * m->most + i]];
    sn_status status = make(g, STAGE_IN, "gathering in the host", mates, m->size[home], deadline);
    if (status >= 0)
        status = make(g, STAGE_LANE, "between hosts", lane, lanes, deadline);
    if (status >= 0)
        status = make(g, STAGE_LANE2, "between hosts again", lane, lanes, deadline);
    if (status >= 0)
        status = make(g, STAGE_OUT, "spreading in the host", mates, m->size[home], deadline);
    free(mates);
    free(lane);
    return status;
}

sn_status sn_compress_group_create(sn_coll *c, sn_coll_group *all, const char *name,
                                   const int *members, const int *host, int n, sn_time deadline,
                                   sn_compress_group **ret)
{
    if (n != sn_coll_group_size(all))
        return sn_fail(SN_EINVAL, "compression over %d members of group %s, which has %d", n, name,
                       sn_coll_group_size(all));
    sn_compress_group *g = sn_alloc(sizeof(*g));
    g->coll = c;
    g->all = all;
    g->name = sn_strdup(name);
    compress_map_make(&g->map, host, n, sn_coll_group_me(all));
    for (int s = 0; s < STAGES; s++)
        g->turn[s] = 1;
    sn_status status = g->map.hosts > 1 ? make_all(g, members, deadline) : SN_OK;
    if (status < 0) {
        sn_compress_group_free(g);
        return status;
    }
    *ret = g;
    return SN_OK;
}

void sn_compress_group_free(sn_compress_group *g)
{
    if (!g)
        return;
    for (int s = 0; s < STAGES; s++)
        if (g->stage[s])
            sn_coll_group_free(g->stage[s]);
    compress_map_free(&g->map);
    free(g->name);
    free(g);
}

int sn_compress_group_hosts(const sn_compress_group *g)
{
    return g->map.hosts;
}

sn_compress_stats sn_compress_stats_get(const sn_compress_group *g)
{
    return g->stats;
}
