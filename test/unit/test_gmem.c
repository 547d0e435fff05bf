/* SPDX-License-Identifier: Apache-2.0
 *
 * Segments of forked ranks, and waiting on their flags. */
#include "gmem/gmem.h"
#include "unit/sn_ranks.h"
#include "unit/sn_test.h"

#include <dirent.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define SOON (sn_now() + 10 * SN_SEC)

static const int one_host[8] = {0};
static const int mixed[] = {0, 1, 1, 0, 1};

/* Every member writes its base and head; after a flag round every member reads the others'. */
static int rank_segment(sn_boot *boot, int rank, int host, void *ctx)
{
    static const int members[] = {0, 1, 3, 4};
    sn_net *net;
    sn_segment *seg;
    RANK_OK(sn_rank_open(boot, host, NULL, &net));
    if (rank == 2) { /* not a member */
        sn_net_close(net);
        return 0;
    }
    uint64_t bytes = 10000 + 1000 * (uint64_t) rank;
    RANK_OK(sn_gmem_create(net, members, 4, bytes, SOON, &seg));
    int me = sn_gmem_me(seg);
    RANK_CHECK(sn_gmem_members(seg) == 4 && members[me] == rank);
    sn_flag_line *flag = sn_gmem_head(seg, me);
    for (int i = 0; i < SN_GMEM_HEAD; i++)
        RANK_CHECK(((char *) sn_gmem_head(seg, me))[i] == 0);
    memset(sn_gmem_base(seg, me), rank + 1, bytes);
    sn_gmem_store_u32(&flag->word[3], 7);
    for (int m = 0; m < 4; m++) {
        RANK_CHECK(sn_gmem_rank(seg, m) == members[m]);
        RANK_CHECK(sn_gmem_bytes(seg, m) == 10000 + 1000 * (uint64_t) members[m]);
        RANK_CHECK((sn_gmem_base(seg, m) != NULL) == sn_net_same_host(net, members[m]));
        RANK_CHECK((sn_gmem_head(seg, m) != NULL) == sn_net_same_host(net, members[m]));
        if (!sn_gmem_base(seg, m))
            continue;
        sn_flag_line *theirs = sn_gmem_head(seg, m);
        RANK_OK(sn_gmem_wait_u32(net, &theirs->word[3], 7, SOON));
        char *p = sn_gmem_base(seg, m);
        RANK_CHECK(p[0] == members[m] + 1 && p[sn_gmem_bytes(seg, m) - 1] == members[m] + 1);
    }
    sn_gmem_free(seg);
    sn_net_close(net);
    return 0;
}

static void test_segment(void **state)
{
    assert_int_equal(sn_ranks_run(5, mixed, rank_segment, NULL, SOON), 0);
}

/* A counter goes round 8 ranks on however few cores there are. */
static int rank_round(sn_boot *boot, int rank, int host, void *ctx)
{
    static const int members[] = {0, 1, 2, 3, 4, 5, 6, 7};
    enum { ROUNDS = 200 };
    sn_net *net;
    sn_segment *seg;
    RANK_OK(sn_rank_open(boot, host, NULL, &net));
    RANK_OK(sn_gmem_create(net, members, 8, 0, SOON, &seg));
    sn_flag_line *mine = sn_gmem_head(seg, rank), *before = sn_gmem_head(seg, (rank + 7) % 8);
    for (uint32_t i = 1; i <= ROUNDS; i++) {
        if (rank || i > 1)
            RANK_OK(sn_gmem_wait_u32(net, &before->word[0], rank ? i : i - 1, SOON));
        sn_gmem_store_u32(&mine->word[0], i);
    }
    RANK_OK(sn_gmem_wait_u32(net, &before->word[0], ROUNDS, SOON));
    sn_gmem_free(seg);
    sn_net_close(net);
    return 0;
}

static void test_round(void **state)
{
    assert_int_equal(sn_ranks_run(8, one_host, rank_round, NULL, SOON), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_segment),
        cmocka_unit_test(test_round),
    };
    return sn_test_run(tests);
}
