/* SPDX-License-Identifier: Apache-2.0
 * What a step learns from: the shuffled order, that splits and restarts see the same samples, the
 * file of ids, texts in many files, reading ahead. */
#include "train/parts.h"

#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/os.h"
#include "unit/train_world.h"

/* ---- order ---- */

static void test_permute(void **state)
{
    static uint8_t seen[5000];
    static const uint64_t size[] = {1, 2, 3, 4, 5, 16, 17, 63, 64, 65, 257, 1000, 4096, 4999};
    for (size_t s = 0; s < SN_COUNT(size); s++)
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            memset(seen, 0, sizeof seen);
            for (uint64_t i = 0; i < size[s]; i++) {
                uint64_t at = train_permute(7, epoch, size[s], i);
                assert_true(at < size[s]);
                assert_int_equal(seen[at]++, 0);
            }
        }
    for (uint64_t i = 0; i < 100; i++) /* larger than can be held */
        assert_true(train_permute(1, 2, UINT64_C(1) << 62, i * i) < UINT64_C(1) << 62);
}

/* It shuffles: neighbours end up apart as often as chance says, and epochs and seeds differ. */
static void test_shuffled(void **state)
{
    enum { N = 4000 };
    double apart = 0;
    int same_epoch = 0, same_seed = 0;
    for (uint64_t i = 0; i + 1 < N; i++) {
        uint64_t a = train_permute(3, 0, N, i), b = train_permute(3, 0, N, i + 1);
        apart += fabs((double) a - (double) b) / (N - 1);
        same_epoch += a == train_permute(3, 1, N, i);
        same_seed += a == train_permute(4, 0, N, i);
    }
    apart /= N - 1;
    assert_true(apart > 0.32 && apart < 0.345); /* a third */
    assert_true(same_epoch < 12 && same_seed < 12);
}

/* ---- samples ---- */

typedef struct card { /* one card's inputs */
    train_input input[2];
    train_feed feed;
    int32_t ids[4096], targets[4096];
} card;

static card *card_of(int data, int64_t samples, int64_t micro_batch, int64_t sequence)
{
    card *c = calloc(1, sizeof *c);
    c->input[0] = (train_input){.at = c->ids, .samples = samples};
    c->input[1] = (train_input){.at = c->targets, .samples = samples, .targets = true};
    c->feed = (train_feed){.inputs = 2,
                           .input = c->input,
                           .data = data,
                           .sequence = sequence,
                           .micro_batch = micro_batch};
    return c;
}

static sn_tokens *open_tokens(const sn_job *job)
{
    sn_tokens *t;
    assert_ok(sn_tokens_open(job, &t));
    return t;
}

/* An epoch takes each window once; targets are the ids one on. */
static void test_epoch(void **state)
{
    world *w = world_create();
    w->job.gpt.sequence = 16;
    sn_tokens *t = open_tokens(&w->job);
    const uint8_t *text = sn_text_train(sn_tokens_text(t));
    int64_t n = sn_tokens_train(t), windows = (n - 16) / 16;
    uint8_t *seen = calloc(1, (size_t) n);
    card *c = card_of(0, 1, 1, 16);
    for (int64_t k = 0; k < windows; k++) {
        train_feed_step(&c->feed, t, 5, windows + k); /* of the second epoch */
        int64_t at = -1, found = 0;
        for (int i = 0; i < 15; i++)
            assert_int_equal(c->targets[i], c->ids[i + 1]);
        for (int64_t o = 0; o + 16 < n && found < 1; o++) { /* where does it stand? */
            bool here = !seen[o];
            for (int i = 0; i < 16 && here; i++)
                here = text[o + i] == c->ids[i];
            here = here && text[o + 16] == c->targets[15];
            if (here)
                at = o, found++;
        }
        assert_true(at >= 0);
        seen[at] = 1;
    }
    free(seen);
    free(c);
    sn_tokens_close(t);
    world_free(w);
}

/* Sample j of data rank d is sample d·local + j of one card. */
static void test_shards(void **state)
{
    world *w = world_create();
    sn_tokens *t = open_tokens(&w->job);
    card *one = card_of(0, 8, 8, 16);
    for (int64_t first = 0; first < 80; first += 8) {
        train_feed_step(&one->feed, t, 9, first);
        for (int d = 0; d < 4; d++) {
            card *part = card_of(d, 2, 8, 16);
            train_feed_step(&part->feed, t, 9, first);
            for (int p = 0; p < 16; p++)
                for (int j = 0; j < 2; j++) {
                    assert_int_equal(part->ids[p * 2 + j], one->ids[p * 8 + d * 2 + j]);
                    assert_int_equal(part->targets[p * 2 + j], one->targets[p * 8 + d * 2 + j]);
                }
            free(part);
        }
    }
    free(one);
    sn_tokens_close(t);
    world_free(w);
}

