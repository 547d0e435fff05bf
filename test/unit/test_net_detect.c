/* SPDX-License-Identifier: Apache-2.0
 *
 * Peers that stop, die or leave while nobody calls them: who notices, how soon, and who must not be
 * called dead. Bounds are wide here, since the machine may have much else to do; bench measures. */
#include "net/net.h"
#include "unit/sn_ranks.h"
#include "unit/sn_test.h"

#include <sched.h>
#include <sys/syscall.h>

#define SOON (sn_now() + 10 * SN_SEC)
#define NOTICED_NS (3 * SN_SEC)

static const int one_host[8] = {0};
static const int two_hosts[] = {0, 0, 1, 1};
static const int uneven[] = {0, 1, 0, 0, 1, 2};

typedef struct scene {
    const int *hosts;
    int world, victim;
    int signal;      /* that it gets: SIGSTOP or SIGKILL */
    size_t resident; /* bytes it has */
    sn_time detect;  /* as in the options */
    int ready, noticed;
    pid_t pid[8];
    sn_time hit; /* when the signal was sent */
    sn_time known[8];
} scene;

static sn_status join(scene *s, sn_boot *boot, int rank, int host, sn_net **ret)
{
    char name[16];
    snprintf(name, sizeof name, "h%d", host);
    sn_net_opts opts = {.host_name = name,
                        .transports = *sn_ranks_transports(),
                        .deadline = SOON,
                        .detect_ns = s->detect};
    s->pid[rank] = getpid();
    return sn_net_open(boot, &opts, ret);
}

static void all_ready(scene *s)
{
    __atomic_fetch_add(&s->ready, 1, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(&s->ready, __ATOMIC_ACQUIRE) < s->world)
        usleep(500);
}

/* The victim is hit from outside, by the first survivor; all survivors compute, so to speak: none
 * drives progress or looks by itself. */
static int rank_scene(sn_boot *boot, int rank, int host, void *ctx)
{
    scene *s = ctx;
    sn_net *net;
    char who[64];
    int first = s->victim == 0;
    RANK_OK(join(s, boot, rank, host, &net));
    if (rank == s->victim && s->resident)
        memset(malloc(s->resident), 1, s->resident);
    all_ready(s);
    if (rank == s->victim)
        for (;;)
            pause();
    if (rank == first) {
        usleep(30000); /* some beats */
        s->hit = sn_now();
        kill(s->pid[s->victim], s->signal);
    }
    sn_status status = SN_OK;
    sn_time limit = sn_now() + NOTICED_NS;
    while (status >= 0 && sn_now() < limit) {
        usleep(200);
        if (s->detect < 0) /* then news from other hosts comes only with progress */
            sn_net_progress(net);
        status = sn_net_alive(net);
    }
    s->known[rank] = sn_now();
    snprintf(who, sizeof who, "rank %d (h%d) %s", s->victim, s->hosts[s->victim],
             s->signal == SIGSTOP ? "stopped answering for" : "");
    RANK_CHECK(status == SN_EPEER && strncmp(sn_errmsg(), who, strlen(who)) == 0);
    if (__atomic_add_fetch(&s->noticed, 1, __ATOMIC_ACQ_REL) == s->world - 1)
        kill(s->pid[s->victim], SIGKILL);
    while (__atomic_load_n(&s->noticed, __ATOMIC_ACQUIRE) < s->world - 1)
        usleep(500);
    sn_net_close(net);
    return 0;
}

static void check_scene(scene now)
{
    scene *s = sn_ranks_shared(sizeof *s);
    *s = now;
    assert_int_equal(sn_ranks_run(s->world, s->hosts, rank_scene, s, SOON), 0);
    sn_time worst = 0;
    for (int r = 0; r < s->world; r++)
        if (r != s->victim)
            worst = SN_MAX(worst, s->known[r] - s->hit);
    print_message("known to all after %lld ms\n", (long long) (worst / SN_MS));
    assert_true(worst < NOTICED_NS);
}

