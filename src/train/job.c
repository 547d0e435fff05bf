/* SPDX-License-Identifier: Apache-2.0
 *
 * job — a job's numbers turned into a plan. */
#include "train/parts.h"

static sn_status build(void *ctx, sn_arena *arena, int64_t micro_batch, double tokens_per_step,
                       sn_graph **ret)
{
    const sn_job *job = ctx;
    return sn_graph_gpt(arena, &job->gpt, micro_batch, tokens_per_step, ret);
}

static sn_plan_opts plan_opts(const sn_job *job, const sn_topo *topo, int cards)
{
    return (sn_plan_opts){
        .topo = topo,
        .cards = cards,
        .tensor = job->tensor,
        .pipeline = job->pipeline,
        .data = job->data_parallel,
        .batch = job->batch,
        .accumulation = SN_MAX(1, job->accumulation),
        .tokens_per_sample = job->gpt.sequence,
        .precision = job->precision,
        .memory_limit = job->memory_limit,
        .build = build,
        .ctx = (void *) job, /* build only reads it */
    };
}

sn_status sn_job_plan(const sn_job *job, const sn_topo *topo, int cards, sn_plan **ret)
{
    sn_plan_opts opts = plan_opts(job, topo, cards);
    SN_TRY(sn_job_compression(job, topo, 0, 0, &opts.compression, NULL));
    return sn_plan_make(&opts, ret);
}

/* One card, one sample, no backward: for generating. */
sn_status train_plan_one_card(const sn_job *job, const sn_topo *topo, sn_plan **ret)
{
    sn_plan_opts opts = plan_opts(job, topo, 1);
    opts.tensor = opts.pipeline = opts.data = 1;
    opts.batch = opts.accumulation = 1;
    opts.memory_limit = 0;
    opts.forward_only = true;
    return sn_plan_make(&opts, ret);
}
