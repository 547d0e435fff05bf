/* SPDX-License-Identifier: Apache-2.0
 *
 * DCQCN's reaction point as functions of a flow's state (SIGCOMM 2015, section 3 and figure 7), and
 * the point where its fluid model stands still.
 *
 *   CNP:       target = current; current *= 1 - alpha/2; alpha moves towards 1; counters begin anew
 *   increase:  F times halfway back to the target, then the target itself rises by R_AI, and once
 *              timer and byte counter have both fired more than F times by i R_HAI */
#include "private.h"

#include <math.h>

sn_roce_dcqcn sn_roce_dcqcn_paper(void)
{
    /* Figure 14 of the paper; its text gives no R_HAI: ten times R_AI. */
    return (sn_roce_dcqcn){.g = 1.0 / 256,
                           .alpha_us = 55,
                           .cnp_us = 50,
                           .timer_us = 55,
                           .byte_counter = 10e6,
                           .fast_recovery = 5,
                           .rai_bps = 40e6,
                           .rhai_bps = 400e6,
                           .rate_min_bps = 40e6};
}

void roce_dcqcn_cnp(const sn_roce_dcqcn *p, roce_rate *r)
{
    r->target = r->current;
    r->current = fmax(r->current * (1 - r->alpha / 2), p->rate_min_bps);
    r->alpha = (1 - p->g) * r->alpha + p->g;
    r->bytes = 0;
    r->by_timer = r->by_bytes = 0;
    r->limited = true;
}

void roce_dcqcn_decay(const sn_roce_dcqcn *p, roce_rate *r)
{
    r->alpha *= 1 - p->g;
}

static void increase(const sn_roce_dcqcn *p, roce_rate *r, double line)
{
    int most = SN_MAX(r->by_timer, r->by_bytes), least = SN_MIN(r->by_timer, r->by_bytes);
    if (least > p->fast_recovery)
        r->target += (least - p->fast_recovery) * p->rhai_bps;
    else if (most > p->fast_recovery)
        r->target += p->rai_bps;
    r->target = fmin(r->target, line);
    r->current = (r->target + r->current) / 2;
}

void roce_dcqcn_timer(const sn_roce_dcqcn *p, roce_rate *r, double line)
{
    r->by_timer++;
    increase(p, r, line);
}

bool roce_dcqcn_bytes(const sn_roce_dcqcn *p, roce_rate *r, double line, double bytes)
{
    if (!r->limited || (r->bytes += bytes) < p->byte_counter)
        return false;
    r->bytes -= p->byte_counter;
    r->by_bytes++;
    increase(p, r, line);
    return true;
}

/* a^2 alpha - tau^2 R_AI R (b + d)(c + e), which grows with p; rates in packets a second. */
static double imbalance(const sn_roce_dcqcn *q, double p, double rate, double packet_bits)
{
    double tau = q->cnp_us * 1e-6, rai = q->rai_bps / packet_bits, f = q->fast_recovery;
    double stay = log1p(-p), per_bytes = q->byte_counter * 8 / packet_bits;
    double per_timer = q->timer_us * 1e-6 * rate;
    double a = -expm1(stay * tau * rate), alpha = -expm1(stay * q->alpha_us * 1e-6 * rate);
    double b = p / expm1(-stay * per_bytes), d = p / expm1(-stay * per_timer);
    double c = b * exp(stay * f * per_bytes), e = d * exp(stay * f * per_timer);
    return a * a * alpha - tau * tau * rai * rate * (b + d) * (c + e);
}

double sn_roce_dcqcn_fixed_point(const sn_roce_dcqcn *p, double link_bps, int flows,
                                 int packet_bytes)
{
    double bits = 8.0 * packet_bytes, rate = link_bps / bits / flows;
    double low = 1e-9, high = 0.5;
    for (int i = 0; i < 200; i++) {
        double mid = sqrt(low * high);
        if (imbalance(p, mid, rate, bits) < 0)
            low = mid;
        else
            high = mid;
    }
    return sqrt(low * high);
}
