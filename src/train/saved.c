/* SPDX-License-Identifier: Apache-2.0
 *
 * saved — what compression saved in this run, and what coding costs on this card. */
#include <stdio.h>
#include <stdlib.h>

#include "os/os.h"
#include "train/parts.h"

#define SAMPLE (INT64_C(1) << 16)
#define SAMPLE_COLS 256

/* ---- what it saved ---- */

static void write_saved(train_worker *w, double codec_ns)
{
    char codec[96];
    sn_str path = {0}, json = {0};
    sn_str_printf(&path, "%s/compression.json", w->opts->run_dir);
    sn_str_printf(&json,
                  "{\"codec\": \"%s\", \"plain_bytes\": %.0f, \"coded_bytes\": %.0f, "
                  "\"codec_ns\": %.0f}\n",
                  train_compression_text(w->job, codec), w->result.plain_bytes,
                  w->result.coded_bytes, codec_ns);
    if (sn_file_write(sn_str_get(&path), sn_str_get(&json), json.len) < 0)
        sn_log(SN_LOG_WARN, "%s, going on without that file", sn_errmsg());
    sn_str_done(&path);
    sn_str_done(&json);
}

sn_status train_tell_compression(train_worker *w)
{
    sn_plan_compression c;
    SN_TRY(sn_job_compression(w->job, NULL, 0, 0, &c, NULL));
    if (!w->coll || !train_compression_encodes(&c))
        return SN_OK;
    sn_compress_stats s = {0};
    if (train_exec_wires(w->exec))
        s = train_wires_stats(train_exec_wires(w->exec));
    w->vote[0] = (float) s.plain_bytes;
    w->vote[1] = (float) s.coded_bytes;
    sn_coll_call call = {.op = SN_ALL_REDUCE,
                         .red = SN_SUM,
                         .dtype = SN_F32,
                         .count = 2,
                         .in = w->vote,
                         .out = w->tally};
    SN_TRY(sn_coll_run(w->all, &call, train_deadline(w)));
    w->result.plain_bytes = (double) w->tally[0];
    w->result.coded_bytes = (double) w->tally[1];
    if (w->rank == 0 && w->opts->run_dir && w->result.plain_bytes > 0)
        write_saved(w, (double) s.codec_ns);
    return SN_OK;
}

/* ---- what coding costs here ---- */

double train_codec_rate(void)
{
    sn_codec c;
    double best = 0;
    float *x = sn_alloc(SAMPLE * sizeof(*x)), *owed = sn_alloc(SAMPLE * sizeof(*owed));
    if (sn_codec_parse(TRAIN_AUTO_GRADIENTS, &c) >= 0) {
        c.cols = c.kind == SN_CODEC_TERNARY ? SAMPLE_COLS : 0; /* gradients are matrices */
        int64_t bytes = sn_codec_bytes(&c, SAMPLE);
        void *code = sn_alloc((size_t) bytes);
        for (int64_t i = 0; i < SAMPLE; i++)
            x[i] = (float) sn_hash_normal(1, 2, (uint64_t) i);
        for (int turn = 0; turn < 8; turn++) {
            sn_time began = sn_now();
            sn_codec_encode(&c, x, owed, NULL, 0, SAMPLE, code);
            if (sn_codec_decode(&c, code, bytes, SAMPLE, true, x) < 0)
                break;
            double rate = (double) SAMPLE * sizeof(float) * 1e9 / (double) (sn_now() - began + 1);
            best = SN_MAX(best, rate);
        }
        free(code);
    }
    free(x);
    free(owed);
    return best;
}
