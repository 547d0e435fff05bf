/* SPDX-License-Identifier: Apache-2.0
 * A cluster file → topology. A `count` makes many of a thing; a host entry is read once into groups
 * and stamped `count` times, so the cost of a large cluster is that of its vertices. */
#include "topo/wiring.h"

#include <stdio.h>
#include <string.h>

enum { LIST_LONG = 4096 };

/* name, count, first: what the things of an entry are called. */
typedef struct run {
    const char *name;
    int first, count;
    bool numbered; /* NAMEfirst … NAMEfirst+count-1; else just NAME */
} run;

typedef struct group { /* cards, NICs or switches of a host entry */
    run run;
    sn_topo_card card; /* cards */
    int *cores, *numa; /* cards: lists to cycle through, NULL without */
    int cores_n, numa_n;
    double bytes_per_s; /* NICs */
    topo_cable cable;   /* cards and NICs: to the host */
} group;

typedef struct host_entry {
    run run;
    sn_topo_host like;
    const char *machine;
    group *cards, *nics, *switches;
    int cards_n, nics_n, switches_n;
    int vertices; /* of one host */
    const sn_yaml_node *links, *at;
} host_entry;

typedef struct named {
    const char *name;
    int index;
} named;

typedef struct parse {
    sn_yaml_doc doc;
    sn_topo *topo;
    topo_names names;
    topo_wiring wiring;
    const sn_yaml_node *kinds;
    named *machine; /* the first host of each machine that a file names */
    size_t machines, machines_cap;
} parse;

/* ---- words ---- */

/* `plain` and `have` (how many there are already) make the name when none is given; NULL: it must
 * be. */
static sn_status read_run(parse *p, const sn_yaml_node *map, const char *what, const char *plain,
                          int have, run *ret)
{
    const sn_yaml_node *name = sn_yaml_get(map, "name"), *count = sn_yaml_get(map, "count"),
                       *first = sn_yaml_get(map, "first");
    int64_t n = 1, from = 0;
    run r = {.name = plain, .numbered = count || first || !name};
    if (name) {
        SN_TRY(topo_word(&p->doc, name, "name", &r.name));
    } else if (!plain) {
        return sn_yaml_fail(&p->doc, map, "%s needs the key `name`", what);
    } else {
        from = have;
    }
    if (count)
        SN_TRY(sn_yaml_int(&p->doc, count, "count", 1, TOPO_VERTICES_MAX, &n));
    if (first)
        SN_TRY(sn_yaml_int(&p->doc, first, "first", 0, INT32_MAX / 2, &from));
    r.count = (int) n;
    r.first = (int) from;
    *ret = r;
    return SN_OK;
}

static void run_name(const run *r, int i, char out[TOPO_NAME_LONG + 16])
{
    if (r->numbered)
        snprintf(out, TOPO_NAME_LONG + 16, "%s%d", r->name, r->first + i);
    else
        snprintf(out, TOPO_NAME_LONG + 16, "%s", r->name);
}

static sn_status add_name(parse *p, const sn_yaml_node *at, int vertex)
{
    if (topo_names_add(&p->names, vertex) < 0)
        return SN_OK;
    return sn_yaml_fail(&p->doc, at, "%s is named twice", sn_topo_vertex_name(p->topo, vertex));
}

static sn_status room(parse *p, const sn_yaml_node *at, int64_t more)
{
    if (p->topo->vertices + more <= TOPO_VERTICES_MAX)
        return SN_OK;
    return sn_yaml_fail(&p->doc, at, "more than %d hosts, cards, NICs and switches in all",
                        TOPO_VERTICES_MAX);
}

/* ---- kinds and cards ---- */

#define KIND_KEYS "flops_f32", "flops_bf16", "memory", "memory_bandwidth"

/* The four figures of a card where `map` states them; those it does not are left alone. */
static sn_status read_figures(parse *p, const sn_yaml_node *map, sn_topo_card *card)
{
    const sn_yaml_node *node;
    double bytes = 0;
    if ((node = sn_yaml_get(map, "flops_f32")))
        SN_TRY(topo_quantity(&p->doc, node, "flops_f32", TOPO_FLOPS, true, &card->flops_f32));
    if ((node = sn_yaml_get(map, "flops_bf16")))
        SN_TRY(topo_quantity(&p->doc, node, "flops_bf16", TOPO_FLOPS, true, &card->flops_bf16));
    if ((node = sn_yaml_get(map, "memory_bandwidth")))
        SN_TRY(topo_quantity(&p->doc, node, "memory_bandwidth", TOPO_RATE, true,
                             &card->memory_bytes_per_s));
    if ((node = sn_yaml_get(map, "memory"))) {
        SN_TRY(topo_quantity(&p->doc, node, "memory", TOPO_BYTES, true, &bytes));
        card->memory_bytes = (uint64_t) bytes;
    }
    return SN_OK;
}

