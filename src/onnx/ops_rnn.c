/* SPDX-License-Identifier: Apache-2.0
 * Recurrent layers, unrolled: a step's ops once for each step and direction. */
#include "onnx/private.h"

#include <string.h>

enum { STEPS_MAX = 10000 };

typedef struct cell {
    int gates; /* 1, 3 or 4 */
    int64_t steps, batch, hidden;
    const char *act[3];
    item *w, *r, *wb, *rb, *peep[3], *lengths; /* of one direction; biases [gates·H] */
    bool reset_after, coupled;
} cell;

static item *activate(importer *m, const char *name, item *x)
{
    static const struct {
        const char *name;
        sn_unary f;
        double a, b;
    } table[] = {{"Sigmoid", SN_UNARY_SIGMOID, 0, 0},
                 {"Tanh", SN_UNARY_TANH, 0, 0},
                 {"Relu", SN_UNARY_RELU, 0, 0},
                 {"Softsign", SN_UNARY_SOFTSIGN, 0, 0},
                 {"Softplus", SN_UNARY_SOFTPLUS, 0, 0},
                 {"HardSigmoid", SN_UNARY_HARD_SIGMOID, 0.2, 0.5},
                 {"LeakyRelu", SN_UNARY_LEAKY_RELU, 0.01, 0},
                 {"Elu", SN_UNARY_ELU, 1, 0}};
    for (size_t i = 0; i < SN_COUNT(table); i++)
        if (!strcmp(table[i].name, name))
            return unary2(m, table[i].f, table[i].a, table[i].b, x);
    return onnx_fail(m, SN_ENOTSUP, "activation '%.20s' is not offered", name);
}

static item *add(importer *m, item *x, item *y)
{
    return y ? binary(m, SN_BINARY_ADD, x, y) : x;
}

static item *mul(importer *m, item *x, item *y)
{
    return binary(m, SN_BINARY_MUL, x, y);
}

/* Gate g of a row of all gates. */
static item *gate(importer *m, const cell *k, item *all, int g)
{
    return part(m, all, all ? all->shape.rank - 1 : 0, g * k->hidden, k->hidden);
}

static item *lstm_step(importer *m, const cell *k, item *x, item *h, item **c)
{
    item *all = add(m, x, add(m, matmul(m, h, k->r), k->rb)), *v[4];
    for (int g = 0; g < 4; g++)
        v[g] = gate(m, k, all, g); /* input, output, forget, cell */
    if (k->peep[0]) {
        v[0] = add(m, v[0], mul(m, k->peep[0], *c));
        v[2] = add(m, v[2], mul(m, k->peep[2], *c));
    }
    item *in = activate(m, k->act[0], v[0]), *now = activate(m, k->act[1], v[3]);
    item *keep = k->coupled ? scaled(m, in, -1, 1) : activate(m, k->act[0], v[2]);
    *c = add(m, mul(m, keep, *c), mul(m, in, now));
    if (k->peep[0])
        v[1] = add(m, v[1], mul(m, k->peep[1], *c));
    return mul(m, activate(m, k->act[0], v[1]), activate(m, k->act[2], *c));
}

static item *gru_step(importer *m, const cell *k, item *x, item *h)
{
    item *rh = add(m, matmul(m, h, k->r), k->rb);
    item *z = activate(m, k->act[0], add(m, gate(m, k, x, 0), gate(m, k, rh, 0)));
    item *r = activate(m, k->act[0], add(m, gate(m, k, x, 1), gate(m, k, rh, 1)));
    item *inner;
    if (k->reset_after) {
        inner = mul(m, r, gate(m, k, rh, 2));
    } else {
        item *rows = k->r ? part(m, k->r, 1, 2 * k->hidden, k->hidden) : NULL;
        inner = matmul(m, mul(m, r, h), rows);
        inner = k->rb ? add(m, inner, gate(m, k, k->rb, 2)) : inner;
    }
    item *now = activate(m, k->act[1], add(m, gate(m, k, x, 2), inner));
    return add(m, mul(m, scaled(m, z, -1, 1), now), mul(m, z, h));
}

