/* SPDX-License-Identifier: Apache-2.0
 *
 * The boot exchange: its server byte by byte, workers against it, and what is malformed. */
#include "net/net.h"
#include "unit/sn_ranks.h"
#include "unit/sn_test.h"

#define SOON (sn_now() + 10 * SN_SEC)

/* ---- the server alone; messages written by hand: this is the wire format ---- */

enum { BLOB = 1, WHO, ALL, MISSING, LEFT };

static void put(sn_str *s, uint32_t kind, uint32_t seq, const void *data, uint32_t bytes)
{
    uint32_t head[4] = {0x534e4254, kind, seq, bytes};
    sn_str_add_n(s, (const char *) head, sizeof head);
    if (bytes)
        sn_str_add_n(s, data, bytes);
}

/* Take what is pending for `rank` in pieces of `step`. */
static void drain(sn_boot_server *server, int rank, size_t step, sn_str *out)
{
    const void *data;
    size_t n;
    while ((n = sn_boot_server_pending(server, rank, &data))) {
        n = SN_MIN(n, step);
        sn_str_add_n(out, data, n);
        sn_boot_server_sent(server, rank, n);
    }
}

static void test_server_pieces(void **state)
{
    static const size_t steps[] = {1, 3, 16, 17, 1000};
    for (size_t k = 0; k < SN_COUNT(steps); k++) {
        sn_boot_server *server = sn_boot_server_create(2);
        sn_str in = {0}, out = {0}, want = {0};
        for (uint32_t round = 0; round < 3; round++) {
            sn_str_clear(&in);
            put(&in, BLOB, round, "hello", 5);
            for (size_t at = 0; at < in.len; at += steps[k])
                assert_ok(
                    sn_boot_server_feed(server, 1, in.data + at, SN_MIN(steps[k], in.len - at)));
            sn_str missing = {0};
            sn_boot_server_missing(server, &missing);
            assert_string_equal(sn_str_get(&missing), "waiting for rank 0");
            sn_str_done(&missing);
            sn_str_clear(&in);
            put(&in, BLOB, round, "", 0);
            assert_ok(sn_boot_server_feed(server, 0, in.data, in.len));
            static const char body[] = "\0\0\0\0\5\0\0\0hello";
            sn_str_clear(&want);
            put(&want, ALL, round, body, 13);
            for (int r = 0; r < 2; r++) {
                sn_str_clear(&out);
                drain(server, r, steps[k], &out);
                assert_int_equal(out.len, want.len);
                assert_memory_equal(out.data, want.data, want.len);
            }
        }
        sn_str_done(&in);
        sn_str_done(&out);
        sn_str_done(&want);
        sn_boot_server_free(server);
    }
}

static void test_server_notes(void **state)
{
    sn_boot_server *server = sn_boot_server_create(3);
    sn_str in = {0}, out = {0}, want = {0};
    put(&in, BLOB, 0, "x", 1);
    put(&in, WHO, 0, NULL, 0);
    assert_ok(sn_boot_server_feed(server, 1, in.data, in.len));
    sn_boot_server_left(server, 2);
    sn_boot_server_left(server, 2);
    drain(server, 1, 5, &out);
    put(&want, MISSING, 0, (uint32_t[]){0, 2}, 8);
    put(&want, LEFT, 0, (uint32_t[]){2}, 4);
    assert_int_equal(out.len, want.len);
    assert_memory_equal(out.data, want.data, want.len);
    sn_str_done(&in);
    sn_str_done(&out);
    sn_str_done(&want);
    sn_boot_server_free(server);
}

/* A note that began is not cut by the answer, and the answer comes before a later note. */
static void test_server_order(void **state)
{
    sn_boot_server *server = sn_boot_server_create(2);
    sn_str in = {0}, out = {0}, want = {0};
    const void *data;
    put(&in, BLOB, 0, "x", 1);
    put(&in, WHO, 0, NULL, 0);
    assert_ok(sn_boot_server_feed(server, 1, in.data, in.len));
    assert_true(sn_boot_server_pending(server, 1, &data) > 3);
    sn_str_add_n(&out, data, 3);
    sn_boot_server_sent(server, 1, 3);
    sn_str_clear(&in);
    put(&in, BLOB, 0, "y", 1);
    assert_ok(sn_boot_server_feed(server, 0, in.data, in.len));
    sn_boot_server_left(server, 0);
    drain(server, 1, 2, &out);
    put(&want, MISSING, 0, (uint32_t[]){0}, 4);
    put(&want, ALL, 0, "\1\0\0\0y\1\0\0\0x", 10);
    put(&want, LEFT, 0, (uint32_t[]){0}, 4);
    assert_int_equal(out.len, want.len);
    assert_memory_equal(out.data, want.data, want.len);
    sn_str_done(&in);
    sn_str_done(&out);
    sn_str_done(&want);
    sn_boot_server_free(server);
}

