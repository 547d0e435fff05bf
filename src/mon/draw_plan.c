/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan on the topology: hosts as boxes, cards as tiles in their stage's colour, the cards of
 * one tensor group in one frame, the network between the hosts.
 *
 *   ╭ h0 ───────────────╮            ╭ h1 ───────────────╮
 *   │ replica 0·stage 0 │  21 µs     │ replica 1·stage 0 │
 *   │ [c0 t0] [c1 t1]   │ ────────── │ [c0 t0] [c1 t1]   │
 *   │        ↓          │  5.2 GB/s  │        ↓          │ */
#include "mon/html.h"
#include "mon/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WIDTH = 960,
    MANY = 16,
    HOSTS_DRAWN = 256,
    LINK = 190,
    HOST_GAP = 26,
    BUS = 44,
    LEGEND_MAX = 12
};

typedef struct sizes { /* pixels */
    int tile_w, tile_h, gap, frame, label, group_gap, pad, title;
    bool small;
} sizes;

static const sizes large_tiles = {96, 58, 8, 7, 20, 22, 16, 36, false};
static const sizes small_tiles = {58, 40, 5, 4, 15, 10, 10, 28, true};

typedef struct layout {
    sizes s;
    const sn_report_card **card; /* sorted by host, replica, stage, tensor */
    int cards, hosts;
    int first[HOSTS_DRAWN + 1];      /* of each host, into card */
    int tensor_columns, tensor_rows; /* tiles of a group */
    int group_columns, group_rows;   /* groups of a host */
    int group_w, group_h, host_w, host_h;
} layout;

/* ---- order ---- */

static const char *or_empty(const char *text)
{
    return text ? text : "";
}

/* Host names with their numbers by value: h2 before h10. */
static int by_plan(const void *a, const void *b)
{
    const sn_report_card *x = *(const sn_report_card *const *) a;
    const sn_report_card *y = *(const sn_report_card *const *) b;
    int host = strverscmp(or_empty(x->host), or_empty(y->host));
    if (host)
        return host;
    if (x->data != y->data)
        return x->data < y->data ? -1 : 1;
    if (x->stage != y->stage)
        return x->stage < y->stage ? -1 : 1;
    return x->tensor != y->tensor ? (x->tensor < y->tensor ? -1 : 1)
                                  : (x->rank > y->rank) - (x->rank < y->rank);
}

static bool same_group(const sn_report_card *a, const sn_report_card *b)
{
    return a->data == b->data && a->stage == b->stage;
}

static int group_end(const layout *l, int at, int end)
{
    int i = at + 1;
    while (i < end && same_group(l->card[at], l->card[i]))
        i++;
    return i;
}

static void split_hosts(layout *l)
{
    for (int i = 0; i < l->cards && l->hosts < HOSTS_DRAWN; i++)
        if (!i || strcmp(or_empty(l->card[i]->host), or_empty(l->card[i - 1]->host)))
            l->first[l->hosts++] = i;
    l->first[l->hosts] = l->cards;
}

static void measure(layout *l)
{
    int groups_max = 1, members_max = 1;
    for (int h = 0; h < l->hosts; h++) {
        int groups = 0;
        for (int i = l->first[h], end; i < l->first[h + 1]; i = end) {
            end = group_end(l, i, l->first[h + 1]);
            members_max = SN_MAX(members_max, end - i);
            groups++;
        }
        groups_max = SN_MAX(groups_max, groups);
    }
    const sizes *s = &l->s;
    l->tensor_columns = SN_MIN(members_max, 4);
    l->tensor_rows = (members_max + 3) / 4;
    int across = l->tensor_columns > 1 ? (l->s.small ? 4 : 2) / l->tensor_columns
                 : l->s.small          ? 4
                                       : 2;
    l->group_columns = SN_MIN(groups_max, SN_MAX(across, 1));
    l->group_rows = (groups_max + l->group_columns - 1) / l->group_columns;
    l->group_w = l->tensor_columns * (s->tile_w + s->gap) - s->gap + 2 * s->frame;
    l->group_h = s->label + l->tensor_rows * (s->tile_h + s->gap) - s->gap + 2 * s->frame;
    l->host_w = l->group_columns * (l->group_w + s->group_gap) - s->group_gap + 2 * s->pad;
    l->host_h = s->title + l->group_rows * (l->group_h + s->group_gap) - s->group_gap + s->pad;
}

