/* SPDX-License-Identifier: Apache-2.0
 *
 * Cases A14, A16, A17, A19, A20, A21: what the machine around the ranks is like. Hosts of one name,
 * a small /dev/shm, fork, several interfaces, IPv6.
 *
 * Networks are made of namespaces and need root; without it those tests are skipped. */
#include "unit/cases_world.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>

static const int pair[] = {0, 0}, far[] = {0, 1}, both[] = {0, 0, 1, 1};

static void need_root(void)
{
    if (geteuid() != 0) {
        print_message("skipped: namespaces are made as root\n");
        skip();
    }
}

/* Some calls of every kind are right. */
static int works(world *w)
{
    static float in[20000], out[20000];
    for (uint64_t k = 0; k < 30; k++) {
        sn_coll_call c = case_call(CASES_SEED + 40, k, w->size, k % 5 ? 20 : 4000);
        RANK_CHECK(case_run(w->all, c, k, in, out) == 0);
    }
    return 0;
}

/* ---- A19: the same name in two containers ---- */

static int neighbours(sn_boot *boot, int rank, int host, void *ctx)
{
    world w;
    if (rank == 1)
        RANK_CHECK(unshare(CLONE_NEWIPC) == 0);
    if (case_open(boot, 0, 1 << 20, &w) != 0)
        return 1;
    RANK_CHECK(!sn_net_same_host(w.net, 1 - rank) && sn_net_hosts(w.net) == 2);
    RANK_CHECK(works(&w) == 0);
    world_close(&w);
    return 0;
}

static void test_same_name(void **state)
{
    need_root();
    WORLD(pair, neighbours);
}

/* ---- A20: a /dev/shm of one page ---- */

