/* SPDX-License-Identifier: Apache-2.0
 *
 * plan, by numbers: every split of a model trains to the same losses, gradient norms and parameters
 * as one card. Programs run in plan_interp.h on kern's reference kernels. */
#include "kern/kern.h"
#include "plan/plan.h"
#include "unit/plan_interp.h"
#include "unit/plan_models.h"
#include "unit/sn_test.h"

#include <math.h>

#define STEPS 4

/* ---- random graphs */

/* A random graph on [T, B, D]: linears, sums of any two earlier values, norms and gelus, now and
 * then one weight twice; what nobody used is added up before the loss. */
typedef struct random_model {
    uint64_t seed;
    int64_t sequence, width, vocab;
    bool tied;
} random_model;

#define RANDOM_NODES 14

static sn_status random_node(sn_graph *g, sn_prng *r, const random_model *m, int *pool, bool *used,
                             int n)
{
    int out[SN_OP_OUT_MAX], a = (int) sn_prng_below(r, n), b = (int) sn_prng_below(r, n);
    int64_t d = m->width, f = 2 * d;
    sn_attr one = {.i = {1}}, norm = {.f = {1e-5}};
    const char *name = sn_arena_printf(g->arena, "n%d", n);
    used[a] = true;
    int w = m->tied ? sn_graph_find(g, "shared") : -1;
    switch (sn_prng_below(r, 5)) {
    case 0:
        if (w < 0)
            w = sn_graph_param(g, m->tied ? "shared" : sn_arena_printf(g->arena, "%s.w", name),
                               SN_SHAPE(d, d), SN_INIT_NORMAL, 0.3, true);
        SN_TRY(sn_graph_add(g, SN_OP_LINEAR, name, &one, (int[]){pool[a], w}, 2, out));
        break;
    case 1: {
        int gain = sn_graph_param(g, sn_arena_printf(g->arena, "%s.g", name), SN_SHAPE(d),
                                  SN_INIT_ONE, 0, false);
        int bias = sn_graph_param(g, sn_arena_printf(g->arena, "%s.b", name), SN_SHAPE(d),
                                  SN_INIT_ZERO, 0, false);
        SN_TRY(
            sn_graph_add(g, SN_OP_LAYER_NORM, name, &norm, (int[]){pool[a], gain, bias}, 3, out));
        break;
    }
    case 2: {
        int up = sn_graph_param(g, sn_arena_printf(g->arena, "%s.up", name), SN_SHAPE(f, d),
                                SN_INIT_NORMAL, 0.3, true);
        int bias = sn_graph_param(g, sn_arena_printf(g->arena, "%s.bias", name), SN_SHAPE(f),
                                  SN_INIT_ZERO, 0, false);
        int down = sn_graph_param(g, sn_arena_printf(g->arena, "%s.down", name), SN_SHAPE(d, f),
                                  SN_INIT_NORMAL, 0.3, true);
        SN_TRY(sn_graph_add(g, SN_OP_LINEAR, name, &one, (int[]){pool[a], up}, 2, out));
        SN_TRY(sn_graph_add(g, SN_OP_BIAS_GELU, name, NULL, (int[]){out[0], bias}, 2, out));
        SN_TRY(sn_graph_add(g, SN_OP_LINEAR, name, &one, (int[]){out[0], down}, 2, out));
        break;
    }
    case 3:
        used[b] = true;
        SN_TRY(sn_graph_add(g, SN_OP_RESIDUAL, name, NULL, (int[]){pool[a], pool[b]}, 2, out));
        break;
    default:
        used[b] = true;
        SN_TRY(sn_graph_add(g, SN_OP_ADD, name, NULL, (int[]){pool[a], pool[b]}, 2, out));
        break;
    }
    pool[n] = out[0];
    return SN_OK;
}

