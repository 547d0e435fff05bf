/* SPDX-License-Identifier: Apache-2.0
 *
 * The heartbeat thread: every tick it says that this worker lives and looks who else does. It has
 * nothing else to do, so that a worker that computes for minutes still beats.
 *
 * Silence is counted in ticks of my own: whoever does not run, because the job was suspended,
 * counts nobody's silence meanwhile. A machine that has more to do than it can lets beats come
 * late, mine and others'. So each thread measures how late it was served (served.c), tells it with
 * its beats, and is given more time by as much: a false alarm ends a job that only had to wait.
 *
 * Nor may a tick wait for what its worker does to the address space. So it never allocates (a first
 * allocation maps memory), writes only to memory of its own (den.c) or shared memory, and makes its
 * system calls plainly: the library's wait points write to the library's part of the thread. */
#include "net/net_private.h"

#include "os/os.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TICK_NS (10 * SN_MS)
#define TICKS 10 /* at least so many in the bound */

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
    sn_time last = net->beat->started, next = last;
    net_served_begin(&net->beat->served, last);
    do {
        sn_time now = sn_now();
        net_served_note(&net->beat->served, now - next, now);
        beat_once(net, SN_MIN(now - last, 2 * net->tick));
        last = now;
        next = SN_MAX(next, now - net->tick) + net->tick; /* lost beats are not made up for */
    } while (sleep_until(net, next));
}

static void *run(void *ctx)
{
    sn_net *net = ctx;
    pthread_setname_np(pthread_self(), "sn-beat");
    net_den_descend(&net->den, tick, net);
    return NULL;
}

static sn_status settle_in(sn_net *net)
{
    size_t ears = (size_t) net->world * sizeof(net_ear);
    SN_TRY(net_den_open(&net->den, sizeof(net_beat) + ears + net_pulse_bytes(net->world) + 256));
    net->beat = net_den_alloc(&net->den, sizeof *net->beat);
    net->beat->ear = net_den_alloc(&net->den, ears);
    net->beat->started = sn_now();
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
    int code = net_served_start(net, run, &net->beat->thread);
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
