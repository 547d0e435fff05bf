/* SPDX-License-Identifier: Apache-2.0
 *
 * many — many small tensors reduced as one: the operation that stands for them is packed into and
 * out of the stage part by part, so they share one number, one algorithm and one set of signals. */
#include "coll/coll_private.h"

static sn_status check(const sn_coll_group *g, const sn_coll_call *c, const sn_coll_call *first)
{
    if (c->op != SN_ALL_REDUCE || c->red != first->red || c->dtype != first->dtype)
        return sn_fail(SN_EINVAL,
                       "many calls in group %s: all are all_reduces of one type and reduction",
                       g->name);
    if (c->count < 0 || c->count > INT64_MAX >> 16)
        return sn_fail(SN_EINVAL, "many calls in group %s: one of %lld elements", g->name,
                       (long long) c->count);
    if (c->count > 0 && (c->in == NULL || c->out == NULL))
        return sn_fail(SN_EINVAL, "many calls in group %s: one has no buffer", g->name);
    uintptr_t a = (uintptr_t) c->in, b = (uintptr_t) c->out;
    uintptr_t bytes = (uintptr_t) c->count * sn_dtype_bytes(c->dtype);
    if (a != b && a < b + bytes && b < a + bytes)
        return sn_fail(SN_EINVAL, "many calls in group %s: in and out overlap in part", g->name);
    return SN_OK;
}

sn_status coll_many_sum(const sn_coll_group *g, const sn_coll_call *calls, int n, sn_coll_call *ret)
{
    if (n < 1)
        return sn_fail(SN_EINVAL, "%d calls as one in group %s", n, g->name);
    if ((unsigned) calls[0].dtype >= SN_DTYPE_COUNT)
        return sn_fail(SN_EINVAL, "many calls in group %s: no such type", g->name);
    sn_coll_call sum = calls[0];
    sum.count = 0;
    sum.in = NULL;
    sum.out = NULL;
    for (int i = 0; i < n; i++) {
        SN_TRY(check(g, &calls[i], &calls[0]));
        sum.count = SN_MIN(sum.count + calls[i].count, INT64_MAX >> 16);
    }
    *ret = sum;
    return SN_OK;
}

uint32_t coll_many_hash(const sn_coll_call *calls, int n)
{
    uint64_t h = (uint64_t) n;
    for (int i = 0; i < n; i++)
        h = sn_hash64(h, (uint64_t) i, (uint64_t) calls[i].count);
    return (uint32_t) h | 1;
}
