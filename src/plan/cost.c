/* SPDX-License-Identifier: Apache-2.0
 *
 * The price of a step: the programs of one pipeline (tensor 0, data 0 of every stage) are run on a
 * virtual clock each. A kernel advances its clock; a collective or transfer runs beside it and the
 * wait for it takes what is left. So bubble and overlap come out of the program itself.
 *
 * Cards that share a core cannot all compute at full speed: then the step takes at least the work
 * of all cards of a core one after the other, and bubbles are filled by the others. */
#include "plan/private.h"

#include <math.h>

typedef struct arrival {
    uint32_t tag;
    bool used;
    double at;
} arrival;

typedef struct runner {
    const sn_plan *plan;
    const plan_model *m;
    const plan_price *price;
    sn_program **program;
    plan_clock *stage;
    arrival *arrivals; /* open addressing by tag */
    uint32_t mask;
} runner;

static arrival *slot_of(runner *r, uint32_t tag)
{
    uint32_t i = (uint32_t) sn_hash64(1, 2, tag) & r->mask;
    while (r->arrivals[i].used && r->arrivals[i].tag != tag)
        i = (i + 1) & r->mask;
    return &r->arrivals[i];
}

/* The share of a node's FLOPs that one card does. */
static double flops_of(const plan_model *m, const sn_instr *in)
{
    if (in->node < 0 || m->g->node[in->node].op != in->op)
        return 0;
    double flops = sn_node_flops(m->g, &m->g->node[in->node]);
    for (int a = 0; a < PLAN_AXES; a++)
        if (m->label[a][in->node] >= 0)
            flops /= m->degree[a];
    return flops;
}

void plan_clock_start(plan_clock *c, const sn_plan *plan, const sn_program *p, sn_arena *arena)
{
    *c = (plan_clock){.plan = plan,
                      .p = p,
                      .done = SN_NEW_N(arena, double, p->tickets + 1),
                      .tag = SN_NEW_N(arena, uint32_t, p->tickets + 1),
                      .is_coll = SN_NEW_N(arena, bool, p->tickets + 1)};
}

void plan_clock_kernel(plan_clock *c, const sn_instr *in)
{
    double bytes = 0;
    for (int i = 0; i < in->ins; i++)
        bytes += in->in[i] >= 0 ? (double) c->p->slot[in->in[i]].bytes : 0;
    for (int o = 0; o < in->outs; o++)
        bytes += in->out[o] >= 0 ? (double) c->p->slot[in->out[o]].bytes : 0;
    const struct sn_plan_private *with = c->plan->private_;
    double ns = plan_price_kernel(&with->price, flops_of(with->model, in), bytes);
    c->now += ns;
    if (in->phase >= SN_PHASE_REDUCE)
        c->optimizer += ns;
    else
        c->compute += ns;
}

void plan_clock_coll(plan_clock *c, const sn_instr *in)
{
    const plan_price *price = &c->plan->private_->price;
    sn_group_axis axis = c->plan->group[in->group].axis;
    int which = axis == SN_AXIS_TENSOR ? PLAN_TENSOR : axis == SN_AXIS_DATA ? PLAN_DATA : 2;
    double ns = in->wire ? plan_price_wire(price, c->plan, &c->p->wire[in->wire - 1], in)
                         : plan_price_coll(price, which, in->coll, in->dtype, in->count);
    c->coll_free[which] = fmax(c->now, c->coll_free[which]) + ns;
    c->coll += ns;
    c->done[in->ticket] = c->coll_free[which];
    c->is_coll[in->ticket] = true;
}

void plan_clock_coll_done(plan_clock *c, int ticket)
{
    c->coll_wait += fmax(0, c->done[ticket] - c->now);
    c->now = fmax(c->now, c->done[ticket]);
}

static void run_send(runner *r, plan_clock *s, const sn_instr *in)
{
    arrival *a = slot_of(r, in->tag);
    double bytes = (double) in->count * (double) sn_dtype_bytes(in->dtype);
    *a = (arrival){in->tag, true, s->now + plan_price_send(r->price, bytes)};
    s->done[in->ticket] = a->at;
}

/* False: what it waits for has not been sent yet. */
static bool run_wait(runner *r, plan_clock *s, const sn_instr *in)
{
    double *done = &s->done[in->ticket];
    if (*done < 0) {
        const arrival *a = slot_of(r, s->tag[in->ticket]);
        if (!a->used)
            return false;
        *done = a->at;
    }
    if (s->is_coll[in->ticket])
        plan_clock_coll_done(s, in->ticket);
    s->now = fmax(s->now, *done);
    return true;
}

/* Run a stage until it has to wait for another; true when it moved. */
static bool run_stage(runner *r, plan_clock *s)
{
    int from = s->at;
    for (; s->at < s->p->instrs; s->at++) {
        const sn_instr *in = &s->p->instr[s->at];
        switch (in->kind) {
        case SN_INSTR_KERNEL:
            plan_clock_kernel(s, in);
            break;
        case SN_INSTR_COLL:
            plan_clock_coll(s, in);
            break;
        case SN_INSTR_SEND:
            run_send(r, s, in);
            break;
        case SN_INSTR_RECV:
            s->done[in->ticket] = -1;
            s->tag[in->ticket] = in->tag;
            break;
        case SN_INSTR_WAIT:
            if (!run_wait(r, s, in))
                return s->at > from;
            break;
        }
    }
    return s->at > from;
}

