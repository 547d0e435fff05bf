/* SPDX-License-Identifier: Apache-2.0
 * A small convolutional network for small images. */
#include "graph/private.h"

#include <stdio.h>

static sn_status check(const sn_cnn *m, int64_t batch)
{
    const struct {
        const char *name;
        int64_t value, least;
    } size[] = {{"size", m->size, 1},           {"channels", m->channels, 1},
                {"classes", m->classes, 1},     {"hidden", m->hidden, 0},
                {"widths[0]", m->widths[0], 0}, {"widths[1]", m->widths[1], 0},
                {"widths[2]", m->widths[2], 0}, {"widths[3]", m->widths[3], 0},
                {"micro-batch", batch, 1}};
    for (size_t i = 0; i < SN_COUNT(size); i++)
        if (size[i].value < size[i].least || size[i].value > 1 << 20)
            return sn_fail(SN_EINVAL, "model %s is %lld, it must be between %lld and 1048576",
                           size[i].name, (long long) size[i].value, (long long) size[i].least);
    double widest = (double) SN_MAX(m->channels, m->widths[0]);
    if ((double) m->size * (double) m->size * (double) batch * widest > 1e13)
        return sn_fail(SN_EFIT, "one activation would be too large: lower size, batch or width");
    return SN_OK;
}

static int stage(sn_graph *g, const sn_cnn *cnn, int s, int x)
{
    sn_window conv = SN_WINDOW_2D(3, 1, 1), pool = SN_WINDOW_2D(2, 2, 0);
    sn_batch_norm bn = {.momentum = cnn->stateless || cnn->inference ? 0 : 0.1,
                        .frozen = cnn->inference,
                        .relu = true};
    sn_graph_scope(g, "stage%d.", s);
    x = sn_graph_conv(g, "conv", x, cnn->widths[s], &conv, 1, false);
    x = sn_graph_batch_norm(g, "bn", x, -1, &bn);
    x = sn_graph_max_pool(g, "pool", x, &pool);
    sn_graph_scope_end(g);
    return x;
}

sn_status sn_graph_cnn(sn_arena *arena, const sn_cnn *cnn, int64_t batch, double samples_per_step,
                       sn_graph **ret)
{
    SN_TRY(check(cnn, batch));
    sn_graph *g = sn_graph_create(arena, "cnn");
    sn_shape images = SN_SHAPE(batch, cnn->size, cnn->size, cnn->channels);
    int x = sn_graph_input(g, "images", SN_F32, images, 0), summed = 3;
    int labels = sn_graph_input(g, "labels", SN_I32, SN_SHAPE(batch), 0);
    for (int s = 0; s < 4 && cnn->widths[s]; s++)
        x = stage(g, cnn, s, x);
    if (cnn->hidden) {
        x = sn_graph_linear(g, "fc", x, SN_SHAPE(cnn->hidden), summed, 0, false);
        int bias = sn_graph_vector(g, "fc.b", SN_SHAPE(cnn->hidden), SN_INIT_ZERO);
        x = sn_graph_activate(g, "relu", x, bias, SN_ACT_RELU);
        summed = 1;
    }
    x = sn_graph_linear(g, "out", x, SN_SHAPE(cnn->classes), summed, 0, true);
    sn_graph_name(g, x, "logits");
    SN_TRY(sn_graph_done(g, sn_graph_cross_entropy(g, x, labels, 1 / samples_per_step)));
    *ret = g;
    return SN_OK;
}
