/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/graph.h"
#include "unit/sn_test.h"

static sn_graph *gpt(sn_arena *a, int64_t layers)
{
    sn_gpt m = {layers, 32, 4, 16, 256, 0};
    sn_graph *g = NULL;
    assert_ok(sn_graph_gpt(a, &m, 6, 96, &g));
    return g;
}

static int count(const sn_graph *g, sn_op op)
{
    int n = 0;
    for (int i = 0; i < g->nodes; i++)
        n += g->node[i].op == op;
    return n;
}

static void test_gpt(void **state)
{
    sn_arena *a = sn_arena_create();
    sn_graph *g = gpt(a, 3);
    sn_graph_check(g);
    int64_t d = 32, block = 12 * d * d + 13 * d; /* wqkv, wo, w1, w2 and their biases, two norms */
    assert_int_equal(sn_graph_parameters(g), 2 * 256 * d + 16 * d + 3 * block + 2 * d);
    int forward = g->nodes;
    assert_ok(sn_graph_fuse(g));
    sn_graph_check(g);
    assert_int_equal(g->nodes, forward - 6); /* every residual met its norm */
    assert_int_equal(count(g, SN_OP_RESIDUAL_LAYER_NORM), 6);
    assert_ok(sn_graph_backward(g));
    sn_graph_check(g);
    for (int v = 0; v < g->values; v++)
        if (g->value[v].kind == SN_VALUE_PARAM)
            assert_true(g->value[v].grad >= 0);
    assert_int_equal(count(g, SN_OP_ADD), 1); /* positions; no gradient needed an extra sum */
    assert_int_equal(sn_graph_fuse(g), SN_EINVAL);
    sn_arena_free(a);
}

static void test_stages_stop_fusion(void **state)
{
    sn_arena *a = sn_arena_create();
    sn_graph *g = gpt(a, 2);
    bool after = false;
    for (int i = 0; i < g->nodes; i++) {
        g->node[i].stage = after;
        after |= !strcmp(g->node[i].name, "h.0.mlp.add");
    }
    assert_ok(sn_graph_fuse(g));
    assert_int_equal(count(g, SN_OP_RESIDUAL), 1);
    assert_int_equal(count(g, SN_OP_LAYER_NORM), 2);
    assert_ok(sn_graph_backward(g));
    sn_graph_check(g);
    assert_int_equal(count(g, SN_OP_ADD), 1);
    sn_arena_free(a);
}

/* FLOPs of the three products of a block, counted by hand; causal attention is the lower half. */
static void test_flops(void **state)
{
    sn_arena *a = sn_arena_create();
    sn_graph *g = gpt(a, 1);
    double tokens = 16 * 6, d = 32, linear = 0, attention = 0;
    assert_ok(sn_graph_backward(g));
    for (int i = 0; i < g->nodes; i++) {
        const sn_node *n = &g->node[i];
        if (n->op == SN_OP_LINEAR || n->op == SN_OP_LINEAR_DX || n->op == SN_OP_LINEAR_DW)
            linear += sn_node_flops(g, n);
        if (n->op == SN_OP_ATTENTION)
            attention += sn_node_flops(g, n);
        assert_true(sn_node_bytes(g, n) > 0);
    }
    assert_true(linear == 3 * 2 * tokens * (12 * d * d + 256 * d));
    assert_true(attention == 4.0 * (16 * 17 / 2) * 6 * 32);
    sn_arena_free(a);
}

