/* SPDX-License-Identifier: Apache-2.0
 *
 * int4 — whole numbers up to 7 with a scale for each 64 (quant.h has the arithmetic). All scales
 * come first, then the numbers. */
#include "codec/quant.h"

static int64_t bytes(const sn_codec *c, int64_t n)
{
    return blocks(n, INT4_BLOCK) * QUANT_SCALE + (n + 1) / 2;
}

static void encode(const sn_codec *c, const sn_codec_in *in, void *code)
{
    uint8_t *scales = code, *to = scales + blocks(in->n, INT4_BLOCK) * QUANT_SCALE;
    for (int64_t at = 0; at < in->n; at += INT4_BLOCK) {
        int n = (int) SN_MIN(INT4_BLOCK, in->n - at);
        float y[INT4_BLOCK], d[INT4_BLOCK];
        take(in, at, n, INT4_BLOCK, y);
        uint16_t scale = quant_scale(largest(y, INT4_BLOCK), INT4_MOST);
        store16(scales, scale);
        if (scale == BF16_NAN)
            memset(y, 0, sizeof(y));
        int4_encode(y, n, scale, to);
        if (in->residual)
            int4_decode(to, n, scale, d);
        leave(in, at, n, y, d, scale == BF16_NAN);
        scales += QUANT_SCALE;
        to += INT4_BLOCK / 2;
    }
}

static sn_status decode(const sn_codec *c, const void *code, int64_t n, bool add, float *out)
{
    const uint8_t *scales = code, *from = scales + blocks(n, INT4_BLOCK) * QUANT_SCALE;
    for (int64_t at = 0; at < n; at += INT4_BLOCK) {
        int m = (int) SN_MIN(INT4_BLOCK, n - at);
        float d[INT4_BLOCK];
        int4_decode(from, m, load16(scales), d);
        give(out + at, d, m, add);
        scales += QUANT_SCALE;
        from += INT4_BLOCK / 2;
    }
    return SN_OK;
}

const sn_codec_row CODEC_HERE(codec_int4) = {
    .name = "int4",
    .form = "int4",
    .help = "an eighth of the bytes: whole numbers up to 7, a scale for each 64; wants feedback",
    .kind = SN_CODEC_INT4,
    .feedback = true,
    .bytes = bytes,
    .encode = encode,
    .decode = decode,
};
