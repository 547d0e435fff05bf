/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a safetensors file: refused with a sentence, or read with every tensor inside.
 * Build: clang -fsanitize=fuzzer,address,undefined -D_GNU_SOURCE -Isrc, this file, the sources of
 * ckpt, os and base, -ljansson -lxxhash -lyaml -lm. Run: with test/fuzz/corpus/safetensors. */
#include "ckpt/ckpt.h"

#include <stddef.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    sn_arena *arena = sn_arena_create();
    sn_safetensor *t;
    int n;
    if (sn_safetensors_parse(data, bytes, arena, &t, &n) >= 0) {
        uint64_t sum = 0, all = 0;
        for (int i = 0; i < n; i++) {
            const uint8_t *p = t[i].data;
            SN_ASSERT(p >= data && p + t[i].bytes <= data + bytes);
            SN_ASSERT((uint64_t) sn_shape_count(t[i].shape) * sn_dtype_bytes(t[i].dtype) ==
                      t[i].bytes);
            for (uint64_t k = 0; k < t[i].bytes; k++)
                sum += p[k];
            all += t[i].bytes + strlen(t[i].name);
        }
        SN_ASSERT(all <= bytes && sum <= 255 * all);
    } else {
        SN_ASSERT(*sn_errmsg());
    }
    sn_arena_free(arena);
    return 0;
}
