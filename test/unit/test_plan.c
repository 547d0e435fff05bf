/* SPDX-License-Identifier: Apache-2.0
 * plan: first cases. */
#include "plan/plan.h"
#include "unit/sn_test.h"
#include <stdio.h>

typedef struct gpt_ctx {
    sn_gpt gpt;
} gpt_ctx;

static sn_status build_gpt(void *ctx, sn_arena *arena, int64_t micro, double tokens, sn_graph **ret)
{
    return sn_graph_gpt(arena, &((gpt_ctx *) ctx)->gpt, micro, tokens, ret);
}

static sn_topo *machine(int hosts, int cards)
{
    sn_topo *t = sn_topo_create("m");
    int sw = sn_topo_add_switch(t, "s");
    for (int h = 0; h < hosts; h++) {
        char name[32];
        snprintf(name, sizeof name, "h%d", h);
        int host = sn_topo_add_host(t, name, cards, UINT64_C(8) << 30);
        int nic = sn_topo_add_nic(t, host, "n", 1e9);
        for (int c = 0; c < cards; c++) {
            char cn[32];
            snprintf(cn, sizeof cn, "h%d/c%d", h, c);
            int card = sn_topo_add_card(t, host,
                                        &(sn_topo_card){.name = cn,
                                                        .kind = "cpu",
                                                        .core = c,
                                                        .numa_node = 0,
                                                        .share = 1,
                                                        .flops_f32 = 1e11,
                                                        .flops_bf16 = 1e11,
                                                        .memory_bytes = UINT64_C(1) << 30,
                                                        .memory_bytes_per_s = 1e10});
            sn_topo_add_link(t, t->host[host].vertex, t->card[card].vertex, 1000, 1e10, "shm",
                             false);
        }
        sn_topo_add_link(t, t->host[host].vertex, t->nic[nic].vertex, 1000, 1e10, "pcie", false);
        sn_topo_add_link(t, t->nic[nic].vertex, t->sw[sw].vertex, 10000, 1e9, "ethernet", false);
    }
    return t;
}

static void first(void **state)
{
    sn_topo *t = machine(2, 4);
    gpt_ctx g = {{.layers = 2, .hidden = 64, .heads = 4, .sequence = 32, .vocab = 64}};
    for (int tt = 1; tt <= 2; tt++)
        for (int p = 1; p <= 2; p++)
            for (int d = 1; d <= 2; d++)
                for (int acc = 1; acc <= 4; acc *= 2)
                    for (int prec = 0; prec < 2; prec++) {
                        sn_plan *plan;
                        sn_plan_opts o = {.topo = t,
                                          .tensor = tt,
                                          .pipeline = p,
                                          .data = d,
                                          .batch = 8,
                                          .accumulation = acc,
                                          .tokens_per_sample = 32,
                                          .build = build_gpt,
                                          .ctx = &g,
                                          .precision = prec ? SN_BF16 : SN_F32,
                                          .bucket_bytes = 40000};
                        assert_ok(sn_plan_make(&o, &plan));
                        sn_program *all[8];
                        for (int r = 0; r < plan->world; r++)
                            assert_ok(sn_plan_program(plan, r, &all[r]));
                        if (getenv("SHOW") && tt == 2 && p == 2 && d == 2 && acc == 2) {
                            sn_str s = {0};
                            sn_plan_print(plan, &s);
                            for (int r = 0; r < 8; r += 4)
                                sn_program_print(plan, all[r], &s);
                            puts(sn_str_get(&s));
                            sn_str_done(&s);
                        }
                        sn_program_check(plan, all);
                        for (int r = 0; r < plan->world; r++)
                            sn_program_free(all[r]);
                        sn_plan_free(plan);
                    }
    sn_topo_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(first)};
    return sn_test_run(tests);
}
