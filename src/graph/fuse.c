/* SPDX-License-Identifier: Apache-2.0
 * Rewrites that save passes over memory. Each looks at shapes of the graph, never at what model it
 * is. */
#include "graph/private.h"

/* The layer_norm or rms_norm that reads s, of the same stage, whose other operands are ready at
 * `node`; -1 none. */
static int norm_after(const sn_graph *g, int node)
{
    const sn_node *r = &g->node[node];
    for (int i = node + 1; i < g->nodes; i++) {
        const sn_node *n = &g->node[i];
        bool norm = n->op == SN_OP_LAYER_NORM || n->op == SN_OP_RMS_NORM;
        if (!norm || n->in[0] != r->out[0] || n->stage != r->stage)
            continue;
        bool ready = true;
        for (int k = 1; k < n->ins; k++)
            ready &= g->value[n->in[k]].producer < node;
        if (ready)
            return i;
    }
    return -1;
}

/* in: x, r, rb?, then the norm's gain (and bias); out: s, then what the norm leaves. */
static sn_node merged(const sn_node *r, const sn_node *n)
{
    bool rms = n->op == SN_OP_RMS_NORM;
    sn_node both = {.op = rms ? SN_OP_RESIDUAL_RMS_NORM : SN_OP_RESIDUAL_LAYER_NORM,
                    .attr = n->attr,
                    .ins = 2 + n->ins,
                    .outs = 1 + n->outs,
                    .in = {r->in[0], r->in[1], r->ins > 2 ? r->in[2] : -1},
                    .out = {r->out[0]},
                    .name = n->name,
                    .stage = r->stage};
    for (int k = 1; k < n->ins; k++)
        both.in[2 + k] = n->in[k];
    for (int o = 0; o < n->outs; o++)
        both.out[1 + o] = n->out[o];
    return both;
}

sn_status sn_graph_fuse(sn_graph *g)
{
    bool *gone = SN_NEW_N(g->arena, bool, g->nodes);
    int kept = 0;
    for (int i = 0; i < g->nodes; i++) {
        if (g->node[i].backward)
            return sn_fail(SN_EINVAL, "graph %s: fuse comes before backward", g->name);
        if (gone[i])
            continue;
        sn_node n = g->node[i];
        int norm = n.op == SN_OP_RESIDUAL ? norm_after(g, i) : -1;
        if (norm >= 0) {
            gone[norm] = true;
            n = merged(&n, &g->node[norm]);
        }
        n.origin = kept;
        g->node[kept] = n; /* kept ≤ i: nothing unread is overwritten */
        for (int o = 0; o < n.outs; o++)
            g->value[n.out[o]].producer =
                i; /* renumbered below; i keeps norm_after's comparisons right */
        kept++;
    }
    g->nodes = kept;
    for (int i = 0; i < kept; i++)
        for (int o = 0; o < g->node[i].outs; o++)
            g->value[g->node[i].out[o]].producer = i;
    return SN_OK;
}
