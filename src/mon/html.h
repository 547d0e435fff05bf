/* SPDX-License-Identifier: Apache-2.0
 *
 * html — the pieces a report is made of. Private to mon.
 *
 * Invariants: whatever comes from outside goes through mon_html_text; every coordinate through
 * mon_px, which writes no "nan". The page is well-formed XML too, so that a parser can check it. */
#ifndef SN_MON_HTML_H
#define SN_MON_HTML_H

#include "mon/mon.h"

extern const char mon_style[], mon_script[];

void mon_html_text(sn_str *out, const char *text);                   /* escaped; NULL is nothing */
void mon_html_text_n(sn_str *out, const char *text, int characters); /* cut with "…" */
void mon_px(sn_str *out, double v);                                  /* a coordinate */

void mon_html_ns(sn_str *out, double ns);  /* "21.0 µs" */
void mon_html_int(sn_str *out, int64_t v); /* "4 915 200", in thin spaces */

/* A small printf of its own. Knows %p (double, coordinate), %s (text, escaped),
 * %d (int), %r (raw markup of our own). */
void mon_html(sn_str *out, const char *format, ...);

/* A step between axis marks (1, 2 or 5 times a power of ten) for about `want` of them. */
double mon_tick(double span, int want);
int mon_tick_digits(double tick); /* decimals a mark needs */

/* A scale from values to pixels; never divides by nothing. */
typedef struct mon_scale {
    double low, high;  /* values */
    double from, upto; /* pixels */
} mon_scale;
double mon_at(const mon_scale *s, double v); /* clamped to two spans outside */

/* The parts, in the order of the page. */
void mon_report_loss(const sn_report *r, sn_str *out);
void mon_report_time(const sn_report *r, sn_str *out);
void mon_report_plan(const sn_report *r, sn_str *out);
void mon_report_cards(const sn_report *r, sn_str *out);

/* Sums over the run, for the head and the tables. */
typedef struct mon_totals {
    double ns, time_ns[SN_TIME_KINDS], tokens, flops, peak_flops, bytes_host, bytes_net, comm_ns;
    int64_t rows;
} mon_totals;
mon_totals mon_sum(const sn_report *r);
double mon_row_time(const sn_step_metrics *row, int kind); /* "other" takes what is not named */
extern const char *const mon_kind_title[SN_TIME_KINDS];

#endif
