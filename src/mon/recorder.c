/* SPDX-License-Identifier: Apache-2.0
 *
 * The writing side of the flight recorder: plain stores into a mapped file. */
#include "mon/mon.h"
#include "mon/recorder_file.h"
#include "mon/system.h"
#include "mon/ticks.h"
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define AHEAD 4                         /* records */
#define CALIBRATE (200 * INT64_C(1000)) /* ns: the rate to 0.1 %; the first step makes it exact */

struct sn_recorder {
    file_all *file;
    int fd; /* holds the lock */
    bool tick_is_ns;
    uint64_t posted; /* number of the last record */
    int32_t step;
    int next_group; /* where to look for a place first */
};

/* ---- clocks ---- */

uint64_t sn_recorder_now(const sn_recorder *r)
{
    if (r == NULL)
        return 0;
    return r->tick_is_ns ? (uint64_t) sn_now() : ticks_read();
}

static void read_clocks(const sn_recorder *r, uint64_t *ret_ticks, int64_t *ret_mono)
{
    *ret_mono = sn_now();
    *ret_ticks = r->tick_is_ns ? (uint64_t) *ret_mono : ticks_read();
}

static void calibrate(sn_recorder *r, file_head *h)
{
    uint64_t ticks;
    int64_t mono;
    h->wall_ns = sn_now_wall();
    read_clocks(r, &h->ticks, &h->mono_ns);
    h->ns_per_tick = 1;
    if (r->tick_is_ns)
        return;
    do
        read_clocks(r, &ticks, &mono);
    while (mono - h->mono_ns < CALIBRATE);
    h->ns_per_tick = (double) (mono - h->mono_ns) / (double) (ticks - h->ticks);
}

/* ---- the file ---- */

/* The file's blocks, its lock and its mapping; or nothing is left behind. */
static sn_status make_file(const char *path, sn_recorder *r)
{
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    r->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (r->fd < 0)
        return sn_fail(SN_EIO, "cannot create %s: %s", path, strerror(errno));
    int failed = posix_fallocate(r->fd, 0, sizeof(file_all));
    if (failed)
        return sn_fail(failed == ENOSPC ? SN_ENOSPC : SN_EIO, "cannot reserve %zu bytes for %s: %s",
                       sizeof(file_all), path, strerror(failed));
    bool locked = fcntl(r->fd, F_SETLK, &all) == 0; /* else nobody can tell whether we live */
    void *p = mmap(NULL, sizeof(file_all), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd,
                   0); /* here, and not under the first operations */
    if (p == MAP_FAILED)
        return sn_fail(SN_EIO, "cannot map %s: %s", path, strerror(errno));
    r->file = p;
    r->file->head.locked = locked;
    return SN_OK;
}

static void destroy(sn_recorder *r)
{
    if (r->file)
        munmap(r->file, sizeof(file_all));
    if (r->fd >= 0)
        close(r->fd);
    free(r);
}

static void fill_head(sn_recorder *r, const sn_recorder_opts *opts)
{
    file_head *h = &r->file->head;
    h->version = FILE_VERSION;
    h->file_bytes = sizeof(file_all);
    h->record_bytes = sizeof(file_record);
    h->rank = opts->rank;
    h->world = opts->world;
    h->pid = getpid();
    h->tick_is_ns = r->tick_is_ns;
    h->boot = mon_boot();
    snprintf(h->host, sizeof(h->host), "%s", opts->host ? opts->host : "");
    r->file->say.step = -1;
    r->file->say.wait_for = -1;
    calibrate(r, h);
    __atomic_store_n(&h->magic, FILE_MAGIC, __ATOMIC_RELEASE);
}

/* The file of an attempt before this one is kept under another name. */
static sn_status put_in_place(const char *run_dir, int rank, const char *fresh)
{
    sn_str path = {0}, old = {0};
    sn_str_printf(&path, "%s/recorder-%d.bin", run_dir, rank);
    sn_str_printf(&old, "%s/recorder-%d.previous.bin", run_dir, rank);
    sn_status status = SN_OK;
    rename(sn_str_get(&path), sn_str_get(&old));
    if (rename(fresh, sn_str_get(&path)))
        status = sn_fail(SN_EIO, "cannot name %s: %s", sn_str_get(&path), strerror(errno));
    sn_str_done(&path);
    sn_str_done(&old);
    return status;
}

