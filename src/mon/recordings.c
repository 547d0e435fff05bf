/* SPDX-License-Identifier: Apache-2.0
 *
 * All recordings of a run: reads the files while they are being written, finds out who lives, takes
 * those of the newest attempt and puts their times on one clock.
 *
 * Files are read, not mapped: somebody who shortens one cannot kill the reader. Three images one
 * after the other are the sequence lock: a record whose number stands in the first and the third
 * was whole in the second. */
#include "mon/mon.h"
#include "mon/recorder_file.h"
#include "mon/system.h"
#include "os/os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRIES 4 /* while the writer is saying what it does */
#define FILES_MOST 65536
#define SHIFT_MOST INT64_C(2000000000000000000) /* ns; what is beyond is no clock */

/* ---- one file ---- */

static sn_status read_image(int fd, unsigned char *to, size_t bytes)
{
    size_t have = 0;
    while (have < bytes) {
        ssize_t n = pread(fd, to + have, bytes - have, (off_t) have);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return sn_fail(SN_EIO, "%s", n < 0 ? strerror(errno) : "it became shorter");
        have += (size_t) n;
    }
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return SN_OK;
}

static uint32_t say_seq(const unsigned char *image)
{
    uint32_t seq;
    memcpy(&seq, image + offsetof(file_all, say), sizeof(seq));
    return seq;
}

/* Three images; again while the writer is between two of them in the middle of a sentence. */
static sn_status read_images(int fd, size_t bytes, unsigned char *image[3])
{
    bool whole = false;
    for (int n = 0; n < TRIES && !whole; n++) {
        for (int i = 0; i < 3; i++)
            SN_TRY(read_image(fd, image[i], bytes));
        if (bytes < offsetof(file_all, word))
            return SN_OK;
        uint32_t seq = say_seq(image[0]);
        whole = seq == say_seq(image[2]) && !(seq & 1);
    }
    return SN_OK; /* a writer that died in the middle leaves what it had */
}

static void find_alive(int fd, const file_head *head, sn_recording *rec)
{
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    if (rec->alive == SN_ALIVE_LEFT || !head->locked || fcntl(fd, F_GETLK, &lock))
        return;
    if (lock.l_type == F_UNLCK) {
        rec->alive = SN_ALIVE_DEAD;
        return;
    }
    rec->alive = SN_ALIVE_RUNNING;
    rec->pid = lock.l_pid > 0 ? lock.l_pid : 0;
    char state = rec->pid ? mon_process_state(rec->pid) : '\0';
    if (state == 'T' || state == 't')
        rec->alive = SN_ALIVE_STOPPED;
}

static sn_status read_open(int fd, int64_t keep, sn_arena *arena, sn_recording *ret)
{
    struct stat st;
    if (fstat(fd, &st))
        return sn_fail(SN_EIO, "%s", strerror(errno));
    if (!S_ISREG(st.st_mode))
        return sn_fail(SN_EINVAL, "not a file");
    size_t bytes = (size_t) SN_MIN(st.st_size, (off_t) sizeof(file_all));
    unsigned char *memory = malloc(3 * bytes + 1);
    if (memory == NULL)
        return sn_fail(SN_ENOMEM, "no memory for %zu bytes", 3 * bytes);
    unsigned char *image[3] = {memory, memory + bytes, memory + 2 * bytes};
    sn_status status = read_images(fd, bytes, image);
    if (status >= 0)
        status = sn_recording_parse(image[0], image[1], image[2], bytes, keep, arena, ret);
    if (status >= 0) {
        file_head head;
        memcpy(&head, image[1], sizeof(head));
        find_alive(fd, &head, ret);
    }
    free(memory);
    return status;
}

static sn_status read_file(const char *path, int64_t keep, sn_arena *arena, sn_recording *ret)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return sn_fail(SN_EIO, "cannot open %s: %s", path, strerror(errno));
    sn_status status = read_open(fd, keep, arena, ret);
    close(fd);
    return status < 0 ? sn_fail_in(status, "%s", path) : SN_OK;
}

/* ---- all files ---- */

/* "recorder-12.bin": 12; -1 another name. */
static int rank_of_name(const char *name, bool previous)
{
    int rank, end = 0;
    const char *form = previous ? "recorder-%5d.previous.bin%n" : "recorder-%5d.bin%n";
    if (sscanf(name, form, &rank, &end) != 1 || end == 0 || name[end] != '\0')
        return -1;
    return rank >= 0 && rank < FILES_MOST ? rank : -1;
}

static void read_dir(DIR *dir, const char *run_dir, bool previous, int64_t keep, sn_arena *arena,
                     sn_recording **found, sn_str *notes)
{
    for (const struct dirent *d; (d = readdir(dir)) != NULL;) {
        int rank = rank_of_name(d->d_name, previous);
        if (rank < 0)
            continue;
        sn_str path = {0};
        sn_str_printf(&path, "%s/%s", run_dir, d->d_name);
        sn_recording *rec = SN_NEW(arena, sn_recording);
        sn_status status = read_file(sn_str_get(&path), keep, arena, rec);
        if (status >= 0 && rec->rank != rank)
            status = sn_fail(SN_ECORRUPT, "%s is of rank %d", sn_str_get(&path), rec->rank);
        if (status >= 0)
            found[rank] = rec;
        else
            sn_str_printf(notes, "%s\n", sn_errmsg());
        sn_str_done(&path);
    }
}

