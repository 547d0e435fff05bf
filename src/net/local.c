/* SPDX-License-Identifier: Apache-2.0
 *
 * Sockets between the ranks of a host: abstract names (nothing in a file system), sequenced
 * packets. A door's name is no secret (/proc/net/unix lists it), so whoever knocks must be the same
 * user and show the token that the boot exchange gave to the job's ranks only. */
#include "net/boot.h"
#include "net/net_private.h"

#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define LOCAL_MAGIC UINT32_C(0x534e4c43) /* "SNLC" */
#define LOCAL_MAX 1024
#define NEWS_NS (100 * SN_MS) /* how long the launcher's word on who was first is waited for */

typedef struct local_head {
    uint32_t magic, rank;
    uint64_t what; /* which exchange; both ends must agree */
    uint32_t bytes, has_fd;
} local_head;

typedef struct local_hello {
    local_head head;
    net_token token;
} local_hello;

static socklen_t address_of(const net_door *door, struct sockaddr_un *ret)
{
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    size_t n = strnlen(door->name, sizeof door->name - 1);
    memcpy(ret->sun_path + 1, door->name, n); /* a leading NUL: the abstract name space */
    return (socklen_t) (offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

sn_status net_door_open(int *ret_fd, net_door *ret)
{
    uint64_t name[2];
    net_door door = {0};
    if (getrandom(name, sizeof name, 0) != sizeof name ||
        getrandom(&door.token, sizeof door.token, 0) != sizeof door.token)
        return sn_fail(SN_EIO, "the system gives no random bytes: %s", strerror(errno));
    snprintf(door.name, sizeof door.name, "sn-%016llx%016llx", (unsigned long long) name[0],
             (unsigned long long) name[1]);
    struct sockaddr_un address;
    socklen_t n = address_of(&door, &address);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *) &address, n) || listen(fd, 4096)) {
        int code = errno;
        if (fd >= 0)
            close(fd);
        return sn_fail(SN_EIO, "cannot listen for the ranks of this host: %s", strerror(code));
    }
    *ret_fd = fd;
    *ret = door;
    return SN_OK;
}

/* Until `fd` is ready or the deadline or one of the reasons to leave. */
static sn_status wait_for(sn_net *net, int rank, int fd, short events, sn_time deadline)
{
    for (;;) {
        struct pollfd p = {.fd = fd, .events = events};
        int n = poll(&p, 1, 1);
        if (n > 0)
            return SN_OK;
        if (n < 0 && errno != EINTR)
            return sn_fail(SN_EIO, "cannot wait for a socket: %s", strerror(errno));
        SN_TRY(sn_net_look(net));
        if (net->wire)
            net_wire_progress(net->wire);
        if (sn_now() < deadline)
            continue;
        if (rank < 0)
            return sn_fail(SN_ETIME, "not all ranks of this host have connected");
        return sn_fail(SN_ETIME, "nothing from rank %d (%s)", rank, sn_net_host_name(net, rank));
    }
}

/* A socket that closed: the life page knows better whether that was orderly. While the ranks find
 * each other there is none yet, and this one may have left because another had died. */
static sn_status hung_up(sn_net *net, int rank)
{
    net_look_around(net);
    SN_TRY(net_boot_news(net, sn_now() + NEWS_NS));
    net_dead(net, rank, "died: its process is gone"); /* unless it is known to have left */
    return net_peer_gone(net, rank);
}

static sn_status send_packet(sn_net *net, int rank, int sock, const struct msghdr *m,
                             sn_time deadline)
{
    for (;;) {
        if (sendmsg(sock, m, MSG_NOSIGNAL) >= 0)
            return SN_OK;
        if (errno == EINTR)
            continue;
        if (errno == EPIPE || errno == ECONNRESET)
            return hung_up(net, rank);
        if (errno == ETOOMANYREFS)
            return sn_fail(SN_EIO, "too many descriptors in flight: raise the limit (ulimit -n)");
        if (errno != EAGAIN)
            return sn_fail(SN_EIO, "cannot send to rank %d (%s): %s", rank,
                           sn_net_host_name(net, rank), strerror(errno));
        SN_TRY(wait_for(net, rank, sock, POLLOUT, deadline));
    }
}

sn_status net_local_send(sn_net *net, int rank, uint64_t what, const void *data, size_t bytes,
                         int fd, sn_time deadline)
{
    SN_ASSERT(bytes <= LOCAL_MAX && net->peers[rank].sock >= 0);
    local_head head = {LOCAL_MAGIC, (uint32_t) net->rank, what, (uint32_t) bytes, fd >= 0};
    struct iovec io[2] = {{&head, sizeof head}, {(void *) data, bytes}};
    struct msghdr m = {.msg_iov = io, .msg_iovlen = bytes ? 2 : 1};
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {0};
    if (fd >= 0) {
        m.msg_control = control.room;
        m.msg_controllen = sizeof control.room;
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    return send_packet(net, rank, net->peers[rank].sock, &m, deadline);
}

/* The descriptor of a message, -1 none; surplus ones are closed. */
static int take_fd(struct msghdr *m)
{
    int kept = -1;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (kept < 0)
                kept = fd;
            else
                close(fd);
        }
    }
    return kept;
}

