/* SPDX-License-Identifier: Apache-2.0
 * Convolutions by oneDNN. Primitives and memory objects are made at prepare; run turns the weights
 * into the primitive's blocks (they change with each step), convolves, and turns a gradient of
 * weights back. What oneDNN refuses, empty tensors among it, the oracle's loops compute. */
#include "kern/cpu/conv.h"
#include "kern/cpu/product.h"
#include "kern/ref/ref.h"

#include <dnnl.h>
#include <stdlib.h>

enum { X, W, BIAS, Y, OPERANDS };

typedef struct conv {
    dnnl_primitive_desc_t forward, desc; /* forward: what a backward one refers to */
    dnnl_primitive_t conv, reorder;      /* no reorder: the weights lie well */
    dnnl_memory_t memory[OPERANDS], packed, scratch;
    size_t packed_at;
} conv;

/* The shape of a window as oneDNN sees it: 2 spatial dims where they do, else 3. */
typedef struct geometry {
    int dims;
    dnnl_dims_t stride, dilation, before, after;
    dnnl_memory_desc_t md[OPERANDS], any;
} geometry;

bool cpu_conv_pointwise(const sn_kernel *k)
{
    const kern_window *w = &k->d.w;
    bool one = w->groups == 1 && w->size_count == 1 && w->in_count == w->out_count;
    for (int j = 0; j < 3; j++)
        one = one && w->before[j] == 0 && w->stride[j] == 1;
    return one;
}

/* Dims in oneDNN's order {N, C, S…}, channels last in memory. */
static bool image(dnnl_memory_desc_t *ret, int64_t n, int64_t c, const int64_t *size, int dims)
{
    dnnl_dims_t dim = {n, c}, stride = {0, 1};
    int64_t step = c;
    for (int j = dims - 1; j >= 0; j--) {
        dim[2 + j] = size[j];
        stride[2 + j] = step;
        step *= size[j];
    }
    stride[0] = step;
    return dnnl_memory_desc_init_by_strides(ret, dims + 2, dim, dnnl_f32, stride) == dnnl_success;
}

/* w[F,K…,C/G] as {G, F/G, C/G, K…}; `any`: blocked as the primitive likes. */
static bool weights(geometry *g, const kern_window *w, const int64_t *size)
{
    int64_t each = w->c / w->groups, step = each;
    int at = w->groups > 1 ? 1 : 0, rank = g->dims + 2 + at;
    dnnl_dims_t dim = {w->groups}, stride = {0};
    dim[at] = w->f / w->groups;
    dim[at + 1] = each;
    stride[at + 1] = 1;
    for (int j = g->dims - 1; j >= 0; j--) {
        dim[at + 2 + j] = size[j];
        stride[at + 2 + j] = step;
        step *= size[j];
    }
    stride[at] = step;
    if (at)
        stride[0] = step * (w->f / w->groups);
    return dnnl_memory_desc_init_by_strides(&g->md[W], rank, dim, dnnl_f32, stride) ==
               dnnl_success &&
           dnnl_memory_desc_init_by_tag(&g->any, rank, dim, dnnl_f32, dnnl_format_tag_any) ==
               dnnl_success;
}

static bool describe(const kern_window *w, geometry *g)
{
    bool flat = w->in[0] == 1 && w->out[0] == 1 && w->size[0] == 1 && w->before[0] == 0;
    int from = flat ? 1 : 0;
    dnnl_dims_t features = {w->f};
    g->dims = 3 - from;
    for (int j = 0; j < g->dims; j++) {
        int64_t s = w->stride[from + j], d = w->dilation[from + j];
        g->stride[j] = s;
        g->dilation[j] = d - 1;
        g->before[j] = w->before[from + j];
        g->after[j] = (w->out[from + j] - 1) * s + (w->size[from + j] - 1) * d + 1 -
                      w->in[from + j] - g->before[j];
    }
    return image(&g->md[X], w->n, w->c, w->in + from, g->dims) &&
           image(&g->md[Y], w->n, w->f, w->out + from, g->dims) && weights(g, w, w->size + from) &&
           dnnl_memory_desc_init_by_tag(&g->md[BIAS], 1, features, dnnl_f32, dnnl_a) ==
               dnnl_success;
}

