/* SPDX-License-Identifier: Apache-2.0 */
#include "mon/mon.h"
#include "unit/sn_test.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_create_and_map(void **state)
{
    int fd = -1;
    sn_page *mine, *theirs;
    assert_ok(sn_page_create(3, 1, "h1", &fd, &mine));
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(ftruncate(fd, 0), -1); /* sealed: nobody can make a reader fault */
    assert_ok(sn_page_map(fd, &theirs));
    close(fd);
    assert_ptr_not_equal(mine, theirs);
    assert_int_equal(theirs->rank, 3);
    assert_int_equal(theirs->host, 1);
    assert_int_equal(theirs->victim, -1);
    assert_string_equal(theirs->host_name, "h1");
    assert_true(isnan(theirs->val_loss));
    assert_int_equal(theirs->state, SN_WORKER_NEW);
    sn_page_set_state(mine, SN_WORKER_JOINING);
    assert_int_equal(theirs->state, SN_WORKER_JOINING);
    assert_int_equal(theirs->pid, getpid());
    sn_page_unmap(mine);
    assert_int_equal(theirs->rank, 3); /* outlives the writer */
    sn_page_unmap(theirs);
    sn_page_unmap(NULL);
}

static void test_map_refuses(void **state)
{
    sn_page *page = NULL, *other;
    int fd = memfd_create("t", MFD_CLOEXEC);
    assert_int_equal(sn_page_map(fd, &page), SN_ECORRUPT); /* too short: would fault */
    assert_int_equal(ftruncate(fd, SN_PAGE_BYTES), 0);
    assert_int_equal(sn_page_map(fd, &page), SN_ECORRUPT); /* no magic */
    close(fd);
    assert_int_equal(sn_page_map(-1, &page), SN_EIO);
    assert_ok(sn_page_create(0, 0, NULL, &fd, &other));
    other->version = 99;
    assert_int_equal(sn_page_map(fd, &page), SN_EMISMATCH);
    assert_null(page);
    sn_page_unmap(other);
    close(fd);
}

static void test_op_text(void **state)
{
    int fd;
    sn_page *page;
    char out[SN_PAGE_TEXT], text[400];
    sn_time since;
    assert_ok(sn_page_create(0, 0, "h0", &fd, &page));
    close(fd);
    for (size_t n = 0; n < sizeof text; n++) { /* every length, longer after shorter and back */
        size_t len = n % 2 ? n : sizeof text - 1 - n;
        memset(text, 'a' + (int) (n % 26), len);
        text[len] = 0;
        sn_page_op(page, text, 77);
        assert_true(sn_page_op_read(page, out, &since));
        assert_int_equal(strlen(out), SN_MIN(len, (size_t) SN_PAGE_TEXT - 1));
        assert_memory_equal(out, text, strlen(out));
        assert_true(since > 0);
        assert_int_equal(page->deadline_ns, 77);
    }
    sn_page_op(page, NULL, 0);
    assert_true(sn_page_op_read(page, out, NULL));
    assert_string_equal(out, "");
    page->op_seq = 41; /* the writer died half way */
    memset(page->op, 'x', sizeof page->op);
    assert_false(sn_page_op_read(page, out, &since));
    assert_int_equal(strlen(out), SN_PAGE_TEXT - 1);
    sn_page_op(page, "alive", 0);
    assert_true(sn_page_op_read(page, out, &since));
    assert_string_equal(out, "alive");
    sn_page_op(NULL, "x", 0);
    sn_page_unmap(page);
}

