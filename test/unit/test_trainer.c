/* SPDX-License-Identifier: Apache-2.0
 * Any graph, step by step: against gradient descent written down for the same network, micro-
 * batches that add up, predictions, parameters, checkpoints, and answers to what is wrong. */
#include "train/train.h"

#include <math.h>
#include <stdio.h>

#include "unit/sn_test.h"

enum { BATCH = 8, INPUTS = 6, HIDDEN = 5, CLASSES = 3 };

static sn_status build(void *ctx, sn_arena *arena, int64_t samples, double per_step, sn_graph **ret)
{
    sn_graph *g = sn_graph_create(arena, "two layers");
    int x = sn_graph_input(g, "x", SN_F32, SN_SHAPE(samples, INPUTS), 0);
    int labels = sn_graph_input(g, "labels", SN_I32, SN_SHAPE(samples), 0);
    x = sn_graph_linear(g, "one", x, SN_SHAPE(HIDDEN), 1, 0.5, true);
    x = sn_graph_activate(g, "act", x, -1, SN_ACT_TANH);
    x = sn_graph_linear(g, "logits", x, SN_SHAPE(CLASSES), 1, 0.5, true);
    int loss = sn_graph_cross_entropy(g, x, labels, 1 / per_step);
    *ret = g;
    return sn_graph_done(g, loss);
}

static sn_trainer_opts options(void)
{
    return (sn_trainer_opts){.build = build, .batch = BATCH, .seed = 5};
}

static float x[BATCH * INPUTS];
static int32_t labels[BATCH];

static void draw(uint64_t step)
{
    for (int i = 0; i < BATCH; i++) {
        double sum = 0;
        for (int k = 0; k < INPUTS; k++) {
            x[i * INPUTS + k] = (float) sn_hash_normal(1, step, (uint64_t) (i * INPUTS + k));
            sum += (double) x[i * INPUTS + k] * (k % 2 ? 1 : -1);
        }
        labels[i] = sum < -1 ? 0 : sum < 1 ? 1 : 2;
    }
}

static void give(sn_trainer *t)
{
    assert_ok(sn_trainer_input(t, "x", x, sizeof x));
    assert_ok(sn_trainer_input(t, "labels", labels, sizeof labels));
}

/* ---- the same network by hand, in double ---- */

typedef struct hand {
    double w1[HIDDEN][INPUTS], b1[HIDDEN], w2[CLASSES][HIDDEN], b2[CLASSES];
} hand;

static double *flat(hand *h)
{
    return &h->w1[0][0];
}

enum { NUMBERS = sizeof(hand) / sizeof(double) };

static void take(const sn_trainer *t, hand *h)
{
    static const char *const name[] = {"one.w", "one.b", "logits.w", "logits.b"};
    static const int count[] = {HIDDEN * INPUTS, HIDDEN, CLASSES * HIDDEN, CLASSES};
    float buffer[64];
    double *to = flat(h);
    for (int i = 0; i < 4; i++) {
        assert_ok(sn_trainer_get(t, name[i], buffer, count[i]));
        for (int k = 0; k < count[i]; k++)
            *to++ = (double) buffer[k];
    }
}

static double forward(const hand *h, int i, double act[HIDDEN], double p[CLASSES])
{
    double sum = 0;
    for (int j = 0; j < HIDDEN; j++) {
        act[j] = h->b1[j];
        for (int k = 0; k < INPUTS; k++)
            act[j] += h->w1[j][k] * (double) x[i * INPUTS + k];
        act[j] = tanh(act[j]);
    }
    for (int c = 0; c < CLASSES; c++) {
        p[c] = h->b2[c];
        for (int j = 0; j < HIDDEN; j++)
            p[c] += h->w2[c][j] * act[j];
        sum += exp(p[c]);
    }
    for (int c = 0; c < CLASSES; c++)
        p[c] = exp(p[c]) / sum;
    return -log(p[labels[i]]);
}

static double gradient(const hand *h, hand *g)
{
    double loss = 0, act[HIDDEN], p[CLASSES];
    *g = (hand){0};
    for (int i = 0; i < BATCH; i++) {
        loss += forward(h, i, act, p) / BATCH;
        for (int c = 0; c < CLASSES; c++) {
            double d = (p[c] - (c == labels[i])) / BATCH;
            g->b2[c] += d;
            for (int j = 0; j < HIDDEN; j++)
                g->w2[c][j] += d * act[j];
        }
        for (int j = 0; j < HIDDEN; j++) {
            double d = 0;
            for (int c = 0; c < CLASSES; c++)
                d += (p[c] - (c == labels[i])) / BATCH * h->w2[c][j];
            d *= 1 - act[j] * act[j];
            g->b1[j] += d;
            for (int k = 0; k < INPUTS; k++)
                g->w1[j][k] += d * (double) x[i * INPUTS + k];
        }
    }
    return loss;
}

