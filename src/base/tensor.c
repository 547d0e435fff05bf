/* SPDX-License-Identifier: Apache-2.0 */
#include "base/tensor.h"

#include <stdio.h>
#include <string.h>

static const struct {
    size_t bytes;
    const char *name;
} table[] = {
#define ROW(name, bytes, text) [name] = {bytes, text},
    SN_DTYPE_LIST(ROW)
#undef ROW
};

size_t sn_dtype_bytes(sn_dtype dtype)
{
    return table[dtype].bytes;
}

const char *sn_dtype_name(sn_dtype dtype)
{
    return table[dtype].name;
}

bool sn_dtype_parse(const char *name, sn_dtype *ret)
{
    for (int i = 0; i < SN_DTYPE_COUNT; i++)
        if (!strcmp(table[i].name, name)) {
            *ret = (sn_dtype) i;
            return true;
        }
    return false;
}

int64_t sn_shape_count(sn_shape shape)
{
    int64_t n = 1;
    for (int i = 0; i < shape.rank; i++)
        n *= shape.dim[i];
    return n;
}

bool sn_shape_equal(sn_shape a, sn_shape b)
{
    if (a.rank != b.rank)
        return false;
    for (int i = 0; i < a.rank; i++)
        if (a.dim[i] != b.dim[i])
            return false;
    return true;
}

const char *sn_shape_text(char out[96], sn_shape shape)
{
    size_t n = 1;
    snprintf(out, 96, "[");
    for (int i = 0; i < shape.rank && n < 95; i++) {
        snprintf(out + n, 96 - n, "%s%lld", i ? "," : "", (long long) shape.dim[i]);
        n += strlen(out + n);
    }
    snprintf(out + n, 96 - n, "]"); /* too long: cut off */
    return out;
}
