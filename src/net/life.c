/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's life, as its host mates see it: a robust mutex in a shared page, held from open to
 * close. The kernel marks it when the holder dies, before it tears the process's memory down, so
 * the news does not wait for gigabytes to be freed as a closing socket or a pidfd does; and looking
 * at it is a load or two. */
#include "net/net_private.h"

#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIFE_BYTES 4096
#define STARVED 5 /* times the bound: for one that is silent and yet not stopped */

struct net_life {
    pthread_mutex_t held;
    net_token token;
    int32_t culprit; /* whose failure made it leave, -1 nobody's; written before `left` */
    uint32_t left;   /* set before an orderly release */
    uint64_t beat;
    int32_t dead; /* rank + 1 that its owner found dead, 0 none; written after `how` */
    char how[NET_HOW_MAX];
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

sn_status net_life_create(const net_token *token, int *ret_fd, net_life **ret)
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
    life->token = *token;
    *ret_fd = fd;
    *ret = life;
    return SN_OK;
}

sn_status net_life_map(int fd, const net_token *token, net_life **ret)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    if (fstat(fd, &st) || st.st_size < LIFE_BYTES || seals < 0 || !(seals & F_SEAL_SHRINK))
        return sn_fail(SN_ECORRUPT, "a host mate handed over what is no life page");
    net_life *life;
    SN_TRY(map_page(fd, &life));
    if (memcmp(&life->token, token, sizeof *token) != 0) {
        net_life_unmap(life);
        return sn_fail(SN_ECORRUPT, "the memory that a host mate handed over does not show its "
                                    "token: it is not shared with that rank");
    }
    *ret = life;
    return SN_OK;
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

/* ---- what a life tells ---- */

void net_life_beat(net_life *life)
{
    if (life)
        __atomic_fetch_add(&life->beat, 1, __ATOMIC_RELEASE);
}

void net_life_tell(net_life *life, int dead, const char *how)
{
    if (!life || __atomic_load_n(&life->dead, __ATOMIC_RELAXED))
        return;
    snprintf(life->how, sizeof life->how, "%s", how);
    __atomic_store_n(&life->dead, dead + 1, __ATOMIC_RELEASE);
}

/* The state of its holder; when it left, because of whom. The lock's word, which is its owner's
 * thread id, is what the kernel marks; reading it is all there is to do, so it is never taken. */
static net_peer_state look(const net_life *life, int *ret_culprit)
{
    uint32_t word = (uint32_t) __atomic_load_n(&life->held.__data.__lock, __ATOMIC_ACQUIRE);
    if (word & FUTEX_TID_MASK)
        return NET_FINE;
    if (!__atomic_load_n(&life->left, __ATOMIC_ACQUIRE))
        return NET_DEAD;
    *ret_culprit = life->culprit;
    return NET_LEFT;
}

/* What my host mate found out about others; of me it may think what it likes. */
static void hear(sn_net *net, const net_life *life)
{
    int dead = __atomic_load_n(&life->dead, __ATOMIC_ACQUIRE) - 1;
    if (dead >= 0 && dead < net->world && dead != net->rank && net_state(net, dead) == NET_FINE)
        net_dead(net, dead, "%.*s", NET_HOW_MAX - 1, life->how);
}

void net_look_around(sn_net *net)
{
    if (!__atomic_load_n(&net->watching, __ATOMIC_ACQUIRE))
        return;
    for (int r = 0; r < net->world; r++) {
        net_peer *p = &net->peers[r];
        if (!p->life || net_state(net, r) != NET_FINE)
            continue;
        hear(net, p->life);
        int culprit;
        net_peer_state state = look(p->life, &culprit);
        if (state == NET_LEFT)
            net_said_goodbye(net, r, culprit);
        else if (state == NET_DEAD)
            net_dead(net, r, "died: its process is gone");
    }
}

sn_status sn_net_look(sn_net *net)
{
    net_look_around(net);
    return sn_net_alive(net);
}

/* ---- who is silent? ---- */

/* The letter of a process's state, 0 when it cannot be seen. */
static char process_state(int pid)
{
    char path[64], line[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    if (pid > 0)
        net_read_small(path, line, sizeof line);
    const char *end = strrchr(line, ')'); /* of the name, which may have anything in it */
    return end && end[1] == ' ' ? end[2] : 0;
}

/* One that is stopped, or whose state is hidden, has failed at the bound. One that is not may lack
 * a processor on a machine that has more to do than it can: it gets more time. */
static bool has_failed(const sn_net *net, int rank, sn_time silent)
{
    if (silent >= net_silence_max(net, 0) + STARVED * net->detect)
        return true;
    char state = process_state(net_local_pid(net, rank));
    if (state == 0)
        return silent >= net_silence_max(net, 0);
    return strchr("TtZXx", state) != NULL;
}

void net_life_judge(sn_net *net, sn_time gap)
{
    if (!net->detect || !__atomic_load_n(&net->watching, __ATOMIC_ACQUIRE))
        return;
    for (int r = 0; r < net->world; r++) {
        net_peer *p = &net->peers[r];
        if (!p->life || net_state(net, r) != NET_FINE)
            continue;
        uint64_t beat = __atomic_load_n(&p->life->beat, __ATOMIC_ACQUIRE);
        net_ear *ear = &net->beat->ear[r];
        ear->silent = beat == ear->beat ? ear->silent + gap : 0;
        ear->beat = beat;
        if (ear->silent >= net_silence_least(net) && has_failed(net, r, ear->silent))
            net_dead(net, r, "stopped answering for %lld ms", (long long) (ear->silent / SN_MS));
    }
}
