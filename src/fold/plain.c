/* SPDX-License-Identifier: Apache-2.0
 *
 * The loops for any processor: 16-byte vectors, stores through the caches. */
#include <string.h>

#define BYTES 16
#define STREAM(dst, v) memcpy((dst), &(v), sizeof(v))
#define STREAM_HALF(dst, v) memcpy((dst), &(v), sizeof(v))
#define STREAM_END() __atomic_thread_fence(__ATOMIC_RELEASE)
#define WIDEN(h) __builtin_convertvector(h, vu)
#define NARROW(u) __builtin_convertvector(u, vh)
#define WIDEN_F16(h) soft_widen(h)
#define NARROW_F16(v) soft_narrow(v)

#include "fold/loops.h"

const sn_fold_table sn_fold_plain = {.name = "plain", .fold = fold, .copy = copy};
