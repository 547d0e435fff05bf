/* SPDX-License-Identifier: Apache-2.0
 *
 * A step's price: kernels of a layer, links, pipeline. What is constant here has a meaning; where
 * its value comes from stands beside it. */
#include "sim/private.h"

#include <math.h>

/* Of the best measured product: a typical large one (720 of 794.5 TFLOP/s on h100). */
#define PRODUCT_SHARE 0.906
/* Of the stated memory bandwidth, streaming kernels (BabelStream reaches 85 to 92 %). */
#define MEMORY_SHARE 0.85
/* Between the ends of two kernels that wait for each other. */
#define LAUNCH_S 4e-6
/* What filling and emptying a tile's pipeline costs, as a longer inner dimension. */
#define TILE_EXTRA 128.0
/* Cards differ in speed, and the slowest of n sets the pace: about this sigma times sqrt(2 ln n).
 * Sinha et al., "Not all GPUs are created equal", SC 2022, see 8 % between the ends. */
#define CARD_SPREAD 0.01
/* Of a link's bandwidth, a large collective or message. */
#define SCALE_UP_SHARE 0.77
#define NET_SHARE 0.85
/* Fused attention, forward and backward, of the best product (FlashAttention-2's figures). */
#define ATTEND_FORWARD 0.62
#define ATTEND_BACKWARD 0.50

/* ---- kernels */

typedef struct tile {
    double rows, cols, penalty; /* of smaller tiles: operands are read more often */
} tile;

static double product_s(const sn_sim_card *c, double m, double n, double k, double batch)
{
    static const tile tiles[] = {{256, 128, 1}, {128, 128, 1.06}, {128, 64, 1.25}, {64, 64, 1.6}};
    double rate = c->flops * c->best_share * PRODUCT_SHARE / c->units, best = HUGE_VAL;
    for (size_t i = 0; i < SN_COUNT(tiles); i++) {
        const tile *t = &tiles[i];
        double waves = ceil(ceil(m / t->rows) * ceil(n / t->cols) * batch / c->units);
        double one = 2 * t->rows * t->cols * (k + TILE_EXTRA) / rate * t->penalty;
        best = fmin(best, waves * one);
    }
    return best;
}

static double stream_s(const sn_sim_card *c, double bytes, double launches)
{
    return bytes / (c->memory_per_s * MEMORY_SHARE) + launches * LAUNCH_S;
}

static double product(const sn_sim_card *c, double m, double n, double k, double batch)
{
    double bytes = 2 * batch * (m * k + k * n + m * n);
    return fmax(product_s(c, m, n, k, batch), stream_s(c, bytes, 0)) + LAUNCH_S;
}

/* A weight's gradient, added to what micro-batches before left. */
static double weight_product(const sn_sim_card *c, double m, double n, double k, bool fused)
{
    double work = product_s(c, m, n, k, 1);
    if (fused) /* read and written in 32 bits by the product itself */
        return fmax(work, stream_s(c, 2 * (m * k + k * n) + 8 * m * n, 0)) + LAUNCH_S;
    return fmax(work, stream_s(c, 2 * (m * k + k * n + m * n), 0)) + LAUNCH_S +
           stream_s(c, 6 * m * n, 1); /* two read, one written, 16 bits each */
}

/* ---- a layer */

typedef struct sizes { /* of a micro-batch on a card */
    double t, tokens, hidden, qkv, up, mlp, vocab, samples, sequence, context, head, heads, spread;
    double matrices; /* of an MLP that leave its hidden size */
} sizes;

static sizes sizes_of(const sn_sim_model *m, const sn_sim_layout *l)
{
    double t = l->tensor, h = (double) m->hidden, head = h / (double) m->heads;
    double matrices = m->gated ? 2 : 1;
    return (sizes){
        .t = t,
        .tokens = (double) (m->sequence * l->micro_batch) / l->context,
        .hidden = h,
        .qkv = (h + 2 * (double) m->kv_heads * head) / t,
        .up = matrices * (double) m->mlp / t,
        .mlp = (double) m->mlp / t,
        .vocab = (double) m->vocab / t,
        .samples = (double) l->micro_batch,
        .sequence = (double) m->sequence / l->context,
        .context = (double) m->sequence,
        .head = head,
        .heads = (double) m->heads / t,
        .spread = l->sequence_parallel ? t : 1,
        .matrices = matrices,
    };
}

