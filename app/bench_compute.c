/* SPDX-License-Identifier: Apache-2.0
 *
 * What one card computes: products against the FMA peak, the rest against the memory, both measured
 * in the same run, between the samples, on the same core.
 *
 * Operands are words as in the op's specification: dimensions with a comma between, "i" before
 * integers, "h" AdamW's hyper. Work is what the algorithm needs: a multiply-add is 2, causal
 * attention counts the lower half; bytes are operands read and results written once. */
#include "bench.h"
#include "bench_loops.h"
#include "bench_world.h"

#include "kern/kern.h"
#include "os/os.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MEMORY_FLOATS (INT64_C(16) << 20) /* 64 MiB: beyond what a core keeps */

typedef struct kernel_case {
    sn_op op;
    const char *in, *out;
    sn_attr attr;
    double flops; /* 0: judged by bytes */
    double bytes;
} kernel_case;

#define PRODUCT(m, n, k) (2.0 * (m) * (n) * (k))
#define ATTENTION(products, t, b, h, e) ((double) (products) * (t) * (t) * (b) * (h) * (e))

static const kernel_case kernels[] = {
    {SN_OP_FILL_ZERO, "", "", {.begin = 0}, 1, 0}, /* the peak itself: no kernel */
    {SN_OP_LINEAR, "2048,256 768,256 768", "2048,768", {.i = {1}}, PRODUCT(2048, 768, 256), 0},
    {SN_OP_LINEAR, "2048,256 1024,256", "2048,1024", {.i = {1}}, PRODUCT(2048, 1024, 256), 0},
    {SN_OP_LINEAR, "2048,1024 256,1024", "2048,256", {.i = {1}}, PRODUCT(2048, 256, 1024), 0},
    {SN_OP_LINEAR_DX, "2048,768 768,256", "2048,256", {.i = {1, 1}}, PRODUCT(2048, 768, 256), 0},
    {SN_OP_LINEAR_DX, "2048,1024 1024,256", "2048,256", {.i = {1, 1}}, PRODUCT(2048, 1024, 256), 0},
    {SN_OP_LINEAR_DX, "2048,256 256,1024", "2048,1024", {.i = {1, 1}}, PRODUCT(2048, 256, 1024), 0},
    {SN_OP_LINEAR_DW, "2048,768 2048,256", "768,256", {.i = {1, 1}}, PRODUCT(2048, 768, 256), 0},
    {SN_OP_LINEAR_DW, "2048,1024 2048,256", "1024,256", {.i = {1, 1}}, PRODUCT(2048, 1024, 256), 0},
    {SN_OP_LINEAR_DW, "2048,256 2048,1024", "256,1024", {.i = {1, 1}}, PRODUCT(2048, 256, 1024), 0},
    {SN_OP_ATTENTION,
     "256,8,4,3,64",
     "256,8,4,64 8,4,256",
     {.i = {1}, .f = {0.125}},
     ATTENTION(2, 256, 8, 4, 64),
     0},
    {SN_OP_ATTENTION_GRAD,
     "256,8,4,64 256,8,4,3,64 256,8,4,64 8,4,256",
     "256,8,4,3,64",
     {.i = {1}, .f = {0.125}},
     ATTENTION(5, 256, 8, 4, 64),
     0},
    {SN_OP_ADAMW,
     "4194304 h8 1",
     "4194304 4194304 4194304 4194304",
     {.f = {1}},
     0,
     8.0 * 4 * 4194304},
    {SN_OP_LAYER_NORM,
     "32768,256 256 256",
     "32768,256 32768 32768",
     {.f = {1e-5}},
     0,
     2.0 * 4 * 32768 * 257},
    {SN_OP_LAYER_NORM_GRAD,
     "32768,256 32768,256 256 32768 32768 32768,256",
     "32768,256 256 256",
     {.begin = 0},
     0,
     4.0 * 4 * 32768 * 256.5},
    {SN_OP_BIAS_GELU, "8192,1024 1024", "8192,1024", {.i = {0}}, 0, 2.0 * 4 * 8192 * 1024},
};

enum { ASK_PEAK = -1, ASK_MEMORY = -2 };