static void test_stop(void **state)
{
    check_scene((scene){.hosts = one_host, .world = 3, .victim = 1, .signal = SIGSTOP});
    check_scene((scene){.hosts = one_host, .world = 2, .victim = 0, .signal = SIGSTOP});
    check_scene((scene){.hosts = two_hosts, .world = 4, .victim = 3, .signal = SIGSTOP});
    check_scene((scene){.hosts = uneven, .world = 6, .victim = 5, .signal = SIGSTOP});
    check_scene(
        (scene){.hosts = uneven, .world = 6, .victim = 1, .signal = SIGSTOP, .detect = 40 * SN_MS});
}

static void test_kill(void **state)
{
    check_scene((scene){.hosts = one_host, .world = 3, .victim = 2, .signal = SIGKILL});
    check_scene((scene){
        .hosts = one_host, .world = 3, .victim = 0, .signal = SIGKILL, .resident = 256 << 20});
    check_scene((scene){.hosts = two_hosts, .world = 4, .victim = 0, .signal = SIGKILL});
    check_scene((scene){
        .hosts = uneven, .world = 6, .victim = 5, .signal = SIGKILL, .resident = 256 << 20});
    check_scene((scene){.hosts = uneven, .world = 6, .victim = 2, .signal = SIGKILL, .detect = -1});
}

/* ---- no false alarm ---- */

static int nobody_fails(sn_net *net, sn_time during)
{
    for (sn_time until = sn_now() + during; sn_now() < until; usleep(1000))
        RANK_OK(sn_net_look(net));
    return 0;
}

/* The four still work together; the end of a rank's function. */
static int all_there(sn_net *net, int rank)
{
    int all[] = {0, 1, 2, 3}, got[4];
    RANK_OK(sn_net_gather(net, all, 4, &rank, sizeof rank, SOON, got));
    for (int r = 0; r < 4; r++)
        RANK_CHECK(got[r] == r);
    sn_net_close(net);
    return 0;
}

/* ^Z: everybody stops for longer than the bound and goes on. */
static int rank_suspended(sn_boot *boot, int rank, int host, void *ctx)
{
    scene *s = ctx;
    sn_net *net;
    RANK_OK(join(s, boot, rank, host, &net));
    all_ready(s);
    if (rank == 0) {
        pid_t waker = fork(); /* from outside the job */
        if (waker == 0) {
            for (int r = 0; r < 4; r++)
                kill(s->pid[r], SIGSTOP);
            usleep(400000);
            for (int r = 3; r >= 0; r--) {
                kill(s->pid[r], SIGCONT);
                usleep(20000);
            }
            __atomic_store_n(&s->noticed, 1, __ATOMIC_RELEASE);
            _exit(0);
        }
    }
    while (!__atomic_load_n(&s->noticed, __ATOMIC_ACQUIRE))
        usleep(1000);
    RANK_CHECK(nobody_fails(net, 250 * SN_MS) == 0);
    return all_there(net, rank);
}

