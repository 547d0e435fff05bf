/* SPDX-License-Identifier: Apache-2.0
 *
 * fit — a model from measured calls.
 *
 *   1. prices    each sample says  Σ count · price = measured.  The prices, none negative, that
 *                make the sum of squared relative errors least. What overlaps with what depends on
 *                the prices (cost.h), so counting and solving take turns a few times
 *   2. factors   what the prices leave: for each row and operation, by size, the ratio of measured
 *                to predicted. Choosing compares rows on the same machine, so what all of them have
 *                in common matters less than what a row has of its own
 *
 * A price that the samples do not tell (a network among members of one host) stays as it was: each
 * is drawn weakly to where it started. */
#include "algo/build.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TURNS 8         /* counting and solving */
#define SWEEPS 2000     /* of the solver; there are but ALGO_TERMS unknowns */
#define PULL 1e-4       /* weight of a price's start against one sample */
#define FACTOR_STEPS 24 /* sn_algo_model.factor */

typedef double matrix[ALGO_TERMS][ALGO_TERMS];

static sn_algo_model model_of(const sn_algo_sample *s, const sn_algo_model *m)
{
    sn_algo_model own = *m;
    if (s->members_per_core >= 1)
        own.members_per_core = s->members_per_core;
    return own;
}

static algo_counts count(const sn_algo_sample *s, const sn_algo_model *m)
{
    algo_counts c = {0};
    algo_shape shape = algo_shape_of(s->group);
    s->row->count(&shape, s->group, &s->call, m, &c);
    return c;
}

/* ---- prices ---- */

/* How a count's price changes with members a core: prices are fitted for one. */
static algo_counts sharing(const sn_algo_model *m)
{
    algo_counts f;
    for (int i = 0; i < ALGO_TERMS; i++)
        f.of[i] = 1;
    f.of[ALGO_SIGNAL] = f.of[ALGO_COPY] = f.of[ALGO_REDUCE] = f.of[ALGO_SOCKET] =
        m->members_per_core;
    return f;
}

static algo_counts lone_prices(const sn_algo_model *m)
{
    sn_algo_model one = *m;
    one.members_per_core = 1;
    return algo_prices(&one);
}

static void set_prices(sn_algo_model *m, const algo_counts *x)
{
    const double fastest = 1e15; /* bytes a second: as good as none */
    m->call_ns = x->of[ALGO_CALL];
    m->signal_ns = x->of[ALGO_SIGNAL];
    m->copy_bytes_per_s = SN_MIN(fastest, 1e9 / x->of[ALGO_COPY]);
    m->reduce_bytes_per_s = SN_MIN(fastest, 1e9 / x->of[ALGO_REDUCE]);
    m->net_latency_ns = x->of[ALGO_LATENCY];
    m->net_message_ns = x->of[ALGO_MESSAGE];
    m->net_bytes_per_s = SN_MIN(fastest, 1e9 / x->of[ALGO_WIRE]);
    m->net_member_bytes_per_s = x->of[ALGO_SOCKET] > 0 ? 1e9 / x->of[ALGO_SOCKET] : 0;
}

/* Normal equations of all samples in relative error, in units of `scale`. */
static void equations(const sn_algo_sample *sample, int samples, const sn_algo_model *m,
                      const algo_counts *scale, matrix a, double *b)
{
    for (int s = 0; s < samples; s++) {
        sn_algo_model own = model_of(&sample[s], m);
        algo_counts c = count(&sample[s], &own), shared = sharing(&own);
        double row[ALGO_TERMS];
        for (int i = 0; i < ALGO_TERMS; i++)
            row[i] = c.of[i] * shared.of[i] * scale->of[i] / sample[s].ns;
        for (int i = 0; i < ALGO_TERMS; i++) {
            b[i] += row[i];
            for (int k = 0; k < ALGO_TERMS; k++)
                a[i][k] += row[i] * row[k];
        }
    }
}

/* a·x = b with x ≥ 0, as near as can be: coordinate descent, which ends where no single change
 * helps, and for a convex sum of squares that is the least. */
static void solve(matrix a, const double *b, double *x)
{
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        for (int i = 0; i < ALGO_TERMS; i++) {
            double rest = b[i];
            for (int k = 0; k < ALGO_TERMS; k++)
                rest -= a[i][k] * x[k];
            if (a[i][i] > 0)
                x[i] = SN_MAX(0, x[i] + rest / a[i][i]);
        }
    }
}

/* Where a price starts from; one that costs nothing yet is given the size it could have. */
static algo_counts start_of(const sn_algo_model *m)
{
    algo_counts x = lone_prices(m);
    if (x.of[ALGO_CALL] <= 0)
        x.of[ALGO_CALL] = SN_MAX(x.of[ALGO_SIGNAL], 1);
    if (x.of[ALGO_SOCKET] <= 0)
        x.of[ALGO_SOCKET] = x.of[ALGO_COPY];
    for (int i = 0; i < ALGO_TERMS; i++)
        x.of[i] = SN_MAX(x.of[i], 1e-9);
    return x;
}

static double predicted(const sn_algo_sample *s, const sn_algo_model *m)
{
    sn_algo_model own = model_of(s, m);
    algo_counts c = count(s, &own), price = algo_prices(&own);
    return algo_ns(&c, &price);
}

static double squares(const sn_algo_sample *sample, int samples, const sn_algo_model *m)
{
    double sum = 0;
    for (int i = 0; i < samples; i++) {
        double miss = predicted(&sample[i], m) / sample[i].ns - 1;
        sum += miss * miss;
    }
    return sum;
}

