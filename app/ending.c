/* SPDX-License-Identifier: Apache-2.0
 * What a run says at its end: baseline, sample, summary table, report. */
#include "cmd.h"

#include "ckpt/ckpt.h"
#include "os/os.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

enum { PROMPT_BYTES = 40, SAMPLE_BYTES = 320, BASELINE_ORDER = 4 };
#define BASELINE_BYTES (INT64_C(64) << 20) /* counts more than these would take minutes */

/* The first words of the held-out text: something the model has not seen. */
static const char *prompt_of(const sn_text *text, sn_arena *arena)
{
    const char *held = (const char *) sn_text_held(text);
    int64_t n = SN_MIN(sn_text_held_bytes(text), 4096), start = 0;
    for (int64_t i = 0; i + 1 < n; i++)
        if (held[i] == '\n') {
            start = i + 1;
            break;
        }
    int64_t length = SN_MIN(PROMPT_BYTES, n - start);
    while (length > 8 && held[start + length - 1] != ' ')
        length--;
    return sn_arena_printf(arena, "%.*s", (int) length, held + start);
}

sn_status sn_ending_extras(sn_ending *e, sn_arena *arena)
{
    sn_tokens *tokens;
    sn_str sample = {0};
    SN_TRY(sn_tokens_open(e->job, &tokens));
    const sn_text *text = sn_tokens_text(tokens);
    const char *prompt = prompt_of(text, arena);
    sn_status status = sn_ngram_loss(
        sn_text_train(text), SN_MIN(sn_text_train_bytes(text), BASELINE_BYTES), sn_text_held(text),
        SN_MIN(sn_text_held_bytes(text), BASELINE_BYTES / 16), BASELINE_ORDER, &e->baseline);
    e->bytes_per_token = sn_tokens_mean_bytes(tokens);
    sn_tokens_close(tokens);
    if (status >= 0)
        status = sn_train_generate(e->job, e->run->ckpt_dir, prompt, SAMPLE_BYTES, 0.7,
                                   e->job->seed, &sample);
    if (status >= 0) { /* the model writes bytes, people read UTF-8 */
        sn_str readable = {0};
        sn_str_add_utf8(&readable, sn_str_get(&sample), sample.len);
        e->sample = sn_arena_str(arena, sn_str_get(&readable));
        sn_str_done(&readable);
    }
    sn_str_done(&sample);
    return status;
}

/* What the workers wrote about compression, if anything was encoded; NULL if not. */
static json_t *read_compression(const sn_run *run, char codec[96], double *ret_plain,
                                double *ret_coded)
{
    char path[4096];
    json_error_t error;
    if (sn_run_path(run, "compression.json", path) < 0)
        return NULL;
    json_t *root = json_load_file(path, 0, &error);
    const char *text = json_string_value(json_object_get(root, "codec"));
    *ret_plain = json_number_value(json_object_get(root, "plain_bytes"));
    *ret_coded = json_number_value(json_object_get(root, "coded_bytes"));
    snprintf(codec, 96, "%s", text ? text : "?");
    return root;
}

bool sn_compression_line(const sn_run *run, sn_str *out)
{
    char codec[96], a[32], b[32];
    double plain, coded;
    json_t *root = read_compression(run, codec, &plain, &coded);
    bool there = root && plain > 0;
    if (there)
        sn_str_printf(out, "%s: %s between hosts instead of %s, %.1f %% less", codec,
                      sn_fmt_bytes(a, coded), sn_fmt_bytes(b, plain), 100 * (1 - coded / plain));
    json_decref(root);
    return there;
}

/* Of the time that collectives and transfers were under way; the rest was waited for. */
static double hidden_share(const sn_collector *c)
{
    double all = (double) c->comm_ns;
    return all > 0 ? SN_MAX(0, all - (double) c->exposed_ns) / all : 0;
}

