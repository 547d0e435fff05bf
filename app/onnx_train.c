/* SPDX-License-Identifier: Apache-2.0
 * An imported graph trained on one batch and one card: what shows that gradients are right. */
#include "onnx_case.h"

#include <stdio.h>
#include <string.h>

/* Targets as the loss wants them: I64 classes become I32. */
static sn_status fill_targets(sn_eval *e, const sn_graph *g, int targets, const sn_tensor *from)
{
    const sn_value *v = &g->value[targets];
    int64_t n = sn_shape_count(v->shape);
    char want[96], have[96];
    bool fits = from->dtype == v->dtype || (v->dtype == SN_I32 && from->dtype == SN_I64);
    if (!fits || sn_shape_count(from->shape) != n)
        return sn_fail(SN_EINVAL, "the targets are %s%s, the loss takes %s%s",
                       sn_dtype_name(from->dtype), sn_shape_text(have, from->shape),
                       sn_dtype_name(v->dtype), sn_shape_text(want, v->shape));
    if (from->dtype == v->dtype) {
        memcpy(sn_eval_data(e, targets), from->data, (size_t) n * sn_dtype_bytes(v->dtype));
        return SN_OK;
    }
    for (int64_t i = 0; i < n; i++)
        ((int32_t *) sn_eval_data(e, targets))[i] = (int32_t) ((const int64_t *) from->data)[i];
    return SN_OK;
}

static sn_status descend(const sn_onnx *o, int targets, const sn_onnx_data *d, int64_t steps,
                         double lr, sn_card *card, sn_arena *arena)
{
    const sn_graph *g = o->graph;
    int *keep = SN_NEW_N(arena, int, g->values + 1), n = 0;
    sn_eval *e;
    keep[n++] = g->loss;
    for (int v = 0; v < g->values; v++)
        if (g->value[v].kind == SN_VALUE_PARAM)
            keep[n++] = g->value[v].grad;
    SN_TRY(sn_eval_create(card, g, keep, n, &e));
    sn_onnx_fill(e, o->param, o->params, NULL);
    sn_onnx_fill(e, o->constant, o->constants, NULL);
    sn_onnx_fill(e, o->input, o->inputs, d);
    sn_status status = fill_targets(e, g, targets, &d->output[0]);
    for (int64_t s = 0; status >= 0 && s < steps; s++) {
        status = sn_eval_run(e);
        if (status < 0)
            break;
        printf("step %lld loss %.7g\n", (long long) s,
               (double) *(float *) sn_eval_data(e, g->loss));
        sn_eval_descend(e, lr);
    }
    sn_eval_free(e);
    return status;
}

sn_status sn_onnx_train(const sn_onnx_model *model, const char *dir, const char *data,
                        const char *loss, int64_t steps, double lr, sn_card *card)
{
    sn_arena *arena = sn_arena_create();
    sn_onnx_data *d = SN_NEW(arena, sn_onnx_data);
    sn_onnx_bind bind[SN_ONNX_OPERANDS_MAX];
    sn_onnx *o;
    int targets;
    sn_status status = sn_onnx_data_read(model, data, arena, d);
    memcpy(bind, d->input, sizeof bind);
    for (int i = 0; i < d->inputs; i++)
        bind[i].tensor.data = NULL;
    sn_onnx_opts opts = {.bind = bind, .binds = d->inputs};
    if (status >= 0)
        status = sn_onnx_file_import(model, dir, card, opts, arena, &o);
    if (status >= 0)
        status = sn_onnx_loss(o, loss, &targets);
    if (status >= 0)
        status = sn_graph_backward(o->graph);
    if (status >= 0)
        status = descend(o, targets, d, steps, lr, card, arena);
    sn_arena_free(arena);
    return status;
}
