/* SPDX-License-Identifier: Apache-2.0
 *
 * plan: the mesh, the order, the cuts, what the tensor axis comes out as, programs of many splits
 * under the checker, the search and its sentences. What programs compute: test_plan_numeric. */
#include "plan/plan.h"
#include "unit/plan_models.h"
#include "unit/sn_test.h"

#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

static sn_gpt tiny = {.layers = 2, .hidden = 64, .heads = 4, .sequence = 32, .vocab = 64};
static sn_gpt real = {.layers = 4, .hidden = 144, .heads = 4, .sequence = 128, .vocab = 256};

static sn_plan_opts gpt_opts(const sn_topo *t, sn_gpt *gpt, int tensor, int pipeline, int data)
{
    return (sn_plan_opts){.topo = t,
                          .tensor = tensor,
                          .pipeline = pipeline,
                          .data = data,
                          .batch = 8,
                          .accumulation = 2,
                          .tokens_per_sample = gpt->sequence,
                          .precision = SN_F32,
                          .build = build_gpt,
                          .ctx = gpt};
}

/* ---- every program of a plan, under the checker */

typedef struct world {
    sn_plan *plan;
    sn_program **p;
} world;

static world make(const sn_plan_opts *o)
{
    world w = {0};
    assert_ok(sn_plan_make(o, &w.plan));
    w.p = calloc((size_t) w.plan->world, sizeof *w.p);
    for (int r = 0; r < w.plan->world; r++)
        assert_ok(sn_plan_program(w.plan, r, &w.p[r]));
    return w;
}

static void drop(world *w)
{
    for (int r = 0; r < w->plan->world; r++)
        sn_program_free(w->p[r]);
    free(w->p);
    sn_plan_free(w->plan);
}

static void mesh(void **state)
{
    sn_topo *t = machine(2, 6);
    for (int near = 0; near < 2; near++) {
        sn_plan p = {.tensor = 2, .pipeline = 3, .data = 2, .world = 12, .pipeline_near = near};
        for (int r = 0; r < 12; r++) {
            int tensor, stage, data;
            sn_plan_coords(&p, r, &tensor, &stage, &data);
            assert_true(tensor < 2 && stage < 3 && data < 2);
            assert_int_equal(sn_plan_rank(&p, tensor, stage, data), r);
        }
        assert_int_equal(sn_plan_rank(&p, 1, 0, 0), 1); /* tensor is nearest */
        assert_int_equal(sn_plan_rank(&p, 0, 1, 0), near ? 2 : 4);
    }
    sn_topo_free(t);
}

static void groups_partition_the_world(void **state)
{
    sn_topo *t = machine(2, 4);
    sn_plan_opts o = gpt_opts(t, &tiny, 2, 2, 2);
    sn_plan *p;
    assert_ok(sn_plan_make(&o, &p));
    assert_int_equal(p->groups, 4 + 4 + 1);
    int seen[4][8] = {0};
    for (int g = 0; g < p->groups; g++)
        for (int m = 0; m < p->group[g].members; m++)
            seen[p->group[g].axis][p->group[g].rank[m]]++;
    for (int r = 0; r < 8; r++)
        assert_true(seen[SN_AXIS_TENSOR][r] == 1 && seen[SN_AXIS_DATA][r] == 1 &&
                    seen[SN_AXIS_WORLD][r] == 1);
    sn_plan_free(p);
    sn_topo_free(t);
}

static void programs_of_many_splits(void **state)
{
    sn_topo *t = machine(2, 4);
    int64_t sizes[] = {12, 8, 20, 6};
    for (int split = 0; split < 8; split++)
        for (int accumulation = 1; accumulation <= 4; accumulation *= 2)
            for (int kind = 0; kind < 8; kind++) {
                sn_plan_opts o =
                    gpt_opts(t, &tiny, 1 + (split & 1), 1 + (split >> 1 & 1), 1 + (split >> 2));
                o.accumulation = accumulation;
                o.precision = kind & 1 ? SN_BF16 : SN_F32;
                o.forward_only = kind & 2;
                o.bucket_bytes = 40000;
                if (kind & 4) {
                    o.build = build_mlp;
                    o.ctx = sizes;
                    o.tokens_per_sample = 1;
                }
                world w = make(&o);
                sn_program_check(w.plan, w.p);
                for (int r = 0; r < w.plan->world; r++)
                    assert_true(w.p[r]->memory_bytes <= w.plan->cost.memory_bytes + 4096);
                drop(&w);
            }
    sn_topo_free(t);
}

