/* SPDX-License-Identifier: Apache-2.0
 *
 * event — waiting for descriptors and signals, and datagrams that carry descriptors.
 *
 * Invariants: sends never raise SIGPIPE; received descriptors are close-on-exec; a datagram is
 * taken whole or not at all. */
#ifndef SN_OS_EVENT_H
#define SN_OS_EVENT_H

#include "base/base.h"

#include <poll.h>
#include <stddef.h>

/* Number of ready descriptors; 0 when the deadline passed (< 0: no deadline, 0: do not wait) or a
 * signal came, so that the caller can look at what the signal's handler set. */
int sn_poll(struct pollfd *fds, int n, sn_time deadline);

/* A descriptor that becomes readable when one of `signals` (ends with 0) is pending; they are
 * blocked in this thread from now on. */
sn_status sn_signal_open(const int *signals, int *ret_fd);
int sn_signal_take(int fd); /* the next pending signal, 0 when there is none; never waits */

/* A connected pair, close-on-exec, not blocking: stream of bytes, or datagrams in order. */
sn_status sn_pair_stream(int ret_fds[2]);
sn_status sn_pair_datagram(int ret_fds[2]);

/* One datagram of exactly `bytes`, with a descriptor (-1: none; borrowed). SN_AGAIN: full. */
sn_status sn_datagram_send(int fd, const void *data, size_t bytes, int pass_fd);
/* SN_AGAIN nothing there; SN_EPEER the other end is closed; SN_ECORRUPT another size. *ret_pass_fd
 * is -1 or a descriptor that is now the caller's. */
sn_status sn_datagram_recv(int fd, void *ret, size_t bytes, int *ret_pass_fd);

#endif
