/* SPDX-License-Identifier: Apache-2.0
 * One line of `links` → pairs of vertices, by a pattern from the table below. */
#include "topo/wiring.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD_MAX = 128, LISTED_MAX = 1024, DIMENSIONS_MAX = 6 };

void topo_wiring_init(topo_wiring *w, const sn_yaml_doc *doc, sn_topo *topo, topo_names *names)
{
    *w = (topo_wiring){.doc = doc, .topo = topo, .names = names, .pairs_cap = 64};
    w->pair = sn_alloc(w->pairs_cap * sizeof *w->pair);
}

void topo_wiring_done(topo_wiring *w)
{
    free(w->pair);
    free(w->up);
    *w = (topo_wiring){0};
}

sn_status topo_cable_read(const sn_yaml_doc *doc, const sn_yaml_node *map, const char *what,
                          topo_cable *ret)
{
    const sn_yaml_node *node;
    topo_cable cable = {.kind = "link"};
    SN_TRY(sn_yaml_need(doc, map, what, "latency", &node));
    SN_TRY(topo_quantity(doc, node, "latency", TOPO_TIME, false, &cable.latency_ns));
    SN_TRY(sn_yaml_need(doc, map, what, "bandwidth", &node));
    SN_TRY(topo_quantity(doc, node, "bandwidth", TOPO_RATE, false, &cable.bytes_per_s));
    if ((node = sn_yaml_get(map, "kind")))
        SN_TRY(topo_word(doc, node, "kind", &cable.kind));
    if ((node = sn_yaml_get(map, "measured")))
        SN_TRY(sn_yaml_bool(doc, node, "measured", &cable.measured));
    *ret = cable;
    return SN_OK;
}

/* True when the pair was new. Keys are never 0, since b > a ≥ 0. */
static bool pair_add(topo_wiring *w, int a, int b)
{
    uint64_t key = (uint64_t) SN_MIN(a, b) << 32 | (uint32_t) SN_MAX(a, b);
    if (w->pairs * 2 >= w->pairs_cap) {
        uint64_t *old = w->pair;
        size_t n = w->pairs_cap;
        w->pairs_cap *= 2;
        w->pairs = 0;
        w->pair = sn_alloc(w->pairs_cap * sizeof *w->pair);
        for (size_t i = 0; i < n; i++)
            if (old[i])
                pair_add(w, (int) (old[i] >> 32), (int) (uint32_t) old[i]);
        free(old);
    }
    size_t i = sn_hash64(key, 0, 0) & (w->pairs_cap - 1);
    for (; w->pair[i]; i = (i + 1) & (w->pairs_cap - 1))
        if (w->pair[i] == key)
            return false;
    w->pair[i] = key;
    w->pairs++;
    return true;
}

/* ---- what a line names ---- */

static sn_status select_one(topo_wiring *w, const sn_yaml_node *node, const char *what, int host,
                            topo_set *set)
{
    const char *text;
    char full[2 * WORD_MAX + 2];
    int from = 0, to = w->topo->vertices;
    SN_TRY(sn_yaml_text(w->doc, node, what, &text));
    if (strlen(text) > WORD_MAX)
        return sn_yaml_fail(w->doc, node, "`%s`: a name has at most %d characters", what, WORD_MAX);
    if (host >= 0) { /* while a host is being read it is the last one: its vertices are the tail */
        from = w->topo->host[host].vertex;
        const char *name = w->topo->host[host].name;
        if (!strcmp(text, "."))
            snprintf(full, sizeof full, "%s", name);
        else
            snprintf(full, sizeof full, "%s/%s", name, text);
        text = full;
    }
    size_t before = set->n;
    if (!topo_names_select(w->names, text, from, to, set))
        return sn_yaml_fail(w->doc, node,
                            "too many patterns for a topology of this size: name more "
                            "vertices with one");
    if (set->n > before)
        return SN_OK;
    const char *near = topo_names_nearest(w->names, text);
    return sn_yaml_fail(w->doc, node, "`%s`: nothing is named `%s`%s%s%s", what, text,
                        near ? "; did you mean `" : "", near ? near : "", near ? "`?" : "");
}

static sn_status select_set(topo_wiring *w, const sn_yaml_node *node, const char *what, int host,
                            topo_set *set)
{
    int n = sn_yaml_items(node);
    if (n < 1 || n > LISTED_MAX)
        return sn_yaml_fail(w->doc, node, "`%s` lists %d names: 1 to %d", what, n, LISTED_MAX);
    for (int i = 0; i < n; i++)
        SN_TRY(select_one(w, sn_yaml_item(node, i), what, host, set));
    return SN_OK;
}

/* ---- patterns: two sets, or one set among itself ---- */