static sn_status build_random(void *ctx, sn_arena *arena, int64_t micro, double tokens,
                              sn_graph **ret)
{
    const random_model *m = ctx;
    sn_prng r = {.seed = m->seed};
    sn_graph *g = sn_graph_create(arena, "random");
    sn_shape at = SN_SHAPE(m->sequence, micro);
    int pool[RANDOM_NODES + 1], x, y, max, sums, loss;
    bool used[RANDOM_NODES + 1] = {false};
    int ids = sn_graph_input(g, "ids", SN_I32, at, 1);
    int targets = sn_graph_input(g, "targets", SN_I32, at, 1);
    int table = sn_graph_param(g, "table", SN_SHAPE(m->vocab, m->width), SN_INIT_NORMAL, 0.5, true);
    int head = m->tied ? table
                       : sn_graph_param(g, "head", SN_SHAPE(m->vocab, m->width), SN_INIT_NORMAL,
                                        0.3, true);
    sn_attr one = {.i = {1}}, norm = {.f = {1e-5}}, scale = {.f = {1 / tokens}};
    SN_TRY(sn_graph_add(g, SN_OP_EMBEDDING, "embed", NULL, (int[]){table, ids}, 2, &pool[0]));
    int n = 1;
    for (; n < RANDOM_NODES; n++)
        SN_TRY(random_node(g, &r, m, pool, used, n));
    x = pool[n - 1];
    for (int i = 0; i < n - 1; i++)
        if (!used[i])
            SN_TRY(sn_graph_add(g, SN_OP_ADD, "rest", NULL, (int[]){x, pool[i]}, 2, &x));
    int gain = sn_graph_param(g, "last.g", SN_SHAPE(m->width), SN_INIT_ONE, 0, false);
    int bias = sn_graph_param(g, "last.b", SN_SHAPE(m->width), SN_INIT_ZERO, 0, false);
    int normed[3];
    SN_TRY(sn_graph_add(g, SN_OP_LAYER_NORM, "last", &norm, (int[]){x, gain, bias}, 3, normed));
    SN_TRY(sn_graph_add(g, SN_OP_LINEAR, "logits", &one, (int[]){normed[0], head}, 2, &y));
    SN_TRY(sn_graph_add(g, SN_OP_ROW_MAX, "max", NULL, &y, 1, &max));
    SN_TRY(sn_graph_add(g, SN_OP_XENT_SUMS, "sums", NULL, (int[]){y, targets, max}, 3, &sums));
    SN_TRY(sn_graph_add(g, SN_OP_XENT_LOSS, "loss", &scale, (int[]){max, sums, targets}, 3, &loss));
    g->loss = loss;
    *ret = g;
    return SN_OK;
}

/* ---- one run */

static sn_status run_kernel(void *ctx, const sn_program *p, const sn_instr *in,
                            const void *const *ins, void *const *outs)
{
    sn_kernel_spec spec = {.op = in->op,
                           .attr = in->attr,
                           .ins = in->ins,
                           .outs = in->outs,
                           .accumulate = in->accumulate};
    sn_kernel *k;
    for (int i = 0; i < in->ins; i++) {
        spec.in[i].absent = in->in[i] < 0;
        if (in->in[i] >= 0) {
            spec.in[i].dtype = p->slot[in->in[i]].dtype;
            spec.in[i].shape = p->slot[in->in[i]].shape;
        }
    }
    for (int o = 0; o < in->outs; o++) {
        spec.out[o].absent = in->out[o] < 0;
        if (in->out[o] >= 0) {
            spec.out[o].dtype = p->slot[in->out[o]].dtype;
            spec.out[o].shape = p->slot[in->out[o]].shape;
        }
    }
    SN_TRY(sn_card_prepare(ctx, &spec, &k));
    return sn_kernel_run(k, ins, outs);
}

static float initial(const sn_value *v, int64_t i)
{
    if (v->init == SN_INIT_NORMAL)
        return (float) (v->init_std *
                        sn_hash_normal(7, sn_hash_bytes(v->name, strlen(v->name)), (uint64_t) i));
    /* no zeros, no ones: a forgotten gain or bias must show */
    return (v->init == SN_INIT_ONE ? 1.0f : 0.0f) +
           0.1f * (float) sn_hash_normal(9, sn_hash_bytes(v->name, strlen(v->name)), (uint64_t) i);
}

