/* SPDX-License-Identifier: Apache-2.0
 * Programs that encode what goes between hosts: right on every split, cheaper where the link is
 * slow. */
#include "unit/plan_models.h"
#include "unit/sn_test.h"

#include <string.h>

static sn_gpt gpt = {2, 64, 4, 32, 256, 0};

static sn_plan_opts opts_of(const sn_topo *topo, int t, int p, int d, const char *codec)
{
    sn_plan_opts o = {.topo = topo,
                      .cards = t * p * d,
                      .tensor = t,
                      .pipeline = p,
                      .data = d,
                      .batch = 16,
                      .accumulation = 2,
                      .tokens_per_sample = gpt.sequence,
                      .bucket_bytes = 64 << 10,
                      .build = build_gpt,
                      .ctx = &gpt};
    assert_ok(sn_codec_parse(codec, &o.compression.gradients));
    assert_ok(sn_codec_parse("onebit", &o.compression.parameters));
    return o;
}

static int wires_of(const sn_plan *plan)
{
    sn_program **all = sn_alloc((size_t) plan->world * sizeof(*all));
    int wires = 0;
    for (int r = 0; r < plan->world; r++)
        assert_ok(sn_plan_program(plan, r, &all[r]));
    sn_program_check(plan, all);
    wires = all[0]->wires;
    for (int r = 0; r < plan->world; r++)
        sn_program_free(all[r]);
    free(all);
    return wires;
}

/* Every split of 8 cards on 2 hosts; data groups inside one host are left alone. */
static void test_splits(void **state)
{
    sn_topo *topo = machine(2, 4);
    for (int t = 1; t <= 4; t *= 2)
        for (int p = 1; p <= 2; p *= 2)
            for (int k = 0; k < 2; k++) {
                sn_plan *plan;
                sn_plan_opts o = opts_of(topo, t, p, 8 / t / p, k ? "powersgd:2" : "topk:0.01");
                o.precision = k ? SN_BF16 : SN_F32;
                assert_ok(sn_plan_make(&o, &plan));
                bool spans = plan->data > 1 && (p == 1 || plan->pipeline_near);
                assert_true((wires_of(plan) > 0) == spans);
                assert_true((plan->cost.plain_bytes > 0) == spans);
                assert_true(plan->cost.coded_bytes <= plan->cost.plain_bytes);
                sn_plan_free(plan);
            }
    sn_topo_free(topo);
}

/* Parameters of a wire tile its vector in order, and only matrices that gain by it have factors. */
static void test_params(void **state)
{
    sn_topo *topo = machine(2, 2);
    sn_plan *plan;
    sn_program *p;
    sn_plan_opts o = opts_of(topo, 2, 1, 2, "powersgd:4");
    assert_ok(sn_plan_make(&o, &plan));
    assert_ok(sn_plan_program(plan, 3, &p));
    int matrices = 0;
    for (int i = 0; i < p->wires; i++) {
        const sn_wire *w = &p->wire[i];
        int64_t at = 0;
        assert_true(w->params > 0);
        assert_int_equal(plan->group[w->group].members, 2);
        assert_int_not_equal(plan->group[w->group].host[0], plan->group[w->group].host[1]);
        for (int k = 0; k < w->params; k++) {
            const sn_wire_param *x = &w->param[k];
            int64_t n = 1;
            assert_true(x->at >= at && x->at + x->count <= w->count);
            at = x->at + x->count;
            for (int d = 0; d < plan->graph->value[x->value].shape.rank; d++)
                n *= x->extent[d];
            assert_int_equal(n, x->count);
            assert_true(x->rows == 0 ||
                        (x->rows * x->cols == x->count && 8 * (x->rows + x->cols) < x->count));
            matrices += x->rows > 0;
        }
    }
    assert_true(matrices > 4);
    sn_program_free(p);
    sn_plan_free(plan);
    sn_topo_free(topo);
}

static void slow_down(sn_topo *topo, double bytes_per_s)
{
    for (int i = 0; i < topo->links; i++)
        if (!strcmp(topo->link[i].kind, "ethernet"))
            topo->link[i].bytes_per_s = bytes_per_s;
    sn_topo_changed(topo);
}

/* The price counts encoded bytes and the encoding: it pays on a slow link and costs on a fast one.
 * */
static void test_price(void **state)
{
    const double link[] = {1e7, 1e11};
    for (int k = 0; k < 2; k++) {
        sn_topo *topo = machine(2, 1);
        sn_plan *plain, *coded;
        sn_str text = {0};
        slow_down(topo, link[k]);
        sn_plan_opts o = opts_of(topo, 1, 1, 2, "onebit");
        o.compression.codec_bytes_per_s = 1e8;
        assert_ok(sn_plan_make(&o, &coded));
        o.compression = (sn_plan_compression){0};
        assert_ok(sn_plan_make(&o, &plain));
        assert_true((coded->cost.step_ns < plain->cost.step_ns) == (k == 0));
        assert_int_equal(wires_of(plain), 0);
        assert_true(coded->cost.memory_bytes > plain->cost.memory_bytes);
        sn_plan_print(coded, &text);
        assert_non_null(strstr(sn_str_get(&text), "encoding  gradients onebit, parameters onebit"));
        assert_true(coded->cost.coded_bytes < coded->cost.plain_bytes / 20);
        sn_str_done(&text);
        sn_plan_free(plain);
        sn_plan_free(coded);
        sn_topo_free(topo);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_splits),
        cmocka_unit_test(test_params),
        cmocka_unit_test(test_price),
    };
    return cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL);
}
