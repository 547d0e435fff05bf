/* SPDX-License-Identifier: Apache-2.0
 * Whole graphs on the oracle in double:
 *
 *   gradients  for every parameter p and a random direction d, (L(p + hd) − L(p − hd)) / 2h is the
 *              inner product of d and what sn_graph_backward says the gradient is
 *   splits     for every node of those graphs, forward and backward, and every label that its shard
 *              rule calls splittable: two halves computed apart and put together as the rule says
 *              are the whole result */
#include "unit/kern_ref64.h"
#include "unit/sn_test.h"

#include <stdio.h>

typedef struct memory {
    sn_graph *g;
    void **data; /* [values] double, or int32_t */
} memory;

static bool is_integer(const sn_graph *g, int v)
{
    return g->value[v].dtype == SN_I32;
}

static size_t bytes_of(const sn_graph *g, int v)
{
    return is_integer(g, v) ? sizeof(int32_t) : sizeof(double);
}

static int64_t count_of(const sn_graph *g, int v)
{
    return sn_shape_count(g->value[v].shape);
}

/* What an input holds: tokens, classes, segments and padding by its name, images by chance. */
static int32_t integer(const char *name, uint64_t random)
{
    if (!strcmp(name, "mask"))
        return random % 4 != 0;
    if (!strcmp(name, "segments"))
        return (int32_t) (random % 2);
    if (!strcmp(name, "targets") || !strcmp(name, "labels"))
        return (int32_t) (random % 11) - 1;
    return (int32_t) (random % 10);
}

static memory memory_make(sn_graph *g)
{
    memory m = {g, sn_alloc((size_t) g->values * sizeof(void *))};
    for (int v = 0; v < g->values; v++) {
        const sn_value *value = &g->value[v];
        int64_t n = count_of(g, v);
        m.data[v] = sn_alloc((size_t) (n + 1) * bytes_of(g, v));
        if (value->kind == SN_VALUE_RESULT)
            continue;
        for (int64_t i = 0; i < n; i++) {
            uint64_t stream = sn_hash_bytes(value->name, strlen(value->name));
            double x = sn_hash_normal(11, stream, (uint64_t) i);
            if (is_integer(g, v))
                ((int32_t *) m.data[v])[i] =
                    integer(value->name, sn_hash64(11, stream, (uint64_t) i));
            else if (value->kind == SN_VALUE_INPUT || value->init == SN_INIT_NORMAL)
                ((double *) m.data[v])[i] = (value->init_std > 0 ? 3 * value->init_std : 1) * x;
            else /* no zeros, no ones: a forgotten gain or bias must show */
                ((double *) m.data[v])[i] = (value->init == SN_INIT_ONE) + 0.2 * x;
        }
    }
    return m;
}

static void memory_done(memory *m)
{
    for (int v = 0; v < m->g->values; v++)
        free(m->data[v]);
    free(m->data);
}

static sn_kernel_spec spec_of(const sn_graph *g, const sn_node *n)
{
    sn_kernel_spec s = {.op = n->op, .attr = n->attr, .ins = n->ins, .outs = n->outs};
    for (int i = 0; i < n->ins; i++) {
        s.in[i].absent = n->in[i] < 0;
        if (n->in[i] >= 0) {
            s.in[i].dtype = g->value[n->in[i]].dtype;
            s.in[i].shape = g->value[n->in[i]].shape;
        }
    }
    for (int o = 0; o < n->outs; o++) {
        s.out[o].dtype = g->value[n->out[o]].dtype;
        s.out[o].shape = g->value[n->out[o]].shape;
    }
    return s;
}

static void run64(const sn_kernel_spec *spec, const void *const *in, void *const *out)
{
    const kern_impl *impl = &ref64_impls()[spec->op];
    sn_kernel k = {.spec = *spec, .impl = impl};
    assert_ok(kern_check(spec, &k.d));
    if (impl->prepare)
        assert_ok(impl->prepare(&k));
    void *work = sn_alloc(k.work_bytes + 1);
    assert_ok(impl->run(&k, in, out, work));
    free(work);
}

static void run_node(const memory *m, const sn_node *n)
{
    sn_kernel_spec spec = spec_of(m->g, n);
    const void *in[SN_OP_IN_MAX] = {0};
    void *out[SN_OP_OUT_MAX];
    for (int i = 0; i < n->ins; i++)
        in[i] = n->in[i] < 0 ? NULL : m->data[n->in[i]];
    for (int o = 0; o < n->outs; o++)
        out[o] = m->data[n->out[o]];
    run64(&spec, in, out);
}