typedef struct compute {
    sn_card *card;
    sn_kernel *kernel;
    void *operand[SN_OP_IN_MAX + SN_OP_OUT_MAX];
    const void *in[SN_OP_IN_MAX];
    void *out[SN_OP_OUT_MAX];
    float *memory[2];
} compute;

/* ---- in the rank ---- */

static sn_status make(compute *c, int i, const char *word, sn_dtype *ret_dtype, sn_shape *ret)
{
    sn_shape shape = {0};
    bool hyper = *word == 'h';
    for (const char *p = word + hyper; *p && *p != ' '; p += *p == ',') {
        char *end;
        shape.dim[shape.rank++] = strtoll(p, &end, 10);
        p = end;
    }
    int64_t n = sn_shape_count(shape);
    if (posix_memalign(&c->operand[i], 64, (size_t) n * 4))
        return sn_fail(SN_ENOMEM, "no memory for an operand of %lld floats", (long long) n);
    static const float adam[8] = {1e-3f, 0.9f, 0.99f, 1e-8f, 0.1f, 10, 100, 1};
    float *to = c->operand[i];
    for (int64_t k = 0; k < n; k++) /* positive: some stand for sums and variances */
        to[k] = hyper ? adam[k & 7] : 0.5f + (float) (k * 2654435761u % 1024) / 1024;
    *ret_dtype = SN_F32;
    *ret = shape;
    return SN_OK;
}

static const char *next_word(const char *word)
{
    const char *space = strchr(word, ' ');
    return space ? space + 1 : "";
}

static sn_status make_kernel(compute *c, const kernel_case *k)
{
    sn_kernel_spec spec = {.op = k->op, .attr = k->attr};
    for (const char *w = k->in; *w; w = next_word(w), spec.ins++) {
        SN_TRY(make(c, spec.ins, w, &spec.in[spec.ins].dtype, &spec.in[spec.ins].shape));
        c->in[spec.ins] = c->operand[spec.ins];
    }
    for (const char *w = k->out; *w; w = next_word(w), spec.outs++) {
        int at = SN_OP_IN_MAX + spec.outs;
        SN_TRY(make(c, at, w, &spec.out[spec.outs].dtype, &spec.out[spec.outs].shape));
        c->out[spec.outs] = c->operand[at];
    }
    return spec.outs ? sn_card_prepare(c->card, &spec, &c->kernel) : SN_OK;
}

static void compute_close(void *state)
{
    compute *c = state;
    sn_card_close(c->card);
    for (size_t i = 0; i < SN_COUNT(c->operand); i++)
        free(c->operand[i]);
    free(c->memory[0]);
    free(c->memory[1]);
    free(c);
}

static sn_status compute_open(sn_boot *boot, const bench_job *job, void **ret)
{
    compute *c = sn_alloc(sizeof *c);
    *ret = c;
    for (int i = 0; i < 2; i++) {
        if (posix_memalign((void **) &c->memory[i], 64, MEMORY_FLOATS * 4))
            return sn_fail(SN_ENOMEM, "no memory to measure the memory with");
        memset(c->memory[i], 0, MEMORY_FLOATS * 4);
    }
    SN_TRY(sn_card_open("cpu", &(sn_card_opts){.threads = 1}, &c->card));
    return make_kernel(c, job->ctx);
}

static double seconds_since(sn_time t)
{
    return (double) SN_MAX(1, sn_now() - t) * 1e-9;
}

/* Bytes a second of the fastest way there is: reading, changing in place, copying, copying past the
 * caches. */
static double memory_rate(compute *c)
{
    double bytes = (double) MEMORY_FLOATS * 4;
    sn_time t = sn_now();
    volatile float sink = bench_loop_read(c->memory[0], MEMORY_FLOATS);
    double best = bytes / seconds_since(t) + 0 * sink;
    t = sn_now();
    bench_loop_sum(c->memory, 1, 0, MEMORY_FLOATS, false);
    best = SN_MAX(best, 2 * bytes / seconds_since(t));
    for (int stream = 0; stream < 2; stream++) {
        t = sn_now();
        bench_loop_copy(c->memory[1], c->memory[0], MEMORY_FLOATS, stream);
        best = SN_MAX(best, 2 * bytes / seconds_since(t));
    }
    return best;
}

