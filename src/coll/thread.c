/* SPDX-License-Identifier: Apache-2.0
 *
 * thread — several threads in one coll. Everything is under one lock, which nobody holds while it
 * waits. Of the threads that wait one drives progress for all; the others sleep until their request
 * is complete or it is their turn to drive.
 *
 * Whoever drives takes the lock again and again, so a plain mutex would let the others starve: the
 * gate before it goes to whoever asks next. */
#include "coll/coll_private.h"

#include <string.h>
#include <time.h>

#define NAP (5 * SN_MS) /* a sleeper looks by itself now and then */

void coll_lock_slow(sn_coll *c)
{
    pthread_mutex_lock(&c->gate);
    pthread_mutex_lock(&c->lock);
    pthread_mutex_unlock(&c->gate);
}

void coll_unlock_slow(sn_coll *c)
{
    pthread_mutex_unlock(&c->lock);
}

sn_status coll_threads_open(sn_coll *c)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    int code = pthread_cond_init(&c->turn, &attr);
    pthread_condattr_destroy(&attr);
    if (code != 0)
        return sn_fail(SN_EIO, "cannot make a condition variable: %s", strerror(code));
    pthread_mutex_init(&c->gate, NULL);
    pthread_mutex_init(&c->lock, NULL);
    c->threads = true;
    return SN_OK;
}

void coll_threads_close(sn_coll *c)
{
    if (!c->threads)
        return;
    pthread_cond_destroy(&c->turn);
    pthread_mutex_destroy(&c->lock);
    pthread_mutex_destroy(&c->gate);
}

static void nap(sn_coll *c)
{
    sn_time until = sn_now() + NAP;
    struct timespec t = {.tv_sec = until / SN_SEC, .tv_nsec = until % SN_SEC};
    c->sleepers++;
    pthread_cond_timedwait(&c->turn, &c->lock, &t);
    c->sleepers--;
}

void coll_wake_sleepers(sn_coll *c)
{
    if (c->sleepers > 0)
        pthread_cond_broadcast(&c->turn);
}

void coll_threads_wait(sn_coll_req *r)
{
    sn_coll *c = r->coll;
    while (r->status == SN_PENDING) {
        if (c->driven) {
            nap(c);
            continue;
        }
        c->driven = true;
        for (int n = 1; r->status == SN_PENDING; n++) {
            if (coll_progress(c)) {
                n = 0;
            } else if (r->status == SN_PENDING) {
                coll_idle(c, r, n);
            }
        }
        c->driven = false;
        coll_wake_sleepers(c);
    }
}