/* One direction over x[T,N,·]: ret_y[T,N,H], the last h and c. */
static item *direction(importer *m, const cell *k, item *x, bool backward, item **h, item **c)
{
    item *xw = add(m, matmul(m, x, k->w), k->wb);
    item **y = SN_NEW_N(m->arena, item *, k->steps);
    for (int64_t i = 0; i < k->steps && ok(m); i++) {
        int64_t t = backward ? k->steps - 1 - i : i;
        item *now = axes_mask_squeeze(m, part(m, xw, 0, t, 1), 1), *cell_before = *c, *next;
        if (k->gates == 4)
            next = lstm_step(m, k, now, *h, c);
        else if (k->gates == 3)
            next = gru_step(m, k, now, *h);
        else
            next = activate(m, k->act[0], add(m, now, add(m, matmul(m, *h, k->r), k->rb)));
        if (k->lengths) { /* a sequence that has ended keeps its state and gives 0 */
            item *runs = binary(m, SN_BINARY_GT, k->lengths, scalar(m, SN_I32, (double) t));
            item *zero = next ? scalar(m, next->dtype, 0) : NULL;
            y[t] = where(m, runs, next, zero);
            *h = where(m, runs, next, *h);
            if (k->gates == 4)
                *c = where(m, runs, *c, cell_before);
        } else {
            y[t] = *h = next;
        }
        y[t] = unsqueeze(m, y[t], 0);
    }
    return concat(m, y, (int) k->steps, 0);
}

/* Of a tensor whose first dim is directions: that of `d`, without the dim. */
static item *of_direction(importer *m, item *x, int d)
{
    return x ? axes_mask_squeeze(m, part(m, x, 0, d, 1), 1) : NULL;
}

static bool activations(importer *m, call *c, cell *k, int each, int d)
{
    static const char *const usual[5][3] = {
        [1] = {"Tanh"}, [3] = {"Sigmoid", "Tanh"}, [4] = {"Sigmoid", "Tanh", "Tanh"}};
    const Onnx__AttributeProto *a = onnx_attr(c, m, "activations");
    if (onnx_attr(c, m, "clip") || onnx_attr(c, m, "activation_alpha"))
        return onnx_fail(m, SN_ENOTSUP, "clip and parameters of activations are not offered");
    for (int i = 0; i < each; i++) {
        size_t at = (size_t) (d * each + i);
        k->act[i] = usual[k->gates][i];
        if (!a || at >= a->n_strings)
            continue;
        char *s = SN_NEW_N(m->arena, char, a->strings[at].len + 1);
        if (a->strings[at].len)
            memcpy(s, a->strings[at].data, a->strings[at].len);
        k->act[i] = s;
    }
    return true;
}

static bool weights(importer *m, call *c, cell *k, int d)
{
    const int swap[] = {1, 0};
    int64_t all = k->gates * k->hidden;
    item *w = of_direction(m, c->in[1], d), *r = of_direction(m, c->in[2], d);
    if (!ok(m) || !w || !r || w->shape.rank != 2 || r->shape.rank != 2 || w->shape.dim[0] != all ||
        r->shape.dim[0] != all || r->shape.dim[1] != k->hidden)
        return onnx_fail(m, SN_EINVAL, "its weights do not fit %lld hidden", (long long) k->hidden);
    k->w = transpose(m, w, swap);
    k->r = transpose(m, r, swap);
    k->wb = k->rb = k->lengths = k->peep[0] = NULL;
    if (has(c, 3)) {
        item *b = of_direction(m, c->in[3], d);
        if (!b || b->shape.rank != 1 || b->shape.dim[0] != 2 * all)
            return onnx_fail(m, SN_EINVAL, "its bias does not fit");
        k->wb = part(m, b, 0, 0, all);
        k->rb = part(m, b, 0, all, all);
    }
    if (has(c, 4))
        k->lengths = unsqueeze(m, cast(m, c->in[4], SN_I32), 1);
    if (k->gates == 4 && has(c, 7)) {
        item *p = of_direction(m, c->in[7], d);
        for (int g = 0; g < 3; g++)
            k->peep[g] = p && p->shape.rank == 1 && p->shape.dim[0] == 3 * k->hidden
                             ? part(m, p, 0, g * k->hidden, k->hidden)
                             : onnx_fail(m, SN_EINVAL, "its peepholes do not fit");
    }
    return ok(m);
}

