/* SPDX-License-Identifier: Apache-2.0
 *
 * A world for the tests of ckpt: tensors with known values, cut among ranks in random ways, and a
 * naive element-by-element oracle. */
#ifndef CKPT_WORLD_H
#define CKPT_WORLD_H

#include "ckpt/ckpt.h"
#include "unit/sn_test.h"

#include <stdio.h>

enum { WORLD_TENSORS = 6, WORLD_PIECES = 256, WORLD_RANKS = 8 };

typedef struct world_tensor {
    char name[32];
    sn_dtype dtype;
    sn_shape shape;
    uint64_t salt;
} world_tensor;

typedef struct world {
    int tensors;
    world_tensor t[WORLD_TENSORS];
} world;

typedef struct cut { /* the pieces of every rank */
    int ranks;
    int pieces[WORLD_RANKS];
    sn_piece piece[WORLD_RANKS][WORLD_PIECES];
} cut;

/* The value of one element: bytes drawn from its place in the whole tensor. */
static inline void world_value(const world_tensor *t, int64_t index, void *to)
{
    uint64_t v = sn_hash64(t->salt, 0, (uint64_t) index);
    memcpy(to, &v, sn_dtype_bytes(t->dtype));
}

static inline world world_random(sn_prng *p)
{
    static const char *const name[] = {"wte", "h.0.attn.wqkv", "adam.m/h.0",
                                       "ü@1", "a b\"c",        "x@1"};
    world w = {.tensors = 1 + (int) sn_prng_below(p, WORLD_TENSORS)};
    for (int i = 0; i < w.tensors; i++) {
        world_tensor *t = &w.t[i];
        snprintf(t->name, sizeof t->name, "%s", name[i]);
        t->dtype = (sn_dtype) sn_prng_below(p, SN_DTYPE_COUNT);
        t->shape.rank = (int) sn_prng_below(p, 5);
        for (int d = 0; d < t->shape.rank; d++)
            t->shape.dim[d] = sn_prng_below(p, 20) ? 1 + sn_prng_below(p, 7) : 0;
        t->salt = sn_prng_u64(p);
    }
    return w;
}

/* Place in the whole tensor of element `i` of a piece's block. */
static inline int64_t world_index(const sn_piece *p, int64_t i)
{
    int64_t place[SN_RANK_MAX], at = 0;
    for (int d = p->shape.rank - 1; d >= 0; d--) {
        place[d] = p->begin[d] + i % p->extent[d];
        i /= p->extent[d];
    }
    for (int d = 0; d < p->shape.rank; d++)
        at = at * p->shape.dim[d] + place[d];
    return at;
}

static inline void world_fill(const world_tensor *t, sn_piece *p)
{
    size_t width = sn_dtype_bytes(t->dtype);
    for (int64_t i = 0; i < p->flat_count; i++)
        world_value(t, world_index(p, p->flat_begin + i), (char *) p->data + (size_t) i * width);
}

static inline sn_piece *cut_add(cut *c, int rank, const world_tensor *t)
{
    sn_piece *p = &c->piece[rank][c->pieces[rank]++];
    *p = (sn_piece){.name = t->name, .dtype = t->dtype, .shape = t->shape};
    memcpy(p->extent, t->shape.dim, sizeof p->extent);
    return p;
}

/* The flattened block among `parts` ranks, unevenly. */
static inline void cut_block(cut *c, sn_prng *p, const world_tensor *t, int d, int64_t begin,
                             int64_t extent, int parts)
{
    int64_t count = 1, at = 0;
    for (int k = 0; k < t->shape.rank; k++)
        count *= k == d ? extent : t->shape.dim[k];
    for (int i = 0; i < parts; i++) {
        sn_piece *piece = cut_add(c, (int) sn_prng_below(p, c->ranks), t);
        if (d >= 0) {
            piece->begin[d] = begin;
            piece->extent[d] = extent;
        }
        piece->flat_begin = at;
        piece->flat_count = i + 1 < parts ? sn_prng_below(p, count - at + 1) : count - at;
        at += piece->flat_count;
        size_t bytes = (size_t) piece->flat_count * sn_dtype_bytes(t->dtype);
        piece->data = calloc(1, bytes ? bytes : 1);
    }
}

