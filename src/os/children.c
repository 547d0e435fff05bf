/* SPDX-License-Identifier: Apache-2.0
 *
 * children — find one's own children in /proc (the list in /proc/PID/task/TID/children is not built
 * into every kernel). Raw directory reading, because it also runs between fork and exec. */
#include "os/os.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The parent of `pid`, 0 unknown. */
static int parent_of(int pid)
{
    char path[64], text[512];
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (fd >= 0)
        close(fd);
    text[SN_MAX(n, 0)] = 0;
    const char *after_name = strrchr(text, ')'); /* the name may hold anything */
    if (!after_name || sscanf(after_name, ") %*c %d", &parent) != 1)
        return 0;
    return parent;
}

void sn_children_kill(int signal)
{
    _Alignas(struct dirent64) char buffer[8192];
    int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC), me = (int) getpid();
    long n;
    while (proc >= 0 && (n = syscall(SYS_getdents64, proc, buffer, sizeof buffer)) > 0)
        for (long at = 0; at < n;) {
            const struct dirent64 *d = (const void *) (buffer + at);
            int pid = atoi(d->d_name);
            if (pid > 0 && parent_of(pid) == me)
                kill(pid, signal);
            at += d->d_reclen;
        }
    if (proc >= 0)
        close(proc);
}
