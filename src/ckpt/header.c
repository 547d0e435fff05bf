/* SPDX-License-Identifier: Apache-2.0
 *
 * A reader for the one JSON form a safetensors header has. It goes through the bytes once and
 * builds no tree, so that a header of millions of tensors costs what its table costs. */
#include "ckpt/parts.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 32 };

typedef struct cursor {
    const unsigned char *start, *p, *end;
    sn_arena *arena;
} cursor;

typedef struct entries {
    ckpt_entry *e;
    size_t count, cap;
} entries;

static sn_status bad(const cursor *c, const char *what)
{
    return sn_fail(SN_ECORRUPT, "header byte %zu: %s", (size_t) (c->p - c->start), what);
}

static int peek(cursor *c)
{
    while (c->p < c->end && (*c->p == ' ' || *c->p == '\n' || *c->p == '\t' || *c->p == '\r'))
        c->p++;
    return c->p < c->end ? *c->p : -1;
}

static bool take(cursor *c, char ch)
{
    if (peek(c) != ch)
        return false;
    c->p++;
    return true;
}

static sn_status expect(cursor *c, char ch)
{
    char what[32];
    snprintf(what, sizeof what, "'%c' expected", ch);
    return take(c, ch) ? SN_OK : bad(c, what);
}

static bool hex4(cursor *c, uint32_t *ret)
{
    uint32_t v = 0;
    if (c->end - c->p < 4)
        return false;
    for (int i = 0; i < 4; i++, c->p++) {
        if (!isxdigit(*c->p))
            return false;
        v = v * 16 + (uint32_t) (*c->p <= '9' ? *c->p - '0' : (*c->p | 0x20) - 'a' + 10);
    }
    *ret = v;
    return true;
}

static char *put_utf8(char *to, uint32_t u)
{
    if (u < 0x80) {
        *to++ = (char) u;
    } else if (u < 0x800) {
        *to++ = (char) (0xc0 | u >> 6);
        *to++ = (char) (0x80 | (u & 0x3f));
    } else if (u < 0x10000) {
        *to++ = (char) (0xe0 | u >> 12);
        *to++ = (char) (0x80 | (u >> 6 & 0x3f));
        *to++ = (char) (0x80 | (u & 0x3f));
    } else {
        *to++ = (char) (0xf0 | u >> 18);
        *to++ = (char) (0x80 | (u >> 12 & 0x3f));
        *to++ = (char) (0x80 | (u >> 6 & 0x3f));
        *to++ = (char) (0x80 | (u & 0x3f));
    }
    return to;
}

/* After "\u": one code point, of two halves where it is past 16 bits. */
static bool unicode_escape(cursor *c, uint32_t *ret)
{
    uint32_t u, low;
    if (!hex4(c, &u) || u == 0 || (u >= 0xdc00 && u < 0xe000))
        return false;
    if (u >= 0xd800 && u < 0xdc00) {
        if (c->end - c->p < 6 || c->p[0] != '\\' || c->p[1] != 'u')
            return false;
        c->p += 2;
        if (!hex4(c, &low) || low < 0xdc00 || low >= 0xe000)
            return false;
        u = 0x10000 + ((u - 0xd800) << 10) + (low - 0xdc00);
    }
    *ret = u;
    return true;
}

static sn_status escape(cursor *c, char **to)
{
    static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
    const char *at = c->p < c->end && *c->p ? strchr(from, *c->p) : NULL;
    uint32_t u;
    if (at) {
        *(*to)++ = into[at - from];
        c->p++;
        return SN_OK;
    }
    if (c->p >= c->end || *c->p++ != 'u' || !unicode_escape(c, &u))
        return bad(c, "a wrong escape in a string");
    *to = put_utf8(*to, u);
    return SN_OK;
}