static sn_status read_kinds(parse *p, const sn_yaml_node *kinds)
{
    static const char *const keys[] = {KIND_KEYS};
    p->kinds = kinds;
    if (kinds && kinds->kind != SN_YAML_MAP)
        return sn_yaml_fail(&p->doc, kinds, "`kinds` must be a mapping {kind: {flops_f32: …}, …}");
    for (int i = 0; kinds && i < kinds->items; i++) {
        sn_topo_card card = {0};
        const char *name;
        SN_TRY(topo_word(&p->doc, kinds->key[i], "kind", &name));
        SN_TRY(sn_yaml_keys(&p->doc, kinds->item[i], "a card kind", keys, SN_COUNT(keys)));
        for (size_t k = 0; k < SN_COUNT(keys); k++) {
            const sn_yaml_node *node;
            SN_TRY(sn_yaml_need(&p->doc, kinds->item[i], "a card kind", keys[k], &node));
        }
        SN_TRY(read_figures(p, kinds->item[i], &card));
    }
    return SN_OK;
}

static sn_status find_kind(parse *p, const sn_yaml_node *node, sn_topo_card *card)
{
    const char *text, *names[256];
    int n = 0;
    SN_TRY(sn_yaml_text(&p->doc, node, "kind", &text));
    const sn_yaml_node *kind = p->kinds ? sn_yaml_get(p->kinds, text) : NULL;
    if (kind) {
        card->kind = text;
        return read_figures(p, kind, card);
    }
    for (; p->kinds && n < p->kinds->items && n < (int) SN_COUNT(names); n++)
        names[n] = p->kinds->key[n]->text;
    const char *near = sn_str_nearest(text, names, n);
    return sn_yaml_fail(&p->doc, node, "card kind `%.64s` is not described under `kinds`%s%s%s",
                        text, near ? "; did you mean `" : "", near ? near : "", near ? "`?" : "");
}

/* A list of small numbers to cycle through. */
static sn_status read_list(parse *p, const sn_yaml_node *node, const char *what, int **ret,
                           int *ret_n)
{
    int n = sn_yaml_items(node);
    if (n < 1 || n > LIST_LONG)
        return sn_yaml_fail(&p->doc, node, "`%s` lists %d numbers: 1 to %d", what, n, LIST_LONG);
    int *list = SN_NEW_N(p->doc.arena, int, n);
    for (int i = 0; i < n; i++) {
        int64_t v;
        SN_TRY(sn_yaml_int(&p->doc, sn_yaml_item(node, i), what, 0, 1 << 20, &v));
        list[i] = (int) v;
    }
    *ret = list;
    *ret_n = n;
    return SN_OK;
}

static sn_status read_share(parse *p, const sn_yaml_node *node, double *ret)
{
    const char *text;
    double v;
    SN_TRY(sn_yaml_text(&p->doc, node, "share", &text));
    if (!sn_str_to_float(text, &v) || !(v > 0) || v > 1)
        return sn_yaml_fail(&p->doc, node, "`share` is `%.64s`: above 0 and at most 1", text);
    *ret = v;
    return SN_OK;
}

static sn_status read_link(parse *p, const sn_yaml_node *node, topo_cable *ret)
{
    static const char *const keys[] = {TOPO_CABLE_KEYS};
    SN_TRY(sn_yaml_keys(&p->doc, node, "`link`", keys, SN_COUNT(keys)));
    return topo_cable_read(&p->doc, node, "`link`", ret);
}

static sn_status read_cards(parse *p, const sn_yaml_node *map, int have, group *g)
{
    static const char *const keys[] = {"name",  "count",     "first", "kind",   "core",
                                       "share", "numa_node", "link",  KIND_KEYS};
    const sn_yaml_node *node, *core = sn_yaml_get(map, "core"),
                              *numa = sn_yaml_get(map, "numa_node");
    SN_TRY(sn_yaml_keys(&p->doc, map, "a card", keys, SN_COUNT(keys)));
    SN_TRY(read_run(p, map, "a card", "c", have, &g->run));
    g->card = (sn_topo_card){.core = -1, .numa_node = -1, .share = 1};
    SN_TRY(sn_yaml_need(&p->doc, map, "a card", "kind", &node));
    SN_TRY(find_kind(p, node, &g->card));
    SN_TRY(read_figures(p, map, &g->card));
    if ((node = sn_yaml_get(map, "share")))
        SN_TRY(read_share(p, node, &g->card.share));
    if (core) {
        SN_TRY(read_list(p, core, "core", &g->cores, &g->cores_n));
        if (core->kind != SN_YAML_LIST)
            g->cores_n = 0; /* counts up instead of repeating */
    }
    if (numa)
        SN_TRY(read_list(p, numa, "numa_node", &g->numa, &g->numa_n));
    SN_TRY(sn_yaml_need(&p->doc, map, "a card", "link", &node));
    return read_link(p, node, &g->cable);
}

