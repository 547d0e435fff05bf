/* SPDX-License-Identifier: Apache-2.0
 *
 * The manifest: what the ranks said about their parts, one below the other, and a seal.
 *
 *   {"format":"supernode-checkpoint","version":1,"step":200,"meta":"{…}","parts":[
 *   {"file":"r0000.safetensors","bytes":…,"xxh3_64":"…","pieces":[
 *   {"tensor":"h.0.w","dtype":"F32","shape":[4,6],"key":"h.0.w@3","begin":[0,2],"extent":[4,2],
 *    "flat":[3,4]},…]},
 *   …],
 *   "seal":"0123456789abcdef"}
 *
 * A piece without key, begin, extent and flat is a whole tensor under its own name. The seal is
 * the XXH3-64 of all bytes before the line it stands on. */
#include "ckpt/parts.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define FORMAT "supernode-checkpoint"
#define SEAL_BEFORE "\"seal\":\""
#define SEAL_AFTER "\"}\n"

enum { VERSION = 1, SEAL_BYTES = sizeof SEAL_BEFORE - 1 + 16 + sizeof SEAL_AFTER - 1 };

typedef struct ckpt_row {
    const char *name;
    sn_dtype dtype;
    sn_shape shape;
    ckpt_stored piece;
} ckpt_row;

/* ---- reading values ---- */

static sn_status want_text(const json_t *o, const char *key, sn_arena *arena, const char **ret)
{
    const json_t *v = json_object_get(o, key);
    if (!json_is_string(v))
        return sn_fail(SN_ECORRUPT, "\"%s\" is not a text", key);
    *ret = sn_arena_str(arena, json_string_value(v));
    return SN_OK;
}