sn_status sn_recorder_create(const char *run_dir, const sn_recorder_opts *opts, sn_recorder **ret)
{
    sn_recorder *r = sn_alloc(sizeof(*r));
    sn_str fresh = {0};
    sn_str_printf(&fresh, "%s/.recorder-%d.new", run_dir, opts->rank);
    r->fd = -1;
    r->step = -1;
    r->tick_is_ns = !mon_ticks_steady() || ticks_read() == 0;
    unlink(sn_str_get(&fresh)); /* of a worker that was killed right here */
    sn_status status = make_file(sn_str_get(&fresh), r);
    if (status >= 0) {
        fill_head(r, opts);
        status = put_in_place(run_dir, opts->rank, sn_str_get(&fresh));
    }
    if (status < 0) {
        unlink(sn_str_get(&fresh));
        destroy(r);
    } else {
        *ret = r;
    }
    sn_str_done(&fresh);
    return status;
}

/* ---- what it is doing now ---- */

static file_say *say_begin(sn_recorder *r)
{
    file_say *s = &r->file->say;
    __atomic_store_n(&s->seq, s->seq + 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    return s;
}

static void say_end(file_say *s)
{
    __atomic_store_n(&s->seq, s->seq + 1, __ATOMIC_RELEASE);
}

void sn_recorder_close(sn_recorder *r, sn_status status, const char *why)
{
    if (r == NULL)
        return;
    file_say *s = say_begin(r);
    read_clocks(r, &s->ticks, &s->mono_ns);
    s->left = 1;
    s->left_status = status;
    snprintf(s->why, sizeof(s->why), "%s", why ? why : "");
    say_end(s);
    destroy(r);
}

void sn_recorder_wait(sn_recorder *r, uint64_t number, int rank)
{
    if (r == NULL || (number == r->file->say.wait_number && rank == r->file->say.wait_for))
        return;
    file_say *s = say_begin(r);
    if (number != s->wait_number)
        s->wait_ticks = sn_recorder_now(r);
    s->wait_number = number;
    s->wait_for = rank;
    say_end(s);
}

void sn_recorder_step(sn_recorder *r, int64_t step)
{
    if (r == NULL)
        return;
    file_say *s = say_begin(r);
    s->step = step;
    r->step = (int32_t) SN_MIN(step, INT32_MAX);
    read_clocks(r, &s->ticks, &s->mono_ns);
    say_end(s);
}

void sn_recorder_doing(sn_recorder *r, const char *text)
{
    if (r == NULL)
        return;
    size_t n = strnlen(text, FILE_TEXT - 1);
    file_say *s = say_begin(r);
    s->doing_ticks = sn_recorder_now(r);
    memcpy(s->doing, text, n);
    s->doing[n] = '\0';
    say_end(s);
}

/* ---- names ---- */

void sn_recorder_attempt(sn_recorder *r, uint64_t attempt)
{
    if (r != NULL)
        __atomic_store_n(&r->file->head.attempt, attempt, __ATOMIC_RELAXED);
}

void sn_recorder_word(sn_recorder *r, int index, const char *text)
{
    if (r != NULL && index >= 0 && index < SN_RECORDER_WORDS)
        snprintf(r->file->word[index].text, sizeof(r->file->word[index].text), "%s", text);
}

/* A place never used, else one whose group was left: -1 when all serve. */
static int place_for_group(sn_recorder *r)
{
    file_group *g = r->file->group;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < SN_RECORDER_GROUPS; i++) {
            int at = (r->next_group + i) % SN_RECORDER_GROUPS;
            if (pass == 0 ? g[at].key == 0 : g[at].left != 0)
                return at;
        }
    }
    return -1;
}

