/* SPDX-License-Identifier: Apache-2.0
 * Einsum: operands in pairs, each pair as one stack of products of matrices
 *
 *   [shared and kept | only left] [shared and summed]  ×  [… summed] [… only right]
 *
 * A label that an operand has twice is its diagonal; one that nobody else has is summed first. */
#include "onnx/private.h"

#include <string.h>

#define R SN_RANK_MAX

/* An operand whose dims have names; "…" are the names '0' to '7', aligned at the end. */
typedef struct named {
    item *x;
    int n;
    char label[R + 1];
} named;

static int find(const named *o, char label)
{
    for (int d = 0; d < o->n; d++)
        if (o->label[d] == label)
            return d;
    return -1;
}

/* The operand without dim d, which is summed. */
static void sum_out(importer *m, named *o, int d)
{
    int64_t mask = (int64_t) 1 << d;
    o->x = axes_mask_squeeze(m, reduce(m, SN_REDUCE_SUM, o->x, mask), mask);
    memmove(o->label + d, o->label + d + 1, (size_t) (o->n - d));
    o->n--;
}

/* Of dims d < e with one name only the diagonal stays: zero elsewhere, and a sum. */
static void take_diagonal(importer *m, named *o, int d, int e)
{
    int rank = o->x->shape.rank;
    int64_t n = o->x->shape.dim[d];
    sn_shape s = {.rank = rank}, t = {.rank = rank};
    for (int k = 0; k < rank; k++) {
        s.dim[k] = k == d ? n : 1;
        t.dim[k] = k == e ? o->x->shape.dim[e] : 1;
    }
    item *eye = binary(m, SN_BINARY_EQ, reshape(m, iota(m, n), s),
                       reshape(m, iota(m, o->x->shape.dim[e]), t));
    o->x = where(m, eye, o->x, scalar(m, o->x->dtype, 0));
    sum_out(m, o, e);
}

