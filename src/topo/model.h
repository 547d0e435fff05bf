/* SPDX-License-Identifier: Apache-2.0
 * What the files of topo share: the hidden part of a topology. */
#ifndef SN_TOPO_MODEL_H
#define SN_TOPO_MODEL_H

#include "topo/topo.h"

enum { TOPO_VERTICES_MAX = 1 << 22, TOPO_LINKS_MAX = 1 << 23 };

typedef struct topo_routes topo_routes;

struct sn_topo_private {
    size_t vertices_cap, hosts_cap, cards_cap, nics_cap, switches_cap, links_cap;
    topo_routes *routes; /* NULL until the first sn_topo_path, and after each change */
};

void topo_routes_free(topo_routes *routes);

/* May a name hold this character? Names are words for patterns, YAML, JSON and dot alike. */
bool topo_name_char(char c);

/* The link between a card and its host, or -1 (half-built). */
int topo_card_link(const sn_topo *topo, int card);

#endif
