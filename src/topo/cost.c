/* SPDX-License-Identifier: Apache-2.0
 * Where α, β and peaks become time. */
#include "topo/topo.h"

#include <math.h>

double sn_topo_transfer_ns(const sn_path *path, double bytes, double sharers)
{
    return path->latency_ns + bytes * sharers / path->bytes_per_s * 1e9;
}

/* Peak for an element type; an unknown 16-bit peak falls back to f32's, which it never undercuts on
 * the cards we know. */
static double peak_of(const sn_topo_card *card, sn_dtype dtype)
{
    if ((dtype == SN_BF16 || dtype == SN_F16) && card->flops_bf16 > 0)
        return card->flops_bf16;
    return dtype == SN_F64 ? card->flops_f32 / 2 : card->flops_f32;
}

/* amount / rate in nanoseconds; no work takes no time even at an unknown rate (0). */
static double time_ns(double amount, double rate)
{
    if (amount <= 0)
        return 0;
    return rate > 0 ? amount / rate * 1e9 : HUGE_VAL;
}

double sn_topo_compute_ns(const sn_topo *topo, int card, double flops, double bytes, sn_dtype dtype,
                          double busy)
{
    SN_ASSERT(card >= 0 && card < topo->cards);
    const sn_topo_card *c = &topo->card[card];
    double slower = fmax(busy, 1);
    if (c->core < 0)
        slower = fmax(slower, 1 / c->share);
    double alone = fmax(time_ns(flops, peak_of(c, dtype)), time_ns(bytes, c->memory_bytes_per_s));
    return alone * slower;
}

int sn_topo_sharers(const sn_topo *topo, int card, int used)
{
    SN_ASSERT(card >= 0 && card < topo->cards);
    const sn_topo_card *me = &topo->card[card];
    if (me->core < 0)
        return 1;
    int machine = topo->host[me->host].machine, sharers = 0;
    for (int c = 0; c < SN_MIN(used, topo->cards); c++)
        sharers +=
            topo->card[c].core == me->core && topo->host[topo->card[c].host].machine == machine;
    return SN_MAX(sharers, 1);
}
