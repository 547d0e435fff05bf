/* SPDX-License-Identifier: Apache-2.0
 * supernode generate: let a trained model write. */
#include "cmd.h"

#include <string.h>

static sn_status generate(const sn_args *args, sn_arena *arena)
{
    const char *run = args->words ? args->word[0] : "runs/latest";
    const char *prompt = sn_args_get(args, "prompt"), *hot = sn_args_get(args, "temperature");
    char path[4096];
    double temperature = 0.7;
    int64_t bytes = 400, seed = 1;
    sn_job_spec spec;
    sn_str out = {0};
    if (hot && (!sn_str_to_float(hot, &temperature) || temperature < 0 || temperature > 100))
        return sn_fail(SN_EINVAL, "--temperature is '%s', it must be a number from 0 to 100", hot);
    if (!sn_args_int(args, "bytes", 1, 1 << 20, &bytes) ||
        !sn_args_int(args, "seed", 0, INT64_MAX, &seed))
        return sn_fail(SN_EINVAL, "see supernode generate --help");
    if (snprintf(path, sizeof path, "%s/job.yaml", run) >= (int) sizeof path)
        return sn_fail(SN_EINVAL, "the path of the run is too long");
    sn_job_defaults(&spec, arena);
    SN_TRY(sn_job_read(&spec, path));
    prompt = prompt && *prompt ? prompt : "\n";
    SN_TRY(sn_run_checkpoints(run, &spec.job, path));
    SN_TRY(sn_train_generate(&spec.job, path, prompt, bytes, temperature, (uint64_t) seed, &out));
    puts(sn_str_get(&out));
    sn_str_done(&out);
    return SN_OK;
}

int sn_cmd_generate(const sn_args *args)
{
    sn_arena *arena = sn_arena_create();
    sn_status status = generate(args, arena);
    int code = status < 0 ? sn_exit_with("generate", status) : SN_EXIT_OK;
    sn_arena_free(arena);
    return code;
}
