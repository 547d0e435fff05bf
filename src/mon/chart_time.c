/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a step's time goes: stacked bars over the run, and the means as a table. */
#include "mon/html.h"
#include "mon/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { WIDTH = 960, HEIGHT = 220, LEFT = 46, RIGHT = 14, TOP = 12, BOTTOM = 30, BARS_MAX = 96 };

const char *const mon_kind_title[SN_TIME_KINDS] = {"computing", "collectives, exposed",
                                                   "waiting in the pipeline", "optimizer", "other"};

typedef struct bar {
    int64_t first, last; /* steps */
    double ms[SN_TIME_KINDS], total;
} bar;

static double positive(double v)
{
    return isfinite(v) && v > 0 ? v : 0;
}

double mon_row_time(const sn_step_metrics *row, int kind)
{
    double t = positive((double) row->time_ns[kind]), rest = positive((double) row->step_ns);
    if (kind != SN_TIME_OTHER)
        return t;
    for (int k = 0; k < SN_TIME_KINDS; k++)
        rest -= positive((double) row->time_ns[k]);
    return t + positive(rest);
}

mon_totals mon_sum(const sn_report *r)
{
    mon_totals t = {.rows = r->row ? SN_MAX(r->rows, 0) : 0};
    for (int64_t i = 0; i < t.rows; i++) {
        const sn_step_metrics *row = &r->row[i];
        for (int k = 0; k < SN_TIME_KINDS; k++)
            t.time_ns[k] += mon_row_time(row, k);
        t.ns += positive((double) row->step_ns);
        t.tokens += positive((double) row->tokens);
        t.flops += positive(row->flops);
        t.bytes_host += (double) row->bytes_host;
        t.bytes_net += (double) row->bytes_net;
        t.comm_ns += positive((double) row->comm_ns);
        if (positive(row->peak_flops) > 0)
            t.peak_flops = row->peak_flops;
    }
    if (positive(r->peak_flops) > 0)
        t.peak_flops = r->peak_flops;
    return t;
}

