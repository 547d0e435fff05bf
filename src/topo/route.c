/* SPDX-License-Identifier: Apache-2.0
 * Routes: one Dijkstra tree per attachment point, kept; a path is a walk up a tree.
 *
 *   card a ── root ── … ── card b        root of a: the only neighbour of a, else a itself, so all
 *                                        cards that hang on their host alone share one tree
 *
 * Latencies are summed as whole picoseconds: sums are exact in any order, so equal routes compare
 * equal and the tie rules below decide, not rounding. A route is always computed from the lower
 * card to the higher and reversed on demand, which makes it symmetric to the last link.
 * Source: Dijkstra, "A note on two problems in connexion with graphs", Numer. Math. 1, 1959. */
#include "topo/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct edge {
    int to, link;
} edge;

/* How good a route from the root is; each field breaks ties of those before it. */
typedef struct label {
    uint64_t latency_ps;
    int links;
    double bytes_per_s;
    uint64_t tie;
} label;

typedef struct entry {
    uint64_t latency_ps;
    int links, vertex;
} entry;

struct topo_routes {
    int *first;  /* [vertices + 1] into edge */
    edge *edge;  /* [2 · links], by vertex */
    label *best; /* [vertices] scratch of a run */
    entry *heap; /* [2 · links + 1] scratch of a run */
    int trees, next;
    int *slot_of; /* [vertices] tree rooted there, -1 */
    int *root_of; /* [trees] */
    int **up;     /* [trees] → [vertices] link towards the root, -1 at the root and off it */
};

enum { TREE_BYTES = 256 << 20, TREES_MIN = 4, TREES_MAX = 1 << 16 };

void topo_routes_free(topo_routes *r)
{
    if (!r)
        return;
    for (int i = 0; i < r->trees; i++)
        free(r->up[i]);
    free(r->first);
    free(r->edge);
    free(r->best);
    free(r->heap);
    free(r->slot_of);
    free(r->root_of);
    free(r->up);
    free(r);
}

static void index_edges(topo_routes *r, const sn_topo *topo)
{
    for (int i = 0; i < topo->links; i++) {
        r->first[topo->link[i].a + 1]++;
        r->first[topo->link[i].b + 1]++;
    }
    for (int v = 0; v < topo->vertices; v++)
        r->first[v + 1] += r->first[v];
    int *fill = sn_alloc(((size_t) topo->vertices + 1) * sizeof *fill);
    memcpy(fill, r->first, ((size_t) topo->vertices + 1) * sizeof *fill);
    for (int i = 0; i < topo->links; i++) {
        const sn_topo_link *l = &topo->link[i];
        r->edge[fill[l->a]++] = (edge){l->b, i};
        r->edge[fill[l->b]++] = (edge){l->a, i};
    }
    free(fill);
}

static topo_routes *routes_create(const sn_topo *topo)
{
    size_t v = (size_t) topo->vertices, e = 2 * (size_t) topo->links;
    topo_routes *r = sn_alloc(sizeof *r);
    r->first = sn_alloc((v + 1) * sizeof *r->first);
    r->edge = sn_alloc(e * sizeof *r->edge);
    r->best = sn_alloc(v * sizeof *r->best);
    r->heap = sn_alloc((e + 1) * sizeof *r->heap);
    r->slot_of = sn_alloc(v * sizeof *r->slot_of);
    memset(r->slot_of, -1, v * sizeof *r->slot_of);
    int64_t fit = TREE_BYTES / (int64_t) ((v + 1) * sizeof(int));
    r->trees = (int) SN_MAX(TREES_MIN, SN_MIN(fit, SN_MIN(TREES_MAX, (int64_t) v + 1)));
    r->root_of = sn_alloc((size_t) r->trees * sizeof *r->root_of);
    r->up = sn_alloc((size_t) r->trees * sizeof *r->up);
    index_edges(r, topo);
    return r;
}

static bool sooner(const entry *a, const entry *b)
{
    if (a->latency_ps != b->latency_ps)
        return a->latency_ps < b->latency_ps;
    return a->links != b->links ? a->links < b->links : a->vertex < b->vertex;
}

static void heap_push(entry *heap, size_t *n, entry e)
{
    size_t i = (*n)++;
    for (; i && sooner(&e, &heap[(i - 1) / 2]); i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = e;
}

static entry heap_pop(entry *heap, size_t *n)
{
    entry top = heap[0], last = heap[--*n];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < *n; i = child) {
        child += child + 1 < *n && sooner(&heap[child + 1], &heap[child]);
        if (!sooner(&heap[child], &last))
            break;
        heap[i] = heap[child];
    }
    heap[i] = last;
    return top;
}

static bool better(const label *a, const label *b)
{
    if (a->latency_ps != b->latency_ps)
        return a->latency_ps < b->latency_ps;
    if (a->links != b->links)
        return a->links < b->links;
    if (a->bytes_per_s != b->bytes_per_s)
        return a->bytes_per_s > b->bytes_per_s;
    return a->tie < b->tie;
}

/* At most 2^41 ps (2 s) a link, so that no sum over 2^22 links wraps. */
static uint64_t latency_ps(const sn_topo_link *l)
{
    double ps = l->latency_ns * 1000;
    return ps < 1 ? 1 : ps > 0x1p41 ? UINT64_C(1) << 41 : (uint64_t) (ps + 0.5);
}

