/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics.jsonl: a line is one write() at the end of the file, so that a reader sees whole lines
 * but for the last. A line that did not fit on the disk is taken back. */
#include "mon/mon.h"
#include "mon/number.h"
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MAX = 1 << 30 };

struct sn_metrics {
    int fd;
    off_t end;    /* of the last whole line */
    int64_t last; /* step of the last row, 0 none */
    char *path;
    sn_str line;
};

static const char *const kind_name[SN_TIME_KINDS] = {"compute", "collective", "pipeline",
                                                     "optimizer", "other"};

/* Bytes up to and including the last newline: what was killed half way through a line is cut. */
static off_t whole_lines(int fd, off_t bytes)
{
    char block[4096];
    while (bytes > 0) {
        off_t from = bytes > (off_t) sizeof block ? bytes - (off_t) sizeof block : 0;
        ssize_t n = pread(fd, block, (size_t) (bytes - from), from);
        if (n <= 0)
            return bytes;
        const char *newline = memrchr(block, '\n', (size_t) n);
        if (newline)
            return from + (newline - block) + 1;
        bytes = from;
    }
    return 0;
}

static bool row_parse(const char *line, size_t n, sn_step_metrics *row);

/* The step of the last of the file's whole lines, which end at `end`. */
static int64_t last_step(int fd, off_t end)
{
    char block[4096];
    off_t from = SN_MAX(0, end - (off_t) sizeof block);
    ssize_t n = pread(fd, block, (size_t) (end - from), from);
    sn_step_metrics row;
    if (n <= 1)
        return 0;
    const char *before = memrchr(block, '\n', (size_t) n - 1);
    const char *line = before ? before + 1 : block;
    return row_parse(line, (size_t) (block + n - line), &row) ? row.step : 0;
}

sn_status sn_metrics_open(const char *path, bool append, sn_metrics **ret)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | (append ? 0 : O_TRUNC), 0644);
    if (fd < 0)
        return sn_file_failed("write", path);
    struct stat st;
    off_t end = 0;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        close(fd);
        return sn_fail(SN_EINVAL, "%s is not a regular file", path);
    }
    if (append)
        end = whole_lines(fd, st.st_size);
    if (ftruncate(fd, end)) {
        sn_status status = sn_file_failed("cut the torn last line of", path);
        close(fd);
        return status;
    }
    sn_metrics *m = sn_alloc(sizeof *m);
    *m = (sn_metrics){.fd = fd, .end = end, .last = last_step(fd, end), .path = sn_strdup(path)};
    *ret = m;
    return SN_OK;
}

static void field(sn_str *out, const char *name, double v)
{
    sn_str_printf(out, ",\"%s\":", name);
    mon_json_number(out, v);
}

static void row_text(sn_str *out, const sn_step_metrics *row)
{
    sn_str_printf(out, "{\"step\":%lld,\"tokens\":%lld", (long long) row->step,
                  (long long) row->tokens);
    field(out, "loss", row->loss);
    if (!isnan(row->val_loss))
        field(out, "val_loss", row->val_loss);
    field(out, "grad_norm", row->grad_norm);
    field(out, "lr", row->lr);
    sn_str_printf(out, ",\"step_ns\":%lld,\"time_ns\":{", (long long) row->step_ns);
    for (int k = 0; k < SN_TIME_KINDS; k++)
        sn_str_printf(out, "%s\"%s\":%lld", k ? "," : "", kind_name[k],
                      (long long) row->time_ns[k]);
    sn_str_printf(out, "},\"comm_ns\":%lld", (long long) row->comm_ns);
    field(out, "flops", row->flops);
    field(out, "peak_flops", row->peak_flops);
    sn_str_printf(out, ",\"bytes_host\":%lld,\"bytes_net\":%lld}\n",
                  (long long) SN_MIN(row->bytes_host, (uint64_t) INT64_MAX),
                  (long long) SN_MIN(row->bytes_net, (uint64_t) INT64_MAX));
}

sn_status sn_metrics_add(sn_metrics *m, const sn_step_metrics *row)
{
    sn_str_clear(&m->line);
    row_text(&m->line, row);
    sn_status status = SN_OK;
    if (lseek(m->fd, m->end, SEEK_SET) < 0)
        status = sn_file_failed("write", m->path);
    else if ((status = sn_write_all(m->fd, m->line.data, m->line.len)) < 0)
        sn_fail_in(status, "%s", m->path);
    if (status >= 0) {
        m->end += (off_t) m->line.len;
        m->last = row->step;
    } else if (ftruncate(m->fd, m->end))
        return sn_fail_in(status, "a torn line stays");
    return status;
}

