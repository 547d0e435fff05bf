/* SPDX-License-Identifier: Apache-2.0
 * The `links` of a file: which pairs a line joins, and with what. */
#ifndef SN_TOPO_WIRING_H
#define SN_TOPO_WIRING_H

#include "topo/field.h"
#include "topo/names.h"

/* latency, bandwidth, kind, measured of a link, as a line states them. */
typedef struct topo_cable {
    double latency_ns, bytes_per_s;
    const char *kind;
    bool measured;
} topo_cable;

#define TOPO_CABLE_KEYS "kind", "latency", "bandwidth", "measured"

/* From the four keys of `map`, whose other keys the caller has checked. */
sn_status topo_cable_read(const sn_yaml_doc *doc, const sn_yaml_node *map, const char *what,
                          topo_cable *ret);

typedef struct topo_upward { /* a link between switches that a line calls `from` and `to` */
    int from, to, line;
} topo_upward;

typedef struct topo_wiring {
    const sn_yaml_doc *doc;
    sn_topo *topo;
    topo_names *names;
    uint64_t *pair; /* open addressing: pairs of vertices that have a link */
    size_t pairs_cap, pairs;
    topo_upward *up;
    size_t ups, ups_cap;
} topo_wiring;

void topo_wiring_init(topo_wiring *w, const sn_yaml_doc *doc, sn_topo *topo, topo_names *names);
void topo_wiring_done(topo_wiring *w);

/* Add the links of one `links` entry. `host` ≥ 0: names are local to that host ("." is itself). */
sn_status topo_wiring_line(topo_wiring *w, const sn_yaml_node *line, int host);

/* Links of switches must not lead upward in a circle. */
sn_status topo_wiring_loops(const topo_wiring *w);

#endif