static int make_bars(const sn_report *r, int64_t rows, bar b[BARS_MAX])
{
    int64_t each = (rows + BARS_MAX - 1) / BARS_MAX;
    int n = 0;
    for (int64_t i = 0; i < rows; i += each) {
        int64_t end = SN_MIN(i + each, rows);
        bar *one = &b[n++];
        *one = (bar){.first = r->row[i].step, .last = r->row[end - 1].step};
        for (int64_t k = i; k < end; k++)
            for (int kind = 0; kind < SN_TIME_KINDS; kind++)
                one->ms[kind] += mon_row_time(&r->row[k], kind) / 1e6 / (double) (end - i);
        for (int kind = 0; kind < SN_TIME_KINDS; kind++)
            one->total += one->ms[kind];
    }
    return n;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

/* A step that waited for a slow disk must not flatten all the others. */
static double top_of(const bar *b, int n, bool *ret_cut)
{
    double total[BARS_MAX], top = 0;
    for (int i = 0; i < n; i++)
        total[i] = b[i].total;
    qsort(total, (size_t) n, sizeof *total, by_value);
    if (n)
        top = SN_MIN(total[n - 1], total[(n - 1) * 9 / 10] * 1.5);
    *ret_cut = n && top < total[n - 1];
    return top > 0 ? top * 1.06 : 1;
}

static void axis(const mon_scale *y, sn_str *out)
{
    double tick = mon_tick(y->high, 4);
    for (int i = 0; i * tick <= y->high && i < 40; i++) {
        double at = mon_at(y, i * tick);
        mon_html(
            out,
            "<path class=\"grid\" d=\"M%p %pH%p\"/><text class=\"tick end\" x=\"%p\" y=\"%p\">",
            (double) LEFT, at, (double) WIDTH - RIGHT, LEFT - 8.0, at + 4);
        mon_fixed(out, i * tick, mon_tick_digits(tick));
        sn_str_add(out, "</text>");
    }
}

static void one_bar(const bar *b, double x, double width, const mon_scale *y, sn_str *out)
{
    double at = 0;
    sn_str_add(out, "<g class=\"bar\"><title>");
    if (b->first == b->last)
        sn_str_printf(out, "step %lld", (long long) b->first);
    else
        sn_str_printf(out, "steps %lld–%lld", (long long) b->first, (long long) b->last);
    for (int k = 0; k < SN_TIME_KINDS; k++) {
        sn_str_printf(out, "   %s ", mon_kind_title[k]);
        mon_fixed(out, b->ms[k], 1);
    }
    sn_str_add(out, " ms</title>");
    for (int k = 0; k < SN_TIME_KINDS; k++) {
        double low = mon_at(y, at), high = mon_at(y, at + b->ms[k]);
        at += b->ms[k];
        if (low - high >= 0.05)
            mon_html(out, "<rect class=\"t%d\" x=\"%p\" y=\"%p\" width=\"%p\" height=\"%p\"/>", k,
                     x, high, width, low - high);
    }
    sn_str_add(out, "</g>");
}

/* Round step numbers under the bars; the last bar may stand for fewer steps. */
static void step_marks(const bar *b, int n, sn_str *out)
{
    if (!n)
        return;
    double slot = (double) (WIDTH - LEFT - RIGHT) / n;
    double each = (double) SN_MAX(b[0].last - b[0].first + 1, 1), first = (double) b[0].first;
    double tick = SN_MAX(mon_tick(each * n, 8), 1.0);
    for (int i = 0; i < 40; i++) {
        double v = (ceil(first / tick) + i) * tick;
        if (!(v <= (double) b[n - 1].last))
            break;
        mon_html(out, "<text class=\"tick mid\" x=\"%p\" y=\"%p\">",
                 LEFT + ((v - first + 0.5) / each) * slot, HEIGHT - 10.0);
        mon_fixed(out, v, 0);
        sn_str_add(out, "</text>");
    }
    mon_html(out, "<text class=\"tick end\" x=\"%p\" y=\"%p\">step</text>", LEFT - 8.0,
             HEIGHT - 10.0);
}

static void chart(const sn_report *r, int64_t rows, sn_str *out)
{
    bar b[BARS_MAX];
    bool cut;
    int n = make_bars(r, rows, b);
    mon_scale y = {0, top_of(b, n, &cut), HEIGHT - BOTTOM, TOP};
    double slot = (double) (WIDTH - LEFT - RIGHT) / SN_MAX(n, 1);
    double width = SN_MIN(SN_MAX(slot - 2, slot * 0.75), 48.0);
    mon_html(out,
             "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"time per step\">"
             "<clipPath id=\"c2\"><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/></clipPath>",
             WIDTH, HEIGHT, LEFT, TOP - 4, WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM + 4);
    axis(&y, out);
    sn_str_add(out, "<g clip-path=\"url(#c2)\">");
    for (int i = 0; i < n; i++)
        one_bar(&b[i], LEFT + i * slot + (slot - width) / 2, width, &y, out);
    sn_str_add(out, "</g>");
    step_marks(b, n, out);
    sn_str_add(out, "</svg>");
    if (cut)
        sn_str_add(out, "<p class=\"note\">Bars that reach the top are longer than shown.</p>");
}

static void table(const mon_totals *t, sn_str *out)
{
    double all = 0;
    for (int k = 0; k < SN_TIME_KINDS; k++)
        all += t->time_ns[k];
    sn_str_add(out, "<table class=\"times\"><tbody>");
    for (int k = 0; k < SN_TIME_KINDS; k++) {
        double share = mon_share(t->time_ns[k], all);
        mon_html(out, "<tr><td><i class=\"b%d\"></i>%s</td><td class=\"num\">", k,
                 mon_kind_title[k]);
        mon_fixed(out, t->rows ? t->time_ns[k] / 1e6 / (double) t->rows : 0, 1);
        sn_str_add(out, " ms</td><td class=\"num\">");
        mon_fixed(out, 100 * share, 1);
        mon_html(out,
                 " %%</td><td class=\"meter\"><b class=\"b%d\" style=\"width:%p%%\"></b></td></tr>",
                 k, 100 * share);
    }
    sn_str_add(out, "</tbody></table>");
}

void mon_report_time(const sn_report *r, sn_str *out)
{
    mon_totals t = mon_sum(r);
    if (!t.rows)
        return;
    sn_str_add(out,
               "<section class=\"panel\"><h2>Where the time of a step goes</h2><p class=\"key\">"
               "<span class=\"unit\">milliseconds, mean over the cards</span>"
               "<output></output></p>");
    chart(r, t.rows, out);
    table(&t, out);
    sn_str_add(out, "</section>\n");
}
