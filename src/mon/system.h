/* SPDX-License-Identifier: Apache-2.0
 * What the kernel says, for the flight recorder. Private. */
#ifndef SN_MON_SYSTEM_H
#define SN_MON_SYSTEM_H

#include <stdbool.h>
#include <stdint.h>

/* The kernel keeps its own time by the counter of ticks.h, so it found it steady on all cores. */
bool mon_ticks_steady(void);
/* A hash of the boot id: monotonic clocks compare only within one boot. 0 unknown. */
uint64_t mon_boot(void);
/* The letter of /proc/PID/stat, 0 unknown. */
char mon_process_state(int pid);

#endif