/* Index in the whole tensor of element f of a state's block. */
static int64_t place(const sn_state *st, sn_shape whole, int64_t f)
{
    int64_t at = 0, stride = 1;
    for (int d = whole.rank - 1; d >= 0; d--) {
        at += (st->begin[d] + f % st->extent[d]) * stride;
        f /= st->extent[d];
        stride *= whole.dim[d];
    }
    return at;
}

static void load(const interp *w)
{
    for (int r = 0; r < w->plan->world; r++)
        for (int i = 0; i < w->rank[r].p->states; i++) {
            const sn_state *st = &w->rank[r].p->state[i];
            const sn_value *v = &w->plan->graph->value[st->value];
            float *slot = interp_slot(w, r, st->slot);
            for (int64_t f = 0; f < st->flat_count; f++)
                slot[st->slot_at + f] = st->kind == SN_SLOT_MASTER || st->kind == SN_SLOT_STATE
                                            ? initial(v, place(st, v->shape, st->flat_begin + f))
                                            : 0;
        }
}

/* Sample b of step s is the same whatever card sees it. */
static int32_t token(int step, int64_t sample, int64_t position, bool target, int64_t below)
{
    uint64_t at = (uint64_t) (position + target);
    return (int32_t) (sn_hash64((uint64_t) step + 11, (uint64_t) sample, at) % (uint64_t) below);
}

static void fill_inputs(const interp *w, int step, int64_t below)
{
    for (int r = 0; r < w->plan->world; r++) {
        int t, s, d;
        sn_plan_coords(w->plan, r, &t, &s, &d);
        for (int i = 0; i < w->rank[r].p->slots; i++) {
            const sn_slot *slot = &w->rank[r].p->slot[i];
            if (slot->kind != SN_SLOT_INPUT)
                continue;
            const sn_value *v = &w->plan->graph->value[slot->value];
            int64_t here = slot->shape.dim[v->batch_dim];
            int64_t micro = v->shape.dim[v->batch_dim];
            int32_t *x = interp_slot(w, r, i);
            for (int64_t f = 0; f < sn_shape_count(slot->shape); f++) {
                int64_t position = v->batch_dim == 0 ? 0 : f / here;
                int64_t sample = slot->micro * micro + d * here + f % here;
                x[f] = token(step, sample, position, strcmp(v->name, "targets") == 0, below);
            }
        }
    }
}

static void set_hyper(const interp *w, int step)
{
    float b1 = 0.9f, b2 = 0.95f;
    float hyper[8] = {1e-2f,
                      b1,
                      b2,
                      1e-8f,
                      0.1f,
                      1 / (1 - powf(b1, (float) step + 1)),
                      1 / (1 - powf(b2, (float) step + 1)),
                      0.5f};
    for (int r = 0; r < w->plan->world; r++)
        if (w->rank[r].p->hyper >= 0)
            memcpy(interp_slot(w, r, w->rank[r].p->hyper), hyper, sizeof hyper);
}

typedef struct result {
    double loss[STEPS], norm[STEPS];
    double logit;    /* forward only: of the step's first sample */
    double checksum; /* of the parameters at the end, each element weighted by its place */
} result;

static double checksum(const interp *w)
{
    double sum = 0;
    for (int r = 0; r < w->plan->world; r++)
        for (int i = 0; i < w->rank[r].p->states; i++) {
            const sn_state *st = &w->rank[r].p->state[i];
            const sn_value *v = &w->plan->graph->value[st->value];
            const float *slot = interp_slot(w, r, st->slot);
            if (!st->owner || (st->kind != SN_SLOT_MASTER && st->kind != SN_SLOT_STATE))
                continue;
            for (int64_t f = 0; f < st->flat_count; f++) {
                int64_t at = place(st, v->shape, st->flat_begin + f);
                sum += slot[st->slot_at + f] *
                       sn_hash_normal(3, sn_hash_bytes(v->name, strlen(v->name)), (uint64_t) at);
            }
        }
    return sum;
}