static sn_status read_nics(parse *p, const sn_yaml_node *map, int have, group *g)
{
    static const char *const keys[] = {"name", "count", "first", "bandwidth", "link"};
    const sn_yaml_node *node;
    SN_TRY(sn_yaml_keys(&p->doc, map, "a NIC", keys, SN_COUNT(keys)));
    SN_TRY(read_run(p, map, "a NIC", "nic", have, &g->run));
    SN_TRY(sn_yaml_need(&p->doc, map, "a NIC", "bandwidth", &node));
    SN_TRY(topo_quantity(&p->doc, node, "bandwidth", TOPO_RATE, true, &g->bytes_per_s));
    node = sn_yaml_get(map, "link"); /* without: `links` of the host lead to it */
    return node ? read_link(p, node, &g->cable) : SN_OK;
}

static sn_status read_switches(parse *p, const sn_yaml_node *map, int have, group *g)
{
    static const char *const keys[] = {"name", "count", "first"};
    SN_TRY(sn_yaml_keys(&p->doc, map, "a switch", keys, SN_COUNT(keys)));
    return read_run(p, map, "a switch", NULL, have, &g->run);
}

/* ---- hosts ---- */

typedef sn_status (*group_reader)(parse *p, const sn_yaml_node *map, int have, group *g);

static sn_status read_groups(parse *p, const sn_yaml_node *list, group_reader reader, group **ret,
                             int *ret_n, int *vertices)
{
    int n = sn_yaml_items(list), have = 0;
    group *g = SN_NEW_N(p->doc.arena, group, n);
    for (int i = 0; i < n; i++) {
        SN_TRY(reader(p, sn_yaml_item(list, i), have, &g[i]));
        SN_TRY(room(p, sn_yaml_item(list, i), (int64_t) have + g[i].run.count));
        have += g[i].run.count;
    }
    *ret = g;
    *ret_n = n;
    *vertices += have;
    return SN_OK;
}

static sn_status read_caches(parse *p, const sn_yaml_node *node, uint64_t bytes[3])
{
    static const char *const keys[] = {"l1d", "l2", "l3"};
    SN_TRY(sn_yaml_keys(&p->doc, node, "`caches`", keys, SN_COUNT(keys)));
    for (size_t i = 0; i < SN_COUNT(keys); i++) {
        const sn_yaml_node *size = sn_yaml_get(node, keys[i]);
        double v = 0;
        if (size)
            SN_TRY(topo_quantity(&p->doc, size, keys[i], TOPO_BYTES, true, &v));
        bytes[i] = (uint64_t) v;
    }
    return SN_OK;
}

static sn_status read_host_numbers(parse *p, const sn_yaml_node *map, sn_topo_host *like)
{
    const sn_yaml_node *node;
    int64_t v;
    double bytes = 0;
    *like = (sn_topo_host){.numa_nodes = 1};
    if ((node = sn_yaml_get(map, "cores"))) {
        SN_TRY(sn_yaml_int(&p->doc, node, "cores", 0, 1 << 20, &v));
        like->cores = (int) v;
    }
    if ((node = sn_yaml_get(map, "numa_nodes"))) {
        SN_TRY(sn_yaml_int(&p->doc, node, "numa_nodes", 0, 1 << 16, &v));
        like->numa_nodes = (int) v;
    }
    if ((node = sn_yaml_get(map, "memory")))
        SN_TRY(topo_quantity(&p->doc, node, "memory", TOPO_BYTES, true, &bytes));
    like->memory_bytes = (uint64_t) bytes;
    if ((node = sn_yaml_get(map, "caches")))
        SN_TRY(read_caches(p, node, like->cache_bytes));
    return SN_OK;
}

