/* SPDX-License-Identifier: Apache-2.0
 * product — linear, linear_dx and linear_dw by oneDNN. The card's state is its engine. */
#ifndef SN_KERN_PRODUCT_H
#define SN_KERN_PRODUCT_H

#include "kern/card.h"

typedef struct cpu_engine cpu_engine;

sn_status cpu_engine_create(cpu_engine **ret);
void cpu_engine_free(cpu_engine *e); /* NULL and half-made ones are fine */

sn_status cpu_product_prepare(sn_kernel *k);
sn_status cpu_product_run(const sn_kernel *k, const void *const *in, void *const *out, void *work);
void cpu_product_done(sn_kernel *k);

#endif
