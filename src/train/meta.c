/* SPDX-License-Identifier: Apache-2.0
 *
 * meta — what a checkpoint says beside its tensors, as JSON: the model's numbers, where training
 * stood, and what it was trained on and with. */
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "train/parts.h"

typedef struct number {
    const char *name;
    int64_t value;
} number;

#define MODEL_NUMBERS 15
#define OLD_NUMBERS                                                                                \
    6 /* those that every checkpoint has; the others were 0 before there was a choice */

static void model_numbers(const sn_gpt *g, number ret[MODEL_NUMBERS])
{
    const number all[MODEL_NUMBERS] = {{"layers", g->layers},
                                       {"hidden", g->hidden},
                                       {"heads", g->heads},
                                       {"sequence", g->sequence},
                                       {"vocab", g->vocab},
                                       {"mlp", g->mlp ? g->mlp : 4 * g->hidden},
                                       {"kv_heads", g->kv_heads},
                                       {"rotary", g->rotary},
                                       {"activation", g->act},
                                       {"gated", g->gated},
                                       {"rms", g->rms},
                                       {"tied", g->tied},
                                       {"no_bias", g->no_bias},
                                       {"experts", g->experts},
                                       {"experts_used", g->experts_used}};
    memcpy(ret, all, sizeof(all));
}

void train_meta_write(const sn_job *job, uint64_t data, const train_meta *m, const sn_page *page,
                      sn_str *out)
{
    number model[MODEL_NUMBERS];
    char codec[96];
    model_numbers(&job->gpt, model);
    sn_str_add(out, "{\"format\": 1, \"model\": {");
    for (int i = 0; i < MODEL_NUMBERS; i++)
        sn_str_printf(out, "%s\"%s\": %" PRId64, i ? ", " : "", model[i].name, model[i].value);
    sn_str_printf(out,
                  "}, \"step\": %" PRId64 ", \"tokens\": %" PRId64 ", \"skipped\": %" PRId64
                  ", \"data\": \"%016" PRIx64 "\", \"seed\": \"%" PRIu64 "\", \"steps\": %" PRId64
                  ", \"batch_size\": %" PRId64 ", \"lr\": %.17g, \"precision\": \"%s\", "
                  "\"compression\": \"%s\", \"hosts\": %d",
                  m->step, m->tokens, m->skipped, data, job->seed, job->steps, job->batch,
                  job->optimizer.lr, sn_dtype_name(job->precision),
                  train_compression_text(job, codec), job->hosts);
    if (page) {
        sn_str_add(out, ", \"past\": ");
        train_past_write(page, m->step, out);
    }
    sn_str_add(out, "}");
}

void train_meta_past(const char *json, int64_t step, sn_page *page)
{
    json_error_t error;
    json_t *root = json_loads(json ? json : "", 0, &error);
    sn_page_step past[SN_PAGE_RING];
    sn_page_past(page, past, train_past_read(json_object_get(root, "past"), step, past));
    json_decref(root);
}

static sn_status compare_model(const json_t *root, const sn_job *job)
{
    number model[MODEL_NUMBERS];
    model_numbers(&job->gpt, model);
    const json_t *saved = json_object_get(root, "model");
    sn_str differ = {0};
    for (int i = 0; i < MODEL_NUMBERS; i++) {
        const json_t *v = json_object_get(saved, model[i].name);
        int64_t was = json_is_integer(v) ? json_integer_value(v) : i < OLD_NUMBERS ? -1 : 0;
        if (was != model[i].value)
            sn_str_printf(&differ, "%s%s %" PRId64 " there, %" PRId64 " in this job",
                          differ.len ? "; " : "", model[i].name, was, model[i].value);
    }
    sn_status status = SN_OK;
    if (differ.len)
        status = sn_fail(SN_EMISMATCH, "it is of another model: %s", sn_str_get(&differ));
    sn_str_done(&differ);
    return status;
}

static void note(sn_str *out, const char *what, const char *was, const char *now)
{
    if (strcmp(was, now))
        sn_str_printf(out, "%s%s was %s, is %s", out->len ? "; " : "", what, was, now);
}

static const char *text_of(const json_t *root, const char *key)
{
    const char *s = json_string_value(json_object_get(root, key));
    return s ? s : "?";
}

static void note_int(sn_str *out, const json_t *root, const char *key, int64_t now)
{
    char a[32], b[32];
    snprintf(a, sizeof(a), "%lld", (long long) json_integer_value(json_object_get(root, key)));
    snprintf(b, sizeof(b), "%" PRId64, now);
    note(out, key, a, b);
}

static void compare_rest(const json_t *root, const sn_job *job, uint64_t data, sn_str *out)
{
    char now[32], was[32], codec[96];
    snprintf(now, sizeof(now), "%016" PRIx64, data);
    if (strcmp(text_of(root, "data"), now))
        sn_str_add(out, "the text is another one");
    snprintf(now, sizeof(now), "%" PRIu64, job->seed);
    note(out, "seed", text_of(root, "seed"), now);
    note_int(out, root, "steps", job->steps);
    note_int(out, root, "batch_size", job->batch);
    snprintf(was, sizeof(was), "%g", json_number_value(json_object_get(root, "lr")));
    snprintf(now, sizeof(now), "%g", job->optimizer.lr);
    note(out, "lr", was, now);
    note(out, "precision", text_of(root, "precision"), sn_dtype_name(job->precision));
    if (json_object_get(root, "compression"))
        note(out, "compression", text_of(root, "compression"), train_compression_text(job, codec));
}

void train_meta_codec(const char *json, int hosts, char out[64])
{
    json_error_t error;
    json_t *root = json_loads(json ? json : "", 0, &error);
    const char *text = text_of(root, "compression");
    bool same = json_integer_value(json_object_get(root, "hosts")) == hosts;
    snprintf(out, 64, "%.*s", (int) strcspn(text, ","), same && *text != '?' ? text : "");
    json_decref(root);
}

sn_status train_meta_read(const char *json, const sn_job *job, uint64_t data, train_meta *ret,
                          sn_str *ret_notes)
{
    json_error_t error;
    json_t *root = json_loads(json ? json : "", 0, &error);
    const json_t *step = json_object_get(root, "step");
    sn_status status = SN_OK;
    if (!json_is_integer(step) || !json_is_object(json_object_get(root, "model")))
        status = sn_fail(SN_ECORRUPT, "it was not written by a training job");
    else
        status = compare_model(root, job);
    if (status == SN_OK) {
        ret->step = json_integer_value(step);
        ret->tokens = json_integer_value(json_object_get(root, "tokens"));
        ret->skipped = json_integer_value(json_object_get(root, "skipped"));
        if (ret_notes)
            compare_rest(root, job, data, ret_notes);
    }
    json_decref(root);
    return status;
}