static void adam(hand *h, hand *g, hand *m, hand *v, int step, double lr)
{
    for (int i = 0; i < NUMBERS; i++) {
        double d = flat(g)[i];
        flat(m)[i] = 0.9 * flat(m)[i] + 0.1 * d;
        flat(v)[i] = 0.999 * flat(v)[i] + 0.001 * d * d;
        flat(h)[i] -= lr * (flat(m)[i] / (1 - pow(0.9, step))) /
                      (sqrt(flat(v)[i] / (1 - pow(0.999, step))) + 1e-8);
    }
}

static void check_steps(int64_t accumulation)
{
    sn_trainer *t;
    sn_trainer_opts o = options();
    o.accumulation = accumulation;
    assert_ok(sn_trainer_open(&o, &t));
    assert_int_equal(sn_trainer_parameters(t), NUMBERS);
    hand h, g, m = {0}, v = {0}, now;
    take(t, &h);
    double first = 0, loss = 0, norm, before;
    for (int s = 1; s <= 40; s++) {
        draw((uint64_t) s);
        give(t);
        assert_ok(sn_trainer_loss(t, &before));
        assert_ok(sn_trainer_step(t, 0.05, &loss, &norm));
        double want = gradient(&h, &g), norm2 = 0;
        for (int i = 0; i < NUMBERS; i++)
            norm2 += flat(&g)[i] * flat(&g)[i];
        assert_true(fabs(loss - want) < 1e-4 * want + 1e-5 && before == loss);
        assert_true(fabs(norm - sqrt(norm2)) < 1e-3 * sqrt(norm2) + 1e-5);
        adam(&h, &g, &m, &v, s, 0.05);
        first = s == 1 ? loss : first;
    }
    take(t, &now);
    for (int i = 0; i < NUMBERS; i++)
        assert_true(fabs(flat(&now)[i] - flat(&h)[i]) < 2e-3);
    assert_true(loss < first / 2);
    assert_int_equal(sn_trainer_steps(t), 40);
    sn_trainer_close(t);
}

static void test_steps(void **state)
{
    check_steps(1);
    check_steps(4);
}

static void test_predict(void **state)
{
    sn_trainer *t;
    sn_trainer_opts o = options();
    o.accumulation = 2; /* predictions are of the whole batch all the same */
    assert_ok(sn_trainer_open(&o, &t));
    for (int turn = 0; turn < 3; turn++) {
        float logits[BATCH * CLASSES];
        hand h;
        double act[HIDDEN], p[CLASSES];
        draw((uint64_t) turn);
        give(t);
        assert_ok(sn_trainer_predict(t, logits, BATCH * CLASSES));
        take(t, &h);
        for (int i = 0; i < BATCH; i++) {
            double sum = 0;
            forward(&h, i, act, p);
            for (int c = 0; c < CLASSES; c++)
                sum += exp((double) logits[i * CLASSES + c]);
            for (int c = 0; c < CLASSES; c++)
                assert_true(fabs(exp((double) logits[i * CLASSES + c]) / sum - p[c]) < 1e-5);
        }
        assert_ok(sn_trainer_step(t, 0.1, NULL, NULL)); /* the next ones are of other weights */
    }
    assert_int_equal(sn_trainer_predict(t, NULL, 7), SN_EINVAL);
    sn_trainer_close(t);
}

