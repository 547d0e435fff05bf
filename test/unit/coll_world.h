/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's net, coll and group of everybody, for the tests of coll. */
#ifndef SN_COLL_WORLD_H
#define SN_COLL_WORLD_H

#include "coll/coll.h"
#include "unit/sn_ranks.h"
#include "unit/sn_test.h"

typedef struct world {
    int rank, size;
    sn_net *net;
    sn_coll *c;
    sn_coll_group *all;
} world;

static inline sn_time soon(void)
{
    return sn_now() + *sn_ranks_patience() * 10 * SN_SEC;
}

static inline int world_open_for(sn_boot *boot, int host, bool threads, world *w)
{
    int members[64];
    RANK_OK(sn_rank_open(boot, host, NULL, &w->net));
    sn_coll_opts opts = {
        .arena_bytes = 24 << 20, .stage_bytes = 2 << 20, .threads = threads, .deadline = soon()};
    RANK_OK(sn_coll_open(w->net, &opts, &w->c));
    w->rank = sn_net_rank(w->net);
    w->size = sn_net_world(w->net);
    for (int i = 0; i < w->size; i++)
        members[i] = i;
    RANK_OK(sn_coll_group_create(w->c, "world", members, w->size, soon(), &w->all));
    return 0;
}

static inline int world_open(sn_boot *boot, int host, world *w)
{
    return world_open_for(boot, host, false, w);
}

static inline void world_close(world *w)
{
    sn_coll_group_free(w->all);
    sn_coll_close(w->c);
    sn_net_close(w->net);
}

static inline sn_status world_barrier(world *w)
{
    sn_coll_call call = {.op = SN_BARRIER};
    return sn_coll_run(w->all, &call, soon());
}

#define WORLD(map, fn)                                                                             \
    assert_int_equal(sn_ranks_run((int) SN_COUNT(map), map, fn, NULL, soon() + 20 * SN_SEC), 0)

#endif
