/* SPDX-License-Identifier: Apache-2.0
 *
 * none — the numbers themselves. */
#include "codec/block.h"

static int64_t bytes(const sn_codec *c, int64_t n)
{
    return 4 * n;
}

static void encode(const sn_codec *c, const sn_codec_in *in, void *code)
{
    enum { STEP = 1024 };
    uint8_t *to = code;
    for (int64_t at = 0; at < in->n; at += STEP) {
        int n = (int) SN_MIN(STEP, in->n - at);
        float y[STEP];
        take(in, at, n, n, y);
        memcpy(to + 4 * at, y, (size_t) n * 4);
        leave(in, at, n, y, y, true);
    }
}

static sn_status decode(const sn_codec *c, const void *code, int64_t n, bool add, float *out)
{
    if (!add) {
        memcpy(out, code, (size_t) n * 4);
        return SN_OK;
    }
    enum { STEP = 1024 };
    const uint8_t *from = code;
    for (int64_t at = 0; at < n; at += STEP) {
        int m = (int) SN_MIN(STEP, n - at);
        float d[STEP];
        memcpy(d, from + 4 * at, (size_t) m * 4);
        give(out + at, d, m, true);
    }
    return SN_OK;
}

const sn_codec_row CODEC_HERE(codec_none) = {
    .name = "none",
    .form = "none",
    .help = "f32 as it is",
    .kind = SN_CODEC_NONE,
    .bytes = bytes,
    .encode = encode,
    .decode = decode,
};
