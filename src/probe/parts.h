/* SPDX-License-Identifier: Apache-2.0
 * What the files of probe share. */
#ifndef SN_PROBE_PARTS_H
#define SN_PROBE_PARTS_H

#include "topo/topo.h"

#include <hwloc.h>

/* What one core computes per cycle, by the instructions this processor offers. */
typedef struct probe_simd {
    double f32_per_cycle, bf16_per_cycle;
} probe_simd;

probe_simd probe_simd_here(void);

/* ---- GPUs ---- */

typedef struct probe_gpu {
    char model[96];               /* "NVIDIA H100 80GB HBM3" */
    unsigned domain, bus, device; /* PCI */
    uint64_t memory_bytes;        /* 0 unknown, as all that follows */
    double flops_f32, memory_bytes_per_s, link_bytes_per_s;
} probe_gpu;

enum { PROBE_GPUS_MAX = 64 };

/* A GPU as a card: kind and peaks from the table of known models, the rest from what was found. */
sn_topo_card probe_gpu_card(const probe_gpu *gpu, char kind[48]);

/* ---- NVML: the functions used, in the order of nvml_names ---- */

typedef struct nvml_device nvml_device;
typedef struct nvml_memory {
    unsigned long long total, free, used;
} nvml_memory;
typedef struct nvml_pci {
    char bus_id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} nvml_pci;

typedef struct nvml_api {
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *ret);
    int (*handle)(unsigned index, nvml_device **ret);
    int (*name)(nvml_device *device, char *ret, unsigned bytes);
    int (*memory)(nvml_device *device, nvml_memory *ret);
    int (*pci)(nvml_device *device, nvml_pci *ret);
    /* May be missing in old drivers. */
    int (*clock_max)(nvml_device *device, int clock, unsigned *ret_mhz);
    int (*cores)(nvml_device *device, unsigned *ret);
    int (*bus_width)(nvml_device *device, unsigned *ret_bits);
    int (*pcie_generation)(nvml_device *device, unsigned *ret);
    int (*pcie_width)(nvml_device *device, unsigned *ret);
} nvml_api;

/* The GPUs that NVML names, at most PROBE_GPUS_MAX; 0 when it is absent or refuses. */
int probe_nvml(probe_gpu ret[PROBE_GPUS_MAX]);
int probe_nvml_with(const nvml_api *api, probe_gpu ret[PROBE_GPUS_MAX]);

/* ---- hwloc tree → topology ---- */

typedef struct probe_from {
    hwloc_topology_t tree;
    const char *name; /* of the topology; NULL: the host's */
    bool here;        /* this machine: /sys, /proc, cpuid and NVML may be asked */
    const probe_gpu *gpu;
    int gpus;
} probe_from;

sn_status probe_host(const probe_from *from, sn_topo **ret);

/* Bytes per second of a network device here, 0 unknown. */
double probe_net_speed(const char *device);

/* Cycles per second of a core, from the tree or (here) the system; an assumption when unknown. */
double probe_frequency(const probe_from *from);

#endif