typedef struct task {
    topo_wiring *w;
    const sn_yaml_node *line;
    topo_cable cable;
    bool upward;
    topo_set from, to; /* `to` is empty for `among` */
    int size[DIMENSIONS_MAX], dimensions;
} task;

static sn_status join(task *t, int a, int b)
{
    topo_wiring *w = t->w;
    sn_topo *topo = w->topo;
    if (a == b)
        return sn_yaml_fail(w->doc, t->line, "%s is linked to itself",
                            sn_topo_vertex_name(topo, a));
    if (!pair_add(w, a, b))
        return sn_yaml_fail(
            w->doc, t->line,
            "%s and %s are linked already: state parallel cables once, with their sum",
            sn_topo_vertex_name(topo, a), sn_topo_vertex_name(topo, b));
    if (topo->links == TOPO_LINKS_MAX)
        return sn_yaml_fail(w->doc, t->line, "more than %d links", TOPO_LINKS_MAX);
    const topo_cable *c = &t->cable;
    sn_topo_add_link(topo, a, b, c->latency_ns, c->bytes_per_s, c->kind, c->measured);
    if (!t->upward || topo->vertex[a].kind != SN_VERTEX_SWITCH ||
        topo->vertex[b].kind != SN_VERTEX_SWITCH)
        return SN_OK;
    if (w->ups == w->ups_cap) {
        w->ups_cap = w->ups_cap ? w->ups_cap * 2 : 64;
        w->up = sn_realloc(w->up, w->ups_cap * sizeof *w->up);
    }
    w->up[w->ups++] = (topo_upward){a, b, t->line->line};
    return SN_OK;
}

static sn_status all(task *t)
{
    for (size_t i = 0; i < t->from.n; i++)
        for (size_t k = 0; k < t->to.n; k++)
            SN_TRY(join(t, t->from.vertex[i], t->to.vertex[k]));
    return SN_OK;
}

static sn_status one(task *t)
{
    if (t->from.n != t->to.n)
        return sn_yaml_fail(t->w->doc, t->line,
                            "pattern `one` joins equal numbers: here %zu and %zu", t->from.n,
                            t->to.n);
    for (size_t i = 0; i < t->from.n; i++)
        SN_TRY(join(t, t->from.vertex[i], t->to.vertex[i]));
    return SN_OK;
}

static sn_status block(task *t)
{
    for (size_t i = 0; i < t->from.n; i++)
        SN_TRY(join(t, t->from.vertex[i], t->to.vertex[i * t->to.n / t->from.n]));
    return SN_OK;
}

static sn_status cycle(task *t)
{
    for (size_t i = 0; i < t->from.n; i++)
        SN_TRY(join(t, t->from.vertex[i], t->to.vertex[i % t->to.n]));
    return SN_OK;
}

static sn_status full(task *t)
{
    for (size_t i = 0; i < t->from.n; i++)
        for (size_t k = i + 1; k < t->from.n; k++)
            SN_TRY(join(t, t->from.vertex[i], t->from.vertex[k]));
    return SN_OK;
}

/* Each vertex to the next in every dimension; the last one counts fastest. In a torus the end meets
 * the start, but a dimension of two has one link, not two. */
static sn_status lattice(task *t, bool wrap)
{
    size_t product = 1;
    if (!t->dimensions) {
        t->dimensions = 1;
        t->size[0] = (int) t->from.n;
    }
    for (int d = 0; d < t->dimensions && product <= t->from.n; d++)
        product *= (size_t) t->size[d];
    if (product != t->from.n)
        return sn_yaml_fail(t->w->doc, t->line, "`size` is not that of the %zu vertices of `among`",
                            t->from.n);
    size_t stride = 1;
    for (int d = t->dimensions - 1; d >= 0; stride *= (size_t) t->size[d--]) {
        size_t n = (size_t) t->size[d];
        for (size_t i = 0; i < t->from.n; i++) {
            size_t at = i / stride % n, next = i + stride;
            if (at == n - 1) {
                if (!wrap || n < 3)
                    continue;
                next = i - at * stride;
            }
            SN_TRY(join(t, t->from.vertex[i], t->from.vertex[next]));
        }
    }
    return SN_OK;
}

static sn_status grid(task *t)
{
    return lattice(t, false);
}

static sn_status torus(task *t)
{
    return lattice(t, true);
}

