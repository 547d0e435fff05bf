/* SPDX-License-Identifier: Apache-2.0
 *
 * One-sided access: memory that UCX has registered, and the keys of the members' memory. Over RDMA
 * the target's network card does the rest; over tcp UCX on the target does, in its progress. */
#include "net/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_MAX 704

typedef struct region_card { /* what a member tells of its memory */
    int32_t status;
    uint32_t key_bytes; /* 0: nothing is exposed */
    uint64_t at, bytes;
    char text[240];
    char key[KEY_MAX];
} region_card;

_Static_assert(sizeof(region_card) <= 1024, "a gather takes it");

typedef struct region_member {
    int rank;
    uint64_t at, bytes;
    ucp_rkey_h key; /* NULL on my host, and where nothing is exposed */
} region_member;

struct sn_net_region {
    sn_net *net;
    int n;
    region_member *members;
    ucp_mem_h mem; /* mine */
};

/* ---- opening ---- */

static sn_status refused(const net_wire *wire, const char *what, ucs_status_t code)
{
    return sn_fail(SN_EIO, "UCX cannot %s: %s", what, wire->u.ucs_status_string(code));
}

static sn_status register_mine(sn_net_region *region, void *at, uint64_t bytes, region_card *card)
{
    net_wire *wire = region->net->wire;
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                                                 UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                   .address = at,
                                   .length = bytes};
    void *key;
    size_t key_bytes;
    ucs_status_t code = wire->u.ucp_mem_map(wire->context, &params, &region->mem);
    if (code != UCS_OK) {
        region->mem = NULL;
        return refused(wire, "register memory (ulimit -l?)", code);
    }
    code = wire->u.ucp_rkey_pack(wire->context, region->mem, &key, &key_bytes);
    if (code != UCS_OK)
        return refused(wire, "give a key to memory", code);
    if (key_bytes <= KEY_MAX)
        memcpy(card->key, key, key_bytes);
    wire->u.ucp_rkey_buffer_release(key);
    if (key_bytes > KEY_MAX)
        return sn_fail(SN_ENOTSUP, "UCX's key has %zu bytes, %d fit: name fewer transports",
                       key_bytes, KEY_MAX);
    card->key_bytes = (uint32_t) key_bytes;
    return SN_OK;
}

static sn_status unpack(sn_net_region *region, int i, const region_card *card)
{
    net_wire *wire = region->net->wire;
    region_member *m = &region->members[i];
    m->at = card->at;
    m->bytes = card->bytes;
    if (card->status < 0)
        return sn_fail((sn_status) card->status, "rank %d (%s): %.*s", m->rank,
                       sn_net_host_name(region->net, m->rank), (int) sizeof card->text, card->text);
    if (sn_net_same_host(region->net, m->rank) || !card->key_bytes)
        return SN_OK;
    SN_TRY(wire_check_peer(region->net, m->rank));
    ucs_status_t code = wire->u.ucp_ep_rkey_unpack(wire->peers[m->rank].ep, card->key, &m->key);
    if (code == UCS_OK)
        return SN_OK;
    m->key = NULL;
    return refused(wire, "use a peer's key", code);
}

static sn_status exchange(sn_net_region *region, const int *members, void *at, uint64_t bytes,
                          sn_time deadline)
{
    region_card mine = {.at = (uintptr_t) at, .bytes = bytes};
    if (bytes)
        mine.status = register_mine(region, at, bytes, &mine);
    if (mine.status < 0)
        snprintf(mine.text, sizeof mine.text, "%s", sn_errmsg());
    region_card *all = malloc((size_t) region->n * sizeof *all);
    if (!all)
        return sn_fail(SN_ENOMEM, "no memory for %d keys", region->n);
    sn_status status =
        sn_net_gather(region->net, members, region->n, &mine, sizeof mine, deadline, all);
    for (int i = 0; i < region->n && status >= 0; i++)
        status = unpack(region, i, &all[i]);
    free(all);
    return status;
}