int sn_recorder_group(sn_recorder *r, uint32_t id, const char *name, const int *members, int n,
                      int me)
{
    int at = r != NULL ? place_for_group(r) : -1;
    if (at < 0)
        return SN_RECORDER_OTHER;
    file_group *g = &r->file->group[at];
    uint64_t key = sn_hash64(sn_hash_bytes(name, strlen(name)),
                             sn_hash_bytes(members, (size_t) n * sizeof(int)), id);
    __atomic_store_n(&g->key, 0, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    g->posted = g->done = 0;
    g->size = n;
    g->me = me;
    g->left = 0;
    g->turn++;
    snprintf(g->name, sizeof(g->name), "%s", name);
    for (int i = 0; i < n && i < SN_RECORDER_MEMBERS; i++)
        g->member[i] = members[i];
    __atomic_store_n(&g->key, key | 1, __ATOMIC_RELEASE);
    r->next_group = (at + 1) % SN_RECORDER_GROUPS;
    return at;
}

void sn_recorder_group_left(sn_recorder *r, int group)
{
    if (r != NULL && group >= 0)
        r->file->group[group].left = 1;
}

/* ---- records ---- */

static file_record *record_of(sn_recorder *r, uint64_t number)
{
    return &r->file->record[(number - 1) % SN_RECORDER_RECORDS];
}

static uint32_t lap_of(uint64_t number)
{
    return (uint32_t) ((number - 1) / SN_RECORDER_RECORDS) + 1;
}

/* The ring is larger than the nearest caches, and stores leave in order: one that has to fetch its
 * line would hold up the next signal to a peer. */
static void fetch(const file_record *f)
{
    __builtin_prefetch(f, 1);
}

uint64_t sn_recorder_post(sn_recorder *r, const sn_record_what *what, sn_record_state state,
                          uint64_t at)
{
    if (r == NULL)
        return 0;
    uint64_t number = ++r->posted;
    file_record *f = record_of(r, number);
    fetch(record_of(r, number + AHEAD));
    file_group *g = what->group >= 0 ? &r->file->group[what->group] : NULL;
    __atomic_store_n(&f->lap, 0, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    f->posted = at;
    f->started = state >= SN_RECORD_STARTED ? at : 0;
    f->ended = state >= SN_RECORD_DONE ? at : 0;
    f->seq = what->seq;
    f->count = what->count;
    f->blocks = (uint16_t) (what->blocks - 1);
    f->step = r->step;
    f->group = (int8_t) what->group;
    f->peer = what->peer;
    f->turn = g ? (uint16_t) g->turn : 0;
    f->status = 0;
    f->state = state;
    f->op = what->op;
    f->red = what->red;
    f->algorithm = what->algorithm;
    f->dtype = what->dtype;
    __atomic_store_n(&f->lap, lap_of(number), __ATOMIC_RELEASE);
    if (g)
        g->posted = what->seq;
    if (g && state == SN_RECORD_DONE)
        g->done = what->seq;
    return number;
}

static file_record *still_there(sn_recorder *r, uint64_t number)
{
    if (r == NULL || number == 0 || r->posted - number >= SN_RECORDER_RECORDS)
        return NULL;
    return record_of(r, number);
}

void sn_recorder_start(sn_recorder *r, uint64_t number)
{
    file_record *f = still_there(r, number);
    if (f == NULL || f->state != SN_RECORD_POSTED)
        return;
    f->started = sn_recorder_now(r);
    __atomic_store_n(&f->state, SN_RECORD_STARTED, __ATOMIC_RELEASE);
}

void sn_recorder_end_at(sn_recorder *r, uint64_t number, sn_status status, uint64_t at)
{
    file_record *f = still_there(r, number);
    if (f == NULL || f->state >= SN_RECORD_DONE)
        return;
    f->ended = at;
    f->status = (int8_t) status;
    __atomic_store_n(&f->state, status < 0 ? SN_RECORD_FAILED : SN_RECORD_DONE, __ATOMIC_RELEASE);
    file_group *g = f->group >= 0 ? &r->file->group[f->group] : NULL;
    if (g && status >= 0 && (uint16_t) g->turn == f->turn)
        g->done = SN_MAX(g->done, f->seq);
}

void sn_recorder_end(sn_recorder *r, uint64_t number, sn_status status)
{
    sn_recorder_end_at(r, number, status, sn_recorder_now(r));
}
