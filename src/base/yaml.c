/* SPDX-License-Identifier: Apache-2.0
 * YAML events → tree, within limits. */
#include "base/base.h"

#include <string.h>
#include <yaml.h>

enum {
    BYTES_MAX = 16 << 20,
    NODES_MAX = 1 << 21,
    DEPTH_MAX = 32,
    KEYS_MAX = 256,
    MERGED_MAX = 1 << 18,
    ANCHORS_MAX = 256,
    TEXT_MAX = 4096
};

typedef struct anchor {
    const char *name;
    sn_yaml_node *node;
} anchor;

/* An open mapping or list: a key waits in `key` until its value is there. */
typedef struct level {
    sn_yaml_node *node, *key;
    size_t items_cap, keys_cap;
    const char *anchor;
    sn_yaml_node *merge, *merge_key; /* the value of `<<`, used when the mapping is whole */
} level;

typedef struct reader {
    sn_yaml_doc *doc;
    yaml_parser_t parser;
    int nodes, merged, depth, anchors;
    level level[DEPTH_MAX];
    anchor anchor[ANCHORS_MAX];
} reader;

static sn_yaml_node *node_create(reader *r, sn_yaml_kind kind, const yaml_event_t *event)
{
    sn_yaml_node *node = SN_NEW(r->doc->arena, sn_yaml_node);
    node->kind = kind;
    node->line = (int) event->start_mark.line + 1;
    r->nodes++;
    return node;
}

static void append(reader *r, level *l, sn_yaml_node *key, sn_yaml_node *value)
{
    sn_yaml_node *node = l->node;
    size_t n = (size_t) node->items;
    node->item =
        sn_arena_grow(r->doc->arena, node->item, n, n + 1, sizeof *node->item, &l->items_cap);
    node->item[n] = value;
    if (node->kind == SN_YAML_MAP) {
        node->key =
            sn_arena_grow(r->doc->arena, node->key, n, n + 1, sizeof *node->key, &l->keys_cap);
        node->key[n] = key;
    }
    node->items++;
}

/* `<<: other` or `<<: [one, other]`: the keys of the others that are not in this mapping. */
static sn_status merge(reader *r, level *l, const sn_yaml_node *at, const sn_yaml_node *from)
{
    for (int i = 0; i < sn_yaml_items(from); i++) {
        const sn_yaml_node *map = sn_yaml_item(from, i);
        if (map->kind != SN_YAML_MAP)
            return sn_yaml_fail(r->doc, at,
                                "`<<` takes a mapping (or a list of them) by its alias");
        for (int k = 0; k < map->items; k++) {
            if (++r->merged > MERGED_MAX)
                return sn_yaml_fail(r->doc, at, "more than %d keys are merged", MERGED_MAX);
            if (sn_yaml_get(l->node, map->key[k]->text))
                continue;
            if (l->node->items == KEYS_MAX)
                return sn_yaml_fail(r->doc, at, "merging makes a mapping of more than %d keys",
                                    KEYS_MAX);
            append(r, l, map->key[k], map->item[k]);
        }
    }
    return SN_OK;
}

/* A finished node goes where it belongs: the root, a list, a key's place or a value's. */
static sn_status place(reader *r, sn_yaml_node *node)
{
    if (!r->depth) {
        r->doc->root = node;
        return SN_OK;
    }
    level *l = &r->level[r->depth - 1];
    if (l->node->kind == SN_YAML_LIST) {
        append(r, l, NULL, node);
    } else if (!l->key) {
        if (node->kind != SN_YAML_SCALAR)
            return sn_yaml_fail(r->doc, node, "a key must be a word");
        for (int k = 0; k < l->node->items; k++)
            if (!strcmp(l->node->key[k]->text, node->text))
                return sn_yaml_fail(r->doc, node, "key `%.64s` is there twice, first on line %d",
                                    node->text, l->node->key[k]->line);
        if (l->node->items == KEYS_MAX)
            return sn_yaml_fail(r->doc, node, "a mapping has more than %d keys", KEYS_MAX);
        l->key = node;
    } else {
        sn_yaml_node *key = l->key;
        l->key = NULL;
        if (strcmp(key->text, "<<") != 0) {
            append(r, l, key, node);
        } else if (l->merge) {
            return sn_yaml_fail(r->doc, key, "key `<<` is there twice: give it a list");
        } else {
            l->merge = node;
            l->merge_key = key;
        }
    }
    return SN_OK;
}

