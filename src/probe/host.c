/* SPDX-License-Identifier: Apache-2.0
 * An hwloc tree → one host with its cards and NICs. */
#include "probe/parts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Assumed until somebody measures. Two cores meet in a shared line: a store of one is seen by the
 * other after 170 ns, half of it on each card's link. */
#define SHM_NS 85
#define SHM_BYTES_PER_S 10e9
#define CORE_BYTES_PER_S 10e9
#define PCIE_NS 500
#define PCIE_BYTES_PER_S 8e9 /* Gen3 x8 */

enum { VENDOR_NVIDIA = 0x10de, VENDOR_AMD = 0x1002, VENDOR_HUAWEI = 0x19e5 };

typedef struct work {
    const probe_from *from;
    hwloc_topology_t tree;
    sn_topo *topo;
} work;

static int vertex_of_host(const work *w)
{
    return w->topo->host[0].vertex;
}

/* ---- cores ---- */

static uint64_t cache_of(hwloc_obj_t core, hwloc_obj_type_t type)
{
    for (hwloc_obj_t o = core; o; o = o->parent)
        if (o->type == type)
            return o->attr->cache.size;
    return 0;
}

static uint64_t caches_in_all(hwloc_topology_t tree, hwloc_obj_type_t type)
{
    uint64_t bytes = 0;
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(tree, type, o));)
        bytes += o->attr->cache.size;
    return bytes;
}

/* Host-local index of the first NUMA node that a set of nodes holds. */
static int numa_index(hwloc_topology_t tree, hwloc_const_nodeset_t nodes)
{
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(tree, HWLOC_OBJ_NUMANODE, o));)
        if (nodes && hwloc_bitmap_isset(nodes, o->os_index))
            return (int) o->logical_index;
    return -1;
}

/* The place of a hardware thread among the allowed ones, as sn_bind_core counts them. */
static int place_of(hwloc_const_cpuset_t allowed, int os_index)
{
    int place = 0;
    for (int i = hwloc_bitmap_first(allowed); i >= 0 && i < os_index;
         i = hwloc_bitmap_next(allowed, i))
        place++;
    return place;
}

static probe_simd simd_of(const work *w)
{
    if (w->from->here)
        return probe_simd_here();
    hwloc_obj_t root = hwloc_get_root_obj(w->tree);
    const char *arch = hwloc_obj_get_info_by_name(root, "Architecture");
    double wide = !arch || !strcmp(arch, "x86_64") ? 2 * 2 * 8 : 2 * 2 * 4; /* AVX2, NEON */
    return (probe_simd){wide, wide / 2};
}

static void add_cores(work *w, hwloc_obj_type_t type, int cores)
{
    hwloc_const_cpuset_t allowed = hwloc_topology_get_allowed_cpuset(w->tree);
    double hertz = probe_frequency(w->from);
    probe_simd simd = simd_of(w);
    uint64_t memory = w->topo->host[0].memory_bytes / (uint64_t) cores;
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(w->tree, type, o));) {
        sn_topo_card card = {
            .kind = "cpu",
            .core = place_of(allowed, hwloc_bitmap_first(o->cpuset)),
            .numa_node = numa_index(w->tree, o->nodeset),
            .share = 1,
            .flops_f32 = hertz * simd.f32_per_cycle,
            .flops_bf16 = hertz * simd.bf16_per_cycle,
            .memory_bytes = memory,
            .memory_bytes_per_s = CORE_BYTES_PER_S,
        };
        int c = sn_topo_add_card(w->topo, 0, &card);
        sn_topo_add_link(w->topo, w->topo->card[c].vertex, vertex_of_host(w), SHM_NS,
                         SHM_BYTES_PER_S, "shm", false);
    }
}

static void add_host(work *w)
{
    hwloc_obj_t root = hwloc_get_root_obj(w->tree);
    const char *name = hwloc_obj_get_info_by_name(root, "HostName");
    hwloc_obj_type_t type = HWLOC_OBJ_CORE;
    int cores = hwloc_get_nbobjs_by_type(w->tree, HWLOC_OBJ_CORE);
    if (cores < 1) { /* some virtual machines show hardware threads only */
        type = HWLOC_OBJ_PU;
        cores = SN_MAX(hwloc_get_nbobjs_by_type(w->tree, HWLOC_OBJ_PU), 1);
    }
    sn_topo_add_host(w->topo, name && *name ? name : "h0", cores, root->total_memory);
    sn_topo_host *host = &w->topo->host[0];
    host->numa_nodes = SN_MAX(hwloc_get_nbobjs_by_type(w->tree, HWLOC_OBJ_NUMANODE), 1);
    hwloc_obj_t first = hwloc_get_obj_by_type(w->tree, type, 0);
    host->cache_bytes[0] = cache_of(first, HWLOC_OBJ_L1CACHE);
    host->cache_bytes[1] = cache_of(first, HWLOC_OBJ_L2CACHE);
    host->cache_bytes[2] = caches_in_all(w->tree, HWLOC_OBJ_L3CACHE);
    add_cores(w, type, cores);
}

