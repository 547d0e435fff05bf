/* SPDX-License-Identifier: Apache-2.0
 *
 * One value in another form: the moves of forms.c as instructions. A dimension other than the first
 * needs its blocks brought together before a reduce-scatter (pack) and after an all-gather
 * (unpack); a slice of the first dimension is only a view. */
#include "plan/emit.h"

static int *head_of(emitter *e, int value, int micro)
{
    bool shared = e->m->g->value[value].kind == SN_VALUE_PARAM;
    int row = shared ? e->micros : micro;
    return &e->head[row * e->m->g->values + value];
}

void emit_put(emitter *e, int value, int micro, int8_t tensor, int8_t data, int slot)
{
    int *head = head_of(e, value, micro);
    e->instance = sn_arena_grow(e->arena, e->instance, (size_t) e->instances,
                                (size_t) e->instances + 1, sizeof *e->instance, &e->instance_cap);
    e->instance[e->instances] = (emit_instance){{tensor, data}, slot, *head};
    *head = ++e->instances;
}

static int find(emitter *e, int value, int micro, int8_t tensor, int8_t data)
{
    for (int i = *head_of(e, value, micro); i > 0; i = e->instance[i - 1].next)
        if (e->instance[i - 1].form[PLAN_TENSOR] == tensor &&
            e->instance[i - 1].form[PLAN_DATA] == data)
            return e->instance[i - 1].slot;
    return -1;
}

/* The forms on `axis` in which the value is there, given its form on the other axis. */
static uint32_t forms_there(emitter *e, int value, int micro, int axis, int8_t other)
{
    uint32_t have = 0;
    for (int i = *head_of(e, value, micro); i > 0; i = e->instance[i - 1].next)
        if (e->instance[i - 1].form[!axis] == other)
            have |= FORM_BIT(e->instance[i - 1].form[axis]);
    return have;
}

typedef struct change { /* of one value on one axis */
    int value, axis, from_slot;
    int8_t from, want;
    sn_shape from_shape, want_shape;
    plan_fold fold; /* the whole, seen around the dimension that is split or joined */
} change;

static int fresh(emitter *e, const change *c, sn_shape shape)
{
    sn_dtype dtype = e->p->slot[c->from_slot].dtype;
    return emit_slot(e, SN_SLOT_ACTIVATION, e->m->name[c->value], dtype, shape, c->value);
}

static sn_group_axis group_axis(int axis)
{
    return axis == PLAN_TENSOR ? SN_AXIS_TENSOR : SN_AXIS_DATA;
}

static sn_red red_of(int8_t partial)
{
    return partial == FORM_MAX ? SN_MAX : SN_SUM;
}

static int all_reduce(emitter *e, const change *c)
{
    int out = fresh(e, c, c->want_shape);
    emit_coll(e, group_axis(c->axis), SN_ALL_REDUCE, red_of(c->from), c->from_slot, out,
              sn_shape_count(c->want_shape), 2);
    return out;
}

static int reduce_scatter(emitter *e, const change *c)
{
    int parts = e->m->degree[c->axis], from = c->from_slot, out;
    if (c->fold.outer > 1) {
        sn_attr attr = {.i = {c->fold.outer, parts, c->fold.length / parts, c->fold.inner}};
        int packed = fresh(e, c, c->from_shape);
        emit_kernel(e, SN_OP_PACK, attr, &from, 1, &packed, 1, 0);
        from = packed;
    }
    out = fresh(e, c, c->want_shape);
    emit_coll(e, group_axis(c->axis), SN_REDUCE_SCATTER, red_of(c->from), from, out,
              sn_shape_count(c->want_shape), 2);
    return out;
}

static int all_gather(emitter *e, const change *c)
{
    int parts = e->m->degree[c->axis], out = fresh(e, c, c->want_shape), gathered = out;
    if (c->fold.outer > 1)
        gathered = fresh(e, c, c->want_shape);
    emit_coll(e, group_axis(c->axis), SN_ALL_GATHER, SN_SUM, c->from_slot, gathered,
              sn_shape_count(c->from_shape), 2);
    if (gathered != out) {
        sn_attr attr = {.i = {c->fold.outer, parts, c->fold.length / parts, c->fold.inner}};
        emit_kernel(e, SN_OP_UNPACK, attr, &gathered, 1, &out, 1, 0);
    }
    return out;
}

