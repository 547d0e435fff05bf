/* SPDX-License-Identifier: Apache-2.0
 *
 * topo — the one model of hosts, cards and links, and the one place where latency and bandwidth
 * become time.
 *
 *          leaf0 (switch)            vertices  hosts, cards, NICs, switches; indices are identities
 *         /              \           links     undirected, with latency, bandwidth, kind,
 *     h0/nic0          h1/nic0                 measured-or-stated
 *        |                |          path      the least-latency route between two cards
 *        h0               h1         tier      0 the card itself, 1 same host, 1 + switches on
 *      / |  \            / |  \                  the route otherwise
 *  h0/c0 …  h0/c3   h1/c0 …  h1/c3
 *
 * Invariants (sn_topo_check asserts them)
 *  1. Cards are numbered host by host: host h owns cards [first_card, first_card + cards).
 *  2. Every card has a link to its host (the builder adds it); every pair of cards that a job may
 *     use has a path.
 *  3. `share` of a card is the part of a core it may use: cards that list the same core of the same
 *     machine share it, and every prediction charges them for it (n busy cards on one core compute
 *     n times slower).
 *  4. Latencies and bandwidths of links are > 0; a value is either `measured` here or stated in a
 *     file. A peak or memory of a card that nobody knows is 0, and what it would take is HUGE_VAL.
 *  5. At most one link joins two vertices (parallel cables are one link with their sum), no vertex
 *     is linked to itself, and names are unique: "h0", "h0/c2", "h0/eth0", "leaf3".
 *
 * Limits: 2^22 vertices, 2^23 links, 64 links on a route. One thread at a time (routes are kept).
 * Pure: no system call. `probe` fills one in from hwloc, sn_topo_parse from YAML text. */
#ifndef SN_TOPO_TOPO_H
#define SN_TOPO_TOPO_H

#include "base/base.h"

typedef enum sn_vertex_kind {
    SN_VERTEX_HOST,
    SN_VERTEX_CARD,
    SN_VERTEX_NIC,
    SN_VERTEX_SWITCH
} sn_vertex_kind;

typedef struct sn_topo_vertex {
    sn_vertex_kind kind;
    int index; /* in the array of that kind */
} sn_topo_vertex;

typedef struct sn_topo_host {
    const char *name;
    int cores, numa_nodes;
    uint64_t memory_bytes;
    uint64_t cache_bytes[3]; /* L1d of a core, L2 of a core, L3 in all; 0 unknown */
    int machine;             /* first host on the same physical machine; itself unless emulated */
    int first_card, cards;
    int vertex;
} sn_topo_host;

typedef struct sn_topo_card {
    const char *name; /* "h0/c2" */
    const char *kind; /* card kind as in kern's table and in cluster files: "cpu", "h100" */
    int host;
    int core;      /* CPU cards: what sn_bind_core takes (of the host's machine); -1 otherwise */
    int numa_node; /* host-local, -1 unknown */
    double share;  /* of that core, or of the device: 1.0 whole */
    double flops_f32, flops_bf16; /* peak per second of the whole core/device (not times share) */
    uint64_t memory_bytes;
    double memory_bytes_per_s;
    int vertex;
} sn_topo_card;

typedef struct sn_topo_nic {
    const char *name; /* "h0/eth0" */
    int host;
    double bytes_per_s; /* 0 unknown */
    int vertex;
} sn_topo_nic;

typedef struct sn_topo_switch {
    const char *name; /* "leaf3", or "h0/nvswitch" inside a host */
    int host;         /* -1: in the network; only these count for tiers */
    int vertex;
} sn_topo_switch;

typedef struct sn_topo_link {
    int a, b; /* vertices */
    double latency_ns, bytes_per_s;
    const char *kind; /* "shm", "pcie", "nvlink", "ethernet", "tcp", "infiniband", … */
    bool measured;
} sn_topo_link;

typedef struct sn_topo_private sn_topo_private; /* capacities and kept routes */

typedef struct sn_topo {
    const char *name;
    int hosts, cards, nics, switches, links, vertices;
    sn_topo_vertex *vertex;
    sn_topo_host *host;
    sn_topo_card *card;
    sn_topo_nic *nic;
    sn_topo_switch *sw;
    sn_topo_link *link;
    sn_arena *arena; /* owns all of it */
    sn_topo_private *priv;
} sn_topo;

enum { SN_PATH_LINKS = 64 };

typedef struct sn_path {
    int tier;
    double latency_ns;  /* α: sum over the links */
    double bytes_per_s; /* 1/β: the narrowest link; HUGE_VAL for a card to itself */
    int links;
    int link[SN_PATH_LINKS]; /* indices, from a to b */
} sn_path;

/* ---- life ---- */

