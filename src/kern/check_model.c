/* SPDX-License-Identifier: Apache-2.0
 * The rules of activations, RMS norm, grouped attention, experts and losses. */
#include "kern/check.h"

static bool known_act(const sn_kernel_spec *s)
{
    return s->attr.i[0] >= 0 && s->attr.i[0] < SN_ACT_COUNT;
}

static bool activate(const sn_kernel_spec *s, kern_dims *d)
{
    kern_rows_cols(IN(0), d);
    return known_act(s) && kern_same(IN(0), OUT(0)) &&
           (!kern_has(s, 1) || kern_is_vector(IN(1), d->cols));
}

static bool activate_grad(const sn_kernel_spec *s, kern_dims *d)
{
    kern_rows_cols(IN(0), d);
    return known_act(s) && kern_same(IN(0), IN(1)) && kern_same(IN(0), OUT(0)) &&
           (!kern_has(s, 2) || kern_is_vector(IN(2), d->cols));
}

/* y[…,F], x[…,2,F] */
static bool gates(sn_shape y, sn_shape x, kern_dims *d)
{
    kern_rows_cols(y, d);
    if (y.rank < 1 || x.rank != y.rank + 1 || kern_last(x) != d->cols || x.dim[x.rank - 2] != 2)
        return false;
    for (int i = 0; i < y.rank - 1; i++)
        if (x.dim[i] != y.dim[i])
            return false;
    return true;
}

static bool glu(const sn_kernel_spec *s, kern_dims *d)
{
    return known_act(s) && gates(OUT(0), IN(0), d);
}

static bool glu_grad(const sn_kernel_spec *s, kern_dims *d)
{
    return known_act(s) && gates(IN(0), IN(1), d) && kern_same(IN(1), OUT(0));
}

static bool softmax(const sn_kernel_spec *s, kern_dims *d)
{
    kern_rows_cols(IN(0), d);
    return kern_same(IN(0), OUT(0)) && (s->ins < 2 || kern_same(IN(0), IN(1)));
}

static bool rms_norm(const sn_kernel_spec *s, kern_dims *d)
{
    kern_rows_cols(IN(0), d);
    return kern_is_vector(IN(1), d->cols) && kern_same(IN(0), OUT(0)) &&
           kern_leads(IN(0), OUT(1), 0);
}

static bool rms_norm_grad(const sn_kernel_spec *s, kern_dims *d)
{
    kern_rows_cols(IN(0), d);
    return kern_same(IN(0), IN(1)) && kern_is_vector(IN(2), d->cols) &&
           kern_leads(IN(0), IN(3), 0) && (!kern_has(s, 4) || kern_same(IN(0), IN(4))) &&
           kern_same(IN(0), OUT(0)) && kern_is_vector(OUT(1), d->cols);
}

static bool residual_rms_norm(const sn_kernel_spec *s, kern_dims *d)
{
    kern_rows_cols(IN(0), d);
    return kern_same(IN(0), IN(1)) && (!kern_has(s, 2) || kern_is_vector(IN(2), d->cols)) &&
           kern_is_vector(IN(3), d->cols) && kern_same(IN(0), OUT(0)) && kern_same(IN(0), OUT(1)) &&
           kern_leads(IN(0), OUT(2), 0);
}

/* t positions of rows vectors each, of cols elements, inner of which turn. */
static bool rotary(const sn_kernel_spec *s, kern_dims *d)
{
    if (IN(0).rank < 2 || !kern_same(IN(0), OUT(0)))
        return false;
    d->t = IN(0).dim[0];
    d->rows = kern_product(IN(0), 1, IN(0).rank - 1);
    d->cols = kern_last(IN(0));
    d->inner = s->attr.i[1] ? s->attr.i[1] : d->cols;
    return d->inner >= 0 && d->inner <= d->cols && d->inner % 2 == 0 && s->attr.f[0] > 0;
}

static bool attends(const sn_kernel_spec *s, int q, int mask, sn_shape lse, kern_dims *d)
{
    sn_shape a = IN(q), k = IN(q + 1);
    if (a.rank != 5 || k.rank != 4 || !kern_same(k, IN(q + 2)))
        return false;
    d->t = a.dim[0];
    d->b = a.dim[1];
    d->g = a.dim[2];
    d->h = a.dim[3];
    d->e = a.dim[4];
    d->s = k.dim[0];
    return k.dim[1] == d->b && k.dim[2] == d->g && k.dim[3] == d->e &&
           kern_same(lse, SN_SHAPE(d->b, d->g, d->h, d->t)) &&
           (!kern_has(s, mask) || kern_same(IN(mask), SN_SHAPE(d->s, d->b))) && s->attr.begin >= 0;
}

static bool attend(const sn_kernel_spec *s, kern_dims *d)
{
    return attends(s, 0, 3, OUT(1), d) && kern_same(IN(0), OUT(0));
}