static void products(const sn_sim_card *c, const sizes *z, bool fused, sim_layer *y)
{
    const double shape[4][2] = {/* out, in */
                                {z->qkv, z->hidden},
                                {z->hidden, z->hidden / z->t},
                                {z->up, z->hidden},
                                {z->hidden, z->mlp}};
    for (int i = 0; i < 4; i++) {
        double out = shape[i][0], in = shape[i][1];
        y->forward += product(c, z->tokens, out, in, 1);
        y->backward += product(c, z->tokens, in, out, 1);
        y->weights += weight_product(c, out, in, z->tokens, fused);
    }
}

/* Scores, softmax, dropout, values: one kernel, or one after the other. */
static void attention(const sn_sim_card *c, const sn_sim_model *m, const sizes *z, sim_layer *y)
{
    double batch = z->samples * z->heads, s = z->sequence, all = z->context, e = z->head;
    double scores = s * all * batch;
    if (m->fused) {
        double flops = 4 * scores * e / 2, rate = c->flops * c->best_share; /* half is masked */
        y->core = flops / (rate * ATTEND_FORWARD) + LAUNCH_S;
        y->backward += 2.5 * flops / (rate * ATTEND_BACKWARD) + LAUNCH_S;
    } else {
        double one = product(c, s, all, e, batch), other = product(c, s, e, all, batch);
        y->core = one + other + stream_s(c, scores * 4, 1);
        y->backward += 2 * (one + other) + stream_s(c, scores * 6, 1);
        if (m->drops) {
            y->core += stream_s(c, scores * 5, 1);
            y->backward += stream_s(c, scores * 5, 1);
        }
    }
    y->forward += y->core;
}

/* Norms, residuals with dropout, the activation, moves between layouts, gradients of biases. */
static void elementwise(const sn_sim_card *c, const sn_sim_model *m, const sizes *z, sim_layer *y)
{
    double whole = z->tokens * z->hidden / z->spread, split = z->tokens * z->hidden / z->t;
    double up = z->tokens * z->up;
    y->forward += stream_s(c, 2 * 4 * whole, 2) + stream_s(c, 2 * (m->drops ? 7 : 6) * whole, 2) +
                  stream_s(c, (m->gated ? 3 : 4) * up, 1) + stream_s(c, 8 * split, 3);
    y->backward += stream_s(c, 2 * 8 * whole, 4) + stream_s(c, 2 * (5 + 6) * whole, 4) +
                   stream_s(c, 6 * up, 1) + stream_s(c, 8 * split, 3);
    if (!m->gated)
        y->backward += stream_s(c, 2 * (up + z->tokens * z->qkv + 2 * whole), 4);
}

/* The head and its loss, on the last stage. */
static double head(const sn_sim_card *c, const sizes *z)
{
    double logits = z->tokens * z->vocab;
    return 3 * product(c, z->tokens, z->vocab, z->hidden, 1) + stream_s(c, 20 * logits, 6);
}

/* ---- links */

typedef struct wire {
    double per_s, hop;
} wire;

/* What joins n cards that are `apart` from each other in the order of ranks. */
static wire wire_of(const sn_sim_cluster *c, double n, double apart)
{
    if (n * apart <= c->domain)
        return (wire){c->scale_up_per_s * SCALE_UP_SHARE, c->scale_up_s};
    return (wire){c->net_per_s * NET_SHARE / c->oversubscription, c->net_s};
}

/* A ring's share of bytes and steps: an all-gather or a reduce-scatter. */
static double half_ring(wire w, double n, double bytes)
{
    if (n < 2)
        return 0;
    double tree = 2 * ceil(log2(n)) * w.hop, ring = (n - 1) * w.hop;
    return (n - 1) / n * bytes / w.per_s + fmin(ring, tree) / 2;
}

/* ---- the whole */

static sim_layer layer_of(const sn_sim_cluster *c, const sn_sim_model *m, const sn_sim_layout *l,
                          const sizes *z)
{
    sim_layer y = {0};
    products(c->card, z, l->fused_sum, &y);
    attention(c->card, m, z, &y);
    elementwise(c->card, m, z, &y);
    y.tensor = 4 * half_ring(wire_of(c, z->t, 1), z->t, 2 * z->tokens * z->hidden);
    if (l->context > 1) { /* keys and values of all, half of it behind the core */
        double bytes = 4 * z->tokens * l->context * (z->qkv - z->hidden / z->t) / 2;
        wire w = wire_of(c, l->context, l->tensor);
        y.context = half_ring(w, l->context, bytes);
    }
    return y;
}

sim_layer sim_layer_price(const sn_sim_cluster *c, const sn_sim_model *m, const sn_sim_layout *l)
{
    sizes z = sizes_of(m, l);
    sim_layer y = layer_of(c, m, l, &z);
    y.head = head(c->card, &z);
    return y;
}

