/* SPDX-License-Identifier: Apache-2.0
 *
 * group — making a group: one exchange among its members, in which they agree on its number, its
 * cost model (the first member's) and where each one's block is. */
#include "coll/coll_private.h"

#include <stdlib.h>
#include <string.h>

typedef struct hello { /* what a member says of itself */
    uint64_t name, members;
    uint64_t block_at; /* from the base of its part */
    uint32_t next_group;
    sn_algo_model model;
} hello;

/* ---- blocks ---- */

/* A member that still reads a block of mine is one that has not finished what I have. */
static bool left_alone(const sn_coll_group *g)
{
    for (int i = 0; i < g->locals; i++) {
        const coll_block *b = g->member[g->local[i]].block;
        if (__atomic_load_n(&b->group, __ATOMIC_ACQUIRE) == g->id &&
            coll_load(&b->done_seq) < g->posted)
            return false;
    }
    return true;
}

static void destroy(sn_coll_group *g)
{
    if (g->block != NULL)
        g->coll->block_used[g->block_index] = false;
    for (int i = 0; i < COLL_PLANS; i++)
        sn_arena_free(g->plan[i].arena);
    for (int i = 0; i < COLL_WINDOW; i++) {
        coll_window_cancel(g, &g->window[i]);
        free(g->window[i].net);
        free(g->window[i].net_member);
        free(g->window[i].lane);
        free(g->tmp[i]);
    }
    free(g->member);
    free(g->local);
    free(g->lane_member);
    free((void *) (uintptr_t) g->algo.host);
    free(g->dst_ptr);
    free(g->src_ptr);
    free(g->req);
    free(g->name);
    free(g);
}

void coll_groups_sweep(sn_coll *c, bool all)
{
    for (sn_coll_group **at = &c->retired; *at != NULL;) {
        sn_coll_group *g = *at;
        if (all || left_alone(g)) {
            *at = g->next;
            destroy(g);
        } else {
            at = &g->next;
        }
    }
}

static sn_status take_block(sn_coll_group *g)
{
    sn_coll *c = g->coll;
    coll_groups_sweep(c, false);
    for (int i = 0; i < COLL_BLOCKS; i++) {
        if (c->block_used[i])
            continue;
        c->block_used[i] = true;
        g->block_index = i;
        g->block = &c->blocks[i];
        memset(g->block, 0, sizeof(*g->block));
        return SN_OK;
    }
    return sn_fail(SN_EFIT, "group %s: there are %d groups already; free some", g->name,
                   COLL_BLOCKS);
}

/* ---- shape ---- */

static sn_status check_members(const sn_coll *c, const char *name, const int *members, int n)
{
    bool me = false;
    if (n < 1)
        return sn_fail(SN_EINVAL, "group %s: %d members", name, n);
    for (int i = 0; i < n; i++) {
        if (members[i] < 0 || members[i] >= c->world)
            return sn_fail(SN_EINVAL, "group %s: no rank %d in a job of %d", name, members[i],
                           c->world);
        for (int k = 0; k < i; k++)
            if (members[k] == members[i])
                return sn_fail(SN_EINVAL, "group %s: rank %d is there twice", name, members[i]);
        me = me || members[i] == c->rank;
    }
    if (!me)
        return sn_fail(SN_EINVAL, "group %s: rank %d makes it but is not in it", name, c->rank);
    return SN_OK;
}

static void find_members(sn_coll_group *g, const int *members)
{
    sn_coll *c = g->coll;
    int *host = sn_alloc((size_t) g->size * sizeof(int));
    g->algo = (sn_algo_group){.members = g->size, .host = host};
    for (int i = 0; i < g->size; i++) {
        coll_member *m = &g->member[i];
        int local = c->local_of[members[i]];
        m->rank = members[i];
        m->host = host[i] = sn_net_host_index(c->net, members[i]);
        if (m->rank == c->rank)
            g->me = i;
        if (local < 0)
            continue;
        m->base = sn_gmem_base(c->seg, local);
        m->bell = sn_gmem_head(c->seg, local);
        if (m->rank != c->rank)
            g->local[g->locals++] = i;
    }
}

/* The place of member i among those of its host. */
static int place_on_host(const sn_coll_group *g, int i)
{
    int n = 0;
    for (int k = 0; k < i; k++)
        n += g->member[k].host == g->member[i].host;
    return n;
}

/* My lane partners: the members with my place on their hosts, if every host has that place. */
static void find_lanes(sn_coll_group *g)
{
    int mine = place_on_host(g, g->me), hosts = 0;
    for (int i = 0; i < g->size; i++) {
        hosts += place_on_host(g, i) == 0;
        if (i != g->me && place_on_host(g, i) == mine)
            g->lane_member[g->lanes++] = i;
    }
    if (g->lanes < hosts - 1) /* some host has too few: my host's other members speak for me */
        g->lanes = 0;
}

