/* SPDX-License-Identifier: Apache-2.0 */
#include "topo/names.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { WORK_MAX = 1 << 27, NEAREST_MAX = 4096, SLOTS_MIN = 64 };

void topo_names_init(topo_names *names, const sn_topo *topo)
{
    *names = (topo_names){.topo = topo, .cap = SLOTS_MIN, .work = WORK_MAX};
    names->slot = sn_alloc(names->cap * sizeof *names->slot);
}

void topo_names_done(topo_names *names)
{
    free(names->slot);
    *names = (topo_names){0};
}

static uint32_t hash_of(const char *name)
{
    return (uint32_t) sn_hash_bytes(name, strlen(name));
}

/* The slot that has this name, or the empty one where it belongs. */
static topo_slot *slot_of(const topo_names *names, const char *name, uint32_t hash)
{
    size_t i = hash & (names->cap - 1);
    for (; names->slot[i].taken; i = (i + 1) & (names->cap - 1))
        if (names->slot[i].hash == hash &&
            !strcmp(sn_topo_vertex_name(names->topo, names->slot[i].taken - 1), name))
            break;
    return &names->slot[i];
}

static void grow(topo_names *names)
{
    topo_slot *old = names->slot;
    size_t n = names->cap;
    names->cap *= 2;
    names->slot = sn_alloc(names->cap * sizeof *names->slot);
    for (size_t i = 0; i < n; i++) {
        size_t k = old[i].hash & (names->cap - 1);
        while (old[i].taken && names->slot[k].taken)
            k = (k + 1) & (names->cap - 1);
        if (old[i].taken)
            names->slot[k] = old[i];
    }
    free(old);
}

int topo_names_add(topo_names *names, int vertex)
{
    if (names->used * 2 >= names->cap)
        grow(names);
    const char *name = sn_topo_vertex_name(names->topo, vertex);
    uint32_t hash = hash_of(name);
    topo_slot *slot = slot_of(names, name, hash);
    if (slot->taken)
        return slot->taken - 1;
    *slot = (topo_slot){hash, vertex + 1};
    names->used++;
    return -1;
}

int topo_names_find(const topo_names *names, const char *name)
{
    return slot_of(names, name, hash_of(name))->taken - 1;
}

bool topo_pattern_is(const char *text)
{
    return strpbrk(text, "*[") != NULL;
}

/* "[2-7]" or "[3]" at *pattern against the number at *name; both move behind it when it fits. */
static bool range_match(const char **pattern, const char **name)
{
    char *close, *end;
    unsigned long least = strtoul(*pattern + 1, &close, 10), most = least;
    if (*close == '-')
        most = strtoul(close + 1, &close, 10);
    if (*close != ']' || !isdigit((unsigned char) **name))
        return false;
    if (**name == '0' && isdigit((unsigned char) (*name)[1]))
        return false;
    unsigned long v = strtoul(*name, &end, 10);
    if (v < least || v > most)
        return false;
    *pattern = close + 1;
    *name = end;
    return true;
}

/* One element of the pattern against what it consumes of the name. */
static bool step(const char **pattern, const char **name)
{
    if (**pattern == '[')
        return range_match(pattern, name);
    if (!**pattern || **pattern != **name)
        return false;
    ++*pattern;
    ++*name;
    return true;
}

/* On a mismatch go on behind the last star, letting it take one more character; earlier stars need
 * not be kept, as what they took cannot help. A slash ends the reach of a star. */
bool topo_pattern_match(const char *pattern, const char *name)
{
    const char *star = NULL, *taken = NULL;
    for (;;) {
        if (*pattern == '*') {
            star = ++pattern;
            taken = name;
        } else if (step(&pattern, &name)) {
            star = pattern[-1] == '/' ? NULL : star;
        } else if (!*pattern && !*name) {
            return true;
        } else if (star && *taken && *taken != '/') {
            name = ++taken;
            pattern = star;
        } else {
            return false;
        }
    }
}

void topo_set_done(topo_set *set)
{
    free(set->vertex);
    *set = (topo_set){0};
}

void topo_set_add(topo_set *set, int vertex)
{
    if (set->n == set->cap) {
        set->cap = set->cap ? set->cap * 2 : 16;
        set->vertex = sn_realloc(set->vertex, set->cap * sizeof *set->vertex);
    }
    set->vertex[set->n++] = vertex;
}

bool topo_names_select(topo_names *names, const char *text, int from, int to, topo_set *set)
{
    if (!topo_pattern_is(text)) {
        int v = topo_names_find(names, text);
        if (v >= from && v < to)
            topo_set_add(set, v);
        return true;
    }
    names->work -= to - from;
    if (names->work < 0)
        return false;
    for (int v = from; v < to; v++)
        if (topo_pattern_match(text, sn_topo_vertex_name(names->topo, v)))
            topo_set_add(set, v);
    return true;
}

const char *topo_names_nearest(const topo_names *names, const char *name)
{
    int n = names->topo->vertices;
    if (n > NEAREST_MAX)
        return NULL;
    const char **all = sn_alloc((size_t) n * sizeof *all);
    for (int v = 0; v < n; v++)
        all[v] = sn_topo_vertex_name(names->topo, v);
    const char *near = sn_str_nearest(name, all, n);
    free(all);
    return near;
}