/* [N,D,H] ⇄ [D,N,H] when batches come first. */
static item *swapped(importer *m, item *x, bool swap)
{
    return x && swap && x->shape.rank == 3 ? transpose(m, x, (int[]){1, 0, 2}) : x;
}

static item *first_state(importer *m, const cell *k, item *given, int d, sn_dtype t)
{
    if (given)
        return of_direction(m, given, d);
    return expand(m, scalar(m, t, 0), SN_SHAPE(k->batch, k->hidden));
}

static void recurrent(importer *m, call *c)
{
    const char *op = c->node->op_type, *way = attr_str(m, c, "direction", "forward");
    cell k = {.gates = *op == 'L' ? 4 : *op == 'G' ? 3 : 1};
    bool first = attr_int(m, c, "layout", 0), both = !strcmp(way, "bidirectional");
    item *x = swapped(m, c->in[0], first), *y[2], *h[2], *cs[2] = {0};
    int ways = both ? 2 : 1;
    if (!x || x->shape.rank != 3 || c->in[1]->shape.rank != 3 || c->in[2]->shape.rank != 3 ||
        x->shape.dim[0] < 1 || x->shape.dim[0] > STEPS_MAX || c->in[1]->shape.dim[0] != ways ||
        c->in[2]->shape.dim[0] != ways) {
        onnx_fail(m, SN_ENOTSUP, "1 to %d steps of [steps,batch,inputs] are offered", STEPS_MAX);
        return;
    }
    k.steps = x->shape.dim[0];
    k.batch = x->shape.dim[1];
    k.hidden = c->in[2]->shape.dim[2];
    k.reset_after = attr_int(m, c, "linear_before_reset", 0);
    k.coupled = attr_int(m, c, "input_forget", 0);
    item *h0 = has(c, 5) ? swapped(m, c->in[5], first) : NULL;
    item *c0 = k.gates == 4 && has(c, 6) ? swapped(m, c->in[6], first) : NULL;
    for (int d = 0; d < ways; d++) {
        int each = k.gates == 4 ? 3 : k.gates == 3 ? 2 : 1;
        if (!activations(m, c, &k, each, d) || !weights(m, c, &k, d))
            return;
        h[d] = first_state(m, &k, h0, d, x->dtype);
        cs[d] = first_state(m, &k, c0, d, x->dtype);
        y[d] = direction(m, &k, x, d == 1 || !strcmp(way, "reverse"), &h[d], &cs[d]);
        y[d] = unsqueeze(m, y[d], 1);
        h[d] = unsqueeze(m, h[d], 0);
        cs[d] = unsqueeze(m, cs[d], 0);
    }
    item *all = concat(m, y, ways, 1);
    c->out[0] = all && first ? transpose(m, all, (int[]){2, 0, 1, 3}) : all;
    c->out[1] = swapped(m, concat(m, h, ways, 0), first);
    c->out[2] = swapped(m, concat(m, cs, ways, 0), first);
}

const row onnx_rows_rnn[] = {
    {"GRU", 7, 3, recurrent},
    {"LSTM", 7, 3, recurrent},
    {"RNN", 7, 3, recurrent},
};
const int onnx_rows_rnn_count = SN_COUNT(onnx_rows_rnn);
