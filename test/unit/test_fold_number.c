/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers at the edges: f16 conversion against exact arithmetic in double, what each operation does
 * with NaN, infinities, zeros and subnormals, and that neither depends on nor touches the
 * processor's mode. */
#include "unit/fold_variants.h"
#include "unit/sn_test.h"

#include <math.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

static const sn_dtype dtypes[] = {SN_F32, SN_BF16, SN_F16};

static uint32_t bits_of(float f)
{
    return (sn_f32_bits){.f = f}.u;
}

/* f16 by its definition. */
static double exact(uint16_t h)
{
    int exp = h >> 10 & 31, frac = h & 0x3ff;
    double v = exp == 0 ? ldexp(frac, -24) : ldexp(1024 + frac, exp - 25);
    return h & 0x8000 ? -v : v;
}

static void test_widen(void **state)
{
    for (uint32_t h = 0; h < 65536; h++) {
        float f = sn_f16_to_f32((uint16_t) h);
        if ((h & 0x7fff) > 0x7c00) {
            assert_true(isnan(f) && sn_f32_to_f16(f) == (h | 0x200));
            continue;
        }
        double want =
            (h & 0x7fff) == 0x7c00 ? (h & 0x8000 ? -INFINITY : INFINITY) : exact((uint16_t) h);
        assert_true((double) f == want && !signbit(f) == !(h & 0x8000));
        assert_int_equal(sn_f32_to_f16(f), h);
    }
}

