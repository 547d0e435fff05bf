/* SPDX-License-Identifier: Apache-2.0
 *
 * group — a group's life: who is in it, its block of shared memory and its stage, its end. What its
 * members agree on is meet.c's. */
#include "coll/coll_private.h"

#include <stdlib.h>
#include <string.h>

/* ---- blocks ---- */

/* May this member read my block still? One that has not finished what I have, or that has yet to
 * learn why I gave up; maybe it does not even know yet that the group is made. */
static bool reads_on(const sn_coll_group *g, const coll_member *m)
{
    const coll_block *b = m->block;
    uint32_t port = b != NULL ? __atomic_load_n(&b->port, __ATOMIC_ACQUIRE) : UINT32_MAX;
    if (port > m->port || __atomic_load_n(&b->before, __ATOMIC_ACQUIRE) >= m->port)
        return false;
    if (port < m->port)
        return g->posted > 0 || g->broken < 0;
    if (__atomic_load_n(&b->left, __ATOMIC_ACQUIRE) != 0)
        return false;
    return g->broken < 0 ? coll_load(&b->failed_seq) == 0 : coll_load(&b->done_seq) < g->posted;
}

static bool left_alone(const sn_coll_group *g)
{
    for (int i = 0; i < g->locals; i++)
        if (reads_on(g, &g->member[g->local[i]]))
            return false;
    return true;
}

/* Messages of a broken group may be under way still; their buffers are the caller's until close. */
static bool drained(sn_coll_group *g)
{
    bool all = true, late = g->coll->nets > 0 && sn_now() > g->retired + COLL_LATE;
    for (int i = 0; i < COLL_WINDOW && g->broken < 0; i++)
        all = coll_window_drain(g, &g->window[i], late) && all;
    return all;
}

static void block_give(sn_coll_group *g)
{
    if (g->block == NULL)
        return;
    g->coll->block_used[g->block_index] = false;
    g->coll->blocks_used--;
    g->block = NULL;
}

static void destroy(sn_coll_group *g)
{
    block_give(g);
    coll_stage_give(g);
    for (int i = 0; i < COLL_PLANS; i++)
        sn_arena_free(g->plan[i].arena);
    for (int i = 0; i < COLL_WINDOW; i++) {
        coll_window_cancel(g, &g->window[i]);
        for (int k = 0; k < COLL_LANES; k++) {
            free(g->window[i].run[k].transfer);
            free(g->window[i].run[k].tmp);
            free(g->window[i].run[k].wide);
        }
        free(g->window[i].partner);
    }
    free(g->member);
    free(g->local);
    free(g->partner_member);
    free((void *) (uintptr_t) g->algo.host);
    free(g->dst_ptr);
    free(g->src_ptr);
    free(g->dst_wide);
    free(g->src_wide);
    free(g->req);
    free(g->name);
    free(g);
}