static void test_save_and_load(void **state)
{
    char dir[] = "/tmp/sn_trainer_XXXXXX", command[64];
    assert_non_null(mkdtemp(dir));
    sn_trainer_opts o = options();
    sn_trainer *a, *b;
    double want, got;
    assert_ok(sn_trainer_open(&o, &a));
    o.seed = 6;
    assert_ok(sn_trainer_open(&o, &b));
    for (uint64_t s = 0; s < 5; s++) {
        draw(s);
        give(a);
        assert_ok(sn_trainer_step(a, 0.05, NULL, NULL));
    }
    assert_ok(sn_trainer_save(a, dir));
    assert_ok(sn_trainer_load(b, dir));
    assert_int_equal(sn_trainer_steps(b), 5);
    for (uint64_t s = 5; s < 8; s++) { /* moments too: they go on alike */
        draw(s);
        give(a);
        give(b);
        assert_ok(sn_trainer_step(a, 0.05, &want, NULL));
        assert_ok(sn_trainer_step(b, 0.05, &got, NULL));
        assert_true(got == want);
    }
    float w[HIDDEN * INPUTS], ones[HIDDEN] = {1, 1, 1, 1, 1};
    assert_ok(sn_trainer_set(b, "one.b", ones, HIDDEN));
    assert_ok(sn_trainer_loss(b, &got));
    assert_true(got != want);
    assert_int_equal(sn_trainer_get(b, "one.v", w, 5), SN_ENOTFOUND);
    assert_non_null(strstr(sn_errmsg(), "one."));
    assert_int_equal(sn_trainer_get(b, "one.w", w, 5), SN_EINVAL);
    sn_trainer_close(a);
    sn_trainer_close(b);
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

static void test_not_finite(void **state)
{
    sn_trainer *t;
    sn_trainer_opts o = options();
    float before[HIDDEN * INPUTS], after[HIDDEN * INPUTS];
    double norm;
    assert_ok(sn_trainer_open(&o, &t));
    draw(1);
    x[3] = INFINITY;
    give(t);
    assert_ok(sn_trainer_get(t, "one.w", before, HIDDEN * INPUTS));
    assert_ok(sn_trainer_step(t, 0.05, NULL, &norm));
    assert_false(isfinite(norm));
    assert_ok(sn_trainer_get(t, "one.w", after, HIDDEN * INPUTS));
    assert_memory_equal(before, after, sizeof before);
    sn_trainer_close(t);
}

static sn_status fails(void *ctx, sn_arena *arena, int64_t samples, double per_step, sn_graph **ret)
{
    return sn_fail(SN_EINVAL, "no such network");
}

static void test_refused(void **state)
{
    sn_trainer *t;
    sn_trainer_opts o = options();
    assert_int_equal(sn_trainer_open(&(sn_trainer_opts){0}, &t), SN_EINVAL);
    o.accumulation = 3;
    assert_int_equal(sn_trainer_open(&o, &t), SN_EFIT);
    o = options();
    o.card = "abacus";
    assert_int_equal(sn_trainer_open(&o, &t), SN_ENOTFOUND);
    o = options();
    o.build = fails;
    assert_true(sn_trainer_open(&o, &t) < 0);
    assert_non_null(strstr(sn_errmsg(), "no such network"));
    o = options();
    assert_ok(sn_trainer_open(&o, &t));
    assert_int_equal(sn_trainer_input(t, "y", x, sizeof x), SN_ENOTFOUND);
    assert_non_null(strstr(sn_errmsg(), "x, labels"));
    assert_int_equal(sn_trainer_input(t, "x", x, 4), SN_EINVAL);
    assert_int_equal(sn_trainer_load(t, "/nonexistent"), SN_ENOTFOUND);
    sn_trainer_close(t);
    sn_trainer_close(NULL);
}

/* ---- states of the graph ---- */

static sn_status build_normed(void *ctx, sn_arena *arena, int64_t samples, double per_step,
                              sn_graph **ret)
{
    sn_graph *g = sn_graph_create(arena, "normed");
    int in = sn_graph_input(g, "x", SN_F32, SN_SHAPE(samples, INPUTS), 0);
    int to = sn_graph_input(g, "labels", SN_I32, SN_SHAPE(samples), 0);
    int y = sn_graph_batch_norm(g, "bn", in, -1, &(sn_batch_norm){.momentum = 0.5});
    y = sn_graph_linear(g, "logits", y, SN_SHAPE(CLASSES), 1, 0.5, true);
    *ret = g;
    return sn_graph_done(g, sn_graph_cross_entropy(g, y, to, 1 / per_step));
}

/* Two micro-batches of one step: the mean moves half of the way to theirs, twice. Looking at the
 * loss moves nothing; a checkpoint brings it back. */
static void running_statistics(void **state)
{
    float mean[INPUTS], again[INPUTS];
    char dir[] = "/tmp/sn-trainer-XXXXXX", command[64];
    sn_trainer_opts o = options();
    sn_trainer *t, *u;
    double loss;
    o.build = build_normed;
    o.accumulation = 2;
    assert_ok(sn_trainer_open(&o, &t));
    draw(3);
    give(t);
    assert_ok(sn_trainer_step(t, 1e-3, NULL, NULL));
    assert_ok(sn_trainer_get(t, "bn.mean", mean, INPUTS));
    for (int c = 0; c < INPUTS; c++) {
        double want = 0;
        for (int half = 0; half < 2; half++) {
            double sum = 0;
            for (int i = 0; i < BATCH / 2; i++)
                sum += (double) x[(half * BATCH / 2 + i) * INPUTS + c] / (BATCH / 2);
            want = (want + sum) / 2;
        }
        assert_true(fabs(want - (double) mean[c]) < 1e-5);
    }
    assert_ok(sn_trainer_loss(t, &loss));
    assert_ok(sn_trainer_get(t, "bn.mean", again, INPUTS));
    assert_memory_equal(mean, again, sizeof mean);
    assert_non_null(mkdtemp(dir));
    assert_ok(sn_trainer_save(t, dir));
    assert_ok(sn_trainer_open(&o, &u));
    assert_ok(sn_trainer_load(u, dir));
    assert_ok(sn_trainer_get(u, "bn.mean", again, INPUTS));
    assert_memory_equal(mean, again, sizeof mean);
    sn_trainer_close(u);
    sn_trainer_close(t);
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps),         cmocka_unit_test(test_predict),
        cmocka_unit_test(test_save_and_load), cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_refused),       cmocka_unit_test(running_statistics),
    };
    return sn_test_run(tests);
}