/* A rank that gave up one exchange because somebody died is in the next: the death is the news. */
static sn_status check_local(const sn_net *net, int rank, const local_head *want, ssize_t got,
                             const local_head *head)
{
    const char *host = sn_net_host_name(net, rank);
    if ((size_t) got < sizeof *head || head->magic != LOCAL_MAGIC ||
        head->rank != (uint32_t) rank || (size_t) got != sizeof *head + head->bytes)
        return sn_fail(SN_ECORRUPT, "rank %d (%s) sent a malformed message", rank, host);
    if (head->what == want->what && head->bytes == want->bytes && head->has_fd == want->has_fd)
        return SN_OK;
    SN_TRY(sn_net_alive(net));
    return sn_fail(SN_EMISMATCH,
                   "rank %d (%s) is in another exchange (%u bytes%s) than rank %d (%s) "
                   "(%u bytes%s)",
                   rank, host, head->bytes, head->has_fd ? ", a descriptor" : "", net->rank,
                   sn_net_host_name(net, net->rank), want->bytes,
                   want->has_fd ? ", a descriptor" : "");
}

static sn_status recv_packet(sn_net *net, int rank, struct msghdr *m, sn_time deadline,
                             ssize_t *ret_got)
{
    int sock = net->peers[rank].sock;
    size_t control = m->msg_controllen;
    for (;;) {
        m->msg_controllen = control;
        ssize_t n = recvmsg(sock, m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        if (n > 0) {
            *ret_got = n;
            return SN_OK;
        }
        if (n == 0 || errno == ECONNRESET)
            return hung_up(net, rank);
        if (errno != EAGAIN && errno != EINTR)
            return sn_fail(SN_EIO, "cannot receive from rank %d (%s): %s", rank,
                           sn_net_host_name(net, rank), strerror(errno));
        SN_TRY(wait_for(net, rank, sock, POLLIN, deadline));
    }
}

sn_status net_local_recv(sn_net *net, int rank, uint64_t what, void *data, size_t bytes,
                         int *ret_fd, sn_time deadline)
{
    SN_ASSERT(bytes <= LOCAL_MAX && net->peers[rank].sock >= 0);
    char room[LOCAL_MAX];
    local_head head = {0};
    struct iovec io[2] = {{&head, sizeof head}, {room, sizeof room}};
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(4 * sizeof(int))];
    } control;
    struct msghdr m = {.msg_iov = io,
                       .msg_iovlen = 2,
                       .msg_control = control.room,
                       .msg_controllen = sizeof control.room};
    ssize_t got = 0;
    SN_TRY(recv_packet(net, rank, &m, deadline, &got));
    int fd = take_fd(&m);
    local_head want = {LOCAL_MAGIC, (uint32_t) rank, what, (uint32_t) bytes, ret_fd != NULL};
    sn_status status = check_local(net, rank, &want, got, &head);
    if (status >= 0 && ret_fd && fd < 0)
        status = sn_fail(SN_EIO,
                         "the descriptor of rank %d (%s) did not arrive: raise the limit on open "
                         "files (ulimit -n)",
                         rank, sn_net_host_name(net, rank));
    if (status >= 0 && bytes)
        memcpy(data, room, bytes);
    if (status >= 0 && ret_fd)
        *ret_fd = fd;
    else if (fd >= 0)
        close(fd);
    return status;
}

/* ---- connecting ---- */

static bool same_user(int sock)
{
    struct ucred cred;
    socklen_t n = sizeof cred;
    return !getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &n) && cred.uid == geteuid();
}

int net_local_pid(const sn_net *net, int rank)
{
    struct ucred cred = {0};
    socklen_t n = sizeof cred;
    int sock = net->peers[rank].sock;
    return sock >= 0 && !getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &n) ? cred.pid : 0;
}

static sn_status knock(sn_net *net, int rank, const net_door *door, sn_time deadline)
{
    struct sockaddr_un address;
    socklen_t n = address_of(door, &address);
    int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (sock < 0 || connect(sock, (struct sockaddr *) &address, n)) {
        int code = errno;
        if (sock >= 0)
            close(sock);
        SN_TRY(net_boot_news(net, sn_now() + NEWS_NS));
        return sn_fail(SN_EPEER,
                       "cannot connect to rank %d (%s), which shows this host's boot id and "
                       "namespaces: %s (when it runs on another machine, a clone of this one, give "
                       "the hosts names that differ)",
                       rank, sn_net_host_name(net, rank), strerror(code));
    }
    net->peers[rank].sock = sock;
    local_hello hello = {.head = {LOCAL_MAGIC, (uint32_t) net->rank, 0, sizeof hello.token, 0}};
    hello.token = door->token;
    struct iovec io = {&hello, sizeof hello};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1};
    return send_packet(net, rank, sock, &m, deadline);
}

