/* SPDX-License-Identifier: Apache-2.0
 *
 * coll — opening, the arena, and the list of active requests. */
#include "coll/coll_private.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STAGE_DEFAULT (UINT64_C(6) << 20)
#define SLACK 65536 /* what alignment of the caller's allocations may take */

/* Bytes of my part that are not the caller's; the layout of coll_private.h. */
static uint64_t reserve_bytes(const sn_coll *c)
{
    return (uint64_t) c->locals * sizeof(coll_ring) + COLL_BLOCKS * sizeof(coll_block) +
           COLL_REGIONS * COLL_REGION + (uint64_t) c->units * COLL_STAGE_MIN;
}

static void lay_out(sn_coll *c, unsigned char *reserve)
{
    c->ring = (coll_ring *) reserve;
    c->blocks = (coll_block *) (c->ring + c->locals);
    c->mail_regions = (unsigned char *) (c->blocks + COLL_BLOCKS);
    c->pool = c->mail_regions + COLL_REGIONS * COLL_REGION;
}

static void find_locals(sn_coll *c, int *members)
{
    for (int r = 0; r < c->world; r++) {
        bool here = r == c->rank || sn_net_same_host(c->net, r);
        c->local_of[r] = here ? c->locals : -1;
        if (here)
            members[c->locals++] = r;
    }
}

static void pool_init(sn_coll *c)
{
    c->req = sn_alloc(COLL_P2P_REQS * sizeof(sn_coll_req));
    c->req_text = sn_alloc(COLL_P2P_REQS * COLL_TEXT);
    for (int i = COLL_P2P_REQS - 1; i >= 0; i--) {
        c->req[i].next = c->free;
        c->free = &c->req[i];
    }
}

static sn_status open_segment(sn_coll *c, const sn_coll_opts *opts)
{
    int *members = sn_alloc((size_t) c->world * sizeof(int));
    find_locals(c, members);
    uint64_t bytes = reserve_bytes(c) + opts->arena_bytes + SLACK;
    sn_status status = sn_gmem_create(c->net, members, c->locals, bytes, opts->deadline, &c->seg);
    free(members);
    SN_TRY(status);
    c->me_local = c->local_of[c->rank];
    c->crowded = c->locals > sn_cores() ||
                 (c->topo != NULL && c->rank < c->topo->cards &&
                  sn_topo_sharers(c->topo, c->rank, SN_MIN(c->world, c->topo->cards)) > 1);
    c->base = sn_gmem_base(c->seg, c->me_local);
    c->bell = sn_gmem_head(c->seg, c->me_local);
    void *reserve;
    SN_TRY(sn_gmem_alloc(c->seg, reserve_bytes(c), &reserve));
    lay_out(c, reserve);
    return SN_OK;
}

typedef struct outcome { /* how opening went on a rank */
    int32_t status;
    char text[500];
} outcome;

/* All open or none does: a host that lacks memory is everybody's failure, with its sentence. */
static sn_status agree(sn_coll *c, sn_status status, sn_time deadline)
{
    outcome mine = {.status = status}, *all = sn_alloc((size_t) c->world * sizeof(*all));
    int *members = sn_alloc((size_t) c->world * sizeof(int));
    if (status < 0)
        snprintf(mine.text, sizeof(mine.text), "%s", sn_errmsg());
    for (int r = 0; r < c->world; r++)
        members[r] = r;
    sn_status gathered =
        sn_net_gather(c->net, members, c->world, &mine, sizeof(mine), deadline, all);
    for (int r = 0; r < c->world && status == SN_OK && gathered == SN_OK; r++) {
        if (all[r].status < 0)
            status = sn_fail((sn_status) all[r].status, "%.*s", (int) sizeof(all[r].text) - 1,
                             all[r].text);
    }
    if (mine.status < 0) /* what the gather said matters less */
        sn_fail(status, "%s", mine.text);
    free(members);
    free(all);
    return status < 0 ? status : gathered;
}

sn_status sn_coll_open(sn_net *net, const sn_coll_opts *opts, sn_coll **ret)
{
    uint64_t stage = opts->stage_bytes > 0 ? opts->stage_bytes : STAGE_DEFAULT;
    if (stage > INT_MAX || opts->arena_bytes > UINT64_MAX / 4)
        return sn_fail(SN_EINVAL, "an arena of %llu bytes with %llu for staging is too large",
                       (unsigned long long) opts->arena_bytes, (unsigned long long) stage);
    sn_coll *c = sn_alloc(sizeof(*c));
    c->net = net;
    c->topo = opts->topo;
    c->model = opts->model;
    c->urgent = INT_MIN;
    c->recorder = opts->recorder;
    c->kernels = sn_fold_kernels();
    c->rank = sn_net_rank(net);
    c->world = sn_net_world(net);
    c->next_port = 1;
    c->units = COLL_BLOCKS + (int) (stage / COLL_STAGE_MIN);
    c->units_free = c->units;
    c->unit_used = sn_alloc((size_t) c->units * sizeof(bool));
    c->local_of = sn_alloc((size_t) c->world * sizeof(int));
    pool_init(c);
    coll_record_open(c);
    sn_status status = opts->threads ? coll_threads_open(c) : SN_OK;
    if (status == SN_OK)
        status = open_segment(c, opts);
    if (sn_net_hosts(net) > 1)
        status = agree(c, status, opts->deadline);
    if (status == SN_OK)
        status = coll_news_open(c);
    if (status < 0) {
        sn_coll_close(c);
        return sn_fail_in(status, "rank %d: open the collectives", sn_net_rank(net));
    }
    *ret = c;
    return SN_OK;
}