/* A decoded string is never longer than its source. */
static sn_status string(cursor *c, const char **ret)
{
    SN_TRY(expect(c, '"'));
    const unsigned char *close = c->p;
    while (close < c->end && *close != '"')
        close += 1 + (*close == '\\');
    if (close >= c->end)
        return bad(c, "a string without its end");
    char *text = sn_arena_alloc(c->arena, (size_t) (close - c->p) + 1), *to = text;
    while (c->p < close) {
        if (*c->p < 0x20)
            return bad(c, "a control character in a string");
        if (*c->p != '\\') {
            *to++ = (char) *c->p++;
            continue;
        }
        c->p++;
        SN_TRY(escape(c, &to));
    }
    if (c->p != close)
        return bad(c, "a wrong escape in a string");
    if (!ckpt_text_ok(text))
        return bad(c, "a string that is not UTF-8");
    c->p++;
    *ret = text;
    return SN_OK;
}

static sn_status integer(cursor *c, int64_t *ret)
{
    int64_t v = 0;
    if (!isdigit(peek(c)))
        return bad(c, "a whole number ≥ 0 expected");
    bool zero = *c->p == '0';
    const unsigned char *first = c->p;
    for (; c->p < c->end && isdigit(*c->p); c->p++)
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *c->p - '0', &v))
            return bad(c, "a number past 63 bits");
    if (zero && c->p - first > 1)
        return bad(c, "a number with a leading zero");
    if (c->p < c->end && (*c->p == '.' || *c->p == 'e' || *c->p == 'E'))
        return bad(c, "a whole number expected");
    *ret = v;
    return SN_OK;
}

/* A list of up to `max` integers; `more` is the status of a longer one. */
static sn_status integers(cursor *c, int64_t *v, int max, sn_status more, int *ret_count)
{
    int n = 0;
    SN_TRY(expect(c, '['));
    if (!take(c, ']')) {
        do {
            if (n == max)
                return sn_fail(more, "more than %d numbers in a list", max);
            SN_TRY(integer(c, &v[n++]));
        } while (take(c, ','));
        SN_TRY(expect(c, ']'));
    }
    *ret_count = n;
    return SN_OK;
}

static sn_status skip(cursor *c, int depth);

static sn_status skip_members(cursor *c, bool object, int depth)
{
    const char *key;
    char close = object ? '}' : ']';
    c->p++;
    if (take(c, close))
        return SN_OK;
    do {
        if (object) {
            SN_TRY(string(c, &key));
            SN_TRY(expect(c, ':'));
        }
        SN_TRY(skip(c, depth + 1));
    } while (take(c, ','));
    return expect(c, close);
}

/* Any value: fields that later versions of the format may add. */
static sn_status skip(cursor *c, int depth)
{
    static const char *const literal[] = {"true", "false", "null"};
    const char *text;
    int ch = peek(c);
    if (depth > DEPTH_MAX)
        return bad(c, "nested too deeply");
    if (ch == '"')
        return string(c, &text);
    if (ch == '{' || ch == '[')
        return skip_members(c, ch == '{', depth);
    for (size_t i = 0; i < SN_COUNT(literal); i++) {
        size_t n = strlen(literal[i]);
        if ((size_t) (c->end - c->p) >= n && !memcmp(c->p, literal[i], n)) {
            c->p += n;
            return SN_OK;
        }
    }
    if (ch != '-' && !isdigit(ch))
        return bad(c, "a value expected");
    while (c->p < c->end && *c->p && strchr("+-.eE0123456789", *c->p))
        c->p++;
    return SN_OK;
}

static sn_status dtype_field(cursor *c, sn_dtype *ret)
{
    const char *name;
    char show[80];
    SN_TRY(string(c, &name));
    if (!sn_dtype_parse(name, ret))
        return sn_fail(SN_ENOTSUP, "dtype %s is not read; F32, BF16, F16, F64, I32, I64, U8 are",
                       ckpt_show(show, name));
    return SN_OK;
}

