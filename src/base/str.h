/* SPDX-License-Identifier: Apache-2.0
 *
 * str — a growing string, always NUL-terminated.   data[len] == 0, len < cap once anything was
 * added. {0} is a valid empty string; sn_str_done frees it and leaves it empty. */
#ifndef SN_BASE_STR_H
#define SN_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sn_str {
    char *data; /* NULL while empty: read it through sn_str_get */
    size_t len, cap;
} sn_str;

void sn_str_done(sn_str *s);
void sn_str_clear(sn_str *s); /* empty, keeps the memory */
const char *sn_str_get(const sn_str *s);
void sn_str_add(sn_str *s, const char *text);
void sn_str_add_n(sn_str *s, const char *data, size_t n);
void sn_str_printf(sn_str *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Append bytes as UTF-8: what is not valid becomes U+FFFD, control characters but newline and tab
 * too. */
void sn_str_add_utf8(sn_str *s, const void *data, size_t n);

/* Number of single-character edits between two words (for "did you mean"). */
int sn_str_distance(const char *a, const char *b);

/* The word of `words` (n of them) nearest to `word`, or NULL when none is near enough to suggest.
 */
const char *sn_str_nearest(const char *word, const char *const *words, int n);

/* Strict decimal readers: the whole text must be the number; no octal, no underscores, no overflow,
 * no NaN/Inf. False when it is not one. sn_str_to_float takes 1e-4, .5e-3, 1.e-4. */
bool sn_str_to_int(const char *text, int64_t *ret);
bool sn_str_to_float(const char *text, double *ret);

/* Sizes: "512", "8K", "8KiB", "64M", "1.5GB": K/KiB = 1024, KB = 1000. False when not one. */
bool sn_str_to_bytes(const char *text, uint64_t *ret);

/* Human forms into `out` (returned): "1.50 GiB", "12.3 GB/s", "4.2 us", "1m 12s". */
const char *sn_fmt_bytes(char out[32], double bytes);
const char *sn_fmt_rate(char out[32], double bytes_per_s);
const char *sn_fmt_ns(char out[32], double ns);
const char *sn_fmt_count(char out[32], double count); /* 1.23 M */

#endif
