/* SPDX-License-Identifier: Apache-2.0
 * YAML text as a tree of nodes that know their line, and readers that answer with file:line.
 *
 * What a hostile text could do is bounded here: bytes, nodes, depth, keys of a mapping, anchors. An
 * alias is a pointer to the finished node, so it costs nothing and cannot be its own ancestor; what
 * an expansion of many aliases would build is bounded by the limits of the model. */
#ifndef SN_TOPO_NODE_H
#define SN_TOPO_NODE_H

#include "base/base.h"

typedef enum topo_node_kind { TOPO_SCALAR, TOPO_LIST, TOPO_MAP } topo_node_kind;

typedef struct topo_node {
    topo_node_kind kind;
    int line;         /* from 1 */
    const char *text; /* scalar */
    int items;
    struct topo_node **item;
    struct topo_node **key; /* mapping: scalars */
} topo_node;

typedef struct topo_doc {
    const char *file;
    sn_arena *arena;
    topo_node *root;
} topo_doc;

/* doc->file and doc->arena are set; fills doc->root. */
sn_status topo_doc_read(topo_doc *doc, const char *text, size_t bytes);

/* "file:line: …" with status SN_EINVAL. */
sn_status topo_fail(const topo_doc *doc, const topo_node *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* `node` is a mapping and has only these keys; `what` names it in the sentence. */
sn_status topo_keys(const topo_doc *doc, const topo_node *node, const char *what,
                    const char *const *keys, int n);
const topo_node *topo_get(const topo_node *map, const char *key); /* NULL: not there */
sn_status topo_need(const topo_doc *doc, const topo_node *map, const char *what, const char *key,
                    const topo_node **ret);

/* Scalars. */
sn_status topo_text(const topo_doc *doc, const topo_node *node, const char *what, const char **ret);
/* A word that can be a name: at most TOPO_NAME_LONG of topo_name_char. */
enum { TOPO_NAME_LONG = 64 };
sn_status topo_word(const topo_doc *doc, const topo_node *node, const char *what, const char **ret);
sn_status topo_int(const topo_doc *doc, const topo_node *node, const char *what, int64_t least,
                   int64_t most, int64_t *ret);
sn_status topo_bool(const topo_doc *doc, const topo_node *node, const char *what, bool *ret);

/* A list as it is, anything else as a list of one: `hosts: {…}` and `hosts: [{…}]` are the same. */
int topo_items(const topo_node *node);
const topo_node *topo_item(const topo_node *node, int i);

typedef enum topo_unit { TOPO_RATE, TOPO_TIME, TOPO_BYTES, TOPO_FLOPS } topo_unit;

/* A number above 0 with a unit, into bytes/s, ns, bytes or flop/s; the word `unknown` (allowed
 * where `or_unknown`) is 0. */
sn_status topo_quantity(const topo_doc *doc, const topo_node *node, const char *what,
                        topo_unit unit, bool or_unknown, double *ret);
/* The shortest text that reads back as exactly this number. */
void topo_quantity_add(sn_str *out, topo_unit unit, double value);

#endif
