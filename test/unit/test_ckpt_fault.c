/* SPDX-License-Identifier: Apache-2.0
 * Saving while the world fails: the n-th system call fails, writes little, or is the last thing the
 * process does, for n = 1, 2, … until a save needs no more calls. What was published stays.
 *
 * The calls below stand before libc's in the link order of this program, so that the code under
 * test comes through here. */
#include "ckpt/parts.h"
#include "unit/ckpt_world.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

typedef enum trouble { NONE, FAIL, LITTLE, KILL } trouble;

static trouble what;
static int when, calls, error_code;

/* True when this call is the one to fail. */
static bool strikes(void)
{
    if (what == NONE || ++calls != when)
        return false;
    if (what == KILL)
        kill(getpid(), SIGKILL);
    errno = error_code;
    return what == FAIL;
}

ssize_t write(int fd, const void *data, size_t n)
{
    if (strikes())
        return -1;
    if (what == LITTLE && n > 1)
        n = n / 2 + 1;
    if (what == KILL && calls + 1 == when && n > 1) /* torn in the middle by the next call */
        n = n / 2;
    return syscall(SYS_write, fd, data, n);
}

int fsync(int fd)
{
    return strikes() ? -1 : (int) syscall(SYS_fsync, fd);
}

int rename(const char *from, const char *to)
{
    return strikes() ? -1 : (int) syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to);
}

