/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes one card's program: the units of its stage in 1F1B order, then reduce, optimizer, gather.
 *
 * A value that another stage needs is sent the moment it exists; what a unit receives is posted one
 * unit ahead, so that transfers run behind compute. Tags number (value, stage, micro-batch). */
#include "plan/emit.h"

#include <string.h>

/* ---- slots and instructions */

int emit_slot(emitter *e, sn_slot_kind kind, const char *name, sn_dtype dtype, sn_shape shape,
              int value)
{
    sn_program *p = e->p;
    p->slot = sn_arena_grow(e->arena, p->slot, (size_t) p->slots, (size_t) p->slots + 1,
                            sizeof *p->slot, &e->slot_cap);
    e->pending = sn_arena_grow(e->arena, e->pending, (size_t) p->slots, (size_t) p->slots + 1,
                               sizeof *e->pending, &e->pending_cap);
    e->pending[p->slots] = 0;
    p->slot[p->slots] = (sn_slot){
        .name = name,
        .kind = kind,
        .dtype = dtype,
        .shape = shape,
        .bytes = (uint64_t) sn_shape_count(shape) * sn_dtype_bytes(dtype),
        .value = value,
        .micro = e->micro,
        .base = -1,
    };
    return p->slots++;
}

int emit_view(emitter *e, int base, const char *name, int64_t at, sn_shape shape)
{
    sn_slot of = e->p->slot[base];
    int slot = emit_slot(e, of.kind, name, of.dtype, shape, of.value);
    sn_slot *view = &e->p->slot[slot];
    view->base = of.base >= 0 ? of.base : base;
    view->at = of.at + (uint64_t) at * sn_dtype_bytes(of.dtype);
    view->micro = of.micro;
    return slot;
}

static void append(emitter *e, sn_instr instr)
{
    sn_program *p = e->p;
    p->instr = sn_arena_grow(e->arena, p->instr, (size_t) p->instrs, (size_t) p->instrs + 1,
                             sizeof *p->instr, &e->instr_cap);
    instr.phase = e->phase;
    instr.micro = e->micro;
    instr.node = e->node;
    p->instr[p->instrs++] = instr;
}

static void wait_for(emitter *e, int ticket)
{
    if (ticket < 0 || e->ticket[ticket].done)
        return;
    e->ticket[ticket].done = true;
    append(e, (sn_instr){.kind = SN_INSTR_WAIT, .ticket = ticket, .group = -1, .peer = -1});
}

static void wait_slot(emitter *e, int slot)
{
    if (slot < 0)
        return;
    wait_for(e, e->pending[slot] - 1);
    if (e->p->slot[slot].base >= 0)
        wait_for(e, e->pending[e->p->slot[slot].base] - 1);
}

static int new_ticket(emitter *e, int group, int crossing)
{
    e->ticket = sn_arena_grow(e->arena, e->ticket, (size_t) e->p->tickets,
                              (size_t) e->p->tickets + 1, sizeof *e->ticket, &e->ticket_cap);
    e->ticket[e->p->tickets] = (emit_ticket){.group = group, .crossing = crossing};
    return e->p->tickets++;
}

void emit_instr(emitter *e, sn_instr instr)
{
    for (int i = 0; i < instr.ins; i++)
        wait_slot(e, instr.in[i]);
    for (int o = 0; o < instr.outs; o++)
        wait_slot(e, instr.out[o]);
    append(e, instr);
}

void emit_kernel(emitter *e, sn_op op, sn_attr attr, const int *in, int ins, const int *out,
                 int outs, uint32_t accumulate)
{
    sn_instr k = {.kind = SN_INSTR_KERNEL,
                  .op = op,
                  .attr = attr,
                  .accumulate = accumulate,
                  .ins = ins,
                  .outs = outs,
                  .group = -1,
                  .peer = -1,
                  .ticket = -1};
    memcpy(k.in, in, sizeof(int) * (size_t) ins);
    memcpy(k.out, out, sizeof(int) * (size_t) outs);
    emit_instr(e, k);
}

/* All tickets before it are done. */
static int first_open(emitter *e)
{
    while (e->open < e->p->tickets && e->ticket[e->open].done)
        e->open++;
    return e->open;
}

/* Keep the number of a group's unfinished collectives below coll's pool. */
static void throttle(emitter *e, int group)
{
    int flying = 0, oldest = -1;
    for (int t = e->p->tickets - 1; t >= first_open(e); t--)
        if (!e->ticket[t].done && e->ticket[t].group == group) {
            flying++;
            oldest = t;
        }
    if (flying >= EMIT_IN_FLIGHT)
        wait_for(e, oldest);
}