static void check_all(const interp *w)
{
    sn_program **all = calloc((size_t) w->plan->world, sizeof *all);
    for (int r = 0; r < w->plan->world; r++)
        all[r] = w->rank[r].p;
    sn_program_check(w->plan, all);
    free(all);
}

static result train(const sn_plan_opts *opts, int64_t below)
{
    result res = {0};
    sn_plan *plan;
    sn_card *card;
    interp w;
    assert_ok(sn_plan_make(opts, &plan));
    assert_ok(sn_card_open("ref", &(sn_card_opts){0}, &card));
    assert_ok(interp_open(plan, run_kernel, card, &w));
    check_all(&w);
    load(&w);
    assert_ok(interp_run(&w, true));
    for (int step = 0; step < STEPS; step++) {
        fill_inputs(&w, step, below);
        set_hyper(&w, step);
        assert_ok(interp_run(&w, false));
        const float *scalars = interp_slot(&w, 0, w.rank[0].p->scalars);
        res.loss[step] = scalars[0];
        res.norm[step] = sqrt(scalars[1]);
        for (int r = 1; r < plan->world; r++)
            assert_memory_equal(scalars, interp_slot(&w, r, w.rank[r].p->scalars),
                                2 * sizeof(float));
    }
    for (int r = 0, tensor, stage, data; r < plan->world; r++) {
        sn_plan_coords(plan, r, &tensor, &stage, &data);
        if (w.rank[r].p->result >= 0 && data == 0)
            res.logit = *(const float *) interp_slot(&w, r, w.rank[r].p->result);
    }
    res.checksum = checksum(&w);
    interp_close(&w);
    sn_card_close(card);
    sn_plan_free(plan);
    return res;
}

static void compare(const result *a, const result *b, double tolerance, const char *what)
{
    for (int s = 0; s < STEPS; s++) {
        if (!(fabs(a->loss[s] - b->loss[s]) <= tolerance * fabs(a->loss[s])))
            fail_msg("%s: loss of step %d is %.9g, one card's %.9g", what, s, b->loss[s],
                     a->loss[s]);
        if (!(fabs(a->norm[s] - b->norm[s]) <= 10 * tolerance * fabs(a->norm[s])))
            fail_msg("%s: gradient norm of step %d is %.9g, one card's %.9g", what, s, b->norm[s],
                     a->norm[s]);
    }
    if (!(fabs(a->checksum - b->checksum) <= 100 * tolerance * (1 + fabs(a->checksum))))
        fail_msg("%s: parameters end at %.9g, one card's at %.9g", what, b->checksum, a->checksum);
}

static void try_split(const sn_plan_opts *base, const char *model, int64_t below, const result *one,
                      int t, int p, int d, int64_t accumulation, double tolerance)
{
    char what[96];
    sn_plan_opts o = *base;
    o.tensor = t;
    o.pipeline = p;
    o.data = d;
    o.accumulation = accumulation;
    snprintf(what, sizeof what, "%s: tensor %d pipeline %d data %d accumulation %d %s", model, t, p,
             d, (int) accumulation, sn_dtype_name(o.precision));
    result r = train(&o, below);
    compare(one, &r, tolerance, what);
}

static result one_card(const sn_plan_opts *base, int64_t below)
{
    sn_plan_opts o = *base;
    o.tensor = o.pipeline = o.data = 1;
    o.accumulation = 1;
    return train(&o, below);
}

/* ---- cases */

