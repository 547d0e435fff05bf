/* SPDX-License-Identifier: Apache-2.0
 *
 * The invariants of codec.h on random vectors, for every codec in every variant: the same bits from
 * each, nothing lost between what is decoded and the residual, nothing strange hidden, nothing
 * touched beyond the ends. */
#include "unit/codec_cases.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { N = 3000, GUARD = 32 };

typedef struct trial {
    sn_codec c;
    int64_t n, bytes;
    float x[N], residual[N], momentum[N]; /* before */
    float y[N];                           /* x + residual, or with the velocity */
    bool with_residual, with_momentum;
} trial;

typedef struct outcome {
    float residual[N + GUARD], momentum[N + GUARD], out[N + GUARD];
    uint8_t code[4 * N + GUARD];
} outcome;

static void draw(trial *t, const char *text, sn_prng *rng)
{
    static const int64_t sizes[] = {0,  1,  2,   3,   15,  16,  17,  63,
                                    64, 65, 255, 256, 257, 511, 512, 513};
    int64_t k = sn_prng_below(rng, 40);
    bool strange = sn_prng_below(rng, 2);
    float scale = ldexpf(1, (int) sn_prng_below(rng, 5) * 40 - 80);
    t->c = codec_of(text);
    if (t->c.kind == SN_CODEC_TERNARY && sn_prng_below(rng, 4) > 0) { /* a part of a matrix */
        t->c.cols = 8 + sn_prng_below(rng, 300);
        t->c.phase = sn_prng_below(rng, t->c.cols);
    }
    t->n = k < (int64_t) SN_COUNT(sizes) ? sizes[k] : sn_prng_below(rng, N);
    t->bytes = sn_codec_bytes(&t->c, t->n);
    t->with_residual = sn_prng_below(rng, 4) > 0;
    t->with_momentum = sn_prng_below(rng, 2);
    bool corrected = t->with_residual && t->with_momentum && t->c.kind == SN_CODEC_TOPK;
    for (int64_t i = 0; i < t->n; i++) {
        t->x[i] = number(rng, strange) * scale;
        t->residual[i] = number(rng, false) * scale;
        t->momentum[i] = number(rng, false) * scale;
        float v = corrected ? 0.75f * t->momentum[i] + t->x[i] : t->x[i];
        t->y[i] = t->with_residual ? t->residual[i] + v : t->x[i];
    }
}

static void play(const trial *t, const codec_variant *v, outcome *o)
{
    memset(o, 0x5a, sizeof(*o));
    memcpy(o->residual, t->residual, (size_t) t->n * 4);
    memcpy(o->momentum, t->momentum, (size_t) t->n * 4);
    sn_codec_in in = {.x = t->x, .beta = 0.75, .n = t->n};
    in.residual = t->with_residual ? o->residual : NULL;
    in.momentum = t->with_momentum ? o->momentum : NULL;
    if (t->n == 0)
        return;
    v->row[t->c.kind]->encode(&t->c, &in, o->code);
    assert_ok(v->row[t->c.kind]->decode(&t->c, o->code, t->n, false, o->out));
}

static void check_ends(const trial *t, const outcome *o)
{
    for (int64_t i = 0; i < GUARD; i++) {
        assert_int_equal(o->code[t->bytes + i], 0x5a);
        assert_int_equal(((const uint8_t *) (o->out + t->n))[i], 0x5a);
        assert_int_equal(((const uint8_t *) (o->residual + t->n))[i], 0x5a);
        assert_int_equal(((const uint8_t *) (o->momentum + t->n))[i], 0x5a);
    }
}

/* Elements that are coded together: one NaN takes all of them along. */
static int64_t block_of(const sn_codec *c)
{
    switch (c->kind) {
    case SN_CODEC_FP8_E4M3:
    case SN_CODEC_FP8_E5M2:
    case SN_CODEC_INT8:
        return 256;
    case SN_CODEC_INT4:
        return 64;
    case SN_CODEC_ONEBIT:
        return 512;
    case SN_CODEC_TERNARY:
        return 4096;
    default:
        return 1;
    }
}

