/* SPDX-License-Identifier: Apache-2.0
 *
 * fp8 — the two 8-bit formats of Micikevicius et al., "FP8 formats for deep learning", 2022, with a
 * scale for each 256: a power of two that brings the largest element just below the format's end.
 * So scaling is exact, what is small beside its neighbours keeps its digits, and y - d is exact.
 * All scales (bf16) come first, then the bytes. */
#include "codec/block.h"

enum { BLOCK = 256, SCALE = 2 };

typedef struct format {
    int exponent;      /* of the largest number, which is 1.75 · 2^exponent in both */
    int bias;          /* of the exponent's field */
    int shift;         /* from f32's fraction to the format's */
    uint32_t last;     /* code of the largest number: those above are infinity or NaN */
    uint32_t infinity; /* e4m3 has none: its 0x7f is NaN */
} format;

static const format e4m3 = {.exponent = 8, .bias = 7, .shift = 20, .last = 0x7e, .infinity = 0x7e};
static const format e5m2 = {
    .exponent = 15, .bias = 15, .shift = 21, .last = 0x7b, .infinity = 0x7c};

INLINE float power_of_two(int e)
{
    return float_of((uint32_t) (e + 127) << 23);
}

INLINE int scale_exponent(uint32_t top, const format *f)
{
    int e = (int) (top >> 23) - 127 - f->exponent + ((top & 0x7fffffu) > 0x600000u);
    e = e < -126 ? -126 : e;
    return SN_MIN(e, 127 - f->exponent); /* beyond 1.75 · 2^127 the largest saturate */
}

/* To nearest even. Below the least normal number all codes are equally far apart: adding a power of
 * two whose last bit has that distance rounds to one. */
INLINE void to_fp8(const format *f, const float *restrict y, float inverse, uint8_t *restrict code)
{
    uint32_t most = (uint32_t) (f->exponent + 127) << 23 | 0x600000u;
    uint32_t normal = (uint32_t) (128 - f->bias) << 23, rebias = (uint32_t) (127 - f->bias) << 23;
    float magic = power_of_two(f->shift + 1 - f->bias);
    for (int i = 0; i < BLOCK; i++) {
        uint32_t u = bits_of(y[i] * inverse), a = u & 0x7fffffffu;
        a = a > most ? most : a;
        uint32_t tiny = bits_of(float_of(a) + magic) - bits_of(magic);
        uint32_t h = a - rebias + ((1u << (f->shift - 1)) - 1) + (a >> f->shift & 1);
        code[i] = (uint8_t) ((u >> 24 & 0x80) | (a < normal ? tiny : h >> f->shift));
    }
}

INLINE void from_fp8(const format *f, const uint8_t *restrict code, float scale, float *restrict d)
{
    uint32_t least = 1u << (23 - f->shift);
    uint32_t rebias = (uint32_t) (127 - f->bias) << 23;
    float step = power_of_two(1 - f->bias - (23 - f->shift));
    for (int i = 0; i < BLOCK; i++) {
        uint32_t a = code[i] & 0x7fu, sign = (uint32_t) (code[i] & 0x80) << 24;
        uint32_t v = (a << f->shift) + rebias;
        v = a < least ? bits_of((float) (int32_t) a * step) : v;
        v = a > f->last ? INFINITE | (a - f->infinity) << 20 : v;
        d[i] = float_of(v | sign) * scale;
    }
}

static int64_t bytes(const sn_codec *c, int64_t n)
{
    return blocks(n, BLOCK) * SCALE + n;
}

INLINE void encode(const format *f, const sn_codec_in *in, void *code)
{
    uint8_t *scales = code, *to = scales + blocks(in->n, BLOCK) * SCALE, part[BLOCK];
    for (int64_t at = 0; at < in->n; at += BLOCK) {
        int n = (int) SN_MIN(BLOCK, in->n - at);
        float y[BLOCK], d[BLOCK];
        take(in, at, n, BLOCK, y);
        uint32_t top = largest(y, BLOCK);
        bool lost = top >= INFINITE;
        int e = lost ? 0 : scale_exponent(top, f);
        store16(scales, lost ? BF16_NAN : (uint16_t) ((e + 127) << 7));
        to_fp8(f, y, power_of_two(-e), part);
        if (lost)
            memset(part, 0, sizeof(part));
        memcpy(to, part, (size_t) n);
        if (in->residual)
            from_fp8(f, part, power_of_two(e), d);
        leave(in, at, n, y, d, lost);
        scales += SCALE;
        to += BLOCK;
    }
}

INLINE sn_status decode(const format *f, const void *code, int64_t n, bool add, float *out)
{
    const uint8_t *scales = code, *from = scales + blocks(n, BLOCK) * SCALE;
    for (int64_t at = 0; at < n; at += BLOCK) {
        int m = (int) SN_MIN(BLOCK, n - at);
        uint8_t part[BLOCK] = {0};
        float d[BLOCK];
        memcpy(part, from, (size_t) m);
        from_fp8(f, part, sn_bf16_to_f32(load16(scales)), d);
        give(out + at, d, m, add);
        scales += SCALE;
        from += BLOCK;
    }
    return SN_OK;
}

static void encode_e4m3(const sn_codec *c, const sn_codec_in *in, void *code)
{
    encode(&e4m3, in, code);
}

static sn_status decode_e4m3(const sn_codec *c, const void *code, int64_t n, bool add, float *out)
{
    return decode(&e4m3, code, n, add, out);
}

static void encode_e5m2(const sn_codec *c, const sn_codec_in *in, void *code)
{
    encode(&e5m2, in, code);
}

static sn_status decode_e5m2(const sn_codec *c, const void *code, int64_t n, bool add, float *out)
{
    return decode(&e5m2, code, n, add, out);
}

const sn_codec_row CODEC_HERE(codec_fp8_e4m3) = {
    .name = "fp8_e4m3",
    .form = "fp8_e4m3",
    .help = "a quarter of the bytes: 3 bits of fraction, a scale for each 256",
    .kind = SN_CODEC_FP8_E4M3,
    .bytes = bytes,
    .encode = encode_e4m3,
    .decode = decode_e4m3,
};

const sn_codec_row CODEC_HERE(codec_fp8_e5m2) = {
    .name = "fp8_e5m2",
    .form = "fp8_e5m2",
    .help = "a quarter of the bytes: 2 bits of fraction, the widest range within a block",
    .kind = SN_CODEC_FP8_E5M2,
    .bytes = bytes,
    .encode = encode_e5m2,
    .decode = decode_e5m2,
};
