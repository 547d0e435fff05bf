/* SPDX-License-Identifier: Apache-2.0
 *
 * Saving and loading 64 MiB of state, beside writing and reading the same bytes bare: one file,
 * written and fsynced; the same file, read. The bare figure is peer and bound at once, since the
 * disk's own pace wanders. */
#include "bench.h"
#include "bench_peer.h"

#include "ckpt/ckpt.h"
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TENSORS = 16 };
#define EACH (INT64_C(1) << 20) /* floats */
#define BYTES ((size_t) TENSORS * EACH * 4)

typedef struct state {
    char dir[4096], bare[4200];
    char *data;
    sn_piece piece[TENSORS];
    int64_t step;
} state;

static double rate_since(sn_time t)
{
    return (double) BYTES / (double) SN_MAX(1, sn_now() - t);
}

static sn_status save(state *s, double *ret)
{
    sn_str part = {0};
    sn_time t = sn_now();
    s->step++;
    sn_status status = sn_ckpt_write_part(s->dir, s->step, 0, s->piece, TENSORS, &part);
    if (status >= 0) {
        const char *text = sn_str_get(&part);
        status = sn_ckpt_publish(s->dir, s->step, &text, 1, "{}", 1);
    }
    sn_str_done(&part);
    *ret = rate_since(t);
    return status;
}

static sn_status load(state *s, double *ret)
{
    sn_ckpt *c;
    sn_time t = sn_now();
    SN_TRY(sn_ckpt_find(s->dir, NULL, &c));
    sn_status status = sn_ckpt_load(c, s->piece, TENSORS);
    *ret = rate_since(t);
    sn_ckpt_close(c);
    return status;
}

static sn_status bare(state *s, bool write_it, double *ret)
{
    sn_time t = sn_now();
    int fd = open(s->bare, (write_it ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY) | O_CLOEXEC, 0600);
    sn_status status = SN_OK;
    if (fd >= 0 && write_it) {
        status = sn_write_all(fd, s->data, BYTES);
        if (status >= 0 && fsync(fd))
            status = sn_fail(SN_EIO, "%s: %s", s->bare, strerror(errno));
    }
    for (size_t at = 0; fd >= 0 && !write_it && at < BYTES;) {
        ssize_t n = read(fd, s->data + at, BYTES - at);
        if (n <= 0)
            break;
        at += (size_t) n;
    }
    *ret = rate_since(t);
    if (fd < 0)
        return sn_fail(SN_EIO, "%s: %s", s->bare, strerror(errno));
    close(fd);
    return status;
}

static sn_status measure(const bench_case *c, state *s, int pairs, bench_result *ret)
{
    double warm;
    bool saves = c->arg == 0;
    SN_TRY(save(s, &warm));
    SN_TRY(bare(s, true, &warm));
    for (int i = 0; i < pairs; i++) {
        SN_TRY(saves ? save(s, &ret->sample[i]) : load(s, &ret->sample[i]));
        ret->samples++;
        SN_TRY(bare(s, saves, &ret->peer_sample[i]));
        ret->peer_samples++;
    }
    ret->bound = bench_median(ret->peer_sample, pairs);
    return SN_OK;
}

static sn_status run_ckpt(const bench_case *c, const bench_opts *o, bench_result *ret)
{
    static const char *const name[TENSORS] = {"t.0",  "t.1",  "t.2",  "t.3", "t.4",  "t.5",
                                              "t.6",  "t.7",  "t.8",  "t.9", "t.10", "t.11",
                                              "t.12", "t.13", "t.14", "t.15"};
    state *s = sn_alloc(sizeof *s);
    if (posix_memalign((void **) &s->data, 4096, BYTES)) {
        free(s);
        return sn_fail(SN_ENOMEM, "no memory for %zu bytes of state", BYTES);
    }
    for (size_t i = 0; i < BYTES / 4; i++)
        ((uint32_t *) s->data)[i] = 0x3f000000u | (uint32_t) (i * 2654435761u >> 9);
    for (int i = 0; i < TENSORS; i++)
        s->piece[i] = (sn_piece){.name = name[i],
                                 .dtype = SN_F32,
                                 .shape = SN_SHAPE(EACH),
                                 .extent = {EACH},
                                 .flat_count = EACH,
                                 .data = s->data + (size_t) i * EACH * 4};
    sn_status status = bench_dir_create(s->dir, sizeof s->dir);
    if (status >= 0) {
        snprintf(s->bare, sizeof s->bare, "%s/bare", s->dir);
        status = measure(c, s, o->pairs, ret);
        bench_dir_remove(s->dir);
    }
    snprintf(ret->note, sizeof ret->note, "%d tensors, %zu MiB, one rank; %s", TENSORS, BYTES >> 20,
             c->arg ? "checksums verified; both sides read from the page cache"
                    : "written, checksummed, fsynced and published");
    free(s->data);
    free(s);
    return status;
}

const bench_case bench_ckpt[] = {{.area = "ckpt",
                                  .name = "ckpt_save_64MiB",
                                  .unit = "GB/s",
                                  .peer = "write and fsync",
                                  .bound_name = "write and fsync",
                                  .arg = 0,
                                  .run = run_ckpt},
                                 {.area = "ckpt",
                                  .name = "ckpt_load_64MiB",
                                  .unit = "GB/s",
                                  .peer = "read",
                                  .bound_name = "read",
                                  .arg = 1,
                                  .run = run_ckpt},
                                 {.area = "ckpt"}};