static void check_dense(const trial *t, const outcome *o)
{
    int64_t block = block_of(&t->c);
    for (int64_t at = 0; at < t->n; at += block) {
        int64_t end = SN_MIN(at + block, t->n);
        bool all = true;
        for (int64_t i = at; i < end; i++)
            all = all && whole(t->y[i]);
        for (int64_t i = at; i < end; i++) {
            float d = o->out[i], r = o->residual[i];
            if (!all && block > 1)
                assert_true(isnan(d));
            else if (block == 1 && !all)
                assert_true(same_bits(d, t->y[i]));
            else if (t->c.kind != SN_CODEC_BF16) /* it may round up to infinity */
                assert_true(whole(d));
            if (t->with_residual)
                assert_true(same_bits(r, whole(d) ? t->y[i] - d : 0));
        }
    }
}

static void check_topk(const trial *t, const outcome *o)
{
    for (int64_t i = 0; i < t->n; i++) {
        float d = o->out[i], r = o->residual[i], m = o->momentum[i];
        if (!whole(t->y[i])) /* sent and seen, or beyond the k: never kept */
            assert_true(!t->with_residual || r == 0);
        else if (t->with_residual && whole(d))
            assert_true(same_bits(r, d == 0 && r == t->y[i] ? r : t->y[i] - d));
        else if (t->with_residual)
            assert_true(r == 0);
        if (!t->with_residual || !t->with_momentum)
            assert_true(same_bits(m, t->with_momentum ? t->momentum[i] : m));
        else if (d != 0 || !whole(t->y[i]))
            assert_true(m == 0);
        else
            assert_true(m == 0 || same_bits(m, 0.75f * t->momentum[i] + t->x[i]));
    }
}

static void test_invariants(void **state)
{
    static trial t;
    static outcome o[3];
    const codec_variant *v[3];
    int many = variants(v);
    for (size_t k = 0; k < SN_COUNT(vector_codecs); k++) {
        sn_prng rng = {.seed = 100 + k};
        for (int turn = 0; turn < 150; turn++) {
            draw(&t, vector_codecs[k], &rng);
            for (int i = 0; i < many; i++) {
                play(&t, v[i], &o[i]);
                check_ends(&t, &o[i]);
                if (i > 0 && memcmp(&o[i], &o[0], sizeof(o[0])) != 0)
                    fail_msg("%s of %lld: %s differs from %s", vector_codecs[k], (long long) t.n,
                             v[i]->name, v[0]->name);
            }
            if (t.c.kind == SN_CODEC_TOPK)
                check_topk(&t, &o[0]);
            else
                check_dense(&t, &o[0]);
        }
    }
}

/* add = what was there, plus what decode gives. */
static void test_add(void **state)
{
    static trial t;
    static outcome o;
    static float sum[N];
    const codec_variant *v[3];
    for (size_t k = 0; k < SN_COUNT(vector_codecs); k++) {
        sn_prng rng = {.seed = 900 + k};
        for (int turn = 0; turn < 10; turn++) {
            draw(&t, vector_codecs[k], &rng);
            for (int n = variants(v); n-- > 0;) {
                play(&t, v[n], &o);
                memcpy(sum, t.momentum, sizeof(sum));
                if (t.n > 0)
                    assert_ok(v[n]->row[t.c.kind]->decode(&t.c, o.code, t.n, true, sum));
                for (int64_t i = 0; i < t.n; i++)
                    assert_true(same_bits(sum[i], t.momentum[i] + o.out[i]));
            }
        }
    }
}

