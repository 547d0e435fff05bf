/* SPDX-License-Identifier: Apache-2.0
 *
 * meet — the exchange in which the members of a new group agree: everybody says hello to the lowest
 * rank, which compares and answers all with the verdict: the group's cost model, where
 * each one's block is and at which port it takes messages; or what is wrong.
 *
 * They are messages of coll's own kind, so other operations of this rank go on meanwhile, which
 * matters when several threads make and use groups at once. */
#include "coll/coll_private.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct hello { /* what a member says of itself */
    uint64_t name, members;
    uint64_t block_at; /* from the base of its part */
    uint32_t port, news_port;
    uint64_t image; /* bytes of its stage's images */
    sn_algo_model model;
} hello;

typedef struct place {
    uint64_t block_at;
    uint32_t port, news_port;
} place;

typedef struct verdict {
    int32_t status;
    uint32_t id; /* equal on all members */
    int32_t dims, dim[COLL_DIMS];
    uint32_t to; /* the port of the hello that it answers: not of one that was given up */
    uint64_t image;
    sn_algo_model model;
    char text[COLL_TEXT];
    place of[]; /* [members] in group order */
} verdict;

typedef struct making {
    uint32_t tag;
    sn_time deadline;
} making;

static size_t verdict_bytes(const sn_coll_group *g)
{
    return sizeof(verdict) + (size_t) g->size * sizeof(place);
}

static hello introduce(const sn_coll_group *g, const int *members)
{
    sn_coll *c = g->coll;
    hello h = {.name = sn_hash_bytes(g->name, strlen(g->name)),
               .members = sn_hash_bytes(members, (size_t) g->size * sizeof(int)),
               .block_at = (uint64_t) ((unsigned char *) g->block - c->base),
               .port = g->member[g->me].port,
               .news_port = c->news_port,
               .image = g->image};
    h.model = c->model != NULL ? sn_algo_model_for(c->model, c->topo, members, g->size)
                               : sn_algo_model_from(c->topo, members, g->size);
    return h;
}

/* Of the members, whatever their order: groups being made at once do not mix. Several threads may
 * make several of the same members; those have other names. (One thread cannot: there a name that
 * differs is told at once.) */
static uint32_t tag_of(const sn_coll_group *g)
{
    uint64_t sum = g->coll->threads ? sn_hash_bytes(g->name, strlen(g->name)) : 0;
    for (int i = 0; i < g->size; i++)
        sum += sn_hash64((uint64_t) g->member[i].rank, 1, 0);
    return (uint32_t) sn_hash64(sum, 2, 0);
}

/* One message, there or back; when all requests are in use, after one of them has ended. */
static sn_status pass(sn_coll_group *g, bool send, int rank, void *buf, size_t bytes,
                      const making *m)
{
    sn_coll_req *r;
    sn_status status;
    while ((status = coll_p2p_post(g->coll, send, rank, m->tag, g->name, buf, bytes, m->deadline,
                                   &r)) == SN_AGAIN) {
        if (sn_now() > m->deadline)
            return sn_fail(SN_ETIME, "making group %s: all requests are in use", g->name);
        coll_unlock(g->coll);
        sched_yield();
        coll_lock(g->coll);
        coll_progress(g->coll);
    }
    return status == SN_OK ? coll_wait(r) : status;
}

/* ---- the lowest rank ---- */

static sn_status compare(const sn_coll_group *g, const hello *of)
{
    const sn_coll *c = g->coll;
    for (int i = 0; i < g->size; i++) {
        const coll_member *m = &g->member[i];
        if (of[i].name != of[g->me].name || of[i].members != of[g->me].members)
            return sn_fail(SN_EMISMATCH,
                           "group %s: rank %d (%s) and rank %d (%s) make groups of another %s",
                           g->name, c->rank, sn_net_host_name(c->net, c->rank), m->rank,
                           sn_net_host_name(c->net, m->rank),
                           of[i].name != of[g->me].name ? "name" : "list of members");
    }
    return SN_OK;
}

