/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank's file: header, then the pieces, written once from front to back. All bytes pass a block
 * of 4 MiB, are hashed there while they are in cache, and go to the disk past the page cache, which
 * would only be in the way of a file this large; the last bytes, and a file system that refuses
 * direct writes, take the ordinary path. */
#include "ckpt/parts.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum {
    BLOCK = 4 << 20, /* one write */
    CHUNK = 1 << 17, /* copied, then hashed: fits the second-level cache */
    PAGE = 4096,     /* direct writes: address, length and offset are multiples of it */
    ALIGN = 64,      /* of the first byte of data in the file */
    NAMES_MAX = 10000
};

typedef struct item { /* a piece on its way into the file */
    const sn_piece *piece;
    ckpt_block block;
    char *key;
    bool stored; /* has bytes or is a whole tensor of none */
} item;

typedef struct writer {
    int fd;
    bool direct; /* past the page cache */
    char path[4096];
    unsigned char *block;
    size_t fill;
    uint64_t bytes; /* handed to the disk */
    XXH3_state_t *hash;
} writer;

/* ---- what to write ---- */

static sn_status check_piece(const sn_piece *p, ckpt_block *ret)
{
    char show[80];
    int64_t count, bytes;
    if (!p->name || !*p->name || !ckpt_text_ok(p->name) || !strcmp(p->name, "__metadata__"))
        return sn_fail(SN_EINVAL, "\"%s\" cannot be the name of a tensor",
                       ckpt_show(show, p->name ? p->name : ""));
    const char *name = ckpt_show(show, p->name);
    if ((unsigned) p->dtype >= SN_DTYPE_COUNT || (unsigned) p->shape.rank > SN_RANK_MAX ||
        !ckpt_shape_bytes(p->shape, p->dtype, &count, &bytes))
        return sn_fail(SN_EINVAL, "tensor \"%s\": no valid dtype and shape", name);
    *ret = (ckpt_block){.flat_begin = p->flat_begin, .flat_count = p->flat_count};
    for (int d = 0; d < p->shape.rank; d++) {
        ret->begin[d] = p->begin[d];
        ret->extent[d] = p->extent[d];
    }
    if (!ckpt_block_valid(p->shape, ret))
        return sn_fail(SN_EINVAL, "tensor \"%s\": the piece is not within its shape", name);
    if (p->flat_count && !p->data)
        return sn_fail(SN_EINVAL, "tensor \"%s\": a piece without data", name);
    return SN_OK;
}

static int by_key(const void *a, const void *b)
{
    return strcmp(*(char *const *) a, *(char *const *) b);
}

static const char *repeated(const item *it, int n, char **sorted)
{
    int keys = 0;
    for (int i = 0; i < n; i++)
        if (it[i].stored)
            sorted[keys++] = it[i].key;
    qsort(sorted, (size_t) keys, sizeof *sorted, by_key);
    for (int i = 1; i < keys; i++)
        if (!strcmp(sorted[i - 1], sorted[i]))
            return sorted[i];
    return NULL;
}

/* A user's tensor may be called like one of our numbered keys: then the next numbers are tried. */
static sn_status name_keys(item *it, int n, sn_arena *arena)
{
    const char *twice = NULL;
    char show[80], **sorted = SN_NEW_N(arena, char *, n);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < n; i++)
            it[i].key = ckpt_block_is_whole(it[i].piece->shape, &it[i].block)
                            ? sn_arena_str(arena, it[i].piece->name)
                            : sn_arena_printf(arena, "%s@%d", it[i].piece->name, i + round * n);
        twice = repeated(it, n, sorted);
        if (!twice)
            return SN_OK;
    }
    return sn_fail(SN_EINVAL, "tensor \"%s\" is given twice", ckpt_show(show, twice));
}

/* The widest elements first, so that each tensor is aligned to its own. */
static int by_width(const void *a, const void *b)
{
    const item *x = a, *y = b;
    size_t wx = sn_dtype_bytes(x->piece->dtype), wy = sn_dtype_bytes(y->piece->dtype);
    if (wx != wy)
        return wx > wy ? -1 : 1;
    return (x->piece > y->piece) - (x->piece < y->piece);
}

/* A tensor of no elements may be "whole" in many pieces; the file has it once. */
static bool empty_again(const item *it, int i)
{
    if (it[i].block.flat_count)
        return false;
    for (int k = 0; k < i; k++)
        if (it[k].stored && !it[k].block.flat_count &&
            !strcmp(it[k].piece->name, it[i].piece->name))
            return true;
    return false;
}

