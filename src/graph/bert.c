/* SPDX-License-Identifier: Apache-2.0
 * BERT (Devlin et al., "BERT: pre-training of deep bidirectional transformers", 2019): an encoder
 * with a norm after each sum, and a head for masked words or for classes. */
#include "graph/private.h"

#include <math.h>

typedef struct builder {
    sn_graph *g;
    const sn_bert *bert;
    int mask; /* −1: all places hold words */
} builder;

#define STD 0.02
#define EPSILON 1e-12

static int product(builder *b, const char *name, int x, int w, int bias, int summed)
{
    return sn_graph_node(b->g, SN_OP_LINEAR, name, &(sn_attr){.i = {summed}}, bias < 0 ? 2 : 3, x,
                         w, bias);
}

static int zeros(builder *b, const char *name, sn_shape shape)
{
    return sn_graph_vector(b->g, name, shape, SN_INIT_ZERO);
}

/* Without padding: queries, keys and values in one product. */
static int attention_full(builder *b, int x, int64_t d, int64_t h)
{
    int64_t e = d / h;
    int w = sn_graph_matrix(b->g, "attn.wqkv", SN_SHAPE(h, 3, e, d), STD);
    x = product(b, "attn.qkv", x, w, zeros(b, "attn.bqkv", SN_SHAPE(h, 3, e)), 1);
    x = sn_graph_node(b->g, SN_OP_ATTENTION, "attn", &(sn_attr){.f = {1 / sqrt((double) e)}}, 1, x);
    return product(b, "attn.out", x, sn_graph_matrix(b->g, "attn.wo", SN_SHAPE(d, h, e), STD), -1,
                   2);
}

static int attention_masked(builder *b, int x, int64_t d, int64_t h)
{
    static const char *const names[3][3] = {{"attn.wq", "attn.bq", "attn.q"},
                                            {"attn.wk", "attn.bk", "attn.k"},
                                            {"attn.wv", "attn.bv", "attn.v"}};
    int64_t e = d / h;
    int part[3];
    for (int i = 0; i < 3; i++) {
        sn_shape heads = i ? SN_SHAPE(h, e) : SN_SHAPE(h, 1, e), w = heads;
        w.dim[w.rank++] = d;
        int matrix = sn_graph_matrix(b->g, names[i][0], w, STD);
        part[i] = product(b, names[i][2], x, matrix, zeros(b, names[i][1], heads), 1);
    }
    x = sn_graph_attend(b->g, "attn", part[0], part[1], part[2], b->mask, false);
    return product(b, "attn.out", x, sn_graph_matrix(b->g, "attn.wo", SN_SHAPE(d, h, 1, e), STD),
                   -1, 3);
}

static int mlp(builder *b, int x)
{
    int64_t d = b->bert->hidden, f = b->bert->mlp ? b->bert->mlp : 4 * d;
    x = product(b, "mlp.up", x, sn_graph_matrix(b->g, "mlp.w1", SN_SHAPE(f, d), STD), -1, 1);
    x = sn_graph_activate(b->g, "mlp.gelu", x, zeros(b, "mlp.b1", SN_SHAPE(f)), SN_ACT_GELU);
    return product(b, "mlp.down", x, sn_graph_matrix(b->g, "mlp.w2", SN_SHAPE(d, f), STD), -1, 1);
}

static int block(builder *b, int64_t layer, int x)
{
    const sn_bert *m = b->bert;
    sn_shape d = SN_SHAPE(m->hidden);
    sn_graph_scope(b->g, "h.%lld.", (long long) layer);
    int p = m->no_mask ? attention_full(b, x, m->hidden, m->heads)
                       : attention_masked(b, x, m->hidden, m->heads);
    x = sn_graph_residual(b->g, "attn.add", x, p, zeros(b, "attn.bo", d));
    x = sn_graph_layer_norm(b->g, "ln1", x, EPSILON);
    p = mlp(b, x);
    x = sn_graph_residual(b->g, "mlp.add", x, p, zeros(b, "mlp.b2", d));
    x = sn_graph_layer_norm(b->g, "ln2", x, EPSILON);
    sn_graph_scope_end(b->g);
    return x;
}

