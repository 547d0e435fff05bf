/* SPDX-License-Identifier: Apache-2.0
 *
 * Progress on a terminal, in a log, or for a machine. What it prints is never worth failing a run
 * for: a closed or full output is ignored. */
#include "mon/line.h"
#include "mon/number.h"
#include "os/os.h"

#include <langinfo.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { COLUMNS_UNKNOWN = 80, COLUMNS_LEAST = 12 };
#define REDRAW_NS (40 * SN_MS)     /* 25 pictures a second are enough for the eye */
#define LINE_EVERY_NS (5 * SN_SEC) /* in a log */
#define MEMORY 0.15                /* weight of the newest step in the running means */

struct sn_progress {
    sn_progress_style style;
    int fd;
    bool utf8, colour;
    int64_t first, steps;
    sn_time last_step, last_shown; /* 0: never */
    bool any, stale;               /* a step came; and it is not on the screen yet */
    mon_view view;
    double ns, wall_ns, tokens, flops, peak, exposed; /* running means */
    sn_str text;
};

/* The user's locale, without changing the process's. */
static bool locale_is_utf8(void)
{
    locale_t user = newlocale(LC_CTYPE_MASK, "", (locale_t) 0);
    if (!user)
        return false;
    bool utf8 = !strcmp(nl_langinfo_l(CODESET, user), "UTF-8");
    freelocale(user);
    return utf8;
}

sn_progress *sn_progress_create(sn_progress_style style, int fd, bool plain, int64_t first,
                                int64_t steps)
{
    sn_progress *p = sn_alloc(sizeof *p);
    *p = (sn_progress){.style = style, .fd = fd, .first = first, .steps = steps};
    p->utf8 = locale_is_utf8();
    p->colour = style == SN_PROGRESS_LIVE && !plain;
    p->view = (mon_view){.first = first, .steps = steps, .val_loss = NAN};
    p->last_step = sn_now();
    return p;
}

static int columns(int fd)
{
    struct winsize size;
    if (ioctl(fd, TIOCGWINSZ, &size) || size.ws_col == 0)
        return COLUMNS_UNKNOWN;
    return SN_MAX(size.ws_col - 1, COLUMNS_LEAST); /* the last column would wrap on some */
}

static void flush(sn_progress *p)
{
    if (p->text.len && sn_write_all(p->fd, p->text.data, p->text.len) < 0)
        p->style = SN_PROGRESS_NONE; /* nobody reads it any more */
    sn_str_clear(&p->text);
}

static double mean(double old, double next, bool first)
{
    if (!isfinite(next))
        return old;
    return first ? next : old + MEMORY * (next - old);
}

static void digest(sn_progress *p, const sn_step_metrics *row)
{
    sn_time now = sn_now();
    bool first = !p->any;
    p->ns = mean(p->ns, (double) row->step_ns, first);
    p->tokens = mean(p->tokens, (double) row->tokens, first);
    p->flops = mean(p->flops, row->flops, first);
    p->exposed = mean(p->exposed, (double) row->time_ns[SN_TIME_COLLECTIVE], first);
    p->wall_ns = mean(p->wall_ns, (double) (first ? row->step_ns : now - p->last_step), first);
    p->last_step = now;
    p->any = p->stale = true;
    mon_view *v = &p->view;
    v->step = row->step;
    v->loss = row->loss;
    if (isfinite(row->val_loss))
        v->val_loss = row->val_loss;
    v->tokens_per_s = mon_tokens_per_s(p->tokens, p->ns);
    v->peak_share = mon_share(p->flops * 1e9, row->peak_flops * p->ns);
    v->exposed_share = mon_share(p->exposed, p->ns);
    /* A step never takes less than its own time, though several may be reported at once. */
    v->eta_s = (double) (p->steps - row->step) * SN_MAX(p->wall_ns, p->ns) / 1e9;
}

static void draw_live(sn_progress *p)
{
    sn_str_add(&p->text, "\r");
    mon_line(&p->text, &p->view, (mon_look){columns(p->fd), p->utf8, p->colour});
    sn_str_add(&p->text, "\033[K");
    flush(p);
    p->last_shown = p->last_step;
    p->stale = false;
}

static void print_line(sn_progress *p)
{
    mon_line(&p->text, &p->view, (mon_look){0});
    sn_str_add(&p->text, "\n");
    flush(p);
    p->last_shown = p->last_step;
    p->stale = false;
}

static void json_field(sn_str *out, const char *name, double v)
{
    sn_str_printf(out, ",\"%s\":", name);
    mon_json_number(out, v);
}

static void print_json(sn_progress *p, const sn_step_metrics *row)
{
    sn_str *out = &p->text;
    sn_str_printf(out, "{\"event\":\"step\",\"step\":%lld,\"steps\":%lld", (long long) row->step,
                  (long long) p->steps);
    json_field(out, "loss", row->loss);
    json_field(out, "val_loss", row->val_loss);
    json_field(out, "grad_norm", row->grad_norm);
    json_field(out, "lr", row->lr);
    json_field(out, "step_s", (double) row->step_ns / 1e9);
    json_field(out, "tokens_per_s", p->view.tokens_per_s);
    json_field(out, "peak_share", p->view.peak_share);
    json_field(out, "exposed_comm_share", p->view.exposed_share);
    json_field(out, "eta_s", p->view.eta_s);
    sn_str_add(out, "}\n");
    flush(p);
    p->stale = false;
}

void sn_progress_step(sn_progress *p, const sn_step_metrics *row)
{
    if (!p)
        return;
    bool last = row->step >= p->steps;
    digest(p, row);
    switch (p->style) {
    case SN_PROGRESS_LIVE:
        if (!p->last_shown || last || p->last_step - p->last_shown >= REDRAW_NS)
            draw_live(p);
        break;
    case SN_PROGRESS_LINES:
        if (!p->last_shown || last || p->last_step - p->last_shown >= LINE_EVERY_NS)
            print_line(p);
        break;
    case SN_PROGRESS_JSON:
        print_json(p, row);
        break;
    case SN_PROGRESS_NONE:
        break;
    }
}

/* A note may quote a log or a path: no byte of it may move the cursor. */
static void add_calm(sn_str *out, const char *text)
{
    for (const char *c = text; *c; c++)
        sn_str_add_n(out, (unsigned char) *c < 0x20 && *c != '\n' && *c != '\t' ? "?" : c, 1);
}

void sn_progress_note(sn_progress *p, const char *text)
{
    if (!p || p->style == SN_PROGRESS_NONE)
        return;
    if (p->style == SN_PROGRESS_JSON) {
        sn_str_add(&p->text, "{\"event\":\"note\",\"text\":");
        mon_json_text(&p->text, text);
        sn_str_add(&p->text, "}\n");
        flush(p);
        return;
    }
    if (p->style == SN_PROGRESS_LIVE)
        sn_str_add(&p->text, "\r\033[K");
    add_calm(&p->text, text);
    sn_str_add(&p->text, "\n");
    if (p->style == SN_PROGRESS_LIVE && p->any)
        draw_live(p);
    flush(p);
}

void sn_progress_free(sn_progress *p)
{
    if (!p)
        return;
    if (p->style == SN_PROGRESS_LIVE && p->any) {
        draw_live(p);
        sn_str_add(&p->text, "\n");
    } else if (p->style == SN_PROGRESS_LINES && p->stale) {
        print_line(p);
    }
    flush(p);
    sn_str_done(&p->text);
    free(p);
}
