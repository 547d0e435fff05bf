/* SPDX-License-Identifier: Apache-2.0
 *
 * model — what the cost functions need to know, read from the topology. */
#include "algo/build.h"

/* Where there is no topology: a current x86 core, and TCP between hosts. Only the choice depends on
 * them, never a result. */
static const sn_algo_model fallback = {.signal_ns = 250,
                                       .copy_bytes_per_s = 8e9,
                                       .reduce_bytes_per_s = 12e9,
                                       .net_latency_ns = 8000,
                                       .net_bytes_per_s = 2e9,
                                       .net_message_ns = 1500,
                                       .members_per_core = 1};

/* The slowest path between members on different hosts (or on one). */
static void slowest(const sn_topo *topo, const int *card, int members, bool across,
                    double *latency_ns, double *bytes_per_s)
{
    bool first = true;
    for (int a = 0; a < members; a++) {
        for (int b = a + 1; b < members; b++) {
            sn_path path;
            bool other = topo->card[card[a]].host != topo->card[card[b]].host;
            if (other != across || sn_topo_path(topo, card[a], card[b], &path) != SN_OK)
                continue;
            *latency_ns = first ? path.latency_ns : SN_MAX(*latency_ns, path.latency_ns);
            *bytes_per_s = first ? path.bytes_per_s : SN_MIN(*bytes_per_s, path.bytes_per_s);
            first = false;
        }
    }
}

/* How many members take turns on a core: those that topo says share it, but not more than there
 * are. Cards outside the group are charged too, for they compute meanwhile. */
static double sharing(const sn_topo *topo, const int *card, int members)
{
    int most = 1;
    for (int i = 0; i < members; i++)
        most = SN_MAX(most, sn_topo_sharers(topo, card[i], topo->cards));
    return SN_MIN(most, members);
}

sn_algo_model sn_algo_model_from(const sn_topo *topo, const int *card, int members)
{
    sn_algo_model m = fallback;
    if (topo == NULL)
        return m;
    for (int i = 0; i < members; i++)
        if (card[i] < 0 || card[i] >= topo->cards)
            return m;
    double memory = topo->card[card[0]].memory_bytes_per_s, link = 0;
    for (int i = 1; i < members; i++)
        memory = SN_MIN(memory, topo->card[card[i]].memory_bytes_per_s);
    if (memory > 0) {
        m.copy_bytes_per_s = memory / 2; /* a copied byte is read and written */
        m.reduce_bytes_per_s = memory / 2;
    }
    slowest(topo, card, members, false, &m.signal_ns, &link);
    slowest(topo, card, members, true, &m.net_latency_ns, &m.net_bytes_per_s);
    m.members_per_core = sharing(topo, card, members);
    return m;
}
