/* SPDX-License-Identifier: Apache-2.0
 * supernode plan: which split, why, and what each card would do. */
#include "cmd.h"

#include "os/os.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

static json_t *cost_json(const sn_plan_cost *c)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:I, s:f}", "step_s", c->step_ns * 1e-9,
                     "compute_s", c->compute_ns * 1e-9, "collective_s", c->collective_ns * 1e-9,
                     "pipeline_s", c->pipeline_ns * 1e-9, "optimizer_s", c->optimizer_ns * 1e-9,
                     "memory_bytes", (json_int_t) c->memory_bytes, "flops", c->flops);
}

static void print_json(const sn_plan *plan)
{
    json_t *all = json_array();
    for (int i = 0; i < plan->candidates; i++) {
        const sn_candidate *c = &plan->candidate[i];
        json_array_append_new(all, json_pack("{s:i, s:i, s:i, s:b, s:o, s:s}", "tensor", c->tensor,
                                             "pipeline", c->pipeline, "data", c->data, "feasible",
                                             c->feasible, "cost", cost_json(&c->cost), "why",
                                             c->why ? c->why : ""));
    }
    json_t *root = json_pack("{s:i, s:i, s:i, s:i, s:o, s:s, s:o}", "tensor", plan->tensor,
                             "pipeline", plan->pipeline, "data", plan->data, "cards", plan->world,
                             "cost", cost_json(&plan->cost), "reason",
                             plan->reason ? plan->reason : "", "candidates", all);
    json_dumpf(root, stdout, JSON_INDENT(2) | JSON_SORT_KEYS);
    putchar('\n');
    json_decref(root);
}

static sn_status show(const sn_args *args, const sn_plan *plan)
{
    sn_str out = {0};
    int64_t rank = -1;
    if (sn_args_get(args, "program") && !sn_args_int(args, "program", 0, plan->world - 1, &rank))
        return sn_fail(SN_EINVAL, "the plan is for %d cards", plan->world);
    if (rank >= 0) {
        sn_program *program;
        SN_TRY(sn_plan_program(plan, (int) rank, &program));
        sn_program_print(plan, program, &out);
        sn_program_free(program);
    } else if (sn_args_get(args, "dot")) {
        sn_plan_dot(plan, &out);
    } else if (sn_args_get(args, "json")) {
        print_json(plan);
        return SN_OK;
    } else {
        sn_plan_print(plan, &out);
    }
    fputs(sn_str_get(&out), stdout);
    sn_str_done(&out);
    return SN_OK;
}

int sn_cmd_plan(const sn_args *args)
{
    sn_arena *arena = sn_arena_create();
    sn_job_spec spec;
    sn_topo *topo = NULL;
    sn_plan *plan = NULL;
    if (sn_args_get(args, "batch")) { /* a model and a batch, no job: foresight */
        sn_arena_free(arena);
        sn_status foreseen = sn_sim_plan(args);
        return foreseen < 0 ? sn_exit_with("plan", foreseen) : SN_EXIT_OK;
    }
    const char *cluster = sn_args_get(args, "cluster");
    int code = sn_load_job(args, args->words ? args->word[0] : NULL, arena, &spec);
    if (code >= 0) {
        sn_arena_free(arena);
        return code;
    }
    sn_resolve_cards(&spec, sn_cores());
    sn_status status =
        cluster ? sn_cluster_read(cluster, &topo) : sn_job_topology(&spec.job, &topo);
    int cards = cluster ? topo ? topo->cards : 0 : spec.job.hosts * spec.job.cards_per_host;
    if (status >= 0)
        status = sn_job_plan(&spec.job, topo, cards, &plan);
    if (status >= 0)
        status = show(args, plan);
    code = status < 0 ? sn_exit_with("plan", status) : SN_EXIT_OK;
    sn_plan_free(plan);
    sn_topo_free(topo);
    sn_arena_free(arena);
    return code;
}
