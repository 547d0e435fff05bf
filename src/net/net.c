/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening and closing a net, who is on which host, and verdicts about peers. */
#include "net/boot.h"
#include "net/net_private.h"

#include "os/os.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define CARD_MAGIC UINT32_C(0x534e4332) /* "SNC2": changes whenever a message of net changes */

#define DETECT_NS (100 * SN_MS)
#define DETECT_MIN_NS (20 * SN_MS) /* ticks are 1 ms at least, and a few must fit */

/* What a rank says of itself when it joins. */
typedef struct net_card {
    uint32_t magic, bytes;
    char boot_id[40];
    uint64_t ipc, network; /* namespaces, by inode */
    char host_name[NET_NAME_MAX];
    net_door door;
    net_token life;
    net_addresses addresses;
    int32_t status; /* of listing them */
    char text[160];
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
    card.text[sizeof card.text - 1] = 0;
    if (card.addresses.n < 0 || card.addresses.n > NET_ADDRESSES)
        return sn_fail(SN_ECORRUPT, "rank %d lists %d addresses", rank, card.addresses.n);
    for (int i = 0; i < card.addresses.n; i++) {
        net_address *a = &card.addresses.list[i];
        a->name[sizeof a->name - 1] = 0;
        a->prefix = SN_MIN(a->prefix, a->family == 4 ? 32 : 128);
        a->grade = SN_MIN(a->grade, NET_ASKED);
    }
    *ret = card;
    return SN_OK;
}

static sn_status exchange_cards(sn_net *net, const sn_net_opts *opts, const net_door *door,
                                net_card *cards)
{
    net_card mine = {.magic = CARD_MAGIC, .bytes = sizeof mine, .door = *door};
    read_boot_id(mine.boot_id);
    mine.ipc = namespace_of("ipc");
    mine.network = namespace_of("net");
    snprintf(mine.host_name, sizeof mine.host_name, "%s", opts->host_name ? opts->host_name : "");
    if (getrandom(&mine.life, sizeof mine.life, 0) != sizeof mine.life)
        return sn_fail(SN_EIO, "the system gives no random bytes: %s", strerror(errno));
    mine.status = net_iface_list(opts->bind_address, &mine.addresses);
    if (mine.status < 0)
        snprintf(mine.text, sizeof mine.text, "%s", sn_errmsg());
    const void *const *blobs;
    const size_t *bytes;
    SN_TRY(net_boot_gather(net, &mine, sizeof mine, opts->deadline, &blobs, &bytes));
    for (int r = 0; r < net->world; r++)
        SN_TRY(check_card(r, blobs[r], bytes[r], &cards[r]));
    return SN_OK;
}

/* ---- opening ---- */

/* Map what the mates handed over; the descriptors are closed. */
static sn_status map_lives(sn_net *net, const net_card *cards, const int *mates, const int *fds,
                           int n)
{
    sn_status status = SN_OK;
    for (int i = 0; i < n; i++) {
        if (mates[i] != net->rank && status >= 0) {
            status = net_life_map(fds[i], &cards[mates[i]].life, &net->peers[mates[i]].life);
            if (status < 0)
                sn_fail_in(status, "rank %d (%s)", mates[i], sn_net_host_name(net, mates[i]));
        }
        close(fds[i]);
    }
    return status;
}

/* Hand my life to my host mates, take theirs. */
static sn_status share_lives(sn_net *net, const net_card *cards, sn_time deadline)
{
    int n = 0, fd = -1;
    int *mates = sn_alloc((size_t) net->world * sizeof *mates);
    int *fds = sn_alloc((size_t) net->world * sizeof *fds);
    net_life *life = NULL;
    for (int r = 0; r < net->world; r++)
        if (sn_net_same_host(net, r))
            mates[n++] = r;
    sn_status status = n > 1 ? net_life_create(&cards[net->rank].life, &fd, &life) : SN_OK;
    __atomic_store_n(&net->life, life, __ATOMIC_RELEASE);
    if (n > 1 && status >= 0)
        status = sn_net_share_fds(net, mates, n, fd, deadline, fds);
    if (n > 1 && status >= 0)
        status = map_lives(net, cards, mates, fds, n);
    if (fd >= 0)
        close(fd);
    free(mates);
    free(fds);
    if (status >= 0)
        __atomic_store_n(&net->watching, true, __ATOMIC_RELEASE);
    return status;
}