static int small_shm(sn_boot *boot, int rank, int host, void *ctx)
{
    world w;
    RANK_CHECK(unshare(CLONE_NEWNS) == 0);
    RANK_CHECK(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    RANK_CHECK(mount("none", "/dev/shm", "tmpfs", 0, "size=4k") == 0);
    int fd = open("/dev/shm/full", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    char page[4096] = {1};
    while (write(fd, page, sizeof page) > 0)
        continue;
    if (case_open(boot, host, 8 << 20, &w) != 0)
        return 1;
    unsigned char *p;
    RANK_OK(sn_coll_alloc(w.c, 8 << 20, (void **) &p));
    memset(p, 1, 8 << 20); /* all of it is there: no SIGBUS */
    RANK_CHECK(works(&w) == 0);
    world_close(&w);
    return 0;
}

static void test_small_shm(void **state)
{
    need_root();
    WORLD(pair, small_shm);
    WORLD(both, small_shm);
}

/* ---- A21: fork ---- */

static int reaped(pid_t child)
{
    int how;
    while (waitpid(child, &how, 0) < 0 && errno == EINTR)
        continue;
    RANK_CHECK(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    return 0;
}

/* A rank starts a program, and a child that reads and writes its memory, while requests are under
 * way; their ends are no deaths, and no byte of a result changes. */
static int forks(sn_boot *boot, int rank, int host, void *ctx)
{
    enum { N = 50000 };
    static float plain[2 * N];
    float *arena;
    world w;
    if (case_open(boot, host, 4 << 20, &w) != 0)
        return 1;
    RANK_OK(sn_coll_alloc(w.c, 2 * N * sizeof(float), (void **) &arena));
    for (int k = 0; k < 6; k++) {
        float *mem = k % 2 ? plain : arena;
        sn_coll_req *r;
        sn_coll_call c = {.op = SN_ALL_REDUCE, .count = N, .in = mem, .out = mem + N};
        case_fill(&c, (uint64_t) k, rank, w.size, mem, mem + N);
        RANK_OK(sn_coll_post(w.all, &c, soon(), &r));
        pid_t child = rank == k % w.size ? fork() : 0;
        if (rank == k % w.size && child == 0) {
            float sum = 0;
            for (int i = 0; i < 2 * N; i++)
                sum += arena[i];
            memset(plain, sum > 0, sizeof plain);
            if (k % 3 == 0)
                execl("/bin/true", "true", (char *) NULL);
            _exit(0);
        }
        if (child > 0 && k < 3) /* before the operation ends, or after it */
            RANK_CHECK(reaped(child) == 0);
        RANK_OK(sn_coll_wait(r));
        RANK_CHECK(case_check(&c, (uint64_t) k, rank, w.size, mem + N) == 0);
        if (child > 0 && k >= 3)
            RANK_CHECK(reaped(child) == 0);
        RANK_OK(sn_net_alive(w.net));
    }
    world_close(&w);
    return 0;
}

static void test_fork(void **state)
{
    WORLD(pair, forks);
    WORLD(far, forks);
    WORLD(both, forks);
}

typedef struct outlived {
    sn_time died;
    sn_time told;
    pid_t child;
} outlived;

/* The rank is killed; a child of it lives on and holds all of its descriptors and memory. */
static int outlives(sn_boot *boot, int rank, int host, void *ctx)
{
    outlived *o = ctx;
    sn_coll_call barrier = {.op = SN_BARRIER};
    world w;
    if (case_open(boot, host, 1 << 20, &w) != 0)
        return 1;
    RANK_OK(world_barrier(&w));
    if (rank == 1) {
        pid_t child = fork();
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, 0);
            sn_time until = sn_now() + 10 * SN_SEC;
            while (sn_now() < until && !__atomic_load_n(&o->told, __ATOMIC_ACQUIRE))
                usleep(1000);
            _exit(0);
        }
        o->died = sn_now();
        sn_rank_die();
    }
    sn_status status = sn_coll_run(w.all, &barrier, soon());
    sn_time now = sn_now();
    __atomic_store_n(&o->told, now, __ATOMIC_RELEASE);
    RANK_CHECK(status == SN_EPEER && strstr(sn_errmsg(), "rank 1 (h"));
    RANK_CHECK(now - o->died < SN_SEC);
    world_close(&w);
    return 0;
}

static void test_fork_outlives_its_rank(void **state)
{
    outlived *o = sn_ranks_shared(sizeof *o);
    assert_int_equal(sn_ranks_run(2, pair, outlives, o, sn_now() + 30 * SN_SEC), 0);
    *o = (outlived){0};
    assert_int_equal(sn_ranks_run(2, far, outlives, o, sn_now() + 30 * SN_SEC), 0);
}

static int mappings(void)
{
    char line[512];
    int n = 0;
    FILE *f = fopen("/proc/self/maps", "re");
    while (f && fgets(line, sizeof line, f))
        n++;
    if (f)
        fclose(f);
    return n;
}

/* Whatever passes through, the number of mappings and descriptors stays. */
static int bounded(sn_boot *boot, int rank, int host, void *ctx)
{
    enum { N = 300000 };
    world w;
    int before = 0, both_ranks[2] = {0, 1};
    if (case_open(boot, host, 1 << 20, &w) != 0)
        return 1;
    for (int k = 0; k < 80; k++) {
        size_t bytes = (size_t) (1 + k % 7) * N;
        float *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        RANK_CHECK(p != MAP_FAILED);
        sn_coll_call c = {.op = SN_ALL_REDUCE, .count = (int64_t) bytes / 4, .in = p, .out = p};
        RANK_OK(sn_coll_run(w.all, &c, soon()));
        munmap(p, bytes);
        if (k % 10 == 0) {
            sn_coll_group *g;
            sn_segment *seg;
            RANK_OK(sn_coll_group_create(w.c, "brief", both_ranks, 2, soon(), &g));
            RANK_OK(sn_gmem_create(w.net, both_ranks, 2, 65536, soon(), &seg));
            RANK_OK(world_barrier(&w));
            sn_gmem_free(seg);
            sn_coll_group_free(g);
        }
        if (k == 20)
            before = mappings();
    }
    RANK_CHECK(mappings() <= before + 8);
    int fd = dup(0);
    RANK_CHECK(fd < 64);
    world_close(&w);
    return 0;
}

static void test_mappings_are_bounded(void **state)
{
    WORLD(pair, bounded);
    WORLD(far, bounded);
}

/* ---- networks ---- */

/* Two namespaces joined by a pair of interfaces named eth0; each has a docker0 with the same
 * address, and lo. */
typedef struct lab {
    int pid;
    int rounds; /* before the link is cut */
    const char *bind[2];
} lab;

static int shell(const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    return system(line);
}

static void lab_down(const lab *l)
{
    for (int i = 0; i < 2; i++)
        shell("ip netns del snc%d%c 2>/dev/null", l->pid, 'a' + i);
}

static lab *lab_up(void)
{
    lab *l = sn_ranks_shared(sizeof *l);
    l->pid = (int) getpid();
    int bad = shell("ip netns add snc%da && ip netns add snc%db", l->pid, l->pid);
    bad = bad || shell("ip -n snc%da link add eth0 index 101 type veth peer name eth0 index 102 "
                       "netns snc%db",
                       l->pid, l->pid);
    for (int i = 0; i < 2 && !bad; i++)
        bad = shell("N='ip -n snc%d%c'; $N link set lo up && $N addr add 10.77.0.%d/24 dev eth0 && "
                    "$N addr add fd77::%d/64 dev eth0 nodad && $N link set eth0 up && "
                    "$N link add docker0 type bridge && $N addr add 172.17.0.1/16 dev docker0 && "
                    "$N link set docker0 up",
                    l->pid, 'a' + i, i + 1, i + 1);
    if (bad) {
        lab_down(l);
        fail_msg("the networks could not be made");
    }
    return l;
}

static int enter(const lab *l, int side)
{
    char path[64];
    snprintf(path, sizeof path, "/run/netns/snc%d%c", l->pid, 'a' + side);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    RANK_CHECK(fd >= 0 && setns(fd, CLONE_NEWNET) == 0);
    close(fd);
    RANK_CHECK(unshare(CLONE_NEWNS | CLONE_NEWIPC) == 0);
    RANK_CHECK(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    RANK_CHECK(mount("sysfs", "/sys", "sysfs", 0, NULL) == 0);
    return 0;
}

static void lab_run(lab *l, sn_rank_fn fn)
{
    int failing = sn_ranks_run(2, far, fn, l, sn_now() + 30 * SN_SEC);
    lab_down(l);
    assert_int_equal(failing, 0);
}

static sn_status lab_open(sn_boot *boot, const lab *l, int rank, sn_time deadline, sn_net **ret)
{
    sn_net_opts opts = {.host_name = rank ? "h1" : "h0", .deadline = deadline};
    opts.bind_address = l->bind[rank];
    return sn_net_open(boot, &opts, ret);
}

/* A17: eth0 is taken, not docker0, which both sides have with the same address, and not lo. */
static int over_eth0(sn_boot *boot, int rank, int host, void *ctx)
{
    lab *l = ctx;
    world w = {.rank = rank, .size = 2};
    RANK_CHECK(enter(l, rank) == 0);
    RANK_OK(lab_open(boot, l, rank, soon(), &w.net));
    sn_coll_opts opts = {.arena_bytes = 1 << 20, .deadline = soon()};
    RANK_OK(sn_coll_open(w.net, &opts, &w.c));
    RANK_CHECK(case_group(&w, "world", &w.all) == 0);
    RANK_CHECK(works(&w) == 0);
    world_close(&w);
    return 0;
}

static void test_interface_that_leads_there(void **state)
{
    need_root();
    lab_run(lab_up(), over_eth0);
}

/* A14: the link is cut while both wait for the other, at once or later: both are told, within the
 * bound for silence. */
static int cut(sn_boot *boot, int rank, int host, void *ctx)
{
    lab *l = ctx;
    sn_net *net;
    sn_net_req *req;
    int members[2] = {0, 1}, value;
    char both_sides[2];
    RANK_CHECK(enter(l, rank) == 0);
    RANK_OK(lab_open(boot, l, rank, soon(), &net));
    RANK_OK(sn_net_gather(net, members, 2, "x", 1, soon(), both_sides)); /* both are open */
    for (int i = 0; i < l->rounds; i++) {
        usleep(3000);
        RANK_OK(sn_net_gather(net, members, 2, "x", 1, soon(), both_sides));
    }
    if (rank == 0)
        RANK_CHECK(shell("ip link set eth0 down") == 0);
    sn_time from = sn_now();
    RANK_OK(sn_net_recv(net, 1 - rank, 1, &value, sizeof value, &req));
    RANK_FAILS(sn_net_wait(net, req, soon(), "recv"), SN_EPEER,
               rank ? "rank 0 (h0)" : "rank 1 (h1)");
    RANK_CHECK(sn_now() - from < 2 * SN_SEC);
    sn_net_close(net);
    return 0;
}

static void test_cut_link(void **state)
{
    need_root();
    for (int k = 0; k < 6; k++) {
        lab *l = lab_up();
        l->rounds = k == 5 ? 100 : 0;
        lab_run(l, cut);
    }
}

/* A14: addresses were exchanged, but no packet arrives: an error in time on both, with a name. */
static int blackhole(sn_boot *boot, int rank, int host, void *ctx)
{
    lab *l = ctx;
    sn_net *net;
    RANK_CHECK(enter(l, rank) == 0);
    RANK_CHECK(shell("ip neigh replace 10.77.0.%d lladdr 02:00:00:00:00:99 dev eth0 nud permanent",
                     2 - rank) == 0);
    sn_time from = sn_now(), deadline = from + 1500 * SN_MS;
    sn_status status = lab_open(boot, l, rank, deadline, &net);
    RANK_CHECK(status == SN_ETIME || status == SN_EPEER);
    RANK_CHECK(sn_now() < deadline + 500 * SN_MS);
    RANK_CHECK(strstr(sn_errmsg(), rank ? "rank 0" : "rank 1") != NULL);
    return 0;
}

static void test_blackhole(void **state)
{
    need_root();
    lab_run(lab_up(), blackhole);
}

/* A16: IPv6 on both sides, or only on one: it works, or both are told why not, in time. */
static int families(sn_boot *boot, int rank, int host, void *ctx)
{
    lab *l = ctx;
    sn_net *net = NULL;
    int members[2] = {0, 1};
    char both_sides[2];
    RANK_CHECK(enter(l, rank) == 0);
    sn_time deadline = sn_now() + 3 * SN_SEC;
    sn_status status = lab_open(boot, l, rank, deadline, &net);
    RANK_CHECK(sn_now() < deadline + 500 * SN_MS);
    if (status == SN_OK) {
        RANK_OK(sn_net_gather(net, members, 2, "x", 1, soon(), both_sides));
        sn_net_close(net);
    } else {
        RANK_CHECK(strlen(sn_errmsg()) > 20);
        fprintf(stderr, "%s and %s: %s\n", l->bind[0], l->bind[1], sn_errmsg());
    }
    return 0;
}

static void test_address_families(void **state)
{
    static const char *const binds[][2] = {
        {"fd77::1", "fd77::2"}, {"10.77.0.1", "fd77::2"}, {"10.77.0.1", "10.77.0.2"}};
    need_root();
    for (size_t k = 0; k < SN_COUNT(binds); k++) {
        lab *l = lab_up();
        l->bind[0] = binds[k][0];
        l->bind[1] = binds[k][1];
        lab_run(l, families);
    }
}

/* An address that no interface has is named, at once. */
static int no_address(sn_boot *boot, int rank, int host, void *ctx)
{
    sn_net *net;
    sn_net_opts opts = {.host_name = rank ? "h1" : "h0", .deadline = soon()};
    opts.bind_address = "192.0.2.7";
    sn_time from = sn_now();
    RANK_FAILS(sn_net_open(boot, &opts, &net), SN_ENOTFOUND, "192.0.2.7");
    RANK_CHECK(sn_now() - from < 5 * SN_SEC);
    return 0;
}

static void test_no_such_address(void **state)
{
    WORLD(far, no_address);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_same_name),
    cmocka_unit_test(test_small_shm),
    cmocka_unit_test(test_fork),
    cmocka_unit_test(test_fork_outlives_its_rank),
    cmocka_unit_test(test_mappings_are_bounded),
    cmocka_unit_test(test_interface_that_leads_there),
    cmocka_unit_test(test_cut_link),
    cmocka_unit_test(test_blackhole),
    cmocka_unit_test(test_address_families),
    cmocka_unit_test(test_no_such_address),
};

CASES_MAIN(tests)
