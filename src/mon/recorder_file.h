/* SPDX-License-Identifier: Apache-2.0
 *
 * recorder_file — the layout of recorder-RANK.bin. Private.
 *
 *   0        file_head    who wrote it, fixed at creation
 *            file_say     step, phase, current wait: under `seq` as a sequence lock
 *            file_word[]  names
 *            file_group[] the groups this rank is or was in
 *            file_record[]  record n lies at (n - 1) modulo SN_RECORDER_RECORDS
 *
 * Native byte order; a file of another machine's order has another magic. */
#ifndef SN_MON_RECORDER_FILE_H
#define SN_MON_RECORDER_FILE_H

#include "mon/recorder.h"

#define FILE_MAGIC UINT32_C(0x534e4652) /* "SNFR" */
#define FILE_VERSION 1
#define FILE_TEXT 96

typedef struct file_head {
    uint32_t magic, version; /* magic is written last */
    uint32_t file_bytes, record_bytes;
    int32_t rank, world, pid;
    uint32_t tick_is_ns;
    uint32_t locked, spare; /* locked: the file system took the writer's lock */
    uint64_t boot;          /* hash of the kernel's boot id: whose monotonic clock this is */
    uint64_t attempt;
    int64_t mono_ns, wall_ns; /* the clocks at `ticks` */
    uint64_t ticks;
    double ns_per_tick; /* roughly; file_say has a second point */
    char host[64];
} file_head;

typedef struct file_say {
    uint32_t seq, left; /* odd while being written; left: the writer closed it */
    int32_t left_status, wait_for;
    int64_t step;
    uint64_t ticks; /* a second point of the clocks */
    int64_t mono_ns;
    uint64_t wait_number, wait_ticks, doing_ticks;
    char doing[FILE_TEXT];
    char why[512];
} file_say;

typedef struct file_word {
    char text[24];
} file_word;

typedef struct file_group {
    uint64_t key; /* 0: never used */
    uint64_t posted, done;
    int32_t size, me;
    uint32_t left, spare;
    char name[64];
    int32_t member[SN_RECORDER_MEMBERS];
} file_group;

typedef struct file_record {
    uint64_t number;                 /* 0 while being written */
    uint64_t posted, started, ended; /* ticks, 0: not yet */
    uint64_t seq, count, bytes;
    int64_t step;
    int32_t group, peer;
    uint32_t key; /* low half of the group's: the place may serve another by now */
    int32_t status;
    uint32_t state;
    uint8_t op, red, algorithm, dtype;
    uint64_t spare;
} file_record;

typedef struct file_all {
    file_head head;
    file_say say;
    file_word word[SN_RECORDER_WORDS];
    file_group group[SN_RECORDER_GROUPS];
    file_record record[SN_RECORDER_RECORDS] __attribute__((aligned(4096)));
} file_all;

_Static_assert(sizeof(file_record) == 96, "a record and a half in a pair of cache lines");

#endif
