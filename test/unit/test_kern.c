/* SPDX-License-Identifier: Apache-2.0
 * Every case of the table: each vector width against the oracle, in F32 and BF16; then what a card
 * promises around its kernels. Seeds are fixed: a failure repeats. */
#include "kern/cpu/kernels.h"
#include "unit/kern_cases.h"
#include "unit/sn_test.h"

#include <math.h>
#include <stdio.h>

typedef struct operand {
    void *block, *data; /* data is not aligned to more than its element */
    sn_dtype dtype;
    int64_t count;
} operand;

static void parse_words(const char *text, int max, int *ret_n, char *kind, sn_shape *shape)
{
    *ret_n = 0;
    while (*text) {
        assert_true(*ret_n < max);
        kind[*ret_n] = *text++;
        sn_shape s = {0};
        while (*text && *text != ' ') {
            s.dim[s.rank++] = strtoll(text, (char **) &text, 10);
            text += *text == ',';
        }
        text += *text == ' ';
        shape[(*ret_n)++] = s;
    }
}

typedef struct parsed {
    sn_kernel_spec spec;
    char in[SN_OP_IN_MAX], out[SN_OP_OUT_MAX];
} parsed;

static parsed parse_case(const kern_case *c)
{
    parsed p = {.spec = {.op = c->op, .attr = c->attr, .accumulate = c->adds}};
    sn_shape shape[SN_OP_IN_MAX];
    parse_words(c->ins, SN_OP_IN_MAX, &p.spec.ins, p.in, shape);
    for (int i = 0; i < p.spec.ins; i++) {
        p.spec.in[i].absent = p.in[i] == '-';
        p.spec.in[i].dtype = strchr("ied", p.in[i]) ? SN_I32 : SN_F32;
        p.spec.in[i].shape = shape[i];
    }
    parse_words(c->outs, SN_OP_OUT_MAX, &p.spec.outs, p.out, shape);
    for (int o = 0; o < p.spec.outs; o++) {
        p.spec.out[o].dtype = p.out[o] == 'i' ? SN_I32 : SN_F32;
        p.spec.out[o].shape = shape[o];
    }
    return p;
}

/* Integers by what they mean. */
static int32_t integer(char kind, sn_shape shape, uint64_t stream, int64_t i)
{
    uint64_t random = sn_hash64(7, stream, (uint64_t) i);
    int64_t each = shape.rank ? shape.dim[shape.rank - 1] : 1, row = i / each;
    if (kind == 'e') /* a walk through 0 … 4 from a place of the row's own */
        return (int32_t) ((sn_hash64(7, stream, (uint64_t) row) + (uint64_t) (i % each)) % 5);
    if (kind == 'd') /* no place twice within a sample: [T,B,k], b changes fastest but one */
        return random % 5 == 0 ? -1 : (int32_t) (row / shape.dim[shape.rank - 2] * each + i % each);
    return (int32_t) (random % 11) - 1;
}

static operand operand_make(char kind, sn_dtype dtype, sn_shape shape, uint64_t stream)
{
    static const double hyper[8] = {1e-2, 0.9, 0.99, 1e-8, 0.1, 2, 3, 0.7};
    operand op = {.dtype = dtype, .count = sn_shape_count(shape)};
    size_t bytes = sn_dtype_bytes(dtype);
    op.block = malloc((size_t) (op.count + 1) * bytes);
    op.data = (char *) op.block + bytes;
    for (int64_t i = 0; i < op.count; i++) {
        double x = sn_hash_normal(7, stream, (uint64_t) i);
        if (kind == 'p')
            x = 0.1 + fabs(x);
        if (kind == 'h')
            x = hyper[i % 8];
        if (dtype == SN_I32)
            ((int32_t *) op.data)[i] = integer(kind, shape, stream, i);
        else if (dtype == SN_BF16)
            ((uint16_t *) op.data)[i] = sn_f32_to_bf16((float) x);
        else
            ((float *) op.data)[i] = (float) x;
    }
    return op;
}

static double operand_at(const operand *op, int64_t i)
{
    if (op->dtype == SN_BF16)
        return sn_bf16_to_f32(((uint16_t *) op->data)[i]);
    if (op->dtype == SN_I32)
        return ((int32_t *) op->data)[i];
    return ((float *) op->data)[i];
}

typedef struct result {
    int outs;
    operand out[SN_OP_OUT_MAX];
} result;

static void result_free(result *r)
{
    for (int o = 0; o < r->outs; o++)
        free(r->out[o].block);
}

