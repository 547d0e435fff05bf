/* SPDX-License-Identifier: Apache-2.0
 *
 * onnx — models of the ONNX format as graphs of ops.
 *
 *   bytes ─parse─▶ model ─import─▶ graph + first contents of its parameters and constants
 *                            │
 *              shapes, known inputs; run: computes one op on constants (folding)
 *
 * The graph is an ordinary one: append a loss and differentiate it, plan it, or evaluate it. F32
 * initializers are its parameters; everything else that is known at import is folded, so that the
 * chains Shape → Gather → Concat → Reshape that exporters write are gone.
 *
 * Invariants
 *  1. No bytes crash or hang: nesting, sizes, names and indices are checked before they are used,
 *     and nothing is allocated whose size the file states without a bound (sn_onnx_opts).
 *  2. Shapes are static. A dim without a number needs one from the caller; an operand that decides
 *     a shape must be known (SN_EFIT says which).
 *  3. A name without a row in the table is SN_ENOTSUP and listed by sn_onnx_missing.
 *  4. Data of initializers is not copied: the model outlives what is imported from it. Pure. */
#ifndef SN_ONNX_ONNX_H
#define SN_ONNX_ONNX_H

#include "base/base.h"
#include "graph/graph.h"

typedef struct sn_onnx_model sn_onnx_model;

/* SN_ECORRUPT: not a model; `name` (of the file) comes first in every sentence about it. */
sn_status sn_onnx_parse(const void *data, size_t bytes, const char *name, sn_onnx_model **ret);
void sn_onnx_free(sn_onnx_model *model); /* NULL is fine */

/* Ops of the model that have no row: how many, and their names "A, B" added to `out` when given. */
int sn_onnx_missing(const sn_onnx_model *model, sn_str *out);
/* Every op in the model, "A B C" once each; the opset of the default domain. */
void sn_onnx_ops_used(const sn_onnx_model *model, sn_str *out);
int64_t sn_onnx_opset(const sn_onnx_model *model);
/* Inputs that no initializer gives, in order; NULL past the last. */
const char *sn_onnx_input_name(const sn_onnx_model *model, int i);
int sn_onnx_ops_known(void); /* rows of the table */

/* A single tensor as files of inputs and outputs hold it. Data in the arena. SN_ENOTSUP: strings,
 * sequences and the like. */
sn_status sn_onnx_tensor(const void *data, size_t bytes, sn_arena *arena, sn_tensor *ret);

typedef struct sn_onnx_dim {
    const char *name; /* "batch" */
    int64_t size;
} sn_onnx_dim;

typedef struct sn_onnx_bind {
    const char *name; /* of an input */
    sn_tensor tensor; /* its shape; with data: its value is part of the model */
} sn_onnx_bind;

typedef struct sn_onnx_opts {
    const sn_onnx_dim *dim;
    int dims;
    const sn_onnx_bind *bind;
    int binds;
    bool frozen; /* initializers are constants, not parameters */
    /* Compute an op of graph on host memory; out has types, shapes and memory. NULL: what would
     * have to be computed is refused. */
    sn_status (*run)(void *ctx, sn_op op, const sn_attr *attr, const sn_tensor *in, int ins,
                     sn_tensor *out, int outs);
    /* Bytes of a file beside the model ("weights.bin"), to live as long as the model. NULL: models
     * with external data are refused. */
    sn_status (*external)(void *ctx, const char *location, int64_t offset, int64_t bytes,
                          const void **ret);
    void *ctx;
    int64_t tensor_bytes_max;    /* of any tensor; 0: 4 GiB */
    int64_t constants_bytes_max; /* of all that is folded together; 0: 1 GiB */
    int nodes_max;               /* of the graph, loops unrolled; 0: 200,000 */
} sn_onnx_opts;

typedef struct sn_onnx_value {
    const char *name;
    int value;        /* in the graph; -1: the output is a constant */
    sn_tensor tensor; /* first content of parameters and constants; of inputs: type and shape */
} sn_onnx_value;

typedef struct sn_onnx {
    sn_graph *graph;
    int inputs, outputs, params, constants;
    sn_onnx_value *input, *output, *param, *constant;
} sn_onnx;

/* SN_ENOTSUP: an op, a type or a form that is not offered; SN_EFIT: a shape or value must be given;
 * SN_EINVAL, SN_ECORRUPT: the model contradicts itself. */
sn_status sn_onnx_import(const sn_onnx_model *model, const sn_onnx_opts *opts, sn_arena *arena,
                         sn_onnx **ret);

/* Append a loss to output 0 and make it the graph's: "cross-entropy", the mean over positions with
 * classes in the last dim and targets[…] I32; "squares", the mean of (output − target)². They
 * become an input, whose value is returned. Then sn_graph_backward. */
sn_status sn_onnx_loss(sn_onnx *onnx, const char *kind, int *ret_targets);

#endif
