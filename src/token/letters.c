/* SPDX-License-Identifier: Apache-2.0
 *
 * letters — GPT-2 writes each byte as a printable character: those that are printable in Latin-1 as
 * themselves, the other 68 as U+0100, U+0101, … in order. */
#include "token/parts.h"

#include <string.h>

static bool printable(int byte)
{
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

uint32_t token_letter(uint8_t byte)
{
    if (printable(byte))
        return byte;
    uint32_t letter = 256;
    for (int b = 0; b < byte; b++)
        letter += !printable(b);
    return letter;
}

int token_letter_byte(uint32_t letter)
{
    if (letter < 256)
        return printable((int) letter) ? (int) letter : -1;
    for (int b = 0; letter < 256 + 68 && b < 256; b++)
        if (token_letter((uint8_t) b) == letter)
            return b;
    return -1;
}

uint8_t token_byte_in_order(int rank)
{
    for (int hidden = 0; hidden < 2; hidden++)
        for (int b = 0; b < 256; b++)
            if (printable(b) != hidden && rank-- == 0)
                return (uint8_t) b;
    return 0;
}

int64_t token_name_bytes(const char *name, size_t n, uint8_t *out)
{
    const uint8_t *p = (const uint8_t *) name;
    int64_t count = 0;
    for (size_t i = 0; i < n; i++) { /* all stand-ins have one or two bytes in UTF-8 */
        uint32_t letter = p[i];
        if (letter >= 0x80) {
            if ((letter & 0xe0) != 0xc0 || i + 1 >= n)
                return -1;
            letter = (letter & 0x1f) << 6 | (p[++i] & 0x3f);
        }
        int byte = token_letter_byte(letter);
        if (byte < 0)
            return -1;
        out[count++] = (uint8_t) byte;
    }
    return count;
}

void token_name_add(sn_str *out, const uint8_t *bytes, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t letter = token_letter(bytes[i]);
        char utf8[2] = {(char) (0xc0 | letter >> 6), (char) (0x80 | (letter & 0x3f))};
        if (letter < 0x80)
            utf8[0] = (char) letter;
        sn_str_add_n(out, utf8, letter < 0x80 ? 1 : 2);
    }
}
