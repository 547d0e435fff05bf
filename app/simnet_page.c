/* SPDX-License-Identifier: Apache-2.0
 * The page of sim net --compare: curves over load, goodput over time at 90 %, and the table. One
 * file, no script, nothing fetched. */
#include "simnet.h"

#include "os/os.h"

#include <math.h>

enum { WIDE = 420, HIGH = 240, LEFT = 56, RIGHT = 12, TOP = 14, BOTTOM = 34 };
static const char *const colour[SIMNET_CONTROLS] = {"#8a8f98", "#d1495b", "#e0a030", "#2a7fb8",
                                                    "#222222"};
static const char *const title[SIMNET_CONTROLS] = {"no control", "DCQCN, paper's parameters",
                                                   "DCQCN, tuned", "learned",
                                                   "ideal: max-min at once, no queues"};

/* A picture: x from x0 to x1, y from 0 (or 1, logarithmic) to `most`. */
typedef struct chart {
    sn_str *out;
    double x0, x1, most;
    bool logarithmic;
} chart;

static double at_x(const chart *c, double x)
{
    return LEFT + (x - c->x0) / (c->x1 - c->x0) * (WIDE - LEFT - RIGHT);
}

static double at_y(const chart *c, double y)
{
    double share = c->logarithmic ? log(fmax(y, 1)) / log(c->most) : y / c->most;
    return HIGH - BOTTOM - fmin(fmax(share, 0), 1) * (HIGH - TOP - BOTTOM);
}

static void mark_y(const chart *c, double y, const char *unit)
{
    sn_str_printf(
        c->out, "<path class='grid' d='M%d %.1fH%d'/><text class='end' x='%d' y='%.1f'>%g%s</text>",
        LEFT, at_y(c, y), WIDE - RIGHT, LEFT - 6, at_y(c, y) + 4, y, unit);
}

/* About five marks, of 1, 2 or 5 times a power of ten. */
static void axis_y(const chart *c, const char *unit)
{
    if (c->logarithmic) {
        static const double step[] = {1, 2, 5};
        for (int i = 0; i < 12; i++)
            if (step[i % 3] * pow(10, i / 3) <= c->most)
                mark_y(c, step[i % 3] * pow(10, i / 3), unit);
        return;
    }
    double tick = pow(10, floor(log10(c->most / 3)));
    tick *= c->most / tick > 12 ? 5 : c->most / tick > 6 ? 2 : 1;
    for (int i = 0; i * tick <= c->most * 1.0001; i++)
        mark_y(c, i * tick, unit);
}

static void open_chart(const chart *c, const char *name, const char *unit)
{
    sn_str_printf(c->out, "<figure><figcaption>%s</figcaption><svg viewBox='0 0 %d %d'>", name,
                  WIDE, HIGH);
    axis_y(c, unit);
}

static void close_chart(const chart *c, const char *x_name)
{
    sn_str_printf(c->out, "<text class='mid' x='%d' y='%d'>%s</text></svg></figure>\n",
                  (LEFT + WIDE - RIGHT) / 2, HIGH - 3, x_name);
}

/* ---- over load ---- */

typedef struct measure {
    const char *name, *unit;
    double (*of)(const sn_roce_result *r);
    bool logarithmic;
} measure;

static double of_goodput(const sn_roce_result *r)
{
    return r->goodput_bps / 1e9;
}
static double of_served(const sn_roce_result *r)
{
    return r->served * 100;
}
static double of_cov(const sn_roce_result *r)
{
    return r->goodput_cov;
}
static double of_slow(const sn_roce_result *r)
{
    return r->slowdown_p99;
}
static double of_pause(const sn_roce_result *r)
{
    return r->pause_share * 100;
}
static double of_queue(const sn_roce_result *r)
{
    return r->queue_p99_bytes / 1024;
}
static const measure measures[] = {
    {"Goodput of a host, Gbit/s", "", of_goodput, false},
    {"Served: goodput / offered", " %", of_served, false},
    {"Variation of goodput", "", of_cov, false},
    {"Flow completion, p99 slowdown", "", of_slow, true},
    {"Link time paused", " %", of_pause, false},
    {"Queue that a packet meets, p99", " KiB", of_queue, false},
};

static void load_chart(const simnet_comparison *c, const measure *m, sn_str *out)
{
    chart picture = {out, c->load[0] * 100, c->load[SIMNET_LOADS - 1] * 100, 1e-9, m->logarithmic};
    for (int i = 0; i < SIMNET_LOADS * SIMNET_CONTROLS; i++)
        picture.most = fmax(picture.most,
                            m->of(&c->row[i / SIMNET_CONTROLS][i % SIMNET_CONTROLS].mean) * 1.08);
    if (m->logarithmic)
        picture.most = fmax(picture.most, 2);
    open_chart(&picture, m->name, m->unit);
    for (int i = 0; i < SIMNET_LOADS; i++)
        sn_str_printf(out, "<text class='mid' x='%.1f' y='%d'>%.0f</text>",
                      at_x(&picture, c->load[i] * 100), HIGH - BOTTOM + 15, c->load[i] * 100);
    for (int k = 0; k < SIMNET_CONTROLS; k++) {
        sn_str_printf(out, "<polyline stroke='%s' points='", colour[k]);
        for (int i = 0; i < SIMNET_LOADS; i++)
            sn_str_printf(out, "%.1f,%.1f ", at_x(&picture, c->load[i] * 100),
                          at_y(&picture, m->of(&c->row[i][k].mean)));
        sn_str_add(out, "'/>");
    }
    close_chart(&picture, "offered load, % of each link");
}

