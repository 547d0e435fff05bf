/* SPDX-License-Identifier: Apache-2.0 */
#include "os/os.h"
#include "unit/sn_test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static sn_time soon(void)
{
    return sn_now() + 5 * SN_SEC;
}

static int leave_with(void *ctx)
{
    return *(int *) ctx;
}

static int wait_for_ever(void *ctx)
{
    while (pause())
        continue;
    return 0;
}

static void test_exit(void **state)
{
    sn_child child;
    sn_exit end;
    int code = 7;
    assert_ok(sn_child_fork(&(sn_fork_opts){0}, leave_with, &code, &child));
    assert_int_equal(sn_pidfd_pid(child.pidfd), child.pid);
    assert_true(sn_child_wait(&child, soon(), &end));
    assert_int_equal(end.code, 7);
    assert_int_equal(end.signal, 0);
    assert_int_equal(child.pid, 0);
    sn_child_kill(&child, SIGKILL);
    assert_true(sn_child_wait(&child, 0, &end)); /* none: at once, unknown */
    assert_int_equal(end.code, -1);

    assert_ok(sn_child_fork(&(sn_fork_opts){0}, wait_for_ever, NULL, &child));
    assert_false(sn_child_wait(&child, 0, &end));
    assert_false(sn_child_wait(&child, sn_now() + 5 * SN_MS, &end));
    sn_child_kill(&child, SIGTERM);
    assert_true(sn_child_wait(&child, soon(), &end));
    assert_int_equal(end.signal, SIGTERM);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no zombie */
}

/* Exit code: a bit for each promise that does not hold. */
static int look_around(void *ctx)
{
    const int *fd = ctx;
    sigset_t mask;
    sigprocmask(SIG_SETMASK, NULL, &mask);
    struct sigaction old;
    sigaction(SIGUSR1, NULL, &old);
    return (fcntl(fd[0], F_GETFD) < 0) | (fcntl(fd[1], F_GETFD) >= 0) << 1 |
           sigismember(&mask, SIGUSR2) << 2 | (old.sa_handler != SIG_DFL) << 3 |
           (getsid(0) != getpid()) << 4;
}

static void test_clean_start(void **state)
{
    int fds[2], sig;
    assert_ok(sn_pair_stream(fds));
    static const int usr2[] = {SIGUSR2, 0};
    assert_ok(sn_signal_open(usr2, &sig));
    signal(SIGUSR1, SIG_IGN);
    sn_child child;
    sn_exit end;
    sn_fork_opts opts = {.keep = &fds[0], .keeps = 1};
    assert_ok(sn_child_fork(&opts, look_around, fds, &child));
    assert_true(sn_child_wait(&child, soon(), &end));
    assert_int_equal(end.code, 0);
    assert_int_equal(sn_signal_take(sig), 0);
    kill(getpid(), SIGUSR2);
    struct pollfd p = {.fd = sig, .events = POLLIN};
    assert_int_equal(sn_poll(&p, 1, soon()), 1);
    assert_int_equal(sn_signal_take(sig), SIGUSR2);
    assert_int_equal(sn_signal_take(sig), 0);
    signal(SIGUSR1, SIG_DFL);
    close(sig);
    close(fds[0]);
    close(fds[1]);
}

