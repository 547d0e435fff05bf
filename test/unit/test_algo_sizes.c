/* SPDX-License-Identifier: Apache-2.0
 *
 * Every algorithm and operation around every power of two, interpreted (algo_interp.h). */
#include "unit/algo_interp.h"

#define MEMBERS 8

/* Sizes 0 … 64 KiB, one around each power of two, on maps of 1 … 8 members. */
static void test_every_size(void **state)
{
    static const int maps[][MEMBERS] = {
        {0, 0, 0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 1, 1, 1, 1}, {0, 1, 0, 1, 0, 1, 0, 1},
        {2, 0, 0, 1, 0, 2, 1, 0}, {0, 1, 2, 0, 0, 0, 0, 0}, {5, 4, 4, 4, 4, 4, 4, 4},
    };
    uint64_t seed = 100;
    for (int64_t two = 1; two <= 65536; two *= 2) {
        for (int d = -1; d <= 1; d++) {
            for (int p = 1; p <= MEMBERS; p++) {
                sn_dtype dtype = seed % 2 == 0 ? SN_BF16 : SN_F32;
                int64_t n = two / (int64_t) sn_dtype_bytes(dtype) + d;
                if (n < 0)
                    continue;
                sn_algo_group g = {.members = p,
                                   .host = maps[sn_hash64(seed, 4, 0) % SN_COUNT(maps)]};
                all_of(&g, n, dtype, seed);
                seed++;
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_size)};
    return sn_test_run(tests);
}
