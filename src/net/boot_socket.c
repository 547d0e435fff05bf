/* SPDX-License-Identifier: Apache-2.0
 *
 * The worker's side of the launcher's socket. */
#include "net/boot.h"

#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A message that is on its way: the head first, then its data. */
typedef struct incoming {
    boot_head head;
    size_t head_done, data_done;
    char *data;
} incoming;

typedef struct boot_socket {
    sn_boot boot;
    int fd;
    incoming in;
    uint32_t *who; /* the ranks of a MISSING answer, NULL while there is none */
    size_t whos;
} boot_socket;

static sn_status gone(boot_socket *s, int code)
{
    return sn_fail(SN_EPEER, "the launcher closed the connection%s%s", code ? ": " : "",
                   code ? strerror(code) : "");
}

/* Until `fd` is ready for `events`; SN_PENDING at the deadline. */
static sn_status wait_ready(boot_socket *s, short events, sn_time deadline)
{
    for (;;) {
        sn_time left = deadline - sn_now();
        if (left <= 0)
            return SN_PENDING;
        struct pollfd p = {.fd = s->fd, .events = events};
        int ms = (int) SN_MIN(left / SN_MS + 1, 1000);
        int n = poll(&p, 1, ms);
        if (n > 0)
            return SN_OK;
        if (n < 0 && errno != EINTR)
            return sn_fail(SN_EIO, "cannot wait for the launcher: %s", strerror(errno));
    }
}

