/* SPDX-License-Identifier: Apache-2.0 */
#include "base/prng.h"

#include <math.h>

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t sn_hash64(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint64_t z = mix(seed + 0x9e3779b97f4a7c15u);
    z = mix(z ^ (stream + 0x9e3779b97f4a7c15u));
    return mix(z + (index + 1) * 0x9e3779b97f4a7c15u);
}

uint64_t sn_hash_bytes(const void *data, size_t n)
{
    const unsigned char *p = data;
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    return mix(h);
}

static double unit(uint64_t bits)
{
    return (double) (bits >> 11) * 0x1p-53;
}

double sn_hash_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
    return unit(sn_hash64(seed, stream, index));
}

double sn_hash_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    double u = unit(sn_hash64(seed, stream, index * 2)),
           v = unit(sn_hash64(seed, stream, index * 2 + 1));
    return sqrt(-2 * log(1 - u)) * cos(6.283185307179586 * v); /* Box & Muller, 1958 */
}

uint64_t sn_prng_u64(sn_prng *p)
{
    return sn_hash64(p->seed, 0, p->next++);
}

double sn_prng_uniform(sn_prng *p)
{
    return unit(sn_prng_u64(p));
}

int64_t sn_prng_below(sn_prng *p, int64_t n)
{
    return (int64_t) (((__uint128_t) sn_prng_u64(p) * (uint64_t) n) >> 64);
}
