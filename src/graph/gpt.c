/* SPDX-License-Identifier: Apache-2.0
 * The GPT builder. Shape as in Radford et al., "Language models are unsupervised multitask
 * learners", 2019, with an untied head without bias; weights start at 0.02·sqrt(768 / width),
 * residual projections divided by sqrt(2·layers). */
#include "graph/graph.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

static const sn_gpt_preset presets[] = {
    {"gpt-tiny", "for tests: trains in a second", {2, 32, 4, 32, 256, 0}},
    {"gpt-english", "the main job: about 1 M parameters, bytes", {4, 144, 4, 64, 256, 0}},
    {"gpt-bench", "the benchmark's: 3.3 M parameters, bytes", {4, 256, 4, 256, 256, 0}},
    {"gpt2", "124 M and an untied head (Radford et al. 2019)", {12, 768, 12, 1024, 50257, 0}},
    {"gpt2-medium", "355 M", {24, 1024, 16, 1024, 50257, 0}},
    {"gpt2-large", "774 M", {36, 1280, 20, 1024, 50257, 0}},
    {"gpt2-xl", "1.5 G", {48, 1600, 25, 1024, 50257, 0}},
    {"gpt3-175b", "175 G (Brown et al. 2020), vocabulary padded", {96, 12288, 96, 2048, 51200, 0}},
};

int sn_gpt_presets(const sn_gpt_preset **ret)
{
    *ret = presets;
    return (int) SN_COUNT(presets);
}

typedef struct builder {
    sn_graph *g;
    const sn_gpt *gpt;
    double std, std_residual;
    const char *block; /* "h.3." or "" */
    sn_status status;  /* the first failure; later calls do nothing */
} builder;

static int param(builder *b, const char *name, sn_shape shape, sn_init init, double std)
{
    bool matrix = init == SN_INIT_NORMAL;
    return sn_graph_param(b->g, sn_arena_printf(b->g->arena, "%s%s", b->block, name), shape, init,
                          std, matrix);
}

static int gain(builder *b, const char *name)
{
    return param(b, name, SN_SHAPE(b->gpt->hidden), SN_INIT_ONE, 0);
}

static int zeros(builder *b, const char *name, sn_shape shape)
{
    return param(b, name, shape, SN_INIT_ZERO, 0);
}

/* The first output of a new node; -1 after a failure. */
static int node(builder *b, sn_op op, const char *name, sn_attr attr, int ins, ...)
{
    int in[SN_OP_IN_MAX], out[SN_OP_OUT_MAX];
    va_list args;
    va_start(args, ins);
    for (int i = 0; i < ins; i++)
        in[i] = va_arg(args, int);
    va_end(args);
    if (b->status < 0)
        return -1;
    b->status = sn_graph_add(b->g, op, sn_arena_printf(b->g->arena, "%s%s", b->block, name), &attr,
                             in, ins, out);
    return b->status < 0 ? -1 : out[0];
}

static int norm(builder *b, const char *name, int x)
{
    char part[32];
    snprintf(part, sizeof part, "%s.g", name);
    int g = gain(b, part);
    snprintf(part, sizeof part, "%s.b", name);
    int bias = zeros(b, part, SN_SHAPE(b->gpt->hidden));
    return node(b, SN_OP_LAYER_NORM, name, (sn_attr){.f = {1e-5}}, 3, x, g, bias);
}

static int attention(builder *b, int x)
{
    int64_t d = b->gpt->hidden, h = b->gpt->heads, e = d / h;
    int wqkv = param(b, "attn.wqkv", SN_SHAPE(h, 3, e, d), SN_INIT_NORMAL, b->std);
    int bqkv = zeros(b, "attn.bqkv", SN_SHAPE(h, 3, e));
    int wo = param(b, "attn.wo", SN_SHAPE(d, h, e), SN_INIT_NORMAL, b->std_residual);
    int qkv = node(b, SN_OP_LINEAR, "attn.qkv", (sn_attr){.i = {1}}, 3, x, wqkv, bqkv);
    sn_attr causal = {.i = {1}, .f = {1 / sqrt((double) e)}};
    int o = node(b, SN_OP_ATTENTION, "attn", causal, 1, qkv);
    return node(b, SN_OP_LINEAR, "attn.out", (sn_attr){.i = {2}}, 2, o, wo);
}