static double run_graph(const memory *m, bool backward)
{
    for (int i = 0; i < m->g->nodes; i++)
        if (backward || !m->g->node[i].backward)
            run_node(m, &m->g->node[i]);
    return *(double *) m->data[m->g->loss];
}

/* ---- gradients */

static double direction(int v, int64_t i)
{
    return sn_hash_normal(13, (uint64_t) v, (uint64_t) i);
}

static void move(const memory *m, int v, double by)
{
    double *x = m->data[v];
    for (int64_t i = 0; i < count_of(m->g, v); i++)
        x[i] += by * direction(v, i);
}

static void check_gradient(const memory *m, int v, const char *model)
{
    const sn_value *value = &m->g->value[v];
    const double *grad = m->data[value->grad], h = 1e-6;
    double said = 0, length = 0;
    for (int64_t i = 0; i < count_of(m->g, v); i++) {
        said += grad[i] * direction(v, i);
        length += grad[i] * grad[i];
    }
    double *kept = sn_alloc((size_t) (count_of(m->g, v) + 1) * sizeof *kept);
    memcpy(kept, m->data[v], (size_t) count_of(m->g, v) * sizeof *kept);
    move(m, v, h);
    double up = run_graph(m, false);
    memcpy(m->data[v], kept, (size_t) count_of(m->g, v) * sizeof *kept);
    move(m, v, -h);
    double down = run_graph(m, false);
    memcpy(m->data[v], kept, (size_t) count_of(m->g, v) * sizeof *kept);
    free(kept);
    double want = (up - down) / (2 * h);
    if (!(fabs(said - want) <= 1e-6 * sqrt(length) + 1e-6 * fabs(want) + 1e-9 * (1 + fabs(up))))
        fail_msg("%s: the gradient of %s along a direction is %.12g, differences say %.12g", model,
                 value->name, said, want);
}

static void check_gradients(const memory *m, const char *model)
{
    for (int v = 0; v < m->g->values; v++)
        if (m->g->value[v].kind == SN_VALUE_PARAM && m->g->value[v].grad >= 0)
            check_gradient(m, v, model);
}

/* ---- splits: a node's half of the work along a label */

typedef struct cut {
    int64_t outer, length, inner; /* the tensor seen around one dim; length 0: it lacks the label */
} cut;

static cut cut_of(sn_shape s, const int8_t *labels, int label)
{
    cut c = {1, 0, 1};
    for (int d = 0; d < s.rank; d++) {
        if (labels[d] == label)
            c.length = s.dim[d];
        else if (c.length)
            c.inner *= s.dim[d];
        else
            c.outer *= s.dim[d];
    }
    return c;
}

static sn_shape halved(sn_shape s, const int8_t *labels, int label)
{
    for (int d = 0; d < s.rank; d++)
        if (labels[d] == label)
            s.dim[d] /= 2;
    return s;
}

/* Copy half `part` of the whole tensor out of it (or, back, into it). */
static void copy_half(void *half, void *whole, cut c, int part, size_t bytes, bool back)
{
    size_t run = (size_t) (c.length / 2 * c.inner) * bytes;
    for (int64_t o = 0; o < c.outer; o++) {
        char *h = (char *) half + (size_t) o * run,
             *w = (char *) whole + (2 * (size_t) o + (size_t) part) * run;
        memcpy(back ? w : h, back ? h : w, run);
    }
}

/* The half's kernel: local shapes, and what of the attributes says where it is. */
static sn_kernel_spec half_spec(const memory *m, const sn_node *n, const sn_shard_rule *r,
                                int label, int part)
{
    sn_kernel_spec s = spec_of(m->g, n);
    for (int i = 0; i < n->ins; i++)
        s.in[i].shape = halved(s.in[i].shape, r->in[i], label);
    for (int o = 0; o < n->outs; o++)
        s.out[o].shape = halved(s.out[o].shape, r->out[o], label);
    if (r->label[label].id == r->begin_label)
        s.attr.begin = part * r->label[label].size / 2;
    if (sn_shape_equal(s.attr.shape, m->g->value[n->out[0]].shape))
        s.attr.shape = s.out[0].shape;
    if (n->op == SN_OP_EMBEDDING_GRAD)
        s.attr.i[0] = s.out[0].shape.dim[0];
    return s;
}