/* The address that I use towards other hosts. One rank's failure is everybody's. */
static sn_status choose_address(const sn_net *net, const net_card *cards, net_address *ret)
{
    char why[160];
    net_addresses *lists = sn_alloc((size_t) net->world * sizeof *lists);
    int *host_of = sn_alloc((size_t) net->world * sizeof *host_of);
    sn_status status = SN_OK;
    for (int r = 0; r < net->world; r++) {
        lists[r] = cards[r].addresses;
        host_of[r] = net->peers[r].host;
        if (cards[r].status < 0 && status >= 0)
            status = sn_fail((sn_status) cards[r].status, "rank %d (%s): %s", r,
                             sn_net_host_name(net, r), cards[r].text);
    }
    if (status >= 0)
        status = net_iface_choose(lists, host_of, net->world, net->rank,
                                  one_kernel(cards, net->world), ret, why);
    if (status >= 0)
        sn_log(SN_LOG_DEBUG, "rank %d (%s) talks to other hosts over %s", net->rank,
               sn_net_host_name(net, net->rank), why);
    free(lists);
    free(host_of);
    return status;
}

static sn_status join(sn_net *net, const sn_net_opts *opts, net_card *cards, net_door *doors)
{
    int door_fd = -1;
    net_door door;
    net_address address;
    SN_TRY(net_door_open(&door_fd, &door));
    sn_status status = exchange_cards(net, opts, &door, cards);
    if (status >= 0) {
        number_hosts(net, cards);
        for (int r = 0; r < net->world; r++)
            doors[r] = cards[r].door;
        status = net_local_connect(net, door_fd, doors, opts->deadline);
    }
    close(door_fd);
    SN_TRY(status);
    SN_TRY(share_lives(net, cards, opts->deadline));
    if (net->hosts == 1)
        return SN_OK;
    SN_TRY(choose_address(net, cards, &address));
    return net_wire_open(net, &address, opts);
}

static sn_net *create(sn_boot *boot, const sn_net_opts *opts)
{
    sn_net *net = sn_alloc(sizeof *net);
    net->rank = sn_boot_rank(boot);
    net->world = sn_boot_world(boot);
    net->dead = -1;
    net->page = opts->page;
    net->epoch = net->page ? __atomic_load_n(&net->page->epoch, __ATOMIC_ACQUIRE) : 0;
    net->detect = opts->detect_ns ? SN_MAX(opts->detect_ns, 0) : DETECT_NS;
    pthread_mutex_init(&net->verdict, NULL);
    net->peers = sn_alloc((size_t) net->world * sizeof *net->peers);
    for (int r = 0; r < net->world; r++)
        net->peers[r].sock = -1;
    snprintf(net->peers[net->rank].host_name, NET_NAME_MAX, "%s",
             opts->host_name ? opts->host_name : "");
    return net;
}

static sn_status check_opts(const sn_net_opts *opts)
{
    if (opts->detect_ns > 0 && opts->detect_ns < DETECT_MIN_NS)
        return sn_fail(SN_EINVAL, "silence cannot be noticed in %lld ms: %lld at least",
                       (long long) (opts->detect_ns / SN_MS), (long long) (DETECT_MIN_NS / SN_MS));
    return SN_OK;
}

sn_status sn_net_open(sn_boot *boot, const sn_net_opts *opts, sn_net **ret)
{
    char text[512];
    SN_TRY(check_opts(opts));
    sn_net *net = create(boot, opts);
    sn_status status = net->page || net->world > 1 ? net_beat_start(net) : SN_OK;
    if (net->world == 1) {
        net->hosts = 1;
    } else if (status >= 0) {
        net_card *cards = sn_alloc((size_t) net->world * sizeof *cards);
        net_door *doors = sn_alloc((size_t) net->world * sizeof *doors);
        net->boot = boot;
        status = join(net, opts, cards, doors);
        net->boot = NULL;
        free(cards);
        free(doors);
    }
    if (status < 0) {
        sn_fail_in(status, "rank %d (%s) cannot join the job", net->rank,
                   sn_net_host_name(net, net->rank));
        snprintf(text, sizeof text, "%s", sn_errmsg()); /* closing may write another sentence */
        sn_net_close(net);
        return sn_fail(status, "%s", text);
    }
    *ret = net;
    return SN_OK;
}

