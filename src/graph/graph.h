/* SPDX-License-Identifier: Apache-2.0
 *
 * graph — a model as a graph of ops: values (tensors) and nodes in an order in which each node
 * comes after its inputs.
 *
 *   build (models, importers) → infer shapes as nodes are added → [plan marks stages] → fuse →
 * backward → plan shards it
 *
 * Everything that a pass or the planner knows about an op stands in its row (sn_op_row): shape
 * rule, backward builder, FLOPs, bytes, and the shard rule, which names the op's iteration
 * dimensions ("labels") and says for each operand dimension which label runs along it. No pass asks
 * what an op is.
 *
 *   linear  x[a,b | k]  w[n | k]  →  y[a,b | n]     labels a, b, n: splitting them splits the
 * result label k: splitting it leaves y a partial sum
 *
 * Shapes are those of one whole micro-batch (all data-parallel ranks together). Sequence comes
 * first ([T,B,D]) so that a sequence split is contiguous.
 *
 * Invariants (sn_graph_check asserts them)
 *  1. Node order is a topological order; each value has one producer or is an input or parameter.
 *  2. The shape rule of every node holds.
 *  3. A backward node's origin is the forward node it belongs to (its own index for forward nodes);
 *     both have the same stage. Pure. */
#ifndef SN_GRAPH_GRAPH_H
#define SN_GRAPH_GRAPH_H

#include "base/base.h"
#include "graph/ops.h"

typedef struct sn_attr {
    int64_t i[16];
    double f[2];
    sn_shape shape;
    int64_t begin; /* set by plan per card */
} sn_attr;

/* STATE: kept from micro-batch to micro-batch and saved like a parameter, but not trained: its next
 * content is the result `next`, computed from what a forward pass saw (running statistics). All
 * readers of a micro-batch come before `next` in node order, so `next` may be written over it. */
typedef enum sn_value_kind {
    SN_VALUE_INPUT,
    SN_VALUE_PARAM,
    SN_VALUE_RESULT,
    SN_VALUE_STATE
} sn_value_kind;
typedef enum sn_init { SN_INIT_ZERO, SN_INIT_ONE, SN_INIT_NORMAL } sn_init;

typedef struct sn_value {
    const char *name; /* parameters: "h.0.attn.wqkv"; inputs: "ids"; results: "h.0.attn" or NULL */
    sn_value_kind kind;
    sn_dtype dtype;
    sn_shape shape;
    int producer;  /* node, -1 for inputs, parameters and states */
    int batch_dim; /* inputs: which dim counts samples, -1 none */
    sn_init init;  /* parameters and states */
    double init_std;
    bool decay; /* parameters: weight decay applies (matrices yes, gains and biases no) */
    int grad;   /* after sn_graph_backward: the value that is its gradient, -1 none */
    int next;   /* states: the result that it becomes, -1: stays as it is */
} sn_value;

typedef struct sn_node {
    sn_op op;
    sn_attr attr;
    int ins, outs;
    int in[SN_OP_IN_MAX]; /* value, -1 for an absent optional one */
    int out[SN_OP_OUT_MAX];
    const char *name; /* "h.0.attn" */
    bool backward;
    int origin;
    int stage;
} sn_node;

typedef struct sn_graph {
    const char *name;
    sn_arena *arena; /* borrowed; owns everything below */
    int values, nodes;
    sn_value *value;
    sn_node *node;
    size_t value_cap, node_cap;
    int loss; /* value, -1 none: a scalar, the mean over the step's tokens once all micro-batches
                 are added */
    const char *scope; /* prefix of the names that the calls of build.h give */
    sn_status failed;  /* what the first of them that failed said; the later ones did nothing */
} sn_graph;

/* ---- building ---- */
sn_graph *sn_graph_create(sn_arena *arena, const char *name);
int sn_graph_input(sn_graph *g, const char *name, sn_dtype dtype, sn_shape shape, int batch_dim);
int sn_graph_param(sn_graph *g, const char *name, sn_shape shape, sn_init init, double std,
                   bool decay);
/* A state (F32) with its first content; set value[].next once the result exists. */
int sn_graph_state(sn_graph *g, const char *name, sn_shape shape, sn_init init);
/* Append a node: checks arity and runs the shape rule (SN_EINVAL: op, node name, operand shapes).
 * ret_out[row.outs] may be NULL. */
sn_status sn_graph_add(sn_graph *g, sn_op op, const char *name, const sn_attr *attr, const int *in,
                       int ins, int *ret_out);
