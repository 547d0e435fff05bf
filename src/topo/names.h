/* SPDX-License-Identifier: Apache-2.0
 * Vertices by name and by pattern, while a file is read.
 *
 * A pattern is a name in which `*` stands for any run of characters but the slash and `[2-7]` for
 * one of these numbers; it selects its matches in the order of vertices. */
#ifndef SN_TOPO_NAMES_H
#define SN_TOPO_NAMES_H

#include "topo/model.h"

typedef struct topo_slot {
    uint32_t hash; /* of the name: most comparisons end here, without a look at the name */
    int taken;     /* vertex + 1; 0 empty */
} topo_slot;

typedef struct topo_names {
    const sn_topo *topo;
    topo_slot *slot; /* open addressing */
    size_t cap, used;
    int64_t work; /* names a pattern may still be compared with */
} topo_names;

void topo_names_init(topo_names *names, const sn_topo *topo);
void topo_names_done(topo_names *names);

/* -1 when the name was free and is now this vertex's, else the vertex that has it. */
int topo_names_add(topo_names *names, int vertex);
int topo_names_find(const topo_names *names, const char *name); /* -1: none */

bool topo_pattern_is(const char *text);
bool topo_pattern_match(const char *pattern, const char *name);

typedef struct topo_set {
    int *vertex;
    size_t n, cap;
} topo_set;

void topo_set_done(topo_set *set);
void topo_set_add(topo_set *set, int vertex);

/* Append what the name or pattern selects among the vertices [from, to). False when the work that
 * one file may cause is used up. */
bool topo_names_select(topo_names *names, const char *text, int from, int to, topo_set *set);

/* The name nearest to one that does not exist, or NULL; NULL for large topologies too. */
const char *topo_names_nearest(const topo_names *names, const char *name);

#endif