static result run_case(sn_card *card, const parsed *p)
{
    sn_kernel *k;
    result r = {.outs = p->spec.outs};
    operand given[SN_OP_IN_MAX] = {0};
    const void *in[SN_OP_IN_MAX] = {0};
    void *out[SN_OP_OUT_MAX];
    for (int i = 0; i < p->spec.ins; i++) {
        if (p->spec.in[i].absent)
            continue;
        given[i] = operand_make(p->in[i], p->spec.in[i].dtype, p->spec.in[i].shape, (uint64_t) i);
        in[i] = given[i].data;
    }
    for (int o = 0; o < r.outs; o++) {
        r.out[o] =
            operand_make(p->out[o], p->spec.out[o].dtype, p->spec.out[o].shape, 100 + (uint64_t) o);
        out[o] = r.out[o].data;
    }
    assert_ok(sn_card_prepare(card, &p->spec, &k));
    assert_ok(sn_kernel_run(k, in, out));
    for (int i = 0; i < p->spec.ins; i++)
        free(given[i].block);
    return r;
}

static void compare(const parsed *p, const char *name, const result *got, const result *want)
{
    sn_str text = {0};
    kern_spec_text(&p->spec, &text);
    for (int o = 0; o < want->outs; o++) {
        const operand *g = &got->out[o], *w = &want->out[o];
        double square = 0, tolerance = w->dtype == SN_BF16 ? 1.0 / 120 : 2e-6;
        for (int64_t i = 0; i < w->count; i++)
            square += operand_at(w, i) * operand_at(w, i);
        double rms = sqrt(square / (double) SN_MAX(w->count, 1));
        for (int64_t i = 0; i < w->count; i++) {
            double a = operand_at(g, i), b = operand_at(w, i);
            double room = tolerance * fabs(b) + 1e-5 * rms + 1e-30;
            if (!(fabs(a - b) <= room))
                fail_msg("%s: %s: output %d [%lld]: %.9g, the oracle says %.9g", name,
                         sn_str_get(&text), o, (long long) i, a, b);
        }
    }
    sn_str_done(&text);
}

/* The BF16 forms of a case: bit 0 turns F32 inputs, bit 1 outputs, where that is allowed. */
static bool to_bf16(parsed *p, int form)
{
    bool changed = form == 0;
    for (int i = 0; i < p->spec.ins && (form & 1); i++) {
        if (p->spec.in[i].dtype != SN_F32 || p->spec.op == SN_OP_SUM_SQUARES ||
            (p->spec.op == SN_OP_ADAMW && i > 0))
            continue;
        p->spec.in[i].dtype = SN_BF16;
        changed = true;
    }
    for (int o = 0; o < p->spec.outs && (form & 2); o++) {
        if ((p->spec.accumulate >> o & 1) || p->spec.out[o].dtype != SN_F32 ||
            p->spec.op == SN_OP_SUM_SQUARES || (p->spec.op == SN_OP_ADAMW && o < 3))
            continue;
        p->spec.out[o].dtype = SN_BF16;
        changed = true;
    }
    return changed;
}

static sn_card *isa_card(const cpu_isa *isa)
{
    sn_card *card;
    assert_ok(cpu_isa_open(isa, &(sn_card_opts){.threads = 1}, &card));
    return card;
}

static void test_against_ref(void **state)
{
    const cpu_isa *isas[3];
    int widths = cpu_isas(isas);
    bool seen[SN_OP_COUNT] = {0};
    sn_card *ref;
    assert_ok(sn_card_open("ref", NULL, &ref));
    for (int w = 0; w < widths; w++) {
        sn_card *card = isa_card(isas[w]);
        for (size_t c = 0; c < SN_COUNT(kern_cases); c++) {
            seen[kern_cases[c].op] = true;
            for (int form = 0; form < 4; form++) {
                parsed p = parse_case(&kern_cases[c]);
                if (!to_bf16(&p, form))
                    continue;
                result want = run_case(ref, &p), got = run_case(card, &p);
                compare(&p, isas[w]->name, &got, &want);
                result again = run_case(card, &p);
                for (int o = 0; o < got.outs; o++)
                    assert_memory_equal(got.out[o].data, again.out[o].data,
                                        (size_t) got.out[o].count *
                                            sn_dtype_bytes(got.out[o].dtype));
                result_free(&want);
                result_free(&got);
                result_free(&again);
            }
        }
        sn_card_close(card);
    }
    for (int op = 0; op < SN_OP_COUNT; op++)
        if (!seen[op] && isas[0]->impl[op].run != kern_ref_impls()[op].run)
            fail_msg("no case for %s", kern_op_name((sn_op) op));
    sn_card_close(ref);
}

