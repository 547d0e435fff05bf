/* SPDX-License-Identifier: Apache-2.0
 *
 * process — child processes that never outlive their parent, and commands whose words are kept.
 *
 * A child is forked with the raw clone call, so that it can begin in namespaces of its own and its
 * pidfd is had without a race. Between fork and exec (or _exit) it must not call malloc when the
 * parent may have had other threads; what is in this header allocates nothing in the child.
 *
 * Invariants
 *  1. A child gets SIGKILL when the thread that forked it ends, whatever ends it; also when that
 *     happened before the child could ask for it. Fork from a thread that lives as long as the
 *     children shall (normally the main thread).
 *  2. A child starts with default signal handlers, an empty signal mask, in a session of its own (a
 *     terminal's ^C does not reach it) unless told to stay, and with no descriptors but 0, 1, 2 and
 *     those in `keep`.
 *  3. Killing goes through the pidfd: never a pid that was meanwhile given to somebody else. */
#ifndef SN_OS_PROCESS_H
#define SN_OS_PROCESS_H

#include "base/base.h"

#include <sys/types.h>

typedef struct sn_child {
    pid_t pid; /* 0: none, or reaped */
    int pidfd; /* readable when it ended */
} sn_child;

typedef struct sn_exit {
    int code, signal; /* code -1 with signal 0: nobody knows */
} sn_exit;

typedef struct sn_fork_opts {
    int namespaces;  /* CLONE_NEW… flags, 0 none */
    const int *keep; /* descriptors the child keeps, in any order */
    int keeps;
    bool stay; /* in the parent's session and process group */
} sn_fork_opts;

/* The child runs body(ctx) and ends with what it returns as its exit code. */
sn_status sn_child_fork(const sn_fork_opts *opts, int (*body)(void *ctx), void *ctx, sn_child *ret);
void sn_child_kill(const sn_child *child, int signal); /* none there: nothing happens */
/* True when it ended by `deadline` (0: do not wait) and has been reaped; *child becomes none. */
bool sn_child_wait(sn_child *child, sn_time deadline, sn_exit *ret);

/* Signal every child this process has at the moment, also adopted ones. Only their parent, which we
 * are, can reap them, so their numbers cannot have passed to others. Allocates nothing. */
void sn_children_kill(int signal);

/* The pid of a pidfd as seen from here, 0 unknown or gone. */
pid_t sn_pidfd_pid(int pidfd);
sn_status sn_pidfd_open(pid_t pid, int *ret);
void sn_pidfd_kill(int pidfd, int signal);

/* Close every descriptor from 3 on that is not in `keep` (unsorted, ≤ 1024 of them). */
void sn_close_others(const int *keep, int keeps);
/* For a child about to exec: `fd` survives it, at the same number. */
void sn_fd_inherit(int fd);

/* Descriptors 0, 1 and 2 that are closed become /dev/null, so that nothing else gets these numbers.
 */
void sn_fd_standard(void);

/* In the directories of the system (/usr/sbin, /usr/bin, …): a program's full path. */
sn_status sn_program_find(const char *name, char ret[256]);

/* A command running beside us; its output goes to a memory file, so it never blocks on us. */
typedef struct sn_command {
    sn_child child;
    int output;
    char words[200]; /* for the sentences */
} sn_command;

/* argv[0] is a full path. `input` is its stdin (NULL: empty). `netns` is the descriptor of the
 * network namespace to run in, -1: ours. */
sn_status sn_command_start(const char *const *argv, const char *input, int netns, sn_command *ret);
/* Wait for it; SN_EIO with its words when it failed, SN_ETIME when it had to be killed. */
sn_status sn_command_finish(sn_command *command, sn_time deadline,
                            sn_str *ret_output /* or NULL */);

#endif