static void put_together(const memory *m, const sn_node *n, const sn_shard_rule *r, int label,
                         int part, int o, const double *half, double *whole)
{
    cut c = cut_of(m->g->value[n->out[o]].shape, r->out[o], label);
    int64_t count = count_of(m->g, n->out[o]);
    if (c.length) {
        copy_half((void *) half, whole, c, part, bytes_of(m->g, n->out[o]), true);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        bool max = r->label[label].combine == SN_COMBINE_MAX;
        whole[i] = part == 0 ? half[i] : max ? fmax(whole[i], half[i]) : whole[i] + half[i];
    }
}

static void run_halves(const memory *m, const sn_node *n, const sn_shard_rule *r, int label,
                       void **whole)
{
    for (int part = 0; part < 2; part++) {
        sn_kernel_spec s = half_spec(m, n, r, label, part);
        void *in[SN_OP_IN_MAX] = {0}, *out[SN_OP_OUT_MAX];
        for (int i = 0; i < n->ins; i++) {
            if (n->in[i] < 0)
                continue;
            size_t bytes = (size_t) count_of(m->g, n->in[i]) * bytes_of(m->g, n->in[i]);
            cut c = cut_of(m->g->value[n->in[i]].shape, r->in[i], label);
            in[i] = sn_alloc(bytes + 1);
            if (c.length)
                copy_half(in[i], m->data[n->in[i]], c, part, bytes_of(m->g, n->in[i]), false);
            else
                memcpy(in[i], m->data[n->in[i]], bytes);
        }
        for (int o = 0; o < n->outs; o++)
            out[o] = sn_alloc((size_t) (count_of(m->g, n->out[o]) + 1) * sizeof(double));
        run64(&s, (const void *const *) in, out);
        for (int o = 0; o < n->outs; o++) {
            put_together(m, n, r, label, part, o, out[o], whole[o]);
            free(out[o]);
        }
        for (int i = 0; i < n->ins; i++)
            free(in[i]);
    }
}

static bool label_is_there(const sn_graph *g, const sn_node *n, const sn_shard_rule *r, int label)
{
    for (int i = 0; i < n->ins; i++)
        for (int d = 0; n->in[i] >= 0 && d < g->value[n->in[i]].shape.rank; d++)
            if (r->in[i][d] == label)
                return true;
    return false;
}

static void check_split(const memory *m, int node, int label, const char *model)
{
    const sn_node *n = &m->g->node[node];
    sn_shard_rule r;
    void *whole[SN_OP_OUT_MAX];
    sn_node_shard(m->g, n, &r);
    if (!r.label[label].splittable || r.label[label].size % 2 || r.label[label].size == 0 ||
        !label_is_there(m->g, n, &r, label))
        return;
    for (int o = 0; o < n->outs; o++)
        whole[o] = sn_alloc((size_t) (count_of(m->g, n->out[o]) + 1) * sizeof(double));
    run_halves(m, n, &r, label, whole);
    for (int o = 0; o < n->outs; o++) {
        const double *got = whole[o], *want = m->data[n->out[o]];
        double square = 0;
        int64_t count = count_of(m->g, n->out[o]);
        if (is_integer(m->g, n->out[o])) {
            assert_memory_equal(got, want, (size_t) count * sizeof(int32_t));
            count = 0;
        }
        for (int64_t i = 0; i < count; i++)
            square += isfinite(want[i]) ? want[i] * want[i] : 0;
        for (int64_t i = 0; i < count; i++)
            if (!(fabs(got[i] - want[i]) <= 1e-10 * sqrt(square) + 1e-12) && got[i] != want[i])
                fail_msg("%s: %s '%s' split along label %d (size %lld): output %d [%lld] is %.9g, "
                         "whole %.9g",
                         model, sn_op_name(n->op), n->name, r.label[label].id,
                         (long long) r.label[label].size, o, (long long) i, got[i], want[i]);
        free(whole[o]);
    }
}

static void check_splits(const memory *m, const char *model)
{
    for (int i = 0; i < m->g->nodes; i++) {
        sn_shard_rule r;
        sn_node_shard(m->g, &m->g->node[i], &r);
        for (int l = 0; l < r.labels; l++)
            check_split(m, i, l, model);
    }
}

