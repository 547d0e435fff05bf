/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels — the vector kernels, compiled once a width: avx512.c, avx2.c and plain.c each include
 * their vec_*.h, then k_*.c, then the table, and export one cpu_isa. All else in them is static. */
#ifndef SN_KERN_KERNELS_H
#define SN_KERN_KERNELS_H

#include "kern/card.h"

typedef struct cpu_isa {
    const char *name;
    int lanes;
    kern_impl impl[SN_OP_COUNT];
    void (*widen)(const uint16_t *in, float *out, int64_t n);
    void (*narrow)(const float *in, uint16_t *out, int64_t n);
    void (*accumulate)(const float *in, float *out, int64_t n);
    double (*fma_loop)(int64_t rounds); /* runs, and returns the flops it did */
} cpu_isa;

const cpu_isa *plain_isa(void);
const cpu_isa *avx2_isa(void);
const cpu_isa *avx512_isa(void);

/* The widest that this processor has. */
const cpu_isa *cpu_isa_best(void);
/* All that this processor has, for tests. */
int cpu_isas(const cpu_isa *ret[3]);
sn_status cpu_isa_open(const cpu_isa *isa, const sn_card_opts *opts, sn_card **ret);

#define KERNEL(name)                                                                               \
    static sn_status name(const sn_kernel *k, const void *const *in, void *const *out, void *work)

#endif
