/* SPDX-License-Identifier: Apache-2.0 */
#include "os/os.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int sn_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set))
        return 1;
    return CPU_COUNT(&set);
}

sn_status sn_bind_core(int core)
{
    cpu_set_t set, one;
    if (sched_getaffinity(0, sizeof set, &set))
        return sn_fail(SN_EIO, "cannot read the allowed cores: %s", strerror(errno));
    CPU_ZERO(&one);
    for (int cpu = 0, k = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &set) && k++ == core)
            CPU_SET(cpu, &one);
    if (!CPU_COUNT(&one))
        return sn_fail(SN_EINVAL, "core %d asked, %d are allowed", core, CPU_COUNT(&set));
    if (sched_setaffinity(0, sizeof one, &one))
        return sn_fail(SN_EPERM, "cannot bind to core %d: %s", core, strerror(errno));
    return SN_OK;
}

/* One number from a file, or `none`. */
static uint64_t number_in(const char *path, uint64_t none)
{
    FILE *f = fopen(path, "re");
    unsigned long long v;
    int got = f ? fscanf(f, "%llu", &v) : 0;
    if (f)
        fclose(f);
    return got == 1 ? v : none;
}

uint64_t sn_memory_available(void)
{
    uint64_t available = 0;
    char line[128];
    FILE *f = fopen("/proc/meminfo", "re");
    while (f && fgets(line, sizeof line, f)) {
        unsigned long long kib;
        if (sscanf(line, "MemAvailable: %llu", &kib) == 1)
            available = kib * 1024;
    }
    if (f)
        fclose(f);
    uint64_t limit = number_in("/sys/fs/cgroup/memory.max", 0);
    if (limit) {
        uint64_t used = number_in("/sys/fs/cgroup/memory.current", 0);
        available = SN_MIN(available, limit > used ? limit - used : 0);
    }
    return available;
}

void sn_memory_prefer_large(void *at, size_t bytes)
{
    madvise(at, bytes, MADV_HUGEPAGE);
}
