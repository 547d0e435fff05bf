/* SPDX-License-Identifier: Apache-2.0
 *
 * The loss curve: each step's loss pale, its moving mean strong, validation as points, the
 * baseline dashed. */
#include "mon/html.h"
#include "mon/number.h"

#include <math.h>
#include <stdlib.h>

enum { WIDTH = 960, HEIGHT = 340, LEFT = 46, RIGHT = 14, TOP = 14, BOTTOM = 34 };
enum { POINTS_MAX = 900, HOVERS_MAX = 160, CIRCLES_MAX = 120, LONG_RUN = 50 };

typedef struct curve {
    const sn_report *r;
    const sn_step_metrics *row;
    int64_t n;
    double *smooth; /* [n] moving mean of the finite losses around; NaN where there is none */
    mon_scale x, y;
    bool cut; /* the first steps lie above the picture */
} curve;

static void smoothen(curve *c)
{
    int64_t half = SN_MIN(c->n / 60, 50), low = 0, high = 0, count = 0;
    double sum = 0;
    for (int64_t i = 0; i < c->n; i++) {
        for (; high < c->n && high <= i + half; high++)
            if (isfinite(c->row[high].loss)) {
                sum += c->row[high].loss;
                count++;
            }
        for (; low < i - half; low++)
            if (isfinite(c->row[low].loss)) {
                sum -= c->row[low].loss;
                count--;
            }
        c->smooth[i] = count && isfinite(c->row[i].loss) ? sum / (double) count : NAN;
    }
}

static void include(double *low, double *high, double v)
{
    if (!isfinite(v))
        return;
    *low = v < *low ? v : *low;
    *high = v > *high ? v : *high;
}

/* A long run's first steps would squeeze all the rest into the lower quarter: the picture begins
 * where the mean is after 3 % of them. */
static void scales(curve *c)
{
    double low = INFINITY, high = -INFINITY, top = NAN;
    for (int64_t i = 0; i < c->n; i++) {
        include(&low, &high, c->row[i].loss);
        include(&low, &high, c->row[i].val_loss);
    }
    if (c->n >= LONG_RUN)
        top = c->smooth[c->n / 30];
    if (c->r->baseline_loss > 0)
        include(&low, &high, c->r->baseline_loss);
    if (!(low <= high)) {
        low = 0;
        high = 1;
    }
    if (top > low + 0.25 * (high - low) && top < high) {
        high = top;
        c->cut = true;
    }
    double pad = high > low ? 0.05 * (high - low) : 0.5;
    c->y = (mon_scale){low - pad, high + pad, HEIGHT - BOTTOM, TOP};
    int64_t first = c->n ? c->row[0].step : 0, last = c->n ? c->row[c->n - 1].step : 1;
    if (c->n == 1) {
        first--;
        last++;
    }
    c->x = (mon_scale){(double) first, (double) last, LEFT, WIDTH - RIGHT};
}

static void axes(const curve *c, sn_str *out)
{
    double tick = mon_tick(c->y.high - c->y.low, 6);
    for (int i = 0; i < 40; i++) {
        double v = (ceil(c->y.low / tick - 1e-9) + i) * tick, y = mon_at(&c->y, v);
        if (!(v <= c->y.high))
            break;
        mon_html(
            out,
            "<path class=\"grid\" d=\"M%p %pH%p\"/><text class=\"tick end\" x=\"%p\" y=\"%p\">",
            (double) LEFT, y, (double) WIDTH - RIGHT, LEFT - 8.0, y + 4);
        mon_fixed(out, v, mon_tick_digits(tick));
        sn_str_add(out, "</text>");
    }
    tick = SN_MAX(mon_tick(c->x.high - c->x.low, 8), 1.0);
    for (int i = 0; i < 40; i++) {
        double v = (ceil(c->x.low / tick - 1e-9) + i) * tick, x = mon_at(&c->x, v);
        if (!(v <= c->x.high))
            break;
        if (x < LEFT + 12)
            continue; /* "step" is written there */
        mon_html(out, "<text class=\"tick mid\" x=\"%p\" y=\"%p\">", x, HEIGHT - 14.0);
        mon_fixed(out, v, 0);
        sn_str_add(out, "</text>");
    }
    mon_html(out, "<text class=\"tick end\" x=\"%p\" y=\"%p\">step</text>", LEFT - 8.0,
             HEIGHT - 14.0);
}

typedef struct pen {
    sn_str *out;
    bool down;
} pen;

static void draw_to(pen *p, const curve *c, double step, double loss)
{
    if (!isfinite(loss)) {
        p->down = false; /* a gap, not a line over it */
        return;
    }
    sn_str_add(p->out, p->down ? "L" : "M");
    mon_px(p->out, mon_at(&c->x, step));
    sn_str_add(p->out, " ");
    mon_px(p->out, mon_at(&c->y, loss));
    if (!p->down)
        sn_str_add(p->out, "h0"); /* a step alone between gaps is a dot */
    p->down = true;
}

static void line_begin(sn_str *out, const char *class_name)
{
    sn_str_printf(out, "<path class=\"%s\" d=\"", class_name);
}

/* Of many steps that share a pixel the least and the greatest are drawn: no spike is lost. */
static void raw_line(const curve *c, sn_str *out)
{
    int64_t bucket = c->n / POINTS_MAX + 1;
    pen p = {out, false};
    line_begin(out, "raw");
    for (int64_t i = 0; i < c->n; i += bucket) {
        double low = INFINITY, high = -INFINITY;
        for (int64_t k = i; k < SN_MIN(i + bucket, c->n); k++)
            include(&low, &high, c->row[k].loss);
        draw_to(&p, c, (double) c->row[i].step, low);
        if (high > low)
            draw_to(&p, c, (double) c->row[i].step, high);
    }
    sn_str_add(out, "\"/>");
}

