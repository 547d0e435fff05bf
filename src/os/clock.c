/* SPDX-License-Identifier: Apache-2.0 */
#include "os/os.h"

#include <errno.h>
#include <time.h>

static sn_time read_clock(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return t.tv_sec * SN_SEC + t.tv_nsec;
}

sn_time sn_now(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

sn_time sn_now_thread(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

sn_time sn_now_wall(void)
{
    return read_clock(CLOCK_REALTIME);
}

void sn_sleep_until(sn_time deadline)
{
    struct timespec t = {.tv_sec = deadline / SN_SEC, .tv_nsec = deadline % SN_SEC};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        continue;
}
