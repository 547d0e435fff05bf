/* SPDX-License-Identifier: Apache-2.0
 *
 * BERT-base and ResNet-50 with AdamW: samples a second on one card beside PyTorch with one thread.
 *
 * One rank holds a trainer, whose step is the whole program: forward, backward, AdamW, on a batch
 * that stays the same, as the peer's does. */
#include "bench.h"
#include "bench_torch.h"
#include "bench_world.h"

#include "kern/kern.h"
#include "os/os.h"
#include "train/train.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 4, SEQUENCE = 128, PEAK = -1 };

typedef struct network {
    const char *name; /* a preset, and what the peer's script calls it */
    const char *what;
} network;

static const network networks[] = {
    {"bert-base", "T128, words at all places decoded by the tied table"},
    {"resnet50", "224 x 224, batch norm trained and tracked"},
};

static sn_status find(const network *n, sn_model *ret)
{
    SN_TRY(sn_model_find(n->name, ret));
    if (ret->kind == SN_MODEL_BERT) {
        ret->bert.sequence = SEQUENCE;
        ret->bert.no_mask = true;
    }
    return SN_OK;
}

static sn_status build(void *ctx, sn_arena *arena, int64_t samples, double samples_per_step,
                       sn_graph **ret)
{
    const sn_model *m = ctx;
    return sn_model_build(arena, m, samples, samples_per_step * (double) sn_model_units(m), ret);
}

/* ---- in the rank ---- */

typedef struct card_state {
    sn_model model;
    sn_trainer *trainer;
} card_state;

static sn_status fill(sn_trainer *t, const char *name, bool numbers, int64_t count, int64_t below)
{
    size_t bytes = (size_t) count * 4;
    float *f = sn_alloc(bytes);
    int32_t *id = (int32_t *) f;
    uint64_t stream = sn_hash_bytes(name, strlen(name));
    for (int64_t i = 0; i < count; i++)
        if (numbers)
            f[i] = (float) sn_hash_normal(1, stream, (uint64_t) i);
        else
            id[i] = (int32_t) (sn_hash64(1, stream, (uint64_t) i) % (uint64_t) below);
    sn_status status = sn_trainer_input(t, name, f, bytes);
    free(f);
    return status;
}

static sn_status fill_inputs(const card_state *c)
{
    const sn_model *m = &c->model;
    if (m->kind == SN_MODEL_RESNET) {
        SN_TRY(fill(c->trainer, "images", true, (int64_t) BATCH * 224 * 224 * 3, 1));
        return fill(c->trainer, "labels", false, BATCH, 1000);
    }
    int64_t tokens = (int64_t) BATCH * SEQUENCE;
    SN_TRY(fill(c->trainer, "ids", false, tokens, m->bert.vocab));
    SN_TRY(fill(c->trainer, "segments", false, tokens, 1));
    return fill(c->trainer, "targets", false, tokens, m->bert.vocab);
}

static sn_status model_open(sn_boot *boot, const bench_job *job, void **ret)
{
    card_state *c = sn_alloc(sizeof *c);
    (void) boot;
    *ret = c;
    SN_TRY(find(job->ctx, &c->model));
    sn_trainer_opts opts = {
        .build = build, .ctx = &c->model, .batch = BATCH, .adamw = {.weight_decay = 0.01}};
    SN_TRY(sn_trainer_open(&opts, &c->trainer));
    return fill_inputs(c);
}

static sn_status model_step(void *state, int64_t arg, double ret[BENCH_VALUES])
{
    const card_state *c = state;
    if (arg == PEAK) {
        ret[0] = sn_kern_fma_peak(30 * SN_MS);
        return SN_OK;
    }
    SN_TRY(sn_trainer_step(c->trainer, 1e-4, &ret[0], NULL));
    return isfinite(ret[0]) ? SN_OK : sn_fail(SN_EFAIL, "the loss is %g", ret[0]);
}