/* ---- graphs */

static void check_graph(sn_graph *g, const char *model)
{
    assert_ok(sn_graph_fuse(g));
    assert_ok(sn_graph_backward(g));
    sn_graph_check(g);
    memory m = memory_make(g);
    assert_true(isfinite(run_graph(&m, true)));
    check_splits(&m, model);
    check_gradients(&m, model);
    memory_done(&m);
}

static void check_model(const char *name, const sn_model *model, int64_t batch)
{
    sn_arena *a = sn_arena_create();
    sn_graph *g;
    assert_ok(sn_model_build(a, model, batch, (double) (batch * sn_model_units(model)), &g));
    check_graph(g, name);
    sn_arena_free(a);
}

static void test_presets(void **state)
{
    static const char *const names[] = {"bert-tiny", "resnet-tiny", "mlp-tiny", "cnn-tiny"};
    for (size_t i = 0; i < SN_COUNT(names); i++) {
        sn_model m;
        assert_ok(sn_model_find(names[i], &m));
        if (m.kind == SN_MODEL_RESNET)
            m.resnet.width = 4;
        if (m.kind == SN_MODEL_BERT)
            m.bert = (sn_bert){2, 8, 2, 6, 12};
        check_model(names[i], &m, 4);
    }
}

static void test_gpts(void **state)
{
    static const sn_gpt gpts[] = {
        {2, 8, 2, 6, 12},
        {1, 8, 4, 6, 12, .kv_heads = 2, .rotary = true, .gated = true, .rms = true,
         .no_bias = true},
        {1, 8, 4, 6, 12, .kv_heads = 1, .act = SN_ACT_RELU, .tied = true},
        {2, 8, 2, 6, 12, .rotary = true, .gated = true, .rms = true, .act = SN_ACT_GELU_TANH},
        {2, 8, 2, 6, 12, 10, .experts = 4, .experts_used = 2, .capacity = 1},
        {1, 8, 2, 6, 12, 10, .experts = 4, .gated = true, .balance = 0.3},
    };
    for (size_t i = 0; i < SN_COUNT(gpts); i++) {
        char name[32];
        snprintf(name, sizeof name, "gpt %d", (int) i);
        check_model(name, &(sn_model){SN_MODEL_GPT, .gpt = gpts[i]}, 2);
    }
}

static void test_other_models(void **state)
{
    check_model("bert classes", &(sn_model){SN_MODEL_BERT, .bert = {1, 8, 2, 6, 12, .classes = 10}},
                4);
    check_model("bert without padding",
                &(sn_model){SN_MODEL_BERT, .bert = {1, 8, 2, 6, 12, .no_mask = true}}, 2);
    check_model("mlp regression", &(sn_model){SN_MODEL_MLP, .mlp = {6, 8, 2, 4, SN_ACT_SILU, true}},
                4);
    check_model("bottlenecks",
                &(sn_model){SN_MODEL_RESNET,
                            .resnet = {{1, 1, 1, 2}, true, 10, 32, 3, 2, .stateless = true}},
                4);
    check_model("frozen", &(sn_model){SN_MODEL_CNN, .cnn = {8, 2, 10, {4}, 6, .inference = true}},
                2);
}

/* One op on a parameter [shape], compared with a random target. */
typedef int (*one_op)(sn_graph *g, int x);

static void check_op(const char *name, sn_shape shape, one_op op)
{
    sn_arena *a = sn_arena_create();
    sn_graph *g = sn_graph_create(a, name);
    int x = sn_graph_matrix(g, "x", shape, 0.5), y = op(g, x);
    assert_ok(g->failed);
    int target = sn_graph_input(g, "target", SN_F32, g->value[y].shape, -1);
    assert_ok(sn_graph_done(g, sn_graph_mean_squares(g, y, target, 0.1)));
    check_graph(g, name);
    sn_arena_free(a);
}

static int grouped(sn_graph *g, int x)
{
    sn_window w = {.size = {3, 2}, .stride = {2, 1}, .dilation = {1, 2}, .before = {1, 2}};
    x = sn_graph_conv(g, "grouped", x, 8, &w, 2, true);
    return sn_graph_conv(g, "depthwise", x, 8, &SN_WINDOW_2D(3, 1, 1), 8, false);
}

