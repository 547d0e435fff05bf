/* SPDX-License-Identifier: Apache-2.0
 * PyTorch's side of the training benchmarks. */
#include "bench_torch.h"

#include "os/os.h"

#include <stdio.h>
#include <string.h>

#define PYTHON "/usr/bin/python3" /* the one that Debian's python3-torch belongs to */

enum { WORDS_MAX = 8, STEP_SECONDS = 120 };

void bench_torch_stop(bench_torch *t)
{
    for (int r = 0; r < t->ranks; r++)
        bench_peer_stop(&t->rank[r], 10);
    t->ranks = 0;
    if (*t->dir)
        bench_dir_remove(t->dir);
    *t->dir = 0;
}

sn_status bench_torch_step(bench_torch *t, double *ret_seconds)
{
    char answer[128];
    sn_time start = sn_now();
    for (int r = 0; r < t->ranks; r++)
        SN_TRY(bench_peer_say(&t->rank[r], "1"));
    for (int r = 0; r < t->ranks; r++)
        SN_TRY(bench_peer_line(&t->rank[r], STEP_SECONDS, answer, sizeof answer));
    *ret_seconds = (double) (sn_now() - start) * 1e-9;
    return SN_OK;
}

static sn_status open_ranks(const bench_opts *o, const char *script, const char *const *words,
                            int ranks, bench_torch *t)
{
    char path[4096], meet[4200], rank[16], world[16];
    const char *argv[2 + WORDS_MAX + 4] = {PYTHON, path};
    int n = 2;
    SN_TRY(bench_peer_file(o->peers, script, path, sizeof path));
    SN_TRY(bench_dir_create(t->dir, sizeof t->dir));
    snprintf(meet, sizeof meet, "%s/meet", t->dir);
    snprintf(world, sizeof world, "%d", ranks);
    for (int i = 0; i < WORDS_MAX && words[i]; i++)
        argv[n++] = words[i];
    argv[n] = rank;
    argv[n + 1] = world;
    argv[n + 2] = meet;
    for (int r = 0; r < ranks; r++) {
        snprintf(rank, sizeof rank, "%d", r);
        SN_TRY(bench_peer_start(argv, &t->rank[r]));
        t->ranks = r + 1;
    }
    double warm;
    for (int i = 0; i < 3; i++)
        SN_TRY(bench_torch_step(t, &warm));
    return SN_OK;
}

sn_status bench_torch_start(const bench_opts *o, const char *script, const char *const *words,
                            int ranks, bench_torch *ret)
{
    const char *argv[] = {PYTHON, "-c", "import torch", NULL};
    sn_str said = {0};
    memset(ret, 0, sizeof *ret);
    SN_ASSERT(ranks >= 1 && ranks <= BENCH_TORCH_RANKS);
    int code = bench_capture(argv, 120, &said);
    sn_str_done(&said);
    if (code != 0)
        return sn_fail(SN_ENOTFOUND, "python3-torch is not installed");
    sn_status status = open_ranks(o, script, words, ranks, ret);
    if (status < 0)
        bench_torch_stop(ret);
    return status;
}
