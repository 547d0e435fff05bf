/* SPDX-License-Identifier: Apache-2.0
 *
 * The closed form of cost.c. A step of 1F1B is a few kinds of units run many times: of every kind
 * of stage a program of three micro-batches is written and run on its clock as if nobody had to be
 * waited for; what is left of a unit is how long it works between the points where it meets others.
 *
 *   stages ─ alike.c ─▶ kinds ─ emit three micro-batches ─▶ units ─▶ events of a unit
 *   unit    work · receive · work · send · work
 *
 * All stages then run their units from these lists. It is exact but for collectives that would
 * still be under way when the unit after begins to wait. */
#include "plan/closed.h"

#include <math.h>

enum { SHORT = 3 }; /* micro-batches: the first, one as all others, the last */
typedef enum unit_kind { FORWARD_FIRST, FORWARD, BACKWARD_FIRST, BACKWARD, LAST, UNITS } unit_kind;
typedef enum event_kind { RECEIVED, SEND, SENT, GATHERED } event_kind;

typedef struct event {
    event_kind kind;
    int link;     /* among those of the stage, received or sent */
    double after; /* work since the event before */
    double ns;    /* SEND: how long it takes; GATHERED: when, from the start of the step */
} event;

typedef struct unit {
    int first, events;
    double rest; /* work after the last event */
    double compute, optimizer, coll, coll_wait;
} unit;

typedef struct stage_kind {
    sn_program *p;
    int events;
    event *event;
    unit unit[UNITS];
    uint64_t held, inputs; /* bytes of a micro-batch between forward and backward, filled in */
    uint64_t units, tail;  /* most bytes alive in the units, and in the last one and after it */
    uint64_t aside;
    double plain, coded;
} stage_kind;

typedef struct runner { /* a stage */
    int at, event, units;
    bool worked; /* the work before the event has been done */
    plan_unit *order;
    plan_clock clock;
} runner;

typedef struct closed {
    const sn_plan *plan;
    const plan_model *m;
    sn_arena *arena;
    plan_alike alike;
    stage_kind *kind;
    runner *stage;
    double *arrived; /* [links][micros] < 0: not sent yet */
    double *sent;    /* [links] when the last one has left */
} closed;

/* ---- a kind of stage */

static unit_kind kind_of(const plan_unit *u, int64_t micros)
{
    if (u->backward && u->micro == micros - 1)
        return LAST;
    if (u->backward)
        return u->micro == 0 ? BACKWARD_FIRST : BACKWARD;
    return u->micro == 0 ? FORWARD_FIRST : FORWARD;
}

static int link_of(const plan_alike *a, const int *links, int from, int to, plan_link want)
{
    for (int i = from; i < to; i++) {
        const plan_link *l = &a->link[links[i]];
        if (l->value == want.value && l->stage == want.stage)
            return i - from;
    }
    SN_ASSERT(!"a value that crosses stages has a link");
    return -1;
}

/* The link of an instruction's tag, as emit.c numbers tags. */
static int link_at(const closed *x, int stage, const sn_instr *in)
{
    const plan_alike *a = &x->alike;
    int crossing = (int) (in->tag / SHORT);
    plan_link want = {crossing / x->m->stages, crossing % x->m->stages};
    if (in->kind == SN_INSTR_RECV)
        return link_of(a, a->in, a->in_at[stage], a->in_at[stage + 1], want);
    return link_of(a, a->out, a->out_at[stage], a->out_at[stage + 1], want);
}

typedef struct recording {
    closed *x;
    stage_kind *k;
    int stage;
    plan_clock clock;
    double since;     /* the last event */
    int *post, *link; /* [tickets] instruction; link */
} recording;

static void record(recording *r, event_kind kind, int link, double ns)
{
    r->k->event[r->k->events++] = (event){kind, link, r->clock.now - r->since, ns};
    r->since = r->clock.now;
}

