/* SPDX-License-Identifier: Apache-2.0
 *
 * plan, by numbers: every split of a model trains to the same losses, gradient norms and parameters
 * as one card. Programs run in plan_interp.h on kern's reference kernels. */
#include "kern/kern.h"
#include "plan/plan.h"
#include "unit/plan_interp.h"
#include "unit/sn_test.h"

#include <math.h>

#define STEPS 4

/* ---- machines and models */

static sn_topo *machine(int hosts, int cards)
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
                                 .flops_f32 = 1e11,
                                 .flops_bf16 = 1e11,
                                 .memory_bytes = UINT64_C(1) << 30,
                                 .memory_bytes_per_s = 1e10};
            int card = sn_topo_add_card(t, host, &like);
            sn_topo_add_link(t, t->host[host].vertex, t->card[card].vertex, 500, 1e10, "shm",
                             false);
        }
        sn_topo_add_link(t, t->host[host].vertex, t->nic[nic].vertex, 500, 1e10, "pcie", false);
        sn_topo_add_link(t, t->nic[nic].vertex, t->sw[sw].vertex, 10000, 1e9, "ethernet", false);
    }
    return t;
}

static sn_status build_gpt(void *ctx, sn_arena *arena, int64_t micro, double tokens, sn_graph **ret)
{
    return sn_graph_gpt(arena, ctx, micro, tokens, ret);
}

/* Batch first, [B, D]: two hidden layers with a skip over both, cross-entropy over classes. */
static sn_status build_mlp(void *ctx, sn_arena *arena, int64_t micro, double tokens, sn_graph **ret)
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
                slot[st->slot_at + f] = st->kind == SN_SLOT_MASTER
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
            if (!st->owner || st->kind != SN_SLOT_MASTER)
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

static void try_split(const sn_plan_opts *base, int64_t below, const result *one, int t, int p,
                      int d, int64_t accumulation, double tolerance)
{
    char what[96];
    sn_plan_opts o = *base;
    o.tensor = t;
    o.pipeline = p;
    o.data = d;
    o.accumulation = accumulation;
    snprintf(what, sizeof what, "tensor %d pipeline %d data %d accumulation %d %s", t, p, d,
             (int) accumulation, sn_dtype_name(o.precision));
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

static void gpt_splits(void **state)
{
    sn_topo *t = machine(2, 4);
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
            try_split(&base, gpt.vocab, &one, 1 + (split & 1), 1 + (split >> 1 & 1),
                      1 + (split >> 2), accumulation, 1e-5);
    try_split(&base, gpt.vocab, &one, 4, 1, 1, 2, 1e-5);
    try_split(&base, gpt.vocab, &one, 4, 2, 1, 4, 1e-5);
    try_split(&base, gpt.vocab, &one, 1, 4, 1, 4, 1e-5);
    try_split(&base, gpt.vocab, &one, 1, 8, 1, 8, 1e-5);
    try_split(&base, gpt.vocab, &one, 1, 3, 2, 2, 1e-5);
    sn_topo_free(t);
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
    try_split(&base, gpt.vocab, &one, 2, 1, 1, 1, 1e-5);
    try_split(&base, gpt.vocab, &one, 2, 3, 1, 3, 1e-5);
    try_split(&base, gpt.vocab, &one, 3, 1, 3, 3, 1e-5);
    try_split(&base, gpt.vocab, &one, 1, 3, 3, 3, 1e-5);
    try_split(&base, gpt.vocab, &one, 6, 1, 1, 1, 1e-5);
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
        try_split(&base, 6, &one, 1 + (split & 1), 1 + (split >> 1 & 1), 1 + (split >> 2), 2, 1e-5);
    try_split(&base, 6, &one, 1, 4, 2, 4, 1e-5);
    try_split(&base, 6, &one, 2, 4, 1, 4, 1e-5);
    try_split(&base, 6, &one, 1, 5, 1, 3 - 1, 1e-5);
    try_split(&base, 6, &one, 4, 1, 2, 1, 1e-5);
    sn_topo_free(t);
}

static void bf16(void **state)
{
    sn_topo *t = machine(2, 4);
    sn_gpt gpt = {.layers = 2, .hidden = 32, .heads = 4, .sequence = 8, .vocab = 20};
    sn_plan_opts base = {.topo = t,
                         .batch = 8,
                         .tokens_per_sample = gpt.sequence,
                         .precision = SN_F32,
                         .build = build_gpt,
                         .ctx = &gpt};
    result one = one_card(&base, gpt.vocab);
    base.precision = SN_BF16;
    try_split(&base, gpt.vocab, &one, 1, 1, 1, 1, 2e-2);
    try_split(&base, gpt.vocab, &one, 2, 2, 2, 2, 2e-2);
    try_split(&base, gpt.vocab, &one, 1, 1, 4, 1, 2e-2);
    sn_topo_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt_splits),
        cmocka_unit_test(odd_sizes),
        cmocka_unit_test(other_model),
        cmocka_unit_test(bf16),
    };
    return sn_test_run(tests);
}