static int mlp(builder *b, int x)
{
    int64_t d = b->gpt->hidden, f = b->gpt->mlp ? b->gpt->mlp : 4 * d;
    int w1 = param(b, "mlp.w1", SN_SHAPE(f, d), SN_INIT_NORMAL, b->std);
    int b1 = zeros(b, "mlp.b1", SN_SHAPE(f));
    int w2 = param(b, "mlp.w2", SN_SHAPE(d, f), SN_INIT_NORMAL, b->std_residual);
    int u = node(b, SN_OP_LINEAR, "mlp.up", (sn_attr){.i = {1}}, 2, x, w1);
    int a = node(b, SN_OP_BIAS_GELU, "mlp.gelu", (sn_attr){0}, 2, u, b1);
    return node(b, SN_OP_LINEAR, "mlp.down", (sn_attr){.i = {1}}, 2, a, w2);
}

static int block(builder *b, int64_t layer, int x)
{
    sn_shape d = SN_SHAPE(b->gpt->hidden);
    b->block = sn_arena_printf(b->g->arena, "h.%lld.", (long long) layer);
    int p = attention(b, norm(b, "ln1", x));
    x = node(b, SN_OP_RESIDUAL, "attn.add", (sn_attr){0}, 3, x, p, zeros(b, "attn.bo", d));
    p = mlp(b, norm(b, "ln2", x));
    x = node(b, SN_OP_RESIDUAL, "mlp.add", (sn_attr){0}, 3, x, p, zeros(b, "mlp.b2", d));
    b->block = "";
    return x;
}

static sn_status check(const sn_gpt *m, int64_t batch)
{
    const struct {
        const char *name;
        int64_t value;
    } size[] = {{"layers", m->layers},     {"hidden", m->hidden}, {"heads", m->heads},
                {"sequence", m->sequence}, {"vocab", m->vocab},   {"micro-batch", batch}};
    for (size_t i = 0; i < SN_COUNT(size); i++)
        if (size[i].value < 1 || size[i].value > INT32_MAX)
            return sn_fail(SN_EINVAL, "model %s is %lld, it must be between 1 and 2147483647",
                           size[i].name, (long long) size[i].value);
    if (m->mlp < 0 || m->mlp > INT32_MAX || m->layers > 4096)
        return sn_fail(SN_EINVAL, "model mlp %lld or layers %lld is out of range",
                       (long long) m->mlp, (long long) m->layers);
    if (m->hidden % m->heads)
        return sn_fail(SN_EINVAL, "model hidden %lld is not divisible by heads %lld",
                       (long long) m->hidden, (long long) m->heads);
    double widest = (double) SN_MAX(m->mlp ? m->mlp : 4 * m->hidden, m->vocab);
    if ((double) m->sequence * (double) batch * widest > 1e13)
        return sn_fail(SN_EFIT,
                       "one activation would have %.2g elements: lower sequence, batch or width",
                       (double) m->sequence * (double) batch * widest);
    return SN_OK;
}

sn_status sn_graph_gpt(sn_arena *arena, const sn_gpt *gpt, int64_t batch, double tokens_per_step,
                       sn_graph **ret)
{
    SN_TRY(check(gpt, batch));
    double std = 0.02 * sqrt(768.0 / (double) gpt->hidden);
    builder b = {.g = sn_graph_create(arena, "gpt"),
                 .gpt = gpt,
                 .block = "",
                 .std = std,
                 .std_residual = std / sqrt(2.0 * (double) gpt->layers)};
    sn_shape tokens = SN_SHAPE(gpt->sequence, batch);
    int ids = sn_graph_input(b.g, "ids", SN_I32, tokens, 1);
    int targets = sn_graph_input(b.g, "targets", SN_I32, tokens, 1);
    int wte = param(&b, "wte", SN_SHAPE(gpt->vocab, gpt->hidden), SN_INIT_NORMAL, std);
    int wpe = param(&b, "wpe", SN_SHAPE(gpt->sequence, 1, gpt->hidden), SN_INIT_NORMAL, std / 2);
    int x = node(&b, SN_OP_EMBEDDING, "embed", (sn_attr){0}, 2, wte, ids);
    x = node(&b, SN_OP_ADD, "position", (sn_attr){0}, 2, x, wpe);
    for (int64_t layer = 0; layer < gpt->layers; layer++)
        x = block(&b, layer, x);
    x = norm(&b, "ln", x);
    int head = param(&b, "head", SN_SHAPE(gpt->vocab, gpt->hidden), SN_INIT_NORMAL, std);
    int logits = node(&b, SN_OP_LINEAR, "logits", (sn_attr){.i = {1}}, 2, x, head);
    int m = node(&b, SN_OP_ROW_MAX, "max", (sn_attr){0}, 1, logits);
    int s = node(&b, SN_OP_XENT_SUMS, "sums", (sn_attr){0}, 3, logits, targets, m);
    b.g->loss =
        node(&b, SN_OP_XENT_LOSS, "loss", (sn_attr){.f = {1 / tokens_per_step}}, 3, m, s, targets);
    if (b.status < 0)
        return b.status;
    *ret = b.g;
    return SN_OK;
}
