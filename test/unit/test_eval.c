/* SPDX-License-Identifier: Apache-2.0
 * Gradients of the general tensor ops against finite differences, each alone between parameters
 * and a weighted sum. */
#include "unit/sn_test.h"

#include "eval/eval.h"

#include <math.h>

typedef struct grad_case {
    const char *name;
    sn_op op;
    sn_attr attr;
    sn_shape x, y; /* y.rank < 0: one operand */
    bool positive;
} grad_case;

#define NO_Y                                                                                       \
    {                                                                                              \
        .rank = -1                                                                                 \
    }
#define R SN_RANK_MAX

static const grad_case cases[] = {
    {"tanh", SN_OP_UNARY, {.i = {SN_UNARY_TANH}}, {2, {3, 4}}, NO_Y},
    {"erf", SN_OP_UNARY, {.i = {SN_UNARY_ERF}}, {1, {7}}, NO_Y},
    {"sqrt", SN_OP_UNARY, {.i = {SN_UNARY_SQRT}}, {1, {7}}, NO_Y, true},
    {"log", SN_OP_UNARY, {.i = {SN_UNARY_LOG}}, {1, {7}}, NO_Y, true},
    {"softplus", SN_OP_UNARY, {.i = {SN_UNARY_SOFTPLUS}}, {1, {7}}, NO_Y},
    {"add", SN_OP_BINARY, {.i = {SN_BINARY_ADD}}, {3, {2, 1, 3}}, {2, {4, 1}}},
    {"sub", SN_OP_BINARY, {.i = {SN_BINARY_SUB}}, {1, {3}}, {2, {4, 3}}},
    {"mul", SN_OP_BINARY, {.i = {SN_BINARY_MUL}}, {2, {4, 3}}, {1, {3}}},
    {"div", SN_OP_BINARY, {.i = {SN_BINARY_DIV}}, {2, {4, 3}}, {2, {4, 1}}, true},
    {"pow", SN_OP_BINARY, {.i = {SN_BINARY_POW}}, {2, {4, 3}}, {1, {1}}, true},
    {"max", SN_OP_BINARY, {.i = {SN_BINARY_MAX}}, {2, {4, 3}}, {2, {4, 3}}},
    {"reduce sum", SN_OP_REDUCE, {.i = {SN_REDUCE_SUM, 5}}, {3, {2, 3, 4}}, NO_Y},
    {"reduce mean", SN_OP_REDUCE, {.i = {SN_REDUCE_MEAN, 2}}, {3, {2, 3, 4}}, NO_Y},
    {"reduce max", SN_OP_REDUCE, {.i = {SN_REDUCE_MAX, 4}}, {3, {2, 3, 4}}, NO_Y},
    {"reduce prod", SN_OP_REDUCE, {.i = {SN_REDUCE_PROD, 4}}, {3, {2, 3, 4}}, NO_Y, true},
    {"reshape", SN_OP_RESHAPE, {.shape = {2, {6, 4}}}, {3, {2, 3, 4}}, NO_Y},
    {"transpose", SN_OP_TRANSPOSE, {.i = {2, 0, 1}}, {3, {2, 3, 4}}, NO_Y},
    {"strided",
     SN_OP_STRIDED,
     {.i = {[0] = 1, [1] = 3, [R] = 1, [R + 1] = -2}, .shape = {2, {2, 2}}},
     {2, {3, 4}},
     NO_Y},
    {"concat", SN_OP_CONCAT, {.i = {1}}, {2, {3, 4}}, {2, {3, 2}}},
    {"pad", SN_OP_PAD, {.i = {[0] = 1, [R + 1] = 2}, .f = {9}}, {2, {3, 4}}, NO_Y},
    {"tile", SN_OP_TILE, {.shape = {2, {6, 4}}}, {2, {3, 1}}, NO_Y},
    {"tile sum", SN_OP_TILE_SUM, {.shape = {2, {3, 1}}}, {2, {6, 4}}, NO_Y},
    {"cumulate", SN_OP_CUMULATE, {.i = {1, 1, 0}}, {2, {3, 4}}, NO_Y},
    {"top", SN_OP_TOP, {.i = {1, 2, 1}}, {2, {3, 4}}, NO_Y},
    {"matmul", SN_OP_MATMUL, {.i = {0, 0}}, {3, {2, 3, 4}}, {3, {2, 4, 5}}},
    {"matmul swapped", SN_OP_MATMUL, {.i = {0, 1}}, {3, {2, 3, 4}}, {3, {2, 5, 4}}},
    {"unfold",
     SN_OP_UNFOLD,
     {.i = {3, 2, 0, 2, 1, 0, 1, 2, 0, 1, 0, 0, 1, 1}},
     {4, {2, 2, 5, 6}},
     NO_Y},
    {"fold",
     SN_OP_FOLD,
     {.i = {2, 0, 0, 1, 0, 0, 1, 0, 0, 1}, .shape = {3, {1, 2, 4}}},
     {4, {1, 2, 2, 4}},
     NO_Y},
};

