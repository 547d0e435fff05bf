/* SPDX-License-Identifier: Apache-2.0
 * Backward ops against central differences of the oracle in double: for L = Σ w·y, the backward op
 * fed with w must give ∂L/∂x for every element of every input. The double oracle makes the
 * differences exact to about 1e-9, so what is compared is the kernel and nothing else. */
#include "unit/kern_ref64.h"
#include "unit/sn_test.h"

#include <stdio.h>

#define STEP 1e-5

/* ---- a forward op in double ---- */

typedef struct forward {
    sn_kernel_spec spec;
    void *in[SN_OP_IN_MAX]; /* double, or int32_t */
    double *out[SN_OP_OUT_MAX];
    int weighed; /* outputs [0, weighed) enter L */
} forward;

static void *cells(sn_shape shape, uint64_t stream, sn_dtype dtype)
{
    int64_t n = sn_shape_count(shape);
    double *x = sn_alloc((size_t) (n + 1) * sizeof *x);
    for (int64_t i = 0; i < n; i++) {
        if (dtype == SN_I32)
            ((int32_t *) (void *) x)[i] = (int32_t) (sn_hash64(3, stream, (uint64_t) i) % 8) - 1;
        else /* representable in f32, so that both oracles see the same */
            x[i] = (float) sn_hash_normal(3, stream, (uint64_t) i);
    }
    return x;
}

static void forward_init(forward *f)
{
    for (int i = 0; i < f->spec.ins; i++)
        if (!f->spec.in[i].absent)
            f->in[i] = cells(f->spec.in[i].shape, (uint64_t) i, f->spec.in[i].dtype);
    for (int o = 0; o < f->spec.outs; o++)
        f->out[o] = cells(f->spec.out[o].shape, 50, SN_F32);
}

static void forward_done(forward *f)
{
    for (int i = 0; i < SN_OP_IN_MAX; i++)
        free(f->in[i]);
    for (int o = 0; o < SN_OP_OUT_MAX; o++)
        free(f->out[o]);
}

static void run64(const sn_kernel_spec *spec, void *const *in, void *const *out)
{
    const kern_impl *impl = &ref64_impls()[spec->op];
    sn_kernel k = {.spec = *spec, .impl = impl};
    const void *const_in[SN_OP_IN_MAX];
    for (int i = 0; i < SN_OP_IN_MAX; i++)
        const_in[i] = in[i];
    assert_ok(kern_check(spec, &k.d));
    if (impl->prepare)
        assert_ok(impl->prepare(&k));
    void *work = sn_alloc(k.work_bytes + 1);
    assert_ok(impl->run(&k, const_in, out, work));
    free(work);
}

static double weight(int o, int64_t i)
{
    return (float) sn_hash_normal(3, 90 + (uint64_t) o, (uint64_t) i);
}

static double loss(const forward *f)
{
    double sum = 0;
    run64(&f->spec, f->in, (void *const *) f->out);
    for (int o = 0; o < f->weighed; o++)
        for (int64_t i = 0; i < sn_shape_count(f->spec.out[o].shape); i++)
            sum += weight(o, i) * f->out[o][i];
    return sum;
}

/* ---- the backward op in f32, and the comparison ---- */

static float *to_f32(const double *x, sn_shape shape)
{
    int64_t n = sn_shape_count(shape);
    float *y = sn_alloc((size_t) (n + 1) * sizeof *y);
    for (int64_t i = 0; i < n; i++)
        y[i] = (float) x[i];
    return y;
}

static float *weights(sn_shape shape)
{
    int64_t n = sn_shape_count(shape);
    float *y = sn_alloc((size_t) (n + 1) * sizeof *y);
    for (int64_t i = 0; i < n; i++)
        y[i] = (float) weight(0, i);
    return y;
}

typedef double (*loss_fn)(const forward *f);

static void check_input(const char *what, const forward *f, loss_fn l, int input, const float *got)
{
    double *x = f->in[input], square = 0;
    int64_t n = sn_shape_count(f->spec.in[input].shape);
    double *want = sn_alloc((size_t) n * sizeof *want);
    for (int64_t i = 0; i < n; i++) {
        double old = x[i];
        x[i] = old + STEP;
        double up = l(f);
        x[i] = old - STEP;
        double down = l(f);
        x[i] = old;
        want[i] = (up - down) / (2 * STEP);
        square += want[i] * want[i];
    }
    double rms = sqrt(square / (double) n);
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= 1e-5 * fabs(want[i]) + 1e-5 * rms + 1e-8))
            fail_msg("%s: input %d [%lld]: %.9g, differences say %.9g", what, input, (long long) i,
                     (double) got[i], want[i]);
    free(want);
}

