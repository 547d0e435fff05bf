/* SPDX-License-Identifier: Apache-2.0
 * A topology as a cluster file. Equal neighbours whose names count up become one entry with a
 * `count`; links of the network are written one by one. */
#include "topo/field.h"
#include "topo/model.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Indices of one array by the host they are in: list[first[h] … first[h + 1]). */
typedef struct by_host {
    int *first, *list;
} by_host;

typedef struct writer {
    const sn_topo *topo;
    sn_str *out;
    by_host nics, switches, links;
    bool *shared;   /* [hosts] other hosts are on its machine */
    int *card_link; /* [cards] to the host */
} writer;

static void by_host_done(by_host *b)
{
    free(b->first);
    free(b->list);
}

/* host_of[i] < 0: in no host. */
static by_host sort_by_host(const int *host_of, int n, int hosts)
{
    by_host b = {sn_alloc(((size_t) hosts + 2) * sizeof(int)), sn_alloc((size_t) n * sizeof(int))};
    for (int i = 0; i < n; i++)
        if (host_of[i] >= 0)
            b.first[host_of[i] + 2]++;
    for (int h = 0; h < hosts; h++)
        b.first[h + 2] += b.first[h + 1];
    for (int i = 0; i < n; i++)
        if (host_of[i] >= 0)
            b.list[b.first[host_of[i] + 1]++] = i;
    return b; /* first[h + 1] has moved to the end of h, first[0] is 0: as promised */
}

/* The host that a link is inside of, or -1. */
static int link_host(const sn_topo *topo, const sn_topo_link *l)
{
    int a = sn_topo_vertex_host(topo, l->a);
    return a == sn_topo_vertex_host(topo, l->b) ? a : -1;
}

/* The link's other end when one is the host itself and the other of this kind; else -1. */
static int hangs_on_host(const sn_topo *topo, const sn_topo_link *l, sn_vertex_kind kind)
{
    int v = topo->vertex[l->a].kind == SN_VERTEX_HOST ? l->b : l->a;
    int h = v == l->a ? l->b : l->a;
    bool so = topo->vertex[h].kind == SN_VERTEX_HOST && topo->vertex[v].kind == kind &&
              sn_topo_vertex_host(topo, v) == topo->vertex[h].index;
    return so ? topo->vertex[v].index : -1;
}

static void writer_init(writer *w, const sn_topo *topo, sn_str *out)
{
    int most = SN_MAX(topo->links, SN_MAX(topo->nics, topo->switches));
    int *host_of = sn_alloc((size_t) most * sizeof *host_of);
    *w = (writer){.topo = topo, .out = out};
    for (int i = 0; i < topo->nics; i++)
        host_of[i] = topo->nic[i].host;
    w->nics = sort_by_host(host_of, topo->nics, topo->hosts);
    for (int i = 0; i < topo->switches; i++)
        host_of[i] = topo->sw[i].host;
    w->switches = sort_by_host(host_of, topo->switches, topo->hosts);
    w->card_link = sn_alloc((size_t) topo->cards * sizeof *w->card_link);
    for (int i = 0; i < topo->links; i++) {
        int card = hangs_on_host(topo, &topo->link[i], SN_VERTEX_CARD);
        if (card >= 0)
            w->card_link[card] = i;
        host_of[i] = card >= 0 ? -1 : link_host(topo, &topo->link[i]);
    }
    w->links = sort_by_host(host_of, topo->links, topo->hosts);
    free(host_of);
    w->shared = sn_alloc((size_t) topo->hosts);
    for (int h = 0; h < topo->hosts; h++)
        if (topo->host[h].machine != h)
            w->shared[topo->host[h].machine] = w->shared[h] = true;
}

static void writer_done(writer *w)
{
    by_host_done(&w->nics);
    by_host_done(&w->switches);
    by_host_done(&w->links);
    free(w->shared);
    free(w->card_link);
}

/* ---- words ---- */

