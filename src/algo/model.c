/* SPDX-License-Identifier: Apache-2.0
 *
 * model — what the cost functions need to know, read from the topology. */
#include "algo/cost.h"

#include <stdlib.h>
#include <string.h>

/* Where there is no topology: a current x86 core, and TCP between hosts. Only the choice depends on
 * them, never a result. */
static const sn_algo_model fallback = {.signal_ns = 250,
                                       .copy_bytes_per_s = 8e9,
                                       .reduce_bytes_per_s = 12e9,
                                       .net_latency_ns = 8000,
                                       .net_bytes_per_s = 2e9,
                                       .net_message_ns = 1500,
                                       .net_member_bytes_per_s = 8e9,
                                       .members_per_core = 1};

typedef struct slowest {
    bool any, sockets; /* sockets: the kernel copies what passes */
    double latency_ns, bytes_per_s;
} slowest;

static void consider(slowest *s, const sn_topo *topo, int a, int b)
{
    sn_path path;
    if (sn_topo_path(topo, a, b, &path) != SN_OK)
        return;
    s->latency_ns = s->any ? SN_MAX(s->latency_ns, path.latency_ns) : path.latency_ns;
    s->bytes_per_s = s->any ? SN_MIN(s->bytes_per_s, path.bytes_per_s) : path.bytes_per_s;
    for (int i = 0; i < path.links; i++) {
        const char *kind = topo->link[path.link[i]].kind;
        s->sockets = s->sockets || strcmp(kind, "tcp") == 0 || strcmp(kind, "ethernet") == 0;
    }
    s->any = true;
}

/* The slowest path between members on one host, and between hosts. A host speaks through its first
 * member: in a group of a thousand there are half a million pairs, but few hosts. */
static void find_slowest(const sn_topo *topo, const int *card, int members, slowest *inside,
                         slowest *across)
{
    int *first = sn_alloc((size_t) topo->hosts * sizeof(*first)); /* member + 1, 0 none yet */
    for (int b = 0; b < members; b++) {
        int host = topo->card[card[b]].host;
        if (first[host] != 0) {
            consider(inside, topo, card[first[host] - 1], card[b]);
            continue;
        }
        for (int h = 0; h < topo->hosts; h++)
            if (first[h] != 0)
                consider(across, topo, card[first[h] - 1], card[b]);
        first[host] = b + 1;
    }
    free(first);
}

/* How many members take turns on a core: those that topo says share it, but not more than there
 * are. Cards outside the group are charged too, for they compute meanwhile. */
static double sharing(const sn_topo *topo, const int *card, int members)
{
    int most = 1;
    for (int i = 0; i < members; i++)
        most = SN_MAX(most, sn_topo_sharers(topo, card[i], topo->cards));
    return SN_MIN(most, members);
}

sn_algo_model sn_algo_model_from(const sn_topo *topo, const int *card, int members)
{
    sn_algo_model m = fallback;
    if (topo == NULL)
        return m;
    for (int i = 0; i < members; i++)
        if (card[i] < 0 || card[i] >= topo->cards)
            return m;
    double memory = topo->card[card[0]].memory_bytes_per_s;
    for (int i = 1; i < members; i++)
        memory = SN_MIN(memory, topo->card[card[i]].memory_bytes_per_s);
    if (memory > 0) {
        m.copy_bytes_per_s = memory / 2; /* a copied byte is read and written */
        m.reduce_bytes_per_s = memory / 2;
    }
    slowest inside = {0}, across = {0};
    find_slowest(topo, card, members, &inside, &across);
    if (inside.any)
        m.signal_ns = inside.latency_ns;
    if (across.any) {
        m.net_latency_ns = across.latency_ns;
        m.net_bytes_per_s = across.bytes_per_s;
        m.net_member_bytes_per_s = across.sockets ? m.copy_bytes_per_s : 0;
    }
    m.members_per_core = sharing(topo, card, members);
    return m;
}

sn_algo_model sn_algo_model_for(const sn_algo_model *fitted, const sn_topo *topo, const int *card,
                                int members)
{
    sn_algo_model m = *fitted;
    m.members_per_core = sn_algo_model_from(topo, card, members).members_per_core;
    return m;
}