static int slice(emitter *e, const change *c)
{
    int64_t length = c->fold.length / e->m->degree[c->axis];
    int64_t at = length * (c->axis == PLAN_TENSOR ? e->t : e->d);
    if (c->fold.outer == 1) {
        int view =
            emit_view(e, c->from_slot, e->m->name[c->value], at * c->fold.inner, c->want_shape);
        e->p->slot[view].kind = SN_SLOT_ACTIVATION; /* the caller fills whole inputs only */
        return view;
    }
    sn_attr attr = {.i = {c->fold.outer, c->fold.length, c->fold.inner, at, length}};
    int out = fresh(e, c, c->want_shape);
    emit_kernel(e, SN_OP_SLICE, attr, &c->from_slot, 1, &out, 1, 0);
    return out;
}

static int apply(emitter *e, plan_move move, change *c)
{
    if (move == MOVE_ALL_REDUCE)
        return all_reduce(e, c);
    if (move == MOVE_ALL_GATHER) {
        c->fold = plan_fold_at(c->want_shape, c->from);
        return all_gather(e, c);
    }
    c->fold = plan_fold_at(c->from_shape, c->want);
    return move == MOVE_REDUCE_SCATTER ? reduce_scatter(e, c) : slice(e, c);
}

static sn_shape shape_in(const emitter *e, int value, int axis, int8_t form, int8_t other)
{
    return axis == PLAN_TENSOR ? plan_local(e->m, value, form, other)
                               : plan_local(e->m, value, other, form);
}

/* The value in form `want` on `axis` and `other` on the other axis; it is there in some form on
 * `axis` with `other` on the other one. */
static int convert(emitter *e, int value, int micro, int axis, int8_t want, int8_t other)
{
    change c = {.value = value, .axis = axis, .want = want};
    plan_move move = plan_move_find(forms_there(e, value, micro, axis, other), want, &c.from);
    if (move == MOVE_VIA_WHOLE) {
        convert(e, value, micro, axis, FORM_WHOLE, other);
        return convert(e, value, micro, axis, want, other);
    }
    c.from_slot = axis == PLAN_TENSOR ? find(e, value, micro, c.from, other)
                                      : find(e, value, micro, other, c.from);
    SN_ASSERT(c.from_slot >= 0);
    c.from_shape = shape_in(e, value, axis, c.from, other);
    c.want_shape = shape_in(e, value, axis, want, other);
    int slot = move == MOVE_NONE         ? c.from_slot
               : e->m->degree[axis] == 1 ? c.from_slot
                                         : apply(e, move, &c);
    if (move != MOVE_NONE)
        emit_put(e, value, micro, axis == PLAN_TENSOR ? want : other,
                 axis == PLAN_TENSOR ? other : want, slot);
    return slot;
}

/* Values that are there without having been computed: inputs, parameters, states. */
static void provide(emitter *e, int value, int micro)
{
    const sn_value *v = &e->m->g->value[value];
    int8_t tensor = e->m->form[PLAN_TENSOR][value], data = e->m->form[PLAN_DATA][value];
    if (*head_of(e, value, micro) || v->kind == SN_VALUE_RESULT)
        return;
    int slot = e->param_slot[value];
    if (v->kind == SN_VALUE_INPUT)
        slot = emit_slot(e, SN_SLOT_INPUT, e->m->name[value], e->m->dtype[value],
                         plan_local(e->m, value, tensor, data), value);
    emit_put(e, value, micro, tensor, data, slot);
}

int emit_get(emitter *e, int value, int micro, int8_t tensor, int8_t data)
{
    provide(e, value, micro);
    int slot = find(e, value, micro, tensor, data);
    if (slot >= 0)
        return slot;
    int8_t here = e->m->form[PLAN_DATA][value]; /* as produced, or as it came from its stage */
    if (!forms_there(e, value, micro, PLAN_TENSOR, here))
        here = e->m->sent[PLAN_DATA][value];
    convert(e, value, micro, PLAN_TENSOR, tensor, here);
    return convert(e, value, micro, PLAN_DATA, data, tensor);
}
