/* SPDX-License-Identifier: Apache-2.0 */
#include "run.h"

#include "ckpt/ckpt.h"
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static sn_status newest(char *dir, size_t bytes)
{
    char target[256];
    ssize_t n = readlink("runs/latest", target, sizeof target - 1);
    if (n <= 0)
        return sn_fail(SN_ENOTFOUND,
                       "--resume: there is no run to resume in runs/; name one with --run DIR");
    target[n] = 0;
    snprintf(dir, bytes, "runs/%s", target);
    return SN_OK;
}

static void name_run(char id[64])
{
    time_t now = time(NULL);
    struct tm t;
    localtime_r(&now, &t);
    size_t n = strftime(id, 48, "%Y%m%d-%H%M%S", &t);
    snprintf(id + n, 64 - n, "-%04x", (unsigned) getpid() & 0xffff);
}

void sn_run_latest(const sn_run *run)
{
    char link[96];
    if (strncmp(run->dir, "runs/", 5) || strcmp(run->dir + 5, run->id))
        return;
    snprintf(link, sizeof link, "runs/.latest-%d", (int) getpid());
    unlink(link);
    if (!symlink(run->id, link) && rename(link, "runs/latest"))
        unlink(link);
}

/* The kernel drops the lock with its process, however that ends. A file system without locks has to
 * do without. */
static sn_status lock(const char *dir, int *ret_fd)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return sn_fail(SN_EPERM, "cannot open %s: %s", dir, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) {
        close(fd);
        return sn_fail(
            SN_EINVAL,
            "%s is in use by another run of supernode: wait for its end, or name another "
            "directory",
            dir);
    }
    *ret_fd = fd;
    return SN_OK;
}

static sn_status check_unused(const sn_run *run)
{
    int64_t step;
    if (sn_ckpt_newest(run->ckpt_dir, &step) < 0)
        return SN_OK;
    return sn_fail(SN_EINVAL,
                   "%s holds a run already, its newest checkpoint is of step %lld: go on from it "
                   "with --resume, or name another directory",
                   run->ckpt_dir, (long long) step);
}

static sn_status name_dir(const char *dir, bool resume, sn_run *ret)
{
    struct stat st;
    if (dir)
        snprintf(ret->dir, sizeof ret->dir, "%s", dir);
    else if (resume)
        SN_TRY(newest(ret->dir, sizeof ret->dir));
    if (!*ret->dir) {
        name_run(ret->id);
        snprintf(ret->dir, sizeof ret->dir, "runs/%s", ret->id);
        return SN_OK;
    }
    const char *slash = strrchr(ret->dir, '/');
    snprintf(ret->id, sizeof ret->id, "%.63s", slash && slash[1] ? slash + 1 : ret->dir);
    return resume && stat(ret->dir, &st)
               ? sn_fail(SN_ENOTFOUND, "--resume: %s does not exist", ret->dir)
               : SN_OK;
}

static sn_status open_dirs(bool resume, const sn_job *job, sn_run *run)
{
    SN_TRY(sn_dir_create(run->dir));
    SN_TRY(sn_dir_writable(run->dir));
    SN_TRY(lock(run->dir, &run->lock[0]));
    SN_TRY(sn_run_checkpoints(run->dir, job, run->ckpt_dir));
    SN_TRY(sn_dir_create(run->ckpt_dir));
    SN_TRY(sn_dir_writable(run->ckpt_dir));
    if (job->checkpoint.dir) { /* it will be found from other directories too */
        char *absolute = realpath(run->ckpt_dir, NULL);
        if (absolute)
            snprintf(run->ckpt_dir, sizeof run->ckpt_dir, "%s", absolute);
        free(absolute);
    }
    SN_TRY(lock(run->ckpt_dir, &run->lock[1]));
    return resume ? SN_OK : check_unused(run);
}

sn_status sn_run_open(const char *dir, bool resume, const sn_job *job, sn_run *ret)
{
    *ret = (sn_run){.lock = {-1, -1}};
    SN_TRY(name_dir(dir, resume, ret));
    sn_status status = open_dirs(resume, job, ret);
    if (status < 0)
        sn_run_close(ret);
    return status;
}

void sn_run_close(sn_run *run)
{
    for (size_t i = 0; i < SN_COUNT(run->lock); i++) {
        if (run->lock[i] >= 0)
            close(run->lock[i]);
        run->lock[i] = -1;
    }
}

sn_status sn_run_path(const sn_run *run, const char *name, char out[4096])
{
    if (snprintf(out, 4096, "%s/%s", run->dir, name) >= 4096)
        return sn_fail(SN_EINVAL, "the path of the run is too long: %.100s…", run->dir);
    return SN_OK;
}

sn_status sn_run_write(const sn_run *run, const char *name, const char *text)
{
    char path[4096];
    SN_TRY(sn_run_path(run, name, path));
    return sn_file_write(path, text, strlen(text));
}

sn_status sn_run_job_file(const char *dir, char out[4096])
{
    char name[512];
    struct stat st;
    if (!dir) {
        SN_TRY(newest(name, sizeof name));
        dir = name;
    }
    if (stat(dir, &st))
        return sn_fail(SN_ENOTFOUND, "--resume: %s does not exist", dir);
    if (snprintf(out, 4096, "%s/job.yaml", dir) >= 4096)
        return sn_fail(SN_EINVAL, "the path of the run is too long: %.100s…", dir);
    if (stat(out, &st))
        return sn_fail(SN_ENOTFOUND, "--resume: there is no run in %s, it has no job.yaml", dir);
    return SN_OK;
}

