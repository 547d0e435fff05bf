/* SPDX-License-Identifier: Apache-2.0
 *
 * Foresight as a page: the step of each stage as a Gantt chart, where its time goes, what fills a
 * card's memory, and how time and money change with the number of cards. No script, no network. */
#include "sim_say.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH = 960, LEFT = 90 };

static const char style[] =
    "body{font:15px/1.5 system-ui,sans-serif;margin:0;background:#f7f7f5;color:#1d2327}"
    "main{max-width:1040px;margin:0 auto;padding:32px 20px}h1{font-size:26px;margin:.2em 0}"
    "h2{font-size:17px;margin:0 0 10px}.brand{color:#0b7285;font-weight:600;margin:0}"
    "section{background:#fff;border:1px solid #e2e2dd;border-radius:8px;padding:18px 20px;"
    "margin:16px "
    "0}table{border-collapse:collapse;width:100%}td,th{text-align:left;white-space:nowrap;padding:"
    "3px "
    "10px "
    "3px 0;border-bottom:1px solid "
    "#eee;font-variant-numeric:tabular-nums}svg{width:100%;height:auto;"
    "display:block}text{font:11px system-ui,sans-serif;fill:#555}.f{fill:#4c9bd6}.b{fill:#e8973a}"
    ".w{fill:#8fbf5f}.idle{fill:#eceae4}.key i{display:inline-block;width:11px;height:11px;"
    "margin:0 5px 0 14px;border-radius:2px}dl{display:flex;flex-wrap:wrap;gap:26px;margin:12px 0 0}"
    "dt{color:#667;font-size:12px}dd{margin:0;font-size:21px;font-weight:600}"
    "@media(prefers-color-scheme:dark){body{background:#16191c;color:#dfe3e6}section{background:"
    "#1f2327;border-color:#30363b}td,th{border-color:#2c3136}text{fill:#a8b0b6}.idle{fill:#2a2f34}"
    "}";

/* ---- the pipeline, drawn by its own rules */

typedef struct chart {
    sn_str *out;
    double scale;
    int height;
} chart;

static void bar(void *ctx, const sn_sim_unit *u)
{
    const chart *c = ctx;
    sn_str_printf(
        c->out,
        "<rect class=\"%s\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\"><title>stage "
        "%d, %s %lld: %.4g s</title></rect>",
        u->backward ? "b" : "f", LEFT + u->from * c->scale, 4 + u->stage * c->height,
        fmax((u->to - u->from) * c->scale - 0.4, 0.2), c->height - 3, u->stage,
        u->backward ? "backward" : "forward", (long long) u->micro + 1, u->to - u->from);
}

static void gantt(const sn_sim_found *f, sn_str *out)
{
    int stages = SN_MIN(f->layout.pipeline, 64);
    int64_t micros = SN_MIN(SN_MIN(f->step.micros, 2 * SN_MIN(stages, 16) + 4), 64);
    double forward = f->step.forward, backward = f->step.backward + f->step.weights;
    double end = sn_sim_walk(stages, micros, forward, backward, 0, NULL, NULL);
    chart c = {out, (WIDTH - LEFT - 10) / end, stages > 24 ? 8 : stages > 8 ? 14 : 22};
    sn_str_printf(out,
                  "<section><h2>The pipeline: %d stages, the first %lld of %lld micro-batches as "
                  "1F1B</h2><svg viewBox=\"0 0 %d %d\">",
                  stages, (long long) micros, (long long) f->step.micros, WIDTH,
                  stages * c.height + 26);
    for (int k = 0; k < stages; k++)
        sn_str_printf(out, "<rect class=\"idle\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>",
                      LEFT, 4 + k * c.height, WIDTH - LEFT - 10, c.height - 3);
    for (int k = 0, every = stages > 24 ? 8 : 1; k < stages; k += every)
        sn_str_printf(out, "<text x=\"4\" y=\"%d\">stage %d</text>",
                      4 + k * c.height + c.height / 2 + 3, k);
    sn_sim_walk(stages, micros, forward, backward, 0, bar, &c);
    sn_str_printf(out,
                  "<text x=\"%d\" y=\"%d\">0</text><text x=\"%d\" y=\"%d\" text-anchor=\"end\">"
                  "%.3g s</text></svg>",
                  LEFT, stages * c.height + 20, WIDTH - 10, stages * c.height + 20, end);
    sn_str_add(out, "<p class=\"key\"><i style=\"background:#4c9bd6\"></i>forward<i "
                    "style=\"background:#e8973a\"></i>backward<i style=\"background:#c9c6bd\"></i>"
                    "standing still</p></section>");
}

