/* SPDX-License-Identifier: Apache-2.0
 *
 * Any text as a manifest, without the seal that would keep the fuzzer out: refused with a sentence,
 * or a table whose pieces cover each tensor exactly once.
 * Build: clang -fsanitize=fuzzer,address,undefined -D_GNU_SOURCE -Isrc, this file, the sources of
 * ckpt, os and base, -ljansson -lxxhash -lyaml -lm. Run: with test/fuzz/corpus/manifest. */
#include "ckpt/parts.h"

#include <stddef.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ckpt_table t = {.arena = sn_arena_create()};
    if (ckpt_manifest_parse((const char *) data, bytes, false, &t) >= 0) {
        for (size_t i = 0; i < t.files; i++)
            SN_ASSERT(ckpt_file_name_ok(t.file[i].name));
        for (size_t i = 0; i < t.tensors; i++) {
            int64_t sum = 0;
            for (int k = 0; k < t.tensor[i].pieces; k++) {
                const ckpt_stored *piece = &t.tensor[i].piece[k];
                SN_ASSERT(ckpt_block_valid(t.tensor[i].shape, &piece->block));
                SN_ASSERT(piece->file >= 0 && (size_t) piece->file < t.files);
                sum += piece->block.flat_count;
            }
            SN_ASSERT(sum == sn_shape_count(t.tensor[i].shape));
        }
    } else {
        SN_ASSERT(*sn_errmsg());
    }
    sn_arena_free(t.arena);
    return 0;
}