static sn_status name_anchor(reader *r, const char *name, sn_yaml_node *node)
{
    if (!name)
        return SN_OK;
    int i = 0;
    while (i < r->anchors && strcmp(r->anchor[i].name, name) != 0)
        i++;
    if (i == ANCHORS_MAX)
        return sn_yaml_fail(r->doc, node, "more than %d anchors", ANCHORS_MAX);
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
    sn_yaml_node at = {.line = (int) event->start_mark.line + 1};
    return sn_yaml_fail(r->doc, &at, "alias `*%.64s` names no finished anchor above it", name);
}

static sn_status on_scalar(reader *r, const yaml_event_t *event)
{
    const char *text = (const char *) event->data.scalar.value;
    sn_yaml_node *node = node_create(r, SN_YAML_SCALAR, event);
    size_t n = event->data.scalar.length;
    if (n > TEXT_MAX || memchr(text, 0, n))
        return sn_yaml_fail(r->doc, node, "a word of %zu bytes: at most %d, without NUL", n,
                            TEXT_MAX);
    node->text = sn_arena_str(r->doc->arena, text);
    const char *name = (const char *) event->data.scalar.anchor;
    SN_TRY(name_anchor(r, sn_arena_str(r->doc->arena, name), node));
    return place(r, node);
}

static sn_status on_open(reader *r, const yaml_event_t *event, sn_yaml_kind kind)
{
    sn_yaml_node *node = node_create(r, kind, event);
    if (r->depth == DEPTH_MAX)
        return sn_yaml_fail(r->doc, node, "nested more than %d deep", DEPTH_MAX);
    const yaml_char_t *name =
        kind == SN_YAML_MAP ? event->data.mapping_start.anchor : event->data.sequence_start.anchor;
    r->level[r->depth++] =
        (level){.node = node, .anchor = sn_arena_str(r->doc->arena, (const char *) name)};
    return SN_OK;
}

static sn_status on_close(reader *r)
{
    level *l = &r->level[r->depth - 1];
    if (l->merge) /* last, so that the mapping's own keys win wherever they stand */
        SN_TRY(merge(r, l, l->merge_key, l->merge));
    r->depth--;
    SN_TRY(name_anchor(r, l->anchor, l->node));
    return place(r, l->node);
}

static sn_status on_event(reader *r, const yaml_event_t *event)
{
    sn_yaml_node at = {.line = (int) event->start_mark.line + 1};
    if (r->nodes > NODES_MAX)
        return sn_yaml_fail(r->doc, &at, "more than %d values", NODES_MAX);
    switch (event->type) {
    case YAML_ALIAS_EVENT:
        return on_alias(r, event);
    case YAML_SCALAR_EVENT:
        return on_scalar(r, event);
    case YAML_MAPPING_START_EVENT:
        return on_open(r, event, SN_YAML_MAP);
    case YAML_SEQUENCE_START_EVENT:
        return on_open(r, event, SN_YAML_LIST);
    case YAML_MAPPING_END_EVENT:
    case YAML_SEQUENCE_END_EVENT:
        return on_close(r);
    case YAML_DOCUMENT_START_EVENT:
        return r->doc->root ? sn_yaml_fail(r->doc, &at, "a second document: one is read") : SN_OK;
    default:
        return SN_OK;
    }
}

/* libyaml counts lines for its scanner only; what its reader refuses has a byte offset. */
static sn_status syntax(reader *r, const char *text, size_t bytes)
{
    const yaml_parser_t *p = &r->parser;
    sn_yaml_node at = {.line = (int) p->problem_mark.line + 1};
    if (p->error == YAML_READER_ERROR) {
        at.line = 1;
        for (size_t i = 0; i < SN_MIN(p->problem_offset, bytes); i++)
            at.line += text[i] == '\n';
    }
    return sn_yaml_fail(r->doc, &at, "not YAML: %s", p->problem ? p->problem : "no memory");
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
    sn_yaml_node top = {.line = 1};
    return r->doc->root ? SN_OK : sn_yaml_fail(r->doc, &top, "empty: nothing is described");
}

sn_status sn_yaml_read(sn_yaml_doc *doc, const char *text, size_t bytes)
{
    sn_yaml_node top = {.line = 1};
    doc->root = NULL;
    if (bytes > BYTES_MAX)
        return sn_yaml_fail(doc, &top, "%zu bytes: at most %d are read", bytes, BYTES_MAX);
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
