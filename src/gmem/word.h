/* SPDX-License-Identifier: Apache-2.0
 *
 * word — atomic changes of memory in windows: the same instructions for whoever asks, a host mate
 * or this rank on behalf of one on another host, so that all see one order. */
#ifndef SN_GMEM_WORD_H
#define SN_GMEM_WORD_H

#include "gmem/gmem.h"

/* `width` 4 or 8, `at` aligned to it: what the word was before. */
uint64_t gmem_word_fetch(void *at, int width, sn_fetch op, uint64_t value);
uint64_t gmem_word_cas(void *at, int width, uint64_t expected, uint64_t desired);

/* Copies; an aligned word of 1, 2, 4 or 8 bytes in one access, released or acquired. `at` is the
 * place in the window. */
void gmem_store(void *at, const void *src, uint64_t bytes);
void gmem_load(void *dst, const void *at, uint64_t bytes);

bool gmem_can_accumulate(sn_dtype dtype, sn_red red);
/* at[i] = red(at[i], src[i]), each atomic; `at` aligned to the element, `src` to nothing. */
void gmem_accumulate(void *at, const void *src, int64_t count, sn_dtype dtype, sn_red red);

#endif
