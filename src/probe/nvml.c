/* SPDX-License-Identifier: Apache-2.0
 * NVIDIA's management library, found at run time. The prototypes are written out here, so neither
 * its header nor its library is needed to build. Source: NVML API reference. */
#include "probe/parts.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { CLOCK_SM = 1, CLOCK_MEMORY = 2 };

static const char *const names[] = {
    "nvmlInit_v2",
    "nvmlShutdown",
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetName",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetMaxClockInfo",
    "nvmlDeviceGetNumGpuCores",
    "nvmlDeviceGetMemoryBusWidth",
    "nvmlDeviceGetMaxPcieLinkGeneration",
    "nvmlDeviceGetMaxPcieLinkWidth",
};

enum { NEEDED = 7 }; /* the first of them */

static_assert(sizeof(nvml_api) == SN_COUNT(names) * sizeof(void *), "one name a function");

/* Clocks times units; each factor that the driver does not tell leaves its product unknown. */
static void read_rates(const nvml_api *api, nvml_device *device, probe_gpu *gpu)
{
    static const double lane[] = {0, 0.25e9, 0.5e9, 0.985e9, 1.969e9, 3.938e9, 7.563e9};
    unsigned mhz = 0, n = 0, generation = 0;
    if (api->clock_max && api->cores && !api->clock_max(device, CLOCK_SM, &mhz) &&
        !api->cores(device, &n))
        gpu->flops_f32 = 2.0 * n * mhz * 1e6; /* an FMA a core and cycle */
    if (api->clock_max && api->bus_width && !api->clock_max(device, CLOCK_MEMORY, &mhz) &&
        !api->bus_width(device, &n))
        gpu->memory_bytes_per_s = 2.0 * mhz * 1e6 * n / 8; /* both edges of the clock */
    if (api->pcie_generation && api->pcie_width && !api->pcie_generation(device, &generation) &&
        !api->pcie_width(device, &n))
        gpu->link_bytes_per_s = n * lane[SN_MIN(generation, SN_COUNT(lane) - 1)];
}

static bool read_gpu(const nvml_api *api, unsigned index, probe_gpu *ret)
{
    nvml_device *device;
    nvml_memory memory;
    nvml_pci pci;
    probe_gpu gpu = {.model = ""};
    if (api->handle(index, &device) || api->name(device, gpu.model, sizeof gpu.model - 1))
        return false;
    if (!api->memory(device, &memory))
        gpu.memory_bytes = memory.total;
    if (!api->pci(device, &pci)) {
        gpu.domain = pci.domain;
        gpu.bus = pci.bus;
        gpu.device = pci.device;
    }
    read_rates(api, device, &gpu);
    *ret = gpu;
    return true;
}

int probe_nvml_with(const nvml_api *api, probe_gpu ret[PROBE_GPUS_MAX])
{
    unsigned count = 0;
    int n = 0;
    if (api->init())
        return 0;
    if (!api->count(&count))
        for (unsigned i = 0; i < count && n < PROBE_GPUS_MAX; i++)
            n += read_gpu(api, i, &ret[n]); /* one that refuses is left out */
    api->shutdown();
    return n;
}

int probe_nvml(probe_gpu ret[PROBE_GPUS_MAX])
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return 0;
    nvml_api api;
    bool whole = true;
    for (size_t i = 0; i < SN_COUNT(names); i++) {
        void *function = dlsym(library, names[i]);
        memcpy((char *) &api + i * sizeof function, &function, sizeof function);
        whole = whole && (function || i >= NEEDED);
    }
    int n = whole ? probe_nvml_with(&api, ret) : 0;
    dlclose(library);
    return n;
}
