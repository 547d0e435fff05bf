/* SPDX-License-Identifier: Apache-2.0
 *
 * The learned controller: eight numbers about a flow in, a new rate out, at each report (at most
 * one a flow in 20 us). A multilayer perceptron 8 → 16 → 3 with tanh; 195 weights.
 *
 *   at a report    rate ← rate · exp(0.5 tanh(y0)) + 0.02 · line · sigmoid(y1)
 *   at the start   rate ← line · sigmoid(y2 + 2)
 *
 * The first two outputs are the two halves of AIMD, so that a fair law is within reach of the
 * weights: a product that falls with congestion and a sum that does not depend on the rate. */
#include "private.h"

#include <math.h>

static double squash(double v, double most)
{
    return fmin(fmax(v, -most), most);
}

static void observe(const roce_report *r, roce_view *v, double line, double rate, roce_ps now,
                    int flows_of_nic, double paused, double x[SN_ROCE_INPUTS])
{
    double delay = r->delay_sum_ps / r->packets / (20.0 * ROCE_US), marked = r->marked / r->packets;
    double elapsed = (double) SN_MAX(now - r->since, 1) * 1e-12;
    double arrived = r->bytes * 8 / elapsed;
    x[0] = marked;
    x[1] = v->marked = (float) (0.75 * (double) v->marked + 0.25 * marked);
    x[2] = squash(delay, 4);
    x[3] = squash(delay - (double) v->delay, 2);
    x[4] = log2(rate / line) / 4;
    x[5] = squash(log2(arrived / rate), 3);
    x[6] = log2(flows_of_nic) / 4;
    x[7] = paused;
    v->delay = (float) delay;
}

static void infer(const sn_roce_policy *p, const double x[SN_ROCE_INPUTS],
                  double y[SN_ROCE_OUTPUTS])
{
    double hidden[SN_ROCE_HIDDEN];
    const float *w = p->w;
    for (int i = 0; i < SN_ROCE_HIDDEN; i++, w += SN_ROCE_INPUTS + 1) {
        double sum = (double) w[SN_ROCE_INPUTS];
        for (int j = 0; j < SN_ROCE_INPUTS; j++)
            sum += (double) w[j] * x[j];
        hidden[i] = tanh(sum);
    }
    for (int i = 0; i < SN_ROCE_OUTPUTS; i++, w += SN_ROCE_HIDDEN + 1) {
        y[i] = (double) w[SN_ROCE_HIDDEN];
        for (int j = 0; j < SN_ROCE_HIDDEN; j++)
            y[i] += (double) w[j] * hidden[j];
    }
}

double roce_policy_start(const sn_roce_policy *p, double line, double least, int flows_of_nic,
                         double paused)
{
    double x[SN_ROCE_INPUTS] = {[6] = log2(flows_of_nic) / 4, [7] = paused}, y[SN_ROCE_OUTPUTS];
    infer(p, x, y);
    return fmax(line / (1 + exp(-y[2] - 2)), least);
}

double roce_policy_rate(const sn_roce_policy *p, const roce_report *r, roce_view *v, double line,
                        double least, double rate, roce_ps now, int flows_of_nic, double paused)
{
    double x[SN_ROCE_INPUTS], y[SN_ROCE_OUTPUTS];
    observe(r, v, line, rate, now, flows_of_nic, paused, x);
    infer(p, x, y);
    rate = rate * exp(0.5 * tanh(y[0])) + 0.02 * line / (1 + exp(-y[1]));
    return fmin(fmax(rate, least), line);
}