static bool attend_grad(const sn_kernel_spec *s, kern_dims *d)
{
    return attends(s, 1, 6, IN(5), d) && kern_same(IN(0), IN(1)) && kern_same(IN(0), IN(4)) &&
           kern_same(IN(1), OUT(0)) && kern_same(IN(2), OUT(1)) && kern_same(IN(3), OUT(2));
}

/* x[T,…], y[…]: rows T, cols the rest. */
static bool takes(const sn_kernel_spec *s, sn_shape x, sn_shape y, kern_dims *d)
{
    if (x.rank < 1 || y.rank != x.rank - 1)
        return false;
    for (int i = 0; i < y.rank; i++)
        if (y.dim[i] != x.dim[i + 1])
            return false;
    d->rows = x.dim[0];
    d->cols = sn_shape_count(y);
    return s->attr.i[0] >= 0 && s->attr.i[0] < d->rows;
}

static bool take(const sn_kernel_spec *s, kern_dims *d)
{
    return takes(s, IN(0), OUT(0), d);
}

static bool take_grad(const sn_kernel_spec *s, kern_dims *d)
{
    return takes(s, OUT(0), IN(0), d);
}

/* x[X,lead,K…] and w[X,N…,K…] share X and K; y[X,lead,N…]. */
static bool batch_product(sn_shape x, sn_shape w, sn_shape y, int64_t dims_k, kern_dims *d)
{
    if (dims_k < 1 || x.rank < 1 + dims_k || w.rank < 1 + dims_k || x.dim[0] != w.dim[0] ||
        y.rank < 1 || y.dim[0] != x.dim[0])
        return false;
    int lead = x.rank - 1 - (int) dims_k, dims_n = w.rank - 1 - (int) dims_k;
    if (y.rank != 1 + lead + dims_n)
        return false;
    for (int i = 1; i <= lead; i++)
        if (x.dim[i] != y.dim[i])
            return false;
    for (int i = 0; i < dims_n; i++)
        if (w.dim[1 + i] != y.dim[1 + lead + i])
            return false;
    for (int i = 0; i < dims_k; i++)
        if (x.dim[1 + lead + i] != w.dim[1 + dims_n + i])
            return false;
    d->b = x.dim[0];
    d->rows = kern_product(x, 1, 1 + lead);
    d->cols = kern_product(w, 1, 1 + dims_n);
    d->inner = kern_product(w, 1 + dims_n, w.rank);
    return true;
}

static bool batch_linear(const sn_kernel_spec *s, kern_dims *d)
{
    return batch_product(IN(0), IN(1), OUT(0), s->attr.i[0], d);
}

static bool batch_linear_dx(const sn_kernel_spec *s, kern_dims *d)
{
    return batch_product(OUT(0), IN(1), IN(0), s->attr.i[0], d);
}

static bool batch_linear_dw(const sn_kernel_spec *s, kern_dims *d)
{
    return batch_product(IN(1), OUT(0), IN(0), s->attr.i[0], d);
}

/* p[T,B,X] and expert[T,B,k] */
static bool scores(sn_shape p, sn_shape choices, kern_dims *d)
{
    if (p.rank != 3 || choices.rank != 3 || p.dim[0] != choices.dim[0] ||
        p.dim[1] != choices.dim[1])
        return false;
    d->t = p.dim[0];
    d->b = p.dim[1];
    d->g = p.dim[2];
    d->h = choices.dim[2];
    return d->h >= 1;
}

static bool moe_route(const sn_kernel_spec *s, kern_dims *d)
{
    if (!scores(IN(0), OUT(0), d) || !kern_same(OUT(0), OUT(1)) || !kern_same(OUT(0), OUT(2)) ||
        !kern_same(IN(0), OUT(3)))
        return false;
    d->s = s->attr.i[1];
    return d->h == s->attr.i[0] && d->h <= d->g && d->s >= 1 && d->s <= INT32_MAX &&
           d->g <= INT32_MAX;
}

static bool moe_route_grad(const sn_kernel_spec *s, kern_dims *d)
{
    return scores(IN(1), IN(0), d) && (!kern_has(s, 2) || kern_same(IN(2), IN(0))) &&
           (!kern_has(s, 3) || kern_same(IN(3), IN(1))) && kern_same(IN(1), OUT(0));
}

/* tokens[T,B,D], buffers[X,capacity,B,D], expert and place (and weight) [T,B,k] from operand `at`.
 */
static bool moves_tokens(const sn_kernel_spec *s, sn_shape tokens, sn_shape buffers, int at,
                         kern_dims *d)
{
    sn_shape e = IN(at);
    if (tokens.rank != 3 || buffers.rank != 4 || e.rank != 3 || e.dim[0] != tokens.dim[0] ||
        e.dim[1] != tokens.dim[1] || buffers.dim[2] != tokens.dim[1] ||
        buffers.dim[3] != tokens.dim[2])
        return false;
    for (int i = at + 1; i < s->ins; i++)
        if (kern_has(s, i) && !kern_same(IN(i), e))
            return false;
    d->t = tokens.dim[0];
    d->b = tokens.dim[1];
    d->cols = tokens.dim[2];
    d->g = buffers.dim[0];
    d->s = buffers.dim[1];
    d->h = e.dim[2];
    return true;
}