static bool make_forward(conv *c, const geometry *g, dnnl_primitive_attr_t attr,
                         dnnl_engine_t engine, bool bias)
{
    dnnl_convolution_desc_t d;
    return dnnl_dilated_convolution_forward_desc_init(
               &d, dnnl_forward_training, dnnl_convolution_direct, &g->md[X], &g->any,
               bias ? &g->md[BIAS] : NULL, &g->md[Y], g->stride, g->dilation, g->before,
               g->after) == dnnl_success &&
           dnnl_primitive_desc_create(&c->forward, &d, attr, engine, NULL) == dnnl_success;
}

static bool make_backward(conv *c, const geometry *g, dnnl_primitive_attr_t attr,
                          dnnl_engine_t engine, bool data)
{
    dnnl_convolution_desc_t d;
    dnnl_status_t status = data ? dnnl_dilated_convolution_backward_data_desc_init(
                                      &d, dnnl_convolution_direct, &g->md[X], &g->any, &g->md[Y],
                                      g->stride, g->dilation, g->before, g->after)
                                : dnnl_dilated_convolution_backward_weights_desc_init(
                                      &d, dnnl_convolution_direct, &g->md[X], &g->any, NULL,
                                      &g->md[Y], g->stride, g->dilation, g->before, g->after);
    return status == dnnl_success &&
           dnnl_primitive_desc_create(&c->desc, &d, attr, engine, c->forward) == dnnl_success;
}

/* The primitive that turns weights to its blocks, or a gradient of them back. */
static bool make_reorder(conv *c, const geometry *g, const dnnl_memory_desc_t *blocks,
                         dnnl_engine_t engine, bool back)
{
    dnnl_primitive_desc_t pd;
    if (dnnl_memory_desc_equal(blocks, &g->md[W]))
        return true;
    if (dnnl_reorder_primitive_desc_create(&pd, back ? blocks : &g->md[W], engine,
                                           back ? &g->md[W] : blocks, engine, NULL) != dnnl_success)
        return false;
    bool made = dnnl_primitive_create(&c->reorder, pd) == dnnl_success;
    dnnl_primitive_desc_destroy(pd);
    return made;
}

static bool make_memory(sn_kernel *k, conv *c, const geometry *g, const dnnl_memory_desc_t *blocks,
                        dnnl_engine_t engine)
{
    const dnnl_memory_desc_t *scratch =
        dnnl_primitive_desc_query_md(c->desc, dnnl_query_scratchpad_md, 0);
    for (int i = 0; i < OPERANDS; i++)
        if (dnnl_memory_create(&c->memory[i], &g->md[i], engine, DNNL_MEMORY_NONE) != dnnl_success)
            return false;
    c->packed_at = SN_ALIGN_UP(dnnl_memory_desc_get_size(scratch), (size_t) 64);
    k->work_bytes = c->packed_at + (c->reorder ? dnnl_memory_desc_get_size(blocks) : 0);
    return dnnl_memory_create(&c->packed, blocks, engine, DNNL_MEMORY_NONE) == dnnl_success &&
           dnnl_memory_create(&c->scratch, scratch, engine, DNNL_MEMORY_NONE) == dnnl_success;
}

static bool make(sn_kernel *k, conv *c, dnnl_primitive_attr_t attr)
{
    geometry g;
    dnnl_engine_t engine = cpu_engine_of(k->card->state);
    bool forward = k->spec.op == SN_OP_CONV, data = k->spec.op == SN_OP_CONV_DX;
    if (!describe(&k->d.w, &g) ||
        dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user) != dnnl_success ||
        !make_forward(c, &g, attr, engine, forward && kern_given(k, 2)) ||
        (!forward && !make_backward(c, &g, attr, engine, data)))
        return false;
    if (forward) {
        c->desc = c->forward;
        c->forward = NULL;
    }
    const dnnl_memory_desc_t *blocks = dnnl_primitive_desc_query_md(
        c->desc, forward || data ? dnnl_query_weights_md : dnnl_query_diff_weights_md, 0);
    return dnnl_primitive_create(&c->conv, c->desc) == dnnl_success &&
           make_reorder(c, &g, blocks, engine, !forward && !data) &&
           make_memory(k, c, &g, blocks, engine);
}

