/* SPDX-License-Identifier: Apache-2.0
 *
 * Waiting on flags in shared memory. Many workers share few cores here: whoever waits must let the
 * one it waits for run. So a short spin (the other is on another core and about to store), then
 * yields (it is runnable on mine), then a futex sleep (it computes; leave it the core).
 *
 *   sleeper: sleepers += 1; look again; sleep while word == seen
 *   storer:  word = value;  sleepers?  wake
 *
 * Both sides' second step is ordered after the first (sequentially consistent), so one of them sees
 * the other. A sleeper that is killed leaves the count too high: needless wakes, nothing worse. */
#include "gmem/gmem.h"

#include "os/os.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SPINS 10
#define YIELDS 200
#define SLEEP_NS SN_MS
#define SLEEP_BUSY_NS (200 * 1000) /* while messages to other hosts are under way */

static sn_flag_line *line_of(const uint32_t *word)
{
    return (sn_flag_line *) ((uintptr_t) word & ~(uintptr_t) (sizeof(sn_flag_line) - 1));
}

void sn_gmem_store_u32(uint32_t *word, uint32_t value)
{
    SN_ASSERT(word != &line_of(word)->sleepers);
    __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&line_of(word)->sleepers, __ATOMIC_SEQ_CST))
        syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Sleep on all of them; false when the kernel (before 5.16) cannot. */
static bool sleep_many(const sn_gmem_watch *watch, int n, sn_time until)
{
    struct futex_waitv list[SN_GMEM_WATCH_MAX];
    for (int i = 0; i < n; i++)
        list[i] = (struct futex_waitv){
            .val = watch[i].seen, .uaddr = (uintptr_t) watch[i].word, .flags = FUTEX_32};
    struct timespec t = {.tv_sec = until / SN_SEC, .tv_nsec = until % SN_SEC};
    return syscall(SYS_futex_waitv, list, n, 0, &t, CLOCK_MONOTONIC) >= 0 || errno != ENOSYS;
}

static void sleep_one(const sn_gmem_watch *watch, sn_time until)
{
    struct timespec t = {.tv_sec = until / SN_SEC, .tv_nsec = until % SN_SEC};
    syscall(SYS_futex, watch->word, FUTEX_WAIT_BITSET, watch->seen, &t, NULL,
            FUTEX_BITSET_MATCH_ANY);
}

static void sleep_on(const sn_gmem_watch *watch, int n, sn_time until)
{
    bool changed = false;
    for (int i = 0; i < n; i++)
        __atomic_fetch_add(&line_of(watch[i].word)->sleepers, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < n; i++)
        changed |= __atomic_load_n(watch[i].word, __ATOMIC_SEQ_CST) != watch[i].seen;
    if (!changed && (n == 1 || !sleep_many(watch, n, until)))
        sleep_one(watch, until);
    for (int i = 0; i < n; i++)
        __atomic_fetch_sub(&line_of(watch[i].word)->sleepers, 1, __ATOMIC_SEQ_CST);
}

sn_status sn_gmem_turn(sn_net *net, int *turn, const sn_gmem_watch *watch, int n, sn_time deadline)
{
    SN_ASSERT(n <= SN_GMEM_WATCH_MAX);
    if (*turn < SPINS) {
        ++*turn;
        SN_PAUSE();
        return SN_OK;
    }
    if (sn_net_progress(net)) /* who sends once may send again at once */
        *turn = SPINS;
    sn_time now = sn_now();
    if (now >= deadline)
        return sn_fail(SN_ETIME, "no signal before the deadline");
    if (*turn < SPINS + YIELDS) {
        ++*turn;
        sched_yield();
        return sn_net_alive(net);
    }
    sn_time until = SN_MIN(deadline, now + (sn_net_pending(net) ? SLEEP_BUSY_NS : SLEEP_NS));
    if (n)
        sleep_on(watch, n, until);
    else
        sn_net_sleep(net, until);
    return sn_net_look(net);
}

sn_status sn_gmem_wait_u32(sn_net *net, const uint32_t *word, uint32_t target, sn_time deadline)
{
    sn_time began = 0;
    for (int turn = 0;;) {
        uint32_t seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);
        if ((int32_t) (seen - target) >= 0)
            return SN_OK;
        if (turn == SPINS && !began)
            began = sn_now();
        sn_gmem_watch watch = {word, seen};
        sn_status status = sn_gmem_turn(net, &turn, &watch, 1, deadline);
        if (status == SN_ETIME)
            return sn_fail(SN_ETIME, "no signal for %.1f s (at %u of %u)",
                           (double) (sn_now() - began) / SN_SEC, seen, target);
        SN_TRY(status);
    }
}