static void same_question_same_bytes(void **state)
{
    sn_topo *t = machine(2, 4);
    sn_plan_opts o = gpt_opts(t, &real, 0, 0, 0);
    world a = make(&o), b = make(&o);
    for (int r = 0; r < a.plan->world; r++) {
        sn_str x = {0}, y = {0};
        sn_program_print(a.plan, a.p[r], &x);
        sn_program_print(b.plan, b.p[r], &y);
        assert_string_equal(sn_str_get(&x), sn_str_get(&y));
        assert_int_equal(a.p[r]->slots, b.p[r]->slots);
        for (int i = 0; i < a.p[r]->slots; i++)
            assert_true(a.p[r]->slot[i].offset == b.p[r]->slot[i].offset);
        sn_str_done(&x);
        sn_str_done(&y);
    }
    drop(&a);
    drop(&b);
    sn_topo_free(t);
}

/* ---- order */

/* At most p − s micro-batches are between forward and backward on stage s. */
static void one_forward_one_backward(void **state)
{
    sn_topo *t = machine(1, 4);
    sn_plan_opts o = gpt_opts(t, &real, 1, 4, 1);
    o.accumulation = 8;
    world w = make(&o);
    sn_program_check(w.plan, w.p);
    for (int r = 0; r < 4; r++) {
        int open = 0, most = 0, last[2] = {-1, -1};
        for (int i = 0; i < w.p[r]->instrs; i++) {
            const sn_instr *in = &w.p[r]->instr[i];
            if (in->kind != SN_INSTR_KERNEL || in->micro < 0 || in->phase > SN_PHASE_BACKWARD ||
                in->micro == last[in->phase])
                continue;
            assert_int_equal(in->micro, last[in->phase] + 1);
            last[in->phase] = in->micro;
            open += in->phase == SN_PHASE_FORWARD ? 1 : -1;
            most = SN_MAX(most, open);
        }
        assert_int_equal(most, 4 - r);
        assert_true(last[0] == 7 && last[1] == 7);
    }
    drop(&w);
    sn_topo_free(t);
}

/* ---- stage cut */

static double stage_flops(const sn_plan *p, int stage)
{
    double sum = 0;
    for (int n = 0; n < p->graph->nodes; n++)
        if (p->graph->node[n].stage == stage && !p->graph->node[n].backward)
            sum += sn_node_flops(p->graph, &p->graph->node[n]);
    return sum;
}

static void stages_are_balanced(void **state)
{
    sn_topo *t = machine(1, 4);
    for (int pipeline = 2; pipeline <= 4; pipeline++) {
        sn_plan_opts o = gpt_opts(t, &real, 1, pipeline, 1);
        sn_plan *p;
        assert_ok(sn_plan_make(&o, &p));
        double least = INFINITY, most = 0;
        for (int s = 0; s < pipeline; s++) {
            least = fmin(least, stage_flops(p, s));
            most = fmax(most, stage_flops(p, s));
        }
        assert_true(most < 1.6 * least);
        for (int n = 1; n < p->graph->nodes && !p->graph->node[n].backward; n++)
            assert_true(p->graph->node[n].stage - p->graph->node[n - 1].stage <= 1);
        sn_plan_free(p);
    }
    sn_topo_free(t);
}

/* ---- what the tensor axis comes out as */

static sn_shape local_shape(const sn_program *p, sn_slot_kind kind, const char *name)
{
    for (int i = 0; i < p->slots; i++)
        if (p->slot[i].kind == kind && p->slot[i].value >= 0 && strcmp(p->slot[i].name, name) == 0)
            return p->slot[i].shape;
    fail_msg("no slot %s", name);
    return (sn_shape){0};
}