static void expect_corrupt(const sn_str *in, const char *words)
{
    sn_boot_server *server = sn_boot_server_create(2);
    assert_int_equal(sn_boot_server_feed(server, 1, in->data, in->len), SN_ECORRUPT);
    assert_non_null(strstr(sn_errmsg(), words));
    assert_non_null(strstr(sn_errmsg(), "rank 1"));
    assert_int_equal(sn_boot_server_feed(server, 1, "", 0), SN_ECORRUPT); /* for good */
    assert_ok(sn_boot_server_feed(server, 0, "", 0));
    assert_int_equal(sn_boot_server_feed(server, 2, "", 0), SN_EINVAL);
    sn_boot_server_free(server);
}

static void test_server_malformed(void **state)
{
    sn_str in = {0};
    sn_str_add(&in, "GET / HTTP/1.0\r\n\r\n");
    expect_corrupt(&in, "no boot message");
    sn_str_clear(&in);
    put(&in, 9, 0, NULL, 0);
    expect_corrupt(&in, "unknown kind 9");
    sn_str_clear(&in);
    put(&in, ALL, 0, NULL, 0);
    expect_corrupt(&in, "unknown kind");
    sn_str_clear(&in);
    uint32_t head[4] = {0x534e4254, BLOB, 0, 65537};
    sn_str_add_n(&in, (const char *) head, sizeof head);
    expect_corrupt(&in, "65537 bytes");
    sn_str_clear(&in);
    put(&in, BLOB, 1, "x", 1);
    expect_corrupt(&in, "#1 while #0");
    sn_str_clear(&in);
    put(&in, BLOB, 0, "x", 1);
    put(&in, BLOB, 0, "x", 1);
    expect_corrupt(&in, "#0 while #0");
    sn_str_done(&in);
}

/* Random bytes, and valid streams with one byte changed: a status, never worse. */
static void test_server_random(void **state)
{
    sn_prng p = {.seed = 11};
    for (int k = 0; k < 3000; k++) {
        sn_boot_server *server = sn_boot_server_create(2);
        sn_str in = {0}, out = {0};
        for (int i = 0; i < 3; i++)
            put(&in, (uint32_t) sn_prng_below(&p, 3), (uint32_t) sn_prng_below(&p, 2), "abcdef",
                (uint32_t) sn_prng_below(&p, 7));
        in.data[sn_prng_below(&p, (int64_t) in.len)] ^= (char) (1 << sn_prng_below(&p, 8));
        for (int r = 0; r < 2; r++) {
            sn_status status = sn_boot_server_feed(server, r, in.data, in.len);
            assert_true(status == SN_OK || status == SN_ECORRUPT);
            drain(server, r, 5, &out);
        }
        sn_str_done(&in);
        sn_str_done(&out);
        sn_boot_server_free(server);
    }
}

/* ---- workers ---- */

static void test_single(void **state)
{
    sn_boot *boot;
    const void *const *blobs;
    const size_t *bytes;
    assert_ok(sn_boot_single(&boot));
    assert_int_equal(sn_boot_rank(boot), 0);
    assert_int_equal(sn_boot_world(boot), 1);
    assert_ok(sn_boot_allgather(boot, "abc", 3, SOON, &blobs, &bytes));
    assert_int_equal(bytes[0], 3);
    assert_memory_equal(blobs[0], "abc", 3);
    assert_ok(sn_boot_allgather(boot, NULL, 0, SOON, &blobs, &bytes));
    assert_int_equal(bytes[0], 0);
    char *big = calloc(1, 65537);
    assert_int_equal(sn_boot_allgather(boot, big, 65537, SOON, &blobs, &bytes), SN_EINVAL);
    free(big);
    sn_boot_free(boot);
    sn_boot_free(NULL);
}

static int rank_gathers(sn_boot *boot, int rank, int host, void *ctx)
{
    RANK_CHECK(sn_boot_rank(boot) == rank && sn_boot_world(boot) == 5);
    const void *const *blobs;
    const size_t *bytes;
    char *mine = malloc(65536);
    for (int k = 0; k < 20; k++) {
        size_t n = (size_t) ((rank * 13107 * k) % 65537);
        memset(mine, rank + k, n);
        RANK_OK(sn_boot_allgather(boot, mine, n, SOON, &blobs, &bytes));
        for (int r = 0; r < 5; r++) {
            RANK_CHECK(bytes[r] == (size_t) ((r * 13107 * k) % 65537));
            for (size_t i = 0; i < bytes[r]; i++)
                RANK_CHECK(((const char *) blobs[r])[i] == r + k);
        }
    }
    free(mine);
    return 0;
}

static void test_gathers(void **state)
{
    assert_int_equal(sn_ranks_run(5, NULL, rank_gathers, NULL, SOON), 0);
}