static sn_status read_host(parse *p, const sn_yaml_node *map, host_entry *e)
{
    static const char *const keys[] = {"name",       "count",  "first",    "cores",
                                       "numa_nodes", "memory", "caches",   "machine",
                                       "cards",      "nics",   "switches", "links"};
    SN_TRY(sn_yaml_keys(&p->doc, map, "a host", keys, SN_COUNT(keys)));
    SN_TRY(read_run(p, map, "a host", NULL, 0, &e->run));
    SN_TRY(read_host_numbers(p, map, &e->like));
    const sn_yaml_node *machine = sn_yaml_get(map, "machine");
    if (machine) {
        SN_TRY(topo_word(&p->doc, machine, "machine", &e->machine));
    }
    e->vertices = 1;
    SN_TRY(read_groups(p, sn_yaml_get(map, "cards"), read_cards, &e->cards, &e->cards_n,
                       &e->vertices));
    SN_TRY(read_groups(p, sn_yaml_get(map, "nics"), read_nics, &e->nics, &e->nics_n, &e->vertices));
    SN_TRY(read_groups(p, sn_yaml_get(map, "switches"), read_switches, &e->switches, &e->switches_n,
                       &e->vertices));
    e->links = sn_yaml_get(map, "links");
    e->at = map;
    return room(p, map, (int64_t) e->run.count * e->vertices);
}

/* ---- stamping ---- */

/* The first host that named this machine: `host` itself when it is the first. */
static int machine_of(parse *p, const char *name, int host)
{
    for (size_t i = 0; i < p->machines; i++)
        if (!strcmp(p->machine[i].name, name))
            return p->machine[i].index;
    p->machine = sn_arena_grow(p->doc.arena, p->machine, p->machines, p->machines + 1,
                               sizeof *p->machine, &p->machines_cap);
    p->machine[p->machines++] = (named){name, host};
    return host;
}

static sn_status stamp_link(parse *p, const sn_yaml_node *at, int vertex, int host_vertex,
                            const topo_cable *c)
{
    if (p->topo->links == TOPO_LINKS_MAX)
        return sn_yaml_fail(&p->doc, at, "more than %d links", TOPO_LINKS_MAX);
    sn_topo_add_link(p->topo, vertex, host_vertex, c->latency_ns, c->bytes_per_s, c->kind,
                     c->measured);
    return SN_OK;
}

static sn_status stamp_cards(parse *p, const host_entry *e, int host)
{
    char name[TOPO_NAME_LONG + 16];
    for (int g = 0; g < e->cards_n; g++) {
        const group *cards = &e->cards[g];
        for (int i = 0; i < cards->run.count; i++) {
            sn_topo_card card = cards->card;
            run_name(&cards->run, i, name);
            card.name = name;
            if (cards->cores)
                card.core = cards->cores_n ? cards->cores[i % cards->cores_n] : cards->cores[0] + i;
            if (cards->numa)
                card.numa_node = cards->numa[i % cards->numa_n];
            int c = sn_topo_add_card(p->topo, host, &card), v = p->topo->card[c].vertex;
            SN_TRY(add_name(p, e->at, v));
            SN_TRY(stamp_link(p, e->at, v, p->topo->host[host].vertex, &cards->cable));
        }
    }
    return SN_OK;
}

static sn_status stamp_nics(parse *p, const host_entry *e, int host)
{
    char name[TOPO_NAME_LONG + 16];
    for (int g = 0; g < e->nics_n; g++)
        for (int i = 0; i < e->nics[g].run.count; i++) {
            run_name(&e->nics[g].run, i, name);
            int n = sn_topo_add_nic(p->topo, host, name, e->nics[g].bytes_per_s);
            int v = p->topo->nic[n].vertex;
            SN_TRY(add_name(p, e->at, v));
            if (e->nics[g].cable.kind)
                SN_TRY(stamp_link(p, e->at, v, p->topo->host[host].vertex, &e->nics[g].cable));
        }
    return SN_OK;
}

static sn_status stamp_switches(parse *p, const sn_yaml_node *at, const group *groups, int n,
                                int host)
{
    char name[TOPO_NAME_LONG + 16];
    for (int g = 0; g < n; g++)
        for (int i = 0; i < groups[g].run.count; i++) {
            run_name(&groups[g].run, i, name);
            int s = host < 0 ? sn_topo_add_switch(p->topo, name)
                             : sn_topo_add_host_switch(p->topo, host, name);
            SN_TRY(add_name(p, at, p->topo->sw[s].vertex));
        }
    return SN_OK;
}

/* The `links` of the first host of an entry are resolved by name; those of the others are the same
 * links, moved by the distance between the hosts. */
