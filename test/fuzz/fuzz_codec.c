/* SPDX-License-Identifier: Apache-2.0
 * Codes from the wire, and the texts that name codecs. The first byte chooses the codec, the next
 * two the count; the rest is the code, cut or padded to its size, in memory of exactly that size.
 *   clang -fsanitize=fuzzer,address,undefined … && ./fuzz_codec -max_total_time=30 */
#include "codec/codec.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void name(const uint8_t *data, size_t bytes)
{
    char text[80] = "", again[32];
    sn_codec c, d;
    memcpy(text, data, SN_MIN(bytes, sizeof(text) - 1));
    if (sn_codec_parse(text, &c) != SN_OK)
        return;
    sn_codec_text(&c, again);
    SN_ASSERT(sn_codec_parse(again, &d) == SN_OK);
    SN_ASSERT(c.kind == d.kind && c.inner == d.inner && c.keep == d.keep && c.rank == d.rank);
}

static void decode(const sn_codec *c, int64_t n, const uint8_t *data, size_t bytes)
{
    size_t size = (size_t) sn_codec_bytes(c, n);
    uint8_t *code = sn_alloc(size + 1);
    float *out = sn_alloc((size_t) n * sizeof(*out) + 1);
    memcpy(code, data, SN_MIN(bytes, size));
    for (int add = 0; add < 2; add++) {
        sn_status status = sn_codec_decode(c, code, (int64_t) size, n, add, out);
        SN_ASSERT(status == SN_OK || status == SN_ECORRUPT);
    }
    free(code);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const codecs[] = {
        "none",    "bf16",      "fp8_e4m3",       "fp8_e5m2",       "int8",      "int4",   "onebit",
        "ternary", "topk:0.01", "topk:0.01+int8", "topk:0.01+int4", "topk:0.35", "topk:1",
    };
    sn_codec c;
    name(data, bytes);
    if (bytes < 3)
        return 0;
    SN_ASSERT(sn_codec_parse(codecs[data[0] % SN_COUNT(codecs)], &c) == SN_OK);
    if (c.kind == SN_CODEC_TERNARY && data[2] & 128) { /* a part of a matrix */
        c.cols = 1 + data[1] % 64;
        c.phase = data[2] % 64;
    }
    decode(&c, (data[1] | data[2] << 8) % 5000, data + 3, bytes - 3);
    return 0;
}
