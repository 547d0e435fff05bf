/* SPDX-License-Identifier: Apache-2.0 */
#include "mon/line.h"
#include "mon/number.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BAR_LEAST = 8, BAR_MOST = 28, GAP = 2, PARTS = 7 };

/* One field: a dim word before, the value, a dim word after. */
typedef struct part {
    char before[16], value[32], after[24];
    int worth; /* the lowest leaves first */
    bool shown;
} part;

static int width_of(const part *p)
{
    return (int) (strlen(p->before) + strlen(p->value) + strlen(p->after)); /* all ASCII */
}

static void percent(char out[32], double share)
{
    snprintf(out, 32, "%d", (int) lround(100 * mon_share(share, 1)));
}

static void number(char out[32], double v)
{
    if (isfinite(v))
        snprintf(out, 32, fabs(v) < 1e4 ? "%.3f" : "%.2e", v);
    else
        snprintf(out, 32, "%s", isnan(v) ? "nan" : "inf");
}

static void parts_fill(part p[PARTS], const mon_view *v, bool brief)
{
    char total[32];
    memset(p, 0, PARTS * sizeof *p);
    int digits = snprintf(total, sizeof total, "%lld", (long long) v->steps);
    p[0] = (part){"step ", "", "", 9, true};
    snprintf(p[0].value, sizeof p[0].value, "%*lld", digits, (long long) v->step);
    snprintf(p[0].after, sizeof p[0].after, "/%.20s", total);
    p[1] = (part){"loss ", "", "", 8, true};
    number(p[1].value, v->loss);
    p[2] = (part){"val ", "", "", 4, isfinite(v->val_loss)};
    number(p[2].value, v->val_loss);
    p[3] = (part){"", "", " tok/s", 6, true};
    mon_short_count(p[3].value, v->tokens_per_s);
    p[4] = (part){"", "", " % of peak", 3, v->peak_share > 0};
    percent(p[4].value, v->peak_share);
    p[5] = (part){"exposed comm ", "", " %", 2, true};
    percent(p[5].value, v->exposed_share);
    p[6] = (part){"ETA ", "", "", 7, v->step < v->steps};
    mon_duration(p[6].value, v->eta_s);
    if (brief) {
        strcpy(p[0].before, "");
        strcpy(p[4].after, " % peak");
        strcpy(p[5].before, "comm ");
    }
}

static int total_width(const part *p)
{
    int width = -GAP;
    for (int i = 0; i < PARTS; i++)
        width += p[i].shown ? width_of(&p[i]) + GAP : 0;
    return width;
}

/* Leave out what is worth less than `worth` until the rest fits; true when it does. */
static bool drop_until(part *p, int columns, int worth)
{
    while (total_width(p) > columns) {
        int least = -1;
        for (int i = 1; i < PARTS; i++)
            if (p[i].shown && p[i].worth < worth && (least < 0 || p[i].worth < p[least].worth))
                least = i;
        if (least < 0)
            return false;
        p[least].shown = false;
    }
    return true;
}

/* Long words and a bar; short words and a bar, with less beside it; no bar. The bar's inner cells
 * are returned. */
static int fit(part p[PARTS], const mon_view *v, int columns)
{
    enum { FRAME = GAP + 2, BAR_WORTH = 5 };
    for (int brief = 0; brief < 2; brief++) {
        parts_fill(p, v, brief);
        if (v->steps > 0 && drop_until(p, columns - FRAME - BAR_LEAST, brief ? BAR_WORTH : 0))
            return SN_MIN(columns - FRAME - total_width(p), BAR_MOST);
    }
    parts_fill(p, v, true);
    drop_until(p, columns, INT_MAX);
    return 0;
}

static void paint(sn_str *out, bool colour, const char *sgr, const char *text)
{
    if (!*text)
        return;
    if (colour)
        sn_str_printf(out, "\033[%sm%s\033[0m", sgr, text);
    else
        sn_str_add(out, text);
}

/* `inside` cells between two thin walls; eighths of a cell where the terminal can show them. */
static void bar(sn_str *out, double share, int inside, mon_look look)
{
    static const char *const eighth[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    sn_str fill = {0};
    int units = (int) (mon_share(share, 1) * inside * 8 + 1e-9), full = units / 8;
    int used = full;
    for (int i = 0; i < full; i++)
        sn_str_add(&fill, look.utf8 ? "█" : "=");
    if (look.utf8 && units % 8) {
        sn_str_add(&fill, eighth[units % 8]);
        used++;
    } else if (!look.utf8 && full < inside && full) {
        sn_str_add(&fill, ">");
        used++;
    }
    paint(out, look.colour, "2", look.utf8 ? "▕" : "[");
    paint(out, look.colour, "36", sn_str_get(&fill));
    sn_str_printf(out, "%*s", inside - used, "");
    paint(out, look.colour, "2", look.utf8 ? "▏" : "]");
    sn_str_done(&fill);
}

int mon_line(sn_str *out, const mon_view *view, mon_look look)
{
    part p[PARTS];
    int inside = 0;
    if (look.columns)
        inside = fit(p, view, look.columns);
    else
        parts_fill(p, view, false);
    int width = total_width(p);
    if (look.columns && width > look.columns) { /* not even the step fits: what does of it */
        sn_str_printf(out, "%.*s", look.columns, p[0].value);
        return SN_MIN((int) strlen(p[0].value), look.columns);
    }
    for (int i = 0; i < PARTS; i++) {
        if (!p[i].shown)
            continue;
        if (i)
            sn_str_printf(out, "%*s", GAP, "");
        paint(out, look.colour, "2", p[i].before);
        paint(out, look.colour, i < 2 ? "1" : "0", p[i].value);
        paint(out, look.colour, "2", p[i].after);
        if (!i && inside) {
            sn_str_printf(out, "%*s", GAP, "");
            bar(out, (double) view->step / (double) view->steps, inside, look);
        }
    }
    return width + (inside ? inside + GAP + 2 : 0);
}
