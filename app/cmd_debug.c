/* SPDX-License-Identifier: Apache-2.0
 * `supernode debug`: the flight recorders of a run, in words. */
#include "cmd.h"
#include "debug.h"

#include <stdlib.h>
#include <string.h>

#define KEEP 256 /* operations a rank that a verdict looks at */

const char *sn_debug_state(const sn_recorded *op)
{
    static const char *const name[] = {"", "queued", "started", "done", "failed"};
    return name[op->state];
}

/* "all_reduce #12 of group g, 64.0 KiB F32" */
static void op_text(const sn_recording *rec, const sn_recorded *op, sn_str *out)
{
    char bytes[32];
    sn_recorded_text(rec, op, out);
    if (op->bytes > 0)
        sn_str_printf(out, ", %s", sn_fmt_bytes(bytes, (double) op->bytes));
    if (op->bytes > 0 && op->group != SN_RECORDER_PAIR && op->dtype < SN_DTYPE_COUNT)
        sn_str_printf(out, " %s", sn_dtype_name((sn_dtype) op->dtype));
}

/* ---- a paragraph for each rank ---- */

static void head_text(const sn_recordings *all, const sn_recording *rec, sn_str *out)
{
    char time[32];
    sn_str_printf(out, "rank %d", rec->rank);
    if (rec->host[0] != '\0')
        sn_str_printf(out, " (%s)", rec->host);
    sn_str_printf(out, "  %s", sn_alive_name(rec->alive));
    if (rec->pid)
        sn_str_printf(out, ", pid %d", rec->pid);
    if (rec->step >= 0)
        sn_str_printf(out, ", step %lld", (long long) rec->step);
    if (rec->doing[0] != '\0' && rec->alive != SN_ALIVE_LEFT)
        sn_str_printf(out, ", %s for %s", rec->doing,
                      sn_fmt_ns(time, (double) (all->now - rec->doing_since)));
    sn_str_add(out, "\n");
}

static void under_way_text(const sn_recordings *all, const sn_recording *rec, sn_str *out)
{
    char time[32];
    for (int64_t i = 0; i < rec->ops; i++) {
        const sn_recorded *op = &rec->op[i];
        if (op->state >= SN_RECORD_DONE)
            continue;
        sn_str_add(out, op == rec->wait ? "    waits in  " : "    under way ");
        op_text(rec, op, out);
        if (op == rec->wait && rec->wait_for >= 0)
            sn_str_printf(out, ", for rank %d", rec->wait_for);
        sn_str_printf(
            out, ", %s %s ago\n", sn_debug_state(op),
            sn_fmt_ns(time, (double) (all->now - (op->started ? op->started : op->posted))));
    }
}

static void rank_text(const sn_recordings *all, int rank, sn_str *out)
{
    char time[32];
    const sn_recording *rec = all->rank[rank];
    const sn_recorded *done = NULL;
    if (rec == NULL) {
        sn_str_printf(out, "rank %d  no recording\n", rank);
        return;
    }
    for (int64_t i = 0; i < rec->ops; i++)
        if (rec->op[i].state >= SN_RECORD_DONE && (done == NULL || rec->op[i].ended >= done->ended))
            done = &rec->op[i];
    head_text(all, rec, out);
    if (done != NULL) {
        sn_str_add(out, "    finished  ");
        op_text(rec, done, out);
        if (done->state == SN_RECORD_FAILED)
            sn_str_printf(out, ", %s", sn_status_name(done->status));
        sn_str_printf(out, ", %s ago\n", sn_fmt_ns(time, (double) (all->now - done->ended)));
    }
    under_way_text(all, rec, out);
    if (rec->alive == SN_ALIVE_LEFT && rec->left_why[0] != '\0')
        sn_str_printf(out, "    left with %s\n", rec->left_why);
}

/* ---- the last operations, merged by time ---- */

typedef struct line {
    const sn_recording *rec;
    const sn_recorded *op;
} line;

static int by_time(const void *a, const void *b)
{
    const line *x = a, *y = b;
    if (x->op->posted != y->op->posted)
        return x->op->posted < y->op->posted ? -1 : 1;
    return x->rec->rank - y->rec->rank;
}

