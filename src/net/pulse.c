/* SPDX-License-Identifier: Apache-2.0
 *
 * Heartbeats between hosts, in UDP packets, so that none waits behind lost ones.
 *
 *   h0: rank 0 ⇄ rank 3 :h1     Each rank sends to one rank of every other host, by its place on
 *       rank 1 ⇄ rank 4         its host, and so each is watched by one rank of every other host.
 *       rank 2 → rank 3         Who finds a peer silent, or dead, tells its host mates in its life
 *                               page and those it sends to in its packets.
 *
 * Silence counts from the first packet on, and that one is sent before the hello that opening waits
 * for, so that a link which is cut from then on is missed. A network that lets no packet through at
 * all is not taken for death: then only this watch is given up, with a warning. */
#include "net/net_private.h"

#include "os/os.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PULSE_MAGIC UINT32_C(0x534e5550) /* "SNUP" */
#define NEVER_HEARD 5                    /* times the bound more, for the first packet to come */
#define GOODBYES 3                       /* packets that say it last, in case some are lost */
#define PACKETS_MAX 1024                 /* read in one tick */

typedef struct pulse_packet {
    uint32_t magic;
    int32_t from;
    uint64_t token; /* the receiver's */
    uint64_t number;
    sn_time late; /* its heartbeats may be by so much */
    int32_t leaving;
    int32_t dead; /* rank that the sender found dead, -1 none */
    char how[NET_HOW_MAX];
} pulse_packet;

typedef struct pulse_target {
    struct sockaddr_storage address;
    socklen_t bytes;
    uint64_t token;
} pulse_target;

typedef struct pulse_watch {
    int rank;
    bool heard, quiet; /* it said that it leaves */
    uint64_t number;   /* of its last packet */
    sn_time silent, late;
} pulse_watch;

struct net_pulse {
    int sock;
    uint64_t token, number;
    pulse_target *target;
    pulse_watch *watch;
    int targets, watches;
    bool armed, leaving; /* atomic */
    bool given_up;       /* no packet comes through */
};

/* ---- opening ---- */

static sn_status failed(net_pulse *pulse, const char *what)
{
    int code = errno;
    net_pulse_close(pulse);
    return sn_fail(SN_EIO, "cannot %s for heartbeats between hosts: %s", what, strerror(code));
}

size_t net_pulse_bytes(int world)
{
    return sizeof(net_pulse) + (size_t) world * (sizeof(pulse_target) + sizeof(pulse_watch)) + 256;
}