static sn_status tensor_fields(cursor *c, ckpt_entry *e)
{
    enum { DTYPE = 1, SHAPE = 2, OFFSETS = 4 };
    unsigned seen = 0;
    SN_TRY(expect(c, '{'));
    do {
        const char *key;
        int64_t offset[2] = {0};
        int n = 2;
        SN_TRY(string(c, &key));
        SN_TRY(expect(c, ':'));
        unsigned field = !strcmp(key, "dtype")          ? DTYPE
                         : !strcmp(key, "shape")        ? SHAPE
                         : !strcmp(key, "data_offsets") ? OFFSETS
                                                        : 0;
        if (seen & field)
            return sn_fail(SN_ECORRUPT, "\"%s\" is there twice", key);
        seen |= field;
        if (field == DTYPE)
            SN_TRY(dtype_field(c, &e->dtype));
        else if (field == SHAPE)
            SN_TRY(integers(c, e->shape.dim, SN_RANK_MAX, SN_ENOTSUP, &e->shape.rank));
        else if (field == OFFSETS)
            SN_TRY(integers(c, offset, 2, SN_ECORRUPT, &n));
        else
            SN_TRY(skip(c, 0));
        if (n != 2)
            return bad(c, "data_offsets are two numbers");
        if (field == OFFSETS) {
            e->begin = (uint64_t) offset[0];
            e->end = (uint64_t) offset[1];
        }
    } while (take(c, ','));
    SN_TRY(expect(c, '}'));
    return seen == (DTYPE | SHAPE | OFFSETS) ? SN_OK
                                             : sn_fail(SN_ECORRUPT, "%s is missing",
                                                       !(seen & DTYPE)   ? "dtype"
                                                       : !(seen & SHAPE) ? "shape"
                                                                         : "data_offsets");
}

/* The free-form texts beside the tensors; read for their form only. */
static sn_status metadata(cursor *c)
{
    const char *text;
    SN_TRY(expect(c, '{'));
    if (take(c, '}'))
        return SN_OK;
    do {
        SN_TRY(string(c, &text));
        SN_TRY(expect(c, ':'));
        SN_TRY(string(c, &text));
    } while (take(c, ','));
    return expect(c, '}');
}

static sn_status members(cursor *c, entries *list)
{
    bool described = false;
    char show[80];
    SN_TRY(expect(c, '{'));
    if (take(c, '}'))
        return SN_OK;
    do {
        ckpt_entry e = {0};
        SN_TRY(string(c, &e.name));
        SN_TRY(expect(c, ':'));
        if (!strcmp(e.name, "__metadata__")) {
            if (described)
                return sn_fail(SN_ECORRUPT, "\"__metadata__\" is there twice");
            described = true;
            SN_TRY(metadata(c));
            continue;
        }
        sn_status status = tensor_fields(c, &e);
        if (status < 0)
            return sn_fail_in(status, "tensor \"%s\"", ckpt_show(show, e.name));
        list->e =
            sn_arena_grow(c->arena, list->e, list->count, list->count + 1, sizeof e, &list->cap);
        list->e[list->count++] = e;
    } while (take(c, ','));
    return expect(c, '}');
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(ckpt_entry *const *) a)->name, (*(ckpt_entry *const *) b)->name);
}

