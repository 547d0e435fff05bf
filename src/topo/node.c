/* SPDX-License-Identifier: Apache-2.0
 * YAML events → tree, within limits. */
#include "topo/node.h"

#include <string.h>
#include <yaml.h>

enum {
    BYTES_MAX = 16 << 20,
    NODES_MAX = 1 << 21,
    DEPTH_MAX = 32,
    KEYS_MAX = 256,
    ANCHORS_MAX = 256,
    TEXT_MAX = 4096
};

typedef struct anchor {
    const char *name;
    topo_node *node;
} anchor;

/* An open mapping or list: a key waits in `key` until its value is there. */
typedef struct level {
    topo_node *node, *key;
    size_t items_cap, keys_cap;
    const char *anchor;
} level;

typedef struct reader {
    topo_doc *doc;
    yaml_parser_t parser;
    int nodes, depth, anchors;
    level level[DEPTH_MAX];
    anchor anchor[ANCHORS_MAX];
} reader;

static topo_node *node_create(reader *r, topo_node_kind kind, const yaml_event_t *event)
{
    topo_node *node = SN_NEW(r->doc->arena, topo_node);
    node->kind = kind;
    node->line = (int) event->start_mark.line + 1;
    r->nodes++;
    return node;
}

static void append(reader *r, level *l, topo_node *key, topo_node *value)
{
    topo_node *node = l->node;
    size_t n = (size_t) node->items;
    node->item =
        sn_arena_grow(r->doc->arena, node->item, n, n + 1, sizeof *node->item, &l->items_cap);
    node->item[n] = value;
    if (node->kind == TOPO_MAP) {
        node->key =
            sn_arena_grow(r->doc->arena, node->key, n, n + 1, sizeof *node->key, &l->keys_cap);
        node->key[n] = key;
    }
    node->items++;
}

/* `<<: other` or `<<: [one, other]`: the keys of the others that are not in this mapping. */
static sn_status merge(reader *r, level *l, const topo_node *at, const topo_node *from)
{
    for (int i = 0; i < topo_items(from); i++) {
        const topo_node *map = topo_item(from, i);
        if (map->kind != TOPO_MAP)
            return topo_fail(r->doc, at, "`<<` takes a mapping (or a list of them) by its alias");
        for (int k = 0; k < map->items; k++) {
            if (topo_get(l->node, map->key[k]->text))
                continue;
            if (l->node->items == KEYS_MAX || ++r->nodes > NODES_MAX)
                return topo_fail(r->doc, at, "merging makes a mapping of more than %d keys",
                                 KEYS_MAX);
            append(r, l, map->key[k], map->item[k]);
        }
    }
    return SN_OK;
}

/* A finished node goes where it belongs: the root, a list, a key's place or a value's. */
static sn_status place(reader *r, topo_node *node)
{
    if (!r->depth) {
        r->doc->root = node;
        return SN_OK;
    }
    level *l = &r->level[r->depth - 1];
    if (l->node->kind == TOPO_LIST) {
        append(r, l, NULL, node);
    } else if (!l->key) {
        if (node->kind != TOPO_SCALAR)
            return topo_fail(r->doc, node, "a key must be a word");
        if (topo_get(l->node, node->text))
            return topo_fail(r->doc, node, "key `%.64s` is there twice", node->text);
        if (l->node->items == KEYS_MAX)
            return topo_fail(r->doc, node, "a mapping has more than %d keys", KEYS_MAX);
        l->key = node;
    } else {
        topo_node *key = l->key;
        l->key = NULL;
        if (!strcmp(key->text, "<<"))
            return merge(r, l, key, node);
        append(r, l, key, node);
    }
    return SN_OK;
}

static sn_status name_anchor(reader *r, const char *name, topo_node *node)
{
    if (!name)
        return SN_OK;
    int i = 0;
    while (i < r->anchors && strcmp(r->anchor[i].name, name) != 0)
        i++;
    if (i == ANCHORS_MAX)
        return topo_fail(r->doc, node, "more than %d anchors", ANCHORS_MAX);
    r->anchor[i] = (anchor){name, node};
    r->anchors = SN_MAX(r->anchors, i + 1);
    return SN_OK;
}

static sn_status on_alias(reader *r, const yaml_event_t *event)
{
    const char *name = (const char *) event->data.alias.anchor;
    for (int i = 0; i < r->anchors; i++)
        if (!strcmp(r->anchor[i].name, name))
            return place(r, r->anchor[i].node);
    topo_node at = {.line = (int) event->start_mark.line + 1};
    return topo_fail(r->doc, &at, "alias `*%.64s` names no finished anchor above it", name);
}

