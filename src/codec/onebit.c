/* SPDX-License-Identifier: Apache-2.0
 *
 * onebit — one bit an element: its sign. For each 512 the means of both kinds are what the
 * bits stand for, which leaves the block's sum almost as it was (Seide et al., "1-bit stochastic
 * gradient descent", Interspeech 2014). All means (bf16: of the negative, of the others) come
 * first, then the bits, the first element's lowest. */
#include "codec/block.h"

enum { BLOCK = 512, MEANS = 4 };

typedef struct means {
    uint16_t negative, other;
} means;

static int64_t bytes(const sn_codec *c, int64_t n)
{
    return blocks(n, BLOCK) * MEANS + blocks(n, 8);
}

INLINE uint16_t mean(float sum, int count, float up)
{
    uint16_t h = sn_f32_to_bf16(count > 0 ? sum / (float) count * up : 0);
    return (h & 0x7fff) == 0x7f80 ? (uint16_t) (h - 1) : h; /* rounding may not reach infinity */
}

INLINE means two_means(const float *restrict y, int n, uint32_t top)
{
    bool vast = top > 0x72000000u; /* the sum of 512 might overflow */
    float down = vast ? 0x1p-10f : 1, up = vast ? 0x1p10f : 1;
    vf neg[PARTS] = {0}, pos[PARTS] = {0};
    vi count[PARTS] = {0};
    int negative = 0;
    for (int i = 0; i < BLOCK; i += LANES) {
        for (int k = 0; k < PARTS; k++) {
            vf v;
            memcpy(&v, y + i + k * PART, sizeof(v));
            vi sign = (vi) v >> 31;
            v *= down;
            neg[k] += (vf) ((vi) v & sign);
            pos[k] += (vf) ((vi) v & ~sign);
            count[k] -= sign;
        }
    }
    for (int l = 0; l < LANES; l++)
        negative += count[l / PART][l % PART];
    return (means){mean(add_lanes(neg), negative, up), mean(add_lanes(pos), n - negative, up)};
}

INLINE void to_bits(const float *restrict y, uint8_t *restrict code)
{
    uint8_t sign[BLOCK];
    for (int i = 0; i < BLOCK; i++)
        sign[i] = (uint8_t) (bits_of(y[i]) >> 31);
    for (int i = 0; i < BLOCK; i += 8)
        code[i / 8] = (uint8_t) bits_of_bytes(sign + i);
}

INLINE void from_bits(const uint8_t *restrict code, means m, float *restrict d)
{
    uint32_t neg = (uint32_t) m.negative << 16, pos = (uint32_t) m.other << 16;
    for (int i = 0; i < BLOCK / 8; i++)
        for (int j = 0; j < 8; j++)
            d[8 * i + j] = float_of(code[i] >> j & 1 ? neg : pos);
}

static void encode(const sn_codec *c, const sn_codec_in *in, void *code)
{
    uint8_t *head = code, *to = head + blocks(in->n, BLOCK) * MEANS, bits[BLOCK / 8];
    for (int64_t at = 0; at < in->n; at += BLOCK) {
        int n = (int) SN_MIN(BLOCK, in->n - at);
        float y[BLOCK], d[BLOCK];
        take(in, at, n, BLOCK, y);
        uint32_t top = largest(y, BLOCK);
        bool lost = top >= INFINITE;
        means m = lost ? (means){BF16_NAN, BF16_NAN} : two_means(y, n, top);
        store16(head, m.negative);
        store16(head + 2, m.other);
        to_bits(y, bits);
        memcpy(to, bits, (size_t) blocks(n, 8));
        if (in->residual)
            from_bits(bits, m, d);
        leave(in, at, n, y, d, lost);
        head += MEANS;
        to += BLOCK / 8;
    }
}

static sn_status decode(const sn_codec *c, const void *code, int64_t n, bool add, float *out)
{
    const uint8_t *head = code, *from = head + blocks(n, BLOCK) * MEANS;
    for (int64_t at = 0; at < n; at += BLOCK) {
        int m = (int) SN_MIN(BLOCK, n - at);
        uint8_t bits[BLOCK / 8] = {0};
        float d[BLOCK];
        memcpy(bits, from, (size_t) blocks(m, 8));
        from_bits(bits, (means){load16(head), load16(head + 2)}, d);
        give(out + at, d, m, add);
        head += MEANS;
        from += BLOCK / 8;
    }
    return SN_OK;
}

const sn_codec_row CODEC_HERE(codec_onebit) = {
    .name = "onebit",
    .form = "onebit",
    .help = "1/30 of the bytes: the sign, and two means for each 512; wants feedback",
    .kind = SN_CODEC_ONEBIT,
    .feedback = true,
    .bytes = bytes,
    .encode = encode,
    .decode = decode,
};
