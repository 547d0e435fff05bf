/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/private.h"

const codec_variant *codec_variant_here(void)
{
    return &codec_variant_plain;
}
