/* SPDX-License-Identifier: Apache-2.0
 * product — linear, linear_dx and linear_dw as matrix products, and by oneDNN. The card's
 * state is its engine. */
#ifndef SN_KERN_PRODUCT_H
#define SN_KERN_PRODUCT_H

#include "kern/card.h"

typedef struct cpu_engine cpu_engine;

sn_status cpu_engine_create(cpu_engine **ret);
void cpu_engine_free(cpu_engine *e); /* NULL and half-made ones are fine */
struct dnnl_engine *cpu_engine_of(const cpu_engine *e);
struct dnnl_stream *cpu_stream_of(const cpu_engine *e);
void cpu_engine_threads(const sn_kernel *k); /* as many as the kernel's card has */

/* C[m,n] = A[m,k]·B[k,n]; transposed operands are stored the other way round. The rows of a
 * pointwise convolution (conv.h) are the places of all samples. */
typedef struct product_form {
    int64_t m, n, k;
    bool a_transposed, b_transposed;
} product_form;

static inline product_form product_form_of(const sn_kernel *k)
{
    const kern_dims *d = &k->d;
    const kern_window *w = &d->w;
    if (k->spec.op == SN_OP_CONV)
        return (product_form){w->n * w->out_count, w->f, w->c, false, true};
    if (k->spec.op == SN_OP_CONV_DX)
        return (product_form){w->n * w->out_count, w->c, w->f, false, false};
    if (k->spec.op == SN_OP_CONV_DW)
        return (product_form){w->f, w->c, w->n * w->out_count, true, false};
    if (k->spec.op == SN_OP_LINEAR)
        return (product_form){d->rows, d->cols, d->inner, false, true};
    if (k->spec.op == SN_OP_LINEAR_DX)
        return (product_form){d->rows, d->inner, d->cols, false, false};
    return (product_form){d->cols, d->inner, d->rows, true, false};
}

sn_status cpu_product_prepare(sn_kernel *k);
sn_status cpu_product_run(const sn_kernel *k, const void *const *in, void *const *out, void *work);
void cpu_product_done(sn_kernel *k);

#endif
