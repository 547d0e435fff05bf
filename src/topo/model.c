/* SPDX-License-Identifier: Apache-2.0
 * The arrays of a topology and how they grow. */
#include "topo/model.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void sn_topo_free(sn_topo *topo)
{
    if (!topo)
        return;
    sn_topo_changed(topo);
    sn_arena_free(topo->arena);
}

void sn_topo_changed(sn_topo *topo)
{
    topo_routes_free(topo->priv->routes);
    topo->priv->routes = NULL;
}

bool topo_name_char(char c)
{
    return c > ' ' && c < 0x7f && !strchr("/*[]{}\"'\\,#&<>", c);
}

const char *sn_topo_local_name(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash ? slash + 1 : name;
}

bool topo_name_counted(const char *name, size_t *ret_prefix, int *ret_number)
{
    size_t n = strlen(name), p = n;
    while (p && isdigit((unsigned char) name[p - 1]))
        p--;
    if (p == n || p == 0 || n - p > 9 || (name[p] == '0' && n - p > 1))
        return false;
    *ret_prefix = p;
    *ret_number = atoi(name + p);
    return true;
}

bool topo_name_follows(const char *a, const char *b)
{
    size_t pa, pb;
    int na, nb;
    a = sn_topo_local_name(a);
    b = sn_topo_local_name(b);
    return topo_name_counted(a, &pa, &na) && topo_name_counted(b, &pb, &nb) && pa == pb &&
           !strncmp(a, b, pa) && nb == na + 1;
}

static void clean(char *name)
{
    for (; *name; name++)
        if (!topo_name_char(*name))
            *name = '_';
}

static const char *word_copy(sn_topo *topo, const char *text)
{
    char *copy = sn_arena_str(topo->arena, text && *text ? text : "_");
    clean(copy);
    return copy;
}

/* A copy of `name`, "HOST/name" inside a host. */
static const char *name_copy(sn_topo *topo, int host, const char *name)
{
    const char *local = sn_topo_local_name(name);
    if (host < 0)
        return word_copy(topo, local);
    const char *owner = topo->host[host].name;
    char *copy = sn_arena_printf(topo->arena, "%s/%s", owner, *local ? local : "_");
    clean(copy + strlen(owner) + 1);
    return copy;
}

sn_topo *sn_topo_create(const char *name)
{
    sn_arena *arena = sn_arena_create();
    sn_topo *topo = SN_NEW(arena, sn_topo);
    topo->arena = arena;
    topo->priv = SN_NEW(arena, sn_topo_private);
    topo->name = word_copy(topo, name ? name : "cluster");
    return topo;
}

static int vertex_add(sn_topo *topo, sn_vertex_kind kind, int index)
{
    SN_ASSERT(topo->vertices < TOPO_VERTICES_MAX);
    topo->vertex =
        sn_arena_grow(topo->arena, topo->vertex, (size_t) topo->vertices,
                      (size_t) topo->vertices + 1, sizeof *topo->vertex, &topo->priv->vertices_cap);
    topo->vertex[topo->vertices] = (sn_topo_vertex){kind, index};
    sn_topo_changed(topo);
    return topo->vertices++;
}