int sn_graph_find(const sn_graph *g, const char *name); /* input or parameter by name; -1 */
void sn_graph_check(const sn_graph *g);
void sn_graph_print(const sn_graph *g, sn_str *out); /* a line a node */
int64_t sn_graph_parameters(const sn_graph *g);      /* elements */

/* ---- what a row says ---- */
typedef enum sn_combine { SN_COMBINE_NONE, SN_COMBINE_SUM, SN_COMBINE_MAX } sn_combine;

#define SN_LABELS_MAX 16

typedef struct sn_shard_rule {
    int labels;
    int begin_label; /* the label whose start on a card is attr.begin; -1: the op has none */
    struct {
        int id; /* equal in the rules of a forward node and of the backward nodes with it as origin
                 */
        int64_t size;
        bool splittable;    /* false: must be whole on a card */
        sn_combine combine; /* what outputs that lack the label become when it is split */
        const char *must;   /* what users call it ("heads"), when a split over cards has to split
                               it: a degree that does not divide it is refused; else NULL */
    } label[SN_LABELS_MAX];
    int8_t in[SN_OP_IN_MAX][SN_RANK_MAX];   /* index into label[] of each operand dim, -1: a dim of
                                               size 1 or unlabelled */
    int8_t out[SN_OP_OUT_MAX][SN_RANK_MAX]; /* an output that lacks a split label is partial;
                                               lacking it with NONE is not allowed */
} sn_shard_rule;

/* As a gradient: the constant 1, not computed. Rows that do not ask for it never see it. */
#define SN_GRAD_ONE (-2)

/* Gradients collected so far, by value; private to the backward pass and the rows' builders. */
typedef struct sn_grads sn_grads;

typedef struct sn_op_row {
    sn_op op;
    const char *name;
    int ins_min, ins_max, outs;
    /* dtypes and shapes of node->out from its inputs; the values exist already */
    sn_status (*shape)(sn_graph *g, sn_node *n);
    /* append nodes that compute the gradients of the node's inputs and hand each to sn_grads_add;
     * grad_out[o] is the gradient of output o, -1 when nothing uses it. NULL: not differentiable */
    sn_status (*backward)(sn_graph *g, int node, const int *grad_out, sn_grads *into);
    double (*flops)(const sn_graph *g, const sn_node *n); /* NULL: 1 per output element */
    void (*shard)(const sn_graph *g, const sn_node *n, sn_shard_rule *ret);
    uint32_t exact; /* outputs that stay F32 whatever the precision (statistics) */
    bool takes_one; /* backward understands SN_GRAD_ONE, the gradient of the loss by itself */
} sn_op_row;

const sn_op_row *sn_op_row_of(sn_op op);
const char *sn_op_name(sn_op op);
/* multiply–add = 2; causal attention counts the lower half only */
double sn_node_flops(const sn_graph *g, const sn_node *n);
/* operands read + results written once, in storage dtype */
double sn_node_bytes(const sn_graph *g, const sn_node *n);
void sn_node_shard(const sn_graph *g, const sn_node *n, sn_shard_rule *ret);

/* ---- windows of convolutions and pools, see ops.h ---- */
static inline int64_t sn_window_stride(const sn_attr *a, int j)
{
    return a->i[3 + j] ? a->i[3 + j] : 1;
}

static inline int64_t sn_window_dilation(const sn_attr *a, int j)
{
    return a->i[6 + j] ? a->i[6 + j] : 1;
}

/* How many windows of `size` places lie along `length` elements of spatial dim j; < 1: none. */
static inline int64_t sn_window_count(const sn_attr *a, int j, int64_t length, int64_t size)
{
    int64_t room = length + a->i[9 + j] + a->i[12 + j] - sn_window_dilation(a, j) * (size - 1) - 1;
    return room < 0 ? 0 : room / sn_window_stride(a, j) + 1;
}

/* ---- passes ---- */
/* Merge what pays: residual + layer_norm (or rms_norm) of one stage → one op. Before backward. */
sn_status sn_graph_fuse(sn_graph *g);
/* Reverse mode from g->loss (seed 1): appends backward nodes, sums the gradients of values with
 * several uses (add nodes), sets value.grad of every parameter that the loss depends on. SN_ENOTSUP
 * names an op without a backward. */
sn_status sn_graph_backward(sn_graph *g);

#include "graph/build.h"
#include "graph/models.h"

#endif