sn_status sn_run_checkpoints(const char *dir, const sn_job *job, char out[4096])
{
    int n = job->checkpoint.dir ? snprintf(out, 4096, "%s", job->checkpoint.dir)
                                : snprintf(out, 4096, "%s/checkpoints", dir);
    return n < 4096 ? SN_OK : sn_fail(SN_EINVAL, "the path of the run is too long: %.100s…", dir);
}

sn_status sn_run_describe(const sn_run *run, const sn_job *job, const sn_topo *topo,
                          const sn_plan *plan)
{
    sn_str out = {0};
    sn_job_yaml(job, &out);
    sn_status status = sn_run_write(run, "job.yaml", sn_str_get(&out));
    sn_str_clear(&out);
    sn_topo_yaml(topo, &out);
    if (status >= 0)
        status = sn_run_write(run, "topology.yaml", sn_str_get(&out));
    sn_str_clear(&out);
    sn_plan_print(plan, &out);
    if (status >= 0)
        status = sn_run_write(run, "plan.txt", sn_str_get(&out));
    sn_str_done(&out);
    return status;
}

sn_status sn_run_tokenizer(const sn_run *run, sn_job_spec *spec)
{
    sn_token *token;
    sn_str text = {0};
    if (!spec->job.tokenizer)
        return SN_OK;
    SN_TRY(sn_tokenizer_open(spec->job.tokenizer, &token));
    sn_token_write(token, &text);
    sn_token_free(token);
    sn_status status = sn_run_write(run, "tokenizer.json", sn_str_get(&text));
    sn_str_done(&text);
    char path[4096];
    if (status >= 0)
        status = sn_run_path(run, "tokenizer.json", path);
    if (status >= 0) {
        char *absolute = realpath(path, NULL);
        spec->job.tokenizer = sn_arena_str(spec->arena, absolute ? absolute : path);
        free(absolute);
    }
    return status;
}

sn_status sn_run_calibrated(const sn_run *run, const sn_calibration *c)
{
    sn_str out = {0};
    char path[4096];
    SN_TRY(sn_run_path(run, "calibration.json", path));
    if (!c) { /* that of an attempt before, if there is one */
        unlink(path);
        return SN_OK;
    }
    sn_calibration_json(c, &out);
    sn_status status = sn_run_write(run, "calibration.json", sn_str_get(&out));
    sn_str_done(&out);
    return status;
}

/* The row of one step from every rank's page; false while a rank has not finished it. */
static bool gather(sn_collector *c, sn_page *const *pages, int world, sn_step_metrics *row)
{
    sn_page_step s;
    *row = (sn_step_metrics){.step = c->next + 1, .val_loss = NAN, .peak_flops = c->peak_flops};
    for (int r = 0; r < world; r++)
        if (!sn_page_step_read(pages[r], c->next, &s))
            return false;
    for (int r = 0; r < world; r++) {
        sn_page_step_read(pages[r], c->next, &s);
        if (r == 0) {
            row->loss = s.loss;
            row->grad_norm = s.grad_norm;
            row->lr = s.lr;
            row->val_loss = s.val_loss;
            row->tokens = s.tokens;
        }
        row->step_ns = SN_MAX(row->step_ns, s.step_ns);
        for (int k = 0; k < SN_TIME_KINDS; k++)
            row->time_ns[k] += s.time_ns[k] / world;
        row->comm_ns += s.comm_ns / world;
        row->flops += s.flops;
        row->bytes_host += s.bytes_host;
        row->bytes_net += s.bytes_net;
        if (r < (int) SN_COUNT(c->share)) {
            c->share[r][0] += (double) (s.time_ns[SN_TIME_COMPUTE] + s.time_ns[SN_TIME_OPTIMIZER]);
            c->share[r][1] += (double) s.time_ns[SN_TIME_COLLECTIVE];
            c->share[r][2] += (double) s.time_ns[SN_TIME_PIPELINE];
            c->share_all[r] += (double) s.step_ns;
            c->memory[r] = pages[r]->memory_peak_bytes;
        }
    }
    sn_metrics_of_core(row, c->cards_per_core);
    return true;
}

/* Steps that fell out of the rings are skipped: go on with the oldest that all still have. */
static void skip_lost(sn_collector *c, sn_page *const *pages, int world)
{
    int64_t oldest = __atomic_load_n(&pages[0]->first_step, __ATOMIC_RELAXED);
    for (int r = 0; r < world; r++)
        oldest =
            SN_MAX(oldest, __atomic_load_n(&pages[r]->step, __ATOMIC_ACQUIRE) - SN_PAGE_RING + 1);
    c->next = SN_MAX(c->next, oldest);
}

void sn_collect(sn_collector *c, sn_page *const *pages, int world)
{
    sn_step_metrics row;
    skip_lost(c, pages, world);
    if (c->metrics && c->failed >= 0)
        c->failed = sn_metrics_catch_up(c->metrics, pages[0]);
    while (gather(c, pages, world, &row)) {
        if (c->metrics && c->failed >= 0) {
            c->failed = sn_metrics_add(c->metrics, &row);
            if (c->failed < 0)
                sn_log(SN_LOG_WARN, "%s; training goes on without metrics, ignoring", sn_errmsg());
        }
        sn_progress_step(c->progress, &row);
        c->steps++;
        c->tokens += row.tokens;
        c->time_ns += row.step_ns;
        c->comm_ns += row.comm_ns;
        c->exposed_ns += row.time_ns[SN_TIME_COLLECTIVE] + row.time_ns[SN_TIME_PIPELINE];
        c->flops += row.flops;
        c->last_loss = row.loss;
        if (!isnan(row.val_loss))
            c->last_val = row.val_loss;
        c->next++;
    }
}
