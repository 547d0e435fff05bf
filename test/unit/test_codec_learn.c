/* SPDX-License-Identifier: Apache-2.0
 *
 * What error feedback promises: over any number of rounds what was decoded and what is still held
 * back are together what went in; and SGD on a least-squares problem by two workers ends within 1 %
 * of the loss it has without compression, with every codec. */
#include "unit/codec_cases.h"

/* ---- nothing is lost ---- */

static void test_sum_over_rounds(void **state)
{
    enum { N = 1500, ROUNDS = 50 };
    static float x[N], r[N], out[N];
    static double in[N], sent[N], size[N];
    static uint8_t code[4 * N];
    for (size_t k = 0; k < SN_COUNT(vector_codecs); k++) {
        sn_codec c = codec_of(vector_codecs[k]);
        sn_prng rng = {.seed = 20 + k};
        memset(r, 0, sizeof(r));
        memset(in, 0, sizeof(in));
        memset(sent, 0, sizeof(sent));
        memset(size, 0, sizeof(size));
        for (int round = 0; round < ROUNDS; round++) {
            for (int i = 0; i < N; i++) {
                x[i] = number(&rng, false) + 0.02f;
                in[i] += (double) x[i];
                size[i] += fabs((double) x[i] + (double) r[i]);
            }
            sn_codec_encode(&c, x, r, NULL, 0, N, code);
            assert_ok(sn_codec_decode(&c, code, sn_codec_bytes(&c, N), N, false, out));
            for (int i = 0; i < N; i++) {
                sent[i] += (double) out[i];
                size[i] += fabs((double) out[i]);
            }
        }
        for (int i = 0; i < N; i++) {
            double off = fabs(in[i] - sent[i] - (double) r[i]);
            if (off > size[i] * 0x1p-24)
                fail_msg("%s: element %d lost %g of %g", vector_codecs[k], i, off, in[i]);
        }
    }
}

/* ---- least squares: rows a_s with target b_s, two workers with half of them each ---- */

enum { DIM = 256, SIDE = 16, SAMPLES = 1024, WORKERS = 2, BATCH = 16, STEPS = 3000 };

static float rows[SAMPLES][DIM], target[SAMPLES];

static void make_problem(void)
{
    static float truth[DIM];
    for (int d = 0; d < DIM; d++)
        truth[d] = (float) sn_hash_normal(1, 1, (uint64_t) d);
    for (int s = 0; s < SAMPLES; s++) {
        target[s] = (float) (3 * sn_hash_normal(1, 2, (uint64_t) s));
        for (int d = 0; d < DIM; d++) {
            float far = 1.0f / (float) (1 + d % 7);
            rows[s][d] = far * (float) sn_hash_normal(1, 3, (uint64_t) (s * DIM + d));
            target[s] += rows[s][d] * truth[d];
        }
    }
}

static float miss(const float *w, int s)
{
    float sum = -target[s];
    for (int d = 0; d < DIM; d++)
        sum += rows[s][d] * w[d];
    return sum;
}

static double loss(const float *w)
{
    double sum = 0;
    for (int s = 0; s < SAMPLES; s++)
        sum += (double) miss(w, s) * (double) miss(w, s);
    return sum / SAMPLES;
}

static void gradient(const float *w, int worker, int step, float *g)
{
    memset(g, 0, DIM * sizeof(*g));
    for (int b = 0; b < BATCH; b++) {
        int s = worker * (SAMPLES / WORKERS) +
                (int) (sn_hash64(5, (uint64_t) worker, (uint64_t) (step * BATCH + b)) %
                       (SAMPLES / WORKERS));
        float e = miss(w, s) * (2.0f / BATCH);
        for (int d = 0; d < DIM; d++)
            g[d] += e * rows[s][d];
    }
}

static float rate(int step)
{
    return 0.02f / (1 + (float) step / 250);
}

/* mean[d] = what the members decode, averaged. `residual` NULL: without feedback. */
typedef void exchange(const sn_codec *c, float g[WORKERS][DIM], float (*residual)[DIM],
                      float *mean);

