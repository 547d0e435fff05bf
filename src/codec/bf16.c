/* SPDX-License-Identifier: Apache-2.0
 *
 * bf16 — the upper half of each f32, rounded to nearest even. Element by element: NaN and infinity
 * travel in their place. */
#include "codec/block.h"

enum { STEP = 256 };

static int64_t bytes(const sn_codec *c, int64_t n)
{
    return 2 * n;
}

static void encode(const sn_codec *c, const sn_codec_in *in, void *code)
{
    uint8_t *to = code;
    for (int64_t at = 0; at < in->n; at += STEP) {
        int n = (int) SN_MIN(STEP, in->n - at);
        float y[STEP];
        uint16_t h[STEP];
        take(in, at, n, n, y);
        for (int i = 0; i < n; i++)
            h[i] = sn_f32_to_bf16(y[i]);
        memcpy(to + 2 * at, h, (size_t) n * 2);
        for (int i = 0; i < n && in->residual; i++) {
            float d = sn_bf16_to_f32(h[i]), r = y[i] - d;
            in->residual[at + i] = (bits_of(d) & 0x7fffffffu) < INFINITE ? r : 0;
        }
    }
}

static sn_status decode(const sn_codec *c, const void *code, int64_t n, bool add, float *out)
{
    const uint8_t *from = code;
    for (int64_t at = 0; at < n; at += STEP) {
        int m = (int) SN_MIN(STEP, n - at);
        uint16_t h[STEP];
        float d[STEP];
        memcpy(h, from + 2 * at, (size_t) m * 2);
        for (int i = 0; i < m; i++)
            d[i] = sn_bf16_to_f32(h[i]);
        give(out + at, d, m, add);
    }
    return SN_OK;
}

const sn_codec_row CODEC_HERE(codec_bf16) = {
    .name = "bf16",
    .form = "bf16",
    .help = "half the bytes: f32 without its lower 16 bits",
    .kind = SN_CODEC_BF16,
    .bytes = bytes,
    .encode = encode,
    .decode = decode,
};