static void summary_json(const sn_ending *e)
{
    const sn_collector *c = e->collected;
    json_t *root = json_pack("{s:s, s:s, s:s, s:i, s:i, s:i, s:I, s:I, s:I, s:f, s:f}", "event",
                             "summary", "run", e->run->dir, "model", e->job->model, "tensor",
                             e->plan->tensor, "pipeline", e->plan->pipeline, "data", e->plan->data,
                             "parameters", (json_int_t) sn_graph_parameters(e->plan->graph),
                             "steps", (json_int_t) c->steps, "tokens", (json_int_t) c->tokens,
                             "wall_s", (double) e->wall_ns * 1e-9, "train_loss", c->last_loss);
    json_object_set_new(root, "validation_loss",
                        isnan(e->final_loss) ? json_null() : json_real(e->final_loss));
    json_object_set_new(root, "bits_per_byte",
                        isnan(e->final_loss) ? json_null() : json_real(e->final_loss / M_LN2));
    json_object_set_new(root, "bytes_per_token", json_real(e->bytes_per_token));
    json_object_set_new(root, "baseline_loss",
                        isnan(e->baseline) ? json_null() : json_real(e->baseline));
    char calibration[4096];
    bool calibrated =
        sn_run_path(e->run, "calibration.json", calibration) >= 0 && access(calibration, R_OK) == 0;
    json_object_set_new(root, "collectives_chosen_by",
                        json_string(calibrated ? "calibration" : "topology"));
    if (c->steps > 0) {
        json_object_set_new(root, "comm_s", json_real((double) c->comm_ns * 1e-9));
        json_object_set_new(root, "comm_exposed_share",
                            json_real(SN_MIN(1, (double) c->exposed_ns / (double) c->time_ns)));
        json_object_set_new(root, "comm_hidden_share", json_real(hidden_share(c)));
    }
    if (e->traced)
        json_object_set_new(root, "trace", json_string(e->job->trace));
    char codec[96];
    double plain, coded;
    json_t *compression = read_compression(e->run, codec, &plain, &coded);
    if (compression)
        json_object_set_new(root, "compression", compression);
    json_object_set_new(root, "sample", e->sample ? json_string(e->sample) : json_null());
    json_dumpf(root, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(root);
}

void sn_say_summary(const sn_ending *e)
{
    const sn_collector *c = e->collected;
    char a[32], b[32], d[32];
    if (e->json) {
        summary_json(e);
        return;
    }
    double seconds = (double) c->time_ns * 1e-9;
    printf("\n  run         %s\n", e->run->dir);
    printf("  model       %s, %s parameters\n", e->job->model,
           sn_fmt_count(a, (double) sn_graph_parameters(e->plan->graph)));
    printf("  plan        tensor %d x pipeline %d x data %d, %d host%s x %d card%s\n",
           e->plan->tensor, e->plan->pipeline, e->plan->data, e->job->hosts,
           e->job->hosts == 1 ? "" : "s", e->job->cards_per_host,
           e->job->cards_per_host == 1 ? "" : "s");
    if (seconds > 0)
        printf("  trained     %lld steps in %s, %s tokens, %s tok/s, %.0f %% of the FMA peak\n",
               (long long) c->steps, sn_fmt_ns(a, (double) c->time_ns),
               sn_fmt_count(b, (double) c->tokens), sn_fmt_count(d, (double) c->tokens / seconds),
               100 * c->flops / seconds / c->peak_flops);
    else
        printf("  trained     nothing more: the checkpoint has all %lld steps that were asked\n",
               (long long) e->job->steps);
    if (c->comm_ns > 0 && c->steps > 0)
        printf("  transfers   under way %s a step, %.0f %% of it hidden behind computing\n",
               sn_fmt_ns(a, (double) c->comm_ns / (double) c->steps), 100 * hidden_share(c));
    sn_str compression = {0};
    if (sn_compression_line(e->run, &compression))
        printf("  compressed  %s\n", sn_str_get(&compression));
    sn_str_done(&compression);
    if (!isnan(e->final_loss))
        printf("  validation  %.4f nats/byte (%.4f bits) on the held-out text\n", e->final_loss,
               e->final_loss / M_LN2);
    if (e->job->tokenizer)
        printf("  tokens      %.3f bytes each, vocabulary %lld\n", e->bytes_per_token,
               (long long) e->job->gpt.vocab);
    if (!isnan(e->baseline))
        printf("  baseline    %.4f nats/byte, interpolated (Witten-Bell) %d-gram on the same "
               "bytes%s\n",
               e->baseline, BASELINE_ORDER,
               isnan(e->final_loss)          ? ""
               : e->final_loss < e->baseline ? ": beaten"
                                             : ": not beaten");
    if (e->sample)
        printf("\n%s\n", e->sample);
    if (e->reported)
        printf("\n  report      %s/report.html\n", e->run->dir);
    if (e->traced)
        printf("  trace       %s: open it in ui.perfetto.dev\n", e->job->trace);
}

void sn_say_interrupted(const sn_run *run)
{
    int64_t step;
    const char *quote = strpbrk(run->dir, " \t\n\"$&();<>|*?`\\#~!{}[]") ? "'" : "";
    fprintf(stderr, "supernode train: interrupted; ");
    if (sn_ckpt_newest(run->ckpt_dir, &step) >= 0)
        fprintf(stderr, "the newest checkpoint is of step %lld in %s; ", (long long) step,
                run->ckpt_dir);
    else
        fprintf(stderr, "there is no checkpoint yet; ");
    fprintf(stderr, "go on with: supernode train --resume --run %s%s%s\n", quote, run->dir, quote);
}

/* α and β as rank 0 measured them. */
static void read_links(const sn_run *run, sn_report *report)
{
    char path[4096];
    json_error_t error;
    if (sn_run_path(run, "links.json", path) < 0)
        return;
    json_t *root = json_load_file(path, 0, &error);
    json_t *link = json_array_get(root, 0);
    report->link_latency_ns = json_number_value(json_object_get(link, "latency_ns"));
    report->link_bytes_per_s = json_number_value(json_object_get(link, "bytes_per_s"));
    json_decref(root);
}

static sn_report_card *cards_of(const sn_ending *e, sn_arena *arena)
{
    const sn_collector *c = e->collected;
    sn_report_card *card = SN_NEW_N(arena, sn_report_card, e->plan->world);
    for (int r = 0; r < e->plan->world; r++) {
        double all = r < 1024 && c->share_all[r] > 0 ? c->share_all[r] : 1;
        card[r].name = e->topo->card[r].name;
        card[r].host = e->topo->host[e->topo->card[r].host].name;
        card[r].rank = r;
        sn_plan_coords(e->plan, r, &card[r].tensor, &card[r].stage, &card[r].data);
        if (r < 1024) {
            card[r].compute_share = c->share[r][0] / all;
            card[r].collective_share = c->share[r][1] / all;
            card[r].pipeline_share = c->share[r][2] / all;
            card[r].memory_bytes = c->memory[r];
        }
    }
    return card;
}

sn_status sn_write_report(const sn_ending *e)
{
    char path[4096];
    sn_arena *arena = sn_arena_create();
    sn_str job = {0}, plan = {0}, compression = {0};
    sn_step_metrics *rows = NULL;
    int64_t count = 0;
    const char *event[64];
    int events = SN_MIN(e->events, (int) SN_COUNT(event) - 1);
    for (int i = 0; i < events; i++)
        event[i] = e->event[i];
    if (sn_compression_line(e->run, &compression))
        event[events++] = sn_arena_printf(arena, "compression %s", sn_str_get(&compression));
    sn_str_done(&compression);
    sn_status status = sn_run_path(e->run, "metrics.jsonl", path);
    if (status >= 0)
        status = sn_metrics_read(path, arena, &rows, &count);
    sn_job_yaml(e->job, &job);
    sn_plan_print(e->plan, &plan);
    sn_report report = {.title = e->job->model,
                        .run_id = e->run->id,
                        .job_yaml = sn_str_get(&job),
                        .sample_text = e->sample,
                        .plan_text = sn_str_get(&plan),
                        .cards = e->plan->world,
                        .hosts = e->job->hosts,
                        .tensor = e->plan->tensor,
                        .pipeline = e->plan->pipeline,
                        .data = e->plan->data,
                        .card = cards_of(e, arena),
                        .row = rows,
                        .rows = count,
                        .final_loss = e->final_loss,
                        .baseline_loss = e->baseline,
                        .baseline_name = "interpolated 4-gram",
                        .parameters = sn_graph_parameters(e->plan->graph),
                        .tokens = e->collected->tokens,
                        .wall_ns = e->wall_ns,
                        .peak_flops = e->collected->peak_flops,
                        .event = event,
                        .events = events};
    read_links(e->run, &report);
    if (status >= 0)
        status = sn_run_path(e->run, "report.html", path);
    if (status >= 0)
        status = sn_report_write(&report, path);
    sn_str_done(&job);
    sn_str_done(&plan);
    sn_arena_free(arena);
    return status;
}