/* Read a cluster description (YAML text, `file` is its name for messages, both borrowed).
 * SN_EINVAL: the sentence has file:line (unknown key with the nearest one, missing or wrong unit,
 * negative bandwidth, a switch loop, a host named twice). Format: src/topo/README.md. */
sn_status sn_topo_parse(const char *text, size_t bytes, const char *file, sn_topo **ret);
void sn_topo_free(sn_topo *topo);        /* NULL is fine */
void sn_topo_check(const sn_topo *topo); /* asserts every invariant */

/* The same machine? Compares by name and number, whatever the order of vertices and links. */
bool sn_topo_equal(const sn_topo *a, const sn_topo *b);

/* What a builder (probe, parser, test) calls. Names are copied; a character that a name cannot have
 * (space, slash, quotes, brackets, star, control) becomes '_'. Each returns the index of the new
 * thing, sn_topo_add_link that of the link. Numbers of hosts, and of links already added, may be
 * changed in place afterwards; call sn_topo_changed when a latency or bandwidth was. */
sn_topo *sn_topo_create(const char *name);
int sn_topo_add_host(sn_topo *topo, const char *name, int cores, uint64_t memory_bytes);
/* Name (only what follows a slash; NULL: "c" and its index in the host), kind and numbers are
 * copied. Hosts get their cards in the order of hosts. Link it to the host with sn_topo_add_link.
 */
int sn_topo_add_card(sn_topo *topo, int host, const sn_topo_card *like);
int sn_topo_add_nic(sn_topo *topo, int host, const char *name, double bytes_per_s);
int sn_topo_add_switch(sn_topo *topo, const char *name);
int sn_topo_add_host_switch(sn_topo *topo, int host, const char *name); /* NVSwitch, PCIe switch */
int sn_topo_add_link(sn_topo *topo, int a, int b, double latency_ns, double bytes_per_s,
                     const char *kind, bool measured);
void sn_topo_changed(sn_topo *topo); /* forget kept routes */

const char *sn_topo_vertex_name(const sn_topo *topo, int vertex);
const char *sn_topo_local_name(const char *name);         /* "eth0" of "h0/eth0" */
int sn_topo_vertex_host(const sn_topo *topo, int vertex); /* host index, -1 for network switches */

/* `hosts` emulated hosts of `cards` cards each on one machine that has `base` as its only host: all
 * hosts share that machine's cores and memory (the g-th card in all takes the core of base's CPU
 * card g mod their number; share = cores / (hosts · cards), at most 1; a card's memory is its equal
 * part); one NIC a host, one switch. The four links between two hosts take link_latency_ns together
 * and carry link_bytes_per_s each. SN_EINVAL: base is not one host with a CPU card. */
sn_status sn_topo_emulate(const sn_topo *base, int hosts, int cards, double link_latency_ns,
                          double link_bytes_per_s, sn_topo **ret);

/* ---- text ---- */
void sn_topo_print(const sn_topo *topo, sn_str *out); /* for people */
void sn_topo_json(const sn_topo *topo, sn_str *out);
void sn_topo_dot(const sn_topo *topo, sn_str *out);
void sn_topo_yaml(const sn_topo *topo, sn_str *out); /* sn_topo_parse reads back an equal model */

/* ---- cost: the only place where α and β become time ---- */

/* The route of least latency between two cards; of several, the one with fewest links, then the
 * widest, then one chosen by hash, so that pairs spread over equal spines. The route back is the
 * same. SN_ENOTFOUND names both cards when they are not connected.
 * Cost: a Dijkstra the first time for a card's attachment (one for all cards that have only the
 * link to their host), a walk over the links of the route after. */
sn_status sn_topo_path(const sn_topo *topo, int card_a, int card_b, sn_path *ret);

/* 0 the card itself, 1 same host, otherwise 1 + network switches and other hosts passed (2 when two
 * hosts are cabled directly); -1 when not connected. */
int sn_topo_tier(const sn_topo *topo, int card_a, int card_b);

/* α + bytes · sharers / bandwidth; sharers ≥ 1 flows use the narrowest link at the same time. */
double sn_topo_transfer_ns(const sn_path *path, double bytes, double sharers);

/* Roofline: max(flops / peak, bytes / memory bandwidth) on one card, times `busy`, the number of
 * cards in all (this one included) that compute on its core at the same time. A card that is a part
 * of a device (core -1, share < 1) is slower by its share even when alone. dtype chooses the peak:
 * 16-bit floats the bf16 one when known, f64 half of f32's, others f32's. */
double sn_topo_compute_ns(const sn_topo *topo, int card, double flops, double bytes, sn_dtype dtype,
                          double busy);

/* How many cards are bound to the same core of the same machine as `card`, itself included, among
 * the first `used` cards of the topology (the ones a job runs on); 1 for devices. */
int sn_topo_sharers(const sn_topo *topo, int card, int used);

#endif