/* Plain where every YAML reader takes it as a word, else in quotes (names have none inside). */
static void name_add(sn_str *out, const char *name)
{
    bool plain = isalpha((unsigned char) *name);
    for (const char *c = name; *c; c++)
        plain = plain && (isalnum((unsigned char) *c) || strchr("_-./", *c));
    sn_str_printf(out, plain ? "%s" : "\"%s\"", name);
}

/* `name: h, first: 2, count: 4` of a run of names; `plain` and `index` say which name the reader
 * would make up, `gap` goes between. False when nothing had to be said. */
static bool run_add(sn_str *out, const char *name, int count, const char *plain, int index,
                    const char *gap)
{
    size_t prefix;
    int number;
    name = sn_topo_local_name(name);
    bool numbered = topo_name_counted(name, &prefix, &number);
    bool made_up = plain && numbered && prefix == strlen(plain) && !strncmp(name, plain, prefix) &&
                   number == index;
    if (!made_up) {
        char base[128];
        snprintf(base, sizeof base, "%.*s", count > 1 ? (int) prefix : 127, name);
        sn_str_add(out, "name: ");
        name_add(out, base);
        if (count > 1 && number)
            sn_str_printf(out, "%sfirst: %d", gap, number);
    }
    if (count > 1)
        sn_str_printf(out, "%scount: %d", made_up ? "" : gap, count);
    return !made_up || count > 1;
}

static void quantity(sn_str *out, const char *key, topo_unit unit, double value)
{
    sn_str_printf(out, "%s: ", key);
    topo_quantity_add(out, unit, value);
}

static void cable(sn_str *out, const sn_topo_link *l)
{
    sn_str_add(out, "kind: ");
    name_add(out, l->kind);
    quantity(out, ", latency", TOPO_TIME, l->latency_ns);
    quantity(out, ", bandwidth", TOPO_RATE, l->bytes_per_s);
    if (l->measured)
        sn_str_add(out, ", measured: true");
}

static bool cables_same(const sn_topo_link *a, const sn_topo_link *b)
{
    return a->latency_ns == b->latency_ns && a->bytes_per_s == b->bytes_per_s &&
           a->measured == b->measured && !strcmp(a->kind, b->kind);
}

/* ---- cards ---- */

static bool figures_same(const sn_topo_card *a, const sn_topo_card *b)
{
    return a->flops_f32 == b->flops_f32 && a->flops_bf16 == b->flops_bf16 &&
           a->memory_bytes == b->memory_bytes && a->memory_bytes_per_s == b->memory_bytes_per_s;
}

static void figures(sn_str *out, const sn_topo_card *c)
{
    quantity(out, "flops_f32", TOPO_FLOPS, c->flops_f32);
    quantity(out, ", flops_bf16", TOPO_FLOPS, c->flops_bf16);
    quantity(out, ", memory", TOPO_BYTES, (double) c->memory_bytes);
    quantity(out, ", memory_bandwidth", TOPO_RATE, c->memory_bytes_per_s);
}

/* The card whose figures stand under `kinds`: the first of its kind. */
static const sn_topo_card *kind_model(const sn_topo *topo, const char *kind)
{
    for (int c = 0; c < topo->cards; c++)
        if (!strcmp(topo->card[c].kind, kind))
            return &topo->card[c];
    return NULL;
}

static void kinds(const writer *w)
{
    const sn_topo *topo = w->topo;
    for (int c = 0; c < topo->cards; c++) {
        const sn_topo_card *card = &topo->card[c];
        if ((c && !strcmp(card[-1].kind, card->kind)) || kind_model(topo, card->kind) != card)
            continue;
        if (c == 0)
            sn_str_add(w->out, "kinds:\n");
        sn_str_add(w->out, "  ");
        name_add(w->out, card->kind);
        sn_str_add(w->out, ": {");
        figures(w->out, card);
        sn_str_add(w->out, "}\n");
    }
}

/* May card b stand in one entry with card a? Cores and NUMA nodes may differ: they are lists. */
static bool cards_alike(const writer *w, int a, int b)
{
    const sn_topo_card *x = &w->topo->card[a], *y = &w->topo->card[b];
    return !strcmp(x->kind, y->kind) && figures_same(x, y) && x->share == y->share &&
           (x->core < 0) == (y->core < 0) && (x->numa_node < 0) == (y->numa_node < 0) &&
           cables_same(&w->topo->link[w->card_link[a]], &w->topo->link[w->card_link[b]]);
}

