/* SPDX-License-Identifier: Apache-2.0
 * Decoders of tokens. Shape as in Radford et al., "Language models are unsupervised multitask
 * learners", 2019, and its descendants: rotary positions (Su et al. 2021), RMS norm (Zhang &
 * Sennrich 2019), SwiGLU (Shazeer 2020), grouped queries (Ainslie et al. 2023), experts (Fedus et
 * al. 2021).
 * Weights start at 0.02·sqrt(768 / width), residual projections divided by sqrt(2·layers). */
#include "graph/private.h"

#include <math.h>
#include <stdio.h>

static const sn_gpt_preset presets[] = {
    {"gpt-tiny", "for tests: trains in a second", {2, 32, 4, 32, 256, 0}},
    {"gpt-english", "the main job: about 1 M parameters, bytes", {4, 144, 4, 64, 256, 0}},
    {"gpt-bench", "the benchmark's: 3.3 M parameters, bytes", {4, 256, 4, 256, 256, 0}},
    {"gpt2", "124 M and an untied head (Radford et al. 2019)", {12, 768, 12, 1024, 50257, 0}},
    {"gpt2-medium", "355 M", {24, 1024, 16, 1024, 50257, 0}},
    {"gpt2-large", "774 M", {36, 1280, 20, 1024, 50257, 0}},
    {"gpt2-xl", "1.5 G", {48, 1600, 25, 1024, 50257, 0}},
    {"gpt2-tied",
     "124 M as published: tied head, tanh GELU",
     {12, 768, 12, 1024, 50257, .act = SN_ACT_GELU_TANH, .tied = true}},
    {"gpt3-175b", "175 G (Brown et al. 2020), vocabulary padded", {96, 12288, 96, 2048, 51200, 0}},
    {"llama-tiny",
     "for tests: rotary, grouped queries, SwiGLU, RMS norm",
     {2, 32, 4, 32, 256, 88, .kv_heads = 2, .rotary = true, .gated = true, .rms = true,
      .no_bias = true}},
    {"llama2-7b",
     "6.7 G (Touvron et al. 2023)",
     {32, 4096, 32, 4096, 32000, 11008, .rotary = true, .gated = true, .rms = true,
      .no_bias = true}},
    {"moe-tiny",
     "for tests: four experts, two a token",
     {2, 32, 4, 32, 256, 64, .experts = 4, .experts_used = 2}},
    {"mixtral-8x7b",
     "47 G, 13 G of them active (Jiang et al. 2024)",
     {32, 4096, 32, 4096, 32000, 14336, .kv_heads = 8, .rotary = true, .rotary_base = 1e6,
      .gated = true, .rms = true, .no_bias = true, .experts = 8, .experts_used = 2}},
};

int sn_gpt_presets(const sn_gpt_preset **ret)
{
    *ret = presets;
    return (int) SN_COUNT(presets);
}

typedef struct builder {
    sn_graph *g;
    const sn_gpt *gpt;
    double std, std_residual, epsilon;
    double balance_scale;
    int balance; /* the sum of the load-balancing losses so far, −1 none */
} builder;

static int norm(builder *b, const char *name, int x)
{
    return b->gpt->rms ? sn_graph_rms_norm(b->g, name, x, b->epsilon)
                       : sn_graph_layer_norm(b->g, name, x, b->epsilon);
}

/* A bias, or −1 in a model without. */
static int bias(builder *b, const char *name, sn_shape shape)
{
    return b->gpt->no_bias ? -1 : sn_graph_vector(b->g, name, shape, SN_INIT_ZERO);
}

static int product(builder *b, const char *name, int x, int w, int bias_or_none, int summed)
{
    return sn_graph_node(b->g, SN_OP_LINEAR, name, &(sn_attr){.i = {summed}},
                         bias_or_none < 0 ? 2 : 3, x, w, bias_or_none);
}

/* Queries, keys and values in one product. */
static int attention_fused(builder *b, int x)
{
    int64_t d = b->gpt->hidden, h = b->gpt->heads, e = d / h;
    int w = sn_graph_matrix(b->g, "attn.wqkv", SN_SHAPE(h, 3, e, d), b->std);
    int wb = bias(b, "attn.bqkv", SN_SHAPE(h, 3, e));
    int wo = sn_graph_matrix(b->g, "attn.wo", SN_SHAPE(d, h, e), b->std_residual);
    sn_attr causal = {.i = {1}, .f = {1 / sqrt((double) e)}};
    x = product(b, "attn.qkv", x, w, wb, 1);
    x = sn_graph_node(b->g, SN_OP_ATTENTION, "attn", &causal, 1, x);
    return product(b, "attn.out", x, wo, -1, 2);
}

