/* SPDX-License-Identifier: Apache-2.0
 * What each op asks of its operands: how many, of which types, of which shapes. The other side of
 * graph's shape rules, stated for a card's local parts; nothing below this file looks at a shape.
 */
#include "kern/card.h"

#include <string.h>

typedef struct rule {
    int ins_min, ins_max, outs;
    uint32_t integer_in;  /* operands that are I32 */
    uint32_t only_f32;    /* outputs that may not be BF16 */
    uint32_t optional_in; /* inputs that may be absent */
    bool (*shapes)(const sn_kernel_spec *s, kern_dims *d);
} rule;

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

/* ---- small questions about shapes ---- */

static bool has(const sn_kernel_spec *s, int in)
{
    return in < s->ins && !s->in[in].absent;
}

static int64_t last(sn_shape a)
{
    return a.rank ? a.dim[a.rank - 1] : 1;
}

static int64_t product(sn_shape a, int from, int to)
{
    int64_t n = 1;
    for (int i = from; i < to; i++)
        n *= a.dim[i];
    return n;
}

static bool vector(sn_shape a, int64_t n)
{
    return sn_shape_count(a) == n;
}

/* b is a without its last dimension, or with another one. */
static bool leads(sn_shape a, sn_shape b, int64_t other)
{
    if (a.rank < 1 || b.rank != a.rank - (other ? 0 : 1))
        return false;
    for (int i = 0; i < a.rank - 1; i++)
        if (a.dim[i] != b.dim[i])
            return false;
    return !other || b.dim[b.rank - 1] == other;
}

static bool same(sn_shape a, sn_shape b)
{
    return sn_shape_equal(a, b);
}

static void rows_cols(sn_shape a, kern_dims *d)
{
    d->cols = last(a);
    d->rows = product(a, 0, a.rank - 1);
}

#define IN(i) (s->in[i].shape)
#define OUT(o) (s->out[o].shape)

/* ---- the rules, in the order of ops.h ---- */

static bool embedding(const sn_kernel_spec *s, kern_dims *d)
{
    d->rows = sn_shape_count(IN(1));
    if (IN(0).rank != 2)
        return false;
    d->inner = IN(0).dim[0];
    d->cols = IN(0).dim[1];
    return OUT(0).rank == IN(1).rank + 1 && leads(OUT(0), IN(1), 0) && last(OUT(0)) == d->cols;
}

static bool embedding_grad(const sn_kernel_spec *s, kern_dims *d)
{
    rows_cols(IN(1), d);
    d->inner = s->attr.i[0];
    return leads(IN(1), IN(0), 0) && OUT(0).rank == 2 && OUT(0).dim[0] == d->inner &&
           OUT(0).dim[1] == d->cols;
}

/* Walk `big` with `small` broadcast into it. */
static bool walk(sn_shape big, sn_shape small, kern_dims *d)
{
    int64_t step[SN_RANK_MAX], stride = 1;
    if (small.rank > big.rank)
        return false;
    for (int i = big.rank - 1; i >= 0; i--) {
        int at = i - (big.rank - small.rank);
        int64_t n = at >= 0 ? small.dim[at] : 1;
        if (n != 1 && n != big.dim[i])
            return false;
        step[i] = n == 1 ? 0 : stride;
        stride *= n;
    }
    d->walk = 0;
    for (int i = 0; i < big.rank; i++) {
        if (big.dim[i] == 1)
            continue;
        int w = d->walk - 1;
        if (w >= 0 && d->step[w] == step[i] * big.dim[i]) {
            d->size[w] *= big.dim[i];
            d->step[w] = step[i];
            continue;
        }
        d->size[d->walk] = big.dim[i];
        d->step[d->walk++] = step[i];
    }
    if (d->walk == 0)
        d->size[d->walk++] = 1;
    return true;
}

static bool add(const sn_kernel_spec *s, kern_dims *d)
{
    return same(IN(0), OUT(0)) && walk(IN(0), IN(1), d);
}

static bool sum_to(const sn_kernel_spec *s, kern_dims *d)
{
    return same(OUT(0), s->attr.shape) && walk(IN(0), OUT(0), d);
}