static int start_coll(emitter *e, int group, sn_instr c)
{
    throttle(e, group);
    c.kind = SN_INSTR_COLL;
    c.ins = c.outs = 1;
    c.group = group;
    c.dtype = e->p->slot[c.out[0]].dtype;
    c.peer = -1;
    c.ticket = new_ticket(e, group, -1);
    emit_instr(e, c);
    e->pending[c.out[0]] = c.ticket + 1;
    return c.ticket;
}

void emit_coll(emitter *e, sn_group_axis axis, sn_coll_op op, sn_red red, int in, int out,
               int64_t count, int priority)
{
    sn_instr c = {
        .in = {in}, .out = {out}, .coll = op, .red = red, .count = count, .priority = priority};
    int ticket = start_coll(e, plan_mesh_group(e->plan, axis, e->p->rank), c);
    if (in == out) /* other views of that memory would not know of it */
        wait_for(e, ticket);
}

int emit_wire(emitter *e, sn_coll_op op, int index, int in, int out, int64_t count, int priority)
{
    sn_instr c = {.in = {in},
                  .out = {out},
                  .coll = op,
                  .red = SN_SUM,
                  .count = count,
                  .priority = priority,
                  .wire = emit_new_wire(e, op, index)};
    return start_coll(e, plan_mesh_group(e->plan, SN_AXIS_DATA, e->p->rank), c);
}

void emit_wait(emitter *e, int ticket)
{
    wait_for(e, ticket);
}

void emit_wait_all(emitter *e)
{
    for (int t = first_open(e); t < e->p->tickets; t++)
        wait_for(e, t);
}

/* ---- between stages */

static uint32_t tag_of(const emitter *e, int value, int stage, int micro)
{
    return (uint32_t) (((int64_t) value * e->m->stages + stage) * e->micros + micro);
}

/* The stages other than its home that use value v, each once, in order of first use. */
static int next_stage(const plan_model *m, int v, int *at)
{
    while (*at < m->use_at[v + 1]) {
        int stage = m->g->node[m->use[(*at)++]].stage;
        bool seen = stage == m->home[v];
        for (int u = m->use_at[v]; u < *at - 1 && !seen; u++)
            seen = m->g->node[m->use[u]].stage == stage;
        if (!seen)
            return stage;
    }
    return -1;
}

static void send_value(emitter *e, int v, int micro)
{
    const plan_model *m = e->m;
    int at = m->use_at[v], stage;
    while ((stage = next_stage(m, v, &at)) >= 0) {
        int slot = emit_get(e, v, micro, m->sent[PLAN_TENSOR][v], m->sent[PLAN_DATA][v]);
        int crossing = v * m->stages + stage;
        for (int t = first_open(e); t < e->p->tickets;
             t++) /* its buffer of the micro-batch before */
            if (!e->ticket[t].done && e->ticket[t].crossing == crossing)
                wait_for(e, t);
        sn_instr send = {.kind = SN_INSTR_SEND,
                         .ins = 1,
                         .in = {slot},
                         .group = -1,
                         .count = sn_shape_count(e->p->slot[slot].shape),
                         .dtype = e->p->slot[slot].dtype,
                         .peer = plan_mesh_rank(e->plan, e->t, stage, e->d),
                         .tag = tag_of(e, v, stage, micro),
                         .priority = 2,
                         .ticket = new_ticket(e, -1, crossing)};
        emit_instr(e, send);
    }
}

static void receive_value(emitter *e, int v, int micro)
{
    const plan_model *m = e->m;
    int8_t tensor = m->sent[PLAN_TENSOR][v], data = m->sent[PLAN_DATA][v];
    int node = e->node, was = e->micro;
    e->node = m->g->value[v].producer;
    e->micro = micro;
    int slot = emit_slot(e, SN_SLOT_ACTIVATION, m->name[v], m->dtype[v],
                         plan_local(m, v, tensor, data), v);
    emit_put(e, v, micro, tensor, data, slot);
    sn_instr receive = {.kind = SN_INSTR_RECV,
                        .outs = 1,
                        .out = {slot},
                        .group = -1,
                        .count = sn_shape_count(e->p->slot[slot].shape),
                        .dtype = m->dtype[v],
                        .peer = plan_mesh_rank(e->plan, e->t, m->home[v], e->d),
                        .tag = tag_of(e, v, e->s, micro),
                        .priority = 2,
                        .ticket = new_ticket(e, -1, -1)};
    emit_instr(e, receive);
    e->pending[slot] = receive.ticket + 1;
    e->node = node;
    e->micro = was;
}

