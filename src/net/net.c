/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening and closing a net, who is on which host, and verdicts about peers. */
#include "net/net_private.h"

#include "os/os.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CARD_MAGIC UINT32_C(0x534e4331) /* "SNC1": changes whenever a message of net changes */

/* What a rank says of itself when it joins. */
typedef struct net_card {
    uint32_t magic, bytes;
    char boot_id[40];
    uint64_t ipc, network; /* namespaces, by inode */
    char host_name[NET_NAME_MAX];
    net_door door;
} net_card;

/* ---- who is who ---- */

static uint64_t namespace_of(const char *kind)
{
    char path[64];
    struct stat st;
    snprintf(path, sizeof path, "/proc/self/ns/%s", kind);
    return stat(path, &st) ? 0 : (uint64_t) st.st_ino;
}

static void read_boot_id(char ret[40])
{
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (f && fgets(ret, 40, f))
        ret[strcspn(ret, "\n")] = 0;
    if (f)
        fclose(f);
}

static bool one_host(const net_card *a, const net_card *b)
{
    return memcmp(a->boot_id, b->boot_id, sizeof a->boot_id) == 0 && a->ipc == b->ipc &&
           a->network == b->network && strcmp(a->host_name, b->host_name) == 0;
}

static bool one_kernel(const net_card *cards, int world)
{
    for (int r = 1; r < world; r++)
        if (memcmp(cards[r].boot_id, cards[0].boot_id, sizeof cards[0].boot_id) != 0 ||
            cards[r].network != cards[0].network)
            return false;
    return true;
}

/* Hosts are numbered by their lowest rank; the first card of each is kept for comparing. */
static void number_hosts(sn_net *net, const net_card *cards)
{
    int *first = sn_alloc((size_t) net->world * sizeof *first);
    for (int r = 0; r < net->world; r++) {
        net_peer *p = &net->peers[r];
        memcpy(p->host_name, cards[r].host_name, sizeof p->host_name);
        for (p->host = 0; p->host < net->hosts; p->host++)
            if (one_host(&cards[first[p->host]], &cards[r]))
                break;
        if (p->host == net->hosts)
            first[net->hosts++] = r;
    }
    free(first);
}

static sn_status check_card(int rank, const void *blob, size_t bytes, net_card *ret)
{
    net_card card = {0};
    memcpy(&card, blob, SN_MIN(bytes, sizeof card));
    if (bytes != sizeof card || card.magic != CARD_MAGIC || card.bytes != sizeof card)
        return sn_fail(SN_EMISMATCH, "rank %d runs another version of supernode", rank);
    card.boot_id[sizeof card.boot_id - 1] = 0;
    card.host_name[sizeof card.host_name - 1] = 0;
    card.door.name[sizeof card.door.name - 1] = 0;
    *ret = card;
    return SN_OK;
}

static sn_status exchange_cards(sn_net *net, sn_boot *boot, const sn_net_opts *opts,
                                const net_door *door, net_card *cards)
{
    net_card mine = {.magic = CARD_MAGIC, .bytes = sizeof mine, .door = *door};
    read_boot_id(mine.boot_id);
    mine.ipc = namespace_of("ipc");
    mine.network = namespace_of("net");
    snprintf(mine.host_name, sizeof mine.host_name, "%s", opts->host_name ? opts->host_name : "");
    const void *const *blobs;
    const size_t *bytes;
    SN_TRY(sn_boot_allgather(boot, &mine, sizeof mine, opts->deadline, &blobs, &bytes));
    for (int r = 0; r < net->world; r++)
        SN_TRY(check_card(r, blobs[r], bytes[r], &cards[r]));
    return SN_OK;
}

/* ---- opening ---- */

/* Hand my life to my host mates, take theirs. */
static sn_status share_lives(sn_net *net, sn_time deadline)
{
    int n = 0, fd = -1;
    int *mates = sn_alloc((size_t) net->world * sizeof *mates);
    int *fds = sn_alloc((size_t) net->world * sizeof *fds);
    for (int r = 0; r < net->world; r++)
        if (sn_net_same_host(net, r))
            mates[n++] = r;
    sn_status status = n > 1 ? net_life_create(&fd, &net->life) : SN_OK;
    if (n > 1 && status >= 0)
        status = sn_net_share_fds(net, mates, n, fd, deadline, fds);
    bool shared = n > 1 && status >= 0;
    for (int i = 0; shared && i < n; i++) {
        if (mates[i] != net->rank && status >= 0)
            status = net_life_map(fds[i], &net->peers[mates[i]].life);
        close(fds[i]);
    }
    if (fd >= 0)
        close(fd);
    free(mates);
    free(fds);
    if (status >= 0)
        __atomic_store_n(&net->watching, true, __ATOMIC_RELEASE);
    return status;
}

