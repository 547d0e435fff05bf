/* SPDX-License-Identifier: Apache-2.0
 *
 * The loops of every variant that this processor has: the same bits as plain C, on odd sizes and
 * addresses, with NaN, infinities and subnormals. */
#include "unit/fold_variants.h"
#include "unit/sn_test.h"

#include <math.h>

#define N 700
#define GUARD 64

static float strange(sn_prng *p)
{
    static const float odd[] = {NAN,    INFINITY, -INFINITY, 0.0f,  -0.0f,
                                1e-41f, -1e-39f,  3e38f,     6e-8f, 65504};
    int64_t k = sn_prng_below(p, 40);
    return k < (int64_t) SN_COUNT(odd) ? odd[k] : (float) (sn_prng_uniform(p) * 8 - 4);
}

static float join(sn_red red, float a, float b)
{
    if (isnan(a) || isnan(b))
        return NAN;
    if (a == 0 && b == 0 && (red == SN_MAX || red == SN_MIN))
        return signbit(red == SN_MAX ? (signbit(a) ? b : a) : (signbit(a) ? a : b)) ? -0.0f : 0.0f;
    if (red == SN_MAX)
        return a > b ? a : b;
    if (red == SN_MIN)
        return a < b ? a : b;
    return a + b;
}

static bool same(float a, float b)
{
    return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof(a)) == 0;
}

static float rounded(sn_dtype dtype, float x)
{
    uint16_t h[2];
    fold_put(dtype, h, 0, x);
    return fold_get(dtype, h, 0);
}

enum { SRCS = 5, DSTS = 3 };

static unsigned char mem[SRCS + DSTS][N * 4 + 4 * GUARD] __attribute__((aligned(64)));

typedef struct trial {
    sn_fold f;
    void *dst[DSTS];
    const void *src[SRCS];
    uint8_t src_wide[SRCS], dst_wide[DSTS];
    sn_dtype in[SRCS], out[DSTS];
    bool in_place;
    float want[N];
} trial;

/* Sums of bf16 are computed, and handed on, at this part of their size. */
static float down(const sn_fold *f)
{
    return f->dtype == SN_BF16 && (f->red == SN_SUM || f->red == SN_AVG) ? 0x1p-16f : 1;
}

static void draw(trial *t, sn_prng *rng)
{
    static const sn_dtype dtypes[] = {SN_F32, SN_BF16, SN_F16};
    sn_fold *f = &t->f;
    *f = (sn_fold){.red = (sn_red) sn_prng_below(rng, SN_REDS), .dst = t->dst, .src = t->src};
    f->dtype = dtypes[sn_prng_below(rng, 3)];
    f->count = sn_prng_below(rng, N);
    f->srcs = 1 + (int) sn_prng_below(rng, SRCS);
    f->dsts = 1 + (int) sn_prng_below(rng, DSTS);
    f->divide = f->red == SN_AVG ? f->srcs : 0;
    f->stream = sn_prng_below(rng, 2);
    f->backward = sn_prng_below(rng, 2);
    f->src_wide = sn_prng_below(rng, 2) ? t->src_wide : NULL;
    f->dst_wide = sn_prng_below(rng, 2) ? t->dst_wide : NULL;
    for (int s = 0; s < SRCS; s++) {
        t->src_wide[s] = (uint8_t) sn_prng_below(rng, 2);
        t->in[s] = f->src_wide && t->src_wide[s] ? SN_F32 : f->dtype;
    }
    for (int d = 0; d < DSTS; d++) {
        t->dst_wide[d] = (uint8_t) sn_prng_below(rng, 2);
        t->out[d] = f->dst_wide && t->dst_wide[d] ? SN_F32 : f->dtype;
    }
}

static void lay(trial *t, sn_prng *rng)
{
    sn_fold *f = &t->f;
    bool aligned = sn_prng_below(rng, 2), in_place = sn_prng_below(rng, 2);
    for (int s = 0; s < f->srcs; s++) {
        size_t el = sn_dtype_bytes(t->in[s]);
        unsigned char *p = mem[s] + GUARD + (aligned ? 0 : el * (size_t) sn_prng_below(rng, 9));
        for (int64_t i = 0; i < f->count; i++) {
            float x = rounded(t->in[s], strange(rng));
            fold_put(t->in[s], p, i, x);
            if (t->in[s] == SN_BF16)
                x *= down(f);
            t->want[i] = s == 0 ? x : join(f->red, t->want[i], x);
        }
        t->src[s] = p;
    }
    t->in_place = in_place && t->in[f->srcs - 1] == t->out[0];
    for (int d = 0; d < f->dsts; d++) {
        size_t el = sn_dtype_bytes(t->out[d]);
        unsigned char *p = mem[SRCS + d] + GUARD + (aligned ? 0 : el * (size_t) (d + 1));
        if (t->in_place && d == 0)
            p = (unsigned char *) (uintptr_t) t->src[f->srcs - 1];
        else
            memset(mem[SRCS + d], 0x77, sizeof(mem[0]));
        t->dst[d] = p;
    }
}

static void one(const sn_fold_table *k, sn_prng *rng)
{
    static trial t;
    const sn_fold *f = &t.f;
    draw(&t, rng);
    lay(&t, rng);
    k->fold(f);
    for (int d = 0; d < f->dsts; d++) {
        for (int64_t i = 0; i < f->count; i++) {
            float w = f->divide > 0 ? t.want[i] / (float) f->divide : t.want[i];
            float got = fold_get(t.out[d], t.dst[d], i);
            w = rounded(t.out[d], t.out[d] == SN_BF16 ? w / down(f) : w);
            if (!same(got, w))
                fail_msg("%s %s %s to %s of %d, %lld of %lld: %a, not %a", k->name,
                         sn_red_name(f->red), sn_dtype_name(f->dtype), sn_dtype_name(t.out[d]),
                         f->srcs, (long long) i, (long long) f->count, got, w);
        }
        const unsigned char *p = t.dst[d];
        size_t bytes = (size_t) f->count * sn_dtype_bytes(t.out[d]);
        for (size_t i = 1; i < GUARD && !(t.in_place && d == 0); i++) {
            assert_int_equal(*(p - i), 0x77);
            assert_int_equal(p[bytes + i - 1], 0x77);
        }
    }
}

static void test_fold(void **state)
{
    const sn_fold_table *k[3];
    sn_prng rng = {.seed = 42};
    for (int n = kernels(k); n-- > 0;)
        for (int i = 0; i < 4000; i++)
            one(k[n], &rng);
}

static void test_copy(void **state)
{
    static unsigned char a[5000], b[5200];
    const sn_fold_table *k[3];
    for (size_t i = 0; i < sizeof(a); i++)
        a[i] = (unsigned char) sn_hash64(1, 2, i);
    for (int n = kernels(k); n-- > 0;) {
        for (size_t bytes = 0; bytes < 4900; bytes += 1 + bytes / 3) {
            for (size_t off = 0; off < 130; off += 13) {
                memset(b, 0x11, sizeof(b));
                k[n]->copy(b + off, a + off / 2, bytes, bytes % 2);
                assert_memory_equal(b + off, a + off / 2, bytes);
                assert_int_equal(b[off + bytes], 0x11);
                assert_true(off == 0 || b[off - 1] == 0x11);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fold),
        cmocka_unit_test(test_copy),
    };
    return sn_test_run(tests);
}