/* ---- devices ---- */

static hwloc_obj_t pci_above(hwloc_obj_t device)
{
    while (device && device->type != HWLOC_OBJ_PCI_DEVICE)
        device = device->parent;
    return device;
}

static double pci_speed(hwloc_obj_t pci)
{
    double gigabytes = pci ? pci->attr->pcidev.linkspeed : 0; /* of a float: three digits count */
    return gigabytes > 0 ? round(gigabytes * 1000) * 1e6 : 0;
}

static int numa_of_device(hwloc_topology_t tree, hwloc_obj_t device)
{
    hwloc_obj_t near = device ? hwloc_get_non_io_ancestor_obj(tree, device) : NULL;
    bool all = !near || hwloc_bitmap_isequal(near->nodeset, hwloc_get_root_obj(tree)->nodeset);
    return near && (!all || hwloc_get_nbobjs_by_type(tree, HWLOC_OBJ_NUMANODE) == 1)
               ? numa_index(tree, near->nodeset)
               : -1;
}

static bool is_gpu(const work *w, hwloc_obj_t pci)
{
    unsigned class = pci->attr->pcidev.class_id, vendor = pci->attr->pcidev.vendor_id;
    if (vendor == VENDOR_NVIDIA)
        return class >> 8 == 0x03 && !w->from->here; /* here NVML knows which can be used */
    return (vendor == VENDOR_AMD && (class == 0x0302 || class == 0x0380 || class == 0x1200)) ||
           (vendor == VENDOR_HUAWEI && class == 0x1200);
}

static void add_gpu(work *w, const probe_gpu *gpu, hwloc_obj_t pci, int index)
{
    char kind[48], name[16];
    sn_topo_card card = probe_gpu_card(gpu, kind);
    snprintf(name, sizeof name, "gpu%d", index);
    card.name = name;
    card.numa_node = numa_of_device(w->tree, pci);
    int c = sn_topo_add_card(w->topo, 0, &card);
    double speed = gpu->link_bytes_per_s > 0 ? gpu->link_bytes_per_s : pci_speed(pci);
    sn_topo_add_link(w->topo, w->topo->card[c].vertex, vertex_of_host(w), PCIE_NS,
                     speed > 0 ? speed : PCIE_BYTES_PER_S, "pcie", false);
}

static void add_gpus(work *w)
{
    int n = 0;
    for (int i = 0; i < w->from->gpus; i++) {
        const probe_gpu *g = &w->from->gpu[i];
        add_gpu(w, g, hwloc_get_pcidev_by_busid(w->tree, g->domain, g->bus, g->device, 0), n++);
    }
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_pcidev(w->tree, o));) {
        if (!is_gpu(w, o))
            continue;
        probe_gpu gpu = {.model = ""};
        const char *model = hwloc_obj_get_info_by_name(o, "PCIDevice");
        snprintf(gpu.model, sizeof gpu.model, "%s", model ? model : o->name ? o->name : "");
        add_gpu(w, &gpu, o, n++);
    }
}

static bool is_kind(hwloc_obj_t o, hwloc_obj_osdev_type_t type)
{
    return o->type == HWLOC_OBJ_OS_DEVICE && o->attr->osdev.type == type;
}

/* An InfiniBand port is shown twice, as mlx5_0 and as ib0; the network device stands for both. */
static bool has_network_sibling(hwloc_obj_t device)
{
    hwloc_obj_t pci = pci_above(device);
    for (hwloc_obj_t o = pci ? pci->io_first_child : NULL; o; o = o->next_sibling)
        if (is_kind(o, HWLOC_OBJ_OSDEV_NETWORK))
            return true;
    return false;
}

static void add_nics(work *w)
{
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_osdev(w->tree, o));) {
        bool fabric = is_kind(o, HWLOC_OBJ_OSDEV_OPENFABRICS) && !has_network_sibling(o);
        if (!o->name || !(is_kind(o, HWLOC_OBJ_OSDEV_NETWORK) || fabric))
            continue;
        double speed = w->from->here ? probe_net_speed(o->name) : 0;
        double bus = pci_speed(pci_above(o));
        int nic = sn_topo_add_nic(w->topo, 0, o->name, speed);
        sn_topo_add_link(w->topo, w->topo->nic[nic].vertex, vertex_of_host(w), PCIE_NS,
                         bus > 0 ? bus : SN_MAX(speed, PCIE_BYTES_PER_S), "pcie", false);
    }
}

sn_status probe_host(const probe_from *from, sn_topo **ret)
{
    work w = {.from = from, .tree = from->tree};
    hwloc_obj_t root = hwloc_get_root_obj(from->tree);
    const char *name = from->name ? from->name : hwloc_obj_get_info_by_name(root, "HostName");
    w.topo = sn_topo_create(name && *name ? name : "machine");
    add_host(&w);
    add_gpus(&w);
    add_nics(&w);
    *ret = w.topo;
    return SN_OK;
}
