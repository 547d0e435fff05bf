/* SPDX-License-Identifier: Apache-2.0
 *
 * The flight recorder: what was written is read, while it is written, after kill -9, and out of
 * damaged files; and who waits for whom. */
#include "mon/mon.h"
#include "mon/recorder_file.h"
#include "os/os.h"
#include "unit/sn_test.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- a directory for each test ---- */

typedef struct place {
    char dir[64];
    sn_arena *arena;
} place;

static void clear(const char *dir)
{
    char path[128];
    for (int r = 0; r < 8; r++) {
        snprintf(path, sizeof(path), "%s/recorder-%d.bin", dir, r);
        unlink(path);
        snprintf(path, sizeof(path), "%s/recorder-%d.previous.bin", dir, r);
        unlink(path);
    }
}

static int setup(void **state)
{
    place *p = sn_alloc(sizeof(*p));
    snprintf(p->dir, sizeof(p->dir), "/tmp/sn-recorder-XXXXXX");
    p->arena = sn_arena_create();
    *state = p;
    return mkdtemp(p->dir) == NULL;
}

static int teardown(void **state)
{
    place *p = *state;
    clear(p->dir);
    rmdir(p->dir);
    sn_arena_free(p->arena);
    free(p);
    return 0;
}

static sn_recorder *recorder(const place *p, int rank, int world)
{
    sn_recorder *r = NULL;
    sn_recorder_opts opts = {.rank = rank, .world = world, .host = rank < 2 ? "h0" : "h1"};
    assert_ok(sn_recorder_create(p->dir, &opts, &r));
    sn_recorder_word(r, 0, "all_reduce");
    sn_recorder_word(r, 1, "all_gather");
    sn_recorder_word(r, 2, "receive from");
    sn_recorder_word(r, 3, "sum");
    return r;
}

static sn_recordings read_all(const place *p, int64_t keep)
{
    sn_recordings all;
    assert_ok(sn_recordings_read(p->dir, false, keep, p->arena, &all));
    return all;
}

/* Every field follows from the number, so that a mixture shows. */
static sn_record_what pattern(uint64_t n, int group)
{
    return (sn_record_what){.op = n & 1,
                            .red = 3,
                            .algorithm = SN_RECORDER_NO_WORD,
                            .dtype = n % 7,
                            .group = group,
                            .peer = (int32_t) (n % 1000),
                            .seq = n,
                            .count = n * 3,
                            .blocks = (uint32_t) (n % 65536) + 1};
}

static bool fits(const sn_recorded *op)
{
    uint64_t n = op->number;
    return op->seq == n && op->count == n * 3 &&
           op->bytes == n * 3 * (n % 65536 + 1) * sn_dtype_bytes((sn_dtype) (n % 7)) &&
           op->peer == (int) (n % 1000) && op->dtype == (int) (n % 7) &&
           strcmp(op->op, n & 1 ? "all_gather" : "all_reduce") == 0;
}

static uint64_t post(sn_recorder *r, int op, int group, uint64_t seq, sn_record_state state)
{
    sn_record_what what = {.op = (uint8_t) op,
                           .red = SN_RECORDER_NO_WORD,
                           .algorithm = SN_RECORDER_NO_WORD,
                           .group = group,
                           .peer = -1,
                           .seq = seq,
                           .count = 16,
                           .blocks = 1};
    return sn_recorder_post(r, &what, state, sn_recorder_now(r));
}

/* ---- the ring ---- */