/* One of q, k and v: its own product, turned by position where asked for. */
static int projection(builder *b, char which, int x, sn_shape heads, bool turned)
{
    char w[16], wb[16], name[16];
    snprintf(w, sizeof w, "attn.w%c", which);
    snprintf(wb, sizeof wb, "attn.b%c", which);
    snprintf(name, sizeof name, "attn.%c", which);
    sn_shape matrix = heads;
    matrix.dim[matrix.rank++] = b->gpt->hidden;
    int weight = sn_graph_matrix(b->g, w, matrix, b->std);
    x = product(b, name, x, weight, bias(b, wb, heads), 1);
    snprintf(name, sizeof name, "attn.%c.turn", which);
    return turned ? sn_graph_rotary(b->g, name, x, b->gpt->rotary_base) : x;
}

static int attention_grouped(builder *b, int x)
{
    int64_t d = b->gpt->hidden, h = b->gpt->heads, e = d / h;
    int64_t groups = b->gpt->kv_heads ? b->gpt->kv_heads : h, each = h / groups;
    int q = projection(b, 'q', x, SN_SHAPE(groups, each, e), b->gpt->rotary);
    int k = projection(b, 'k', x, SN_SHAPE(groups, e), b->gpt->rotary);
    int v = projection(b, 'v', x, SN_SHAPE(groups, e), false);
    int wo = sn_graph_matrix(b->g, "attn.wo", SN_SHAPE(d, groups, each, e), b->std_residual);
    x = sn_graph_attend(b->g, "attn", q, k, v, -1, true);
    return product(b, "attn.out", x, wo, -1, 3);
}

static sn_act act_of(const sn_gpt *m)
{
    return m->act ? m->act : m->gated ? SN_ACT_SILU : SN_ACT_GELU;
}

static int64_t inner_of(const sn_gpt *m)
{
    return m->mlp ? m->mlp : 4 * m->hidden;
}

static int mlp(builder *b, int x)
{
    int64_t d = b->gpt->hidden, f = inner_of(b->gpt);
    bool gated = b->gpt->gated;
    sn_attr act = {.i = {act_of(b->gpt)}};
    sn_shape up = gated ? SN_SHAPE(2, f) : SN_SHAPE(f), w = up;
    w.dim[w.rank++] = d;
    int w1 = sn_graph_matrix(b->g, "mlp.w1", w, b->std), b1 = bias(b, "mlp.b1", up);
    int w2 = sn_graph_matrix(b->g, "mlp.w2", SN_SHAPE(d, f), b->std_residual);
    x = product(b, "mlp.up", x, w1, gated ? b1 : -1, 1);
    x = gated ? sn_graph_node(b->g, SN_OP_GLU, "mlp.glu", &act, 1, x)
              : sn_graph_activate(b->g, "mlp.gelu", x, b1, act_of(b->gpt));
    return product(b, "mlp.down", x, w2, -1, 1);
}

static int experts(builder *b, int x)
{
    const sn_gpt *m = b->gpt;
    sn_moe moe = {.experts = m->experts,
                  .used = m->experts_used ? m->experts_used : 1,
                  .inner = inner_of(m),
                  .factor = m->capacity,
                  .normalised = m->experts_used > 1,
                  .act = act_of(m),
                  .gated = m->gated,
                  .std = b->std,
                  .std_out = b->std_residual};
    int balance;
    x = sn_graph_moe(b->g, "moe", x, &moe, b->balance_scale, &balance);
    b->balance = b->balance < 0 ? balance : sn_graph_sum(b->g, "moe.balances", b->balance, balance);
    return x;
}

static int block(builder *b, int64_t layer, int x)
{
    const sn_gpt *m = b->gpt;
    sn_shape d = SN_SHAPE(m->hidden);
    sn_graph_scope(b->g, "h.%lld.", (long long) layer);
    int p = norm(b, "ln1", x);
    p = m->rotary || m->kv_heads ? attention_grouped(b, p) : attention_fused(b, p);
    x = sn_graph_residual(b->g, "attn.add", x, p, bias(b, "attn.bo", d));
    p = norm(b, "ln2", x);
    p = m->experts ? experts(b, p) : mlp(b, p);
    x = sn_graph_residual(b->g, "mlp.add", x, p, m->experts ? -1 : bias(b, "mlp.b2", d));
    sn_graph_scope_end(b->g);
    return x;
}

