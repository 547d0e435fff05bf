/* SPDX-License-Identifier: Apache-2.0
 *
 * mesh — is the group a mesh in the topology? Where hosts (or their switches) are cabled as a torus
 * or a grid, the members' order may run along the cables: then the lengths of its dimensions tell
 * the algorithm for tori which ways there are.
 *
 * Tried are all ways to write the number of hosts as a product of two or more; it is a mesh when
 * all neighbours along every dimension are as near as hosts can be, and a diagonal is longer (under
 * one switch all hosts are near). The most dimensions win. */
#include "coll/coll_private.h"

#include <stdlib.h>
#include <string.h>

typedef struct search {
    const sn_topo *topo;
    const int *card; /* [hosts] one of each host, in group order */
    int hosts;
    int near; /* links between two hosts at least */
    int dims, dim[COLL_DIMS];
    int best, best_dim[COLL_DIMS];
} search;

/* Links between hosts a and b; many when they are not connected. */
static int distance(const search *s, int a, int b)
{
    sn_path path;
    bool joined = sn_topo_path(s->topo, s->card[a], s->card[b], &path) == SN_OK;
    return joined ? path.links : SN_PATH_LINKS + 1;
}

static int nearest(const search *s)
{
    int near = SN_PATH_LINKS;
    for (int i = 1; i < s->hosts; i++)
        near = SN_MIN(near, distance(s, 0, i));
    return near;
}

/* Along the dimension whose neighbours are `stride` apart. */
static bool cabled(const search *s, int stride, int length)
{
    for (int i = 0; i < s->hosts; i++)
        if (i / stride % length + 1 < length && distance(s, i, i + stride) > s->near)
            return false;
    return true;
}

/* The dimensions so far leave `rest` hosts for the outer ones. */
static void extend(search *s, int stride, int rest)
{
    bool found = rest == 1 && s->dims >= 2 && distance(s, 0, 1 + s->dim[0]) > s->near;
    if (found && s->dims > s->best) {
        s->best = s->dims;
        memcpy(s->best_dim, s->dim, sizeof(s->dim));
    }
    for (int n = 2; n <= rest && s->dims < COLL_DIMS - 1; n++) {
        if (rest % n != 0 || !cabled(s, stride, n))
            continue;
        s->dim[s->dims++] = n;
        extend(s, stride * n, rest / n);
        s->dims--;
    }
}

/* How many members each host has, one host after the other; 0 when it is not so. */
static int per_host(const sn_coll_group *g)
{
    int each = 1;
    while (each < g->size && g->member[each].host == g->member[0].host)
        each++;
    if (g->size % each != 0)
        return 0;
    for (int i = 0; i < g->size; i++)
        for (int k = 0; k < g->size; k += each) /* its host is its block's and nobody else's */
            if ((i / each == k / each) != (g->member[i].host == g->member[k].host))
                return 0;
    return each;
}

int coll_mesh_find(const sn_coll_group *g, int ret_dim[COLL_DIMS])
{
    search s = {.topo = g->coll->topo};
    int each = per_host(g);
    if (s.topo == NULL || each == 0 || g->size / each < 4)
        return 0;
    int *card = sn_alloc((size_t) g->size * sizeof(int));
    s.card = card;
    s.hosts = g->size / each;
    bool known = true;
    for (int i = 0; i < s.hosts; i++) {
        card[i] = g->member[i * each].rank;
        known = known && card[i] < s.topo->cards;
    }
    if (known) {
        s.near = nearest(&s);
        extend(&s, 1, s.hosts);
    }
    free(card);
    for (int i = 0; i < s.best; i++) /* the search goes from the inside out */
        ret_dim[i] = s.best_dim[s.best - 1 - i];
    if (s.best > 0 && each > 1)
        ret_dim[s.best++] = each;
    return s.best;
}
