/* SPDX-License-Identifier: Apache-2.0
 * If with a known condition, Loop and Scan with a known count: the body, once for each turn. */
#include "onnx/private.h"

#include <string.h>

enum { TURNS_MAX = 100000 };

static const Onnx__GraphProto *body(importer *m, call *c, const char *name)
{
    const Onnx__AttributeProto *a = onnx_attr(c, m, name);
    return a ? a->g : NULL;
}

static void if_row(importer *m, call *c)
{
    if (!need(m, c->in[0], "the condition"))
        return;
    bool yes = sn_shape_count(c->in[0]->shape) > 0 && integer_at(c->in[0], 0);
    onnx_body(m, body(m, c, yes ? "then_branch" : "else_branch"), NULL, 0, c->out, c->outs,
              c->opset);
}

/* What a body gave for output `o` at each turn, one after the other along a new dim. */
static item *stacked(importer *m, item **turn, int turns, int outs, int o, int axis, bool reverse)
{
    item **list = SN_NEW_N(m->arena, item *, turns + 1);
    for (int t = 0; t < turns; t++)
        list[reverse ? turns - 1 - t : t] =
            unsqueeze(m, turn[(size_t) t * (size_t) outs + o], axis);
    return concat(m, list, turns, axis);
}

/* Without a turn the shape of a scan output is what the body declares, with 0 before it. */
static item *nothing(importer *m, const Onnx__ValueInfoProto *v)
{
    sn_shape s = {.rank = 1};
    sn_dtype t = SN_F32;
    void *data;
    const Onnx__TypeProto *type = v->type;
    if (type && type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE) {
        onnx_dtype(type->tensor_type->elem_type, &t);
        const Onnx__TensorShapeProto *shape = type->tensor_type->shape;
        for (size_t d = 0; shape && d < shape->n_dim && s.rank < SN_RANK_MAX; d++)
            s.dim[s.rank++] = SN_MAX(shape->dim[d]->dim_value, 0);
    }
    return constant(m, t, s, &data);
}

static void loop(importer *m, call *c)
{
    const Onnx__GraphProto *g = body(m, c, "body");
    int64_t most = TURNS_MAX + 1, turns = 0;
    int state = SN_MAX(c->ins - 2, 0), scans = g ? (int) g->n_output - 1 - state : 0;
    bool forever = !has(c, 0), go = true;
    if (!forever && need_ints(m, c->in[0], "the count of turns", &most, 1) != 1)
        return;
    if (has(c, 1) && need(m, c->in[1], "the condition"))
        go = integer_at(c->in[1], 0);
    if (!ok(m) || !g || scans < 0 || c->outs != state + scans || (most > TURNS_MAX && !forever)) {
        onnx_fail(m, SN_ENOTSUP, "its body does not fit it, or it turns more than %d times",
                  TURNS_MAX);
        return;
    }
    int ins = 2 + state, outs = 1 + state + scans;
    item **in = SN_NEW_N(m->arena, item *, ins + 1), **all = NULL;
    size_t cap = 0;
    for (int i = 0; i < state; i++)
        in[2 + i] = c->in[2 + i];
    for (; go && turns < most && ok(m); turns++) {
        in[0] = scalar(m, SN_I64, (double) turns);
        in[1] = scalar(m, SN_BOOL, 1);
        if (turns >= TURNS_MAX) {
            onnx_fail(m, SN_EFIT, "it does not end within %d turns", TURNS_MAX);
            return;
        }
        all = sn_arena_grow(m->arena, all, (size_t) turns * (size_t) outs,
                            (size_t) (turns + 1) * (size_t) outs, sizeof *all, &cap);
        item **out = all + (size_t) turns * (size_t) outs;
        if (!onnx_body(m, g, in, ins, out, outs, c->opset) ||
            !need(m, out[0], "the condition for the next turn"))
            return;
        go = integer_at(out[0], 0);
        for (int i = 0; i < state; i++)
            in[2 + i] = out[1 + i];
    }
    for (int o = 0; o < state; o++)
        c->out[o] = in[2 + o];
    for (int o = 0; o < scans && ok(m); o++)
        c->out[state + o] = turns ? stacked(m, all, (int) turns, outs, 1 + state + o, 0, false)
                                  : nothing(m, g->output[1 + state + o]);
}

/* Axes or directions of scanned operands or results; 0 where nothing is said. */
static bool each_of(importer *m, call *c, const char *name, int n, int64_t *ret)
{
    memset(ret, 0, CALL_MAX * sizeof *ret);
    int given = attr_ints(m, c, name, ret, CALL_MAX);
    if (given >= 0 && given != n)
        return onnx_fail(m, SN_EINVAL, "%d %s for %d", given, name, n);
    return ok(m);
}

typedef struct scanning {
    const Onnx__GraphProto *g;
    int state, scanned, results, outs;
    int64_t turns, in_axis[CALL_MAX], in_back[CALL_MAX], out_axis[CALL_MAX], out_back[CALL_MAX];
} scanning;

