/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"
#include "base/status.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_MIN = 4096, BLOCK_MAX = 1 << 20, ALIGN = 16 };

typedef struct block {
    struct block *next;
    size_t used, cap;
    _Alignas(ALIGN) unsigned char data[];
} block;

struct sn_arena {
    block *first, *last;
    size_t bytes;
};

static block *block_create(size_t cap)
{
    block *b = sn_alloc(sizeof *b + cap);
    b->cap = cap;
    return b;
}

sn_arena *sn_arena_create(void)
{
    sn_arena *arena = sn_alloc(sizeof *arena);
    arena->first = arena->last = block_create(BLOCK_MIN);
    return arena;
}

static void free_from(block *b)
{
    while (b) {
        block *next = b->next;
        free(b);
        b = next;
    }
}

void sn_arena_free(sn_arena *arena)
{
    if (!arena)
        return;
    free_from(arena->first);
    free(arena);
}

void sn_arena_reset(sn_arena *arena)
{
    free_from(arena->first->next);
    arena->first->next = NULL;
    memset(arena->first->data, 0, arena->first->used);
    arena->first->used = 0;
    arena->last = arena->first;
    arena->bytes = 0;
}

size_t sn_arena_bytes(const sn_arena *arena)
{
    return arena->bytes;
}

void *sn_arena_alloc(sn_arena *arena, size_t bytes)
{
    SN_ASSERT(bytes < SIZE_MAX / 2);
    bytes = (bytes + ALIGN - 1) & ~(size_t) (ALIGN - 1);
    block *b = arena->last;
    if (b->cap - b->used < bytes) {
        size_t cap = b->cap * 2 < BLOCK_MAX ? b->cap * 2 : BLOCK_MAX;
        b = block_create(cap > bytes ? cap : bytes);
        arena->last->next = b;
        arena->last = b;
    }
    void *p = b->data + b->used;
    b->used += bytes;
    arena->bytes += bytes;
    return p;
}

void *sn_arena_copy(sn_arena *arena, const void *data, size_t bytes)
{
    void *p = sn_arena_alloc(arena, bytes);
    if (bytes)
        memcpy(p, data, bytes);
    return p;
}

char *sn_arena_str(sn_arena *arena, const char *text)
{
    return text ? sn_arena_copy(arena, text, strlen(text) + 1) : NULL;
}

char *sn_arena_printf(sn_arena *arena, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    SN_ASSERT(n >= 0);
    char *p = sn_arena_alloc(arena, (size_t) n + 1);
    vsnprintf(p, (size_t) n + 1, format, again);
    va_end(again);
    return p;
}

void *sn_arena_grow(sn_arena *arena, void *array, size_t count, size_t need, size_t elem,
                    size_t *cap)
{
    if (need <= *cap)
        return array;
    size_t next = *cap ? *cap : 8;
    while (next < need)
        next *= 2;
    void *p = sn_arena_alloc(arena, next * elem);
    if (count)
        memcpy(p, array, count * elem);
    *cap = next;
    return p;
}

static void *or_stop(void *p, size_t bytes)
{
    if (!p) {
        fprintf(stderr, "supernode: no memory for %zu bytes\n", bytes);
        abort();
    }
    return p;
}

void *sn_alloc(size_t bytes)
{
    return or_stop(calloc(1, bytes ? bytes : 1), bytes);
}

void *sn_realloc(void *old, size_t bytes)
{
    return or_stop(realloc(old, bytes ? bytes : 1), bytes);
}

char *sn_strdup(const char *s)
{
    size_t n = strlen(s) + 1;
    return memcpy(sn_alloc(n), s, n);
}
