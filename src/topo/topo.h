/* SPDX-License-Identifier: Apache-2.0
 *
 * topo — the one model of hosts, cards and links, and the one place where latency and bandwidth
 * become time.
 *
 *        switch s0                 vertices: hosts, cards, NICs, switches (plain arrays, indices
 * are identities) /        \                links:    undirected edges with latency, bandwidth,
 * kind, measured-or-stated nic h0      nic h1            path:     the fewest-latency route between
 * two cards, found once and kept |            |              tier:     0 the card itself, 1 same
 * host, 1 + switches on the route otherwise host h0      host h1
 *    / | \        / | \
 *   c0 c1 c2     c3 c4 c5
 *
 * Invariants (sn_topo_check asserts them)
 *  1. cards are numbered host by host: host h owns cards [first_card, first_card + cards).
 *  2. every card has a link to its host; every pair of cards that a job may use has a path.
 *  3. `share` of a card is the part of a core it may use: cards that list the same core share it,
 * and every prediction charges them for it (n cards on one core compute n times slower when all are
 * busy).
 *  4. bandwidths and latencies are > 0; a value is either `measured` here or stated in a file.
 *
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

typedef struct sn_topo_host {
    const char *name;
    int cores, numa_nodes;
    uint64_t memory_bytes;
    uint64_t cache_bytes[3]; /* L1d of a core, L2 of a core, L3 in all; 0 unknown */
    int first_card, cards;
    int vertex;
} sn_topo_host;

typedef struct sn_topo_card {
    const char *name; /* "h0/c2" */
    const char *kind; /* card kind as in kern's table and in cluster files: "cpu", "h100" */
    int host;
    int core;      /* CPU cards: the core it is bound to (host-local index); -1 otherwise */
    int numa_node; /* host-local, -1 unknown */
    double share;  /* of that core, or of the device: 1.0 whole */
    double flops_f32, flops_bf16; /* peak per second of the whole core/device (not times share) */
    uint64_t memory_bytes;
    double memory_bytes_per_s;
    int vertex;
} sn_topo_card;

typedef struct sn_topo_nic {
    const char *name;
    int host;
    double bytes_per_s;
    int vertex;
} sn_topo_nic;

typedef struct sn_topo_switch {
    const char *name;
    int vertex;
} sn_topo_switch;

typedef struct sn_topo_link {
    int a, b; /* vertices */
    double latency_ns, bytes_per_s;
    const char *kind; /* "shm", "pcie", "nvlink", "ethernet", "tcp", "infiniband", … */
    bool measured;
} sn_topo_link;

typedef struct sn_topo {
    const char *name;
    int hosts, cards, nics, switches, links, vertices;
    sn_topo_host *host;
    sn_topo_card *card;
    sn_topo_nic *nic;
    sn_topo_switch *sw;
    sn_topo_link *link;
    sn_arena *arena; /* owns all of it */
} sn_topo;

typedef struct sn_path {
    int tier;
    double latency_ns;  /* α: sum over the links */
    double bytes_per_s; /* 1/β: the narrowest link */
    int links;
    int link[16]; /* indices, from a to b */
} sn_path;

/* ---- life
 * -------------------------------------------------------------------------------------------- */

/* Read a cluster description (YAML text, `file` is its name for messages, both borrowed).
 * SN_EINVAL: the sentence has file:line (unknown key with the nearest one, missing or wrong unit,
 * negative bandwidth, a switch loop, a host named twice). Format: src/topo/README.md. */
sn_status sn_topo_parse(const char *text, size_t bytes, const char *file, sn_topo **ret);
void sn_topo_free(sn_topo *topo);
void sn_topo_check(const sn_topo *topo); /* asserts every invariant */

/* What a builder (probe, parser, test) calls; names are copied. Return the index of the new thing.
 */
sn_topo *sn_topo_create(const char *name);
int sn_topo_add_host(sn_topo *topo, const char *name, int cores, uint64_t memory_bytes);
int sn_topo_add_card(sn_topo *topo, int host,
                     const sn_topo_card *like); /* name, kind, numbers are copied */
int sn_topo_add_nic(sn_topo *topo, int host, const char *name, double bytes_per_s);
int sn_topo_add_switch(sn_topo *topo, const char *name);
int sn_topo_add_link(sn_topo *topo, int a, int b, double latency_ns, double bytes_per_s,
                     const char *kind, bool measured);

/* `hosts` emulated hosts of `cards` cards each on one machine that has `base` as its only host: all
 * hosts share that machine's cores and memory (core = global card index mod cores, share = cores /
 * (hosts · cards), at most 1); one NIC a host, one switch; inter-host links get `link_latency_ns`,
 * `link_bytes_per_s`. */
sn_status sn_topo_emulate(const sn_topo *base, int hosts, int cards, double link_latency_ns,
                          double link_bytes_per_s, sn_topo **ret);

/* ---- text
 * ------------------------------------------------------------------------------------------- */
void sn_topo_print(const sn_topo *topo, sn_str *out); /* for people */
void sn_topo_json(const sn_topo *topo, sn_str *out);
void sn_topo_dot(const sn_topo *topo, sn_str *out);
void sn_topo_yaml(const sn_topo *topo,
                  sn_str *out); /* sn_topo_parse reads it back to an equal model */

/* ---- cost: the only place where α and β become time
 * -------------------------------------------------- */

/* The route between two cards. SN_ENOTFOUND names both when they are not connected. Cost: a
 * Dijkstra the first time per host pair, a look-up after; not thread safe the first time. */
sn_status sn_topo_path(const sn_topo *topo, int card_a, int card_b, sn_path *ret);
int sn_topo_tier(const sn_topo *topo, int card_a, int card_b); /* -1 when not connected */

/* α + bytes · sharers / bandwidth; sharers ≥ 1 flows use the narrowest link at the same time. */
double sn_topo_transfer_ns(const sn_path *path, double bytes, double sharers);

/* Roofline: max(flops / peak, bytes / memory bandwidth) on one card, with `busy` cards in all (this
 * one included) computing on its core or device at the same time. dtype chooses the peak. */
double sn_topo_compute_ns(const sn_topo *topo, int card, double flops, double bytes, sn_dtype dtype,
                          double busy);

/* How many cards of [0, cards) are bound to the same core or device as `card`, itself included,
 * among the first `used` cards of the topology (the ones a job runs on). */
int sn_topo_sharers(const sn_topo *topo, int card, int used);

#endif
