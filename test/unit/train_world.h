/* SPDX-License-Identifier: Apache-2.0
 * Whole training jobs of many workers inside one test: a text, a tiny model, pages and results in
 * memory that parent and workers share. */
#ifndef TRAIN_WORLD_H
#define TRAIN_WORLD_H

#include "unit/sn_ranks.h"
#include "unit/sn_test.h"

#include <dirent.h>
#include <math.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "train/parts.h"

#define STEPS 20
#define RANKS_MAX 8

typedef struct world world;
typedef void (*world_on_step)(world *w, const sn_step_metrics *row);

struct world { /* shared with the workers */
    sn_job job;
    sn_topo *topo;
    bool resume, one_host;
    int topo_hosts; /* what the topology says; 0: as it is */
    const char *run_dir;
    world_on_step on_step; /* on rank 0 */
    int64_t trigger;       /* for on_step */
    int victim;
    sn_job odd; /* what the rank `odd_rank` was given instead */
    int odd_rank;

    sn_page *page[RANKS_MAX];
    pid_t pid[RANKS_MAX];
    double loss[64]; /* by step */
    int64_t rows;
    sn_train_result result[RANKS_MAX];
    sn_status status[RANKS_MAX];
    char error[RANKS_MAX][512];
};

static char world_dir[48], world_text[64];

static inline world *world_create(void)
{
    world *w = mmap(NULL, sizeof(*w), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(w, MAP_FAILED);
    w->odd_rank = -1;
    w->job = (sn_job){.model = "custom",
                      .gpt = {2, 32, 4, 16, 256, 0},
                      .tensor = 1,
                      .pipeline = 1,
                      .data_parallel = 1,
                      .accumulation = 1,
                      .batch = 8,
                      .steps = STEPS,
                      .data = world_text,
                      .held_out = 0.05,
                      .optimizer = {"adamw", 3e-3, 3e-4, 0.9, 0.95, 1e-8, 0.1, 1.0, 4},
                      .checkpoint = {.dir = world_dir},
                      .card_kind = "cpu",
                      .seed = 11,
                      .deadline_s = 20};
    return w;
}

static inline void world_free(world *w)
{
    munmap(w, sizeof(*w));
}

static inline void world_split(world *w, int t, int p, int d)
{
    w->job.tensor = t;
    w->job.pipeline = p;
    w->job.data_parallel = d;
}

static inline sn_topo *world_topo(int cards, int hosts)
{
    sn_topo *topo = sn_topo_create("test");
    int sw = sn_topo_add_switch(topo, "s0");
    for (int h = 0; h < hosts; h++) {
        char name[16];
        snprintf(name, sizeof name, "h%d", h);
        int host = sn_topo_add_host(topo, name, 2, UINT64_C(4) << 30);
        for (int c = 0; c < cards / hosts; c++) {
            char card_name[32];
            snprintf(card_name, sizeof card_name, "h%d/c%d", h, c);
            sn_topo_card card = {.name = card_name,
                                 .kind = "cpu",
                                 .core = c % 2,
                                 .numa_node = 0,
                                 .share = 0.25,
                                 .flops_f32 = 1e11,
                                 .flops_bf16 = 1e11,
                                 .memory_bytes = UINT64_C(1) << 30,
                                 .memory_bytes_per_s = 1e10};
            int i = sn_topo_add_card(topo, host, &card);
            sn_topo_add_link(topo, topo->host[host].vertex, topo->card[i].vertex, 200, 8e9, "shm",
                             false);
        }
        int nic = sn_topo_add_nic(topo, host, "eth0", 1e9);
        sn_topo_add_link(topo, topo->host[host].vertex, topo->nic[nic].vertex, 100, 1e10, "pcie",
                         false);
        sn_topo_add_link(topo, topo->nic[nic].vertex, topo->sw[sw].vertex, 10000, 1e9, "tcp",
                         false);
    }
    return topo;
}

static inline void world_step(void *ctx, const sn_step_metrics *row)
{
    world *w = ctx;
    w->loss[row->step - 1] = row->loss;
    w->rows++;
    if (w->on_step)
        w->on_step(w, row);
}

static inline int world_rank(sn_boot *boot, int rank, int host, void *ctx)
{
    world *w = ctx;
    char name[16];
    snprintf(name, sizeof name, "h%d", host);
    w->pid[rank] = getpid();
    sn_net_opts net = {
        .host_name = name, .page = w->page[rank], .deadline = sn_now() + 20 * SN_SEC};
    sn_train_opts opts = {.job = rank == w->odd_rank ? &w->odd : &w->job,
                          .topo = w->topo,
                          .run_dir = w->run_dir,
                          .core = -1,
                          .resume = w->resume,
                          .rank0_metrics = true,
                          .on_step = world_step,
                          .ctx = w};
    w->status[rank] = sn_train_worker(boot, &net, &opts, &w->result[rank]);
    if (w->status[rank] < 0)
        snprintf(w->error[rank], sizeof(w->error[rank]), "%s", sn_errmsg());
    return 0;
}

static inline int world_size(const world *w)
{
    return w->job.tensor * w->job.pipeline * w->job.data_parallel;
}

/* Run the job to its end, whatever that is; fn NULL: a worker's usual life. */
static inline void world_run_fn(world *w, sn_rank_fn fn)
{
    int cards = world_size(w), host[RANKS_MAX];
    for (int r = 0; r < cards; r++) {
        int fd;
        host[r] = !w->one_host && cards > 1 && r >= cards / 2;
        assert_ok(sn_page_create(r, host[r], host[r] ? "h1" : "h0", &fd, &w->page[r]));
        close(fd);
        w->status[r] = SN_EFAIL;
        w->error[r][0] = 0;
    }
    w->rows = 0;
    for (int s = 0; s < 64; s++)
        w->loss[s] = NAN;
    int hosts = w->one_host || cards == 1 ? 1 : 2;
    w->topo = world_topo(cards, w->topo_hosts ? w->topo_hosts : hosts);
    int failing = sn_ranks_run(cards, host, fn ? fn : world_rank, w, sn_now() + 40 * SN_SEC);
    sn_topo_free(w->topo);
    for (int r = 0; r < cards; r++)
        sn_page_unmap(w->page[r]);
    assert_int_equal(failing, 0);
}

static inline void world_run(world *w)
{
    world_run_fn(w, NULL);
    int failed = 0;
    for (int r = 0; r < world_size(w); r++) {
        failed += w->status[r] < 0;
        if (w->status[r] < 0)
            fprintf(stderr, "rank %d: %s: %s\n", r, sn_status_name(w->status[r]), w->error[r]);
    }
    if (failed)
        fail_msg("t%d p%d d%d: %d ranks failed", w->job.tensor, w->job.pipeline,
                 w->job.data_parallel, failed);
}

/* ---- files ---- */

static inline void world_clear(const char *path)
{
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) {
        sn_str full = {0};
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        sn_str_printf(&full, "%s/%s", path, e->d_name);
        if (e->d_type == DT_DIR)
            world_clear(sn_str_get(&full));
        else
            unlink(sn_str_get(&full));
        sn_str_done(&full);
    }
    if (d)
        closedir(d);
    rmdir(path);
}

