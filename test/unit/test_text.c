/* SPDX-License-Identifier: Apache-2.0
 * The training text, the n-gram baseline against a naive count, the learning rate, the words of a
 * checkpoint about itself. */
#include "train/parts.h"

#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit/sn_test.h"

static void write_file(const char *path, const char *data, size_t bytes)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

static char *fresh_dir(char path[64])
{
    strcpy(path, "/tmp/sn_text_XXXXXX");
    assert_non_null(mkdtemp(path));
    return path;
}

static void assert_says(const char *words)
{
    if (!strstr(sn_errmsg(), words))
        fail_msg("\"%s\" does not say \"%s\"", sn_errmsg(), words);
}

static void test_open(void **state)
{
    char dir[64], file[128], data[1000];
    fresh_dir(dir);
    snprintf(file, sizeof(file), "%s/a.txt", dir);
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (char) ('a' + i % 26);
    write_file(file, data, sizeof(data));

    sn_text *one, *all;
    assert_ok(sn_text_open(file, 0.05, 16, &one));
    assert_int_equal(sn_text_held_bytes(one), 50);
    assert_int_equal(sn_text_train_bytes(one), 950);
    assert_memory_equal(sn_text_train(one), data, 950);
    assert_memory_equal(sn_text_held(one), data + 950, 50);

    char other[128], skip[128], sub[128];
    snprintf(other, sizeof(other), "%s/b.txt", dir);
    snprintf(skip, sizeof(skip), "%s/c.dat", dir);
    snprintf(sub, sizeof(sub), "%s/d.txt", dir);
    write_file(other, data, 500);
    write_file(skip, data, 500);
    assert_int_equal(mkdir(sub, 0700), 0); /* no regular file */
    assert_ok(sn_text_open(dir, 0.1, 16, &all));
    assert_int_equal(sn_text_train_bytes(all), 1350);
    assert_int_equal(sn_text_held_bytes(all), 150);
    assert_memory_equal(sn_text_train(all) + 1000, data, 350);
    assert_true(sn_text_fingerprint(one) != sn_text_fingerprint(all));
    sn_text_close(one);
    sn_text_close(all);
    rmdir(sub);
    unlink(skip);
    unlink(other);
    unlink(file);
    rmdir(dir);
}

static void test_refuse(void **state)
{
    char dir[64], file[128];
    sn_text *t = NULL;
    fresh_dir(dir);
    snprintf(file, sizeof(file), "%s/a.txt", dir);
    assert_int_equal(sn_text_open(file, 0.05, 16, &t), SN_ENOTFOUND);
    assert_says(file);
    assert_int_equal(sn_text_open("no/such.txt", 0.05, 16, &t), SN_ENOTFOUND);
    assert_says("data /");
    assert_int_equal(sn_text_open(dir, 0.05, 16, &t), SN_EINVAL);
    assert_says("no text in any *.txt file");
    write_file(file, "", 0);
    assert_int_equal(sn_text_open(file, 0.05, 16, &t), SN_EINVAL);
    assert_says("is empty");
    char data[320];
    memset(data, 'x', sizeof(data));
    write_file(file, data, 320); /* 16 held out: one short of a sample */
    assert_int_equal(sn_text_open(file, 0.05, 16, &t), SN_EINVAL);
    assert_says("held-out part has 16 of 320 bytes, one sample of model sequence 16 needs 17");
    assert_int_equal(sn_text_open(file, 0.99, 16, &t), SN_EINVAL);
    assert_says("training part has");
    assert_int_equal(sn_text_open(file, 0, 16, &t), SN_EINVAL);
    assert_int_equal(sn_text_open("/dev/null", 0.05, 16, &t), SN_EINVAL);
    assert_says("neither a regular file nor a directory");
    if (geteuid() != 0) {
        assert_int_equal(chmod(file, 0), 0);
        assert_int_equal(sn_text_open(file, 0.05, 16, &t), SN_EPERM);
        assert_says(file);
    }
    assert_null(t);
    unlink(file);
    rmdir(dir);
}

/* ---- n-grams: count by walking the whole text for every question ---- */

static double naive(const char *train, int n, const char *held, int at, int k)
{
    if (k == 0)
        return 1.0 / 256;
    double lower = naive(train, n, held, at, k - 1);
    if (at - (k - 1) < 0)
        return lower;
    const char *context = held + at - (k - 1);
    int followed = 0, times = 0, seen[256] = {0}, distinct = 0;
    for (int i = k - 1; i < n; i++) {
        if (memcmp(train + i - (k - 1), context, (size_t) (k - 1)))
            continue;
        followed++;
        times += train[i] == held[at];
        distinct += !seen[(uint8_t) train[i]]++;
    }
    return followed ? (times + distinct * lower) / (followed + distinct) : lower;
}

