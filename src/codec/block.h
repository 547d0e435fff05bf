/* SPDX-License-Identifier: Apache-2.0
 *
 * block — what the encoders and decoders of one block share: taking y = x + r, finding its largest
 * magnitude, leaving the residual, and handing out. */
#ifndef SN_CODEC_BLOCK_H
#define SN_CODEC_BLOCK_H

#include "codec/private.h"
#include "fold/fold.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))

#define INFINITE 0x7f800000u /* as bits; larger is NaN */
#define BF16_NAN 0x7fc0

/* Sums are formed in 16 lanes, element i in lane i mod 16, whatever the width: lanes of as many
 * vectors as it takes. */
enum { LANES = 16, PARTS = LANES * 4 / VECTOR_BYTES, PART = LANES / PARTS };

typedef float vf __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t vi __attribute__((vector_size(VECTOR_BYTES)));

INLINE uint32_t bits_of(float f)
{
    return (sn_f32_bits){.f = f}.u;
}

INLINE float float_of(uint32_t u)
{
    return (sn_f32_bits){.u = u}.f;
}

INLINE int64_t blocks(int64_t n, int64_t size)
{
    return (n + size - 1) / size;
}

INLINE uint16_t load16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}

INLINE void store16(uint8_t *p, uint16_t v)
{
    memcpy(p, &v, sizeof(v));
}

/* y[0 … n) = x + r from `at` on; zeros up to `size`. */
INLINE void take(const sn_codec_in *in, int64_t at, int n, int size, float *restrict y)
{
    const float *restrict x = in->x + at;
    if (in->residual) {
        const float *restrict r = in->residual + at;
        for (int i = 0; i < n; i++)
            y[i] = x[i] + r[i];
    } else {
        memcpy(y, x, (size_t) n * sizeof(*y));
    }
    if (n < size)
        memset(y + n, 0, (size_t) (size - n) * sizeof(*y));
}

/* The bits of the largest magnitude; INFINITE or more if something is not finite. */
INLINE uint32_t largest(const float *y, int n)
{
    uint32_t top = 0;
    for (int i = 0; i < n; i++) {
        uint32_t u = bits_of(y[i]) & 0x7fffffffu;
        top = u > top ? u : top;
    }
    return top;
}

/* The bits of eight bytes that are 0 or 1: the product moves byte j to bit 56 + j. */
INLINE uint32_t bits_of_bytes(const uint8_t *b)
{
    uint64_t v;
    memcpy(&v, b, sizeof(v));
    return (uint32_t) (v * 0x0102040810204080u >> 56);
}

/* Which of 16 have at least a magnitude, the first in the lowest bit. */
INLINE uint32_t at_least(const float *y, uint32_t magnitude)
{
    uint8_t b[LANES];
    for (int l = 0; l < LANES; l++)
        b[l] = (bits_of(y[l]) & 0x7fffffffu) >= magnitude;
    return bits_of_bytes(b) | bits_of_bytes(b + 8) << 8;
}

/* r = y - d, or 0 for a block that is lost. */
INLINE void leave(const sn_codec_in *in, int64_t at, int n, const float *y, const float *d,
                  bool lost)
{
    if (!in->residual)
        return;
    float *restrict r = in->residual + at;
    if (lost)
        memset(r, 0, (size_t) n * sizeof(*r));
    for (int i = 0; i < n && !lost; i++)
        r[i] = y[i] - d[i];
}

INLINE void give(float *restrict out, const float *restrict d, int n, bool add)
{
    if (!add)
        memcpy(out, d, (size_t) n * sizeof(*d));
    for (int i = 0; i < n && add; i++)
        out[i] += d[i];
}

/* A fixed tree, so that every width adds in the same order. */
INLINE float add_lanes(const vf v[PARTS])
{
    float t[LANES];
    memcpy(t, v, sizeof(t));
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            t[l] += t[l + half];
    return t[0];
}

#endif
