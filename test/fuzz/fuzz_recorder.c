/* SPDX-License-Identifier: Apache-2.0
 * Flight recorder files. What is accepted must be judged and told without harm. The input is laid
 * over a well-formed empty file, so that a short one reaches all fields: its first four bytes say
 * where, the rest is what.
 *   clang -fsanitize=fuzzer,address,undefined … && ./fuzz_recorder -max_total_time=30 */
#include "mon/mon.h"
#include "mon/recorder_file.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void judge(const void *image, size_t bytes)
{
    sn_arena *arena = sn_arena_create();
    sn_recording rec;
    if (sn_recording_parse(image, image, image, bytes, 256, arena, &rec) == SN_OK) {
        sn_recordings all = {.world = rec.world, .now = rec.last, .live = rec.step & 1};
        sn_str text = {0};
        sn_blame b;
        all.rank = SN_NEW_N(arena, sn_recording *, rec.world);
        all.rank[rec.rank] = &rec;
        for (int64_t i = 0; i < rec.ops; i++)
            sn_recorded_text(&rec, &rec.op[i], &text);
        sn_blame_make(&all, arena, &b);
        sn_blame_done(&b);
        sn_str_done(&text);
    }
    sn_arena_free(arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    uint32_t at = 0;
    judge(data, bytes);
    if (bytes < sizeof(at))
        return 0;
    file_all *file = sn_alloc(sizeof(*file));
    file->head = (file_head){.magic = FILE_MAGIC,
                             .version = FILE_VERSION,
                             .file_bytes = sizeof(file_all),
                             .record_bytes = sizeof(file_record),
                             .world = 4};
    memcpy(&at, data, sizeof(at));
    at %= 65536; /* head, say, words, groups, the first records */
    memcpy((char *) file + at, data + sizeof(at), SN_MIN(bytes - sizeof(at), sizeof(*file) - at));
    judge(file, sizeof(*file));
    free(file);
    return 0;
}
