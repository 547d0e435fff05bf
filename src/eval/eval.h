/* SPDX-License-Identifier: Apache-2.0
 *
 * eval — graphs and single ops run on one card, op by op, in the order of the graph: what importers
 * compute constants with, what conformance runs on, what trains a small graph without a plan.
 *
 *   graph ─create─▶ kernels prepared once, a buffer for each value that lives ─run─▶ … many times
 *
 * Invariants: a value's memory is released for others after its last reader unless it is kept;
 * run allocates nothing. One thread at a time. */
#ifndef SN_EVAL_EVAL_H
#define SN_EVAL_EVAL_H

#include "graph/graph.h"
#include "kern/kern.h"

typedef struct sn_eval sn_eval;

/* Compute one op now: `out` has types, shapes and memory. As sn_onnx_opts.run with the card as
 * ctx. */
sn_status sn_eval_op(void *card, sn_op op, const sn_attr *attr, const sn_tensor *in, int ins,
                     sn_tensor *out, int outs);

/* Prepare the graph on the card. keep[keeps] are values whose content is wanted after a run.
 * SN_EFIT: more memory than there is (says how much). */
sn_status sn_eval_create(sn_card *card, const sn_graph *g, const int *keep, int keeps,
                         sn_eval **ret);
void sn_eval_free(sn_eval *e); /* NULL is fine */

/* The memory of an input, parameter or kept value: to fill before a run, to read after it. */
void *sn_eval_data(sn_eval *e, int value);
sn_status sn_eval_run(sn_eval *e);

/* parameter −= lr · gradient, for every parameter with one, which must be kept. */
void sn_eval_descend(sn_eval *e, double lr);

#endif
