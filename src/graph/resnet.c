/* SPDX-License-Identifier: Apache-2.0
 * Residual networks (He et al., "Deep residual learning for image recognition", 2015), with the
 * stride of a bottleneck in its 3×3 convolution as everybody trains them now. */
#include "graph/private.h"

#include <stdio.h>

typedef struct builder {
    sn_graph *g;
    const sn_resnet *m;
} builder;

/* conv + norm (+ residual) + relu: NAME.w, and the norm's own name. */
static int conv_norm(builder *b, const char *conv, const char *norm, int x, int64_t features,
                     int size, int stride, int residual, bool relu)
{
    sn_batch_norm bn = {.momentum = b->m->stateless || b->m->inference ? 0 : 0.1,
                        .frozen = b->m->inference,
                        .relu = relu};
    sn_window w = SN_WINDOW_2D(size, stride, size / 2);
    x = sn_graph_conv(b->g, conv, x, features, &w, 1, false);
    return sn_graph_batch_norm(b->g, norm, x, residual, &bn);
}

static int64_t channels_of(const builder *b, int x)
{
    return x < 0 ? 0 : b->g->value[x].shape.dim[3];
}

static int basic(builder *b, int x, int64_t width, int stride, int skip)
{
    int y = conv_norm(b, "conv1", "bn1", x, width, 3, stride, -1, true);
    return conv_norm(b, "conv2", "bn2", y, width, 3, 1, skip, true);
}

static int bottleneck(builder *b, int x, int64_t width, int stride, int skip)
{
    int y = conv_norm(b, "conv1", "bn1", x, width, 1, 1, -1, true);
    y = conv_norm(b, "conv2", "bn2", y, width, 3, stride, -1, true);
    return conv_norm(b, "conv3", "bn3", y, 4 * width, 1, 1, skip, true);
}

static int block(builder *b, int x, int64_t width, int stride)
{
    int64_t out = b->m->bottleneck ? 4 * width : width;
    int skip = x;
    if (stride != 1 || channels_of(b, x) != out)
        skip = conv_norm(b, "downsample.0", "downsample.1", x, out, 1, stride, -1, false);
    return b->m->bottleneck ? bottleneck(b, x, width, stride, skip)
                            : basic(b, x, width, stride, skip);
}

static int64_t or_usual(int64_t value, int64_t usual)
{
    return value ? value : usual;
}

static sn_status check(const sn_resnet *m, int64_t batch)
{
    int64_t blocks = 0, worst = 1 << 20;
    for (int s = 0; s < 4; s++) {
        if (m->blocks[s] < 1 || m->blocks[s] > 1024)
            return sn_fail(SN_EINVAL, "model blocks[%d] is %lld, it must be between 1 and 1024", s,
                           (long long) m->blocks[s]);
        blocks += m->blocks[s];
    }
    if (m->classes < 0 || m->size < 0 || m->channels < 0 || m->width < 0 || m->classes > worst ||
        m->size > worst || m->channels > worst || m->width > worst || batch < 1 || batch > worst)
        return sn_fail(SN_EINVAL,
                       "model classes, size, channels or width or the micro-batch is out "
                       "of range: at most %lld",
                       (long long) worst);
    double size = (double) or_usual(m->size, 224);
    if (size * size * (double) batch * (double) or_usual(m->width, 64) > 1e13)
        return sn_fail(SN_EFIT, "one activation would be too large: lower size, batch or width");
    return blocks > 0 ? SN_OK : SN_EINVAL;
}

sn_status sn_graph_resnet(sn_arena *arena, const sn_resnet *resnet, int64_t batch,
                          double samples_per_step, sn_graph **ret)
{
    SN_TRY(check(resnet, batch));
    builder b = {sn_graph_create(arena, "resnet"), resnet};
    int64_t size = or_usual(resnet->size, 224), width = or_usual(resnet->width, 64);
    sn_shape images = SN_SHAPE(batch, size, size, or_usual(resnet->channels, 3));
    int x = sn_graph_input(b.g, "images", SN_F32, images, 0);
    int labels = sn_graph_input(b.g, "labels", SN_I32, SN_SHAPE(batch), 0);
    sn_window pool = SN_WINDOW_2D(3, 2, 1);
    x = conv_norm(&b, "conv1", "bn1", x, width, 7, 2, -1, true);
    x = sn_graph_max_pool(b.g, "maxpool", x, &pool);
    for (int s = 0; s < 4; s++)
        for (int64_t i = 0; i < resnet->blocks[s]; i++) {
            sn_graph_scope(b.g, "layer%d.%lld.", s + 1, (long long) i);
            x = block(&b, x, width << s, s > 0 && i == 0 ? 2 : 1);
        }
    sn_graph_scope_end(b.g);
    x = sn_graph_mean_pool(b.g, "avgpool", x);
    x = sn_graph_linear(b.g, "fc", x, SN_SHAPE(or_usual(resnet->classes, 1000)), 1, 0.01, true);
    sn_graph_name(b.g, x, "logits");
    SN_TRY(sn_graph_done(b.g, sn_graph_cross_entropy(b.g, x, labels, 1 / samples_per_step)));
    *ret = b.g;
    return SN_OK;
}