/* How far the decoded may be from y, for plain numbers whatever their magnitude. */
static double bound(const sn_codec *c, const float *y, int64_t n, int64_t i)
{
    int64_t block = block_of(c), at = i / block * block;
    double top = 0;
    for (int64_t j = at; j < SN_MIN(at + block, n); j++)
        top = fmax(top, fabs((double) y[j]));
    switch (c->kind) {
    case SN_CODEC_BF16:
        return fabs((double) y[i]) / 256;
    case SN_CODEC_FP8_E4M3: /* half of the last of 3 bits; or of the least step, 2^-9 · scale */
        return fmax(fabs((double) y[i]) / 16, top / 224 * 0x1p-10);
    case SN_CODEC_FP8_E5M2:
        return fmax(fabs((double) y[i]) / 8, top / 28672 * 0x1p-17);
    case SN_CODEC_INT8:
        return top / 127 / 2 * 1.01;
    case SN_CODEC_INT4:
        return top / 7 / 2 * 1.01;
    default:
        return 0;
    }
}

static void test_bounds(void **state)
{
    static const char *const text[] = {"none", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "int4"};
    static float x[N], out[N];
    static uint8_t code[4 * N];
    sn_prng rng = {.seed = 5};
    for (size_t k = 0; k < SN_COUNT(text); k++) {
        sn_codec c = codec_of(text[k]);
        for (int e = -90; e <= 120; e += 15) {
            for (int64_t i = 0; i < N; i++)
                x[i] = ldexpf(number(&rng, false), e);
            sn_codec_encode(&c, x, NULL, NULL, 0, N, code);
            assert_ok(sn_codec_decode(&c, code, sn_codec_bytes(&c, N), N, false, out));
            for (int64_t i = 0; i < N; i++) {
                double off = fabs((double) x[i] - (double) out[i]), most = bound(&c, x, N, i);
                if (off > most)
                    fail_msg("%s at 2^%d: %a became %a, off by %g, not %g", text[k], e, x[i],
                             out[i], off, most);
            }
        }
    }
}

/* The numbers a format has come back as they were, so coding twice is coding once. */
static void test_twice_is_once(void **state)
{
    static const char *const text[] = {"bf16", "fp8_e4m3", "fp8_e5m2"};
    static float x[N], once[N], twice[N];
    static uint8_t code[4 * N];
    sn_prng rng = {.seed = 6};
    for (size_t k = 0; k < SN_COUNT(text); k++) {
        sn_codec c = codec_of(text[k]);
        for (int64_t i = 0; i < N; i++)
            x[i] = number(&rng, false);
        sn_codec_encode(&c, x, NULL, NULL, 0, N, code);
        assert_ok(sn_codec_decode(&c, code, sn_codec_bytes(&c, N), N, false, once));
        sn_codec_encode(&c, once, NULL, NULL, 0, N, code);
        assert_ok(sn_codec_decode(&c, code, sn_codec_bytes(&c, N), N, false, twice));
        assert_memory_equal(once, twice, sizeof(once));
    }
}

/* One bit: a block's mean stays within what rounding two means to bf16 does. */
static void test_onebit_keeps_the_mean(void **state)
{
    enum { BLOCK = 512 };
    sn_codec c = codec_of("onebit");
    float x[BLOCK], out[BLOCK];
    uint8_t code[BLOCK];
    sn_prng rng = {.seed = 7};
    for (int e = -60; e <= 120; e += 30) {
        double sum = 0, got = 0, size = 0;
        for (int i = 0; i < BLOCK; i++) {
            x[i] = ldexpf(number(&rng, false) + 0.01f, e);
            sum += (double) x[i];
            size += fabs((double) x[i]);
        }
        sn_codec_encode(&c, x, NULL, NULL, 0, BLOCK, code);
        assert_ok(sn_codec_decode(&c, code, sn_codec_bytes(&c, BLOCK), BLOCK, false, out));
        for (int i = 0; i < BLOCK; i++) {
            got += (double) out[i];
            assert_true(signbit(x[i]) ? out[i] <= 0 : out[i] >= 0);
        }
        assert_true(fabs(sum - got) <= size / 256);
    }
}

