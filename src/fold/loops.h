/* SPDX-License-Identifier: Apache-2.0
 *
 * loops — the loops of fold.h for one vector width. Included by the file of each variant,
 * which defines before:
 *   BYTES                 of a vector
 *   STREAM(dst, v)        store a vector of floats past the caches, dst aligned to BYTES
 *   STREAM_HALF(dst, v)   likewise a half vector of uint16_t
 *   STREAM_END()          makes streamed stores visible before any later store
 *
 * Four vectors are in flight per turn: that hides the latency of the adds and the fetching of the
 * pointers. */
#include "fold/fold.h"

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

INLINE vf join(sn_red red, vf a, vf b)
{
    if (red == SN_MAX)
        return pick((a > b) | (a != a), a, b);
    if (red == SN_MIN)
        return pick((a < b) | (a != a), a, b);
    return a + b;
}

INLINE float join1(sn_red red, float a, float b)
{
    if (red == SN_MAX)
        return a > b || a != a ? a : b;
    if (red == SN_MIN)
        return a < b || a != a ? a : b;
    return a + b;
}

INLINE vf load(sn_dtype dtype, const char *p)
{
    if (dtype == SN_BF16) {
        vh h;
        memcpy(&h, p, sizeof(h));
        return (vf) (__builtin_convertvector(h, vu) << 16);
    }
    vf v;
    memcpy(&v, p, sizeof(v));
    return v;
}

INLINE vh narrow(vf v)
{
    vu u = (vu) v, up = (u + 0x7fff + (u >> 16 & 1)) >> 16, nan = u >> 16 | 0x40;
    vu mask = (vu) (v != v);
    return __builtin_convertvector((mask & nan) | (~mask & up), vh);
}

INLINE void store(sn_dtype dtype, bool stream, char *p, vf v)
{
    if (dtype == SN_BF16) {
        vh h = narrow(v);
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
    size_t step = LANES * (dtype == SN_BF16 ? 2 : 4);
    return (four){{load(dtype, p), load(dtype, p + step), load(dtype, p + 2 * step),
                   load(dtype, p + 3 * step)}};
}

INLINE float load1(sn_dtype dtype, const void *p, int64_t i)
{
    if (dtype == SN_BF16)
        return sn_bf16_to_f32(((const uint16_t *) p)[i]);
    return ((const float *) p)[i];
}

INLINE void fold_tail(const sn_fold *f, sn_red red, sn_dtype dtype, int64_t from)
{
    for (int64_t i = from; i < f->count; i++) {
        float acc = load1(dtype, f->src[0], i);
        for (int k = 1; k < f->srcs; k++)
            acc = join1(red, acc, load1(dtype, f->src[k], i));
        if (f->divide > 0)
            acc /= (float) f->divide;
        for (int k = 0; k < f->dsts; k++) {
            if (dtype == SN_BF16)
                ((uint16_t *) f->dst[k])[i] = sn_f32_to_bf16(acc);
            else
                ((float *) f->dst[k])[i] = acc;
        }
    }
}

INLINE int64_t fold_turns(const sn_fold *f, sn_red red, sn_dtype dtype, bool stream)
{
    size_t size = dtype == SN_BF16 ? 2 : 4, step = LANES * size;
    int64_t i = 0;
    for (; i + TURN <= f->count; i += TURN) {
        four acc = load_four(dtype, (const char *) f->src[0] + (size_t) i * size);
        for (int k = 1; k < f->srcs; k++) {
            four x = load_four(dtype, (const char *) f->src[k] + (size_t) i * size);
            acc.v[0] = join(red, acc.v[0], x.v[0]);
            acc.v[1] = join(red, acc.v[1], x.v[1]);
            acc.v[2] = join(red, acc.v[2], x.v[2]);
            acc.v[3] = join(red, acc.v[3], x.v[3]);
        }
        if (f->divide > 0) {
            float d = (float) f->divide;
            acc = (four){{acc.v[0] / d, acc.v[1] / d, acc.v[2] / d, acc.v[3] / d}};
        }
        for (int k = 0; k < f->dsts; k++) {
            char *p = (char *) f->dst[k] + (size_t) i * size;
            store(dtype, stream, p, acc.v[0]);
            store(dtype, stream, p + step, acc.v[1]);
            store(dtype, stream, p + 2 * step, acc.v[2]);
            store(dtype, stream, p + 3 * step, acc.v[3]);
        }
    }
    return i;
}

INLINE void fold_as(const sn_fold *f, sn_red red, sn_dtype dtype, bool stream)
{
    fold_tail(f, red, dtype, fold_turns(f, red, dtype, stream));
    if (stream)
        STREAM_END();
}

INLINE void fold_red(const sn_fold *f, sn_dtype dtype, bool stream)
{
    if (f->red == SN_MAX)
        fold_as(f, SN_MAX, dtype, stream);
    else if (f->red == SN_MIN)
        fold_as(f, SN_MIN, dtype, stream);
    else
        fold_as(f, SN_SUM, dtype, stream);
}

static void fold(const sn_fold *f)
{
    bool stream = f->stream;
    for (int k = 0; k < f->dsts; k++)
        stream = stream && (uintptr_t) f->dst[k] % BYTES == 0;
    if (f->dtype == SN_BF16)
        stream ? fold_red(f, SN_BF16, true) : fold_red(f, SN_BF16, false);
    else
        stream ? fold_red(f, SN_F32, true) : fold_red(f, SN_F32, false);
}

static void copy(void *dst, const void *src, size_t bytes, bool stream)
{
    size_t i = 0;
    if (dst == src)
        return;
    if (stream && (uintptr_t) dst % BYTES == 0) {
        for (; i + 4 * BYTES <= bytes; i += 4 * BYTES) {
            four x = load_four(SN_F32, (const char *) src + i);
            store(SN_F32, true, (char *) dst + i, x.v[0]);
            store(SN_F32, true, (char *) dst + i + BYTES, x.v[1]);
            store(SN_F32, true, (char *) dst + i + 2 * BYTES, x.v[2]);
            store(SN_F32, true, (char *) dst + i + 3 * BYTES, x.v[3]);
        }
        STREAM_END();
    }
    memcpy((char *) dst + i, (const char *) src + i, bytes - i);
}