/* ---- bars that add up to one */

typedef struct slice {
    const char *name, *colour;
    double value;
} slice;

static void stack(const slice *s, int n, double whole, const char *(*text)(char[32], double),
                  sn_str *out)
{
    double at = 0;
    char t[32];
    sn_str_printf(out, "<svg viewBox=\"0 0 %d 34\">", WIDTH);
    for (int i = 0; i < n; i++) {
        double w = WIDTH * s[i].value / whole;
        sn_str_printf(
            out,
            "<rect x=\"%.2f\" y=\"2\" width=\"%.2f\" height=\"30\" fill=\"%s\"><title>%s: "
            "%s</title></rect>",
            at, fmax(0, w), s[i].colour, s[i].name, text(t, s[i].value));
        at += w;
    }
    sn_str_add(out, "</svg><table>");
    for (int i = 0; i < n; i++)
        sn_str_printf(
            out,
            "<tr><td><i style=\"display:inline-block;width:11px;height:11px;background:%s;"
            "border-radius:2px\"></i> %s</td><td>%s</td><td>%.1f %%</td></tr>",
            s[i].colour, s[i].name, text(t, s[i].value), 100 * s[i].value / whole);
    sn_str_add(out, "</table></section>");
}

static const char *as_time(char t[32], double seconds)
{
    return sn_fmt_ns(t, seconds * 1e9);
}

static void where_time_goes(const sn_sim_step *s, sn_str *out)
{
    const slice all[] = {
        {"computing", "#4c9bd6", s->compute},         {"computing again", "#9ccbe8", s->again},
        {"tensor collectives", "#c678a6", s->tensor}, {"pipeline bubble", "#c9c6bd", s->bubble},
        {"gradients, exposed", "#e8973a", s->data},   {"optimizer", "#8fbf5f", s->optimizer}};
    sn_str_add(out, "<section><h2>Where a step goes</h2>");
    stack(all, (int) SN_COUNT(all), s->seconds, as_time, out);
}

static void what_fills_memory(const sn_sim_step *s, double card, sn_str *out)
{
    const slice all[] = {{"parameters", "#4c9bd6", s->parameters},
                         {"gradients", "#e8973a", s->gradients},
                         {"optimizer", "#8fbf5f", s->states},
                         {"activations", "#c678a6", s->activations},
                         {"free", "#e4e2dc", fmax(0, card - s->memory)}};
    sn_str_add(out, "<section><h2>What fills a card's memory</h2>");
    stack(all, (int) SN_COUNT(all), fmax(card, s->memory), sn_fmt_bytes, out);
}

/* ---- the sweep */

static void sweep(const sim_question *q, sn_str *out)
{
    static sn_sim_answer a;
    double x[8], y[8], use[8], most = 0;
    int n = 0;
    for (int k = -3; k <= 3; k++) {
        sn_sim_cluster c = q->cluster;
        c.cards = (int) lround(q->cluster.cards * pow(2, k));
        if (c.cards < 1 || sn_sim_search(&c, &q->model, q->batch, &a) < 0)
            continue;
        x[n] = c.cards;
        y[n] = a.best[0].step.seconds;
        use[n] = a.best[0].step.use;
        most = fmax(most, y[n++]);
    }
    if (n < 2)
        return;
    sn_str_printf(out,
                  "<section><h2>More and fewer cards, the same batch</h2><svg viewBox=\"0 0 %d "
                  "230\"><polyline fill=\"none\" stroke=\"#0b7285\" stroke-width=\"2\" points=\"",
                  WIDTH);
    double wide = (WIDTH - LEFT - 60) / (double) (n - 1);
    for (int i = 0; i < n; i++)
        sn_str_printf(out, "%.1f,%.1f ", LEFT + i * wide, 190 - 165 * y[i] / most);
    sn_str_add(out, "\"/>");
    for (int i = 0; i < n; i++)
        sn_str_printf(
            out,
            "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"#0b7285\"/><text x=\"%.1f\" "
            "y=\"%.1f\" text-anchor=\"%s\">%.3g s, %.0f %%</text><text x=\"%.1f\" y=\"214\" "
            "text-anchor=\"middle\">%.0f</text>",
            LEFT + i * wide, 190 - 165 * y[i] / most, LEFT + i * wide + (i < n - 1 ? 8 : 6),
            (i < n - 1 ? 184 : 178) - 165 * y[i] / most, i < n - 1 ? "start" : "middle", y[i],
            100 * use[i], LEFT + i * wide, x[i]);
    sn_str_add(out, "<text x=\"4\" y=\"214\">cards</text><text x=\"4\" y=\"24\">a step</text></svg>"
                    "<p>Seconds a step, and the share of the stated peak.</p></section>");
}

