/* SPDX-License-Identifier: Apache-2.0
 *
 * PowerSGD's pieces against plain loops in double; columns that depend on each other; the same bits
 * in every variant; and what the whole is for: a matrix of low rank comes back exactly. */
#include "unit/codec_cases.h"

enum { ROWS = 70, COLS = 600, RANK = 11 };

static float m[ROWS * COLS], back[ROWS * COLS], p[COLS * RANK], q[COLS * RANK];

static float noise(sn_prng *rng)
{
    return (float) (sn_prng_uniform(rng) * 2 - 1);
}

static void fill(float *a, int64_t n, sn_prng *rng)
{
    for (int64_t i = 0; i < n; i++)
        a[i] = noise(rng);
}

static void near(const char *what, double got, double want, double size)
{
    if (!(fabs(got - want) <= 1e-6 * size + 1e-12))
        fail_msg("%s: %.9g, not %.9g", what, got, want);
}

/* size: the sum of magnitudes, to which the error of a sum in f32 is in proportion. */
static void check_products(const codec_lowrank *l, int rows, int cols, int rank, sn_prng *rng)
{
    static float in_p[COLS * RANK], in_q[COLS * RANK];
    fill(m, rows * cols, rng);
    fill(in_p, rows * rank, rng);
    fill(in_q, cols * rank, rng);
    l->p(m, rows, cols, rank, in_q, p);
    l->q(m, rows, cols, rank, in_p, q);
    l->m(in_p, in_q, rows, cols, rank, back);
    for (int r = 0; r < rank; r++) {
        for (int i = 0; i < rows; i++) {
            double sum = 0, size = 0;
            for (int j = 0; j < cols; j++) {
                sum += (double) m[i * cols + j] * (double) in_q[j * rank + r];
                size += fabs((double) m[i * cols + j] * (double) in_q[j * rank + r]);
            }
            near("p = m q", (double) p[i * rank + r], sum, size);
        }
        for (int j = 0; j < cols; j++) {
            double sum = 0, size = 0;
            for (int i = 0; i < rows; i++) {
                sum += (double) m[i * cols + j] * (double) in_p[i * rank + r];
                size += fabs((double) m[i * cols + j] * (double) in_p[i * rank + r]);
            }
            near("q = mT p", (double) q[j * rank + r], sum, size);
        }
    }
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < cols; j++) {
            double sum = 0;
            for (int r = 0; r < rank; r++)
                sum += (double) in_p[i * rank + r] * (double) in_q[j * rank + r];
            near("m = p qT", (double) back[i * cols + j], sum, rank);
        }
    }
}

static void test_products(void **state)
{
    static const int shape[][3] = {{1, 1, 1},    {3, 17, 2},    {5, 255, 4}, {70, 256, 5},
                                   {7, 600, 1},  {70, 300, 11}, {2, 513, 8}, {64, 16, 4},
                                   {1, 600, 11}, {70, 1, 3},    {16, 15, 11}};
    const codec_variant *v[3];
    sn_prng rng = {.seed = 1};
    for (int n = variants(v); n-- > 0;)
        for (size_t s = 0; s < SN_COUNT(shape); s++)
            check_products(v[n]->lowrank, shape[s][0], shape[s][1], shape[s][2], &rng);
}

static void test_same_bits(void **state)
{
    static float a[2][ROWS * COLS], b[2][COLS * RANK], c[2][COLS * RANK];
    const codec_variant *v[3];
    sn_prng rng = {.seed = 2};
    int many = variants(v);
    for (int turn = 0; turn < 40; turn++) {
        int rows = 1 + (int) sn_prng_below(&rng, ROWS), cols = 1 + (int) sn_prng_below(&rng, COLS);
        int rank = 1 + (int) sn_prng_below(&rng, RANK);
        fill(m, rows * cols, &rng);
        fill(q, cols * rank, &rng);
        for (int n = 0; n < many; n++) {
            int at = n > 0;
            const codec_lowrank *l = v[n]->lowrank;
            memset(a[at], 0, sizeof(a[0]));
            l->p(m, rows, cols, rank, q, b[at]);
            l->orthonormal(b[at], rows, rank);
            l->q(m, rows, cols, rank, b[at], c[at]);
            l->m(b[at], c[at], rows, cols, rank, a[at]);
            if (at)
                assert_memory_equal(a[1], a[0], sizeof(a[0]));
        }
    }
}

static double angle(const float *a, int rows, int rank, int c, int d)
{
    double sum = 0;
    for (int i = 0; i < rows; i++)
        sum += (double) a[i * rank + c] * (double) a[i * rank + d];
    return sum;
}

static void check_orthonormal(const float *a, int rows, int rank)
{
    for (int c = 0; c < rank; c++)
        for (int d = 0; d <= c; d++)
            if (fabs(angle(a, rows, rank, c, d) - (c == d)) > 1e-6)
                fail_msg("columns %d and %d of %d rows: %g", c, d, rows,
                         angle(a, rows, rank, c, d));
}