static void expect_param(const world *w, const char *name, sn_shape shape)
{
    char got[96], want[96];
    sn_shape_text(got, local_shape(w->p[0], SN_SLOT_PARAM, name));
    sn_shape_text(want, shape);
    if (strcmp(got, want) != 0)
        fail_msg("%s lies as %s, expected %s", name, got, want);
}

static int count_colls(const sn_program *p, sn_coll_op op, sn_red red, sn_phase phase)
{
    int n = 0;
    for (int i = 0; i < p->instrs; i++)
        n += p->instr[i].kind == SN_INSTR_COLL && p->instr[i].coll == op &&
             p->instr[i].red == red && p->instr[i].phase == phase;
    return n;
}

static void megatron_comes_out(void **state)
{
    sn_topo *t = machine(1, 4);
    sn_plan_opts o = gpt_opts(t, &real, 2, 1, 1);
    o.accumulation = 1;
    world w = make(&o);
    expect_param(&w, "wte", SN_SHAPE(128, 144));
    expect_param(&w, "wpe", SN_SHAPE(64, 1, 144));
    expect_param(&w, "h.1.attn.wqkv", SN_SHAPE(2, 3, 36, 144));
    expect_param(&w, "h.1.attn.bqkv", SN_SHAPE(2, 3, 36));
    expect_param(&w, "h.1.attn.wo", SN_SHAPE(144, 2, 36));
    expect_param(&w, "h.1.attn.bo", SN_SHAPE(144));
    expect_param(&w, "h.1.mlp.w1", SN_SHAPE(288, 144));
    expect_param(&w, "h.1.mlp.b1", SN_SHAPE(288));
    expect_param(&w, "h.1.mlp.w2", SN_SHAPE(144, 288));
    expect_param(&w, "ln.g", SN_SHAPE(144));
    expect_param(&w, "head", SN_SHAPE(128, 144));
    /* 4 layers: gather before and scatter after both halves; embedding and head once more */
    const sn_program *p = w.p[0];
    assert_int_equal(count_colls(p, SN_ALL_GATHER, SN_SUM, SN_PHASE_FORWARD), 9);
    assert_int_equal(count_colls(p, SN_REDUCE_SCATTER, SN_SUM, SN_PHASE_FORWARD), 9);
    assert_int_equal(count_colls(p, SN_ALL_REDUCE, SN_MAX, SN_PHASE_FORWARD), 1);
    assert_int_equal(count_colls(p, SN_ALL_REDUCE, SN_SUM, SN_PHASE_FORWARD), 1);
    assert_int_equal(count_colls(p, SN_ALL_GATHER, SN_SUM, SN_PHASE_BACKWARD), 9);
    assert_int_equal(count_colls(p, SN_REDUCE_SCATTER, SN_SUM, SN_PHASE_BACKWARD), 9);
    assert_int_equal(count_colls(p, SN_ALL_REDUCE, SN_SUM, SN_PHASE_BACKWARD), 0);
    drop(&w);
    sn_topo_free(t);
}

/* A sequence that does not divide is left whole; everything with weights is split all the same. */
static void odd_sequence_is_not_split(void **state)
{
    sn_topo *t = machine(1, 2);
    sn_gpt odd = real;
    odd.sequence = 127;
    sn_plan_opts o = gpt_opts(t, &odd, 2, 1, 1);
    world w = make(&o);
    sn_program_check(w.plan, w.p);
    expect_param(&w, "h.0.attn.wqkv", SN_SHAPE(2, 3, 36, 144));
    expect_param(&w, "h.0.mlp.w2", SN_SHAPE(144, 288));
    drop(&w);
    sn_topo_free(t);
}

/* ---- forward only */