static void line_text(const sn_recordings *all, const line *l, sn_str *out)
{
    char queued[32], took[32];
    const sn_recorded *op = l->op;
    sn_time begin = op->started ? op->started : op->posted;
    sn_str_printf(out, "%14.6f s  rank %-4d ", (double) (op->posted - all->now) / 1e9,
                  l->rec->rank);
    op_text(l->rec, op, out);
    if (op->step >= 0)
        sn_str_printf(out, ", step %lld", (long long) op->step);
    if (begin > op->posted)
        sn_str_printf(out, ", queued %s", sn_fmt_ns(queued, (double) (begin - op->posted)));
    if (op->ended == begin) /* a short one, in its first turn */
        sn_str_add(out, ", at once");
    else if (op->ended)
        sn_str_printf(out, ", took %s", sn_fmt_ns(took, (double) (op->ended - begin)));
    if (op->state != SN_RECORD_DONE)
        sn_str_printf(out, ", %s", sn_debug_state(op));
    if (op->state == SN_RECORD_FAILED)
        sn_str_printf(out, " (%s)", sn_status_name(op->status));
    sn_str_add(out, "\n");
}

static void last_text(const sn_recordings *all, int64_t last, sn_str *out)
{
    int64_t n = 0, most = 1;
    for (int r = 0; r < all->world; r++)
        most += all->rank[r] ? SN_MIN(last, all->rank[r]->ops) : 0;
    line *l = sn_alloc((size_t) most * sizeof(*l));
    for (int r = 0; r < all->world; r++) {
        const sn_recording *rec = all->rank[r];
        for (int64_t i = rec ? SN_MAX(0, rec->ops - last) : 0; rec && i < rec->ops; i++)
            l[n++] = (line){rec, &rec->op[i]};
    }
    qsort(l, (size_t) n, sizeof(*l), by_time);
    for (int64_t i = 0; i < n; i++)
        line_text(all, &l[i], out);
    free(l);
}

/* ---- the verb ---- */

static void indent(const char *text, sn_str *out)
{
    for (const char *end; *text != '\0'; text = end) {
        end = strchr(text, '\n') ? strchr(text, '\n') + 1 : text + strlen(text);
        sn_str_add(out, "    ");
        sn_str_add_n(out, text, (size_t) (end - text));
    }
}

static void print_all(const char *dir, const sn_recordings *all, const sn_blame *blame,
                      int64_t last)
{
    sn_str out = {0};
    sn_str_printf(&out, "%s: %d rank%s, %s\n\n", dir, all->world, all->world == 1 ? "" : "s",
                  all->live ? "alive" : "all ended; times are before the last sign of life");
    for (int r = 0; r < all->world; r++)
        rank_text(all, r, &out);
    if (last > 0) {
        sn_str_add(&out, "\nlast operations\n");
        last_text(all, last, &out);
    }
    sn_str_add(&out, "\nverdict\n");
    indent(sn_str_get(&blame->verdict), &out);
    if (all->notes.len > 0) {
        sn_str_add(&out, "\nnotes\n");
        indent(sn_str_get(&all->notes), &out);
    }
    fwrite(sn_str_get(&out), 1, out.len, stdout);
    sn_str_done(&out);
}

static sn_status trace(const sn_recordings *all, const char *path)
{
    int64_t ops;
    SN_TRY(sn_debug_trace(all, path, &ops));
    fprintf(stderr, "%s: %lld operations; open it at ui.perfetto.dev\n", path, (long long) ops);
    return SN_OK;
}

int sn_cmd_debug(const sn_args *args)
{
    int64_t last = 0;
    const char *dir = args->words > 0 ? args->word[0] : "runs/latest";
    const char *file = sn_args_get(args, "trace");
    if (!sn_args_int(args, "last", 1, SN_RECORDER_RECORDS, &last))
        return SN_EXIT_USAGE;
    sn_arena *arena = sn_arena_create();
    sn_recordings all;
    sn_status status =
        sn_recordings_read(dir, sn_args_get(args, "previous") != NULL,
                           file != NULL ? SN_RECORDER_RECORDS : SN_MAX(last, KEEP), arena, &all);
    if (status >= 0) {
        sn_blame blame;
        sn_blame_make(&all, arena, &blame);
        if (sn_args_get(args, "json") != NULL)
            sn_debug_json(dir, &all, &blame, last > 0 ? last : 1);
        else
            print_all(dir, &all, &blame, last);
        if (file != NULL)
            status = trace(&all, file);
        sn_blame_done(&blame);
        sn_recordings_done(&all);
    }
    sn_arena_free(arena);
    return status < 0 ? sn_exit_with("debug", status) : SN_EXIT_OK;
}
