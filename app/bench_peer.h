/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_peer — another program, kept alive beside us and asked line by line.
 *
 *   ask "5" ──stdin──▶ peer does it five times ──stdout──▶ "0.00123"
 *
 * Between two questions the peer sleeps in a read. What it writes to stderr is kept, and its last
 * line becomes part of the sentence when it fails. */
#ifndef SN_APP_BENCH_PEER_H
#define SN_APP_BENCH_PEER_H

#include "base/base.h"

#include <sys/types.h>

typedef struct bench_peer {
    pid_t pid; /* 0: none */
    int in, out, err;
    size_t have; /* bytes of the next lines */
    char data[8192];
} bench_peer;

/* argv[0] is looked up in PATH; ends with NULL. */
sn_status bench_peer_start(const char *const *argv, bench_peer *ret);
sn_status bench_peer_say(bench_peer *p, const char *line);
/* The next line of its stdout without the newline, cut at `max` - 1 bytes. */
sn_status bench_peer_line(bench_peer *p, double seconds, char *ret, size_t max);
/* Say and read the answer as a number (its first word). */
sn_status bench_peer_ask(bench_peer *p, const char *line, double seconds, double *ret);
/* Its stdin ends; who does not leave in `seconds` is told to, then killed. Nothing to do is fine.
 */
void bench_peer_stop(bench_peer *p, double seconds);

/* A file of the directory bench/ ("peer_gpt.py"): in $SUPERNODE_PEERS, in the source tree that the
 * command was built from, or where it was installed. SN_ENOTFOUND. */
sn_status bench_peer_file(const char *dir, const char *name, char *ret, size_t max);

/* A new directory for files of a case, and its removal with all that is in it. */
sn_status bench_dir_create(char *ret, size_t max);
void bench_dir_remove(const char *path);

/* About `bytes` of words, always the same, for jobs that need something to read. */
sn_status bench_text_write(const char *path, size_t bytes);

#endif
