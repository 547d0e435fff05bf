/* SPDX-License-Identifier: Apache-2.0
 * Graphs by hand: layers and losses as one call each. */
#include "graph/private.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

void sn_graph_scope(sn_graph *g, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    g->scope = sn_arena_str(g->arena, text);
}

void sn_graph_scope_end(sn_graph *g)
{
    g->scope = NULL;
}

static const char *named(const sn_graph *g, const char *name, const char *suffix)
{
    return sn_arena_printf(g->arena, "%s%s%s", g->scope ? g->scope : "", name, suffix);
}

/* Append with operands in an array; ret_out has room for all outputs. */
static int append(sn_graph *g, sn_op op, const char *name, const sn_attr *attr, const int *in,
                  int ins, int *ret_out)
{
    if (g->failed == SN_OK)
        g->failed = sn_graph_add(g, op, named(g, name, ""), attr, in, ins, ret_out);
    if (g->failed < 0)
        for (int o = 0; o < SN_OP_OUT_MAX; o++)
            ret_out[o] = -1;
    return ret_out[0];
}

int sn_graph_node(sn_graph *g, sn_op op, const char *name, const sn_attr *attr, int ins, ...)
{
    int in[SN_OP_IN_MAX], out[SN_OP_OUT_MAX];
    va_list args;
    va_start(args, ins);
    for (int i = 0; i < ins && i < SN_OP_IN_MAX; i++)
        in[i] = va_arg(args, int);
    va_end(args);
    return append(g, op, name, attr, in, ins, out);
}

void sn_graph_name(sn_graph *g, int value, const char *name)
{
    if (g->failed == SN_OK && value >= 0 && value < g->values)
        g->value[value].name = named(g, name, "");
}

sn_status sn_graph_done(sn_graph *g, int loss)
{
    g->loss = loss;
    return g->failed;
}

int sn_graph_matrix(sn_graph *g, const char *name, sn_shape shape, double std)
{
    return sn_graph_param(g, named(g, name, ""), shape, SN_INIT_NORMAL, std, true);
}

int sn_graph_vector(sn_graph *g, const char *name, sn_shape shape, sn_init init)
{
    return sn_graph_param(g, named(g, name, ""), shape, init, 0, false);
}

/* A parameter of a layer: NAME.w and the like. */
static int layer_vector(sn_graph *g, const char *name, const char *suffix, int64_t n, sn_init init)
{
    return sn_graph_param(g, named(g, name, suffix), SN_SHAPE(n), init, 0, false);
}

static int layer_matrix(sn_graph *g, const char *name, sn_shape shape, double inputs, double std)
{
    if (std == 0)
        std = sqrt(2 / SN_MAX(inputs, 1));
    return sn_graph_param(g, named(g, name, ".w"), shape, SN_INIT_NORMAL, std, true);
}

/* Nodes of a layer that is several: NAME.part. */
static const char *part(const sn_graph *g, const char *name, const char *what)
{
    return sn_arena_printf(g->arena, "%s.%s", name, what);
}

/* The shape of x, or of nothing after a failure; `rank` dims at least, else a failure now. */
static sn_shape shape_of(sn_graph *g, const char *name, int x, int rank)
{
    if (g->failed == SN_OK && (x < 0 || x >= g->values))
        g->failed =
            sn_fail(SN_EINVAL, "'%s%s': the operand is missing", g->scope ? g->scope : "", name);
    if (g->failed == SN_OK && g->value[x].shape.rank < rank)
        g->failed = sn_fail(SN_EINVAL, "'%s%s': the operand needs %d dims, it has %d",
                            g->scope ? g->scope : "", name, rank, g->value[x].shape.rank);
    return g->failed == SN_OK ? g->value[x].shape : (sn_shape){0};
}

static int64_t last_of(sn_graph *g, const char *name, int x)
{
    sn_shape s = shape_of(g, name, x, 1);
    return s.rank ? s.dim[s.rank - 1] : 0;
}

/* ---- layers */