/* A worker that only loads, and writes what it loaded to another directory. */
static char world_copy_dir[64];

static inline int world_copy(sn_boot *boot, int rank, int host, void *ctx)
{
    world *w = ctx;
    char name[16];
    snprintf(name, sizeof name, "h%d", host);
    sn_net_opts net = {.host_name = name, .deadline = sn_now() + 20 * SN_SEC};
    sn_train_opts opts = {.job = &w->job, .topo = w->topo, .core = -1, .resume = true};
    train_worker *worker = sn_alloc(sizeof(*worker));
    RANK_OK(train_worker_open(worker, boot, &net, &opts));
    worker->ckpt_dir = world_copy_dir;
    RANK_OK(train_save(worker));
    train_worker_close(worker);
    free(worker);
    w->status[rank] = SN_OK;
    return 0;
}

static inline void world_text_write(void)
{
    static const char *const word[] = {"the ",   "and ",  "of ",   "light ", "was ",   "earth ",
                                       "water ", "said ", "upon ", "face, ", "deep; ", "let\n"};
    snprintf(world_dir, sizeof world_dir, "/tmp/sn_train_XXXXXX");
    assert_non_null(mkdtemp(world_dir));
    snprintf(world_text, sizeof world_text, "%s.txt", world_dir);
    FILE *f = fopen(world_text, "w");
    assert_non_null(f);
    sn_prng p = {.seed = 5};
    for (int i = 0; i < 4000; i++)
        fputs(word[sn_prng_below(&p, SN_COUNT(word))], f);
    assert_int_equal(fclose(f), 0);
}

static inline int world_setup(void **state)
{
    world_text_write();
    return 0;
}

static inline int world_teardown(void **state)
{
    world_clear(world_dir);
    unlink(world_text);
    return 0;
}

#endif
