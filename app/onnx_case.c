/* SPDX-License-Identifier: Apache-2.0
 * One model, its inputs, and the outputs that others computed. */
#include "onnx_case.h"

#include "os/os.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OPERANDS_MAX = SN_ONNX_OPERANDS_MAX };
#define MODEL_BYTES_MAX (INT64_C(1) << 31)
#define TENSOR_BYTES_MAX (INT64_C(1) << 30)

sn_status sn_onnx_file(const char *path, sn_onnx_model **ret)
{
    char *data;
    size_t bytes;
    SN_TRY(sn_file_read(path, MODEL_BYTES_MAX, &data, &bytes));
    sn_status status = sn_onnx_parse(data, bytes, path, ret);
    free(data);
    return status;
}

/* ---- importing ---- */
typedef struct context {
    sn_card *card;
    sn_arena *arena;
    const char *dir;
} context;

static sn_status run_op(void *ctx, sn_op op, const sn_attr *attr, const sn_tensor *in, int ins,
                        sn_tensor *out, int outs)
{
    return sn_eval_op(((context *) ctx)->card, op, attr, in, ins, out, outs);
}

static sn_status external(void *ctx, const char *location, int64_t offset, int64_t bytes,
                          const void **ret)
{
    context *c = ctx;
    char *data;
    size_t have;
    const char *path = sn_arena_printf(c->arena, "%s/%s", c->dir, location);
    SN_TRY(sn_file_read(path, MODEL_BYTES_MAX, &data, &have));
    bool fits = offset >= 0 && bytes >= 0 && (uint64_t) offset <= have &&
                (uint64_t) bytes <= have - (uint64_t) offset;
    if (fits)
        *ret = sn_arena_copy(c->arena, data + offset, (size_t) bytes + !bytes);
    free(data);
    return fits ? SN_OK
                : sn_fail(SN_ECORRUPT, "%s ends before byte %lld", path,
                          (long long) (offset + bytes));
}

sn_status sn_onnx_file_import(const sn_onnx_model *model, const char *dir, sn_card *card,
                              sn_onnx_opts opts, sn_arena *arena, sn_onnx **ret)
{
    context c = {card, arena, dir};
    opts.run = run_op;
    opts.external = external;
    opts.ctx = &c;
    return sn_onnx_import(model, &opts, arena, ret);
}

/* ---- comparing ---- */
static double number(const sn_tensor *t, int64_t i)
{
    const uint16_t *half = t->data;
    switch (t->dtype) {
    case SN_F32:
        return (double) ((const float *) t->data)[i];
    case SN_F64:
        return ((const double *) t->data)[i];
    case SN_BF16:
        return (double) sn_bf16_to_f32(half[i]);
    default: { /* F16 */
        int exponent = half[i] >> 10 & 31, mantissa = half[i] & 1023;
        double v = exponent == 0    ? ldexp(mantissa, -24)
                   : exponent == 31 ? (mantissa ? NAN : INFINITY)
                                    : ldexp(1024 + mantissa, exponent - 25);
        return half[i] >> 15 ? -v : v;
    }
    }
}

static bool is_real(sn_dtype t)
{
    return t == SN_F32 || t == SN_F64 || t == SN_F16 || t == SN_BF16;
}

/* BF16 may be off by one in the last of its eight bits: the files were written by cutting, the
 * standard rounds. */
static bool near(sn_dtype t, double a, double b)
{
    double relative = t == SN_BF16 ? 1.0 / 128 : 1e-3;
    return a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= 1e-5 + relative * fabs(b);
}

static sn_status compare(const char *name, const sn_tensor *got, const sn_tensor *want)
{
    char a[96], b[96];
    if (got->dtype != want->dtype || !sn_shape_equal(got->shape, want->shape))
        return sn_fail(SN_EMISMATCH, "output '%s' is %s%s, not %s%s", name,
                       sn_dtype_name(got->dtype), sn_shape_text(a, got->shape),
                       sn_dtype_name(want->dtype), sn_shape_text(b, want->shape));
    int64_t n = sn_shape_count(got->shape);
    size_t bytes = sn_dtype_bytes(got->dtype);
    for (int64_t i = 0; i < n; i++) {
        if (is_real(got->dtype) && !near(got->dtype, number(got, i), number(want, i)))
            return sn_fail(SN_EMISMATCH, "output '%s' [%lld] is %.9g, not %.9g", name,
                           (long long) i, number(got, i), number(want, i));
        const char *x = (const char *) got->data + (size_t) i * bytes;
        const char *y = (const char *) want->data + (size_t) i * bytes;
        if (!is_real(got->dtype) && memcmp(x, y, bytes))
            return sn_fail(SN_EMISMATCH, "output '%s' [%lld] differs", name, (long long) i);
    }
    return SN_OK;
}