static void test_prefetch(void **state)
{
    world *w = world_create();
    sn_tokens *t = open_tokens(&w->job);
    for (int depth = 1; depth <= 5; depth += 2) {
        card *ahead = card_of(1, 4, 8, 16), *plain = card_of(1, 4, 8, 16);
        train_prefetch *p;
        assert_ok(train_prefetch_open(&ahead->feed, t, 9, 24, 8, 40, depth, &p));
        for (int64_t k = 0; k < 40; k++) {
            assert_ok(train_prefetch_take(p, sn_now() + 10 * SN_SEC));
            train_feed_step(&plain->feed, t, 9, 24 + k * 8);
            assert_memory_equal(ahead->ids, plain->ids, sizeof plain->ids);
            assert_memory_equal(ahead->targets, plain->targets, sizeof plain->targets);
        }
        assert_int_equal(train_prefetch_take(p, sn_now()), SN_ETIME); /* there are no more */
        train_prefetch_close(p);
        assert_ok(train_prefetch_open(&ahead->feed, t, 9, 0, 8, 40, depth, &p));
        train_prefetch_close(p); /* with batches left */
        free(ahead);
        free(plain);
    }
    sn_tokens_close(t);
    world_free(w);
}

/* Whole jobs: the same losses with the thread, and after a stop under another split. */
static void test_job_prefetch(void **state)
{
    world *w = world_create();
    world_run(w);
    world_clear(world_dir);
    double want[STEPS];
    memcpy(want, w->loss, sizeof want);
    w->job.prefetch = 3;
    w->job.steps = 10;
    world_split(w, 1, 1, 2);
    world_run(w);
    for (int s = 0; s < 4; s++)
        assert_true(fabs(w->loss[s] - want[s]) <= 1e-5 * want[s]);
    w->job.steps = STEPS;
    w->resume = true;
    world_split(w, 2, 1, 1);
    world_run(w);
    world_clear(world_dir);
    assert_int_equal(w->rows, STEPS - 10);
    world_free(w);
}

/* ---- the file of ids ---- */

static const char *tokenizer_of(const sn_job *job, char path[96])
{
    sn_tokens *bytes = open_tokens(job);
    const sn_text *text = sn_tokens_text(bytes);
    sn_token *token;
    sn_str out = {0};
    snprintf(path, 96, "%s.tok.json", world_dir);
    assert_ok(sn_token_train(sn_text_train(text), sn_text_train_bytes(text), 280, &token));
    sn_token_write(token, &out);
    assert_ok(sn_file_write(path, sn_str_get(&out), out.len));
    sn_str_done(&out);
    sn_token_free(token);
    sn_tokens_close(bytes);
    return path;
}

static void ids_file(char out[160], bool remove)
{
    const char *base = strrchr(world_text, '/') + 1;
    DIR *d = opendir("/tmp");
    out[0] = 0;
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] == '.' && !strncmp(e->d_name + 1, base, strlen(base)))
            snprintf(out, 160, "/tmp/%.150s", e->d_name);
    closedir(d);
    if (remove && out[0])
        unlink(out);
}

/* Held-out text decodes to itself, each byte is counted once, and the file is written once. */
static void test_ids(void **state)
{
    world *w = world_create();
    char path[96], file[160];
    struct stat before, after;
    w->job.tokenizer = tokenizer_of(&w->job, path);
    sn_tokens *t;
    assert_int_equal(sn_tokens_open(&w->job, &t), SN_EFIT); /* vocab 256 */
    w->job.gpt.vocab = 280;
    t = open_tokens(&w->job);
    const sn_text *text = sn_tokens_text(t);
    int64_t n = sn_tokens_held(t), at = 0;
    assert_true(n < sn_text_held_bytes(text) * 4 / 5);
    assert_int_equal(sn_tokens_bytes(t, true, 0, n), sn_text_held_bytes(text));
    assert_int_equal(sn_tokens_bytes(t, false, 0, sn_tokens_train(t)), sn_text_train_bytes(text));
    for (int64_t i = 0; i < n; i++) {
        int32_t id;
        int64_t bytes;
        sn_tokens_read(t, true, i, 1, &id, 1);
        const uint8_t *piece = sn_token_text(sn_tokens_tokenizer(t), id, &bytes);
        assert_memory_equal(piece, sn_text_held(text) + at, (size_t) bytes);
        at += bytes;
    }
    sn_tokens_close(t);
    ids_file(file, false);
    assert_int_equal(stat(file, &before), 0);
    sn_tokens_close(open_tokens(&w->job));
    assert_int_equal(stat(file, &after), 0);
    assert_true(before.st_ino == after.st_ino);

    int fd = open(file, O_WRONLY); /* not what was written: made anew */
    assert_int_equal(pwrite(fd, "\xff\xff", 2, 300), 2);
    close(fd);
    sn_tokens_close(open_tokens(&w->job));
    assert_int_equal(stat(file, &after), 0);
    assert_true(before.st_ino != after.st_ino);
    assert_int_equal(truncate(file, 40), 0);
    sn_tokens_close(open_tokens(&w->job));
    ids_file(file, true);

    w->job.data_cache = "/dev/null/x";
    assert_true(sn_tokens_open(&w->job, &t) < 0);
    w->job.data_cache = world_dir;
    sn_tokens_close(open_tokens(&w->job));
    ids_file(file, false);
    assert_string_equal(file, "");
    unlink(path);
    world_free(w);
}

