/* SPDX-License-Identifier: Apache-2.0
 *
 * Rectangles of tensors, and ranges of flattened rectangles.
 *
 *   tensor [4,6], block begin (0,2) extent (4,2), flat range [3, 7):
 *
 *       . . a b . .        the block, flattened: a b c d e f g h
 *       . . c D . .        the piece:                  D E F G
 *       . . E F . .
 *       . . G h . . */
#include "ckpt/parts.h"

#include <stdlib.h>
#include <string.h>

enum {
    BLOCKS_MAX = 4096
}; /* different rectangles of one tensor; disjointness is checked pairwise */

bool ckpt_shape_bytes(sn_shape shape, sn_dtype dtype, int64_t *ret_count, int64_t *ret_bytes)
{
    int64_t count = 1, bytes, nonzero = (int64_t) sn_dtype_bytes(dtype);
    for (int i = 0; i < shape.rank; i++) {
        /* also with a zero among them no partial product may wrap */
        if (shape.dim[i] < 0 || __builtin_mul_overflow(nonzero, SN_MAX(shape.dim[i], 1), &nonzero))
            return false;
        count *= shape.dim[i];
    }
    bytes = count * (int64_t) sn_dtype_bytes(dtype);
    *ret_count = count;
    *ret_bytes = bytes;
    return true;
}

ckpt_block ckpt_block_whole(sn_shape shape, int64_t count)
{
    ckpt_block b = {.flat_count = count};
    for (int d = 0; d < shape.rank; d++)
        b.extent[d] = shape.dim[d];
    return b;
}

static int64_t elements(int rank, const ckpt_block *b)
{
    int64_t n = 1;
    for (int d = 0; d < rank; d++)
        n *= b->extent[d];
    return n;
}

bool ckpt_block_is_whole(sn_shape shape, const ckpt_block *b)
{
    for (int d = 0; d < shape.rank; d++)
        if (b->begin[d] || b->extent[d] != shape.dim[d])
            return false;
    return !b->flat_begin && b->flat_count == elements(shape.rank, b);
}

bool ckpt_block_valid(sn_shape shape, const ckpt_block *b)
{
    for (int d = 0; d < shape.rank; d++)
        if (b->begin[d] < 0 || b->extent[d] < 0 || b->begin[d] > shape.dim[d] ||
            b->extent[d] > shape.dim[d] - b->begin[d])
            return false;
    int64_t n = elements(shape.rank, b);
    return b->flat_begin >= 0 && b->flat_count >= 0 && b->flat_begin <= n &&
           b->flat_count <= n - b->flat_begin;
}

/* By rectangle, first dimension first, then by range. */
static int by_place(const void *a, const void *b)
{
    const ckpt_block *x = *(ckpt_block *const *) a, *y = *(ckpt_block *const *) b;
    for (int d = 0; d < SN_RANK_MAX; d++)
        if (x->begin[d] != y->begin[d])
            return x->begin[d] < y->begin[d] ? -1 : 1;
    for (int d = 0; d < SN_RANK_MAX; d++)
        if (x->extent[d] != y->extent[d])
            return x->extent[d] < y->extent[d] ? -1 : 1;
    return (x->flat_begin > y->flat_begin) - (x->flat_begin < y->flat_begin);
}

static bool same_rectangle(const ckpt_block *x, const ckpt_block *y)
{
    return !memcmp(x->begin, y->begin, sizeof x->begin) &&
           !memcmp(x->extent, y->extent, sizeof x->extent);
}

static bool disjoint(int rank, const ckpt_block *x, const ckpt_block *y)
{
    for (int d = 0; d < rank; d++)
        if (x->begin[d] >= y->begin[d] + y->extent[d] || y->begin[d] >= x->begin[d] + x->extent[d])
            return true;
    return false;
}