static void test_rules(void **state)
{
    sn_arena *a = sn_arena_create();
    sn_graph *g = gpt(a, 1);
    assert_ok(sn_graph_fuse(g));
    assert_ok(sn_graph_backward(g));
    for (int i = 0; i < g->nodes; i++) {
        sn_shard_rule rule, origin;
        sn_node_shard(g, &g->node[i], &rule);
        sn_node_shard(g, &g->node[g->node[i].origin], &origin);
        for (int l = 0; l < rule.labels; l++)
            for (int k = 0; k < origin.labels; k++)
                if (rule.label[l].id == origin.label[k].id)
                    assert_int_equal(rule.label[l].size, origin.label[k].size);
        for (int k = 0; k < g->node[i].ins; k++)
            for (int d = 0; g->node[i].in[k] >= 0 && d < g->value[g->node[i].in[k]].shape.rank; d++)
                if (rule.in[k][d] >= 0)
                    assert_int_equal(rule.label[rule.in[k][d]].size,
                                     g->value[g->node[i].in[k]].shape.dim[d]);
        /* an output that lacks a splittable label must say how its parts combine */
        for (int o = 0; o < g->node[i].outs; o++)
            for (int l = 0; l < rule.labels; l++) {
                bool has = false;
                for (int d = 0; d < SN_RANK_MAX; d++)
                    has |= rule.out[o][d] == l;
                if (!has && rule.label[l].splittable)
                    assert_int_not_equal(rule.label[l].combine, SN_COMBINE_NONE);
            }
    }
    sn_arena_free(a);
}

static void test_refusals(void **state)
{
    sn_arena *a = sn_arena_create();
    sn_graph *g = NULL;
    sn_gpt odd = {1, 66, 4, 16, 256, 0}, none = {0, 64, 4, 16, 256, 0};
    assert_int_equal(sn_graph_gpt(a, &odd, 1, 1, &g), SN_EINVAL);
    assert_string_equal(sn_errmsg(), "model hidden 66 is not divisible by heads 4");
    assert_int_equal(sn_graph_gpt(a, &none, 1, 1, &g), SN_EINVAL);
    assert_null(g);
    g = sn_graph_create(a, "x");
    int x = sn_graph_input(g, "x", SN_F32, SN_SHAPE(4, 8), 0);
    int w = sn_graph_param(g, "w", SN_SHAPE(3, 7), SN_INIT_NORMAL, 1, true);
    int values = g->values;
    assert_int_equal(
        sn_graph_add(g, SN_OP_LINEAR, "fc", &(sn_attr){.i = {1}}, (int[]){x, w}, 2, NULL),
        SN_EINVAL);
    assert_string_equal(sn_errmsg(),
                        "linear 'fc': the summed dims of x and w differ (operands [4,8] [3,7])");
    assert_int_equal(g->values, values);
    assert_int_equal(sn_graph_add(g, SN_OP_ADAMW, "no", NULL, &x, 1, NULL), SN_EINVAL);
    assert_int_equal(sn_graph_backward(g), SN_EINVAL);
    sn_arena_free(a);
}

/* A network that is no GPT: batch first, two layers, one weight used twice. */
static void test_mlp(void **state)
{
    sn_arena *a = sn_arena_create();
    sn_graph *g = sn_graph_create(a, "mlp");
    int x = sn_graph_input(g, "x", SN_F32, SN_SHAPE(4, 8), 0), h, u, y, m, s;
    int t = sn_graph_input(g, "t", SN_I32, SN_SHAPE(4), 0);
    int w = sn_graph_param(g, "w", SN_SHAPE(8, 8), SN_INIT_NORMAL, 1, true);
    int b = sn_graph_param(g, "b", SN_SHAPE(8), SN_INIT_ZERO, 0, false);
    sn_attr one = {.i = {1}};
    assert_ok(sn_graph_add(g, SN_OP_LINEAR, "fc1", &one, (int[]){x, w}, 2, &u));
    assert_ok(sn_graph_add(g, SN_OP_BIAS_GELU, "act", NULL, (int[]){u, b}, 2, &h));
    assert_ok(sn_graph_add(g, SN_OP_LINEAR, "fc2", &one, (int[]){h, w}, 2, &y));
    assert_ok(sn_graph_add(g, SN_OP_ROW_MAX, "max", NULL, &y, 1, &m));
    assert_ok(sn_graph_add(g, SN_OP_XENT_SUMS, "sums", NULL, (int[]){y, t, m}, 3, &s));
    assert_ok(sn_graph_add(g, SN_OP_XENT_LOSS, "loss", &(sn_attr){.f = {0.25}}, (int[]){m, s, t}, 3,
                           &g->loss));
    assert_ok(sn_graph_backward(g));
    sn_graph_check(g);
    assert_int_equal(count(g, SN_OP_LINEAR_DW), 2);
    assert_int_equal(count(g, SN_OP_LINEAR_DX), 1); /* x itself needs no gradient */
    assert_int_equal(count(g, SN_OP_ADD), 1);
    assert_int_equal(g->node[g->value[g->value[w].grad].producer].op, SN_OP_ADD);
    sn_arena_free(a);
}