sn_status sn_metrics_catch_up(sn_metrics *m, const sn_page *page)
{
    int64_t first = __atomic_load_n(&page->first_step, __ATOMIC_ACQUIRE);
    for (int64_t step = SN_MAX(m->last, first - SN_PAGE_RING); step < first; step++) {
        sn_page_step s;
        if (!sn_page_step_read(page, step, &s))
            continue;
        sn_step_metrics row = {.step = step + 1,
                               .tokens = s.tokens,
                               .loss = s.loss,
                               .grad_norm = s.grad_norm,
                               .lr = s.lr,
                               .val_loss = s.val_loss,
                               .step_ns = s.step_ns,
                               .flops = s.flops,
                               .peak_flops = NAN};
        SN_TRY(sn_metrics_add(m, &row));
    }
    return SN_OK;
}

void sn_metrics_close(sn_metrics *m)
{
    if (!m)
        return;
    close(m->fd);
    free(m->path);
    sn_str_done(&m->line);
    free(m);
}

static double real_of(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

static int64_t int_of(const json_t *object, const char *key)
{
    double v = real_of(object, key);
    const json_t *exact = json_object_get(object, key);
    if (json_is_integer(exact))
        return json_integer_value(exact);
    return fabs(v) < 9e18 ? (int64_t) v : 0; /* false for NaN */
}

static bool row_parse(const char *line, size_t n, sn_step_metrics *row)
{
    json_error_t error;
    json_t *o = json_loadb(line, n, 0, &error);
    bool good = json_is_object(o) && json_is_integer(json_object_get(o, "step"));
    if (good) {
        const json_t *times = json_object_get(o, "time_ns");
        *row = (sn_step_metrics){
            .step = int_of(o, "step"),
            .tokens = int_of(o, "tokens"),
            .loss = real_of(o, "loss"),
            .val_loss = real_of(o, "val_loss"),
            .grad_norm = real_of(o, "grad_norm"),
            .lr = real_of(o, "lr"),
            .step_ns = int_of(o, "step_ns"),
            .comm_ns = int_of(o, "comm_ns"),
            .flops = real_of(o, "flops"),
            .peak_flops = real_of(o, "peak_flops"),
            .bytes_host = (uint64_t) int_of(o, "bytes_host"),
            .bytes_net = (uint64_t) int_of(o, "bytes_net"),
        };
        for (int k = 0; k < SN_TIME_KINDS; k++)
            row->time_ns[k] = int_of(times, kind_name[k]);
    }
    json_decref(o);
    return good;
}

typedef struct rows {
    sn_arena *arena;
    sn_step_metrics *row;
    size_t count, cap;
} rows;

/* A step seen before means that a run went back to its checkpoint: what followed is void. */
static void rows_add(rows *r, const sn_step_metrics *row)
{
    while (r->count && r->row[r->count - 1].step >= row->step)
        r->count--;
    r->row = sn_arena_grow(r->arena, r->row, r->count, r->count + 1, sizeof *row, &r->cap);
    r->row[r->count++] = *row;
}

sn_status sn_metrics_read(const char *path, sn_arena *arena, sn_step_metrics **ret_rows,
                          int64_t *ret_count)
{
    char *data;
    size_t bytes;
    SN_TRY(sn_file_read(path, FILE_MAX, &data, &bytes));
    rows r = {.arena = arena};
    const char *end = data + bytes;
    int number = 0;
    for (const char *line = data, *next; line < end; line = next) {
        const char *newline = memchr(line, '\n', (size_t) (end - line));
        if (!newline)
            break; /* torn: its writer was killed */
        next = newline + 1;
        number++;
        sn_step_metrics row;
        if (newline == line)
            continue;
        if (!row_parse(line, (size_t) (newline - line), &row)) {
            free(data);
            return sn_fail(SN_ECORRUPT, "%s:%d is not a line of metrics", path, number);
        }
        rows_add(&r, &row);
    }
    free(data);
    *ret_rows = r.row;
    *ret_count = (int64_t) r.count;
    return SN_OK;
}