/* ---- the page */

static void figure(sn_str *out, const char *name, const char *value)
{
    sn_str_printf(out, "<div><dt>%s</dt><dd>%s</dd></div>", name, value);
}

static void head(const sim_question *q, const sn_sim_found *f, sn_str *out)
{
    char t[32], b[64];
    sn_str text = {0};
    sim_layout_text(&f->layout, &text);
    sn_str_printf(
        out,
        "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"/><meta "
        "name=\"viewport\" content=\"width=device-width, initial-scale=1\"/><meta "
        "name=\"color-scheme\" content=\"light dark\"/><title>%s on %d x %s</title><style>%s"
        "</style></head><body><main><p class=\"brand\">supernode foresight</p><h1>%s on %d x "
        "%s</h1><p>%s; %lld samples of %lld tokens a step</p><dl>",
        q->model.name, q->cluster.cards, q->cluster.card->name, style, q->model.name,
        q->cluster.cards, q->cluster.card->name, sn_str_get(&text), (long long) q->batch,
        (long long) q->model.sequence);
    figure(out, "a step", sn_fmt_ns(t, f->step.seconds * 1e9));
    snprintf(b, sizeof b, "%s",
             sn_fmt_count(t, (double) (q->batch * q->model.sequence) / f->step.seconds));
    figure(out, "tokens a second", b);
    snprintf(b, sizeof b, "%.1f %%", 100 * f->step.use);
    figure(out, "of the stated peak", b);
    figure(out, "memory of a card", sn_fmt_bytes(t, f->step.memory));
    sn_str_add(out, "</dl>");
    sn_str_done(&text);
}

static void runners_up(const sn_sim_answer *a, sn_str *out)
{
    sn_str_add(out, "<section><h2>Runners-up</h2><table>");
    for (int i = 0; i < a->count && i < 10; i++) {
        sn_str text = {0};
        char t[32], b[32];
        sim_layout_text(&a->best[i].layout, &text);
        sn_str_printf(out, "<tr><td>%s</td><td>%+.1f %%</td><td>%s</td><td>%s</td></tr>",
                      sn_fmt_ns(t, a->best[i].step.seconds * 1e9),
                      100 * (a->best[i].step.seconds / a->best[0].step.seconds - 1),
                      sn_fmt_bytes(b, a->best[i].step.memory), sn_str_get(&text));
        sn_str_done(&text);
    }
    sn_str_add(out, "</table></section>");
}

static void days(const sn_sim_ran *r, sn_str *out)
{
    char t[64], b[32];
    sn_str_add(out, "<section><h2>The whole run</h2><dl>");
    snprintf(t, sizeof t, "%.1f", r->days);
    figure(out, "days", t);
    snprintf(t, sizeof t, "%.3f %%", 100 * r->useful);
    figure(out, "useful time", t);
    snprintf(t, sizeof t, "%lld", (long long) r->failures);
    figure(out, "failures", t);
    snprintf(t, sizeof t, "%lld", (long long) r->spares);
    figure(out, "spare nodes", t);
    snprintf(t, sizeof t, "%sWh", sn_fmt_count(b, r->kwh * 1000));
    figure(out, "energy", t);
    snprintf(t, sizeof t, "$%s", sn_fmt_count(b, r->dollars));
    figure(out, "cards", t);
    snprintf(t, sizeof t, "%s t", sn_fmt_count(b, r->co2_kg / 1000));
    figure(out, "CO2", t);
    sn_str_add(out, "</dl></section>");
}

void sim_page(const sim_question *q, const sn_sim_answer *a, const sn_sim_ran *ran, sn_str *out)
{
    const sn_sim_found *f = &a->best[0];
    head(q, f, out);
    if (ran)
        days(ran, out);
    if (f->layout.pipeline > 1)
        gantt(f, out);
    where_time_goes(&f->step, out);
    what_fills_memory(&f->step, q->cluster.card->memory, out);
    sweep(q, out);
    runners_up(a, out);
    sn_str_add(out, "</main></body></html>\n");
}
