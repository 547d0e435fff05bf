/* SPDX-License-Identifier: Apache-2.0
 * What each op asks of its operands: how many, of which types, of which shapes. The other side of
 * graph's shape rules, stated for a card's local parts; nothing below this file looks at a shape.
 */
#include "kern/check.h"

const char *kern_op_name(sn_op op)
{
    static const char *const names[] = {
#define NAME(id, name) name,
        SN_OP_LIST(NAME)
#undef NAME
    };
    return op >= 0 && op < SN_OP_COUNT ? names[op] : "?";
}

static void shape_text(sn_dtype dtype, sn_shape a, sn_str *out)
{
    sn_str_printf(out, " %s[", dtype >= 0 && dtype < SN_DTYPE_COUNT ? sn_dtype_name(dtype) : "?");
    for (int i = 0; i < a.rank && i < SN_RANK_MAX; i++)
        sn_str_printf(out, "%s%lld", i ? "," : "", (long long) a.dim[i]);
    sn_str_add(out, a.rank < 0 || a.rank > SN_RANK_MAX ? "?]" : "]");
}

void kern_spec_text(const sn_kernel_spec *s, sn_str *out)
{
    sn_str_printf(out, "%s in", kern_op_name(s->op));
    for (int i = 0; i < s->ins && i < SN_OP_IN_MAX; i++) {
        if (s->in[i].absent)
            sn_str_add(out, " -");
        else
            shape_text(s->in[i].dtype, s->in[i].shape, out);
    }
    sn_str_add(out, " out");
    for (int o = 0; o < s->outs && o < SN_OP_OUT_MAX; o++)
        shape_text(s->out[o].dtype, s->out[o].shape, out);
}

static bool real_type(sn_dtype dtype)
{
    return dtype == SN_F32 || dtype == SN_BF16;
}

/* Ops that only move bytes take any type, if all operands have the same. */
static bool moves(const sn_kernel_spec *s)
{
    bool mover = s->op >= SN_OP_FILL_ZERO && s->op <= SN_OP_PACK;
    return mover && s->accumulate == 0 && (s->ins == 0 || s->in[0].dtype == s->out[0].dtype);
}

static const char *types_wrong(const sn_kernel_spec *s, const kern_rule *r)
{
    for (int i = 0; i < s->ins; i++) {
        if (!kern_has(s, i) && !(r->optional_in >> i & 1))
            return "an operand that must be given is absent";
        if (!kern_has(s, i) || moves(s))
            continue;
        if (r->integer_in >> i & 1 ? s->in[i].dtype != SN_I32 : !real_type(s->in[i].dtype))
            return "an input's type (I32 for indices, F32 or BF16 for the rest)";
    }
    for (int o = 0; o < s->outs; o++) {
        if (r->integer_out >> o & 1) {
            if (s->out[o].dtype != SN_I32)
                return "an output's type (I32 here)";
        } else if (!moves(s) && !real_type(s->out[o].dtype))
            return "an output's type (F32 or BF16)";
        if (s->out[o].dtype == SN_BF16 && (r->only_f32 >> o & 1))
            return "an output's type (only F32 here)";
        if (s->out[o].dtype != SN_F32 && (s->accumulate >> o & 1))
            return "accumulating into an output that is not F32";
    }
    return NULL;
}

static bool shape_sane(sn_shape a)
{
    int64_t n = 1;
    if (a.rank < 0 || a.rank > SN_RANK_MAX)
        return false;
    for (int i = 0; i < a.rank; i++)
        if (a.dim[i] < 0 || __builtin_mul_overflow(n, a.dim[i], &n))
            return false;
    return n <= INT64_MAX / 64;
}

static const char *shapes_wrong(const sn_kernel_spec *s)
{
    for (int i = 0; i < s->ins; i++)
        if (kern_has(s, i) && !shape_sane(s->in[i].shape))
            return "an input's shape (negative, too large or of too many dimensions)";
    for (int o = 0; o < s->outs; o++)
        if (!shape_sane(s->out[o].shape))
            return "an output's shape (negative, too large or of too many dimensions)";
    return NULL;
}

static const kern_rule *rule_of(sn_op op)
{
    const kern_rule *const family[] = {kern_rules_core, kern_rules_vision, kern_rules_model};
    for (size_t f = 0; f < SN_COUNT(family); f++)
        if (family[f][op].shapes)
            return &family[f][op];
    return NULL;
}

sn_status kern_check(const sn_kernel_spec *s, kern_dims *ret)
{
    if (s->op < 0 || s->op >= SN_OP_COUNT)
        return sn_fail(SN_ENOTSUP, "no op has number %d", (int) s->op);
    if (kern_is_tensor(s->op))
        return kern_check_tensor(s, ret);
    const kern_rule *r = rule_of(s->op);
    if (!r)
        return sn_fail(SN_ENOTSUP, "kernel %s: no card computes it", kern_op_name(s->op));
    if (s->ins < r->ins_min || s->ins > r->ins_max || s->outs != r->outs)
        return sn_fail(SN_ENOTSUP, "kernel %s: %d inputs and %d outputs, it takes %d … %d and %d",
                       kern_op_name(s->op), s->ins, s->outs, r->ins_min, r->ins_max, r->outs);
    kern_dims d = {0};
    const char *wrong = shapes_wrong(s);
    if (!wrong)
        wrong = types_wrong(s, r);
    if (!wrong && s->accumulate >> s->outs)
        wrong = "an accumulate bit without an output";
    if (!wrong && !r->shapes(s, &d))
        wrong = "shapes that do not fit together";
    if (wrong) {
        sn_str text = {0};
        kern_spec_text(s, &text);
        sn_fail(SN_ENOTSUP, "kernel %s: %s", sn_str_get(&text), wrong);
        sn_str_done(&text);
        return SN_ENOTSUP;
    }
    *ret = d;
    return SN_OK;
}