static bool moe_dispatch(const sn_kernel_spec *s, kern_dims *d)
{
    return moves_tokens(s, IN(0), OUT(0), 1, d);
}

static bool moe_combine(const sn_kernel_spec *s, kern_dims *d)
{
    return moves_tokens(s, OUT(0), IN(0), 1, d);
}

static bool moe_dot(const sn_kernel_spec *s, kern_dims *d)
{
    return moves_tokens(s, IN(0), IN(1), 2, d) && kern_same(IN(2), OUT(0));
}

static bool moe_balance(const sn_kernel_spec *s, kern_dims *d)
{
    return scores(IN(0), IN(1), d) && kern_is_vector(OUT(0), 1);
}

static bool moe_balance_grad(const sn_kernel_spec *s, kern_dims *d)
{
    return scores(IN(0), IN(1), d) && kern_same(IN(0), OUT(0));
}

static bool mse_loss(const sn_kernel_spec *s, kern_dims *d)
{
    d->rows = sn_shape_count(IN(0));
    return kern_same(IN(0), IN(1)) && kern_is_vector(OUT(0), 1);
}

static bool mse_grad(const sn_kernel_spec *s, kern_dims *d)
{
    d->rows = sn_shape_count(IN(0));
    return kern_same(IN(0), IN(1)) && kern_same(IN(0), OUT(0));
}

static bool constant(const sn_kernel_spec *s, kern_dims *d)
{
    d->rows = sn_shape_count(OUT(0));
    return true;
}

const kern_rule kern_rules_model[SN_OP_COUNT] = {
    [SN_OP_ACTIVATE] = {1, 2, 1, 0, 0, BIT(1), activate},
    [SN_OP_ACTIVATE_GRAD] = {2, 3, 1, 0, 0, BIT(2), activate_grad},
    [SN_OP_GLU] = {1, 1, 1, 0, 0, 0, glu},
    [SN_OP_GLU_GRAD] = {2, 2, 1, 0, 0, 0, glu_grad},
    [SN_OP_SOFTMAX] = {1, 1, 1, 0, 0, 0, softmax},
    [SN_OP_SOFTMAX_GRAD] = {2, 2, 1, 0, 0, 0, softmax},
    [SN_OP_RMS_NORM] = {2, 2, 2, 0, 0, 0, rms_norm},
    [SN_OP_RMS_NORM_GRAD] = {4, 5, 2, 0, 0, BIT(4), rms_norm_grad},
    [SN_OP_RESIDUAL_RMS_NORM] = {4, 4, 3, 0, 0, BIT(2), residual_rms_norm},
    [SN_OP_ROTARY] = {1, 1, 1, 0, 0, 0, rotary},
    [SN_OP_ATTEND] = {3, 4, 2, BIT(3), 0, BIT(3), attend},
    [SN_OP_ATTEND_GRAD] = {6, 7, 3, BIT(6), 0, BIT(6), attend_grad},
    [SN_OP_TAKE] = {1, 1, 1, 0, 0, 0, take},
    [SN_OP_TAKE_GRAD] = {1, 1, 1, 0, 0, 0, take_grad},
    [SN_OP_BATCH_LINEAR] = {2, 2, 1, 0, 0, 0, batch_linear},
    [SN_OP_BATCH_LINEAR_DX] = {2, 2, 1, 0, 0, 0, batch_linear_dx},
    [SN_OP_BATCH_LINEAR_DW] = {2, 2, 1, 0, 0, 0, batch_linear_dw},
    [SN_OP_MOE_ROUTE] = {1, 1, 4, 0, 0, 0, moe_route, BIT(1) | BIT(2)},
    [SN_OP_MOE_ROUTE_GRAD] = {2, 4, 1, BIT(0), 0, BIT(2) | BIT(3), moe_route_grad},
    [SN_OP_MOE_DISPATCH] = {3, 4, 1, BIT(1) | BIT(2), 0, BIT(3), moe_dispatch},
    [SN_OP_MOE_COMBINE] = {3, 4, 1, BIT(1) | BIT(2), 0, BIT(3), moe_combine},
    [SN_OP_MOE_DOT] = {4, 4, 1, BIT(2) | BIT(3), 0, 0, moe_dot},
    [SN_OP_MOE_BALANCE] = {2, 2, 1, BIT(1), 0, 0, moe_balance},
    [SN_OP_MOE_BALANCE_GRAD] = {2, 2, 1, BIT(1), 0, 0, moe_balance_grad},
    [SN_OP_MSE_LOSS] = {2, 2, 1, 0, 0, 0, mse_loss},
    [SN_OP_MSE_GRAD] = {2, 2, 1, 0, 0, 0, mse_grad},
    [SN_OP_CONSTANT] = {0, 0, 1, 0, 0, 0, constant},
};
