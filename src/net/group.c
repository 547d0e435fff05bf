/* SPDX-License-Identifier: Apache-2.0
 *
 * Small exchanges for setting up: an all-gather among any ranks, and what a link can do. */
#include "net/net_private.h"

#include "os/os.h"

#include <stdlib.h>
#include <string.h>

#define BLOB_MAX 1024

/* ---- all-gather ---- */

typedef struct gather_message {
    uint64_t what; /* which group: both ends must agree */
    uint64_t bytes;
    char blob[BLOB_MAX];
} gather_message;

#define MESSAGE_HEAD offsetof(gather_message, blob)

static sn_status start_remote(sn_net *net, int to, int from, gather_message *out,
                              gather_message *in, sn_net_req *reqs[2])
{
    size_t bytes = MESSAGE_HEAD + out->bytes;
    if (!sn_net_same_host(net, from))
        SN_TRY(net_control_recv(net, from, NET_TAG_GATHER, in, bytes, &reqs[0]));
    if (!sn_net_same_host(net, to))
        SN_TRY(net_control_send(net, to, NET_TAG_GATHER, out, bytes, &reqs[1]));
    return SN_OK;
}

static sn_status do_local(sn_net *net, int to, int from, const gather_message *out,
                          gather_message *in, sn_time deadline)
{
    if (sn_net_same_host(net, to))
        SN_TRY(net_local_send(net, to, out->what, out->blob, out->bytes, -1, deadline));
    if (sn_net_same_host(net, from)) {
        SN_TRY(net_local_recv(net, from, out->what, in->blob, out->bytes, NULL, deadline));
        in->what = out->what;
    }
    return SN_OK;
}

/* Send to one rank, receive from another, each over what reaches it. */
static sn_status swap(sn_net *net, int to, int from, gather_message *out, gather_message *in,
                      sn_time deadline)
{
    sn_net_req *reqs[2] = {NULL, NULL};
    sn_status status = start_remote(net, to, from, out, in, reqs);
    if (status >= 0)
        status = do_local(net, to, from, out, in, deadline);
    for (int i = 0; i < 2; i++) {
        if (reqs[i] && status >= 0)
            status = net_control_wait(net, reqs[i], deadline);
        else
            sn_net_cancel(net, reqs[i]);
    }
    if (status >= 0 && in->what != out->what)
        status =
            sn_fail(SN_EMISMATCH, "rank %d (%s) gathers for another group than rank %d (%s)", from,
                    sn_net_host_name(net, from), net->rank, sn_net_host_name(net, net->rank));
    return status;
}

/* Pairwise: in round i everybody sends i places on and receives from i places back. */
static sn_status gather(sn_net *net, const int *members, int n, int me, gather_message *out,
                        sn_time deadline, char *all)
{
    gather_message in;
    memcpy(all + (size_t) me * out->bytes, out->blob, out->bytes);
    for (int i = 1; i < n; i++) {
        int from = (me + n - i) % n;
        SN_TRY(swap(net, members[(me + i) % n], members[from], out, &in, deadline));
        memcpy(all + (size_t) from * out->bytes, in.blob, out->bytes);
    }
    return SN_OK;
}

sn_status sn_net_gather(sn_net *net, const int *members, int n, const void *blob, size_t bytes,
                        sn_time deadline, void *ret)
{
    SN_TRY(net_check_members(net, members, n));
    if (bytes > BLOB_MAX)
        return sn_fail(SN_EINVAL, "a gather of %zu bytes a rank: at most %d", bytes, BLOB_MAX);
    int me = 0;
    while (members[me] != net->rank)
        me++;
    gather_message out = {.what = net_hash_members(members, n, 'g'), .bytes = bytes};
    if (bytes)
        memcpy(out.blob, blob, bytes);
    char *all = malloc((size_t) n * bytes + 1);
    if (!all)
        return sn_fail(SN_ENOMEM, "no memory for %d blobs of %zu bytes", n, bytes);
    sn_status status = gather(net, members, n, me, &out, deadline, all);
    if (status >= 0)
        memcpy(ret, all, (size_t) n * bytes);
    else
        sn_fail_in(status, "rank %d (%s): setting up a group of %d", net->rank,
                   sn_net_host_name(net, net->rank), n);
    free(all);
    return status;
}

/* ---- measuring a link ---- */

enum { PINGS = 200, BULKS = 8, WARM = 2, BULK_BYTES = 1 << 20 };

static sn_status message(sn_net *net, int peer, bool send, void *buf, size_t bytes,
                         sn_time deadline)
{
    sn_net_req *req;
    if (send)
        SN_TRY(net_control_send(net, peer, NET_TAG_MEASURE, buf, bytes, &req));
    else
        SN_TRY(net_control_recv(net, peer, NET_TAG_MEASURE, buf, bytes, &req));
    return sn_net_wait(net, req, deadline, "measuring the link");
}

static int by_time(const void *a, const void *b)
{
    sn_time x = *(const sn_time *) a, y = *(const sn_time *) b;
    return (x > y) - (x < y);
}

/* `n` round trips; the median in ns. The lower rank begins. */
static sn_status round_trips(sn_net *net, int peer, void *buf, size_t bytes, int n,
                             sn_time deadline, double *ret)
{
    sn_time took[PINGS + WARM];
    bool first = net->rank < peer;
    for (int i = 0; i < n + WARM; i++) {
        sn_time began = sn_now();
        SN_TRY(message(net, peer, first, buf, bytes, deadline));
        SN_TRY(message(net, peer, !first, buf, bytes, deadline));
        took[i] = sn_now() - began;
    }
    qsort(took + WARM, (size_t) n, sizeof took[0], by_time);
    *ret = (double) SN_MAX(took[WARM + n / 2], 1);
    return SN_OK;
}

static sn_status measure(sn_net *net, int peer, void *buf, sn_time deadline, double result[2])
{
    SN_TRY(round_trips(net, peer, buf, 8, PINGS, deadline, &result[0]));
    SN_TRY(round_trips(net, peer, buf, BULK_BYTES, BULKS, deadline, &result[1]));
    /* Both ends go on with the lower rank's numbers. */
    return message(net, peer, net->rank < peer, result, 2 * sizeof *result, deadline);
}

sn_status sn_net_measure(sn_net *net, int peer, sn_time deadline, double *ret_latency_ns,
                         double *ret_bytes_per_s)
{
    double result[2];
    void *buf = malloc(BULK_BYTES);
    if (!buf)
        return sn_fail(SN_ENOMEM, "no memory for measuring a link");
    memset(buf, 1, BULK_BYTES);
    sn_status status = measure(net, peer, buf, deadline, result);
    free(buf);
    SN_TRY(status);
    *ret_latency_ns = result[0] / 2;
    *ret_bytes_per_s = BULK_BYTES / (result[1] / 2 / SN_SEC);
    return SN_OK;
}