/* ---- one folder of data ---- */
static sn_status read_tensor(const char *path, sn_arena *arena, sn_tensor *ret)
{
    char *data;
    size_t bytes;
    SN_TRY(sn_file_read(path, TENSOR_BYTES_MAX, &data, &bytes));
    sn_status status = sn_onnx_tensor(data, bytes, arena, ret);
    free(data);
    return status < 0 ? sn_fail_in(status, "%s", path) : SN_OK;
}

sn_status sn_onnx_data_read(const sn_onnx_model *model, const char *dir, sn_arena *arena,
                            sn_onnx_data *ret)
{
    for (int i = 0; i < OPERANDS_MAX; i++) {
        const char *path = sn_arena_printf(arena, "%s/input_%d.pb", dir, i);
        const char *name = sn_onnx_input_name(model, i);
        if (access(path, R_OK) != 0 || !name)
            break;
        ret->input[i].name = name;
        SN_TRY(read_tensor(path, arena, &ret->input[i].tensor));
        ret->inputs++;
    }
    for (int i = 0; i < OPERANDS_MAX; i++) {
        const char *path = sn_arena_printf(arena, "%s/output_%d.pb", dir, i);
        if (access(path, R_OK) != 0)
            break;
        SN_TRY(read_tensor(path, arena, &ret->output[i]));
        ret->outputs++;
    }
    if (!ret->outputs)
        return sn_fail(SN_ENOTFOUND, "there is no %s/output_0.pb", dir);
    return SN_OK;
}

/* Import knowing shapes alone if that will do, else integers, else every value. */
static sn_status import(const sn_onnx_model *model, const char *dir, const sn_onnx_data *d,
                        sn_card *card, sn_arena *arena, sn_onnx **ret)
{
    sn_status status = SN_OK;
    for (int known = 0; known < 3; known++) {
        sn_onnx_bind bind[OPERANDS_MAX];
        memcpy(bind, d->input, sizeof bind);
        for (int i = 0; i < d->inputs; i++)
            if (known == 0 || (known == 1 && is_real(bind[i].tensor.dtype)))
                bind[i].tensor.data = NULL;
        sn_onnx_opts opts = {.bind = bind, .binds = d->inputs};
        status = sn_onnx_file_import(model, dir, card, opts, arena, ret);
        if (status != SN_EFIT)
            return status;
    }
    return status;
}

void sn_onnx_fill(sn_eval *e, const sn_onnx_value *v, int n, const sn_onnx_data *d)
{
    for (int i = 0; i < n; i++) {
        const void *data = v[i].tensor.data;
        for (int k = 0; d && k < d->inputs; k++)
            if (!strcmp(d->input[k].name, v[i].name))
                data = d->input[k].tensor.data;
        size_t bytes =
            (size_t) sn_shape_count(v[i].tensor.shape) * sn_dtype_bytes(v[i].tensor.dtype);
        if (v[i].value >= 0 && data)
            memcpy(sn_eval_data(e, v[i].value), data, bytes);
    }
}

static sn_status run_and_compare(const sn_onnx *o, const sn_onnx_data *d, sn_card *card)
{
    sn_eval *e;
    int keep[OPERANDS_MAX], n = SN_MIN(o->outputs, OPERANDS_MAX);
    for (int i = 0; i < n; i++)
        keep[i] = o->output[i].value;
    SN_TRY(sn_eval_create(card, o->graph, keep, n, &e));
    sn_onnx_fill(e, o->param, o->params, NULL);
    sn_onnx_fill(e, o->constant, o->constants, NULL);
    sn_onnx_fill(e, o->input, o->inputs, d);
    sn_status status = sn_eval_run(e);
    for (int i = 0; status >= 0 && i < SN_MIN(n, d->outputs); i++) {
        sn_tensor got = o->output[i].tensor;
        if (keep[i] >= 0)
            got.data = sn_eval_data(e, keep[i]);
        sn_tensor want = d->output[i];
        if (got.dtype == SN_BF16 && want.dtype == SN_U16) /* its bits, as NumPy writes them */
            want.dtype = SN_BF16;
        status = compare(o->output[i].name, &got, &want);
    }
    sn_eval_free(e);
    return status;
}

sn_status sn_onnx_case(const sn_onnx_model *model, const char *dir, const char *data, sn_card *card)
{
    sn_arena *arena = sn_arena_create();
    sn_onnx_data *d = SN_NEW(arena, sn_onnx_data);
    sn_onnx *o;
    sn_status status = sn_onnx_data_read(model, data, arena, d);
    if (status >= 0)
        status = import(model, dir, d, card, arena, &o);
    if (status >= 0)
        status = run_and_compare(o, d, card);
    sn_arena_free(arena);
    return status;
}