/* Gradients over the data group, and parameters back where the optimizer is sharded. */
static double data_s(const sn_sim_cluster *c, const sn_sim_layout *l, double parameters,
                     double behind)
{
    double n = (double) l->data * l->context;
    wire w = wire_of(c, n, l->tensor);
    double all = 2 * half_ring(w, n, 2 * parameters);
    if (l->shards == 3)
        all *= 1.5; /* gathered once more, for the backward */
    return l->no_overlap ? all : fmax(all * 0.1, all - behind);
}

static double parameters_of(const sn_sim_model *m, const sn_sim_layout *l)
{
    double table = (double) (m->vocab * m->hidden);
    double layers = sn_sim_parameters(m) - table * (m->gated ? 2 : 1);
    return (layers / l->pipeline + table) / l->tensor;
}

void sim_step_price(const sn_sim_cluster *c, const sn_sim_model *m, const sn_sim_layout *l,
                    int64_t batch, const sim_layer *y, sn_sim_step *ret)
{
    double layers = (double) m->layers / l->pipeline,
           micros = (double) (batch / (l->data * l->micro_batch)), idle;
    double used = (double) l->tensor * l->pipeline * l->data * l->context;
    double slow = 1 + CARD_SPREAD * sqrt(2 * log(fmax(used, 1)));
    double forward = layers * (y->forward + y->tensor + y->context);
    double again = layers * (l->recompute == SN_SIM_FULL        ? y->forward + y->tensor
                             : l->recompute == SN_SIM_SELECTIVE ? y->core
                                                                : 0);
    double backward = layers * (y->backward + y->tensor + 2 * y->context) + again;
    double weights = layers * y->weights, last = y->head;
    sizes z = sizes_of(m, l);
    wire w = wire_of(c, 2, (double) l->tensor * l->context * (l->pipeline > 1 ? c->domain : 1));
    double hop = l->pipeline > 1 ? 2 * z.tokens * z.hidden / z.t / w.per_s + w.hop : 0;
    double pipe = sn_sim_pipeline(l->schedule, l->pipeline, l->virtual_stages, (int64_t) micros,
                                  forward, backward, weights, hop, &idle);
    double busy = micros * (forward + backward + weights);
    double parameters = parameters_of(m, l);
    ret->micros = (int64_t) micros;
    ret->forward = forward;
    ret->backward = backward;
    ret->weights = weights;
    ret->again = micros * again * slow;
    ret->tensor = micros * layers * 2 * y->tensor * slow;
    ret->compute = (busy + micros * last) * slow - ret->again - ret->tensor;
    ret->bubble = (pipe - busy) * slow;
    ret->data = data_s(c, l, parameters, backward + weights);
    ret->optimizer = stream_s(c->card, 30 * parameters / (l->shards ? l->data : 1), 1);
    ret->seconds = (pipe + micros * last) * slow + ret->data + ret->optimizer;
    ret->flops = sn_sim_flops(m) * (double) batch;
    ret->use = ret->flops / ret->seconds / (used * c->card->flops);
    sim_memory(m, l, parameters, ret);
}

static sn_status check(const sn_sim_cluster *c, const sn_sim_model *m, const sn_sim_layout *l,
                       int64_t batch)
{
    double used = (double) l->tensor * l->pipeline * l->data * l->context;
    if (l->tensor < 1 || l->pipeline < 1 || l->data < 1 || l->context < 1 || l->micro_batch < 1 ||
        l->virtual_stages < 1)
        return sn_fail(SN_EINVAL, "a layout has a degree below 1");
    if (used > c->cards)
        return sn_fail(SN_EFIT,
                       "tensor %d x pipeline %d x data %d x context %d are %.0f cards, %d "
                       "are there",
                       l->tensor, l->pipeline, l->data, l->context, used, c->cards);
    if (m->heads % l->tensor)
        return sn_fail(SN_EFIT, "%lld heads cannot be split over tensor %d", (long long) m->heads,
                       l->tensor);
    if (batch % (l->data * l->micro_batch))
        return sn_fail(SN_EFIT, "%lld samples do not divide by data %d x micro-batch %lld",
                       (long long) batch, l->data, (long long) l->micro_batch);
    return SN_OK;
}

sn_status sn_sim_price(const sn_sim_cluster *c, const sn_sim_model *m, const sn_sim_layout *l,
                       int64_t batch, sn_sim_step *ret)
{
    SN_TRY(check(c, m, l, batch));
    sim_layer y = sim_layer_price(c, m, l);
    *ret = (sn_sim_step){0};
    sim_step_price(c, m, l, batch, &y, ret);
    return SN_OK;
}