static void grow_tree(topo_routes *r, const sn_topo *topo, int root, int *up)
{
    size_t n = 0;
    for (int v = 0; v < topo->vertices; v++) {
        r->best[v] = (label){.latency_ps = UINT64_MAX};
        up[v] = -1;
    }
    r->best[root] = (label){.bytes_per_s = HUGE_VAL};
    heap_push(r->heap, &n, (entry){0, 0, root});
    while (n) {
        entry e = heap_pop(r->heap, &n);
        int v = e.vertex;
        const label *at = &r->best[v];
        if (e.latency_ps != at->latency_ps || e.links != at->links)
            continue; /* a better way was found after this entry */
        for (int k = r->first[v]; k < r->first[v + 1]; k++) {
            int to = r->edge[k].to, i = r->edge[k].link;
            const sn_topo_link *l = &topo->link[i];
            label way = {at->latency_ps + latency_ps(l), at->links + 1,
                         fmin(at->bytes_per_s, l->bytes_per_s),
                         sn_hash64((uint64_t) root, (uint64_t) to, (uint64_t) i)};
            label *have = &r->best[to];
            if (!better(&way, have))
                continue;
            bool sooner_there = way.latency_ps != have->latency_ps || way.links != have->links;
            *have = way;
            up[to] = i;
            if (sooner_there && r->first[to + 1] - r->first[to] > 1) /* a leaf leads nowhere */
                heap_push(r->heap, &n, (entry){way.latency_ps, way.links, to});
        }
    }
}

static const int *tree_of(topo_routes *r, const sn_topo *topo, int root)
{
    if (r->slot_of[root] >= 0)
        return r->up[r->slot_of[root]];
    int slot = r->next;
    r->next = (r->next + 1) % r->trees;
    if (r->up[slot])
        r->slot_of[r->root_of[slot]] = -1;
    else
        r->up[slot] = sn_alloc((size_t) topo->vertices * sizeof **r->up);
    r->root_of[slot] = root;
    r->slot_of[root] = slot;
    grow_tree(r, topo, root, r->up[slot]);
    return r->up[slot];
}

static int other_end(const sn_topo_link *l, int vertex)
{
    return l->a == vertex ? l->b : l->a;
}

/* Links from `from` up to the root, then the one from there to `start` (the lower card). */
static sn_status walk_up(const sn_topo *topo, const int *up, int root, int start, int from,
                         int first_link, int ret[SN_PATH_LINKS], int *ret_n)
{
    int n = 0, v = from;
    for (; v != root && v != start; v = other_end(&topo->link[up[v]], v)) {
        if (up[v] < 0)
            return sn_fail(SN_ENOTFOUND,
                           "%s and %s are not connected: no chain of links joins them",
                           sn_topo_vertex_name(topo, start), sn_topo_vertex_name(topo, from));
        if (n == SN_PATH_LINKS)
            break;
        ret[n++] = up[v];
    }
    if (v == root && root != start && n < SN_PATH_LINKS)
        ret[n++] = first_link;
    else if (v != start)
        return sn_fail(SN_ENOTSUP, "the route from %s to %s has more than %d links",
                       sn_topo_vertex_name(topo, start), sn_topo_vertex_name(topo, from),
                       SN_PATH_LINKS);
    *ret_n = n;
    return SN_OK;
}

/* Network switches and foreign hosts on the way decide how far apart two hosts are. */
static int tier_of(const sn_topo *topo, int a, int b, const sn_path *path)
{
    int ha = topo->card[a].host, hb = topo->card[b].host, passed = 0;
    if (a == b)
        return 0;
    if (ha == hb)
        return 1;
    int v = topo->card[a].vertex, last = -1;
    for (int i = 0; i < path->links; i++) {
        v = other_end(&topo->link[path->link[i]], v);
        int host = sn_topo_vertex_host(topo, v);
        if (host < 0)
            passed++;
        else if (host != last && host != ha && host != hb)
            passed++;
        last = host;
    }
    return 1 + SN_MAX(passed, 1);
}

sn_status sn_topo_path(const sn_topo *topo, int card_a, int card_b, sn_path *ret)
{
    SN_ASSERT(card_a >= 0 && card_a < topo->cards && card_b >= 0 && card_b < topo->cards);
    sn_path path = {.bytes_per_s = HUGE_VAL};
    if (card_a == card_b) {
        *ret = path;
        return SN_OK;
    }
    if (!topo->priv->routes)
        topo->priv->routes = routes_create(topo);
    topo_routes *r = topo->priv->routes;
    int start = topo->card[SN_MIN(card_a, card_b)].vertex;
    int goal = topo->card[SN_MAX(card_a, card_b)].vertex;
    const edge *only =
        r->first[start + 1] - r->first[start] == 1 ? &r->edge[r->first[start]] : NULL;
    int root = only ? only->to : start;
    int link[SN_PATH_LINKS], n = 0; /* from goal back to start */
    const int *up = tree_of(r, topo, root);
    SN_TRY(walk_up(topo, up, root, start, goal, only ? only->link : -1, link, &n));
    for (int i = n - 1; i >= 0; i--) { /* summed from start to goal, whoever asks */
        path.latency_ns += topo->link[link[i]].latency_ns;
        path.bytes_per_s = fmin(path.bytes_per_s, topo->link[link[i]].bytes_per_s);
    }
    path.links = n;
    for (int i = 0; i < n; i++)
        path.link[i] = card_a < card_b ? link[n - 1 - i] : link[i];
    path.tier = tier_of(topo, card_a, card_b, &path);
    *ret = path;
    return SN_OK;
}

int sn_topo_tier(const sn_topo *topo, int card_a, int card_b)
{
    sn_path path;
    return sn_topo_path(topo, card_a, card_b, &path) == SN_OK ? path.tier : -1;
}
