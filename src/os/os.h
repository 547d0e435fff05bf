/* SPDX-License-Identifier: Apache-2.0
 *
 * os — the system calls: time, files, processes, namespaces. World's lowest layer.
 *
 * Invariants: a failing call returns a status whose sentence has the path or the call, strerror and
 * what to do; no function here retries for ever; descriptors are close-on-exec unless a child is
 * meant to have them. */
#ifndef SN_OS_OS_H
#define SN_OS_OS_H

#include "base/base.h"
#include "os/event.h"
#include "os/host.h"
#include "os/process.h"

#include <sys/types.h>

/* ---- time ---- */
sn_time sn_now(void);        /* CLOCK_MONOTONIC */
sn_time sn_now_thread(void); /* processor time of this thread: a system call, about 0.2 us */
sn_time sn_now_wall(void);   /* CLOCK_REALTIME */
void sn_sleep_until(sn_time deadline);

/* ---- files ---- */
/* The sentence "cannot VERB PATH: strerror" of the present errno, and the status that belongs to
 * it. */
sn_status sn_file_failed(const char *verb, const char *path);
/* malloc'd, NUL after the end */
sn_status sn_file_read(const char *path, size_t bytes_max, char **ret, size_t *ret_bytes);
/* whole file: temporary, fsync, rename */
sn_status sn_file_write(const char *path, const void *data, size_t bytes);
sn_status sn_dir_create(const char *path);   /* with parents; an existing one is fine */
sn_status sn_dir_writable(const char *path); /* probes by creating a file */
typedef struct sn_map {
    const void *data;
    size_t bytes;
} sn_map;
/* read-only, MAP_PRIVATE; an empty file is SN_EINVAL */
sn_status sn_file_map(const char *path, sn_map *ret);
void sn_file_unmap(sn_map *map);
sn_status sn_write_all(int fd, const void *data, size_t bytes);

/* ---- machine ---- */
int sn_cores(void);                 /* this process may use */
sn_status sn_bind_core(int core);   /* this thread, to the core-th of the allowed ones */
uint64_t sn_memory_available(void); /* bytes, honouring a cgroup limit */
/* Ask for large pages where the system leaves that to the program; nothing fails without them. */
void sn_memory_prefer_large(void *at, size_t bytes);

#endif
