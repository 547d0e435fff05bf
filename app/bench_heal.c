/* SPDX-License-Identifier: Apache-2.0
 *
 * A worker of a running job is killed (SIGKILL): how soon the job says so, and how soon it has
 * completed a step again after its restart from the last checkpoint.
 *
 *   kill -9 ──notice──▶ {"event":"note" … killed …} ──restart──▶ {"event":"step" …} */
#include "bench.h"
#include "bench_peer.h"

#include "os/os.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOTICED, AGAIN };

/* Does /proc/PID/cmdline (words that end with NUL) say: worker of this run, of this rank? */
static bool is_worker(const char *words, size_t bytes, const char *run, const char *rank)
{
    bool worker = false, of_run = false, of_rank = false;
    const char *before = "";
    for (const char *w = words; w < words + bytes; before = w, w += strlen(w) + 1) {
        worker |= !strcmp(w, "worker");
        of_run |= !strcmp(before, "--run") && !strcmp(w, run);
        of_rank |= !strcmp(before, "--rank") && !strcmp(w, rank);
    }
    return worker && of_run && of_rank;
}

static pid_t find_worker(const char *run, const char *rank)
{
    DIR *proc = opendir("/proc");
    pid_t found = 0;
    for (struct dirent *e; proc && !found && (e = readdir(proc));) {
        char path[300], words[8192];
        int64_t pid;
        if (!sn_str_to_int(e->d_name, &pid) || pid < 1)
            continue;
        snprintf(path, sizeof path, "/proc/%s/cmdline", e->d_name);
        size_t bytes = bench_read_proc(path, words, sizeof words);
        if (is_worker(words, bytes, run, rank))
            found = (pid_t) pid;
    }
    if (proc)
        closedir(proc);
    return found;
}

/* The next line that has both. */
static sn_status wait_for(bench_peer *p, const char *event, const char *words)
{
    char line[4096];
    do
        SN_TRY(bench_peer_line(p, 60, line, sizeof line));
    while (!strstr(line, event) || !strstr(line, words));
    return SN_OK;
}

static sn_status kill_once(bench_peer *p, const char *run, int i, int what, double *ret)
{
    char rank[16], named[32];
    snprintf(rank, sizeof rank, "%d", i % 4);
    snprintf(named, sizeof named, "rank %s", rank);
    for (int steps = 0; steps < 8; steps++) /* past its start, and a checkpoint is there */
        SN_TRY(wait_for(p, "\"event\":\"step\"", ""));
    int pidfd = -1;
    pid_t pid = find_worker(run, rank);
    if (!pid || sn_pidfd_open(pid, &pidfd) < 0)
        return sn_fail(SN_ENOTFOUND, "rank %s of the job is not to be found", rank);
    sn_time t = sn_now();
    sn_pidfd_kill(pidfd, SIGKILL);
    SN_TRY(wait_for(p, "\"event\":\"note\"", named));
    *ret = (double) (sn_now() - t) * 1e-9;
    if (what == AGAIN) {
        SN_TRY(wait_for(p, "\"event\":\"step\"", ""));
        *ret = (double) (sn_now() - t) * 1e-9;
    }
    return SN_OK;
}

static sn_status with_dir(const bench_case *c, const bench_opts *o, const char *dir,
                          bench_result *ret)
{
    char data[4200], run[4200];
    bench_peer p;
    snprintf(data, sizeof data, "%s/text.txt", dir);
    snprintf(run, sizeof run, "%s/run", dir);
    SN_TRY(bench_text_write(data, 256 << 10));
    const char *argv[] = {
        o->self, "train",        "--json",      "--data",     data,      "--run",
        run,     "--model",      "gpt-english", "--hosts",    "2",       "--cards-per-host",
        "2",     "--tensor",     "2",           "--pipeline", "1",       "--data-parallel",
        "2",     "--batch-size", "8",           "--steps",    "1000000", "--checkpoint-every",
        "5",     "--retries",    "1000",        NULL};
    SN_TRY(bench_peer_start(argv, &p));
    sn_status status = SN_OK;
    for (int i = 0; i < o->pairs && status >= 0; i++) {
        status = kill_once(&p, run, i, c->arg, &ret->sample[i]);
        ret->samples += status >= 0;
    }
    bench_peer_stop(&p, 0);
    return status;
}

static sn_status run_heal(const bench_case *c, const bench_opts *o, bench_result *ret)
{
    char dir[4096];
    SN_TRY(bench_dir_create(dir, sizeof dir));
    sn_status status = with_dir(c, o, dir, ret);
    bench_dir_remove(dir);
    snprintf(ret->note, sizeof ret->note,
             "kill -9 of one of 4 workers (gpt-english, batch 8, 2 hosts x 2 cards) to %s",
             c->arg == NOTICED ? "the sentence that names it"
                               : "the first step completed after the restart from a checkpoint");
    return status;
}

const bench_case bench_heal[] = {{.area = "heal",
                                  .name = "heal_notice_4_workers",
                                  .unit = "s",
                                  .less_is_better = true,
                                  .bar = BENCH_VALUE_MAX,
                                  .bar_value = 1,
                                  .arg = NOTICED,
                                  .run = run_heal},
                                 {.area = "heal",
                                  .name = "heal_first_step_4_workers",
                                  .unit = "s",
                                  .less_is_better = true,
                                  .arg = AGAIN,
                                  .run = run_heal},
                                 {.area = "heal"}};