/* A writer in another process; every text read is one that was written, never a mixture. */
static void test_op_race(void **state)
{
    int fd;
    sn_page *page;
    assert_ok(sn_page_create(0, 0, "h0", &fd, &page));
    pid_t child = fork();
    if (!child) {
        char text[SN_PAGE_TEXT];
        for (int i = 0;; i++) {
            size_t n = (size_t) (1 + i % (SN_PAGE_TEXT - 1));
            memset(text, 'a' + i % 26, n);
            text[n] = 0;
            sn_page_op(page, text, 0);
        }
    }
    int whole = 0;
    char out[SN_PAGE_TEXT];
    for (int i = 0; i < 20000 || (!whole && i < 5000000); i++) {
        if (!sn_page_op_read(page, out, NULL))
            continue;
        whole++;
        for (size_t k = 1; k < strlen(out); k++)
            assert_int_equal(out[k], out[0]);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_true(whole > 0);
    sn_page_unmap(page);
    close(fd);
}

static void test_fail(void **state)
{
    int fd;
    sn_page *page;
    assert_ok(sn_page_create(0, 0, "h0", &fd, &page));
    close(fd);
    sn_page_fail(page, SN_EPEER, "rank 3 died");
    sn_page_fail(page, SN_ETIME, "a consequence");
    assert_int_equal(page->state, SN_WORKER_FAILED);
    assert_int_equal(page->error_status, SN_EPEER);
    assert_string_equal(page->error, "rank 3 died");
    sn_page_fail(NULL, SN_EPEER, "");
    sn_page_set_state(NULL, SN_WORKER_DONE);
    assert_string_equal(sn_worker_state_name(SN_WORKER_SAVING), "saving");
    assert_string_equal(sn_worker_state_name((sn_worker_state) 77), "unknown");
    sn_page_unmap(page);
}

static void test_ring(void **state)
{
    int fd;
    sn_page *page;
    sn_page_step row;
    assert_ok(sn_page_create(0, 0, "h0", &fd, &page));
    close(fd);
    assert_false(sn_page_step_read(page, 0, &row));
    for (int64_t step = 0; step < 3 * SN_PAGE_RING; step++) {
        page->loss = 100.0 - (double) step;
        page->val_loss = 1.7;
        page->val_step = step % 10 ? 0 : step + 1;
        page->time_ns[SN_TIME_PIPELINE] = step;
        sn_page_step_done(page, step);
        assert_int_equal(page->step, step + 1);
        for (int64_t old = -2; old <= step + 1; old++) {
            bool kept = old >= 0 && old <= step && old > step - SN_PAGE_RING;
            assert_int_equal(sn_page_step_read(page, old, &row), kept);
            if (!kept)
                continue;
            assert_true(row.loss == 100.0 - (double) old);
            assert_int_equal(row.time_ns[SN_TIME_PIPELINE], old);
            assert_int_equal(isnan(row.val_loss), old % 10 != 0);
        }
    }
    sn_page_unmap(page);
}

/* Four cards on a core that compute 20 ms each of a 100 ms step leave 20 ms that were lost. */
static void test_view_of_core(void **state)
{
    sn_step_metrics row = {.step_ns = 100,
                           .time_ns = {[SN_TIME_COMPUTE] = 18,
                                       [SN_TIME_OPTIMIZER] = 2,
                                       [SN_TIME_COLLECTIVE] = 45,
                                       [SN_TIME_PIPELINE] = 15,
                                       [SN_TIME_OTHER] = 20}};
    sn_step_metrics alone = row, idle = {.step_ns = 100, .time_ns = {[SN_TIME_COMPUTE] = 100}};
    sn_metrics_of_core(&alone, 1);
    assert_memory_equal(&alone, &row, sizeof row);
    sn_metrics_of_core(&idle, 4);
    assert_int_equal(idle.time_ns[SN_TIME_COMPUTE], 100);
    sn_metrics_of_core(&row, 4);
    assert_int_equal(row.time_ns[SN_TIME_COMPUTE], 72);
    assert_int_equal(row.time_ns[SN_TIME_OPTIMIZER], 8);
    assert_int_equal(row.time_ns[SN_TIME_COLLECTIVE], 15);
    assert_int_equal(row.time_ns[SN_TIME_PIPELINE], 5);
    assert_int_equal(row.time_ns[SN_TIME_OTHER], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_view_of_core), cmocka_unit_test(test_create_and_map),
        cmocka_unit_test(test_map_refuses),  cmocka_unit_test(test_op_text),
        cmocka_unit_test(test_op_race),      cmocka_unit_test(test_fail),
        cmocka_unit_test(test_ring),
    };
    return sn_test_run(tests);
}
