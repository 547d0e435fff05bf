/* SPDX-License-Identifier: Apache-2.0
 *
 * yaml — YAML text as a tree of nodes that know their line, and readers that answer with file:line.
 *
 * What a hostile text could do is bounded here: bytes, nodes, depth, keys of a mapping, anchors. An
 * alias is a pointer to the finished node, so it costs nothing and cannot be its own ancestor; what
 * an expansion of many aliases would build is bounded by the limits of the model. */
#ifndef SN_BASE_YAML_H
#define SN_BASE_YAML_H

#include "base/arena.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum sn_yaml_kind { SN_YAML_SCALAR, SN_YAML_LIST, SN_YAML_MAP } sn_yaml_kind;

typedef struct sn_yaml_node {
    sn_yaml_kind kind;
    int line;         /* from 1 */
    const char *text; /* scalar */
    int items;
    struct sn_yaml_node **item;
    struct sn_yaml_node **key; /* mapping: scalars */
} sn_yaml_node;

typedef struct sn_yaml_doc {
    const char *file;
    sn_arena *arena;
    sn_yaml_node *root;
} sn_yaml_doc;

/* doc->file and doc->arena are set; fills doc->root. */
sn_status sn_yaml_read(sn_yaml_doc *doc, const char *text, size_t bytes);

/* "file:line: …" with status SN_EINVAL. */
sn_status sn_yaml_fail(const sn_yaml_doc *doc, const sn_yaml_node *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* `node` is a mapping and has only these keys; `what` names it in the sentence. */
sn_status sn_yaml_keys(const sn_yaml_doc *doc, const sn_yaml_node *node, const char *what,
                       const char *const *keys, int n);
const sn_yaml_node *sn_yaml_get(const sn_yaml_node *map, const char *key); /* NULL: not there */
sn_status sn_yaml_need(const sn_yaml_doc *doc, const sn_yaml_node *map, const char *what,
                       const char *key, const sn_yaml_node **ret);

/* Scalars. */
sn_status sn_yaml_text(const sn_yaml_doc *doc, const sn_yaml_node *node, const char *what,
                       const char **ret);
sn_status sn_yaml_int(const sn_yaml_doc *doc, const sn_yaml_node *node, const char *what,
                      int64_t least, int64_t most, int64_t *ret);
sn_status sn_yaml_bool(const sn_yaml_doc *doc, const sn_yaml_node *node, const char *what,
                       bool *ret);

/* A list as it is, anything else as a list of one: `hosts: {…}` and `hosts: [{…}]` are the same. */
int sn_yaml_items(const sn_yaml_node *node);
const sn_yaml_node *sn_yaml_item(const sn_yaml_node *node, int i);

#endif