typedef struct world {
    sn_arena *arena;
    sn_graph *g;
    int param[2], weight;
    sn_eval *e;
} world;

/* loss = Σ weight · op(x, y), its gradient behind it. */
static world build(sn_card *card, const grad_case *c)
{
    world w = {.arena = sn_arena_create()};
    int out[SN_OP_OUT_MAX], loss, keep[3], ins = c->y.rank < 0 ? 1 : 2;
    w.g = sn_graph_create(w.arena, c->name);
    w.param[0] = sn_graph_param(w.g, "x", c->x, SN_INIT_ZERO, 0, false);
    w.param[1] = ins > 1 ? sn_graph_param(w.g, "y", c->y, SN_INIT_ZERO, 0, false) : -1;
    assert_ok(sn_graph_add(w.g, c->op, c->name, &c->attr, w.param, ins, out));
    sn_shape z = w.g->value[out[0]].shape;
    w.weight = sn_graph_input(w.g, "weight", SN_F32, z, -1);
    assert_ok(sn_graph_add(w.g, SN_OP_BINARY, "weigh", &(sn_attr){.i = {SN_BINARY_MUL}},
                           (int[]){out[0], w.weight}, 2, &loss));
    sn_attr all = {.i = {SN_REDUCE_SUM, ((int64_t) 1 << z.rank) - 1}};
    assert_ok(sn_graph_add(w.g, SN_OP_REDUCE, "sum", &all, &loss, 1, &loss));
    assert_ok(
        sn_graph_add(w.g, SN_OP_RESHAPE, "loss", &(sn_attr){.shape = {0}}, &loss, 1, &w.g->loss));
    /* seed: the reshape's gradient is that of a scalar 1 */
    keep[0] = w.g->loss;
    sn_status status = sn_graph_backward(w.g);
    if (status < 0)
        fail_msg("%s: %s", c->name, sn_errmsg());
    sn_graph_check(w.g);
    for (int i = 0; i < ins; i++)
        keep[1 + i] = w.g->value[w.param[i]].grad;
    assert_ok(sn_eval_create(card, w.g, keep, 1 + ins, &w.e));
    return w;
}

static void fill(world *w, int value, uint64_t stream, bool positive)
{
    float *p = sn_eval_data(w->e, value);
    int64_t n = sn_shape_count(w->g->value[value].shape);
    for (int64_t i = 0; i < n; i++) {
        double v = sn_hash_normal(5, stream, (uint64_t) i);
        p[i] = (float) (positive ? 0.5 + fabs(v) : v);
    }
}

static double loss(world *w)
{
    assert_ok(sn_eval_run(w->e));
    return (double) *(float *) sn_eval_data(w->e, w->g->loss);
}

static void test_gradients(void **state)
{
    sn_card *card;
    assert_ok(sn_card_open("ref", NULL, &card));
    for (size_t k = 0; k < SN_COUNT(cases); k++) {
        world w = build(card, &cases[k]);
        int ins = cases[k].y.rank < 0 ? 1 : 2;
        for (int i = 0; i < ins; i++)
            fill(&w, w.param[i], (uint64_t) (10 + i), cases[k].positive);
        fill(&w, w.weight, 30, false);
        for (int i = 0; i < ins; i++) {
            float *p = sn_eval_data(w.e, w.param[i]);
            int64_t n = sn_shape_count(w.g->value[w.param[i]].shape);
            loss(&w);
            float *grad = malloc((size_t) n * sizeof *grad);
            memcpy(grad, sn_eval_data(w.e, w.g->value[w.param[i]].grad), (size_t) n * sizeof *grad);
            for (int64_t j = 0; j < n; j++) {
                float at = p[j], h = 0.004f;
                p[j] = at + h;
                double up = loss(&w);
                p[j] = at - h;
                double slope = (up - loss(&w)) / (2 * (double) h);
                p[j] = at;
                if (!(fabs(slope - (double) grad[j]) <= 4e-3 + 4e-3 * fabs(slope)))
                    fail_msg("%s: operand %d [%lld]: %g, the difference says %g", cases[k].name, i,
                             (long long) j, (double) grad[j], slope);
            }
            free(grad);
        }
        sn_eval_free(w.e);
        sn_arena_free(w.arena);
    }
    sn_card_close(card);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gradients)};
    sn_test_args(argc, argv);
    return sn_test_run(tests);
}
