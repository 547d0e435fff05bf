/* SPDX-License-Identifier: Apache-2.0
 * Ops that move elements and compute nothing. */
#include "kern/ref/ref.h"

/* Bytes of an element as run sees it: F32 after the adapter, the operands' own type without it. */
static size_t element(const sn_kernel *k)
{
    sn_dtype dtype = k->spec.out[0].dtype;
    return k->adapts || dtype == SN_F32 ? sizeof(real) : sn_dtype_bytes(dtype);
}

REF_RUN(fill_zero)
{
    memset(out[0], 0, (size_t) k->d.rows * element(k));
    return SN_OK;
}

REF_RUN(copy)
{
    memmove(out[0], in[0], (size_t) k->d.rows * element(k));
    return SN_OK;
}

REF_RUN(slice)
{
    const int64_t *n = k->d.n;
    size_t row = (size_t) n[2] * element(k);
    for (int64_t o = 0; o < n[0]; o++)
        memcpy((char *) out[0] + (size_t) (o * n[4]) * row,
               (const char *) in[0] + (size_t) (o * n[1] + n[3]) * row, (size_t) n[4] * row);
    return SN_OK;
}

/* dst[o][p] = src[p][o], blocks of L·I elements. */
static void swap_outer(char *dst, const char *src, int64_t o_count, int64_t p_count, size_t block)
{
    for (int64_t o = 0; o < o_count; o++)
        for (int64_t p = 0; p < p_count; p++)
            memcpy(dst + (size_t) (o * p_count + p) * block,
                   src + (size_t) (p * o_count + o) * block, block);
}

REF_RUN(unpack)
{
    const int64_t *n = k->d.n;
    swap_outer(out[0], in[0], n[0], n[1], (size_t) (n[2] * n[3]) * element(k));
    return SN_OK;
}

REF_RUN(pack)
{
    const int64_t *n = k->d.n;
    swap_outer(out[0], in[0], n[1], n[0], (size_t) (n[2] * n[3]) * element(k));
    return SN_OK;
}