static void test_orthonormal(void **state)
{
    sn_prng rng = {.seed = 3};
    for (int turn = 0; turn < 60; turn++) {
        int rank = 1 + (int) sn_prng_below(&rng, RANK);
        int rows = rank + (int) sn_prng_below(&rng, 300);
        fill(p, rows * rank, &rng);
        for (int c = 1; c < rank; c++) { /* by turns: nearly the same, the same, zeros, far apart */
            for (int i = 0; i < rows; i++) {
                float *x = &p[i * rank + c];
                float other = p[i * rank + c - 1];
                *x = turn % 5 == 0   ? other + *x * 1e-4f
                     : turn % 5 == 1 ? other * 3
                     : turn % 5 == 2 ? 0
                     : turn % 5 == 3 ? ldexpf(*x, 12 * c - 60)
                                     : *x;
            }
        }
        sn_codec_orthonormal(p, rows, rank);
        check_orthonormal(p, rows, rank);
    }
}

/* More columns than rows: the first are a basis, the rest are 0. */
static void test_too_many_columns(void **state)
{
    sn_prng rng = {.seed = 4};
    fill(p, 3 * 5, &rng);
    sn_codec_orthonormal(p, 3, 5);
    for (int c = 0; c < 5; c++)
        assert_true(fabs(angle(p, 3, 5, c, c) - (c < 3)) < 1e-6);
}

static void test_nan_is_seen(void **state)
{
    sn_prng rng = {.seed = 5};
    fill(p, 20 * 3, &rng);
    p[7 * 3 + 1] = NAN;
    sn_codec_orthonormal(p, 20, 3);
    for (int i = 0; i < 20; i++)
        assert_true(whole(p[i * 3]) && isnan(p[i * 3 + 1]) && isnan(p[i * 3 + 2]));
    fill(p, 20 * 3, &rng);
    p[2 * 3] = INFINITY;
    sn_codec_orthonormal(p, 20, 3);
    for (int i = 0; i < 20; i++)
        assert_true(isnan(p[i * 3]));
}

static void round_of(const float *a, int rows, int cols, int rank)
{
    sn_codec_lowrank_p(a, rows, cols, rank, q, p);
    sn_codec_orthonormal(p, rows, rank);
    sn_codec_lowrank_q(a, rows, cols, rank, p, q);
    sn_codec_lowrank_m(p, q, rows, cols, rank, back);
}

/* One round suffices for a matrix of the rank itself; a zero matrix between does not spoil it. */
static void test_low_rank_comes_back(void **state)
{
    enum { R = 3 };
    static float u[ROWS * R], w[COLS * R];
    sn_prng rng = {.seed = 6};
    fill(u, ROWS * R, &rng);
    fill(w, COLS * R, &rng);
    fill(q, COLS * 4, &rng);
    for (int turn = 0; turn < 3; turn++) {
        if (turn == 1)
            memset(m, 0, sizeof(m));
        else
            sn_codec_lowrank_m(u, w, ROWS, COLS, R, m);
        round_of(m, ROWS, COLS, 4);
        for (int i = 0; i < ROWS * COLS && turn != 2; i++)
            assert_true(fabsf(back[i] - m[i]) < 2e-5f);
    }
    round_of(m, ROWS, COLS, 4); /* after the zeros q was 0: it takes a round to find the way back */
    round_of(m, ROWS, COLS, 4);
    for (int i = 0; i < ROWS * COLS; i++)
        assert_true(fabsf(back[i] - m[i]) < 2e-5f);
}

/* A warm start makes each round a step of power iteration: the best rank-2 part is found. */
static void test_warm_start(void **state)
{
    static const double weight[] = {10, 6, 1, 0.5};
    static float u[ROWS * 4], w[COLS * 4];
    double first = 0, last = 0, best = 0;
    sn_prng rng = {.seed = 7};
    fill(u, ROWS * 4, &rng);
    fill(w, COLS * 4, &rng);
    sn_codec_orthonormal(u, ROWS, 4);
    sn_codec_orthonormal(w, COLS, 4);
    for (int i = 0; i < ROWS * 4; i++)
        u[i] *= (float) weight[i % 4];
    for (int k = 2; k < 4; k++)
        best += weight[k] * weight[k];
    sn_codec_lowrank_m(u, w, ROWS, COLS, 4, m);
    fill(q, COLS * 2, &rng);
    for (int round = 0; round < 12; round++) {
        round_of(m, ROWS, COLS, 2);
        last = 0;
        for (int i = 0; i < ROWS * COLS; i++)
            last += (double) (m[i] - back[i]) * (double) (m[i] - back[i]);
        first = round == 0 ? last : first;
    }
    assert_true(last < first && last < best * 1.0001);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),    cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_orthonormal), cmocka_unit_test(test_too_many_columns),
        cmocka_unit_test(test_nan_is_seen), cmocka_unit_test(test_low_rank_comes_back),
        cmocka_unit_test(test_warm_start),
    };
    return sn_test_run(tests);
}