static void smooth_line(const curve *c, sn_str *out)
{
    int64_t bucket = c->n / POINTS_MAX + 1;
    pen p = {out, false};
    line_begin(out, "smooth");
    for (int64_t i = 0; i < c->n; i += bucket)
        draw_to(&p, c, (double) c->row[i].step, c->smooth[i]);
    if (c->n)
        draw_to(&p, c, (double) c->row[c->n - 1].step, c->smooth[c->n - 1]);
    sn_str_add(out, "\"/>");
}

static void validation(const curve *c, sn_str *out)
{
    int64_t points = 0;
    pen p = {out, false};
    line_begin(out, "val");
    for (int64_t i = 0; i < c->n; i++)
        if (isfinite(c->row[i].val_loss)) {
            draw_to(&p, c, (double) c->row[i].step, c->row[i].val_loss);
            points++;
        }
    sn_str_add(out, "\"/>");
    for (int64_t i = 0; i < c->n && points <= CIRCLES_MAX; i++)
        if (isfinite(c->row[i].val_loss))
            mon_html(out, "<circle class=\"point\" cx=\"%p\" cy=\"%p\" r=\"3.5\"/>",
                     mon_at(&c->x, (double) c->row[i].step), mon_at(&c->y, c->row[i].val_loss));
}

static void baseline(const curve *c, sn_str *out)
{
    if (!(c->r->baseline_loss > 0) || !isfinite(c->r->baseline_loss))
        return;
    double y = mon_at(&c->y, c->r->baseline_loss);
    mon_html(
        out,
        "<path class=\"base\" d=\"M%p %pH%p\"/><text class=\"baselabel end\" x=\"%p\" y=\"%p\">",
        (double) LEFT, y, (double) WIDTH - RIGHT, WIDTH - RIGHT - 2.0, y - 7);
    mon_html_text_n(out, c->r->baseline_name ? c->r->baseline_name : "baseline", 40);
    sn_str_add(out, "  ");
    mon_fixed(out, c->r->baseline_loss, 3);
    sn_str_add(out, "</text>");
}

/* Invisible columns with a title each: a tooltip without script, the read-out line with it. */
static void hovers(const curve *c, sn_str *out)
{
    int64_t bucket = c->n / HOVERS_MAX + 1;
    for (int64_t i = 0; i < c->n; i += bucket) {
        int64_t last = SN_MIN(i + bucket, c->n) - 1, at = (i + last) / 2;
        double val = NAN, left = i ? mon_at(&c->x, (double) c->row[i].step) : LEFT;
        double right =
            last + 1 < c->n ? mon_at(&c->x, (double) c->row[last + 1].step) : WIDTH - RIGHT;
        for (int64_t k = i; k <= last; k++)
            if (isfinite(c->row[k].val_loss))
                val = c->row[k].val_loss;
        mon_html(out,
                 "<rect class=\"hit\" x=\"%p\" y=\"%p\" width=\"%p\" height=\"%p\"><title>step ",
                 left, (double) TOP, SN_MAX(right - left, 0.5), HEIGHT - TOP - (double) BOTTOM);
        sn_str_printf(out, "%lld   loss ", (long long) c->row[at].step);
        mon_fixed(out, c->row[at].loss, 3);
        sn_str_add(out, "   mean ");
        mon_fixed(out, c->smooth[at], 3);
        if (isfinite(val)) {
            sn_str_add(out, "   validation ");
            mon_fixed(out, val, 3);
        }
        sn_str_add(out, "</title></rect>");
    }
}

void mon_report_loss(const sn_report *r, sn_str *out)
{
    curve c = {.r = r, .row = r->row, .n = r->row ? SN_MAX(r->rows, 0) : 0};
    c.smooth = malloc((size_t) (c.n + 1) * sizeof *c.smooth);
    if (!c.smooth)
        return;
    smoothen(&c);
    scales(&c);
    sn_str_add(out,
               "<section class=\"panel\"><h2>Loss</h2><p class=\"key\"><i class=\"k-smooth\"></i>"
               "training, mean <i class=\"k-raw\"></i>each step <i class=\"k-val\"></i>"
               "held-out text <span class=\"unit\">nats per byte</span>"
               "<output></output></p>");
    mon_html(out,
             "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"loss over steps\">"
             "<clipPath id=\"c1\"><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/></clipPath>",
             WIDTH, HEIGHT, LEFT - 4, TOP - 4, WIDTH - LEFT - RIGHT + 8, HEIGHT - TOP - BOTTOM + 8);
    axes(&c, out);
    sn_str_add(out, "<g clip-path=\"url(#c1)\">");
    raw_line(&c, out);
    baseline(&c, out);
    smooth_line(&c, out);
    validation(&c, out);
    if (c.n == 1 && isfinite(c.row[0].loss))
        mon_html(out, "<circle class=\"only\" cx=\"%p\" cy=\"%p\" r=\"4\"/>",
                 mon_at(&c.x, (double) c.row[0].step), mon_at(&c.y, c.row[0].loss));
    sn_str_add(out, "</g>");
    hovers(&c, out);
    if (!c.n)
        mon_html(out, "<text class=\"empty mid\" x=\"%d\" y=\"%d\">no step was completed</text>",
                 WIDTH / 2, HEIGHT / 2);
    sn_str_add(out, "</svg>");
    if (c.cut)
        sn_str_add(out, "<p class=\"note\">The first steps lie above the picture.</p>");
    sn_str_add(out, "</section>\n");
    free(c.smooth);
}