static void test_ngram(void **state)
{
    sn_prng p = {.seed = 7};
    for (int round = 0; round < 12; round++) {
        char train[400], held[60];
        int n = 1 + (int) sn_prng_below(&p, 399), letters = 2 + (int) sn_prng_below(&p, 6);
        for (int i = 0; i < n; i++)
            train[i] = (char) ('a' + sn_prng_below(&p, letters));
        for (size_t i = 0; i < sizeof(held); i++)
            held[i] = (char) ('a' + sn_prng_below(&p, letters + 1)); /* one letter never seen */
        for (int order = 1; order <= 8; order++) {
            double want = 0, got = 0;
            for (int i = 1; i < (int) sizeof(held); i++)
                want -= log(naive(train, n, held, i, order));
            assert_ok(
                sn_ngram_loss((uint8_t *) train, n, (uint8_t *) held, sizeof(held), order, &got));
            want /= (double) (sizeof(held) - 1);
            if (fabs(want - got) > 1e-12 * want)
                fail_msg("round %d, %d bytes, order %d: %.15g, naive %.15g", round, n, order, got,
                         want);
        }
    }
    double got;
    assert_int_equal(sn_ngram_loss((const uint8_t *) "a", 1, (const uint8_t *) "b", 1, 3, &got),
                     SN_EINVAL);
    assert_int_equal(sn_ngram_loss((const uint8_t *) "a", 1, (const uint8_t *) "bb", 2, 9, &got),
                     SN_EINVAL);
}

static void test_lr(void **state)
{
    sn_job job = {.steps = 100, .optimizer = {.lr = 1, .lr_min = 0.1, .warmup = 10}};
    assert_true(sn_job_lr(&job, 0) == 0.1);
    assert_true(sn_job_lr(&job, 9) == 1);
    assert_true(sn_job_lr(&job, 10) == 1);
    assert_true(fabs(sn_job_lr(&job, 99) - 0.1) < 1e-12);
    for (int64_t s = 10; s < 99; s++)
        assert_true(sn_job_lr(&job, s + 1) < sn_job_lr(&job, s));
    job.optimizer.warmup = 0;
    assert_true(sn_job_lr(&job, 0) == 1);
    job.steps = 1;
    assert_true(sn_job_lr(&job, 0) == 1);
}

/* The last steps before a checkpoint come back; those of other steps and NaN do not trouble. */
static void test_past(void **state)
{
    static sn_page page, back;
    for (int64_t step = 0; step < 100; step++) {
        page.loss = step == 98 ? NAN : 2 + 0.1 * (double) step;
        page.tokens = 1000 + step;
        page.val_loss = 1.5;
        page.val_step = 100;
        sn_page_step_done(&page, step);
    }
    sn_job job = {.gpt = {2, 32, 4, 16, 256, 0}};
    sn_str text = {0};
    train_meta_write(&job, 42, &(train_meta){.step = 100}, &page, &text);
    train_meta_past(sn_str_get(&text), 100, &back);
    sn_page_step s;
    assert_true(sn_page_step_read(&back, 99, &s) && s.loss == 2 + 0.1 * 99 && s.val_loss == 1.5);
    assert_true(sn_page_step_read(&back, 98, &s) && isnan(s.loss) && s.tokens == 1098);
    assert_true(sn_page_step_read(&back, 36, &s) && isnan(s.val_loss));
    assert_false(sn_page_step_read(&back, 35, &s));
    memset(&back, 0, sizeof(back));
    train_meta_past("{\"past\": [[-3], 7, [\"x\"], [1e300, 2], [120, 1]]}", 100, &back);
    train_meta_past("no JSON", 100, &back);
    assert_false(sn_page_step_read(&back, 120, &s));
    sn_str_done(&text);
}

static void test_meta(void **state)
{
    sn_job job = {.gpt = {2, 32, 4, 16, 256, 0},
                  .steps = 50,
                  .batch = 8,
                  .seed = UINT64_MAX,
                  .optimizer = {.lr = 3e-3}};
    train_meta was = {.step = 7, .tokens = 1000, .skipped = 1}, got = {0};
    sn_str text = {0}, notes = {0};
    train_meta_write(&job, 42, &was, NULL, &text);
    assert_ok(train_meta_read(sn_str_get(&text), &job, 42, &got, &notes));
    assert_memory_equal(&was, &got, sizeof(was));
    assert_string_equal(sn_str_get(&notes), "");
    job.gpt.mlp = 128; /* the default, written out */
    job.optimizer.lr = 1e-3;
    job.steps = 60;
    assert_ok(train_meta_read(sn_str_get(&text), &job, 43, &got, &notes));
    assert_string_equal(sn_str_get(&notes),
                        "the text is another one; steps was 50, is 60; lr was 0.003, is 0.001");
    job.gpt.hidden = 64;
    job.gpt.layers = 3;
    assert_int_equal(train_meta_read(sn_str_get(&text), &job, 42, &got, &notes), SN_EMISMATCH);
    assert_says("layers 2 there, 3 in this job; hidden 32 there, 64 in this job");
    assert_int_equal(train_meta_read("{\"step\": 1", &job, 42, &got, &notes), SN_ECORRUPT);
    assert_int_equal(train_meta_read("{\"x\": 1}", &job, 42, &got, &notes), SN_ECORRUPT);
    sn_str_done(&text);
    sn_str_done(&notes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open), cmocka_unit_test(test_refuse), cmocka_unit_test(test_ngram),
        cmocka_unit_test(test_lr),   cmocka_unit_test(test_past),
        cmocka_unit_test(test_meta),
    };
    return sn_test_run(tests);
}