static sn_status join(sn_net *net, sn_boot *boot, const sn_net_opts *opts, net_card *cards,
                      net_door *doors)
{
    int door_fd = -1;
    net_door door;
    SN_TRY(net_door_open(&door_fd, &door));
    sn_status status = exchange_cards(net, boot, opts, &door, cards);
    if (status >= 0) {
        number_hosts(net, cards);
        for (int r = 0; r < net->world; r++)
            doors[r] = cards[r].door;
        status = net_local_connect(net, door_fd, doors, opts->deadline);
    }
    close(door_fd);
    SN_TRY(status);
    SN_TRY(share_lives(net, opts->deadline));
    if (net->hosts == 1)
        return SN_OK;
    return net_wire_open(net, boot, opts->bind_address, one_kernel(cards, net->world),
                         opts->deadline);
}

static sn_net *create(sn_boot *boot, const sn_net_opts *opts)
{
    sn_net *net = sn_alloc(sizeof *net);
    net->rank = sn_boot_rank(boot);
    net->world = sn_boot_world(boot);
    net->dead = -1;
    net->page = opts->page;
    net->epoch = net->page ? __atomic_load_n(&net->page->epoch, __ATOMIC_ACQUIRE) : 0;
    net->peers = sn_alloc((size_t) net->world * sizeof *net->peers);
    for (int r = 0; r < net->world; r++) {
        net->peers[r].sock = -1;
        net->peers[r].told_by = -1;
        snprintf(net->peers[r].how, sizeof net->peers[r].how, "its process is gone");
    }
    snprintf(net->peers[net->rank].host_name, NET_NAME_MAX, "%s",
             opts->host_name ? opts->host_name : "");
    return net;
}

sn_status sn_net_open(sn_boot *boot, const sn_net_opts *opts, sn_net **ret)
{
    sn_net *net = create(boot, opts);
    sn_status status = net->page || net->world > 1 ? net_beat_start(net) : SN_OK;
    if (net->world == 1) {
        net->hosts = 1;
    } else if (status >= 0) {
        net_card *cards = sn_alloc((size_t) net->world * sizeof *cards);
        net_door *doors = sn_alloc((size_t) net->world * sizeof *doors);
        status = join(net, boot, opts, cards, doors);
        free(cards);
        free(doors);
    }
    if (status < 0) {
        sn_fail_in(status, "rank %d (%s) cannot join the job", net->rank,
                   sn_net_host_name(net, net->rank));
        sn_net_close(net);
        return status;
    }
    *ret = net;
    return SN_OK;
}

void sn_net_close(sn_net *net)
{
    if (!net)
        return;
    net_wire_close(net->wire);
    net_beat_stop(net);
    net_life_leave(net->life, net_culprit(net));
    for (int r = 0; r < net->world; r++) {
        net_life_unmap(net->peers[r].life);
        if (net->peers[r].sock >= 0)
            close(net->peers[r].sock);
    }
    free(net->peers);
    free(net);
}

/* ---- queries ---- */

int sn_net_rank(const sn_net *net)
{
    return net->rank;
}

int sn_net_world(const sn_net *net)
{
    return net->world;
}

bool sn_net_same_host(const sn_net *net, int rank)
{
    return net->peers[rank].host == net->peers[net->rank].host;
}

int sn_net_host_index(const sn_net *net, int rank)
{
    return net->peers[rank].host;
}

int sn_net_hosts(const sn_net *net)
{
    return net->hosts;
}

const char *sn_net_host_name(const sn_net *net, int rank)
{
    const char *name = net->peers[rank].host_name;
    return name[0] ? name : "this host";
}

sn_page *sn_net_page(const sn_net *net)
{
    return net->page;
}

sn_status net_check_members(const sn_net *net, const int *members, int n)
{
    bool me = false;
    if (n < 1 || n > net->world)
        return sn_fail(SN_EINVAL, "%d members in a world of %d", n, net->world);
    for (int i = 0; i < n; i++) {
        if (members[i] < 0 || members[i] >= net->world)
            return sn_fail(SN_EINVAL, "member %d is no rank of a world of %d", members[i],
                           net->world);
        if (i && members[i] <= members[i - 1])
            return sn_fail(SN_EINVAL, "members must be sorted: %d comes after %d", members[i],
                           members[i - 1]);
        me |= members[i] == net->rank;
    }
    return me ? SN_OK : sn_fail(SN_EINVAL, "rank %d is not among the members", net->rank);
}

uint64_t net_hash_members(const int *members, int n, uint64_t kind)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325) ^ kind; /* FNV-1a over the list */
    for (int i = 0; i < n; i++)
        h = (h ^ (uint64_t) (uint32_t) members[i]) * UINT64_C(0x100000001b3);
    return h;
}

