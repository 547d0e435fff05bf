/* SPDX-License-Identifier: Apache-2.0
 * Machines and models that the tests of plan share. */
#ifndef SN_TEST_PLAN_MODELS_H
#define SN_TEST_PLAN_MODELS_H

#include "plan/plan.h"

#include <stdio.h>

/* Slow cards (speed < 1) make work dear against communication: splits along the sequence pay. */
static sn_topo *machine_of(int hosts, int cards, double speed)
{
    sn_topo *t = sn_topo_create("machine");
    int sw = sn_topo_add_switch(t, "s");
    for (int h = 0; h < hosts; h++) {
        char name[48];
        snprintf(name, sizeof name, "h%d", h);
        int host = sn_topo_add_host(t, name, cards, UINT64_C(8) << 30);
        snprintf(name, sizeof name, "h%d/nic", h);
        int nic = sn_topo_add_nic(t, host, name, 1e9);
        for (int c = 0; c < cards; c++) {
            snprintf(name, sizeof name, "h%d/c%d", h, c);
            sn_topo_card like = {.name = name,
                                 .kind = "cpu",
                                 .core = c,
                                 .share = 1,
                                 .flops_f32 = 1e11 * speed,
                                 .flops_bf16 = 1e11 * speed,
                                 .memory_bytes = UINT64_C(1) << 30,
                                 .memory_bytes_per_s = 1e10 * speed};
            int card = sn_topo_add_card(t, host, &like);
            sn_topo_add_link(t, t->host[host].vertex, t->card[card].vertex, 500, 1e10, "shm",
                             false);
        }
        sn_topo_add_link(t, t->host[host].vertex, t->nic[nic].vertex, 500, 1e10, "pcie", false);
        sn_topo_add_link(t, t->nic[nic].vertex, t->sw[sw].vertex, 10000, 1e9, "ethernet", false);
    }
    return t;
}

static sn_topo *machine(int hosts, int cards)
{
    return machine_of(hosts, cards, 1);
}

static inline sn_status build_gpt(void *ctx, sn_arena *arena, int64_t micro, double tokens,
                                  sn_graph **ret)
{
    return sn_graph_gpt(arena, ctx, micro, tokens, ret);
}

/* Batch first, [B, D]: two hidden layers with a skip over both, cross-entropy over classes. */
static inline sn_status build_mlp(void *ctx, sn_arena *arena, int64_t micro, double tokens,
                                  sn_graph **ret)
{
    const int64_t *size = ctx; /* vocabulary, width, hidden, classes */
    sn_graph *g = sn_graph_create(arena, "mlp");
    int out[SN_OP_OUT_MAX], x, h, y;
    sn_attr one = {.i = {1}};
    int ids = sn_graph_input(g, "ids", SN_I32, SN_SHAPE(micro), 0);
    int targets = sn_graph_input(g, "targets", SN_I32, SN_SHAPE(micro), 0);
    int table = sn_graph_param(g, "table", SN_SHAPE(size[0], size[1]), SN_INIT_NORMAL, 0.5, true);
    SN_TRY(sn_graph_add(g, SN_OP_EMBEDDING, "embed", NULL, (int[]){table, ids}, 2, &x));
    int first = x;
    for (int layer = 0; layer < 3; layer++) {
        char name[32];
        snprintf(name, sizeof name, "w1.%d", layer);
        int w1 = sn_graph_param(g, sn_arena_str(arena, name), SN_SHAPE(size[2], size[1]),
                                SN_INIT_NORMAL, 0.3, true);
        snprintf(name, sizeof name, "b1.%d", layer);
        int b1 =
            sn_graph_param(g, sn_arena_str(arena, name), SN_SHAPE(size[2]), SN_INIT_ZERO, 0, false);
        snprintf(name, sizeof name, "w2.%d", layer);
        int w2 = sn_graph_param(g, sn_arena_str(arena, name), SN_SHAPE(size[1], size[2]),
                                SN_INIT_NORMAL, 0.3, true);
        SN_TRY(sn_graph_add(g, SN_OP_LINEAR, "up", &one, (int[]){x, w1}, 2, &h));
        SN_TRY(sn_graph_add(g, SN_OP_BIAS_GELU, "gelu", NULL, (int[]){h, b1}, 2, &h));
        SN_TRY(sn_graph_add(g, SN_OP_LINEAR, "down", &one, (int[]){h, w2}, 2, &y));
        SN_TRY(sn_graph_add(g, SN_OP_ADD, "skip", NULL, (int[]){y, layer == 2 ? first : x}, 2, &x));
    }
    int head = sn_graph_param(g, "head", SN_SHAPE(size[3], size[1]), SN_INIT_NORMAL, 0.3, true);
    SN_TRY(sn_graph_add(g, SN_OP_LINEAR, "logits", &one, (int[]){x, head}, 2, &y));
    SN_TRY(sn_graph_add(g, SN_OP_ROW_MAX, "max", NULL, &y, 1, &h));
    SN_TRY(sn_graph_add(g, SN_OP_XENT_SUMS, "sums", NULL, (int[]){y, targets, h}, 3, &x));
    sn_attr scale = {.f = {1 / tokens}};
    SN_TRY(sn_graph_add(g, SN_OP_XENT_LOSS, "loss", &scale, (int[]){h, x, targets}, 3, out));
    g->loss = out[0];
    *ret = g;
    return SN_OK;
}

#endif
