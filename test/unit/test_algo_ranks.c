/* SPDX-License-Identifier: Apache-2.0
 *
 * Every algorithm and operation among 1 … 64, 96, 127 and 128 members, on maps that libraries have
 * broken on: a host each, 7 + 8, in turn, scattered, one alone, all on one. */
#include "unit/algo_interp.h"

#define MEMBERS 128

static void make_map(int map, int p, int *host)
{
    for (int i = 0; i < p; i++)
        host[i] = map == 0   ? i
                  : map == 1 ? i >= p / 2 /* 15: 7 + 8 */
                  : map == 2 ? i % SN_MIN(p, 5)
                  : map == 3 ? (int) (sn_hash64(9, (uint64_t) p, (uint64_t) i) % 11)
                  : map == 4 ? i == p - 1
                  : map == 5 ? i / 3
                             : 0;
}
#define MAPS 7

static void every_row(int p, int map, sn_coll_op op, uint64_t seed)
{
    static const sn_dtype types[] = {SN_F32, SN_BF16, SN_F16};
    const sn_algo_row *const *rows;
    int n = sn_algo_rows(&rows), host[MEMBERS], ran = 0;
    sn_algo_group g = {.members = p, .host = host};
    sn_algo_call c = {.op = op,
                      .red = (sn_red) (seed % SN_REDS),
                      .dtype = types[seed % SN_COUNT(types)],
                      .count = op == SN_BARRIER      ? 0
                               : op == SN_ALL_REDUCE ? 64 * p - 3
                                                     : 3,
                      .root = (int) (seed * 7 % (uint64_t) p)};
    make_map(map, p, host);
    for (int r = 0; r < n; r++) {
        if (!sn_algo_fits(rows[r], &g, &c))
            continue;
        one(rows[r], &g, c, VALUES_UNIFORM, seed, NULL);
        ran++;
    }
    assert_true(ran > 0);
}

static void test_ranks(void **state)
{
    static const int more[] = {96, 127, 128};
    for (int k = 1; k <= 64 + (int) SN_COUNT(more); k++) {
        int p = k <= 64 ? k : more[k - 65];
        for (sn_coll_op op = 0; op < SN_COLL_OPS; op++)
            every_row(p, (k + (int) op) % MAPS, op, (uint64_t) (k * 8 + (int) op));
    }
}

/* Few members, on all of these maps, sizes that do not divide. */
static void test_maps(void **state)
{
    static const int members[] = {2, 3, 7, 15, 17};
    for (size_t k = 0; k < SN_COUNT(members); k++)
        for (int map = 0; map < MAPS; map++)
            for (sn_coll_op op = 0; op < SN_COLL_OPS; op++)
                every_row(members[k], map, op, (uint64_t) map * 31 + k * 8 + op);
}

/* One number, and none, for everybody. */
static void test_short(void **state)
{
    const sn_algo_row *const *rows;
    int n = sn_algo_rows(&rows);
    for (int p = 1; p <= 40; p += 3) {
        int host[MEMBERS];
        sn_algo_group g = {.members = p, .host = host};
        make_map(p % MAPS, p, host);
        for (int k = 0; k < 2 * n * SN_COLL_OPS; k++) {
            sn_algo_call c = {.op = (sn_coll_op) (k % SN_COLL_OPS), .dtype = SN_BF16};
            c.count = c.op == SN_BARRIER ? 0 : k / SN_COLL_OPS / n;
            c.deterministic = p % 2;
            if (sn_algo_fits(rows[k / SN_COLL_OPS % n], &g, &c))
                one(rows[k / SN_COLL_OPS % n], &g, c, VALUES_UNIFORM, (uint64_t) k, NULL);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_maps),
        cmocka_unit_test(test_short),
    };
    return sn_test_run(tests);
}
