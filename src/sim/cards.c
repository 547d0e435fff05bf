/* SPDX-License-Identifier: Apache-2.0
 *
 * Cards as figures. Stated peaks and memory are vendors'; best_share is the best product that
 * somebody measured beside them (MAMF: the maximum achievable of ml-engineering's table). Where
 * sources disagree the middle is taken and the source says between what. */
#include "sim/sim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define T 1e12
#define G 1e9

static const sn_sim_card cards[] = {
    {"a100", 312 * T, .869, 108, 80 * G, 2.039 * T, 300 * G, 8, 400, 1.60,
     "vendor; MAMF 271.2 of 312; NVLink 3, 600 GB/s both ways; price: ballpark of 2025"},
    {"h100", 989 * T, .803, 132, 80 * G, 3.35 * T, 450 * G, 8, 700, 2.65,
     "vendor; MAMF 794.5 of 989; NVLink 4; price on demand, 1.48 reserved"},
    {"h200", 989 * T, .803, 132, 141 * G, 4.8 * T, 450 * G, 8, 700, 3.20,
     "vendor, MLPerf system description; MAMF as h100; price on demand, 1.85 reserved"},
    {"h800", 989 * T, .803, 132, 80 * G, 3.35 * T, 200 * G, 8, 700, 2.40,
     "DeepEP and DeepSeek: NVLink 400 GB/s, about 160 achieved one way; price assumed"},
    {"b200", 2250 * T, .78, 148, 180 * G, 7.7 * T, 900 * G, 8, 1000, 4.60,
     "HGX, secondary source; share assumed near h100's; price on demand, 2.75 reserved"},
    {"gb200", 2500 * T, .78, 148, 186 * G, 8.0 * T, 900 * G, 72, 1200, 5.00,
     "secondary source; share and price assumed"},
    {"mi300x", 1300 * T, .51, 304, 192 * G, 5.3 * T, 448 * G, 8, 750, 2.20,
     "vendor; MAMF 668 of 1300; price assumed"},
    {"910b", 320 * T, .75, 24, 64 * G, 1.2 * T, 196 * G, 8, 355, 0,
     "sources between 256 and 376 TFLOP/s, 0.4 and 1.6 TB/s, 310 and 400 W: the middle"},
    {"910c", 752 * T, .75, 48, 128 * G, 3.2 * T, 392 * G, 384, 700, 0,
     "CloudMatrix384 (2506.12708): two dies, 392 GB/s one way; share and power assumed"},
};

int sn_sim_cards(const sn_sim_card **ret)
{
    *ret = cards;
    return (int) SN_COUNT(cards);
}

const sn_sim_card *sn_sim_card_find(const char *name)
{
    for (size_t i = 0; i < SN_COUNT(cards); i++)
        if (name && !strcmp(name, cards[i].name))
            return &cards[i];
    return NULL;
}

/* Hosts beside their cards: 10.2 kW of a DGX H100 with 8 x 700 W of cards is 575 W a card. */
#define HOST_WATTS_A_CARD 575.0

sn_sim_cluster sn_sim_cluster_of(const sn_sim_card *card, int count, double net_per_s)
{
    return (sn_sim_cluster){.card = card,
                            .cards = count,
                            .per_host = 8,
                            .domain = card->domain,
                            .scale_up_per_s = card->scale_up_per_s,
                            .scale_up_s = 3e-6,
                            .net_per_s = net_per_s > 0 ? net_per_s : 50 * G,
                            .net_s = 8e-6,
                            .oversubscription = 1,
                            .host_watts = 8 * HOST_WATTS_A_CARD,
                            .pue = 1.2};
}

/* ---- from a cluster file ---- */

static void list_kinds(sn_str *out)
{
    for (size_t i = 0; i < SN_COUNT(cards); i++)
        sn_str_printf(out, "%s%s", i ? ", " : "", cards[i].name);
}

static sn_status kind_of(const sn_topo *topo, const sn_sim_card **ret)
{
    const char *kind = topo->cards > 0 ? topo->card[0].kind : "none";
    for (int i = 1; i < topo->cards; i++)
        if (strcmp(topo->card[i].kind, kind))
            return sn_fail(SN_EFIT,
                           "%s has cards of kind %s and %s: foresight takes one kind at a time",
                           topo->name, kind, topo->card[i].kind);
    *ret = sn_sim_card_find(kind);
    if (*ret)
        return SN_OK;
    sn_str known = {0};
    list_kinds(&known);
    sn_status status =
        sn_fail(SN_ENOTFOUND, "cards of kind '%s' are not in the table of foresight, which has: %s",
                kind, sn_str_get(&known));
    sn_str_done(&known);
    return status;
}

/* Cards that card 0 reaches as fast as its nearest. */
static int domain_of(const sn_topo *topo, double fastest)
{
    int n = 1;
    for (int i = 1; i < topo->cards && i < 4096; i++) {
        sn_path p;
        if (sn_topo_path(topo, 0, i, &p) < 0 || p.bytes_per_s < 0.9 * fastest)
            break;
        n++;
    }
    return n;
}

/* A card's share of the network when each sends to the card of its number on the next host. */
static sn_status share_of(const sn_topo *topo, int per_host, double *ret)
{
    int n = SN_MIN(topo->cards, 2048) / per_host * per_host;
    sn_sim_flow *flow = sn_alloc((size_t) n * sizeof(*flow));
    double *rate = sn_alloc((size_t) n * sizeof(*rate));
    for (int i = 0; i < n; i++)
        flow[i] = (sn_sim_flow){i, (i + per_host) % n};
    sn_status status = sn_sim_rates(topo, flow, n, rate);
    *ret = HUGE_VAL;
    for (int i = 0; i < n && status >= 0; i++)
        *ret = fmin(*ret, rate[i]);
    free(flow);
    free(rate);
    return status;
}

sn_status sn_sim_cluster_from(const sn_topo *topo, sn_sim_cluster *ret)
{
    const sn_sim_card *card;
    sn_path near = {0}, far = {0};
    SN_TRY(kind_of(topo, &card));
    sn_sim_cluster c = sn_sim_cluster_of(card, topo->cards, 0);
    c.per_host = topo->host[0].cards;
    c.host_watts = HOST_WATTS_A_CARD * c.per_host;
    if (topo->cards > 1) {
        SN_TRY(sn_topo_path(topo, 0, 1, &near));
        c.scale_up_per_s = near.bytes_per_s;
        c.scale_up_s = near.latency_ns * 1e-9 + 2e-6;
        c.domain = domain_of(topo, near.bytes_per_s);
    }
    if (c.domain < topo->cards) {
        SN_TRY(sn_topo_path(topo, 0, topo->cards - 1, &far));
        SN_TRY(share_of(topo, c.per_host, &c.net_per_s));
        c.net_s = far.latency_ns * 1e-9 + 5e-6;
    }
    *ret = c;
    return SN_OK;
}