static void number_list(sn_str *out, const char *key, const sn_topo_card *card, int n, bool core)
{
    int step = core ? 1 : 0, first = core ? card->core : card->numa_node;
    bool regular = true;
    if (first < 0)
        return;
    for (int i = 0; i < n; i++)
        regular = regular && (core ? card[i].core : card[i].numa_node) == first + i * step;
    sn_str_printf(out, ", %s: ", key);
    if (regular) {
        sn_str_printf(out, "%d", first);
        return;
    }
    for (int i = 0; i < n; i++)
        sn_str_printf(out, "%s%d", i ? ", " : "[", core ? card[i].core : card[i].numa_node);
    sn_str_add(out, "]");
}

static void cards(const writer *w, const sn_topo_host *h)
{
    const sn_topo *topo = w->topo;
    int end = h->first_card + h->cards, next;
    if (h->cards)
        sn_str_add(w->out, "    cards:\n");
    for (int c = h->first_card; c < end; c = next) {
        const sn_topo_card *card = &topo->card[c];
        for (next = c + 1; next < end && next - c < 4096; next++)
            if (!cards_alike(w, c, next) ||
                !topo_name_follows(topo->card[next - 1].name, topo->card[next].name))
                break;
        sn_str_add(w->out, "      - {");
        bool said = run_add(w->out, card->name, next - c, "c", c - h->first_card, ", ");
        sn_str_add(w->out, said ? ", kind: " : "kind: ");
        name_add(w->out, card->kind);
        number_list(w->out, "core", card, next - c, true);
        number_list(w->out, "numa_node", card, next - c, false);
        if (card->share != 1)
            sn_str_printf(w->out, ", share: %.17g", card->share);
        if (!figures_same(card, kind_model(topo, card->kind))) {
            sn_str_add(w->out, ", ");
            figures(w->out, card);
        }
        sn_str_add(w->out, ", link: {");
        cable(w->out, &topo->link[w->card_link[c]]);
        sn_str_add(w->out, "}}\n");
    }
}

/* ---- the rest of a host ---- */

/* The link from a NIC to its host, or NULL: then its links are under `links`. */
static const sn_topo_link *nic_link(const writer *w, int nic)
{
    const by_host *b = &w->links;
    int h = w->topo->nic[nic].host;
    for (int k = b->first[h]; k < b->first[h + 1]; k++) {
        const sn_topo_link *l = &w->topo->link[b->list[k]];
        if (hangs_on_host(w->topo, l, SN_VERTEX_NIC) == nic)
            return l;
    }
    return NULL;
}

static bool nics_alike(const writer *w, int a, int b)
{
    const sn_topo_link *x = nic_link(w, a), *y = nic_link(w, b);
    return w->topo->nic[a].bytes_per_s == w->topo->nic[b].bytes_per_s && !x == !y &&
           (!x || cables_same(x, y));
}

static void nics(const writer *w, int h)
{
    const by_host *b = &w->nics;
    int next, at = b->first[h], end = b->first[h + 1];
    if (at < end)
        sn_str_add(w->out, "    nics:\n");
    for (int k = at; k < end; k = next) {
        const sn_topo_nic *nic = &w->topo->nic[b->list[k]];
        for (next = k + 1; next < end; next++)
            if (!nics_alike(w, b->list[k], b->list[next]) ||
                !topo_name_follows(w->topo->nic[b->list[next - 1]].name,
                                   w->topo->nic[b->list[next]].name))
                break;
        sn_str_add(w->out, "      - {");
        bool said = run_add(w->out, nic->name, next - k, "nic", k - at, ", ");
        quantity(w->out, said ? ", bandwidth" : "bandwidth", TOPO_RATE, nic->bytes_per_s);
        const sn_topo_link *l = nic_link(w, b->list[k]);
        if (l) {
            sn_str_add(w->out, ", link: {");
            cable(w->out, l);
            sn_str_add(w->out, "}");
        }
        sn_str_add(w->out, "}\n");
    }
}

