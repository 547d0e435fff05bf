/* SPDX-License-Identifier: Apache-2.0
 *
 * news — a failure of a group told to its members on other hosts, by parcels of net. Who fails
 * tells one member of each other host; that one writes it into its own block, where its host mates
 * find it, and tells the others in its turn.
 *
 * A parcel is taken inside any progress of net, so its function only notes it: operations from the
 * one that failed on find it when they look at their host mates. News of a group that is being made
 * here still are kept until it is. */
#include "coll/coll_private.h"

#include <stdio.h>
#include <string.h>

#define TRIES 100 /* to get a parcel: the last words are worth a little waiting, not more */

static void take(void *ctx, int from, const void *data, size_t bytes)
{
    sn_coll *c = ctx;
    coll_news n;
    if (bytes != sizeof(n))
        return;
    memcpy(&n, data, sizeof(n));
    n.text[sizeof(n.text) - 1] = '\0';
    if (n.status >= 0)
        return;
    for (sn_coll_group *g = c->groups; g != NULL; g = g->next) {
        if (g->member[g->me].port == n.port) {
            if (g->news.status == SN_OK)
                g->news = n;
            return;
        }
    }
    c->early[c->earlies++ % COLL_EARLY] = n;
}

void coll_news_of(sn_coll_group *g)
{
    sn_coll *c = g->coll;
    for (int i = 0; i < COLL_EARLY; i++)
        if (c->early[i].status < 0 && c->early[i].port == g->member[g->me].port)
            g->news = c->early[i];
}

sn_status coll_news_open(sn_coll *c)
{
    if (sn_net_hosts(c->net) == 1)
        return SN_OK;
    SN_TRY(sn_net_port_open(c->net, take, c, &c->news_port));
    return SN_OK;
}

void coll_news_close(sn_coll *c)
{
    if (c->news_port != 0)
        sn_net_port_close(c->net, c->news_port);
}

/* ---- telling ---- */

static void *parcel(sn_coll *c)
{
    void *p = NULL;
    for (int i = 0; i < TRIES && p == NULL; i++) {
        p = sn_net_parcel_take(c->net, false);
        if (p == NULL)
            sn_net_progress(c->net);
    }
    return p;
}

static void tell_one(sn_coll_group *g, const coll_member *m, uint64_t seq)
{
    sn_coll *c = g->coll;
    coll_news *n = m->news_port != 0 ? parcel(c) : NULL;
    if (n == NULL)
        return;
    *n = (coll_news){.seq = seq, .port = m->port, .status = g->broken};
    snprintf(n->text, sizeof(n->text), "%.239s", g->text);
    sn_net_parcel_send(c->net, m->rank, m->news_port, n, sizeof(*n)); /* who is dead needs none */
}

/* Which of a host's members I tell: the one with my place there, or what is left of it. */
static bool mine_to_tell(const sn_coll_group *g, int member, int my_place)
{
    int place = 0, size = 0, host = g->member[member].host;
    for (int i = 0; i < g->size; i++) {
        place += i < member && g->member[i].host == host;
        size += g->member[i].host == host;
    }
    return place == my_place % size;
}

void coll_news_tell(sn_coll_group *g, uint64_t seq)
{
    int my_host = g->member[g->me].host, place = 0;
    if (g->coll->news_port == 0 || g->broken == SN_EEPOCH || g->locals == g->size - 1)
        return;
    for (int i = 0; i < g->me; i++)
        place += g->member[i].host == my_host;
    for (int i = 0; i < g->size; i++)
        if (g->member[i].host != my_host && mine_to_tell(g, i, place))
            tell_one(g, &g->member[i], seq);
}

/* Nobody drives the net while a group waits for host mates only. */
void coll_news_listen(sn_coll *c)
{
    for (int i = 0; i < 8 && c->news_port != 0;
         i++) /* it looks at the sockets in one call of eight */
        sn_net_progress(c->net);
}