static void run_f32(const char *kind, const sn_kernel_spec *spec, const void *const *in,
                    void *const *out)
{
    sn_card *card;
    sn_kernel *k;
    assert_ok(sn_card_open(kind, NULL, &card));
    assert_ok(sn_card_prepare(card, spec, &k));
    assert_ok(sn_kernel_run(k, in, out));
    sn_card_close(card);
}

static const char *const kinds[] = {"cpu", "ref"};

#define F32(...)                                                                                   \
    {                                                                                              \
        SN_F32, SN_SHAPE(__VA_ARGS__), false                                                       \
    }
#define I32(...)                                                                                   \
    {                                                                                              \
        SN_I32, SN_SHAPE(__VA_ARGS__), false                                                       \
    }

/* ---- one test a family ---- */

static void test_embedding(void **state)
{
    forward f = {.weighed = 1,
                 .spec = {.op = SN_OP_EMBEDDING,
                          .attr = {.begin = 1},
                          .ins = 2,
                          .outs = 1,
                          .in = {F32(5, 7), I32(4, 3)},
                          .out = {F32(4, 3, 7)}}};
    sn_kernel_spec grad = {.op = SN_OP_EMBEDDING_GRAD,
                           .attr = {.i = {5}, .begin = 1},
                           .ins = 2,
                           .outs = 1,
                           .in = {I32(4, 3), F32(4, 3, 7)},
                           .out = {F32(5, 7)}};
    forward_init(&f);
    float *dy = weights(f.spec.out[0].shape), got[35];
    for (size_t c = 0; c < SN_COUNT(kinds); c++) {
        run_f32(kinds[c], &grad, (const void *[]){f.in[1], dy}, (void *[]){got});
        check_input("embedding", &f, loss, 0, got);
    }
    free(dy);
    forward_done(&f);
}

/* The gradient of add's broadcast operand is sum_to. */
static void test_add(void **state)
{
    forward f = {.weighed = 1,
                 .spec = {.op = SN_OP_ADD,
                          .ins = 2,
                          .outs = 1,
                          .in = {F32(4, 3, 7), F32(3, 1)},
                          .out = {F32(4, 3, 7)}}};
    sn_kernel_spec grad = {.op = SN_OP_SUM_TO,
                           .attr = {.shape = SN_SHAPE(3, 1)},
                           .ins = 1,
                           .outs = 1,
                           .in = {F32(4, 3, 7)},
                           .out = {F32(3, 1)}};
    forward_init(&f);
    float *dy = weights(f.spec.out[0].shape), got[3];
    for (size_t c = 0; c < SN_COUNT(kinds); c++) {
        run_f32(kinds[c], &grad, (const void *[]){dy}, (void *[]){got});
        check_input("add", &f, loss, 1, got);
    }
    free(dy);
    forward_done(&f);
}

static void test_layer_norm(void **state)
{
    enum { N = 19 };
    forward f = {.weighed = 1,
                 .spec = {.op = SN_OP_LAYER_NORM,
                          .attr = {.f = {1e-3}},
                          .ins = 3,
                          .outs = 3,
                          .in = {F32(3, 2, N), F32(N), F32(N)},
                          .out = {F32(3, 2, N), F32(3, 2), F32(3, 2)}}};
    sn_kernel_spec grad = {.op = SN_OP_LAYER_NORM_GRAD,
                           .ins = 5,
                           .outs = 3,
                           .in = {F32(3, 2, N), F32(3, 2, N), F32(N), F32(3, 2), F32(3, 2)},
                           .out = {F32(3, 2, N), F32(N), F32(N)}};
    forward_init(&f);
    loss(&f);
    float *dy = weights(f.spec.out[0].shape), *x = to_f32(f.in[0], f.spec.in[0].shape);
    float *g = to_f32(f.in[1], f.spec.in[1].shape), *mean = to_f32(f.out[1], f.spec.out[1].shape);
    float *rstd = to_f32(f.out[2], f.spec.out[2].shape), dx[6 * N], dg[N], db[N];
    for (size_t c = 0; c < SN_COUNT(kinds); c++) {
        run_f32(kinds[c], &grad, (const void *[]){dy, x, g, mean, rstd}, (void *[]){dx, dg, db});
        check_input("layer_norm", &f, loss, 0, dx);
        check_input("layer_norm", &f, loss, 1, dg);
        check_input("layer_norm", &f, loss, 2, db);
    }
    /* With ds: the gradient that reaches x along the residual path is added. */
    grad.ins = 6;
    grad.in[5].dtype = SN_F32;
    grad.in[5].shape = SN_SHAPE(3, 2, N);
    float plus[6 * N];
    run_f32("cpu", &grad, (const void *[]){dy, x, g, mean, rstd, dy}, (void *[]){plus, dg, db});
    run_f32("ref", &grad, (const void *[]){dy, x, g, mean, rstd, dy}, (void *[]){dx, dg, db});
    for (int i = 0; i < 6 * N; i++)
        assert_true(fabsf(plus[i] - dx[i]) <= 1e-5f * (1 + fabsf(dx[i])));
    free(dy), free(x), free(g), free(mean), free(rstd);
    forward_done(&f);
}