static const struct pattern {
    const char *name;
    bool among, sized;
    sn_status (*join)(task *t);
} patterns[] = {
    {"all", false, false, all},     /* each of `from` with each of `to` */
    {"one", false, false, one},     /* the i-th with the i-th */
    {"block", false, false, block}, /* equal runs of `from` share one of `to` */
    {"cycle", false, false, cycle}, /* the i-th with the (i mod n)-th: rails */
    {"full", true, false, full},    /* everyone with everyone */
    {"ring", true, false, torus},   /* each with the next, the last with the first */
    {"grid", true, true, grid},     /* `size: [x, y, z]` without wrap-around */
    {"torus", true, true, torus},   /* the same with */
};

static sn_status pattern_named(task *t, const sn_yaml_node *node, const struct pattern **ret)
{
    const char *text, *names[SN_COUNT(patterns)];
    SN_TRY(sn_yaml_text(t->w->doc, node, "pattern", &text));
    for (size_t i = 0; i < SN_COUNT(patterns); i++) {
        names[i] = patterns[i].name;
        if (!strcmp(text, patterns[i].name)) {
            *ret = &patterns[i];
            return SN_OK;
        }
    }
    const char *near = sn_str_nearest(text, names, SN_COUNT(names));
    return sn_yaml_fail(t->w->doc, node,
                        "no pattern `%.64s`%s%s%s (all, one, block, cycle for `from` "
                        "and `to`; full, ring, grid, torus for `among`)",
                        text, near ? "; did you mean `" : "", near ? near : "", near ? "`?" : "");
}

/* Without a word: two single vertices or one against many are unmistakable. */
static const struct pattern *pattern_plain(const task *t, bool among)
{
    if (among)
        return t->from.n <= 2 ? &patterns[4] : NULL;
    if (t->from.n == 1 || t->to.n == 1)
        return &patterns[0];
    return t->from.n == t->to.n ? &patterns[1] : NULL;
}

static sn_status read_size(task *t, const sn_yaml_node *node)
{
    t->dimensions = sn_yaml_items(node);
    if (t->dimensions < 1 || t->dimensions > DIMENSIONS_MAX)
        return sn_yaml_fail(t->w->doc, node, "`size` has 1 to %d dimensions", DIMENSIONS_MAX);
    for (int d = 0; d < t->dimensions; d++) {
        int64_t v;
        SN_TRY(sn_yaml_int(t->w->doc, sn_yaml_item(node, d), "size", 1, TOPO_VERTICES_MAX, &v));
        t->size[d] = (int) v;
    }
    return SN_OK;
}

static sn_status choose(task *t, bool among, const struct pattern **ret)
{
    const sn_yaml_doc *doc = t->w->doc;
    const sn_yaml_node *word = sn_yaml_get(t->line, "pattern"),
                       *size = sn_yaml_get(t->line, "size");
    const struct pattern *p = pattern_plain(t, among);
    if (word)
        SN_TRY(pattern_named(t, word, &p));
    if (!p)
        return sn_yaml_fail(doc, t->line, "%zu %s %zu vertices: say how with `pattern: %s`",
                            t->from.n, among ? "among" : "to", among ? t->from.n : t->to.n,
                            among ? "full|ring|grid|torus" : "all|block|cycle");
    if (p->among != among)
        return sn_yaml_fail(doc, t->line, "pattern `%s` needs %s", p->name,
                            p->among ? "`among`" : "`from` and `to`");
    if (size && !p->sized)
        return sn_yaml_fail(doc, size, "`size` belongs to pattern grid or torus");
    if (size)
        SN_TRY(read_size(t, size));
    *ret = p;
    return SN_OK;
}

static sn_status line_read(task *t, int host)
{
    static const char *const keys[] = {"from", "to", "among", "pattern", "size", TOPO_CABLE_KEYS};
    topo_wiring *w = t->w;
    const struct pattern *p = NULL;
    SN_TRY(sn_yaml_keys(w->doc, t->line, "a link", keys, SN_COUNT(keys)));
    const sn_yaml_node *among = sn_yaml_get(t->line, "among"), *from = sn_yaml_get(t->line, "from"),
                       *to = sn_yaml_get(t->line, "to");
    if (among ? from || to : !from || !to)
        return sn_yaml_fail(w->doc, t->line, "a link has `from` and `to` (upward), or `among`");
    SN_TRY(topo_cable_read(w->doc, t->line, "a link", &t->cable));
    SN_TRY(select_set(w, among ? among : from, among ? "among" : "from", host, &t->from));
    if (!among)
        SN_TRY(select_set(w, to, "to", host, &t->to));
    SN_TRY(choose(t, among != NULL, &p));
    t->upward = !among;
    return p->join(t);
}

sn_status topo_wiring_line(topo_wiring *w, const sn_yaml_node *line, int host)
{
    task t = {.w = w, .line = line};
    sn_status status = line_read(&t, host);
    topo_set_done(&t.from);
    topo_set_done(&t.to);
    return status;
}