/* Published sizes; a norm counts its gain and bias, running statistics are no parameters. */
static void test_sizes(void **state)
{
    static const struct {
        const char *name;
        int64_t parameters;
    } known[] = {{"resnet18", 11689512},       {"resnet50", 25557032},   {"resnet152", 60192808},
                 {"bert-base", 109514298},     {"gpt2-tied", 124439808}, {"llama2-7b", 6738415616},
                 {"mixtral-8x7b", 46702792704}};
    for (size_t i = 0; i < SN_COUNT(known); i++) {
        sn_arena *a = sn_arena_create();
        sn_model m;
        sn_graph *g;
        assert_ok(sn_model_find(known[i].name, &m));
        assert_ok(sn_model_build(a, &m, 2, 2.0 * (double) sn_model_units(&m), &g));
        sn_graph_check(g);
        if (sn_graph_parameters(g) != known[i].parameters)
            fail_msg("%s has %lld parameters, published are %lld", known[i].name,
                     (long long) sn_graph_parameters(g), (long long) known[i].parameters);
        sn_arena_free(a);
    }
}

/* Every output that a card computes has a place for each split label, or says how parts combine;
 * labels agree with the sizes of what they run along and with those of the forward node. */
static void check_rule(const sn_graph *g, int i, const char *model)
{
    const sn_node *n = &g->node[i];
    sn_shard_rule rule, origin;
    sn_node_shard(g, n, &rule);
    sn_node_shard(g, &g->node[n->origin], &origin);
    for (int l = 0; l < rule.labels; l++)
        for (int k = 0; k < origin.labels; k++)
            if (rule.label[l].id == origin.label[k].id && n->op != SN_OP_ADD)
                assert_int_equal(rule.label[l].size, origin.label[k].size);
    for (int k = 0; k < n->ins; k++)
        for (int d = 0; n->in[k] >= 0 && d < g->value[n->in[k]].shape.rank; d++)
            if (rule.in[k][d] >= 0 &&
                rule.label[rule.in[k][d]].size != g->value[n->in[k]].shape.dim[d])
                fail_msg("%s: %s '%s' labels operand %d wrongly", model, sn_op_name(n->op), n->name,
                         k);
    for (int o = 0; o < n->outs; o++)
        for (int l = 0; l < rule.labels; l++) {
            bool has = false;
            for (int d = 0; d < SN_RANK_MAX; d++)
                has |= rule.out[o][d] == l;
            if (!has && rule.label[l].splittable && rule.label[l].combine == SN_COMBINE_NONE)
                fail_msg("%s: %s '%s' does not say what output %d is when label %d is split", model,
                         sn_op_name(n->op), n->name, o, l);
        }
    assert_true(sn_node_bytes(g, n) > 0);
    assert_true(sn_node_flops(g, n) >= 0);
}

/* Every preset builds, is fused, differentiated, whole and well labelled; all parameters get a
 * gradient. Large ones with few layers. */