/* Values at which approximations break: far tails, denormals, infinities. */
static void test_gelu_tails(void **state)
{
    enum { N = 4001 };
    static float x[N], zero[N], y[N], want[N];
    const cpu_isa *isas[3];
    int widths = cpu_isas(isas);
    sn_kernel_spec spec = {.op = SN_OP_BIAS_GELU,
                           .ins = 2,
                           .outs = 1,
                           .in = {{SN_F32, SN_SHAPE(N), 0}, {SN_F32, SN_SHAPE(N), 0}},
                           .out = {{SN_F32, SN_SHAPE(N), 0}}};
    for (int i = 0; i < N; i++)
        x[i] = (float) (i - 2000) / 100; /* −20 … 20 */
    for (int w = 0; w < widths; w++) {
        for (int form = 0; form < 2; form++) {
            sn_card *card = isa_card(isas[w]), *ref;
            sn_kernel *k;
            spec.attr.i[0] = form;
            assert_ok(sn_card_open("ref", NULL, &ref));
            assert_ok(sn_card_prepare(ref, &spec, &k));
            assert_ok(sn_kernel_run(k, (const void *[]){x, zero}, (void *[]){want}));
            assert_ok(sn_card_prepare(card, &spec, &k));
            assert_ok(sn_kernel_run(k, (const void *[]){x, zero}, (void *[]){y}));
            for (int i = 0; i < N; i++) {
                /* e^(−a) turns a relative error of a into a times as large a one. */
                double z = fabs((double) x[i]), a = z * z / 2;
                if (form == 1)
                    a = 1.596 * z * (1 + 0.044715 * z * z);
                double room = fabs((double) want[i]) * (1e-6 + 2.5e-7 * a) + 1e-37;
                if (!(fabs((double) y[i] - want[i]) <= room))
                    fail_msg("%s: gelu(%g) = %.9g, not %.9g", isas[w]->name, (double) x[i],
                             (double) y[i], (double) want[i]);
            }
            sn_card_close(card);
            sn_card_close(ref);
        }
    }
}

/* The gradient of a maximum goes to the oracle's place among equal ones, infinities and NaNs. */
static void test_max_pool_places(void **state)
{
    enum { SIDE = 9, OUT = 5, C = 19, IN = SIDE * SIDE * C };
    static const float values[] = {-INFINITY, -1, 0, 1, INFINITY, NAN};
    static float x[IN], dy[OUT * OUT * C], dx[IN], want[IN];
    const cpu_isa *isas[3];
    int widths = cpu_isas(isas);
    sn_kernel_spec spec = {
        .op = SN_OP_MAX_POOL_GRAD,
        .ins = 2,
        .outs = 1,
        .in = {{SN_F32, SN_SHAPE(1, OUT, OUT, C), 0}, {SN_F32, SN_SHAPE(1, SIDE, SIDE, C), 0}},
        .out = {{SN_F32, SN_SHAPE(1, SIDE, SIDE, C), 0}},
        .attr = {.i = {3, 3, 0, 2, 2, 0, 0, 0, 0, 1, 1, 0, 1, 1}}};
    for (int w = 0; w < widths; w++)
        for (uint64_t seed = 0; seed < 8; seed++) {
            sn_card *card = isa_card(isas[w]), *ref;
            sn_kernel *k;
            for (uint64_t i = 0; i < IN; i++) /* no NaN, few values of any kind, all kinds */
                x[i] = values[sn_hash64(seed, 1, i) % (seed < 4 ? 3 + seed % 3 : 6)];
            for (int i = 0; i < OUT * OUT * C; i++)
                dy[i] = (float) (1 + i % 7); /* whole numbers: sums are exact */
            assert_ok(sn_card_open("ref", NULL, &ref));
            assert_ok(sn_card_prepare(ref, &spec, &k));
            assert_ok(sn_kernel_run(k, (const void *[]){dy, x}, (void *[]){want}));
            assert_ok(sn_card_prepare(card, &spec, &k));
            assert_ok(sn_kernel_run(k, (const void *[]){dy, x}, (void *[]){dx}));
            for (int i = 0; i < IN; i++)
                if (!(dx[i] >= want[i] && dx[i] <= want[i]))
                    fail_msg("%s: seed %d, element %d has %g, not %g", isas[w]->name, (int) seed, i,
                             (double) dx[i], (double) want[i]);
            sn_card_close(card);
            sn_card_close(ref);
        }
}

