/* SPDX-License-Identifier: Apache-2.0
 *
 * probe — the hardware that is here (or was captured elsewhere) as a topology of one host.
 *
 *   hwloc ── cores, NUMA nodes, caches, memory, PCI devices ──┐
 *   /sys  ── speed of network devices (this machine only) ────┼── sn_topo: host h0, a card a core,
 *   NVML  ── GPUs, by dlopen (this machine only) ─────────────┘   a card a GPU, its NICs
 *
 * Invariants
 *  1. A CPU card is a core that this process may use; its `core` is what sn_bind_core takes: the
 *     place of the core's first hardware thread among the allowed ones. CPU cards come first.
 *  2. Absent hardware is not an error: no GPU library, no NIC, no cache means fewer things in the
 *     answer and an OK status.
 *  3. Nothing here is measured: every link says so, peaks and bandwidths are estimates (see
 *     README.md), and whoever measures overwrites them.
 *  4. A captured machine gives the same answer everywhere: nothing of the probing machine enters.
 */
#ifndef SN_PROBE_PROBE_H
#define SN_PROBE_PROBE_H

#include "base/base.h"
#include "topo/topo.h"

/* This machine, inside the affinity mask of the calling thread. Takes tens of milliseconds.
 * SN_EIO: hwloc could not read the system. */
sn_status sn_probe_machine(sn_topo **ret);

/* A machine from what `hwloc` or `lstopo` wrote on it (XML of hwloc 2). SN_EINVAL: not that. */
sn_status sn_probe_hwloc_xml(const char *path, sn_topo **ret);
sn_status sn_probe_hwloc_xml_text(const char *text, size_t bytes, const char *name, sn_topo **ret);

/* A machine from an hwloc synthetic description, "pack:2 [numa(memory=64GB)] core:8 pu:2". */
sn_status sn_probe_synthetic(const char *description, sn_topo **ret);

#endif