/* Ternary: rows and columns of any size keep their own precision; without scales the small ones
 * drown. */
static void test_ternary_scales(void **state)
{
    enum { ROWS = 50, COLS = 60, SIZE = ROWS * COLS };
    static float x[SIZE], out[SIZE];
    static uint8_t code[SIZE];
    double wrong[2] = {0};
    for (int i = 0; i < SIZE; i++)
        x[i] = i / COLS == 7 || i % COLS == 3 ? 0
                                              : ldexpf((float) sn_hash_normal(3, 4, (uint64_t) i),
                                                       i / COLS % 30 - i % COLS % 11);
    for (int with = 0; with < 2; with++) {
        sn_codec c = {.kind = SN_CODEC_TERNARY, .cols = with ? COLS : 0};
        int64_t bytes = sn_codec_bytes(&c, SIZE - 17);
        c.phase = with ? 17 : 0; /* begins within a row */
        assert_true(sn_codec_bytes(&c, SIZE - 17) <= bytes + 1);
        bytes = sn_codec_bytes(&c, SIZE - 17);
        sn_codec_encode(&c, x + 17, NULL, NULL, 0, SIZE - 17, code);
        assert_ok(sn_codec_decode(&c, code, bytes, SIZE - 17, false, out + 17));
        for (int i = 17; i < SIZE; i++) {
            double size = ldexp(1, i / COLS % 30 - i % COLS % 11);
            wrong[with] += pow(((double) out[i] - (double) x[i]) / size, 2) / SIZE;
            if (with && (i / COLS == 7 || i % COLS == 3))
                assert_true(out[i] == 0);
        }
    }
    assert_true(wrong[1] < 0.3); /* 0.19 is the least that three levels can do, plus the fours */
    assert_true(wrong[0] > 0.7);
}

#if defined(__x86_64__)
/* Flush-to-zero, other rounding, traps: code, decoded and residual stay; so does the mode. */
static void test_mode(void **state)
{
    static const unsigned modes[] = {0x9fc0, 0x3f80, 0x7f80, 0x0000};
    static trial t;
    static outcome o[2];
    unsigned home = _mm_getcsr();
    for (size_t k = 0; k < SN_COUNT(vector_codecs); k++) {
        sn_prng rng = {.seed = 40 + k};
        draw(&t, vector_codecs[k], &rng);
        for (int64_t i = 0; i < t.n; i++)
            t.x[i] *= 0x1p-100f;
        for (size_t m = 0; m <= SN_COUNT(modes); m++) {
            outcome *p = &o[m > 0];
            unsigned want = m > 0 ? modes[m - 1] : home;
            memset(p, 0, sizeof(*p));
            memcpy(p->residual, t.residual, sizeof(t.residual));
            _mm_setcsr(want);
            int64_t bytes = sn_codec_bytes(&t.c, t.n);
            sn_codec_encode(&t.c, t.x, p->residual, NULL, 0, t.n, p->code);
            sn_status status = sn_codec_decode(&t.c, p->code, bytes, t.n, false, p->out);
            unsigned after = _mm_getcsr();
            _mm_setcsr(home);
            assert_ok(status);
            assert_int_equal(bytes, t.bytes);
            assert_int_equal(after & 0xffc0, want & 0xffc0);
            assert_memory_equal(&o[0], p, sizeof(*p));
        }
    }
}
#else
static void test_mode(void **state)
{
    print_message("skipped: only x86-64 has a mode that codec looks after\n");
    skip();
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_invariants),
        cmocka_unit_test(test_add),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_twice_is_once),
        cmocka_unit_test(test_onebit_keeps_the_mean),
        cmocka_unit_test(test_ternary_scales),
        cmocka_unit_test(test_mode),
    };
    return sn_test_run(tests);
}
