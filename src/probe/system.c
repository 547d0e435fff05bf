/* SPDX-License-Identifier: Apache-2.0
 * What hwloc does not tell: network speed and clock frequency. */
#include "probe/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 256 };

static double number_in(const char *path)
{
    double v = 0;
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    if (fscanf(f, "%lf", &v) != 1) /* a device that is down refuses to be read */
        v = 0;
    fclose(f);
    return v;
}

double probe_net_speed(const char *device)
{
    char path[LINE];
    snprintf(path, sizeof path, "/sys/class/net/%.64s/speed", device);
    double mbit = number_in(path);
    if (mbit > 0)
        return mbit * 125e3;
    snprintf(path, sizeof path, "/sys/class/infiniband/%.64s/ports/1/rate", device);
    double gbit = number_in(path); /* "400 Gb/sec (4X NDR)" */
    return gbit > 0 ? gbit * 125e6 : 0;
}

static double mhz_of_kinds(hwloc_topology_t tree)
{
    double most = 0;
    int kinds = hwloc_cpukinds_get_nr(tree, 0);
    for (int k = 0; k < kinds; k++) {
        unsigned n = 0;
        struct hwloc_info_s *info = NULL;
        if (hwloc_cpukinds_get_info(tree, (unsigned) k, NULL, NULL, &n, &info, 0))
            continue;
        for (unsigned i = 0; i < n; i++)
            if (!strcmp(info[i].name, "FrequencyMaxMHz") ||
                !strcmp(info[i].name, "FrequencyBaseMHz"))
                most = SN_MAX(most, strtod(info[i].value, NULL));
    }
    return most;
}

/* "Intel(R) Xeon(R) CPU E5-2650 0 @ 2.00GHz" */
static double mhz_of_model(hwloc_topology_t tree)
{
    hwloc_obj_t package = hwloc_get_obj_by_type(tree, HWLOC_OBJ_PACKAGE, 0);
    const char *model = package ? hwloc_obj_get_info_by_name(package, "CPUModel") : NULL;
    const char *at = model ? strstr(model, "@ ") : NULL;
    char *end = NULL;
    double ghz = at ? strtod(at + 2, &end) : 0;
    return end && !strncmp(end, "GHz", 3) ? ghz * 1000 : 0;
}

static double mhz_of_proc(void)
{
    char line[LINE];
    double mhz = 0;
    FILE *f = fopen("/proc/cpuinfo", "re");
    while (f && mhz <= 0 && fgets(line, sizeof line, f))
        if (sscanf(line, "cpu MHz : %lf", &mhz) != 1)
            mhz = 0;
    if (f)
        fclose(f);
    return mhz;
}

double probe_frequency(const probe_from *from)
{
    enum { ASSUMED_MHZ = 2000 };
    double mhz = mhz_of_kinds(from->tree);
    if (mhz <= 0)
        mhz = mhz_of_model(from->tree);
    if (mhz <= 0 && from->here)
        mhz = mhz_of_proc();
    return (mhz > 100 && mhz < 1e5 ? mhz : ASSUMED_MHZ) * 1e6;
}