static sn_status prepare_loops(sn_kernel *k)
{
    cpu_conv_done(k);
    k->state = NULL;
    k->work_bytes = 0;
    return k->spec.op == SN_OP_CONV ? SN_OK : ref_outputs(k);
}

sn_status cpu_conv_prepare(sn_kernel *k)
{
    const kern_window *w = &k->d.w;
    dnnl_primitive_attr_t attr;
    bool empty = w->n == 0 || w->c == 0 || w->f == 0 || w->in_count == 0 || w->out_count == 0;
    if (empty || dnnl_primitive_attr_create(&attr) != dnnl_success)
        return prepare_loops(k);
    cpu_engine_threads(k);
    conv *c = k->state = sn_alloc(sizeof *c);
    bool made = make(k, c, attr);
    dnnl_primitive_attr_destroy(attr);
    return made ? SN_OK : prepare_loops(k);
}

void cpu_conv_done(sn_kernel *k)
{
    conv *c = k->state;
    if (!c)
        return;
    dnnl_memory_t memory[] = {c->memory[X], c->memory[W], c->memory[BIAS],
                              c->memory[Y], c->packed,    c->scratch};
    for (size_t i = 0; i < SN_COUNT(memory); i++)
        if (memory[i])
            dnnl_memory_destroy(memory[i]);
    if (c->conv)
        dnnl_primitive_destroy(c->conv);
    if (c->reorder)
        dnnl_primitive_destroy(c->reorder);
    if (c->desc)
        dnnl_primitive_desc_destroy(c->desc);
    if (c->forward)
        dnnl_primitive_desc_destroy(c->forward);
    free(c);
}

static sn_status run_loops(const sn_kernel *k, const void *const *in, void *const *out, void *work)
{
    if (k->spec.op == SN_OP_CONV)
        return ref_conv(k, in, out, work);
    if (k->spec.op == SN_OP_CONV_DX)
        return ref_conv_dx(k, in, out, work);
    return ref_conv_dw(k, in, out, work);
}

static bool turn(const sn_kernel *k, const conv *c, dnnl_memory_t from, dnnl_memory_t to)
{
    dnnl_exec_arg_t arg[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    return !c->reorder || dnnl_primitive_execute(c->reorder, cpu_stream_of(k->card->state), 2,
                                                 arg) == dnnl_success;
}

sn_status cpu_conv_run(const sn_kernel *k, const void *const *in, void *const *out, void *work)
{
    const conv *c = k->state;
    if (!c)
        return run_loops(k, in, out, work);
    bool forward = k->spec.op == SN_OP_CONV, data = k->spec.op == SN_OP_CONV_DX;
    const void *at[OPERANDS] = {
        [X] = forward ? in[0]
              : data  ? out[0]
                      : in[1],
        [W] = forward || data ? in[1] : out[0],
        [BIAS] = forward && kern_given(k, 2) ? in[2] : NULL,
        [Y] = forward ? out[0] : in[0],
    };
    dnnl_exec_arg_t arg[] = {
        {data ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, c->memory[X]},
        {forward || data ? DNNL_ARG_WEIGHTS : DNNL_ARG_DIFF_WEIGHTS, c->packed},
        {forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, c->memory[Y]},
        {DNNL_ARG_SCRATCHPAD, c->scratch},
        {DNNL_ARG_BIAS, c->memory[BIAS]},
    };
    bool fine = true;
    for (int i = 0; i < OPERANDS; i++)
        fine &=
            dnnl_memory_set_data_handle(c->memory[i], (void *) (uintptr_t) at[i]) == dnnl_success;
    void *packed = c->reorder ? (char *) work + c->packed_at : (void *) (uintptr_t) at[W];
    fine &= dnnl_memory_set_data_handle(c->packed, packed) == dnnl_success &&
            dnnl_memory_set_data_handle(c->scratch, work) == dnnl_success;
    cpu_engine_threads(k);
    if (forward || data)
        fine = fine && turn(k, c, c->memory[W], c->packed);
    fine = fine && dnnl_primitive_execute(c->conv, cpu_stream_of(k->card->state), at[BIAS] ? 5 : 4,
                                          arg) == dnnl_success;
    if (!forward && !data)
        fine = fine && turn(k, c, c->packed, c->memory[W]);
    return fine ? SN_OK : sn_fail(SN_EFAIL, "kernel %s: oneDNN failed", kern_op_name(k->spec.op));
}
