/* SPDX-License-Identifier: Apache-2.0
 * The cpu kind: the widest table that this processor can run. */
#include "kern/cpu/kernels.h"
#include "kern/cpu/product.h"

#include "os/os.h"

#if defined(__x86_64__)
#define HAS(feature) (__builtin_cpu_supports(feature) != 0)
#define ISA_X86(call) call
#else
#define HAS(feature) false
#define ISA_X86(call) NULL
#endif

int cpu_isas(const cpu_isa *ret[3])
{
    bool avx2 = HAS("avx2") && HAS("fma");
    bool avx512 = avx2 && HAS("avx512f") && HAS("avx512bw") && HAS("avx512dq") && HAS("avx512vl");
    int n = 0;
    if (avx512)
        ret[n++] = ISA_X86(avx512_isa());
    if (avx2)
        ret[n++] = ISA_X86(avx2_isa());
    ret[n++] = plain_isa();
    return n;
}

const cpu_isa *cpu_isa_best(void)
{
    const cpu_isa *isas[3];
    cpu_isas(isas);
    return isas[0];
}

static void cpu_close(sn_card *card)
{
    cpu_engine_free(card->state);
}

sn_status cpu_isa_open(const cpu_isa *isa, const sn_card_opts *opts, sn_card **ret)
{
    cpu_engine *engine;
    SN_TRY(cpu_engine_create(&engine));
    sn_card *card = kern_card_create("cpu", isa->impl, opts);
    card->state = engine;
    card->close = cpu_close;
    card->widen = isa->widen;
    card->narrow = isa->narrow;
    card->accumulate = isa->accumulate;
    *ret = card;
    return SN_OK;
}

sn_status kern_cpu_open(const sn_card_opts *opts, sn_card **ret)
{
    return cpu_isa_open(cpu_isa_best(), opts, ret);
}

/* The best of many short runs: interruptions only ever lower a rate. */
double sn_kern_fma_peak(sn_time budget)
{
    const cpu_isa *isa = cpu_isa_best();
    sn_time end = sn_now() + budget;
    double best = 0;
    do {
        sn_time start = sn_now();
        double flops = isa->fma_loop(20000);
        sn_time took = sn_now() - start;
        if (took > 0 && flops * 1e9 / (double) took > best)
            best = flops * 1e9 / (double) took;
    } while (sn_now() < end);
    return best;
}