/* Post what a unit receives: values from elsewhere whose first user here is in it. */
static void receive_for(emitter *e, const plan_unit *unit)
{
    const plan_model *m = e->m;
    for (int v = 0; v < m->g->values; v++) {
        if (m->g->value[v].kind != SN_VALUE_RESULT || m->home[v] == e->s)
            continue;
        for (int u = m->use_at[v]; u < m->use_at[v + 1]; u++) {
            const sn_node *n = &m->g->node[m->use[u]];
            if (n->stage != e->s)
                continue;
            if (n->backward == unit->backward)
                receive_value(e, v, unit->micro);
            break;
        }
    }
}

/* ---- nodes */

static sn_attr local_attr(const emitter *e, int n)
{
    const sn_node *node = &e->m->g->node[n];
    const sn_shard_rule *rule = &e->m->rule[n];
    int label = e->m->label[PLAN_TENSOR][n];
    sn_attr attr = node->attr;
    int v = node->out[0];
    sn_shape local = plan_local(e->m, v, e->m->form[PLAN_TENSOR][v], e->m->form[PLAN_DATA][v]);
    if (label >= 0 && rule->label[label].id == rule->begin_label)
        attr.begin = e->t * (rule->label[label].size / e->plan->tensor);
    if (sn_shape_equal(attr.shape, e->m->g->value[v].shape))
        attr.shape = local; /* the wanted shape of a sum_to */
    if (node->op == SN_OP_EMBEDDING_GRAD)
        attr.i[0] = local.dim[0]; /* restates a size of the result */
    return attr;
}

/* Where result o goes: into a gradient, or a new slot. */
static int result_slot(emitter *e, int v, int micro, uint32_t *accumulate, int o)
{
    uint32_t bit = 0;
    int slot = e->m->adds_to[v] >= 0 ? emit_gradient_slot(e, v, &bit) : -1;
    *accumulate |= bit << o;
    if (slot >= 0)
        return slot;
    int8_t tensor = e->m->form[PLAN_TENSOR][v], data = e->m->form[PLAN_DATA][v];
    slot = emit_slot(e, SN_SLOT_ACTIVATION, e->m->name[v], e->m->dtype[v],
                     plan_local(e->m, v, tensor, data), v);
    emit_put(e, v, micro, tensor, data, slot);
    return slot;
}

/* The mean loss: cards that hold the same number let the first of them count. */
static void add_loss(emitter *e, int slot)
{
    const plan_model *m = e->m;
    int v = m->g->loss;
    if ((m->form[PLAN_TENSOR][v] == FORM_WHOLE && e->t) ||
        (m->form[PLAN_DATA][v] == FORM_WHOLE && e->d))
        return;
    int view = emit_view(e, e->p->scalars, "loss", 0, e->p->slot[slot].shape);
    emit_kernel(e, SN_OP_COPY, (sn_attr){0}, &slot, 1, &view, 1, 1);
}

static void keep_result(emitter *e, int micro)
{
    const plan_model *m = e->m;
    int slot = emit_get(e, m->logits, micro, FORM_WHOLE, m->form[PLAN_DATA][m->logits]);
    e->p->slot[slot].kind = SN_SLOT_RESULT;
    if (e->p->result < 0)
        e->p->result = slot;
}

/* What reads the old content in this micro-batch came before. It belongs to no node: evaluating
 * with the forward part of a training program leaves states as they are. */
static void become(emitter *e, int v, int micro)
{
    int from = emit_get(e, v, micro, FORM_WHOLE, FORM_WHOLE), node = e->node;
    e->node = -1;
    emit_kernel(e, SN_OP_COPY, (sn_attr){0}, &from, 1, &e->param_slot[e->m->becomes[v]], 1, 0);
    e->node = node;
}