/* Words, places and segments. */
static int embed(builder *b, int ids, int segments, int *ret_table)
{
    const sn_bert *m = b->bert;
    int64_t d = m->hidden, kinds = m->segments ? m->segments : 2;
    int wte = sn_graph_matrix(b->g, "wte", SN_SHAPE(m->vocab, d), STD);
    int wpe = sn_graph_matrix(b->g, "wpe", SN_SHAPE(m->sequence, 1, d), STD);
    int wse = sn_graph_matrix(b->g, "wse", SN_SHAPE(kinds, d), STD);
    int x = sn_graph_node(b->g, SN_OP_EMBEDDING, "embed", NULL, 2, wte, ids);
    int s = sn_graph_node(b->g, SN_OP_EMBEDDING, "segment", NULL, 2, wse, segments);
    *ret_table = wte;
    x = sn_graph_sum(b->g, "position", x, wpe);
    return sn_graph_layer_norm(b->g, "ln", sn_graph_sum(b->g, "embedded", x, s), EPSILON);
}

/* Which word stands at each place: the decoder is the table. */
static int words(builder *b, int x, int table)
{
    int64_t d = b->bert->hidden;
    x = product(b, "cls.dense", x, sn_graph_matrix(b->g, "cls.w", SN_SHAPE(d, d), STD), -1, 1);
    x = sn_graph_activate(b->g, "cls.gelu", x, zeros(b, "cls.b", SN_SHAPE(d)), SN_ACT_GELU);
    x = sn_graph_layer_norm(b->g, "cls.ln", x, EPSILON);
    return product(b, "logits", x, table, zeros(b, "cls.bias", SN_SHAPE(b->bert->vocab)), 1);
}

/* Of what class the sample is: by its first place. */
static int classes(builder *b, int x)
{
    int64_t d = b->bert->hidden, n = b->bert->classes;
    x = sn_graph_node(b->g, SN_OP_TAKE, "first", NULL, 1, x);
    x = product(b, "pooler.dense", x, sn_graph_matrix(b->g, "pooler.w", SN_SHAPE(d, d), STD), -1,
                1);
    x = sn_graph_activate(b->g, "pooler", x, zeros(b, "pooler.b", SN_SHAPE(d)), SN_ACT_TANH);
    return product(b, "logits", x, sn_graph_matrix(b->g, "classifier.w", SN_SHAPE(n, d), STD),
                   zeros(b, "classifier.b", SN_SHAPE(n)), 1);
}

static sn_status check(const sn_bert *m, int64_t batch)
{
    const struct {
        const char *name;
        int64_t value, least;
    } size[] = {
        {"layers", m->layers, 0},     {"hidden", m->hidden, 1},   {"heads", m->heads, 1},
        {"sequence", m->sequence, 1}, {"vocab", m->vocab, 1},     {"mlp", m->mlp, 0},
        {"segments", m->segments, 0}, {"classes", m->classes, 0}, {"micro-batch", batch, 1}};
    for (size_t i = 0; i < SN_COUNT(size); i++)
        if (size[i].value < size[i].least || size[i].value > INT32_MAX)
            return sn_fail(SN_EINVAL, "model %s is %lld, it must be between %lld and 2147483647",
                           size[i].name, (long long) size[i].value, (long long) size[i].least);
    if (m->hidden % m->heads || m->layers > 4096)
        return sn_fail(SN_EINVAL,
                       "model hidden %lld is not divisible by heads %lld, or %lld layers "
                       "are too many",
                       (long long) m->hidden, (long long) m->heads, (long long) m->layers);
    double widest = (double) SN_MAX(m->mlp ? m->mlp : 4 * m->hidden, m->vocab);
    if ((double) m->sequence * (double) batch * widest > 1e13)
        return sn_fail(SN_EFIT,
                       "one activation would be too large: lower sequence, batch or width");
    return SN_OK;
}

sn_status sn_graph_bert(sn_arena *arena, const sn_bert *bert, int64_t batch, double units_per_step,
                        sn_graph **ret)
{
    SN_TRY(check(bert, batch));
    builder b = {.g = sn_graph_create(arena, "bert"), .bert = bert, .mask = -1};
    sn_shape tokens = SN_SHAPE(bert->sequence, batch);
    int ids = sn_graph_input(b.g, "ids", SN_I32, tokens, 1);
    int segments = sn_graph_input(b.g, "segments", SN_I32, tokens, 1);
    if (!bert->no_mask)
        b.mask = sn_graph_input(b.g, "mask", SN_I32, tokens, 1);
    int targets = bert->classes ? sn_graph_input(b.g, "labels", SN_I32, SN_SHAPE(batch), 0)
                                : sn_graph_input(b.g, "targets", SN_I32, tokens, 1);
    int table, x = embed(&b, ids, segments, &table);
    for (int64_t layer = 0; layer < bert->layers; layer++)
        x = block(&b, layer, x);
    x = bert->classes ? classes(&b, x) : words(&b, x, table);
    SN_TRY(sn_graph_done(b.g, sn_graph_cross_entropy(b.g, x, targets, 1 / units_per_step)));
    *ret = b.g;
    return SN_OK;
}