static void run_all(runner *r)
{
    bool moved = true;
    while (moved) {
        moved = false;
        for (int s = 0; s < r->m->stages; s++)
            moved |= run_stage(r, &r->stage[s]);
    }
    for (int s = 0; s < r->m->stages; s++)
        SN_ASSERT(r->stage[s].at == r->stage[s].p->instrs);
}

void plan_cost_memory(const sn_program *p, uint64_t bytes, uint64_t aside, sn_plan_cost *c)
{
    if (bytes + aside <= c->memory_bytes)
        return;
    c->memory_bytes = bytes + aside;
    c->params_bytes = c->grads_bytes = c->optimizer_bytes = 0;
    for (int i = 0; i < p->slots; i++) {
        const sn_slot *s = &p->slot[i];
        if (s->base >= 0)
            continue;
        if (s->kind == SN_SLOT_PARAM || s->kind == SN_SLOT_STATE)
            c->params_bytes += s->bytes;
        if (s->kind == SN_SLOT_GRAD)
            c->grads_bytes += s->bytes;
        if (s->kind == SN_SLOT_MASTER || s->kind == SN_SLOT_MOMENT1 || s->kind == SN_SLOT_MOMENT2)
            c->optimizer_bytes += s->bytes;
    }
    c->optimizer_bytes += aside;
    c->activation_bytes = c->memory_bytes - c->params_bytes - c->grads_bytes - c->optimizer_bytes;
}

void plan_cost_times(const sn_plan *plan, const plan_clock *stage, sn_plan_cost *c)
{
    const plan_clock *busiest = stage;
    double compute = 0, coll = 0, optimizer = 0, stages = plan->pipeline;
    for (int i = 0; i < plan->pipeline; i++) {
        const plan_clock *s = &stage[i];
        c->step_ns = fmax(c->step_ns, s->now);
        if (s->compute + s->optimizer + s->coll_wait >
            busiest->compute + busiest->optimizer + busiest->coll_wait)
            busiest = s;
        compute += s->compute / stages;
        optimizer += s->optimizer / stages;
        coll += s->coll / stages;
    }
    c->compute_ns = busiest->compute;
    c->optimizer_ns = busiest->optimizer;
    c->collective_ns = busiest->coll_wait;
    int sharers = sn_topo_sharers(plan->topo, plan->private_->price.card, plan->world);
    double loaded = sharers * (compute + coll + optimizer);
    if (sharers > 1 && loaded > c->step_ns) {
        c->step_ns = loaded;
        c->compute_ns = sharers * compute;
        c->collective_ns = sharers * coll;
        c->optimizer_ns = sharers * optimizer;
    }
    c->pipeline_ns = fmax(0, c->step_ns - c->compute_ns - c->collective_ns - c->optimizer_ns);
}

double plan_cost_flops(const sn_plan *plan)
{
    const plan_model *m = plan->private_->model;
    double flops = 0;
    for (int n = 0; n < m->g->nodes; n++)
        if (m->live[n] && !(m->forward_only && m->g->node[n].backward))
            flops += sn_node_flops(m->g, &m->g->node[n]) * (double) m->micros;
    return flops;
}

static sn_status emit_stages(runner *r, sn_arena *arena)
{
    int sends = 0;
    for (int s = 0; s < r->m->stages; s++) {
        SN_TRY(plan_emit(r->plan, plan_mesh_rank(r->plan, 0, s, 0), &r->program[s]));
        plan_clock_start(&r->stage[s], r->plan, r->program[s], arena);
        sends += r->program[s]->tickets;
    }
    for (r->mask = 15; (int64_t) r->mask < 2 * (int64_t) sends;)
        r->mask = r->mask * 2 + 1;
    r->arrivals = SN_NEW_N(arena, arrival, (int64_t) r->mask + 1);
    return SN_OK;
}

sn_status plan_cost(const sn_plan *plan, sn_plan_cost *ret)
{
    sn_arena *arena = sn_arena_create();
    runner r = {.plan = plan, .m = plan->private_->model, .price = &plan->private_->price};
    sn_plan_cost c = {0};
    r.stage = SN_NEW_N(arena, plan_clock, r.m->stages);
    r.program = SN_NEW_N(arena, sn_program *, r.m->stages);
    sn_status status = emit_stages(&r, arena);
    if (status == SN_OK) {
        run_all(&r);
        plan_cost_times(plan, r.stage, &c);
        for (int s = 0; s < r.m->stages; s++) {
            const sn_program *p = r.program[s];
            double plain, coded;
            plan_cost_memory(p, p->memory_bytes, plan_wire_memory(plan, p), &c);
            plan_wire_bytes(plan, p, &plain, &coded);
            c.plain_bytes += plain * plan->tensor;
            c.coded_bytes += coded * plan->tensor;
        }
        c.flops = plan_cost_flops(plan);
        *ret = c;
    }
    for (int s = 0; s < r.m->stages; s++)
        sn_program_free(r.program[s]);
    sn_arena_free(arena);
    return status;
}