sn_status sn_net_region_open(sn_net *net, const int *members, int n, void *at, uint64_t bytes,
                             sn_time deadline, sn_net_region **ret)
{
    SN_TRY(net_check_members(net, members, n));
    if (!net->wire)
        return sn_fail(SN_ENOTSUP, "one-sided access in a job on one host: use its memory");
    sn_net_region *region = sn_alloc(sizeof *region);
    region->net = net;
    region->n = n;
    region->members = sn_alloc((size_t) n * sizeof *region->members);
    for (int i = 0; i < n; i++)
        region->members[i].rank = members[i];
    sn_status status = exchange(region, members, at, bytes, deadline);
    if (status < 0) {
        sn_net_region_close(region);
        return status;
    }
    *ret = region;
    return SN_OK;
}

void sn_net_region_close(sn_net_region *region)
{
    if (!region)
        return;
    net_wire *wire = region->net->wire;
    for (int i = 0; i < region->n; i++)
        if (region->members[i].key)
            wire->u.ucp_rkey_destroy(region->members[i].key);
    if (region->mem)
        wire->u.ucp_mem_unmap(wire->context, region->mem);
    free(region->members);
    free(region);
}

/* ---- access ---- */

static sn_status check_access(const sn_net_region *region, int member, uint64_t offset,
                              uint64_t bytes)
{
    const region_member *m = &region->members[member];
    if (offset > m->bytes || bytes > m->bytes - offset)
        return sn_fail(SN_EINVAL, "bytes %llu to %llu of rank %d (%s), which exposes %llu",
                       (unsigned long long) offset, (unsigned long long) (offset + bytes), m->rank,
                       sn_net_host_name(region->net, m->rank), (unsigned long long) m->bytes);
    SN_TRY(wire_check_peer(region->net, m->rank));
    return m->key ? SN_OK
                  : sn_fail(SN_EINVAL, "rank %d (%s) exposes no memory", m->rank,
                            sn_net_host_name(region->net, m->rank));
}

/* What UCX is told of a request that it completes by itself. */
static ucp_request_param_t param_of(sn_net_req *req)
{
    return (ucp_request_param_t){.op_attr_mask =
                                     UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                 .cb.send = wire_on_sent,
                                 .user_data = req};
}

/* A put reads `buf`, a get writes it. */
static sn_status start(sn_net_region *region, wire_kind kind, int member, uint64_t offset,
                       void *buf, size_t bytes, sn_net_req **ret)
{
    SN_TRY(check_access(region, member, offset, bytes));
    net_wire *wire = region->net->wire;
    const region_member *m = &region->members[member];
    ucp_ep_h ep = wire->peers[m->rank].ep;
    sn_net_req *req = wire_take(wire, m->rank, kind, false, 0, bytes);
    if (!req)
        return SN_AGAIN;
    ucp_request_param_t param = param_of(req);
    ucs_status_ptr_t started =
        kind == WIRE_PUT ? wire->u.ucp_put_nbx(ep, buf, bytes, m->at + offset, m->key, &param)
                         : wire->u.ucp_get_nbx(ep, buf, bytes, m->at + offset, m->key, &param);
    wire_note_started(req, started, bytes);
    *ret = req;
    return SN_OK;
}

sn_status sn_net_put(sn_net_region *region, int member, uint64_t offset, const void *buf,
                     size_t bytes, sn_net_req **ret)
{
    return start(region, WIRE_PUT, member, offset, (void *) buf, bytes, ret);
}

sn_status sn_net_get(sn_net_region *region, int member, uint64_t offset, void *buf, size_t bytes,
                     sn_net_req **ret)
{
    return start(region, WIRE_GET, member, offset, buf, bytes, ret);
}

sn_status sn_net_flush(sn_net *net, int peer, sn_net_req **ret)
{
    SN_TRY(wire_check_peer(net, peer));
    net_wire *wire = net->wire;
    sn_net_req *req = wire_take(wire, peer, WIRE_FLUSH, false, 0, 0);
    if (!req)
        return SN_AGAIN;
    ucp_request_param_t param = param_of(req);
    wire_note_started(req, wire->u.ucp_ep_flush_nbx(wire->peers[peer].ep, &param), 0);
    *ret = req;
    return SN_OK;
}