static void by_code(const sn_codec *c, float g[WORKERS][DIM], float (*residual)[DIM], float *mean)
{
    static uint8_t code[4 * DIM];
    memset(mean, 0, DIM * sizeof(*mean));
    for (int k = 0; k < WORKERS; k++) {
        sn_codec_encode(c, g[k], residual ? residual[k] : NULL, NULL, 0, DIM, code);
        assert_ok(sn_codec_decode(c, code, sn_codec_bytes(c, DIM), DIM, true, mean));
    }
    for (int d = 0; d < DIM; d++)
        mean[d] /= WORKERS;
}

/* The vector as a square matrix; p and q are what crosses the wire. */
static void by_factors(const sn_codec *c, float g[WORKERS][DIM], float (*residual)[DIM],
                       float *mean)
{
    static float q[SIDE * SN_CODEC_RANK_MAX], q_sum[SIDE * SN_CODEC_RANK_MAX];
    float p[SIDE * SN_CODEC_RANK_MAX], p_sum[SIDE * SN_CODEC_RANK_MAX] = {0};
    int n = SIDE * c->rank;
    if (q[0] == 0)
        for (int i = 0; i < n; i++)
            q[i] = (float) sn_hash_uniform(9, 0, (uint64_t) i) - 0.5f;
    memset(q_sum, 0, sizeof(q_sum));
    for (int k = 0; k < WORKERS; k++) {
        for (int d = 0; d < DIM && residual; d++)
            g[k][d] += residual[k][d];
        sn_codec_lowrank_p(g[k], SIDE, SIDE, c->rank, q, p);
        for (int i = 0; i < n; i++)
            p_sum[i] += p[i];
    }
    sn_codec_orthonormal(p_sum, SIDE, c->rank);
    for (int k = 0; k < WORKERS; k++) {
        sn_codec_lowrank_q(g[k], SIDE, SIDE, c->rank, p_sum, q);
        for (int i = 0; i < n; i++)
            q_sum[i] += q[i] / WORKERS;
    }
    memcpy(q, q_sum, sizeof(q));
    sn_codec_lowrank_m(p_sum, q, SIDE, SIDE, c->rank, mean);
    for (int k = 0; k < WORKERS && residual; k++)
        for (int d = 0; d < DIM; d++)
            residual[k][d] = g[k][d] - mean[d];
}

static double train(const sn_codec *c, exchange *by, bool feedback)
{
    static float w[DIM], g[WORKERS][DIM], residual[WORKERS][DIM], mean[DIM];
    memset(w, 0, sizeof(w));
    memset(residual, 0, sizeof(residual));
    for (int step = 0; step < STEPS; step++) {
        for (int k = 0; k < WORKERS; k++)
            gradient(w, k, step, g[k]);
        by(c, g, feedback ? residual : NULL, mean);
        for (int d = 0; d < DIM; d++)
            w[d] -= rate(step) * mean[d];
    }
    return loss(w);
}

static void test_convergence(void **state)
{
    static const char *const text[] = {
        "bf16",    "fp8_e4m3",  "fp8_e5m2",  "int8",           "int4",           "onebit",
        "ternary", "topk:0.05", "topk:0.02", "topk:0.05+int8", "topk:0.05+int4", "powersgd:2"};
    sn_codec none = codec_of("none");
    make_problem();
    double plain = train(&none, by_code, false);
    for (size_t k = 0; k < SN_COUNT(text); k++) {
        sn_codec c = codec_of(text[k]);
        bool factors = c.kind == SN_CODEC_POWERSGD;
        double got = train(&c, factors ? by_factors : by_code, true);
        print_message("%-15s loss %.4f, without compression %.4f: %+.2f %%\n", text[k], got, plain,
                      100 * (got / plain - 1));
        assert_true(got <= plain * 1.01);
    }
}

/* The test above can fail: without feedback these miss the mark by far. */
static void test_feedback_matters(void **state)
{
    static const char *const text[] = {"topk:0.02", "powersgd:1"};
    sn_codec none = codec_of("none");
    make_problem();
    double plain = train(&none, by_code, false);
    for (size_t k = 0; k < SN_COUNT(text); k++) {
        sn_codec c = codec_of(text[k]);
        bool factors = c.kind == SN_CODEC_POWERSGD;
        double got = train(&c, factors ? by_factors : by_code, false);
        print_message("%-15s without feedback %+.2f %%\n", text[k], 100 * (got / plain - 1));
        assert_true(got > plain * 1.01);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sum_over_rounds),
        cmocka_unit_test(test_convergence),
        cmocka_unit_test(test_feedback_matters),
    };
    return sn_test_run(tests);
}
