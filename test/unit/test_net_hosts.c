/* SPDX-License-Identifier: Apache-2.0
 *
 * Nets between network namespaces: which interface and address family is chosen, small /dev/shm,
 * cut links. Skipped (77) where namespaces cannot be made; the choice itself is tested as a
 * function too, anywhere. */
#include "gmem/gmem.h"
#include "net/iface.h"
#include "unit/sn_ranks.h"
#include "unit/sn_test.h"

#include <arpa/inet.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>

#define SOON (sn_now() + 10 * SN_SEC)
#define HOSTS 3

/* ---- the choice, as a function ---- */

typedef struct given { /* an address of a rank */
    int rank;
    const char *name, *address;
    uint8_t prefix, grade, route;
    uint32_t mbit;
} given;

static void fill(net_addresses *lists, const given *all, int n)
{
    memset(lists, 0, 4 * sizeof *lists);
    for (int i = 0; i < n; i++) {
        net_addresses *l = &lists[all[i].rank];
        net_address *a = &l->list[l->n++];
        int family = strchr(all[i].address, ':') ? AF_INET6 : AF_INET;
        *a = (net_address){.family = family == AF_INET ? 4 : 6,
                           .prefix = all[i].prefix,
                           .grade = all[i].grade,
                           .route = all[i].route,
                           .mbit = all[i].mbit};
        snprintf(a->name, sizeof a->name, "%s", all[i].name);
        assert_int_equal(inet_pton(family, all[i].address, a->bytes), 1);
    }
}

/* Ranks 0 and 1 on hosts 0 and 1 choose these addresses; NULL: refused with these words. */
static void check_choice(const given *all, int n, bool one_kernel, const char *want0,
                         const char *want1)
{
    static const int host_of[] = {0, 1};
    net_addresses lists[4];
    net_address got;
    char why[160], text[64];
    fill(lists, all, n);
    for (int me = 0; me < 2; me++) {
        sn_status status = net_iface_choose(lists, host_of, 2, me, one_kernel, &got, why);
        if (!want0) {
            assert_int_equal(status, SN_ENOTFOUND);
            assert_non_null(strstr(sn_errmsg(), want1));
            continue;
        }
        assert_ok(status);
        assert_string_equal(net_address_text(&got, text), me ? want1 : want0);
        assert_non_null(strstr(why, me ? want1 : want0));
    }
}
#define CHECK(one_kernel, want0, want1, ...)                                                       \
    check_choice((const given[]){__VA_ARGS__},                                                     \
                 (int) (sizeof((const given[]){__VA_ARGS__}) / sizeof(given)), one_kernel, want0,  \
                 want1)
#define LO(rank)                                                                                   \
    {rank, "lo", "127.0.0.1", 8, NET_LOOPBACK},                                                    \
    {                                                                                              \
        rank, "lo", "::1", 128, NET_LOOPBACK                                                       \
    }
#define DOCKER(rank)                                                                               \
    {                                                                                              \
        rank, "docker0", "172.17.0.1", 16, NET_INNER                                               \
    }

