/* SPDX-License-Identifier: Apache-2.0
 *
 * How soon the heartbeat thread is served.
 *
 * A beat that comes late is a false alarm, and a beat takes microseconds. So where processors are
 * short it goes before all ordinary threads (SCHED_RR), if that is permitted. Where they are not it
 * is an ordinary one that asks for little: the last thread of a killed process frees the memory, at
 * its own priority, and for gigabytes that would hold up a processor. */
#include "net/net_private.h"

#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LATE_FREE_NS (5 * SN_MS) /* is usual, and within the bound */
#define LATE_TIMES 4
#define LATE_MAX_NS SN_SEC
#define SHORT_NS (10 * SN_MS) /* of pressure(): processors are short */
#define CALM_NS (5 * SN_SEC)  /* after which they are not any more */
#define SLICE_NS 100000       /* what a beat may take of a processor, for a scheduler that asks */

/* ---- what the system says ---- */

size_t net_read_small(const char *path, char *out, size_t room)
{
    long fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    long n = fd >= 0 ? syscall(SYS_read, fd, out, room - 1) : 0;
    if (fd >= 0)
        syscall(SYS_close, fd);
    out[SN_MAX(n, 0)] = 0;
    return (size_t) SN_MAX(n, 0);
}

/* How long the ready ones wait: 1 ms for each hundredth of ten seconds in which some did. */
static sn_time pressure(void)
{
    char text[128];
    net_read_small("/proc/pressure/cpu", text, sizeof text);
    const char *at = strstr(text, "avg10=");
    return at ? strtol(at + strlen("avg10="), NULL, 10) * SN_MS : 0;
}

/* ---- priority ---- */

typedef struct sched_wish { /* what sched_setattr(2) takes, in its first form */
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
} sched_wish;

/* Nice to itself where it may be, served early because it asks for little (Linux 6.12). */
static void be_ordinary(net_served *s)
{
    sched_wish wish = {.size = sizeof wish, .nice = -10, .runtime = SLICE_NS};
    s->first = false;
    if (syscall(SYS_sched_setattr, 0, &wish, 0) == 0)
        return;
    wish.nice = getpriority(PRIO_PROCESS, 0);
    syscall(SYS_sched_setattr, 0, &wish, 0); /* as good as it gets */
}

static void be_first(net_served *s, sn_time now)
{
    struct sched_param one = {.sched_priority = 1};
    s->urged = now;
    if (s->first || s->refused)
        return;
    s->first = syscall(SYS_sched_setscheduler, 0, SCHED_RR, &one) == 0;
    s->refused = !s->first;
}

/* ---- for beat.c ---- */

int net_served_start(sn_net *net, void *(*run)(void *), pthread_t *ret)
{
    struct sched_param one = {.sched_priority = 1};
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    int code = EPERM;
    if (pressure() >= SHORT_NS) { /* its very first turn must not be late */
        pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED);
        pthread_attr_setschedpolicy(&attr, SCHED_RR);
        pthread_attr_setschedparam(&attr, &one);
        code = net_den_thread(&net->den, &attr, run, net, ret);
    }
    if (code == EPERM) {
        pthread_attr_setinheritsched(&attr, PTHREAD_INHERIT_SCHED);
        code = net_den_thread(&net->den, &attr, run, net, ret);
    }
    pthread_attr_destroy(&attr);
    return code;
}

void net_served_begin(net_served *s, sn_time started)
{
    s->since = s->urged = started;
    s->first = sched_getscheduler(0) != SCHED_OTHER;
    s->kept = s->first && pressure() < SHORT_NS; /* the program's own choice for its threads */
    if (!s->first)
        be_ordinary(s);
    s->late[0] = s->first ? 0 : pressure();
}

/* The latest of this second and the last. Where it is not first, having been served in time says
 * little of the next time: then the machine's state counts too. */
void net_served_note(net_served *s, sn_time late, sn_time now)
{
    if (late > LATE_FREE_NS)
        be_first(s, now);
    if (now - s->since > SN_SEC) {
        sn_time waits = pressure();
        if (waits >= SHORT_NS)
            be_first(s, now);
        else if (s->first && !s->kept && now - s->urged > CALM_NS)
            be_ordinary(s);
        s->late[1] = s->late[0];
        s->late[0] = s->first ? 0 : waits;
        s->since = now;
    }
    s->late[0] = SN_MAX(s->late[0], SN_MIN(late, LATE_MAX_NS));
}

sn_time net_served_late(const sn_net *net)
{
    return SN_MAX(net->beat->served.late[0], net->beat->served.late[1]);
}

/* Silence is looked at once a tick, and so is what others say of it. Half a tick more keeps it off
 * the ticks themselves: else how late each is decides whether one more is waited for. */
sn_time net_silence_least(const sn_net *net)
{
    return net->detect - 5 * net->tick / 2;
}

sn_time net_silence_max(const sn_net *net, sn_time its_late)
{
    sn_time late = SN_MAX(its_late, net_served_late(net)) - LATE_FREE_NS;
    return net_silence_least(net) + LATE_TIMES * SN_MAX(late, 0);
}
