/* SPDX-License-Identifier: Apache-2.0
 *
 * int8 — whole numbers up to 127 with a scale for each 256 (quant.h has the arithmetic). All
 * scales come first, then the numbers. */
#include "codec/quant.h"

static int64_t bytes(const sn_codec *c, int64_t n)
{
    return blocks(n, INT8_BLOCK) * QUANT_SCALE + n;
}

static void encode(const sn_codec *c, const sn_codec_in *in, void *code)
{
    uint8_t *scales = code, *to = scales + blocks(in->n, INT8_BLOCK) * QUANT_SCALE;
    for (int64_t at = 0; at < in->n; at += INT8_BLOCK) {
        int n = (int) SN_MIN(INT8_BLOCK, in->n - at);
        float y[INT8_BLOCK], d[INT8_BLOCK];
        take(in, at, n, INT8_BLOCK, y);
        uint16_t scale = quant_scale(largest(y, INT8_BLOCK), INT8_MOST);
        store16(scales, scale);
        if (scale == BF16_NAN)
            memset(y, 0, sizeof(y));
        int8_encode(y, n, scale, to);
        if (in->residual)
            int8_decode(to, n, scale, d);
        leave(in, at, n, y, d, scale == BF16_NAN);
        scales += QUANT_SCALE;
        to += INT8_BLOCK;
    }
}

static sn_status decode(const sn_codec *c, const void *code, int64_t n, bool add, float *out)
{
    const uint8_t *scales = code, *from = scales + blocks(n, INT8_BLOCK) * QUANT_SCALE;
    for (int64_t at = 0; at < n; at += INT8_BLOCK) {
        int m = (int) SN_MIN(INT8_BLOCK, n - at);
        float d[INT8_BLOCK];
        int8_decode(from, m, load16(scales), d);
        give(out + at, d, m, add);
        scales += QUANT_SCALE;
        from += INT8_BLOCK;
    }
    return SN_OK;
}

const sn_codec_row CODEC_HERE(codec_int8) = {
    .name = "int8",
    .form = "int8",
    .help = "a quarter of the bytes: whole numbers up to 127, a scale for each 256",
    .kind = SN_CODEC_INT8,
    .bytes = bytes,
    .encode = encode,
    .decode = decode,
};
