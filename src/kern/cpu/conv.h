/* SPDX-License-Identifier: Apache-2.0
 * conv — convolutions and their adjoints by oneDNN, with activations as they lie (channels last)
 * and weights in the blocks it asks for. */
#ifndef SN_KERN_CONV_H
#define SN_KERN_CONV_H

#include "kern/card.h"

sn_status cpu_conv_prepare(sn_kernel *k);
sn_status cpu_conv_run(const sn_kernel *k, const void *const *in, void *const *out, void *work);
void cpu_conv_done(sn_kernel *k);

/* One place of a window, moved by one, without padding and groups: a linear over all places. */
bool cpu_conv_pointwise(const sn_kernel *k);

#endif