static bool scan_setup(importer *m, call *c, item *const *scanned, scanning *s)
{
    s->turns = -1;
    if (!each_of(m, c, "scan_input_axes", s->scanned, s->in_axis) ||
        !each_of(m, c, c->opset < 9 ? "directions" : "scan_input_directions", s->scanned,
                 s->in_back) ||
        !each_of(m, c, "scan_output_axes", s->results, s->out_axis) ||
        !each_of(m, c, "scan_output_directions", s->results, s->out_back))
        return false;
    for (int i = 0; i < s->scanned; i++) {
        int axis = axis_of(m, s->in_axis[i], scanned[i]->shape.rank);
        if (!ok(m))
            return false;
        s->in_axis[i] = axis;
        if (s->turns >= 0 && s->turns != scanned[i]->shape.dim[axis])
            return onnx_fail(m, SN_EINVAL, "its operands differ in length");
        s->turns = scanned[i]->shape.dim[axis];
    }
    if (s->turns < 1 || s->turns > TURNS_MAX)
        return onnx_fail(m, SN_ENOTSUP, "%lld turns are not offered", (long long) s->turns);
    return true;
}

/* first[] holds the states, then the scanned operands; out[] gets states, then results. */
static void scan_over(importer *m, call *c, scanning *s, item *const *first, item **out)
{
    int ins = s->state + s->scanned;
    item **in = SN_NEW_N(m->arena, item *, ins + 1);
    if (!scan_setup(m, c, first + s->state, s))
        return;
    item **all = SN_NEW_N(m->arena, item *, (size_t) s->turns * (size_t) s->outs);
    memcpy(in, first, (size_t) s->state * sizeof *in);
    for (int64_t t = 0; t < s->turns; t++) {
        for (int i = 0; i < s->scanned; i++) {
            int axis = (int) s->in_axis[i];
            item *slice =
                part(m, first[s->state + i], axis, s->in_back[i] ? s->turns - 1 - t : t, 1);
            in[s->state + i] = axes_mask_squeeze(m, slice, (int64_t) 1 << axis);
        }
        item **now = all + t * s->outs;
        if (!onnx_body(m, s->g, in, ins, now, s->outs, c->opset))
            return;
        memcpy(in, now, (size_t) s->state * sizeof *in);
    }
    for (int o = 0; o < s->state; o++)
        out[o] = in[o];
    for (int o = 0; o < s->results && ok(m); o++) {
        int rank = all[s->state + o]->shape.rank + 1;
        out[s->state + o] = stacked(m, all, (int) s->turns, s->outs, s->state + o,
                                    axis_of(m, s->out_axis[o], rank), s->out_back[o]);
    }
}

static void scan(importer *m, call *c)
{
    scanning *s = SN_NEW(m->arena, scanning);
    bool batched = c->opset < 9; /* then: an operand of lengths first, a dim of batches in front */
    item *const *first = c->in + batched;
    int ins = c->ins - batched;
    s->g = body(m, c, "body");
    s->scanned = (int) attr_int(m, c, "num_scan_inputs", 0);
    s->state = ins - s->scanned;
    s->outs = c->outs;
    s->results = c->outs - s->state;
    if (!s->g || s->scanned < 1 || s->state < 0 || s->results < 0 || (batched && has(c, 0))) {
        onnx_fail(m, SN_ENOTSUP, "its body does not fit it, or it has lengths for each sequence");
        return;
    }
    for (int i = 0; i < ins; i++)
        if (!first[i] || (batched && first[i]->shape.rank < 2)) {
            onnx_fail(m, SN_EINVAL, "an operand is missing, or has too few dims");
            return;
        }
    if (!batched) {
        scan_over(m, c, s, first, c->out);
        return;
    }
    int64_t batch = first[0]->shape.dim[0];
    if (batch < 1 || batch > TURNS_MAX) {
        onnx_fail(m, SN_ENOTSUP, "a batch of %lld is not offered", (long long) batch);
        return;
    }
    item **all = SN_NEW_N(m->arena, item *, (size_t) batch * (size_t) c->outs);
    item **one = SN_NEW_N(m->arena, item *, ins + 1);
    for (int64_t b = 0; b < batch && ok(m); b++) {
        for (int i = 0; i < ins; i++)
            one[i] = axes_mask_squeeze(m, part(m, first[i], 0, b, 1), 1);
        if (ok(m))
            scan_over(m, c, s, one, all + b * c->outs);
    }
    for (int o = 0; o < c->outs && ok(m); o++)
        c->out[o] = stacked(m, all, (int) batch, c->outs, o, 0, false);
}

const row onnx_rows_control[] = {
    {"If", 1, 1, if_row},
    {"Loop", 1, 0, loop},
    {"Scan", 8, 0, scan},
};
const int onnx_rows_control_count = SN_COUNT(onnx_rows_control);
