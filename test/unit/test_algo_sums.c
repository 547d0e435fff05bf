/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums: bf16 and f16 within one ulp of the exact one by every algorithm, however many members; and
 * deterministic ones that are the same bits whatever the algorithm, the hosts and the segments. */
#include "unit/algo_interp.h"

#define MEMBERS 64

/* Whose cost makes many segments of everything, so that pipelines are full. */
static sn_algo_model eager(void)
{
    sn_algo_model m = sn_algo_model_from(NULL, NULL, 0);
    m.net_latency_ns = m.net_message_ns = m.signal_ns = 1;
    m.net_bytes_per_s = 1e8;
    return m;
}

/* Maps of p members: a host each, halves, in turn, scattered, the first alone, all on one. */
static void make_map(int map, int p, int *host)
{
    for (int i = 0; i < p; i++)
        host[i] = map == 0   ? i
                  : map == 1 ? i / ((p + 1) / 2)
                  : map == 2 ? i % SN_MIN(p, 4)
                  : map == 3 ? (int) (sn_hash64(9, (uint64_t) p, (uint64_t) i) % 5)
                  : map == 4 ? i > 0
                             : 0;
}
#define MAPS 6

static const sn_coll_op sums[] = {SN_ALL_REDUCE, SN_REDUCE_SCATTER};

static void every_row(const sn_algo_group *g, sn_algo_call c, kind values, uint64_t seed)
{
    const sn_algo_row *const *rows;
    int n = sn_algo_rows(&rows), ran = 0;
    for (int r = 0; r < n; r++) {
        if (!sn_algo_fits(rows[r], g, &c))
            continue;
        one(rows[r], g, c, values, seed, NULL);
        ran++;
    }
    assert_true(ran > 0);
}

static void test_half(void **state)
{
    for (uint32_t h = 0; h < 0x7c00; h++) { /* the interpreter's own arithmetic */
        assert_int_equal(float_to_half(half_to_float((uint16_t) h)), h);
        double a = half_to_float((uint16_t) h), b = half_to_float((uint16_t) (h + 1));
        if (h < 0x7bff)
            assert_int_equal(float_to_half((float) ((a + b) / 2)), h + (h & 1));
    }
    assert_int_equal(float_to_half(65519), 0x7bff);
    assert_int_equal(float_to_half(-65520), 0xfc00);
}

static void test_within_an_ulp(void **state)
{
    static const int members[] = {2, 3, 4, 5, 7, 8, 13, 16, 33, 64};
    static const kind kinds[] = {VALUES_SMALL_TERMS, VALUES_LARGE, VALUES_UNIFORM};
    uint64_t seed = 1;
    for (size_t k = 0; k < SN_COUNT(members); k++) {
        int p = members[k], host[MEMBERS];
        for (int map = 0; map < MAPS; map++, seed++) {
            sn_algo_group g = {.members = p, .host = host};
            make_map(map, p, host);
            for (size_t op = 0; op < SN_COUNT(sums); op++) {
                sn_algo_call c = {.op = sums[op],
                                  .red = seed % 4 == 0 ? SN_AVG : SN_SUM,
                                  .dtype = (seed + op) % 2 ? SN_BF16 : SN_F16,
                                  .count = sums[op] == SN_ALL_REDUCE ? 64 * p + 7 : 35};
                every_row(&g, c, kinds[(seed / 2 + op) % SN_COUNT(kinds)], seed);
            }
        }
    }
}

/* In many segments: long for few members. */
static void test_in_segments(void **state)
{
    static const int members[] = {2, 3, 4, 6, 9};
    sn_algo_model m = eager();
    uint64_t seed = 500;
    for (size_t k = 0; k < SN_COUNT(members); k++) {
        int p = members[k], host[MEMBERS];
        for (int map = 0; map < MAPS; map++, seed++) {
            sn_algo_group g = {.members = p, .host = host, .model = &m};
            make_map(map, p, host);
            for (size_t op = 0; op < SN_COUNT(sums); op++) {
                bool whole = sums[op] == SN_ALL_REDUCE;
                sn_algo_call c = {.op = sums[op],
                                  .dtype = seed % 3 == 0   ? SN_F32
                                           : seed % 3 == 1 ? SN_BF16
                                                           : SN_F16,
                                  .count = whole ? 40000 + (int64_t) seed : 9000};
                every_row(&g, c, VALUES_UNIFORM, seed);
            }
        }
    }
}

/* f32 that is not whole, so that another order gives other bits. */
static void test_deterministic(void **state)
{
    static const int members[] = {1, 2, 3, 5, 8, 15};
    static const int64_t counts[] = {3, 200, 2500};
    const sn_algo_row *const *rows;
    int n = sn_algo_rows(&rows), differ = 0, ran = 0;
    sn_algo_model many = eager();
    for (uint64_t k = 0; k < SN_COUNT(members) * SN_COUNT(counts) * 4; k++) {
        int p = members[k % SN_COUNT(members)], host[MEMBERS];
        sn_algo_call c = {.op = sums[k / SN_COUNT(members) % 2],
                          .red = k % 3 == 0 ? SN_AVG : SN_SUM,
                          .dtype = k % 5 == 4 ? SN_BF16 : SN_F32,
                          .count = counts[k / SN_COUNT(members) % SN_COUNT(counts)],
                          .deterministic = true};
        uint64_t want = 0, got;
        for (int map = MAPS - 1; map >= 0; map--) {
            sn_algo_group g = {.members = p, .host = host, .model = map % 2 ? &many : NULL};
            make_map(map, p, host);
            for (int r = 0; r < n; r++) {
                sn_algo_call other = c;
                other.deterministic = false;
                if (sn_algo_fits(rows[r], &g, &c)) {
                    one(rows[r], &g, c, VALUES_UNIFORM, k, &got);
                    want = want == 0 ? got : want;
                    assert_true(got == want);
                    ran++;
                } else if (sn_algo_fits(rows[r], &g, &other)) {
                    one(rows[r], &g, other, VALUES_UNIFORM, k, &got);
                    differ += got != want;
                }
            }
        }
        assert_true(want != 0);
    }
    assert_true(ran > 300 && differ > 100); /* the test could fail */
}

/* Every group has a deterministic one for sums, and nothing else is refused. */
static void test_deterministic_choice(void **state)
{
    sn_algo_model m = sn_algo_model_from(NULL, NULL, 0);
    for (int p = 1; p <= 24; p++) {
        for (int map = 0; map < MAPS; map++) {
            int host[MEMBERS];
            sn_algo_group g = {.members = p, .host = host};
            make_map(map, p, host);
            for (sn_coll_op op = 0; op < SN_COLL_OPS; op++) {
                sn_algo_call c = {.op = op, .count = 1 << (p % 20), .deterministic = true};
                const sn_algo_row *row;
                assert_ok(sn_algo_choose(&g, &c, &m, NULL, &row, NULL));
                if (op == SN_ALL_REDUCE || op == SN_REDUCE_SCATTER)
                    assert_true(row->ordered >> op & 1);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_half),
        cmocka_unit_test(test_within_an_ulp),
        cmocka_unit_test(test_in_segments),
        cmocka_unit_test(test_deterministic),
        cmocka_unit_test(test_deterministic_choice),
    };
    return sn_test_run(tests);
}