/* Nearest, and of two equally near the even one: judged between each pair of neighbours. */
static void test_narrow(void **state)
{
    for (uint32_t h = 0; h < 0x7bff; h++) {
        double low = exact((uint16_t) h), high = exact((uint16_t) (h + 1));
        float mid = (float) ((low + high) / 2), below = nextafterf(mid, 0),
              above = nextafterf(mid, 1e9f);
        uint16_t even = (uint16_t) (h & 1 ? h + 1 : h);
        assert_int_equal(sn_f32_to_f16(mid), even);
        assert_int_equal(sn_f32_to_f16(below), h);
        assert_int_equal(sn_f32_to_f16(above), h + 1);
        assert_int_equal(sn_f32_to_f16(-mid), even | 0x8000);
    }
    assert_int_equal(sn_f32_to_f16(65519.99f), 0x7bff);
    assert_int_equal(sn_f32_to_f16(65520), 0x7c00);
    assert_int_equal(sn_f32_to_f16(3e38f), 0x7c00);
    assert_int_equal(sn_f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(sn_f32_to_f16(1e-45f), 0);
    assert_int_equal(sn_f32_to_f16(-1e-45f), 0x8000);
}

/* One fold over all halves, and one over floats around every rounding border, in each variant. */
static void test_vectors_convert_alike(void **state)
{
    static uint16_t half[65536], back[65536];
    static float wide[65536], got[65536];
    static const uint8_t yes[1] = {1};
    const sn_fold_table *k[3];
    for (int n = kernels(k); n-- > 0;) {
        for (uint32_t i = 0; i < 65536; i++)
            half[i] = (uint16_t) i;
        void *dst[1] = {got};
        const void *src[1] = {half};
        sn_fold f = {.dtype = SN_F16, .dsts = 1, .srcs = 1, .count = 65536, .dst_wide = yes};
        f.dst = dst;
        f.src = src;
        k[n]->fold(&f);
        for (uint32_t i = 0; i < 65536; i++)
            assert_int_equal(bits_of(got[i]), bits_of(sn_f16_to_f32((uint16_t) i)));
        dst[0] = back;
        src[0] = wide;
        f.src_wide = yes;
        f.dst_wide = NULL;
        for (uint32_t off = 0; off < 5; off++) {
            static const uint32_t step[] = {0, 0xfff, 0x1000, 0x1001, 0x1fff};
            for (uint32_t i = 0; i < 65536; i++)
                wide[i] = (sn_f32_bits){.u = bits_of(sn_f16_to_f32((uint16_t) i)) ^ step[off]}.f;
            k[n]->fold(&f);
            for (uint32_t i = 0; i < 65536; i++)
                assert_int_equal(back[i], sn_f32_to_f16(wide[i]));
        }
        for (uint32_t i = 0; i < 65536; i++) /* all signs and exponents */
            wide[i] = (sn_f32_bits){.u = i << 16 | (i * 40503u >> 8 & 0xffff)}.f;
        k[n]->fold(&f);
        for (uint32_t i = 0; i < 65536; i++)
            assert_int_equal(back[i], sn_f32_to_f16(wide[i]));
    }
}

/* ---- the table ---- */

#define INF INFINITY
#define TINY 0x1p-24f /* a subnormal of f16 */
#define SUB 0x1p-130f /* a subnormal of f32 and bf16; 0 in f16 */

typedef struct row {
    float a, b, want[SN_REDS]; /* sum, avg, max, min */
} row;

static const row table[] = {
    {NAN, 1, {NAN, NAN, NAN, NAN}},
    {1, NAN, {NAN, NAN, NAN, NAN}},
    {NAN, INF, {NAN, NAN, NAN, NAN}},
    {-INF, NAN, {NAN, NAN, NAN, NAN}},
    {NAN, NAN, {NAN, NAN, NAN, NAN}},
    {INF, 1, {INF, INF, INF, 1}},
    {-INF, 1, {-INF, -INF, 1, -INF}},
    {INF, -INF, {NAN, NAN, INF, -INF}},
    {-INF, INF, {NAN, NAN, INF, -INF}},
    {INF, INF, {INF, INF, INF, INF}},
    {0.0f, -0.0f, {0.0f, 0.0f, 0.0f, -0.0f}},
    {-0.0f, 0.0f, {0.0f, 0.0f, 0.0f, -0.0f}},
    {-0.0f, -0.0f, {-0.0f, -0.0f, -0.0f, -0.0f}},
    {0.0f, 0.0f, {0.0f, 0.0f, 0.0f, 0.0f}},
    {-0.0f, 1, {1, 0.5f, 1, -0.0f}},
    {TINY, TINY, {2 * TINY, TINY, TINY, TINY}},
    {TINY, -TINY, {0.0f, 0.0f, TINY, -TINY}},
    {SUB, SUB, {2 * SUB, SUB, SUB, SUB}},
    {SUB, -2 * SUB, {-SUB, -SUB / 2, SUB, -2 * SUB}},
    {3, 2, {5, 2.5f, 3, 2}},
    {-3, 2, {-1, -0.5f, 2, -3}},
};

static bool same(float a, float b)
{
    return isnan(b) ? isnan(a) : bits_of(a) == bits_of(b);
}

static void check_row(const sn_fold_table *k, sn_red red, sn_dtype dtype, const row *r)
{
    enum { N = 131 }; /* whole turns of each width, and a tail */
    float a[N], b[N], out[N];
    for (int i = 0; i < N; i++) {
        fold_put(dtype, a, i, r->a);
        fold_put(dtype, b, i, r->b);
    }
    sn_fold f = {.red = red, .dtype = dtype, .srcs = 2, .dsts = 1, .count = N};
    f.divide = red == SN_AVG ? 2 : 0;
    f.src = (const void *[]){a, b};
    f.dst = (void *[]){out};
    k->fold(&f);
    float want = r->want[red];
    if (dtype == SN_F16 && (fabsf(r->a) == SUB || fabsf(r->b) == SUB))
        want = sn_f16_to_f32(sn_f32_to_f16(red == SN_SUM || red == SN_AVG ? r->a * 0 : want));
    for (int i = 0; i < N; i++)
        if (!same(fold_get(dtype, out, i), want))
            fail_msg("%s %s %s(%a, %a) at %d: %a, not %a", k->name, sn_dtype_name(dtype),
                     sn_red_name(red), r->a, r->b, i, fold_get(dtype, out, i), want);
}

static void test_table(void **state)
{
    const sn_fold_table *k[3];
    for (int n = kernels(k); n-- > 0;)
        for (sn_red red = SN_SUM; red < SN_REDS; red++)
            for (size_t d = 0; d < SN_COUNT(dtypes); d++)
                for (size_t r = 0; r < SN_COUNT(table); r++)
                    check_row(k[n], red, dtypes[d], &table[r]);
}

/* The average of 1,024 numbers at f16's end is that number: it is formed in f32. */
/* The largest bf16 may cancel in any order; the smallest are not lost. */
static void test_bf16_at_both_ends(void **state)
{
    static const uint16_t largest = 0x7f7f, least = 1;
    enum { SRCS = 64 };
    uint16_t in[SRCS], out;
    const void *src[SRCS];
    void *dst[] = {&out};
    const sn_fold_table *k = sn_fold_kernels();
    for (int s = 0; s < SRCS; s++)
        src[s] = &in[s];
    for (int red = SN_SUM; red <= SN_AVG; red++) {
        sn_fold f = {.red = (sn_red) red, .dtype = SN_BF16, .dst = dst, .src = src, .dsts = 1};
        f.srcs = SRCS, f.count = 1, f.divide = red == SN_AVG ? SRCS : 0;
        for (int s = 0; s < SRCS; s++)
            in[s] = (uint16_t) (largest | (s < SRCS / 2 ? 0 : 0x8000));
        k->fold(&f);
        assert_int_equal(out, 0);
        for (int s = 0; s < SRCS; s++)
            in[s] = red == SN_AVG ? largest : least;
        k->fold(&f);
        assert_int_equal(out, red == SN_AVG ? largest : SRCS * least);
    }
    for (int s = 0; s < SRCS; s++)
        in[s] = largest;
    sn_fold f = {.red = SN_SUM, .dtype = SN_BF16, .dst = dst, .src = src, .dsts = 1, .srcs = SRCS};
    f.count = 1;
    k->fold(&f);
    assert_int_equal(out, 0x7f80); /* a sum that is too large says so */
}

static void test_average_of_the_largest(void **state)
{
    enum { RANKS = 1024, N = 70 };
    static const void *src[RANKS];
    uint16_t x[N], out[N];
    const sn_fold_table *k[3];
    for (int i = 0; i < N; i++)
        x[i] = sn_f32_to_f16(65504);
    for (int i = 0; i < RANKS; i++)
        src[i] = x;
    for (int n = kernels(k); n-- > 0;) {
        sn_fold f = {.red = SN_AVG, .dtype = SN_F16, .srcs = RANKS, .dsts = 1, .count = N};
        f.divide = RANKS;
        f.src = src;
        f.dst = (void *[]){out};
        k[n]->fold(&f);
        for (int i = 0; i < N; i++)
            assert_true(sn_f16_to_f32(out[i]) == 65504);
        f.red = SN_SUM;
        f.divide = 0;
        k[n]->fold(&f);
        assert_int_equal(out[0], 0x7c00);
    }
}

#if defined(__x86_64__)
/* Flush-to-zero, denormals-are-zero, rounding, traps: none may matter, none may be lost. */
static void test_mode(void **state)
{
    static const unsigned modes[] = {0x1f80, 0x9fc0, 0x1fc0, 0x9f80,
                                     0x3f80, 0x5f80, 0x7fc0, 0x0000};
    unsigned home = _mm_getcsr();
    for (size_t m = 0; m < SN_COUNT(modes); m++) {
        const sn_fold_table *k[3];
        for (int n = kernels(k); n-- > 0;) {
            float a[40], b[40], out[40];
            for (int i = 0; i < 40; i++) {
                a[i] = 0x1p-140f;
                b[i] = 1;
            }
            b[7] = 0x1p-140f;
            sn_fold f = {.red = SN_SUM, .srcs = 2, .dsts = 1, .count = 40};
            f.src = (const void *[]){a, b};
            f.dst = (void *[]){out};
            _mm_setcsr(modes[m]);
            k[n]->fold(&f);
            unsigned after = _mm_getcsr();
            _mm_setcsr(home);
            assert_int_equal(after & 0xffc0, modes[m]);
            assert_true(out[7] == 0x1p-139f && out[0] == 1 && out[39] == 1);
        }
    }
}
#else
static void test_mode(void **state)
{
    print_message("skipped: only x86-64 has a mode that fold looks after\n");
    skip();
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_widen),
        cmocka_unit_test(test_narrow),
        cmocka_unit_test(test_vectors_convert_alike),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_bf16_at_both_ends),
        cmocka_unit_test(test_average_of_the_largest),
        cmocka_unit_test(test_mode),
    };
    return sn_test_run(tests);
}