/* All of it, or SN_PENDING at the deadline with *done telling how far it came. */
static sn_status put(boot_socket *s, const void *data, size_t bytes, sn_time deadline, size_t *done)
{
    while (*done < bytes) {
        ssize_t n = send(s->fd, (const char *) data + *done, bytes - *done, MSG_NOSIGNAL);
        if (n > 0) {
            *done += (size_t) n;
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            return gone(s, errno);
        sn_status ready = wait_ready(s, POLLOUT, deadline);
        if (ready != SN_OK)
            return ready;
    }
    return SN_OK;
}

static sn_status get(boot_socket *s, void *data, size_t bytes, sn_time deadline, size_t *done)
{
    while (*done < bytes) {
        ssize_t n = recv(s->fd, (char *) data + *done, bytes - *done, 0);
        if (n > 0) {
            *done += (size_t) n;
            continue;
        }
        if (n == 0)
            return gone(s, 0);
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            return gone(s, errno);
        sn_status ready = wait_ready(s, POLLIN, deadline);
        if (ready != SN_OK)
            return ready;
    }
    return SN_OK;
}

static sn_status put_message(boot_socket *s, uint32_t kind, const void *blob, size_t bytes,
                             sn_time deadline)
{
    boot_head head = {BOOT_MAGIC, kind, s->boot.seq, (uint32_t) bytes};
    size_t done = 0;
    sn_status status = put(s, &head, sizeof head, deadline, &done);
    done = 0;
    if (status == SN_OK)
        status = put(s, blob, bytes, deadline, &done);
    if (status == SN_PENDING)
        return sn_fail(SN_ETIME, "the launcher takes no bytes");
    return status;
}

static sn_status get_message(boot_socket *s, sn_time deadline)
{
    incoming *in = &s->in;
    if (!in->data) {
        sn_status status = get(s, &in->head, sizeof in->head, deadline, &in->head_done);
        if (status != SN_OK)
            return status;
        uint64_t most = (uint64_t) s->boot.world * (BOOT_BLOB_MAX + sizeof(uint32_t));
        if (in->head.magic != BOOT_MAGIC || in->head.bytes > most)
            return sn_fail(SN_ECORRUPT, "the launcher sent what is no boot message");
        in->data = malloc((size_t) in->head.bytes + 1);
        if (!in->data)
            return sn_fail(SN_ENOMEM, "no memory for a boot message of %u bytes", in->head.bytes);
    }
    return get(s, in->data, in->head.bytes, deadline, &in->data_done);
}

/* SN_OK when it was the answer to this all-gather, SN_PENDING when something else. */
static sn_status take(boot_socket *s)
{
    char *data = s->in.data;
    boot_head head = s->in.head;
    s->in = (incoming){0};
    if (head.kind == BOOT_ALL && head.seq == s->boot.seq)
        return boot_cut(&s->boot, data, head.bytes);
    if (head.kind == BOOT_MISSING && head.seq == s->boot.seq) {
        free(s->who);
        s->who = (uint32_t *) (void *) data;
        s->whos = head.bytes / sizeof *s->who;
        return SN_PENDING;
    }
    uint32_t rank = UINT32_MAX;
    if (head.kind == BOOT_LEFT && head.bytes == sizeof rank)
        memcpy(&rank, data, sizeof rank);
    free(data);
    if (rank < (uint32_t) s->boot.world)
        s->boot.left = s->boot.left < 0 ? (int) rank : s->boot.left;
    else if (head.kind != BOOT_MISSING)
        return sn_fail(SN_ECORRUPT, "the launcher sent an unexpected message (kind %u, #%u)",
                       head.kind, head.seq);
    return SN_PENDING;
}

static sn_status late(boot_socket *s, sn_time began)
{
    double seconds = (double) (sn_now() - began) / SN_SEC;
    if (!s->who)
        return sn_fail(SN_ETIME, "no answer from the launcher for %.1f s", seconds);
    bool *here = sn_alloc((size_t) s->boot.world);
    memset(here, 1, (size_t) s->boot.world);
    for (size_t i = 0; i < s->whos; i++)
        if (s->who[i] < (uint32_t) s->boot.world)
            here[s->who[i]] = false;
    sn_str names = {0};
    boot_name_missing(here, s->boot.world, &names);
    sn_status status =
        sn_fail(SN_ETIME, "still waiting for %s after %.1f s", sn_str_get(&names), seconds);
    sn_str_done(&names);
    free(here);
    return status;
}

/* Collect messages until the answer; the question who is missing goes out a little before the
 * deadline, so that the deadline is kept and yet has names. */
static sn_status collect(boot_socket *s, sn_time began, sn_time deadline)
{
    sn_time wait = deadline - began;
    sn_time ask = deadline - SN_MIN(wait / 4, 200 * SN_MS);
    bool asked = false;
    sn_status status = SN_PENDING;
    while (status == SN_PENDING) {
        if (s->boot.left >= 0)
            return sn_fail(SN_EPEER, "rank %d left", s->boot.left);
        status = get_message(s, asked ? deadline : ask);
        if (status == SN_OK) {
            status = take(s);
        } else if (status == SN_PENDING && asked) {
            status = late(s, began);
        } else if (status == SN_PENDING) {
            asked = true;
            sn_status sent = put_message(s, BOOT_WHO, NULL, 0, deadline);
            status = sent < 0 ? sent : SN_PENDING;
        }
    }
    return status;
}

static sn_status socket_listen(sn_boot *boot, sn_time until)
{
    boot_socket *s = (boot_socket *) boot;
    while (boot->left < 0) {
        sn_status status = get_message(s, until);
        if (status == SN_OK)
            status = take(s);
        else if (status == SN_PENDING)
            return SN_OK;
        if (status < 0)
            return status;
    }
    return SN_OK;
}

static sn_status socket_allgather(sn_boot *boot, const void *blob, size_t bytes, sn_time deadline)
{
    boot_socket *s = (boot_socket *) boot;
    sn_time began = sn_now();
    free(s->who);
    s->who = NULL;
    SN_TRY(put_message(s, BOOT_BLOB, blob, bytes, deadline));
    return collect(s, began, deadline);
}

static void socket_free(sn_boot *boot)
{
    boot_socket *s = (boot_socket *) boot;
    free(s->who);
    free(s->in.data);
    close(s->fd);
}

sn_status sn_boot_socket(int fd, int rank, int world, sn_boot **ret)
{
    static const boot_way way = {socket_allgather, socket_listen, socket_free};
    if (world < 1 || rank < 0 || rank >= world)
        return sn_fail(SN_EINVAL, "rank %d of a world of %d", rank, world);
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) || fcntl(fd, F_SETFD, FD_CLOEXEC))
        return sn_fail(SN_EINVAL, "descriptor %d is no connection to a launcher: %s", fd,
                       strerror(errno));
    boot_socket *s = sn_alloc(sizeof *s);
    boot_init(&s->boot, &way, rank, world);
    s->fd = fd;
    *ret = &s->boot;
    return SN_OK;
}