int sn_graph_linear(sn_graph *g, const char *name, int x, sn_shape out, int summed, double std,
                    bool bias)
{
    sn_shape s = shape_of(g, name, x, summed), w = out;
    double inputs = 1;
    if (g->failed < 0)
        return -1;
    for (int d = 0; d < summed; d++) {
        if (w.rank == SN_RANK_MAX) {
            g->failed = sn_fail(SN_EINVAL, "linear '%s': the weight has too many dims", name);
            return -1;
        }
        w.dim[w.rank++] = s.dim[s.rank - summed + d];
        inputs *= (double) s.dim[s.rank - summed + d];
    }
    int in[] = {x, layer_matrix(g, name, w, inputs, std), -1}, ret[SN_OP_OUT_MAX];
    if (bias)
        in[2] = sn_graph_param(g, named(g, name, ".b"), out, SN_INIT_ZERO, 0, false);
    return append(g, SN_OP_LINEAR, name, &(sn_attr){.i = {summed}}, in, bias ? 3 : 2, ret);
}

static sn_attr window_attr(const sn_window *w)
{
    sn_attr a = {.i[15] = w->counts_padding};
    for (int j = 0; j < 3; j++) {
        a.i[j] = w->size[j];
        a.i[3 + j] = w->stride[j];
        a.i[6 + j] = w->dilation[j];
        a.i[9 + j] = w->before[j];
        a.i[12 + j] = w->after[j];
    }
    return a;
}

int sn_graph_conv(sn_graph *g, const char *name, int x, int64_t features, const sn_window *window,
                  int64_t groups, bool bias)
{
    sn_shape s = shape_of(g, name, x, 3), w = s;
    double inputs = 1;
    if (g->failed < 0)
        return -1;
    if (s.rank > 5 || groups < 1 || s.dim[s.rank - 1] % groups) {
        g->failed = sn_fail(SN_EINVAL, "conv '%s': %lld groups of %d dims of %lld channels", name,
                            (long long) groups, s.rank, (long long) s.dim[s.rank - 1]);
        return -1;
    }
    w.dim[0] = features;
    for (int j = 0; j < s.rank - 2; j++)
        w.dim[1 + j] = window->size[j];
    w.dim[s.rank - 1] /= groups;
    for (int d = 1; d < s.rank; d++)
        inputs *= (double) w.dim[d];
    sn_attr attr = window_attr(window);
    int in[] = {x, layer_matrix(g, name, w, inputs, 0), -1}, ret[SN_OP_OUT_MAX];
    if (bias)
        in[2] = layer_vector(g, name, ".b", features, SN_INIT_ZERO);
    return append(g, SN_OP_CONV, name, &attr, in, bias ? 3 : 2, ret);
}

/* Mean and rstd of this micro-batch; the running ones follow when there are any. */
static void batch_statistics(sn_graph *g, const char *name, int x, int64_t rows,
                             const sn_batch_norm *o, const int *running, int *ret)
{
    double epsilon = o->epsilon > 0 ? o->epsilon : 1e-5;
    sn_attr stats = {.i = {rows}, .f = {epsilon}},
            track = {.i = {rows}, .f = {o->momentum, epsilon}};
    int shift = running[0], ins = shift < 0 ? 1 : 2, next[SN_OP_OUT_MAX];
    int s[SN_OP_OUT_MAX], out[SN_OP_OUT_MAX];
    append(g, SN_OP_BN_SUMS, part(g, name, "sums"), NULL, (int[]){x, shift}, ins, s);
    append(g, SN_OP_BN_STATS, part(g, name, "stats"), &stats, (int[]){s[0], shift}, ins, out);
    ret[0] = out[0];
    ret[1] = out[1];
    if (shift < 0)
        return;
    append(g, SN_OP_BN_TRACK, part(g, name, "track"), &track,
           (int[]){running[0], running[1], out[0], out[1]}, 4, next);
    for (int k = 0; k < 2 && g->failed == SN_OK; k++)
        g->value[running[k]].next = next[k];
}

