/* SPDX-License-Identifier: Apache-2.0
 * Stopping, saving, resuming, failing. */
#include "unit/train_world.h"

#define HALF (STEPS / 2)

static void nth_split(world *w, int n)
{
    world_split(w, 1 + (n & 1), 1 + (n >> 1 & 1), 1 + (n >> 2 & 1));
}

static void assert_says(const world *w, int rank, const char *words)
{
    if (!strstr(w->error[rank], words))
        fail_msg("rank %d: \"%s\" does not say \"%s\"", rank, w->error[rank], words);
}

static void stop_one(world *w, const sn_step_metrics *row)
{
    if (row->step - 1 == w->trigger) /* of one rank only: the others hear of it through the vote */
        __atomic_store_n(&w->page[w->victim]->stop, 1, __ATOMIC_RELAXED);
}

/* Train the first half in this split: stopped by ^C, so that a checkpoint is left behind. */
static void first_half(world *w)
{
    w->on_step = stop_one;
    w->trigger = HALF - 3; /* rows come one step late, the vote ends the step after it */
    w->victim = world_size(w) - 1;
    w->resume = false;
    world_run(w);
    w->on_step = NULL;
    for (int r = 0; r < world_size(w); r++) {
        assert_true(w->result[r].stopped);
        assert_true(isnan(w->result[r].final_loss));
        assert_int_equal(w->result[r].steps, w->result[0].steps);
    }
}

static void *whole(const sn_ckpt *c, int i, size_t *ret_bytes)
{
    sn_dtype dtype;
    sn_shape shape;
    sn_piece p = {.name = sn_ckpt_tensor(c, i, &dtype, &shape)};
    p.dtype = dtype;
    p.shape = shape;
    memcpy(p.extent, shape.dim, sizeof(p.extent));
    p.flat_count = sn_shape_count(shape);
    *ret_bytes = (size_t) p.flat_count * sn_dtype_bytes(dtype);
    p.data = calloc(1, *ret_bytes + 1);
    assert_ok(sn_ckpt_load(c, &p, 1));
    return p.data;
}

static void assert_same_checkpoint(const char *dir_a, const char *dir_b)
{
    sn_ckpt *a, *b;
    assert_ok(sn_ckpt_find(dir_a, NULL, &a));
    assert_ok(sn_ckpt_find(dir_b, NULL, &b));
    assert_int_equal(sn_ckpt_step(a), sn_ckpt_step(b));
    assert_int_equal(sn_ckpt_tensors(a), sn_ckpt_tensors(b));
    for (int i = 0; i < sn_ckpt_tensors(a); i++) {
        const char *name = sn_ckpt_tensor(a, i, &(sn_dtype){0}, &(sn_shape){0});
        int k = 0;
        while (k < sn_ckpt_tensors(b) &&
               strcmp(name, sn_ckpt_tensor(b, k, &(sn_dtype){0}, &(sn_shape){0})))
            k++;
        assert_true(k < sn_ckpt_tensors(b));
        size_t n, m;
        void *x = whole(a, i, &n), *y = whole(b, k, &m);
        assert_int_equal(n, m);
        if (memcmp(x, y, n))
            fail_msg("%s differs", name);
        free(x);
        free(y);
    }
    sn_ckpt_close(a);
    sn_ckpt_close(b);
}

/* Saved under each split; loaded under each other and written again: every bit is the same, for all
 * 56 pairs. */
static void test_any_to_any(void **state)
{
    world *w = world_create();
    for (int from = 0; from < 8; from++) {
        nth_split(w, from);
        first_half(w);
        for (int k = 1; k < 8; k++) {
            nth_split(w, from + k);
            snprintf(world_copy_dir, sizeof world_copy_dir, "%s_copy", world_dir);
            world_run_fn(w, world_copy);
            for (int r = 0; r < world_size(w); r++)
                assert_int_equal(w->status[r], SN_OK);
            assert_same_checkpoint(world_dir, world_copy_dir);
            world_clear(world_copy_dir);
        }
        world_clear(world_dir);
    }
    world_free(w);
}

/* The interrupted run and its continuation give the losses of the run that was let alone. */
static void test_trajectory(void **state)
{
    world *w = world_create();
    for (int split = 0; split < 8; split += 7) {
        double loss[STEPS];
        nth_split(w, split);
        w->resume = false;
        world_run(w);
        memcpy(loss, w->loss, sizeof loss);
        double final = w->result[0].final_loss;
        world_clear(world_dir);
        first_half(w);
        int64_t done = w->result[0].steps;
        assert_in_range(done, 2, STEPS - 2);
        assert_memory_equal(w->loss, loss, (size_t) done * sizeof(*loss));
        w->resume = true;
        world_run(w);
        assert_int_equal(w->result[0].first_step, done);
        assert_int_equal(w->rows, STEPS - done);
        assert_memory_equal(w->loss + done, loss + done, (size_t) (STEPS - done) * sizeof(*loss));
        assert_true(w->result[0].final_loss == final);
        world_clear(world_dir);
    }
    world_free(w);
}