static void gpt_splits_on(double speed)
{
    sn_topo *t = machine_of(2, 4, speed);
    sn_gpt gpt = {.layers = 2, .hidden = 16, .heads = 4, .sequence = 8, .vocab = 20};
    sn_plan_opts base = {.topo = t,
                         .batch = 8,
                         .tokens_per_sample = gpt.sequence,
                         .precision = SN_F32,
                         .bucket_bytes = 4096,
                         .build = build_gpt,
                         .ctx = &gpt};
    result one = one_card(&base, gpt.vocab);
    assert_true(one.loss[STEPS - 1] < one.loss[0] + 1 && one.norm[0] > 0.1);
    for (int split = 0; split < 8; split++)
        for (int accumulation = 1; accumulation <= 4; accumulation *= 2)
            try_split(&base, "gpt", gpt.vocab, &one, 1 + (split & 1), 1 + (split >> 1 & 1),
                      1 + (split >> 2), accumulation, 1e-5);
    try_split(&base, "gpt", gpt.vocab, &one, 4, 1, 1, 2, 1e-5);
    try_split(&base, "gpt", gpt.vocab, &one, 4, 2, 1, 4, 1e-5);
    try_split(&base, "gpt", gpt.vocab, &one, 1, 4, 1, 4, 1e-5);
    try_split(&base, "gpt", gpt.vocab, &one, 1, 8, 1, 8, 1e-5);
    try_split(&base, "gpt", gpt.vocab, &one, 1, 3, 2, 2, 1e-5);
    sn_topo_free(t);
}

static void gpt_splits(void **state)
{
    gpt_splits_on(1);
}

/* The same where norms and residuals are split along the sequence and their gains' gradients are
 * partial sums. */
static void gpt_splits_slow_cards(void **state)
{
    gpt_splits_on(1e-4);
}

static void odd_sizes(void **state)
{
    sn_topo *t = machine(1, 9);
    sn_gpt gpt = {.layers = 3, .hidden = 24, .heads = 6, .sequence = 7, .vocab = 21, .mlp = 30};
    sn_plan_opts base = {.topo = t,
                         .batch = 9,
                         .tokens_per_sample = gpt.sequence,
                         .precision = SN_F32,
                         .bucket_bytes = 10000,
                         .build = build_gpt,
                         .ctx = &gpt};
    result one = one_card(&base, gpt.vocab);
    try_split(&base, "odd gpt", gpt.vocab, &one, 2, 1, 1, 1, 1e-5);
    try_split(&base, "odd gpt", gpt.vocab, &one, 2, 3, 1, 3, 1e-5);
    try_split(&base, "odd gpt", gpt.vocab, &one, 3, 1, 3, 3, 1e-5);
    try_split(&base, "odd gpt", gpt.vocab, &one, 1, 3, 3, 3, 1e-5);
    try_split(&base, "odd gpt", gpt.vocab, &one, 6, 1, 1, 1, 1e-5);
    sn_topo_free(t);
}

static void other_model(void **state)
{
    sn_topo *t = machine(1, 8);
    int64_t size[] = {12, 8, 20, 6};
    sn_plan_opts base = {.topo = t,
                         .batch = 8,
                         .tokens_per_sample = 1,
                         .precision = SN_F32,
                         .bucket_bytes = 1000,
                         .build = build_mlp,
                         .ctx = size};
    result one = one_card(&base, 6);
    for (int split = 0; split < 8; split++)
        try_split(&base, "mlp", 6, &one, 1 + (split & 1), 1 + (split >> 1 & 1), 1 + (split >> 2), 2,
                  1e-5);
    try_split(&base, "mlp", 6, &one, 1, 4, 2, 4, 1e-5);
    try_split(&base, "mlp", 6, &one, 2, 4, 1, 4, 1e-5);
    try_split(&base, "mlp", 6, &one, 1, 5, 1, 3 - 1, 1e-5);
    try_split(&base, "mlp", 6, &one, 4, 1, 2, 1, 1e-5);
    sn_topo_free(t);
}

static void random_models(void **state)
{
    sn_prng r = {.seed = 5};
    for (int i = 0; i < 24; i++) {
        random_model m = {.seed = (uint64_t) i + 100,
                          .sequence = 3 + sn_prng_below(&r, 3),
                          .width = 8,
                          .vocab = 10 + sn_prng_below(&r, 3),
                          .tied = i % 4 == 3};
        sn_topo *t = machine_of(2, 4, i % 3 == 0 ? 1e-4 : i % 3 == 1 ? 1e-2 : 1);
        sn_plan_opts base = {.topo = t,
                             .batch = 4,
                             .tokens_per_sample = m.sequence,
                             .precision = SN_F32,
                             .bucket_bytes = 700,
                             .build = build_random,
                             .ctx = &m};
        char seed[32];
        snprintf(seed, sizeof seed, "random model %d", (int) m.seed);
        result one = one_card(&base, m.vocab);
        int pipeline = m.tied ? 1 : 1 + (int) sn_prng_below(&r, 4);
        try_split(&base, seed, m.vocab, &one, 2, 1, 1, 1, 1e-5);
        try_split(&base, seed, m.vocab, &one, 1, pipeline, 2, 2, 1e-5);
        try_split(&base, seed, m.vocab, &one, 2, SN_MIN(pipeline, 2), 2, 1, 1e-5);
        try_split(&base, seed, m.vocab, &one, 4, SN_MIN(pipeline, 2), 1, 2, 1e-5);
        sn_topo_free(t);
    }
}