/* Whoever waits for me learns that I have left. */
static void say_closed(sn_coll *c)
{
    if (c->bell == NULL)
        return;
    __atomic_store_n(&c->bell->closed, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < c->locals; i++)
        coll_ring_bell(sn_gmem_head(c->seg, i));
}

void sn_coll_close(sn_coll *c)
{
    if (c == NULL)
        return;
    say_closed(c);
    coll_news_close(c);
    coll_groups_sweep(c, true);
    for (int i = 0; i < c->orphans; i++)
        sn_net_cancel(c->net, c->orphan[i]);
    for (int i = 0; i < c->uses; i++)
        free(c->use[i].base);
    sn_gmem_free(c->seg);
    coll_threads_close(c);
    free(c->unit_used);
    free(c->local_of);
    free(c->req_text);
    free(c->req);
    free(c);
}

sn_status sn_coll_alloc(sn_coll *c, uint64_t bytes, void **ret)
{
    coll_lock(c);
    sn_status status = sn_gmem_alloc(c->seg, bytes, ret);
    coll_unlock(c);
    return status;
}

sn_status sn_coll_use(sn_coll *c, const sn_segment *segment)
{
    if (c->uses == COLL_USES)
        return sn_fail(SN_EFIT, "rank %d: the collectives know %d more segments already", c->rank,
                       COLL_USES);
    coll_use u = {.seg = segment, .base = sn_alloc((size_t) c->locals * sizeof(void *))};
    for (int i = 0; i < sn_gmem_members(segment); i++) {
        int local = c->local_of[sn_gmem_rank(segment, i)];
        if (local >= 0)
            u.base[local] = sn_gmem_base(segment, i);
    }
    coll_lock(c);
    c->use[c->uses++] = u;
    coll_unlock(c);
    return SN_OK;
}

sn_coll_stats sn_coll_stats_get(const sn_coll *c)
{
    sn_coll *mine = (sn_coll *) (uintptr_t) c; /* only its lock changes */
    coll_lock(mine);
    sn_coll_stats stats = c->stats;
    coll_unlock(mine);
    return stats;
}

/* ---- active requests ---- */

void coll_activate(sn_coll *c, sn_coll_req *r)
{
    sn_coll_req **at = &c->active;
    while (*at != NULL && (*at)->priority >= r->priority)
        at = &(*at)->next;
    r->next = *at;
    *at = r;
    r->listed = true;
}

static void unlist(sn_coll_req *r)
{
    sn_coll_req **at = &r->coll->active;
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    r->listed = false;
}

void coll_give_back(sn_coll_req *r)
{
    sn_coll_req **pool = r->group != NULL ? &r->group->free : &r->coll->free;
    if (r->listed)
        unlist(r);
    r->next = *pool;
    *pool = r;
}

/* The group's text serves all of its requests; a point-to-point request has its own. */
void coll_end(sn_coll_req *r, sn_status status, const char *text)
{
    r->status = status;
    r->text = text;
    coll_wake_sleepers(r->coll);
    if (r->record != 0)
        coll_record_end(r);
    if (status < 0 && r->group == NULL) {
        char *own = r->coll->req_text + (size_t) (r - r->coll->req) * COLL_TEXT;
        strncpy(own, text, COLL_TEXT - 1);
        r->text = own;
    }
}

static void advance(sn_coll_req *r, bool *moved)
{
    bool group = r->kind == COLL_REQ_GROUP;
    sn_status status = group ? coll_op_advance(r, moved) : coll_p2p_advance(r, moved);
    if (status == SN_PENDING)
        return;
    *moved = true;
    if (status < 0 && status != SN_EMISMATCH) {
        char what[200];
        sn_fail_in(status, "rank %d (%s): %s", r->coll->rank,
                   sn_net_host_name(r->coll->net, r->coll->rank), coll_req_text(r, what));
    }
    if (group && status < 0)
        coll_op_fail(r, status);
    else
        coll_end(r, status, status < 0 ? sn_errmsg() : "");
}

/* The list goes by priority, so what has been sending before is more urgent. */
static void note_urgent(sn_coll *c, const sn_coll_req *r)
{
    if (c->nets > 0 && r->priority > c->urgent && coll_transfers_sending(r))
        c->urgent = r->priority;
}

bool coll_progress(sn_coll *c)
{
    bool moved = false;
    coll_aborts(c);
    for (sn_coll_req **at = &c->active; *at != NULL;) {
        sn_coll_req *r = *at;
        if (r->status == SN_PENDING)
            advance(r, &moved);
        if (r->status == SN_PENDING) {
            note_urgent(c, r);
            at = &r->next;
        } else {
            *at = r->next;
            r->listed = false;
        }
    }
    c->urgent = INT_MIN;
    if (c->nets > 0 && !moved)
        sn_net_progress(c->net);
    return moved;
}

void coll_advance(sn_coll_req *r)
{
    bool moved = false;
    advance(r, &moved);
}