static void model_close(void *state)
{
    card_state *c = state;
    sn_trainer_close(c->trainer);
    free(c);
}

/* ---- in the harness ---- */

/* What a step computes, by the plan that the rank's trainer makes as well. */
static sn_status count_flops(const network *n, double *ret)
{
    sn_model model;
    sn_topo *topo;
    sn_plan *plan;
    sn_job job = {.hosts = 1, .cards_per_host = 1, .card_kind = "cpu"};
    SN_TRY(find(n, &model));
    SN_TRY(sn_job_topology(&job, &topo));
    sn_plan_opts opts = {.topo = topo,
                         .cards = 1,
                         .tensor = 1,
                         .pipeline = 1,
                         .data = 1,
                         .batch = BATCH,
                         .accumulation = 1,
                         .tokens_per_sample = 1,
                         .precision = SN_F32,
                         .build = build,
                         .ctx = &model};
    sn_status status = sn_plan_make(&opts, &plan);
    if (status >= 0) {
        *ret = plan->cost.flops;
        sn_plan_free(plan);
    }
    sn_topo_free(topo);
    return status;
}

static sn_status our_step(bench_world *w, double *ret_seconds)
{
    sn_time start = sn_now();
    SN_TRY(bench_world_ask(w, 1));
    *ret_seconds = (double) (sn_now() - start) * 1e-9;
    return SN_OK;
}

static sn_status pairs_of(const bench_opts *o, bench_world *w, bench_torch *t, double flops,
                          bench_result *ret)
{
    double peak[BENCH_SAMPLES_MAX], seconds;
    for (int i = 0; i < 2; i++)
        SN_TRY(our_step(w, &seconds));
    for (int i = 0; i < o->pairs; i++) {
        SN_TRY(our_step(w, &seconds));
        ret->sample[ret->samples++] = BATCH / seconds;
        if (t->ranks) {
            SN_TRY(bench_torch_step(t, &seconds));
            ret->peer_sample[ret->peer_samples++] = BATCH / seconds;
        }
        SN_TRY(bench_world_ask(w, PEAK));
        peak[i] = bench_world_value(w, 0, 0);
    }
    ret->bound = bench_median(peak, o->pairs) / (flops / BATCH);
    return SN_OK;
}

static sn_status run(const bench_case *c, const bench_opts *o, bench_result *ret)
{
    const network *n = &networks[c->arg];
    bench_job job = {.world = 1,
                     .ctx = (void *) (uintptr_t) n,
                     .open = model_open,
                     .step = model_step,
                     .close = model_close};
    char batch[16];
    const char *words[] = {n->name, batch, NULL};
    bench_world *world;
    bench_torch torch;
    double flops;
    snprintf(batch, sizeof batch, "%d", BATCH);
    SN_TRY(count_flops(n, &flops));
    SN_TRY(bench_world_start(&job, &world));
    bool has = bench_torch_start(o, "peer_model.py", words, 1, &torch) >= 0;
    snprintf(ret->note, sizeof ret->note, "%s, batch %d, %s, AdamW f32; %.3g GFLOP a sample%s%.80s",
             n->name, BATCH, n->what, flops / BATCH * 1e-9,
             has ? "" : "; no peer: ", has ? "" : sn_errmsg());
    sn_status status = pairs_of(o, world, &torch, flops, ret);
    bench_torch_stop(&torch);
    bench_world_stop(world);
    return status;
}

#define CASE(NAME, INDEX)                                                                          \
    {                                                                                              \
        .area = "train", .name = NAME, .unit = "samples/s", .peer = "PyTorch, 1 thread",           \
        .bound_name = "FMA peak", .bar = BENCH_RATIO_MIN, .bar_value = 1.5, .arg = INDEX,          \
        .run = run                                                                                 \
    }

const bench_case bench_model[] = {
    CASE("train_bert_base_1_card", 0), CASE("train_resnet50_1_card", 1), {.area = "train"}};