static sn_status compute_step(void *state, int64_t arg, double ret[BENCH_VALUES])
{
    compute *c = state;
    if (arg == ASK_PEAK || !c->kernel) {
        ret[0] = sn_kern_fma_peak(10 * SN_MS);
        return SN_OK;
    }
    if (arg == ASK_MEMORY) {
        ret[0] = memory_rate(c);
        return SN_OK;
    }
    sn_time t = sn_now();
    for (int64_t i = 0; i < arg; i++)
        SN_TRY(sn_kernel_run(c->kernel, c->in, c->out));
    ret[0] = seconds_since(t) / (double) arg;
    return SN_OK;
}

/* ---- in the harness ---- */

static sn_status measure(const bench_case *c, bench_world *w, int pairs, bench_result *ret)
{
    const kernel_case *k = &kernels[c->arg];
    double bound[BENCH_SAMPLES_MAX], work = (k->flops > 0 ? k->flops : k->bytes) * 1e-9;
    SN_TRY(bench_world_ask(w, 1));
    SN_TRY(bench_world_ask(w, 1));
    double once = bench_world_value(w, 0, 0);
    int64_t times = c->arg ? SN_MAX(1, (int64_t) (0.01 / once)) : 1; /* about 10 ms a sample */
    for (int i = 0; i < pairs; i++) {
        SN_TRY(bench_world_ask(w, times));
        double v = bench_world_value(w, 0, 0);
        ret->sample[ret->samples++] = c->arg ? work / v : v * 1e-9;
        SN_TRY(bench_world_ask(w, k->flops > 0 ? ASK_PEAK : ASK_MEMORY));
        bound[i] = bench_world_value(w, 0, 0) * 1e-9;
    }
    if (c->arg)
        ret->bound = bench_median(bound, pairs);
    return SN_OK;
}

static sn_status run_compute(const bench_case *c, const bench_opts *o, bench_result *ret)
{
    bench_world *w;
    bench_job job = {.world = 1,
                     .ctx = (void *) &kernels[c->arg], /* only read */
                     .open = compute_open,
                     .step = compute_step,
                     .close = compute_close};
    SN_TRY(bench_world_start(&job, &w));
    sn_status status = measure(c, w, o->pairs, ret);
    bench_world_stop(w);
    if (c->arg)
        snprintf(ret->note, sizeof ret->note, "one core, f32, %s -> %s", kernels[c->arg].in,
                 kernels[c->arg].out);
    else
        snprintf(ret->note, sizeof ret->note, "register-blocked FMA loop on one core");
    return status;
}

#define FLOPS(i, label)                                                                            \
    {                                                                                              \
        .area = "compute", .name = label, .unit = "GF/s", .bound_name = "FMA peak", .arg = i,      \
        .run = run_compute                                                                         \
    }
#define BYTES(i, label)                                                                            \
    {                                                                                              \
        .area = "compute", .name = label, .unit = "GB/s", .bound_name = "memory", .arg = i,        \
        .run = run_compute                                                                         \
    }

const bench_case bench_compute[] = {FLOPS(0, "compute_fma_peak"),
                                    FLOPS(1, "compute_linear_2048x768x256"),
                                    FLOPS(2, "compute_linear_2048x1024x256"),
                                    FLOPS(3, "compute_linear_2048x256x1024"),
                                    FLOPS(4, "compute_linear_dx_2048x768x256"),
                                    FLOPS(5, "compute_linear_dx_2048x1024x256"),
                                    FLOPS(6, "compute_linear_dx_2048x256x1024"),
                                    FLOPS(7, "compute_linear_dw_2048x768x256"),
                                    FLOPS(8, "compute_linear_dw_2048x1024x256"),
                                    FLOPS(9, "compute_linear_dw_2048x256x1024"),
                                    FLOPS(10, "compute_attention"),
                                    FLOPS(11, "compute_attention_grad"),
                                    BYTES(12, "compute_adamw"),
                                    BYTES(13, "compute_layer_norm"),
                                    BYTES(14, "compute_layer_norm_grad"),
                                    BYTES(15, "compute_bias_gelu"),
                                    {.area = "compute"}};
