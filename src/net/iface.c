/* SPDX-License-Identifier: Apache-2.0
 *
 * Which network interface carries the job's traffic. */
#include "net/net_private.h"

#include "os/os.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool has_address(const struct ifaddrs *i, const char *address)
{
    char text[INET6_ADDRSTRLEN] = "";
    if (!i->ifa_addr)
        return false;
    if (i->ifa_addr->sa_family == AF_INET)
        inet_ntop(AF_INET, &((struct sockaddr_in *) (void *) i->ifa_addr)->sin_addr, text,
                  sizeof text);
    else if (i->ifa_addr->sa_family == AF_INET6)
        inet_ntop(AF_INET6, &((struct sockaddr_in6 *) (void *) i->ifa_addr)->sin6_addr, text,
                  sizeof text);
    return text[0] && strcmp(text, address) == 0;
}

static bool is_up(const struct ifaddrs *i)
{
    return i->ifa_addr && i->ifa_addr->sa_family == AF_INET && (i->ifa_flags & IFF_UP);
}

/* Bridges and pairs that container engines make lead to no other machine. */
static bool leads_out(const struct ifaddrs *i)
{
    static const char *const inner[] = {"docker", "virbr", "br-", "cni", "podman"};
    for (size_t k = 0; k < SN_COUNT(inner); k++)
        if (strncmp(i->ifa_name, inner[k], strlen(inner[k])) == 0)
            return false;
    return !(i->ifa_flags & IFF_LOOPBACK);
}

static bool default_route(char ret[64])
{
    FILE *f = fopen("/proc/net/route", "re");
    char line[256], name[64];
    unsigned destination;
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f))
        found = sscanf(line, "%63s %x", name, &destination) == 2 && destination == 0;
    if (f)
        fclose(f);
    if (found)
        memcpy(ret, name, sizeof name);
    return found;
}

static int score(const struct ifaddrs *i, bool one_kernel, const char *route)
{
    if (i->ifa_flags & IFF_LOOPBACK)
        return one_kernel ? 5 : 1;
    if (!leads_out(i))
        return 2;
    return strcmp(i->ifa_name, route) == 0 ? 4 : 3;
}

static const struct ifaddrs *choose(const struct ifaddrs *all, bool one_kernel)
{
    char route[64] = "";
    const struct ifaddrs *best = NULL;
    default_route(route);
    for (const struct ifaddrs *i = all; i; i = i->ifa_next)
        if (is_up(i) && (!best || score(i, one_kernel, route) > score(best, one_kernel, route)))
            best = i;
    return best;
}

/* UCX finds interfaces in /sys, which shows those of the namespace that it was mounted in. */
static sn_status check_sysfs(const char *name)
{
    char path[64 + 32];
    snprintf(path, sizeof path, "/sys/class/net/%s", name);
    if (access(path, F_OK) == 0)
        return SN_OK;
    return sn_fail(SN_ENOTFOUND,
                   "%s is missing, UCX cannot use the interface: mount sysfs anew in this "
                   "network namespace (mount -t sysfs sysfs /sys)",
                   path);
}

/* SN_OK; SN_PENDING when there is one that is not running yet; SN_ENOTFOUND. */
static sn_status look(const char *address, bool one_kernel, char ret[64])
{
    struct ifaddrs *all;
    if (getifaddrs(&all))
        return sn_fail(SN_EIO, "cannot list the network interfaces: %s", strerror(errno));
    const struct ifaddrs *best = address ? NULL : choose(all, one_kernel);
    for (const struct ifaddrs *i = all; address && i && !best; i = i->ifa_next)
        if (has_address(i, address))
            best = i;
    bool running = best && (best->ifa_flags & IFF_UP) && (best->ifa_flags & IFF_RUNNING);
    if (best)
        snprintf(ret, 64, "%s", best->ifa_name);
    freeifaddrs(all);
    if (best)
        return running ? SN_OK : SN_PENDING;
    if (address)
        return sn_fail(SN_ENOTFOUND, "no network interface has the address %s", address);
    return sn_fail(SN_ENOTFOUND, "no network interface is up: bring one up, lo at least");
}

sn_status net_iface_choose(const char *address, bool one_kernel, sn_time deadline, char ret[64])
{
    /* The kernel calls a link running a moment after it was brought up, which matters where an
     * emulated host has only just been made. */
    char name[64] = "";
    sn_status status;
    while ((status = look(address, one_kernel, name)) == SN_PENDING && sn_now() < deadline)
        sn_sleep_until(sn_now() + 2 * SN_MS);
    SN_TRY(status);
    if (status == SN_PENDING)
        return sn_fail(SN_ETIME, "the network interface %s is not up and running: is its cable in?",
                       name);
    SN_TRY(check_sysfs(name));
    memcpy(ret, name, sizeof name);
    return SN_OK;
}
