/* SPDX-License-Identifier: Apache-2.0
 * Products by oneDNN: for cards of several threads, and for few rows, where packing would not pay.
 * Linear and its two adjoints are one matrix product each, with operands read
 * as they lie (transposition is a matter of strides):
 *
 *   linear      y[M,N]  = x[M,K] · w[N,K]ᵀ + b      linear_dx  dx[M,K] = dy[M,N] · w[N,K]
 *   linear_dw   dw[N,K] = dy[M,N]ᵀ · x[M,K]         (+= as a post-operation)
 *
 * Primitive, memory objects and scratch are made at prepare; run sets addresses and executes. */
#include "kern/cpu/product.h"

#include <dnnl.h>
#include <stdlib.h>

#ifdef _OPENMP
#include <omp.h>
#else
#define omp_set_num_threads(n) ((void) (n))
#endif

struct cpu_engine {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
};

enum { A, B, BIAS, C, SCRATCH, OPERANDS };

typedef struct product {
    dnnl_primitive_t primitive;
    dnnl_memory_t memory[OPERANDS];
    dnnl_exec_arg_t arg[OPERANDS];
    int args;
} product;

static sn_status failed(const sn_kernel *k, const char *call, dnnl_status_t status)
{
    sn_str text = {0};
    kern_spec_text(&k->spec, &text);
    sn_fail(status == dnnl_out_of_memory ? SN_ENOMEM : SN_ENOTSUP, "kernel %s: oneDNN %s: %d",
            sn_str_get(&text), call, (int) status);
    sn_str_done(&text);
    return status == dnnl_out_of_memory ? SN_ENOMEM : SN_ENOTSUP;
}

#define TRY_DNNL(k, call)                                                                          \
    do {                                                                                           \
        dnnl_status_t status_ = (call);                                                            \
        if (status_ != dnnl_success)                                                               \
            return failed(k, #call, status_);                                                      \
    } while (0)

sn_status cpu_engine_create(cpu_engine **ret)
{
    cpu_engine *e = sn_alloc(sizeof *e);
    if (dnnl_engine_create(&e->engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&e->stream, e->engine, dnnl_stream_default_flags) != dnnl_success) {
        cpu_engine_free(e);
        return sn_fail(SN_ENOTSUP, "card cpu: oneDNN has no engine for this processor");
    }
    *ret = e;
    return SN_OK;
}

void cpu_engine_free(cpu_engine *e)
{
    if (!e)
        return;
    if (e->stream)
        dnnl_stream_destroy(e->stream);
    if (e->engine)
        dnnl_engine_destroy(e->engine);
    free(e);
}

struct dnnl_engine *cpu_engine_of(const cpu_engine *e)
{
    return e->engine;
}

struct dnnl_stream *cpu_stream_of(const cpu_engine *e)
{
    return e->stream;
}

void cpu_engine_threads(const sn_kernel *k)
{
    omp_set_num_threads(k->card->threads);
}

static dnnl_status_t matrix(dnnl_memory_desc_t *ret, int64_t rows, int64_t cols, bool transposed)
{
    dnnl_dims_t dims = {rows, cols}, strides = {transposed ? 1 : cols, transposed ? rows : 1};
    return dnnl_memory_desc_init_by_strides(ret, 2, dims, dnnl_f32, strides);
}

static sn_status describe(sn_kernel *k, const cpu_engine *e, dnnl_primitive_attr_t attr,
                          dnnl_memory_desc_t desc[OPERANDS], dnnl_primitive_desc_t *ret)
{
    product_form f = product_form_of(k);
    dnnl_matmul_desc_t op;
    bool bias = kern_given(k, 2);
    TRY_DNNL(k, matrix(&desc[A], f.m, f.k, f.a_transposed));
    TRY_DNNL(k, matrix(&desc[B], f.k, f.n, f.b_transposed));
    TRY_DNNL(k, matrix(&desc[BIAS], 1, f.n, false));
    TRY_DNNL(k, matrix(&desc[C], f.m, f.n, false));
    TRY_DNNL(k, dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user));
    if (kern_adds(k, 0)) {
        dnnl_post_ops_t sum;
        TRY_DNNL(k, dnnl_post_ops_create(&sum));
        dnnl_status_t status = dnnl_post_ops_append_sum(sum, 1);
        if (status == dnnl_success)
            status = dnnl_primitive_attr_set_post_ops(attr, sum);
        dnnl_post_ops_destroy(sum);
        if (status != dnnl_success)
            return failed(k, "post-operation", status);
    }
    TRY_DNNL(k,
             dnnl_matmul_desc_init(&op, &desc[A], &desc[B], bias ? &desc[BIAS] : NULL, &desc[C]));
    TRY_DNNL(k, dnnl_primitive_desc_create(ret, &op, attr, e->engine, NULL));
    desc[SCRATCH] = *dnnl_primitive_desc_query_md(*ret, dnnl_query_scratchpad_md, 0);
    return SN_OK;
}

