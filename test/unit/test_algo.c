/* SPDX-License-Identifier: Apache-2.0
 *
 * Every schedule, interpreted (algo_interp.h), on every small map; and what is chosen. */
#include "unit/algo_interp.h"

#define MEMBERS 8

/* Every map of up to 5 members onto 3 hosts, a few small sizes. */
static void test_every_map(void **state)
{
    static const int64_t sizes[] = {0, 1, 3, 65, 700};
    static const sn_dtype types[] = {SN_F32, SN_BF16, SN_F16};
    uint64_t seed = 1;
    for (int p = 1; p <= 5; p++) {
        int maps = 1;
        for (int i = 0; i < p; i++)
            maps *= 3;
        for (int map = 0; map < maps; map++) {
            int host[MEMBERS], rest = map;
            for (int i = 0; i < p; i++, rest /= 3)
                host[i] = rest % 3;
            sn_algo_group g = {.members = p, .host = host};
            all_of(&g, sizes[seed % SN_COUNT(sizes)], types[seed % SN_COUNT(types)], seed);
            seed++;
        }
    }
}

/* Up to eight hosts: what is done differently for powers of two and others; segments as many as a
 * wire without latency makes worth while. */
static void test_many_hosts(void **state)
{
    static const int apart[MEMBERS] = {0, 1, 2, 3, 4, 5, 6, 7};
    static const int uneven[MEMBERS] = {3, 0, 1, 2, 3, 4, 0, 5};
    sn_algo_model quick = sn_algo_model_from(NULL, NULL, 0);
    quick.net_latency_ns = quick.net_message_ns = 10;
    uint64_t seed = 5000;
    for (int p = 2; p <= MEMBERS; p++) {
        for (int64_t n = 1; n <= 32768; n = n * 3 + 1) {
            sn_algo_group g = {.members = p, .host = seed % 3 == 0 ? uneven : apart};
            g.model = seed % 2 == 0 ? &quick : NULL;
            all_of(&g, n, SN_F32, seed++);
        }
    }
}

/* Meshes of every shape on hosts in rows, in columns, one, and apart; and shapes that are none. */
static void test_meshes(void **state)
{
    static const int hosts[][MEMBERS] = {{0, 1, 2, 3, 4, 5, 6, 7},
                                         {0, 0, 0, 0, 1, 1, 1, 1},
                                         {0, 1, 0, 1, 0, 1, 0, 1},
                                         {0, 0, 0, 0, 0, 0, 0, 0},
                                         {2, 0, 0, 1, 0, 2, 1, 0}};
    static const struct {
        int members, dims, dim[3];
        bool fits;
    } shapes[] = {{4, 2, {2, 2}, true},    {6, 2, {2, 3}, true},    {6, 2, {3, 2}, true},
                  {8, 2, {4, 2}, true},    {8, 2, {2, 4}, true},    {8, 3, {2, 2, 2}, true},
                  {6, 3, {3, 1, 2}, true}, {8, 3, {1, 4, 2}, true}, {8, 2, {2, 3}, false},
                  {8, 1, {8}, false},      {8, 2, {-2, -4}, false}, {6, 2, {6, 1}, false},
                  {8, 3, {2, 4, 1}, true}, {4, 0, {0}, false}};
    sn_algo_call c = {.op = SN_ALL_REDUCE, .dtype = SN_F32, .count = 1};
    sn_algo_model m = sn_algo_model_from(NULL, NULL, 0);
    const sn_algo_row *row;
    uint64_t seed = 9000;
    for (size_t s = 0; s < SN_COUNT(shapes); s++) {
        for (size_t h = 0; h < SN_COUNT(hosts); h++) {
            sn_algo_group g = {.members = shapes[s].members, .host = hosts[h]};
            g.dim = shapes[s].dim;
            g.dims = shapes[s].dims;
            sn_status status = sn_algo_choose(&g, &c, &m, "torus", &row, NULL);
            assert_int_equal(status, shapes[s].fits ? SN_OK : SN_ENOTSUP);
            for (int64_t n = 1; n <= 3000 && shapes[s].fits; n = n * 7 + 3)
                all_of(&g, n, SN_F32, seed++);
        }
    }
}

