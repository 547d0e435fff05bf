/* SPDX-License-Identifier: Apache-2.0
 * Losses over classes in dim 1: picked log-probabilities, weighted, with a class to ignore. */
#include "onnx/private.h"

#include <string.h>

/* [N,…] of x[N,C,…] at the classes `target`, 0 outside. */
static item *picked(importer *m, item *x, item *target)
{
    item *index = unsqueeze(m, cast(m, target, SN_I64), 1);
    return axes_mask_squeeze(m, elements(m, x, index, 1), 2);
}

/* Σ or mean, weighted, or each of −logp at the target. */
static item *negative_log(importer *m, call *c, item *logp, item *target, item *weight)
{
    const char *how = attr_str(m, c, "reduction", "mean");
    const Onnx__AttributeProto *ignored = onnx_attr(c, m, "ignore_index");
    if (!logp || !target || !ok(m))
        return NULL;
    if (logp->shape.rank != target->shape.rank + 1) {
        return onnx_fail(m, SN_EINVAL, "the targets must have the scores' dims but the classes");
    }
    int64_t all = ((int64_t) 1 << target->shape.rank) - 1;
    item *w = NULL, *loss;
    if (weight)
        w = gather(m, weight, target, 0);
    if (ignored && ignored->has_i) {
        item *not_it = binary(m, SN_BINARY_NE, cast(m, target, SN_I64),
                              scalar(m, SN_I64, (double) ignored->i));
        item *keep = cast(m, not_it, logp->dtype);
        w = w ? where(m, not_it, w, scalar(m, logp->dtype, 0)) : keep;
        target = where(m, not_it, cast(m, target, SN_I64), scalar(m, SN_I64, 0));
    }
    loss = unary(m, SN_UNARY_NEG, picked(m, logp, target));
    if (w)
        loss = binary(m, SN_BINARY_MUL, loss, w);
    if (!strcmp(how, "none"))
        return loss;
    bool mean = !strcmp(how, "mean");
    if (mean && !w)
        return axes_mask_squeeze(m, reduce(m, SN_REDUCE_MEAN, loss, all), all);
    loss = reduce(m, SN_REDUCE_SUM, loss, all);
    if (mean)
        loss = binary(m, SN_BINARY_DIV, loss, reduce(m, SN_REDUCE_SUM, w, all));
    return axes_mask_squeeze(m, loss, all);
}

static void nll_loss(importer *m, call *c)
{
    c->out[0] = negative_log(m, c, c->in[0], c->in[1], has(c, 2) ? c->in[2] : NULL);
}

static void cross_entropy(importer *m, call *c)
{
    item *logp = softmax_of(m, c->in[0], 2, true);
    c->out[0] = negative_log(m, c, logp, c->in[1], has(c, 2) ? c->in[2] : NULL);
    c->out[1] = logp;
}

const row onnx_rows_loss[] = {
    {"NegativeLogLikelihoodLoss", 12, 2, nll_loss},
    {"SoftmaxCrossEntropyLoss", 12, 2, cross_entropy},
};
const int onnx_rows_loss_count = SN_COUNT(onnx_rows_loss);
