/* SPDX-License-Identifier: Apache-2.0
 * The main proof: the split of a job over cards does not change what is computed. */
#include "unit/train_world.h"

#include "unit/train_naive.h"

static double want[STEPS], want_final;

static void close_to(double got, double expected, double relative, const char *what)
{
    if (!(fabs(got - expected) <= relative * fabs(expected)))
        fail_msg("%s: %.9g, expected %.9g (off by %.2g)", what, got, expected,
                 fabs(got - expected) / fabs(expected));
}

static void compute_oracle(void)
{
    world *w = world_create();
    sn_tokens *tokens;
    assert_ok(sn_tokens_open(&w->job, &tokens));
    naive n = naive_open(&w->job, tokens, "ref");
    for (int s = 0; s < STEPS; s++)
        want[s] = naive_step(&n, s);
    want_final = naive_evaluate(&n);
    naive_close(&n);
    sn_tokens_close(tokens);
    world_free(w);
    assert_true(want[STEPS - 1] < want[0] - 0.5); /* it learns */
}

/* Every split, with and without accumulation, against the plain walk on the oracle's kernels. */
static void test_splits(void **state)
{
    compute_oracle();
    world *w = world_create();
    double first_final = NAN;
    for (int split = 0; split < 8; split++) {
        for (int accumulation = 1; accumulation <= 4; accumulation *= 2) {
            world_split(w, 1 + (split & 1), 1 + (split >> 1 & 1), 1 + (split >> 2));
            w->job.accumulation = accumulation;
            w->job.card_kind = split == 0 && accumulation == 1 ? "ref" : "cpu";
            w->job.eval_every = accumulation == 2 ? 7 : 0;
            w->job.eval_samples = 5;
            world_run(w);
            world_clear(world_dir);
            assert_int_equal(w->rows, STEPS);
            for (int s = 0; s < STEPS; s++) {
                char what[96];
                snprintf(what, sizeof what, "loss of step %d, t%d p%d d%d, accumulation %d", s,
                         w->job.tensor, w->job.pipeline, w->job.data_parallel, accumulation);
                close_to(w->loss[s], want[s], 1e-5, what);
            }
            close_to(w->result[0].final_loss, want_final, 1e-5, "final loss");
            if (split == 0 && accumulation == 2)
                first_final = w->result[0].final_loss;
            for (int r = 0; r < world_size(w); r++)
                assert_true(w->result[r].final_loss == w->result[0].final_loss);
        }
    }
    close_to(first_final, want_final, 1e-5, "final loss on one card");
    world_free(w);
}

static void test_bf16(void **state)
{
    world *w = world_create();
    w->job.precision = SN_BF16;
    for (int split = 0; split < 8; split += 7) {
        world_split(w, 1 + (split & 1), 1 + (split >> 1 & 1), 1 + (split >> 2));
        world_run(w);
        world_clear(world_dir);
        close_to(w->loss[STEPS - 1], want[STEPS - 1], 0.02, "bf16 after 20 steps");
        close_to(w->result[0].final_loss, want_final, 0.02, "bf16 final loss");
    }
    world_free(w);
}

/* The evaluation sees each held-out byte once whatever the split and the batch. */
static void test_evaluation(void **state)
{
    world *w = world_create();
    double first = NAN;
    w->job.steps = 1;
    for (int split = 0; split < 8; split++) {
        world_split(w, 1 + (split & 1), 1 + (split >> 1 & 1), 1 + (split >> 2));
        world_run(w);
        world_clear(world_dir);
        if (split == 0)
            first = w->result[0].final_loss;
        close_to(w->result[0].final_loss, first, 1e-6, "evaluation");
    }
    world_free(w);
}

/* A world of one, in this very process: no net, no coll, and nothing left behind (leaks show under
 * the address sanitizer). */
static void test_single(void **state)
{
    world *w = world_create();
    sn_boot *boot;
    sn_train_result result;
    sn_topo *topo = world_topo(1, 1);
    sn_train_opts opts = {.job = &w->job,
                          .topo = topo,
                          .core = -1,
                          .on_step = world_step,
                          .ctx = w,
                          .rank0_metrics = true};
    assert_ok(sn_boot_single(&boot));
    assert_ok(sn_train_worker(boot, NULL, &opts, &result));
    assert_int_equal(result.steps, STEPS);
    close_to(result.final_loss, want_final, 1e-5, "final loss");
    opts.resume = true; /* nothing is left to do but to say so */
    assert_ok(sn_train_worker(boot, NULL, &opts, &result));
    assert_int_equal(result.first_step, STEPS);
    assert_false(result.stopped);
    close_to(result.final_loss, want_final, 1e-5, "final loss again");
    sn_boot_free(boot);
    sn_topo_free(topo);
    world_clear(world_dir);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_splits),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_evaluation),
        cmocka_unit_test(test_single),
    };
    return cmocka_run_group_tests_name(__FILE__, tests, world_setup, world_teardown);
}