/* ---- over time ---- */

static void time_chart(const simnet_comparison *c, sn_str *out)
{
    double ms = c->opts.window_ms, begin = c->opts.warmup_ms;
    int shown = (int) SN_COUNT(c->shown[0].window_goodput), n = SN_MIN(c->shown[0].windows, shown);
    chart picture = {out, begin, begin + SN_MAX(n, 1) * ms, 100, false};
    open_chart(&picture, "Goodput over time, 90 % load", " %");
    for (int i = 0; i <= 4; i++) {
        double x = picture.x0 + i * (picture.x1 - picture.x0) / 4;
        sn_str_printf(out, "<text class='mid' x='%.1f' y='%d'>%.3g</text>", at_x(&picture, x),
                      HIGH - BOTTOM + 15, x);
    }
    for (int k = 0; k < SIMNET_CONTROLS; k++) {
        sn_str_printf(out, "<polyline stroke='%s' points='", colour[k]);
        for (int i = 0; i < n; i++)
            sn_str_printf(out, "%.1f,%.1f ", at_x(&picture, begin + (i + 0.5) * ms),
                          at_y(&picture, 100 * (double) c->shown[k].window_goodput[i]));
        sn_str_add(out, "'/>");
    }
    close_chart(&picture, "time, ms");
}

/* ---- the page ---- */

static void head(const simnet_comparison *c, sn_str *out)
{
    sn_str_add(
        out,
        "<!doctype html><html lang='en'><head><meta charset='utf-8'/><title>sim net</title><style>"
        "body{font:15px/1.45 system-ui,sans-serif;margin:24px auto;max-width:1320px;padding:0 "
        "16px;color:#222}"
        "h1{font-size:22px;margin:0 0 "
        "4px}.charts{display:grid;grid-template-columns:repeat(auto-fill,"
        "minmax(300px,1fr));gap:14px}figure{margin:0}figcaption{font-weight:600}svg{width:100%}"
        "svg text{font-size:11px;fill:#555}.end{text-anchor:end}.mid{text-anchor:middle}"
        ".grid{stroke:#e4e4e4}polyline{fill:none;stroke-width:2}table{border-collapse:collapse;"
        "margin-top:18px;font-size:13px}td,th{padding:2px 9px;text-align:right;border-bottom:1px "
        "solid "
        "#eee}td:nth-child(2),th:nth-child(2),td:last-child,th:last-child{text-align:left}td,th{"
        "white-space:nowrap}.key span{margin-right:18px}"
        ".key i{display:inline-block;width:18px;height:3px;vertical-align:middle;margin-right:6px}"
        "</style></head><body>\n");
    sn_str_printf(out,
                  "<h1>Congestion control on a fat tree</h1><p>%s traffic, %d hosts at %g Gbit/s, "
                  "PFC %s, %g ms, "
                  "seeds %llu to %llu; curves are means over seeds.</p><p class='key'>",
                  sn_roce_traffic_name(c->opts.traffic), c->opts.k * c->opts.k * c->opts.k / 4,
                  c->opts.link_bps / 1e9, c->opts.pfc_off ? "off" : "on", c->opts.duration_ms,
                  (unsigned long long) c->first_seed,
                  (unsigned long long) (c->first_seed + (uint64_t) c->seeds - 1));
    for (int k = 0; k < SIMNET_CONTROLS; k++)
        sn_str_printf(out, "<span><i style='background:%s'></i>%s</span>", colour[k], title[k]);
    sn_str_add(out, "</p>\n<div class='charts'>\n");
}

static void table(const simnet_comparison *c, sn_str *out)
{
    sn_str_add(
        out,
        "<table><tr><th>load</th><th>control</th><th>goodput</th><th>served</th><th>variation</th>"
        "<th>slowdown p50</th><th>p99</th><th>fairness</th><th>pause frames</th><th>paused</th>"
        "<th>longest pause</th><th>drops</th><th>stable</th><th>because</th></tr>\n");
    for (int i = 0; i < SIMNET_LOADS * SIMNET_CONTROLS; i++) {
        const simnet_row *row = &c->row[i / SIMNET_CONTROLS][i % SIMNET_CONTROLS];
        const sn_roce_result *m = &row->mean;
        sn_str_printf(
            out,
            "<tr><td>%.0f %%</td><td>%s</td><td>%.1f</td><td>%.1f %%</td><td>%.3f</td><td>%.2f</td>"
            "<td>%.1f</td><td>%.3f</td><td>%lld</td><td>%.3f %%</td><td>%.0f us</td><td>%lld</td>"
            "<td>%d of %d</td><td>%s</td></tr>\n",
            c->load[row->load] * 100, title[row->control], m->goodput_bps / 1e9, m->served * 100,
            m->goodput_cov, m->slowdown_p50, m->slowdown_p99, m->jain, (long long) m->pause_frames,
            m->pause_share * 100, m->pause_longest_us, (long long) m->drops, row->stable, c->seeds,
            row->why ? row->why : "");
    }
    sn_str_add(out, "</table></body></html>\n");
}

sn_status simnet_page(const simnet_comparison *c, const char *path)
{
    sn_str out = {0};
    head(c, &out);
    for (size_t i = 0; i < SN_COUNT(measures); i++)
        load_chart(c, &measures[i], &out);
    time_chart(c, &out);
    sn_str_add(&out, "</div>\n");
    table(c, &out);
    sn_status status = sn_file_write(path, sn_str_get(&out), out.len);
    sn_str_done(&out);
    return status;
}
