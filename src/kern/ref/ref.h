/* SPDX-License-Identifier: Apache-2.0
 *
 * ref — the oracle: every op as plain loops that read like ops.h, one file a family.
 *
 * The files are written over `real`. The library compiles them with float; the tests compile them
 * once more with double (every F32 operand is then double memory), which makes finite differences
 * exact to ten digits. Sums are double in both. REF(x) is the name of x in the one or the other. */
#ifndef SN_KERN_REF_H
#define SN_KERN_REF_H

#include "kern/card.h"

#include <math.h>
#include <string.h>

#ifndef SN_REF_REAL
#define SN_REF_REAL float
#define REF(name) ref_##name
#define REF_IMPLS kern_ref_impls
#endif

typedef SN_REF_REAL real;

#define REF_RUN(name)                                                                              \
    sn_status REF(name)(const sn_kernel *k, const void *const *in, void *const *out, void *work)

REF_RUN(embedding);
REF_RUN(embedding_grad);
REF_RUN(add);
REF_RUN(sum_to);
REF_RUN(residual);
REF_RUN(layer_norm);
REF_RUN(layer_norm_grad);
REF_RUN(residual_layer_norm);
REF_RUN(linear);
REF_RUN(linear_dx);
REF_RUN(linear_dw);
REF_RUN(attention);
REF_RUN(attention_grad);
REF_RUN(bias_gelu);
REF_RUN(bias_gelu_grad);
REF_RUN(row_max);
REF_RUN(xent_sums);
REF_RUN(xent_loss);
REF_RUN(xent_grad);
REF_RUN(conv);
REF_RUN(conv_dx);
REF_RUN(conv_dw);
REF_RUN(max_pool);
REF_RUN(max_pool_grad);
REF_RUN(avg_pool);
REF_RUN(avg_pool_grad);
REF_RUN(mean_pool);
REF_RUN(mean_pool_grad);
REF_RUN(bn_sums);
REF_RUN(bn_stats);
REF_RUN(bn_rstd);
REF_RUN(bn_track);
REF_RUN(bn_norm);
REF_RUN(bn_grad_sums);
REF_RUN(bn_dx);
REF_RUN(activate);
REF_RUN(activate_grad);
REF_RUN(glu);
REF_RUN(glu_grad);
REF_RUN(softmax);
REF_RUN(softmax_grad);
REF_RUN(rms_norm);
REF_RUN(rms_norm_grad);
REF_RUN(residual_rms_norm);
REF_RUN(rotary);
REF_RUN(attend);
REF_RUN(attend_grad);
REF_RUN(take);
REF_RUN(take_grad);
REF_RUN(batch_linear);
REF_RUN(batch_linear_dx);
REF_RUN(batch_linear_dw);
REF_RUN(moe_route);
REF_RUN(moe_route_grad);
REF_RUN(moe_dispatch);
REF_RUN(moe_combine);
REF_RUN(moe_dot);
REF_RUN(moe_balance);
REF_RUN(moe_balance_grad);
REF_RUN(mse_loss);
REF_RUN(mse_grad);
REF_RUN(constant);
REF_RUN(fill_zero);
REF_RUN(copy);
REF_RUN(slice);
REF_RUN(unpack);
REF_RUN(pack);
REF_RUN(sum_squares);
REF_RUN(adamw);

/* prepare: ask for work doubles. */
sn_status REF(columns)(sn_kernel *k);   /* two for each column */
sn_status REF(outputs)(sn_kernel *k);   /* one for each element of the output */
sn_status REF(row)(sn_kernel *k);       /* one for each key */
sn_status REF(row_grad)(sn_kernel *k);  /* a head's gradients */
sn_status REF(keys)(sn_kernel *k);      /* one for each key */
sn_status REF(keys_grad)(sn_kernel *k); /* a key head's gradients and a row's */
sn_status REF(experts)(sn_kernel *k);   /* one for each expert of each sample */

const kern_impl *REF_IMPLS(void);

#endif
