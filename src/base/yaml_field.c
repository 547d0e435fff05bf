/* SPDX-License-Identifier: Apache-2.0
 * Fields of a YAML tree as words and numbers. */
#include "base/base.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

sn_status sn_yaml_fail(const sn_yaml_doc *doc, const sn_yaml_node *at, const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return sn_fail(SN_EINVAL, "%s:%d: %s", doc->file, at->line, text);
}

const sn_yaml_node *sn_yaml_get(const sn_yaml_node *map, const char *key)
{
    for (int i = 0; i < map->items; i++)
        if (!strcmp(map->key[i]->text, key))
            return map->item[i];
    return NULL;
}

sn_status sn_yaml_keys(const sn_yaml_doc *doc, const sn_yaml_node *node, const char *what,
                       const char *const *keys, int n)
{
    if (node->kind != SN_YAML_MAP)
        return sn_yaml_fail(doc, node, "%s must be a mapping {key: value, …}", what);
    for (int i = 0; i < node->items; i++) {
        const char *key = node->key[i]->text;
        int k = 0;
        while (k < n && strcmp(keys[k], key) != 0)
            k++;
        if (k < n)
            continue;
        const char *near = sn_str_nearest(key, keys, n);
        if (near)
            return sn_yaml_fail(doc, node->key[i], "%s has no key `%.64s`; did you mean `%s`?",
                                what, key, near);
        return sn_yaml_fail(doc, node->key[i], "%s has no key `%.64s`", what, key);
    }
    return SN_OK;
}

sn_status sn_yaml_need(const sn_yaml_doc *doc, const sn_yaml_node *map, const char *what,
                       const char *key, const sn_yaml_node **ret)
{
    const sn_yaml_node *node = sn_yaml_get(map, key);
    if (!node)
        return sn_yaml_fail(doc, map, "%s needs the key `%s`", what, key);
    *ret = node;
    return SN_OK;
}

sn_status sn_yaml_text(const sn_yaml_doc *doc, const sn_yaml_node *node, const char *what,
                       const char **ret)
{
    if (node->kind != SN_YAML_SCALAR || !*node->text)
        return sn_yaml_fail(doc, node, "`%s` must be a word", what);
    *ret = node->text;
    return SN_OK;
}

sn_status sn_yaml_int(const sn_yaml_doc *doc, const sn_yaml_node *node, const char *what,
                      int64_t least, int64_t most, int64_t *ret)
{
    const char *text = NULL;
    int64_t v;
    SN_TRY(sn_yaml_text(doc, node, what, &text));
    if (!sn_str_to_int(text, &v) || v < least || v > most)
        return sn_yaml_fail(doc, node,
                            "`%s` is `%.64s`: a whole number from %lld to %lld is needed", what,
                            text, (long long) least, (long long) most);
    *ret = v;
    return SN_OK;
}

sn_status sn_yaml_bool(const sn_yaml_doc *doc, const sn_yaml_node *node, const char *what,
                       bool *ret)
{
    const char *text = NULL;
    SN_TRY(sn_yaml_text(doc, node, what, &text));
    bool yes = !strcmp(text, "true");
    if (!yes && strcmp(text, "false") != 0)
        return sn_yaml_fail(doc, node, "`%s` is `%.64s`: `true` or `false` is needed", what, text);
    *ret = yes;
    return SN_OK;
}

int sn_yaml_items(const sn_yaml_node *node)
{
    return !node ? 0 : node->kind == SN_YAML_LIST ? node->items : 1;
}

const sn_yaml_node *sn_yaml_item(const sn_yaml_node *node, int i)
{
    return node->kind == SN_YAML_LIST ? node->item[i] : node;
}