static void test_presets(void **state)
{
    sn_model_preset p;
    for (int i = 0; sn_model_preset_at(i, &p); i++) {
        sn_arena *a = sn_arena_create();
        sn_graph *g;
        if (p.model.kind == SN_MODEL_GPT)
            p.model.gpt.layers = 2;
        assert_ok(sn_model_build(a, &p.model, 6, 6.0 * (double) sn_model_units(&p.model), &g));
        int logits = sn_graph_find(g, "logits");
        assert_true(logits >= 0);
        assert_ok(sn_graph_fuse(g));
        assert_ok(sn_graph_backward(g));
        sn_graph_check(g);
        if (p.model.kind == SN_MODEL_GPT) { /* every residual met its norm, of either kind */
            sn_op one = p.model.gpt.rms ? SN_OP_RESIDUAL_RMS_NORM : SN_OP_RESIDUAL_LAYER_NORM;
            assert_int_equal(count(g, one), 4);
            assert_int_equal(count(g, SN_OP_RESIDUAL), 0);
        }
        for (int v = 0; v < g->values; v++)
            if (g->value[v].kind == SN_VALUE_PARAM && g->value[v].grad < 0)
                fail_msg("%s: %s has no gradient", p.name, g->value[v].name);
        for (int n = 0; n < g->nodes; n++)
            check_rule(g, n, p.name);
        sn_arena_free(a);
    }
}

/* A failure in the middle is named at the end, and nothing after it crashes. */
static void test_builder_failures(void **state)
{
    sn_arena *a = sn_arena_create();
    sn_graph *g = sn_graph_create(a, "broken");
    int x = sn_graph_input(g, "x", SN_F32, SN_SHAPE(4, 8, 8, 3), 0);
    sn_window far = SN_WINDOW_2D(11, 1, 1);
    x = sn_graph_conv(g, "far", x, 4, &far, 1, true);
    assert_int_equal(x, -1);
    x = sn_graph_batch_norm(g, "bn", x, -1, NULL);
    x = sn_graph_linear(g, "fc", x, SN_SHAPE(10), 3, 0, true);
    x = sn_graph_moe(g, "moe", x, &(sn_moe){.experts = 2, .used = 1, .inner = 4}, 1, NULL);
    x = sn_graph_attend(g, "attend", x, x, x, -1, true);
    x = sn_graph_mean_squares(g, x, x, 1);
    assert_int_equal(sn_graph_done(g, x), SN_EINVAL);
    assert_string_equal(sn_errmsg(),
                        "conv 'far': the windows do not fit into the operand (operands "
                        "[4,8,8,3] [4,11,11,3] [4])");
    sn_model m;
    assert_int_equal(sn_model_find("resnet51", &m), SN_ENOTFOUND);
    assert_ok(sn_model_find("moe-tiny", &m));
    m.gpt.experts_used = 5;
    assert_int_equal(sn_model_build(a, &m, 1, 1, &g), SN_EINVAL);
    sn_arena_free(a);
}

/* What is added to the loss gets the gradient 1 without a node for it. */
static void test_losses_add(void **state)
{
    sn_arena *a = sn_arena_create();
    sn_graph *g = sn_graph_create(a, "sum");
    int x = sn_graph_input(g, "x", SN_F32, SN_SHAPE(4, 8), 0);
    int t = sn_graph_input(g, "t", SN_F32, SN_SHAPE(4, 8), 0);
    int y = sn_graph_linear(g, "fc", x, SN_SHAPE(8), 1, 0, true);
    int one = sn_graph_mean_squares(g, y, t, 0.5), two = sn_graph_mean_squares(g, t, y, 0.25);
    assert_ok(sn_graph_done(g, sn_graph_sum(g, "both", one, two)));
    assert_ok(sn_graph_backward(g));
    sn_graph_check(g);
    assert_int_equal(count(g, SN_OP_MSE_GRAD), 2);
    assert_int_equal(count(g, SN_OP_CONSTANT), 0);
    sn_arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),      cmocka_unit_test(test_presets),
        cmocka_unit_test(test_losses_add), cmocka_unit_test(test_builder_failures),
        cmocka_unit_test(test_gpt),        cmocka_unit_test(test_stages_stop_fusion),
        cmocka_unit_test(test_flops),      cmocka_unit_test(test_rules),
        cmocka_unit_test(test_mlp),        cmocka_unit_test(test_refusals),
    };
    return sn_test_run(tests);
}