int sn_graph_batch_norm(sn_graph *g, const char *name, int x, int residual,
                        const sn_batch_norm *opts)
{
    sn_batch_norm o = opts ? *opts : (sn_batch_norm){0};
    int64_t c = last_of(g, name, x);
    int running[2] = {-1, -1}, stats[2] = {-1, -1}, ret[SN_OP_OUT_MAX];
    if (g->failed < 0)
        return -1;
    int gain = layer_vector(g, name, ".g", c, o.zero ? SN_INIT_ZERO : SN_INIT_ONE);
    int bias = layer_vector(g, name, ".b", c, SN_INIT_ZERO);
    if (o.momentum > 0 || o.frozen) {
        running[0] = sn_graph_state(g, named(g, name, ".mean"), SN_SHAPE(c), SN_INIT_ZERO);
        running[1] = sn_graph_state(g, named(g, name, ".var"), SN_SHAPE(c), SN_INIT_ONE);
    }
    if (o.frozen) {
        stats[0] = running[0];
        stats[1] =
            sn_graph_node(g, SN_OP_BN_RSTD, part(g, name, "rstd"),
                          &(sn_attr){.f = {o.epsilon > 0 ? o.epsilon : 1e-5}}, 1, running[1]);
    } else {
        int64_t rows = c ? sn_shape_count(g->value[x].shape) / c : 0;
        batch_statistics(g, name, x, rows, &o, running, stats);
    }
    int in[] = {x, stats[0], stats[1], gain, bias, residual};
    return append(g, SN_OP_BN_NORM, name, &(sn_attr){.i = {o.relu}}, in, residual < 0 ? 5 : 6, ret);
}

int sn_graph_max_pool(sn_graph *g, const char *name, int x, const sn_window *window)
{
    sn_attr attr = window_attr(window);
    return sn_graph_node(g, SN_OP_MAX_POOL, name, &attr, 1, x);
}

int sn_graph_avg_pool(sn_graph *g, const char *name, int x, const sn_window *window)
{
    sn_attr attr = window_attr(window);
    return sn_graph_node(g, SN_OP_AVG_POOL, name, &attr, 1, x);
}

int sn_graph_mean_pool(sn_graph *g, const char *name, int x)
{
    return sn_graph_node(g, SN_OP_MEAN_POOL, name, NULL, 1, x);
}

/* GELU with a bias has an op of its own, whose kernels are the faster ones. */
int sn_graph_activate(sn_graph *g, const char *name, int x, int bias, sn_act f)
{
    sn_attr attr = {.i = {f}}, gelu = {.i = {f == SN_ACT_GELU_TANH}};
    if (bias < 0)
        return sn_graph_node(g, SN_OP_ACTIVATE, name, &attr, 1, x);
    if (f == SN_ACT_GELU || f == SN_ACT_GELU_TANH)
        return sn_graph_node(g, SN_OP_BIAS_GELU, name, &gelu, 2, x, bias);
    return sn_graph_node(g, SN_OP_ACTIVATE, name, &attr, 2, x, bias);
}

int sn_graph_layer_norm(sn_graph *g, const char *name, int x, double epsilon)
{
    int64_t d = last_of(g, name, x);
    int gain = layer_vector(g, name, ".g", d, SN_INIT_ONE);
    int bias = layer_vector(g, name, ".b", d, SN_INIT_ZERO);
    return sn_graph_node(g, SN_OP_LAYER_NORM, name, &(sn_attr){.f = {epsilon}}, 3, x, gain, bias);
}

int sn_graph_rms_norm(sn_graph *g, const char *name, int x, double epsilon)
{
    int gain = layer_vector(g, name, ".g", last_of(g, name, x), SN_INIT_ONE);
    return sn_graph_node(g, SN_OP_RMS_NORM, name, &(sn_attr){.f = {epsilon}}, 2, x, gain);
}

int sn_graph_embedding(sn_graph *g, const char *name, int ids, int64_t vocab, int64_t width,
                       double std)
{
    int table = layer_matrix(g, name, SN_SHAPE(vocab, width), 1, std);
    return sn_graph_node(g, SN_OP_EMBEDDING, name, NULL, 2, table, ids);
}

int sn_graph_sum(sn_graph *g, const char *name, int x, int y)
{
    return sn_graph_node(g, SN_OP_ADD, name, NULL, 2, x, y);
}

int sn_graph_residual(sn_graph *g, const char *name, int x, int r, int bias)
{
    return sn_graph_node(g, SN_OP_RESIDUAL, name, NULL, bias < 0 ? 2 : 3, x, r, bias);
}

int sn_graph_attend(sn_graph *g, const char *name, int q, int k, int v, int mask, bool causal)
{
    double e = (double) last_of(g, name, q);
    sn_attr attr = {.i = {causal}, .f = {e > 0 ? 1 / sqrt(e) : 1}};
    return sn_graph_node(g, SN_OP_ATTEND, name, &attr, mask < 0 ? 3 : 4, q, k, v, mask);
}

int sn_graph_rotary(sn_graph *g, const char *name, int x, double base)
{
    return sn_graph_node(g, SN_OP_ROTARY, name, &(sn_attr){.f = {base > 0 ? base : 10000}}, 1, x);
}

