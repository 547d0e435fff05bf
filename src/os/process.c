/* SPDX-License-Identifier: Apache-2.0 */
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KEEP_MAX = 1024 };

/* The pidfd of the parent, readable when it is gone. It works from inside a new PID namespace too,
 * where getppid() is always 0. */
static bool parent_is_gone(int parent)
{
    struct pollfd p = {.fd = parent, .events = POLLIN};
    return poll(&p, 1, 0) > 0;
}

static void reset_signals(void)
{
    struct sigaction plain = {.sa_handler = SIG_DFL};
    for (int s = 1; s < NSIG; s++)
        sigaction(s, &plain, NULL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void child_main(const sn_fork_opts *opts, int parent, int (*body)(void *), void *ctx)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (parent_is_gone(parent))
        _exit(1);
    reset_signals();
    if (!opts->stay)
        setsid();
    sn_close_others(opts->keep, opts->keeps);
    _exit(body(ctx));
}

static sn_status fork_failed(int code, int namespaces)
{
    if (code == EPERM && namespaces)
        return sn_fail(SN_EPERM, "cannot make namespaces: %s (root or CAP_SYS_ADMIN is needed)",
                       strerror(code));
    if (code == ENOSPC && namespaces)
        return sn_fail(SN_EFIT, "cannot make namespaces: their limit is reached (see "
                                "/proc/sys/user/max_*_namespaces)");
    return sn_fail(SN_EIO, "cannot start a process: %s", strerror(code));
}

sn_status sn_child_fork(const sn_fork_opts *opts, int (*body)(void *ctx), void *ctx, sn_child *ret)
{
    int parent, pidfd = -1;
    SN_ASSERT(opts->keeps <= KEEP_MAX);
    SN_TRY(sn_pidfd_open(getpid(), &parent));
    long flags = SIGCHLD | CLONE_PIDFD | opts->namespaces;
    pid_t pid = (pid_t) syscall(SYS_clone, flags, NULL, &pidfd, NULL, NULL);
    if (pid == 0)
        child_main(opts, parent, body, ctx);
    int code = errno;
    close(parent);
    if (pid < 0)
        return fork_failed(code, opts->namespaces);
    *ret = (sn_child){pid, pidfd};
    return SN_OK;
}

void sn_child_kill(const sn_child *child, int signal)
{
    if (child->pid > 0)
        sn_pidfd_kill(child->pidfd, signal);
}

bool sn_child_wait(sn_child *child, sn_time deadline, sn_exit *ret)
{
    *ret = (sn_exit){-1, 0};
    if (child->pid <= 0)
        return true;
    struct pollfd p = {.fd = child->pidfd, .events = POLLIN};
    while (!sn_poll(&p, 1, deadline))
        if (deadline >= 0 && sn_now() >= deadline)
            return false;
    siginfo_t info = {0};
    int bad;
    do
        bad = waitid(P_PIDFD, (id_t) child->pidfd, &info, WEXITED);
    while (bad && errno == EINTR);
    if (!bad && info.si_code == CLD_EXITED)
        *ret = (sn_exit){info.si_status, 0};
    else if (!bad)
        *ret = (sn_exit){-1, info.si_status};
    close(child->pidfd);
    *child = (sn_child){0, -1};
    return true;
}

sn_status sn_pidfd_open(pid_t pid, int *ret)
{
    int fd = (int) syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0)
        return sn_fail(errno == ESRCH ? SN_ENOTFOUND : SN_EIO, "cannot watch process %d: %s",
                       (int) pid, strerror(errno));
    *ret = fd;
    return SN_OK;
}

void sn_pidfd_kill(int pidfd, int signal)
{
    syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0);
}

pid_t sn_pidfd_pid(int pidfd)
{
    char path[64], line[128];
    int pid = 0;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", pidfd);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "Pid: %d", &pid) == 1)
            break;
    if (f)
        fclose(f);
    return SN_MAX(pid, 0);
}

/* Insertion: few, mostly in order already; qsort may call malloc. */
static void sort(int *v, int n)
{
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && v[k - 1] > v[k]; k--) {
            int swap = v[k];
            v[k] = v[k - 1];
            v[k - 1] = swap;
        }
}

void sn_close_others(const int *keep, int keeps)
{
    int sorted[KEEP_MAX];
    unsigned from = 3;
    SN_ASSERT(keeps <= KEEP_MAX);
    if (keeps)
        memcpy(sorted, keep, sizeof *keep * (size_t) keeps);
    sort(sorted, keeps);
    for (int i = 0; i < keeps; i++) {
        if (sorted[i] < (int) from)
            continue;
        if (sorted[i] > (int) from)
            close_range(from, (unsigned) sorted[i] - 1, 0);
        from = (unsigned) sorted[i] + 1;
    }
    close_range(from, UINT_MAX, 0);
}

void sn_fd_inherit(int fd)
{
    int flags = fcntl(fd, F_GETFD);
    if (flags >= 0)
        fcntl(fd, F_SETFD, flags & ~FD_CLOEXEC);
}

void sn_fd_standard(void)
{
    int fd;
    while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= 2)
        continue;
    if (fd >= 0)
        close(fd);
}