static void test_suspended(void **state)
{
    scene *s = sn_ranks_shared(sizeof *s);
    *s = (scene){.hosts = two_hosts, .world = 4};
    assert_int_equal(sn_ranks_run(4, two_hosts, rank_suspended, s, SOON), 0);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FORKS_DETECT SN_SEC    /* what a sanitizer writes beside our memory waits for a fork */
#define FORKS_BYTES (64 << 20) /* it keeps several times as much beside it */
#else
#define FORKS_DETECT (20 * SN_MS)
#define FORKS_BYTES (512 << 20)
#endif

/* A worker with much memory forks: the kernel copies its page tables for longer than the bound of
 * the others' patience, and its beats go on. */
static int rank_forks(sn_boot *boot, int rank, int host, void *ctx)
{
    enum { BYTES = FORKS_BYTES };
    scene *s = ctx;
    sn_net *net;
    RANK_OK(join(s, boot, rank, host, &net));
    if (rank == 3) {
        char *much = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        RANK_CHECK(much != MAP_FAILED);
        madvise(much, BYTES, MADV_NOHUGEPAGE);
        memset(much, 1, BYTES);
    }
    all_ready(s);
    for (int k = 0; rank == 3 && k < 3; k++) {
        sn_time began = sn_now();
        pid_t child = fork();
        if (child == 0)
            syscall(SYS_exit_group, 0); /* not through a sanitizer, whose locks the parent held */
        s->known[k] = sn_now() - began;
        RANK_CHECK(waitpid(child, NULL, 0) == child);
    }
    if (rank == 3)
        __atomic_store_n(&s->noticed, 1, __ATOMIC_RELEASE);
    while (!__atomic_load_n(&s->noticed, __ATOMIC_ACQUIRE)) {
        usleep(1000);
        RANK_OK(sn_net_look(net));
    }
    return all_there(net, rank);
}

static void test_forks(void **state)
{
    scene *s = sn_ranks_shared(sizeof *s);
    *s = (scene){.hosts = two_hosts, .world = 4, .detect = FORKS_DETECT};
    assert_int_equal(sn_ranks_run(4, two_hosts, rank_forks, s, SOON), 0);
    print_message("forks took %lld, %lld, %lld ms\n", (long long) (s->known[0] / SN_MS),
                  (long long) (s->known[1] / SN_MS), (long long) (s->known[2] / SN_MS));
}

/* With detection off a stopped peer is not missed, and works again later. */
static int rank_off(sn_boot *boot, int rank, int host, void *ctx)
{
    scene *s = ctx;
    sn_net *net;
    RANK_OK(join(s, boot, rank, host, &net));
    all_ready(s);
    if (rank == 0)
        kill(s->pid[3], SIGSTOP);
    RANK_CHECK(nobody_fails(net, 250 * SN_MS) == 0);
    if (rank == 0)
        kill(s->pid[3], SIGCONT);
    return all_there(net, rank);
}

static void test_off(void **state)
{
    scene *s = sn_ranks_shared(sizeof *s);
    *s = (scene){.hosts = two_hosts, .world = 4, .detect = -1};
    assert_int_equal(sn_ranks_run(4, two_hosts, rank_off, s, SOON), 0);
}

static int rank_bound(sn_boot *boot, int rank, int host, void *ctx)
{
    sn_net *net;
    sn_net_opts opts = {.detect_ns = 5 * SN_MS, .deadline = SOON};
    RANK_FAILS(sn_net_open(boot, &opts, &net), SN_EINVAL, "20 at least");
    return 0;
}

static void test_bound(void **state)
{
    assert_int_equal(sn_ranks_run(1, one_host, rank_bound, NULL, SOON), 0);
}

/* ---- leaving ---- */

/* Who leaves in good order is known to have left, at once on its host, and is not missed after it;
 * the others compute on, without driving progress, for longer than the bound. */
static int rank_leaves(sn_boot *boot, int rank, int host, void *ctx)
{
    scene *s = ctx;
    sn_net *net;
    RANK_OK(join(s, boot, rank, host, &net));
    all_ready(s);
    RANK_CHECK(!sn_net_left(net, 0) && !sn_net_left(net, 3));
    if (rank == 3) {
        sn_net_close(net);
        __atomic_store_n(&s->noticed, 1, __ATOMIC_RELEASE);
        return 0;
    }
    if (rank == 2) {
        while (!__atomic_load_n(&s->noticed, __ATOMIC_ACQUIRE))
            sched_yield();
        RANK_OK(sn_net_look(net));
        RANK_CHECK(sn_net_left(net, 3));
    }
    for (sn_time until = sn_now() + 500 * SN_MS; sn_now() < until; usleep(1000))
        RANK_OK(sn_net_alive(net));
    while (!sn_net_left(net, 3)) { /* elsewhere once its goodbye was taken */
        RANK_OK(sn_net_look(net));
        sn_net_progress(net);
    }
    sn_net_close(net);
    return 0;
}

static void test_leaves(void **state)
{
    scene *s = sn_ranks_shared(sizeof *s);
    *s = (scene){.hosts = two_hosts, .world = 4};
    assert_int_equal(sn_ranks_run(4, two_hosts, rank_leaves, s, SOON), 0);
}

int main(int argc, char **argv)
{
    sn_ranks_args(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stop),      cmocka_unit_test(test_kill),
        cmocka_unit_test(test_suspended), cmocka_unit_test(test_forks),
        cmocka_unit_test(test_off),       cmocka_unit_test(test_bound),
        cmocka_unit_test(test_leaves),
    };
    return sn_test_run(tests);
}