static const char *place_text(char out[96], int rank, const ckpt_block *b)
{
    sn_shape begin = {.rank = rank};
    memcpy(begin.dim, b->begin, sizeof begin.dim);
    return sn_shape_text(out, begin);
}

/* The ranges of the rectangle at block[0] … tile it; *ret_n is their number. */
static sn_status cover_ranges(int rank, ckpt_block *const *block, int n, int *ret_n)
{
    char at[96];
    int64_t next = 0, whole = elements(rank, block[0]);
    int i = 0;
    for (; i < n && same_rectangle(block[0], block[i]); i++) {
        if (block[i]->flat_begin != next)
            return sn_fail(SN_EINVAL, "elements %lld to %lld of the block at %s are %s",
                           (long long) SN_MIN(next, block[i]->flat_begin),
                           (long long) SN_MAX(next, block[i]->flat_begin),
                           place_text(at, rank, block[0]),
                           block[i]->flat_begin > next ? "nobody's" : "given twice");
        next += block[i]->flat_count;
    }
    if (next != whole)
        return sn_fail(SN_EINVAL, "elements %lld to %lld of the block at %s are nobody's",
                       (long long) next, (long long) whole, place_text(at, rank, block[0]));
    *ret_n = i;
    return SN_OK;
}

static sn_status cover_blocks(sn_shape shape, ckpt_block *const *one, int n)
{
    char at[96], other[96];
    int64_t sum = 0, whole = sn_shape_count(shape);
    for (int i = 0; i < n; i++) {
        for (int k = i + 1; k < n; k++) {
            if (shape.rank && one[k]->begin[0] >= one[i]->begin[0] + one[i]->extent[0])
                break; /* sorted: nor do those after it meet this one */
            if (!disjoint(shape.rank, one[i], one[k]))
                return sn_fail(SN_EINVAL, "the blocks at %s and %s overlap",
                               place_text(at, shape.rank, one[i]),
                               place_text(other, shape.rank, one[k]));
        }
        sum += elements(shape.rank, one[i]);
    }
    if (sum != whole)
        return sn_fail(SN_EINVAL, "%lld of its %lld elements are nobody's",
                       (long long) (whole - sum), (long long) whole);
    return SN_OK;
}

sn_status ckpt_cover(sn_shape shape, ckpt_block *const *block, int n)
{
    if (!n)
        return sn_shape_count(shape) ? sn_fail(SN_EINVAL, "nobody has any of it") : SN_OK;
    ckpt_block **sorted = malloc((size_t) n * sizeof *sorted);
    if (!sorted)
        return sn_fail(SN_ENOMEM, "no memory for %d pieces", n);
    memcpy(sorted, block, (size_t) n * sizeof *sorted);
    qsort(sorted, (size_t) n, sizeof *sorted, by_place);
    sn_status status = SN_OK;
    int blocks = 0;
    /* One of each rectangle moves to the front. */
    for (int i = 0, k = 1; i < n && status >= 0; i += k) {
        status = cover_ranges(shape.rank, sorted + i, n - i, &k);
        sorted[blocks++] = sorted[i];
        if (status >= 0 && blocks > BLOCKS_MAX)
            status = sn_fail(SN_ENOTSUP, "it is cut into more than %d blocks", BLOCKS_MAX);
    }
    if (status >= 0)
        status = cover_blocks(shape, sorted, blocks);
    free(sorted);
    return status;
}

/* ---- runs ---- */

/* Two blocks of one tensor with as few dimensions as they allow. */
typedef struct pair {
    int rank;
    int64_t shape[SN_RANK_MAX];
    ckpt_block a, b;
} pair;