static sn_status assemble(sn_kernel *k, product *p, const cpu_engine *e,
                          const dnnl_memory_desc_t desc[OPERANDS], dnnl_primitive_desc_t pd)
{
    static const int role[OPERANDS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST,
                                       DNNL_ARG_SCRATCHPAD};
    TRY_DNNL(k, dnnl_primitive_create(&p->primitive, pd));
    for (int i = 0; i < OPERANDS; i++) {
        if (i == BIAS && !kern_given(k, 2))
            continue;
        TRY_DNNL(k, dnnl_memory_create(&p->memory[i], &desc[i], e->engine, DNNL_MEMORY_NONE));
        p->arg[p->args++] = (dnnl_exec_arg_t){role[i], p->memory[i]};
    }
    k->work_bytes = dnnl_memory_desc_get_size(&desc[SCRATCH]);
    return SN_OK;
}

sn_status cpu_product_prepare(sn_kernel *k)
{
    const cpu_engine *e = k->card->state;
    dnnl_memory_desc_t desc[OPERANDS];
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t pd = NULL;
    product_form f = product_form_of(k);
    if (f.m == 0 || f.n == 0 || f.k == 0)
        return SN_OK; /* run does without */
    cpu_engine_threads(k);
    product *p = k->state = sn_alloc(sizeof *p);
    TRY_DNNL(k, dnnl_primitive_attr_create(&attr));
    sn_status status = describe(k, e, attr, desc, &pd);
    dnnl_primitive_attr_destroy(attr);
    if (status == SN_OK)
        status = assemble(k, p, e, desc, pd);
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    return status;
}

void cpu_product_done(sn_kernel *k)
{
    product *p = k->state;
    if (!p)
        return;
    for (int i = 0; i < OPERANDS; i++)
        if (p->memory[i])
            dnnl_memory_destroy(p->memory[i]);
    if (p->primitive)
        dnnl_primitive_destroy(p->primitive);
    free(p);
}

/* No element of A or B: each sum is empty, and C the bias or zero. */
static void run_empty(const sn_kernel *k, const float *bias, float *c)
{
    product_form f = product_form_of(k);
    for (int64_t i = 0; i < f.m * f.n; i++)
        c[i] = (kern_adds(k, 0) ? c[i] : 0) + (bias ? bias[i % f.n] : 0);
}

sn_status cpu_product_run(const sn_kernel *k, const void *const *in, void *const *out, void *work)
{
    const cpu_engine *e = k->card->state;
    const product *p = k->state;
    const void *bias = kern_given(k, 2) ? in[2] : NULL;
    if (!p) {
        run_empty(k, bias, out[0]);
        return SN_OK;
    }
    const void *data[OPERANDS] = {in[0], in[1], bias, out[0], work};
    for (int i = 0; i < OPERANDS; i++)
        if (p->memory[i])
            TRY_DNNL(k, dnnl_memory_set_data_handle(p->memory[i], (void *) (uintptr_t) data[i]));
    cpu_engine_threads(k);
    TRY_DNNL(k, dnnl_primitive_execute(p->primitive, e->stream, p->args, p->arg));
    return SN_OK;
}
