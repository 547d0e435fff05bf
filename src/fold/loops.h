/* SPDX-License-Identifier: Apache-2.0
 *
 * loops — the loops of fold.h for one vector width. Included by the file of each variant,
 * which defines before:
 *   BYTES                 of a vector
 *   STREAM(dst, v)        store a vector of floats past the caches, dst aligned to BYTES
 *   STREAM_HALF(dst, v)   likewise a half vector of uint16_t
 *   STREAM_END()          makes streamed stores visible before any later store
 *   WIDEN(h)              a half vector of uint16_t as a vector of uint32_t
 *   NARROW(u)             the reverse, of numbers below 65,536
 *   WIDEN_F16(h)          a half vector of f16 as a vector of floats
 *   NARROW_F16(v)         the reverse, to nearest even
 *
 * Four vectors are in flight per turn: that hides the latency of the adds and the fetching of the
 * pointers. */
#include "fold/fold.h"

#include <math.h>
#include <string.h>

#define LANES (BYTES / 4)
#define TURN (4 * LANES) /* elements */
#define INLINE static inline __attribute__((always_inline))

typedef float vf __attribute__((vector_size(BYTES)));
typedef int32_t vi __attribute__((vector_size(BYTES)));
typedef uint32_t vu __attribute__((vector_size(BYTES)));
typedef uint16_t vh __attribute__((vector_size(BYTES / 2)));

typedef struct four {
    vf v[4];
} four;

INLINE vf pick(vi mask, vf a, vf b)
{
    return (vf) ((mask & (vi) a) | (~mask & (vi) b));
}

/* Of equal numbers the one with more (max: fewer) sign bits: they differ only if they are zeros. */
INLINE vf join(sn_red red, vf a, vf b)
{
    if (red == SN_MAX)
        return pick((a > b) | (a != a), a, (vf) ((vi) b & ((vi) a | (a != b))));
    if (red == SN_MIN)
        return pick((a < b) | (a != a), a, (vf) ((vi) b | ((vi) a & (a == b))));
    return a + b;
}

INLINE float join1(sn_red red, float a, float b)
{
    if (red == SN_MAX)
        return a > b || a != a || (a == b && signbit(b)) ? a : b;
    if (red == SN_MIN)
        return a < b || a != a || (a == b && signbit(a)) ? a : b;
    return a + b;
}

/* f16 without help of the processor. Subnormals: 2^-14 (1 + fraction) - 2^-14 is exact. */
INLINE vf soft_widen(vh half)
{
    vu h = WIDEN(half), sign = (h & 0x8000) << 16, a = (h & 0x7fff) << 13;
    vf tiny = (vf) (a + (113u << 23)) - 0x1p-14f, normal = (vf) (a + (112u << 23));
    vu nan = (vu) (a > (31u << 23)) & 0x400000;
    vf v = pick((vi) (a < (1u << 23)), tiny, normal);
    v = pick((vi) (a >= (31u << 23)), (vf) ((a + (224u << 23)) | nan), v);
    return (vf) ((vu) v | sign);
}

/* Subnormals: what 1/2 + x rounds to is 1/2 and the multiple of 2^-24 nearest to x. */
INLINE vh soft_narrow(vf v)
{
    vu u = (vu) v, sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
    vu tiny = (vu) ((vf) a + 0.5f) - 0x3f000000;
    vu h = a - 0x38000000 + 0xfff + (a >> 13 & 1);
    vu small = (vu) (a < 0x38800000), large = (vu) (a >= 0x47800000), nan = (vu) (a > 0x7f800000);
    h = (small & tiny) | (~small & h >> 13);
    h = (large & 0x7c00) | (~large & h);
    h |= nan & (0x200 | (a >> 13 & 0x3ff));
    return NARROW(h | sign);
}

INLINE size_t size_of(sn_dtype dtype)
{
    return dtype == SN_F32 ? 4 : 2;
}