static bool residual(const sn_kernel_spec *s, kern_dims *d)
{
    rows_cols(IN(0), d);
    return same(IN(0), IN(1)) && same(IN(0), OUT(0)) && (!has(s, 2) || vector(IN(2), d->cols));
}

static bool layer_norm(const sn_kernel_spec *s, kern_dims *d)
{
    rows_cols(IN(0), d);
    return vector(IN(1), d->cols) && vector(IN(2), d->cols) && same(IN(0), OUT(0)) &&
           leads(IN(0), OUT(1), 0) && leads(IN(0), OUT(2), 0);
}

static bool layer_norm_grad(const sn_kernel_spec *s, kern_dims *d)
{
    rows_cols(IN(0), d);
    return same(IN(0), IN(1)) && vector(IN(2), d->cols) && leads(IN(0), IN(3), 0) &&
           leads(IN(0), IN(4), 0) && (!has(s, 5) || same(IN(0), IN(5))) && same(IN(0), OUT(0)) &&
           vector(OUT(1), d->cols) && vector(OUT(2), d->cols);
}

static bool residual_layer_norm(const sn_kernel_spec *s, kern_dims *d)
{
    rows_cols(IN(0), d);
    return same(IN(0), IN(1)) && (!has(s, 2) || vector(IN(2), d->cols)) && vector(IN(3), d->cols) &&
           vector(IN(4), d->cols) && same(IN(0), OUT(0)) && same(IN(0), OUT(1)) &&
           leads(IN(0), OUT(2), 0) && leads(IN(0), OUT(3), 0);
}

/* x[lead,K…] and w[N…,K…] share K; y[lead,N…]. Finds M, N, K. */
static bool product_shapes(sn_shape x, sn_shape w, sn_shape y, int64_t dims_k, kern_dims *d)
{
    if (dims_k < 0 || dims_k > x.rank || dims_k > w.rank)
        return false;
    int lead = x.rank - (int) dims_k, dims_n = w.rank - (int) dims_k;
    if (y.rank != lead + dims_n)
        return false;
    for (int i = 0; i < lead; i++)
        if (x.dim[i] != y.dim[i])
            return false;
    for (int i = 0; i < dims_n; i++)
        if (w.dim[i] != y.dim[lead + i])
            return false;
    for (int i = 0; i < dims_k; i++)
        if (x.dim[lead + i] != w.dim[dims_n + i])
            return false;
    d->rows = product(x, 0, lead);
    d->cols = product(w, 0, dims_n);
    d->inner = product(w, dims_n, w.rank);
    return true;
}

static bool linear(const sn_kernel_spec *s, kern_dims *d)
{
    return product_shapes(IN(0), IN(1), OUT(0), s->attr.i[0], d) &&
           (!has(s, 2) || vector(IN(2), d->cols));
}

static bool linear_dx(const sn_kernel_spec *s, kern_dims *d)
{
    return product_shapes(OUT(0), IN(1), IN(0), s->attr.i[0], d) &&
           IN(1).rank == s->attr.i[0] + s->attr.i[1];
}

static bool linear_dw(const sn_kernel_spec *s, kern_dims *d)
{
    return product_shapes(IN(1), OUT(0), IN(0), s->attr.i[0], d) &&
           OUT(0).rank == s->attr.i[0] + s->attr.i[1];
}

static bool attention_dims(sn_shape qkv, sn_shape o, sn_shape lse, kern_dims *d)
{
    if (qkv.rank != 5 || qkv.dim[3] != 3 || o.rank != 4 || lse.rank != 3)
        return false;
    d->t = qkv.dim[0];
    d->b = qkv.dim[1];
    d->h = qkv.dim[2];
    d->e = qkv.dim[4];
    return o.dim[0] == d->t && o.dim[1] == d->b && o.dim[2] == d->h && o.dim[3] == d->e &&
           lse.dim[0] == d->b && lse.dim[1] == d->h && lse.dim[2] == d->t;
}

static bool attention(const sn_kernel_spec *s, kern_dims *d)
{
    return attention_dims(IN(0), OUT(0), OUT(1), d);
}

