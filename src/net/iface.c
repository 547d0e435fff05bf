/* SPDX-License-Identifier: Apache-2.0
 *
 * What the system tells about its network interfaces. The judgement is in iface_choose.c. */
#include "net/iface.h"

#include "os/os.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- addresses as text and for sockets ---- */

const char *net_address_text(const net_address *a, char out[64])
{
    out[0] = 0;
    inet_ntop(a->family == 4 ? AF_INET : AF_INET6, a->bytes, out, 64);
    return out;
}

socklen_t net_address_socket(const net_address *a, uint16_t port, struct sockaddr_storage *ret)
{
    memset(ret, 0, sizeof *ret);
    if (a->family == 4) {
        struct sockaddr_in *in = (void *) ret;
        in->sin_family = AF_INET;
        in->sin_port = port;
        memcpy(&in->sin_addr, a->bytes, 4);
        return sizeof *in;
    }
    struct sockaddr_in6 *in6 = (void *) ret;
    in6->sin6_family = AF_INET6;
    in6->sin6_port = port;
    memcpy(&in6->sin6_addr, a->bytes, 16);
    return sizeof *in6;
}

/* ---- what one entry says ---- */

static uint8_t bits_of(const void *mask, size_t bytes)
{
    uint8_t bits = 0;
    for (size_t i = 0; i < bytes; i++)
        bits = (uint8_t) (bits + __builtin_popcount(((const uint8_t *) mask)[i]));
    return bits;
}

static bool take_address(const struct ifaddrs *i, net_address *ret)
{
    const struct sockaddr_in *in = (const void *) i->ifa_addr,
                             *mask = (const void *) i->ifa_netmask;
    const struct sockaddr_in6 *in6 = (const void *) i->ifa_addr;
    const struct sockaddr_in6 *mask6 = (const void *) i->ifa_netmask;
    if (!in || !mask || !(i->ifa_flags & IFF_UP))
        return false;
    if (in->sin_family == AF_INET) {
        ret->family = 4;
        memcpy(ret->bytes, &in->sin_addr, 4);
        ret->prefix = bits_of(&mask->sin_addr, 4);
        return true;
    }
    /* A link-local address means nothing without an interface, which UCX's do not have. */
    if (in->sin_family != AF_INET6 || IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr))
        return false;
    ret->family = 6;
    memcpy(ret->bytes, &in6->sin6_addr, 16);
    ret->prefix = bits_of(&mask6->sin6_addr, 16);
    return true;
}

static bool is_bridge(const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "/sys/class/net/%.15s/bridge", name);
    return access(path, F_OK) == 0;
}

static net_grade grade_of(const struct ifaddrs *i, const net_address *a)
{
    static const char *const inner[] = {"docker", "virbr",   "br-",  "cni",    "podman", "veth",
                                        "cali",   "flannel", "tunl", "ip6tnl", "sit",    "lxc"};
    if (i->ifa_flags & IFF_LOOPBACK)
        return NET_LOOPBACK;
    for (size_t k = 0; k < SN_COUNT(inner); k++)
        if (strncmp(i->ifa_name, inner[k], strlen(inner[k])) == 0)
            return NET_INNER;
    bool nobody_gave = a->family == 4 && a->bytes[0] == 169 && a->bytes[1] == 254;
    return nobody_gave || is_bridge(i->ifa_name) ? NET_INNER : NET_OUTER;
}

static uint32_t mbit_of(const char *name)
{
    char path[64], text[32] = "";
    snprintf(path, sizeof path, "/sys/class/net/%.15s/speed", name);
    FILE *f = fopen(path, "re");
    if (f && !fgets(text, sizeof text, f)) /* fails where a device has no speed */
        text[0] = 0;
    if (f)
        fclose(f);
    long mbit = strtol(text, NULL, 10);
    return mbit > 0 && mbit < 10000000 ? (uint32_t) mbit : 0;
}

/* ---- default routes ---- */

