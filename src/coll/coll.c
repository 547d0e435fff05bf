/* SPDX-License-Identifier: Apache-2.0
 *
 * coll — opening, the arena, and the list of active requests. */
#include "coll/coll_private.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define STAGE_DEFAULT (UINT64_C(4) << 20)
#define SLACK 65536 /* what alignment of the caller's allocations may take */
#define TEXT 480

/* Bytes of my part that are not the caller's; the layout of coll_private.h. */
static uint64_t reserve_bytes(const sn_coll *c)
{
    return (uint64_t) c->locals * sizeof(coll_ring) + COLL_BLOCKS * sizeof(coll_block) +
           (uint64_t) c->regions * COLL_REGION;
}

static void lay_out(sn_coll *c, unsigned char *reserve)
{
    c->ring = (coll_ring *) reserve;
    c->blocks = (coll_block *) (c->ring + c->locals);
    c->stage = (unsigned char *) (c->blocks + COLL_BLOCKS);
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
    c->req_text = sn_alloc(COLL_P2P_REQS * TEXT);
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

sn_status sn_coll_open(sn_net *net, const sn_coll_opts *opts, sn_coll **ret)
{
    uint64_t stage = opts->stage_bytes > 0 ? opts->stage_bytes : STAGE_DEFAULT;
    if (stage > INT_MAX || opts->arena_bytes > UINT64_MAX / 4)
        return sn_fail(SN_EINVAL, "an arena of %llu bytes with %llu for staging is too large",
                       (unsigned long long) opts->arena_bytes, (unsigned long long) stage);
    sn_coll *c = sn_alloc(sizeof(*c));
    c->net = net;
    c->topo = opts->topo;
    c->recorder = opts->recorder;
    c->kernels = sn_fold_kernels();
    c->rank = sn_net_rank(net);
    c->world = sn_net_world(net);
    c->next_group = 1;
    c->regions = SN_MAX(COLL_P2P_REGIONS + 1, (int) (stage / COLL_REGION));
    c->region_used = sn_alloc((size_t) c->regions * sizeof(bool));
    c->local_of = sn_alloc((size_t) c->world * sizeof(int));
    pool_init(c);
    coll_record_open(c);
    sn_status status = open_segment(c, opts);
    if (status < 0) {
        sn_coll_close(c);
        return sn_fail_in(status, "rank %d: open the collectives", sn_net_rank(net));
    }
    *ret = c;
    return SN_OK;
}

void sn_coll_close(sn_coll *c)
{
    if (c == NULL)
        return;
    coll_groups_sweep(c, true);
    for (int i = 0; i < c->orphans; i++)
        sn_net_cancel(c->net, c->orphan[i]);
    sn_gmem_free(c->seg);
    free(c->region_used);
    free(c->local_of);
    free(c->req_text);
    free(c->req);
    free(c);
}

sn_status sn_coll_alloc(sn_coll *c, uint64_t bytes, void **ret)
{
    return sn_gmem_alloc(c->seg, bytes, ret);
}

sn_coll_stats sn_coll_stats_get(const sn_coll *c)
{
    return c->stats;
}

/* ---- stage regions ---- */

unsigned char *coll_region_take(sn_coll *c, bool p2p, int *ret_index)
{
    int from = p2p ? 0 : COLL_P2P_REGIONS, to = p2p ? COLL_P2P_REGIONS : c->regions;
    for (int i = from; i < to; i++) {
        if (!c->region_used[i]) {
            c->region_used[i] = true;
            *ret_index = i;
            return c->stage + (size_t) i * COLL_REGION;
        }
    }
    return NULL;
}

void coll_region_give(sn_coll *c, int index)
{
    c->region_used[index] = false;
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
    if (r->record != 0)
        coll_record_end(r);
    if (status < 0 && r->group == NULL) {
        char *own = r->coll->req_text + (size_t) (r - r->coll->req) * TEXT;
        strncpy(own, text, TEXT - 1);
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

bool coll_progress(sn_coll *c)
{
    bool moved = false;
    for (sn_coll_req **at = &c->active; *at != NULL;) {
        sn_coll_req *r = *at;
        if (r->status == SN_PENDING)
            advance(r, &moved);
        if (r->status == SN_PENDING) {
            at = &r->next;
        } else {
            *at = r->next;
            r->listed = false;
        }
    }
    if (c->nets > 0 && !moved)
        sn_net_progress(c->net);
    return moved;
}

void coll_advance(sn_coll_req *r)
{
    bool moved = false;
    advance(r, &moved);
}
