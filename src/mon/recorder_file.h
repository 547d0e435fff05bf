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
#define FILE_VERSION 2
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
    uint32_t left, turn; /* turn: groups that had this place before */
    char name[64];
    int32_t member[SN_RECORDER_MEMBERS];
} file_group;

/* One cache line: what an operation costs is this line's way through the caches. */
typedef struct file_record {
    uint32_t lap; /* of the ring, from 1: it says the number; 0 while being written */
    int8_t group, status;
    uint8_t state, dtype;
    uint64_t posted, started, ended; /* ticks, 0: not yet */
    uint64_t seq, count;
    int32_t peer, step;
    uint16_t turn;   /* of the group's place: it may serve another by now */
    uint16_t blocks; /* of `count` elements, but one */
    uint8_t op, red, algorithm, spare;
} file_record;

typedef struct file_all {
    file_head head;
    file_say say;
    file_word word[SN_RECORDER_WORDS];
    file_group group[SN_RECORDER_GROUPS];
    file_record record[SN_RECORDER_RECORDS] __attribute__((aligned(4096)));
} file_all;

_Static_assert(sizeof(file_record) == 64, "a record is one cache line");
_Static_assert(SN_RECORDER_GROUPS <= INT8_MAX + 1, "a place fits a record");

static inline uint64_t file_number(uint32_t lap, size_t place)
{
    return lap > 0 ? (uint64_t) (lap - 1) * SN_RECORDER_RECORDS + place + 1 : 0;
}

#endif
