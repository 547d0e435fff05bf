/* SPDX-License-Identifier: Apache-2.0
 * A topology as a Graphviz graph: a box a host, a line a link with what it costs. */
#include "topo/model.h"

static const char *const shapes[] = {[SN_VERTEX_HOST] = "box",
                                     [SN_VERTEX_CARD] = "component",
                                     [SN_VERTEX_NIC] = "cds",
                                     [SN_VERTEX_SWITCH] = "hexagon"};

static void vertex(const sn_topo *topo, int v, const char *indent, sn_str *out)
{
    const char *name = sn_topo_vertex_name(topo, v);
    sn_str_printf(out, "%s\"%s\" [shape=%s, label=\"%s", indent, name, shapes[topo->vertex[v].kind],
                  sn_topo_local_name(name));
    if (topo->vertex[v].kind == SN_VERTEX_CARD) {
        const sn_topo_card *c = &topo->card[topo->vertex[v].index];
        sn_str_printf(out, "\\n%s", c->kind);
        if (c->core >= 0)
            sn_str_printf(out, " core %d", c->core);
        if (c->share < 1)
            sn_str_printf(out, " share %.3g", c->share);
    }
    sn_str_add(out, "\"];\n");
}

void sn_topo_dot(const sn_topo *topo, sn_str *out)
{
    char latency[32], rate[32];
    sn_str_printf(out, "graph \"%s\" {\n  layout=dot; rankdir=BT; node [fontsize=10];\n",
                  topo->name);
    int v =
        0; /* vertices of a host usually follow it: one cluster a host, opened where they start */
    for (int h = -1, open = -1; v < topo->vertices; v++) {
        h = sn_topo_vertex_host(topo, v);
        if (open >= 0 && h != open)
            sn_str_add(out, "  }\n");
        if (h >= 0 && h != open)
            sn_str_printf(out, "  subgraph \"cluster_%s\" {\n    label=\"%s\";\n",
                          topo->host[h].name, topo->host[h].name);
        open = h;
        vertex(topo, v, h >= 0 ? "    " : "  ", out);
        if (v == topo->vertices - 1 && open >= 0)
            sn_str_add(out, "  }\n");
    }
    for (int i = 0; i < topo->links; i++) {
        const sn_topo_link *l = &topo->link[i];
        sn_str_printf(out, "  \"%s\" -- \"%s\" [label=\"%s %s\\n%s\"%s];\n",
                      sn_topo_vertex_name(topo, l->a), sn_topo_vertex_name(topo, l->b), l->kind,
                      sn_fmt_ns(latency, l->latency_ns), sn_fmt_rate(rate, l->bytes_per_s),
                      l->measured ? "" : ", style=dashed");
    }
    sn_str_add(out, "}\n");
}
