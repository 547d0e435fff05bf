/* SPDX-License-Identifier: Apache-2.0
 *
 * Top-k against a model that sorts: the same elements whatever the distribution, ties, guesses that
 * go wrong; momentum correction against its definition. */
#include "unit/codec_cases.h"

enum { N = 70000 };

static float x[N], residual[N], momentum[N], out[N];
static uint8_t code[4 * N];
static int64_t order[N];

static uint32_t magnitude(float f)
{
    return (sn_f32_bits){.f = f}.u & 0x7fffffffu;
}

static const float *sorting;

static int larger_first(const void *pa, const void *pb)
{
    int64_t a = *(const int64_t *) pa, b = *(const int64_t *) pb;
    uint32_t ma = magnitude(sorting[a]), mb = magnitude(sorting[b]);
    if (ma != mb)
        return ma > mb ? -1 : 1;
    return a < b ? -1 : 1;
}

typedef float distribution(sn_prng *rng, int64_t i, int64_t n);

static float cubic(sn_prng *rng, int64_t i, int64_t n)
{
    return number(rng, false);
}

static float few_values(sn_prng *rng, int64_t i, int64_t n)
{
    return (float) (sn_prng_below(rng, 5) - 2);
}

static float all_equal(sn_prng *rng, int64_t i, int64_t n)
{
    return 1e-3f;
}

static float zeros(sn_prng *rng, int64_t i, int64_t n)
{
    return 0;
}

static float mostly_zeros(sn_prng *rng, int64_t i, int64_t n)
{
    return sn_prng_below(rng, 5000) == 0 ? number(rng, false) : 0;
}

/* What a strided sample sees is small, the large ones lie between. */
static float hidden(sn_prng *rng, int64_t i, int64_t n)
{
    int64_t samples = SN_MIN(4096, n / 16), stride = samples ? n / samples : 1;
    return i % stride == 0 ? 1e-20f : number(rng, false);
}

/* And the reverse: the sample sees nothing but large ones. */
static float boastful(sn_prng *rng, int64_t i, int64_t n)
{
    int64_t samples = SN_MIN(4096, n / 16), stride = samples ? n / samples : 1;
    return i % stride == 0 ? 1e20f + (float) i : number(rng, false);
}

static float all_exponents(sn_prng *rng, int64_t i, int64_t n)
{
    return ldexpf(number(rng, false), (int) sn_prng_below(rng, 250) - 130);
}

static float rising(sn_prng *rng, int64_t i, int64_t n)
{
    return (float) i;
}

static float strange(sn_prng *rng, int64_t i, int64_t n)
{
    return number(rng, true);
}

static distribution *const distributions[] = {
    cubic,  few_values, all_equal,     zeros,  mostly_zeros,
    hidden, boastful,   all_exponents, rising, strange,
};

static void check(const sn_codec *c, const codec_variant *v, int64_t n, int64_t k)
{
    sorting = x;
    for (int64_t i = 0; i < n; i++)
        order[i] = i;
    qsort(order, (size_t) n, sizeof(*order), larger_first);
    sn_codec_in in = {.x = x, .n = n};
    v->row[c->kind]->encode(c, &in, code);
    assert_ok(v->row[c->kind]->decode(c, code, n, false, out));
    for (int64_t i = 0; i < n; i++) {
        float y = x[order[i]], want = i < k ? sn_bf16_to_f32(sn_f32_to_bf16(y)) : 0;
        if (!same_bits(out[order[i]], want + 0.0f))
            fail_msg("%s: element %lld of %lld, %lldth largest of %lld kept: %a, not %a", v->name,
                     (long long) order[i], (long long) n, (long long) i, (long long) k,
                     out[order[i]], want);
    }
}

static void test_like_sorting(void **state)
{
    static const int64_t sizes[] = {1, 2, 15, 16, 17, 100, 1023, 1024, 5000, N};
    static const char *const text[] = {"topk:0.01", "topk:0.001", "topk:0.2", "topk:1"};
    static const int64_t parts[] = {10, 1, 200, 1000}; /* thousandths */
    const codec_variant *v[3];
    sn_prng rng = {.seed = 8};
    for (size_t d = 0; d < SN_COUNT(distributions); d++) {
        for (size_t s = 0; s < SN_COUNT(sizes); s++) {
            int64_t n = sizes[s];
            for (int64_t i = 0; i < n; i++)
                x[i] = distributions[d](&rng, i, n);
            size_t t = (d + s) % SN_COUNT(text);
            sn_codec c = codec_of(text[t]);
            int64_t k = n * parts[t] / 1000;
            for (int m = variants(v); m-- > 0;)
                check(&c, v[m], n, k < 1 ? 1 : k);
        }
    }
}

/* Lin et al. 2018, equations 4 and 5: u = beta u + x, v = v + u; both 0 where sent. */
static void test_momentum(void **state)
{
    enum { SMALL = 3000, ROUNDS = 30 };
    static float u[SMALL], v[SMALL];
    sn_codec c = codec_of("topk:0.02");
    sn_prng rng = {.seed = 9};
    memset(residual, 0, sizeof(residual));
    memset(momentum, 0, sizeof(momentum));
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < SMALL; i++) {
            x[i] = number(&rng, false);
            u[i] = 0.9f * u[i] + x[i];
            v[i] += u[i];
        }
        sn_codec_encode(&c, x, residual, momentum, (double) 0.9f, SMALL, code);
        assert_ok(sn_codec_decode(&c, code, sn_codec_bytes(&c, SMALL), SMALL, false, out));
        int sent = 0;
        for (int i = 0; i < SMALL; i++) {
            if (out[i] != 0) {
                assert_true(out[i] == sn_bf16_to_f32(sn_f32_to_bf16(v[i])));
                v[i] -= out[i];
                u[i] = 0;
                sent++;
            }
            assert_true(residual[i] == v[i] && momentum[i] == u[i]);
        }
        assert_int_equal(sent, 60);
    }
}

/* More elements that are not finite than may be sent: what stays behind is forgotten, so that the
 * step after a skipped one is clean. */
static void test_poison_goes_away(void **state)
{
    enum { SMALL = 2000 };
    static const char *const text[] = {"topk:0.01", "topk:0.01+int8", "topk:0.01+int4"};
    for (size_t t = 0; t < SN_COUNT(text); t++) {
        sn_codec c = codec_of(text[t]);
        sn_prng rng = {.seed = 10};
        memset(residual, 0, sizeof(residual));
        memset(momentum, 0, sizeof(momentum));
        for (int round = 0; round < 2; round++) {
            for (int i = 0; i < SMALL; i++)
                x[i] = round == 0 && i % 3 == 0 ? (i % 2 ? NAN : INFINITY) : number(&rng, false);
            sn_codec_encode(&c, x, residual, momentum, 0.9, SMALL, code);
            assert_ok(sn_codec_decode(&c, code, sn_codec_bytes(&c, SMALL), SMALL, false, out));
            int bad = 0;
            for (int i = 0; i < SMALL; i++) {
                assert_true(whole(residual[i]) && whole(momentum[i]));
                bad += !whole(out[i]);
            }
            assert_int_equal(bad, round == 0 ? 20 : 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_like_sorting),
        cmocka_unit_test(test_momentum),
        cmocka_unit_test(test_poison_goes_away),
    };
    return sn_test_run(tests);
}
