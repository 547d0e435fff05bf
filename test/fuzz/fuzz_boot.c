/* SPDX-License-Identifier: Apache-2.0
 * What workers may send to the boot exchange. The input is a script of events of three ranks:
 *   byte   rank (two low bits, 3: none) and what: a connection that closes (0x80), else a message
 *   byte   how many of the following bytes arrive at once
 * Whatever arrives, the server answers, refuses, or waits; it takes what is sent in any portions.
 */
#include "net/net.h"

#include <stddef.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { WORLD = 3 };

static void drain(sn_boot_server *s, size_t portion)
{
    for (int r = 0; r < WORLD; r++) {
        const void *out;
        size_t n = sn_boot_server_pending(s, r, &out);
        volatile uint8_t sink = 0;
        for (size_t i = 0; i < n; i++)
            sink = (uint8_t) (sink + ((const uint8_t *) out)[i]);
        if (n)
            sn_boot_server_sent(s, r, SN_MIN(n, portion + 1));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    sn_boot_server *s = sn_boot_server_create(WORLD);
    bool here[WORLD] = {true, true, true};
    sn_str missing = {0};
    for (size_t at = 0; at + 2 <= bytes;) {
        int what = data[at], rank = what & 3;
        size_t n = SN_MIN((size_t) data[at + 1], bytes - at - 2);
        at += 2;
        if (rank < WORLD && here[rank]) {
            if (what & 0x80 || sn_boot_server_feed(s, rank, data + at, n) < 0) {
                here[rank] = false;
                sn_boot_server_left(s, rank);
            }
        }
        at += n;
        drain(s, n);
        sn_boot_server_missing(s, &missing);
        sn_str_clear(&missing);
    }
    sn_str_done(&missing);
    sn_boot_server_free(s);
    return 0;
}