static void record_instr(recording *r, int at)
{
    const sn_instr *in = &r->k->p->instr[at];
    double bytes = (double) in->count * (double) sn_dtype_bytes(in->dtype);
    if (in->kind == SN_INSTR_KERNEL) {
        plan_clock_kernel(&r->clock, in);
    } else if (in->kind == SN_INSTR_WAIT) {
        if (r->k->p->instr[r->post[in->ticket]].phase == SN_PHASE_GATHER)
            record(r, GATHERED, 0, r->clock.done[in->ticket]);
        else if (r->clock.is_coll[in->ticket])
            plan_clock_coll_done(&r->clock, in->ticket);
        else
            record(r, r->k->p->instr[r->post[in->ticket]].kind == SN_INSTR_RECV ? RECEIVED : SENT,
                   r->link[in->ticket], 0);
    } else {
        r->post[in->ticket] = at;
        if (in->kind == SN_INSTR_COLL) {
            plan_clock_coll(&r->clock, in);
            return;
        }
        r->link[in->ticket] = link_at(r->x, r->stage, in);
        if (in->kind == SN_INSTR_SEND)
            record(r, SEND, r->link[in->ticket],
                   plan_price_send(&r->x->plan->private_->price, bytes));
    }
}

/* Runs instructions [from, to) as unit u. The units of one kind that come later take its place: of
 * forwards the last is not the first of a step, of backwards all are alike. */
static void record_unit(recording *r, unit *u, int from, int to)
{
    plan_clock before = r->clock;
    *u = (unit){.first = r->k->events};
    r->since = r->clock.now;
    for (int i = from; i < to; i++)
        record_instr(r, i);
    u->events = r->k->events - u->first;
    u->rest = r->clock.now - r->since;
    u->compute = r->clock.compute - before.compute;
    u->optimizer = r->clock.optimizer - before.optimizer;
    u->coll = r->clock.coll - before.coll;
    u->coll_wait = r->clock.coll_wait - before.coll_wait;
}

static uint64_t size_of(const sn_slot *s)
{
    return SN_ALIGN_UP(SN_MAX(s->bytes, UINT64_C(1)), 64);
}

/* What a micro-batch in the middle keeps from the end of its forward to its backward. */
static void measure_held(stage_kind *k, int after, int until)
{
    for (int i = 0; i < k->p->slots; i++) {
        const sn_slot *s = &k->p->slot[i];
        if (s->base >= 0 || s->micro != 1)
            continue;
        if (s->kind == SN_SLOT_INPUT)
            k->inputs += size_of(s);
        else if (s->kind == SN_SLOT_ACTIVATION && s->first < after && s->last >= until)
            k->held += size_of(s);
    }
}

/* The most that is alive at once before instruction `last`, where the last unit begins, and from
 * there on: what micro-batches in flight add, they add before. */
static void measure_peaks(closed *x, stage_kind *k, int last)
{
    const sn_program *p = k->p;
    int64_t *change = SN_NEW_N(x->arena, int64_t, p->instrs + 2), now = 0;
    for (int i = 0; i < p->slots; i++) {
        const sn_slot *s = &p->slot[i];
        if (s->base >= 0 || s->kind != SN_SLOT_ACTIVATION || s->last < 0)
            continue;
        change[s->first] += (int64_t) size_of(s);
        change[s->last + 1] -= (int64_t) size_of(s);
    }
    for (int i = 0; i < p->instrs; i++) {
        uint64_t *peak = i < last ? &k->units : &k->tail;
        now += change[i];
        *peak = SN_MAX(*peak, (uint64_t) now);
    }
}

static void measure_memory(closed *x, stage_kind *k, const plan_unit *order, const int *unit_at)
{
    int after = 0, until = 0;
    for (int u = 0; u < 2 * SHORT; u++) {
        if (order[u].micro == 1 && !order[u].backward)
            after = unit_at[u + 1];
        if (order[u].micro == 1 && order[u].backward)
            until = unit_at[u];
    }
    measure_held(k, after, until);
    measure_peaks(x, k, unit_at[2 * SHORT - 1]);
}

