/* SPDX-License-Identifier: Apache-2.0
 *
 * Many ranks with a compress group over all of them, and the maps of ranks to hosts they are tried
 * on. */
#ifndef SN_COMPRESS_WORLD_H
#define SN_COMPRESS_WORLD_H

#include "compress/compress.h"
#include "unit/coll_world.h"

#include <math.h>
#include <string.h>

#define RANKS 8
#define ELEMENTS 8400 /* divides by 1 … 8 */
#define STEPS 5

typedef struct host_map {
    int n, hosts;
    int host[RANKS];
} host_map;

static const host_map host_maps[] = {
    {2, 2, {0, 1}},
    {4, 2, {0, 0, 1, 1}},
    {4, 2, {0, 1, 0, 1}},          /* round-robin */
    {3, 2, {0, 0, 1}},             /* uneven */
    {7, 3, {0, 1, 1, 0, 2, 2, 2}}, /* uneven and scattered */
    {3, 3, {0, 1, 2}},
    {3, 1, {0, 0, 0}}, /* one host: nothing to compress */
};

static inline sn_codec codec_of(const char *text)
{
    sn_codec c;
    assert_ok(sn_codec_parse(text, &c));
    return c;
}

/* Multiples of 1/8 below 128: sums of them are exact in whatever order. */
static inline float element(int rank, int step, int64_t i)
{
    return (float) ((int64_t) (sn_hash64(7, (uint64_t) (rank * 100 + step), (uint64_t) i) % 2001) -
                    1000) /
           8;
}

typedef struct compress_world {
    world w;
    sn_compress_group *g;
    sn_compress *z;
} compress_world;

static inline int compress_world_open(sn_boot *boot, int host, const host_map *map,
                                      const sn_compress_opts *opts, compress_world *ret)
{
    int members[RANKS] = {0, 1, 2, 3, 4, 5, 6, 7};
    if (world_open(boot, host, &ret->w))
        return 1;
    RANK_OK(sn_compress_group_create(ret->w.c, ret->w.all, "world", members, map->host, map->n,
                                     soon(), &ret->g));
    RANK_CHECK(sn_compress_group_hosts(ret->g) == map->hosts);
    RANK_OK(sn_compress_open(ret->g, opts, &ret->z));
    return 0;
}

static inline void compress_world_close(compress_world *c)
{
    sn_compress_close(c->z);
    sn_compress_group_free(c->g);
    world_close(&c->w);
}

/* n floats of the arena. */
static inline float *floats(world *w, int64_t n)
{
    void *p = NULL;
    if (sn_coll_alloc(w->c, (uint64_t) n * sizeof(float), &p) < 0)
        abort();
    return p;
}

#endif