static bool attention_grad(const sn_kernel_spec *s, kern_dims *d)
{
    return attention_dims(IN(1), IN(0), IN(3), d) && same(IN(0), IN(2)) && same(IN(1), OUT(0));
}

static bool bias_gelu(const sn_kernel_spec *s, kern_dims *d)
{
    rows_cols(IN(0), d);
    return vector(IN(1), d->cols) && same(IN(0), OUT(0));
}

static bool bias_gelu_grad(const sn_kernel_spec *s, kern_dims *d)
{
    rows_cols(IN(0), d);
    return same(IN(0), IN(1)) && vector(IN(2), d->cols) && same(IN(0), OUT(0));
}

static bool row_max(const sn_kernel_spec *s, kern_dims *d)
{
    rows_cols(IN(0), d);
    return leads(IN(0), OUT(0), 0);
}

static bool xent_sums(const sn_kernel_spec *s, kern_dims *d)
{
    rows_cols(IN(0), d);
    return leads(IN(0), IN(1), 0) && leads(IN(0), IN(2), 0) && leads(IN(0), OUT(0), 2);
}

static bool xent_loss(const sn_kernel_spec *s, kern_dims *d)
{
    d->rows = sn_shape_count(IN(0));
    return leads(IN(1), IN(0), 0) && last(IN(1)) == 2 && same(IN(0), IN(2)) && vector(OUT(0), 1);
}

static bool xent_grad(const sn_kernel_spec *s, kern_dims *d)
{
    rows_cols(IN(0), d);
    return leads(IN(0), IN(1), 0) && leads(IN(0), IN(2), 0) && leads(IN(0), IN(3), 2) &&
           same(IN(0), OUT(0));
}

static bool fill_zero(const sn_kernel_spec *s, kern_dims *d)
{
    d->rows = sn_shape_count(OUT(0));
    return true;
}

static bool copy(const sn_kernel_spec *s, kern_dims *d)
{
    d->rows = sn_shape_count(OUT(0));
    return sn_shape_count(IN(0)) == d->rows;
}

/* Positive factors whose product does not overflow. */
static bool factors(const int64_t *n, int count, int64_t *ret)
{
    *ret = 1;
    for (int i = 0; i < count; i++)
        if (n[i] < 0 || __builtin_mul_overflow(*ret, n[i], ret))
            return false;
    return true;
}

static bool slice(const sn_kernel_spec *s, kern_dims *d)
{
    const int64_t *a = s->attr.i;
    int64_t whole, part;
    memcpy(d->n, a, sizeof d->n);
    return factors(a, 3, &whole) && sn_shape_count(IN(0)) == whole &&
           factors((int64_t[]){a[0], a[4], a[2]}, 3, &part) && sn_shape_count(OUT(0)) == part &&
           a[3] >= 0 && a[3] <= a[1] - a[4];
}

static bool pack(const sn_kernel_spec *s, kern_dims *d)
{
    int64_t whole;
    memcpy(d->n, s->attr.i, sizeof d->n);
    return factors(s->attr.i, 4, &whole) && sn_shape_count(IN(0)) == whole &&
           sn_shape_count(OUT(0)) == whole;
}

static bool sum_squares(const sn_kernel_spec *s, kern_dims *d)
{
    d->rows = sn_shape_count(IN(0));
    return vector(OUT(0), 1);
}

static bool adamw(const sn_kernel_spec *s, kern_dims *d)
{
    d->rows = sn_shape_count(IN(0));
    return vector(IN(1), 8) && vector(IN(2), 1) && vector(OUT(0), d->rows) &&
           vector(OUT(1), d->rows) && vector(OUT(2), d->rows) && vector(OUT(3), d->rows) &&
           s->accumulate == 0;
}

#define BIT(i) (1u << (i))

