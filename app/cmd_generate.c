/* SPDX-License-Identifier: Apache-2.0
 * supernode generate: let a trained model write; supernode export: hand it to others. */
#include "cmd.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* The model writes bytes, and all of them go to a file or pipe; a terminal gets what is text. */
static sn_status write_out(const sn_str *out)
{
    sn_str text = {0};
    if (isatty(1))
        sn_str_add_utf8(&text, sn_str_get(out), out->len);
    else
        sn_str_add_n(&text, sn_str_get(out), out->len);
    sn_str_add(&text, "\n");
    fwrite(text.data, 1, text.len, stdout);
    sn_str_done(&text);
    return fflush(stdout) ? sn_fail(SN_EIO, "cannot write the text: %s", strerror(errno)) : SN_OK;
}

/* The job of a run as resolved, and where its checkpoints are. */
static sn_status read_run(const char *run, sn_arena *arena, sn_job_spec *spec, char ckpt[4096])
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/job.yaml", run) >= (int) sizeof path)
        return sn_fail(SN_EINVAL, "the path of the run is too long");
    sn_job_defaults(spec, arena);
    SN_TRY(sn_job_read(spec, path));
    return sn_run_checkpoints(run, &spec->job, ckpt);
}

static sn_status generate(const sn_args *args, sn_arena *arena)
{
    const char *run = args->words ? args->word[0] : "runs/latest";
    const char *prompt = sn_args_get(args, "prompt"), *hot = sn_args_get(args, "temperature");
    char ckpt[4096];
    double temperature = 0.7;
    int64_t bytes = 400, seed = 1;
    sn_job_spec spec;
    sn_str out = {0};
    if (hot && (!sn_str_to_float(hot, &temperature) || temperature < 0 || temperature > 100))
        return sn_fail(SN_EINVAL, "--temperature is '%s', it must be a number from 0 to 100", hot);
    if (!sn_args_int(args, "bytes", 1, 1 << 20, &bytes) ||
        !sn_args_int(args, "seed", 0, INT64_MAX, &seed))
        return sn_fail(SN_EINVAL, "see supernode generate --help");
    SN_TRY(read_run(run, arena, &spec, ckpt));
    prompt = prompt && *prompt ? prompt : "\n";
    sn_status status =
        sn_train_generate(&spec.job, ckpt, prompt, bytes, temperature, (uint64_t) seed, &out);
    if (status >= 0)
        status = write_out(&out);
    sn_str_done(&out);
    return status;
}

int sn_cmd_generate(const sn_args *args)
{
    sn_arena *arena = sn_arena_create();
    sn_status status = generate(args, arena);
    int code = status < 0 ? sn_exit_with("generate", status) : SN_EXIT_OK;
    sn_arena_free(arena);
    return code;
}

static sn_status export(const sn_args *args, sn_arena *arena)
{
    const char *run = args->words ? args->word[0] : "runs/latest", *to = sn_args_get(args, "to");
    char ckpt[4096];
    sn_job_spec spec;
    if (!to)
        return sn_fail(SN_EINVAL, "say where to: --to FOLDER");
    SN_TRY(read_run(run, arena, &spec, ckpt));
    SN_TRY(sn_train_export(&spec.job, ckpt, to));
    printf("%s: config.json, model.safetensors and the tokenizer's files\n", to);
    return SN_OK;
}

int sn_cmd_export(const sn_args *args)
{
    sn_arena *arena = sn_arena_create();
    sn_status status = export(args, arena);
    sn_arena_free(arena);
    return status < 0 ? sn_exit_with("export", status) : SN_EXIT_OK;
}