static void test_linear(void **state)
{
    forward f = {.weighed = 1,
                 .spec = {.op = SN_OP_LINEAR,
                          .attr = {.i = {2}},
                          .ins = 3,
                          .outs = 1,
                          .in = {F32(5, 3, 7), F32(2, 9, 3, 7), F32(2, 9)},
                          .out = {F32(5, 2, 9)}}};
    sn_kernel_spec dx = {.op = SN_OP_LINEAR_DX,
                         .attr = {.i = {2, 2}},
                         .ins = 2,
                         .outs = 1,
                         .in = {F32(5, 2, 9), F32(2, 9, 3, 7)},
                         .out = {F32(5, 3, 7)}};
    sn_kernel_spec dw = {.op = SN_OP_LINEAR_DW,
                         .attr = {.i = {2, 2}},
                         .ins = 2,
                         .outs = 1,
                         .in = {F32(5, 2, 9), F32(5, 3, 7)},
                         .out = {F32(2, 9, 3, 7)}};
    sn_kernel_spec db = {.op = SN_OP_SUM_TO,
                         .attr = {.shape = SN_SHAPE(2, 9)},
                         .ins = 1,
                         .outs = 1,
                         .in = {F32(5, 2, 9)},
                         .out = {F32(2, 9)}};
    forward_init(&f);
    float *dy = weights(f.spec.out[0].shape), *x = to_f32(f.in[0], f.spec.in[0].shape);
    float *w = to_f32(f.in[1], f.spec.in[1].shape), got[18 * 21];
    for (size_t c = 0; c < SN_COUNT(kinds); c++) {
        run_f32(kinds[c], &dx, (const void *[]){dy, w}, (void *[]){got});
        check_input("linear", &f, loss, 0, got);
        run_f32(kinds[c], &dw, (const void *[]){dy, x}, (void *[]){got});
        check_input("linear", &f, loss, 1, got);
        run_f32(kinds[c], &db, (const void *[]){dy}, (void *[]){got});
        check_input("linear", &f, loss, 2, got);
    }
    free(dy), free(x), free(w);
    forward_done(&f);
}

static void attention_case(int64_t t, int64_t b, int64_t h, int64_t e, int64_t causal)
{
    sn_shape qkv = SN_SHAPE(t, b, h, 3, e), o = SN_SHAPE(t, b, h, e), lse = SN_SHAPE(b, h, t);
    forward f = {.weighed = 1,
                 .spec = {.op = SN_OP_ATTENTION,
                          .attr = {.i = {causal}, .f = {0.4}},
                          .ins = 1,
                          .outs = 2,
                          .in = {{SN_F32, qkv, false}},
                          .out = {{SN_F32, o, false}, {SN_F32, lse, false}}}};
    sn_kernel_spec grad = {
        .op = SN_OP_ATTENTION_GRAD,
        .attr = f.spec.attr,
        .ins = 4,
        .outs = 1,
        .in = {{SN_F32, o, false}, {SN_F32, qkv, false}, {SN_F32, o, false}, {SN_F32, lse, false}},
        .out = {{SN_F32, qkv, false}}};
    forward_init(&f);
    loss(&f);
    float *dy = weights(o), *x = to_f32(f.in[0], qkv), *y = to_f32(f.out[0], o);
    float *l = to_f32(f.out[1], lse), *got = to_f32(f.in[0], qkv);
    for (size_t c = 0; c < SN_COUNT(kinds); c++) {
        run_f32(kinds[c], &grad, (const void *[]){dy, x, y, l}, (void *[]){got});
        check_input("attention", &f, loss, 0, got);
    }
    free(dy), free(x), free(y), free(l), free(got);
    forward_done(&f);
}

