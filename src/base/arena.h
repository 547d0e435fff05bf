/* SPDX-License-Identifier: Apache-2.0
 *
 * arena — memory with one owner and one end: many small allocations, freed together.
 *
 *   first block -> next block -> ...      each block doubles up to 1 MiB; larger requests get their
 * own
 *
 * Invariants: returned memory is zeroed and 16-byte aligned; it lives until sn_arena_reset or
 * _free. Sizes here are small and bounded: when memory is gone the process stops (sizes that a user
 * or peer chose are checked by the caller first). One thread at a time. */
#ifndef SN_BASE_ARENA_H
#define SN_BASE_ARENA_H

#include <stddef.h>

typedef struct sn_arena sn_arena;

sn_arena *sn_arena_create(void);
void sn_arena_free(sn_arena *arena);  /* NULL is fine */
void sn_arena_reset(sn_arena *arena); /* forget every allocation, keep the first block */
size_t sn_arena_bytes(const sn_arena *arena);

void *sn_arena_alloc(sn_arena *arena, size_t bytes);
void *sn_arena_copy(sn_arena *arena, const void *data, size_t bytes);
char *sn_arena_str(sn_arena *arena, const char *text); /* NULL stays NULL */
char *sn_arena_printf(sn_arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Grow an array of `elem`-byte elements so that at least `need` fit; the old contents move, *cap is
 * updated. */
void *sn_arena_grow(sn_arena *arena, void *array, size_t count, size_t need, size_t elem,
                    size_t *cap);

#define SN_NEW(arena, type) ((type *) sn_arena_alloc((arena), sizeof(type)))
#define SN_NEW_N(arena, type, count)                                                               \
    ((type *) sn_arena_alloc((arena), (size_t) (count) * sizeof(type)))

void *sn_alloc(size_t bytes); /* zeroed malloc for small bounded sizes; stops when out of memory */
void *sn_realloc(void *old, size_t bytes); /* the same promise; new bytes are not zeroed */
char *sn_strdup(const char *text);

#endif
