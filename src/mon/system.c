/* SPDX-License-Identifier: Apache-2.0 */
#include "mon/system.h"
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The first bytes of a file whose size says nothing; 0 when there are none. */
static size_t read_some(const char *path, char *out, size_t bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n;
    do
        n = read(fd, out, bytes - 1);
    while (n < 0 && errno == EINTR);
    close(fd);
    out[SN_MAX(n, 0)] = '\0';
    return (size_t) SN_MAX(n, 0);
}

bool mon_ticks_steady(void)
{
    char text[64];
    return read_some("/sys/devices/system/clocksource/clocksource0/current_clocksource", text,
                     sizeof(text)) > 0 &&
           (strcmp(text, "tsc\n") == 0 || strcmp(text, "arch_sys_counter\n") == 0);
}

uint64_t mon_boot(void)
{
    char text[128];
    size_t n = read_some("/proc/sys/kernel/random/boot_id", text, sizeof(text));
    return n > 0 ? sn_hash_bytes(text, n) : 0;
}

char mon_process_state(int pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    if (read_some(path, text, sizeof(text)) == 0)
        return 0;
    const char *after = strrchr(text, ')'); /* the name may hold anything */
    return after && after[1] == ' ' ? after[2] : '\0';
}