static void switches(const writer *w, const int *list, int n, const char *indent)
{
    int next;
    if (n)
        sn_str_printf(w->out, "%sswitches:\n", indent);
    for (int k = 0; k < n; k = next) {
        for (next = k + 1; next < n; next++)
            if (!topo_name_follows(w->topo->sw[list[next - 1]].name, w->topo->sw[list[next]].name))
                break;
        sn_str_printf(w->out, "%s  - {", indent);
        run_add(w->out, w->topo->sw[list[k]].name, next - k, NULL, 0, ", ");
        sn_str_add(w->out, "}\n");
    }
}

/* The name of a vertex as the links of its own host call it. */
static const char *local(const sn_topo *topo, int vertex)
{
    if (topo->vertex[vertex].kind == SN_VERTEX_HOST)
        return ".";
    return sn_topo_local_name(sn_topo_vertex_name(topo, vertex));
}

/* Two switches stand under `among`, which has no lower side and so makes no loop. */
static void link_line(const writer *w, const sn_topo_link *l, const char *a, const char *b,
                      const char *indent)
{
    const sn_topo *topo = w->topo;
    bool level =
        topo->vertex[l->a].kind == SN_VERTEX_SWITCH && topo->vertex[l->b].kind == SN_VERTEX_SWITCH;
    sn_str_printf(w->out, "%s  - {%s", indent, level ? "among: [" : "from: ");
    name_add(w->out, a);
    sn_str_add(w->out, level ? ", " : ", to: ");
    name_add(w->out, b);
    sn_str_add(w->out, level ? "], " : ", ");
    cable(w->out, l);
    sn_str_add(w->out, "}\n");
}

static void inside_links(const writer *w, int h)
{
    const sn_topo *topo = w->topo;
    bool any = false;
    for (int k = w->links.first[h]; k < w->links.first[h + 1]; k++) {
        const sn_topo_link *l = &topo->link[w->links.list[k]];
        if (hangs_on_host(topo, l, SN_VERTEX_NIC) >= 0)
            continue;
        if (!any)
            sn_str_add(w->out, "    links:\n");
        any = true;
        link_line(w, l, local(topo, l->a), local(topo, l->b), "    ");
    }
}

static void host_numbers(const writer *w, const sn_topo_host *h)
{
    static const char *const cache[] = {"l1d", "l2", "l3"};
    const char *gap = "    caches: {";
    sn_str_printf(w->out, "    cores: %d\n    numa_nodes: %d\n", h->cores, h->numa_nodes);
    if (h->memory_bytes) {
        quantity(w->out, "    memory", TOPO_BYTES, (double) h->memory_bytes);
        sn_str_add(w->out, "\n");
    }
    for (int i = 0; i < 3; i++) {
        if (!h->cache_bytes[i])
            continue;
        sn_str_add(w->out, gap);
        quantity(w->out, cache[i], TOPO_BYTES, (double) h->cache_bytes[i]);
        gap = ", ";
    }
    if (*gap == ',')
        sn_str_add(w->out, "}\n");
    if (w->shared[h - w->topo->host]) {
        sn_str_add(w->out, "    machine: ");
        name_add(w->out, w->topo->host[h->machine].name);
        sn_str_add(w->out, "\n");
    }
}

/* ---- hosts that are alike but for the number in their name ---- */

static bool numbers_alike(const writer *w, int a, int b)
{
    const sn_topo_host *x = &w->topo->host[a], *y = &w->topo->host[b];
    return topo_name_follows(x->name, y->name) && x->cores == y->cores &&
           x->numa_nodes == y->numa_nodes && x->memory_bytes == y->memory_bytes &&
           x->cards == y->cards && !memcmp(x->cache_bytes, y->cache_bytes, sizeof x->cache_bytes) &&
           w->shared[a] == w->shared[b] && (!w->shared[a] || x->machine == y->machine);
}

static bool locals_same(const sn_topo *topo, int a, int b)
{
    return !strcmp(local(topo, a), local(topo, b));
}