void coll_groups_sweep(sn_coll *c, bool all)
{
    for (sn_coll_group **at = &c->retired; *at != NULL;) {
        sn_coll_group *g = *at;
        if (g->block != NULL && left_alone(g))
            block_give(g);
        if (all || (drained(g) && g->block == NULL)) {
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
        c->blocks_used++;
        g->block_index = i;
        g->block = &c->blocks[i];
        g->member[g->me].port = c->next_port++;
        uint32_t before = SN_MAX(g->block->port, g->block->before);
        __atomic_store_n(&g->block->before, before, __ATOMIC_SEQ_CST);
        memset(g->block, 0, offsetof(coll_block, before));
        coll_stage_take(g);
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
        m->local = local;
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

/* Members of member i's host before it, and all of them. */
static int place_on_host(const sn_coll_group *g, int i, int *ret_of)
{
    int before = 0, of = 0;
    for (int k = 0; k < g->size; k++) {
        bool same = g->member[k].host == g->member[i].host;
        before += same && k < i;
        of += same;
    }
    *ret_of = of;
    return before;
}

/* My partners: on each other host those with my place there, counted modulo the smaller of the two
 * hosts. So every member has one on every other host, and learns of any difference. */
static void find_partners(sn_coll_group *g)
{
    int mine_of, mine = place_on_host(g, g->me, &mine_of);
    for (int i = 0; i < g->size; i++) {
        int of, place = place_on_host(g, i, &of), least = SN_MIN(of, mine_of);
        if (g->member[i].host != g->member[g->me].host && place % least == mine % least)
            g->partner_member[g->partners++] = i;
    }
}

static void window_new(sn_coll_group *g, coll_window *w)
{
    size_t steps = 4 * (size_t) g->size + 8; /* as many between two fences */
    bool one_host = g->locals == g->size - 1;
    for (int k = 0; k < COLL_LANES; k++) {
        w->run[k].lane = k;
        w->run[k].transfer = one_host ? NULL : sn_alloc(steps * sizeof(coll_transfer));
    }
    w->partner = sn_alloc((size_t) (g->partners + 1) * sizeof(coll_partner));
    for (int k = 0; k < g->partners; k++)
        w->partner[k].member = g->partner_member[k];
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
    g->partner_member = sn_alloc(size * sizeof(int));
    g->dst_ptr = sn_alloc((size + 1) * sizeof(void *));
    g->src_ptr = sn_alloc((size + 1) * sizeof(void *));
    g->dst_wide = sn_alloc(size + 1);
    g->src_wide = sn_alloc(size + 1);
    find_members(g, members);
    find_partners(g);
    for (int i = 0; i < COLL_WINDOW; i++)
        window_new(g, &g->window[i]);
    g->req = sn_alloc(COLL_REQS * sizeof(sn_coll_req));
    for (int i = COLL_REQS - 1; i >= 0; i--) {
        g->req[i].group = g;
        g->req[i].next = g->free;
        g->free = &g->req[i];
    }
    return g;
}

/* ---- the calls ---- */

static sn_status create(sn_coll *c, const char *name, const int *members, int n, sn_time deadline,
                        sn_coll_group **ret)
{
    SN_TRY(check_members(c, name, members, n));
    sn_coll_group *g = group_new(c, name, members, n);
    sn_status status = take_block(g);
    if (status == SN_OK)
        status = coll_meet(g, members, deadline);
    if (status < 0) {
        destroy(g);
        return status;
    }
    g->recorded = sn_recorder_group(c->recorder, g->id, name, members, n, g->me);
    g->next = c->groups;
    c->groups = g;
    coll_news_of(g);
    *ret = g;
    return SN_OK;
}

sn_status sn_coll_group_create(sn_coll *c, const char *name, const int *members, int n,
                               sn_time deadline, sn_coll_group **ret)
{
    coll_lock(c);
    sn_status status = create(c, name, members, n, deadline, ret);
    coll_unlock(c);
    return status;
}

static void drop_requests(sn_coll_group *g)
{
    sn_coll *c = g->coll;
    for (sn_coll_req **at = &c->active; *at != NULL;) {
        sn_coll_req *r = *at;
        if (r->group == g) {
            *at = r->next;
            sn_recorder_end(c->recorder, r->record, SN_ECANCEL);
        } else {
            at = &r->next;
        }
    }
}

static void retire(sn_coll_group *g)
{
    sn_coll *c = g->coll;
    sn_coll_group **at = &c->groups;
    while (*at != g)
        at = &(*at)->next;
    *at = g->next;
    drop_requests(g);
    sn_recorder_group_left(c->recorder, g->recorded);
    for (int i = 0; i < COLL_WINDOW && !coll_job_over(g->broken); i++)
        coll_window_cancel(g, &g->window[i]);
    coll_stage_give(g);
    __atomic_store_n(&g->block->left, 1, __ATOMIC_SEQ_CST);
    coll_ring_members(g);
    g->retired = sn_now();
    g->next = c->retired;
    c->retired = g;
}

void sn_coll_group_free(sn_coll_group *g)
{
    if (g == NULL)
        return;
    sn_coll *c = g->coll;
    coll_lock(c);
    coll_aborts(c);
    retire(g);
    coll_unlock(c);
}

int sn_coll_group_size(const sn_coll_group *g)
{
    return g->size;
}

int sn_coll_group_me(const sn_coll_group *g)
{
    return g->me;
}