static void forward_only_has_logits(void **state)
{
    sn_topo *t = machine(1, 4);
    sn_plan_opts o = gpt_opts(t, &tiny, 2, 2, 1);
    o.forward_only = true;
    o.accumulation = 1;
    world w = make(&o);
    sn_program_check(w.plan, w.p);
    for (int r = 0; r < 4; r++) {
        int tensor, stage, data;
        sn_plan_coords(w.plan, r, &tensor, &stage, &data);
        assert_int_equal(w.p[r]->result >= 0, stage == 1);
        if (stage == 1)
            assert_true(sn_shape_equal(w.p[r]->slot[w.p[r]->result].shape,
                                       SN_SHAPE(tiny.sequence, 8, tiny.vocab)));
        for (int i = 0; i < w.p[r]->slots; i++)
            assert_true(w.p[r]->slot[i].kind != SN_SLOT_GRAD &&
                        w.p[r]->slot[i].kind != SN_SLOT_MOMENT1);
        assert_int_equal(w.p[r]->hyper, -1);
    }
    drop(&w);
    sn_topo_free(t);
}

/* ---- memory */

/* Placing costs little more than what is alive at the fullest instruction. */
static void places_are_tight(void **state)
{
    sn_topo *t = machine(1, 4);
    for (int split = 0; split < 4; split++) {
        sn_plan_opts o = gpt_opts(t, &real, 1 + (split & 1), 1 + (split >> 1), 1);
        o.accumulation = 4;
        world w = make(&o);
        uint64_t most = 0;
        for (int i = 0; i < w.p[0]->instrs; i++) {
            uint64_t alive = 0;
            for (int k = 0; k < w.p[0]->slots; k++) {
                const sn_slot *s = &w.p[0]->slot[k];
                if (s->base < 0 && s->first <= i && i <= s->last)
                    alive += SN_ALIGN_UP(s->bytes, 64);
            }
            most = SN_MAX(most, alive);
        }
        assert_true(w.p[0]->memory_bytes >= most);
        if ((double) w.p[0]->memory_bytes > 1.1 * (double) most)
            fail_msg("split %d: %llu bytes placed, %llu alive", split,
                     (unsigned long long) w.p[0]->memory_bytes, (unsigned long long) most);
        drop(&w);
    }
    sn_topo_free(t);
}

/* ---- the search */

static void search_prefers_the_fastest(void **state)
{
    sn_topo *t = machine(2, 4);
    sn_plan_opts o = gpt_opts(t, &real, 0, 0, 0);
    sn_plan *p;
    assert_ok(sn_plan_make(&o, &p));
    assert_int_equal(p->world, 8);
    assert_true(p->candidates > 8);
    assert_true(p->candidate[0].feasible && strlen(p->reason) > 20);
    assert_true(p->candidate[0].tensor == p->tensor && p->candidate[0].data == p->data);
    for (int i = 1; i < p->candidates; i++) {
        const sn_candidate *a = &p->candidate[i - 1], *b = &p->candidate[i];
        assert_true(a->feasible >= b->feasible);
        assert_true(!b->feasible || a->cost.step_ns <= b->cost.step_ns);
        assert_true(b->why && b->why[0]);
    }
    sn_str s = {0};
    sn_plan_print(p, &s);
    assert_non_null(strstr(sn_str_get(&s), "slower"));
    sn_str_done(&s);
    sn_plan_free(p);
    sn_topo_free(t);
}

static void search_keeps_what_was_given(void **state)
{
    sn_topo *t = machine(2, 4);
    sn_plan_opts o = gpt_opts(t, &real, 2, 0, 0);
    sn_plan *p;
    assert_ok(sn_plan_make(&o, &p));
    assert_int_equal(p->tensor, 2);
    assert_int_equal(p->world, 8);
    sn_plan_free(p);
    o.tensor = 3; /* no multiple of 3 cards works for 4 heads, 1 card neither */
    assert_int_equal(sn_plan_make(&o, &p), SN_EFIT);
    o = gpt_opts(t, &real, 0, 2, 0);
    o.cards = 7; /* no multiple of 2; 6 would need a third of the samples or heads */
    assert_ok(sn_plan_make(&o, &p));
    assert_int_equal(p->world, 4);
    sn_plan_free(p);
    sn_topo_free(t);
}