INLINE vf load(sn_dtype dtype, const char *p)
{
    if (dtype != SN_F32) {
        vh h;
        memcpy(&h, p, sizeof(h));
        return dtype == SN_F16 ? WIDEN_F16(h) : (vf) (WIDEN(h) << 16);
    }
    vf v;
    memcpy(&v, p, sizeof(v));
    return v;
}

INLINE vh narrow(vf v)
{
    vu u = (vu) v, up = (u + 0x7fff + (u >> 16 & 1)) >> 16, nan = u >> 16 | 0x40;
    vu mask = (vu) (v != v);
    return NARROW((mask & nan) | (~mask & up));
}

INLINE void store(sn_dtype dtype, bool stream, char *p, vf v)
{
    if (dtype != SN_F32) {
        vh h = dtype == SN_F16 ? NARROW_F16(v) : narrow(v);
        if (stream)
            STREAM_HALF(p, h);
        else
            memcpy(p, &h, sizeof(h));
    } else if (stream) {
        STREAM(p, v);
    } else {
        memcpy(p, &v, sizeof(v));
    }
}

INLINE four load_four(sn_dtype dtype, const char *p)
{
    size_t step = LANES * size_of(dtype);
    return (four){{load(dtype, p), load(dtype, p + step), load(dtype, p + 2 * step),
                   load(dtype, p + 3 * step)}};
}

INLINE void store_four(sn_dtype dtype, bool stream, char *p, four x)
{
    size_t step = LANES * size_of(dtype);
    store(dtype, stream, p, x.v[0]);
    store(dtype, stream, p + step, x.v[1]);
    store(dtype, stream, p + 2 * step, x.v[2]);
    store(dtype, stream, p + 3 * step, x.v[3]);
}

/* Sums of bf16 are computed at 2^-16 of their size, so that numbers near the largest may cancel;
 * the smallest bf16, 2^-133, is then the smallest f32: nothing is lost. Rounding scales back. */
#define DOWN 0x1p-16f
#define UP 0x1p16f

/* ---- operands: `form` is a constant for each instance of the loops, so the uniform ones, which
 * matter most, have no branch inside ---- */

typedef struct form {
    sn_red red;
    sn_dtype dtype;
    bool mixed, stream;
} form;

INLINE bool scaled(form m)
{
    return m.dtype == SN_BF16 && m.red == SN_SUM;
}

INLINE four times(four x, float by)
{
    return (four){{x.v[0] * by, x.v[1] * by, x.v[2] * by, x.v[3] * by}};
}

INLINE bool src_wide(const sn_fold *f, form m, int k)
{
    return m.mixed && f->src_wide && f->src_wide[k];
}

INLINE bool dst_wide(const sn_fold *f, form m, int k)
{
    return m.mixed && f->dst_wide && f->dst_wide[k];
}

INLINE four take_four(const sn_fold *f, form m, int k, int64_t i)
{
    if (src_wide(f, m, k))
        return load_four(SN_F32, (const char *) f->src[k] + (size_t) i * 4);
    four x = load_four(m.dtype, (const char *) f->src[k] + (size_t) i * size_of(m.dtype));
    return scaled(m) ? times(x, DOWN) : x;
}

INLINE void give_four(const sn_fold *f, form m, int k, int64_t i, four x)
{
    if (dst_wide(f, m, k))
        store_four(SN_F32, m.stream, (char *) f->dst[k] + (size_t) i * 4, x);
    else
        store_four(m.dtype, m.stream, (char *) f->dst[k] + (size_t) i * size_of(m.dtype),
                   scaled(m) ? times(x, UP) : x);
}

INLINE float take1(const sn_fold *f, form m, int k, int64_t i)
{
    if (m.dtype == SN_F32 || src_wide(f, m, k))
        return ((const float *) f->src[k])[i];
    uint16_t h = ((const uint16_t *) f->src[k])[i];
    float x = m.dtype == SN_F16 ? sn_f16_to_f32(h) : sn_bf16_to_f32(h);
    return scaled(m) ? x * DOWN : x;
}

