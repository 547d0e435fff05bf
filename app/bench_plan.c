/* SPDX-License-Identifier: Apache-2.0
 * How long planning takes: the main job on this machine, and a large model on a large cluster. */
#include "bench.h"

#include "os/os.h"
#include "train/train.h"

#include <string.h>

enum { ENGLISH, GPT3, ENGLISH_RATE };

/* 128 hosts of eight H100, a rail-optimised fat tree of two tiers. */
static const char cluster[] =
    "name: h100-128x8\n"
    "kinds:\n"
    "  h100: {flops_f32: 67TFLOP/s, flops_bf16: 989TFLOP/s, memory: 80GB, "
    "memory_bandwidth: 3.35TB/s}\n"
    "hosts:\n"
    "  - name: h\n"
    "    count: 128\n"
    "    cores: 112\n"
    "    numa_nodes: 2\n"
    "    memory: 2TiB\n"
    "    cards: {kind: h100, count: 8, link: {kind: pcie, latency: 1us, bandwidth: 64GB/s}}\n"
    "    nics: {name: ib, count: 8, bandwidth: 400Gbit/s, link: {kind: pcie, latency: 1us, "
    "bandwidth: 64GB/s}}\n"
    "    switches: {name: nvswitch}\n"
    "    links:\n"
    "      - {from: \"c*\", to: nvswitch, kind: nvlink, latency: 500ns, bandwidth: 450GB/s}\n"
    "      - {from: \"c*\", to: \"ib*\", pattern: one, kind: pcie, latency: 300ns, bandwidth: "
    "64GB/s}\n"
    "switches:\n"
    "  - {name: rail, count: 8}\n"
    "  - {name: spine, count: 4}\n"
    "links:\n"
    "  - {from: \"h*/ib*\", to: \"rail*\", pattern: cycle, kind: infiniband, latency: 700ns, "
    "bandwidth: 400Gbit/s}\n"
    "  - {from: \"rail*\", to: \"spine*\", pattern: all, kind: infiniband, latency: 1.5us, "
    "bandwidth: 12.8Tbit/s}\n";

static sn_status describe(int which, sn_job *job, sn_topo **ret)
{
    bool large = which == GPT3;
    *job = large ? (sn_job){.model = "gpt3-175b",
                            .gpt = {96, 12288, 96, 2048, 51200, 0},
                            .accumulation = 64,
                            .batch = 1536,
                            .precision = SN_BF16}
                 : (sn_job){.model = "gpt-english",
                            .gpt = {4, 144, 4, 128, 256, 0},
                            .accumulation = 4,
                            .batch = 32,
                            .precision = SN_F32,
                            .hosts = 2,
                            .cards_per_host = 4};
    if (large)
        return sn_topo_parse(cluster, sizeof cluster - 1, "h100-128x8", ret);
    return sn_job_topology(job, ret);
}

static sn_status run_plan(const bench_case *c, const bench_opts *o, bench_result *ret)
{
    enum { ENOUGH_S = 30 };
    sn_job job;
    sn_topo *topo;
    SN_TRY(describe(c->arg, &job, &topo));
    sn_time end = sn_now() + ENOUGH_S * SN_SEC;
    sn_status status = SN_OK;
    for (int i = 0; i < o->pairs && status >= 0 && (i == 0 || sn_now() < end); i++) {
        sn_plan *plan;
        sn_time t = sn_now();
        status = sn_job_plan(&job, topo, topo->cards, &plan);
        if (status < 0)
            break;
        double seconds = (double) (sn_now() - t) * 1e-9;
        ret->sample[ret->samples++] = c->arg == ENGLISH_RATE ? plan->candidates / seconds : seconds;
        snprintf(ret->note, sizeof ret->note,
                 "%s on %s, %d cards, all degrees auto: tensor %d x pipeline %d x data %d of %d "
                 "candidates, %.1f of them a second",
                 job.model, topo->name ? topo->name : "this machine", topo->cards, plan->tensor,
                 plan->pipeline, plan->data, plan->candidates, plan->candidates / seconds);
        sn_plan_free(plan);
    }
    sn_topo_free(topo);
    return status;
}

#define CASE(i, label, what, less)                                                                 \
    {                                                                                              \
        .area = "plan", .name = label, .unit = what, .less_is_better = less, .arg = i,             \
        .run = run_plan                                                                            \
    }

const bench_case bench_plan[] = {CASE(ENGLISH, "plan_gpt_english", "s", true),
                                 CASE(GPT3, "plan_gpt3_175b_1024", "s", true),
                                 CASE(ENGLISH_RATE, "plan_gpt_english_candidates", "1/s", false),
                                 {.area = "plan"}};
