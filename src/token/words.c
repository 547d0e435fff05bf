/* SPDX-License-Identifier: Apache-2.0
 *
 * words — where GPT-2 cuts a text before it merges: the regular expression
 *
 *   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * as a function. A byte that is no part of valid UTF-8 counts as a character of the third kind. */
#include "token/parts.h"
#include "token/unicode.h"

typedef enum kind { OTHER, SPACE, LETTER, NUMBER } kind;

static bool within(const token_range *range, int n, uint32_t c)
{
    int low = 0, high = n;
    while (low < high) {
        int mid = (low + high) / 2;
        if (c > range[mid].last)
            low = mid + 1;
        else
            high = mid;
    }
    return low < n && c >= range[low].first;
}

static kind kind_of(uint32_t c)
{
    if (c < 0x80) {
        if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z')
            return LETTER;
        if (c >= '0' && c <= '9')
            return NUMBER;
        return c == ' ' || (c >= 9 && c <= 13) ? SPACE : OTHER;
    }
    if (c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
        c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000)
        return SPACE;
    if (within(token_letters, SN_COUNT(token_letters), c))
        return LETTER;
    return within(token_numbers, SN_COUNT(token_numbers), c) ? NUMBER : OTHER;
}

/* The character at p (n > 0 bytes are there): its code point and length; an invalid byte is
 * 0xffffffff of length 1. */
static uint32_t character(const uint8_t *p, int64_t n, int *ret_bytes)
{
    uint32_t c = p[0];
    *ret_bytes = 1;
    if (c < 0x80)
        return c;
    int more = c >= 0xc2 && c < 0xe0   ? 1
               : c >= 0xe0 && c < 0xf0 ? 2
               : c >= 0xf0 && c < 0xf5 ? 3
                                       : 0;
    if (!more || n <= more)
        return UINT32_MAX;
    c &= 0x3fu >> more;
    for (int i = 1; i <= more; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return UINT32_MAX;
        c = c << 6 | (p[i] & 0x3f);
    }
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    if (c < least[more] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return UINT32_MAX;
    *ret_bytes = more + 1;
    return c;
}

static kind kind_at(const uint8_t *p, int64_t n, int *ret_bytes)
{
    return kind_of(character(p, n, ret_bytes));
}

/* Bytes from `at` to the end of the run of characters of kind k. *ret_last: of its last one. */
static int64_t run(const uint8_t *text, int64_t n, int64_t at, kind k, int *ret_last)
{
    int bytes;
    *ret_last = 0;
    while (at < n && at < TOKEN_WORD_MAX && kind_at(text + at, n - at, &bytes) == k) {
        at += bytes;
        *ret_last = bytes;
    }
    return at;
}

static int contraction(const uint8_t *p, int64_t n)
{
    if (n < 2 || p[0] != '\'')
        return 0;
    if (p[1] == 's' || p[1] == 't' || p[1] == 'm' || p[1] == 'd')
        return 2;
    bool two = n > 2 && ((p[1] == 'r' && p[2] == 'e') || (p[1] == 'v' && p[2] == 'e') ||
                         (p[1] == 'l' && p[2] == 'l'));
    return two ? 3 : 0;
}

int64_t token_word(const uint8_t *text, int64_t n)
{
    int bytes, last, first = contraction(text, n);
    if (first)
        return first;
    int64_t at = text[0] == ' ' && n > 1 ? 1 : 0;
    kind k = kind_at(text + at, n - at, &bytes);
    if (k != SPACE)
        return run(text, n, at, k, &last);
    int64_t end = run(text, n, 0, SPACE, &last);
    if (end < n && end < TOKEN_WORD_MAX && end > last) /* the last one begins the next word */
        end -= last;
    return end;
}