static void learn(closed *x, int number)
{
    int stage = x->alike.first[number], unit_at[2 * SHORT + 1];
    int warm = SN_MIN(x->m->stages - 1 - stage, 1);
    stage_kind *k = &x->kind[number];
    plan_unit order[2 * SHORT];
    recording r = {.x = x, .k = k, .stage = stage};
    k->p = plan_emit_short(x->plan, plan_mesh_rank(x->plan, 0, stage, 0), SHORT, warm, unit_at);
    k->event = SN_NEW_N(x->arena, event, k->p->tickets * 2 + 1);
    r.post = SN_NEW_N(x->arena, int, k->p->tickets + 1);
    r.link = SN_NEW_N(x->arena, int, k->p->tickets + 1);
    plan_clock_start(&r.clock, x->plan, k->p, x->arena);
    plan_order(warm, SHORT, false, order);
    for (int u = 0; u < 2 * SHORT; u++) {
        bool end = u == 2 * SHORT - 1;
        record_unit(&r, &k->unit[kind_of(&order[u], SHORT)], u == 0 ? 0 : unit_at[u],
                    end ? k->p->instrs : unit_at[u + 1]);
        if (u == 0) /* gathering is over long before the next that uses these wires */
            r.clock.coll_free[PLAN_DATA] = r.clock.now;
    }
    measure_memory(x, k, order, unit_at);
    k->aside = plan_wire_memory(x->plan, k->p);
    plan_wire_bytes(x->plan, k->p, &k->plain, &k->coded);
}

/* ---- the step */

static bool run_event(closed *x, int s, const event *e, int micro)
{
    const plan_alike *a = &x->alike;
    plan_clock *c = &x->stage[s].clock;
    int64_t micros = x->m->micros;
    if (e->kind == GATHERED) { /* it began with the step, whenever the stage does */
        double wait = fmax(0, e->ns - c->now);
        c->coll_wait += wait;
        c->now += wait;
        return true;
    }
    if (e->kind == RECEIVED) {
        double at = x->arrived[a->in[a->in_at[s] + e->link] * micros + micro];
        c->now = fmax(c->now, at);
        return at >= 0;
    }
    int link = a->out[a->out_at[s] + e->link];
    if (e->kind == SENT)
        c->now = fmax(c->now, x->sent[link]);
    else
        x->arrived[link * micros + micro] = x->sent[link] = c->now + e->ns;
    return true;
}

/* Run a stage until it has to wait for another; true when it moved. */
static bool run_stage(closed *x, int s)
{
    runner *r = &x->stage[s];
    const stage_kind *k = &x->kind[x->alike.kind[s]];
    bool moved = false;
    for (; r->at < r->units; r->at++) {
        const unit *u = &k->unit[kind_of(&r->order[r->at], x->m->micros)];
        for (; r->event < u->events; r->event++) {
            const event *e = &k->event[u->first + r->event];
            if (!r->worked)
                r->clock.now += e->after;
            r->worked = true;
            if (!run_event(x, s, e, r->order[r->at].micro))
                return moved;
            r->worked = false;
            moved = true;
        }
        r->clock.now += u->rest;
        r->clock.compute += u->compute;
        r->clock.optimizer += u->optimizer;
        r->clock.coll += u->coll;
        r->clock.coll_wait += u->coll_wait;
        r->event = 0;
        moved = true;
    }
    return moved;
}

static void run_all(closed *x)
{
    int stages = x->m->stages;
    int64_t micros = x->m->micros;
    x->stage = SN_NEW_N(x->arena, runner, stages);
    x->sent = SN_NEW_N(x->arena, double, x->alike.links + 1);
    x->arrived = SN_NEW_N(x->arena, double, x->alike.links *micros + 1);
    for (int64_t i = 0; i < x->alike.links * micros; i++)
        x->arrived[i] = -1;
    for (int s = 0; s < stages; s++) {
        x->stage[s].order = SN_NEW_N(x->arena, plan_unit, 2 * micros);
        x->stage[s].units = plan_order(stages - 1 - s, (int) micros, false, x->stage[s].order);
    }
    for (bool moved = true; moved;) { /* forward goes down the stages, backward up */
        moved = false;
        for (int s = 0; s < stages; s++)
            moved |= run_stage(x, s);
        for (int s = stages - 1; s >= 0; s--)
            moved |= run_stage(x, s);
    }
    for (int s = 0; s < stages; s++)
        SN_ASSERT(x->stage[s].at == x->stage[s].units);
}

