/* SPDX-License-Identifier: Apache-2.0 */
#include "mon/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A host program may have chosen a locale with a decimal comma. */
static void point(char *text)
{
    char *comma = strchr(text, ',');
    if (comma)
        *comma = '.';
}

void mon_json_number(sn_str *out, double v)
{
    char text[40];
    if (!isfinite(v)) {
        sn_str_add(out, "null");
        return;
    }
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    point(text);
    sn_str_add(out, text);
}

void mon_json_text(sn_str *out, const char *text)
{
    sn_str_add(out, "\"");
    for (const unsigned char *p = (const unsigned char *) text; *p; p++) {
        if (*p == '"' || *p == '\\')
            sn_str_printf(out, "\\%c", *p);
        else if (*p < 0x20 || *p == 0x7f)
            sn_str_printf(out, "\\u%04x", *p);
        else
            sn_str_add_n(out, (const char *) p, 1);
    }
    sn_str_add(out, "\"");
}

void mon_fixed(sn_str *out, double v, int digits)
{
    char text[340];
    if (!isfinite(v)) {
        sn_str_add(out, "–");
        return;
    }
    snprintf(text, sizeof text, fabs(v) < 1e15 ? "%.*f" : "%.*g", digits, v);
    point(text);
    sn_str_add(out, text);
}

double mon_tokens_per_s(double tokens, double ns)
{
    return ns > 0 && isfinite(tokens) ? tokens / ns * 1e9 : 0;
}

double mon_share(double part, double whole)
{
    double share = part / whole;
    return !(whole > 0) || !(share > 0) ? 0 : share < 1 ? share : 1;
}

void mon_short_count(char out[16], double v)
{
    static const char unit[] = {0, 'k', 'M', 'G', 'T', 'P'};
    size_t i = 0;
    if (!isfinite(v) || v < 0)
        v = 0;
    while (v >= 999.5 && i + 1 < sizeof unit) {
        v /= 1000;
        i++;
    }
    if (v >= 1000)
        v = 999;
    int digits = !i || v >= 99.95 ? 0 : v >= 9.995 ? 1 : 2;
    snprintf(out, 16, "%.*f%c", digits, v, unit[i]);
    point(out);
}

void mon_duration(char out[32], double seconds)
{
    if (!(seconds > 0))
        seconds = 0;
    if (seconds > 1e9)
        seconds = 1e9;
    int64_t s = (int64_t) (seconds + 0.5);
    if (s < 60)
        snprintf(out, 32, "%ds", (int) s);
    else if (s < 3600)
        snprintf(out, 32, "%dm %02ds", (int) (s / 60), (int) (s % 60));
    else if (s < 86400)
        snprintf(out, 32, "%dh %02dm", (int) (s / 3600), (int) (s / 60 % 60));
    else
        snprintf(out, 32, "%dd %02dh", (int) (s / 86400), (int) (s / 3600 % 24));
}