/* ---- verdicts ---- */

net_peer_state net_state(const sn_net *net, int rank)
{
    return (net_peer_state) __atomic_load_n(&net->peers[rank].state, __ATOMIC_ACQUIRE);
}

void net_set_state(sn_net *net, int rank, net_peer_state state)
{
    uint32_t fine = NET_FINE;
    int none = -1;
    if (__atomic_compare_exchange_n(&net->peers[rank].state, &fine, (uint32_t) state, false,
                                    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) &&
        state == NET_DEAD)
        __atomic_compare_exchange_n(&net->dead, &none, rank, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE);
}

static sn_status died(const sn_net *net, int rank)
{
    const net_peer *p = &net->peers[rank];
    int by = __atomic_load_n(&p->told_by, __ATOMIC_ACQUIRE);
    if (by >= 0)
        return sn_fail(SN_EPEER, "rank %d (%s) died: rank %d (%s) says so", rank,
                       sn_net_host_name(net, rank), by, sn_net_host_name(net, by));
    return sn_fail(SN_EPEER, "rank %d (%s) died: %s", rank, sn_net_host_name(net, rank), p->how);
}

sn_status net_peer_gone(sn_net *net, int rank)
{
    if (net_state(net, rank) != NET_LEFT)
        return died(net, rank);
    SN_TRY(sn_net_look(net));
    return sn_fail(SN_EPEER, "rank %d (%s) has left the job", rank, sn_net_host_name(net, rank));
}

int net_culprit(const sn_net *net)
{
    int dead = __atomic_load_n(&net->dead, __ATOMIC_ACQUIRE);
    if (dead < 0 && net->page && __atomic_load_n(&net->page->epoch, __ATOMIC_ACQUIRE) != net->epoch)
        dead = __atomic_load_n(&net->page->victim, __ATOMIC_RELAXED);
    return dead;
}

void net_said_goodbye(sn_net *net, int rank, int culprit)
{
    int nobody = -1;
    if (culprit >= 0 && culprit < net->world && culprit != net->rank && culprit != rank &&
        net_state(net, culprit) == NET_FINE) {
        __atomic_compare_exchange_n(&net->peers[culprit].told_by, &nobody, rank, false,
                                    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
        net_set_state(net, culprit, NET_DEAD);
    }
    net_set_state(net, rank, NET_LEFT);
}

static sn_status epoch_moved(const sn_net *net, uint32_t epoch)
{
    int victim = __atomic_load_n(&net->page->victim, __ATOMIC_RELAXED);
    if (victim < 0 || victim >= net->world)
        return sn_fail(SN_EEPOCH, "the job moved on to epoch %u", epoch);
    return sn_fail(SN_EEPOCH, "rank %d (%s) died: the job moved on to epoch %u", victim,
                   sn_net_host_name(net, victim), epoch);
}

sn_status sn_net_alive(const sn_net *net)
{
    if (net->page) {
        if (__atomic_load_n(&net->page->stop, __ATOMIC_RELAXED) == 2)
            return sn_fail(SN_ECANCEL, "the job was asked to stop at once");
        uint32_t epoch = __atomic_load_n(&net->page->epoch, __ATOMIC_ACQUIRE);
        if (epoch != net->epoch)
            return epoch_moved(net, epoch);
    }
    int dead = __atomic_load_n(&net->dead, __ATOMIC_ACQUIRE);
    return dead < 0 ? SN_OK : died(net, dead);
}

void sn_net_peer_failed(sn_net *net, int rank, const char *how)
{
    if (rank < 0 || rank >= net->world || rank == net->rank)
        return;
    if (net_state(net, rank) == NET_FINE)
        snprintf(net->peers[rank].how, sizeof net->peers[rank].how, "%s", how);
    net_set_state(net, rank, NET_DEAD);
    if (net->wire && !sn_net_same_host(net, rank))
        net_wire_drop(net->wire, rank);
}

bool sn_net_left(const sn_net *net, int rank)
{
    return net_state(net, rank) == NET_LEFT;
}

/* A look at the sockets is a system call. While no request is open it serves only what nobody waits
 * for yet (messages that come early, news of peers), so one call in eight does it. */
void sn_net_progress(sn_net *net)
{
    if (net->wire && (net_wire_pending(net->wire) || (net->idle++ & 7) == 0))
        net_wire_progress(net->wire);
}

int sn_net_pending(const sn_net *net)
{
    return net->wire ? net_wire_pending(net->wire) : 0;
}

void sn_net_sleep(sn_net *net, sn_time until)
{
    if (net->wire)
        net_wire_sleep(net->wire, until);
    else
        sn_sleep_until(until);
}
