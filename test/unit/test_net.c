/* SPDX-License-Identifier: Apache-2.0
 *
 * Nets of forked ranks: messages, groups, descriptors, and peers that die. */
#include "net/net.h"
#include "unit/sn_ranks.h"
#include "unit/sn_test.h"

#include <fcntl.h>
#include <sys/mman.h>

#define SOON (sn_now() + 10 * SN_SEC)

static const int two_hosts[] = {0, 0, 1, 1};
static const int uneven[] = {0, 1, 1, 2, 1, 0};

static int rank_queries(sn_boot *boot, int rank, int host, void *ctx)
{
    sn_net *net;
    RANK_OK(sn_rank_open(boot, host, NULL, &net));
    RANK_CHECK(sn_net_rank(net) == rank && sn_net_world(net) == 6 && sn_net_hosts(net) == 3);
    for (int r = 0; r < 6; r++) {
        char name[8];
        snprintf(name, sizeof name, "h%d", uneven[r]);
        RANK_CHECK(sn_net_same_host(net, r) == (uneven[r] == host));
        RANK_CHECK(sn_net_host_index(net, r) == uneven[r]);
        RANK_CHECK(strcmp(sn_net_host_name(net, r), name) == 0);
    }
    RANK_OK(sn_net_alive(net));
    RANK_OK(sn_net_look(net));
    sn_net_close(net);
    return 0;
}

static void test_queries(void **state)
{
    assert_int_equal(sn_ranks_run(6, uneven, rank_queries, NULL, SOON), 0);
}

static int sizes[] = {0, 1, 7, 64, 1000, 4096, 8191, 65536, 65537, 262144, 1 << 20};

static void fill(char *buf, size_t bytes, int salt)
{
    for (size_t i = 0; i < bytes; i++)
        buf[i] = (char) (i * 7 + (size_t) salt);
}

static int rank_sizes(sn_boot *boot, int rank, int host, void *ctx)
{
    sn_net *net;
    RANK_OK(sn_rank_open(boot, host, NULL, &net));
    int peer = (rank + 2) % 4;
    char *out = malloc(1 << 20), *in = malloc(1 << 20), *want = malloc(1 << 20);
    for (size_t k = 0; k < SN_COUNT(sizes); k++) {
        size_t n = (size_t) sizes[k];
        sn_net_req *s, *r;
        fill(out, n, rank + (int) k);
        fill(want, n, peer + (int) k);
        memset(in, 0, n);
        RANK_OK(sn_net_recv(net, peer, 9, in, n, &r));
        RANK_OK(sn_net_send(net, peer, 9, out, n, &s));
        RANK_OK(sn_net_wait(net, r, SOON, "recv"));
        RANK_OK(sn_net_wait(net, s, SOON, "send"));
        RANK_CHECK(memcmp(in, want, n) == 0);
    }
    sn_net_req *r;
    RANK_FAILS(sn_net_send(net, rank ^ 1, 1, out, 1, &r), SN_ENOTSUP, "on my host");
    RANK_FAILS(sn_net_send(net, rank, 1, out, 1, &r), SN_ENOTSUP, "on my host");
    RANK_FAILS(sn_net_recv(net, 4, 1, out, 1, &r), SN_EINVAL, "rank 4");
    RANK_FAILS(sn_net_send(net, peer, UINT64_C(1) << 40, out, 1, &r), SN_EINVAL, "bits");
    free(out);
    free(in);
    free(want);
    sn_net_close(net);
    return 0;
}

static void test_sizes(void **state)
{
    assert_int_equal(sn_ranks_run(4, two_hosts, rank_sizes, NULL, SOON), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_queries),
        cmocka_unit_test(test_sizes),
    };
    return sn_test_run(tests);
}
