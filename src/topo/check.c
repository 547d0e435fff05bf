/* SPDX-License-Identifier: Apache-2.0
 * The invariants of a topology as one executable function, and equality of two. */
#include "topo/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A link by the names of its ends, the lesser first: comparable between two topologies. */
typedef struct end_names {
    const char *a, *b;
    const sn_topo_link *link;
} end_names;

static int by_ends(const void *x, const void *y)
{
    const end_names *p = x, *q = y;
    int c = strcmp(p->a, q->a);
    return c ? c : strcmp(p->b, q->b);
}

static end_names *sorted_links(const sn_topo *topo)
{
    end_names *list = sn_alloc((size_t) topo->links * sizeof *list);
    for (int i = 0; i < topo->links; i++) {
        const char *a = sn_topo_vertex_name(topo, topo->link[i].a);
        const char *b = sn_topo_vertex_name(topo, topo->link[i].b);
        bool swap = strcmp(a, b) > 0;
        list[i] = (end_names){swap ? b : a, swap ? a : b, &topo->link[i]};
    }
    qsort(list, (size_t) topo->links, sizeof *list, by_ends);
    return list;
}

static int by_text(const void *x, const void *y)
{
    return strcmp(*(const char *const *) x, *(const char *const *) y);
}

static void check_names(const sn_topo *topo)
{
    const char **name = sn_alloc((size_t) topo->vertices * sizeof *name);
    for (int v = 0; v < topo->vertices; v++)
        name[v] = sn_topo_vertex_name(topo, v);
    qsort(name, (size_t) topo->vertices, sizeof *name, by_text);
    for (int v = 1; v < topo->vertices; v++)
        SN_ASSERT(strcmp(name[v - 1], name[v]) != 0);
    free(name);
}

static void check_links(const sn_topo *topo)
{
    for (int i = 0; i < topo->links; i++) {
        const sn_topo_link *l = &topo->link[i];
        SN_ASSERT(l->a >= 0 && l->a < topo->vertices && l->b >= 0 && l->b < topo->vertices);
        SN_ASSERT(l->a != l->b && l->kind);
        SN_ASSERT(l->latency_ns > 0 && isfinite(l->latency_ns));
        SN_ASSERT(l->bytes_per_s > 0 && isfinite(l->bytes_per_s));
    }
    end_names *list = sorted_links(topo);
    for (int i = 1; i < topo->links; i++)
        SN_ASSERT(by_ends(&list[i - 1], &list[i]) != 0);
    free(list);
}

static void check_hosts(const sn_topo *topo)
{
    int next = 0;
    for (int h = 0; h < topo->hosts; h++) {
        const sn_topo_host *host = &topo->host[h];
        SN_ASSERT(topo->vertex[host->vertex].kind == SN_VERTEX_HOST);
        SN_ASSERT(topo->vertex[host->vertex].index == h);
        SN_ASSERT(host->first_card == next && host->cards >= 0);
        SN_ASSERT(host->machine >= 0 && host->machine <= h);
        SN_ASSERT(topo->host[host->machine].machine == host->machine);
        next += host->cards;
        for (int c = host->first_card; c < next; c++)
            SN_ASSERT(topo->card[c].host == h);
    }
    SN_ASSERT(next == topo->cards);
}

static void check_cards(const sn_topo *topo)
{
    bool *linked = sn_alloc((size_t) topo->cards + 1);
    for (int i = 0; i < topo->links; i++) {
        int ends[2] = {topo->link[i].a, topo->link[i].b};
        for (int k = 0; k < 2; k++) {
            sn_topo_vertex v = topo->vertex[ends[k]];
            if (v.kind == SN_VERTEX_CARD &&
                topo->host[topo->card[v.index].host].vertex == ends[1 - k])
                linked[v.index] = true;
        }
    }
    for (int c = 0; c < topo->cards; c++) {
        const sn_topo_card *card = &topo->card[c];
        SN_ASSERT(topo->vertex[card->vertex].kind == SN_VERTEX_CARD);
        SN_ASSERT(topo->vertex[card->vertex].index == c);
        SN_ASSERT(linked[c] && card->kind);
        SN_ASSERT(card->share > 0 && card->share <= 1);
        SN_ASSERT(card->core >= -1 && card->numa_node >= -1);
        SN_ASSERT(card->flops_f32 >= 0 && card->flops_bf16 >= 0 && card->memory_bytes_per_s >= 0);
    }
    free(linked);
}

