/* SPDX-License-Identifier: Apache-2.0
 *
 * prng — random numbers that depend on their place, not on who asks or when.
 *
 * sn_hash64 mixes (seed, stream, index) into 64 bits; a weight, a batch offset or a dropped
 * activation drawn from it is the same under every split of the work. sn_prng is the sequential
 * form of the same. Source: the finaliser of Steele, Lea & Flood, "Fast splittable pseudorandom
 * number generators", OOPSLA 2014. */
#ifndef SN_BASE_PRNG_H
#define SN_BASE_PRNG_H

#include <stddef.h>
#include <stdint.h>

uint64_t sn_hash64(uint64_t seed, uint64_t stream, uint64_t index);
/* FNV-1a then mixed; for names, not for security */
uint64_t sn_hash_bytes(const void *data, size_t n);
double sn_hash_uniform(uint64_t seed, uint64_t stream, uint64_t index); /* [0, 1) */
double sn_hash_normal(uint64_t seed, uint64_t stream, uint64_t index);  /* mean 0, variance 1 */

typedef struct sn_prng {
    uint64_t seed, next;
} sn_prng;

uint64_t sn_prng_u64(sn_prng *p);
double sn_prng_uniform(sn_prng *p);
int64_t sn_prng_below(sn_prng *p, int64_t n); /* 0 … n-1, n > 0 */

#endif
