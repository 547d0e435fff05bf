/* SPDX-License-Identifier: Apache-2.0
 *
 * order — a shuffled order of any number of samples that nobody has to hold: a Feistel network over
 * the next even number of bits, walked on while it leads outside (at most four times on average).
 *
 *   i = left | right  ─ 4 × (left, right) ← (right, left ^ hash(seed, epoch·round, right)) ─► place
 *
 * A Feistel network is a bijection whatever its rounds do, and so is walking its cycles. Sources:
 * Luby & Rackoff, "How to construct pseudorandom permutations from pseudorandom functions", SIAM J.
 * Comput. 17(2), 1988; Black & Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002. */
#include "train/parts.h"

#define ROUNDS 4

uint64_t train_permute(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t i)
{
    int half = 1;
    while (half < 32 && UINT64_C(1) << 2 * half < n)
        half++;
    uint64_t mask = (UINT64_C(1) << half) - 1;
    do {
        uint64_t left = i >> half, right = i & mask;
        for (uint64_t round = 0; round < ROUNDS; round++) {
            uint64_t mixed = left ^ (sn_hash64(seed, epoch * ROUNDS + round, right) & mask);
            left = right;
            right = mixed;
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}
