/* SPDX-License-Identifier: Apache-2.0
 * The benchmark's GPT on cards that step on request. */
#include "bench_gpt.h"

#include "cmd.h"

#include "os/os.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct card_state {
    sn_net *net;
    sn_coll *coll;
    sn_plan *plan;
    sn_program *program;
    sn_card *card;
    sn_exec *exec;
    int64_t steps;
} card_state;

/* ---- in a rank ---- */

static void fill_inputs(const card_state *c)
{
    const sn_program *p = c->program;
    for (int i = 0; i < p->slots; i++) {
        if (p->slot[i].kind != SN_SLOT_INPUT)
            continue;
        int32_t *id = sn_exec_slot(c->exec, i);
        for (int64_t k = 0; k < sn_shape_count(p->slot[i].shape); k++)
            id[k] = (int32_t) (sn_hash64(1, (uint64_t) i, (uint64_t) k) % 256);
    }
}

/* Masters as a job draws them, moments zero. */
static void fill_state(const card_state *c)
{
    for (int i = 0; i < c->program->states; i++) {
        const sn_state *s = &c->program->state[i];
        const sn_value *v = &c->plan->graph->value[s->value];
        float *to = (float *) sn_exec_slot(c->exec, s->slot) + s->slot_at;
        bool master = s->kind == SN_SLOT_MASTER;
        uint64_t stream = sn_hash_bytes(v->name, strlen(v->name));
        for (int64_t k = 0; k < s->flat_count; k++) {
            double normal = master && v->init == SN_INIT_NORMAL
                                ? sn_hash_normal(1, stream, (uint64_t) (s->flat_begin + k))
                                : 0;
            to[k] = master && v->init == SN_INIT_ONE ? 1 : (float) (normal * v->init_std);
        }
    }
}

static sn_status run_program(card_state *c, bool gather)
{
    int64_t time_ns[SN_TIME_KINDS] = {0};
    sn_time deadline = sn_now() + 60 * SN_SEC;
    return gather ? sn_exec_gather(c->exec, deadline, time_ns)
                  : sn_exec_run(c->exec, deadline, time_ns);
}

static sn_status one_step(card_state *c, double *ret_loss)
{
    float *h = sn_exec_slot(c->exec, c->program->hyper);
    double t = (double) ++c->steps;
    const float hyper[8] = {3e-4f,
                            0.9f,
                            0.999f,
                            1e-8f,
                            0.01f,
                            (float) (1 / (1 - pow(0.9, t))),
                            (float) (1 / (1 - pow(0.999, t))),
                            0};
    memcpy(h, hyper, sizeof hyper);
    SN_TRY(run_program(c, false));
    const float *scalars = sn_exec_slot(c->exec, c->program->scalars);
    *ret_loss = (double) scalars[0];
    return isfinite(*ret_loss) ? SN_OK : sn_fail(SN_EFAIL, "the loss is %g", *ret_loss);
}

static sn_status gpt_step(void *state, int64_t arg, double ret[BENCH_VALUES])
{
    if (arg == BENCH_GPT_PEAK)
        ret[0] = sn_kern_fma_peak(30 * SN_MS);
    return arg == BENCH_GPT_PEAK ? SN_OK : one_step(state, &ret[0]);
}

static void gpt_close(void *state)
{
    card_state *c = state;
    sn_exec_free(c->exec);
    sn_card_close(c->card);
    sn_coll_close(c->coll);
    sn_program_free(c->program);
    sn_plan_free(c->plan);
    sn_net_close(c->net);
    free(c);
}

static sn_status gpt_open(sn_boot *boot, const bench_job *job, void **ret)
{
    const bench_gpt *g = job->ctx;
    card_state *c = sn_alloc(sizeof *c);
    sn_time deadline = sn_now() + 60 * SN_SEC;
    *ret = c;
    SN_TRY(sn_job_plan(&g->job, g->topo, job->world, &c->plan));
    SN_TRY(sn_plan_program(c->plan, sn_boot_rank(boot), &c->program));
    if (job->world > 1) {
        sn_coll_opts opts = {
            .arena_bytes = c->program->memory_bytes + 65536, .topo = g->topo, .deadline = deadline};
        SN_TRY(bench_net_open(boot, job, &c->net));
        SN_TRY(sn_coll_open(c->net, &opts, &c->coll));
    }
    SN_TRY(sn_card_open("cpu", &(sn_card_opts){.threads = 1}, &c->card));
    SN_TRY(sn_exec_create(c->plan, c->program, c->card, c->coll, deadline, &c->exec));
    fill_inputs(c);
    fill_state(c);
    return run_program(c, true);
}

/* ---- in the harness ---- */

static sn_status describe(bench_gpt *g, int cards)
{
    sn_plan *plan;
    g->job = (sn_job){.model = "gpt-bench",
                      .gpt = {4, 256, 4, 256, 256, 0},
                      .tensor = 1,
                      .pipeline = 1,
                      .data_parallel = cards,
                      .accumulation = 1,
                      .batch = (int64_t) BENCH_GPT_BATCH * cards,
                      .precision = SN_F32,
                      .hosts = 1,
                      .cards_per_host = cards,
                      .card_kind = "cpu"};
    SN_TRY(sn_job_topology(&g->job, &g->topo));
    SN_TRY(sn_job_plan(&g->job, g->topo, cards, &plan));
    g->flops = plan->cost.flops;
    g->tokens = (double) (g->job.batch * g->job.gpt.sequence);
    sn_plan_free(plan);
    return SN_OK;
}

sn_status bench_gpt_start(int cards, bench_gpt *ret)
{
    *ret = (bench_gpt){0};
    bench_job job = {
        .world = cards, .ctx = ret, .open = gpt_open, .step = gpt_step, .close = gpt_close};
    sn_status status = describe(ret, cards);
    if (status >= 0)
        status = bench_world_start(&job, &ret->world);
    double warm;
    for (int i = 0; i < 3 && status >= 0; i++)
        status = bench_gpt_step(ret, &warm);
    if (status < 0)
        bench_gpt_stop(ret);
    return status;
}

sn_status bench_gpt_step(bench_gpt *g, double *ret_seconds)
{
    sn_time t = sn_now();
    SN_TRY(bench_world_ask(g->world, 1));
    *ret_seconds = (double) (sn_now() - t) * 1e-9;
    return SN_OK;
}

sn_status bench_gpt_peak(bench_gpt *g, double *ret_flops_per_s)
{
    double sum = 0;
    SN_TRY(bench_world_ask(g->world, BENCH_GPT_PEAK));
    for (int r = 0; r < g->job.data_parallel; r++)
        sum += bench_world_value(g->world, r, 0);
    *ret_flops_per_s = sum;
    return SN_OK;
}

void bench_gpt_stop(bench_gpt *g)
{
    bench_world_stop(g->world);
    sn_topo_free(g->topo);
    *g = (bench_gpt){0};
}
