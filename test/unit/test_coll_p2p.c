/* SPDX-License-Identifier: Apache-2.0
 *
 * Point to point: from the arena and from elsewhere, in and across hosts, many at once, by tag. */
#include "unit/coll_world.h"

#define MOST (1 << 20)
#define LETTERS 24

static unsigned char letter(uint64_t k, uint64_t i)
{
    return (unsigned char) sn_hash64(k, 0, i / 997 + i);
}

static uint64_t size_of(int k)
{
    static const uint64_t sizes[] = {0, 1, 8, 4096, 65535, 131072, 131073, 400001, MOST};
    return sizes[(size_t) k % SN_COUNT(sizes)];
}

/* Everybody sends to everybody, 1F1B-like: sends are waited for late, receives come in another
 * order than the sends. */
static int mail(sn_boot *boot, int rank, int host, void *ctx)
{
    world w;
    unsigned char *arena, *in = malloc(MOST + 2);
    sn_coll_req *req[LETTERS], *r;
    if (world_open(boot, host, &w) != 0)
        return 1;
    RANK_OK(sn_coll_alloc(w.c, MOST + 64, (void **) &arena));
    unsigned char *plain = malloc(MOST);
    for (int far = 1; far < w.size; far++) {
        int to = (rank + far) % w.size, from = (rank + w.size - far) % w.size;
        for (uint64_t i = 0; i < MOST; i++)
            arena[i] = plain[i] = letter((uint64_t) rank, i);
        for (int k = 0; k < LETTERS; k++) { /* every third from outside the arena */
            const unsigned char *buf = k % 3 == 2 ? plain : arena;
            RANK_OK(sn_coll_send(w.c, to, (uint32_t) (k / 2), buf, size_of(k), soon(), &req[k]));
        }
        for (int k = LETTERS - 2; k >= 0; k -= 2) {
            for (int j = k; j < k + 2; j++) { /* two with one tag come in order */
                memset(in, 0x3c, MOST + 2);
                RANK_OK(
                    sn_coll_recv(w.c, from, (uint32_t) (k / 2), in + 1, size_of(j), soon(), &r));
                RANK_OK(sn_coll_wait(r));
                for (uint64_t i = 0; i < size_of(j); i += 1 + i / 64)
                    RANK_CHECK(in[1 + i] == letter((uint64_t) from, i));
                RANK_CHECK(in[0] == 0x3c && in[1 + size_of(j)] == 0x3c);
            }
        }
        for (int k = 0; k < LETTERS; k++)
            RANK_OK(sn_coll_wait(req[k]));
        RANK_OK(world_barrier(&w));
    }
    sn_coll_stats stats = sn_coll_stats_get(w.c);
    RANK_CHECK(stats.bytes_host + stats.bytes_net > 0);
    free(in);
    free(plain);
    world_close(&w);
    return 0;
}

static void test_mail(void **state)
{
    static const int here[] = {0, 0}, both[] = {0, 1, 0}, apart[] = {0, 1};
    WORLD(here, mail);
    WORLD(both, mail);
    WORLD(apart, mail);
}

/* More sends at once than the ring holds. */
static int flood(sn_boot *boot, int rank, int host, void *ctx)
{
    world w;
    sn_coll_req *req[200], *r;
    uint64_t *x, got = 0;
    if (world_open(boot, host, &w) != 0)
        return 1;
    RANK_OK(sn_coll_alloc(w.c, 200 * sizeof(*x), (void **) &x));
    for (uint32_t k = 0; k < 200 && rank == 0; k++) {
        x[k] = k;
        RANK_OK(sn_coll_send(w.c, 1, 5, x + k, sizeof(*x), soon(), &req[k]));
    }
    for (int k = 0; k < 200; k++) {
        if (rank == 1) {
            RANK_OK(sn_coll_recv(w.c, 0, 5, &got, sizeof(got), soon(), &r));
            RANK_OK(sn_coll_wait(r));
            RANK_CHECK(got == (uint64_t) k);
        } else {
            RANK_OK(sn_coll_wait(req[k]));
        }
    }
    world_close(&w);
    return 0;
}

static void test_flood(void **state)
{
    static const int here[] = {0, 0}, apart[] = {0, 1};
    WORLD(here, flood);
    WORLD(apart, flood);
}

static int wrong(sn_boot *boot, int rank, int host, void *ctx)
{
    world w;
    sn_coll_req *r;
    char x[200000] = {1};
    if (world_open(boot, host, &w) != 0)
        return 1;
    RANK_FAILS(sn_coll_send(w.c, rank, 1, x, 1, soon(), &r), SN_EINVAL, "no peer");
    RANK_FAILS(sn_coll_recv(w.c, 9, 1, x, 1, soon(), &r), SN_EINVAL, "no peer 9");
    RANK_FAILS(sn_coll_recv(w.c, 1 - rank, 1, NULL, 1, soon(), &r), SN_EINVAL, "no buffer");
    if (rank == 0) {
        RANK_OK(sn_coll_send(w.c, 1, 3, x, 100, soon(), &r));
        sn_status sent = sn_coll_wait(r); /* across hosts a small one has left already */
        RANK_CHECK(sent == SN_EMISMATCH || (sent == SN_OK && !sn_net_same_host(w.net, 1)));
        if (sn_net_same_host(w.net, 1)) {
            RANK_OK(sn_coll_send(w.c, 1, 4, x, sizeof(x), sn_now() + 50 * SN_MS, &r));
            RANK_FAILS(sn_coll_wait(r), SN_ETIME, "send to rank 1, tag 4");
        }
    } else {
        RANK_OK(sn_coll_recv(w.c, 0, 3, x, 96, soon(), &r));
        RANK_FAILS(sn_coll_wait(r), SN_EMISMATCH, "96");
        RANK_CHECK(strstr(sn_errmsg(), "100") != NULL);
        RANK_OK(sn_coll_recv(w.c, 0, 9, x, 5, sn_now() + 50 * SN_MS, &r));
        RANK_FAILS(sn_coll_wait(r), SN_ETIME, "receive from rank 0, tag 9");
    }
    RANK_OK(world_barrier(&w));
    world_close(&w);
    return 0;
}

static void test_wrong(void **state)
{
    static const int here[] = {0, 0}, apart[] = {0, 1};
    WORLD(here, wrong);
    WORLD(apart, wrong);
}

static int die(sn_boot *boot, int rank, int host, void *ctx)
{
    world w;
    sn_coll_req *r;
    char x[64];
    if (world_open(boot, host, &w) != 0)
        return 1;
    if (rank == 0)
        sn_rank_die();
    sn_time from = sn_now();
    RANK_OK(sn_coll_recv(w.c, 0, 9, x, 5, soon(), &r));
    RANK_FAILS(sn_coll_wait(r), SN_EPEER, "rank 0 (h0)");
    RANK_CHECK(sn_now() - from < 5 * SN_SEC);
    world_close(&w);
    return 0;
}

static void test_die(void **state)
{
    static const int here[] = {0, 0}, apart[] = {0, 1};
    WORLD(here, die);
    WORLD(apart, die);
}

int main(int argc, char **argv)
{
    sn_ranks_args(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mail),
        cmocka_unit_test(test_flood),
        cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_die),
    };
    return sn_test_run(tests);
}