/* The first failure; later hellos are waited for all the same, so that all can be answered. */
static sn_status hear(sn_coll_group *g, const making *m, hello *of, bool *came)
{
    sn_status first = SN_OK;
    char text[COLL_TEXT] = "";
    for (int i = 0; i < g->size; i++) {
        if (i == g->me)
            continue;
        sn_status status = pass(g, false, g->member[i].rank, &of[i], sizeof(hello), m);
        came[i] = status == SN_OK;
        if (status < 0 && first == SN_OK) {
            first = status;
            snprintf(text, sizeof(text), "%s", sn_errmsg());
        }
    }
    return first < 0 ? sn_fail(first, "%s", text) : SN_OK;
}

/* Answers to those that came; who has given up meanwhile takes none, and knows why. */
static void answer(sn_coll_group *g, const making *m, const hello *of, const bool *came, verdict *v)
{
    making late = {m->tag, SN_MAX(m->deadline, sn_now() + 100 * SN_MS)};
    for (int i = 0; i < g->size; i++) {
        if (!came[i])
            continue;
        v->to = of[i].port;
        pass(g, true, g->member[i].rank, v, verdict_bytes(g), &late);
    }
}

static void judge(const sn_coll_group *g, const hello *of, verdict *v)
{
    v->model = of[g->me].model;
    v->dims = coll_mesh_find(g, v->dim);
    v->image = of[g->me].image;
    v->id = of[g->me].port;
    for (int i = 0; i < g->size; i++) {
        v->image = SN_MIN(v->image, of[i].image);
        v->of[i] = (place){of[i].block_at, of[i].port, of[i].news_port};
    }
}

static sn_status preside(sn_coll_group *g, const hello *mine, const making *m, verdict *v)
{
    hello *of = sn_alloc((size_t) g->size * sizeof(hello));
    bool *came = sn_alloc((size_t) g->size * sizeof(bool));
    of[g->me] = *mine;
    sn_status status = hear(g, m, of, came);
    if (status == SN_OK)
        status = compare(g, of);
    if (status == SN_OK)
        judge(g, of, v);
    v->status = status;
    snprintf(v->text, sizeof(v->text), "%s", status < 0 ? sn_errmsg() : "");
    answer(g, m, of, came, v);
    free(came);
    free(of);
    return status < 0 ? sn_fail(status, "%s", v->text) : SN_OK;
}

/* ---- the others ---- */

static sn_status attend(sn_coll_group *g, int to, hello *mine, const making *m, verdict *v)
{
    SN_TRY(pass(g, true, to, mine, sizeof(*mine), m));
    do
        SN_TRY(pass(g, false, to, v, verdict_bytes(g), m));
    while (v->to != mine->port);
    return v->status < 0 ? sn_fail((sn_status) v->status, "%.479s", v->text) : SN_OK;
}

/* ---- both ---- */

static void adopt(sn_coll_group *g, const verdict *v)
{
    for (int i = 0; i < g->size; i++) {
        coll_member *m = &g->member[i];
        m->port = v->of[i].port;
        m->news_port = v->of[i].news_port;
        if (m->base != NULL)
            m->block = (coll_block *) (m->base + v->of[i].block_at);
    }
    g->id = v->id;
    g->image = (size_t) v->image;
    g->model = v->model;
    g->algo.model = &g->model;
    memcpy(g->dim, v->dim, sizeof(g->dim));
    g->algo.dim = v->dims > 0 ? g->dim : NULL;
    g->algo.dims = v->dims;
    /* From here on a peer may see it; what it would find before is port 0, nobody's. */
    __atomic_store_n(&g->block->port, g->member[g->me].port, __ATOMIC_RELEASE);
}

sn_status coll_meet(sn_coll_group *g, const int *members, sn_time deadline)
{
    verdict *v = sn_alloc(verdict_bytes(g));
    hello mine = introduce(g, members);
    making m = {tag_of(g), deadline};
    int lowest = members[0];
    for (int i = 1; i < g->size; i++)
        lowest = SN_MIN(lowest, members[i]);
    sn_status status =
        lowest == g->coll->rank ? preside(g, &mine, &m, v) : attend(g, lowest, &mine, &m, v);
    if (status == SN_OK)
        adopt(g, v);
    free(v);
    return status;
}
