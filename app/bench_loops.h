/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_loops — the plain loops whose speed is the bound of a case: nothing that has to read and
 * write the same bytes can be faster on this machine. One file for each kind of processor. */
#ifndef SN_APP_BENCH_LOOPS_H
#define SN_APP_BENCH_LOOPS_H

#include <stdbool.h>
#include <stdint.h>

/* Counts are multiples of 64, memory is 64-byte aligned.
 * Elements [from, to) of all n buffers become their sum: every input read once, every output
 * written once. `stream`: past the caches. */
void bench_loop_sum(float *const *buf, int n, int64_t from, int64_t to, bool stream);
void bench_loop_copy(float *to, const float *from, int64_t n, bool stream);
float bench_loop_read(const float *from, int64_t n);

#endif
