/* SPDX-License-Identifier: Apache-2.0
 *
 * models — networks with presets, each file one family. Included by graph.h.
 *
 *   sn_model m;
 *   sn_model_find("resnet50", &m);  m.resnet.classes = 10;  sn_model_build(arena, &m, 32, 256, &g);
 *
 * Zero in a field is the usual choice of its family. A graph's logits are value "logits". */
#ifndef SN_GRAPH_MODELS_H
#define SN_GRAPH_MODELS_H

#include "graph/graph.h"

/* Decoder of tokens. Inputs "ids" and "targets" [T,B] I32 (a negative target is ignored).
 *
 * Zeros after mlp: GPT-2's shape with an untied head: learned positions, layer norm, pre-norm,
 * exact GELU, biases everywhere but in the head. wte[V,D], wpe[T,1,D], h.N.ln1.g/b,
 * h.N.attn.wqkv[H,3,E,D] bqkv[H,3,E] wo[D,H,E] bo[D], h.N.ln2.g/b, h.N.mlp.w1[F,D] b1[F] w2[D,F]
 * b2[D], ln.g/b, head[V,D].
 *
 * With rotary positions or kv_heads the projections are h.N.attn.wq[G,R,E,D] wk[G,E,D] wv[G,E,D]
 * (bq bk bv) and wo[D,G,R,E]; a gated mlp has w1[2,F,D]; experts: see sn_graph_moe, named h.N.moe.
 */
typedef struct sn_gpt {
    int64_t layers, hidden, heads, sequence, vocab, mlp; /* mlp 0: 4·hidden */
    int64_t kv_heads;                                    /* 0: heads */
    bool rotary;
    double rotary_base; /* 0: 10000 */
    sn_act act;         /* NONE: exact GELU */
    bool gated;         /* f(x·w1[0])·(x·w1[1]): SwiGLU with SN_ACT_SILU */
    bool rms;           /* RMS norm */
    double epsilon;     /* of the norms, 0: 1e-5 */
    bool tied;          /* the head is wte */
    bool no_bias;
    int64_t experts, experts_used; /* 0: none */
    double capacity, balance;      /* factors; 0: 1.25, 0.01 */
} sn_gpt;

typedef struct sn_gpt_preset {
    const char *name, *what;
    sn_gpt gpt;
} sn_gpt_preset;
int sn_gpt_presets(const sn_gpt_preset **ret);

/* Loss scaled by 1 / tokens_per_step. SN_EINVAL: heads does not divide hidden, sizes < 1 or beyond
 * 2^31, … */
sn_status sn_graph_gpt(sn_arena *arena, const sn_gpt *gpt, int64_t batch, double tokens_per_step,
                       sn_graph **ret);

/* Encoder of tokens (Devlin et al. 2019): post-norm, learned positions, exact GELU. Inputs "ids",
 * "segments", "mask" [T,B] I32 (mask 0: padding), and "targets" [T,B] (masked LM; negative where
 * nothing is asked) or "labels" [B] (classes > 0). */
typedef struct sn_bert {
    int64_t layers, hidden, heads, sequence, vocab, mlp; /* mlp 0: 4·hidden */
    int64_t segments;                                    /* 0: 2 */
    int64_t classes; /* 0: masked LM with the decoder tied to the table */
    bool no_mask;    /* samples are full: no input "mask" */
} sn_bert;

/* units_per_step: predictions a step (masked LM), or samples (classes). */
sn_status sn_graph_bert(sn_arena *arena, const sn_bert *bert, int64_t batch, double units_per_step,
                        sn_graph **ret);

/* He et al. 2015 with the stride in the 3×3 convolution. Inputs "images" [B,S,S,C] F32, "labels"
 * [B] I32. Names follow torchvision: conv1.w, bn1.g/b/mean/var, layer1.0.conv1.w, …,
 * layer2.0.downsample.0.w, fc.w/b. */
typedef struct sn_resnet {
    int64_t blocks[4];
    bool bottleneck;
    int64_t classes, size, channels, width; /* 0: 1000, 224, 3, 64 */
    bool inference;                         /* normalise by running statistics */
    bool stateless;                         /* keep no running statistics */
} sn_resnet;

sn_status sn_graph_resnet(sn_arena *arena, const sn_resnet *resnet, int64_t batch,
                          double samples_per_step, sn_graph **ret);

/* Inputs "x" [B,inputs] F32 and "labels" [B] I32, or "targets" [B,outputs] F32 (regression). */
typedef struct sn_mlp {
    int64_t inputs, width, layers, outputs; /* layers: hidden ones */
    sn_act act;                             /* NONE: relu */
    bool regression;                        /* mean-squared error instead of cross-entropy */
} sn_mlp;

sn_status sn_graph_mlp(sn_arena *arena, const sn_mlp *mlp, int64_t batch, double samples_per_step,
                       sn_graph **ret);

/* Convolutions 3×3 with batch norm and relu, each followed by a 2×2 maximum, then a hidden layer.
 * Inputs as sn_resnet's. */
typedef struct sn_cnn {
    int64_t size, channels, classes;
    int64_t widths[4]; /* of the convolutions, 0: no more */
    int64_t hidden;
    bool inference, stateless;
} sn_cnn;

sn_status sn_graph_cnn(sn_arena *arena, const sn_cnn *cnn, int64_t batch, double samples_per_step,
                       sn_graph **ret);

/* ---- any of them */
typedef enum sn_model_kind {
    SN_MODEL_GPT,
    SN_MODEL_BERT,
    SN_MODEL_RESNET,
    SN_MODEL_MLP,
    SN_MODEL_CNN
} sn_model_kind;

typedef struct sn_model {
    sn_model_kind kind;
    union {
        sn_gpt gpt;
        sn_bert bert;
        sn_resnet resnet;
        sn_mlp mlp;
        sn_cnn cnn;
    };
} sn_model;

typedef struct sn_model_preset {
    const char *name, *what;
    sn_model model;
} sn_model_preset;
/* The i-th, GPT's first; false beyond the last. */
bool sn_model_preset_at(int i, sn_model_preset *ret);
/* SN_ENOTFOUND lists the names. */
sn_status sn_model_find(const char *name, sn_model *ret);
/* units_per_step: tokens for GPT and masked LM, else samples. */
sn_status sn_model_build(sn_arena *arena, const sn_model *model, int64_t batch,
                         double units_per_step, sn_graph **ret);
int64_t sn_model_units(const sn_model *model); /* units of a sample */

#endif
