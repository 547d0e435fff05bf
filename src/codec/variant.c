/* SPDX-License-Identifier: Apache-2.0
 *
 * variant — the table of codecs, once for each vector width. A new codec is one file and one row.
 * */
#include "codec/private.h"

#define CODEC_LIST(X)                                                                              \
    X(SN_CODEC_NONE, codec_none)                                                                   \
    X(SN_CODEC_BF16, codec_bf16)                                                                   \
    X(SN_CODEC_FP8_E4M3, codec_fp8_e4m3)                                                           \
    X(SN_CODEC_FP8_E5M2, codec_fp8_e5m2)                                                           \
    X(SN_CODEC_INT8, codec_int8)                                                                   \
    X(SN_CODEC_INT4, codec_int4)                                                                   \
    X(SN_CODEC_ONEBIT, codec_onebit)                                                               \
    X(SN_CODEC_TERNARY, codec_ternary)                                                             \
    X(SN_CODEC_TOPK, codec_topk)                                                                   \
    X(SN_CODEC_POWERSGD, codec_powersgd)

#define CODEC_DECLARE(kind, name) extern const sn_codec_row CODEC_HERE(name);
CODEC_LIST(CODEC_DECLARE)
extern const codec_lowrank CODEC_HERE(codec_lowrank);

#define CODEC_TEXT_(x) #x
#define CODEC_TEXT(x) CODEC_TEXT_(x)
#define CODEC_ROW(kind, name) [kind] = &CODEC_HERE(name),
const codec_variant CODEC_HERE(codec_variant) = {
    .name = CODEC_TEXT(VARIANT),
    .row = {CODEC_LIST(CODEC_ROW)},
    .lowrank = &CODEC_HERE(codec_lowrank),
};