/* A forward-only program gives the loss of the first step, and logits, on every split. */
static void forward_only(void **state)
{
    sn_topo *t = machine(2, 4);
    sn_gpt gpt = {.layers = 2, .hidden = 16, .heads = 4, .sequence = 8, .vocab = 20};
    sn_plan_opts base = {.topo = t,
                         .batch = 8,
                         .tokens_per_sample = gpt.sequence,
                         .precision = SN_F32,
                         .build = build_gpt,
                         .ctx = &gpt};
    result one = one_card(&base, gpt.vocab);
    double logits[2] = {0, 0};
    for (int split = 0; split < 8; split++) {
        sn_plan_opts o = base;
        o.tensor = 1 + (split & 1);
        o.pipeline = 1 + (split >> 1 & 1);
        o.data = 1 + (split >> 2);
        o.accumulation = 2;
        o.forward_only = true;
        result r = train(&o, gpt.vocab);
        assert_true(fabs(r.loss[0] - one.loss[0]) <= 1e-5 * one.loss[0]);
        logits[split > 0] = r.logit;
        assert_true(split == 0 || fabs(logits[0] - logits[1]) <= 1e-5);
    }
    sn_topo_free(t);
}

/* More buckets in flight than coll has requests for. */
static void many_buckets(void **state)
{
    sn_topo *t = machine(1, 4);
    sn_gpt gpt = {.layers = 4, .hidden = 8, .heads = 2, .sequence = 4, .vocab = 8};
    sn_plan_opts base = {.topo = t,
                         .batch = 4,
                         .tokens_per_sample = gpt.sequence,
                         .precision = SN_F32,
                         .bucket_bytes = 1,
                         .build = build_gpt,
                         .ctx = &gpt};
    result one = one_card(&base, gpt.vocab);
    try_split(&base, "buckets", gpt.vocab, &one, 1, 1, 4, 1, 1e-5);
    try_split(&base, "buckets", gpt.vocab, &one, 2, 1, 2, 2, 1e-5);
    sn_topo_free(t);
}

static void bf16(void **state)
{
    sn_topo *t = machine_of(2, 4, 1e-3);
    sn_gpt gpt = {.layers = 2, .hidden = 32, .heads = 4, .sequence = 8, .vocab = 20};
    sn_plan_opts base = {.topo = t,
                         .batch = 8,
                         .tokens_per_sample = gpt.sequence,
                         .precision = SN_F32,
                         .build = build_gpt,
                         .ctx = &gpt};
    result one = one_card(&base, gpt.vocab);
    base.precision = SN_BF16;
    try_split(&base, "gpt", gpt.vocab, &one, 1, 1, 1, 1, 2e-2);
    try_split(&base, "gpt", gpt.vocab, &one, 2, 2, 2, 2, 2e-2);
    try_split(&base, "gpt", gpt.vocab, &one, 1, 1, 4, 1, 2e-2);
    sn_topo_free(t);
}