static void test_choice(void **state)
{
    /* one machine: loopback, whatever else there is */
    CHECK(true, "127.0.0.1", "127.0.0.1", LO(0), LO(1), {0, "eth0", "10.0.0.1", 24, NET_OUTER, 1},
          {1, "eth0", "10.0.0.1", 24, NET_OUTER, 1});
    /* a container engine's bridge comes first and is on both: not that one */
    CHECK(false, "10.0.0.1", "10.0.0.2", LO(0), LO(1), DOCKER(0), DOCKER(1),
          {0, "eth0", "10.0.0.1", 24, NET_OUTER}, {1, "eth0", "10.0.0.2", 24, NET_OUTER});
    /* the subnet that both are in, though the other one is faster and has the default route */
    CHECK(false, "10.9.0.1", "10.9.0.2", {0, "eth0", "192.168.1.5", 24, NET_OUTER, 1, 100000},
          {0, "eth1", "10.9.0.1", 16, NET_OUTER}, {1, "eth0", "192.168.2.5", 24, NET_OUTER, 1},
          {1, "eth1", "10.9.0.2", 16, NET_OUTER});
    /* routed: no subnet in common, so the default route */
    CHECK(false, "10.1.0.1", "10.2.0.1", {0, "eth1", "192.168.5.1", 24, NET_OUTER},
          {0, "eth0", "10.1.0.1", 24, NET_OUTER, 1}, {1, "eth0", "10.2.0.1", 24, NET_OUTER, 1});
    /* two that lead to the other: the faster */
    CHECK(false, "10.2.0.1", "10.2.0.2", {0, "eth0", "10.1.0.1", 24, NET_OUTER, 0, 1000},
          {0, "eth1", "10.2.0.1", 24, NET_OUTER, 0, 25000},
          {1, "eth0", "10.1.0.2", 24, NET_OUTER, 0, 1000},
          {1, "eth1", "10.2.0.2", 24, NET_OUTER, 0, 25000});
    /* a bridge that really joins them */
    CHECK(false, "10.3.0.1", "10.3.0.2", {0, "br0", "10.3.0.1", 24, NET_INNER},
          {1, "br0", "10.3.0.2", 24, NET_INNER}, DOCKER(0), DOCKER(1));
    /* nothing else: docker's, then loopback */
    CHECK(false, "172.17.0.1", "172.17.0.1", LO(0), LO(1), DOCKER(0), DOCKER(1));
    CHECK(false, "127.0.0.1", "127.0.0.1", LO(0), LO(1));
}

static void test_families(void **state)
{
    /* IPv6 only; beside loopback's IPv4; beside docker's IPv4 */
    CHECK(false, "fd00::1", "fd00::2", {0, "eth0", "fd00::1", 64, NET_OUTER},
          {1, "eth0", "fd00::2", 64, NET_OUTER});
    CHECK(false, "fd00::1", "fd00::2", LO(0), LO(1), DOCKER(0), DOCKER(1),
          {0, "eth0", "fd00::1", 64, NET_OUTER}, {1, "eth0", "fd00::2", 64, NET_OUTER});
    /* one has both, one only IPv6 */
    CHECK(false, "fd00::1", "fd00::2", {0, "eth0", "10.0.0.1", 24, NET_OUTER, 1},
          {0, "eth0", "fd00::1", 64, NET_OUTER, 1}, {1, "eth0", "fd00::2", 64, NET_OUTER, 1});
    /* both have both: IPv4 */
    CHECK(false, "10.0.0.1", "10.0.0.2", {0, "eth0", "fd00::1", 64, NET_OUTER},
          {0, "eth0", "10.0.0.1", 24, NET_OUTER}, {1, "eth0", "fd00::2", 64, NET_OUTER},
          {1, "eth0", "10.0.0.2", 24, NET_OUTER});
    /* nothing in common */
    CHECK(false, NULL, "rank 1 has no IPv4 address that is up and rank 0 no IPv6",
          {0, "eth0", "10.0.0.1", 24, NET_OUTER}, {1, "eth0", "fd00::2", 64, NET_OUTER});
    /* asked for, on one of them */
    CHECK(false, "10.5.0.1", "10.0.0.2", {0, "eth5", "10.5.0.1", 24, NET_ASKED},
          {1, "eth0", "10.0.0.2", 24, NET_OUTER});
}

/* ---- hosts ---- */

typedef struct town {
    int netns[HOSTS], bridge; /* descriptors */
    int cut;                  /* 1: now */
    sn_time cut_at, known[HOSTS];
} town;

static void ip(int netns, const char *script)
{
    char path[256];
    sn_command command;
    sn_str words = {0};
    assert_ok(sn_program_find("ip", path));
    const char *const argv[] = {path, "-batch", "-", NULL};
    assert_ok(sn_command_start(argv, script, netns, &command));
    assert_ok(sn_command_finish(&command, SOON, &words));
    sn_str_done(&words);
}

