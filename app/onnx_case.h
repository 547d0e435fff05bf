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

/* Every model below `root`; returns the exit code. */
int sn_onnx_conformance(const char *root, sn_card *card, bool failures);

#endif
