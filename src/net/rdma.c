/* SPDX-License-Identifier: Apache-2.0
 *
 * RDMA devices, as the kernel shows them in /sys/class/infiniband. */
#include "net/rdma.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROOT "/sys/class/infiniband"
#define GIDS 32 /* looked at per port */

/* The first line of a small file without its end; "" when there is none. */
static void read_line(const char *path, char *out, size_t room)
{
    FILE *f = fopen(path, "re");
    out[0] = 0;
    if (f && fgets(out, (int) room, f))
        out[strcspn(out, "\n")] = 0;
    else
        out[0] = 0;
    if (f)
        fclose(f);
}

/* The first address of a port that other hosts can route to: not link-local. */
static int routable_gid(const char *device, int port)
{
    char path[160], gid[64], type[32];
    for (int i = 0; i < GIDS; i++) {
        snprintf(path, sizeof path, ROOT "/%.32s/ports/%d/gids/%d", device, port, i);
        read_line(path, gid, sizeof gid);
        snprintf(path, sizeof path, ROOT "/%.32s/ports/%d/gid_attrs/types/%d", device, port, i);
        read_line(path, type, sizeof type);
        bool empty = strspn(gid, "0:") == strlen(gid);
        if (!empty && strncmp(gid, "fe80", 4) != 0 && strcmp(type, "RoCE v2") == 0)
            return i;
    }
    return -1;
}

static bool is_active(const char *device, int port)
{
    char path[160], state[64];
    snprintf(path, sizeof path, ROOT "/%.32s/ports/%d/state", device, port);
    read_line(path, state, sizeof state);
    return strstr(state, "ACTIVE") != NULL;
}

/* In software (rdma_rxe): it has a parent interface, and no device beneath. */
static bool is_soft(const char *device)
{
    char path[160];
    snprintf(path, sizeof path, ROOT "/%.32s/parent", device);
    return access(path, F_OK) == 0;
}

static void take(net_rdma *all, const char *device)
{
    for (int port = 1; port <= 2; port++) {
        if (!is_active(device, port))
            continue;
        size_t at = strlen(all->devices);
        size_t n = (size_t) snprintf(all->devices + at, sizeof all->devices - at, "%s%.32s:%d",
                                     at ? "," : "", device, port);
        if (n >= sizeof all->devices - at) {
            all->devices[at] = 0; /* no room for one more */
            return;
        }
        all->soft |= is_soft(device);
        if (all->soft && all->gid < 0)
            all->gid = routable_gid(device, port);
    }
}

void net_rdma_list(net_rdma *ret)
{
    *ret = (net_rdma){.gid = -1};
    DIR *d = opendir(ROOT);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        if (e->d_name[0] != '.')
            take(ret, e->d_name);
    if (d)
        closedir(d);
}