static bool routes_4(const char *name)
{
    FILE *f = fopen("/proc/net/route", "re");
    char line[256], device[64];
    unsigned destination, mask;
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f))
        found = sscanf(line, "%63s %x %*x %*x %*d %*d %*d %x", device, &destination, &mask) == 3 &&
                destination == 0 && mask == 0 && strcmp(device, name) == 0;
    if (f)
        fclose(f);
    return found;
}

static bool routes_6(const char *name)
{
    FILE *f = fopen("/proc/net/ipv6_route", "re");
    char line[256], device[64], destination[40];
    unsigned prefix, flags;
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f))
        found = sscanf(line, "%39s %x %*s %*x %*s %*x %*x %*x %x %63s", destination, &prefix,
                       &flags, device) == 4 &&
                prefix == 0 && strspn(destination, "0") == 32 && (flags & 0x0002) /* a gateway */ &&
                strcmp(device, name) == 0;
    if (f)
        fclose(f);
    return found;
}

/* ---- the list ---- */

static bool is_asked(const net_address *a, const char *asked)
{
    uint8_t bytes[16];
    int family = strchr(asked, ':') ? AF_INET6 : AF_INET;
    return inet_pton(family, asked, bytes) == 1 && a->family == (family == AF_INET ? 4 : 6) &&
           memcmp(bytes, a->bytes, family == AF_INET ? 4 : 16) == 0;
}

/* One more; when there is no room it takes the place of the worst, if that is worse. */
static void keep(net_addresses *all, const net_address *a)
{
    net_address *worst = &all->list[0];
    if (all->n < NET_ADDRESSES) {
        all->list[all->n++] = *a;
        return;
    }
    for (int i = 1; i < NET_ADDRESSES; i++)
        if (all->list[i].grade < worst->grade)
            worst = &all->list[i];
    if (worst->grade < a->grade)
        *worst = *a;
}

sn_status net_iface_list(const char *asked, net_addresses *ret)
{
    struct ifaddrs *all;
    if (getifaddrs(&all))
        return sn_fail(SN_EIO, "cannot list the network interfaces: %s", strerror(errno));
    net_addresses found = {0};
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        net_address a = {0};
        if (!take_address(i, &a) || (asked && !is_asked(&a, asked)))
            continue;
        snprintf(a.name, sizeof a.name, "%s", i->ifa_name);
        a.grade = (uint8_t) (asked ? NET_ASKED : grade_of(i, &a));
        a.route = a.family == 4 ? routes_4(a.name) : routes_6(a.name);
        a.mbit = mbit_of(a.name);
        keep(&found, &a);
    }
    freeifaddrs(all);
    if (asked && !found.n)
        return sn_fail(SN_ENOTFOUND, "no network interface has the address %s", asked);
    *ret = found;
    return SN_OK;
}

/* ---- is it usable? ---- */

/* UCX finds interfaces in /sys, which shows those of the namespace that it was mounted in. */
static sn_status check_sysfs(const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "/sys/class/net/%.15s", name);
    if (access(path, F_OK) == 0)
        return SN_OK;
    return sn_fail(SN_ENOTFOUND,
                   "%s is missing, UCX cannot use the interface: mount sysfs anew in this "
                   "network namespace (mount -t sysfs sysfs /sys)",
                   path);
}

static bool is_running(const char *name)
{
    struct ifaddrs *all;
    bool running = false;
    if (getifaddrs(&all))
        return false;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next)
        running |= strcmp(i->ifa_name, name) == 0 && (i->ifa_flags & IFF_UP) &&
                   (i->ifa_flags & IFF_RUNNING);
    freeifaddrs(all);
    return running;
}

sn_status net_iface_wait(const net_address *address, sn_time deadline)
{
    /* The kernel calls a link running a moment after it was brought up, which matters where an
     * emulated host has only just been made. */
    while (!is_running(address->name)) {
        if (sn_now() >= deadline)
            return sn_fail(SN_ETIME,
                           "the network interface %s is not up and running: is its cable in?",
                           address->name);
        sn_sleep_until(sn_now() + 2 * SN_MS);
    }
    return check_sysfs(address->name);
}
