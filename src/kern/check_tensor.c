/* SPDX-License-Identifier: Apache-2.0
 * General tensor ops: operands fit when graph's shape rule, run on them, gives the outputs.
 * attr.shape is the whole graph's; a card's part has the shape of its output. */
#include "kern/card.h"

bool kern_is_tensor(sn_op op)
{
    switch (op) {
#define CASE(id, name) case id:
        SN_OP_TENSOR_LIST(CASE)
#undef CASE
        return true;
    default:
        return false;
    }
}

static bool is_real(sn_dtype t)
{
    return t == SN_F32 || t == SN_BF16 || t == SN_F16 || t == SN_F64;
}

/* Ops that compute may write another floating-point type than the rule says. */
static bool computes(sn_op op)
{
    return op == SN_OP_UNARY || op == SN_OP_UNARY_GRAD || op == SN_OP_BINARY ||
           op == SN_OP_REDUCE || op == SN_OP_MATMUL || op == SN_OP_TILE_SUM ||
           op == SN_OP_GATHER_SUM || op == SN_OP_ELEMENTS_SUM || op == SN_OP_FOLD;
}

static const char *wrong_output(const sn_kernel_spec *s, const sn_graph *g, const int *out)
{
    for (int o = 0; o < s->outs; o++) {
        const sn_value *v = &g->value[out[o]];
        bool same = v->dtype == s->out[o].dtype;
        if (!same && !(computes(s->op) && is_real(v->dtype) && is_real(s->out[o].dtype)))
            return "an output of another type";
        if (!sn_shape_equal(v->shape, s->out[o].shape))
            return "an output of another shape";
        if (s->accumulate >> o & 1 && s->out[o].dtype != SN_F32)
            return "accumulating into an output that is not F32";
    }
    return s->accumulate >> s->outs ? "an accumulate bit without an output" : NULL;
}

static bool sane(sn_dtype dtype, sn_shape shape)
{
    int64_t n = 1;
    if (shape.rank < 0 || shape.rank > SN_RANK_MAX || (unsigned) dtype >= SN_DTYPE_COUNT)
        return false;
    for (int d = 0; d < shape.rank; d++)
        if (shape.dim[d] < 0 || __builtin_mul_overflow(n, shape.dim[d], &n))
            return false;
    return n <= INT64_MAX / 64;
}

static sn_status check(const sn_kernel_spec *s, sn_arena *arena, const char **ret_wrong)
{
    sn_graph *g = sn_graph_create(arena, "check");
    int in[SN_OP_IN_MAX], out[SN_OP_OUT_MAX];
    sn_attr attr = s->attr;
    attr.shape = s->out[0].shape;
    for (int i = 0; i < s->ins; i++)
        in[i] = sn_graph_input(g, "operand", s->in[i].dtype, s->in[i].shape, -1);
    SN_TRY(sn_graph_add(g, s->op, "kernel", &attr, in, s->ins, out));
    *ret_wrong = wrong_output(s, g, out);
    return SN_OK;
}

sn_status kern_check_tensor(const sn_kernel_spec *s, kern_dims *ret)
{
    const sn_op_row *row = sn_op_row_of(s->op);
    const char *wrong = NULL;
    if (s->ins < row->ins_min || s->ins > row->ins_max || s->outs != row->outs)
        return sn_fail(SN_ENOTSUP, "kernel %s: %d inputs and %d outputs, it takes %d … %d and %d",
                       row->name, s->ins, s->outs, row->ins_min, row->ins_max, row->outs);
    for (int i = 0; i < s->ins; i++)
        if (s->in[i].absent || !sane(s->in[i].dtype, s->in[i].shape))
            wrong = "an input that is absent, or of an impossible type or shape";
    for (int o = 0; o < s->outs; o++)
        if (!sane(s->out[o].dtype, s->out[o].shape))
            wrong = "an output of an impossible type or shape";
    if (!wrong) {
        sn_arena *arena = sn_arena_create();
        sn_status status = check(s, arena, &wrong);
        sn_arena_free(arena);
        if (status < 0)
            return sn_fail_in(SN_ENOTSUP, "kernel");
    }
    if (wrong) {
        sn_str text = {0};
        kern_spec_text(s, &text);
        sn_fail(SN_ENOTSUP, "kernel %s: %s", sn_str_get(&text), wrong);
        sn_str_done(&text);
        return SN_ENOTSUP;
    }
    *ret = (kern_dims){0};
    return SN_OK;
}
