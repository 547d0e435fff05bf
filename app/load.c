/* SPDX-License-Identifier: Apache-2.0
 * From words and flags to a resolved job and its topology. */
#include "cmd.h"

#include "kern/kern.h"
#include "os/os.h"
#include "probe/probe.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool sn_plain_output(void)
{
    const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
    return (no_color && *no_color) || !term || !strcmp(term, "dumb");
}

void sn_catch_stop(void (*handler)(int))
{
    static const int number[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction act = {.sa_handler = handler}, before;
    for (size_t i = 0; i < SN_COUNT(number); i++)
        if (!sigaction(number[i], NULL, &before) && before.sa_handler != SIG_IGN)
            sigaction(number[i], &act, NULL);
    signal(SIGPIPE, SIG_IGN);
}

bool sn_under_launcher(void)
{
    return getenv("PMIX_RANK") != NULL;
}

const char *sn_cache_dir(sn_arena *arena)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (xdg && *xdg)
        return sn_arena_printf(arena, "%s/supernode", xdg);
    return home && *home ? sn_arena_printf(arena, "%s/.cache/supernode", home) : NULL;
}

sn_status sn_read_corpus(const char *data, sn_arena *arena, const char **ret_path)
{
    const char *cache = sn_cache_dir(arena);
    return sn_job_corpus(data, cache ? cache : "build/data", arena, ret_path);
}

void sn_resolve_cards(sn_job_spec *spec, int cores)
{
    sn_job *j = &spec->job;
    if (spec->cards_given)
        return;
    int64_t need =
        (int64_t) SN_MAX(1, j->tensor) * SN_MAX(1, j->pipeline) * SN_MAX(1, j->data_parallel);
    bool any_auto = !j->tensor || !j->pipeline || !j->data_parallel;
    j->hosts = 1;
    j->cards_per_host = (int) (any_auto ? SN_MAX(need, cores) : need);
}

/* A resumed run's own job names its cards; a split given now that needs more of them, and says
 * nothing about hosts, gets them on this one. */
static void make_room(const sn_args *args, sn_job_spec *spec)
{
    const sn_job *j = &spec->job;
    int64_t need = (int64_t) SN_MAX(1, j->tensor) * SN_MAX(1, j->pipeline);
    need *= SN_MAX(1, j->data_parallel);
    if (!sn_args_get(args, "hosts") && !sn_args_get(args, "cards-per-host") &&
        need > (int64_t) j->hosts * j->cards_per_host)
        spec->cards_given = false;
}

/* Workers run elsewhere. What is not there stays as it is: whoever needs it says so. */
static void make_absolute(sn_arena *arena, const char **path)
{
    char *absolute = *path ? realpath(*path, NULL) : NULL;
    if (absolute)
        *path = sn_arena_str(arena, absolute);
    free(absolute);
}

static bool has_tokenizer(sn_arena *arena, const char *folder)
{
    return !access(sn_arena_printf(arena, "%s/tokenizer.json", folder), R_OK) ||
           !access(sn_arena_printf(arena, "%s/vocab.json", folder), R_OK);
}

/* The folder says what the model is, but for its context, which may be shorter. */
static sn_status use_init(sn_job_spec *spec)
{
    sn_job *j = &spec->job;
    int64_t sequence = j->gpt.sequence;
    if (!j->init)
        return SN_OK;
    SN_TRY(sn_train_hf_model(j->init, &j->gpt));
    if (spec->sequence_given && sequence > j->gpt.sequence)
        return sn_fail(SN_EFIT, "model.sequence is %lld, the model in %s has %lld positions",
                       (long long) sequence, j->init, (long long) j->gpt.sequence);
    if (spec->sequence_given)
        j->gpt.sequence = sequence;
    j->model = "custom";
    spec->vocab_given = true;
    make_absolute(spec->arena, &j->init);
    if (!j->tokenizer && has_tokenizer(spec->arena, j->init))
        j->tokenizer = j->init;
    return SN_OK;
}

/* Unless the job has a vocabulary of its own it is the tokenizer's. */
static sn_status use_tokenizer(sn_job_spec *spec)
{
    sn_token *token;
    if (!spec->job.tokenizer)
        return SN_OK;
    SN_TRY(sn_tokenizer_open(spec->job.tokenizer, &token));
    if (!spec->vocab_given)
        spec->job.gpt.vocab = sn_token_vocab(token);
    sn_token_free(token);
    make_absolute(spec->arena, &spec->job.tokenizer);
    return SN_OK;
}

sn_status sn_read_job(const sn_args *args, const char *word, sn_arena *arena, sn_job_spec *ret)
{
    sn_str notes = {0};
    sn_job_defaults(ret, arena);
    if (word)
        SN_TRY(sn_job_read(ret, word));
    const char *data_path = sn_args_get(args, "data-path");
    sn_status status = sn_job_flags(ret, args, &notes);
    if (status >= 0 && notes.len && isatty(2))
        fputs(sn_str_get(&notes), stderr);
    sn_str_done(&notes);
    SN_TRY(status);
    if (data_path)
        ret->job.data = sn_arena_str(arena, data_path);
    bool own_job = args->words || sn_args_get(args, "model-config");
    if (!sn_args_get(args, "resume")) /* a run that goes on knows its model */
        SN_TRY(use_init(ret));
    if (word && !own_job)
        make_room(args, ret);
    SN_TRY(sn_job_check(ret));
    SN_TRY(sn_read_corpus(ret->job.data, arena, &ret->job.data));
    make_absolute(arena, &ret->job.data);
    make_absolute(arena, &ret->job.data_cache);
    return use_tokenizer(ret);
}

int sn_load_job(const sn_args *args, const char *word, sn_arena *arena, sn_job_spec *ret)
{
    sn_status status = sn_read_job(args, word, arena, ret);
    return status < 0 ? sn_exit_with(args->verb->name, status) : -1;
}

sn_status sn_job_topology(const sn_job *job, sn_topo **ret)
{
    sn_topo *machine;
    SN_TRY(sn_probe_machine(&machine));
    double peak = sn_kern_fma_peak(40 * SN_MS);
    for (int c = 0; c < machine->cards; c++)
        if (!strcmp(machine->card[c].kind, "cpu")) {
            machine->card[c].flops_f32 = peak;
            machine->card[c].flops_bf16 = SN_MIN(machine->card[c].flops_bf16, peak);
        }
    sn_status status =
        sn_topo_emulate(machine, job->hosts, job->cards_per_host, 8000,
                        job->link_bits_per_s > 0 ? job->link_bits_per_s / 8 : 3e9, ret);
    sn_topo_free(machine);
    return status;
}

sn_status sn_cluster_read(const char *path, sn_topo **ret)
{
    char *text;
    size_t bytes;
    SN_TRY(sn_file_read(path, 64 << 20, &text, &bytes));
    sn_status status = sn_topo_parse(text, bytes, path, ret);
    free(text);
    return status;
}