static sn_coll_group *group_new(sn_coll *c, const char *name, const int *members, int n)
{
    sn_coll_group *g = sn_alloc(sizeof(*g));
    size_t size = (size_t) n;
    g->coll = c;
    g->name = sn_strdup(name);
    g->size = n;
    g->member = sn_alloc(size * sizeof(coll_member));
    g->local = sn_alloc(size * sizeof(int));
    g->lane_member = sn_alloc(size * sizeof(int));
    g->dst_ptr = sn_alloc((size + 1) * sizeof(void *));
    g->src_ptr = sn_alloc((size + 1) * sizeof(void *));
    find_members(g, members);
    find_lanes(g);
    for (int i = 0; i < COLL_WINDOW; i++) {
        coll_window *w = &g->window[i];
        w->net = sn_alloc((4 * size + 8) * sizeof(sn_net_req *));
        w->net_member = sn_alloc((4 * size + 8) * sizeof(int));
        w->lane = sn_alloc((size_t) (g->lanes + 1) * sizeof(coll_lane));
        for (int k = 0; k < g->lanes; k++)
            w->lane[k].member = g->lane_member[k];
    }
    g->req = sn_alloc(COLL_REQS * sizeof(sn_coll_req));
    for (int i = COLL_REQS - 1; i >= 0; i--) {
        g->req[i].group = g;
        g->req[i].next = g->free;
        g->free = &g->req[i];
    }
    return g;
}

/* ---- agreement ---- */

static hello introduce(const sn_coll_group *g, const int *members)
{
    return (hello){.name = sn_hash_bytes(g->name, strlen(g->name)),
                   .members = sn_hash_bytes(members, (size_t) g->size * sizeof(int)),
                   .block_at = (uint64_t) ((unsigned char *) g->block - g->coll->base),
                   .next_group = g->coll->next_group,
                   .model = sn_algo_model_from(g->coll->topo, members, g->size)};
}

static sn_status agree(sn_coll_group *g, const hello *of)
{
    sn_coll *c = g->coll;
    uint32_t id = 0;
    for (int i = 0; i < g->size; i++) {
        coll_member *m = &g->member[i];
        if (of[i].name != of[g->me].name || of[i].members != of[g->me].members)
            return sn_fail(SN_EMISMATCH,
                           "group %s: rank %d (%s) and rank %d (%s) make groups of another %s",
                           g->name, c->rank, sn_net_host_name(c->net, c->rank), m->rank,
                           sn_net_host_name(c->net, m->rank),
                           of[i].name != of[g->me].name ? "name" : "list of members");
        id = SN_MAX(id, of[i].next_group);
        if (m->base != NULL)
            m->block = (coll_block *) (m->base + of[i].block_at);
    }
    g->id = id;
    g->model = of[0].model;
    g->algo.model = &g->model;
    c->next_group = id + 1;
    /* From here on a peer may see it; what it would find before is group 0, nobody's. */
    __atomic_store_n(&g->block->group, id, __ATOMIC_RELEASE);
    return SN_OK;
}

static int by_rank(const void *a, const void *b)
{
    return *(const int *) a - *(const int *) b;
}

/* Everybody's hello in group order; net gathers in the order of the ranks. */
static sn_status gather(sn_coll_group *g, const int *members, sn_time deadline, hello *of)
{
    size_t n = (size_t) g->size;
    hello mine = introduce(g, members);
    hello *in = sn_alloc(n * sizeof(hello));
    int *sorted = sn_alloc(n * sizeof(int));
    memcpy(sorted, members, n * sizeof(int));
    qsort(sorted, n, sizeof(int), by_rank);
    in[0] = mine;
    sn_status status =
        n == 1 ? SN_OK
               : sn_net_gather(g->coll->net, sorted, g->size, &mine, sizeof(mine), deadline, in);
    for (int i = 0; i < g->size && status == SN_OK; i++) {
        int *at = bsearch(&members[i], sorted, n, sizeof(int), by_rank);
        of[i] = in[at - sorted];
    }
    free(sorted);
    free(in);
    return status;
}

static sn_status meet(sn_coll_group *g, const int *members, sn_time deadline)
{
    hello *of = sn_alloc((size_t) g->size * sizeof(hello));
    sn_status status = gather(g, members, deadline, of);
    if (status < 0)
        sn_fail_in(status, "group %s", g->name);
    else
        status = agree(g, of);
    free(of);
    return status;
}

sn_status sn_coll_group_create(sn_coll *c, const char *name, const int *members, int n,
                               sn_time deadline, sn_coll_group **ret)
{
    SN_TRY(check_members(c, name, members, n));
    sn_coll_group *g = group_new(c, name, members, n);
    sn_status status = take_block(g);
    if (status == SN_OK)
        status = meet(g, members, deadline);
    if (status < 0) {
        destroy(g);
        return status;
    }
    *ret = g;
    return SN_OK;
}

void sn_coll_group_free(sn_coll_group *g)
{
    if (g == NULL)
        return;
    sn_coll *c = g->coll;
    for (sn_coll_req **at = &c->active; *at != NULL;) {
        if ((*at)->group == g)
            *at = (*at)->next;
        else
            at = &(*at)->next;
    }
    for (int i = 0; i < COLL_WINDOW && !coll_job_over(g->broken); i++)
        coll_window_cancel(g, &g->window[i]);
    if (g->stage != NULL)
        coll_region_give(c, g->stage_index);
    g->stage = NULL;
    g->next = c->retired;
    c->retired = g;
}

int sn_coll_group_size(const sn_coll_group *g)
{
    return g->size;
}

int sn_coll_group_me(const sn_coll_group *g)
{
    return g->me;
}
