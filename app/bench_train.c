/* SPDX-License-Identifier: Apache-2.0
 *
 * GPT L4 d256 H4 T256 B8 V256 with AdamW: tokens a second on one card and on two, beside PyTorch
 * with as many single-threaded processes; how well two cards scale; how soon a job computes. */
#include "bench.h"
#include "bench_gpt.h"
#include "bench_peer.h"
#include "bench_torch.h"

#include "os/os.h"

#include <stdio.h>
#include <string.h>

static sn_status gpt_torch_start(const bench_opts *o, int ranks, bench_torch *t)
{
    char batch[16];
    snprintf(batch, sizeof batch, "%d", BENCH_GPT_BATCH);
    const char *words[] = {"4", "256", "4", "256", batch, "256", NULL};
    return bench_torch_start(o, "peer_gpt.py", words, ranks, t);
}

/* ---- tokens a second ---- */

static sn_status pairs_of(const bench_opts *o, bench_gpt *g, bench_torch *t, bench_result *ret)
{
    double peak[BENCH_SAMPLES_MAX], seconds;
    for (int i = 0; i < o->pairs; i++) {
        SN_TRY(bench_gpt_step(g, &seconds));
        ret->sample[ret->samples++] = g->tokens / seconds;
        if (t->ranks) {
            SN_TRY(bench_torch_step(t, &seconds));
            ret->peer_sample[ret->peer_samples++] = g->tokens / seconds;
        }
        SN_TRY(bench_gpt_peak(g, &peak[i]));
    }
    ret->bound = bench_median(peak, o->pairs) / (g->flops / g->tokens);
    return SN_OK;
}

static sn_status run_tokens(const bench_case *c, const bench_opts *o, bench_result *ret)
{
    bench_gpt g;
    bench_torch t;
    if (c->arg > sn_cores())
        return sn_fail(SN_EFIT, "%d cards need as many cores, %d are here", c->arg, sn_cores());
    SN_TRY(bench_gpt_start(c->arg, &g));
    bool has = gpt_torch_start(o, c->arg, &t) >= 0;
    snprintf(ret->note, sizeof ret->note,
             "L4 d256 H4 T256 V256 AdamW f32, batch %d a card; %.0f FLOPs a token (multiply-add 2, "
             "forward and backward, lower half of causal attention)%s%.80s",
             BENCH_GPT_BATCH, g.flops / g.tokens, has ? "" : "; no peer: ", has ? "" : sn_errmsg());
    sn_status status = pairs_of(o, &g, &t, ret);
    bench_torch_stop(&t);
    bench_gpt_stop(&g);
    return status;
}

/* ---- scaling ---- */

static sn_status run_scaling(const bench_case *c, const bench_opts *o, bench_result *ret)
{
    bench_gpt one, two;
    double t1, t2;
    if (sn_cores() < 2)
        return sn_fail(SN_EFIT, "two cards need two cores");
    SN_TRY(bench_gpt_start(1, &one));
    sn_status status = bench_gpt_start(2, &two);
    for (int i = 0; i < o->pairs && status >= 0; i++) {
        status = bench_gpt_step(&one, &t1);
        if (status >= 0)
            status = bench_gpt_step(&two, &t2);
        if (status >= 0)
            ret->sample[ret->samples++] = 100 * (two.tokens / t2) / (2 * one.tokens / t1);
    }
    bench_gpt_stop(&one);
    bench_gpt_stop(&two);
    snprintf(ret->note, sizeof ret->note,
             "tokens/s of two cards (data 2, batch %d each) / twice those of one, pair by pair",
             BENCH_GPT_BATCH);
    return status;
}

/* ---- startup ---- */

/* Seconds from starting the command to the line of its first completed step. */
static sn_status start_once(const bench_opts *o, const char *dir, int i, double *ret)
{
    char data[4200], run[4200], line[4096];
    bench_peer p;
    snprintf(data, sizeof data, "%s/text.txt", dir);
    snprintf(run, sizeof run, "%s/run-%d", dir, i);
    const char *argv[] = {o->self,       "train",
                          "--json",      "--data",
                          data,          "--run",
                          run,           "--model",
                          "gpt-english", "--hosts",
                          "2",           "--cards-per-host",
                          "2",           "--tensor",
                          "2",           "--pipeline",
                          "1",           "--data-parallel",
                          "2",           "--batch-size",
                          "8",           "--steps",
                          "1000000",     "--checkpoint-every",
                          "0",           NULL};
    sn_time start = sn_now();
    SN_TRY(bench_peer_start(argv, &p));
    sn_status status;
    do
        status = bench_peer_line(&p, 60, line, sizeof line);
    while (status >= 0 && !strstr(line, "\"event\":\"step\""));
    *ret = (double) (sn_now() - start) * 1e-9;
    bench_peer_stop(&p, 0);
    return status;
}

static sn_status run_startup(const bench_case *c, const bench_opts *o, bench_result *ret)
{
    char dir[4096], data[4200];
    SN_TRY(bench_dir_create(dir, sizeof dir));
    snprintf(data, sizeof data, "%s/text.txt", dir);
    sn_status status = bench_text_write(data, 256 << 10);
    for (int i = 0; i < o->pairs && status >= 0; i++) {
        status = start_once(o, dir, i, &ret->sample[i]);
        ret->samples += status >= 0;
    }
    bench_dir_remove(dir);
    snprintf(ret->note, sizeof ret->note,
             "exec of supernode train to its first completed step: gpt-english, batch 8, 2 hosts x "
             "2 cards, tensor 2, data 2, f32");
    return status;
}

const bench_case bench_train[] = {{.area = "train",
                                   .name = "train_gpt_1_card",
                                   .unit = "tokens/s",
                                   .peer = "PyTorch, 1 thread",
                                   .bound_name = "FMA peak",
                                   .bar = BENCH_RATIO_MIN,
                                   .bar_value = 1.7,
                                   .arg = 1,
                                   .run = run_tokens},
                                  {.area = "train",
                                   .name = "train_gpt_2_cards",
                                   .unit = "tokens/s",
                                   .peer = "PyTorch, 2 DDP processes",
                                   .bound_name = "FMA peak",
                                   .bar = BENCH_RATIO_MIN,
                                   .bar_value = 1.5,
                                   .share_min = 0.65,
                                   .arg = 2,
                                   .run = run_tokens},
                                  {.area = "train",
                                   .name = "train_scaling_2_cards",
                                   .unit = "%",
                                   .bar = BENCH_VALUE_MIN,
                                   .bar_value = 90,
                                   .run = run_scaling},
                                  {.area = "train",
                                   .name = "train_startup_4_workers",
                                   .unit = "s",
                                   .less_is_better = true,
                                   .bar = BENCH_VALUE_MAX,
                                   .bar_value = 1.5,
                                   .run = run_startup},
                                  {.area = "train"}};