int mkdir(const char *path, mode_t mode)
{
    return strikes() ? -1 : (int) syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

int unlinkat(int at, const char *path, int flags)
{
    return strikes() ? -1 : (int) syscall(SYS_unlinkat, at, path, flags);
}

int unlink(const char *path) /* taking back a half-written file: counted where it can kill */
{
    if (what == KILL)
        strikes();
    return (int) syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

static char dir[64];
static world w[2];
static cut *in[2]; /* what step 10 and step 20 hold */

static int setup(void **state)
{
    sn_prng p = {.seed = 9};
    world_dir(dir);
    for (int k = 0; k < 2; k++) {
        w[k] = (world){.tensors = 2,
                       .t = {{"wte", SN_F32, SN_SHAPE(64, 12), 10 + (uint64_t) k},
                             {"big", SN_F64, SN_SHAPE(300, 100), 20 + (uint64_t) k}}};
        in[k] = calloc(1, sizeof **in);
        in[k]->ranks = 2;
        for (int t = 0; t < 2; t++)
            cut_block(in[k], &p, &w[k].t[t], -1, 0, 0, 3);
        cut_fill(&w[k], in[k]);
    }
    return 0;
}

static int teardown(void **state)
{
    what = NONE;
    cut_free(in[0]);
    cut_free(in[1]);
    world_remove(dir);
    return 0;
}

/* Some whole checkpoint is there, and its values are those of its step. */
static int64_t check_whole(void)
{
    sn_ckpt *c = NULL;
    trouble now = what;
    what = NONE;
    if (sn_ckpt_find(dir, NULL, &c) < 0)
        fail_msg("%s", sn_errmsg());
    int64_t step = sn_ckpt_step(c);
    int k = step == 20;
    assert_true(step == 10 || step == 20);
    assert_ok(cut_load(c, in[k]));
    assert_true(cut_equal(&w[k], in[k]));
    sn_ckpt_close(c);
    what = now;
    return step;
}

/* Step 10 as it should be, and nothing else. */
static void start_over(void)
{
    what = NONE;
    world_remove(dir);
    assert_int_equal(mkdir(dir, 0755), 0);
    assert_ok(cut_save(dir, 10, in[0], 0));
}

static void test_every_call_fails(void **state)
{
    static const int code[] = {ENOSPC, EIO, EPERM};
    static const sn_status status[] = {SN_ENOSPC, SN_EIO, SN_EPERM};
    int n = 1;
    for (bool reached = true; reached; n++) {
        start_over();
        error_code = code[n % 3];
        calls = 0;
        when = n;
        what = FAIL;
        sn_status got = cut_save(dir, 20, in[1], 1);
        reached = calls >= n;
        what = NONE;
        if (got < 0 && !strchr(sn_errmsg(), '/')) /* mkdir may fail for a parent */
            fail_msg("no path in: %s", sn_errmsg());
        int64_t step = check_whole();
        assert_int_equal(got, got < 0 ? status[n % 3] : SN_OK);
        assert_true(got < 0 || step == 20);
        assert_ok(cut_save(dir, 20, in[1], 1)); /* and the next save works */
        assert_int_equal(check_whole(), 20);
    }
    assert_true(n > 12);
}

static void test_short_writes(void **state)
{
    start_over();
    calls = 0;
    when = -1;
    what = LITTLE;
    assert_ok(cut_save(dir, 20, in[1], 1));
    what = NONE;
    assert_int_equal(check_whole(), 20);
}

/* kill -9 at each call. `again`: the same step is saved a second time. */
static void kill_everywhere(int64_t step, bool same_step)
{
    int n = 1, status, seen_old = 0, seen_new = 0;
    for (bool reached = true; reached; n++) {
        start_over();
        pid_t child = fork();
        if (!child) {
            calls = 0;
            when = n;
            what = KILL;
            _exit(cut_save(dir, step, same_step ? in[0] : in[1], 1) == SN_OK ? 0 : 1);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        reached = WIFSIGNALED(status);
        if (!reached)
            assert_int_equal(WEXITSTATUS(status), 0);
        if (check_whole() == 20)
            seen_new++;
        else
            seen_old++;
        assert_ok(cut_save(dir, 20, in[1], 1)); /* over the remains */
        assert_int_equal(check_whole(), 20);
    }
    assert_true(n > 12);
    assert_true(seen_old > 0 && (same_step || seen_new > 1));
}

static void test_killed_at_every_call(void **state)
{
    kill_everywhere(20, false);
    kill_everywhere(10, true);
}

/* The limit on a file's size kills or refuses in the middle of a write. */
static void test_size_limit(void **state)
{
    struct rlimit old, small;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    for (rlim_t bytes = 0; bytes < 120000; bytes += 17001) {
        start_over();
        small = (struct rlimit){bytes, old.rlim_max};
        setrlimit(RLIMIT_FSIZE, &small);
        sn_status status = cut_save(dir, 20, in[1], 1);
        setrlimit(RLIMIT_FSIZE, &old);
        assert_int_equal(status, SN_ENOSPC);
        assert_non_null(strstr(sn_errmsg(), dir));
        char path[160];
        snprintf(path, sizeof path, "%s/step-00000020/r0000.safetensors", dir);
        assert_int_equal(access(path, F_OK), -1); /* no half-written file stays */
        assert_int_equal(check_whole(), 10);
    }
}

/* A file system of our own: full, then read-only. 0 when both end as they should. */
static int in_own_mounts(void)
{
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("none", dir, "tmpfs", 0, "size=128k"))
        return 77;
    sn_status full = cut_save(dir, 20, in[1], 1);
    if (full != SN_ENOSPC || !strstr(sn_errmsg(), "safetensors"))
        return 1;
    if (mount("none", dir, NULL, MS_REMOUNT | MS_RDONLY, NULL))
        return 77;
    sn_status fixed = cut_save(dir, 20, in[1], 1);
    return fixed == SN_EPERM && strstr(sn_errmsg(), dir) ? 0 : 2;
}

static void test_full_and_read_only(void **state)
{
    int status;
    pid_t child = fork();
    if (!child)
        _exit(in_own_mounts());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        print_message("skipped: mounting needs root\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_every_call_fails), T(test_short_writes),       T(test_killed_at_every_call),
        T(test_size_limit),       T(test_full_and_read_only),
    };
    return sn_test_run(tests);
}