static const rule rules[SN_OP_COUNT] = {
    [SN_OP_EMBEDDING] = {2, 2, 1, BIT(1), 0, 0, embedding},
    [SN_OP_EMBEDDING_GRAD] = {2, 2, 1, BIT(0), 0, 0, embedding_grad},
    [SN_OP_ADD] = {2, 2, 1, 0, 0, 0, add},
    [SN_OP_SUM_TO] = {1, 1, 1, 0, 0, 0, sum_to},
    [SN_OP_RESIDUAL] = {2, 3, 1, 0, 0, BIT(2), residual},
    [SN_OP_LAYER_NORM] = {3, 3, 3, 0, 0, 0, layer_norm},
    [SN_OP_LAYER_NORM_GRAD] = {5, 6, 3, 0, 0, BIT(5), layer_norm_grad},
    [SN_OP_RESIDUAL_LAYER_NORM] = {5, 5, 4, 0, 0, BIT(2), residual_layer_norm},
    [SN_OP_LINEAR] = {2, 3, 1, 0, 0, BIT(2), linear},
    [SN_OP_LINEAR_DX] = {2, 2, 1, 0, 0, 0, linear_dx},
    [SN_OP_LINEAR_DW] = {2, 2, 1, 0, 0, 0, linear_dw},
    [SN_OP_ATTENTION] = {1, 1, 2, 0, 0, 0, attention},
    [SN_OP_ATTENTION_GRAD] = {4, 4, 1, 0, 0, 0, attention_grad},
    [SN_OP_BIAS_GELU] = {2, 2, 1, 0, 0, 0, bias_gelu},
    [SN_OP_BIAS_GELU_GRAD] = {3, 3, 1, 0, 0, 0, bias_gelu_grad},
    [SN_OP_ROW_MAX] = {1, 1, 1, 0, 0, 0, row_max},
    [SN_OP_XENT_SUMS] = {3, 3, 1, BIT(1), 0, 0, xent_sums},
    [SN_OP_XENT_LOSS] = {3, 3, 1, BIT(2), 0, 0, xent_loss},
    [SN_OP_XENT_GRAD] = {4, 4, 1, BIT(1), 0, 0, xent_grad},
    [SN_OP_FILL_ZERO] = {0, 0, 1, 0, 0, 0, fill_zero},
    [SN_OP_COPY] = {1, 1, 1, 0, 0, 0, copy},
    [SN_OP_SLICE] = {1, 1, 1, 0, 0, 0, slice},
    [SN_OP_UNPACK] = {1, 1, 1, 0, 0, 0, pack},
    [SN_OP_PACK] = {1, 1, 1, 0, 0, 0, pack},
    [SN_OP_SUM_SQUARES] = {1, 1, 1, 0, BIT(0), 0, sum_squares},
    [SN_OP_ADAMW] = {3, 3, 4, 0, BIT(0) | BIT(1) | BIT(2), 0, adamw},
};

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

static const char *types_wrong(const sn_kernel_spec *s, const rule *r)
{
    for (int i = 0; i < s->ins; i++) {
        if (!has(s, i) && !(r->optional_in >> i & 1))
            return "an operand that must be given is absent";
        if (!has(s, i) || moves(s))
            continue;
        if (r->integer_in >> i & 1 ? s->in[i].dtype != SN_I32 : !real_type(s->in[i].dtype))
            return "an input's type (I32 for indices, F32 or BF16 for the rest)";
    }
    for (int o = 0; o < s->outs; o++) {
        if (!moves(s) && !real_type(s->out[o].dtype))
            return "an output's type (F32 or BF16)";
        if (s->out[o].dtype != SN_F32 && (r->only_f32 >> o & 1))
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
        if (has(s, i) && !shape_sane(s->in[i].shape))
            return "an input's shape (negative, too large or of too many dimensions)";
    for (int o = 0; o < s->outs; o++)
        if (!shape_sane(s->out[o].shape))
            return "an output's shape (negative, too large or of too many dimensions)";
    return NULL;
}

sn_status kern_check(const sn_kernel_spec *s, kern_dims *ret)
{
    if (s->op < 0 || s->op >= SN_OP_COUNT)
        return sn_fail(SN_ENOTSUP, "no op has number %d", (int) s->op);
    if (kern_is_tensor(s->op))
        return kern_check_tensor(s, ret);
    const rule *r = &rules[s->op];
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