void sn_topo_check(const sn_topo *topo)
{
    SN_ASSERT(topo->vertices == topo->hosts + topo->cards + topo->nics + topo->switches);
    for (int i = 0; i < topo->nics; i++) {
        SN_ASSERT(topo->vertex[topo->nic[i].vertex].kind == SN_VERTEX_NIC);
        SN_ASSERT(topo->vertex[topo->nic[i].vertex].index == i && topo->nic[i].bytes_per_s >= 0);
    }
    for (int i = 0; i < topo->switches; i++) {
        SN_ASSERT(topo->vertex[topo->sw[i].vertex].kind == SN_VERTEX_SWITCH);
        SN_ASSERT(topo->vertex[topo->sw[i].vertex].index == i);
    }
    check_hosts(topo);
    check_cards(topo);
    check_names(topo);
    check_links(topo);
}

static bool hosts_equal(const sn_topo_host *a, const sn_topo_host *b)
{
    return !strcmp(a->name, b->name) && a->cores == b->cores && a->numa_nodes == b->numa_nodes &&
           a->memory_bytes == b->memory_bytes && a->machine == b->machine && a->cards == b->cards &&
           !memcmp(a->cache_bytes, b->cache_bytes, sizeof a->cache_bytes);
}

static bool cards_equal(const sn_topo_card *a, const sn_topo_card *b)
{
    return !strcmp(a->name, b->name) && !strcmp(a->kind, b->kind) && a->core == b->core &&
           a->numa_node == b->numa_node && a->share == b->share && a->flops_f32 == b->flops_f32 &&
           a->flops_bf16 == b->flops_bf16 && a->memory_bytes == b->memory_bytes &&
           a->memory_bytes_per_s == b->memory_bytes_per_s;
}

/* The i-th NIC or switch may be another one on the other side, as a file lists them by host: match
 * by name through a sorted list. */
static int nic_by_name(const void *x, const void *y)
{
    return strcmp(((const sn_topo_nic *) x)->name, ((const sn_topo_nic *) y)->name);
}

static int switch_by_name(const void *x, const void *y)
{
    return strcmp(((const sn_topo_switch *) x)->name, ((const sn_topo_switch *) y)->name);
}

static void *sorted(const void *array, int n, size_t bytes,
                    int (*compare)(const void *, const void *))
{
    void *copy = sn_alloc((size_t) n * bytes);
    if (n)
        memcpy(copy, array, (size_t) n * bytes);
    qsort(copy, (size_t) n, bytes, compare);
    return copy;
}

static bool nics_equal(const sn_topo *a, const sn_topo *b)
{
    sn_topo_nic *x = sorted(a->nic, a->nics, sizeof *x, nic_by_name);
    sn_topo_nic *y = sorted(b->nic, b->nics, sizeof *y, nic_by_name);
    bool same = true;
    for (int i = 0; same && i < a->nics; i++)
        same = !nic_by_name(&x[i], &y[i]) && x[i].bytes_per_s == y[i].bytes_per_s;
    free(x);
    free(y);
    return same;
}

static bool switches_equal(const sn_topo *a, const sn_topo *b)
{
    sn_topo_switch *x = sorted(a->sw, a->switches, sizeof *x, switch_by_name);
    sn_topo_switch *y = sorted(b->sw, b->switches, sizeof *y, switch_by_name);
    bool same = true;
    for (int i = 0; same && i < a->switches; i++)
        same = !switch_by_name(&x[i], &y[i]) && x[i].host == y[i].host;
    free(x);
    free(y);
    return same;
}

static bool links_equal(const sn_topo *a, const sn_topo *b)
{
    end_names *x = sorted_links(a), *y = sorted_links(b);
    bool same = true;
    for (int i = 0; same && i < a->links; i++)
        same = !by_ends(&x[i], &y[i]) && !strcmp(x[i].link->kind, y[i].link->kind) &&
               x[i].link->latency_ns == y[i].link->latency_ns &&
               x[i].link->bytes_per_s == y[i].link->bytes_per_s &&
               x[i].link->measured == y[i].link->measured;
    free(x);
    free(y);
    return same;
}

bool sn_topo_equal(const sn_topo *a, const sn_topo *b)
{
    bool same = !strcmp(a->name, b->name) && a->hosts == b->hosts && a->cards == b->cards &&
                a->nics == b->nics && a->switches == b->switches && a->links == b->links;
    for (int h = 0; same && h < a->hosts; h++)
        same = hosts_equal(&a->host[h], &b->host[h]);
    for (int c = 0; same && c < a->cards; c++)
        same = cards_equal(&a->card[c], &b->card[c]);
    return same && nics_equal(a, b) && switches_equal(a, b) && links_equal(a, b);
}