/* A NaN anywhere in the floating-point inputs must be seen in the outputs. */
static void test_nan_passes(void **state)
{
    static const sn_op ops[] = {SN_OP_ADD,       SN_OP_RESIDUAL,  SN_OP_LAYER_NORM, SN_OP_LINEAR,
                                SN_OP_LINEAR_DX, SN_OP_LINEAR_DW, SN_OP_ATTENTION,  SN_OP_BIAS_GELU,
                                SN_OP_SUM_TO,    SN_OP_XENT_SUMS, SN_OP_SUM_SQUARES};
    const cpu_isa *isas[3];
    int widths = cpu_isas(isas);
    for (int w = 0; w < widths; w++) {
        sn_card *card = isa_card(isas[w]);
        for (size_t c = 0; c < SN_COUNT(kern_cases); c++) {
            bool listed = false;
            for (size_t i = 0; i < SN_COUNT(ops); i++)
                listed |= ops[i] == kern_cases[c].op;
            parsed p = parse_case(&kern_cases[c]);
            int64_t n = sn_shape_count(p.spec.in[0].shape);
            if (!listed || n == 0)
                continue;
            operand in[SN_OP_IN_MAX] = {0}, out[SN_OP_OUT_MAX] = {0};
            const void *ins[SN_OP_IN_MAX] = {0};
            void *outs[SN_OP_OUT_MAX] = {0};
            for (int i = 0; i < p.spec.ins; i++)
                if (!p.spec.in[i].absent) {
                    in[i] = operand_make(p.in[i], p.spec.in[i].dtype, p.spec.in[i].shape, 1);
                    ins[i] = in[i].data;
                }
            for (int o = 0; o < p.spec.outs; o++) {
                out[o] = operand_make('f', SN_F32, p.spec.out[o].shape, 2);
                outs[o] = out[o].data;
            }
            union {
                uint32_t u;
                float f;
            } nan = {0x7f800001}; /* signalling, low payload */
            ((float *) in[0].data)[n / 2] = nan.f;
            sn_kernel *k;
            assert_ok(sn_card_prepare(card, &p.spec, &k));
            assert_ok(sn_kernel_run(k, ins, outs));
            bool found = false;
            for (int64_t i = 0; i < out[0].count; i++)
                found |= isnan(((float *) out[0].data)[i]);
            if (!found && out[0].count)
                fail_msg("%s: %s hides a NaN", isas[w]->name, kern_op_name(p.spec.op));
            for (int i = 0; i < SN_OP_IN_MAX; i++)
                free(in[i].block);
            for (int o = 0; o < SN_OP_OUT_MAX; o++)
                free(out[o].block);
        }
        sn_card_close(card);
    }
}

static void test_adamw_skips(void **state)
{
    float g[3] = {1, 2, 3}, hyper[8] = {0.1f, 0.9f, 0.99f, 1e-8f, 0.1f, 1, 1, 1};
    float norm2 = INFINITY, master[3] = {1, 2, 3}, m[3] = {0}, v[3] = {0};
    uint16_t p[3] = {11, 12, 13};
    static const char *const kinds[] = {"cpu", "ref"};
    for (int i = 0; i < 2; i++) {
        sn_card *card;
        sn_kernel *k;
        sn_shape n = SN_SHAPE(3);
        sn_kernel_spec spec = {
            .op = SN_OP_ADAMW,
            .ins = 3,
            .outs = 4,
            .in = {{SN_F32, n, 0}, {SN_F32, SN_SHAPE(8), 0}, {SN_F32, SN_SHAPE(1), 0}},
            .out = {{SN_F32, n, 0}, {SN_F32, n, 0}, {SN_F32, n, 0}, {SN_BF16, n, 0}}};
        assert_ok(sn_card_open(kinds[i], NULL, &card));
        assert_ok(sn_card_prepare(card, &spec, &k));
        assert_ok(
            sn_kernel_run(k, (const void *[]){g, hyper, &norm2}, (void *[]){master, m, v, p}));
        assert_true(master[1] == 2 && m[1] == 0 && v[1] == 0 && p[1] == 12);
        sn_card_close(card);
    }
}

static void test_any_type_moves(void **state)
{
    uint8_t in[6] = {1, 2, 3, 4, 5, 6}, out[6] = {0};
    sn_card *card;
    sn_kernel *k;
    sn_kernel_spec spec = {.op = SN_OP_PACK,
                           .attr = {.i = {3, 2, 1, 1}},
                           .ins = 1,
                           .outs = 1,
                           .in = {{SN_U8, SN_SHAPE(3, 2), 0}},
                           .out = {{SN_U8, SN_SHAPE(2, 3), 0}}};
    assert_ok(sn_card_open("cpu", NULL, &card));
    assert_ok(sn_card_prepare(card, &spec, &k));
    assert_ok(sn_kernel_run(k, (const void *[]){in}, (void *[]){out}));
    assert_memory_equal(out, ((uint8_t[]){1, 3, 5, 2, 4, 6}), 6);
    sn_card_close(card);
}

