/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "base/arena.h"
#include "base/status.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void sn_str_done(sn_str *s)
{
    free(s->data);
    *s = (sn_str){0};
}

void sn_str_clear(sn_str *s)
{
    s->len = 0;
    if (s->data)
        s->data[0] = 0;
}

const char *sn_str_get(const sn_str *s)
{
    return s->data ? s->data : "";
}

static void reserve(sn_str *s, size_t more)
{
    if (s->len + more + 1 <= s->cap)
        return;
    size_t cap = s->cap ? s->cap * 2 : 64;
    while (cap < s->len + more + 1)
        cap *= 2;
    s->data = sn_realloc(s->data, cap);
    s->cap = cap;
}

void sn_str_add_n(sn_str *s, const char *data, size_t n)
{
    reserve(s, n);
    if (n)
        memcpy(s->data + s->len, data, n);
    s->len += n;
    s->data[s->len] = 0;
}

void sn_str_add(sn_str *s, const char *text)
{
    sn_str_add_n(s, text, strlen(text));
}

void sn_str_printf(sn_str *s, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    SN_ASSERT(n >= 0);
    reserve(s, (size_t) n);
    vsnprintf(s->data + s->len, (size_t) n + 1, format, again);
    va_end(again);
    s->len += (size_t) n;
}

/* Bytes of the valid UTF-8 character at p, 0 when there is none. */
static size_t utf8_at(const unsigned char *p, size_t n)
{
    size_t more = *p < 0x80 ? 0 : *p >= 0xc2 && *p < 0xe0 ? 1 : *p >= 0xe0 && *p < 0xf0 ? 2 : 3;
    if (*p >= 0xf5 || (*p >= 0x80 && *p < 0xc2) || more >= n)
        return 0;
    for (size_t i = 1; i <= more; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    bool overlong = (*p == 0xe0 && p[1] < 0xa0) || (*p == 0xf0 && p[1] < 0x90);
    bool surrogate = (*p == 0xed && p[1] >= 0xa0) || (*p == 0xf4 && p[1] >= 0x90);
    return overlong || surrogate ? 0 : more + 1;
}

void sn_str_add_utf8(sn_str *s, const void *data, size_t n)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < n;) {
        size_t k = utf8_at(p + i, n - i);
        bool control = k == 1 && (p[i] < 0x20 || p[i] == 0x7f) && p[i] != '\n' && p[i] != '\t';
        if (!k || control)
            sn_str_add(s, "\xef\xbf\xbd");
        else
            sn_str_add_n(s, (const char *) p + i, k);
        i += k ? k : 1;
    }
}

int sn_str_distance(const char *a, const char *b)
{
    enum { LONG = 64 };
    size_t n = strlen(b);
    int row[LONG + 1];
    if (strlen(a) > LONG || n > LONG)
        return LONG;
    for (size_t j = 0; j <= n; j++)
        row[j] = (int) j;
    for (size_t i = 1; a[i - 1]; i++) {
        int diagonal = row[0];
        row[0] = (int) i;
        for (size_t j = 1; j <= n; j++) {
            int keep = diagonal + (a[i - 1] != b[j - 1]);
            int edit = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = keep < edit ? keep : edit;
        }
    }
    return row[n];
}

const char *sn_str_nearest(const char *word, const char *const *words, int n)
{
    const char *best = NULL;
    int least = 1 + (int) strlen(word) / 3;
    for (int i = 0; i < n; i++) {
        int d = sn_str_distance(word, words[i]);
        if (d <= least && (!best || d < least)) {
            least = d;
            best = words[i];
        }
    }
    return best;
}

bool sn_str_to_int(const char *text, int64_t *ret)
{
    const char *digits = text + (*text == '-' || *text == '+');
    if (!isdigit((unsigned char) *digits) || (digits[0] == '0' && digits[1]))
        return false;
    errno = 0;
    char *end;
    long long v = strtoll(text, &end, 10);
    if (*end || errno)
        return false;
    *ret = v;
    return true;
}

bool sn_str_to_float(const char *text, double *ret)
{
    const char *p = text + (*text == '-' || *text == '+');
    size_t body = strspn(p, "0123456789.eE+-");
    if (p[body] || !strpbrk(p, "0123456789") || *p == 'e' || *p == 'E')
        return false;
    errno = 0;
    char *end;
    double v = strtod(text, &end);
    if (*end || !isfinite(v))
        return false;
    *ret = v;
    return true;
}

bool sn_str_to_bytes(const char *text, uint64_t *ret)
{
    static const char prefix[] = "KMGTP";
    char number[32];
    size_t n = strspn(text, "0123456789.");
    if (!n || n >= sizeof number)
        return false;
    memcpy(number, text, n);
    number[n] = 0;
    double v;
    if (!sn_str_to_float(number, &v))
        return false;
    const char *unit = text + n + (text[n] == ' ');
    const char *at = *unit ? strchr(prefix, toupper((unsigned char) *unit)) : NULL;
    if (at) {
        bool decimal = toupper((unsigned char) unit[1]) == 'B';
        v *= pow(decimal ? 1000.0 : 1024.0, (double) (at - prefix) + 1);
        unit += decimal ? 2 : unit[1] == 'i' ? 2 + (unit[2] == 'B') : 1;
    } else if (*unit == 'B') {
        unit++;
    }
    if (*unit || v >= 1.8e19)
        return false;
    *ret = (uint64_t) v;
    return true;
}

static const char *scaled(char out[32], double v, double base, const char *const *unit, int n)
{
    int i = 0;
    while (fabs(v) >= base && i < n - 1) {
        v /= base;
        i++;
    }
    snprintf(out, 32,
             i == 0 && v == floor(v) ? "%.0f %s"
             : fabs(v) < 10          ? "%.2f %s"
                                     : "%.1f %s",
             v, unit[i]);
    return out;
}

const char *sn_fmt_bytes(char out[32], double bytes)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    return scaled(out, bytes, 1024, unit, 6);
}

const char *sn_fmt_rate(char out[32], double bytes_per_s)
{
    static const char *const unit[] = {"B/s", "KB/s", "MB/s", "GB/s", "TB/s", "PB/s"};
    return scaled(out, bytes_per_s, 1000, unit, 6);
}

const char *sn_fmt_count(char out[32], double count)
{
    static const char *const unit[] = {"", "k", "M", "G", "T", "P", "E"};
    scaled(out, count, 1000, unit, 7);
    size_t n = strlen(out);
    if (n && out[n - 1] == ' ')
        out[n - 1] = 0;
    return out;
}

const char *sn_fmt_ns(char out[32], double ns)
{
    static const char *const unit[] = {"ns", "us", "ms", "s"};
    if (ns < 120e9)
        return scaled(out, ns, 1000, unit, 4);
    int64_t s = (int64_t) (ns / 1e9);
    if (s < 7200)
        snprintf(out, 32, "%dm %02ds", (int) (s / 60), (int) (s % 60));
    else
        snprintf(out, 32, "%dh %02dm", (int) (s / 3600), (int) (s / 60 % 60));
    return out;
}