/* (tensor, data)-style: one dimension in up to 3 blocks, each block flat over up to 3 ranks. */
static inline cut *cut_random(sn_prng *p, const world *w)
{
    cut *c = calloc(1, sizeof *c);
    c->ranks = 1 + (int) sn_prng_below(p, WORLD_RANKS);
    for (int i = 0; i < w->tensors; i++) {
        const world_tensor *t = &w->t[i];
        int d = t->shape.rank ? (int) sn_prng_below(p, t->shape.rank) : -1;
        int blocks = d < 0 ? 1 : 1 + (int) sn_prng_below(p, 3);
        int64_t at = 0, n = d < 0 ? 1 : t->shape.dim[d];
        for (int b = 0; b < blocks; b++) {
            int64_t extent = b + 1 < blocks ? sn_prng_below(p, n - at + 1) : n - at;
            cut_block(c, p, t, d, at, extent, 1 + (int) sn_prng_below(p, 3));
            at += extent;
        }
    }
    return c;
}

static inline const world_tensor *world_find(const world *w, const char *name)
{
    for (int i = 0; i < w->tensors; i++)
        if (!strcmp(w->t[i].name, name))
            return &w->t[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

static inline void cut_fill(const world *w, cut *c)
{
    for (int r = 0; r < c->ranks; r++)
        for (int i = 0; i < c->pieces[r]; i++)
            world_fill(world_find(w, c->piece[r][i].name), &c->piece[r][i]);
}

static inline void cut_clear(cut *c)
{
    for (int r = 0; r < c->ranks; r++)
        for (int i = 0; i < c->pieces[r]; i++)
            memset(c->piece[r][i].data, 0xee,
                   (size_t) c->piece[r][i].flat_count * sn_dtype_bytes(c->piece[r][i].dtype));
}

static inline void cut_free(cut *c)
{
    for (int r = 0; r < c->ranks; r++)
        for (int i = 0; i < c->pieces[r]; i++)
            free(c->piece[r][i].data);
    free(c);
}

/* Every element of every piece is what the oracle says. */
static inline bool cut_equal(const world *w, const cut *c)
{
    for (int r = 0; r < c->ranks; r++)
        for (int i = 0; i < c->pieces[r]; i++) {
            sn_piece copy = c->piece[r][i];
            size_t bytes = (size_t) copy.flat_count * sn_dtype_bytes(copy.dtype);
            copy.data = malloc(bytes ? bytes : 1);
            world_fill(world_find(w, copy.name), &copy);
            bool same = !memcmp(copy.data, c->piece[r][i].data, bytes);
            free(copy.data);
            if (!same)
                return false;
        }
    return true;
}

/* All ranks write, rank 0 publishes. */
static inline sn_status cut_save(const char *dir, int64_t step, const cut *c, int keep)
{
    sn_str part[WORLD_RANKS] = {{0}};
    const char *text[WORLD_RANKS];
    sn_status status = SN_OK;
    for (int r = 0; r < c->ranks && status >= 0; r++) {
        status = sn_ckpt_write_part(dir, step, r, c->piece[r], c->pieces[r], &part[r]);
        text[r] = sn_str_get(&part[r]);
    }
    char meta[64];
    snprintf(meta, sizeof meta, "{ \"at\": %lld, \"lr\": 0.1 }", (long long) step);
    if (status >= 0)
        status = sn_ckpt_publish(dir, step, text, c->ranks, meta, keep);
    for (int r = 0; r < WORLD_RANKS; r++)
        sn_str_done(&part[r]);
    return status;
}

static inline sn_status cut_load(const sn_ckpt *ckpt, cut *c)
{
    cut_clear(c);
    for (int r = 0; r < c->ranks; r++)
        SN_TRY(sn_ckpt_load(ckpt, c->piece[r], c->pieces[r]));
    return SN_OK;
}

static inline void world_dir(char dir[64])
{
    strcpy(dir, "/tmp/sn-ckpt-XXXXXX");
    assert_non_null(mkdtemp(dir));
}

static inline void world_remove(const char *dir)
{
    char line[128];
    snprintf(line, sizeof line, "rm -rf '%s'", dir);
    assert_int_equal(system(line), 0);
}

#endif