static void test_wraps(void **state)
{
    const place *p = *state;
    enum { N = 25003 };
    sn_recorder *r = recorder(p, 0, 1);
    int members[] = {0}, g = sn_recorder_group(r, 1, "data[s0,t1]", members, 1, 0);
    sn_time from = sn_now();
    for (uint64_t n = 1; n <= N; n++) {
        sn_record_what what = pattern(n, g);
        sn_recorder_step(r, (int64_t) n / 100);
        uint64_t number = sn_recorder_post(r, &what, SN_RECORD_POSTED, sn_recorder_now(r));
        assert_int_equal(number, n);
        sn_recorder_start(r, number);
        sn_recorder_end(r, number, n % 50 ? SN_OK : SN_ETIME);
    }
    sn_time to = sn_now();
    sn_recorder_end(r, 1, SN_OK); /* long overwritten: nobody's record changes */
    sn_recordings all = read_all(p, SN_RECORDER_RECORDS);
    const sn_recording *rec = all.rank[0];
    assert_int_equal(rec->ops, SN_RECORDER_RECORDS);
    assert_int_equal(rec->total, N);
    assert_true(SN_RECORDER_RECORDS >= 10000);
    for (int64_t i = 0; i < rec->ops; i++) {
        const sn_recorded *op = &rec->op[i];
        assert_int_equal(op->number, N - SN_RECORDER_RECORDS + 1 + i);
        assert_true(fits(op));
        assert_int_equal(op->state, op->number % 50 ? SN_RECORD_DONE : SN_RECORD_FAILED);
        assert_int_equal(op->status, op->number % 50 ? SN_OK : SN_ETIME);
        assert_int_equal(op->step, op->number / 100);
        assert_true(op->posted <= op->started && op->started <= op->ended);
        assert_true(op->posted > from - SN_MS && op->ended < to + SN_MS);
    }
    assert_string_equal(rec->group[g].name, "data[s0,t1]");
    assert_int_equal(rec->group[g].posted, N);
    sn_recordings_done(&all);
    sn_recorder_close(r, SN_OK, NULL);
}

/* What is under way is kept however old; a group's place serves again after it was left. */
static void test_keeps_open_ones(void **state)
{
    const place *p = *state;
    sn_recorder *r = recorder(p, 0, 2);
    int both[] = {0, 1}, first = sn_recorder_group(r, 1, "a", both, 2, 0);
    uint64_t open = post(r, 0, first, 1, SN_RECORD_STARTED);
    for (uint64_t n = 2; n < 1000; n++)
        sn_recorder_end(r, post(r, 1, first, n, SN_RECORD_STARTED), SN_OK);
    sn_recorder_wait(r, open, 1);
    sn_recordings all = read_all(p, 10);
    assert_int_equal(all.rank[0]->ops, 11);
    assert_ptr_equal(all.rank[0]->wait, &all.rank[0]->op[0]);
    assert_int_equal(all.rank[0]->wait_for, 1);
    assert_null(all.rank[1]);
    sn_recordings_done(&all);
    for (uint32_t id = 2; id <= SN_RECORDER_GROUPS; id++)
        assert_true(sn_recorder_group(r, id, "b", both, 2, 0) >= 0);
    assert_int_equal(sn_recorder_group(r, 500, "c", both, 2, 0), SN_RECORDER_OTHER);
    sn_recorder_group_left(r, first);
    assert_int_equal(sn_recorder_group(r, 501, "c", both, 2, 0), first);
    all = read_all(p, 10);
    assert_int_equal(all.rank[0]->op[0].group, SN_RECORDER_OTHER); /* not of group c */
    sn_recordings_done(&all);
    sn_recorder_close(r, SN_OK, NULL);
}

static void test_off(void **state)
{
    const place *p = *state;
    sn_recorder *r = NULL;
    sn_recordings all;
    sn_recorder_opts opts = {.world = 1};
    sn_record_what what = {0};
    assert_int_equal(sn_recorder_post(NULL, &what, SN_RECORD_POSTED, 0), 0);
    sn_recorder_start(NULL, 0);
    sn_recorder_end(NULL, 0, SN_OK);
    sn_recorder_wait(NULL, 0, -1);
    sn_recorder_step(NULL, 1);
    sn_recorder_doing(NULL, "x");
    sn_recorder_word(NULL, 0, "x");
    sn_recorder_attempt(NULL, 1);
    sn_recorder_close(NULL, SN_OK, NULL);
    assert_true(sn_recorder_create("/nowhere/at/all", &opts, &r) < 0);
    assert_non_null(strstr(sn_errmsg(), "/nowhere/at/all"));
    assert_int_equal(sn_recordings_read("/nowhere/at/all", false, 1, p->arena, &all), SN_ENOTFOUND);
    assert_int_equal(sn_recordings_read(p->dir, false, 1, p->arena, &all), SN_ENOTFOUND);
}

