/* SPDX-License-Identifier: Apache-2.0
 *
 * The heartbeat thread: every tick it says that this worker lives and looks who else does. It has
 * nothing else to do, so that a worker that computes for minutes still beats.
 *
 * Silence is counted in ticks of my own: whoever does not run, because the job was suspended,
 * counts nobody's silence meanwhile. A machine that has more to do than it can lets beats come
 * late, mine and others'. So each thread measures how late it was served, tells it with its beats,
 * and is given more time by as much: a false alarm ends a job that only had to wait.
 *
 * Nor may a tick wait for what its worker does to the address space. So it never allocates (a first
 * allocation maps memory), writes only to memory of its own (den.c) or shared memory, and makes its
 * system calls plainly: the library's wait points write to the library's part of the thread. */
#include "net/net_private.h"

#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TICK_NS (10 * SN_MS)
#define TICKS 10                 /* at least so many in the bound */
#define LATE_FREE_NS (5 * SN_MS) /* is usual, and within the bound */
#define LATE_TIMES 4
#define LATE_MAX_NS SN_SEC
#define SLICE_NS 100000 /* what a beat may take of a processor, for a scheduler that asks */

sn_time net_silence_max(const sn_net *net, sn_time its_late)
{
    sn_time late = SN_MAX(its_late, net_beat_late(net)) - LATE_FREE_NS;
    return net->detect - 2 * net->tick + LATE_TIMES * SN_MAX(late, 0);
}

sn_time net_beat_late(const sn_net *net)
{
    return SN_MAX(net->beat->late[0], net->beat->late[1]);
}

/* What the kernel says of how long the ready ones wait: 1 ms for each hundredth of the last ten
 * seconds in which some did. */
static sn_time pressure(void)
{
    char text[128];
    int fd = open("/proc/pressure/cpu", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (fd >= 0)
        close(fd);
    text[SN_MAX(n, 0)] = 0;
    const char *at = strstr(text, "avg10=");
    return at ? strtol(at + strlen("avg10="), NULL, 10) * SN_MS : 0;
}

/* The latest of this second and the last. Without a right to be served first, having been served in
 * time says little of the next time: then the machine's state counts too. */
static void note_late(sn_net *net, sn_time late, sn_time now)
{
    if (now - net->beat->late_since > SN_SEC) {
        net->beat->late[1] = net->beat->late[0];
        net->beat->late[0] = net->beat->hurried ? 0 : pressure();
        net->beat->late_since = now;
    }
    net->beat->late[0] = SN_MAX(net->beat->late[0], SN_MIN(late, LATE_MAX_NS));
}

static void beat_once(sn_net *net, sn_time gap)
{
    sn_page *page = net->page;
    if (page) {
        __atomic_store_n(&page->beat_ns, sn_now(), __ATOMIC_RELAXED);
        __atomic_store_n(&page->beat, page->beat + 1, __ATOMIC_RELEASE);
    }
    net_life_beat(__atomic_load_n(&net->life, __ATOMIC_ACQUIRE));
    net_look_around(net);
    net_life_judge(net, gap);
    net_pulse_tick(net, gap);
}

typedef struct sched_wish { /* what sched_setattr(2) takes, in its first form */
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
} sched_wish;

/* A beat that comes late is a false alarm, and a beat takes microseconds: let nothing ordinary come
 * before it. */
static int start_first(sn_net *net, void *(*body)(void *) )
{
    struct sched_param first = {.sched_priority = 1};
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED);
    pthread_attr_setschedpolicy(&attr, SCHED_RR);
    pthread_attr_setschedparam(&attr, &first);
    net->beat->hurried = true;
    int code = net_den_thread(&net->den, &attr, body, net, &net->beat->thread);
    if (code == EPERM) {
        net->beat->hurried = false;
        pthread_attr_setinheritsched(&attr, PTHREAD_INHERIT_SCHED);
        code = net_den_thread(&net->den, &attr, body, net, &net->beat->thread);
    }
    pthread_attr_destroy(&attr);
    return code;
}

/* Who has no right to that may be nice to itself, or be served early at least because it asks for
 * little (Linux 6.12). */
static void hurry(void)
{
    sched_wish wish = {.size = sizeof wish, .nice = -10, .runtime = SLICE_NS};
    if (sched_getscheduler(0) != SCHED_OTHER || syscall(SYS_sched_setattr, 0, &wish, 0) == 0)
        return;
    wish.nice = getpriority(PRIO_PROCESS, 0);
    syscall(SYS_sched_setattr, 0, &wish, 0); /* as good as it gets */
}

/* False when it is time to end. */
static bool sleep_until(const sn_net *net, sn_time next)
{
    sn_time left = SN_MAX(next - sn_now(), 0);
    struct pollfd quit = {.fd = net->beat->quit, .events = POLLIN};
    struct timespec t = {.tv_sec = left / SN_SEC, .tv_nsec = left % SN_SEC};
    return syscall(SYS_ppoll, &quit, 1, &t, NULL, 0) <= 0;
}

static void tick(void *ctx)
{
    sn_net *net = ctx;
    sn_time last = net->beat->late_since, next = last; /* when it was started */
    do {
        sn_time now = sn_now();
        note_late(net, now - next, now);
        beat_once(net, SN_MIN(now - last, 2 * net->tick));
        last = now;
        next = SN_MAX(next, now - net->tick) + net->tick; /* lost beats are not made up for */
    } while (sleep_until(net, next));
}

static void *run(void *ctx)
{
    sn_net *net = ctx;
    pthread_setname_np(pthread_self(), "sn-beat");
    if (!net->beat->hurried)
        hurry();
    net->beat->late[0] = net->beat->hurried ? 0 : pressure();
    net_den_descend(&net->den, tick, net);
    return NULL;
}

static sn_status settle_in(sn_net *net)
{
    size_t ears = (size_t) net->world * sizeof(net_ear);
    SN_TRY(net_den_open(&net->den, sizeof(net_beat) + ears + net_pulse_bytes(net->world) + 256));
    net->beat = net_den_alloc(&net->den, sizeof *net->beat);
    net->beat->ear = net_den_alloc(&net->den, ears);
    net->beat->late_since = sn_now();
    net->beat->quit = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return net->beat->quit < 0 ? sn_fail(SN_EIO, "cannot make an eventfd: %s", strerror(errno))
                               : SN_OK;
}

sn_status net_beat_start(sn_net *net)
{
    sigset_t all, old;
    net->tick = net->detect ? SN_MIN(TICK_NS, net->detect / TICKS) : TICK_NS;
    net->tick = SN_MAX(net->tick, SN_MS);
    SN_TRY(settle_in(net));
    sigfillset(&all); /* signals are the worker thread's */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int code = start_first(net, run);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (code)
        return sn_fail(SN_EIO, "cannot start the heartbeat thread: %s", strerror(code));
    net->beat->running = true;
    return SN_OK;
}

void net_beat_stop(sn_net *net)
{
    uint64_t one = 1;
    if (!net->beat)
        return;
    if (net->beat->running && write(net->beat->quit, &one, sizeof one) == sizeof one)
        pthread_join(net->beat->thread, NULL);
    net->beat->running = false;
    if (net->beat->quit >= 0)
        close(net->beat->quit);
    net->beat->quit = -1;
}