static void test_other_model(void **state)
{
    world *w = world_create();
    w->job.steps = 2;
    world_run(w);
    w->job.gpt.hidden = 64;
    w->resume = true;
    w->job.steps = 4;
    nth_split(w, 1);
    world_run_fn(w, NULL);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(w->status[r], SN_EMISMATCH);
        assert_says(w, r, "hidden 32 there, 64 in this job");
        assert_says(w, r, world_dir);
    }
    world_clear(world_dir);
    world_free(w);
}

/* ---- what a run leaves in its directory ---- */

static void keep_val(world *w, const sn_step_metrics *row)
{
    if (row->step - 1 == STEPS - 2)
        w->loss[60] = row->val_loss;
}

static void test_run_dir(void **state)
{
    world *w = world_create();
    sn_arena *arena = sn_arena_create();
    sn_step_metrics *row;
    int64_t rows;
    char path[96], *text;
    size_t bytes;
    w->run_dir = world_dir;
    assert_ok(sn_dir_create(world_dir));
    w->job.checkpoint.dir = NULL;
    w->job.eval_every = STEPS - 1;
    w->job.eval_samples = 3;
    w->on_step = keep_val;
    nth_split(w, 6);
    world_run(w);
    assert_true(w->loss[60] > 0); /* evaluated after the last step but one */
    snprintf(path, sizeof path, "%s/metrics.jsonl", world_dir);
    assert_ok(sn_metrics_read(path, arena, &row, &rows));
    assert_int_equal(rows, STEPS);
    for (int64_t s = 0; s < rows; s++) {
        assert_int_equal(row[s].step, s + 1);
        assert_true(row[s].loss == w->loss[s]);
        assert_int_equal(row[s].tokens, w->job.batch * w->job.gpt.sequence);
        assert_true(row[s].flops > 0 && row[s].bytes_net > 0);
        assert_true(isnan(row[s].val_loss) == (s < STEPS - 2)); /* the last: all held-out text */
    }
    snprintf(path, sizeof path, "%s/links.json", world_dir);
    assert_ok(sn_file_read(path, 4096, &text, &bytes));
    assert_non_null(strstr(text, "\"from\": \"h0\", \"to\": \"h1\""));
    for (int r = 0; r < world_size(w); r++) {
        assert_true(w->result[r].link_latency_ns > 0);
        assert_true(w->result[r].link_bytes_per_s == w->result[0].link_bytes_per_s);
    }
    snprintf(path, sizeof path, "%s/checkpoints", world_dir);
    sn_ckpt *c;
    assert_ok(sn_ckpt_find(path, NULL, &c));
    assert_int_equal(sn_ckpt_step(c), STEPS);
    sn_ckpt_close(c);
    free(text);
    sn_arena_free(arena);
    world_clear(world_dir);
    world_free(w);
}

/* ---- failing ---- */

static void kill_one(world *w, const sn_step_metrics *row)
{
    if (row->step - 1 == w->trigger)
        kill(w->pid[w->victim], SIGKILL);
}

static void test_killed(void **state)
{
    world *w = world_create();
    w->on_step = kill_one;
    w->trigger = 4;
    w->job.steps = 60; /* long enough that the victim does not finish first */
    nth_split(w, 7);
    for (w->victim = 0; w->victim < 8; w->victim += 5) {
        char who[32];
        snprintf(who, sizeof who, "rank %d", w->victim);
        sn_time began = sn_now();
        world_run_fn(w, NULL);
        assert_true(sn_now() - began < 15 * SN_SEC); /* not the deadline of a wait: noticed */
        for (int r = 0; r < 8; r++) {
            if (r == w->victim)
                continue;
            if (w->status[r] != SN_EPEER)
                fail_msg("rank %d: %s: %s", r, sn_status_name(w->status[r]), w->error[r]);
            assert_says(w, r, "step ");
        }
        bool named = false;
        for (int r = 0; r < 8; r++)
            named = named || (r != w->victim && strstr(w->error[r], who));
        assert_true(named);
        world_clear(world_dir);
    }
    world_free(w);
}

static void test_disagree(void **state)
{
    world *w = world_create();
    nth_split(w, 1);
    w->odd = w->job;
    w->odd.optimizer.lr *= 2;
    w->odd_rank = 1;
    world_run_fn(w, NULL);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(w->status[r], SN_EMISMATCH);
        assert_says(w, r, "rank 1 (h1) and rank 0 (h0) have different job numbers");
    }
    world_free(w);
}

static void test_diverged(void **state)
{
    world *w = world_create();
    w->job.optimizer.lr = 1e38;
    w->job.optimizer.warmup = 0;
    world_run_fn(w, NULL);
    assert_int_equal(w->status[0], SN_EFAIL);
    assert_says(w, 0, "no finite gradient for 10 steps in a row");
    assert_says(w, 0, "step 1");
    world_clear(world_dir);
    world_free(w);
}

