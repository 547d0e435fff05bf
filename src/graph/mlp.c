/* SPDX-License-Identifier: Apache-2.0
 * Layers one after the other, for classes or for numbers. */
#include "graph/private.h"

#include <stdio.h>

static sn_status check(const sn_mlp *m, int64_t batch)
{
    const struct {
        const char *name;
        int64_t value, most;
    } size[] = {{"inputs", m->inputs, INT32_MAX},
                {"width", m->width, INT32_MAX},
                {"outputs", m->outputs, INT32_MAX},
                {"micro-batch", batch, INT32_MAX}};
    for (size_t i = 0; i < SN_COUNT(size); i++)
        if (size[i].value < 1 || size[i].value > size[i].most)
            return sn_fail(SN_EINVAL, "model %s is %lld, it must be between 1 and %lld",
                           size[i].name, (long long) size[i].value, (long long) size[i].most);
    if (m->layers < 0 || m->layers > 4096 || (unsigned) m->act >= SN_ACT_COUNT)
        return sn_fail(SN_EINVAL, "model layers %lld or activation %d is out of range",
                       (long long) m->layers, (int) m->act);
    return SN_OK;
}

sn_status sn_graph_mlp(sn_arena *arena, const sn_mlp *mlp, int64_t batch, double samples_per_step,
                       sn_graph **ret)
{
    SN_TRY(check(mlp, batch));
    sn_graph *g = sn_graph_create(arena, "mlp");
    int x = sn_graph_input(g, "x", SN_F32, SN_SHAPE(batch, mlp->inputs), 0);
    int target = mlp->regression
                     ? sn_graph_input(g, "targets", SN_F32, SN_SHAPE(batch, mlp->outputs), 0)
                     : sn_graph_input(g, "labels", SN_I32, SN_SHAPE(batch), 0);
    for (int64_t layer = 0; layer < mlp->layers; layer++) {
        char name[32];
        snprintf(name, sizeof name, "fc%lld", (long long) layer);
        x = sn_graph_linear(g, name, x, SN_SHAPE(mlp->width), 1, 0, false);
        snprintf(name, sizeof name, "fc%lld.b", (long long) layer);
        int bias = sn_graph_vector(g, name, SN_SHAPE(mlp->width), SN_INIT_ZERO);
        snprintf(name, sizeof name, "act%lld", (long long) layer);
        x = sn_graph_activate(g, name, x, bias, mlp->act ? mlp->act : SN_ACT_RELU);
    }
    x = sn_graph_linear(g, "out", x, SN_SHAPE(mlp->outputs), 1, 0, true);
    sn_graph_name(g, x, "logits");
    double scale = 1 / samples_per_step;
    SN_TRY(sn_graph_done(g, mlp->regression
                                ? sn_graph_mean_squares(g, x, target, scale / (double) mlp->outputs)
                                : sn_graph_cross_entropy(g, x, target, scale)));
    *ret = g;
    return SN_OK;
}