static void emit_node(emitter *e, int n, int micro)
{
    const plan_model *m = e->m;
    const sn_node *node = &m->g->node[n];
    int in[SN_OP_IN_MAX], out[SN_OP_OUT_MAX];
    uint32_t accumulate = 0;
    e->node = n;
    for (int i = 0; i < node->ins; i++) {
        int v = node->in[i];
        int rank = v >= 0 ? m->g->value[v].shape.rank : 0;
        in[i] =
            v < 0 ? -1
                  : emit_get(e, v, micro, plan_need(&m->rule[n], m->label[PLAN_TENSOR][n], i, rank),
                             plan_need(&m->rule[n], m->label[PLAN_DATA][n], i, rank));
    }
    for (int o = 0; o < node->outs; o++)
        out[o] = node->out[o] < 0 ? -1 : result_slot(e, node->out[o], micro, &accumulate, o);
    emit_kernel(e, node->op, local_attr(e, n), in, node->ins, out, node->outs, accumulate);
    for (int o = 0; o < node->outs; o++) {
        int v = node->out[o];
        if (v < 0)
            continue;
        if (m->adds_to[v] >= 0)
            emit_contribution(e, v, e->p->slot[out[o]].kind == SN_SLOT_GRAD ? -1 : out[o]);
        if (v == m->g->loss)
            add_loss(e, out[o]);
        if (v == m->logits)
            keep_result(e, micro);
        if (m->becomes[v] >= 0)
            become(e, v, micro);
        send_value(e, v, micro);
    }
}

static void emit_unit(emitter *e, const plan_unit *unit)
{
    const plan_model *m = e->m;
    e->phase = unit->backward ? SN_PHASE_BACKWARD : SN_PHASE_FORWARD;
    e->micro = unit->micro;
    for (int n = 0; n < m->g->nodes; n++)
        if (m->live[n] && m->g->node[n].stage == e->s && m->g->node[n].backward == unit->backward)
            emit_node(e, n, unit->micro);
}

static void emit_units(emitter *e)
{
    plan_unit *unit = SN_NEW_N(e->arena, plan_unit, 2 * e->micros);
    int units = plan_order(e->warm, e->micros, e->m->forward_only, unit);
    for (int u = 0; u < units; u++) {
        e->phase = unit[u].backward ? SN_PHASE_BACKWARD : SN_PHASE_FORWARD;
        if (e->unit_at)
            e->unit_at[u] = e->p->instrs;
        if (u == 0)
            receive_for(e, &unit[0]);
        if (u + 1 < units)
            receive_for(e, &unit[u + 1]);
        emit_unit(e, &unit[u]);
    }
    e->micro = e->node = -1;
}

/* ---- the whole */

static void start(emitter *e, const sn_plan *plan, int rank, int micros)
{
    int values = plan->private_->model->g->values;
    e->arena = sn_arena_create();
    e->plan = plan;
    e->m = plan->private_->model;
    e->p = SN_NEW(e->arena, sn_program);
    *e->p = (sn_program){.arena = e->arena, .rank = rank, .hyper = -1, .scalars = -1, .result = -1};
    sn_plan_coords(plan, rank, &e->t, &e->s, &e->d);
    e->layout = &e->m->layout[e->s];
    e->micros = micros;
    e->warm = e->m->stages - 1 - e->s;
    e->micro = e->node = -1;
    e->head = SN_NEW_N(e->arena, int, (e->micros + 1) * values);
    e->started = SN_NEW_N(e->arena, bool, values);
    e->param_slot = SN_NEW_N(e->arena, int, values);
    e->grad_slot = SN_NEW_N(e->arena, int, values);
    e->missing = SN_NEW_N(e->arena, int, e->layout->buckets + 1);
    e->shard = SN_NEW_N(e->arena, int, e->layout->buckets + 1);
    e->summed = SN_NEW_N(e->arena, int, e->layout->buckets + 1);
}

static sn_program *write_program(emitter *e)
{
    emit_persistent(e);
    emit_gather(e);
    emit_units(e);
    if (e->unit_at)
        e->unit_at[2 * e->micros] = e->p->instrs;
    emit_optimizer(e);
    emit_states(e);
    plan_memory_place(e->p);
    return e->p;
}

sn_status plan_emit(const sn_plan *plan, int rank, sn_program **ret)
{
    emitter e = {0};
    if (rank < 0 || rank >= plan->world)
        return sn_fail(SN_EINVAL, "rank %d is not one of the plan's %d", rank, plan->world);
    start(&e, plan, rank, (int) plan->private_->model->micros);
    *ret = write_program(&e);
    return SN_OK;
}

sn_program *plan_emit_short(const sn_plan *plan, int rank, int micros, int warm, int *ret_unit_at)
{
    emitter e = {0};
    start(&e, plan, rank, micros);
    e.warm = warm;
    e.unit_at = ret_unit_at;
    return write_program(&e);
}

sn_status sn_plan_program(const sn_plan *plan, int rank, sn_program **ret)
{
    return plan_emit(plan, rank, ret);
}

void sn_program_free(sn_program *program)
{
    if (program)
        sn_arena_free(program->arena);
}
