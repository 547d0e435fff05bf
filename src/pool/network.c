/* SPDX-License-Identifier: Apache-2.0
 *
 * network — the wires between emulated hosts.
 *
 *   h0: eth0 10.77.0.1 ──veth── p0 ┐
 *                                  ├ sw (bridge, in a namespace of its own)
 *   h1: eth0 10.77.0.2 ──veth── p1 ┘
 *
 * All of it is without names outside: it goes when the hosts' processes and our descriptor go. */
#include "pool/attempt.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { LIMIT_S = 10 }; /* for any one ip or tc command, which takes 2 ms */

void pool_network_address(char out[32], int host)
{
    snprintf(out, 32, "10.77.0.%d", host + 1);
}

static sn_status ip_start(const char *ip, const char *script, int netns, sn_command *ret)
{
    const char *const argv[] = {ip, "-batch", "-", NULL};
    return sn_command_start(argv, script, netns, ret);
}

static sn_status make_switch(const char *ip, const pool_host *hosts, int n, int netns)
{
    sn_str script = {0};
    sn_str_add(&script, "link add sw type bridge forward_delay 0 stp_state 0\nlink set sw up\n");
    for (int h = 0; h < n; h++)
        sn_str_printf(&script,
                      "link add p%d type veth peer name eth0 netns %d\n"
                      "link set p%d master sw up\n",
                      h, (int) hosts[h].agent.pid, h);
    sn_command command;
    sn_status status = ip_start(ip, sn_str_get(&script), netns, &command);
    if (status >= 0)
        status = sn_command_finish(&command, sn_now() + LIMIT_S * SN_SEC, NULL);
    sn_str_done(&script);
    return status;
}

static sn_status plug_start(const char *ip, const pool_host *host, sn_command *ret)
{
    char address[32], script[160];
    int netns;
    pool_network_address(address, host->index);
    snprintf(script, sizeof script,
             "link set lo up\naddress add %s/24 dev eth0\nlink set eth0 up\n", address);
    SN_TRY(sn_netns_of(host->agent.pid, &netns));
    sn_status status = ip_start(ip, script, netns, ret);
    close(netns);
    return status;
}

/* The hosts' own ends, all at the same time. */
static sn_status plug_hosts(const char *ip, const pool_host *hosts, int n)
{
    sn_command *command = sn_alloc(sizeof *command * (size_t) n);
    sn_status status = SN_OK;
    int started = 0;
    for (; started < n && status >= 0; started += status >= 0)
        status = plug_start(ip, &hosts[started], &command[started]);
    for (int h = 0; h < started; h++) {
        bool failed = status < 0; /* keep the first sentence */
        char first[512];
        snprintf(first, sizeof first, "%s", failed ? sn_errmsg() : "");
        sn_status s = sn_command_finish(&command[h], sn_now() + LIMIT_S * SN_SEC, NULL);
        if (failed)
            sn_fail(status, "%s", first);
        else if (s < 0)
            status = sn_fail_in(s, "host %s", hosts[h].name);
    }
    free(command);
    return status;
}

/* What each host sends goes through a bucket of tokens: it is the sender who is slowed down. */
static sn_status shape_hosts(const pool_host *hosts, int n, double bits_per_s)
{
    char tc[256], script[128];
    SN_TRY(sn_program_find("tc", tc));
    snprintf(script, sizeof script,
             "qdisc add dev eth0 root tbf rate %.0fbit burst 128kb latency 5ms\n", bits_per_s);
    for (int h = 0; h < n; h++) {
        sn_command command;
        int netns;
        SN_TRY(sn_netns_of(hosts[h].agent.pid, &netns));
        sn_status status = ip_start(tc, script, netns, &command);
        close(netns);
        if (status >= 0)
            status = sn_command_finish(&command, sn_now() + LIMIT_S * SN_SEC, NULL);
        if (status < 0)
            return sn_fail_in(status, "link of host %s", hosts[h].name);
    }
    return SN_OK;
}

sn_status pool_network_create(const pool_host *hosts, int n, double link_bits_per_s, int *ret_fd)
{
    char ip[256];
    int netns;
    sn_status status;
    SN_TRY_OR(sn_program_find("ip", ip), out);
    SN_TRY_OR(sn_netns_create(&netns), out);
    status = make_switch(ip, hosts, n, netns);
    if (status >= 0)
        status = plug_hosts(ip, hosts, n);
    if (status >= 0 && link_bits_per_s > 0)
        status = shape_hosts(hosts, n, link_bits_per_s);
    if (status >= 0)
        *ret_fd = netns;
    else
        close(netns);
out:
    return status < 0 ? sn_fail_in(status, "cannot wire the emulated hosts") : status;
}
