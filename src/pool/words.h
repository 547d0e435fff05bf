/* SPDX-License-Identifier: Apache-2.0
 *
 * words — a worker's argument list and environment; both belong to the arena. Private. */
#ifndef SN_POOL_WORDS_H
#define SN_POOL_WORDS_H

#include "pool/attempt.h"

char **pool_words_argv(const pool_attempt *a, const pool_worker *w, const char *const *extra);
char **pool_words_environment(sn_arena *arena);

#endif
