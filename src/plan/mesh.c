/* SPDX-License-Identifier: Apache-2.0
 *
 * The mesh: world = data × pipeline × tensor; the tensor axis varies fastest, `pipeline_near` says
 * which comes next. */
#include "plan/private.h"

int plan_mesh_rank(const sn_plan *plan, int tensor, int stage, int data)
{
    if (plan->pipeline_near)
        return tensor + plan->tensor * (stage + plan->pipeline * data);
    return tensor + plan->tensor * (data + plan->data * stage);
}

int sn_plan_rank(const sn_plan *plan, int tensor, int stage, int data)
{
    return plan_mesh_rank(plan, tensor, stage, data);
}

void sn_plan_coords(const sn_plan *plan, int rank, int *ret_tensor, int *ret_stage, int *ret_data)
{
    int rest = rank / plan->tensor;
    *ret_tensor = rank % plan->tensor;
    *ret_stage = plan->pipeline_near ? rest % plan->pipeline : rest / plan->data;
    *ret_data = plan->pipeline_near ? rest / plan->pipeline : rest % plan->data;
}

/* Groups in the order: tensor[d, s], data[s, t], world; those of one member are left out. */
int plan_mesh_group(const sn_plan *plan, sn_group_axis axis, int rank)
{
    int t, s, d;
    sn_plan_coords(plan, rank, &t, &s, &d);
    int tensors = plan->tensor > 1 ? plan->data * plan->pipeline : 0;
    int datas = plan->data > 1 ? plan->pipeline * plan->tensor : 0;
    if (axis == SN_AXIS_TENSOR && tensors > 0)
        return d * plan->pipeline + s;
    if (axis == SN_AXIS_DATA && datas > 0)
        return tensors + s * plan->tensor + t;
    if (axis == SN_AXIS_WORLD && plan->world > 1)
        return tensors + datas;
    return -1;
}

static sn_plan_group *add(sn_plan *plan, sn_group_axis axis, const char *name, int members)
{
    sn_plan_group *g = &plan->group[plan->groups++];
    *g = (sn_plan_group){name, axis, members, SN_NEW_N(plan->arena, int, members),
                         SN_NEW_N(plan->arena, int, members)};
    return g;
}

void plan_mesh_groups(sn_plan *plan)
{
    int most = plan->data * plan->pipeline + plan->pipeline * plan->tensor + 1;
    plan->groups = 0;
    plan->group = SN_NEW_N(plan->arena, sn_plan_group, most);
    for (int d = 0; plan->tensor > 1 && d < plan->data; d++)
        for (int s = 0; s < plan->pipeline; s++) {
            sn_plan_group *g =
                add(plan, SN_AXIS_TENSOR, sn_arena_printf(plan->arena, "tensor[d%d,s%d]", d, s),
                    plan->tensor);
            for (int t = 0; t < plan->tensor; t++)
                g->rank[t] = plan_mesh_rank(plan, t, s, d);
        }
    for (int s = 0; plan->data > 1 && s < plan->pipeline; s++)
        for (int t = 0; t < plan->tensor; t++) {
            sn_plan_group *g = add(plan, SN_AXIS_DATA,
                                   sn_arena_printf(plan->arena, "data[s%d,t%d]", s, t), plan->data);
            for (int d = 0; d < plan->data; d++)
                g->rank[d] = plan_mesh_rank(plan, t, s, d);
        }
    if (plan->world > 1) {
        sn_plan_group *g = add(plan, SN_AXIS_WORLD, "world", plan->world);
        for (int r = 0; r < plan->world; r++)
            g->rank[r] = r;
    }
    for (int g = 0; g < plan->groups; g++)
        for (int i = 0; i < plan->group[g].members; i++)
            plan->group[g].host[i] = plan->topo->card[plan->group[g].rank[i]].host;
}
