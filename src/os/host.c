/* SPDX-License-Identifier: Apache-2.0 */
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

int sn_host_namespaces(void)
{
    return CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWUTS | CLONE_NEWNS;
}

static sn_status cannot(const char *what)
{
    return sn_fail(errno == EPERM || errno == EACCES ? SN_EPERM : SN_EIO, "cannot %s: %s", what,
                   strerror(errno));
}

/* The network devices of /sys are those of the namespace that mounted it, so a host needs its own;
 * the cgroup files below it (memory limits) are taken along. */
static sn_status mount_sys(void)
{
    int cgroup =
        open_tree(AT_FDCWD, "/sys/fs/cgroup", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
    if (mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL))
        return cannot("mount /sys for a host");
    if (cgroup >= 0) {
        /* Without it a worker takes the machine's memory for its limit, no more. */
        move_mount(cgroup, "", AT_FDCWD, "/sys/fs/cgroup", MOVE_MOUNT_F_EMPTY_PATH);
        close(cgroup);
    }
    return SN_OK;
}

sn_status sn_host_enter(const char *name)
{
    if (sethostname(name, strlen(name)))
        return cannot("set a host name");
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
        return cannot("make the mounts of a host private");
    if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL))
        return cannot("mount /proc for a host");
    if (mount("shm", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777"))
        return cannot("mount /dev/shm for a host");
    return mount_sys();
}

static bool has_capabilities(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {0};
    if (syscall(SYS_capget, &head, data))
        return false;
    uint32_t need = 1u << CAP_SYS_ADMIN | 1u << CAP_NET_ADMIN;
    return (data[0].effective & need) == need;
}

/* The sentence travels from the child in a shared page. */
static int try_host(void *ctx)
{
    if (sn_host_enter("trial") == SN_OK)
        return 0;
    snprintf(ctx, 512, "%s", sn_errmsg());
    return 1;
}

sn_status sn_host_possible(void)
{
    if (!has_capabilities())
        return sn_fail(SN_EPERM, "namespaces need root (or CAP_SYS_ADMIN and CAP_NET_ADMIN)");
    char *text = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (text == MAP_FAILED)
        return cannot("map a page");
    sn_child child;
    sn_exit end = {0};
    sn_status status =
        sn_child_fork(&(sn_fork_opts){.namespaces = sn_host_namespaces()}, try_host, text, &child);
    if (status >= 0 && !sn_child_wait(&child, sn_now() + 5 * SN_SEC, &end)) {
        sn_child_kill(&child, SIGKILL);
        sn_child_wait(&child, -1, &end);
    }
    if (status >= 0 && (end.code || end.signal))
        status = sn_fail(SN_EPERM, "%s",
                         *text ? text : "a process in namespaces of its own does not start");
    munmap(text, 4096);
    return status;
}

sn_status sn_netns_of(pid_t pid, int *ret_fd)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/net", (int) pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return cannot("open the network namespace of a host");
    *ret_fd = fd;
    return SN_OK;
}

/* A child makes it, we take hold of it, the child goes. The thread that calls never leaves its own
 * namespace, so there is no way back that could fail. */
static int hold(void *ctx)
{
    while (pause())
        continue;
    return 0;
}

sn_status sn_netns_create(int *ret_fd)
{
    sn_child child;
    sn_exit end;
    SN_TRY(sn_child_fork(&(sn_fork_opts){.namespaces = CLONE_NEWNET}, hold, NULL, &child));
    sn_status status = sn_netns_of(child.pid, ret_fd);
    sn_child_kill(&child, SIGKILL);
    sn_child_wait(&child, -1, &end);
    return status;
}