static void test_cards(void **state)
{
    sn_card *card;
    sn_kernel *a, *b;
    const sn_card_kind *kinds;
    assert_true(sn_card_kinds(&kinds) >= 2);
    assert_int_equal(sn_card_open("cuda9", NULL, &card), SN_ENOTFOUND);
    assert_non_null(strstr(sn_errmsg(), "cpu, ref"));
    assert_int_equal(sn_card_open("cpu", &(sn_card_opts){.threads = -1}, &card), SN_EINVAL);
    assert_ok(sn_card_open("cpu", NULL, &card));
    assert_string_equal(sn_card_kind_name(card), "cpu");
    sn_kernel_spec spec = {.op = SN_OP_LINEAR,
                           .attr = {.i = {1}},
                           .ins = 2,
                           .outs = 1,
                           .in = {{SN_F32, SN_SHAPE(8, 16), 0}, {SN_F32, SN_SHAPE(4, 16), 0}},
                           .out = {{SN_F32, SN_SHAPE(8, 4), 0}}};
    assert_ok(sn_card_prepare(card, &spec, &a));
    spec.in[0].shape.dim[4] = 99; /* beyond the rank: not part of the shape */
    assert_ok(sn_card_prepare(card, &spec, &b));
    assert_ptr_equal(a, b);
    assert_true(sn_card_scratch_bytes(card) > 0);
    spec.out[0].shape.dim[1] = 5;
    assert_int_equal(sn_card_prepare(card, &spec, &b), SN_ENOTSUP);
    assert_non_null(strstr(sn_errmsg(), "linear in F32[8,16] F32[4,16] out F32[8,5]"));
    spec.out[0].shape.dim[1] = 4;
    spec.in[0].dtype = SN_F16;
    assert_int_equal(sn_card_prepare(card, &spec, &b), SN_ENOTSUP);
    spec.in[0].dtype = SN_F32;
    spec.out[0].dtype = SN_BF16;
    spec.accumulate = 1;
    assert_int_equal(sn_card_prepare(card, &spec, &b), SN_ENOTSUP);
    spec.in[1].absent = true;
    assert_int_equal(sn_card_prepare(card, &spec, &b), SN_ENOTSUP);
    spec.ins = 1;
    assert_int_equal(sn_card_prepare(card, &spec, &b), SN_ENOTSUP);
    spec.op = (sn_op) 999;
    assert_int_equal(sn_card_prepare(card, &spec, &b), SN_ENOTSUP);
    sn_card_close(card);
    sn_card_close(NULL);
}

static void test_no_memory(void **state)
{
    sn_card *card;
    sn_kernel *k;
    int64_t huge = INT64_C(1) << 45;
    sn_kernel_spec spec = {.op = SN_OP_EMBEDDING_GRAD,
                           .attr = {.i = {huge}},
                           .ins = 2,
                           .outs = 1,
                           .in = {{SN_I32, SN_SHAPE(2), 0}, {SN_F32, SN_SHAPE(2, 16), 0}},
                           .out = {{SN_F32, SN_SHAPE(huge, 16), 0}}};
    assert_ok(sn_card_open("ref", NULL, &card));
    assert_int_equal(sn_card_prepare(card, &spec, &k), SN_ENOMEM);
    sn_card_close(card);
}

/* The caller's floating-point environment is his: gradual underflow stays on, rounding too. */
static void test_environment(void **state)
{
    sn_card *card;
    assert_ok(sn_card_open("cpu", &(sn_card_opts){.threads = 2}, &card));
    for (size_t c = 0; c < SN_COUNT(kern_cases); c++) {
        parsed p = parse_case(&kern_cases[c]);
        result r = run_case(card, &p);
        result_free(&r);
        volatile float tiny = 1.2e-38f;
        if (!(tiny / 4 > 0))
            fail_msg("%s flushes denormals", kern_op_name(p.spec.op));
    }
    sn_card_close(card);
}

static void test_peak(void **state)
{
    assert_true(sn_kern_fma_peak(2 * SN_MS) > 1e8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_ref),    cmocka_unit_test(test_gelu_tails),
        cmocka_unit_test(test_nan_passes),     cmocka_unit_test(test_adamw_skips),
        cmocka_unit_test(test_any_type_moves), cmocka_unit_test(test_cards),
        cmocka_unit_test(test_no_memory),      cmocka_unit_test(test_peak),
        cmocka_unit_test(test_environment),    cmocka_unit_test(test_max_pool_places),
    };
    return sn_test_run(tests);
}