/* coll asks with an all_reduce of one number whether to stage: that must not itself need staging,
 * on whatever network; and the choice is the same at every count's chunk. */
static void test_small_is_unshared(void **state)
{
    static const double latency[] = {0, 300, 8000, 1e6}, further[] = {0, 1500, 50000};
    sn_algo_call c = {.op = SN_ALL_REDUCE, .red = SN_MAX, .dtype = SN_F32, .count = 1};
    sn_arena *arena = sn_arena_create();
    for (int k = 0; k < 600; k++) {
        int host[40], p = 1 + (int) (sn_hash64(3, (uint64_t) k, 0) % 40);
        int hosts = 1 + (int) (sn_hash64(4, (uint64_t) k, 0) % (uint64_t) p);
        for (int i = 0; i < p; i++)
            host[i] = k % 2 ? i % hosts : (int) (sn_hash64(5, (uint64_t) k, (uint64_t) i) % 7);
        sn_algo_group g = {.members = p, .host = host};
        sn_algo_model m = sn_algo_model_from(NULL, NULL, 0);
        m.net_latency_ns = latency[k % 4];
        m.net_message_ns = further[k % 3];
        const sn_algo_row *row;
        sn_sched s;
        assert_ok(sn_algo_choose(&g, &c, &m, NULL, &row, NULL));
        assert_ok(row->schedule(&g, &c, 0, arena, &s));
        bool alone = true;
        for (int i = 0; i < p; i++)
            for (int j = 0; j < i; j++)
                alone = alone && host[i] != host[j];
        assert_true(alone || !s.shared);
        sn_arena_reset(arena);
    }
    sn_arena_free(arena);
}

/* No member has more sends and receives under way than coll keeps room for: 4 · members + 8. */
static void test_under_way(void **state)
{
    const sn_algo_row *const *rows;
    int n = sn_algo_rows(&rows);
    for (int r = 0; r < n; r++) {
        for (int k = 0; k < 40 * SN_COLL_OPS; k++) {
            int host[12], p = 2 + k % 11;
            for (int i = 0; i < p; i++)
                host[i] = (int) (sn_hash64(6, (uint64_t) k, (uint64_t) i) % (1 + (uint64_t) k % 9));
            sn_algo_group g = {.members = p, .host = host};
            sn_algo_call c = {.op = (sn_coll_op) (k / 40), .dtype = SN_F32, .count = 5000};
            if (!sn_algo_fits(rows[r], &g, &c))
                continue;
            sn_arena *arena = sn_arena_create();
            sn_sched s;
            int now = 0;
            assert_ok(rows[r]->schedule(&g, &c, k % p, arena, &s));
            for (int i = 0; i < s.steps; i++) {
                now += s.step[i].kind == SN_STEP_SEND || s.step[i].kind == SN_STEP_RECV;
                now = s.step[i].kind == SN_STEP_FENCE ? 0 : now;
                assert_true(now <= 4 * p + 8);
            }
            sn_arena_free(arena);
        }
    }
}

/* Where the new ones win: many hosts. Few hosts go straight. */
static void test_winners(void **state)
{
    int host[128];
    for (int i = 0; i < 128; i++)
        host[i] = i;
    sn_algo_group g = {.members = 128, .host = host};
    sn_algo_model m = sn_algo_model_from(NULL, NULL, 0);
    const struct {
        sn_coll_op op;
        int64_t count;
        const char *name;
    } want[] = {{SN_ALL_REDUCE, 2, "recursive_doubling"},
                {SN_ALL_REDUCE, 1 << 16, "rabenseifner"},
                {SN_ALL_GATHER, 2, "recursive_doubling"},
                {SN_BROADCAST, 2, "binomial"},
                {SN_BROADCAST, 1 << 22, "double_tree"}};
    for (size_t i = 0; i < SN_COUNT(want); i++) {
        sn_algo_call c = {.op = want[i].op, .dtype = SN_F32, .count = want[i].count};
        const sn_algo_row *row;
        assert_ok(sn_algo_choose(&g, &c, &m, NULL, &row, NULL));
        assert_string_equal(row->name, want[i].name);
    }
}

