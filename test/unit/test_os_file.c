/* SPDX-License-Identifier: Apache-2.0
 *
 * Files and the sentences of their failures. What root may do anyway is tried by a child that gave
 * its rights away; a full and a read-only disk are tmpfs in a mount namespace of their own. */
#include "os/os.h"
#include "unit/sn_test.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64];

static const char *in(const char *name)
{
    static char path[2][256];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[0], "%s/%s", dir, name);
    return path[turn];
}

#define assert_says(part)                                                                          \
    do {                                                                                           \
        if (!strstr(sn_errmsg(), part))                                                            \
            fail_msg("\"%s\" does not say \"%s\"", sn_errmsg(), part);                             \
    } while (0)

static void test_round_trip(void **state)
{
    char *data;
    size_t bytes;
    assert_ok(sn_dir_create(in("a/b/c")));
    assert_ok(sn_dir_create(in("a/b/c")));
    assert_ok(sn_dir_writable(in("a/b/c")));
    assert_ok(sn_file_write(in("a/b/c/x"), "hello", 5));
    assert_ok(sn_file_write(in("a/b/c/x"), "again", 5));
    assert_ok(sn_file_read(in("a/b/c/x"), 5, &data, &bytes));
    assert_int_equal(bytes, 5);
    assert_string_equal(data, "again");
    free(data);
    sn_map map;
    assert_ok(sn_file_map(in("a/b/c/x"), &map));
    assert_int_equal(map.bytes, 5);
    assert_memory_equal(map.data, "again", 5);
    sn_file_unmap(&map);
    sn_file_unmap(&map);
    assert_int_equal(access(in("a/b/c/x.tmp"), F_OK), -1);
}

static void test_missing_and_wrong(void **state)
{
    char *data = NULL;
    size_t bytes = 7;
    sn_map map = {0};
    assert_int_equal(sn_file_read(in("none"), 100, &data, &bytes), SN_ENOTFOUND);
    assert_says("none: No such file or directory");
    assert_null(data);
    assert_int_equal(bytes, 7);
    assert_int_equal(sn_file_map(in("none"), &map), SN_ENOTFOUND);
    assert_int_equal(sn_file_read(dir, 100, &data, &bytes), SN_EINVAL);
    assert_says("is not a regular file");
    assert_ok(sn_file_write(in("empty"), "", 0));
    assert_int_equal(sn_file_map(in("empty"), &map), SN_EINVAL);
    assert_says("/empty is empty");
    assert_ok(sn_file_read(in("empty"), 0, &data, &bytes));
    assert_string_equal(data, "");
    free(data);
    assert_ok(sn_file_write(in("big"), "0123456789", 10));
    assert_int_equal(sn_file_read(in("big"), 9, &data, &bytes), SN_EFIT);
    assert_says("has 10 bytes, at most 9");
    assert_int_equal(sn_file_write(in("no/such/dir"), "x", 1), SN_ENOTFOUND);
    assert_says("no/such/dir");
    assert_int_equal(sn_dir_create(in("big")), SN_EEXIST);
    assert_says("is not a directory");
    assert_int_equal(sn_dir_create(in("big/below")), SN_ENOTFOUND);
    assert_says("Not a directory");
    assert_int_equal(sn_dir_writable(in("none")), SN_ENOTFOUND);
    char longest[5000];
    memset(longest, 'a', sizeof longest);
    longest[sizeof longest - 1] = 0;
    assert_int_equal(sn_file_write(longest, "x", 1), SN_EINVAL);
    assert_int_equal(sn_dir_create(longest), SN_EINVAL);
    assert_int_equal(sn_dir_writable(longest), SN_EINVAL);
}

static void test_full_device(void **state)
{
    int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        print_message("skipped: no /dev/full here\n");
        skip();
    }
    assert_int_equal(sn_write_all(fd, "x", 1), SN_ENOSPC);
    assert_says("No space left");
    close(fd);
}

/* Run `body` in a child, without root's rights when `drop`; its exit code must be 0. */
static void in_child(void (*body)(void), bool drop)
{
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (drop && geteuid() == 0 && (setgid(65534) || setuid(65534)))
            _exit(9);
        body();
        _exit(0);
    }
    int how;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_int_equal(how, 0);
}

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s: %s\n", #cond, sn_errmsg());                                       \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static void not_permitted(void)
{
    char *data;
    size_t bytes;
    sn_map map;
    CHECK(sn_file_read(in("secret"), 100, &data, &bytes) == SN_EPERM);
    CHECK(strstr(sn_errmsg(), "secret: Permission denied"));
    CHECK(sn_file_map(in("secret"), &map) == SN_EPERM);
    CHECK(sn_file_write(in("closed/x"), "x", 1) == SN_EPERM);
    CHECK(sn_dir_writable(in("closed")) == SN_EPERM);
    CHECK(strstr(sn_errmsg(), "closed: Permission denied"));
    CHECK(sn_dir_create(in("closed/y")) == SN_EPERM);
}

static void test_not_permitted(void **state)
{
    assert_ok(sn_file_write(in("secret"), "x", 1));
    assert_ok(sn_dir_create(in("closed")));
    assert_int_equal(chmod(in("secret"), 0), 0);
    assert_int_equal(chmod(in("closed"), 0555), 0);
    in_child(not_permitted, true);
}

static void full_and_read_only(void)
{
    static char block[1 << 20];
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
        _exit(0); /* not offered here: the sentences above stand for it */
    CHECK(mount("none", in("small"), "tmpfs", 0, "size=64k") == 0);
    CHECK(sn_file_write(in("small/x"), block, sizeof block) == SN_ENOSPC);
    CHECK(strstr(sn_errmsg(), "small/x.tmp"));
    CHECK(strstr(sn_errmsg(), "No space left"));
    CHECK(access(in("small/x"), F_OK) && access(in("small/x.tmp"), F_OK));
    int fd = open(in("small/fill"), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    sn_write_all(fd, block, sizeof block);
    CHECK(sn_dir_writable(in("small")) == SN_ENOSPC);
    close(fd);
    CHECK(mount("none", in("small"), NULL, MS_REMOUNT | MS_RDONLY, NULL) == 0);
    CHECK(sn_dir_writable(in("small")) == SN_EPERM);
    CHECK(strstr(sn_errmsg(), "Read-only file system"));
    CHECK(sn_file_write(in("small/x"), "x", 1) == SN_EPERM);
    CHECK(sn_dir_create(in("small/d")) == SN_EPERM);
}

static void test_full_and_read_only(void **state)
{
    if (geteuid()) {
        print_message("skipped: mounting a full disk needs root\n");
        skip();
    }
    assert_ok(sn_dir_create(in("small")));
    in_child(full_and_read_only, false);
}

static void test_machine(void **state)
{
    assert_true(sn_cores() >= 1);
    assert_true(sn_memory_available() > 0);
    assert_int_equal(sn_bind_core(100000), SN_EINVAL);
    sn_time before = sn_now();
    sn_sleep_until(before + SN_MS);
    assert_true(sn_now() >= before + SN_MS);
}

static int set_up(void **state)
{
    snprintf(dir, sizeof dir, "/tmp/sn-os-XXXXXX");
    return mkdtemp(dir) && chmod(dir, 0755) == 0 ? 0 : -1;
}

static int tear_down(void **state)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),         cmocka_unit_test(test_missing_and_wrong),
        cmocka_unit_test(test_full_device),        cmocka_unit_test(test_not_permitted),
        cmocka_unit_test(test_full_and_read_only), cmocka_unit_test(test_machine),
    };
    return cmocka_run_group_tests_name(__FILE__, tests, set_up, tear_down);
}