/* A new start puts the old file aside; files of different attempts are not mixed. */
static void test_attempts(void **state)
{
    const place *p = *state;
    sn_recordings all;
    for (uint64_t attempt = 1; attempt <= 2; attempt++) {
        for (int rank = 0; rank < (attempt == 1 ? 3 : 2); rank++) {
            sn_recorder *r = recorder(p, rank, 3);
            sn_recorder_attempt(r, attempt);
            sn_recorder_step(r, (int64_t) attempt);
            sn_recorder_close(r, attempt == 1 ? SN_EPEER : SN_OK, "rank 2 was\nkilled");
        }
    }
    all = read_all(p, 10);
    assert_int_equal(all.rank[0]->step, 2);
    assert_int_equal(all.rank[1]->step, 2);
    assert_null(all.rank[2]);
    assert_non_null(strstr(sn_str_get(&all.notes), "rank 2: its recording is of another attempt"));
    sn_recordings_done(&all);
    assert_ok(sn_recordings_read(p->dir, true, 10, p->arena, &all));
    assert_int_equal(all.rank[0]->step, 1);
    assert_int_equal(all.rank[0]->alive, SN_ALIVE_LEFT);
    assert_int_equal(all.rank[0]->left_status, SN_EPEER);
    assert_string_equal(all.rank[0]->left_why, "rank 2 was killed");
    sn_recordings_done(&all);
}

/* ---- other processes ---- */

/* A child that calls body(recorder), says so, and stays until it is killed. */
static pid_t child(const place *p, int rank, int world, void (*body)(sn_recorder *), int *ret_fd)
{
    int pipes[2];
    char byte;
    assert_int_equal(pipe(pipes), 0);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        body(recorder(p, rank, world));
        if (write(pipes[1], "x", 1) == 1)
            pause();
        _exit(0);
    }
    close(pipes[1]);
    if (ret_fd != NULL) { /* does not end: the caller does not wait for it */
        *ret_fd = pipes[0];
        return pid;
    }
    assert_int_equal(read(pipes[0], &byte, 1), 1);
    close(pipes[0]);
    return pid;
}

