/* SPDX-License-Identifier: Apache-2.0 */
#include "net/boot.h"

#include <stdlib.h>
#include <string.h>

void boot_init(sn_boot *boot, const boot_way *way, int rank, int world)
{
    boot->way = way;
    boot->rank = rank;
    boot->world = world;
    boot->left = -1;
    boot->blobs = sn_alloc((size_t) world * sizeof *boot->blobs);
    boot->bytes = sn_alloc((size_t) world * sizeof *boot->bytes);
}

void boot_done(sn_boot *boot)
{
    free(boot->data);
    free(boot->blobs);
    free(boot->bytes);
}

sn_status boot_cut(sn_boot *boot, char *data, size_t bytes)
{
    size_t at = 0;
    free(boot->data);
    boot->data = data;
    for (int r = 0; r < boot->world; r++) {
        uint32_t n = 0;
        if (bytes - at >= sizeof n)
            memcpy(&n, data + at, sizeof n);
        if (bytes - at < sizeof n || bytes - at - sizeof n < n)
            return sn_fail(SN_ECORRUPT, "the all-gather's answer ends within the blob of rank %d",
                           r);
        boot->blobs[r] = data + at + sizeof n;
        boot->bytes[r] = n;
        at += sizeof n + n;
    }
    if (at != bytes)
        return sn_fail(SN_ECORRUPT, "the all-gather's answer is %zu bytes too long", bytes - at);
    return SN_OK;
}

void boot_name_missing(const bool *here, int world, sn_str *out)
{
    int count = 0, named = 0;
    for (int r = 0; r < world; r++)
        count += !here[r];
    sn_str_add(out, count == 1 ? "rank " : "ranks ");
    for (int r = 0; r < world && named < 16; r++)
        if (!here[r])
            sn_str_printf(out, "%s%d", named++ ? ", " : "", r);
    if (count > named)
        sn_str_printf(out, " and %d more", count - named);
}

sn_status sn_boot_allgather(sn_boot *boot, const void *blob, size_t bytes, sn_time deadline,
                            const void *const **ret_blobs, const size_t **ret_bytes)
{
    if (boot->broken < 0)
        return sn_fail(boot->broken, "the boot exchange failed before");
    if (bytes > BOOT_BLOB_MAX)
        return sn_fail(SN_EINVAL, "a boot blob of %zu bytes: at most %d", bytes, BOOT_BLOB_MAX);
    sn_status status = boot->way->allgather(boot, blob, bytes, deadline);
    if (status < 0) {
        boot->broken = status;
        return sn_fail_in(status, "rank %d: boot all-gather #%u", boot->rank, boot->seq);
    }
    boot->seq++;
    *ret_blobs = boot->blobs;
    *ret_bytes = boot->bytes;
    return SN_OK;
}

int boot_left(sn_boot *boot, sn_time until)
{
    if (boot->left < 0 && boot->broken >= 0 && boot->way->listen) {
        sn_status status = boot->way->listen(boot, until);
        if (status < 0 && status != SN_EPEER) /* a launcher that is gone is so next time, too */
            boot->broken = status;
    }
    return boot->left;
}

void sn_boot_free(sn_boot *boot)
{
    if (!boot)
        return;
    boot->way->free(boot);
    boot_done(boot);
    free(boot);
}

int sn_boot_rank(const sn_boot *boot)
{
    return boot->rank;
}

int sn_boot_world(const sn_boot *boot)
{
    return boot->world;
}

/* ---- a world of one ---- */

static sn_status single_allgather(sn_boot *boot, const void *blob, size_t bytes, sn_time deadline)
{
    free(boot->data);
    boot->data = sn_alloc(bytes + 1);
    if (bytes)
        memcpy(boot->data, blob, bytes);
    boot->blobs[0] = boot->data;
    boot->bytes[0] = bytes;
    return SN_OK;
}

static void single_free(sn_boot *boot)
{
}

sn_status sn_boot_single(sn_boot **ret)
{
    static const boot_way single = {.allgather = single_allgather, .free = single_free};
    sn_boot *boot = sn_alloc(sizeof *boot);
    boot_init(boot, &single, 0, 1);
    *ret = boot;
    return SN_OK;
}
