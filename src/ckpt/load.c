/* SPDX-License-Identifier: Apache-2.0
 *
 * Loading: which stored pieces meet which wanted ones, file by file, in the order they lie. */
#include "ckpt/parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct copy { /* from one stored piece into one wanted */
    const ckpt_stored *from;
    const ckpt_tensor *tensor;
    const sn_piece *to;
    ckpt_block block; /* of `to` */
    uint64_t at;      /* of the stored bytes in the file; known once its header is read */
    ckpt_reader *reader;
    int64_t done;
} copy;

typedef struct copies {
    sn_arena *arena;
    copy *c;
    size_t count, cap;
} copies;

/* ---- what is wanted ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const ckpt_tensor *) a)->name, ((const ckpt_tensor *) b)->name);
}

static const ckpt_tensor *tensor_of(const sn_ckpt *c, const char *name)
{
    ckpt_tensor want = {.name = name};
    if (!c->table.tensors)
        return NULL;
    return bsearch(&want, c->table.tensor, c->table.tensors, sizeof want, by_name);
}

static sn_status absent(const sn_ckpt *c, const char *name)
{
    char show[80], near_show[80];
    sn_status status;
    const char **words = malloc((c->table.tensors + 1) * sizeof *words);
    for (size_t i = 0; words && i < c->table.tensors; i++)
        words[i] = c->table.tensor[i].name;
    const char *nearest = words ? sn_str_nearest(name, words, (int) c->table.tensors) : NULL;
    ckpt_show(show, name);
    if (nearest)
        status = sn_fail(SN_ENOTFOUND, "%s has no tensor \"%s\"; the nearest name is \"%s\"",
                         c->dir, show, ckpt_show(near_show, nearest));
    else
        status = sn_fail(SN_ENOTFOUND, "%s has no tensor \"%s\" among its %zu", c->dir, show,
                         c->table.tensors);
    free(words);
    return status;
}

static sn_status check_wanted(const sn_ckpt *c, const sn_piece *p, const ckpt_tensor **ret)
{
    char show[80], have[96], want[96];
    const ckpt_tensor *t = tensor_of(c, p->name);
    if (!t)
        return absent(c, p->name);
    if ((unsigned) p->dtype >= SN_DTYPE_COUNT || (unsigned) p->shape.rank > SN_RANK_MAX)
        return sn_fail(SN_EINVAL, "tensor \"%s\": no valid dtype and shape",
                       ckpt_show(show, p->name));
    if (t->dtype != p->dtype || !sn_shape_equal(t->shape, p->shape))
        return sn_fail(SN_EMISMATCH,
                       "tensor \"%s\" is %s %s in %s, the model has %s %s: a checkpoint of "
                       "another model",
                       ckpt_show(show, p->name), sn_dtype_name(t->dtype),
                       sn_shape_text(have, t->shape), c->dir, sn_dtype_name(p->dtype),
                       sn_shape_text(want, p->shape));
    *ret = t;
    return SN_OK;
}

static sn_status first_run(void *ctx, int64_t from, int64_t to, int64_t count)
{
    return SN_ECANCEL; /* one is enough to know that they meet */
}

static sn_status plan(const sn_ckpt *c, const sn_piece *p, copies *list)
{
    const ckpt_tensor *t = NULL;
    char show[80];
    SN_TRY(check_wanted(c, p, &t));
    ckpt_block block = {.flat_begin = p->flat_begin, .flat_count = p->flat_count};
    for (int d = 0; d < p->shape.rank; d++) {
        block.begin[d] = p->begin[d];
        block.extent[d] = p->extent[d];
    }
    if (!ckpt_block_valid(p->shape, &block) || (p->flat_count && !p->data))
        return sn_fail(SN_EINVAL, "tensor \"%s\": the wanted piece is not within its shape",
                       ckpt_show(show, p->name));
    for (int i = 0; i < t->pieces; i++) {
        if (ckpt_runs(t->shape, &t->piece[i].block, &block, first_run, NULL) != SN_ECANCEL)
            continue;
        list->c = sn_arena_grow(list->arena, list->c, list->count, list->count + 1, sizeof *list->c,
                                &list->cap);
        list->c[list->count++] = (copy){.from = &t->piece[i], .tensor = t, .to = p, .block = block};
    }
    return SN_OK;
}

/* ---- moving the bytes ---- */

static int by_file(const void *a, const void *b)
{
    const copy *x = a, *y = b;
    return x->from->file - y->from->file;
}