/* The place for checkpoints is no directory until step `trigger`. */
static void free_place(world *w, const sn_step_metrics *row)
{
    if (row->step - 1 == w->trigger)
        unlink(w->job.checkpoint.dir);
}

static void test_unwritable(void **state)
{
    world *w = world_create();
    static char place[64];
    snprintf(place, sizeof place, "%s_place", world_dir);
    w->job.checkpoint.dir = place;
    w->job.checkpoint.every = 5;
    w->on_step = free_place;
    nth_split(w, 4);
    for (w->trigger = 12; w->trigger < 100; w->trigger += 50) {
        FILE *f = fopen(place, "w");
        assert_non_null(f);
        fclose(f);
        world_run_fn(w, NULL);
        if (w->trigger == 12) { /* writable again in time */
            for (int r = 0; r < 2; r++)
                assert_int_equal(w->status[r], SN_OK);
            sn_ckpt *c;
            assert_ok(sn_ckpt_find(place, NULL, &c));
            assert_int_equal(sn_ckpt_step(c), STEPS);
            sn_ckpt_close(c);
            world_clear(place);
        } else { /* the last save is what the run was for */
            for (int r = 0; r < 2; r++) {
                assert_true(w->status[r] < 0);
                assert_says(w, r, "checkpoint of step 20");
            }
            assert_true(w->rows >= STEPS - 1);
        }
    }
    unlink(place);
    world_free(w);
}

static void test_no_data(void **state)
{
    world *w = world_create();
    w->job.data = "/no/such/text";
    nth_split(w, 1);
    world_run_fn(w, NULL);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(w->status[r], SN_ENOTFOUND);
        assert_says(w, r, "/no/such/text does not exist");
    }
    world_free(w);
}

/* What one rank alone cannot do, all say, in its words, and nobody waits for it. */
static void test_one_cannot(void **state)
{
    world *w = world_create();
    nth_split(w, 6);
    w->odd = w->job;
    w->odd.data = "/no/such/text";
    w->odd_rank = 3;
    world_run_fn(w, NULL);
    for (int r = 0; r < 4; r++) {
        assert_int_equal(w->status[r], SN_ENOTFOUND);
        assert_says(w, r, "rank 3 (h1): data /no/such/text does not exist");
    }
    w->odd_rank = -1;
    w->run_dir = "/no/such/run"; /* rank 0 writes metrics there */
    world_run_fn(w, NULL);
    for (int r = 0; r < 4; r++) {
        assert_true(w->status[r] < 0);
        assert_says(w, r, "rank 0 (h0): cannot write /no/such/run/metrics.jsonl");
    }
    world_free(w);
}

/* Any split's checkpoint goes on with the same words on one card. */
static void test_generate(void **state)
{
    world *w = world_create();
    sn_str a = {0}, b = {0};
    world_run(w);
    assert_ok(sn_train_generate(&w->job, world_dir, "the ", 40, 0.8, 3, &a));
    assert_int_equal(a.len, 44);
    assert_memory_equal(a.data, "the ", 4);
    assert_ok(sn_train_generate(&w->job, world_dir, "the ", 40, 0.8, 3, &b));
    assert_string_equal(sn_str_get(&a), sn_str_get(&b));
    sn_str_clear(&b);
    assert_int_equal(sn_train_generate(&w->job, world_dir, "the ", 4, -1, 3, &b), SN_EINVAL);
    assert_ok(
        sn_train_generate(&w->job, world_dir, "the ", 40, 0, 3, &b)); /* the likeliest bytes */
    sn_str_clear(&a);
    assert_ok(sn_train_generate(&w->job, world_dir, "the ", 40, 0, 4, &a)); /* whatever the seed */
    assert_string_equal(sn_str_get(&a), sn_str_get(&b));
    sn_str_clear(&b);
    w->job.gpt.layers = 3;
    assert_int_equal(sn_train_generate(&w->job, world_dir, "the ", 4, 1, 3, &b), SN_EMISMATCH);
    assert_non_null(strstr(sn_errmsg(), "layers 2 there, 3 in this job"));
    w->job.gpt.layers = 2;
    world_clear(world_dir);
    assert_int_equal(sn_train_generate(&w->job, world_dir, "the ", 4, 1, 3, &b), SN_ENOTFOUND);
    nth_split(w, 7);
    world_run(w);
    assert_ok(sn_train_generate(&w->job, world_dir, "", 10, 1, 3, &b));
    assert_int_equal(b.len, 11);
    sn_str_done(&a);
    sn_str_done(&b);
    world_clear(world_dir);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_to_any),  cmocka_unit_test(test_trajectory),
        cmocka_unit_test(test_other_model), cmocka_unit_test(test_run_dir),
        cmocka_unit_test(test_killed),      cmocka_unit_test(test_disagree),
        cmocka_unit_test(test_diverged),    cmocka_unit_test(test_unwritable),
        cmocka_unit_test(test_no_data),     cmocka_unit_test(test_one_cannot),
        cmocka_unit_test(test_generate),
    };
    return cmocka_run_group_tests_name(__FILE__, tests, world_setup, world_teardown);
}
