/* SPDX-License-Identifier: Apache-2.0
 *
 * The loops of every variant that this processor has: the same bits as plain C, on odd sizes and
 * addresses, with NaN, infinities and subnormals. */
#include "fold/fold.h"
#include "unit/sn_test.h"

#include <math.h>

#define N 700
#define GUARD 64

static int kernels(const sn_fold_table *ret[3])
{
    int n = 0;
    ret[n++] = &sn_fold_plain;
    if (sn_fold_kernels() != &sn_fold_plain)
        ret[n++] = sn_fold_kernels();
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && sn_fold_kernels() != &sn_fold_avx2)
        ret[n++] = &sn_fold_avx2;
#endif
    return n;
}

static float strange(sn_prng *p)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1e-41f, -1e-39f, 3e38f};
    int64_t k = sn_prng_below(p, 40);
    return k < (int64_t) SN_COUNT(odd) ? odd[k] : (float) (sn_prng_uniform(p) * 8 - 4);
}

static float join(sn_red red, float a, float b)
{
    if (isnan(a) || isnan(b))
        return NAN;
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

static void one(const sn_fold_table *k, sn_prng *rng)
{
    static unsigned char mem[8][N * 4 + 4 * GUARD] __attribute__((aligned(64)));
    void *dst[3];
    const void *src[5];
    sn_dtype dtype = sn_prng_below(rng, 2) ? SN_BF16 : SN_F32;
    size_t el = sn_dtype_bytes(dtype);
    sn_fold f = {.red = (sn_red) sn_prng_below(rng, SN_REDS), .dtype = dtype};
    f.count = sn_prng_below(rng, N);
    f.srcs = 1 + (int) sn_prng_below(rng, 5);
    f.dsts = 1 + (int) sn_prng_below(rng, 3);
    f.divide = f.red == SN_AVG ? f.srcs : 0;
    f.stream = sn_prng_below(rng, 2);
    f.dst = dst;
    f.src = src;
    bool aligned = sn_prng_below(rng, 2), in_place = sn_prng_below(rng, 2);
    static float want[N];
    for (int s = 0; s < f.srcs; s++) {
        unsigned char *p = mem[s] + GUARD + (aligned ? 0 : el * (size_t) sn_prng_below(rng, 9));
        for (int64_t i = 0; i < f.count; i++) {
            float x = strange(rng);
            if (dtype == SN_BF16) {
                ((uint16_t *) (void *) p)[i] = sn_f32_to_bf16(x);
                x = sn_bf16_to_f32(sn_f32_to_bf16(x));
            } else {
                ((float *) (void *) p)[i] = x;
            }
            want[i] = s == 0 ? x : join(f.red, want[i], x);
        }
        src[s] = p;
    }
    for (int d = 0; d < f.dsts; d++) {
        unsigned char *p = mem[5 + d] + GUARD + (aligned ? 0 : el * (size_t) (d + 1));
        if (in_place && d == 0)
            p = (unsigned char *) (uintptr_t) src[f.srcs - 1];
        else
            memset(mem[5 + d], 0x77, sizeof(mem[0]));
        dst[d] = p;
    }
    k->fold(&f);
    for (int d = 0; d < f.dsts; d++) {
        for (int64_t i = 0; i < f.count; i++) {
            float w = f.divide > 0 ? want[i] / (float) f.divide : want[i];
            float got =
                dtype == SN_BF16 ? sn_bf16_to_f32(((uint16_t *) dst[d])[i]) : ((float *) dst[d])[i];
            if (dtype == SN_BF16)
                w = sn_bf16_to_f32(sn_f32_to_bf16(w));
            if (!same(got, w))
                fail_msg("%s %s %s of %d, %lld of %lld: %a, not %a", k->name, sn_red_name(f.red),
                         sn_dtype_name(dtype), f.srcs, (long long) i, (long long) f.count, got, w);
        }
        const unsigned char *p = dst[d];
        for (int i = 1; i < GUARD && !(in_place && d == 0); i++) {
            assert_int_equal(p[-i], 0x77);
            assert_int_equal(p[(size_t) f.count * el + (size_t) i - 1], 0x77);
        }
    }
}

static void test_fold(void **state)
{
    const sn_fold_table *k[3];
    sn_prng rng = {.seed = 42};
    for (int n = kernels(k); n-- > 0;)
        for (int i = 0; i < 3000; i++)
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