static sn_status want_int(const json_t *o, const char *key, int64_t *ret)
{
    const json_t *v = json_object_get(o, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return sn_fail(SN_ECORRUPT, "\"%s\" is not a number ≥ 0", key);
    *ret = json_integer_value(v);
    return SN_OK;
}

static bool hex64(const char *text, uint64_t *ret)
{
    char *end;
    if (strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return false;
    *ret = strtoull(text, &end, 16);
    return true;
}

static sn_status want_ints(const json_t *o, const char *key, int64_t *v, int max, int *ret_count)
{
    const json_t *list = json_object_get(o, key);
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n > (size_t) max)
        return sn_fail(SN_ECORRUPT, "\"%s\" is not a list of up to %d numbers", key, max);
    for (size_t i = 0; i < n; i++) {
        const json_t *x = json_array_get(list, i);
        if (!json_is_integer(x) || json_integer_value(x) < 0)
            return sn_fail(SN_ECORRUPT, "\"%s\" holds something else than numbers ≥ 0", key);
        v[i] = json_integer_value(x);
    }
    *ret_count = (int) n;
    return SN_OK;
}

/* ---- parts ---- */

static sn_status row_place(const json_t *o, sn_arena *arena, ckpt_row *row)
{
    int n = 0, m = 0;
    int64_t flat[2];
    ckpt_block *b = &row->piece.block;
    if (!json_object_get(o, "key"))
        return SN_OK; /* whole, under its own name */
    SN_TRY(want_text(o, "key", arena, &row->piece.key));
    SN_TRY(want_ints(o, "begin", b->begin, SN_RANK_MAX, &n));
    SN_TRY(want_ints(o, "extent", b->extent, SN_RANK_MAX, &m));
    if (n != row->shape.rank || m != row->shape.rank)
        return sn_fail(SN_ECORRUPT, "a block of another rank than its tensor");
    SN_TRY(want_ints(o, "flat", flat, 2, &n));
    if (n != 2)
        return sn_fail(SN_ECORRUPT, "\"flat\" is not two numbers");
    b->flat_begin = flat[0];
    b->flat_count = flat[1];
    return ckpt_block_valid(row->shape, b) ? SN_OK
                                           : sn_fail(SN_ECORRUPT, "a block outside its tensor");
}

static sn_status row_parse(const json_t *o, sn_arena *arena, ckpt_row *row)
{
    const char *dtype;
    int64_t count, bytes;
    SN_TRY(want_text(o, "dtype", arena, &dtype));
    if (!sn_dtype_parse(dtype, &row->dtype))
        return sn_fail(SN_ECORRUPT, "an unknown dtype");
    SN_TRY(want_ints(o, "shape", row->shape.dim, SN_RANK_MAX, &row->shape.rank));
    if (!ckpt_shape_bytes(row->shape, row->dtype, &count, &bytes))
        return sn_fail(SN_ECORRUPT, "a shape with more elements than memory");
    row->piece.key = row->name;
    row->piece.block = ckpt_block_whole(row->shape, count);
    return row_place(o, arena, row);
}

static void rows_add(ckpt_table *t, const ckpt_row *row)
{
    t->row = sn_arena_grow(t->arena, t->row, t->rows, t->rows + 1, sizeof *row, &t->rows_cap);
    t->row[t->rows++] = *row;
}

int ckpt_table_add_file(ckpt_table *t, const ckpt_file *file)
{
    t->file = sn_arena_grow(t->arena, t->file, t->files, t->files + 1, sizeof *file, &t->files_cap);
    t->file[t->files] = *file;
    return (int) t->files++;
}

static sn_status file_parse(const json_t *o, sn_arena *arena, ckpt_file *file)
{
    const char *hash;
    char show[80];
    int64_t bytes;
    SN_TRY(want_text(o, "file", arena, &file->name));
    if (!ckpt_file_name_ok(file->name))
        return sn_fail(SN_ECORRUPT, "\"%s\" is not a plain file name", ckpt_show(show, file->name));
    SN_TRY(want_int(o, "bytes", &bytes));
    SN_TRY(want_text(o, "xxh3_64", arena, &hash));
    if (!hex64(hash, &file->hash))
        return sn_fail(SN_ECORRUPT, "\"xxh3_64\" is not 16 hexadecimal digits");
    file->bytes = (uint64_t) bytes;
    file->hashed = true;
    return SN_OK;
}

static sn_status part_parse(const json_t *o, ckpt_table *t)
{
    ckpt_file file = {0};
    char show[80];
    SN_TRY(file_parse(o, t->arena, &file));
    for (size_t i = 0; i < t->files; i++)
        if (!strcmp(t->file[i].name, file.name))
            return sn_fail(SN_ECORRUPT, "%s is there twice", file.name);
    int index = ckpt_table_add_file(t, &file);
    const json_t *pieces = json_object_get(o, "pieces");
    if (!json_is_array(pieces))
        return sn_fail(SN_ECORRUPT, "%s: \"pieces\" is not a list", file.name);
    for (size_t i = 0; i < json_array_size(pieces); i++) {
        const json_t *p = json_array_get(pieces, i);
        ckpt_row row = {.piece.file = index};
        sn_status status = want_text(p, "tensor", t->arena, &row.name);
        if (status < 0)
            return sn_fail_in(status, "%s: piece %zu", file.name, i);
        status = row_parse(p, t->arena, &row);
        if (status < 0)
            return sn_fail_in(status, "%s: tensor \"%s\"", file.name, ckpt_show(show, row.name));
        rows_add(t, &row);
    }
    return SN_OK;
}

sn_status ckpt_table_add_part(ckpt_table *t, const char *text, const char *what)
{
    json_error_t error;
    json_t *o = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    sn_status status =
        o ? part_parse(o, t) : sn_fail(SN_ECORRUPT, "line %d: %s", error.line, error.text);
    json_decref(o);
    return status < 0 ? sn_fail_in(status, "%s", what) : SN_OK;
}

void ckpt_table_add_whole(ckpt_table *t, const ckpt_entry *e, int file)
{
    ckpt_row row = {.name = e->name, .dtype = e->dtype, .shape = e->shape};
    row.piece = (ckpt_stored){ckpt_block_whole(e->shape, sn_shape_count(e->shape)), e->name, file};
    rows_add(t, &row);
}

/* ---- rows to tensors ---- */

static int by_tensor(const void *a, const void *b)
{
    return strcmp(((const ckpt_row *) a)->name, ((const ckpt_row *) b)->name);
}

static sn_status agree(const ckpt_table *t, const ckpt_row *a, const ckpt_row *b)
{
    char x[96], y[96];
    if (a->dtype == b->dtype && sn_shape_equal(a->shape, b->shape))
        return SN_OK;
    return sn_fail(SN_EMISMATCH, "%s %s in %s, %s %s in %s", sn_dtype_name(a->dtype),
                   sn_shape_text(x, a->shape), t->file[a->piece.file].name, sn_dtype_name(b->dtype),
                   sn_shape_text(y, b->shape), t->file[b->piece.file].name);
}

/* Rows [0, n) are of one tensor. */
static sn_status tensor_build(ckpt_table *t, const ckpt_row *row, size_t n, ckpt_tensor *tensor)
{
    *tensor = (ckpt_tensor){.name = row->name, .dtype = row->dtype, .shape = row->shape};
    tensor->piece = SN_NEW_N(t->arena, ckpt_stored, n);
    for (size_t i = 0; i < n; i++) {
        SN_TRY(agree(t, row, &row[i]));
        if (row[i].piece.block.flat_count)
            tensor->piece[tensor->pieces++] = row[i].piece;
    }
    ckpt_block **block = malloc((n + 1) * sizeof *block);
    if (!block)
        return sn_fail(SN_ENOMEM, "no memory for %zu pieces", n);
    for (int i = 0; i < tensor->pieces; i++)
        block[i] = &tensor->piece[i].block;
    sn_status status = ckpt_cover(tensor->shape, block, tensor->pieces);
    free(block);
    return status;
}

sn_status ckpt_table_finish(ckpt_table *t)
{
    char show[80];
    if (t->rows)
        qsort(t->row, t->rows, sizeof *t->row, by_tensor);
    t->tensor = SN_NEW_N(t->arena, ckpt_tensor, t->rows);
    for (size_t i = 0, n; i < t->rows; i += n) {
        for (n = 1; i + n < t->rows && !strcmp(t->row[i + n].name, t->row[i].name);)
            n++;
        sn_status status = tensor_build(t, t->row + i, n, &t->tensor[t->tensors++]);
        if (status < 0)
            return sn_fail_in(status, "tensor \"%s\"", ckpt_show(show, t->row[i].name));
    }
    return SN_OK;
}

/* ---- the whole text ---- */

static sn_status root_parse(const json_t *root, ckpt_table *t)
{
    const char *format;
    int64_t version;
    SN_TRY(want_text(root, "format", t->arena, &format));
    if (strcmp(format, FORMAT))
        return sn_fail(SN_ECORRUPT, "not the manifest of a checkpoint");
    SN_TRY(want_int(root, "version", &version));
    if (version != VERSION)
        return sn_fail(SN_ENOTSUP, "version %lld, this program reads version %d",
                       (long long) version, VERSION);
    SN_TRY(want_int(root, "step", &t->step));
    SN_TRY(want_text(root, "meta", t->arena, &t->meta));
    const json_t *parts = json_object_get(root, "parts");
    if (!json_is_array(parts))
        return sn_fail(SN_ECORRUPT, "\"parts\" is not a list");
    for (size_t i = 0; i < json_array_size(parts); i++)
        SN_TRY(part_parse(json_array_get(parts, i), t));
    return ckpt_table_finish(t);
}

static sn_status check_seal(const char *text, size_t bytes)
{
    char want[SEAL_BYTES + 1];
    if (bytes < SEAL_BYTES)
        return sn_fail(SN_ECORRUPT, "torn: %zu bytes", bytes);
    snprintf(want, sizeof want, SEAL_BEFORE "%016" PRIx64 SEAL_AFTER,
             (uint64_t) XXH3_64bits(text, bytes - SEAL_BYTES));
    return memcmp(want, text + bytes - SEAL_BYTES, SEAL_BYTES)
               ? sn_fail(SN_ECORRUPT, "torn or changed: its own checksum differs")
               : SN_OK;
}

sn_status ckpt_manifest_parse(const char *text, size_t bytes, bool sealed, ckpt_table *t)
{
    json_error_t error;
    if (sealed)
        SN_TRY(check_seal(text, bytes));
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return sn_fail(SN_ECORRUPT, "line %d: %s", error.line, error.text);
    sn_status status = root_parse(root, t);
    json_decref(root);
    return status;
}

void ckpt_manifest_text(sn_str *out, int64_t step, const char *meta, const char *const *part,
                        int parts)
{
    sn_str_printf(out, "{\"format\":\"" FORMAT "\",\"version\":%d,\"step\":%lld,\"meta\":", VERSION,
                  (long long) step);
    ckpt_json_text(out, meta);
    sn_str_add(out, ",\"parts\":[\n");
    for (int i = 0; i < parts; i++) {
        sn_str_add(out, part[i]);
        sn_str_add(out, i + 1 < parts ? ",\n" : "\n");
    }
    sn_str_add(out, "],\n");
    sn_str_printf(out, SEAL_BEFORE "%016" PRIx64 SEAL_AFTER,
                  (uint64_t) XXH3_64bits(out->data, out->len));
}

/* ---- text ---- */

void ckpt_json_text(sn_str *out, const char *text)
{
    sn_str_add(out, "\"");
    for (const char *p = text; *p;) {
        size_t plain = 0;
        while ((unsigned char) p[plain] >= 0x20 && p[plain] != '"' && p[plain] != '\\')
            plain++;
        sn_str_add_n(out, p, plain);
        p += plain;
        if (*p == '"' || *p == '\\')
            sn_str_printf(out, "\\%c", *p++);
        else if (*p)
            sn_str_printf(out, "\\u%04x", *p++);
    }
    sn_str_add(out, "\"");
}

/* Well-formed UTF-8 as of RFC 3629: no overlong forms, no surrogates, nothing past U+10FFFF. */
bool ckpt_text_ok(const char *text)
{
    const unsigned char *p = (const unsigned char *) text;
    while (*p) {
        static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
        int more = *p < 0x80 ? 0 : *p >> 5 == 6 ? 1 : *p >> 4 == 14 ? 2 : *p >> 3 == 30 ? 3 : -1;
        if (more < 0)
            return false;
        uint32_t u = more ? *p & (0x3fu >> more) : *p;
        for (int i = 1; i <= more; i++) {
            if ((p[i] & 0xc0) != 0x80)
                return false;
            u = u << 6 | (p[i] & 0x3f);
        }
        if (u < least[more] || u > 0x10ffff || (u >= 0xd800 && u < 0xe000))
            return false;
        p += more + 1;
    }
    return true;
}
