/* SPDX-License-Identifier: Apache-2.0
 * A model of the ONNX format with a folder of inputs and the outputs they should give. */
#ifndef SN_APP_ONNX_CASE_H
#define SN_APP_ONNX_CASE_H

#include "eval/eval.h"
#include "kern/kern.h"
#include "onnx/onnx.h"

/* The model of a file. */
sn_status sn_onnx_file(const char *path, sn_onnx_model **ret);

/* Import with shapes (and values) in opts; computes constants on the card. `dir`: where files of
 * external data are. */
sn_status sn_onnx_file_import(const sn_onnx_model *model, const char *dir, sn_card *card,
                              sn_onnx_opts opts, sn_arena *arena, sn_onnx **ret);

/* Run on data/input_N.pb and compare with data/output_N.pb: relative 1e-3, absolute 1e-5; integers
 * exactly. SN_EMISMATCH says the first difference. */
sn_status sn_onnx_case(const sn_onnx_model *model, const char *dir, const char *data,
                       sn_card *card);

/* Append the loss, differentiate, and take `steps` steps of gradient descent on one card: inputs
 * from data/input_N.pb, the targets from data/output_0.pb. Prints the loss before each step. */
sn_status sn_onnx_train(const sn_onnx_model *model, const char *dir, const char *data,
                        const char *loss, int64_t steps, double lr, sn_card *card);

/* What a folder of data holds. */
enum { SN_ONNX_OPERANDS_MAX = 64 };
typedef struct sn_onnx_data {
    int inputs, outputs;
    sn_onnx_bind input[SN_ONNX_OPERANDS_MAX];
    sn_tensor output[SN_ONNX_OPERANDS_MAX];
} sn_onnx_data;
sn_status sn_onnx_data_read(const sn_onnx_model *model, const char *dir, sn_arena *arena,
                            sn_onnx_data *ret);
/* First contents into a graph that is about to run; inputs from d when given. */
void sn_onnx_fill(sn_eval *e, const sn_onnx_value *v, int n, const sn_onnx_data *d);

/* Every model below `root`; returns the exit code. */
int sn_onnx_conformance(const char *root, sn_card *card, bool failures);

#endif
