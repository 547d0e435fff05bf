/* SPDX-License-Identifier: Apache-2.0
 *
 * How fast one core encodes and decodes (adding) 4 MiB of f32, with error feedback where the codec
 * wants it. The bound of encoding is a loop that only reads.
 * A codec pays where (bytes saved) / (rate of the link) is more than (bytes) / (rate of coding). */
#include "bench.h"
#include "bench_loops.h"
#include "bench_world.h"

#include "codec/codec.h"
#include "os/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 1 << 20, COLS = 1024, TIMES = 4 };
enum { ASK_ENCODE, ASK_DECODE, ASK_READ };

static const char *const codecs[] = {"bf16",           "fp8_e4m3",      "fp8_e5m2", "int8",
                                     "int4",           "onebit",        "ternary",  "topk:0.01",
                                     "topk:0.01+int8", "topk:0.01+int4"};

typedef struct coder {
    sn_codec codec;
    float *x, *residual, *out;
    void *code;
    float sink; /* so that what is read counts */
} coder;

static sn_status coder_step(void *state, int64_t arg, double ret[BENCH_VALUES])
{
    coder *c = state;
    int64_t bytes = sn_codec_bytes(&c->codec, COUNT);
    sn_time t = sn_now();
    for (int i = 0; i < TIMES; i++)
        switch (arg) {
        case ASK_ENCODE:
            sn_codec_encode(&c->codec, c->x, sn_codec_feedback(&c->codec) ? c->residual : NULL,
                            NULL, 0, COUNT, c->code);
            break;
        case ASK_DECODE:
            SN_TRY(sn_codec_decode(&c->codec, c->code, bytes, COUNT, true, c->out));
            break;
        default:
            c->sink += bench_loop_read(c->x, COUNT);
        }
    ret[0] = (double) (sn_now() - t) * 1e-9 / TIMES;
    return SN_OK;
}

static void coder_close(void *state)
{
    coder *c = state;
    free(c->x);
    free(c->residual);
    free(c->out);
    free(c->code);
    free(c);
}

/* Ternary finds scales of rows and columns, as it does for gradients. */
static void see_as_matrix(sn_codec *c)
{
    c->cols = c->kind == SN_CODEC_TERNARY ? COLS : 0;
}

static sn_status coder_open(sn_boot *boot, const bench_job *job, void **ret)
{
    coder *c = sn_alloc(sizeof *c);
    float **const vector[] = {&c->x, &c->residual, &c->out};
    *ret = c;
    SN_TRY(sn_codec_parse(job->ctx, &c->codec));
    see_as_matrix(&c->codec);
    for (int i = 0; i < 3; i++) {
        if (posix_memalign((void **) vector[i], 64, COUNT * sizeof(float)))
            return sn_fail(SN_ENOMEM, "no memory for a vector");
        memset(*vector[i], 0, COUNT * sizeof(float));
    }
    c->code = sn_alloc((size_t) sn_codec_bytes(&c->codec, COUNT));
    for (int64_t i = 0; i < COUNT; i++)
        c->x[i] = (float) sn_hash_normal(1, 2, (uint64_t) i);
    return SN_OK;
}

static sn_status measure(const bench_case *c, const bench_opts *o, bench_world *w,
                         bench_result *ret)
{
    bool decode = c->arg >= (int) SN_COUNT(codecs);
    double bound[BENCH_SAMPLES_MAX];
    SN_TRY(bench_world_ask(w, ASK_ENCODE)); /* warm, and a code to decode */
    SN_TRY(bench_world_ask(w, ASK_DECODE));
    for (int i = 0; i < o->pairs; i++) {
        SN_TRY(bench_world_ask(w, decode ? ASK_DECODE : ASK_ENCODE));
        ret->sample[ret->samples++] = 4e-9 * COUNT / bench_world_value(w, 0, 0);
        if (decode)
            continue;
        SN_TRY(bench_world_ask(w, ASK_READ));
        bound[i] = 4e-9 * COUNT / bench_world_value(w, 0, 0);
    }
    if (!decode)
        ret->bound = bench_median(bound, o->pairs);
    return SN_OK;
}

static sn_status run_codec(const bench_case *c, const bench_opts *o, bench_result *ret)
{
    const char *text = codecs[c->arg % (int) SN_COUNT(codecs)];
    sn_codec codec;
    bench_world *w;
    bench_job job = {.world = 1,
                     .ctx = (void *) text,
                     .open = coder_open,
                     .step = coder_step,
                     .close = coder_close};
    SN_TRY(sn_codec_parse(text, &codec));
    see_as_matrix(&codec);
    SN_TRY(bench_world_start(&job, &w));
    sn_status status = measure(c, o, w, ret);
    bench_world_stop(w);
    snprintf(ret->note, sizeof ret->note, "%d MiB of f32 into %.2f %% of it%s; one core",
             (int) (COUNT * sizeof(float) >> 20),
             100.0 * (double) sn_codec_bytes(&codec, COUNT) / (4.0 * COUNT),
             sn_codec_feedback(&codec) ? ", with error feedback" : "");
    return status;
}

#define ENCODE(i, label)                                                                           \
    {                                                                                              \
        .area = "codec", .name = "codec_encode_" label, .unit = "GB/s", .bound_name = "read loop", \
        .arg = i, .run = run_codec                                                                 \
    }
#define DECODE(i, label)                                                                           \
    {                                                                                              \
        .area = "codec", .name = "codec_decode_" label, .unit = "GB/s",                            \
        .arg = (int) SN_COUNT(codecs) + i, .run = run_codec                                        \
    }
#define BOTH(i, label) ENCODE(i, label), DECODE(i, label)

const bench_case bench_codec[] = {BOTH(0, "bf16"),      BOTH(1, "fp8_e4m3"), BOTH(2, "fp8_e5m2"),
                                  BOTH(3, "int8"),      BOTH(4, "int4"),     BOTH(5, "onebit"),
                                  BOTH(6, "ternary"),   BOTH(7, "topk"),     BOTH(8, "topk_int8"),
                                  BOTH(9, "topk_int4"), {.area = "codec"}};
