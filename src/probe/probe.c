/* SPDX-License-Identifier: Apache-2.0
 * Where an hwloc tree comes from: this machine, XML, a synthetic description. */
#include "probe/probe.h"
#include "os/os.h"
#include "probe/parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { XML_BYTES_MAX = 64 << 20 };

static sn_status tree_create(hwloc_topology_t *ret)
{
    if (hwloc_topology_init(ret))
        return sn_fail(SN_ENOMEM, "no memory for a picture of the machine");
    hwloc_topology_set_io_types_filter(*ret, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    /* Asking OpenCL's drivers loads them, and those built on LLVM take this process's signals. */
    hwloc_topology_set_components(*ret, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "opencl");
    return SN_OK;
}

/* Only what this thread may run on: a share of a machine is the machine, for us. */
static void keep_allowed(hwloc_topology_t tree)
{
    hwloc_bitmap_t mask = hwloc_bitmap_alloc();
    if (mask && !hwloc_get_cpubind(tree, mask, HWLOC_CPUBIND_THREAD) && !hwloc_bitmap_iszero(mask))
        hwloc_topology_restrict(tree, mask, 0); /* a mask it cannot use leaves the tree as it is */
    hwloc_bitmap_free(mask);
}

sn_status sn_probe_machine(sn_topo **ret)
{
    hwloc_topology_t tree;
    SN_TRY(tree_create(&tree));
    if (hwloc_topology_load(tree)) {
        hwloc_topology_destroy(tree);
        return sn_fail(SN_EIO, "hwloc cannot read this machine: %s", strerror(errno));
    }
    keep_allowed(tree);
    probe_gpu *gpu = sn_alloc(PROBE_GPUS_MAX * sizeof *gpu);
    probe_from from = {.tree = tree, .here = true, .gpu = gpu, .gpus = probe_nvml(gpu)};
    sn_status status = probe_host(&from, ret);
    free(gpu);
    hwloc_topology_destroy(tree);
    return status;
}

static sn_status load_captured(hwloc_topology_t tree, const char *name, const char *what,
                               sn_topo **ret)
{
    if (hwloc_topology_load(tree) || hwloc_get_nbobjs_by_type(tree, HWLOC_OBJ_PU) < 1)
        return sn_fail(SN_EINVAL, "%s does not describe a machine (hwloc 2 form is needed)", what);
    probe_from from = {.tree = tree, .name = name};
    return probe_host(&from, ret);
}

sn_status sn_probe_hwloc_xml_text(const char *text, size_t bytes, const char *name, sn_topo **ret)
{
    hwloc_topology_t tree;
    if (bytes >= XML_BYTES_MAX)
        return sn_fail(SN_EINVAL, "%s has %zu bytes, fewer than %d are read", name, bytes,
                       XML_BYTES_MAX);
    char *copy = malloc(bytes + 1);
    if (!copy)
        return sn_fail(SN_ENOMEM, "no memory for the %zu bytes of %s", bytes, name);
    memcpy(copy, text, bytes);
    copy[bytes] = 0; /* which hwloc wants counted */
    sn_status status = tree_create(&tree);
    if (status < 0) {
        free(copy);
        return status;
    }
    if (hwloc_topology_set_xmlbuffer(tree, copy, (int) bytes + 1))
        status = sn_fail(SN_EINVAL, "%s is not XML of hwloc 2", name);
    else
        status = load_captured(tree, NULL, name, ret);
    hwloc_topology_destroy(tree);
    free(copy);
    return status;
}

sn_status sn_probe_hwloc_xml(const char *path, sn_topo **ret)
{
    char *text;
    size_t bytes;
    SN_TRY(sn_file_read(path, XML_BYTES_MAX - 1, &text, &bytes));
    sn_status status = sn_probe_hwloc_xml_text(text, bytes, path, ret);
    free(text);
    return status;
}

sn_status sn_probe_synthetic(const char *description, sn_topo **ret)
{
    hwloc_topology_t tree;
    SN_TRY(tree_create(&tree));
    sn_status status;
    if (hwloc_topology_set_synthetic(tree, description))
        status = sn_fail(SN_EINVAL,
                         "`%.200s` is not an hwloc synthetic description, like \"pack:2 "
                         "core:8 pu:2\"",
                         description);
    else
        status = load_captured(tree, "synthetic", description, ret);
    hwloc_topology_destroy(tree);
    return status;
}