static bool contents_alike(const writer *w, int a, int b)
{
    const sn_topo *topo = w->topo;
    const sn_topo_host *x = &topo->host[a], *y = &topo->host[b];
    for (int i = 0; i < x->cards; i++) {
        int c = x->first_card + i, d = y->first_card + i;
        if (!cards_alike(w, c, d) || topo->card[c].core != topo->card[d].core ||
            topo->card[c].numa_node != topo->card[d].numa_node ||
            !locals_same(topo, topo->card[c].vertex, topo->card[d].vertex))
            return false;
    }
    const int *n = w->nics.list + w->nics.first[a], *m = w->nics.list + w->nics.first[b];
    for (int i = 0; i < w->nics.first[a + 1] - w->nics.first[a]; i++)
        if (!nics_alike(w, n[i], m[i]) ||
            !locals_same(topo, topo->nic[n[i]].vertex, topo->nic[m[i]].vertex))
            return false;
    n = w->switches.list + w->switches.first[a];
    m = w->switches.list + w->switches.first[b];
    for (int i = 0; i < w->switches.first[a + 1] - w->switches.first[a]; i++)
        if (!locals_same(topo, topo->sw[n[i]].vertex, topo->sw[m[i]].vertex))
            return false;
    n = w->links.list + w->links.first[a];
    m = w->links.list + w->links.first[b];
    for (int i = 0; i < w->links.first[a + 1] - w->links.first[a]; i++) {
        const sn_topo_link *k = &topo->link[n[i]], *l = &topo->link[m[i]];
        if (!cables_same(k, l) || !locals_same(topo, k->a, l->a) || !locals_same(topo, k->b, l->b))
            return false;
    }
    return true;
}

static bool sizes_alike(const by_host *b, int x, int y)
{
    return b->first[x + 1] - b->first[x] == b->first[y + 1] - b->first[y];
}

static bool hosts_alike(const writer *w, int a, int b)
{
    return numbers_alike(w, a, b) && sizes_alike(&w->nics, a, b) &&
           sizes_alike(&w->switches, a, b) && sizes_alike(&w->links, a, b) &&
           contents_alike(w, a, b);
}

static void hosts(const writer *w)
{
    const sn_topo *topo = w->topo;
    int next;
    sn_str_add(w->out, topo->hosts ? "hosts:\n" : "hosts: []\n");
    for (int h = 0; h < topo->hosts; h = next) {
        for (next = h + 1; next < topo->hosts; next++)
            if (!hosts_alike(w, next - 1, next))
                break;
        sn_str_add(w->out, "  - ");
        run_add(w->out, topo->host[h].name, next - h, NULL, 0, "\n    ");
        sn_str_add(w->out, "\n");
        host_numbers(w, &topo->host[h]);
        cards(w, &topo->host[h]);
        nics(w, h);
        switches(w, w->switches.list + w->switches.first[h],
                 w->switches.first[h + 1] - w->switches.first[h], "    ");
        inside_links(w, h);
    }
}

static void network(const writer *w)
{
    const sn_topo *topo = w->topo;
    int *list = sn_alloc((size_t) topo->switches * sizeof *list), n = 0;
    for (int i = 0; i < topo->switches; i++)
        if (topo->sw[i].host < 0)
            list[n++] = i;
    switches(w, list, n, "");
    free(list);
    bool any = false;
    for (int i = 0; i < topo->links; i++) {
        const sn_topo_link *l = &topo->link[i];
        if (link_host(topo, l) >= 0)
            continue;
        if (!any)
            sn_str_add(w->out, "links:\n");
        any = true;
        link_line(w, l, sn_topo_vertex_name(topo, l->a), sn_topo_vertex_name(topo, l->b), "");
    }
}

void sn_topo_yaml(const sn_topo *topo, sn_str *out)
{
    writer w;
    writer_init(&w, topo, out);
    sn_str_add(out, "name: ");
    name_add(out, topo->name);
    sn_str_add(out, "\n");
    kinds(&w);
    hosts(&w);
    network(&w);
    writer_done(&w);
}
