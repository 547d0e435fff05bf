/* SPDX-License-Identifier: Apache-2.0
 *
 * ops_tensor — general tensor ops that importers build from. Included by ops.h, whose notation
 * holds here. */
#ifndef SN_GRAPH_OPS_TENSOR_H
#define SN_GRAPH_OPS_TENSOR_H

#define SN_OP_TENSOR_LIST(X)

#endif
