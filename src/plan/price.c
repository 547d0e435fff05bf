/* SPDX-License-Identifier: Apache-2.0
 *
 * What things cost on the cards of a mesh: thin questions to topo's and algo's cost models. Of the
 * groups of an axis the one that spans the most hosts is taken: the step waits for it. */
#include "plan/private.h"

#define LAUNCH_NS 500.0 /* what an instruction costs beyond its work */

/* Take the group {first + k · stride} when it spans more hosts than what was seen. */
static void widest(struct plan_price_group *g, const sn_topo *topo, const int *rank, int members,
                   int *spans, sn_arena *arena)
{
    int hosts = 0, *host = SN_NEW_N(arena, int, members);
    for (int i = 0; i < members; i++) {
        bool seen = false;
        host[i] = topo->card[rank[i]].host;
        for (int j = 0; j < i && !seen; j++)
            seen = host[j] == host[i];
        hosts += !seen;
    }
    if (hosts <= *spans)
        return;
    *spans = hosts;
    g->members = members;
    g->group = (sn_algo_group){members, host};
    g->model = sn_algo_model_from(topo, rank, members);
}

static sn_status hops(plan_price *price, const sn_plan *mesh)
{
    for (int d = 0; d < mesh->data; d++)
        for (int s = 0; s + 1 < mesh->pipeline; s++) {
            sn_path path;
            SN_TRY(sn_topo_path(price->topo, plan_mesh_rank(mesh, 0, s, d),
                                plan_mesh_rank(mesh, 0, s + 1, d), &path));
            double now = sn_topo_transfer_ns(&path, 1e5, 1);
            if (!price->hop.links || now > sn_topo_transfer_ns(&price->hop, 1e5, 1))
                price->hop = path;
        }
    return SN_OK;
}

static int slowest(const sn_topo *topo, int world, sn_dtype dtype)
{
    int card = 0;
    double worst = 0;
    for (int c = 0; c < world; c++) {
        double ns = sn_topo_compute_ns(topo, c, 1e9, 1e8, dtype, 1);
        if (ns > worst) {
            worst = ns;
            card = c;
        }
    }
    return card;
}

sn_status plan_price_init(plan_price *price, const sn_plan *mesh, sn_arena *arena)
{
    const sn_topo *topo = mesh->topo;
    int spans[3] = {0};
    *price = (plan_price){.topo = topo, .world = mesh->world, .dtype = mesh->opts.precision};
    price->card = slowest(topo, mesh->world, price->dtype);
    for (int g = 0; g < mesh->groups; g++) {
        const sn_plan_group *group = &mesh->group[g];
        int axis = group->axis == SN_AXIS_TENSOR ? PLAN_TENSOR
                   : group->axis == SN_AXIS_DATA ? PLAN_DATA
                                                 : 2;
        widest(&price->group[axis], topo, group->rank, group->members, &spans[axis], arena);
    }
    return hops(price, mesh);
}

double plan_price_kernel(const plan_price *price, double flops, double bytes)
{
    return LAUNCH_NS + sn_topo_compute_ns(price->topo, price->card, flops, bytes, price->dtype, 1);
}

double plan_price_coll(const plan_price *price, int axis, sn_coll_op op, sn_dtype dtype,
                       int64_t count)
{
    const struct plan_price_group *g = &price->group[axis];
    sn_algo_call call = {.op = op, .red = SN_SUM, .dtype = dtype, .count = count};
    const sn_algo_row *row;
    double ns = 0;
    if (g->members < 2 || sn_algo_choose(&g->group, &call, &g->model, NULL, &row, &ns) < 0)
        return 0;
    return LAUNCH_NS + ns;
}

/* What of it stays in a host: the same operation among the members of one. */
static double price_in_host(const struct plan_price_group *g, const sn_algo_call *whole)
{
    int n = 0;
    while (n < g->members && g->group.host[n] == g->group.host[0])
        n++;
    sn_algo_group host = {.members = n, .host = g->group.host};
    sn_algo_call call = *whole;
    const sn_algo_row *row;
    double ns = 0;
    call.count = whole->count * g->members / SN_MAX(1, n);
    if (n < 2 || sn_algo_choose(&host, &call, &g->model, NULL, &row, &ns) < 0)
        return 0;
    return ns;
}

double plan_price_wire(const plan_price *price, const sn_plan *plan, const sn_wire *w,
                       const sn_instr *in)
{
    const struct plan_price_group *g = &price->group[PLAN_DATA];
    double share = plan_wire_share(w);
    int64_t coded = (int64_t) ((double) in->count * share) + 1;
    sn_algo_call call = {.op = in->coll, .red = SN_SUM, .dtype = SN_F32, .count = in->count};
    return price_in_host(g, &call) + plan_price_coll(price, PLAN_DATA, in->coll, SN_F32, coded) +
           plan_codec_ns(&plan->opts.compression, w, g->members);
}

double plan_price_send(const plan_price *price, double bytes)
{
    if (!price->hop.links || bytes <= 0)
        return 0;
    return LAUNCH_NS + sn_topo_transfer_ns(&price->hop, bytes, 1);
}
