/* SPDX-License-Identifier: Apache-2.0 */
#include "mon/html.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of the well-formed UTF-8 character at `p` that may stand in a document; 0 if it is none. */
static int character(const unsigned char *p)
{
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    int more = *p < 0x80 ? 0 : *p >> 5 == 6 ? 1 : *p >> 4 == 14 ? 2 : *p >> 3 == 30 ? 3 : -1;
    if (more < 0)
        return 0;
    uint32_t u = more ? *p & (0x3fu >> more) : *p;
    for (int i = 1; i <= more; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        u = u << 6 | (p[i] & 0x3f);
    }
    bool control = (u < 0x20 && u != '\n' && u != '\t') || (u >= 0x7f && u < 0xa0);
    bool odd =
        u < least[more] || u > 0x10ffff || (u >= 0xd800 && u < 0xe000) || (u & 0xfffe) == 0xfffe;
    return control || odd ? 0 : more + 1;
}

void mon_html_text_n(sn_str *out, const char *text, int characters)
{
    for (const unsigned char *p = (const unsigned char *) (text ? text : ""); *p;) {
        if (characters-- == 0) {
            sn_str_add(out, "…");
            return;
        }
        int n = character(p);
        const char *as = *p == '&'    ? "&amp;"
                         : *p == '<'  ? "&lt;"
                         : *p == '>'  ? "&gt;"
                         : *p == '"'  ? "&quot;"
                         : *p == '\'' ? "&#39;"
                         : n == 0     ? "\xef\xbf\xbd" /* the replacement character */
                                      : NULL;
        if (as)
            sn_str_add(out, as);
        else
            sn_str_add_n(out, (const char *) p, (size_t) n);
        p += n ? n : 1;
    }
}

void mon_html_text(sn_str *out, const char *text)
{
    mon_html_text_n(out, text, -1);
}

void mon_px(sn_str *out, double v)
{
    if (!isfinite(v))
        v = 0;
    v = v > 1e6 ? 1e6 : v < -1e6 ? -1e6 : v;
    long tenths = lround(v * 10), whole = labs(tenths);
    sn_str_printf(out, whole % 10 ? "%s%ld.%ld" : "%s%ld", tenths < 0 ? "-" : "", whole / 10,
                  whole % 10);
}

void mon_html_ns(sn_str *out, double ns)
{
    char text[32];
    size_t n = strlen(sn_fmt_ns(text, ns));
    bool micro = n > 2 && !strcmp(text + n - 2, "us");
    sn_str_add_n(out, text, micro ? n - 2 : n);
    sn_str_add(out, micro ? "µs" : "");
}

void mon_html_int(sn_str *out, int64_t v)
{
    char text[24];
    int n = snprintf(text, sizeof text, "%lld", (long long) v);
    for (int i = 0; i < n; i++) {
        sn_str_add_n(out, text + i, 1);
        int left = n - 1 - i;
        if (left && left % 3 == 0 && text[i] != '-')
            sn_str_add(out, "\xe2\x80\x89");
    }
}

void mon_html(sn_str *out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    for (const char *p = format; *p;) {
        size_t n = strcspn(p, "%");
        sn_str_add_n(out, p, n);
        p += n;
        if (*p != '%')
            break;
        switch (p[1]) {
        case 'p':
            mon_px(out, va_arg(args, double));
            break;
        case 's':
            mon_html_text(out, va_arg(args, const char *));
            break;
        case 'r':
            sn_str_add(out, va_arg(args, const char *));
            break;
        case 'd':
            sn_str_printf(out, "%d", va_arg(args, int));
            break;
        default: /* "%%" */
            sn_str_add(out, "%");
        }
        p += 2;
    }
    va_end(args);
}

double mon_tick(double span, int want)
{
    if (!(span > 0) || !isfinite(span))
        return 1;
    double rough = span / want, power = pow(10, floor(log10(rough))), m = rough / power;
    double tick = (m <= 1 ? 1 : m <= 2 ? 2 : m <= 5 ? 5 : 10) * power;
    return tick > 0 && isfinite(tick) ? tick : 1;
}

int mon_tick_digits(double tick)
{
    int digits = 0;
    for (; digits < 9 && tick < 0.999; digits++)
        tick *= 10;
    return digits;
}

double mon_at(const mon_scale *s, double v)
{
    double span = s->high - s->low;
    double share = span > 0 ? (v - s->low) / span : 0.5;
    share = share > 3 ? 3 : share < -2 ? -2 : share;
    return s->from + share * (s->upto - s->from);
}