static sn_status collect(const sn_piece *piece, int pieces, sn_arena *arena, item **ret)
{
    item *it = SN_NEW_N(arena, item, pieces);
    for (int i = 0; i < pieces; i++) {
        it[i].piece = &piece[i];
        SN_TRY(check_piece(&piece[i], &it[i].block));
        bool whole = ckpt_block_is_whole(piece[i].shape, &it[i].block);
        it[i].stored = it[i].block.flat_count || (whole && !empty_again(it, i));
    }
    qsort(it, (size_t) pieces, sizeof *it, by_width);
    SN_TRY(name_keys(it, pieces, arena));
    *ret = it;
    return SN_OK;
}

static uint64_t item_bytes(const item *it)
{
    return (uint64_t) it->block.flat_count * sn_dtype_bytes(it->piece->dtype);
}

static void dims_text(sn_str *out, const char *key, const int64_t *v, int n)
{
    sn_str_printf(out, ",\"%s\":[", key);
    for (int i = 0; i < n; i++)
        sn_str_printf(out, "%s%lld", i ? "," : "", (long long) v[i]);
    sn_str_add(out, "]");
}

/* Length, JSON, spaces up to the alignment of the data. */
static sn_status header_text(const item *it, int n, sn_str *out)
{
    uint64_t at = 0;
    sn_str_add_n(out, "\0\0\0\0\0\0\0\0", 8);
    sn_str_add(out, "{\"__metadata__\":{\"format\":\"pt\",\"writer\":\"supernode\"}");
    for (int i = 0; i < n; i++) {
        if (!it[i].stored)
            continue;
        bool whole = ckpt_block_is_whole(it[i].piece->shape, &it[i].block);
        sn_str_add(out, ",");
        ckpt_json_text(out, it[i].key);
        sn_str_printf(out, ":{\"dtype\":\"%s\"", sn_dtype_name(it[i].piece->dtype));
        dims_text(out, "shape", whole ? it[i].piece->shape.dim : &it[i].block.flat_count,
                  whole ? it[i].piece->shape.rank : 1);
        int64_t offset[2] = {(int64_t) at, (int64_t) (at + item_bytes(&it[i]))};
        dims_text(out, "data_offsets", offset, 2);
        sn_str_add(out, "}");
        at += item_bytes(&it[i]);
    }
    sn_str_add(out, "}");
    while (out->len % ALIGN)
        sn_str_add(out, " ");
    uint64_t length = out->len - 8;
    for (int i = 0; i < 8; i++)
        out->data[i] = (char) (length >> (8 * i));
    if (length > CKPT_HEADER_MAX)
        return sn_fail(SN_EFIT,
                       "%d pieces need a header of %llu bytes, %d are allowed: write "
                       "fewer, larger tensors",
                       n, (unsigned long long) length, CKPT_HEADER_MAX);
    return SN_OK;
}

static void part_text(const item *it, int n, const char *file, const writer *w, sn_str *out)
{
    sn_str_printf(out,
                  "{\"file\":\"%s\",\"bytes\":%llu,\"xxh3_64\":\"%016" PRIx64 "\",\"pieces\":[",
                  file, (unsigned long long) w->bytes, (uint64_t) XXH3_64bits_digest(w->hash));
    for (int i = 0; i < n; i++) {
        const ckpt_block *b = &it[i].block;
        int64_t flat[2] = {b->flat_begin, b->flat_count};
        sn_str_add(out, i ? ",\n{\"tensor\":" : "\n{\"tensor\":");
        ckpt_json_text(out, it[i].piece->name);
        sn_str_printf(out, ",\"dtype\":\"%s\"", sn_dtype_name(it[i].piece->dtype));
        dims_text(out, "shape", it[i].piece->shape.dim, it[i].piece->shape.rank);
        if (!ckpt_block_is_whole(it[i].piece->shape, b)) {
            sn_str_add(out, ",\"key\":");
            ckpt_json_text(out, it[i].key);
            dims_text(out, "begin", b->begin, it[i].piece->shape.rank);
            dims_text(out, "extent", b->extent, it[i].piece->shape.rank);
            dims_text(out, "flat", flat, 2);
        }
        sn_str_add(out, "}");
    }
    sn_str_add(out, "]}");
}

/* ---- writing ---- */

static void drop_direct(writer *w)
{
    int flags = fcntl(w->fd, F_GETFL);
    w->direct = false;
    if (flags >= 0)
        fcntl(w->fd, F_SETFL, flags & ~O_DIRECT);
}

static sn_status put(writer *w, const unsigned char *data, size_t bytes)
{
    for (size_t put = 0; put < bytes;) {
        ssize_t n = write(w->fd, data + put, bytes - put);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EINVAL && w->direct) {
            drop_direct(w); /* this file system does not, or not in these sizes */
            continue;
        }
        if (n <= 0) {
            errno = n ? errno : ENOSPC;
            return sn_file_failed("write", w->path);
        }
        put += (size_t) n;
    }
    /* Start the disk now: the fsync at the end then waits for little. */
    if (!w->direct)
        sync_file_range(w->fd, (off_t) w->bytes, (off_t) bytes, SYNC_FILE_RANGE_WRITE);
    w->bytes += bytes;
    return SN_OK;
}

