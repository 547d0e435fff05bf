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

/* The bytes of an idx file after its header of `skip` bytes. */
static unsigned char *read_idx(const char *folder, const char *name, int skip, int bytes)
{
    char command[512];
    unsigned char *data = malloc((size_t) (skip + bytes));
    snprintf(command, sizeof command, "gzip -dc '%s/%s-ubyte.gz'", folder, name);
    FILE *f = popen(command, "r");
    size_t got = f ? fread(data, 1, (size_t) (skip + bytes), f) : 0;
    if (f)
        pclose(f);
    if (got == (size_t) (skip + bytes))
        return data + skip;
    fprintf(stderr, "%s/%s: cannot be read; apt-get install dataset-fashion-mnist\n", folder, name);
    exit(1);
}

static void give(sn_trainer *t, const unsigned char *image, const unsigned char *label,
                 const int *index)
{
    static float x[BATCH * PIXELS];
    static int32_t y[BATCH];
    for (int i = 0; i < BATCH; i++) {
        for (int p = 0; p < PIXELS; p++)
            x[i * PIXELS + p] = (float) image[index[i] * PIXELS + p] / 255;
        y[i] = label[index[i]];
    }
    if (sn_trainer_input(t, "images", x, sizeof x) < 0 ||
        sn_trainer_input(t, "labels", y, sizeof y) < 0)
        exit(fprintf(stderr, "%s\n", sn_errmsg()));
}

/* Share of n images that the network names rightly. */
static double accuracy(sn_trainer *t, const unsigned char *image, const unsigned char *label, int n)
{
    static float logits[BATCH * KINDS];
    int right = 0, index[BATCH];
    for (int at = 0; at + BATCH <= n; at += BATCH) {
        for (int i = 0; i < BATCH; i++)
            index[i] = at + i;
        give(t, image, label, index);
        if (sn_trainer_predict(t, logits, BATCH * KINDS) < 0)
            exit(fprintf(stderr, "%s\n", sn_errmsg()));
        for (int i = 0; i < BATCH; i++) {
            int best = 0;
            for (int k = 1; k < KINDS; k++)
                if (logits[i * KINDS + k] > logits[i * KINDS + best])
                    best = k;
            right += best == label[at + i];
        }
    }
    return (double) right / n;
}

int main(int argc, char **argv)
{
    int steps = argc > 1 ? atoi(argv[1]) : 1200;
    const char *folder = argc > 2 ? argv[2] : "/usr/share/datasets/fashion-mnist";
    unsigned char *image = read_idx(folder, "train-images-idx3", 16, 60000 * PIXELS);
    unsigned char *label = read_idx(folder, "train-labels-idx1", 8, 60000);
    unsigned char *test = read_idx(folder, "t10k-images-idx3", 16, 10000 * PIXELS);
    unsigned char *kind = read_idx(folder, "t10k-labels-idx1", 8, 10000);
    sn_trainer *t;
    sn_trainer_opts opts = {.build = build, .batch = BATCH, .seed = 1};
    if (sn_trainer_open(&opts, &t) < 0)
        return fprintf(stderr, "%s\n", sn_errmsg());
    for (int step = 0; step < steps; step++) {
        int index[BATCH];
        double loss, lr = 2e-3 * (1 - (double) step / steps);
        for (int i = 0; i < BATCH; i++)
            index[i] = (int) (sn_hash64(1, (uint64_t) step, (uint64_t) i) % 60000);
        give(t, image, label, index);
        if (sn_trainer_step(t, lr, &loss, NULL) < 0)
            return fprintf(stderr, "%s\n", sn_errmsg());
        if (step % 100 == 0)
            printf("step %4d  loss %.3f\n", step, loss);
    }
    printf("accuracy %.4f\n", accuracy(t, test, kind, 10000));
    sn_trainer_close(t);
    return 0;
}