/* Whoever shows the right token first becomes the rank it says it is; others are sent away. */
static bool admit(sn_net *net, int sock, const net_door *mine)
{
    local_hello hello = {0};
    if (recv(sock, &hello, sizeof hello, MSG_DONTWAIT) != sizeof hello)
        return false;
    int rank = (int) SN_MIN(hello.head.rank, INT32_MAX);
    if (hello.head.magic != LOCAL_MAGIC || rank <= net->rank || rank >= net->world ||
        !sn_net_same_host(net, rank) || net->peers[rank].sock >= 0 ||
        memcmp(&hello.token, &mine->token, sizeof hello.token) != 0)
        return false;
    net->peers[rank].sock = sock;
    return true;
}

static sn_status not_connected(const sn_net *net)
{
    bool *here = sn_alloc((size_t) net->world * sizeof *here);
    for (int r = 0; r < net->world; r++)
        here[r] = r <= net->rank || !sn_net_same_host(net, r) || net->peers[r].sock >= 0;
    sn_str names = {0};
    boot_name_missing(here, net->world, &names);
    sn_status status =
        sn_fail(SN_ETIME, "%s of this host did not connect in time", sn_str_get(&names));
    sn_str_done(&names);
    free(here);
    return status;
}

/* Guests whose hello has not come yet are watched beside the door, so that one who stays silent
 * holds up nobody. Nobody can be further than I am now, so whoever leaves the boot exchange has
 * failed. */
static sn_status welcome(sn_net *net, int door, const net_door *mine, int expected,
                         sn_time deadline)
{
    enum { GUESTS = 64 };
    struct pollfd watch[GUESTS + 1] = {{.fd = door, .events = POLLIN}};
    nfds_t n = 1;
    sn_status status = SN_OK;
    while (expected > 0 && status >= 0) {
        watch[0].events = n <= GUESTS ? POLLIN : 0;
        int ready = poll(watch, n, 10);
        for (nfds_t i = n - 1; ready > 0 && i > 0; i--) {
            if (!watch[i].revents)
                continue;
            if (admit(net, watch[i].fd, mine))
                expected--;
            else
                close(watch[i].fd);
            watch[i] = watch[--n];
        }
        if (ready > 0 && (watch[0].revents & POLLIN)) {
            int guest = accept4(door, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
            if (guest >= 0 && same_user(guest))
                watch[n++] = (struct pollfd){.fd = guest, .events = POLLIN};
            else if (guest >= 0)
                close(guest);
        }
        status = sn_net_alive(net);
        if (status >= 0 && expected > 0)
            status = net_boot_news(net, 0);
        if (status >= 0 && expected > 0 && sn_now() >= deadline)
            status = not_connected(net);
    }
    for (nfds_t i = 1; i < n; i++)
        close(watch[i].fd);
    return status;
}

sn_status net_local_connect(sn_net *net, int door_fd, const net_door *doors, sn_time deadline)
{
    int higher = 0;
    for (int r = 0; r < net->world; r++) {
        if (!sn_net_same_host(net, r) || r == net->rank)
            continue;
        if (r > net->rank)
            higher++;
        else
            SN_TRY(knock(net, r, &doors[r], deadline));
    }
    return welcome(net, door_fd, &doors[net->rank], higher, deadline);
}

/* ---- descriptors ---- */

static sn_status share(sn_net *net, const int *members, int n, int fd, sn_time deadline, int *got)
{
    uint64_t what = net_hash_members(members, n, 'f');
    for (int i = 0; i < n; i++)
        if (members[i] != net->rank)
            SN_TRY(net_local_send(net, members[i], what, NULL, 0, fd, deadline));
    for (int i = 0; i < n; i++) {
        if (members[i] != net->rank) {
            SN_TRY(net_local_recv(net, members[i], what, NULL, 0, &got[i], deadline));
            continue;
        }
        got[i] = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        if (got[i] < 0)
            return sn_fail(SN_EIO, "cannot duplicate a descriptor: %s", strerror(errno));
    }
    return SN_OK;
}

sn_status sn_net_share_fds(sn_net *net, const int *members, int n, int fd, sn_time deadline,
                           int *ret_fds)
{
    SN_TRY(net_check_members(net, members, n));
    for (int i = 0; i < n; i++)
        if (!sn_net_same_host(net, members[i]))
            return sn_fail(SN_ENOTSUP,
                           "descriptors cannot be handed to rank %d on another host (%s)",
                           members[i], sn_net_host_name(net, members[i]));
    int *got = malloc((size_t) n * sizeof *got);
    if (!got)
        return sn_fail(SN_ENOMEM, "no memory for %d descriptors", n);
    for (int i = 0; i < n; i++)
        got[i] = -1;
    sn_status status = share(net, members, n, fd, deadline, got);
    if (status < 0) {
        for (int i = 0; i < n; i++)
            if (got[i] >= 0)
                close(got[i]);
        sn_fail_in(status, "rank %d (%s): handing over descriptors", net->rank,
                   sn_net_host_name(net, net->rank));
    } else {
        memcpy(ret_fds, got, (size_t) n * sizeof *got);
    }
    free(got);
    return status;
}
