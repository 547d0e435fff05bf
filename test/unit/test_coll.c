/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/coll.h"
#include "unit/sn_ranks.h"
#include "unit/sn_test.h"
static int first(sn_boot *boot, int rank, int host, void *ctx)
{
    sn_net *net;
    sn_coll *c;
    sn_coll_group *g;
    sn_time t = sn_now() + 5 * SN_SEC;
    RANK_OK(sn_rank_open(boot, host, NULL, &net));
    sn_coll_opts o = {.arena_bytes = 300 << 20, .deadline = t};
    RANK_OK(sn_coll_open(net, &o, &c));
    int world = sn_net_world(net), m[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    RANK_OK(sn_coll_group_create(c, "world", m, world, t, &g));
    float *x, *y;
    RANK_OK(sn_coll_alloc(c, 64 << 20, (void **) &x));
    RANK_OK(sn_coll_alloc(c, 64 << 20, (void **) &y));
    for (int64_t n = 2; n <= 16 << 20; n *= 8) {
        int it = n < 20000 ? 2000 : n < 2000000 ? 50 : 5;
        double best = 1e30;
        for (int k = 0; k < 10; k++) {
            sn_time a = sn_now();
            for (int i = 0; i < it; i++) {
                sn_coll_call call = {.op = SN_ALL_REDUCE, .count = n, .in = x, .out = y};
                RANK_OK(sn_coll_run(g, &call, sn_now() + 50 * SN_SEC));
            }
            double ns = (double) (sn_now() - a) / it;
            best = ns < best ? ns : best;
        }
        if (rank == 0)
            fprintf(stderr, "%lld B: %.2f us\n", (long long) n * 4, best / 1000);
    }
    sn_coll_group_free(g);
    sn_coll_close(c);
    sn_net_close(net);
    return 0;
}
static void test_first(void **state)
{
    assert_int_equal(sn_ranks_run(2, (int[]){0, 0}, first, NULL, sn_now() + 40 * SN_SEC), 0);
}
int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_first)};
    return sn_test_run(tests);
}