static sn_status check_heads(const sn_gpt *m)
{
    if (m->hidden % m->heads)
        return sn_fail(SN_EINVAL, "model hidden %lld is not divisible by heads %lld",
                       (long long) m->hidden, (long long) m->heads);
    if (m->kv_heads < 0 || (m->kv_heads && m->heads % m->kv_heads))
        return sn_fail(SN_EINVAL, "model heads %lld is not divisible by kv_heads %lld",
                       (long long) m->heads, (long long) m->kv_heads);
    if (m->rotary && m->hidden / m->heads % 2)
        return sn_fail(SN_EINVAL, "model head size %lld is odd: rotary positions turn pairs",
                       (long long) (m->hidden / m->heads));
    if (m->experts < 0 || m->experts > INT32_MAX || m->experts_used < 0 ||
        (m->experts_used > m->experts))
        return sn_fail(SN_EINVAL, "model experts %lld cannot be used %lld at a time",
                       (long long) m->experts, (long long) m->experts_used);
    if ((unsigned) m->act >= SN_ACT_COUNT)
        return sn_fail(SN_EINVAL, "model activation %d does not exist", (int) m->act);
    return SN_OK;
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
    SN_TRY(check_heads(m));
    double widest = (double) SN_MAX(inner_of(m), m->vocab);
    if ((double) m->sequence * (double) batch * widest > 1e13)
        return sn_fail(SN_EFIT,
                       "one activation would have %.2g elements: lower sequence, batch or width",
                       (double) m->sequence * (double) batch * widest);
    return SN_OK;
}

/* ids → [T,B,D]; the table comes back for a tied head. */
static int embed(builder *b, int ids, int *ret_table)
{
    const sn_gpt *m = b->gpt;
    int wte = sn_graph_matrix(b->g, "wte", SN_SHAPE(m->vocab, m->hidden), b->std);
    int x = sn_graph_node(b->g, SN_OP_EMBEDDING, "embed", NULL, 2, wte, ids);
    *ret_table = wte;
    if (m->rotary)
        return x;
    sn_shape places = SN_SHAPE(m->sequence, 1, m->hidden);
    return sn_graph_sum(b->g, "position", x, sn_graph_matrix(b->g, "wpe", places, b->std / 2));
}

sn_status sn_graph_gpt(sn_arena *arena, const sn_gpt *gpt, int64_t batch, double tokens_per_step,
                       sn_graph **ret)
{
    SN_TRY(check(gpt, batch));
    double std = 0.02 * sqrt(768.0 / (double) gpt->hidden);
    double balance = gpt->balance > 0 ? gpt->balance : 0.01;
    builder b = {.g = sn_graph_create(arena, "gpt"),
                 .gpt = gpt,
                 .std = std,
                 .std_residual = std / sqrt(2.0 * (double) gpt->layers),
                 .epsilon = gpt->epsilon > 0 ? gpt->epsilon : 1e-5,
                 .balance_scale = balance * (double) gpt->sequence / tokens_per_step,
                 .balance = -1};
    sn_shape tokens = SN_SHAPE(gpt->sequence, batch);
    int ids = sn_graph_input(b.g, "ids", SN_I32, tokens, 1);
    int targets = sn_graph_input(b.g, "targets", SN_I32, tokens, 1);
    int head, x = embed(&b, ids, &head);
    for (int64_t layer = 0; layer < gpt->layers; layer++)
        x = block(&b, layer, x);
    x = norm(&b, "ln", x);
    if (!gpt->tied)
        head = sn_graph_matrix(b.g, "head", SN_SHAPE(gpt->vocab, gpt->hidden), std);
    int logits = product(&b, "logits", x, head, -1, 1);
    int loss = sn_graph_cross_entropy(b.g, logits, targets, 1 / tokens_per_step);
    if (b.balance >= 0)
        loss = sn_graph_sum(b.g, "loss.all", loss, b.balance);
    SN_TRY(sn_graph_done(b.g, loss));
    *ret = b.g;
    return SN_OK;
}