/* Batch norms with running statistics, [B, D]. */
static sn_status build_normed(void *ctx, sn_arena *arena, int64_t micro, double tokens,
                              sn_graph **ret)
{
    sn_graph *g = sn_graph_create(arena, "normed");
    sn_batch_norm bn = {.momentum = 0.3, .relu = true};
    int ids = sn_graph_input(g, "ids", SN_I32, SN_SHAPE(micro), 0), x;
    int targets = sn_graph_input(g, "targets", SN_I32, SN_SHAPE(micro), 0);
    int table = sn_graph_param(g, "table", SN_SHAPE(12, 8), SN_INIT_NORMAL, 0.5, true);
    SN_TRY(sn_graph_add(g, SN_OP_EMBEDDING, "embed", NULL, (int[]){table, ids}, 2, &x));
    x = sn_graph_linear(g, "one", x, SN_SHAPE(16), 1, 0.3, false);
    x = sn_graph_batch_norm(g, "bn1", x, -1, &bn);
    int skip = x = sn_graph_linear(g, "two", x, SN_SHAPE(16), 1, 0.3, true);
    x = sn_graph_batch_norm(g, "bn2", x, skip, &bn);
    x = sn_graph_linear(g, "logits", x, SN_SHAPE(12), 1, 0.3, true);
    SN_TRY(sn_graph_done(g, sn_graph_cross_entropy(g, x, targets, 1 / tokens)));
    *ret = g;
    return SN_OK;
}

/* Statistics are those of a micro-batch, so each split is held against one card with as many. */
static void states_of_the_graph(void **state)
{
    for (int slow = 0; slow < 2; slow++)
        for (int accumulation = 1; accumulation <= 4; accumulation *= 2) {
            sn_topo *t = machine_of(2, 4, slow ? 1e-4 : 1);
            sn_plan_opts base = {.topo = t,
                                 .batch = 16,
                                 .accumulation = accumulation,
                                 .tensor = 1,
                                 .pipeline = 1,
                                 .data = 1,
                                 .tokens_per_sample = 1,
                                 .precision = SN_F32,
                                 .bucket_bytes = 1000,
                                 .build = build_normed};
            result one = train(&base, 12);
            for (int split = 1; split < 8; split++)
                try_split(&base, "normed", 12, &one, 1 + (split & 1), 1 + (split >> 1 & 1),
                          1 + (split >> 2), accumulation, 1e-5);
            try_split(&base, "normed", 12, &one, 4, 1, 2, accumulation, 1e-5);
            base.precision = SN_BF16;
            try_split(&base, "normed", 12, &one, 1, 2, 2, accumulation, 5e-2);
            sn_topo_free(t);
        }
}

/* Statistics that an op wants exact, and states, are F32 in BF16 programs too. */
static void exact_results(void **state)
{
    sn_topo *t = machine(1, 2);
    sn_plan_opts o = {.topo = t,
                      .tensor = 1,
                      .pipeline = 1,
                      .data = 2,
                      .batch = 4,
                      .accumulation = 1,
                      .tokens_per_sample = 1,
                      .precision = SN_BF16,
                      .build = build_normed};
    sn_plan *plan;
    sn_program *p;
    assert_ok(sn_plan_make(&o, &plan));
    assert_ok(sn_plan_program(plan, 0, &p));
    int exact = 0;
    for (int i = 0; i < p->instrs; i++) {
        const sn_instr *in = &p->instr[i];
        for (int k = 0; in->node >= 0 && in->kind == SN_INSTR_KERNEL && k < in->outs; k++)
            if (sn_op_row_of(in->op)->exact >> k & 1 && in->out[k] >= 0) {
                assert_int_equal(p->slot[in->out[k]].dtype, SN_F32);
                exact++;
            }
    }
    for (int i = 0; i < p->slots; i++)
        if (p->slot[i].kind == SN_SLOT_STATE)
            assert_int_equal(p->slot[i].dtype, SN_F32);
    assert_true(exact >= 10);
    sn_program_free(p);
    sn_plan_free(plan);
    sn_topo_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt_splits),          cmocka_unit_test(gpt_splits_slow_cards),
        cmocka_unit_test(odd_sizes),           cmocka_unit_test(other_model),
        cmocka_unit_test(random_models),       cmocka_unit_test(forward_only),
        cmocka_unit_test(many_buckets),        cmocka_unit_test(bf16),
        cmocka_unit_test(states_of_the_graph), cmocka_unit_test(exact_results),
    };
    return sn_test_run(tests);
}
