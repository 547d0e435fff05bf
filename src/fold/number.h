/* SPDX-License-Identifier: Apache-2.0
 *
 * number — f16 beside base's bf16, and the processor's mode of computing.
 *
 * The converters are integer arithmetic alone: no mode of the processor changes their results. */
#ifndef SN_FOLD_NUMBER_H
#define SN_FOLD_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

typedef union sn_f32_bits {
    float f;
    uint32_t u;
} sn_f32_bits;

/* f16: 5 bits of exponent, 10 of fraction; exact. NaN stays NaN (quiet), subnormals stay. */
static inline float sn_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t) (h & 0x8000u) << 16, exp = h >> 10 & 31, frac = h & 0x3ffu;
    if (exp == 31)
        return (sn_f32_bits){.u = sign | 0x7f800000u | (frac ? 0x400000u | frac << 13 : 0)}.f;
    if (exp == 0) {
        if (frac == 0)
            return (sn_f32_bits){.u = sign}.f;
        int up = __builtin_clz(frac) - 21; /* brings the leading one to bit 10 */
        exp = (uint32_t) (1 - up);
        frac = frac << up & 0x3ffu;
    }
    return (sn_f32_bits){.u = sign | (exp + 112) << 23 | frac << 13}.f;
}

/* Rounds to nearest even; beyond 65,519.99… it is infinity. */
static inline uint16_t sn_f32_to_f16(float f)
{
    uint32_t u = (sn_f32_bits){.f = f}.u, sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u)
        return (uint16_t) (sign | 0x7e00u | (a >> 13 & 0x3ffu));
    if (a >= 0x47800000u)
        return (uint16_t) (sign | 0x7c00u);
    if (a >= 0x38800000u)
        return (uint16_t) (sign | ((a - 0x38000000u + 0xfffu + (a >> 13 & 1)) >> 13));
    if (a < 0x33000000u)
        return (uint16_t) sign;
    uint32_t full = (a & 0x7fffffu) | 0x800000u, down = 126 - (a >> 23); /* 14 … 24 */
    uint32_t rest = full & ((1u << down) - 1), half = 1u << (down - 1), h = full >> down;
    return (uint16_t) (sign | (h + (rest > half || (rest == half && (h & 1)))));
}

/* The mode of computing (rounding, flush-to-zero, traps) belongs to the caller's thread. Where it
 * is strange, that is, not IEEE's default, calm it, compute and restore it. The fences keep
 * arithmetic on memory between the two. Asking costs a nanosecond. */
#if defined(__x86_64__)
static inline bool sn_fold_strange(void)
{
    uint32_t mode;
    __asm__ volatile("stmxcsr %0" : "=m"(mode) : : "memory");
    return __builtin_expect((mode & 0xffc0) != 0x1f80, 0); /* without the sticky flags */
}

static inline uint32_t sn_fold_calm(void)
{
    uint32_t was, ieee = 0x1f80;
    __asm__ volatile("stmxcsr %0\n\tldmxcsr %1" : "=m"(was) : "m"(ieee) : "memory");
    return was;
}

static inline void sn_fold_restore(uint32_t was)
{
    __asm__ volatile("ldmxcsr %0" : : "m"(was) : "memory");
}
#else
static inline bool sn_fold_strange(void)
{
    return false;
}

static inline uint32_t sn_fold_calm(void)
{
    return 0;
}

static inline void sn_fold_restore(uint32_t was)
{
    (void) was;
}
#endif

#endif
