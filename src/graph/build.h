/* SPDX-License-Identifier: Apache-2.0
 *
 * build — graphs by hand, in the words that people use for networks. Included by graph.h.
 *
 *   sn_graph *g = sn_graph_create(arena, "net");
 *   int x = sn_graph_input(g, "images", SN_F32, SN_SHAPE(batch, 28, 28, 1), 0);
 *   int t = sn_graph_input(g, "labels", SN_I32, SN_SHAPE(batch), 0);
 *   x = sn_graph_conv(g, "conv", x, 16, &SN_WINDOW_2D(3, 1, 1), 1, true);
 *   x = sn_graph_activate(g, "relu", x, -1, SN_ACT_RELU);
 *   x = sn_graph_linear(g, "logits", x, SN_SHAPE(10), 3, 0, true);
 *   return sn_graph_done(g, sn_graph_cross_entropy(g, x, t, 1 / samples_per_step));
 *
 * A value is an int. A call appends nodes (and the parameters that it names) and returns the value
 * to go on with. After the first failure all calls do nothing and return −1; sn_graph_done returns
 * that failure, whose sentence is sn_errmsg's. What has no call here is an sn_graph_node.
 *
 * Names are scope + name; parameters are name + ".w", ".b", ".g", or stand in the call's line.
 * Images are channels-last, see ops.h. std = 0: Kaiming's sqrt(2 / inputs of an output). */
#ifndef SN_GRAPH_BUILD_H
#define SN_GRAPH_BUILD_H

#include "graph/graph.h"

/* Windows of convolutions and pools by spatial dim; strides and dilations of 0 are 1. */
typedef struct sn_window {
    int64_t size[3], stride[3], dilation[3], before[3], after[3];
    bool counts_padding; /* avg_pool */
} sn_window;

#define SN_WINDOW_2D(size_, stride_, pad_)                                                         \
    ((sn_window){.size = {size_, size_},                                                           \
                 .stride = {stride_, stride_},                                                     \
                 .before = {pad_, pad_},                                                           \
                 .after = {pad_, pad_}})

/* Running statistics have momentum > 0 or frozen; they are states NAME.mean and NAME.var. */
typedef struct sn_batch_norm {
    double epsilon;  /* 0: 1e-5 */
    double momentum; /* 0: no running statistics */
    bool frozen;     /* normalise by the running statistics: for inference and fine-tuning */
    bool relu;
    bool zero; /* the gain starts at 0 (the last norm of a residual block) */
} sn_batch_norm;

void sn_graph_scope(sn_graph *g, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sn_graph_scope_end(sn_graph *g); /* names have no prefix again */
/* Any op: the first output. attr may be NULL; operands as int, −1 an absent optional one. */
int sn_graph_node(sn_graph *g, sn_op op, const char *name, const sn_attr *attr, int ins, ...);
/* Another name for a value: "logits", say. */
void sn_graph_name(sn_graph *g, int value, const char *name);
/* Sets the loss (−1 none) and names the first failure. */
sn_status sn_graph_done(sn_graph *g, int loss);

/* Parameters: matrices decay, vectors do not. */
int sn_graph_matrix(sn_graph *g, const char *name, sn_shape shape, double std);
int sn_graph_vector(sn_graph *g, const char *name, sn_shape shape, sn_init init);

/* y[…, out…] from x's last `summed` dims. w[out…, summed…], b[out…]. */
int sn_graph_linear(sn_graph *g, const char *name, int x, sn_shape out, int summed, double std,
                    bool bias);
/* w[features, size…, C / groups]; `size` of the window says how large. b[features]. */
int sn_graph_conv(sn_graph *g, const char *name, int x, int64_t features, const sn_window *window,
                  int64_t groups, bool bias);
/* act(norm(x) + residual), residual −1: none. g[C], b[C]. Statistics are those of the whole
 * micro-batch, whatever the split. */
int sn_graph_batch_norm(sn_graph *g, const char *name, int x, int residual,
                        const sn_batch_norm *opts);
int sn_graph_max_pool(sn_graph *g, const char *name, int x, const sn_window *window);
int sn_graph_avg_pool(sn_graph *g, const char *name, int x, const sn_window *window);
int sn_graph_mean_pool(sn_graph *g, const char *name, int x); /* [N,S…,C] → [N,C] */
int sn_graph_activate(sn_graph *g, const char *name, int x, int bias, sn_act f);
int sn_graph_layer_norm(sn_graph *g, const char *name, int x, double epsilon); /* g[D], b[D] */
int sn_graph_rms_norm(sn_graph *g, const char *name, int x, double epsilon);   /* g[D] */
int sn_graph_embedding(sn_graph *g, const char *name, int ids, int64_t vocab, int64_t width,
                       double std);                            /* w[vocab, width] */
int sn_graph_sum(sn_graph *g, const char *name, int x, int y); /* y broadcasts into x */
int sn_graph_residual(sn_graph *g, const char *name, int x, int r, int bias);
/* q[T,B,G,R,E], k[S,B,G,E], v[S,B,G,E], mask[S,B] I32 or −1 → [T,B,G,R,E]; scale 1/sqrt(E). */
int sn_graph_attend(sn_graph *g, const char *name, int q, int k, int v, int mask, bool causal);
/* q or k of attention, turned by position. */
int sn_graph_rotary(sn_graph *g, const char *name, int x, double base);

/* Mixture of experts over x[T,B,D]: each token goes to `used` of `experts` networks of width
 * `inner`, each of which takes at most ceil(factor·used·T / experts) tokens of a sample; those
 * beyond pass by. NAME.router.w[X,D], NAME.w1[X,F,D] (gated: [X,2,F,D]), NAME.w2[X,D,F]. */
typedef struct sn_moe {
    int64_t experts, used, inner;
    double factor;   /* 0: 1.25 */
    bool normalised; /* the weights of a token's experts add up to 1 */
    sn_act act;
    bool gated;
    double std, std_out; /* of w1 and of w2 */
} sn_moe;
/* *ret_balance: the load-balancing loss with this scale, a scalar to be added to the loss; NULL:
 * without. */
int sn_graph_moe(sn_graph *g, const char *name, int x, const sn_moe *moe, double balance_scale,
                 int *ret_balance);

/* Losses are sums over the samples of a micro-batch times `scale` (1 / samples or tokens a step).
 * Several may be added (sn_graph_sum) to one. */
int sn_graph_cross_entropy(sn_graph *g, int logits, int targets, double scale);
int sn_graph_mean_squares(sn_graph *g, int x, int target, double scale);

#endif