/* A job on ids learns, and two splits of it agree. */
static void test_job_tokenizer(void **state)
{
    world *w = world_create();
    char path[96], file[160];
    w->job.tokenizer = tokenizer_of(&w->job, path);
    w->job.gpt.vocab = 288; /* more than there are: as good */
    world_run(w);
    world_clear(world_dir);
    double want[STEPS], final = w->result[0].final_loss;
    memcpy(want, w->loss, sizeof want);
    assert_true(want[STEPS - 1] < want[0] - 0.3);
    world_split(w, 2, 1, 2);
    world_run(w);
    for (int s = 0; s < STEPS; s++)
        assert_true(fabs(w->loss[s] - want[s]) <= 1e-5 * want[s]);
    assert_true(fabs(w->result[0].final_loss - final) <= 1e-5 * final);
    sn_str out = {0};
    assert_ok(sn_train_generate(&w->job, world_dir, "the light", 40, 0, 1, &out));
    assert_true(out.len >= 49 && !strncmp(sn_str_get(&out), "the light", 9));
    sn_str_done(&out);
    ids_file(file, true);
    unlink(path);
    world_free(w);
}

/* ---- more than is read into memory ---- */

static void big_file(const char *path, int64_t bytes, char mark)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_int_equal(ftruncate(fd, bytes), 0); /* a hole: costs no disk */
    assert_int_equal(pwrite(fd, &mark, 1, 0), 1);
    assert_int_equal(pwrite(fd, &mark, 1, bytes - 1), 1);
    close(fd);
}

static void test_mapped(void **state)
{
    char path[96];
    snprintf(path, sizeof path, "%s.big", world_dir);
    int64_t bytes = TRAIN_COPY_BYTES_MAX + 12345;
    big_file(path, bytes, 'a');
    sn_text *t;
    assert_ok(sn_text_open(path, 0.05, 16, &t));
    assert_true(sn_text_mapped(t));
    assert_int_equal(sn_text_train_bytes(t) + sn_text_held_bytes(t), bytes);
    uint64_t was = sn_text_fingerprint(t);
    sn_text_close(t);
    big_file(path, bytes, 'b'); /* both ends are among the places looked at */
    assert_ok(sn_text_open(path, 0.05, 16, &t));
    assert_true(sn_text_fingerprint(t) != was);
    sn_text_close(t);
    unlink(path);
}

static void test_joined(void **state)
{
    char dir[64], a[96], b[96];
    snprintf(dir, sizeof dir, "%s.many", world_dir);
    assert_int_equal(mkdir(dir, 0700), 0);
    snprintf(a, sizeof a, "%s/a.txt", dir);
    snprintf(b, sizeof b, "%s/b.txt", dir);
    int64_t half = TRAIN_COPY_BYTES_MAX / 2 + 7;
    big_file(a, half, 'a');
    big_file(b, half, 'b');
    for (int turn = 0; turn < 2; turn++) { /* made, then found */
        sn_text *t;
        assert_ok(sn_text_open(dir, 0.05, 16, &t));
        assert_true(sn_text_mapped(t));
        assert_int_equal(sn_text_train_bytes(t) + sn_text_held_bytes(t), 2 * half);
        assert_int_equal(sn_text_train(t)[half - 1], 'a');
        assert_int_equal(sn_text_train(t)[half], 'b');
        sn_text_close(t);
    }
    world_clear(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_permute),  cmocka_unit_test(test_shuffled),
        cmocka_unit_test(test_epoch),    cmocka_unit_test(test_shards),
        cmocka_unit_test(test_prefetch), cmocka_unit_test(test_job_prefetch),
        cmocka_unit_test(test_ids),      cmocka_unit_test(test_job_tokenizer),
        cmocka_unit_test(test_mapped),   cmocka_unit_test(test_joined),
    };
    return cmocka_run_group_tests_name(__FILE__, tests, world_setup, world_teardown);
}
