/* SPDX-License-Identifier: Apache-2.0
 * What the codec tests share: the codecs, the variants this processor can run, and numbers. */
#ifndef CODEC_CASES_H
#define CODEC_CASES_H

#include "codec/private.h"
#include "fold/fold.h"
#include "unit/sn_test.h"

#include <math.h>

static const char *const vector_codecs[] = {
    "none",    "bf16",      "fp8_e4m3",       "fp8_e5m2",       "int8",      "int4",   "onebit",
    "ternary", "topk:0.01", "topk:0.01+int8", "topk:0.01+int4", "topk:0.35", "topk:1",
};

static inline sn_codec codec_of(const char *text)
{
    sn_codec c;
    assert_ok(sn_codec_parse(text, &c));
    return c;
}

static inline int variants(const codec_variant *ret[3])
{
    int n = 0;
    ret[n++] = &codec_variant_plain;
    if (codec_variant_here() != &codec_variant_plain)
        ret[n++] = codec_variant_here();
#if defined(__x86_64__)
    if (codec_variant_here() == &codec_variant_avx512) /* which has all that the other asks for */
        ret[n++] = &codec_variant_avx2;
#endif
    return n;
}

static inline bool whole(float f)
{
    return ((sn_f32_bits){.f = f}.u & 0x7fffffffu) < 0x7f800000u;
}

static inline bool same_bits(float a, float b)
{
    return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof(a)) == 0;
}

/* Mostly like gradients; with `strange`, now and then what no gradient should be. */
static inline float number(sn_prng *p, bool strange)
{
    static const float odd[] = {NAN,     INFINITY,  -INFINITY, 0.0f,    -0.0f,     1e-41f, -1e-39f,
                                3.4e38f, -3.39e38f, 1e-30f,    6.1e-5f, 1.17e-38f, 2.5e37f};
    int64_t k = strange ? sn_prng_below(p, 3000) : 3000;
    if (k < (int64_t) SN_COUNT(odd))
        return odd[k];
    float v = (float) (sn_prng_uniform(p) - 0.5);
    return v * v * v * 8;
}

#endif
