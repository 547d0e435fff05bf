/* SPDX-License-Identifier: Apache-2.0
 * The rules of what a GPT is made of, and of what only programs contain. */
#include "kern/check.h"

static bool embedding(const sn_kernel_spec *s, kern_dims *d)
{
    d->rows = sn_shape_count(IN(1));
    if (IN(0).rank != 2)
        return false;
    d->inner = IN(0).dim[0];
    d->cols = IN(0).dim[1];
    return OUT(0).rank == IN(1).rank + 1 && kern_leads(OUT(0), IN(1), 0) &&
           kern_last(OUT(0)) == d->cols;
}

static bool embedding_grad(const sn_kernel_spec *s, kern_dims *d)
{
    kern_rows_cols(IN(1), d);
    d->inner = s->attr.i[0];
    return kern_leads(IN(1), IN(0), 0) && OUT(0).rank == 2 && OUT(0).dim[0] == d->inner &&
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
    return kern_same(IN(0), OUT(0)) && walk(IN(0), IN(1), d);
}

static bool sum_to(const sn_kernel_spec *s, kern_dims *d)
{
    return kern_same(OUT(0), s->attr.shape) && walk(IN(0), OUT(0), d);
}

static bool residual(const sn_kernel_spec *s, kern_dims *d)
{
    kern_rows_cols(IN(0), d);
    return kern_same(IN(0), IN(1)) && kern_same(IN(0), OUT(0)) &&
           (!kern_has(s, 2) || kern_is_vector(IN(2), d->cols));
}

static bool layer_norm(const sn_kernel_spec *s, kern_dims *d)
{
    kern_rows_cols(IN(0), d);
    return kern_is_vector(IN(1), d->cols) && kern_is_vector(IN(2), d->cols) &&
           kern_same(IN(0), OUT(0)) && kern_leads(IN(0), OUT(1), 0) && kern_leads(IN(0), OUT(2), 0);
}

static bool layer_norm_grad(const sn_kernel_spec *s, kern_dims *d)
{
    kern_rows_cols(IN(0), d);
    return kern_same(IN(0), IN(1)) && kern_is_vector(IN(2), d->cols) &&
           kern_leads(IN(0), IN(3), 0) && kern_leads(IN(0), IN(4), 0) &&
           (!kern_has(s, 5) || kern_same(IN(0), IN(5))) && kern_same(IN(0), OUT(0)) &&
           kern_is_vector(OUT(1), d->cols) && kern_is_vector(OUT(2), d->cols);
}

static bool residual_layer_norm(const sn_kernel_spec *s, kern_dims *d)
{
    kern_rows_cols(IN(0), d);
    return kern_same(IN(0), IN(1)) && (!kern_has(s, 2) || kern_is_vector(IN(2), d->cols)) &&
           kern_is_vector(IN(3), d->cols) && kern_is_vector(IN(4), d->cols) &&
           kern_same(IN(0), OUT(0)) && kern_same(IN(0), OUT(1)) && kern_leads(IN(0), OUT(2), 0) &&
           kern_leads(IN(0), OUT(3), 0);
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
    d->rows = kern_product(x, 0, lead);
    d->cols = kern_product(w, 0, dims_n);
    d->inner = kern_product(w, dims_n, w.rank);
    return true;
}

static bool linear(const sn_kernel_spec *s, kern_dims *d)
{
    return product_shapes(IN(0), IN(1), OUT(0), s->attr.i[0], d) &&
           (!kern_has(s, 2) || kern_is_vector(IN(2), d->cols));
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
    return attention_dims(IN(1), IN(0), IN(3), d) && kern_same(IN(0), IN(2)) &&
           kern_same(IN(1), OUT(0));
}

static bool bias_gelu(const sn_kernel_spec *s, kern_dims *d)
{
    kern_rows_cols(IN(0), d);
    return kern_is_vector(IN(1), d->cols) && kern_same(IN(0), OUT(0));
}

static bool bias_gelu_grad(const sn_kernel_spec *s, kern_dims *d)
{
    kern_rows_cols(IN(0), d);
    return kern_same(IN(0), IN(1)) && kern_is_vector(IN(2), d->cols) && kern_same(IN(0), OUT(0));
}

static bool row_max(const sn_kernel_spec *s, kern_dims *d)
{
    kern_rows_cols(IN(0), d);
    return kern_leads(IN(0), OUT(0), 0);
}

static bool xent_sums(const sn_kernel_spec *s, kern_dims *d)
{
    kern_rows_cols(IN(0), d);
    return kern_leads(IN(0), IN(1), 0) && kern_leads(IN(0), IN(2), 0) &&
           kern_leads(IN(0), OUT(0), 2);
}

static bool xent_loss(const sn_kernel_spec *s, kern_dims *d)
{
    d->rows = sn_shape_count(IN(0));
    return kern_leads(IN(1), IN(0), 0) && kern_last(IN(1)) == 2 && kern_same(IN(0), IN(2)) &&
           kern_is_vector(OUT(0), 1);
}

static bool xent_grad(const sn_kernel_spec *s, kern_dims *d)
{
    kern_rows_cols(IN(0), d);
    return kern_leads(IN(0), IN(1), 0) && kern_leads(IN(0), IN(2), 0) &&
           kern_leads(IN(0), IN(3), 2) && kern_same(IN(0), OUT(0));
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
    return kern_is_vector(OUT(0), 1);
}

static bool adamw(const sn_kernel_spec *s, kern_dims *d)
{
    d->rows = sn_shape_count(IN(0));
    return kern_is_vector(IN(1), 8) && kern_is_vector(IN(2), 1) &&
           kern_is_vector(OUT(0), d->rows) && kern_is_vector(OUT(1), d->rows) &&
           kern_is_vector(OUT(2), d->rows) && kern_is_vector(OUT(3), d->rows) && s->accumulate == 0;
}

const kern_rule kern_rules_core[SN_OP_COUNT] = {
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
