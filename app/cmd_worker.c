/* SPDX-License-Identifier: Apache-2.0
 * One worker of a job: what the pool starts (hidden verb `worker`), and the same under mpirun or
 * srun. */
#include "cmd.h"

#include "os/os.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The resolved job and topology of a run directory. */
static sn_status load(const char *run_dir, sn_arena *arena, sn_job_spec *spec, sn_topo **ret_topo)
{
    char path[4096];
    char *text;
    size_t bytes;
    snprintf(path, sizeof path, "%s/job.yaml", run_dir);
    sn_job_defaults(spec, arena);
    SN_TRY(sn_job_read(spec, path));
    snprintf(path, sizeof path, "%s/topology.yaml", run_dir);
    SN_TRY(sn_file_read(path, 64 << 20, &text, &bytes));
    sn_status status = sn_topo_parse(text, bytes, path, ret_topo);
    free(text);
    return status;
}

/* The launcher checked it; what it cannot be read for costs only the better choice. */
static sn_calibration *load_calibration(const char *run_dir)
{
    sn_calibration *c = sn_alloc(sizeof *c);
    char path[4096], *text;
    size_t bytes;
    snprintf(path, sizeof path, "%s/calibration.json", run_dir);
    sn_status status = SN_ENOTFOUND;
    if (!access(path, R_OK))
        status = sn_file_read(path, 1 << 20, &text, &bytes);
    if (status >= 0) {
        status = sn_calibration_parse(text, bytes, path, c);
        free(text);
        if (status < 0)
            sn_log(SN_LOG_WARN, "%s is not used: %s", path, sn_errmsg());
    }
    if (status >= 0)
        return c;
    free(c);
    return NULL;
}

static sn_status work(const sn_args *args, sn_arena *arena, int rank, int world, int agent_fd,
                      sn_page *page)
{
    sn_job_spec spec;
    sn_topo *topo = NULL;
    sn_boot *boot = NULL;
    const char *run = sn_args_get(args, "run");
    int64_t core = -1;
    if (!sn_args_int(args, "core", -1, 4096, &core))
        return sn_fail(SN_EINVAL, "worker: bad --core");
    sn_status status = load(run, arena, &spec, &topo);
    sn_calibration *calibration = load_calibration(run);
    if (status >= 0)
        status = sn_boot_socket(agent_fd, rank, world, &boot);
    if (status >= 0) {
        sn_net_opts net = {.host_name = sn_args_get(args, "host"),
                           .page = page,
                           .bind_address = sn_args_get(args, "bind-address"),
                           .detect_ns = (sn_time) (spec.job.detect_s * SN_SEC),
                           .deadline = sn_now() + 30 * SN_SEC};
        sn_train_opts opts = {.job = &spec.job,
                              .topo = topo,
                              .model = calibration ? &calibration->model : NULL,
                              .run_dir = run,
                              .core = rank < topo->cards ? topo->card[rank].core : -1,
                              .resume = sn_args_get(args, "resume") != NULL};
        sn_train_result result;
        status = sn_train_worker(boot, &net, &opts, &result);
    }
    sn_boot_free(boot);
    sn_topo_free(topo);
    free(calibration);
    return status;
}

int sn_cmd_worker(const sn_args *args)
{
    int64_t rank = -1, world = 0, agent_fd = -1, page_fd = -1;
    sn_page *page = NULL;
    if (!sn_args_int(args, "rank", 0, 65535, &rank) ||
        !sn_args_int(args, "world", 1, 65536, &world) ||
        !sn_args_int(args, "agent-fd", 0, 1 << 20, &agent_fd) ||
        !sn_args_int(args, "page-fd", 0, 1 << 20, &page_fd))
        return SN_EXIT_USAGE;
    const char *host = sn_args_get(args, "host");
    if (rank < 0 || !world || agent_fd < 0 || page_fd < 0 || !host || !sn_args_get(args, "run")) {
        fprintf(stderr, "supernode worker: is started by supernode train, not by hand\n");
        return SN_EXIT_USAGE;
    }
    char prefix[64];
    snprintf(prefix, sizeof prefix, "rank %d %.32s", (int) rank, host);
    sn_log_init(SN_LOG_INFO, prefix);
    if (sn_page_map((int) page_fd, &page) < 0)
        return sn_exit_with("worker", SN_EIO);
    sn_arena *arena = sn_arena_create();
    sn_status status = work(args, arena, (int) rank, (int) world, (int) agent_fd, page);
    if (status < 0) {
        sn_page_fail(page, status, sn_errmsg());
        sn_log(SN_LOG_ERROR, "%s", sn_errmsg());
    }
    sn_page_unmap(page);
    sn_arena_free(arena);
    return status < 0 ? sn_exit_code(status) : SN_EXIT_OK;
}