/* ---- mixture of experts */

/* The experts' networks on [X,capacity,B,D]. */
static int experts(sn_graph *g, const char *name, int x, const sn_moe *m, int64_t d)
{
    sn_shape up =
        m->gated ? SN_SHAPE(m->experts, 2, m->inner, d) : SN_SHAPE(m->experts, m->inner, d);
    double std1 = m->std > 0 ? m->std : sqrt(2 / (double) d);
    double std2 = m->std_out > 0 ? m->std_out : sqrt(2 / (double) m->inner);
    int w1 = sn_graph_param(g, named(g, name, ".w1"), up, SN_INIT_NORMAL, std1, true);
    int w2 = sn_graph_param(g, named(g, name, ".w2"), SN_SHAPE(m->experts, d, m->inner),
                            SN_INIT_NORMAL, std2, true);
    sn_attr one = {.i = {1}}, act = {.i = {m->act}};
    x = sn_graph_node(g, SN_OP_BATCH_LINEAR, part(g, name, "up"), &one, 2, x, w1);
    x = sn_graph_node(g, m->gated ? SN_OP_GLU : SN_OP_ACTIVATE, part(g, name, "act"), &act, 1, x);
    return sn_graph_node(g, SN_OP_BATCH_LINEAR, part(g, name, "down"), &one, 2, x, w2);
}

static int64_t capacity_of(const sn_moe *m, int64_t t)
{
    double factor = m->factor > 0 ? m->factor : 1.25;
    double want = ceil(factor * (double) m->used * (double) t / (double) m->experts);
    return want < 1 ? 1 : want > (double) t ? t : (int64_t) want; /* no expert gets a token twice */
}

int sn_graph_moe(sn_graph *g, const char *name, int x, const sn_moe *moe, double balance_scale,
                 int *ret_balance)
{
    sn_shape s = shape_of(g, name, x, 3);
    int route[SN_OP_OUT_MAX];
    if (g->failed == SN_OK && (s.rank != 3 || moe->experts < 1 || moe->inner < 1))
        g->failed =
            sn_fail(SN_EINVAL, "moe '%s': x must be [T,B,D], experts and width positive", name);
    if (ret_balance)
        *ret_balance = -1;
    if (g->failed < 0)
        return -1;
    double std = moe->std > 0 ? moe->std : 1 / sqrt((double) s.dim[2]);
    int router = sn_graph_param(g, named(g, name, ".router.w"), SN_SHAPE(moe->experts, s.dim[2]),
                                SN_INIT_NORMAL, std, true);
    int scores =
        sn_graph_node(g, SN_OP_LINEAR, part(g, name, "router"), &(sn_attr){.i = {1}}, 2, x, router);
    sn_attr attr = {.i = {moe->used, capacity_of(moe, s.dim[0]), moe->normalised}};
    sn_attr buffers = {.i = {moe->experts, attr.i[1]}};
    append(g, SN_OP_MOE_ROUTE, part(g, name, "route"), &attr, &scores, 1, route);
    int y = sn_graph_node(g, SN_OP_MOE_DISPATCH, part(g, name, "dispatch"), &buffers, 3, x,
                          route[1], route[2]);
    y = experts(g, name, y, moe, s.dim[2]);
    if (ret_balance)
        *ret_balance = sn_graph_node(g, SN_OP_MOE_BALANCE, part(g, name, "balance"),
                                     &(sn_attr){.f = {balance_scale}}, 2, route[3], route[1]);
    return sn_graph_node(g, SN_OP_MOE_COMBINE, name, NULL, 4, y, route[1], route[2], route[0]);
}

/* ---- losses */

int sn_graph_cross_entropy(sn_graph *g, int logits, int targets, double scale)
{
    int m = sn_graph_node(g, SN_OP_ROW_MAX, "max", NULL, 1, logits);
    int s = sn_graph_node(g, SN_OP_XENT_SUMS, "sums", NULL, 3, logits, targets, m);
    return sn_graph_node(g, SN_OP_XENT_LOSS, "loss", &(sn_attr){.f = {scale}}, 3, m, s, targets);
}

int sn_graph_mean_squares(sn_graph *g, int x, int target, double scale)
{
    return sn_graph_node(g, SN_OP_MSE_LOSS, "loss", &(sn_attr){.f = {scale}}, 2, x, target);
}
