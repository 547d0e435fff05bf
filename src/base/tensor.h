/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor — what numbers are made of: element types, shapes, and the pair of both with an address.
 * All tensors are dense, row-major (last dimension contiguous). */
#ifndef SN_BASE_TENSOR_H
#define SN_BASE_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int64_t sn_time; /* nanoseconds; an absolute one is on the caller's monotonic clock */
#define SN_MS INT64_C(1000000)
#define SN_SEC INT64_C(1000000000)

#define SN_DTYPE_LIST(X) /* name, bytes, safetensors name */                                       \
    X(SN_F32, 4, "F32")                                                                            \
    X(SN_BF16, 2, "BF16")                                                                          \
    X(SN_F16, 2, "F16")                                                                            \
    X(SN_F64, 8, "F64")                                                                            \
    X(SN_I32, 4, "I32")                                                                            \
    X(SN_I64, 8, "I64")                                                                            \
    X(SN_U8, 1, "U8")                                                                              \
    X(SN_I8, 1, "I8")                                                                              \
    X(SN_I16, 2, "I16")                                                                            \
    X(SN_U16, 2, "U16")                                                                            \
    X(SN_U32, 4, "U32")                                                                            \
    X(SN_U64, 8, "U64")                                                                            \
    X(SN_BOOL, 1, "BOOL") /* 0 or 1 */

typedef enum sn_dtype {
#define SN_DTYPE_ENUM(name, bytes, text) name,
    SN_DTYPE_LIST(SN_DTYPE_ENUM)
#undef SN_DTYPE_ENUM
        SN_DTYPE_COUNT
} sn_dtype;

size_t sn_dtype_bytes(sn_dtype dtype);
const char *sn_dtype_name(sn_dtype dtype); /* "F32" */
bool sn_dtype_parse(const char *name, sn_dtype *ret);

#define SN_RANK_MAX 8

typedef struct sn_shape {
    int rank; /* 0: a scalar, one element */
    int64_t dim[SN_RANK_MAX];
} sn_shape;

#define SN_SHAPE(...)                                                                              \
    ((sn_shape){.rank = (int) (sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),                \
                .dim = {__VA_ARGS__}})

int64_t sn_shape_count(sn_shape shape); /* product of the dimensions */
bool sn_shape_equal(sn_shape a, sn_shape b);
const char *sn_shape_text(char out[96], sn_shape shape); /* "[2,3]" */

typedef struct sn_tensor {
    void *data;
    sn_dtype dtype;
    sn_shape shape;
} sn_tensor;

/* bf16: the upper half of an f32, rounded to nearest even; NaN stays NaN. */
static inline float sn_bf16_to_f32(uint16_t h)
{
    union {
        uint32_t u;
        float f;
    } v = {.u = (uint32_t) h << 16};
    return v.f;
}

static inline uint16_t sn_f32_to_bf16(float f)
{
    union {
        float f;
        uint32_t u;
    } v = {.f = f};
    if ((v.u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t) (v.u >> 16 | 0x40);
    return (uint16_t) ((v.u + 0x7fffu + (v.u >> 16 & 1)) >> 16);
}

#endif