static sn_status stamp_inside(parse *p, const host_entry *e, int host, int first_link,
                              int last_link)
{
    sn_topo *topo = p->topo;
    int moved = topo->host[host].vertex - (topo->host[host - 1].vertex);
    int64_t more = last_link - first_link;
    if (topo->links + more > TOPO_LINKS_MAX)
        return sn_yaml_fail(&p->doc, e->at, "more than %d links", TOPO_LINKS_MAX);
    for (int i = first_link; i < last_link; i++) {
        sn_topo_link l = topo->link[i];
        sn_topo_add_link(topo, l.a + moved, l.b + moved, l.latency_ns, l.bytes_per_s, l.kind,
                         l.measured);
    }
    return SN_OK;
}

static sn_status stamp_host(parse *p, const host_entry *e, int i, int inside[2])
{
    char name[TOPO_NAME_LONG + 16];
    sn_topo *topo = p->topo;
    run_name(&e->run, i, name);
    int h = sn_topo_add_host(topo, name, e->like.cores, e->like.memory_bytes);
    sn_topo_host *host = &topo->host[h];
    SN_TRY(add_name(p, e->at, host->vertex));
    host->numa_nodes = e->like.numa_nodes;
    memcpy(host->cache_bytes, e->like.cache_bytes, sizeof host->cache_bytes);
    if (e->machine)
        host->machine = machine_of(p, e->machine, h);
    SN_TRY(stamp_cards(p, e, h));
    SN_TRY(stamp_nics(p, e, h));
    SN_TRY(stamp_switches(p, e->at, e->switches, e->switches_n, h));
    int before = topo->links;
    if (i > 0) {
        SN_TRY(stamp_inside(p, e, h, inside[0], inside[1]));
    } else {
        for (int k = 0; k < sn_yaml_items(e->links); k++)
            SN_TRY(topo_wiring_line(&p->wiring, sn_yaml_item(e->links, k), h));
    }
    inside[0] = before;
    inside[1] = topo->links;
    return SN_OK;
}

/* ---- the file ---- */

static sn_status read_hosts(parse *p, const sn_yaml_node *hosts)
{
    for (int k = 0; k < sn_yaml_items(hosts); k++) {
        host_entry e = {0};
        int inside[2] = {0};
        SN_TRY(read_host(p, sn_yaml_item(hosts, k), &e));
        for (int i = 0; i < e.run.count; i++)
            SN_TRY(stamp_host(p, &e, i, inside));
    }
    return SN_OK;
}

static sn_status read_network(parse *p, const sn_yaml_node *switches, const sn_yaml_node *links)
{
    group *g;
    int n, vertices = 0;
    SN_TRY(read_groups(p, switches, read_switches, &g, &n, &vertices));
    if (switches)
        SN_TRY(stamp_switches(p, switches, g, n, -1));
    for (int k = 0; k < sn_yaml_items(links); k++)
        SN_TRY(topo_wiring_line(&p->wiring, sn_yaml_item(links, k), -1));
    return topo_wiring_loops(&p->wiring);
}

static sn_status read_file(parse *p, const char *text, size_t bytes)
{
    static const char *const keys[] = {"name", "kinds", "hosts", "switches", "links"};
    const sn_yaml_node *hosts, *node;
    SN_TRY(sn_yaml_read(&p->doc, text, bytes));
    const sn_yaml_node *root = p->doc.root;
    SN_TRY(sn_yaml_keys(&p->doc, root, "a cluster file", keys, SN_COUNT(keys)));
    SN_TRY(sn_yaml_need(&p->doc, root, "a cluster file", "hosts", &hosts));
    if ((node = sn_yaml_get(root, "name"))) {
        const char *name = NULL;
        SN_TRY(topo_word(&p->doc, node, "name", &name));
        p->topo->name = sn_arena_str(p->topo->arena, name);
    }
    SN_TRY(read_kinds(p, sn_yaml_get(root, "kinds")));
    SN_TRY(read_hosts(p, hosts));
    if (!p->topo->hosts)
        return sn_yaml_fail(&p->doc, hosts, "`hosts` is empty: at least one host is needed");
    return read_network(p, sn_yaml_get(root, "switches"), sn_yaml_get(root, "links"));
}

sn_status sn_topo_parse(const char *text, size_t bytes, const char *file, sn_topo **ret)
{
    sn_topo *topo = sn_topo_create("cluster");
    parse p = {.doc = {.file = file, .arena = sn_arena_create()}, .topo = topo};
    topo_names_init(&p.names, topo);
    topo_wiring_init(&p.wiring, &p.doc, topo, &p.names);
    sn_status status = read_file(&p, text, bytes);
    topo_wiring_done(&p.wiring);
    topo_names_done(&p.names);
    sn_arena_free(p.doc.arena);
    if (status < 0)
        sn_topo_free(topo);
    else
        *ret = topo;
    return status;
}
