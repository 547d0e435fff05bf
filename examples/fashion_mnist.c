/* SPDX-License-Identifier: Apache-2.0
 *
 * A network of one's own, trained by one's own loop: a perceptron that tells 10 kinds of clothes
 * apart (Debian: dataset-fashion-mnist).
 *
 *   cc fashion_mnist.c $(pkg-config --cflags --libs supernode) -lm && ./a.out [STEPS] [FOLDER] */
#include <supernode.h>

#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 100, PIXELS = 28 * 28, KINDS = 10 };

/* The network, for as many samples as the library asks for. */
static sn_status build(void *ctx, sn_arena *arena, int64_t samples, double per_step, sn_graph **ret)
{
    sn_graph *g = sn_graph_create(arena, "perceptron");
    int x = sn_graph_input(g, "images", SN_F32, SN_SHAPE(samples, PIXELS), 0);
    int labels = sn_graph_input(g, "labels", SN_I32, SN_SHAPE(samples), 0);
    x = sn_graph_linear(g, "hidden", x, SN_SHAPE(128), 1, 0, true);
    x = sn_graph_activate(g, "relu", x, -1, SN_ACT_RELU);
    x = sn_graph_linear(g, "logits", x, SN_SHAPE(KINDS), 1, 0, true);
    int loss = sn_graph_cross_entropy(g, x, labels, 1 / per_step);
    *ret = g;
    return sn_graph_done(g, loss);
}

static void check(sn_status status)
{
    if (status >= 0)
        return;
    fprintf(stderr, "%s\n", sn_errmsg());
    exit(1);
}

static float pixels[BATCH * PIXELS];
static int32_t kinds[BATCH];

static void give(sn_trainer *t)
{
    check(sn_trainer_input(t, "images", pixels, sizeof pixels));
    check(sn_trainer_input(t, "labels", kinds, sizeof kinds));
}

/* Share of the images that the network names rightly. */
static double accuracy(sn_trainer *t, const sn_images *images)
{
    static float logits[BATCH * KINDS];
    int64_t right = 0, n = sn_images_count(images, NULL, NULL) / BATCH * BATCH;
    for (int64_t at = 0; at < n; at += BATCH) {
        sn_images_get(images, at, BATCH, pixels, kinds);
        give(t);
        check(sn_trainer_predict(t, logits, BATCH * KINDS));
        for (int i = 0; i < BATCH; i++) {
            int best = 0;
            for (int k = 1; k < KINDS; k++)
                if (logits[i * KINDS + k] > logits[i * KINDS + best])
                    best = k;
            right += best == kinds[i];
        }
    }
    return (double) right / (double) n;
}

int main(int argc, char **argv)
{
    int steps = argc > 1 ? atoi(argv[1]) : 1200;
    const char *folder = argc > 2 ? argv[2] : "/usr/share/datasets/fashion-mnist";
    sn_images *train, *test;
    sn_trainer *t;
    check(sn_images_open(folder, "train", &train));
    check(sn_images_open(folder, "t10k", &test));
    check(sn_trainer_open(&(sn_trainer_opts){.build = build, .batch = BATCH, .seed = 1}, &t));
    for (int step = 0; step < steps; step++) {
        double loss, lr = 2e-3 * (1 - (double) step / steps);
        sn_images_draw(train, 1, (int64_t) step * BATCH, BATCH, pixels, kinds);
        give(t);
        check(sn_trainer_step(t, lr, &loss, NULL));
        if (step % 100 == 0)
            printf("step %4d  loss %.3f\n", step, loss);
    }
    printf("accuracy %.4f\n", accuracy(t, test));
    sn_trainer_close(t);
    sn_images_close(train);
    sn_images_close(test);
    return 0;
}
