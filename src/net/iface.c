/* SPDX-License-Identifier: Apache-2.0
 *
 * Which network interface carries the job's traffic. */
#include "net/net_private.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

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

static bool usable(const struct ifaddrs *i)
{
    return i->ifa_addr && i->ifa_addr->sa_family == AF_INET && (i->ifa_flags & IFF_UP) &&
           (i->ifa_flags & IFF_RUNNING);
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

static const struct ifaddrs *choose(const struct ifaddrs *all, bool one_kernel)
{
    char route[64] = "";
    const struct ifaddrs *best = NULL;
    int best_score = 0;
    default_route(route);
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        if (!usable(i))
            continue;
        bool loop = (i->ifa_flags & IFF_LOOPBACK) != 0;
        int score = loop                              ? (one_kernel ? 5 : 1)
                    : !leads_out(i)                   ? 2
                    : strcmp(i->ifa_name, route) == 0 ? 4
                                                      : 3;
        if (score > best_score) {
            best = i;
            best_score = score;
        }
    }
    return best;
}

sn_status net_iface_choose(const char *address, bool one_kernel, char ret[64])
{
    struct ifaddrs *all;
    if (getifaddrs(&all))
        return sn_fail(SN_EIO, "cannot list the network interfaces: %s", strerror(errno));
    const struct ifaddrs *best = NULL;
    for (const struct ifaddrs *i = all; address && i && !best; i = i->ifa_next)
        if (has_address(i, address))
            best = i;
    if (!address)
        best = choose(all, one_kernel);
    if (best)
        snprintf(ret, 64, "%s", best->ifa_name);
    freeifaddrs(all);
    if (best)
        return SN_OK;
    if (address)
        return sn_fail(SN_ENOTFOUND, "no network interface has the address %s", address);
    return sn_fail(SN_ENOTFOUND, "no network interface is up: bring one up, lo at least");
}