static void test_attention(void **state)
{
    attention_case(7, 2, 2, 5, 1);
    attention_case(7, 1, 2, 5, 0);
    attention_case(53, 1, 1, 3, 1); /* more than one block of queries */
    attention_case(50, 1, 1, 2, 0);
}

static void test_bias_gelu(void **state)
{
    for (int64_t form = 0; form < 2; form++) {
        forward f = {.weighed = 1,
                     .spec = {.op = SN_OP_BIAS_GELU,
                              .attr = {.i = {form}},
                              .ins = 2,
                              .outs = 1,
                              .in = {F32(11, 19), F32(19)},
                              .out = {F32(11, 19)}}};
        sn_kernel_spec grad = {.op = SN_OP_BIAS_GELU_GRAD,
                               .attr = {.i = {form}},
                               .ins = 3,
                               .outs = 1,
                               .in = {F32(11, 19), F32(11, 19), F32(19)},
                               .out = {F32(11, 19)}};
        forward_init(&f);
        for (int i = 0; i < 11 * 19; i++) /* reach into the tails */
            ((double *) f.in[0])[i] = (float) (((double *) f.in[0])[i] * 2.5);
        float *dy = weights(f.spec.out[0].shape), *x = to_f32(f.in[0], f.spec.in[0].shape);
        float *b = to_f32(f.in[1], f.spec.in[1].shape), dx[11 * 19], db[19] = {0};
        for (size_t c = 0; c < SN_COUNT(kinds); c++) {
            run_f32(kinds[c], &grad, (const void *[]){dy, x, b}, (void *[]){dx});
            check_input("bias_gelu", &f, loss, 0, dx);
            memset(db, 0, sizeof db);
            for (int i = 0; i < 11 * 19; i++)
                db[i % 19] += dx[i];
            check_input("bias_gelu", &f, loss, 1, db);
        }
        free(dy), free(x), free(b);
        forward_done(&f);
    }
}

/* Cross-entropy is three ops: row_max, xent_sums, xent_loss. in[0] of `f` are the logits. */
enum { ROWS = 6, VOCAB = 11 };

static double xent(const forward *f)
{
    double m[ROWS], s[2 * ROWS], l;
    sn_kernel_spec max = {
        .op = SN_OP_ROW_MAX, .ins = 1, .outs = 1, .in = {F32(ROWS, VOCAB)}, .out = {F32(ROWS)}};
    sn_kernel_spec sums = {.op = SN_OP_XENT_SUMS,
                           .ins = 3,
                           .outs = 1,
                           .in = {F32(ROWS, VOCAB), I32(ROWS), F32(ROWS)},
                           .out = {F32(ROWS, 2)}};
    sn_kernel_spec end = {.op = SN_OP_XENT_LOSS,
                          .attr = {.f = {0.3}},
                          .ins = 3,
                          .outs = 1,
                          .in = {F32(ROWS), F32(ROWS, 2), I32(ROWS)},
                          .out = {{SN_F32, {0}, false}}};
    run64(&max, (void *[SN_OP_IN_MAX]){f->in[0]}, (void *[]){m});
    run64(&sums, (void *[SN_OP_IN_MAX]){f->in[0], f->in[1], m}, (void *[]){s});
    run64(&end, (void *[SN_OP_IN_MAX]){m, s, f->in[1]}, (void *[]){&l});
    return l;
}

