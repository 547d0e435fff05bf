/* SPDX-License-Identifier: Apache-2.0 */
#include "os/os.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

int sn_poll(struct pollfd *fds, int n, sn_time deadline)
{
    struct timespec t = {0}, *limit = NULL;
    if (deadline >= 0) {
        sn_time left = deadline ? SN_MAX(deadline - sn_now(), 0) : 0;
        t = (struct timespec){left / SN_SEC, left % SN_SEC};
        limit = &t;
    }
    int got = ppoll(fds, (nfds_t) n, limit, NULL);
    if (got < 0) /* interrupted, or short of memory: nothing can be said about the descriptors */
        for (int i = 0; i < n; i++)
            fds[i].revents = 0;
    return SN_MAX(got, 0);
}

sn_status sn_signal_open(const int *signals, int *ret_fd)
{
    sigset_t set;
    sigemptyset(&set);
    for (; *signals; signals++)
        sigaddset(&set, *signals);
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0)
        return sn_fail(SN_EIO, "cannot open a descriptor for signals: %s", strerror(errno));
    sigprocmask(SIG_BLOCK, &set, NULL);
    *ret_fd = fd;
    return SN_OK;
}

int sn_signal_take(int fd)
{
    struct signalfd_siginfo info;
    return read(fd, &info, sizeof info) == sizeof info ? (int) info.ssi_signo : 0;
}

static sn_status pair(int type, int ret_fds[2])
{
    if (socketpair(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ret_fds))
        return sn_fail(SN_EIO, "cannot make a pair of sockets: %s%s", strerror(errno),
                       errno == EMFILE ? " (raise it with ulimit -n)" : "");
    return SN_OK;
}

sn_status sn_pair_stream(int ret_fds[2])
{
    return pair(SOCK_STREAM, ret_fds);
}

sn_status sn_pair_datagram(int ret_fds[2])
{
    return pair(SOCK_SEQPACKET, ret_fds);
}

/* Room for one descriptor beside the data, aligned as the macros want it. */
typedef union passage {
    char room[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
} passage;

sn_status sn_datagram_send(int fd, const void *data, size_t bytes, int pass_fd)
{
    passage p;
    memset(&p, 0, sizeof p);
    struct iovec io = {(void *) data, bytes};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1};
    if (pass_fd >= 0) {
        m.msg_control = p.room;
        m.msg_controllen = sizeof p.room;
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof pass_fd);
        memcpy(CMSG_DATA(c), &pass_fd, sizeof pass_fd);
    }
    ssize_t n;
    do
        n = sendmsg(fd, &m, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return SN_AGAIN;
    if (n != (ssize_t) bytes)
        return sn_fail(errno == EPIPE || errno == ECONNRESET ? SN_EPEER : SN_EIO,
                       "cannot send a message: %s", strerror(errno));
    return SN_OK;
}

static int passed_fd(struct msghdr *m)
{
    int fd = -1;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
            memcpy(&fd, CMSG_DATA(c), sizeof fd);
    return fd;
}

sn_status sn_datagram_recv(int fd, void *ret, size_t bytes, int *ret_pass_fd)
{
    passage p;
    struct iovec io = {ret, bytes};
    struct msghdr m = {
        .msg_iov = &io, .msg_iovlen = 1, .msg_control = p.room, .msg_controllen = sizeof p.room};
    ssize_t n;
    do
        n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return SN_AGAIN;
    if (n < 0 && errno != ECONNRESET)
        return sn_fail(SN_EIO, "cannot receive a message: %s", strerror(errno));
    if (n <= 0)
        return sn_fail(SN_EPEER, "the other end closed the connection");
    int passed = passed_fd(&m);
    if ((size_t) n != bytes || m.msg_flags & MSG_TRUNC) {
        if (passed >= 0)
            close(passed);
        return sn_fail(SN_ECORRUPT, "a message of %zd bytes came, %zu were expected", n, bytes);
    }
    *ret_pass_fd = passed;
    return SN_OK;
}
