/* SPDX-License-Identifier: Apache-2.0
 *
 * The mesh that a group finds in the topology. */
#include "coll/coll_private.h"
#include "unit/sn_test.h"

#include <stdio.h>

#define CABLE "latency: 1us, bandwidth: 10GB/s"

typedef struct mesh_case {
    int hosts, cards; /* of a host */
    const char *links;
    int step; /* the group has every step-th card, from the last to the first when negative */
    int dims, dim[4];
} mesh_case;

static const mesh_case cases[] = {
    {6, 1, "{among: 'h*/n', pattern: torus, size: [2, 3], " CABLE "}", 1, 2, {2, 3}},
    {12, 1, "{among: 'h*/n', pattern: torus, size: [3, 4], " CABLE "}", -1, 2, {3, 4}},
    {12, 1, "{among: 'h*/n', pattern: grid, size: [2, 3, 2], " CABLE "}", 1, 3, {2, 3, 2}},
    {9, 2, "{among: 'h*/n', pattern: torus, size: [3, 3], " CABLE "}", 1, 3, {3, 3, 2}},
    {9, 2, "{among: 'h*/n', pattern: torus, size: [3, 3], " CABLE "}", 2, 2, {3, 3}},
    {8, 1, "{among: 'h*/n', pattern: ring, " CABLE "}", 1, 0, {0}},
    {8, 1, "{among: 'h*/n', pattern: full, " CABLE "}", 1, 0, {0}},
    {8, 1, "{from: 'h*/n', to: s0, " CABLE "}", 1, 0, {0}},
    {6,
     1,
     "[{from: 'h*/n', to: 's*', pattern: one, " CABLE "}, {among: 's*', pattern: torus, "
     "size: [3, 2], " CABLE "}]",
     1,
     2,
     {3, 2}},
};

static sn_topo *make(const mesh_case *c)
{
    char text[2048];
    sn_topo *topo;
    snprintf(text, sizeof(text),
             "kinds:\n"
             "  cpu: {flops_f32: 1TFLOP/s, flops_bf16: 2TFLOP/s, memory: 4GiB, "
             "memory_bandwidth: 10GB/s}\n"
             "hosts: {name: h, count: %d, cards: {kind: cpu, count: %d, core: 0, link: {" CABLE
             "}}, nics: {name: n, bandwidth: 1GB/s, link: {" CABLE "}}}\n"
             "switches: {name: s, count: %d}\nlinks: %s\n",
             c->hosts, c->cards, c->hosts, c->links);
    assert_ok(sn_topo_parse(text, strlen(text), "t.yaml", &topo));
    return topo;
}

static void test_mesh(void **state)
{
    for (size_t k = 0; k < SN_COUNT(cases); k++) {
        const mesh_case *c = &cases[k];
        sn_topo *topo = make(c);
        int step = c->step < 0 ? -c->step : c->step, n = c->hosts * c->cards / step;
        coll_member *m = sn_alloc((size_t) n * sizeof(*m));
        for (int i = 0; i < n; i++) {
            m[i].rank = (c->step < 0 ? n - 1 - i : i) * step;
            m[i].host = m[i].rank / c->cards;
        }
        sn_coll coll = {.topo = topo};
        sn_coll_group g = {.coll = &coll, .size = n, .member = m};
        int dim[COLL_DIMS] = {0}, dims = coll_mesh_find(&g, dim);
        if (dims != c->dims || memcmp(dim, c->dim, (size_t) dims * sizeof(int)) != 0)
            fail_msg("case %zu: %d dimensions, %d x %d x %d", k, dims, dim[0], dim[1], dim[2]);
        free(m);
        sn_topo_free(topo);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mesh)};
    return sn_test_run(tests);
}