static void test_xent(void **state)
{
    forward f = {.spec = {.ins = 2, .in = {F32(ROWS, VOCAB), I32(ROWS)}}};
    forward_init(&f);
    int32_t *target = f.in[1];
    target[0] = -1; /* ignored */
    target[1] = VOCAB - 1;
    float *x = to_f32(f.in[0], f.spec.in[0].shape), m[ROWS], s[2 * ROWS], got[ROWS * VOCAB];
    sn_kernel_spec grad = {.op = SN_OP_XENT_GRAD,
                           .attr = {.f = {0.3}},
                           .ins = 4,
                           .outs = 1,
                           .in = {F32(ROWS, VOCAB), I32(ROWS), F32(ROWS), F32(ROWS, 2)},
                           .out = {F32(ROWS, VOCAB)}};
    for (int r = 0; r < ROWS; r++) {
        double sum = 0;
        m[r] = -INFINITY;
        for (int v = 0; v < VOCAB; v++)
            m[r] = fmaxf(m[r], x[r * VOCAB + v]);
        for (int v = 0; v < VOCAB; v++)
            sum += exp((double) x[r * VOCAB + v] - m[r]);
        s[2 * r] = (float) sum;
        s[2 * r + 1] = 0;
    }
    for (size_t c = 0; c < SN_COUNT(kinds); c++) {
        run_f32(kinds[c], &grad, (const void *[]){x, target, m, s}, (void *[]){got});
        check_input("xent", &f, xent, 0, got);
    }
    free(x);
    forward_done(&f);
}

/* A vocabulary cut in two gives the sums, the loss and the gradient of the whole one. */
static void test_xent_split(void **state)
{
    float x[ROWS * VOCAB], part[2][ROWS * VOCAB], m[ROWS], s[2 * ROWS], sum[2 * ROWS] = {0};
    float whole[ROWS * VOCAB], got[ROWS * VOCAB];
    int32_t target[ROWS] = {-1, 0, 3, 4, 10, 7};
    const int64_t cut[3] = {0, 4, VOCAB};
    for (int i = 0; i < ROWS * VOCAB; i++)
        x[i] = (float) sn_hash_normal(5, 0, (uint64_t) i);
    for (int r = 0; r < ROWS; r++)
        for (int v = 0; v < VOCAB; v++)
            m[r] = v ? fmaxf(m[r], x[r * VOCAB + v]) : x[r * VOCAB];
    for (int pass = 0; pass < 2; pass++) {
        for (int p = 0; p < 2; p++) {
            int64_t n = cut[p + 1] - cut[p];
            sn_kernel_spec sums = {.op = SN_OP_XENT_SUMS,
                                   .attr = {.begin = cut[p]},
                                   .ins = 3,
                                   .outs = 1,
                                   .in = {F32(ROWS, n), I32(ROWS), F32(ROWS)},
                                   .out = {F32(ROWS, 2)}};
            sn_kernel_spec grad = {.op = SN_OP_XENT_GRAD,
                                   .attr = {.f = {0.5}, .begin = cut[p]},
                                   .ins = 4,
                                   .outs = 1,
                                   .in = {F32(ROWS, n), I32(ROWS), F32(ROWS), F32(ROWS, 2)},
                                   .out = {F32(ROWS, n)}};
            for (int r = 0; r < ROWS; r++)
                memcpy(part[p] + r * n, x + r * VOCAB + cut[p], (size_t) n * sizeof(float));
            if (pass == 0) {
                run_f32("cpu", &sums, (const void *[]){part[p], target, m}, (void *[]){s});
                for (int i = 0; i < 2 * ROWS; i++)
                    sum[i] += s[i];
                continue;
            }
            run_f32("cpu", &grad, (const void *[]){part[p], target, m, sum}, (void *[]){got});
            for (int r = 0; r < ROWS; r++)
                memcpy(whole + r * VOCAB + cut[p], got + r * n, (size_t) n * sizeof(float));
        }
    }
    for (int r = 1; r < ROWS; r++)
        assert_true(sum[2 * r + 1] == x[r * VOCAB + target[r]]);
    sn_kernel_spec all = {.op = SN_OP_XENT_GRAD,
                          .attr = {.f = {0.5}},
                          .ins = 4,
                          .outs = 1,
                          .in = {F32(ROWS, VOCAB), I32(ROWS), F32(ROWS), F32(ROWS, 2)},
                          .out = {F32(ROWS, VOCAB)}};
    run_f32("ref", &all, (const void *[]){x, target, m, sum}, (void *[]){got});
    for (int i = 0; i < ROWS * VOCAB; i++)
        assert_true(fabsf(whole[i] - got[i]) < 1e-6f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embedding),  cmocka_unit_test(test_add),
        cmocka_unit_test(test_layer_norm), cmocka_unit_test(test_linear),
        cmocka_unit_test(test_attention),  cmocka_unit_test(test_bias_gelu),
        cmocka_unit_test(test_xent),       cmocka_unit_test(test_xent_split),
    };
    return sn_test_run(tests);
}
