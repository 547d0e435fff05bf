/* SPDX-License-Identifier: Apache-2.0
 * What the files of `supernode debug` share. */
#ifndef SN_APP_DEBUG_H
#define SN_APP_DEBUG_H

#include "mon/mon.h"

const char *sn_debug_state(const sn_recorded *op); /* "queued", "started", "done", "failed" */
/* Everything on stdout. `last` operations of each rank. */
void sn_debug_json(const char *dir, const sn_recordings *all, const sn_blame *blame, int64_t last);
/* A trace in Chrome's JSON format: a process for each rank, operations as slices. */
sn_status sn_debug_trace(const sn_recordings *all, const char *path, int64_t *ret_ops);

#endif
