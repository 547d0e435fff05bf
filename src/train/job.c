/* SPDX-License-Identifier: Apache-2.0
 *
 * job — a job's numbers turned into a plan. */
#include "os/os.h"
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
    sn_status status = sn_plan_make(&opts, ret);
    if (status == SN_EFIT && train_compression_spread(job, &opts.compression))
        status = sn_plan_make(&opts, ret);
    return status;
}

sn_topo *train_one_card(const char *kind)
{
    sn_topo *topo = sn_topo_create("one card");
    int host = sn_topo_add_host(topo, "here", 1, sn_memory_available());
    sn_topo_card card = {.name = "here/c0",
                         .kind = kind,
                         .core = 0,
                         .numa_node = -1,
                         .share = 1,
                         .flops_f32 = 1e11,
                         .flops_bf16 = 1e11,
                         .memory_bytes = sn_memory_available(),
                         .memory_bytes_per_s = 1e10};
    int c = sn_topo_add_card(topo, host, &card);
    sn_topo_add_link(topo, topo->host[host].vertex, topo->card[c].vertex, 100, 1e10, "shm", false);
    return topo;
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