static sn_status on_scalar(reader *r, const yaml_event_t *event)
{
    const char *text = (const char *) event->data.scalar.value;
    topo_node *node = node_create(r, TOPO_SCALAR, event);
    size_t n = event->data.scalar.length;
    if (n > TEXT_MAX || memchr(text, 0, n))
        return topo_fail(r->doc, node, "a word of %zu bytes: at most %d, without NUL", n, TEXT_MAX);
    node->text = sn_arena_str(r->doc->arena, text);
    const char *name = (const char *) event->data.scalar.anchor;
    SN_TRY(name_anchor(r, sn_arena_str(r->doc->arena, name), node));
    return place(r, node);
}

static sn_status on_open(reader *r, const yaml_event_t *event, topo_node_kind kind)
{
    topo_node *node = node_create(r, kind, event);
    if (r->depth == DEPTH_MAX)
        return topo_fail(r->doc, node, "nested more than %d deep", DEPTH_MAX);
    const yaml_char_t *name =
        kind == TOPO_MAP ? event->data.mapping_start.anchor : event->data.sequence_start.anchor;
    r->level[r->depth++] =
        (level){.node = node, .anchor = sn_arena_str(r->doc->arena, (const char *) name)};
    return SN_OK;
}

static sn_status on_close(reader *r)
{
    level *l = &r->level[--r->depth];
    SN_TRY(name_anchor(r, l->anchor, l->node));
    return place(r, l->node);
}

static sn_status on_event(reader *r, const yaml_event_t *event)
{
    topo_node at = {.line = (int) event->start_mark.line + 1};
    if (r->nodes > NODES_MAX)
        return topo_fail(r->doc, &at, "more than %d values", NODES_MAX);
    switch (event->type) {
    case YAML_ALIAS_EVENT:
        return on_alias(r, event);
    case YAML_SCALAR_EVENT:
        return on_scalar(r, event);
    case YAML_MAPPING_START_EVENT:
        return on_open(r, event, TOPO_MAP);
    case YAML_SEQUENCE_START_EVENT:
        return on_open(r, event, TOPO_LIST);
    case YAML_MAPPING_END_EVENT:
    case YAML_SEQUENCE_END_EVENT:
        return on_close(r);
    case YAML_DOCUMENT_START_EVENT:
        return r->doc->root ? topo_fail(r->doc, &at, "a second document: one is read") : SN_OK;
    default:
        return SN_OK;
    }
}

/* libyaml counts lines for its scanner only; what its reader refuses has a byte offset. */
static sn_status syntax(reader *r, const char *text, size_t bytes)
{
    const yaml_parser_t *p = &r->parser;
    topo_node at = {.line = (int) p->problem_mark.line + 1};
    if (p->error == YAML_READER_ERROR) {
        at.line = 1;
        for (size_t i = 0; i < SN_MIN(p->problem_offset, bytes); i++)
            at.line += text[i] == '\n';
    }
    return topo_fail(r->doc, &at, "not YAML: %s", p->problem ? p->problem : "no memory");
}

static sn_status read_events(reader *r, const char *text, size_t bytes)
{
    for (bool end = false; !end;) {
        yaml_event_t event;
        if (!yaml_parser_parse(&r->parser, &event))
            return syntax(r, text, bytes);
        end = event.type == YAML_STREAM_END_EVENT;
        sn_status status = on_event(r, &event);
        yaml_event_delete(&event);
        SN_TRY(status);
    }
    topo_node top = {.line = 1};
    return r->doc->root ? SN_OK : topo_fail(r->doc, &top, "empty: nothing is described");
}

sn_status topo_doc_read(topo_doc *doc, const char *text, size_t bytes)
{
    topo_node top = {.line = 1};
    doc->root = NULL;
    if (bytes > BYTES_MAX)
        return topo_fail(doc, &top, "%zu bytes: at most %d are read", bytes, BYTES_MAX);
    reader *r = sn_alloc(sizeof *r);
    r->doc = doc;
    sn_status status = SN_OK;
    if (!yaml_parser_initialize(&r->parser)) {
        free(r);
        return sn_fail(SN_ENOMEM, "%s: no memory for a YAML parser", doc->file);
    }
    yaml_parser_set_input_string(&r->parser, (const unsigned char *) text, bytes);
    status = read_events(r, text, bytes);
    yaml_parser_delete(&r->parser);
    free(r);
    return status;
}