void sn_net_close(sn_net *net)
{
    if (!net)
        return;
    net_pulse_leave(net);
    net_wire_close(net->wire);
    net_beat_stop(net);
    net_pulse_bye(net);
    net_pulse_close(net->pulse);
    net_den_close(&net->den);
    net_life_leave(net->life, net_culprit(net));
    for (int r = 0; r < net->world; r++) {
        net_life_unmap(net->peers[r].life);
        if (net->peers[r].sock >= 0)
            close(net->peers[r].sock);
    }
    pthread_mutex_destroy(&net->verdict);
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

static void note_dead(sn_net *net, int rank, const char *how)
{
    int none = -1;
    snprintf(net->peers[rank].how, sizeof net->peers[rank].how, "%s", how);
    __atomic_store_n(&net->peers[rank].state, NET_DEAD, __ATOMIC_RELEASE);
    __atomic_compare_exchange_n(&net->dead, &none, rank, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    __atomic_store_n(&net->news, true, __ATOMIC_RELEASE);
    net_life_tell(net->life, rank, how);
}

void net_dead(sn_net *net, int rank, const char *how, ...)
{
    char text[NET_HOW_MAX];
    va_list args;
    va_start(args, how);
    vsnprintf(text, sizeof text, how, args);
    va_end(args);
    pthread_mutex_lock(&net->verdict);
    if (net_state(net, rank) == NET_FINE)
        note_dead(net, rank, text);
    pthread_mutex_unlock(&net->verdict);
}

/* A failure ends one rank after the other, and whoever comes late finds several gone. The launcher
 * saw the order. */
sn_status net_boot_news(sn_net *net, sn_time until)
{
    int first = net->boot ? boot_left(net->boot, until) : -1;
    if (first < 0 || first == net->rank)
        return SN_OK;
    net_dead(net, first, "died: it has left the boot exchange");
    return sn_net_alive(net);
}

sn_status net_boot_gather(sn_net *net, const void *blob, size_t bytes, sn_time deadline,
                          const void *const **ret_blobs, const size_t **ret_bytes)
{
    sn_status status = sn_boot_allgather(net->boot, blob, bytes, deadline, ret_blobs, ret_bytes);
    if (status == SN_EPEER && net->boot->left >= 0 && net->boot->left != net->rank)
        net_dead(net, net->boot->left, "died: it has left the boot exchange");
    return status;
}

static void note_left(sn_net *net, int rank)
{
    pthread_mutex_lock(&net->verdict);
    if (net_state(net, rank) == NET_FINE)
        __atomic_store_n(&net->peers[rank].state, NET_LEFT, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&net->verdict);
}

static sn_status died(const sn_net *net, int rank)
{
    return sn_fail(SN_EPEER, "rank %d (%s) %s", rank, sn_net_host_name(net, rank),
                   net->peers[rank].how);
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
    if (culprit >= 0 && culprit < net->world && culprit != net->rank && culprit != rank)
        net_dead(net, culprit, "died: rank %d (%s) says so", rank, sn_net_host_name(net, rank));
    note_left(net, rank);
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
    net_dead(net, rank, "died: %s", how);
    if (net->wire && !sn_net_same_host(net, rank))
        net_wire_drop(net->wire, rank);
}

bool sn_net_left(const sn_net *net, int rank)
{
    return net_state(net, rank) == NET_LEFT;
}

/* A look at the sockets is a system call. While no request is open it serves only what nobody waits
 * for yet (messages that come early, news of peers), so one call in eight does it. */
bool sn_net_progress(sn_net *net)
{
    return net->wire && (net_wire_pending(net->wire) || (net->idle++ & 7) == 0) &&
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