static int line(sn_graph *g, int x)
{
    sn_window w = {.size = {3}, .stride = {2}, .before = {2}, .after = {1}};
    x = sn_graph_conv(g, "line", x, 6, &w, 1, false);
    return sn_graph_max_pool(g, "max", x, &(sn_window){.size = {2}, .stride = {1}, .after = {1}});
}

static int volume(sn_graph *g, int x)
{
    sn_window w = {.size = {2, 3, 2}, .before = {1, 1, 0}, .after = {0, 1, 1}};
    x = sn_graph_conv(g, "volume", x, 4, &w, 1, true);
    return sn_graph_avg_pool(g, "avg", x, &(sn_window){.size = {2, 2, 2}, .stride = {2, 1, 2}});
}

static int means(sn_graph *g, int x)
{
    sn_window w = SN_WINDOW_2D(3, 2, 1), all = w;
    all.counts_padding = true;
    x = sn_graph_avg_pool(g, "avg", x, &w);
    return sn_graph_mean_pool(g, "mean", sn_graph_avg_pool(g, "padded", x, &all));
}

static int curves(sn_graph *g, int x)
{
    for (int f = 0; f < SN_ACT_COUNT; f++) {
        char name[16];
        snprintf(name, sizeof name, "b%d", f);
        int b = f % 2 ? sn_graph_vector(g, name, SN_SHAPE(6), SN_INIT_ZERO) : -1;
        int y = sn_graph_activate(g, "curve", x, b, (sn_act) f);
        x = sn_graph_sum(g, "sum", x, y);
    }
    return sn_graph_node(g, SN_OP_SOFTMAX, "softmax", NULL, 1, x);
}

static int gates(sn_graph *g, int x)
{
    x = sn_graph_linear(g, "up", x, SN_SHAPE(2, 6), 1, 0.4, true);
    x = sn_graph_node(g, SN_OP_GLU, "glu", &(sn_attr){.i = {SN_ACT_SILU}}, 1, x);
    return sn_graph_rms_norm(g, "norm", x, 1e-3);
}

static int norms(sn_graph *g, int x)
{
    sn_batch_norm running = {.momentum = 0.1, .relu = true}, plain = {.epsilon = 1e-3};
    int y = sn_graph_batch_norm(g, "one", x, -1, &plain);
    y = sn_graph_batch_norm(g, "two", y, x, &running);
    return sn_graph_batch_norm(g, "three", y, -1, &running);
}

/* Half of the pairs turn, neighbours paired; then one place of the sequence. */
static int turned(sn_graph *g, int x)
{
    sn_attr attr = {.i = {1, 4}, .f = {100}}, first = {.i = {3}};
    x = sn_graph_node(g, SN_OP_ROTARY, "turn", &attr, 1, x);
    return sn_graph_node(g, SN_OP_TAKE, "take", &first, 1, x);
}

/* More keys than queries, padding, queries and values from one tensor. */
static int crossed(sn_graph *g, int x)
{
    int mask = sn_graph_input(g, "mask", SN_I32, SN_SHAPE(6, 2), 1);
    int q = sn_graph_matrix(g, "q", SN_SHAPE(4, 2, 2, 2, 4), 0.5);
    int k = sn_graph_linear(g, "k", x, SN_SHAPE(2, 4), 1, 0.4, true);
    int v = sn_graph_linear(g, "v", x, SN_SHAPE(2, 4), 1, 0.4, true);
    return sn_graph_attend(g, "attend", q, k, v, mask, false);
}

static void test_ops(void **state)
{
    check_op("grouped convolutions", SN_SHAPE(2, 7, 6, 4), grouped);
    check_op("convolution along a line", SN_SHAPE(2, 9, 4), line);
    check_op("convolution of a volume", SN_SHAPE(2, 4, 3, 4, 2), volume);
    check_op("means", SN_SHAPE(2, 8, 7, 4), means);
    check_op("curves", SN_SHAPE(4, 6), curves);
    check_op("gates", SN_SHAPE(4, 2, 6), gates);
    check_op("batch norms", SN_SHAPE(6, 4, 4), norms);
    check_op("turns", SN_SHAPE(6, 2, 6), turned);
    check_op("attention across", SN_SHAPE(6, 2, 6), crossed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ops),
        cmocka_unit_test(test_gpts),
        cmocka_unit_test(test_presets),
        cmocka_unit_test(test_other_models),
    };
    return sn_test_run(tests);
}