static const sn_recording *newest(sn_recording *const *found)
{
    const sn_recording *best = NULL;
    for (int r = 0; r < FILES_MOST; r++)
        if (found[r] != NULL &&
            (best == NULL || found[r]->created + found[r]->to_wall > best->created + best->to_wall))
            best = found[r];
    return best;
}

/* The files of the newest attempt, by rank. */
static void choose(sn_recording *const *found, const sn_recording *best, sn_arena *arena,
                   sn_recordings *ret)
{
    ret->world = best->world;
    ret->rank = SN_NEW_N(arena, sn_recording *, best->world);
    for (int r = 0; r < FILES_MOST; r++) {
        if (found[r] == NULL)
            continue;
        if (r < best->world && found[r]->world == best->world && found[r]->attempt == best->attempt)
            ret->rank[r] = found[r];
        else if (r < best->world)
            sn_str_printf(&ret->notes, "rank %d: its recording is of another attempt\n", r);
    }
}

/* ---- one clock ---- */

static void shift(sn_recording *rec, sn_time by)
{
    sn_time *own[] = {&rec->created, &rec->last, &rec->doing_since, &rec->wait_since};
    for (size_t i = 0; i < SN_COUNT(own); i++)
        *own[i] += *own[i] ? by : 0;
    for (int64_t i = 0; i < rec->ops; i++) {
        sn_recorded *op = &rec->op[i];
        op->posted += op->posted ? by : 0;
        op->started += op->started ? by : 0;
        op->ended += op->ended ? by : 0;
    }
    rec->to_wall -= by;
}

/* Machines that were started apart have monotonic clocks apart: their wall clocks relate them. */
static void one_clock(sn_recordings *all)
{
    uint64_t boot = mon_boot();
    const sn_recording *base = NULL;
    for (int r = 0; r < all->world; r++) {
        const sn_recording *rec = all->rank[r];
        if (rec != NULL && (base == NULL || (rec->boot == boot && base->boot != boot)))
            base = rec;
    }
    for (int r = 0; base != NULL && r < all->world; r++) {
        sn_recording *rec = all->rank[r];
        if (rec == NULL)
            continue;
        if (rec->boot != base->boot)
            shift(rec, SN_MAX(-SHIFT_MOST, SN_MIN(SHIFT_MOST, rec->to_wall - base->to_wall)));
        all->live = all->live || rec->alive == SN_ALIVE_RUNNING || rec->alive == SN_ALIVE_STOPPED;
        all->now = SN_MAX(all->now, rec->last);
    }
    if (base != NULL && all->live)
        all->now = base->boot == boot ? sn_now() : sn_now_wall() - base->to_wall;
}

sn_status sn_recordings_read(const char *run_dir, bool previous, int64_t keep, sn_arena *arena,
                             sn_recordings *ret)
{
    DIR *dir = opendir(run_dir);
    if (dir == NULL)
        return sn_fail(SN_ENOTFOUND, "cannot open the run's directory %s: %s", run_dir,
                       strerror(errno));
    sn_recordings all = {0};
    sn_recording **found = sn_alloc(FILES_MOST * sizeof(sn_recording *));
    read_dir(dir, run_dir, previous, keep, arena, found, &all.notes);
    closedir(dir);
    const sn_recording *best = newest(found);
    if (best != NULL) {
        choose(found, best, arena, &all);
        one_clock(&all);
    }
    free(found);
    if (best == NULL) {
        sn_status status =
            sn_fail(SN_ENOTFOUND, "%s holds no %srecorder-RANK%s.bin%s%.300s", run_dir,
                    all.notes.len ? "usable " : "", previous ? ".previous" : "",
                    all.notes.len ? ": " : "", sn_str_get(&all.notes));
        sn_str_done(&all.notes);
        return status;
    }
    *ret = all;
    return SN_OK;
}

void sn_recordings_done(sn_recordings *r)
{
    sn_str_done(&r->notes);
}

/* ---- words ---- */

const char *sn_alive_name(sn_alive alive)
{
    static const char *const name[] = {"unknown", "running", "stopped", "left", "dead"};
    return (size_t) alive < SN_COUNT(name) ? name[alive] : "unknown";
}

void sn_recorded_text(const sn_recording *r, const sn_recorded *op, sn_str *out)
{
    const char *name = op->op[0] != '\0' ? op->op : "operation";
    if (op->group == SN_RECORDER_PAIR)
        sn_str_printf(out, "%s rank %d, tag %llu", name, op->peer, (unsigned long long) op->seq);
    else
        sn_str_printf(out, "%s #%llu of group %s", name, (unsigned long long) op->seq,
                      op->group >= 0 ? r->group[op->group].name : "?");
}