/* Room for one more in topo's array `list`, counted by topo->`list`s. */
#define ROOM(list, count)                                                                          \
    (topo->list =                                                                                  \
         sn_arena_grow(topo->arena, topo->list, (size_t) topo->count, (size_t) topo->count + 1,    \
                       sizeof *topo->list, &topo->priv->count##_cap))

int sn_topo_add_host(sn_topo *topo, const char *name, int cores, uint64_t memory_bytes)
{
    ROOM(host, hosts);
    topo->host[topo->hosts] = (sn_topo_host){
        .name = name_copy(topo, -1, name),
        .cores = cores,
        .numa_nodes = 1,
        .memory_bytes = memory_bytes,
        .machine = topo->hosts,
        .first_card = topo->cards,
        .vertex = vertex_add(topo, SN_VERTEX_HOST, topo->hosts),
    };
    return topo->hosts++;
}

int sn_topo_add_card(sn_topo *topo, int host, const sn_topo_card *like)
{
    SN_ASSERT(host >= 0 && host < topo->hosts);
    SN_ASSERT(!topo->cards || host >= topo->card[topo->cards - 1].host);
    sn_topo_host *h = &topo->host[host];
    ROOM(card, cards);
    sn_topo_card *card = &topo->card[topo->cards];
    *card = *like;
    char plain[32] = "c";
    if (!like->name)
        snprintf(plain, sizeof plain, "c%d", h->cards);
    card->name = name_copy(topo, host, like->name ? like->name : plain);
    bool as_before = topo->cards && !strcmp(card[-1].kind, like->kind ? like->kind : "");
    card->kind = as_before ? card[-1].kind : word_copy(topo, like->kind);
    card->host = host;
    card->vertex = vertex_add(topo, SN_VERTEX_CARD, topo->cards);
    if (!h->cards)
        h->first_card = topo->cards;
    h->cards++;
    for (int after = host + 1; after < topo->hosts && !topo->host[after].cards; after++)
        topo->host[after].first_card = topo->cards + 1;
    return topo->cards++;
}

int sn_topo_add_nic(sn_topo *topo, int host, const char *name, double bytes_per_s)
{
    SN_ASSERT(host >= 0 && host < topo->hosts);
    ROOM(nic, nics);
    topo->nic[topo->nics] = (sn_topo_nic){name_copy(topo, host, name), host, bytes_per_s,
                                          vertex_add(topo, SN_VERTEX_NIC, topo->nics)};
    return topo->nics++;
}

static int switch_add(sn_topo *topo, int host, const char *name)
{
    SN_ASSERT(host >= -1 && host < topo->hosts);
    ROOM(sw, switches);
    topo->sw[topo->switches] = (sn_topo_switch){name_copy(topo, host, name), host,
                                                vertex_add(topo, SN_VERTEX_SWITCH, topo->switches)};
    return topo->switches++;
}

int sn_topo_add_switch(sn_topo *topo, const char *name)
{
    return switch_add(topo, -1, name);
}

int sn_topo_add_host_switch(sn_topo *topo, int host, const char *name)
{
    SN_ASSERT(host >= 0);
    return switch_add(topo, host, name);
}

int sn_topo_add_link(sn_topo *topo, int a, int b, double latency_ns, double bytes_per_s,
                     const char *kind, bool measured)
{
    SN_ASSERT(a >= 0 && a < topo->vertices && b >= 0 && b < topo->vertices && a != b);
    SN_ASSERT(topo->links < TOPO_LINKS_MAX);
    ROOM(link, links);
    sn_topo_link *link = &topo->link[topo->links];
    bool as_before = topo->links && !strcmp(link[-1].kind, kind);
    *link = (sn_topo_link){a, b, latency_ns, bytes_per_s, NULL, measured};
    link->kind = as_before ? link[-1].kind : word_copy(topo, kind);
    sn_topo_changed(topo);
    return topo->links++;
}

const char *sn_topo_vertex_name(const sn_topo *topo, int vertex)
{
    int i = topo->vertex[vertex].index;
    switch (topo->vertex[vertex].kind) {
    case SN_VERTEX_HOST:
        return topo->host[i].name;
    case SN_VERTEX_CARD:
        return topo->card[i].name;
    case SN_VERTEX_NIC:
        return topo->nic[i].name;
    case SN_VERTEX_SWITCH:
        return topo->sw[i].name;
    }
    return "?";
}

int sn_topo_vertex_host(const sn_topo *topo, int vertex)
{
    int i = topo->vertex[vertex].index;
    switch (topo->vertex[vertex].kind) {
    case SN_VERTEX_HOST:
        return i;
    case SN_VERTEX_CARD:
        return topo->card[i].host;
    case SN_VERTEX_NIC:
        return topo->nic[i].host;
    case SN_VERTEX_SWITCH:
        return topo->sw[i].host;
    }
    return -1;
}