/* Names of one operand's dims, up to ',' or the end. */
static const char *read_labels(importer *m, const char *p, named *o)
{
    int written = 0, rank = o->x ? o->x->shape.rank : R, spread = -1;
    for (const char *q = p; *q && *q != ',' && *q != '-'; q++)
        written += (*q >= 'a' && *q <= 'z') || (*q >= 'A' && *q <= 'Z');
    for (; *p && *p != ',' && *p != '-'; p++) {
        if (*p == '.') {
            if (spread >= 0)
                continue;
            spread = rank - written;
            for (int k = 0; k < spread && o->n < R; k++)
                o->label[o->n++] = (char) ('0' + R - spread + k);
        } else if (*p != ' ') {
            if (o->n >= R || !((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z'))) {
                onnx_fail(m, SN_EINVAL, "its equation is not understood at '%.20s'", p);
                return p;
            }
            o->label[o->n++] = *p;
        }
    }
    if (o->x && o->n != rank)
        onnx_fail(m, SN_EINVAL, "its equation names %d dims of an operand with %d", o->n, rank);
    return p;
}

/* x with the dims named in `order` first to last, and grouped: products of sizes, four groups. */
static item *arranged(importer *m, const named *o, const char *const group[4], sn_shape shape)
{
    int perm[R], n = 0;
    for (int g = 0; g < 4; g++)
        for (const char *l = group[g]; *l; l++) {
            int d = find(o, *l);
            if (d >= 0 && n < R)
                perm[n++] = d;
        }
    return reshape(m, transpose(m, o->x, perm), shape);
}

static int64_t sizes(const named *o, const char *labels)
{
    int64_t n = 1;
    for (; *labels; labels++) {
        int d = find(o, *labels);
        n *= d >= 0 ? o->x->shape.dim[d] : 1;
    }
    return n;
}

static bool wanted(const named *rest, int n, const named *result, char label)
{
    for (int i = 0; i < n; i++)
        if (find(&rest[i], label) >= 0)
            return true;
    return find(result, label) >= 0;
}

/* a and b in one, keeping what the operands to come or the result want. */
static named product(importer *m, named a, named b, const named *rest, int n, const named *result)
{
    char both[R + 1] = "", left[R + 1] = "", right[R + 1] = "", sum[R + 1] = "";
    named z = {0};
    for (int d = a.n - 1; d >= 0; d--)
        if (find(&b, a.label[d]) < 0 && !wanted(rest, n, result, a.label[d]))
            sum_out(m, &a, d);
    for (int d = b.n - 1; d >= 0; d--)
        if (find(&a, b.label[d]) < 0 && !wanted(rest, n, result, b.label[d]))
            sum_out(m, &b, d);
    for (int d = 0; d < a.n; d++) {
        int e = find(&b, a.label[d]);
        char *to = e < 0 ? left : wanted(rest, n, result, a.label[d]) ? both : sum;
        strncat(to, &a.label[d], 1);
        if (e >= 0 && ok(m) && a.x->shape.dim[d] != b.x->shape.dim[e])
            onnx_fail(m, SN_ENOTSUP, "dims of one name differ");
    }
    for (int d = 0; d < b.n; d++)
        if (find(&a, b.label[d]) < 0)
            strncat(right, &b.label[d], 1);
    if (!ok(m) || strlen(both) + strlen(left) + strlen(right) > R) {
        onnx_fail(m, SN_ENOTSUP, "more than %d dims", R);
        return z;
    }
    int64_t k = sizes(&a, sum);
    sn_shape sx = SN_SHAPE(sizes(&a, both), sizes(&a, left), k), s = {0};
    sn_shape sy = SN_SHAPE(sizes(&b, both), k, sizes(&b, right));
    item *x = arranged(m, &a, (const char *const[]){both, left, sum, ""}, sx);
    item *y = arranged(m, &b, (const char *const[]){both, sum, right, ""}, sy);
    const char *group[] = {both, left, right};
    for (int g = 0; g < 3; g++)
        for (const char *l = group[g]; *l; l++) {
            const named *o = find(&a, *l) >= 0 ? &a : &b;
            z.label[z.n++] = *l;
            s.dim[s.rank++] = o->x->shape.dim[find(o, *l)];
        }
    z.x = reshape(m, matmul(m, x, y), s);
    return z;
}

/* Without "->": the names that appear once, in alphabetical order, after the spread ones. */
static void implied(const named *o, int n, named *result)
{
    for (int l = '0'; l <= 'z' && result->n < R; l++) {
        int count = 0;
        for (int i = 0; i < n; i++)
            for (int d = 0; d < o[i].n; d++)
                count += o[i].label[d] == l;
        if (count == 1 || (count && l < 'A'))
            result->label[result->n++] = (char) l;
    }
}

static void einsum(importer *m, call *c)
{
    const char *p = attr_str(m, c, "equation", "");
    named *o = SN_NEW_N(m->arena, named, c->ins + 1), result = {0};
    int perm[R];
    for (int i = 0; i < c->ins && ok(m); i++) {
        o[i].x = c->in[i];
        p = read_labels(m, p, &o[i]);
        p += *p == ',';
    }
    const char *arrow = strstr(p, "->");
    if (arrow) {
        int spread = 0;
        for (int i = 0; i < c->ins; i++)
            for (int d = 0; d < o[i].n; d++)
                spread = SN_MAX(spread, o[i].label[d] <= '9' ? '0' + R - o[i].label[d] : 0);
        for (p = arrow + 2; *p && ok(m) && result.n < R; p++) {
            if (*p == '.' && spread)
                for (; spread > 0 && result.n < R; spread--)
                    result.label[result.n++] = (char) ('0' + R - spread);
            else if (*p != ' ' && *p != '.')
                result.label[result.n++] = *p;
        }
    } else {
        implied(o, c->ins, &result);
    }
    for (int i = 0; i < c->ins && ok(m); i++)
        for (int d = 0; d < o[i].n; d++)
            for (int e = o[i].n - 1; e > d && ok(m); e--)
                if (o[i].label[d] == o[i].label[e])
                    take_diagonal(m, &o[i], d, e);
    named all = o[0];
    for (int i = 1; i < c->ins && ok(m); i++)
        all = product(m, all, o[i], o + i + 1, c->ins - i - 1, &result);
    for (int d = all.n - 1; d >= 0 && ok(m); d--)
        if (find(&result, all.label[d]) < 0)
            sum_out(m, &all, d);
    for (int d = 0; d < result.n; d++)
        perm[d] = find(&all, result.label[d]);
    c->out[0] = ok(m) ? transpose(m, all.x, perm) : NULL;
}

const row onnx_rows_einsum[] = {{"Einsum", 12, 1, einsum}};
const int onnx_rows_einsum_count = SN_COUNT(onnx_rows_einsum);
