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

/* "leaf12" → 4 and 12; false when the name does not end in a number that counting would print. */
bool topo_name_counted(const char *name, size_t *ret_prefix, int *ret_number);
/* Is b what counting on from a gives ("h0/c7", "h0/c8")? */
bool topo_name_follows(const char *a, const char *b);

/* The link between a card and its host, or -1 (half-built). */
int topo_card_link(const sn_topo *topo, int card);

#endif