static void die(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void forty_two(sn_recorder *r)
{
    int members[] = {0}, g = sn_recorder_group(r, 1, "g", members, 1, 0);
    for (uint64_t n = 1; n <= 42; n++) {
        sn_record_what what = pattern(n, g);
        sn_recorder_post(r, &what, SN_RECORD_DONE, sn_recorder_now(r));
    }
    sn_recorder_step(r, 7);
    sn_recorder_doing(r, "computing");
}

static void test_killed(void **state)
{
    const place *p = *state;
    static const sn_alive how[] = {SN_ALIVE_RUNNING, SN_ALIVE_STOPPED, SN_ALIVE_DEAD};
    pid_t pid = child(p, 0, 1, forty_two, NULL);
    for (int i = 0; i < 3; i++) {
        if (i == 1) {
            kill(pid, SIGSTOP);
            waitpid(pid, NULL, WUNTRACED);
        } else if (i == 2) {
            die(pid);
        }
        sn_recordings all = read_all(p, 100);
        const sn_recording *rec = all.rank[0];
        assert_int_equal(rec->alive, how[i]);
        assert_int_equal(rec->pid, i < 2 ? pid : 0);
        assert_int_equal(all.live, i < 2);
        assert_int_equal(rec->ops, 42);
        for (int64_t k = 0; k < rec->ops; k++)
            assert_true(fits(&rec->op[k]));
        assert_int_equal(rec->step, 7);
        assert_string_equal(rec->doing, "computing");
        assert_string_equal(rec->host, "h0");
        sn_recordings_done(&all);
    }
}

static void endless(sn_recorder *r)
{
    int members[] = {0}, g = sn_recorder_group(r, 1, "g", members, 1, 0);
    for (uint64_t n = 1;; n++) {
        sn_record_what what = pattern(n, g);
        uint64_t number = sn_recorder_post(r, &what, SN_RECORD_POSTED, sn_recorder_now(r));
        sn_recorder_start(r, number);
        sn_recorder_end(r, number, SN_OK);
        sn_recorder_doing(r, n & 1 ? "aaaaaaaaaaaaaaaaaaaaaaaaa" : "bbbbbbbbbbbbbb");
    }
}

/* Whatever is read while it is written is whole. */
static void test_read_while_written(void **state)
{
    const place *p = *state;
    int fd;
    int64_t seen = 0, before = 0;
    pid_t pid = child(p, 0, 1, endless, &fd);
    char path[128];
    struct stat st;
    snprintf(path, sizeof(path), "%s/recorder-0.bin", p->dir);
    sn_time deadline = sn_now() + 10 * SN_SEC;
    while (stat(path, &st) && sn_now() < deadline)
        sched_yield();
    for (int i = 0; i < 60 || (seen < 20 && sn_now() < deadline); i++) {
        sn_recordings all = read_all(p, SN_RECORDER_RECORDS);
        const sn_recording *rec = all.rank[0];
        assert_true(rec->total >= before);
        seen += rec->total > before;
        before = rec->total;
        for (int64_t k = 0; k < rec->ops; k++) {
            assert_true(fits(&rec->op[k]));
            assert_true(k == 0 || rec->op[k].number > rec->op[k - 1].number);
        }
        sn_recordings_done(&all);
        sn_arena_reset(p->arena);
    }
    assert_true(seen >= 20);
    assert_true(before > 2 * SN_RECORDER_RECORDS);
    die(pid);
    close(fd);
}

/* ---- who waits for whom ---- */

static void expect(const place *p, const char *const *words, int n, int waits, int causes)
{
    sn_recordings all = read_all(p, 256);
    sn_blame b;
    sn_blame_make(&all, p->arena, &b);
    for (int i = 0; i < n; i++)
        if (strstr(sn_str_get(&b.verdict), words[i]) == NULL)
            fail_msg("\"%s\" is not in:\n%s", words[i], sn_str_get(&b.verdict));
    assert_int_equal(b.waits, waits);
    assert_int_equal(b.causes, causes);
    sn_blame_done(&b);
    sn_recordings_done(&all);
}

static void waiter(sn_recorder *r)
{
    int all[] = {0, 1, 2}, g = sn_recorder_group(r, 9, "data[s0,t1]", all, 3, 0);
    sn_recorder_end(r, post(r, 1, g, 811, SN_RECORD_STARTED), SN_OK);
    sn_recorder_wait(r, post(r, 0, g, 812, SN_RECORD_STARTED), -1);
}

static void absent(sn_recorder *r)
{
    int all[] = {0, 1, 2}, g = sn_recorder_group(r, 9, "data[s0,t1]", all, 3, 2);
    sn_recorder_end(r, post(r, 1, g, 811, SN_RECORD_STARTED), SN_OK);
    sn_recorder_step(r, 40);
    sn_recorder_doing(r, "computing backward");
}

static void test_stopped_one_is_named(void **state)
{
    static const char *const words[] = {
        "rank 0 (h0) and rank 1 (h0) wait in all_reduce #812 of group data[s0,t1] for rank 2 (h1)",
        "rank 2 (h1) is stopped", "last finished all_gather #811 of group data[s0,t1]",
        "in no operation, in step 40, computing backward"};
    static const char *const runs[] = {"rank 2 (h1) runs"};
    static const char *const dead[] = {"rank 2 (h1) ended without a word"};
    const place *p = *state;
    pid_t pid[3];
    for (int r = 0; r < 3; r++)
        pid[r] = child(p, r, 3, r == 2 ? absent : waiter, NULL);
    expect(p, runs, 1, 2, 1);
    kill(pid[2], SIGSTOP);
    waitpid(pid[2], NULL, WUNTRACED);
    expect(p, words, 4, 2, 1);
    die(pid[2]);
    expect(p, dead, 1, 2, 1);
    die(pid[0]);
    die(pid[1]);
    expect(p, words, 1, 2, 1); /* nobody is left: what stood when they died */
}

static void receives_from_next(sn_recorder *r, int next)
{
    sn_record_what what = {.op = 2,
                           .red = 255,
                           .algorithm = 255,
                           .group = SN_RECORDER_PAIR,
                           .peer = next,
                           .dtype = SN_U8,
                           .seq = 7,
                           .count = 64,
                           .blocks = 1};
    sn_recorder_wait(r, sn_recorder_post(r, &what, SN_RECORD_POSTED, sn_recorder_now(r)), next);
}

/* The one that was killed was itself waiting then; the others saw it and left: it is the cause. */
static void test_died_waiting(void **state)
{
    static const char *const words[] = {"rank 0 (h0) ended without a word",
                                        "rank 1 (h0) left with: rank 0 died"};
    const place *p = *state;
    die(child(p, 0, 3, waiter, NULL));
    for (int i = 1; i < 3; i++) {
        sn_recorder *r = recorder(p, i, 3);
        absent(r);
        sn_recorder_close(r, SN_EPEER, "rank 0 died");
    }
    expect(p, words, 2, 0, 1);
}

static void test_circle(void **state)
{
    static const char *const words[] = {
        "rank 0 (h0) waits in receive from rank 1, tag 7 for rank 1 (h0)",
        "rank 0 (h0), rank 1 (h0) and rank 2 (h1) wait for each other in a circle"};
    const place *p = *state;
    sn_recorder *r[3];
    for (int i = 0; i < 3; i++) {
        r[i] = recorder(p, i, 3);
        receives_from_next(r[i], (i + 1) % 3);
    }
    expect(p, words, 2, 3, 0);
    for (int i = 0; i < 3; i++)
        sn_recorder_close(r[i], SN_OK, NULL);
    static const char *const left[] = {"every rank has left in order"};
    expect(p, left, 1, 0, 0);
}

static void test_calls_that_differ(void **state)
{
    static const char *const words[] = {
        "call #5 of group data[s0,t1]: rank 0 (h0) calls all_reduce "
        "of 16 F32, but rank 1 (h0) calls all_gather"};
    const place *p = *state;
    sn_recorder *r[2];
    for (int i = 0; i < 2; i++) {
        int both[] = {0, 1};
        r[i] = recorder(p, i, 2);
        int g = sn_recorder_group(r[i], 3, "data[s0,t1]", both, 2, i);
        sn_recorder_end(r[i], post(r[i], 0, g, 4, SN_RECORD_STARTED), SN_OK);
        sn_recorder_wait(r[i], post(r[i], i, g, 5, SN_RECORD_STARTED), 1 - i);
    }
    expect(p, words, 1, 2, 0);
    for (int i = 0; i < 2; i++)
        sn_recorder_close(r[i], SN_OK, NULL);
}

/* ---- damaged files ---- */

static void judge(const void *data, size_t bytes)
{
    sn_arena *arena = sn_arena_create();
    sn_recording rec;
    if (sn_recording_parse(data, data, data, bytes, 300, arena, &rec) == SN_OK) {
        sn_recordings all = {.world = rec.world, .now = rec.last};
        sn_blame b;
        all.rank = SN_NEW_N(arena, sn_recording *, rec.world);
        all.rank[rec.rank] = &rec;
        sn_blame_make(&all, arena, &b);
        sn_blame_done(&b);
    } else {
        assert_true(sn_errmsg()[0] != '\0');
    }
    sn_arena_free(arena);
}

static void test_damaged(void **state)
{
    const place *p = *state;
    char path[128], *image;
    size_t bytes;
    sn_recorder *r = recorder(p, 1, 3);
    waiter(r);
    receives_from_next(r, 2);
    snprintf(path, sizeof(path), "%s/recorder-1.bin", p->dir);
    assert_ok(sn_file_read(path, 8 << 20, &image, &bytes));
    assert_int_equal(bytes, sizeof(file_all));
    for (size_t n = 0; n < 60000; n += 997)
        judge(image, n);
    for (uint64_t i = 0; i < 400; i++) { /* half the damage where it hurts most */
        size_t at[8];
        char old[8];
        for (int k = 0; k < 8; k++) {
            uint64_t random = sn_hash64(1, i, (uint64_t) k);
            at[k] = random % (random >> 60 < 8 ? offsetof(file_all, word) : 50000);
            at[k] = SN_MAX(at[k], 16); /* behind magic and sizes */
            old[k] = image[at[k]];
            image[at[k]] = (char) (random >> 32);
        }
        judge(image, bytes);
        for (int k = 7; k >= 0; k--)
            image[at[k]] = old[k];
    }
    free(image);
    sn_recorder_close(r, SN_OK, NULL);
}

int main(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_wraps),
        TEST(test_keeps_open_ones),
        TEST(test_off),
        TEST(test_attempts),
        TEST(test_killed),
        TEST(test_read_while_written),
        TEST(test_stopped_one_is_named),
        TEST(test_died_waiting),
        TEST(test_circle),
        TEST(test_calls_that_differ),
        TEST(test_damaged),
    };
    return sn_test_run(tests);
}
