/* SPDX-License-Identifier: Apache-2.0
 * `from` and `to` of a link between switches say which is the lower one. A chain of such links that
 * comes back to its start is a mistake in the file (rings and tori are written with `among`). */
#include "topo/wiring.h"

#include <stdlib.h>
#include <string.h>

typedef struct climb {
    const topo_wiring *w;
    int *first; /* [vertices + 1] into order */
    int *order; /* indices of w->up, by lower vertex */
    int *below; /* [vertices] links from below not yet removed */
} climb;

static void sort_by_lower(climb *c)
{
    const topo_wiring *w = c->w;
    int n = w->topo->vertices;
    for (size_t i = 0; i < w->ups; i++) {
        c->first[w->up[i].from + 1]++;
        c->below[w->up[i].to]++;
    }
    for (int v = 0; v < n; v++)
        c->first[v + 1] += c->first[v];
    int *fill = sn_alloc(((size_t) n + 1) * sizeof *fill);
    memcpy(fill, c->first, ((size_t) n + 1) * sizeof *fill);
    for (size_t i = 0; i < w->ups; i++)
        c->order[fill[w->up[i].from]++] = (int) i;
    free(fill);
}

/* Take away what nothing leads to, again and again; true when nothing remains. */
static bool peel(climb *c)
{
    const topo_wiring *w = c->w;
    int n = w->topo->vertices, head = 0, tail = 0;
    int *queue = sn_alloc((size_t) n * sizeof *queue);
    for (int v = 0; v < n; v++)
        if (!c->below[v])
            queue[tail++] = v;
    while (head < tail) {
        int v = queue[head++];
        for (int k = c->first[v]; k < c->first[v + 1]; k++) {
            int to = w->up[c->order[k]].to;
            if (!--c->below[to])
                queue[tail++] = to;
        }
    }
    free(queue);
    return tail == n;
}

/* Something remained: go down from it, always to a remaining vertex, until one comes twice. */
static sn_status name_loop(const climb *c)
{
    const topo_wiring *w = c->w;
    int n = w->topo->vertices, v = 0;
    int *lower = sn_alloc((size_t) n * sizeof *lower); /* index of a remaining link into v, + 1 */
    bool *seen = sn_alloc((size_t) n);
    for (size_t i = 0; i < w->ups; i++)
        if (c->below[w->up[i].from] && c->below[w->up[i].to])
            lower[w->up[i].to] = (int) i + 1;
    while (!lower[v])
        v++;
    for (; !seen[v]; v = w->up[lower[v] - 1].from)
        seen[v] = true;
    sn_str loop = {0};
    int at = v, shown = 0, line = w->up[lower[v] - 1].line;
    sn_str_add(&loop, sn_topo_vertex_name(w->topo, v));
    do {
        at = w->up[lower[at] - 1].from;
        if (++shown <= 6)
            sn_str_printf(&loop, ", which is above %s", sn_topo_vertex_name(w->topo, at));
    } while (at != v);
    sn_yaml_node where = {.line = line};
    sn_status status =
        sn_yaml_fail(w->doc, &where,
                     "a loop of switches: %.280s; `from` is the lower side (write rings "
                     "with `among`)",
                     sn_str_get(&loop));
    sn_str_done(&loop);
    free(lower);
    free(seen);
    return status;
}

sn_status topo_wiring_loops(const topo_wiring *w)
{
    size_t n = (size_t) w->topo->vertices;
    climb c = {.w = w,
               .first = sn_alloc((n + 1) * sizeof *c.first),
               .order = sn_alloc(w->ups * sizeof *c.order),
               .below = sn_alloc(n * sizeof *c.below)};
    sort_by_lower(&c);
    sn_status status = peel(&c) ? SN_OK : name_loop(&c);
    free(c.first);
    free(c.order);
    free(c.below);
    return status;
}
