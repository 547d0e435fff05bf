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
 * This thread never allocates: its first allocation would map memory, and wait meanwhile for a
 * worker that maps a lot. */
#include "net/net_private.h"

#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
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
    return SN_MAX(net->late[0], net->late[1]);
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
    if (now - net->late_since > SN_SEC) {
        net->late[1] = net->late[0];
        net->late[0] = net->hurried ? 0 : pressure();
        net->late_since = now;
    }
    net->late[0] = SN_MAX(net->late[0], SN_MIN(late, LATE_MAX_NS));
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
static int start_first(sn_net *net, void *(*run)(void *) )
{
    struct sched_param first = {.sched_priority = 1};
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED);
    pthread_attr_setschedpolicy(&attr, SCHED_RR);
    pthread_attr_setschedparam(&attr, &first);
    net->hurried = true;
    int code = pthread_create(&net->beat, &attr, run, net);
    pthread_attr_destroy(&attr);
    if (code == EPERM) {
        net->hurried = false;
        code = pthread_create(&net->beat, NULL, run, net);
    }
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

static void *beat_run(void *ctx)
{
    sn_net *net = ctx;
    pthread_setname_np(pthread_self(), "sn-beat");
    if (!net->hurried)
        hurry();
    net->late[0] = net->hurried ? 0 : pressure();
    sn_time last = net->late_since; /* when it was started */
    for (sn_time next = last;;) {
        sn_time now = sn_now();
        note_late(net, now - next, now);
        beat_once(net, SN_MIN(now - last, 2 * net->tick));
        last = now;
        next = SN_MAX(next, now - net->tick) + net->tick; /* lost beats are not made up for */
        struct timespec t = {.tv_sec = next / SN_SEC, .tv_nsec = next % SN_SEC};
        int got;
        while ((got = sem_clockwait(&net->quit, CLOCK_MONOTONIC, &t)) && errno == EINTR)
            continue;
        if (got == 0)
            return NULL;
    }
}

sn_status net_beat_start(sn_net *net)
{
    sigset_t all, old;
    net->tick = net->detect ? SN_MIN(TICK_NS, net->detect / TICKS) : TICK_NS;
    net->tick = SN_MAX(net->tick, SN_MS);
    net->late_since = sn_now();
    sem_init(&net->quit, 0, 0);
    sigfillset(&all); /* signals are the worker thread's */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int code = start_first(net, beat_run);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (code)
        return sn_fail(SN_EIO, "cannot start the heartbeat thread: %s", strerror(code));
    net->beating = true;
    return SN_OK;
}

void net_beat_stop(sn_net *net)
{
    if (!net->beating)
        return;
    net->beating = false;
    sem_post(&net->quit);
    pthread_join(net->beat, NULL);
    sem_destroy(&net->quit);
}