/* Ranks 1 and 3 are there, but take no part until rank 0 has seen its time-out. */
static int rank_missing(sn_boot *boot, int rank, int host, void *ctx)
{
    const void *const *blobs;
    const size_t *bytes;
    int *over = ctx;
    if (rank == 1 || rank == 3)
        while (!__atomic_load_n(over, __ATOMIC_ACQUIRE))
            usleep(1000);
    if (rank == 2)
        RANK_FAILS(sn_boot_allgather(boot, "", 0, SOON, &blobs, &bytes), SN_EPEER, "left");
    if (rank)
        return 0;
    sn_time began = sn_now();
    RANK_FAILS(sn_boot_allgather(boot, "", 0, began + 100 * SN_MS, &blobs, &bytes), SN_ETIME,
               "ranks 1, 3");
    RANK_CHECK(sn_now() - began < 5 * SN_SEC);
    RANK_FAILS(sn_boot_allgather(boot, "", 0, SOON, &blobs, &bytes), SN_ETIME, "before");
    __atomic_store_n(over, 1, __ATOMIC_RELEASE);
    return 0;
}

static void test_missing(void **state)
{
    int *over = sn_ranks_shared(sizeof *over);
    assert_int_equal(sn_ranks_run(4, NULL, rank_missing, over, SOON), 0);
}

static int rank_leaves(sn_boot *boot, int rank, int host, void *ctx)
{
    const void *const *blobs;
    const size_t *bytes;
    RANK_OK(sn_boot_allgather(boot, "", 0, SOON, &blobs, &bytes));
    if (rank == 2)
        sn_rank_die();
    RANK_FAILS(sn_boot_allgather(boot, "", 0, SOON, &blobs, &bytes), SN_EPEER, "rank 2 left");
    return 0;
}

static void test_leaves(void **state)
{
    assert_int_equal(sn_ranks_run(3, NULL, rank_leaves, NULL, SOON), 0);
}

/* Whatever the launcher sends, a worker ends with a status. */
static void test_bad_launcher(void **state)
{
    static const uint32_t far = 77;
    sn_str say[5] = {{0}};
    sn_str_add(&say[0], "this is not what you think it is");
    put(&say[1], ALL, 0, "\5\0\0\0abc", 7);  /* cut short */
    put(&say[2], ALL, 1, "\1\0\0\0abcd", 8); /* of another round */
    put(&say[3], LEFT, 0, &far, 4);
    put(&say[4], ALL, 0, "\0\0\0\0\0\0\0\0!", 9); /* too long */
    for (size_t k = 0; k < SN_COUNT(say); k++) {
        int pair[2];
        sn_boot *boot;
        const void *const *blobs;
        const size_t *bytes;
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        assert_int_equal(write(pair[0], say[k].data, say[k].len), (int) say[k].len);
        assert_ok(sn_boot_socket(pair[1], 0, 2, &boot));
        assert_int_equal(sn_boot_allgather(boot, "", 0, SOON, &blobs, &bytes), SN_ECORRUPT);
        sn_boot_free(boot);
        close(pair[0]);
        sn_str_done(&say[k]);
    }
}

static void test_gone_launcher(void **state)
{
    int pair[2];
    sn_boot *boot;
    const void *const *blobs;
    const size_t *bytes;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_ok(sn_boot_socket(pair[1], 0, 2, &boot));
    close(pair[0]);
    assert_int_equal(sn_boot_allgather(boot, "", 0, SOON, &blobs, &bytes), SN_EPEER);
    assert_non_null(strstr(sn_errmsg(), "launcher"));
    sn_boot_free(boot);
    assert_int_equal(sn_boot_socket(9999, 0, 2, &boot), SN_EINVAL);
    assert_int_equal(sn_boot_socket(0, 2, 2, &boot), SN_EINVAL);
}

static int rank_no_pmix(sn_boot *boot, int rank, int host, void *ctx)
{
    sn_boot *other = NULL;
    sn_status status = sn_boot_pmix(&other);
    RANK_CHECK(status == SN_ENOTFOUND || status == SN_ENOTSUP);
    RANK_CHECK(!other);
    return 0;
}

static void test_no_pmix(void **state)
{
    assert_int_equal(sn_ranks_run(1, NULL, rank_no_pmix, NULL, SOON), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_server_pieces), cmocka_unit_test(test_server_notes),
        cmocka_unit_test(test_server_order),  cmocka_unit_test(test_server_malformed),
        cmocka_unit_test(test_server_random), cmocka_unit_test(test_single),
        cmocka_unit_test(test_gathers),       cmocka_unit_test(test_missing),
        cmocka_unit_test(test_leaves),        cmocka_unit_test(test_bad_launcher),
        cmocka_unit_test(test_gone_launcher), cmocka_unit_test(test_no_pmix),
    };
    return sn_test_run(tests);
}