/* The best of the turns: where other things overlap under new prices, a turn may also lose. */
static void fit_prices(const sn_algo_sample *sample, int samples, sn_algo_model *inout)
{
    const algo_counts start = lone_prices(inout), scale = start_of(inout);
    sn_algo_model m = *inout;
    double best = squares(sample, samples, inout);
    for (int turn = 0; turn < TURNS; turn++) {
        matrix a = {{0}};
        double b[ALGO_TERMS] = {0}, x[ALGO_TERMS];
        algo_counts now = lone_prices(&m);
        equations(sample, samples, &m, &scale, a, b);
        for (int i = 0; i < ALGO_TERMS; i++) {
            a[i][i] += PULL;
            b[i] += PULL * start.of[i] / scale.of[i];
            x[i] = now.of[i] / scale.of[i];
        }
        solve(a, b, x);
        for (int i = 0; i < ALGO_TERMS; i++)
            now.of[i] = x[i] * scale.of[i];
        set_prices(&m, &now);
        double error = squares(sample, samples, &m);
        if (error < best)
            *inout = m;
        best = SN_MIN(best, error);
    }
}

/* ---- factors ---- */

typedef double bands[SN_ALGO_ROWS_MAX][SN_COLL_OPS][SN_ALGO_BANDS];

/* Bands without a sample are as the nearest one with some. */
static void fill(double *log, const double *weight)
{
    double filled[SN_ALGO_BANDS];
    for (int i = 0; i < SN_ALGO_BANDS; i++) {
        int best = -1;
        for (int k = 0; k < SN_ALGO_BANDS; k++)
            if (weight[k] > 0 && (best < 0 || abs(k - i) < abs(best - i)))
                best = k;
        filled[i] = best < 0 ? 0 : log[best];
    }
    for (int i = 0; i < SN_ALGO_BANDS; i++)
        log[i] = filled[i];
}

/* A step towards what the samples say: each pulls the two bands around it. */
static void pull(const sn_algo_sample *sample, int samples, const double *ratio, bands *log,
                 bands *weight)
{
    bands *sum = sn_alloc(sizeof(bands));
    memset(weight, 0, sizeof(bands));
    for (int s = 0; s < samples; s++) {
        int band, row = algo_row_index(sample[s].row), op = sample[s].call.op;
        double next = algo_band(&sample[s].call, &band), part[2] = {1 - next, next};
        const double *f = (*log)[row][op] + band;
        double miss = ratio[s] - f[0] * part[0] - f[1] * part[1];
        for (int k = 0; k < 2; k++) {
            (*sum)[row][op][band + k] += part[k] * miss;
            (*weight)[row][op][band + k] += part[k];
        }
    }
    double *f = (*log)[0][0], *p = (*sum)[0][0], *w = (*weight)[0][0];
    for (size_t i = 0; i < sizeof(bands) / sizeof(double); i++)
        f[i] += w[i] > 0 ? p[i] / w[i] : 0;
    free(sum);
}

static void fit_factors(const sn_algo_sample *sample, int samples, sn_algo_model *m)
{
    bands *log = sn_alloc(sizeof(bands)), *weight = sn_alloc(sizeof(bands));
    double *ratio = sn_alloc((size_t) samples * sizeof(double));
    for (int s = 0; s < samples; s++)
        ratio[s] = log2(sample[s].ns / predicted(&sample[s], m));
    for (int turn = 0; turn < 4 * TURNS; turn++)
        pull(sample, samples, ratio, log, weight);
    for (int r = 0; r < SN_ALGO_ROWS_MAX; r++) {
        for (int op = 0; op < SN_COLL_OPS; op++) {
            fill((*log)[r][op], (*weight)[r][op]);
            for (int i = 0; i < SN_ALGO_BANDS; i++) {
                double steps = rint((*log)[r][op][i] * FACTOR_STEPS);
                m->factor[r][op][i] = (int8_t) SN_MAX(-127, SN_MIN(127, steps));
            }
        }
    }
    free(log);
    free(weight);
    free(ratio);
}

static sn_status sensible(const sn_algo_sample *sample, int samples)
{
    if (samples < 1)
        return sn_fail(SN_EINVAL, "no measured calls to fit a model to");
    for (int i = 0; i < samples; i++) {
        const sn_algo_sample *s = &sample[i];
        const char *op = sn_coll_op_name(s->call.op), *name = s->row == NULL ? "?" : s->row->name;
        if (algo_row_index(s->row) < 0 || !sn_algo_fits(s->row, s->group, &s->call))
            return sn_fail(SN_EINVAL, "sample %d: %s does no %s in its group", i, name, op);
        if (!(s->ns > 0) || !isfinite(s->ns))
            return sn_fail(SN_EINVAL, "sample %d: %s by %s took %g ns", i, op, name, s->ns);
    }
    return SN_OK;
}

sn_status sn_algo_fit(const sn_algo_sample *sample, int samples, sn_algo_model *inout,
                      double *ret_error)
{
    sn_algo_model m = *inout;
    double error = 0;
    SN_TRY(sensible(sample, samples));
    m.fitted = 0;
    memset(m.factor, 0, sizeof(m.factor));
    fit_prices(sample, samples, &m);
    fit_factors(sample, samples, &m);
    m.fitted = 1;
    for (int i = 0; i < samples; i++) {
        const sn_algo_sample *s = &sample[i];
        double factor = algo_factor(&m, algo_row_index(s->row), &s->call);
        error += fabs(predicted(s, &m) * factor / s->ns - 1);
    }
    if (ret_error != NULL)
        *ret_error = error / samples;
    *inout = m;
    return SN_OK;
}
