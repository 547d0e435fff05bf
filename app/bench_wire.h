/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_wire — emulated hosts for ranks that the harness forks itself, and the wires between them.
 *
 *   h0: eth0 10.78.0.1 ──veth── p0 ┐
 *          (tbf)                   ├ sw (bridge, in a namespace of its own)
 *   h1: eth0 10.78.0.2 ──veth── p1 ┘
 *          (tbf)
 *
 * A host is a network, IPC, UTS and mount namespace, held by a child that sleeps; a rank enters it
 * before it does anything else. Nothing has a name outside, all of it goes with the harness. */
#ifndef SN_APP_BENCH_WIRE_H
#define SN_APP_BENCH_WIRE_H

#include "base/base.h"

#define BENCH_HOSTS_MAX 8

typedef struct bench_wire bench_wire;

/* bits_per_s: what each host may send, 0: as much as it can. SN_EPERM without root. */
sn_status bench_wire_create(int hosts, double bits_per_s, bench_wire **ret);
void bench_wire_free(bench_wire *w); /* NULL is fine; after the ranks ended */

void bench_wire_address(int host, char ret[32]);
/* Moves the calling process, which has one thread, into a host. */
sn_status bench_wire_enter(const bench_wire *w, int host);
/* Pulls the host's plug, or puts it back. */
sn_status bench_wire_plug(const bench_wire *w, int host, bool in);

#endif
