/* SPDX-License-Identifier: Apache-2.0
 *
 * Who gets how much of the links when many send at once: max-min fair rates. All rates grow
 * together; when a link is full those that cross it stop there, the others go on (progressive
 * filling: Bertsekas & Gallager, "Data networks", 1992, section 6.5.2). Each direction of a link
 * counts for itself; a pair of cards uses the one route that topo gives it. */
#include "sim/sim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct wires {
    const sn_topo *topo;
    sn_arena *arena;
    int flows;
    int *first, *link; /* of flow f: link[first[f] … first[f + 1]), direction in the lowest bit */
    double *left;      /* [2 · links] bytes a second that nobody has */
    int *open;         /* [2 · links] flows that still grow */
} wires;

static int other_end(const sn_topo_link *l, int vertex)
{
    return l->a == vertex ? l->b : l->a;
}

static sn_status lay(wires *w, const sn_sim_flow *flow)
{
    int used = 0;
    w->link = SN_NEW_N(w->arena, int, (size_t) w->flows *SN_PATH_LINKS + 1);
    for (int f = 0; f < w->flows; f++) {
        sn_path p;
        w->first[f] = used;
        if (flow[f].from == flow[f].to)
            continue;
        SN_TRY(sn_topo_path(w->topo, flow[f].from, flow[f].to, &p));
        int at = w->topo->card[flow[f].from].vertex;
        for (int k = 0; k < p.links; k++) {
            const sn_topo_link *l = &w->topo->link[p.link[k]];
            int wire = 2 * p.link[k] + (l->a != at);
            at = other_end(l, at);
            w->link[used++] = wire;
            w->left[wire] = l->bytes_per_s;
            w->open[wire]++;
        }
    }
    w->first[w->flows] = used;
    return SN_OK;
}

/* The wire that is full first, and the rate at which it is. */
static int tightest(const wires *w, double *ret_rate)
{
    int best = -1;
    for (int i = 0; i < 2 * w->topo->links; i++)
        if (w->open[i] > 0 && (best < 0 || w->left[i] / w->open[i] < *ret_rate)) {
            best = i;
            *ret_rate = w->left[i] / w->open[i];
        }
    return best;
}

static bool crosses(const wires *w, int f, int wire)
{
    for (int k = w->first[f]; k < w->first[f + 1]; k++)
        if (w->link[k] == wire)
            return true;
    return false;
}

static void fill(wires *w, double *rate)
{
    double full = 0;
    for (int wire; (wire = tightest(w, &full)) >= 0;)
        for (int f = 0; f < w->flows; f++) {
            if (rate[f] > 0 || !crosses(w, f, wire))
                continue;
            rate[f] = full;
            for (int k = w->first[f]; k < w->first[f + 1]; k++) {
                w->left[w->link[k]] = fmax(0, w->left[w->link[k]] - full);
                w->open[w->link[k]]--;
            }
        }
}

sn_status sn_sim_rates(const sn_topo *topo, const sn_sim_flow *flow, int flows, double *ret_rate)
{
    sn_arena *arena = sn_arena_create();
    wires w = {.topo = topo,
               .arena = arena,
               .flows = flows,
               .first = SN_NEW_N(arena, int, (size_t) flows + 1),
               .left = SN_NEW_N(arena, double, 2 * (size_t) topo->links + 1),
               .open = SN_NEW_N(arena, int, 2 * (size_t) topo->links + 1)};
    sn_status status = lay(&w, flow);
    memset(ret_rate, 0, (size_t) flows * sizeof(*ret_rate));
    if (status >= 0)
        fill(&w, ret_rate);
    for (int f = 0; f < flows && status >= 0; f++)
        if (w.first[f] == w.first[f + 1])
            ret_rate[f] = HUGE_VAL; /* to itself */
    sn_arena_free(arena);
    return status;
}

/* ---- patterns ---- */

/* Card i to card i + shift: what the slowest gets. */
static sn_status slowest(const sn_topo *topo, int step, int n, int shift, double *ret)
{
    sn_sim_flow *flow = sn_alloc((size_t) n * sizeof(*flow));
    double *rate = sn_alloc((size_t) n * sizeof(*rate));
    for (int i = 0; i < n; i++)
        flow[i] = (sn_sim_flow){i * step, (i + shift) % n * step};
    sn_status status = sn_sim_rates(topo, flow, n, rate);
    *ret = HUGE_VAL;
    for (int i = 0; i < n && status >= 0; i++)
        *ret = fmin(*ret, rate[i]);
    free(flow);
    free(rate);
    return status;
}

sn_status sn_sim_pattern(const sn_topo *topo, sn_sim_traffic what, int cards, double bytes,
                         double *ret_seconds)
{
    enum { SHIFTS = 32 }; /* of an all-to-all: so many of its n - 1 steps stand for all */
    int step = SN_MAX(1, topo->cards / cards);
    double rate, sum = 0;
    if (cards < 2 || cards > topo->cards)
        return sn_fail(SN_EINVAL, "a pattern of %d cards, the topology has %d", cards, topo->cards);
    if (what == SN_SIM_RING) {
        SN_TRY(slowest(topo, step, cards, 1, &rate));
        *ret_seconds = 2.0 * (cards - 1) / cards * bytes / rate;
        return SN_OK;
    }
    int shifts = SN_MIN(SHIFTS, cards - 1);
    for (int k = 0; k < shifts; k++) {
        int shift = 1 + (int) ((int64_t) k * (cards - 1) / shifts);
        SN_TRY(slowest(topo, step, cards, shift, &rate));
        sum += bytes / cards / rate;
    }
    *ret_seconds = sum / shifts * (cards - 1);
    return SN_OK;
}