static int by_offset(const void *a, const void *b)
{
    const copy *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

/* The manifest's words against the file's own header. */
static sn_status locate(const ckpt_file *file, copy *c)
{
    char show[80];
    const ckpt_tensor *t = c->tensor;
    const ckpt_entry *e = ckpt_file_entry(file, c->from->key);
    if (!e)
        return sn_fail(SN_ECORRUPT, "%s: the manifest names a tensor \"%s\" that is not in it",
                       file->name, ckpt_show(show, c->from->key));
    uint64_t bytes = (uint64_t) c->from->block.flat_count * sn_dtype_bytes(t->dtype);
    if (e->dtype != t->dtype || e->end - e->begin != bytes)
        return sn_fail(SN_ECORRUPT, "%s: tensor \"%s\" is not what the manifest says", file->name,
                       ckpt_show(show, c->from->key));
    c->at = file->data_at + e->begin;
    return SN_OK;
}

static sn_status move_run(void *ctx, int64_t from, int64_t to, int64_t count)
{
    copy *c = ctx;
    size_t width = sn_dtype_bytes(c->tensor->dtype);
    c->done += count;
    return ckpt_reader_get(c->reader, c->at + (uint64_t) from * width, (uint64_t) count * width,
                           (char *) c->to->data + (size_t) to * width);
}

static sn_status from_reader(const sn_ckpt *ckpt, ckpt_file *file, ckpt_reader *r, copy *c,
                             size_t n)
{
    SN_TRY(ckpt_file_verify(file, r));
    SN_TRY(ckpt_file_header(ckpt, file, r));
    for (size_t i = 0; i < n; i++)
        SN_TRY(locate(file, &c[i]));
    qsort(c, n, sizeof *c, by_offset);
    for (size_t i = 0; i < n; i++) {
        c[i].reader = r;
        SN_TRY(ckpt_runs(c[i].tensor->shape, &c[i].from->block, &c[i].block, move_run, &c[i]));
    }
    return SN_OK;
}

static sn_status from_file(const sn_ckpt *ckpt, ckpt_file *file, copy *c, size_t n)
{
    char path[4096];
    ckpt_reader r;
    SN_TRY(ckpt_file_open(ckpt, file, path, &r));
    sn_status status = from_reader(ckpt, file, &r, c, n);
    ckpt_reader_close(&r);
    return status < 0 ? sn_fail_in(status, "%s", ckpt->dir) : SN_OK;
}

static sn_status load(const sn_ckpt *c, const sn_piece *piece, int pieces, copies *list)
{
    int64_t wanted = 0, done = 0;
    for (int i = 0; i < pieces; i++) {
        SN_TRY(plan(c, &piece[i], list));
        wanted += piece[i].flat_count;
    }
    if (list->count)
        qsort(list->c, list->count, sizeof *list->c, by_file);
    for (size_t i = 0, n; i < list->count; i += n) {
        int file = list->c[i].from->file;
        for (n = 1; i + n < list->count && list->c[i + n].from->file == file;)
            n++;
        SN_TRY(from_file(c, &c->table.file[file], list->c + i, n));
    }
    for (size_t i = 0; i < list->count; i++)
        done += list->c[i].done;
    return done == wanted ? SN_OK
                          : sn_fail(SN_ECORRUPT, "%s: %lld of %lld wanted elements are not in it",
                                    c->dir, (long long) (wanted - done), (long long) wanted);
}

sn_status sn_ckpt_load(const sn_ckpt *c, sn_piece *piece, int pieces)
{
    copies list = {.arena = sn_arena_create()};
    sn_status status = load(c, piece, pieces, &list);
    sn_arena_free(list.arena);
    return status;
}

/* ---- are they numbers? ---- */

static bool finite_at(const sn_piece *p, int64_t i)
{
    uint16_t half;
    switch (p->dtype) {
    case SN_F32:
        return isfinite(((const float *) p->data)[i]);
    case SN_F64:
        return isfinite(((const double *) p->data)[i]);
    case SN_BF16:
        half = ((const uint16_t *) p->data)[i];
        return (half & 0x7f80) != 0x7f80;
    case SN_F16:
        half = ((const uint16_t *) p->data)[i];
        return (half & 0x7c00) != 0x7c00;
    default:
        return true;
    }
}

sn_status sn_ckpt_check_finite(const sn_piece *piece, int pieces)
{
    char show[80];
    for (int k = 0; k < pieces; k++)
        for (int64_t i = 0; i < piece[k].flat_count; i++)
            if (!finite_at(&piece[k], i))
                return sn_fail(SN_EINVAL,
                               "tensor \"%s\" holds NaN or infinity (element %lld of the piece "
                               "read): train from other weights",
                               ckpt_show(show, piece[k].name), (long long) i);
    return SN_OK;
}