sn_status net_pulse_open(sn_net *net, const net_address *address, net_pulse **ret,
                         net_pulse_card *ret_card)
{
    struct sockaddr_storage at;
    socklen_t bytes = net_address_socket(address, 0, &at);
    net_pulse *pulse = net_den_alloc(&net->den, sizeof *pulse);
    pulse->sock = socket(at.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (getrandom(&pulse->token, sizeof pulse->token, 0) != sizeof pulse->token)
        return failed(pulse, "draw a token");
    if (pulse->sock < 0 || bind(pulse->sock, (struct sockaddr *) &at, bytes) ||
        getsockname(pulse->sock, (struct sockaddr *) &at, &bytes))
        return failed(pulse, "open a socket");
    ret_card->token = pulse->token;
    ret_card->address = *address;
    ret_card->port = address->family == 4 ? ((struct sockaddr_in *) (void *) &at)->sin_port
                                          : ((struct sockaddr_in6 *) (void *) &at)->sin6_port;
    *ret = pulse;
    return SN_OK;
}

void net_pulse_close(net_pulse *pulse)
{
    if (pulse && pulse->sock >= 0)
        close(pulse->sock);
}

/* `late`: my heartbeats may be by so much. */
static void send_all(const sn_net *net, net_pulse *pulse, sn_time late)
{
    pulse_packet p = {.magic = PULSE_MAGIC, .from = net->rank, .number = ++pulse->number};
    p.late = late;
    p.leaving = __atomic_load_n(&pulse->leaving, __ATOMIC_ACQUIRE);
    p.dead = __atomic_load_n(&net->dead, __ATOMIC_ACQUIRE);
    if (p.dead >= 0)
        memcpy(p.how, net->peers[p.dead].how, sizeof p.how);
    for (int i = 0; i < pulse->targets; i++) {
        const pulse_target *t = &pulse->target[i];
        p.token = t->token; /* a packet that cannot be sent is one that was lost */
        syscall(SYS_sendto, pulse->sock, &p, sizeof p, MSG_NOSIGNAL, &t->address, t->bytes);
    }
}

/* The place of a rank on its host, and how many are there. */
static int place(const sn_net *net, int rank, int *ret_there)
{
    int place = 0, there = 0;
    for (int r = 0; r < net->world; r++)
        if (net->peers[r].host == net->peers[rank].host) {
            place += r < rank;
            there++;
        }
    *ret_there = there;
    return place;
}

void net_pulse_start(sn_net *net, net_pulse *pulse, const net_pulse_card *cards)
{
    int mates, there;
    int me = place(net, net->rank, &mates);
    pulse->target = net_den_alloc(&net->den, (size_t) net->world * sizeof *pulse->target);
    pulse->watch = net_den_alloc(&net->den, (size_t) net->world * sizeof *pulse->watch);
    for (int r = 0; r < net->world; r++) {
        if (net->peers[r].host == net->peers[net->rank].host || !cards[r].address.family)
            continue;
        int its = place(net, r, &there);
        if (its == me % there) {
            pulse_target *t = &pulse->target[pulse->targets++];
            t->bytes = net_address_socket(&cards[r].address, cards[r].port, &t->address);
            t->token = cards[r].token;
        }
        if (its % mates == me)
            pulse->watch[pulse->watches++] = (pulse_watch){.rank = r};
    }
    send_all(net, pulse, 0); /* before my hello: whoever has that has heard of me */
    __atomic_store_n(&net->pulse, pulse, __ATOMIC_RELEASE);
}

void net_pulse_arm(sn_net *net)
{
    if (net->pulse)
        __atomic_store_n(&net->pulse->armed, true, __ATOMIC_RELEASE);
}

void net_pulse_leave(sn_net *net)
{
    if (net->pulse)
        __atomic_store_n(&net->pulse->leaving, true, __ATOMIC_RELEASE);
}

/* ---- a tick ---- */

void net_pulse_bye(sn_net *net)
{
    for (int i = 0; net->pulse && i < GOODBYES; i++)
        send_all(net, net->pulse, net_served_late(net));
}

static void hear(sn_net *net, net_pulse *pulse, const pulse_packet *p)
{
    if (p->dead >= 0 && p->dead < net->world && p->dead != net->rank)
        net_dead(net, p->dead, "%.*s", NET_HOW_MAX - 1, p->how);
    for (int i = 0; i < pulse->watches; i++) {
        pulse_watch *w = &pulse->watch[i];
        if (w->rank != p->from || p->number <= w->number) /* an old one overtaken by a newer */
            continue;
        w->number = p->number;
        w->silent = 0;
        w->late = p->late;
        w->heard = true;
        w->quiet |= p->leaving != 0;
    }
}

static void receive_all(sn_net *net, net_pulse *pulse)
{
    pulse_packet p;
    for (int i = 0; i < PACKETS_MAX; i++) {
        struct pollfd ready = {.fd = pulse->sock, .events = POLLIN};
        if (syscall(SYS_ppoll, &ready, 1, &(struct timespec){0}, NULL, 0) <= 0)
            return;
        ssize_t n = syscall(SYS_recvfrom, pulse->sock, &p, sizeof p, 0, NULL, NULL);
        if (n == sizeof p && p.magic == PULSE_MAGIC && p.token == pulse->token && p.from >= 0 &&
            p.from < net->world)
            hear(net, pulse, &p); /* an error is one that a packet of mine met: it is for nobody */
    }
}

static void give_up(const sn_net *net, net_pulse *pulse)
{
    pulse->given_up = true;
    sn_log(SN_LOG_WARN,
           "rank %d hears no heartbeat from other hosts: does a firewall drop UDP? a worker there "
           "that stops is noticed by deadlines only",
           net->rank);
}

static void judge(sn_net *net, net_pulse *pulse, sn_time gap)
{
    bool armed = __atomic_load_n(&pulse->armed, __ATOMIC_ACQUIRE), any = false;
    for (int i = 0; i < pulse->watches; i++)
        any |= pulse->watch[i].heard;
    for (int i = 0; i < pulse->watches && !pulse->given_up; i++) {
        pulse_watch *w = &pulse->watch[i];
        if (w->quiet || (!w->heard && !armed) || net_state(net, w->rank) != NET_FINE)
            continue;
        w->silent += gap;
        if (w->silent < net_silence_max(net, w->late) + (w->heard ? 0 : NEVER_HEARD * net->detect))
            continue;
        if (any)
            net_dead(net, w->rank, "stopped answering for %lld ms",
                     (long long) (w->silent / SN_MS));
        else
            give_up(net, pulse);
    }
}

void net_pulse_tick(sn_net *net, sn_time gap)
{
    net_pulse *pulse = __atomic_load_n(&net->pulse, __ATOMIC_ACQUIRE);
    if (!pulse)
        return;
    receive_all(net, pulse);
    judge(net, pulse, gap);
    send_all(net, pulse, net_served_late(net));
}