static void search_obeys_memory(void **state)
{
    sn_topo *t = machine(1, 4);
    sn_plan_opts o = gpt_opts(t, &real, 1, 1, 1);
    sn_plan *p;
    assert_ok(sn_plan_make(&o, &p));
    uint64_t alone = p->cost.memory_bytes;
    sn_plan_free(p);
    o.memory_limit = alone / 2;
    assert_int_equal(sn_plan_make(&o, &p), SN_EFIT);
    assert_non_null(strstr(sn_errmsg(), "would need"));
    o.tensor = o.pipeline = o.data = 0;
    assert_ok(sn_plan_make(&o, &p));
    assert_true(p->cost.memory_bytes <= alone / 2 && p->world > 1);
    sn_plan_free(p);
    o.memory_limit = 1000;
    assert_int_equal(sn_plan_make(&o, &p), SN_EFIT);
    assert_non_null(strstr(sn_errmsg(), "no split over 4 cards fits"));
    sn_topo_free(t);
}

static void refuse(sn_plan_opts o, sn_status status, const char *sentence)
{
    sn_plan *p;
    sn_status got = sn_plan_make(&o, &p);
    if (got != status || !strstr(sn_errmsg(), sentence))
        fail_msg("%s: %s; expected: %s", sn_status_name(got), sn_errmsg(), sentence);
}

static void sentences(void **state)
{
    sn_topo *t = machine(2, 4);
    sn_gpt three = {.layers = 2, .hidden = 24, .heads = 3, .sequence = 8, .vocab = 16};
    refuse(gpt_opts(t, &three, 2, 1, 1), SN_EFIT,
           "heads 3 cannot be split over tensor 2: tensor may be 1 or 3 (h.0.attn)");
    refuse(gpt_opts(t, &tiny, 4, 4, 1), SN_EFIT,
           "tensor 4 × pipeline 4 × data 1 needs 16 cards, 8 are there");
    sn_plan_opts o = gpt_opts(t, &tiny, 1, 1, 2);
    o.accumulation = 3;
    refuse(o, SN_EFIT,
           "batch_size 8 is not divisible by gradient_accumulation 3 × data 2: batch_size may be 6 "
           "or 12");
    o = gpt_opts(t, &tiny, 0, 0, 0);
    o.cards = 16;
    refuse(o, SN_EFIT, "16 cards asked, 8 exist");
    o = gpt_opts(t, &tiny, -1, 1, 1);
    refuse(o, SN_EINVAL, "must be positive or auto");
    o = gpt_opts(t, &tiny, 1, 1, 1);
    o.precision = SN_F64;
    refuse(o, SN_ENOTSUP, "precision F64");
    sn_topo_free(t);
    t = machine(1, 40);
    refuse(gpt_opts(t, &three, 1, 40, 1), SN_EFIT, "cannot be cut into pipeline 40");
    sn_topo_free(t);
}

/* One weight in two far places: they may not end up in different stages. */
static sn_status build_tied(void *ctx, sn_arena *arena, int64_t micro, double tokens,
                            sn_graph **ret)
{
    sn_graph *g;
    SN_TRY(sn_graph_gpt(arena, ctx, micro, tokens, &g));
    int table = sn_graph_find(g, "wte"), head = sn_graph_find(g, "head");
    for (int n = 0; n < g->nodes; n++)
        for (int i = 0; i < g->node[n].ins; i++)
            if (g->node[n].in[i] == head)
                g->node[n].in[i] = table;
    *ret = g;
    return SN_OK;
}

static void tied_weights_stay_together(void **state)
{
    sn_topo *t = machine(1, 8);
    sn_plan_opts o = gpt_opts(t, &tiny, 1, 5, 1); /* only behind the head it could be cut, thrice */
    o.build = build_tied;
    refuse(o, SN_EFIT, "wte is used in more than one place");
    o.tensor = 2;
    o.pipeline = 1;
    o.data = 2;
    world w = make(&o);
    sn_program_check(w.plan, w.p);
    drop(&w);
    sn_topo_free(t);
}