static void test_close_others(void **state)
{
    int fd[6];
    for (int i = 0; i < 6; i++)
        fd[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    pid_t pid = fork();
    if (pid == 0) {
        sn_close_others((int[]){fd[4], fd[1], fd[1], 0}, 4);
        int bad = 0;
        for (int i = 0; i < 6; i++)
            bad |= (fcntl(fd[i], F_GETFD) >= 0) != (i == 1 || i == 4);
        sn_fd_inherit(fd[4]);
        bad |= fcntl(fd[4], F_GETFD) != 0;
        sn_close_others(NULL, 0);
        bad |= fcntl(fd[4], F_GETFD) >= 0 || fcntl(2, F_GETFD) < 0;
        _exit(bad);
    }
    int how;
    waitpid(pid, &how, 0);
    assert_int_equal(how, 0);
    for (int i = 0; i < 6; i++)
        close(fd[i]);
}

typedef struct family {
    int fds[2];
    int namespaces;
} family;

static int grandchild(void *ctx)
{
    pid_t me = getpid();
    if (write(((family *) ctx)->fds[1], &me, sizeof me) != sizeof me)
        return 1;
    return wait_for_ever(NULL);
}

static int parent_of_one(void *ctx)
{
    family *f = ctx;
    sn_child child;
    sn_fork_opts opts = {.keep = &f->fds[1], .keeps = 1, .namespaces = f->namespaces};
    if (sn_child_fork(&opts, grandchild, f, &child) < 0)
        return 1;
    return wait_for_ever(NULL);
}

/* The parent is killed; the pair's other end tells when the grandchild, its last holder, is gone.
 */
static void dies_with_parent(int namespaces)
{
    family f = {.namespaces = namespaces};
    assert_ok(sn_pair_stream(f.fds));
    sn_child child;
    sn_exit end;
    sn_fork_opts opts = {.keep = &f.fds[1], .keeps = 1};
    assert_ok(sn_child_fork(&opts, parent_of_one, &f, &child));
    close(f.fds[1]);
    pid_t pid = 0;
    struct pollfd p = {.fd = f.fds[0], .events = POLLIN};
    assert_int_equal(sn_poll(&p, 1, soon()), 1);
    assert_int_equal(read(f.fds[0], &pid, sizeof pid), sizeof pid);
    sn_child_kill(&child, SIGKILL);
    assert_true(sn_child_wait(&child, soon(), &end));
    assert_int_equal(end.signal, SIGKILL);
    assert_int_equal(sn_poll(&p, 1, soon()), 1);
    assert_int_equal(read(f.fds[0], &pid, sizeof pid), 0);
    close(f.fds[0]);
}

static void test_dies_with_parent(void **state)
{
    dies_with_parent(0);
    if (sn_host_possible() == SN_OK)
        dies_with_parent(sn_host_namespaces());
}

static void test_children_kill(void **state)
{
    sn_child child[3];
    sn_exit end;
    for (int i = 0; i < 3; i++)
        assert_ok(sn_child_fork(&(sn_fork_opts){0}, wait_for_ever, NULL, &child[i]));
    sn_children_kill(SIGTERM);
    for (int i = 0; i < 3; i++) {
        assert_true(sn_child_wait(&child[i], soon(), &end));
        assert_int_equal(end.signal, SIGTERM);
    }
}

static void test_datagram(void **state)
{
    int fds[2], passed = 5, word = 0;
    assert_ok(sn_pair_datagram(fds));
    assert_int_equal(sn_datagram_recv(fds[0], &word, sizeof word, &passed), SN_AGAIN);
    assert_ok(sn_datagram_send(fds[1], &(int){1}, sizeof word, -1));
    assert_ok(sn_datagram_send(fds[1], &(int){2}, sizeof word, fds[1]));
    assert_ok(sn_datagram_send(fds[1], "abcdefgh", 8, fds[1]));
    assert_ok(sn_datagram_recv(fds[0], &word, sizeof word, &passed));
    assert_true(word == 1 && passed == -1);
    assert_ok(sn_datagram_recv(fds[0], &word, sizeof word, &passed));
    assert_true(word == 2 && passed >= 0 && fcntl(passed, F_GETFD) == FD_CLOEXEC);
    close(passed);
    assert_int_equal(sn_datagram_recv(fds[0], &word, sizeof word, &passed), SN_ECORRUPT);
    close(fds[1]);
    assert_int_equal(sn_datagram_recv(fds[0], &word, sizeof word, &passed), SN_EPEER);
    assert_int_equal(sn_datagram_send(fds[0], &word, sizeof word, -1), SN_EPEER);
    close(fds[0]);
}

static sn_status run(const char *const *argv, const char *input, sn_time limit, sn_str *out)
{
    sn_command command;
    SN_TRY(sn_command_start(argv, input, -1, &command));
    return sn_command_finish(&command, sn_now() + limit, out);
}

#define RUN(input, limit, out, ...) run((const char *const[]){__VA_ARGS__, NULL}, input, limit, out)

static void test_command(void **state)
{
    sn_str out = {0};
    char path[256];
    assert_ok(sn_program_find("cat", path));
    assert_ok(RUN("words\n", 5 * SN_SEC, &out, path));
    assert_string_equal(sn_str_get(&out), "words");
    sn_str_done(&out);
    assert_int_equal(sn_program_find("no-such-program", path), SN_ENOTFOUND);
    assert_string_equal(sn_errmsg(), "the program no-such-program is not installed");
    assert_int_equal(RUN(NULL, 5 * SN_SEC, NULL, "/bin/sh", "-c", "echo why >&2; exit 3"), SN_EIO);
    assert_string_equal(sn_errmsg(), "sh -c echo why >&2; exit 3 failed: why");
    assert_int_equal(RUN(NULL, 5 * SN_SEC, NULL, "/bin/sh", "-c", "kill -9 $$"), SN_EIO);
    assert_non_null(strstr(sn_errmsg(), "killed by signal 9"));
    assert_int_equal(RUN(NULL, 5 * SN_SEC, NULL, "/no/such/program"), SN_EIO);
    assert_string_equal(sn_errmsg(), "program failed: cannot execute: No such file or directory");
    assert_int_equal(RUN(NULL, 20 * SN_MS, NULL, "/bin/sleep", "60"), SN_ETIME);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

static uint64_t inode(const char *path)
{
    struct stat st;
    return stat(path, &st) ? 0 : st.st_ino;
}

/* Exit code: a bit for each thing of the outside that is still there. */
static int look_at_host(void *ctx)
{
    char name[64] = "";
    if (sn_host_enter("h7") < 0) {
        fprintf(stderr, "%s\n", sn_errmsg());
        return 99;
    }
    gethostname(name, sizeof name);
    return (strcmp(name, "h7") != 0) | (getpid() != 1) << 1 | (access("/proc/2", F_OK) == 0) << 2 |
           (access("/sys/class/net/lo", F_OK) != 0) << 3 |
           (access("/dev/shm/sn-os-test", F_OK) == 0) << 4 |
           (inode("/proc/self/ns/net") == *(uint64_t *) ctx) << 5;
}

static void test_host(void **state)
{
    if (sn_host_possible() < 0) {
        print_message("skipped: %s\n", sn_errmsg());
        skip();
    }
    uint64_t net = inode("/proc/self/ns/net");
    close(open("/dev/shm/sn-os-test", O_CREAT | O_RDWR | O_CLOEXEC, 0600));
    sn_child child;
    sn_exit end;
    assert_ok(sn_child_fork(&(sn_fork_opts){.namespaces = sn_host_namespaces()}, look_at_host, &net,
                            &child));
    assert_true(sn_child_wait(&child, soon(), &end));
    unlink("/dev/shm/sn-os-test");
    assert_int_equal(end.code, 0);
    assert_int_equal(inode("/proc/self/ns/net"), net);

    int fd;
    sn_str out = {0};
    sn_command command;
    assert_ok(sn_netns_create(&fd));
    assert_ok(sn_command_start((const char *const[]){"/bin/ls", "/proc/self/net/dev_snmp6", NULL},
                               NULL, fd, &command));
    assert_ok(sn_command_finish(&command, soon(), &out));
    assert_string_equal(sn_str_get(&out), "lo");
    sn_str_done(&out);
    close(fd);
}

/* What a user without rights is told. */
static void test_host_refused(void **state)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        if (geteuid() == 0 && (setgid(65534) || setuid(65534)))
            _exit(2);
        _exit(sn_host_possible() != SN_EPERM || !strstr(sn_errmsg(), "namespaces need root"));
    }
    int how;
    waitpid(pid, &how, 0);
    assert_int_equal(how, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exit),          cmocka_unit_test(test_clean_start),
        cmocka_unit_test(test_close_others),  cmocka_unit_test(test_dies_with_parent),
        cmocka_unit_test(test_children_kill), cmocka_unit_test(test_datagram),
        cmocka_unit_test(test_command),       cmocka_unit_test(test_host),
        cmocka_unit_test(test_host_refused),
    };
    return sn_test_run(tests);
}