/* eth0 of each host is a port of a bridge; `inside` configures a host, with %d for its number. */
static town *make_town(const char *const inside[HOSTS])
{
    town *t = sn_ranks_shared(sizeof *t);
    char script[512];
    assert_ok(sn_netns_create(&t->bridge));
    ip(t->bridge, "link add sw type bridge forward_delay 0 stp_state 0\nlink set sw up\n");
    for (int h = 0; h < HOSTS; h++) {
        assert_ok(sn_netns_create(&t->netns[h]));
        snprintf(script, sizeof script,
                 "link add p%d index %d type veth peer name eth0 index %d netns /proc/%d/fd/%d\n"
                 "link set p%d master sw up\n",
                 h, 200 + h, 100 + h, (int) getpid(), t->netns[h], h);
        ip(t->bridge, script);
        snprintf(script, sizeof script, "link set lo up\n%slink set eth0 up\n", inside[h]);
        ip(t->netns[h], script);
    }
    return t;
}

static void raze(town *t)
{
    for (int h = 0; h < HOSTS; h++)
        close(t->netns[h]);
    close(t->bridge);
}

static int move_in(const town *t, int host)
{
    if (setns(t->netns[host], CLONE_NEWNET) || unshare(CLONE_NEWNS) ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("sysfs", "/sys", "sysfs", 0, NULL) ||
        mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=64k"))
        return -1;
    return 0;
}

/* Ranks talk, and share 8 MiB of memory per rank although /dev/shm has 64 KiB. */
static int rank_talk(sn_boot *boot, int rank, int host, void *ctx)
{
    static const int all[] = {0, 1, 2, 3};
    sn_net *net;
    sn_segment *seg;
    sn_window *win;
    RANK_CHECK(move_in(ctx, host) == 0);
    sn_net_opts opts = {.deadline = SOON}; /* names are not what separates these hosts */
    RANK_OK(sn_net_open(boot, &opts, &net));
    RANK_CHECK(sn_net_hosts(net) == HOSTS && strstr(sn_net_transport(net), "eth0"));
    RANK_CHECK(sn_net_same_host(net, 0) == (rank == 0 || rank == 3));
    RANK_OK(sn_gmem_create(net, all, 4, 8 << 20, SOON, &seg));
    RANK_OK(sn_window_create(seg, NULL, 8 << 20, SOON, &win));
    uint64_t one = 1, sum;
    for (int m = 0; m < 4; m++)
        RANK_OK(sn_window_accumulate(win, m, 4 << 20, &one, 1, SN_I64, SN_SUM, SOON));
    RANK_OK(sn_window_fence(win, SOON));
    RANK_OK(sn_window_get(win, (rank + 1) % 4, 4 << 20, &sum, 8, SOON));
    RANK_OK(sn_window_flush(win, (rank + 1) % 4, SOON));
    RANK_CHECK(sum == 4);
    RANK_OK(sn_window_free(win, SOON));
    sn_gmem_free(seg);
    sn_net_close(net);
    return 0;
}

static const int three[] = {0, 1, 2, 0};

static void talk(const char *const inside[HOSTS])
{
    town *t = make_town(inside);
    assert_int_equal(sn_ranks_run(4, three, rank_talk, t, SOON), 0);
    raze(t);
}

static void test_ipv4(void **state)
{
    talk((const char *const[]){"address add 10.7.0.1/24 dev eth0\n",
                               "address add 10.7.0.2/24 dev eth0\n",
                               "address add 10.7.0.3/24 dev eth0\n"});
}

static void test_ipv6_only(void **state)
{
    talk((const char *const[]){"address add fd07::1/64 dev eth0 nodad\n",
                               "address add fd07::2/64 dev eth0 nodad\n",
                               "address add fd07::3/64 dev eth0 nodad\n"});
}

/* IPv4 that leads nowhere beside IPv6 that does, and leftovers of container engines. */
static void test_leftovers(void **state)
{
#define DOCKER_UP                                                                                  \
    "link add docker0 type bridge\naddress add 172.17.0.1/16 dev docker0\n"                        \
    "link add veth9 type veth peer name veth8\nlink set docker0 up\n"
    talk((const char *const[]){DOCKER_UP "address add fd07::1/64 dev eth0 nodad\n",
                               DOCKER_UP "address add fd07::2/64 dev eth0 nodad\n",
                               DOCKER_UP "address add fd07::3/64 dev eth0 nodad\n"
                                         "address add 10.7.0.3/24 dev eth0\n"});
}

static int rank_apart(sn_boot *boot, int rank, int host, void *ctx)
{
    sn_net *net;
    RANK_CHECK(move_in(ctx, host) == 0);
    sn_net_opts opts = {.deadline = SOON};
    RANK_FAILS(sn_net_open(boot, &opts, &net), SN_ENOTFOUND,
               "rank 2 has no IPv4 address that is up and rank 0 no IPv6 address");
    return 0;
}

static void test_apart(void **state)
{
    town *t = make_town((const char *const[]){"address add 10.7.0.1/24 dev eth0\n"
                                              "link set lo down\n",
                                              "address add 10.7.0.2/24 dev eth0\n"
                                              "link set lo down\n",
                                              "address add fd07::3/64 dev eth0 nodad\n"
                                              "link set lo down\n"});
    assert_int_equal(sn_ranks_run(3, three, rank_apart, t, SOON), 0);
    raze(t);
}

/* ---- a cut link ---- */

/* Host 2 is cut off in the middle of it all; nobody drives progress. Both sides notice; host 0 and
 * 1 name rank 2. */
static int rank_cut(sn_boot *boot, int rank, int host, void *ctx)
{
    town *t = ctx;
    sn_net *net;
    RANK_CHECK(move_in(t, host) == 0);
    sn_net_opts opts = {.host_name = (const char *[]){"a", "b", "c"}[host], .deadline = SOON};
    RANK_OK(sn_net_open(boot, &opts, &net));
    int all[] = {0, 1, 2}, got[3];
    RANK_OK(sn_net_gather(net, all, 3, &rank, sizeof rank, SOON, got));
    if (rank == 0)
        __atomic_store_n(&t->cut, 1, __ATOMIC_RELEASE);
    sn_status status;
    while ((status = sn_net_alive(net)) >= 0 && (!t->known[rank] || sn_now() < SOON))
        usleep(500);
    t->known[rank] = sn_now();
    RANK_CHECK(status == SN_EPEER && strstr(sn_errmsg(), "stopped answering for"));
    RANK_CHECK(rank == 2 || strstr(sn_errmsg(), "rank 2 (c)"));
    sn_net_close(net);
    return 0;
}

static void test_cut(void **state)
{
    town *t = make_town((const char *const[]){"address add 10.7.0.1/24 dev eth0\n",
                                              "address add 10.7.0.2/24 dev eth0\n",
                                              "address add 10.7.0.3/24 dev eth0\n"});
    pid_t cutter = fork();
    if (cutter == 0) {
        while (!__atomic_load_n(&t->cut, __ATOMIC_ACQUIRE))
            usleep(500);
        usleep(30000);
        t->cut_at = sn_now();
        ip(t->bridge, "link set p2 nomaster\n");
        _exit(0);
    }
    assert_int_equal(sn_ranks_run(3, three, rank_cut, t, SOON), 0);
    assert_int_equal(waitpid(cutter, NULL, 0), cutter);
    for (int r = 0; r < 3; r++) {
        print_message("rank %d knows after %lld ms\n", r,
                      (long long) ((t->known[r] - t->cut_at) / SN_MS));
        assert_true(t->known[r] - t->cut_at < 3 * SN_SEC);
    }
    raze(t);
}

int main(void)
{
    const struct CMUnitTest anywhere[] = {
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_families),
    };
    const struct CMUnitTest hosts[] = {
        cmocka_unit_test(test_ipv4),      cmocka_unit_test(test_ipv6_only),
        cmocka_unit_test(test_leftovers), cmocka_unit_test(test_apart),
        cmocka_unit_test(test_cut),
    };
    int failed = sn_test_run(anywhere);
    if (failed || sn_host_possible() >= 0)
        return failed + (failed ? 0 : sn_test_run(hosts));
    printf("skipped: %s\n", sn_errmsg());
    return 77;
}
