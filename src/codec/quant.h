/* SPDX-License-Identifier: Apache-2.0
 *
 * quant — whole numbers with a scale a block: y ≈ q · scale, |q| at most `most`.
 *
 * The scale is a bf16, rounded up so that the largest element fits. So q · scale has 16 bits and
 * is exact, and y - q · scale is exact too (Sterbenz): feedback loses nothing. Rounding to nearest
 * even is done by adding 3·2^22, whose last bit has the value 1. */
#ifndef SN_CODEC_QUANT_H
#define SN_CODEC_QUANT_H

#include "codec/block.h"

#define QUANT_SCALE 2 /* bytes */

/* Normal always, so that its reciprocal is finite; 0 for a block of zeros. */
INLINE uint16_t quant_scale(uint32_t top, float most)
{
    if (top >= INFINITE)
        return BF16_NAN;
    uint32_t up = (bits_of(float_of(top) / most) + 0xffffu) >> 16;
    if (up < 0x0080)
        up = top == 0 ? 0 : 0x0080;
    if (bits_of(sn_bf16_to_f32((uint16_t) up) * most) >= INFINITE)
        up--; /* the largest saturates instead */
    return (uint16_t) up;
}

INLINE float quant_inverse(uint16_t scale)
{
    return scale == 0 || scale == BF16_NAN ? 0 : 1 / sn_bf16_to_f32(scale);
}

INLINE int32_t quant_one(float y, float inverse, int32_t most)
{
    int32_t q = (int32_t) (bits_of(y * inverse + 0x1.8p23f) - 0x4b400000u);
    q = q > most ? most : q;
    return q < -most ? -most : q;
}

/* ---- int8: a byte each ---- */

enum { INT8_BLOCK = 256, INT8_MOST = 127 };

INLINE void int8_encode(const float *restrict y, int n, uint16_t scale, uint8_t *restrict code)
{
    float inverse = quant_inverse(scale);
    for (int i = 0; i < n; i++)
        code[i] = (uint8_t) quant_one(y[i], inverse, INT8_MOST);
}

INLINE void int8_decode(const uint8_t *restrict code, int n, uint16_t scale, float *restrict d)
{
    float s = sn_bf16_to_f32(scale);
    for (int i = 0; i < n; i++)
        d[i] = (float) (int8_t) code[i] * s;
}

/* ---- int4: byte i holds element i below and element i + half above, half = ceil(n / 2) ---- */

enum { INT4_BLOCK = 64, INT4_MOST = 7 };

/* y has an element more than n if n is odd: any number. */
INLINE void int4_encode(const float *restrict y, int n, uint16_t scale, uint8_t *restrict code)
{
    float inverse = quant_inverse(scale);
    int half = (n + 1) / 2;
    for (int i = 0; i < half; i++)
        code[i] = (uint8_t) ((quant_one(y[i], inverse, INT4_MOST) & 15) |
                             (uint32_t) quant_one(y[i + half], inverse, INT4_MOST) << 4);
}

/* d likewise gets one more. */
INLINE void int4_decode(const uint8_t *restrict code, int n, uint16_t scale, float *restrict d)
{
    float s = sn_bf16_to_f32(scale);
    int half = (n + 1) / 2;
    for (int i = 0; i < half; i++) {
        int32_t low = (int32_t) ((uint32_t) code[i] << 28) >> 28;
        int32_t high = (int32_t) ((uint32_t) code[i] << 24) >> 28;
        d[i] = (float) low * s;
        d[i + half] = (float) high * s;
    }
}

#endif