/* ---- drawing ---- */

static int hue(int stage)
{
    return (205 + 137 * (stage & 0xff)) % 360;
}

/* "h0/c2" → "c2": the box around it says the rest. */
static const char *short_name(const sn_report_card *c)
{
    const char *name = or_empty(c->name), *slash = strrchr(name, '/');
    return slash && slash[1] ? slash + 1 : name;
}

static void tile(const layout *l, const sn_report_card *c, int x, int y, sn_str *out)
{
    const sizes *s = &l->s;
    mon_html(out,
             "<g class=\"tile\" style=\"--h:%d\"><title>%s on %s: rank %d, stage %d, tensor %d, "
             "replica %d</title><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"%d\"/>",
             hue(c->stage), c->name, c->host, c->rank, c->stage, c->tensor, c->data, x, y,
             s->tile_w, s->tile_h, s->small ? 5 : 8);
    mon_html(out, "<text class=\"name mid\" x=\"%d\" y=\"%d\">", x + s->tile_w / 2,
             y + s->tile_h / 2 - (s->small ? 2 : 4));
    mon_html_text_n(out, short_name(c), s->small ? 6 : 10);
    mon_html(out, "</text><text class=\"sub mid\" x=\"%d\" y=\"%d\">", x + s->tile_w / 2,
             y + s->tile_h / 2 + (s->small ? 11 : 14));
    mon_html(out, s->small ? "t%d" : "tensor %d", c->tensor);
    sn_str_add(out, "</text></g>");
}

static void group(const layout *l, int at, int end, int x, int y, sn_str *out)
{
    const sizes *s = &l->s;
    const sn_report_card *c = l->card[at];
    mon_html(out, "<text class=\"grouplabel\" x=\"%d\" y=\"%d\">", x + s->frame, y + s->label - 6);
    mon_html(out, s->small ? "r%d · s%d" : "replica %d · stage %d", c->data, c->stage);
    sn_str_add(out, "</text>");
    if (end - at > 1)
        mon_html(out,
                 "<rect class=\"frame\" style=\"--h:%d\" x=\"%d\" y=\"%d\" width=\"%d\" "
                 "height=\"%d\" rx=\"%d\"/>",
                 hue(c->stage), x, y + s->label, l->group_w, l->group_h - s->label,
                 s->small ? 8 : 13);
    for (int i = at; i < end; i++) {
        int k = i - at;
        tile(l, l->card[i], x + s->frame + k % 4 * (s->tile_w + s->gap),
             y + s->label + s->frame + k / 4 * (s->tile_h + s->gap), out);
    }
}

/* Activations go on to the next stage; drawn where it is the neighbour. */
static void arrow(const layout *l, int k, int x, int y, sn_str *out)
{
    const sizes *s = &l->s;
    bool down = l->group_columns == 1;
    if (!down && (k + 1) % l->group_columns == 0)
        return;
    double cx = down ? x + l->group_w / 2.0 : x + l->group_w + s->group_gap / 2.0;
    double cy = down ? y + l->group_h + s->group_gap / 2.0 + 1
                     : y + s->label + (l->group_h - s->label) / 2.0;
    double r = s->small ? 4 : 7;
    if (down)
        mon_html(out, "<path class=\"arrow\" d=\"M%p %pV%pm%p %pl%p %pl%p %p\"/>", cx, cy - r,
                 cy + r, -r * 0.6, -r * 0.6, r * 0.6, r * 0.6, r * 0.6, -r * 0.6);
    else
        mon_html(out, "<path class=\"arrow\" d=\"M%p %pH%pm%p %pl%p %pl%p %p\"/>", cx - r, cy,
                 cx + r, -r * 0.6, -r * 0.6, r * 0.6, r * 0.6, -r * 0.6, r * 0.6);
}