/* Whole pages as they are, what is left over without O_DIRECT: only the end of the file has any. */
static sn_status put_block(writer *w)
{
    size_t pages = w->fill / PAGE * PAGE, rest = w->fill - pages;
    w->fill = 0;
    if (pages)
        SN_TRY(put(w, w->block, pages));
    if (rest) {
        if (w->direct)
            drop_direct(w);
        SN_TRY(put(w, w->block + pages, rest));
    }
    return SN_OK;
}

static sn_status add(writer *w, const void *data, uint64_t bytes)
{
    const unsigned char *from = data;
    while (bytes) {
        size_t n = SN_MIN(SN_MIN((uint64_t) CHUNK, bytes), (uint64_t) (BLOCK - w->fill));
        memcpy(w->block + w->fill, from, n);
        XXH3_64bits_update(w->hash, w->block + w->fill, n);
        w->fill += n;
        from += n;
        bytes -= n;
        if (w->fill == BLOCK)
            SN_TRY(put_block(w));
    }
    return SN_OK;
}

/* rRANK.safetensors, or the first free rRANK-K: a file of that name may belong to a checkpoint
 * that is complete and must stay so until this one is published. */
static sn_status create(writer *w, const char *dir, int rank, char name[64])
{
    for (int k = 0; k < NAMES_MAX; k++) {
        if (k)
            snprintf(name, 64, "r%04d-%d.safetensors", rank, k);
        else
            snprintf(name, 64, "r%04d.safetensors", rank);
        if (snprintf(w->path, sizeof w->path, "%s/%s", dir, name) >= (int) sizeof w->path)
            return sn_fail(SN_EINVAL, "the path %.80s… is too long", dir);
        w->fd = open(w->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        if (w->fd >= 0) {
            w->direct = !fcntl(w->fd, F_SETFL, O_DIRECT); /* not every file system has it */
            return SN_OK;
        }
        if (errno != EEXIST)
            return sn_file_failed("write", w->path);
    }
    return sn_fail(SN_EEXIST, "%s and %d more of its name are there already: clear %s", w->path,
                   NAMES_MAX - 1, dir);
}

static sn_status write_file(writer *w, const sn_str *header, const item *it, int n)
{
    SN_TRY(add(w, header->data, header->len));
    for (int i = 0; i < n; i++)
        SN_TRY(add(w, it[i].piece->data, item_bytes(&it[i])));
    SN_TRY(put_block(w));
    return fsync(w->fd) ? sn_file_failed("sync", w->path) : SN_OK;
}

static sn_status create_and_write(writer *w, const char *dir, int rank, const sn_str *header,
                                  const item *it, int n, char name[64])
{
    SN_TRY(create(w, dir, rank, name));
    sn_status status = write_file(w, header, it, n);
    if (close(w->fd) && status >= 0)
        status = sn_file_failed("close", w->path);
    if (status < 0)
        unlink(w->path);
    return status;
}

sn_status sn_ckpt_write_part(const char *dir, int64_t step, int rank, const sn_piece *piece,
                             int pieces, sn_str *ret_part)
{
    char step_dir[CKPT_STEP_DIR], path[3900], name[64];
    item *it = NULL;
    sn_status status;
    writer w = {.fd = -1};
    sn_str header = {0};
    if (step < 0 || rank < 0)
        return sn_fail(SN_EINVAL, "no checkpoint of step %lld, rank %d", (long long) step, rank);
    ckpt_step_dir(step_dir, step);
    if (snprintf(path, sizeof path, "%s/%s", dir, step_dir) >= (int) sizeof path)
        return sn_fail(SN_EINVAL, "the path %.80s… is too long", dir);
    sn_arena *arena = sn_arena_create();
    w.hash = XXH3_createState();
    w.block = aligned_alloc(PAGE, BLOCK);
    if (!w.hash || !w.block || XXH3_64bits_reset(w.hash) == XXH_ERROR) {
        status = sn_fail(SN_ENOMEM, "no memory to write a checkpoint");
        goto done;
    }
    SN_TRY_OR(collect(piece, pieces, arena, &it), done);
    SN_TRY_OR(header_text(it, pieces, &header), done);
    SN_TRY_OR(sn_dir_create(path), done);
    SN_TRY_OR(create_and_write(&w, path, rank, &header, it, pieces, name), done);
    sn_str_clear(ret_part);
    part_text(it, pieces, name, &w, ret_part);
done:
    XXH3_freeState(w.hash);
    free(w.block);
    sn_str_done(&header);
    sn_arena_free(arena);
    return status;
}