INLINE void give1(const sn_fold *f, form m, int k, int64_t i, float x)
{
    if (m.dtype == SN_F32 || dst_wide(f, m, k))
        ((float *) f->dst[k])[i] = x;
    else
        ((uint16_t *) f->dst[k])[i] = m.dtype == SN_F16 ? sn_f32_to_f16(x)
                                      : scaled(m)       ? sn_f32_to_bf16(x * UP)
                                                        : sn_f32_to_bf16(x);
}

/* ---- the loops ---- */

INLINE void fold_tail(const sn_fold *f, form m, int64_t from)
{
    for (int64_t i = from; i < f->count; i++) {
        float acc = take1(f, m, 0, i);
        for (int k = 1; k < f->srcs; k++)
            acc = join1(m.red, acc, take1(f, m, k, i));
        if (f->divide > 0)
            acc /= (float) f->divide;
        for (int k = 0; k < f->dsts; k++)
            give1(f, m, k, i, acc);
    }
}

INLINE void fold_turns(const sn_fold *f, form m)
{
    int64_t turns = f->count / TURN, step = f->backward ? -TURN : TURN;
    int64_t i = f->backward ? (turns - 1) * TURN : 0;
    for (; turns > 0; turns--, i += step) {
        four acc = take_four(f, m, 0, i);
        for (int k = 1; k < f->srcs; k++) {
            four x = take_four(f, m, k, i);
            acc.v[0] = join(m.red, acc.v[0], x.v[0]);
            acc.v[1] = join(m.red, acc.v[1], x.v[1]);
            acc.v[2] = join(m.red, acc.v[2], x.v[2]);
            acc.v[3] = join(m.red, acc.v[3], x.v[3]);
        }
        if (f->divide > 0) {
            float d = (float) f->divide;
            acc = (four){{acc.v[0] / d, acc.v[1] / d, acc.v[2] / d, acc.v[3] / d}};
        }
        for (int k = 0; k < f->dsts; k++)
            give_four(f, m, k, i, acc);
    }
}

INLINE void fold_as(const sn_fold *f, form m)
{
    fold_turns(f, m);
    fold_tail(f, m, f->count / TURN * TURN);
    if (m.stream)
        STREAM_END();
}

INLINE void fold_stream(const sn_fold *f, form m)
{
    bool stream = f->stream;
    for (int k = 0; k < f->dsts; k++)
        stream = stream && (uintptr_t) f->dst[k] % BYTES == 0;
    m.stream = true;
    if (stream)
        fold_as(f, m);
    m.stream = false;
    if (!stream)
        fold_as(f, m);
}

INLINE void fold_red(const sn_fold *f, sn_dtype dtype, bool mixed)
{
    if (f->red == SN_MAX)
        fold_stream(f, (form){SN_MAX, dtype, mixed});
    else if (f->red == SN_MIN)
        fold_stream(f, (form){SN_MIN, dtype, mixed});
    else
        fold_stream(f, (form){SN_SUM, dtype, mixed});
}

static void fold(const sn_fold *f)
{
    bool mixed = f->src_wide || f->dst_wide;
    if (sn_fold_strange()) {
        uint32_t mode = sn_fold_calm();
        fold(f);
        sn_fold_restore(mode);
    } else if (f->dtype == SN_BF16) {
        mixed ? fold_red(f, SN_BF16, true) : fold_red(f, SN_BF16, false);
    } else if (f->dtype == SN_F16) {
        mixed ? fold_red(f, SN_F16, true) : fold_red(f, SN_F16, false);
    } else {
        fold_red(f, SN_F32, false);
    }
}

static void copy(void *dst, const void *src, size_t bytes, bool stream)
{
    size_t i = 0;
    if (dst == src)
        return;
    if (stream && (uintptr_t) dst % BYTES == 0) {
        for (; i + 4 * BYTES <= bytes; i += 4 * BYTES) {
            four x = load_four(SN_F32, (const char *) src + i);
            store_four(SN_F32, true, (char *) dst + i, x);
        }
        STREAM_END();
    }
    memcpy((char *) dst + i, (const char *) src + i, bytes - i);
}