static void host(const layout *l, int h, int x, int y, sn_str *out)
{
    const sizes *s = &l->s;
    int n = l->first[h + 1] - l->first[h], k = 0;
    mon_html(out,
             "<rect class=\"host\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"14\"/>"
             "<text class=\"hostname\" x=\"%d\" y=\"%d\">",
             x, y, l->host_w, l->host_h, x + s->pad, y + s->title - 12);
    mon_html_text_n(out, or_empty(l->card[l->first[h]]->host), s->small ? 14 : 20);
    mon_html(out, "</text><text class=\"sub end\" x=\"%d\" y=\"%d\">%d card%r</text>",
             x + l->host_w - s->pad, y + s->title - 12, n, n == 1 ? "" : "s");
    for (int i = l->first[h], end; i < l->first[h + 1]; i = end, k++) {
        int gx = x + s->pad + k % l->group_columns * (l->group_w + s->group_gap);
        int gy = y + s->title + k / l->group_columns * (l->group_h + s->group_gap);
        end = group_end(l, i, l->first[h + 1]);
        group(l, i, end, gx, gy, out);
        if (end < l->first[h + 1] && l->card[end]->data == l->card[i]->data &&
            l->card[end]->stage - 1 == l->card[i]->stage)
            arrow(l, k, gx, gy, out);
    }
}

static void link_text(const sn_report *r, double x, double y, double apart, sn_str *out)
{
    char rate[32];
    if (r->link_latency_ns > 0) {
        mon_html(out, "<text class=\"link mid\" x=\"%p\" y=\"%p\">", x, y - apart);
        mon_html_ns(out, r->link_latency_ns);
        sn_str_add(out, "</text>");
    }
    if (r->link_bytes_per_s > 0)
        mon_html(out, "<text class=\"link mid\" x=\"%p\" y=\"%p\">%s</text>", x, y + apart + 9,
                 sn_fmt_rate(rate, r->link_bytes_per_s));
}

static void two_hosts(const layout *l, const sn_report *r, sn_str *out)
{
    int width = SN_MAX(WIDTH, 2 * l->host_w + LINK), left = (width - 2 * l->host_w - LINK) / 2;
    int right = left + l->host_w + LINK;
    double y = 1 + l->host_h / 2.0, x = left + l->host_w + LINK / 2.0;
    mon_html(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"plan\">", width,
             l->host_h + 2);
    mon_html(out,
             "<path class=\"wire\" d=\"M%d %pH%d\"/><circle class=\"plug\" cx=\"%d\" cy=\"%p\" "
             "r=\"5\"/><circle class=\"plug\" cx=\"%d\" cy=\"%p\" r=\"5\"/>",
             left + l->host_w, y, right, left + l->host_w, y, right, y);
    link_text(r, x, y, 11, out);
    host(l, 0, left, 1, out);
    host(l, 1, right, 1, out);
    sn_str_add(out, "</svg>");
}

/* Rows of hosts, a line under each row, joined at the left. */
static void many_hosts(const layout *l, const sn_report *r, sn_str *out)
{
    int per_row =
        SN_MAX(1, SN_MIN(l->hosts, (WIDTH + HOST_GAP + WIDTH / 10) / (l->host_w + HOST_GAP)));
    int rows = (l->hosts + per_row - 1) / per_row, bus = l->hosts > 1 ? BUS : 0;
    int used = per_row * (l->host_w + HOST_GAP) - HOST_GAP, width = SN_MAX(WIDTH, used + 24);
    int left = (width - used) / 2, to = rows > 1 ? left - 10 : left + l->host_w / 2,
        step = l->host_h + bus + 12;
    mon_html(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"plan\">", width,
             rows * step);
    for (int h = 0; h < l->hosts; h++) {
        int x = left + h % per_row * (l->host_w + HOST_GAP), y = 1 + h / per_row * step;
        int line = y + l->host_h + bus / 2, middle = x + l->host_w / 2;
        if (bus)
            mon_html(out, "<path class=\"wire\" d=\"M%d %dV%dH%d\"/>", middle, y + l->host_h, line,
                     to);
        host(l, h, x, y, out);
    }
    if (rows > 1 && bus)
        mon_html(out, "<path class=\"wire\" d=\"M%d %dV%d\"/>", left - 10, 1 + l->host_h + bus / 2,
                 1 + (rows - 1) * step + l->host_h + bus / 2);
    if (bus)
        link_text(r, left + l->host_w + HOST_GAP / 2.0, 1 + l->host_h + bus / 2.0, 9, out);
    sn_str_add(out, "</svg>");
}