/* ---- the checker itself: a spoilt program must not pass */

static bool passes(const world *w)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        fclose(stderr);
        sn_program_check(w->plan, w->p);
        _exit(0);
    }
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static int find(const sn_program *p, sn_instr_kind kind)
{
    for (int i = p->instrs / 3; i < p->instrs; i++)
        if (p->instr[i].kind == kind)
            return i;
    fail();
    return -1;
}

static void checker_catches(void **state)
{
    sn_topo *t = machine(2, 4);
    sn_plan_opts o = gpt_opts(t, &tiny, 2, 2, 2);
    world w = make(&o);
    sn_program *p = w.p[0];
    assert_true(passes(&w));
    p->instr[find(p, SN_INSTR_SEND)].tag++;
    assert_false(passes(&w));
    p->instr[find(p, SN_INSTR_SEND)].tag--;
    p->instr[find(p, SN_INSTR_COLL)].red = SN_MIN;
    assert_false(passes(&w));
    p->instr[find(p, SN_INSTR_COLL)].red = SN_SUM;
    int at = find(p, SN_INSTR_WAIT);
    sn_instr wait = p->instr[at];
    p->instr[at].ticket = p->tickets - 1;
    assert_false(passes(&w));
    p->instr[at] = p->instr[at - 1];
    assert_false(passes(&w));
    p->instr[at] = wait;
    p->state[0].owner = false;
    assert_false(passes(&w));
    p->state[0].owner = true;
    int slot = p->instr[find(p, SN_INSTR_RECV)].out[0];
    uint64_t offset = p->slot[slot].offset;
    p->slot[slot].offset = 0;
    assert_false(passes(&w));
    p->slot[slot].offset = offset;
    assert_true(passes(&w));
    drop(&w);
    sn_topo_free(t);
}

static sn_status build_named(void *ctx, sn_arena *arena, int64_t micro, double tokens,
                             sn_graph **ret)
{
    return sn_model_build(arena, ctx, micro, tokens, ret);
}

/* A model of the table whose batch norms keep running statistics. */
static void states_of_a_named_model(void **state)
{
    sn_topo *t = machine(1, 8);
    sn_model model;
    assert_ok(sn_model_find("cnn-tiny", &model));
    for (int split = 0; split < 4; split++)
        for (int forward = 0; forward < 2; forward++) {
            sn_plan_opts o = gpt_opts(t, &tiny, 1, 1 + (split & 1), 1 + (split >> 1));
            o.tokens_per_sample = 1;
            o.build = build_named;
            o.ctx = &model;
            o.forward_only = forward;
            o.precision = split & 1 ? SN_BF16 : SN_F32;
            world w = make(&o);
            int states = 0;
            sn_program_check(w.plan, w.p);
            for (int i = 0; i < w.p[0]->states; i++)
                states += w.p[0]->state[i].kind == SN_SLOT_STATE;
            assert_true(states > 0);
            drop(&w);
        }
    sn_topo_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mesh),
        cmocka_unit_test(groups_partition_the_world),
        cmocka_unit_test(programs_of_many_splits),
        cmocka_unit_test(same_question_same_bytes),
        cmocka_unit_test(one_forward_one_backward),
        cmocka_unit_test(stages_are_balanced),
        cmocka_unit_test(megatron_comes_out),
        cmocka_unit_test(odd_sequence_is_not_split),
        cmocka_unit_test(forward_only_has_logits),
        cmocka_unit_test(places_are_tight),
        cmocka_unit_test(search_prefers_the_fastest),
        cmocka_unit_test(search_keeps_what_was_given),
        cmocka_unit_test(search_obeys_memory),
        cmocka_unit_test(sentences),
        cmocka_unit_test(tied_weights_stay_together),
        cmocka_unit_test(states_of_a_named_model),
        cmocka_unit_test(checker_catches),
    };
    return sn_test_run(tests);
}
