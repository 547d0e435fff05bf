/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/private.h"
#include "fold/fold.h"

/* fold has asked CPUID for the same widths. */
const codec_variant *codec_variant_here(void)
{
    const sn_fold_table *fold = sn_fold_kernels();
    if (fold == &sn_fold_avx512)
        return &codec_variant_avx512;
    return fold == &sn_fold_avx2 ? &codec_variant_avx2 : &codec_variant_plain;
}
