/* SPDX-License-Identifier: Apache-2.0
 *
 * host — a machine inside the machine: namespaces with their own network, processes, IPC, name.
 *
 * Nothing here leaves a name in the file system (no /run/netns): a namespace lives as long as a
 * process or a descriptor in it, so that kill -9 of everybody removes everything. */
#ifndef SN_OS_HOST_H
#define SN_OS_HOST_H

#include "base/base.h"

#include <sys/types.h>

/* All that separates one host from another; for sn_fork_opts.namespaces. */
int sn_host_namespaces(void);
/* Called by the first process in them (pid 1): host name, private mounts, its own /proc, /sys and
 * /dev/shm (whose size limit is the system's default, half the memory). */
sn_status sn_host_enter(const char *name);
/* SN_OK when such a host can be made here: capabilities, and one is really made, entered and left
 * again. SN_EPERM says what is missing. */
sn_status sn_host_possible(void);

/* A new network namespace, held by the descriptor only; the caller stays in its own. */
sn_status sn_netns_create(int *ret_fd);
sn_status sn_netns_of(pid_t pid, int *ret_fd); /* of a process */

#endif