/* ---- memory */

/* The short program's memory, with as many micro-batches in flight as there are. */
static uint64_t bytes_of(const closed *x, int s)
{
    const stage_kind *k = &x->kind[x->alike.kind[s]];
    int after = x->m->stages - 1 - s;
    int64_t held = SN_MIN(after + 1, x->m->micros), here = SN_MIN(after, 1) + 1;
    uint64_t full = k->units + (uint64_t) (held - here) * k->held;
    return k->p->memory_bytes - SN_MAX(k->units, k->tail) + SN_MAX(full, k->tail) +
           (uint64_t) (x->m->micros - SHORT) * k->inputs;
}

/* The whole programs of stages that may be the fullest: the same kind holds most where it is
 * first. */
static sn_status add_exact_memory(const closed *x, uint64_t fullest, sn_plan_cost *c)
{
    for (int k = 0; k < x->alike.kinds; k++) {
        int s = x->alike.first[k];
        uint64_t bytes = bytes_of(x, s) + x->kind[k].aside;
        sn_program *p;
        if (bytes < fullest - fullest / 8)
            continue;
        SN_TRY(plan_emit(x->plan, plan_mesh_rank(x->plan, 0, s, 0), &p));
        plan_cost_memory(p, p->memory_bytes, x->kind[k].aside, c);
        sn_program_free(p);
    }
    return SN_OK;
}

static sn_status add_memory(const closed *x, bool exact, sn_plan_cost *c)
{
    uint64_t fullest = 0;
    for (int s = 0; s < x->m->stages; s++) {
        const stage_kind *k = &x->kind[x->alike.kind[s]];
        fullest = SN_MAX(fullest, bytes_of(x, s) + k->aside);
        if (!exact)
            plan_cost_memory(k->p, bytes_of(x, s), k->aside, c);
    }
    return exact ? add_exact_memory(x, fullest, c) : SN_OK;
}

/* ---- the whole */

static sn_status price(closed *x, bool exact, sn_plan_cost *c)
{
    int stages = x->m->stages;
    plan_clock *clock = SN_NEW_N(x->arena, plan_clock, stages);
    run_all(x);
    for (int s = 0; s < stages; s++) {
        const stage_kind *k = &x->kind[x->alike.kind[s]];
        clock[s] = x->stage[s].clock;
        c->plain_bytes += k->plain * x->plan->tensor;
        c->coded_bytes += k->coded * x->plan->tensor;
    }
    plan_cost_times(x->plan, clock, c);
    c->flops = plan_cost_flops(x->plan);
    return add_memory(x, exact, c);
}

sn_status plan_cost_closed(const sn_plan *plan, bool exact, sn_plan_cost *ret)
{
    closed x = {.plan = plan, .m = plan->private_->model};
    sn_plan_cost c = {0};
    if (x.m->forward_only || x.m->micros <= SHORT)
        return plan_cost(plan, ret);
    x.arena = sn_arena_create();
    plan_alike_find(plan, x.arena, &x.alike);
    x.kind = SN_NEW_N(x.arena, stage_kind, x.alike.kinds);
    for (int k = 0; k < x.alike.kinds; k++)
        learn(&x, k);
    sn_status status = price(&x, exact, &c);
    if (status == SN_OK)
        *ret = c;
    for (int k = 0; k < x.alike.kinds; k++)
        sn_program_free(x.kind[k].p);
    sn_arena_free(x.arena);
    return status;
}