static int by_offset(const void *a, const void *b)
{
    const ckpt_entry *x = *(ckpt_entry *const *) a, *y = *(ckpt_entry *const *) b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

static sn_status check_one(const ckpt_entry *e, uint64_t data_bytes)
{
    char shape[96], show[80];
    int64_t count, bytes;
    const char *name = ckpt_show(show, e->name);
    if (!ckpt_shape_bytes(e->shape, e->dtype, &count, &bytes))
        return sn_fail(SN_ECORRUPT, "tensor \"%s\": its shape has more elements than memory", name);
    if (e->begin > e->end || e->end > data_bytes)
        return sn_fail(SN_ECORRUPT,
                       "tensor \"%s\": bytes %llu to %llu are not within the file's %llu of data",
                       name, (unsigned long long) e->begin, (unsigned long long) e->end,
                       (unsigned long long) data_bytes);
    if (e->end - e->begin != (uint64_t) bytes)
        return sn_fail(SN_ECORRUPT, "tensor \"%s\": %s %s needs %lld bytes, %llu are given", name,
                       sn_dtype_name(e->dtype), sn_shape_text(shape, e->shape), (long long) bytes,
                       (unsigned long long) (e->end - e->begin));
    return SN_OK;
}

/* In order of offset each tensor begins where the one before ends, and the last ends the file. */
static sn_status check_offsets(ckpt_entry *const *order, size_t n, uint64_t data_bytes)
{
    uint64_t at = 0;
    char show[80];
    for (size_t i = 0; i < n; i++) {
        if (order[i]->begin != at)
            return sn_fail(SN_ECORRUPT, "tensor \"%s\": begins at byte %llu, %s byte %llu",
                           ckpt_show(show, order[i]->name), (unsigned long long) order[i]->begin,
                           order[i]->begin < at ? "inside the one that ends at"
                                                : "a hole after the one that ends at",
                           (unsigned long long) at);
        at = order[i]->end;
    }
    if (at != data_bytes)
        return sn_fail(SN_ECORRUPT, "%llu bytes after the last tensor%s%s",
                       (unsigned long long) (data_bytes - at), n ? " " : "",
                       n ? ckpt_show(show, order[n - 1]->name) : "");
    return SN_OK;
}

static sn_status check_all(const entries *list, uint64_t data_bytes)
{
    sn_status status = SN_OK;
    char show[80];
    ckpt_entry **order = malloc((list->count + 1) * sizeof *order);
    if (!order)
        return sn_fail(SN_ENOMEM, "no memory for a header of %zu tensors", list->count);
    for (size_t i = 0; i < list->count && status >= 0; i++) {
        order[i] = &list->e[i];
        status = check_one(order[i], data_bytes);
    }
    if (status >= 0)
        qsort(order, list->count, sizeof *order, by_name);
    for (size_t i = 1; i < list->count && status >= 0; i++)
        if (!strcmp(order[i - 1]->name, order[i]->name))
            status = sn_fail(SN_ECORRUPT, "tensor \"%s\" is there twice",
                             ckpt_show(show, order[i]->name));
    if (status >= 0) {
        qsort(order, list->count, sizeof *order, by_offset);
        status = check_offsets(order, list->count, data_bytes);
    }
    free(order);
    return status;
}

sn_status ckpt_header_length(const void *first, uint64_t file_bytes, uint64_t *ret)
{
    const unsigned char *b = first;
    uint64_t n = 0;
    if (file_bytes < 8)
        return sn_fail(SN_ECORRUPT,
                       "%llu bytes are no safetensors file: the header's length needs 8",
                       (unsigned long long) file_bytes);
    for (int i = 7; i >= 0; i--)
        n = n << 8 | b[i];
    if (n > CKPT_HEADER_MAX)
        return sn_fail(SN_ECORRUPT, "a header of %llu bytes, %d are allowed",
                       (unsigned long long) n, CKPT_HEADER_MAX);
    if (n > file_bytes - 8)
        return sn_fail(SN_ECORRUPT, "a header of %llu bytes in a file of %llu",
                       (unsigned long long) n, (unsigned long long) file_bytes);
    *ret = n;
    return SN_OK;
}

sn_status ckpt_header_parse(const char *json, uint64_t bytes, uint64_t data_bytes, sn_arena *arena,
                            ckpt_entry **ret, int *ret_count)
{
    const unsigned char *p = (const unsigned char *) json;
    cursor c = {p, p, p + bytes, arena};
    entries list = {0};
    if (!bytes || *p != '{')
        return bad(&c, "'{' expected");
    SN_TRY(members(&c, &list));
    if (peek(&c) != -1)
        return bad(&c, "something after the header's end");
    SN_TRY(check_all(&list, data_bytes));
    *ret = list.e;
    *ret_count = (int) list.count;
    return SN_OK;
}

sn_status sn_safetensors_parse(const void *file, uint64_t bytes, sn_arena *arena,
                               sn_safetensor **ret, int *ret_count)
{
    uint64_t length;
    ckpt_entry *e;
    int n;
    SN_TRY(ckpt_header_length(file, bytes, &length));
    const char *header = (const char *) file + 8;
    SN_TRY(ckpt_header_parse(header, length, bytes - 8 - length, arena, &e, &n));
    sn_safetensor *t = SN_NEW_N(arena, sn_safetensor, n);
    for (int i = 0; i < n; i++)
        t[i] = (sn_safetensor){e[i].name, e[i].dtype, e[i].shape, header + length + e[i].begin,
                               e[i].end - e[i].begin};
    *ret = t;
    *ret_count = n;
    return SN_OK;
}
