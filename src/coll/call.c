/* SPDX-License-Identifier: Apache-2.0
 *
 * call — what a call means: how long its buffers are, whether it makes sense, and what is equal for
 * all members. */
#include "coll/coll_private.h"

static bool reduces(const sn_coll_call *c)
{
    return c->op == SN_ALL_REDUCE || c->op == SN_REDUCE_SCATTER;
}

int coll_blocks_in(const sn_coll_req *r)
{
    bool root = r->group->me == r->call.root;
    switch (r->call.op) {
    case SN_REDUCE_SCATTER:
    case SN_ALL_TO_ALL:
        return r->group->size;
    case SN_SCATTER:
        return root ? r->group->size : 0;
    case SN_BROADCAST:
    case SN_BARRIER:
        return 0;
    default:
        return 1;
    }
}

int coll_blocks_out(const sn_coll_req *r)
{
    bool root = r->group->me == r->call.root;
    switch (r->call.op) {
    case SN_ALL_GATHER:
    case SN_ALL_TO_ALL:
        return r->group->size;
    case SN_GATHER:
        return root ? r->group->size : 0;
    case SN_BARRIER:
        return 0;
    default:
        return 1;
    }
}

int coll_blocks_most(const sn_coll_req *r)
{
    sn_coll_op op = r->call.op;
    return op == SN_ALL_REDUCE || op == SN_BROADCAST || op == SN_BARRIER ? 1 : r->group->size;
}

bool coll_in_place(const sn_coll_req *r)
{
    return r->many == NULL && r->call.in == r->call.out && coll_blocks_in(r) == coll_blocks_out(r);
}

sn_algo_call coll_call_algo(const sn_coll_req *r, int64_t count)
{
    return (sn_algo_call){.op = r->call.op,
                          .red = r->call.red,
                          .dtype = r->call.dtype,
                          .count = count,
                          .root = r->call.root,
                          .in_place = coll_in_place(r),
                          .deterministic = r->call.deterministic};
}

sn_coll_call coll_call_normal(const sn_coll_call *call)
{
    sn_coll_call c = *call;
    if (!reduces(&c)) {
        c.red = (unsigned) c.red < SN_REDS ? SN_SUM : c.red;
        c.deterministic = false;
    }
    if (c.op != SN_BROADCAST && c.op != SN_GATHER && c.op != SN_SCATTER)
        c.root = 0;
    if (c.op == SN_BROADCAST || c.op == SN_BARRIER)
        c.in = NULL;
    if (c.op == SN_BARRIER) {
        c.count = 0;
        c.dtype = SN_U8;
        c.out = NULL;
    }
    return c;
}

/* ---- does it make sense? ---- */

static bool overlaps(const void *a, uint64_t a_bytes, const void *b, uint64_t b_bytes)
{
    uintptr_t x = (uintptr_t) a, y = (uintptr_t) b;
    return a_bytes > 0 && b_bytes > 0 && x < y + b_bytes && y < x + a_bytes;
}

/* Whole in place where the sizes agree; the own block of the longer buffer otherwise. */
static bool buffers_ok(const sn_coll_req *r)
{
    uint64_t n = (uint64_t) r->call.count * sn_dtype_bytes(r->call.dtype);
    uint64_t in = n * (uint64_t) coll_blocks_in(r), out = n * (uint64_t) coll_blocks_out(r);
    if (in == 0 || !overlaps(r->call.in, in, r->call.out, out))
        return true;
    uintptr_t a = (uintptr_t) r->call.in, b = (uintptr_t) r->call.out;
    uint64_t mine = n * (uint64_t) r->group->me;
    if (in == out)
        return a == b;
    return in < out ? a == b + mine : b == a + mine;
}

static sn_status check_type(const sn_coll_req *r)
{
    const sn_coll_call *c = &r->call;
    if ((unsigned) c->op >= SN_COLL_OPS || (unsigned) c->red >= SN_REDS ||
        (unsigned) c->dtype >= SN_DTYPE_COUNT)
        return sn_fail(SN_EINVAL, "no such operation, reduction or type: %d, %d, %d", c->op, c->red,
                       c->dtype);
    if (reduces(c) && c->dtype != SN_F32 && c->dtype != SN_BF16 && c->dtype != SN_F16)
        return sn_fail(SN_ENOTSUP, "%s in group %s: %s cannot be reduced; F32, BF16 and F16 can",
                       sn_coll_op_name(c->op), r->group->name, sn_dtype_name(c->dtype));
    return SN_OK;
}

sn_status coll_call_check(const sn_coll_req *r)
{
    const sn_coll_call *c = &r->call;
    const sn_coll_group *g = r->group;
    SN_TRY(check_type(r));
    const char *name = sn_coll_op_name(c->op);
    if (c->count < 0 || c->count > (INT64_MAX >> 12) / g->size)
        return sn_fail(SN_EINVAL, "%s in group %s: %lld elements", name, g->name,
                       (long long) c->count);
    if (c->root < 0 || c->root >= g->size)
        return sn_fail(SN_EINVAL, "%s in group %s: root %d of %d members", name, g->name, c->root,
                       g->size);
    if (c->count > 0 && r->many == NULL &&
        ((coll_blocks_in(r) > 0 && c->in == NULL) || (coll_blocks_out(r) > 0 && c->out == NULL)))
        return sn_fail(SN_EINVAL, "%s in group %s: no buffer", name, g->name);
    if (r->many == NULL && !buffers_ok(r))
        return sn_fail(SN_EINVAL, "%s in group %s: in and out overlap in part", name, g->name);
    return SN_OK;
}
