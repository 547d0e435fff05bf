/* SPDX-License-Identifier: Apache-2.0
 *
 * Accumulating goes by blocks: read what is there, let fold combine the block, then swap element by
 * element against what was read. Elements that somebody changed meanwhile are done again alone. */
#include "gmem/word.h"

#include <string.h>

/* ---- words ---- */

static uint64_t changed(sn_fetch op, uint64_t old, uint64_t value)
{
    switch (op) {
    case SN_FETCH_MIN:
        return SN_MIN(old, value);
    case SN_FETCH_MAX:
        return SN_MAX(old, value);
    default:
        return old;
    }
}

#define CAS(bits)                                                                                  \
    static uint64_t cas_##bits(uint##bits##_t *at, uint64_t expected, uint64_t desired)            \
    {                                                                                              \
        uint##bits##_t old = (uint##bits##_t) expected;                                            \
        __atomic_compare_exchange_n(at, &old, (uint##bits##_t) desired, false, __ATOMIC_SEQ_CST,   \
                                    __ATOMIC_SEQ_CST);                                             \
        return old;                                                                                \
    }

#define FETCH(bits)                                                                                \
    static uint64_t fetch_##bits(uint##bits##_t *at, sn_fetch op, uint64_t value)                  \
    {                                                                                              \
        uint##bits##_t v = (uint##bits##_t) value, old;                                            \
        switch (op) {                                                                              \
        case SN_FETCH_SWAP:                                                                        \
            return __atomic_exchange_n(at, v, __ATOMIC_SEQ_CST);                                   \
        case SN_FETCH_ADD:                                                                         \
            return __atomic_fetch_add(at, v, __ATOMIC_SEQ_CST);                                    \
        case SN_FETCH_AND:                                                                         \
            return __atomic_fetch_and(at, v, __ATOMIC_SEQ_CST);                                    \
        case SN_FETCH_OR:                                                                          \
            return __atomic_fetch_or(at, v, __ATOMIC_SEQ_CST);                                     \
        case SN_FETCH_XOR:                                                                         \
            return __atomic_fetch_xor(at, v, __ATOMIC_SEQ_CST);                                    \
        default:                                                                                   \
            old = __atomic_load_n(at, __ATOMIC_SEQ_CST);                                           \
            while (op != SN_FETCH &&                                                               \
                   !__atomic_compare_exchange_n(at, &old, (uint##bits##_t) changed(op, old, v),    \
                                                false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))        \
                continue;                                                                          \
            return old;                                                                            \
        }                                                                                          \
    }

CAS(16)
CAS(32)
CAS(64)
FETCH(32)
FETCH(64)

uint64_t gmem_word_fetch(void *at, int width, sn_fetch op, uint64_t value)
{
    return width == 8 ? fetch_64(at, op, value) : fetch_32(at, op, value);
}

uint64_t gmem_word_cas(void *at, int width, uint64_t expected, uint64_t desired)
{
    return width == 8 ? cas_64(at, expected, desired) : cas_32(at, expected, desired);
}

/* ---- copies ---- */

#define STREAM_BYTES (8 << 20) /* from which stores go past the caches */

static void copy(void *dst, const void *src, uint64_t bytes)
{
    if (bytes >= STREAM_BYTES)
        sn_fold_kernels()->copy(dst, src, bytes, true);
    else if (bytes)
        memcpy(dst, src, bytes);
}

#define ONE_STORE(bits)                                                                            \
    do {                                                                                           \
        uint##bits##_t word_;                                                                      \
        memcpy(&word_, src, sizeof word_);                                                         \
        __atomic_store_n((uint##bits##_t *) at, word_, __ATOMIC_RELEASE);                          \
    } while (0)

#define ONE_LOAD(bits)                                                                             \
    do {                                                                                           \
        uint##bits##_t word_ = __atomic_load_n((const uint##bits##_t *) at, __ATOMIC_ACQUIRE);     \
        memcpy(dst, &word_, sizeof word_);                                                         \
    } while (0)

void gmem_store(void *at, const void *src, uint64_t bytes)
{
    if (bytes == 8 && (uintptr_t) at % 8 == 0)
        ONE_STORE(64);
    else if (bytes == 4 && (uintptr_t) at % 4 == 0)
        ONE_STORE(32);
    else if (bytes == 2 && (uintptr_t) at % 2 == 0)
        ONE_STORE(16);
    else if (bytes == 1)
        ONE_STORE(8);
    else
        copy(at, src, bytes);
}

void gmem_load(void *dst, const void *at, uint64_t bytes)
{
    if (bytes == 8 && (uintptr_t) at % 8 == 0)
        ONE_LOAD(64);
    else if (bytes == 4 && (uintptr_t) at % 4 == 0)
        ONE_LOAD(32);
    else if (bytes == 2 && (uintptr_t) at % 2 == 0)
        ONE_LOAD(16);
    else if (bytes == 1)
        ONE_LOAD(8);
    else
        copy(dst, at, bytes);
}

/* ---- elements ---- */

enum { BLOCK = 64 };

typedef union block {
    uint16_t u16[BLOCK];
    uint32_t u32[BLOCK];
    uint64_t u64[BLOCK];
    int32_t i32[BLOCK];
    int64_t i64[BLOCK];
    double f64[BLOCK];
} block;

static double greater(double a, double b)
{
    if (a != a || b != b)
        return a + b; /* NaN in, NaN out */
    return a > b || (a == b && !__builtin_signbit(a)) ? a : b;
}

/* In unsigned arithmetic a sum wraps, as it does on the memory of others' integers. */
static void combine_one(sn_dtype dtype, sn_red red, const block *a, const block *b, int i,
                        block *ret)
{
    if (dtype == SN_F64)
        ret->f64[i] = red == SN_SUM   ? a->f64[i] + b->f64[i]
                      : red == SN_MAX ? greater(a->f64[i], b->f64[i])
                                      : -greater(-a->f64[i], -b->f64[i]);
    else if (dtype == SN_I64)
        ret->u64[i] = red == SN_SUM                                ? a->u64[i] + b->u64[i]
                      : (red == SN_MAX) == (a->i64[i] > b->i64[i]) ? a->u64[i]
                                                                   : b->u64[i];
    else
        ret->u32[i] = red == SN_SUM                                ? a->u32[i] + b->u32[i]
                      : (red == SN_MAX) == (a->i32[i] > b->i32[i]) ? a->u32[i]
                                                                   : b->u32[i];
}

static bool folds(sn_dtype dtype)
{
    return dtype == SN_F32 || dtype == SN_BF16 || dtype == SN_F16;
}

static void combine(sn_dtype dtype, sn_red red, const block *a, const block *b, int n, block *ret)
{
    if (folds(dtype)) {
        sn_fold f = {.red = red,
                     .dtype = dtype,
                     .dst = (void *const[]){ret},
                     .src = (const void *const[]){a, b},
                     .dsts = 1,
                     .srcs = 2,
                     .count = n};
        sn_fold_kernels()->fold(&f);
        return;
    }
    for (int i = 0; i < n; i++)
        combine_one(dtype, red, a, b, i, ret);
}

static void load(const void *at, size_t width, int n, block *ret)
{
    for (int i = 0; i < n; i++)
        if (width == 2)
            ret->u16[i] = __atomic_load_n((const uint16_t *) at + i, __ATOMIC_RELAXED);
        else if (width == 4)
            ret->u32[i] = __atomic_load_n((const uint32_t *) at + i, __ATOMIC_RELAXED);
        else
            ret->u64[i] = __atomic_load_n((const uint64_t *) at + i, __ATOMIC_RELAXED);
}

static bool swap(void *at, size_t width, int i, const block *old, const block *new)
{
    if (width == 2)
        return cas_16((uint16_t *) at + i, old->u16[i], new->u16[i]) == old->u16[i];
    if (width == 4)
        return cas_32((uint32_t *) at + i, old->u32[i], new->u32[i]) == old->u32[i];
    return cas_64((uint64_t *) at + i, old->u64[i], new->u64[i]) == old->u64[i];
}

static void accumulate_block(char *at, const char *src, int n, sn_dtype dtype, sn_red red)
{
    size_t width = sn_dtype_bytes(dtype);
    block old, add, new;
    memcpy(&add, src, (size_t) n * width);
    load(at, width, n, &old);
    combine(dtype, red, &old, &add, n, &new);
    for (int i = 0; i < n; i++) {
        if (swap(at, width, i, &old, &new))
            continue;
        block one_add, one_old, one_new;
        memcpy(&one_add, src + (size_t) i * width, width);
        do {
            load(at + (size_t) i * width, width, 1, &one_old);
            combine(dtype, red, &one_old, &one_add, 1, &one_new);
        } while (!swap(at + (size_t) i * width, width, 0, &one_old, &one_new));
    }
}

bool gmem_can_accumulate(sn_dtype dtype, sn_red red)
{
    bool numbers = folds(dtype) || dtype == SN_F64 || dtype == SN_I32 || dtype == SN_I64;
    return numbers && (red == SN_SUM || red == SN_MAX || red == SN_MIN);
}

void gmem_accumulate(void *at, const void *src, int64_t count, sn_dtype dtype, sn_red red)
{
    size_t width = sn_dtype_bytes(dtype);
    for (int64_t i = 0; i < count; i += BLOCK)
        accumulate_block((char *) at + (size_t) i * width, (const char *) src + (size_t) i * width,
                         (int) SN_MIN(count - i, BLOCK), dtype, red);
}