/* Where both blocks span a dimension, it melts into the one before it. */
static pair melt(sn_shape shape, const ckpt_block *a, const ckpt_block *b)
{
    pair p = {.rank = 1, .shape = {1}, .a = *a, .b = *b};
    p.a.begin[0] = p.b.begin[0] = 0;
    p.a.extent[0] = p.b.extent[0] = 1;
    for (int d = 0; d < shape.rank; d++) {
        int64_t n = shape.dim[d];
        bool spanned = a->extent[d] == n && b->extent[d] == n;
        bool unit = p.shape[p.rank - 1] == 1; /* a leading 1 melts into anything */
        int t = spanned || unit ? p.rank - 1 : p.rank++;
        bool melts = spanned || unit;
        p.shape[t] = melts ? p.shape[t] * n : n;
        int64_t begin[2] = {a->begin[d], b->begin[d]}, extent[2] = {a->extent[d], b->extent[d]};
        ckpt_block *side[2] = {&p.a, &p.b};
        for (int s = 0; s < 2; s++) {
            side[s]->begin[t] = melts ? side[s]->begin[t] * n + begin[s] : begin[s];
            side[s]->extent[t] = melts ? side[s]->extent[t] * extent[s] : extent[s];
        }
    }
    return p;
}

/* The elements of one dimension-0 slice of a block. */
static int64_t slice(int rank, const ckpt_block *b)
{
    int64_t n = 1;
    for (int d = 1; d < rank; d++)
        n *= b->extent[d];
    return n;
}

/* Index of a place of the tensor within the flattened block. */
static int64_t flat_index(int rank, const ckpt_block *b, const int64_t *place)
{
    int64_t at = 0;
    for (int d = 0; d < rank; d++)
        at = at * b->extent[d] + (place[d] - b->begin[d]);
    return at;
}

/* The box where both blocks are, narrowed in dimension 0 to the rows that the ranges touch. */
static bool common_box(const pair *p, int64_t *low, int64_t *high)
{
    for (int d = 0; d < p->rank; d++) {
        low[d] = SN_MAX(p->a.begin[d], p->b.begin[d]);
        high[d] = SN_MIN(p->a.begin[d] + p->a.extent[d], p->b.begin[d] + p->b.extent[d]);
        if (low[d] >= high[d])
            return false;
    }
    const ckpt_block *side[2] = {&p->a, &p->b};
    for (int s = 0; s < 2; s++) {
        const ckpt_block *b = side[s];
        int64_t row = slice(p->rank, b);
        low[0] = SN_MAX(low[0], b->begin[0] + b->flat_begin / row);
        high[0] = SN_MIN(high[0], b->begin[0] + (b->flat_begin + b->flat_count - 1) / row + 1);
    }
    return low[0] < high[0];
}

/* One row of the box, cut to both ranges. */
static sn_status run(const pair *p, const int64_t *place, int64_t count, ckpt_run_fn *fn, void *ctx)
{
    int64_t from = flat_index(p->rank, &p->a, place) - p->a.flat_begin;
    int64_t to = flat_index(p->rank, &p->b, place) - p->b.flat_begin;
    int64_t cut = SN_MAX(0, SN_MAX(-from, -to));
    int64_t end = SN_MIN(count, SN_MIN(p->a.flat_count - from, p->b.flat_count - to));
    return cut < end ? fn(ctx, from + cut, to + cut, end - cut) : SN_OK;
}

sn_status ckpt_runs(sn_shape shape, const ckpt_block *from, const ckpt_block *to, ckpt_run_fn *fn,
                    void *ctx)
{
    int64_t low[SN_RANK_MAX], high[SN_RANK_MAX], place[SN_RANK_MAX];
    if (!from->flat_count || !to->flat_count)
        return SN_OK;
    pair p = melt(shape, from, to);
    if (!common_box(&p, low, high))
        return SN_OK;
    int last = p.rank - 1, d;
    memcpy(place, low, sizeof place);
    do {
        SN_TRY(run(&p, place, high[last] - low[last], fn, ctx));
        for (d = last - 1; d >= 0 && ++place[d] == high[d]; d--)
            place[d] = low[d];
    } while (d >= 0);
    return SN_OK;
}