static void legend(const sn_report *r, const layout *l, sn_str *out)
{
    int stages = 1;
    for (int i = 0; i < l->cards; i++)
        stages = SN_MAX(stages, SN_MIN(l->card[i]->stage, LEGEND_MAX) + 1);
    sn_str_add(out, "<p class=\"key\">");
    for (int s = 0; s < SN_MIN(stages, LEGEND_MAX); s++)
        mon_html(out, "<i class=\"stage\" style=\"--h:%d\"></i>stage %d ", hue(s), s);
    if (stages > LEGEND_MAX)
        sn_str_add(out, "… ");
    mon_html(out, "<span class=\"unit\">tensor %d × pipeline %d × data %d</span></p>",
             SN_MAX(r->tensor, 1), SN_MAX(r->pipeline, 1), SN_MAX(r->data, 1));
}

static const char *meaning(const sn_report *r)
{
    return r->tensor > 1 && r->pipeline > 1 ? "Cards in one frame share every layer; arrows carry "
                                              "activations to the next stage; "
                                              "replicas average their gradients."
           : r->tensor > 1
               ? "Cards in one frame share every layer; replicas average their gradients."
           : r->pipeline > 1 ? "Arrows carry activations to the next stage; replicas average their "
                               "gradients."
                             : "Each card holds the whole model; replicas average their gradients.";
}

void mon_report_plan(const sn_report *r, sn_str *out)
{
    if (!r->card || r->cards < 1)
        return;
    layout l = {.cards = r->cards, .s = r->cards > MANY ? small_tiles : large_tiles};
    l.card = malloc((size_t) l.cards * sizeof(void *));
    if (!l.card)
        return;
    for (int i = 0; i < l.cards; i++)
        l.card[i] = &r->card[i];
    qsort(l.card, (size_t) l.cards, sizeof *l.card, by_plan);
    split_hosts(&l);
    measure(&l);
    sn_str_add(out, "<section class=\"panel\"><h2>The plan on the machines</h2>");
    legend(r, &l, out);
    if (l.hosts == 2)
        two_hosts(&l, r, out);
    else
        many_hosts(&l, r, out);
    if (r->cards > 1)
        mon_html(out, "<p class=\"note\">%r</p>", meaning(r));
    if (r->plan_text && *r->plan_text)
        mon_html(out, "<pre class=\"why\">%s</pre>", r->plan_text);
    sn_str_add(out, "</section>\n");
    free(l.card);
}

/* ---- how busy each card was ---- */

void mon_report_cards(const sn_report *r, sn_str *out)
{
    char memory[32];
    if (!r->card || r->cards < 1)
        return;
    mon_html(out,
             "<section class=\"panel\"><h2>How busy the cards were</h2><p class=\"key\">"
             "<i class=\"b0\"></i>computing <i class=\"b1\"></i>collectives, exposed "
             "<i class=\"b2\"></i>waiting in the pipeline "
             "<span class=\"unit\">share of the step, peak memory</span></p>"
             "<div class=\"cards%r\">",
             r->cards > MANY ? " many" : "");
    for (int i = 0; i < r->cards; i++) {
        const sn_report_card *c = &r->card[i];
        double a = mon_share(c->compute_share, 1),
               b = mon_share(c->collective_share, 1 - a) * (1 - a);
        double p = mon_share(c->pipeline_share, 1 - a - b) * (1 - a - b);
        mon_html(out, "<div class=\"card\"><span class=\"who\"><em>%d</em> ", c->rank);
        mon_html_text_n(out, or_empty(c->name), 18);
        mon_html(
            out,
            "</span><span class=\"meter\"><b class=\"b0\" style=\"width:%p%%\"></b>"
            "<b class=\"b1\" style=\"width:%p%%\"></b><b class=\"b2\" style=\"width:%p%%\"></b>"
            "</span><span class=\"num\">",
            100 * a, 100 * b, 100 * p);
        mon_fixed(out, 100 * a, 0);
        mon_html(out, " %%</span><span class=\"num mem\">%s</span></div>",
                 c->memory_bytes ? sn_fmt_bytes(memory, (double) c->memory_bytes) : "");
    }
    sn_str_add(out, "</div></section>\n");
}
