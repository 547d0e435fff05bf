/* SPDX-License-Identifier: Apache-2.0
 *
 * The PMIx bootstrap under a real mpirun: without arguments this program starts itself under it;
 * skipped (77) where there is none. */
#include "net/net.h"
#include "os/os.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, sn_errmsg());
    return 1;
}

static sn_status run(sn_boot *boot)
{
    const void *const *blobs;
    const size_t *bytes;
    int rank = sn_boot_rank(boot), world = sn_boot_world(boot);
    for (int k = 0; k < 3; k++) {
        char blob[5000];
        memset(blob, rank * 3 + k, sizeof blob);
        SN_TRY(sn_boot_allgather(boot, blob, (size_t) (rank * 4000 + k), sn_now() + 20 * SN_SEC,
                                 &blobs, &bytes));
        for (int r = 0; r < world; r++)
            for (size_t i = 0; i < bytes[r]; i++)
                if (bytes[r] != (size_t) (r * 4000 + k) ||
                    ((const char *) blobs[r])[i] != r * 3 + k)
                    return sn_fail(SN_EFAIL, "the blob of rank %d is not what it sent", r);
    }
    sn_net *net;
    sn_net_opts opts = {.host_name = rank ? "h1" : "h0", .deadline = sn_now() + 20 * SN_SEC};
    int peer = 1 - rank, heard = -1;
    sn_net_req *s, *r;
    SN_TRY(sn_net_open(boot, &opts, &net));
    SN_TRY(sn_net_recv(net, peer, 1, &heard, sizeof heard, &r));
    SN_TRY(sn_net_send(net, peer, 1, &rank, sizeof rank, &s));
    SN_TRY(sn_net_wait(net, r, sn_now() + 20 * SN_SEC, "recv"));
    SN_TRY(sn_net_wait(net, s, sn_now() + 20 * SN_SEC, "send"));
    sn_net_close(net);
    if (heard != peer)
        return sn_fail(SN_EFAIL, "heard %d from %d", heard, peer);
    /* A rank that does not come: the other names it. */
    if (rank == 0 &&
        sn_boot_allgather(boot, "", 0, sn_now() + 300 * SN_MS, &blobs, &bytes) != SN_ETIME)
        return sn_fail(SN_EFAIL, "no time-out");
    if (rank == 0 && !strstr(sn_errmsg(), "rank 1"))
        return sn_fail(SN_EFAIL, "the time-out does not name rank 1: %s", sn_errmsg());
    if (rank == 1)
        sn_sleep_until(sn_now() + 900 * SN_MS);
    return SN_OK;
}

int main(int argc, char **argv)
{
    sn_boot *boot;
    if (argc == 1) {
        execlp("mpirun.openmpi", "mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-np",
               "2", argv[0], "rank", NULL);
        fprintf(stderr, "skipped: no mpirun.openmpi\n");
        return 77;
    }
    sn_status status = sn_boot_pmix(&boot);
    if (status == SN_ENOTSUP)
        return 77;
    if (status < 0)
        return fail("boot");
    status = run(boot);
    if (status < 0)
        fail("run");
    sn_boot_free(boot);
    return status < 0;
}