static void test_choice(void **state)
{
    static const int here[] = {3, 3, 3, 3}, pairs[] = {0, 0, 1, 1};
    sn_algo_group one_host = {4, here}, two_hosts = {4, pairs};
    sn_algo_model m = sn_algo_model_from(NULL, NULL, 0);
    const sn_algo_row *row, *again;
    double ns, ns_again, before = 0;
    for (sn_coll_op op = 0; op < SN_COLL_OPS; op++) {
        before = 0;
        for (int64_t n = 1; n <= 1 << 26; n *= 4) {
            sn_algo_call c = {.op = op, .dtype = SN_F32, .count = n};
            assert_ok(sn_algo_choose(&one_host, &c, &m, NULL, &row, &ns));
            assert_true(ns > 0);
            assert_ok(sn_algo_choose(&two_hosts, &c, &m, NULL, &row, &ns));
            c.in_place = true; /* what differs between members must not change the choice */
            assert_ok(sn_algo_choose(&two_hosts, &c, &m, NULL, &again, &ns_again));
            assert_ptr_equal(row, again);
            assert_true(ns == ns_again && ns >= before);
            before = ns;
        }
    }
    sn_algo_call c = {.op = SN_ALL_REDUCE, .dtype = SN_F32, .count = 1 << 20};
    assert_ok(sn_algo_choose(&one_host, &c, &m, NULL, &row, &ns));
    assert_string_equal(row->name, "flat");
    assert_ok(sn_algo_choose(&two_hosts, &c, &m, NULL, &row, &ns));
    assert_string_equal(row->name, "hierarchical");
    assert_ok(sn_algo_choose(&two_hosts, &c, &m, "ring", &row, NULL));
    assert_string_equal(row->name, "ring");
    assert_int_equal(sn_algo_choose(&two_hosts, &c, &m, "flat", &row, NULL), SN_ENOTSUP);
    assert_non_null(strstr(sn_errmsg(), "hierarchical, ring"));
    c.dtype = SN_BF16; /* sums that go on are wide */
    assert_ok(sn_algo_choose(&two_hosts, &c, &m, "ring", &row, NULL));
    c.deterministic = true;
    assert_int_equal(sn_algo_choose(&two_hosts, &c, &m, "ring", &row, NULL), SN_ENOTSUP);
    assert_non_null(strstr(sn_errmsg(), "chain, ordered"));
}

/* Four cards on two cores of two emulated hosts: two members a core; the slow link is the wire. */
static void test_model(void **state)
{
    sn_topo *base = sn_topo_create("base"), *topo;
    int h = sn_topo_add_host(base, "h", 2, UINT64_C(1) << 33);
    sn_topo_card like = {.name = "c0",
                         .kind = "cpu",
                         .share = 1,
                         .flops_f32 = 1e11,
                         .flops_bf16 = 1e11,
                         .memory_bytes = 1 << 30,
                         .memory_bytes_per_s = 1e10};
    for (like.core = 0; like.core < 2; like.core++) {
        int c = sn_topo_add_card(base, h, &like);
        sn_topo_add_link(base, base->card[c].vertex, base->host[h].vertex, 200, 1e10, "shm", true);
    }
    assert_ok(sn_topo_emulate(base, 2, 2, 30000, 1.25e8, &topo));
    int cards[4] = {0, 1, 2, 3};
    sn_algo_model m = sn_algo_model_from(topo, cards, 4);
    assert_true(m.net_bytes_per_s == 1.25e8 && m.net_latency_ns >= 30000);
    assert_true(m.signal_ns > 0 && m.signal_ns < m.net_latency_ns && m.copy_bytes_per_s > 0);
    assert_true(m.members_per_core == 2);
    sn_algo_model outside = sn_algo_model_from(topo, (int[]){0, 9}, 2); /* not a card: defaults */
    assert_true(outside.net_bytes_per_s > 0 && outside.members_per_core == 1);
    sn_topo_free(topo);
    sn_topo_free(base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_map), cmocka_unit_test(test_many_hosts),
        cmocka_unit_test(test_meshes),    cmocka_unit_test(test_small_is_unshared),
        cmocka_unit_test(test_under_way), cmocka_unit_test(test_winners),
        cmocka_unit_test(test_choice),    cmocka_unit_test(test_model),
    };
    return sn_test_run(tests);
}
