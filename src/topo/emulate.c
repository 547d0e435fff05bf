/* SPDX-License-Identifier: Apache-2.0
 * Many hosts on one machine: the same cores, listed by several. */
#include "topo/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int topo_card_link(const sn_topo *topo, int card)
{
    int c = topo->card[card].vertex, h = topo->host[topo->card[card].host].vertex;
    for (int i = 0; i < topo->links; i++)
        if ((topo->link[i].a == c && topo->link[i].b == h) ||
            (topo->link[i].a == h && topo->link[i].b == c))
            return i;
    return -1;
}

/* CPU cards come first in what probe finds, but a file may list them in any order. */
static int cpu_cards(const sn_topo *base, int *ret)
{
    int n = 0;
    for (int c = 0; c < base->cards; c++)
        if (base->card[c].core >= 0)
            ret[n++] = c;
    return n;
}

typedef struct wire {
    double latency_ns, bytes_per_s;
} wire;

static void add_host(sn_topo *topo, const sn_topo *base, int h, int cards, int hosts,
                     const int *cpu, int cpus, int sw, wire w)
{
    const sn_topo_host *real = &base->host[0];
    char name[16];
    snprintf(name, sizeof name, "h%d", h);
    sn_topo_add_host(topo, name, real->cores, real->memory_bytes / (uint64_t) hosts);
    topo->host[h].numa_nodes = real->numa_nodes;
    topo->host[h].machine = 0;
    memcpy(topo->host[h].cache_bytes, real->cache_bytes, sizeof real->cache_bytes);
    for (int k = 0; k < cards; k++) {
        int from = cpu[((int64_t) h * cards + k) % cpus];
        sn_topo_card card = base->card[from];
        card.name = NULL;
        card.share *= SN_MIN(1.0, (double) cpus / ((double) hosts * cards));
        card.memory_bytes = real->memory_bytes / ((uint64_t) hosts * (uint64_t) cards);
        int c = sn_topo_add_card(topo, h, &card);
        const sn_topo_link *link = &base->link[topo_card_link(base, from)];
        sn_topo_add_link(topo, topo->card[c].vertex, topo->host[h].vertex, link->latency_ns,
                         link->bytes_per_s, link->kind, link->measured);
    }
    int n = sn_topo_add_nic(topo, h, "eth0", w.bytes_per_s);
    int nic = topo->nic[n].vertex;
    double part = w.latency_ns / 4;
    sn_topo_add_link(topo, nic, topo->host[h].vertex, part, w.bytes_per_s, "tcp", false);
    sn_topo_add_link(topo, nic, sw, part, w.bytes_per_s, "tcp", false);
}

sn_status sn_topo_emulate(const sn_topo *base, int hosts, int cards, double link_latency_ns,
                          double link_bytes_per_s, sn_topo **ret)
{
    if (hosts < 1 || cards < 1 || (int64_t) hosts * (cards + 2) >= TOPO_VERTICES_MAX)
        return sn_fail(SN_EINVAL,
                       "cannot emulate %d hosts of %d cards: both must be at least 1 "
                       "and all together fewer than %d",
                       hosts, cards, TOPO_VERTICES_MAX);
    if (!(link_latency_ns > 0) || !(link_bytes_per_s > 0))
        return sn_fail(SN_EINVAL, "emulated hosts need a link latency and bandwidth above 0");
    int *cpu = sn_alloc((size_t) base->cards * sizeof *cpu);
    int cpus = base->hosts == 1 ? cpu_cards(base, cpu) : 0;
    if (!cpus) {
        free(cpu);
        return sn_fail(SN_EINVAL, "cannot emulate hosts on %s: it must be one host with a CPU card",
                       base->name);
    }
    sn_topo *topo = sn_topo_create(base->name);
    int s = sn_topo_add_switch(topo, "s0");
    wire w = {link_latency_ns, link_bytes_per_s};
    for (int h = 0; h < hosts; h++)
        add_host(topo, base, h, cards, hosts, cpu, cpus, topo->sw[s].vertex, w);
    free(cpu);
    *ret = topo;
    return SN_OK;
}
