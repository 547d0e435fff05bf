/* SPDX-License-Identifier: Apache-2.0
 * Namespaces, veth pairs, a bridge and a token bucket. */
#include "bench_wire.h"

#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COMMAND_S = 10 };

struct bench_wire {
    int hosts, sw; /* sw: the switch's network namespace */
    sn_child keeper[BENCH_HOSTS_MAX];
    char ip[256], tc[256];
};

typedef struct keeper_ctx {
    char name[16];
    int ready;
} keeper_ctx;

void bench_wire_address(int host, char ret[32])
{
    snprintf(ret, 32, "10.78.0.%d", host + 1);
}

/* ---- hosts ---- */

/* In the child: becomes the host, says how that went, and stays until it is killed. */
static int keep(void *ctx)
{
    const keeper_ctx *k = ctx;
    char word = sn_host_enter(k->name) < 0 ? 'n' : 'y';
    if (write(k->ready, &word, 1) != 1 || word == 'n')
        return 1;
    close(k->ready);
    while (pause())
        continue;
    return 0;
}

static sn_status wait_ready(int fd, const char *name)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char word = 'n';
    if (poll(&p, 1, COMMAND_S * 1000) > 0 && read(fd, &word, 1) == 1 && word == 'y')
        return SN_OK;
    return sn_fail(SN_EIO, "the emulated host %s does not start", name);
}

/* Without a PID namespace, so that ranks forked by the harness can enter it. */
static sn_status start_host(bench_wire *w, int host)
{
    int fd[2];
    keeper_ctx k;
    snprintf(k.name, sizeof k.name, "h%d", host);
    if (pipe2(fd, O_CLOEXEC))
        return sn_fail(SN_EIO, "pipe: %s", strerror(errno));
    k.ready = fd[1];
    sn_fork_opts opts = {
        .namespaces = sn_host_namespaces() & ~CLONE_NEWPID, .keep = &fd[1], .keeps = 1};
    sn_status status = sn_child_fork(&opts, keep, &k, &w->keeper[host]);
    close(fd[1]);
    if (status >= 0) {
        w->hosts = host + 1;
        status = wait_ready(fd[0], k.name);
    }
    close(fd[0]);
    return status;
}

/* ---- wires ---- */

static sn_status run_batch(const char *program, const char *script, int netns)
{
    const char *const argv[] = {program, "-batch", "-", NULL};
    sn_command command;
    SN_TRY(sn_command_start(argv, script, netns, &command));
    return sn_command_finish(&command, sn_now() + COMMAND_S * SN_SEC, NULL);
}

static sn_status make_switch(const bench_wire *w)
{
    sn_str script = {0};
    sn_str_add(&script, "link add sw type bridge forward_delay 0 stp_state 0\nlink set sw up\n");
    for (int h = 0; h < w->hosts; h++)
        sn_str_printf(&script,
                      "link add p%d type veth peer name eth0 netns %d\n"
                      "link set p%d master sw up\n",
                      h, (int) w->keeper[h].pid, h);
    sn_status status = run_batch(w->ip, sn_str_get(&script), w->sw);
    sn_str_done(&script);
    return status;
}

static sn_status plug_host(const bench_wire *w, int host, double bits_per_s)
{
    char address[32], script[256];
    int netns;
    bench_wire_address(host, address);
    snprintf(script, sizeof script,
             "link set lo up\naddress add %s/24 dev eth0\nlink set eth0 up\n", address);
    SN_TRY(sn_netns_of(w->keeper[host].pid, &netns));
    sn_status status = run_batch(w->ip, script, netns);
    if (status >= 0 && bits_per_s > 0) {
        snprintf(script, sizeof script,
                 "qdisc add dev eth0 root tbf rate %.0fbit burst 128kb latency 5ms\n", bits_per_s);
        status = run_batch(w->tc, script, netns);
    }
    close(netns);
    return status;
}

static sn_status wire_up(bench_wire *w, int hosts, double bits_per_s)
{
    SN_TRY(sn_host_possible());
    SN_TRY(sn_program_find("ip", w->ip));
    if (bits_per_s > 0)
        SN_TRY(sn_program_find("tc", w->tc));
    SN_TRY(sn_netns_create(&w->sw));
    for (int h = 0; h < hosts; h++)
        SN_TRY(start_host(w, h));
    SN_TRY(make_switch(w));
    for (int h = 0; h < hosts; h++)
        SN_TRY(plug_host(w, h, bits_per_s));
    return SN_OK;
}

sn_status bench_wire_create(int hosts, double bits_per_s, bench_wire **ret)
{
    bench_wire *w = sn_alloc(sizeof *w);
    SN_ASSERT(hosts <= BENCH_HOSTS_MAX);
    w->sw = -1;
    sn_status status = wire_up(w, hosts, bits_per_s);
    if (status < 0) {
        bench_wire_free(w);
        return sn_fail_in(status, "cannot emulate hosts");
    }
    *ret = w;
    return SN_OK;
}

void bench_wire_free(bench_wire *w)
{
    sn_exit end;
    if (!w)
        return;
    for (int h = 0; h < w->hosts; h++) {
        sn_child_kill(&w->keeper[h], SIGKILL);
        sn_child_wait(&w->keeper[h], -1, &end);
    }
    if (w->sw >= 0)
        close(w->sw);
    free(w);
}

sn_status bench_wire_enter(const bench_wire *w, int host)
{
    int all = sn_host_namespaces() & ~CLONE_NEWPID;
    if (setns(w->keeper[host].pidfd, all))
        return sn_fail(SN_EIO, "cannot enter the emulated host h%d: %s", host, strerror(errno));
    return SN_OK;
}

sn_status bench_wire_plug(const bench_wire *w, int host, bool in)
{
    char script[64];
    snprintf(script, sizeof script, "link set p%d %s\n", host, in ? "up" : "down");
    return run_batch(w->ip, script, w->sw);
}
