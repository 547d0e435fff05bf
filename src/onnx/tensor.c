/* SPDX-License-Identifier: Apache-2.0
 * Tensors of the format: typed arrays or raw bytes, here or in a file beside the model. */
#include "onnx/private.h"

#include <string.h>

bool onnx_dtype(int32_t type, sn_dtype *ret)
{
    static const struct {
        int32_t type;
        sn_dtype dtype;
    } table[] = {{1, SN_F32},  {2, SN_U8},   {3, SN_I8},   {4, SN_U16},  {5, SN_I16},
                 {6, SN_I32},  {7, SN_I64},  {9, SN_BOOL}, {10, SN_F16}, {11, SN_F64},
                 {12, SN_U32}, {13, SN_U64}, {16, SN_BF16}};
    for (size_t i = 0; i < SN_COUNT(table); i++)
        if (table[i].type == type) {
            *ret = table[i].dtype;
            return true;
        }
    return false;
}

static sn_status shape_of(const Onnx__TensorProto *t, const char *name, sn_tensor *ret)
{
    int64_t n = 1;
    if (!onnx_dtype(t->data_type, &ret->dtype))
        return sn_fail(SN_ENOTSUP, "tensor '%s' has elements of type %d, which is not offered",
                       name, t->data_type);
    if (t->n_dims > SN_RANK_MAX)
        return sn_fail(SN_ENOTSUP, "tensor '%s' has %zu dims, at most %d are offered", name,
                       t->n_dims, SN_RANK_MAX);
    ret->shape = (sn_shape){.rank = (int) t->n_dims};
    for (size_t d = 0; d < t->n_dims; d++) {
        ret->shape.dim[d] = t->dims[d];
        if (t->dims[d] < 0 || __builtin_mul_overflow(n, t->dims[d], &n) || n > INT64_MAX / 64)
            return sn_fail(SN_ECORRUPT, "tensor '%s' has a dim of %lld, which cannot be", name,
                           (long long) t->dims[d]);
    }
    return SN_OK;
}

/* Numbers that the format keeps as 32 (or 64) bits each, into what they are. */
static void *narrowed(const void *from, size_t wide, int64_t n, size_t bytes, sn_arena *arena)
{
    char *out = sn_arena_alloc(arena, (size_t) n * bytes + 1);
    for (int64_t i = 0; i < n; i++) /* little-endian: the low bytes are first */
        memcpy(out + (size_t) i * bytes, (const char *) from + (size_t) i * wide, bytes);
    return out;
}

static sn_status typed(const Onnx__TensorProto *t, const char *name, int64_t n, sn_arena *arena,
                       sn_tensor *ret)
{
    size_t have, wide = sn_dtype_bytes(ret->dtype);
    const void *data;
    switch (ret->dtype) {
    case SN_F32:
        have = t->n_float_data;
        data = t->float_data;
        break;
    case SN_F64:
        have = t->n_double_data;
        data = t->double_data;
        break;
    case SN_I64:
        have = t->n_int64_data;
        data = t->int64_data;
        break;
    case SN_U64:
    case SN_U32:
        have = t->n_uint64_data;
        data = t->uint64_data;
        wide = 8;
        break;
    default:
        have = t->n_int32_data;
        data = t->int32_data;
        wide = 4;
        break;
    }
    if (have != (size_t) n)
        return sn_fail(SN_ECORRUPT, "tensor '%s' has %zu numbers, its shape has %lld", name, have,
                       (long long) n);
    if (wide != sn_dtype_bytes(ret->dtype))
        data = narrowed(data, wide, n, sn_dtype_bytes(ret->dtype), arena);
    ret->data = (void *) (n ? data : "");
    return SN_OK;
}

static const char *beside(const Onnx__TensorProto *t, const char *key)
{
    for (size_t i = 0; i < t->n_external_data; i++)
        if (t->external_data[i]->key && !strcmp(t->external_data[i]->key, key))
            return t->external_data[i]->value;
    return NULL;
}

/* A file beside the model, never one elsewhere. */
static bool is_beside(const char *location)
{
    if (!location || !*location || *location == '/')
        return false;
    for (const char *p = location; (p = strstr(p, "..")); p += 2)
        if ((p == location || p[-1] == '/') && (!p[2] || p[2] == '/'))
            return false;
    return true;
}

static sn_status external(const Onnx__TensorProto *t, const char *name, int64_t bytes,
                          const sn_onnx_opts *opts, sn_tensor *ret)
{
    const char *location = beside(t, "location"), *o = beside(t, "offset"),
               *l = beside(t, "length");
    int64_t offset = 0, length = bytes;
    const void *data;
    if (!is_beside(location) || (o && !sn_str_to_int(o, &offset)) ||
        (l && !sn_str_to_int(l, &length)) || offset < 0 || length != bytes)
        return sn_fail(SN_ECORRUPT,
                       "tensor '%s': its data are to be %lld bytes of a file beside the model, "
                       "which location, offset and length do not say",
                       name, (long long) bytes);
    if (!opts || !opts->external)
        return sn_fail(SN_ENOTSUP, "tensor '%s': its data are in %s, which cannot be read here",
                       name, location);
    SN_TRY(opts->external(opts->ctx, location, offset, length, &data));
    ret->data = (void *) data;
    return SN_OK;
}

sn_status onnx_tensor_read(const Onnx__TensorProto *t, const sn_onnx_opts *opts, sn_arena *arena,
                           sn_tensor *ret)
{
    const char *name = t->name ? t->name : "";
    sn_tensor x = {0};
    SN_TRY(shape_of(t, name, &x));
    int64_t n = sn_shape_count(x.shape), bytes = n * (int64_t) sn_dtype_bytes(x.dtype);
    if (t->segment)
        return sn_fail(SN_ENOTSUP, "tensor '%s' is stored in segments", name);
    if (t->has_data_location && t->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL) {
        SN_TRY(external(t, name, bytes, opts, &x));
    } else if (t->has_raw_data && (t->raw_data.len > 0 || n == 0)) {
        if (t->raw_data.len != (size_t) bytes)
            return sn_fail(SN_ECORRUPT, "tensor '%s' has %zu bytes, its shape needs %lld", name,
                           t->raw_data.len, (long long) bytes);
        x.data = n ? t->raw_data.data : (uint8_t *) "";
    } else {
        SN_TRY(typed(t, name, n, arena, &x));
    }
    *ret = x;
    return SN_OK;
}
