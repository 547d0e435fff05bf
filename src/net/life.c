/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's life, as its host mates see it: a robust mutex in a shared page, held from open to
 * close. The kernel marks it when the holder dies, before it tears the process's memory down, so
 * the news does not wait for gigabytes to be freed as a closing socket or a pidfd does; and looking
 * at it is a few loads and one compare-and-swap, no system call. */
#include "net/net_private.h"

#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define BEAT_NS (20 * SN_MS)
#define LIFE_BYTES 4096

struct net_life {
    pthread_mutex_t held;
    int32_t culprit; /* whose failure made it leave, -1 nobody's; written before `left` */
    uint32_t left;   /* set before an orderly release */
};

static sn_status init_held(pthread_mutex_t *held)
{
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    int code = pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    if (!code)
        code = pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    if (!code)
        code = pthread_mutex_init(held, &attr);
    if (!code)
        code = pthread_mutex_lock(held);
    pthread_mutexattr_destroy(&attr);
    return code ? sn_fail(SN_EIO, "cannot make a robust mutex: %s", strerror(code)) : SN_OK;
}

static sn_status map_page(int fd, net_life **ret)
{
    void *p = mmap(NULL, LIFE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return sn_fail(SN_ENOMEM, "cannot map a life page: %s", strerror(errno));
    *ret = p;
    return SN_OK;
}

sn_status net_life_create(int *ret_fd, net_life **ret)
{
    net_life *life = NULL;
    int fd = memfd_create("sn-life", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, LIFE_BYTES) ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW)) {
        int code = errno;
        if (fd >= 0)
            close(fd);
        return sn_fail(SN_EIO, "cannot make a life page: %s", strerror(code));
    }
    sn_status status = map_page(fd, &life);
    if (status >= 0)
        status = init_held(&life->held);
    if (status < 0) {
        net_life_unmap(life);
        close(fd);
        return status;
    }
    *ret_fd = fd;
    *ret = life;
    return SN_OK;
}

sn_status net_life_map(int fd, net_life **ret)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    if (fstat(fd, &st) || st.st_size < LIFE_BYTES || seals < 0 || !(seals & F_SEAL_SHRINK))
        return sn_fail(SN_ECORRUPT, "a host mate handed over what is no life page");
    return map_page(fd, ret);
}

void net_life_unmap(net_life *life)
{
    if (life)
        munmap(life, LIFE_BYTES);
}

void net_life_leave(net_life *life, int culprit)
{
    if (!life)
        return;
    life->culprit = culprit;
    __atomic_store_n(&life->left, 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&life->held);
    net_life_unmap(life);
}

net_peer_state net_life_look(net_life *life, int *ret_culprit)
{
    int code = pthread_mutex_trylock(&life->held);
    if (code == EBUSY || code == EAGAIN)
        return NET_FINE;
    bool left = __atomic_load_n(&life->left, __ATOMIC_ACQUIRE);
    if (code == 0 || code == EOWNERDEAD)
        pthread_mutex_unlock(&life->held); /* a dead owner's becomes "not recoverable": dead too */
    if (left)
        *ret_culprit = life->culprit;
    return left ? NET_LEFT : NET_DEAD;
}

void net_look_around(sn_net *net)
{
    if (!__atomic_load_n(&net->watching, __ATOMIC_ACQUIRE))
        return;
    for (int r = 0; r < net->world; r++) {
        net_peer *p = &net->peers[r];
        if (!p->life || net_state(net, r) != NET_FINE)
            continue;
        int culprit;
        net_peer_state state = net_life_look(p->life, &culprit);
        if (state == NET_LEFT)
            net_said_goodbye(net, r, culprit);
        else if (state == NET_DEAD)
            net_set_state(net, r, state);
    }
}

sn_status sn_net_look(sn_net *net)
{
    net_look_around(net);
    return sn_net_alive(net);
}

/* ---- the heartbeat thread ---- */

static void beat_once(sn_net *net)
{
    sn_page *page = net->page;
    if (page) {
        __atomic_store_n(&page->beat_ns, sn_now(), __ATOMIC_RELAXED);
        __atomic_store_n(&page->beat, page->beat + 1, __ATOMIC_RELEASE);
    }
    net_look_around(net);
}

static void *beat_run(void *ctx)
{
    sn_net *net = ctx;
    for (sn_time next = sn_now();; next += BEAT_NS) {
        beat_once(net);
        next = SN_MAX(next, sn_now() - BEAT_NS); /* after a stop do not make up for lost beats */
        struct timespec t = {.tv_sec = (next + BEAT_NS) / SN_SEC,
                             .tv_nsec = (next + BEAT_NS) % SN_SEC};
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
    sem_init(&net->quit, 0, 0);
    sigfillset(&all); /* signals are the worker thread's */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int code = pthread_create(&net->beat, NULL, beat_run, net);
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
